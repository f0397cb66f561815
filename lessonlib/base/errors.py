"""Errors that name the thing, the value, what was expected and what to do; and how a value is shown and read.

Every error of lessonlib is a `LessonError`, and so a `ValueError`: one `except` catches them all, and none is a crash.
Bottom room: it imports nothing of lessonlib, and everything may import it.
"""

import math
import re
import unicodedata
from numbers import Real
from typing import Any

import numpy as np

MOST_TOKENS = 2**53  # the largest count that a float64 holds exactly


class LessonError(ValueError):
    """Base of every error that lessonlib raises on purpose. A quoted name moves no cursor and breaks no line."""

    def __str__(self) -> str:
        return printable(super().__str__())


class InvalidInputError(LessonError):
    """An impossible value: zero tokens, half a head, NaN bytes."""


class UnknownNameError(LessonError):
    """A name that the catalogue, a table of dtypes or a list of families does not hold."""


class UnsupportedModelError(LessonError):
    """A config whose architecture, or one of whose keys, lessonlib does not read. Refused rather than guessed."""


class DoesNotFitError(LessonError):
    """Weights and KV cache need more memory than there is.

    Attributes: `needed` and `available` in bytes, over all devices together; `remedies`, a tuple of sentences, each the
    smallest change of one kind that fits.
    """

    def __init__(self, message: str, needed: float, available: float, remedies: tuple[str, ...] = ()):
        super().__init__(message)
        self.needed = needed
        self.available = available
        self.remedies = remedies


def printable(text: str) -> str:
    """A text that may hold names from outside, on one line: what moves a cursor, turns the direction or shows nothing
    (controls, ANSI sequences, line breaks, bidirectional and zero-width marks, half surrogates) as repr escapes it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or unicodedata.category(c) == "Zs" else repr(c)[1:-1] for c in text)


def shown(value: Any) -> str:
    """A value as an error may quote it: its repr, cut where it is long, and never an error of its own."""
    try:
        text = re.sub(r"\n\s*", " ", repr(value))  # of an array, which takes several lines
    except ValueError:  # Python refuses to print integers of thousands of digits
        return f"a value of type {type(value).__name__} too long to print"
    except Exception:  # its own repr fails, and that is not what the error is of
        return f"a value of type {type(value).__name__} that cannot be printed"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def is_number(value: Any) -> bool:
    """A finite real number that a float can hold; True and False are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except (OverflowError, TypeError):  # too large for a float; a span of time, which NumPy counts among the integers
        return False


def as_numbers(value: Any) -> Any:
    """An array-like of real numbers as a float64 array of its own, read-only; None for anything else.

    Float64 at once: sums and products of a caller's int16 would wrap. Masks and flags are not numbers, at any depth.
    """
    try:
        array = None if _hides(value) else np.asarray(value)
    except Exception:  # ragged, too large, too deep; or a tensor that does not leave its device
        array = None
    if array is None or array.dtype.kind not in "iuf":
        return None
    array = array.astype(np.float64)  # a copy: what the caller does to theirs later changes nothing
    array.flags.writeable = False
    return array


def _hides(value: Any) -> bool:
    """A mask, which NumPy would drop, or True and False, which it would count as 1 and 0."""
    if isinstance(value, list | tuple):
        return any(_hides(item) for item in value)
    flags = isinstance(value, bool | np.bool_) or (isinstance(value, np.ndarray) and value.dtype.kind == "b")
    return flags or isinstance(value, np.ma.MaskedArray)
