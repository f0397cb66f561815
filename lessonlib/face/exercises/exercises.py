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

No answer is typed in. In a notebook: `ask("bytes-of-llama")`, or in code `check("bytes-of-llama", guess)`, `hint(...)`,
`solution(...)`; a guess of None is answered by a line that never changes, so that an untouched notebook prints the same
each time.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from inspect import getdoc
from typing import Any, NamedTuple

from lessonlib.base.errors import InvalidInputError, is_number, shown


@dataclass
class Number:
    """The answer to a question for a number: its value in `unit`, and the slips that lead to another value."""

    unit: str
    value: float = math.nan
    slips: list[tuple[float, str]] = field(default_factory=list)  # (wrong value, what to say)
    solution: str = ""
    digits: int = 4  # in words

    def slip(self, value: float, feedback: str) -> None:
        """Name a wrong answer that is easy to reach, and what to say to it."""
        self.slips.append((value, feedback))

    def __str__(self) -> str:
        """The value with as many digits as are asked for, and its unit."""
        whole = float(self.value).is_integer() and abs(self.value) < 1e15
        return f"{self.value:,.0f} {self.unit}" if whole else f"{self.value:,.{self.digits}g} {self.unit}"


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
    """What a learner reads before the answer: `key`, `question`, `options` by letter and `hints`.

    `notebook`: the number of the notebook that asks it, "02", from the name of its module. `again`: that of the one to
    read again after a wrong answer, which a question of a quiz has; "" otherwise.
    """

    def __init__(self, work: Callable[[Any], str], again: str = "") -> None:
        question, *items = re.split(r"\n+(?=- |[a-z]: )", getdoc(work) or "")
        items = [" ".join(item.split()) for item in items]
        self.key, self.notebook = work.__name__.replace("_", "-"), work.__module__[-2:]
        self.question = " ".join(question.split())
        self.options = {item[0]: item[3:] for item in items if item[0] != "-"}
        self.hints = tuple(item[2:] for item in items if item[0] == "-")
        self.work, self.again = work, again


class Verdict(NamedTuple):
    """What is said to a guess, and whether it is right; `right` is None for what is not a guess."""

    right: bool | None
    words: str


class NumberExercise(Question):
    """A question with a number for an answer, right within `tolerance` (relative), or where it rounds to the guess.

    A slip is named only where it gives the guess. `predicted`: a guess before the result, after which the value and its
    reason are always said.
    """

    def __init__(
        self, work: Callable[[Number], str], unit: str, tolerance: float, predicted: bool = False, again: str = ""
    ) -> None:
        super().__init__(work, again)
        self.unit, self.tolerance, self.predicted = unit, tolerance, predicted
        if predicted:
            self.question += f" (Right within {tolerance:.0%}.)".replace("%", " %")

    @cached_property
    def answer(self) -> Number:
        answer = Number(self.unit, digits=3 if self.predicted else 4)
        answer.solution = self.work(answer)
        return answer

    @cached_property
    def slips(self) -> tuple[tuple[float, str], ...]:
        """(wrong value, what to say): the exercise's own slips, and those of unit that can be made here."""
        found = list(self.answer.slips)
        for factor, words in _slips_of(self.unit):
            said = f"You are off by a factor of {words}. The answer is wanted in {self.unit}."
            found += [(self.answer.value * factor, said), (self.answer.value / factor, said)]
        return tuple(found)

    @cached_property
    def says(self) -> dict[str, str]:
        """What is said: to a guess that is "right", "high" or "low", before one, to "no number", and before a slip."""
        solution, within = self.answer.solution, f"within {100 * self.tolerance:g} %"
        found = {
            "none": f"Not answered yet: give a number, in {self.unit}.",
            "no number": f"That is not a number. Give a plain number, in {self.unit}.",
        }
        if self.predicted:
            wrong = f"Not {within}. {solution}"  # which says the answer
            return found | {
                "right": f"Right {within}. {solution}",
                "slip": f"Not {within}. ",
                "after slip": f" {solution}",
                "high": wrong,
                "low": wrong,
            }
        return found | {
            "right": f"Right: {self.answer}.",
            "slip": "Not yet. ",
            "after slip": "",
            "high": "Not yet: that is too high. A hint may help.",
            "low": "Not yet: that is too low. A hint may help.",
        }

    def judge(self, guess: Any) -> Verdict:
        """The verdict on a guess; a stable line when there is none yet."""
        if guess is None:
            return Verdict(None, self.says["none"])
        if not is_number(guess):
            return Verdict(None, f"{shown(guess)} is not a number. Give a plain number, in {self.unit}.")
        guess, expected = float(guess), self.answer.value
        if _within(guess, expected, self.tolerance):
            return Verdict(True, self.says["right"])
        value, said = min(self.slips, key=lambda slip: abs(guess - slip[0]) / abs(slip[0]), default=(math.nan, ""))
        if _within(guess, value, min(self.tolerance, SLIP_TOLERANCE)):
            return Verdict(False, f"{self.says['slip']}{said}{self.says['after slip']}")
        if _rounds_to(expected, guess):
            return Verdict(True, self.says["right"])
        return Verdict(False, self.says["high" if guess > expected else "low"])


