"""Exercises: a question, an answer that the library computes, feedback that names the likely slip, hints, a solution.

An exercise is a function of a module in `book`, and the module says which notebook asks it. The function's name is the
key, with hyphens. Its docstring is what a learner reads first: the question, options as `a: ...`, hints as `- ...`. Its
body runs when the answer is first looked at: it gives the value and the slips to its argument, and returns the worked
solution, in which `{answer}` is the answer in words, with its unit.

    @number("GB", tolerance=0.005)
    def bytes_of_llama(answer: Number) -> str:
        \"\"\"How many GB of memory do the parameters of Llama-3.1-8B take, in bf16?

        - Each takes two bytes.
        \"\"\"
        parameters = load_model("llama-3.1-8b").parameters
        answer.value = 2 * parameters / 1e9
        answer.slip(4 * parameters / 1e9, "That is float32.")
        return f"2 bytes x {parameters:,} parameters = {answer}."

No answer is typed in. In a notebook: `check("bytes-of-llama", guess)`, `hint(...)`, `solution(...)`; a guess of None
prints a line that never changes, so that an untouched notebook has reproducible outputs.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from inspect import getdoc
from typing import Any

from lessonlib.base.errors import InvalidInputError, is_number, shown


@dataclass
class Number:
    """The answer to a question for a number: its value in `unit`, and the slips that lead to another value."""

    unit: str
    value: float = math.nan
    slips: list[tuple[float, str]] = field(default_factory=list)  # (wrong value, what to say)
    solution: str = ""

    def slip(self, value: float, feedback: str) -> None:
        """Name a wrong answer that is easy to reach, and what to say to it."""
        self.slips.append((value, feedback))

    def __str__(self) -> str:
        """The value with as many digits as are asked for, and its unit."""
        whole = float(self.value).is_integer() and abs(self.value) < 1e15
        return f"{self.value:,.0f} {self.unit}" if whole else f"{self.value:,.4g} {self.unit}"


@dataclass
class Choice:
    """The answer to a question with options: the right one in words, and what to say to each."""

    words: str
    feedback: dict[str, str] = field(default_factory=dict)
    solution: str = ""

    def says(self, **feedback: str) -> None:
        """What to say to each option, by its letter."""
        self.feedback = feedback

    def __str__(self) -> str:
        return self.words


class Question:
    """What a learner reads before the answer: `key`, `question`, `options` by letter and `hints`."""

    def __init__(self, work: Callable[[Any], str]) -> None:
        question, *items = re.split(r"\n+(?=- |[a-z]: )", getdoc(work) or "")
        items = [" ".join(item.split()) for item in items]
        self.key = work.__name__.replace("_", "-")
        self.question = " ".join(question.split())
        self.options = {item[0]: item[3:] for item in items if item[0] != "-"}
        self.hints = tuple(item[2:] for item in items if item[0] == "-")
        self.work = work


class NumberExercise(Question):
    """A question with a number for an answer, right within `tolerance` (relative).

    Of its slips, and of the usual slips of unit, the nearest to a wrong guess is named.
    """

    def __init__(self, work: Callable[[Number], str], unit: str, tolerance: float) -> None:
        super().__init__(work)
        self.unit, self.tolerance = unit, tolerance

    @cached_property
    def answer(self) -> Number:
        answer = Number(self.unit)
        answer.solution = self.work(answer)
        return answer

    def feedback(self, guess: Any) -> str:
        """What to say to a guess; a stable line when there is none yet."""
        if guess is None:
            return f"Not answered yet: give a number, in {self.unit}."
        if not is_number(guess):
            return f"{shown(guess)} is not a number. Give a plain number, in {self.unit}."
        guess, expected = float(guess), self.answer.value
        if self._near(guess, expected):
            return f"Right: {self.answer}."
        named = list(self.answer.slips)
        for factor, words in self._scale_slips():
            said = f"You are off by a factor of {words}. The answer is wanted in {self.unit}."
            named += [(expected * factor, said), (expected / factor, said)]
        value, said = min(named, key=lambda slip: abs(guess - slip[0]) / abs(slip[0]))
        if self._near(guess, value):
            return f"Not yet. {said}"
        direction = "high" if guess > expected else "low"
        return f"Not yet: {guess:,.6g} is too {direction}. Ask for hint({self.key!r})."

    def _near(self, guess: float, value: float) -> bool:
        return abs(guess - value) <= self.tolerance * abs(value)

    def _scale_slips(self) -> tuple[tuple[float, str], ...]:
        """Slips of unit that make sense here. A ratio, or a guess at a measurement, is off by 2 for other reasons."""
        of_bytes = (_binary_slip(OF_BYTES[self.unit]),) if self.unit in OF_BYTES else ()
        counted = (COUNTING_SLIP,) if self.unit != "times" and self.tolerance < 0.1 else ()
        return SCALE_SLIPS + of_bytes + counted


# The units of what is counted from bytes, and the prefix that its sizes have: seconds come of a memory's gigabytes.
OF_BYTES = {"kB": "k", "MB": "M", "TB": "T"} | dict.fromkeys(("bytes", "GB", "seconds", "s", "ms"), "G")

SCALE_SLIPS = (
    (1e3, "1,000: look at the prefix of your unit (milli, kilo, mega, giga)"),
    (1e6, "1,000,000: look at the prefix of your unit"),
    (1e9, "1,000,000,000: look at the prefix of your unit"),
    (100.0, "100: a share and a percentage are not the same number"),
)
COUNTING_SLIP = (2.0, "2: look for a factor 2 too many or too few (K and V, multiply and add, bytes of a number)")


def _binary_slip(prefix: str) -> tuple[float, str]:
    """The slip of a size in GiB for GB: a factor of 2**30 / 1e9, and of its own for each prefix."""
    power = 1 + "kMGT".index(prefix)
    binary = f"{prefix.upper()}iB"
    return 2.0 ** (10 * power) / 10.0 ** (3 * power), (
        f"2**{10 * power} / 1e{3 * power}: one of your sizes is in {binary} and the other in {prefix}B"
    )


class ChoiceExercise(Question):
    """A question with one right option; every option has its own feedback, which explains."""

    def __init__(self, work: Callable[[Choice], str], right: str) -> None:
        super().__init__(work)
        self.right = right

    @cached_property
    def answer(self) -> Choice:
        answer = Choice(f"{self.right}: {self.options.get(self.right)}")
        answer.solution = self.work(answer)
        if self.right not in self.options or set(answer.feedback) != set(self.options):
            raise InvalidInputError(f"ChoiceExercise {self.key!r}: the right option and all feedback need an option.")
        return answer

    def feedback(self, guess: Any) -> str:
        """What to say to a letter; a stable line when there is none yet."""
        letters = ", ".join(repr(letter) for letter in self.options)
        if guess is None:
            return f"Not answered yet: choose one of {letters}."
        letter = guess.strip().lower() if isinstance(guess, str) else guess
        if not isinstance(letter, str) or letter not in self.options:
            return f"{shown(guess)} is not one of the options. Choose one of {letters}."
        verdict = "Right" if letter == self.right else "Not yet"
        return f"{verdict}. {self.answer.feedback[letter]}"


Exercise = NumberExercise | ChoiceExercise


def number(unit: str, tolerance: float = 0.01) -> Callable[[Callable[[Number], str]], NumberExercise]:
    """Declare an exercise whose answer is a number in `unit`, right within `tolerance` (relative)."""
    return lambda work: NumberExercise(work, unit, tolerance)


def choice(right: str) -> Callable[[Callable[[Choice], str]], ChoiceExercise]:
    """Declare an exercise with options, of which the letter `right` is the answer."""
    return lambda work: ChoiceExercise(work, right)
