"""Every exercise of the collection, in the order of the notebooks, a module for each. The machinery is exercises.py.

No expected value is typed in: each is a function that asks the library. So is each slip, from the wrong formula that
leads to it.
"""

from lessonlib.exercise_book import (
    notebook_00,
    notebook_01,
    notebook_02,
    notebook_03,
    notebook_04,
    notebook_05,
    notebook_06,
    notebook_07,
    notebook_08,
    notebook_09,
)
from lessonlib.exercises import Exercise

NOTEBOOKS = (
    notebook_00,
    notebook_01,
    notebook_02,
    notebook_03,
    notebook_04,
    notebook_05,
    notebook_06,
    notebook_07,
    notebook_08,
    notebook_09,
)
EXERCISES: tuple[Exercise, ...] = tuple(exercise for notebook in NOTEBOOKS for exercise in notebook.EXERCISES)
