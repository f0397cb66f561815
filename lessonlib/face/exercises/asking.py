"""What a notebook says of an exercise: its question, what is said to a guess, hints, the worked solution."""

import os
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from lessonlib.base.checks import a, checked
from lessonlib.base.errors import InvalidInputError, UnknownNameError, is_number, shown
from lessonlib.base.text import plain_markdown
from lessonlib.face.exercises.exercises import Exercise, NumberExercise
from lessonlib.face.exercises.progress import WHERE_KEPT, Progress
from lessonlib.face.tables import show_forms

BOOK = Path(__file__).parent / "book"
STILL = "LESSONLIB_STILL"  # set where outputs are stored: questions come as text alone, without controls


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


def exported(key: str) -> dict[str, Any]:
    """An exercise as JSON has it, all worked out: what a page needs to ask it, and to answer a guess as `check` does.

    A number has its `value` and `tolerance`, and `slips`: a list of [value, words]. `says`: what is said, and when.
    """
    exercise = find(key)
    found: dict[str, Any] = {"key": key, "notebook": exercise.notebook, "question": exercise.question}
    found |= {"hints": list(exercise.hints), "solution": exercise.answer.solution, "says": exercise.says}
    found["again"] = exercise.again  # the notebook to read again, of a question of a quiz
    if isinstance(exercise, NumberExercise):
        numbers = {"value": exercise.answer.value, "tolerance": exercise.tolerance, "slips": exercise.slips}
        return found | {"kind": "number", "unit": exercise.unit, "predicted": exercise.predicted} | numbers
    return found | {"kind": "choice", "options": exercise.options, "right": exercise.right}


def ask(key: str) -> None:
    """Ask a question with a field or buttons to answer it; the same as text where no widget lives.

    What is answered is kept in progress.json, in a working copy. Raises UnknownNameError for a key that is not known.
    """
    exercise = find(key)
    said = [f"**Question.** {plain_markdown(exercise.question)}", ""]
    said += [f"- **{letter}** {plain_markdown(option)}" for letter, option in exercise.options.items()]
    code = f'check("{key}", {"..." if isinstance(exercise, NumberExercise) else repr("a")})'
    text = "\n".join([*said, "", f"Run this cell to answer it; or in code: `{code}`."])
    bundle: dict[str, Any] = {"text/plain": text, "text/markdown": text}
    if not os.environ.get(STILL):
        from lessonlib.face.widgets.asking import question_widget

        bundle |= question_widget(exported(key), Progress.here())
    show_forms(bundle)


def check(key: str, guess: Any) -> None:
    """Say what is to be said to a guess."""
    verdict = find(key).judge(guess)
    if verdict.right is not None:
        Progress.here().tried(key, verdict.right, verdict.words)
    _say(verdict.words)


def hint(key: str, number: int = 1) -> None:
    """Say hint `number`, from 1; asking past the last one says so."""
    hints = find(key).hints
    if not is_number(number) or number != int(number) or not 1 <= number <= len(hints):
        few = f"There is one hint for {key!r}: hint({key!r})."
        many = f"There are {len(hints)} hints for {key!r}: hint({key!r}, 1) to hint({key!r}, {len(hints)})."
        _say(few if len(hints) == 1 else many)
        return
    Progress.here().hinted(key, int(number))
    _say(f"Hint {int(number)} of {len(hints)}: {hints[int(number) - 1]}")


def solution(key: str) -> None:
    """Say the worked solution, with the numbers put in."""
    words = find(key).answer.solution
    Progress.here().looked(key)
    _say(words)


@checked(notebook=a(str, "'02'"))
def standing(notebook: str = "") -> None:
    """Say where one stands: in a notebook, by its number such as "02", or in all of them; of a quiz its score, too."""
    book = all_exercises()
    numbers = sorted({exercise.notebook for exercise in book.values()})
    if notebook and notebook not in numbers:
        raise UnknownNameError(f"notebook {shown(notebook)} has no exercise; expected one of {', '.join(numbers)}.")
    progress = Progress.here()
    asked = {number: [key for key in book if book[key].notebook == number] for number in numbers}
    if progress.path is None and not notebook:  # one sentence for all of them
        _say(f"Questions: {', '.join(f'{number}: {len(keys)}' for number, keys in asked.items())}. {WHERE_KEPT}")
        return
    for number in [notebook] if notebook else numbers:
        keys = asked[number]
        _say(progress.in_words(number, keys, {key: book[key].again for key in keys if book[key].again}))


def _say(words: str) -> None:
    """As Markdown: a line that is printed may break inside a word."""
    show_forms({"text/plain": words, "text/markdown": plain_markdown(words)})
