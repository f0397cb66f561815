"""A log of requests, from its text to what its rows mean: one pass over the file, a block of rows at a time."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, TextIO

import numpy as np

from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.base.text import one_line
from lessonlib.facts.traffic.columns import Columns, plain
from lessonlib.facts.traffic.csv_rows import CsvRows, objects_in
from lessonlib.facts.traffic.json_rows import JsonRows
from lessonlib.facts.traffic.json_values import JsonValues
from lessonlib.facts.traffic.meaning import Log, Meant, meant
from lessonlib.facts.traffic.numbers import MISSING, Block, Problems, WrongRowsError, counts

MOST_ROWS = 10_000_000
MOST_LINE = 2**22  # characters of the line of column names
TOTALS = {
    form
    for word in ("total", "totals", "sum", "subtotal", "grand total", "average", "mean")
    for form in (word, word.title(), word.upper(), word.capitalize(), f"{word.capitalize()}:")
}
TEXTS = {
    "prompt": {"prompt", "input", "question", "prompttext", "inputtext", "requesttext"},
    "output": {"output", "completion", "response", "answer", "outputtext", "generatedtext", "responsetext"},
}
FEWEST_CHARACTERS = 20  # of texts, for their lengths to be no coincidence
GOOD = set("0 - n/a na nil none null nan false no ok success succeeded [] {}".split()) | {""}
BAD = ("fail", "error", "cancel", "timeout", "timed out", "abort", "reject")


def read_log(
    owner: str, text: TextIO, chosen: Mapping[str, str | None], thought: str | None, cache: str | None
) -> tuple[Meant, JsonRows | CsvRows]:
    """What a log means, and the table that it was read from."""
    rows = open_rows(owner, text, chosen)
    problems, found = Problems(owner), dict[str, list[Any]]()
    without: dict[str, list[tuple[int, Any]]] = {}
    lines: list[Any] = []
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
        columns, titles, size = rows.columns, rows.titles, len(block.lines)
        failed = np.zeros(size, bool)
        for reason, mask in _without(block, columns, titles, size).items():
            without.setdefault(reason, []).append((count, mask))
            failed |= mask
        wrong: dict[int, str] = {}
        for kind, place in columns.places.items():
            numbers, faults = counts(block.pick(place), kind in ("prompt", "output"))
            wrong = {row: f", column {shown(titles[place])}{what}" for row, what in faults.items()} | wrong
            if kind not in found:
                found[kind] = [np.full(count, MISSING)]
            found[kind].append(numbers)
            if first:
                _refuse_characters(rows, kind, numbers, block)
        if not columns.places.keys() & {"cached", "written", "thought"}:
            wrong = _half_empty(found["prompt"][-1], found["output"][-1], columns, titles) | wrong
        problems.add({row: what for row, what in wrong.items() if not failed[row]}, block.lines, count)
        _refuse_many(owner, block, columns, titles)
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
    return meant(log, thought, cache, chosen["cached"] is not None), rows


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


def _half_empty(prompt: Any, output: Any, columns: Columns, titles: Sequence[str]) -> dict[int, str]:
    """Rows that have one of the two counts."""
    half = np.flatnonzero((prompt == MISSING) != (output == MISSING))
    empty = {int(row): "prompt" if prompt[row] == MISSING else "output" for row in half}
    return {row: f", column {shown(titles[columns.places[kind]])}: '' is empty." for row, kind in empty.items()}


def _without(block: Block, columns: Columns, titles: Sequence[str], size: int) -> dict[str, Any]:
    """Rows that are not requests that were served: reason to a mask."""
    found = {}
    for place, name in columns.failed.items():
        cells = block.pick(place)
        seen = {cell: _says_failed(name, cell) for cell in set(map(str, cells))}
        if any(seen.values()):
            what = "answered from a cache of answers" if name == "cachehit" else "failed"
            reason = f"{what}, by the column {one_line(titles[place])}"
            found[reason] = np.fromiter((seen[str(cell)] for cell in cells), bool, size)
    for place in {0, len(titles) - 1} - set(columns.places.values()):
        if plain(titles[place].rpartition(".")[2]) in TEXTS["prompt"] | TEXTS["output"]:
            continue
        labels = block.pick(place)
        if type(labels[-1]) is str and not TOTALS.isdisjoint(map(str, labels)):
            found["a total, not a request"] = np.array([str(label) in TOTALS for label in labels])
    return found


def _says_failed(name: str, cell: str) -> bool:
    """Whether a cell of a column such as error, status or success says that the request failed."""
    text = cell.strip().lower()
    if name in ("success", "succeeded"):
        return text in ("false", "0", "no")
    if name in ("cachehit", "wascancelled"):
        return text in ("true", "1", "yes")
    if text.isdigit():
        return int(text) >= 400 if "status" in name else int(text) != 0
    if name in ("status", "level", "finishreason", "stopreason"):
        return text.startswith(BAD)
    return text not in GOOD and not text.replace(".", "", 1).isdigit()


def _refuse_many(owner: str, block: Block, columns: Columns, titles: Sequence[str]) -> None:
    """InvalidInputError for a row that stands for many requests."""
    for place in columns.many:
        numbers, _ = counts(block.pick(place), False)
        if (numbers > 1).any():
            row = int(np.argmax(numbers > 1))
            raise InvalidInputError(
                f"{owner}: Line {block.lines[row]:,}, column {shown(titles[place])}: {numbers[row]:,} requests in one "
                "row; expected a row a request, for the length of each decides. If this column means something else, "
                "rename it."
            )


def _refuse_characters(rows: JsonRows | CsvRows, kind: str, numbers: Any, block: Block) -> None:
    """InvalidInputError where the counts of tokens are the lengths of the texts beside them."""
    title = rows.titles[rows.columns.places[kind]]
    there = numbers != MISSING
    for place, beside in enumerate(rows.titles):
        if plain(beside.rpartition(".")[2]) not in TEXTS.get(kind, ()) or place == rows.columns.places[kind]:
            continue
        texts = [str(cell or "") for cell in block.pick(place)]
        encoded = [text.encode(errors="replace") for text in texts]
        for unit, lengths in (("characters", map(len, texts)), ("bytes", map(len, encoded))):
            sizes = np.array(list(lengths))[there]
            if sizes.sum() >= FEWEST_CHARACTERS and (sizes == numbers[there]).all():
                raise InvalidInputError(
                    f"{rows.where}: the column {shown(title)} counts the {unit} of {shown(beside)}, not tokens; count "
                    "with the model's tokenizer."
                )
