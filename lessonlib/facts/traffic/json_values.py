"""JSON as values, each with its line: those of JSON lines, of one array, or that stand one after another.

Documents are decoded a value at a time, so that an array may be long; lines by the C scanner, some at a time.
"""

import ast
import json
import re
from collections.abc import Iterator
from itertools import chain, islice
from operator import methodcaller
from typing import Any, NoReturn, TextIO

from lessonlib.base.errors import InvalidInputError, shown

FEW = 100  # rows that are decoded at a time: more of them would leave the processor's cache
LONGEST_PRINTED = 10_000  # characters of a dict as Python prints it
PIECE = 2**20  # characters
DECODER = json.JSONDecoder()
ESCAPED = re.compile(r"\\u00[2-7]").search  # of a letter that needs none: a name may be spelled so
SPACE, BETWEEN = re.compile(r"\s*"), re.compile(r"[\s,]*")

Values = Iterator[tuple[Any, int]]


class _NotWholeError(Exception):
    """Why a line is not one JSON value."""


class NameTwiceError(ValueError):
    """A name that stands twice in one object: which of the two is meant, nobody knows."""


class JsonValues:
    """The objects of a text. `watch`: names in quotes that may stand once in an object, once they are known."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.watch: tuple[str, ...] = ()

    def refuse(self, line: int, problem: str) -> NoReturn:
        raise InvalidInputError(f"{self.owner}, line {line:,}: {problem}.")

    def values(self, first: str, text: TextIO, number: int) -> Values:
        """The objects of a text, each with its line. `first`: all of line `number`, or its start."""
        try:
            if first.lstrip()[:1] == "{":
                _loads(first)
                yield from self._of_lines(chain([first], text), number)
                return
        except _NotWholeError:
            pass
        for value, line in self._of_document(first, text, number):
            yield self.object(value, line), line

    def object(self, value: Any, line: int) -> Any:
        if not isinstance(value, dict):
            self.refuse(line, f"{shown(value)} is not a JSON object; expected one a request, with named numbers")
        return value

    def _of_lines(self, lines: Iterator[str], number: int) -> Values:
        """A block at a time by the C scanner; what it cannot take so, or may hold a name twice, line by line."""
        scan: Any = DECODER.scan_once  # type: ignore[attr-defined]
        while block := list(islice(lines, FEW)):
            simple = bool(self.watch) and not ESCAPED("".join(block))
            simple = simple and all(max(map(methodcaller("count", key), block)) < 2 for key in self.watch)
            try:
                pairs = [scan(line, 0) for line in block] if simple else []
                rests = {line[end:] for line, (_, end) in zip(block, pairs, strict=True)} if simple else {"?"}
            except (StopIteration, ValueError, RecursionError):
                rests = {"?"}
            if rests <= {"\n", "\r\n", ""}:
                values = [value for value, _ in pairs]
                if set(map(type, values)) != {dict}:
                    values = [self.object(value, n) for n, value in enumerate(values, number)]
                yield from zip(values, range(number, number + len(block)), strict=True)
            else:
                for n, line in enumerate(block, number):
                    if not line.isspace():
                        try:
                            yield self.object(_loads(line), n), n
                        except _NotWholeError as error:
                            self.refuse(n, str(error))
            number += len(block)

    def _of_document(self, first: str, lines: TextIO, number: int) -> Values:
        """The values that stand one after another in a text, or in its one array."""
        scan: Any = json.JSONDecoder(object_pairs_hook=once).scan_once  # type: ignore[attr-defined]
        text, done, piece = first, False, PIECE
        place, line, inside = 0, number, False
        while True:
            start, place = place, (BETWEEN if inside else SPACE).match(text, place).end()  # type: ignore[union-attr]
            line += text.count("\n", start, place)
            if place < len(text) and not inside and text[place] == "[":
                inside, place = True, place + 1
                continue
            if place < len(text) and inside and text[place] == "]":
                inside, place = False, place + 1
                continue
            try:
                value, end = scan(text, place) if place < len(text) else (None, place)
                whole = place < len(text) and (done or end < len(text))
            except (StopIteration, ValueError, RecursionError) as error:
                whole = False
                if done or isinstance(error, RecursionError):
                    self.refuse(line + text[place : getattr(error, "pos", place)].count("\n"), _problem(error))
            if whole:
                yield value, line
                line += text.count("\n", place, end)
                place = end
                continue
            if done:
                if place < len(text) or inside:
                    self.refuse(line, "the array is not closed: the file may be cut short")
                return
            more = lines.read(piece)
            piece = max(piece, len(text) - place)  # twice the text each time, so that a long value is tried few times
            text, place, done = text[place:] + more, 0, not more


def _loads(line: str) -> Any:
    try:
        return json.loads(line, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise _NotWholeError(_problem(error)) from None


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs, as a hook of the decoder; NameTwiceError where a name stands twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NameTwiceError(f"the name {shown(twice)} stands twice in one object")
    return found


def object_in(text: str) -> Any:
    """The object that a text holds, as JSON or as Python prints a dict; the text itself where it holds none.

    NameTwiceError where a name stands twice in it.
    """
    if text.lstrip()[:1] != "{":
        return text
    try:
        return json.loads(text, object_pairs_hook=once)
    except NameTwiceError:
        raise
    except (ValueError, RecursionError):
        pass
    try:
        found = ast.literal_eval(text.strip()) if len(text) <= LONGEST_PRINTED else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    return found if isinstance(found, dict) and all(isinstance(name, str) for name in found) else text


def _problem(error: BaseException) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error.msg} (column {error.pos + 1:,}); expected one JSON object a line, or one array"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, StopIteration):
        return "it is not JSON: a value is missing or was cut short"
    if isinstance(error, NameTwiceError):
        return f"it cannot be read: {error}"
    return "it holds a number of thousands of digits"
