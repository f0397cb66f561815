"""Exercises: a question, an answer that the library computes, feedback that names the likely slip, hints, a solution.

In a notebook: `check("smallest-prompt", guess)`, `hint("smallest-prompt")`, `solution("smallest-prompt")`. A guess of
None prints a line that never changes, so that an untouched notebook has reproducible outputs. Expected values and
slips are functions without arguments, computed when first asked for: no answer is typed in.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lessonlib.base.errors import InvalidInputError, is_number, shown


@dataclass(frozen=True)
class Slip:
    """A wrong answer that is easy to reach, and what to say to who reached it."""

    value: Callable[[], float]
    feedback: str


@dataclass(frozen=True, kw_only=True)
class NumberExercise:
    """A question with a number for an answer, right within `tolerance` (relative).

    Of `slips`, and of the usual slips of unit, the nearest to a wrong guess is named. `solution` is a template
    whose {names} are filled from `numbers()`.
    """

    key: str
    notebook: str
    question: str
    unit: str
    expected: Callable[[], float]
    hints: tuple[str, ...]
    solution: str
    numbers: Callable[[], dict[str, Any]] = dict
    slips: tuple[Slip, ...] = ()
    tolerance: float = 0.01

    def feedback(self, guess: Any) -> str:
        """What to say to a guess; a stable line when there is none yet."""
        if guess is None:
            return f"Not answered yet: give a number, in {self.unit}."
        if not is_number(guess):
            return f"{shown(guess)} is not a number. Give a plain number, in {self.unit}."
        guess, expected = float(guess), self.expected()
        if self._near(guess, expected):
            return f"Right: {self.in_words(expected)}."
        named = [(slip.value(), slip.feedback) for slip in self.slips]
        for factor, words in self._scale_slips():
            said = f"You are off by a factor of {words}. The answer is wanted in {self.unit}."
            named += [(expected * factor, said), (expected / factor, said)]
        value, said = min(named, key=lambda slip: abs(guess - slip[0]) / abs(slip[0]))
        if self._near(guess, value):
            return f"Not yet. {said}"
        direction = "high" if guess > expected else "low"
        return f"Not yet: {guess:,.6g} is too {direction}. Ask for hint({self.key!r})."

    def in_words(self, value: float) -> str:
        """A value with as many digits as are asked for, and its unit."""
        number = f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:,.4g}"
        return f"{number} {self.unit}"

    def _near(self, guess: float, value: float) -> bool:
        return abs(guess - value) <= self.tolerance * abs(value)

    def _scale_slips(self) -> tuple[tuple[float, str], ...]:
        """Slips of unit that make sense here. A ratio, or a guess at a measurement, is off by 2 for other reasons."""
        of_bytes = (_binary_slip(OF_BYTES[self.unit]),) if self.unit in OF_BYTES else ()
        counted = (COUNTING_SLIP,) if self.unit != "times" and self.tolerance < 0.1 else ()
        return SCALE_SLIPS + of_bytes + counted

    def solution_text(self) -> str:
        return self.solution.format(**self.numbers(), answer=self.in_words(self.expected()))


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


@dataclass(frozen=True, kw_only=True)
class ChoiceExercise:
    """A question with one right option; every option has its own feedback, which explains."""

    key: str
    notebook: str
    question: str
    options: dict[str, str]
    right: str
    because: dict[str, str]
    hints: tuple[str, ...]
    solution: str
    numbers: Callable[[], dict[str, Any]] = dict

    def __post_init__(self) -> None:
        if self.right not in self.options or set(self.because) != set(self.options):
            raise InvalidInputError(f"ChoiceExercise {self.key!r}: the right option and all feedback need an option.")

    def feedback(self, guess: Any) -> str:
        letters = ", ".join(repr(letter) for letter in self.options)
        if guess is None:
            return f"Not answered yet: choose one of {letters}."
        letter = guess.strip().lower() if isinstance(guess, str) else guess
        if not isinstance(letter, str) or letter not in self.options:
            return f"{shown(guess)} is not one of the options. Choose one of {letters}."
        verdict = "Right" if letter == self.right else "Not yet"
        return f"{verdict}. {self.because[letter].format(**self.numbers())}"

    def solution_text(self) -> str:
        return self.solution.format(**self.numbers(), answer=f"{self.right}: {self.options[self.right]}")


Exercise = NumberExercise | ChoiceExercise
