"""JSON as rows: a line a request, an array of requests, an object that holds one, or columns that are lists.

A column is the dotted path to a number.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TextIO

from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.facts.traffic.columns import FAILED, Columns, ColumnsError, find_columns, plain
from lessonlib.facts.traffic.json_values import FEW, JsonValues, Values
from lessonlib.facts.traffic.numbers import Block

ROWS = 50 * FEW  # in a block
LOOKED_AT = 1_000  # rows whose keys name the columns
MOST_DEPTH = 8  # of lists and objects around the rows
WITHOUT = {"errored", "errors", "failed", "incomplete", "cancelled", "canceled"}  # lists of requests that did not end

Path = tuple[str, ...]


class JsonRows:
    """Requests of a JSON document or of JSON lines. `titles`: dotted names; `columns`, found in them; `where`."""

    def __init__(self, owner: str, first: str, text: TextIO, number: int, chosen: Mapping[str, str | None]) -> None:
        self.owner = self.where = owner
        self.nothing = f"{owner} holds no request; expected a JSON object a request."
        self.left_out: dict[str, int] = {}
        self.source = JsonValues(owner)
        values = self.source.values(first, text, number)
        seen = list(islice(values, LOOKED_AT))
        if not seen:
            raise InvalidInputError(self.nothing)
        self.rows: Values = self._found(seen, values, chosen)

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
        self.source.watch = tuple(f'"{self.paths[place][-1]}"' for place in self.columns.places.values())
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
            if len(set(map(len, lists.values()))) > 1 or not all(path in lists for path in needed[:2]):
                there = {".".join(path): lists.get(path) for path in needed}
                said = ", ".join(
                    f"{shown(name)} has {'no list' if found is None else f'{len(found):,} values'}"
                    for name, found in there.items()
                )
                self.source.refuse(line, f"{said}; expected lists of one length, with one value a request")
            for cells in zip(*lists.values(), strict=True):
                row: dict[str, Any] = {}
                for path, cell in zip(lists, cells, strict=True):
                    inner = row
                    for key in path[:-1]:
                        inner = inner.setdefault(key, {})
                    inner[path[-1]] = cell
                yield row, line

    def blocks(self) -> Iterator[Block]:
        columns = self.columns
        needed: Iterable[int] = range(len(self.titles))  # all of them once, to look at texts beside the numbers
        while True:
            lines: list[int] = []
            block = Block(lines)
            block.found = {place: [] for place in needed}
            while len(lines) < ROWS and (batch := list(islice(self.rows, FEW))):
                rows = [row for row, _ in batch]
                cells: dict[Path, list[Any]] = {(): list(map(_unpacked, rows)) if self.unpack else rows}
                for place, found in block.found.items():
                    found += _cells(cells, self.paths[place])
                lines += [line for _, line in batch]
                if not isinstance(needed, set):
                    break
            if not lines:
                return
            yield block
            needed = {0, len(self.titles) - 1, *columns.places.values(), *columns.failed, *columns.many}


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


def _cells(found: dict[Path, list[Any]], path: Path) -> list[Any]:
    """The cell at a path in each row, None where there is none. `found`: what was found of these rows."""
    if path not in found:
        objects, key = _cells(found, path[:-1]), path[-1]
        try:
            found[path] = [one.get(key) for one in objects]
        except AttributeError:
            found[path] = [one.get(key) if isinstance(one, dict) else None for one in objects]
    return found[path]


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
