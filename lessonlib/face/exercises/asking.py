"""What a notebook says of an exercise: its question, feedback to a guess, hints, the worked solution."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from lessonlib.base.errors import InvalidInputError, UnknownNameError, is_number, shown
from lessonlib.face.exercises.exercises import Exercise

BOOK = Path(__file__).parent / "book"


@cache
def all_exercises() -> dict[str, Exercise]:
    """Every exercise of the collection by key, in the order of the notebooks."""
    book: dict[str, Exercise] = {}
    modules = [
        import_module(f"lessonlib.face.exercises.book.{path.stem}") for path in sorted(BOOK.glob("notebook_*.py"))
    ]
    for exercise in (found for module in modules for found in vars(module).values() if isinstance(found, Exercise)):
        if exercise.key in book:
            raise InvalidInputError(f"exercise {exercise.key!r} stands in the book twice.")
        book[exercise.key] = exercise
    return book


def find(key: str) -> Exercise:
    """The exercise of that key; UnknownNameError with all keys otherwise."""
    try:
        return all_exercises()[key]
    except (KeyError, TypeError):
        raise UnknownNameError(
            f"exercise {shown(key)} is not known; expected one of {', '.join(all_exercises())}."
        ) from None


def ask(key: str) -> None:
    """Print the question, and its options where it has some."""
    exercise = find(key)
    print(exercise.question)
    for letter, option in exercise.options.items():
        print(f"  {letter}  {option}")


def check(key: str, guess: Any) -> None:
    """Print what is to be said to a guess."""
    print(find(key).feedback(guess))


def hint(key: str, number: int = 1) -> None:
    """Print hint `number`, from 1; asking past the last one says so."""
    hints = find(key).hints
    if not is_number(number) or number != int(number) or not 1 <= number <= len(hints):
        print(f"There are {len(hints)} hints for {key!r}: hint({key!r}, 1) to hint({key!r}, {len(hints)}).")
        return
    print(f"Hint {int(number)} of {len(hints)}: {hints[int(number) - 1]}")


def solution(key: str) -> None:
    """Print the worked solution, with the numbers put in."""
    print(find(key).answer.solution)
