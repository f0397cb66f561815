"""Cells as whole numbers, a block of rows at a time, and the sentence for those that hold none."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from lessonlib.base.errors import MOST_TOKENS, InvalidInputError, shown

SHOWN_PROBLEMS = 3
TAIL = 12  # rows at the end of a block, where totals stand
MISSING = -1
MOST_DIGITS = 16
# What an optional cell holds that has no number.
NOTHING = set("null none nil nan n/a n.a. na #n/a #value! \\n - -- – — ? undefined missing".split()) | {""}
MARKS = r"[ ',._\u2019\u2007\u2009\u00a0\u202f]"  # between thousands
# What is wrong with a cell that does not hold a whole number; any other is "not a number".
PROBLEMS = {
    r"-\s*[0-9.,]+(e[-+]?[0-9]+)?": "is negative",
    rf"[0-9]{{1,3}}({MARKS}[0-9]{{2,3}})*{MARKS}[0-9]{{3}}([.,][0-9]+)?": (
        "has marks between its thousands; expected plain digits"
    ),
    r"\+?[0-9]*[.,][0-9]+|[0-9.]+e[-+]?[0-9]+": "is not written as a whole number; expected plain digits",
    r"[=+@].*": "is a formula, which stays text; expected plain digits",
}


class Block:
    """Some rows: the line on which each begins, and their cells in a column, by its place. `tail`: the last of them."""

    def __init__(
        self,
        lines: Sequence[int],
        find: Callable[[int], list[Any]] | None = None,
        tail: Sequence[Sequence[str]] = (),
    ) -> None:
        self.lines, self.find, self.tail = lines, find, tail
        self.found: dict[int, list[Any]] = {}

    def last(self, place: int) -> list[Any]:
        """The cells of a column in the last rows, where these were read."""
        return [row[place] for row in self.tail] or self.found.get(place, [])[-TAIL:]

    def has_gap(self, row: int) -> bool:
        """Whether one of the last rows (-1 is the last) has an empty cell."""
        return bool(self.tail) and "" in self.tail[row]

    def pick(self, place: int) -> list[Any]:
        if place not in self.found and self.find is not None:
            self.found[place] = self.find(place)
        return self.found[place]


class WrongRowsError(Exception):
    """What is wrong with rows of a block: the row's place in it to the rest of a sentence."""

    def __init__(self, wrong: Mapping[int, str], lines: Sequence[int]) -> None:
        super().__init__()
        self.wrong, self.lines = wrong, lines


class Problems:
    """The first wrong rows of a log, with their lines, and how many there are."""

    def __init__(self, owner: str) -> None:
        self.owner, self.said, self.count = owner, [], 0  # type: ignore[var-annotated]

    def add(self, wrong: Mapping[int, str], lines: Sequence[int], before: int) -> None:
        """`before`: how many rows stand above these."""
        self.count += len(wrong)
        for place in sorted(wrong)[: SHOWN_PROBLEMS - len(self.said)]:
            self.said.append(f"Line {lines[place]:,} (row {before + place + 1:,}){wrong[place]}")

    def refuse(self) -> None:
        """Raise InvalidInputError, if there is one."""
        if self.count:
            others = f" And {self.count - len(self.said):,} more such lines." if self.count > len(self.said) else ""
            raise InvalidInputError(f"{self.owner}: {' '.join(self.said)}{others} Mend these lines, or leave them out.")


def counts(cells: Sequence[Any], needed: bool) -> tuple[Any, dict[int, str]]:
    """The cells as an array of whole numbers, MISSING where there is none; and what is wrong, by place."""
    try:
        if set(map(type, cells)) == {str}:
            text = "".join(cells)
            if not (text.isdigit() and text.isascii()) or "" in cells:
                raise ValueError
        elif set(map(type, cells)) != {int}:
            raise ValueError
        found = np.fromiter(map(int, cells), np.int64, len(cells))
        if found.min(initial=0) >= 0 and found.max(initial=0) <= MOST_TOKENS:
            return found, {}
    except (ValueError, OverflowError):
        pass
    wrong: dict[int, str] = {}
    numbers = []
    for place, cell in enumerate(cells):
        try:
            numbers.append(cell if type(cell) is int and 0 <= cell <= MOST_TOKENS else _looked_at(cell, needed))
        except ValueError as problem:
            wrong[place] = f": {shown(cell)} {problem}."
            numbers.append(MISSING)
    return np.array(numbers, np.int64), wrong


def _looked_at(cell: Any, needed: bool) -> int:
    """A cell that is not plain digits as a whole number; ValueError with what is wrong with it."""
    if cell is None:
        return MISSING
    if isinstance(cell, float) and math.isfinite(cell) and cell == int(cell):
        cell = int(cell)
    if isinstance(cell, int) and not isinstance(cell, bool):
        if cell < 0:
            raise ValueError("is negative")
        return cell if cell <= MOST_TOKENS else _too_large()
    if not isinstance(cell, str):
        finite = isinstance(cell, float) and math.isfinite(cell)
        raise ValueError("is not a whole number" if finite else "is not a number; expected a whole number of tokens")
    text = cell.strip()
    if not text or (not needed and text.lower() in NOTHING):
        return MISSING
    if re.fullmatch(r"[0-9]{1,3}\.000", text):
        whole = text.partition(".")[0]
        raise ValueError(f"may be {whole} or {whole} thousand; expected plain digits, {whole} or {whole}000")
    if re.fullmatch(r"[0-9]+(\.0*)?", text):
        digits = text.partition(".")[0].lstrip("0") or "0"
        return int(digits) if len(digits) <= MOST_DIGITS and int(digits) <= MOST_TOKENS else _too_large()
    patterns = (what for pattern, what in PROBLEMS.items() if re.fullmatch(pattern, text, re.IGNORECASE | re.DOTALL))
    raise ValueError(next(patterns, "is not a number; expected plain digits"))


def _too_large() -> NoReturn:
    raise ValueError("is too large for a number of tokens")
