"""Which rows of a log are requests that were served, one a row and counted in tokens; and the columns that say so."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.base.text import one_line
from lessonlib.facts.traffic.columns import CHARACTERS, Columns, more_parts, plain
from lessonlib.facts.traffic.meaning import TOTAL
from lessonlib.facts.traffic.numbers import MISSING, Block, counts
from lessonlib.facts.traffic.words import SUMS, names_span, names_sums, sums_among

TOTALS = {
    form
    for word in (*SUMS, "grand total")
    for one in (word, word.title(), word.upper(), word.capitalize())
    for form in (one, f"{one}:")
}
FEWEST_CHARACTERS = 20  # of texts, for their lengths to be no coincidence
MOST_ALIKE = 0.9  # share of the texts whose lengths are the counts beside them, from which these are no tokens
TEXTS = set("prompt input question prompttext inputtext requesttext output completion response answer".split()) | set(
    "outputtext generatedtext responsetext text content messages".split()
)
UNITS: Mapping[str, Any] = {
    "characters": len,
    "bytes": lambda text: len(text.encode(errors="replace")),
    "UTF-16 units": lambda text: len(text.encode("utf-16-le", errors="replace")) // 2,
    "words": lambda text: len(text.split()),
}
UNIT = re.compile(r"bytes?|char(acter)?s?|letters?|words?", re.IGNORECASE)
DAY = re.compile(r"\d{4}(-\d\d){0,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|[^\W\d]{3,9}")
GOOD = {"", "no error", "no errors", *"0 - n/a na nil none null nan false no ok success succeeded unset [] {}".split()}
BAD = re.compile(r"fail|error|cancel|time[ds]?[\s_-]?out|abort|reject|exception|throttl|expired|unavailable")
# Of the rows of a trace, those that sum the calls below them, or call no model; and why rows of a kind are left out.
STEPS = set("chain agent trace span workflow task tool retriever parser prompt evaluator guardrail event".split())
WHY = {"cachehit": "answered from a cache of answers", "step": "no call of a model"}
YES, NO = {"true", "1", "1.0", "yes", "t", "y"}, {"false", "0", "0.0", "no", "f", "n"}
LONGEST_END = 60  # characters of what says how a request ended; more are a text


def with_parts(titles: Sequence[str], columns: Columns, block: Block) -> Columns:
    """The columns, and those that hold parts or totals by their words and by their cells in the first block."""
    places = dict(columns.places)
    whole = sum(np.maximum(counts(block.pick(places[kind]), False)[0], 0) for kind in ("prompt", "output"))
    for kind, place in more_parts(titles, columns).items():
        cells = block.pick(place)
        numbers, faults = counts(cells, False)
        if faults or any(type(cell) is bool for cell in cells):
            continue
        if kind == "total":
            holds = (numbers > 0).any() and (numbers >= whole)[numbers != MISSING].all()
        else:  # a flag is 0 or 1
            holds = "token" in titles[place].lower() or (numbers > 1).any()
        if holds:
            places[kind] = place
    return replace(columns, places=places)


def half_empty(prompt: Any, output: Any, columns: Columns, titles: Sequence[str]) -> dict[int, str]:
    """Rows that have one of the two counts."""
    half = np.flatnonzero((prompt == MISSING) != (output == MISSING))
    empty = {int(row): "prompt" if prompt[row] == MISSING else "output" for row in half}
    return {row: f", column {shown(titles[columns.places[kind]])}: '' is empty." for row, kind in empty.items()}


def not_served(block: Block, columns: Columns, titles: Sequence[str]) -> dict[str, Any]:
    """Rows that are not requests that were served: reason to a mask."""
    found, size = {}, len(block.lines)
    for place, says in columns.failed.items():
        cells = block.pick(place)
        seen = {cell: _says_so(says, cell) for cell in set(map(str, cells))}
        if any(seen.values()):
            reason = f"{WHY.get(says, 'failed')}, by the column {one_line(titles[place])}"
            found[reason] = np.fromiter((seen[str(cell)] for cell in cells), bool, size)
    sums = np.zeros(size, bool)
    for place in {0, len(titles) - 1} - set(columns.places.values()):
        labels = block.pick(place)
        if type(labels[-1]) is str and not TOTALS.isdisjoint(map(str, labels)):
            sums |= [str(label) in TOTALS for label in labels]
    for place, title in enumerate(titles):
        if place not in columns.places.values() and plain(title.rpartition(".")[2]) not in TEXTS:
            labels = ["" if label is None else str(label) for label in block.last(place)]
            at_edge = place in (0, len(titles) - 1)
            for back, one in enumerate(reversed(sums_among(labels)), 1):
                sums[size - back] |= one and (at_edge or block.has_gap(-back))
    return found | ({TOTAL: sums} if sums.any() else {})


def _says_so(says: str, cell: str) -> bool:
    """Whether a cell says that a row is no request that a model answered: it failed, came from a cache, sums others."""
    text = cell.strip().lower()
    if says == "served":
        return text in NO
    if says in ("cachehit", "failed"):
        return text in YES
    if says == "step":
        return text.rpartition(".")[2] in STEPS
    code = int(text) if text.isdigit() and len(text) < 9 else None
    if says == "span" and text in ("2", "error"):
        return True
    if says in ("end", "span"):
        bad = len(text) <= LONGEST_END and BAD.search(text) and not text.startswith(("no", "un", "0"))
        return bool(bad) or 400 <= (code or _code_in(text)) < 600
    if code is not None:
        return code != 0
    return text not in GOOD and not text.replace(".", "", 1).isdigit()


def _code_in(text: str) -> int:
    """The HTTP status that a text begins with, such as 429 Too Many Requests; 0 where it does not."""
    code = re.match(r"(\d{3})\b", text)
    return int(code[1]) if code and len(text) <= LONGEST_END else 0


def refuse_many(owner: str, block: Block, columns: Columns, titles: Sequence[str]) -> None:
    """InvalidInputError for a row that stands for many requests."""
    for place in columns.many:
        cells = block.pick(place)
        numbers, _ = counts(cells, False)
        if (numbers == MISSING).any():  # 1,412 is many, too
            plainly = [re.sub(r"[ ,.'_\u2019\u00a0\u202f]", "", str(cell)) for cell in cells]
            numbers = np.array([int(cell) if cell.isdecimal() and len(cell) < 16 else 0 for cell in plainly])
        if (numbers > 1).any():
            row = int(np.argmax(numbers > 1))
            raise InvalidInputError(
                f"{owner}: Line {block.lines[row]:,}, column {shown(titles[place])}: {numbers[row]:,} requests in one "
                "row; expected a row a request, for the length of each decides. If this column means something else, "
                "rename it."
            )


def look_at_unit(where: str, titles: Sequence[str], place: int, numbers: Any, block: Block) -> tuple[str, ...]:
    """Notes on what a column may count instead of tokens; InvalidInputError where texts or names beside it tell."""
    title, there, notes = titles[place], numbers != MISSING, []
    for other, beside in enumerate(titles):
        if other == place:
            continue
        cells = block.pick(other)
        if CHARACTERS.search(beside.lower()) and "token" not in beside.lower():
            if numbers[there].sum() >= FEWEST_CHARACTERS and (counts(cells, False)[0] == numbers)[there].all():
                raise InvalidInputError(
                    f"{where}: the column {shown(title)} has the numbers of {shown(beside)}, which are not tokens; "
                    "count with the model's tokenizer."
                )
            notes.append(f"{shown(beside)}: if {shown(title)} counts the same unit, it is not tokens.")
        elif isinstance(cells[0], str) and UNIT.fullmatch(cells[0].strip()):
            notes.append(
                f"{shown(beside)} says {shown(cells[0])}: if that is what {shown(title)} counts, it is not tokens."
            )
        elif any(isinstance(cell, str) and " " in cell for cell in cells[:10]):
            notes += _of_text(where, title, beside, [str(cell or "") for cell in cells], numbers, there)
    return () if "token" in title.lower() else tuple(notes[:1])


def _of_text(where: str, title: str, beside: str, texts: list[str], numbers: Any, there: Any) -> list[str]:
    named = plain(beside.rpartition(".")[2]) in TEXTS
    for unit, length in UNITS.items():
        sizes = np.array(list(map(length, texts)))[there]
        told = named or len(set(sizes.tolist())) > 1  # a timestamp is always as long
        if told and sizes.sum() >= FEWEST_CHARACTERS and (sizes == numbers[there]).mean() >= MOST_ALIKE:
            raise InvalidInputError(
                f"{where}: the column {shown(title)} counts the {unit} of {shown(beside)}, not tokens; count with the "
                "model's tokenizer."
            )
    return []


def look_at_sums(way: str, titles: Sequence[str], columns: Columns, block: Block) -> list[str]:
    """Notes on names and days by which a row may sum many requests. `way`: the names on the way to the rows."""
    prompt = titles[columns.places["prompt"]]
    way = ".".join(filter(None, (way, prompt.rpartition(".")[0])))
    if names_sums(way):
        return [f"The counts stand under {shown(way)}: by this name a row sums many requests, and is not one."]
    for place, title in enumerate(titles):
        if place in columns.places.values() or not names_span(title) or len(block.lines) < 2:
            continue
        days = [str(cell).strip() for cell in block.pick(place)]
        if len(set(days)) == len(days) and all(map(DAY.fullmatch, days)):
            return [f"Each row has a {shown(title)} of its own: if a row sums what came then, it is not a request."]
    return []


def repeated(title: str, ids: Any, counted: Any) -> str:
    """A sentence for requests that have one id, where there are such; `ids`: their hashes, `counted`: where one is."""
    kept = ids[counted]
    again = len(kept) - len(np.unique(kept))
    return (
        f"In {again:,} rows {shown(title)} is that of another row, too: if such rows are parts of one request, as the "
        "chunks of a stream are, keep the last of each."
        if again
        else ""
    )