SLIP_TOLERANCE = 0.01  # a slip is named only where it gives the guess


def _within(guess: float, value: float, tolerance: float) -> bool:
    return abs(guess - value) <= tolerance * abs(value)


def _rounds_to(value: float, guess: float) -> bool:
    """Whether the guess is the value rounded, to two digits or more: 4.4 and 4.5 are what 4.452 rounds to."""
    digits, _, power = f"{Decimal(repr(guess)).normalize():E}".partition("E")
    places = len(digits.replace("-", "").replace(".", ""))
    return places > 1 and abs(guess - value) <= ROUNDED * 10.0 ** (int(power) - places + 1)


ROUNDED = 0.55  # of the guess's last digit: what was rounded once may be rounded again
# The units of what is counted from bytes, and the prefix that its sizes have: seconds come of a memory's gigabytes.
OF_BYTES = {"kB": "k", "MB": "M", "TB": "T"} | dict.fromkeys(("bytes", "GB", "s", "ms"), "G")
COUNTED = ("bytes", "kB", "MB", "GB", "TB")
SHARES = ("%",)


def _slips_of(unit: str) -> tuple[tuple[float, str], ...]:
    """Slips of unit that can be made: of prefixes where it has one, of a factor 2 where something is counted."""
    found: tuple[tuple[float, str], ...] = ()
    if unit in OF_BYTES:
        found += (
            (1e3, "1,000: look at the prefix of your unit (milli, kilo, mega, giga)"),
            (1e6, "1,000,000: look at the prefix of your unit"),
            (1e9, "1,000,000,000: look at the prefix of your unit"),
            _binary_slip(OF_BYTES[unit]),
        )
    if unit in COUNTED:
        found += ((2.0, "2: look for a factor 2 too many or too few (K and V, multiply and add, bytes of a number)"),)
    if unit in SHARES:
        found += ((100.0, "100: a share and a percentage are not the same number"),)
    return found


def _binary_slip(prefix: str) -> tuple[float, str]:
    """The slip of a size in GiB for GB: a factor of 2**30 / 1e9, and of its own for each prefix."""
    power = 1 + "kMGT".index(prefix)
    binary = f"{prefix.upper()}iB"
    return 2.0 ** (10 * power) / 10.0 ** (3 * power), (
        f"2**{10 * power} / 1e{3 * power}: one of your sizes is in {binary} and the other in {prefix}B"
    )


class ChoiceExercise(Question):
    """A question with one right option; every option has its own feedback, which explains."""

    def __init__(self, work: Callable[[Choice], str], right: str, again: str = "") -> None:
        super().__init__(work, again)
        self.right = right

    @cached_property
    def answer(self) -> Choice:
        answer = Choice(f"{self.right}: {self.options.get(self.right)}")
        answer.solution = self.work(answer)
        if self.right not in self.options or set(answer.feedback) != set(self.options):
            raise InvalidInputError(f"ChoiceExercise {self.key!r}: the right option and all feedback need an option.")
        return answer

    @cached_property
    def says(self) -> dict[str, str]:
        """What is said to each option by its letter, and before one is chosen."""
        verdicts = {letter: "Right" if letter == self.right else "Not yet" for letter in self.options}
        found = {letter: f"{verdict}. {self.answer.feedback[letter]}" for letter, verdict in verdicts.items()}
        return found | {"none": f"Not answered yet: choose one of {', '.join(map(repr, self.options))}."}

    def judge(self, guess: Any) -> Verdict:
        """The verdict on a letter; a stable line when there is none yet."""
        if guess is None:
            return Verdict(None, self.says["none"])
        letter = guess.strip().lower() if isinstance(guess, str) else guess
        if not isinstance(letter, str) or letter not in self.options:
            letters = ", ".join(map(repr, self.options))
            return Verdict(None, f"{shown(guess)} is not one of the options. Choose one of {letters}.")
        return Verdict(letter == self.right, self.says[letter])


Exercise = NumberExercise | ChoiceExercise


def number(unit: str, tolerance: float = 0.01) -> Callable[[Callable[[Number], str]], NumberExercise]:
    """Declare an exercise to compute: a number in `unit`, right within `tolerance` (relative)."""
    return lambda work: NumberExercise(work, unit, tolerance)


def predict(unit: str, tolerance: float = 0.15, again: str = "") -> Callable[[Callable[[Number], str]], NumberExercise]:
    """Declare a prediction: a number in `unit` guessed before it is shown; its reason is said after any guess."""
    return lambda work: NumberExercise(work, unit, tolerance, predicted=True, again=again)


def choice(right: str, again: str = "") -> Callable[[Callable[[Choice], str]], ChoiceExercise]:
    """Declare an exercise with options, of which the letter `right` is the answer."""
    return lambda work: ChoiceExercise(work, right, again)
