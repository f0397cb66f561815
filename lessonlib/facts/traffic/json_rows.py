"""JSON as rows: a line a request, an array of requests, an object that holds one, or columns that are lists.

A column is the dotted path to a number.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.facts.traffic.columns import (
    FAILED,
    STATISTIC,
    Columns,
    ColumnsError,
    find_columns,
    is_part,
    more_parts,
    plain,
)
from lessonlib.facts.traffic.json_values import FEW, JsonValues, Values, object_in
from lessonlib.facts.traffic.numbers import Block

ROWS = 50 * FEW  # in a block
LOOKED_AT = 1_000  # rows whose keys name the columns
MOST_DEPTH = 8  # of lists and objects around the rows
WITHOUT = {"errored", "errors", "failed", "incomplete", "cancelled", "canceled"}  # lists of requests that did not end

Path = tuple[str, ...]


class JsonRows:
    """Requests of a JSON document or of JSON lines. `titles`: dotted names; `columns`, found in them; `where`."""

    def __init__(self, source: JsonValues, values: Values, chosen: Mapping[str, str | None]) -> None:
        self.source, self.owner, self.where, self.chosen = source, source.owner, source.owner, chosen
        self.nothing = f"{self.owner} holds no request; expected a JSON object a request."
        self.left_out: dict[str, int] = {}
        self.way, self.notes = "", tuple[str, ...]()  # the names on the way to the rows; nothing stands above them
        seen = list(islice(values, LOOKED_AT))
        if not seen:
            raise InvalidInputError(self.nothing)
        self.rows: Values = self._found(seen, values)

    def _found(self, first: Sequence[tuple[Any, int]], values: Values) -> Values:
        """The requests, wherever they stand in the values; sets `titles`, `paths` and `columns`."""
        everything, whole = chain(first, values), [value for value, _ in first]
        if len(first) > 1 and self._columns(whole) is None:
            return self._exploded(everything)
        groups: dict[Path, list[Any]] = {}
        for path, rows in chain.from_iterable(_lists(value, ()) for value in whole):
            groups.setdefault(path, []).extend(rows[:LOOKED_AT])
        inner = [path for path, rows in groups.items() if path[-1] not in WITHOUT and self._columns(rows) is None]
        inner = [path for path in inner if not any(path[: len(other)] == other for other in inner if other != path)]
        if len(inner) > 1:
            names = ", ".join(shown(".".join(path)) for path in inner[:8])
            raise InvalidInputError(f"{self.owner}: {len(inner)} lists may hold the requests ({names}); keep one.")
        if inner:
            self._columns(groups[inner[0]])
            self.way = ".".join(inner[0])
            return _inside(self.source, everything, inner[0], self.left_out)
        problem = self._columns(whole)
        for rows in _turned(whole[0]) if problem is not None and len(whole) == 1 else ():
            if self._columns(rows) is None:
                return ((row, first[0][1]) for row in rows)
        if problem is not None:
            raise InvalidInputError(f"{self.owner}, line {first[0][1]:,}: {problem}")
        return self._exploded(everything)

    def _columns(self, rows: Sequence[Any]) -> ColumnsError | None:
        """Find the columns of these rows, else those of the objects that texts in them hold; or say why not."""
        objects = [row for row in rows if isinstance(row, dict)]
        problem = self._columns_in(objects, _unpacked)
        texts = problem is not None and any(map(_holds_texts, objects))
        return self._columns_in(objects, _unpacked_texts) and problem if texts else problem

    def _columns_in(self, rows: Sequence[dict[str, Any]], unpacked: Callable[[Any], Any]) -> ColumnsError | None:
        try:
            self._name(_paths(map(unpacked, rows)))
        except ColumnsError as problem:
            return problem
        watched = [self.paths[place] for place in (*self.columns.places.values(), *self.columns.failed)]
        self.source.watch = tuple(dict.fromkeys(f'"{name}"' for path in watched for name in path[-2:]))
        place = self.columns.places["prompt"]
        pairs = any(isinstance(row.get("attributes"), list) for row in rows)
        self.unpack = unpacked if pairs or unpacked is _unpacked_texts else None
        self.lists = any(isinstance(_at(row, self.paths[place]), list) for row in map(unpacked, rows))
        return None

    def _name(self, paths: list[Path]) -> None:
        """Find the columns among these paths; ColumnsError where that cannot be, and nothing changes."""
        titles = [".".join(path) for path in paths]
        self.columns: Columns = find_columns(titles, self.chosen)
        self.titles, self.paths = titles, paths
        self.beside = paths[self.columns.places["prompt"]][:-1]  # where the counts stand, and the names there
        depth = len(self.beside)
        self.names = {path[depth] for path in paths if len(path) > depth and path[:depth] == self.beside}

    def _look_again(self, rows: Sequence[Any], keys: set[str], line: int) -> None:
        """Take in columns of parts, such as thought tokens, that come up for the first time."""
        new = {path for row in rows for path in _leaves(row) if is_part(".".join(path))} - set(self.paths)
        before = self.columns.places
        if new:
            try:
                self._name([*self.paths, *sorted(new)])
            except ColumnsError as problem:
                self.source.refuse(line, str(problem).rstrip("."))
            places = {**more_parts(self.titles, self.columns), **before, **self.columns.places}
            self.columns = replace(self.columns, places=places)
            if any(self.columns.places.get(kind) != place for kind, place in before.items()):
                names = ", ".join(shown(".".join(path)) for path in sorted(new))
                self.source.refuse(line, f"new names, {names}, change what the others mean; part the log here")
        self.names |= keys

    def _exploded(self, values: Values) -> Values:
        """The values as they are, or the rows that their lists make."""
        if not self.lists:
            return values
        needed = [self.paths[place] for place in self.columns.places.values()]
        others = [self.paths[place] for place in (*self.columns.failed, *self.columns.many)]
        return _rows_of_lists(self.source, values, needed, others)

    def blocks(self) -> Iterator[Block]:
        needed: Iterable[int] = range(len(self.titles))  # all of them once, to look at texts beside the numbers
        while True:
            lines: list[int] = []
            block = Block(lines)
            block.found = {place: [] for place in needed}
            while len(lines) < ROWS and (batch := list(islice(self.rows, FEW))):
                rows = [row for row, _ in batch]
                cells: dict[Path, list[Any]] = {(): list(map(self.unpack, rows)) if self.unpack else rows}
                keys = set(chain.from_iterable(one for one in _cells(cells, self.beside) if isinstance(one, dict)))
                if not keys <= self.names:
                    self._look_again(cells[()], keys, batch[0][1])
                    missing = {place: [None] * len(lines) for place in self._needed() if place not in block.found}
                    block.found |= missing
                for place, found in block.found.items():
                    found += _cells(cells, self.paths[place])
                _refuse_cut(self.source, cells, [self.paths[place] for place in self.columns.places.values()], batch)
                lines += [line for _, line in batch]
                if not isinstance(needed, set):
                    break
            if not lines:
                return
            yield block
            needed = self._needed()

    def _needed(self) -> set[int]:
        columns = self.columns
        named = () if columns.named is None else (columns.named,)
        return {0, len(self.titles) - 1, *columns.places.values(), *columns.failed, *columns.many, *named}


def _inside(source: JsonValues, values: Values, path: Path, left_out: dict[str, int]) -> Values:
    """The requests of the lists at a path; those of lists beside them that did not end are counted in `left_out`."""
    for value, line in values:
        for holder in _follow(value, path[:-1]):
            rows = holder.get(path[-1])
            yield from ((source.object(row, line), line) for row in rows) if isinstance(rows, list) else ()
            for key in holder.keys() & WITHOUT:
                if isinstance(holder[key], list):
                    reason = f"listed as {key}"
                    left_out[reason] = left_out.get(reason, 0) + len(holder[key])


def _paths(rows: Iterable[Mapping[str, Any]]) -> list[Path]:
    """The paths of these rows, each once; and those to what an error is, which is seen whole."""
    paths: dict[Path, None] = {}
    for row in rows:
        paths |= dict.fromkeys(_leaves(row))
    for path in list(paths):
        whole = (depth for depth in range(1, len(path)) if FAILED.get(plain(path[depth - 1])) == "problem")
        paths |= {path[:depth]: None for depth in whole}
    return list(paths)


def _leaves(row: Mapping[str, Any], before: Path = ()) -> Iterator[Path]:
    """The paths to all that is not an object."""
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


def _holds_texts(row: Any) -> bool:
    return isinstance(row, dict) and any(isinstance(value, str) and value[:1] == "{" for value in row.values())


def _unpacked_texts(row: Any) -> Any:
    """A row with the objects that its texts hold, as a database exports a column of JSON."""
    if not isinstance(row, dict):
        return row
    return {key: object_in(value) if isinstance(value, str) else value for key, value in _unpacked(row).items()}


def _turned(value: Any) -> Iterator[list[dict[str, Any]]]:
    """What may be the rows of one object: its values, by name; or those of its columns, as data frames are written."""
    if not isinstance(value, dict) or any(map(STATISTIC.fullmatch, map(plain, value))):
        return
    inner = list(value.values())
    names, lines = value.get("columns"), value.get("data")
    if isinstance(names, list) and isinstance(lines, list):
        rows = [row for row in lines if isinstance(row, list) and len(row) == len(names)]
        if len(rows) == len(lines) and all(isinstance(name, str) for name in names):
            yield [dict(zip(names, row, strict=True)) for row in rows]
    elif len(inner) > 1 and all(isinstance(one, dict) and one.keys() == inner[0].keys() for one in inner):
        yield [{name: column[key] for name, column in value.items()} for key in inner[0]]
    if len(inner) > 1 and all(isinstance(one, dict) for one in inner):
        yield inner


def _rows_of_lists(source: JsonValues, values: Values, needed: Sequence[Path], others: Sequence[Path]) -> Values:
    """A row for each place in the lists of a value; `needed`: those of prompt, output and their parts."""
    for value, line in values:
        lists = {path: _at(value, path) for path in (*needed, *others)}
        lists = {path: cells for path, cells in lists.items() if isinstance(cells, list)}
        if len(set(map(len, lists.values()))) > 1 or not all(path in lists for path in needed[:2]):
            said = ", ".join(f"{shown('.'.join(path))} has {_how_many(lists.get(path))}" for path in needed)
            source.refuse(line, f"{said}; expected lists of one length, with one value a request")
        for cells in zip(*lists.values(), strict=True):
            yield _nested(zip(lists, cells, strict=True)), line


def _how_many(cells: list[Any] | None) -> str:
    return "no list" if cells is None else f"{len(cells):,} values"


def _nested(cells: Iterable[tuple[Path, Any]]) -> dict[str, Any]:
    """An object with each cell at its path."""
    row: dict[str, Any] = {}
    for path, cell in cells:
        inner = row
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = cell
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


def _refuse_cut(
    source: JsonValues, cells: dict[Path, list[Any]], paths: Iterable[Path], rows: Iterable[tuple[Any, int]]
) -> None:
    """Refuse a text that begins like an object where other rows have the object on the way to a count."""
    for way in {path[:depth]: None for path in paths for depth in range(1, len(path))}:
        if str in set(map(type, found := _cells(cells, way))):
            for text, (_, line) in zip(found, rows, strict=True):
                if isinstance(text, str) and text.lstrip()[:1] == "{":
                    where = shown(".".join(way))
                    source.refuse(line, f"{where} is {shown(text)}; expected a whole JSON object, or nothing")


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
