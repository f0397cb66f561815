"""JSON as rows: a line a request, an array of requests, an object that holds one, or columns that are lists.

A column is the dotted path to a number. Whole documents are decoded a value at a time, so that an array may be long.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NoReturn, TextIO

from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.facts.traffic.columns import FAILED, Columns, ColumnsError, find_columns, plain
from lessonlib.facts.traffic.numbers import Block

ROWS = 5_000  # in a block
LOOKED_AT = 1_000  # rows whose keys name the columns
PIECE = 2**20  # characters
MOST_DEPTH = 8  # of lists and objects around the rows
WITHOUT = {"errored", "errors", "failed", "incomplete", "cancelled", "canceled"}  # lists of requests that did not end
DECODER = json.JSONDecoder()
SPACE, BETWEEN = re.compile(r"\s*"), re.compile(r"[\s,]*")

Path = tuple[str, ...]
Values = Iterator[tuple[Any, int]]


class JsonRows:
    """Requests of a JSON document or of JSON lines. `titles`: dotted names; `columns`, found in them; `where`."""

    def __init__(self, owner: str, lines: TextIO, chosen: Mapping[str, str | None]) -> None:
        self.owner = self.where = owner
        self.nothing = f"{owner} holds no request; expected a JSON object a request."
        self.left_out: dict[str, int] = {}
        self.watch: tuple[str, ...] = ()
        values = self._values(lines)
        first = list(islice(values, LOOKED_AT))
        if not first:
            raise InvalidInputError(self.nothing)
        self.rows: Values = self._found(first, values, chosen)

    def _found(self, first: Sequence[tuple[Any, int]], values: Values, chosen: Mapping[str, str | None]) -> Values:
        """The requests, wherever they stand in the values; sets `titles`, `paths` and `columns`."""
        everything = chain(first, values)
        alone = len(first) == 1
        problem = None
        if not alone:
            problem = self._columns([value for value, _ in first], chosen)
            if problem is None:
                return self._exploded(everything)
        groups: dict[Path, list[Any]] = {}
        for value, _ in first:
            for path, rows in _lists(value, ()):
                groups.setdefault(path, []).extend(rows[:LOOKED_AT])
        fitting = {path: rows for path, rows in groups.items() if self._columns(rows, chosen) is None}
        inner = [path for path in fitting if path[-1] not in WITHOUT]
        inner = [path for path in inner if not any(path[: len(other)] == other for other in inner if other != path)]
        if len(inner) > 1:
            names = ", ".join(shown(".".join(path)) for path in inner[:8])
            raise InvalidInputError(f"{self.owner}: {len(inner)} lists may hold the requests ({names}); keep one.")
        if inner:
            (path,) = inner
            self._columns(fitting[path], chosen)
            return self._inside(everything, path)
        problem = problem or self._columns([value for value, _ in first], chosen)
        if problem is not None:
            raise InvalidInputError(f"{self.owner}, line {first[0][1]:,}: {problem}")
        return self._exploded(everything)

    def _columns(self, rows: Sequence[Any], chosen: Mapping[str, str | None]) -> ColumnsError | None:
        paths: dict[Path, None] = {}
        for row in rows:
            if isinstance(row, dict):
                paths |= dict.fromkeys(_leaves(_unpacked(row)))
        for path in list(paths):  # what an error is, is seen whole
            paths |= {path[:depth]: None for depth in range(1, len(path)) if plain(path[depth - 1]) in FAILED}
        titles = [".".join(path) for path in paths]
        try:
            self.columns: Columns = find_columns(titles, chosen)
        except ColumnsError as problem:
            return problem
        self.titles, self.paths = titles, list(paths)
        self.watch = tuple(f'"{self.paths[place][-1]}"' for place in self.columns.places.values())
        place = self.columns.places["prompt"]
        self.unpack = any(isinstance(row, dict) and isinstance(row.get("attributes"), list) for row in rows)
        self.lists = any(isinstance(_at(row, self.paths[place]), list) for row in map(_unpacked, rows))
        return None

    def _inside(self, values: Iterable[tuple[Any, int]], path: Path) -> Values:
        for value, line in values:
            for holder in _follow(value, path[:-1]):
                rows = holder.get(path[-1])
                yield from ((row, line) for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()
                for key in holder.keys() & WITHOUT:
                    if isinstance(holder[key], list):
                        reason = f"listed as {key}"
                        self.left_out[reason] = self.left_out.get(reason, 0) + len(holder[key])

    def _exploded(self, values: Iterable[tuple[Any, int]]) -> Values:
        """The values as they are; one whose columns are lists as a row for each of their places."""
        if not self.lists:
            yield from values
            return
        columns = self.columns
        needed = [self.paths[place] for place in columns.places.values()]
        others = [self.paths[place] for place in (*columns.failed, *columns.many)]
        for value, line in values:
            lists = {path: _at(value, path) for path in (*needed, *others)}
            lists = {path: cells for path, cells in lists.items() if isinstance(cells, list)}
            lengths = {".".join(path): len(cells) for path, cells in lists.items()}
            if len(set(lengths.values())) > 1 or not all(path in lists for path in needed[:2]):
                said = ", ".join(f"{shown(name)} has {count:,}" for name, count in lengths.items())
                self._refuse(line, f"its lists differ in length: {said}; expected one value a request in each")
            for cells in zip(*lists.values(), strict=True):
                row: dict[str, Any] = {}
                for path, cell in zip(lists, cells, strict=True):
                    inner = row
                    for key in path[:-1]:
                        inner = inner.setdefault(key, {})
                    inner[path[-1]] = cell
                yield row, line

    def blocks(self) -> Iterator[Block]:
        while batch := list(islice(self.rows, ROWS)):
            rows = [row for row, _ in batch]
            if self.unpack:
                rows = list(map(_unpacked, rows))
            yield Block([line for _, line in batch], lambda place, rows=rows: _cells(rows, self.paths[place]))

    def _refuse(self, line: int, problem: str) -> NoReturn:
        raise InvalidInputError(f"{self.owner}, line {line:,}: {problem}.")

    def _values(self, lines: TextIO) -> Values:
        """The objects of JSON lines, or those of a document, each with its line."""
        number, first = next(((n, line) for n, line in enumerate(lines, 1) if line.strip()), (0, ""))
        text = first.strip()
        values: Values = iter(())
        if text.startswith("{"):
            try:
                self._loads(text, number, True)
                values = self._of_lines(chain([first], lines), number)
            except InvalidInputError:
                values = self._of_document(first, lines, number)
        elif text:
            values = self._of_document(first, lines, number)
        for value, line in values:
            if not isinstance(value, dict):
                self._refuse(line, f"{shown(value)} is no JSON object; expected one a request, with named numbers")
            yield value, line

    def _of_lines(self, lines: Iterable[str], start: int) -> Values:
        early = LOOKED_AT
        for number, line in enumerate(lines, start):
            if line.isspace():
                continue
            early -= 1
            yield self._loads(line, number, early > 0 or any(line.count(key) > 1 for key in self.watch)), number

    def _loads(self, line: str, number: int, strict: bool) -> Any:
        try:
            return json.loads(line, object_pairs_hook=_once) if strict else DECODER.decode(line)
        except (ValueError, RecursionError) as error:
            self._refuse(number, _problem(error))

    def _of_document(self, first: str, lines: TextIO, number: int) -> Values:
        """The values that stand one after another in a text, or in its one array."""
        scan = json.JSONDecoder(object_pairs_hook=_once).scan_once
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
                whole, problem = False, error
                if done or isinstance(error, RecursionError):
                    self._refuse(line + text[place : getattr(error, "pos", place)].count("\n"), _problem(error))
            if whole:
                yield value, line
                line += text.count("\n", place, end)
                place = end
                continue
            if done:
                if place < len(text) or inside:
                    self._refuse(line, "the array is not closed; is the file cut short?")
                return
            more = lines.read(piece)
            piece = max(piece, len(text) - place)  # twice the text each time, so that a long value is tried few times
            text, place, done = text[place:] + more, 0, not more


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {shown(twice)} stands twice in one object")
    return found


def _problem(error: BaseException) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error.msg} (column {error.pos + 1:,}); expected one JSON object a line, or one array"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, StopIteration):
        return "it is not JSON: a value is missing or was cut short"
    return f"it cannot be read: {error}" if "twice" in str(error) else "it holds a number of thousands of digits"


def _leaves(row: Mapping[str, Any], before: Path = ()) -> Iterator[Path]:
    """The paths to all that is no object."""
    for key, value in row.items():
        if isinstance(value, dict) and len(before) < MOST_DEPTH:
            yield from _leaves(value, (*before, key))
        else:
            yield (*before, key)


def _unpacked(row: Any) -> Any:
    """A row whose `attributes` are pairs of key and value, as OpenTelemetry writes them, with an object of these."""
    if isinstance(row, dict) and isinstance(pairs := row.get("attributes"), list):
        named = {}
        for pair in pairs:
            if isinstance(pair, dict) and isinstance(value := pair.get("value"), dict) and value:
                named[str(pair.get("key"))] = next(iter(value.values()))
        return {**row, "attributes": named}
    return row


def _at(row: Any, path: Path) -> Any:
    for key in path:
        row = row.get(key) if isinstance(row, dict) else None
    return row


def _cells(rows: Sequence[dict[str, Any]], path: Path) -> list[Any]:
    """The cell at a path in each row, None where there is none."""
    try:
        if len(path) == 1:
            return [row.get(path[0]) for row in rows]
        if len(path) == 2:
            first, last = path
            return [row[first].get(last) for row in rows]
    except (AttributeError, KeyError):
        pass
    return [_at(row, path) for row in rows]


def _lists(value: Any, path: Path) -> Iterator[tuple[Path, list[Any]]]:
    """The lists of objects inside a value, with the names on the way to them."""
    if len(path) > MOST_DEPTH:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            if plain(key) not in ("usage", "usagemetadata"):
                yield from _lists(inner, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        if path:
            yield path, value
        for inner in value[:LOOKED_AT]:
            yield from _lists(inner, path)


def _follow(value: Any, path: Path) -> Iterator[dict[str, Any]]:
    """The objects at a path, through whatever lists stand on it."""
    if isinstance(value, list):
        for inner in value:
            yield from _follow(inner, path)
    elif isinstance(value, dict):
        if path:
            yield from _follow(value.get(path[0]), path[1:])
        else:
            yield value
