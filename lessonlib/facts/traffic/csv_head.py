"""The line of a CSV that names its columns, and what parts them: found among what a spreadsheet has above its table."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.facts.traffic.columns import ColumnsError, find_columns

DELIMITERS = ",;\t|"
BLANK = " \t\r\n,;|"  # a line of these alone names no column
SEPARATOR = re.compile(r'\s*"?#?\s*sep\s*= *(\\t|[^ ])"?[\s,;|]*', re.IGNORECASE)
TAB = "\t"
HEAD, HEAD_CHARACTERS = 40, 2**16  # lines, and characters, among which the column names are looked for


class Head(NamedTuple):
    """`first`: the line of column names, "" where there is none; `before`: how many lines stand above it."""

    first: str
    delimiter: str
    lines: Iterator[str]
    before: int
    notes: tuple[str, ...]


def head_of(owner: str, lines: Iterator[str], before: int, chosen: Mapping[str, str | None]) -> Head:
    """The line of column names, its delimiter, and the lines behind it; `before`: lines that were read already.

    It is the first one that is not blank, unless one further down names the columns that are needed: what a spreadsheet
    has above its table is skipped.
    """
    delimiters, seen, first, looked = DELIMITERS, list[str](), None, 0
    notes: tuple[str, ...] = ()
    for line in lines:
        separator = SEPARATOR.fullmatch(line)
        if separator and (looked == 0 or seen[-1].lstrip()[:1] == "#"):
            delimiters = TAB if separator[1] == r"\t" else separator[1]
            if delimiters not in DELIMITERS:
                raise InvalidInputError(
                    f"{owner}, line {before + len(seen) + 1}: sep= names {shown(delimiters)}; expected a comma, a "
                    "semicolon, a tab or a bar."
                )
        elif line.strip(BLANK):
            first = len(seen) if first is None else first
            looked += 1
            whole = sum(above.count('"') for above in seen[first:]) % 2 == 0  # else it is the rest of a row
            if whole and any(_works(line, delimiter, chosen) for delimiter in delimiters):
                notes, first, looked = _skipped(seen[first:]), len(seen), HEAD
        seen.append(line)
        if looked >= HEAD or (first is not None and sum(map(len, seen)) > HEAD_CHARACTERS):
            break
    if first is None:
        return Head("", delimiters[0], lines, before + len(seen), ())
    found = seen[first]
    return Head(found, _delimiter(found, delimiters, chosen), chain(seen[first + 1 :], lines), before + first, notes)


def _skipped(above: Sequence[str]) -> tuple[str, ...]:
    """What is said of the lines above the column names."""
    skipped = sum(bool(line.strip(BLANK)) and not SEPARATOR.fullmatch(line) for line in above)
    return (f"Not read: {skipped:,} lines above the line of column names.",) if skipped else ()


def _delimiter(line: str, delimiters: str, chosen: Mapping[str, str | None]) -> str:
    """The one by which the line names the columns that are needed; else the one that parts it into the most fields."""
    working = (delimiter for delimiter in delimiters if _works(line, delimiter, chosen))
    return next(working, max(delimiters, key=lambda delimiter: len(_fields(line, delimiter))))


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return [title.strip() for title in next(csv.reader([line], delimiter=delimiter))]
    except (csv.Error, StopIteration, TypeError):
        return [line] * (line.count(delimiter) + 1)


def _works(line: str, delimiter: str, chosen: Mapping[str, str | None]) -> bool:
    """Whether the line names the columns that are needed, parted so."""
    try:
        find_columns(_fields(line, delimiter), chosen)
    except ColumnsError:
        return False
    return True
