"""A log of requests, from its text to what its rows mean: one pass over the file, a block of rows at a time."""

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import numpy as np

from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.facts.traffic.columns import FAILED, Columns, plain
from lessonlib.facts.traffic.csv_rows import CsvRows
from lessonlib.facts.traffic.json_rows import JsonRows
from lessonlib.facts.traffic.meaning import Log, Meant, meant
from lessonlib.facts.traffic.numbers import MISSING, Block, Problems, WrongRows, counts

MOST_ROWS = 10_000_000
TOTALS = {"total", "totals", "sum", "subtotal", "grand total", "average", "mean"}
TEXTS = {
    "prompt": {"prompt", "input", "question", "prompttext", "inputtext", "requesttext"},
    "output": {"output", "completion", "response", "answer", "outputtext", "generatedtext", "responsetext"},
}
FEWEST_CHARACTERS = 20  # of texts, for their lengths to be no coincidence
GOOD = {"", "0", "none", "null", "nan", "false", "no", "ok", "success", "succeeded", "[]", "{}"}
BAD = {"failure", "failed", "error", "errored", "cancelled", "canceled", "timeout", "timed out", "aborted", "rejected"}


def read_log(
    owner: str, text: TextIO, chosen: Mapping[str, str | None], thought: str | None, cache: str | None
) -> tuple[Meant, JsonRows | CsvRows]:
    """What a log means, and the table that it was read from."""
    rows = open_rows(owner, text, chosen)
    columns, titles = rows.columns, rows.titles
    problems, found = Problems(owner), {kind: [] for kind in columns.places}  # type: ignore[var-annotated]
    without: dict[str, list[tuple[int, Any]]] = {}
    lines: list[Any] = []
    count = 0
    first = True
    blocks = rows.blocks()
    while True:
        try:
            block = next(blocks, None)
        except WrongRows as error:
            problems.add(error.wrong, error.lines, count)
            problems.refuse()
        if block is None:
            break
        size = len(block.lines)
        failed = np.zeros(size, bool)
        for reason, mask in _without(block, columns, titles, size).items():
            without.setdefault(reason, []).append((count, mask))
            failed |= mask
        for kind, place in columns.places.items():
            numbers, wrong = counts(cells := block.pick(place), kind in ("prompt", "output"))
            wrong = {row: f", column {shown(titles[place])}{what}" for row, what in wrong.items() if not failed[row]}
            problems.add(wrong, block.lines, count)
            found[kind].append(numbers)
            if first:
                _refuse_characters(rows, kind, cells, numbers, block)
        _refuse_many(owner, block, columns, titles)
        lines.append(np.asarray(block.lines, np.int64))
        count, first = count + size, False
        if count > MOST_ROWS:
            raise InvalidInputError(f"{owner} has over {MOST_ROWS:,} rows; take every tenth, or a day of them.")
    problems.refuse()
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
    """The rows of a text: JSON where it begins with a brace or a bracket, else a table."""
    start = []
    for line in text:
        start.append(line)
        if line.strip():
            break
    again = _Again(start, text)
    opens = start[-1].lstrip()[:1] if start else ""
    return JsonRows(owner, again, chosen) if opens and opens in "{[" else CsvRows(owner, again, chosen)


class _Again:
    """A text whose first lines were looked at: these, and then the rest."""

    def __init__(self, start: list[str], text: TextIO) -> None:
        self.start, self.text = start, text

    def __iter__(self) -> "_Again":
        return self

    def __next__(self) -> str:
        return self.start.pop(0) if self.start else next(self.text)

    def read(self, size: int) -> str:
        return self.text.read(size)


def _without(block: Block, columns: Columns, titles: Sequence[str], size: int) -> dict[str, Any]:
    """Rows that are no requests that were served: reason to a mask."""
    found = {}
    for place in columns.failed:
        cells, name = block.pick(place), titles[place]
        seen = {cell: _says_failed(plain(name), cell) for cell in set(map(str, cells))}
        if any(seen.values()):
            reason = f"failed, by the column {name}"
            if plain(name) == "cachehit":
                reason = f"answered from a cache of answers, by the column {name}"
            found[reason] = np.fromiter((seen[str(cell)] for cell in cells), bool, size)
    if isinstance(label := block.pick(0)[0:1], list) and label and isinstance(label[0], str | None):
        labels = [str(cell).strip().lower() in TOTALS for cell in block.pick(0)]
        if any(labels):
            found["a total, not a request"] = np.array(labels)
    return found


def _says_failed(name: str, cell: str) -> bool:
    """Whether a cell of a column such as error, status or success says that the request failed."""
    text = cell.strip().lower()
    if name in ("success", "succeeded"):
        return text in ("false", "0", "no")
    if name in ("cachehit", "wascancelled", "metadatawascancelled"):
        return text in ("true", "1", "yes")
    if text.isdigit() and name != "error":
        return int(text) >= 400 if "status" in name else int(text) != 0
    if name in ("status", "level"):
        return text in BAD
    return text not in GOOD and not text.replace(".", "", 1).isdigit()


def _refuse_many(owner: str, block: Block, columns: Columns, titles: Sequence[str]) -> None:
    """InvalidInputError for a row that stands for many requests."""
    for place in columns.many:
        numbers, _ = counts(block.pick(place), False)
        if (numbers > 1).any():
            row = int(np.argmax(numbers > 1))
            raise InvalidInputError(
                f"{owner}: Line {block.lines[row]:,}, column {shown(titles[place])}: {numbers[row]:,} requests in one row; "
                "expected a row a request, for lengths of single requests decide. If this column means something else, "
                "give it another name."
            )


def _refuse_characters(rows: JsonRows | CsvRows, kind: str, cells: Sequence[Any], numbers: Any, block: Block) -> None:
    """InvalidInputError where the counts of tokens are the lengths of the texts beside them."""
    for place, title in enumerate(rows.titles):
        if plain(title.rpartition(".")[2]) in TEXTS.get(kind, ()) and place != rows.columns.places[kind]:
            texts = [str(cell or "") for cell in block.pick(place)]
            for unit, sizes in (("characters", map(len, texts)), ("bytes", (len(text.encode()) for text in texts))):
                sizes = list(sizes)
                if sum(sizes) >= FEWEST_CHARACTERS and [n for n in numbers.tolist() if n != MISSING] == [
                    size for size, n in zip(sizes, numbers.tolist(), strict=True) if n != MISSING
                ]:
                    title_ = shown(rows.titles[rows.columns.places[kind]])
                    raise InvalidInputError(
                        f"{rows.where}: the column {title_} counts the {unit} of {shown(title)}, not tokens; count with "
                        "the model's tokenizer."
                    )
