"""A log of requests, from its text to what its rows mean: one pass over the file, a block of rows at a time."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, TextIO

import numpy as np

from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.facts.traffic.csv_rows import CsvRows, objects_in
from lessonlib.facts.traffic.json_rows import JsonRows
from lessonlib.facts.traffic.json_values import JsonValues
from lessonlib.facts.traffic.meaning import Log, Meant, meant
from lessonlib.facts.traffic.numbers import MISSING, Problems, WrongRowsError, counts
from lessonlib.facts.traffic.requests import (
    half_empty,
    look_at_sums,
    look_at_unit,
    not_served,
    refuse_many,
    repeated,
    with_parts,
)

MOST_ROWS = 10_000_000
MOST_LINE = 2**22  # characters of the line of column names


def read_log(
    owner: str, text: TextIO, chosen: Mapping[str, str | None], thought: str | None, cache: str | None
) -> tuple[Meant, JsonRows | CsvRows]:
    """What a log means, and the table that it was read from."""
    rows = open_rows(owner, text, chosen)
    problems, found = Problems(owner), dict[str, list[Any]]()
    without: dict[str, list[tuple[int, Any]]] = {}
    lines: list[Any] = []
    ids: list[Any] = []
    notes: list[str] = []
    count = 0
    first = True
    blocks = rows.blocks()
    while True:
        try:
            block = next(blocks, None)
        except WrongRowsError as error:
            problems.add(error.wrong, error.lines, count)
            problems.refuse()
        if block is None:
            break
        size = len(block.lines)
        if first:
            rows.columns = with_parts(rows.titles, rows.columns, block)
            notes += look_at_sums(rows.way, rows.titles, rows.columns, block)
        columns, titles = rows.columns, rows.titles
        failed = np.zeros(size, bool)
        for reason, mask in not_served(block, columns, titles).items():
            without.setdefault(reason, []).append((count, mask))
            failed |= mask
        wrong: dict[int, str] = {}
        for kind, place in columns.places.items():
            numbers, faults = counts(block.pick(place), kind in ("prompt", "output"))
            wrong = {row: f", column {shown(titles[place])}{what}" for row, what in faults.items()} | wrong
            if kind not in found:
                found[kind] = [np.full(count, MISSING)]
            found[kind].append(numbers)
            if first and kind in ("prompt", "output"):
                notes += look_at_unit(rows.where, titles, place, numbers, block)
        if not columns.places.keys() & {"cached", "written", "thought"}:
            wrong = half_empty(found["prompt"][-1], found["output"][-1], columns, titles) | wrong
        problems.add({row: what for row, what in wrong.items() if not failed[row]}, block.lines, count)
        refuse_many(owner, block, columns, titles)
        if (named := columns.named) is not None:
            cells = block.pick(named)
            if not isinstance(rows, CsvRows):  # whose cells are texts, and the hash of none is 0
                cells = ["" if cell is None else str(cell) for cell in cells]
            ids.append(np.fromiter(map(hash, cells), np.int64, size))
        lines.append(np.asarray(block.lines, np.int64))
        count, first = count + size, False
        if count > MOST_ROWS:
            raise InvalidInputError(f"{owner} has over {MOST_ROWS:,} rows; take every tenth, or a day of them.")
    problems.refuse()
    columns, titles = rows.columns, rows.titles
    if not count:
        raise InvalidInputError(rows.nothing)
    masks = {}
    for reason, parts in without.items():
        masks[reason] = np.zeros(count, bool)
        for start, mask in parts:
            masks[reason][start : start + len(mask)] = mask
    log = Log(
        owner,
        {kind: np.concatenate(arrays) for kind, arrays in found.items()},
        {kind: titles[place] for kind, place in columns.places.items()},
        masks,
        np.concatenate(lines),
        columns.shape,
    )
    del found, lines
    if ids:
        hashes = np.concatenate(ids)
        notes.append(repeated(titles[columns.named or 0], hashes, (hashes != 0) & (log.counts["output"] > 0)))
    made = meant(log, thought, cache, chosen["cached"] is not None)
    return made._replace(notes=(*made.notes, *filter(None, notes))), rows


def open_rows(owner: str, text: TextIO, chosen: Mapping[str, str | None]) -> JsonRows | CsvRows:
    """The rows of a text: JSON where it begins with a brace or a bracket, else a table (JSON may lie in its cells)."""
    blank = 0
    while (first := text.readline(MOST_LINE)) and not first.strip():
        blank += first[-1:] in "\r\n"
    opens = first.lstrip()[:1]
    if opens and opens in "{[":
        source = JsonValues(owner)
        return JsonRows(source, source.values(first, text, blank + 1), chosen)
    if len(first) == MOST_LINE:
        raise InvalidInputError(
            f"{owner}, line {blank + 1}: it has over {MOST_LINE:,} characters and is not JSON; is a line break missing?"
        )
    table = CsvRows(owner, chain([first], text) if first else iter(()), blank, chosen)
    if table.problem is None:
        return table
    objects = objects_in(table)
    if objects is None:
        raise InvalidInputError(table.problem)
    return JsonRows(JsonValues(owner), objects, chosen)
