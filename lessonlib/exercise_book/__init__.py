"""Every exercise of the collection, in the order of the notebooks, a module for each. The machinery is exercises.py.

No expected value is typed in: each is a function that asks the library. So is each slip, from the wrong formula that
leads to it.
"""

from importlib import import_module

from lessonlib.exercises import Exercise

NOTEBOOKS = 10
EXERCISES: tuple[Exercise, ...] = tuple(
    exercise
    for number in range(NOTEBOOKS)
    for exercise in import_module(f"lessonlib.exercise_book.notebook_{number:02}").EXERCISES
)
