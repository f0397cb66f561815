"""Every exercise of the collection, a module for each notebook. The machinery is `face.exercises.exercises`.

No expected value is typed in: each is a function that asks the library. So is each slip, from the wrong formula that
leads to it.
"""
