"""What the columns mean: whether thought tokens stand beside the output or within it, cached ones likewise.

A total of the same row decides: prompt + output, with or without the part. A part that is larger than what it should be
within stands beside it. Then comes what other rows of the file say, then the known shape; and then the reader is asked.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.facts.traffic.columns import Shape
from lessonlib.facts.traffic.numbers import MISSING, Problems

TOTAL = "a total, not a request"  # why a row is left out
UNCACHED = re.compile(r"uncached|no.?cache|cache.?miss", re.IGNORECASE)  # a prompt by that name has no cached tokens
LONGEST = 20_000_000  # tokens, more than any model takes in one request
FEWEST_SUMMED = 5  # rows from which a last one that is the sum of the others is not a coincidence


class Meant(NamedTuple):
    """Prompt, output and cached tokens of the rows that are requests; how many are not, by reason; what was decided."""

    prompt: Any
    output: Any
    cached: Any
    left_out: dict[str, int]
    notes: tuple[str, ...]
    unused: tuple[str, ...]


class Log(NamedTuple):
    """What was read: kind to an array, kind to its title, a reason to a mask of the rows that it leaves out."""

    owner: str
    counts: Mapping[str, Any]
    titles: Mapping[str, str]
    without: Mapping[str, Any]
    lines: Any
    shape: Shape | None


def meant(log: Log, thought: str | None, cache: str | None, cached_chosen: bool) -> Meant:
    """The requests of a log. `thought`, `cache`: "within" or "beside" where a reader says so."""
    counts, notes = dict(log.counts), []
    out = np.zeros(len(log.lines), bool)
    left_out: dict[str, int] = {}

    def leave(reason: str, mask: Any) -> None:
        nonlocal out
        if (mask & ~out).any():
            left_out[reason] = left_out.get(reason, 0) + int((mask & ~out).sum())
            out = out | mask

    for reason, mask in log.without.items():
        leave(reason, mask)
    zero = np.zeros(len(out), np.int64)
    part = {kind: np.maximum(counts.get(kind, zero), 0) for kind in ("cached", "written", "tool", "thought", "total")}
    thoughts, caches = part["thought"], part["cached"] + part["written"]
    bare = counts["prompt"] == MISSING
    leave("without token counts", bare & (counts["output"] == MISSING) & (thoughts + caches == 0))
    prompt, output = (np.maximum(counts[kind], 0) for kind in ("prompt", "output"))
    _refuse_missing(log, "prompt", bare & ~out & (caches == 0))
    _refuse_missing(log, "output", (counts["output"] == MISSING) & ~out & (thoughts == 0))
    base = prompt + output + part["tool"]
    fits = {
        (a, b): (part["total"] > 0) & (part["total"] == base + a * caches + b * thoughts)
        for a in (0, 1)
        for b in (0, 1)
    }
    unused: list[str] = []
    sides = {}
    for kind, whole, amounts, within, beside, given, known in (
        ("thought", output, thoughts, fits[0, 0] | fits[1, 0], fits[0, 1] | fits[1, 1], thought, "thinking"),
        ("cached", prompt, caches, fits[0, 0] | fits[0, 1], fits[1, 0] | fits[1, 1], cache, "cache"),
    ):
        settled = getattr(log.shape, known, "")
        if kind == "cached" and UNCACHED.search(log.titles["prompt"]):
            settled = "beside"
        asked = _Question(log, kind, whole, np.where(out, 0, amounts), within, beside, given, settled)
        side = asked.side()
        if side is None and kind == "cached" and not (asked.larger | (asked.beside & ~asked.within)).any():
            side = np.zeros(len(out), bool)
            if not cached_chosen:
                unused = [log.titles[name] for name in ("cached", "written") if name in log.titles]
                part["cached"] = zero
        if side is None:
            raise asked.error()
        sides[kind] = side
        notes += asked.notes(side) if not unused or kind == "thought" else []
    prompt = prompt + part["tool"] + np.where(sides["cached"], caches, 0)
    output = output + np.where(sides["thought"], thoughts, 0)
    leave("without an output token (failed or cancelled)", output == 0)
    notes += _totals(log, part["total"], prompt, output, ~out)
    _refuse_rows(log, prompt, output, part["cached"], np.where(sides["thought"], 0, thoughts), ~out)
    notes += _long(log, prompt + output, ~out)
    notes += _sums(log, prompt, output, ~log.without.get(TOTAL, zero.astype(bool)), ~out)
    if out.all():
        said = "; ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        raise InvalidInputError(f"{log.owner}: of its {len(out):,} rows not one is a request that was served: {said}.")
    keep = ~out
    if keep.all():
        return Meant(prompt, output, part["cached"], left_out, tuple(notes), tuple(unused))
    return Meant(prompt[keep], output[keep], part["cached"][keep], left_out, tuple(notes), tuple(unused))


class _Question(NamedTuple):
    """Is the part of that kind beside the whole, or within it? `within`, `beside`: rows whose total says so."""

    log: Log
    kind: str
    whole: Any
    part: Any
    within: Any
    beside: Any
    given: str | None
    settled: str

    def side(self) -> Any:
        """A mask of the rows where the part stands beside the whole; None where nothing says."""
        there = self.part > 0
        if not there.any():
            return there
        if self.given:
            return there & (self.given == "beside")
        within, beside = self.within & ~self.beside & there, self.beside & ~self.within & there
        larger = self.larger & (self.settled != "within")  # else it contradicts itself, and is refused
        if (larger & within).any():  # these totals leave the part out
            within = within & False
        beside, within = beside | larger, within & ~larger
        unknown = there & ~within & ~beside
        if not unknown.any():
            return beside
        if within.any() != beside.any():
            return beside | (unknown & beside.any())
        return beside | (unknown & (self.settled == "beside")) if self.settled else None

    @property
    def larger(self) -> Any:
        """Rows whose part is larger than what it would be within."""
        return self.part > self.whole

    @property
    def _names(self) -> tuple[str, str]:
        titles = self.log.titles
        parts = [
            titles[kind] for kind in (self.kind, *(("written",) if self.kind == "cached" else ())) if kind in titles
        ]
        return " and ".join(map(shown, parts or [titles.get("written", self.kind)])), shown(
            titles["output" if self.kind == "thought" else "prompt"]
        )

    def notes(self, side: Any) -> list[str]:
        parts, whole = self._names
        there = self.part > 0
        if not there.any():
            return []
        count = int((side & there).sum())
        where = "" if count in (0, int(there.sum())) else f" in {count:,} of {int(there.sum()):,} rows"
        if self.kind == "thought":
            return [
                f"Thought tokens, {parts}, {'are added to' if count else 'count within'} the output {whole}{where}."
            ]
        return [
            f"Cached tokens, {parts}, {'stand beside' if count else 'count within'} the prompt {whole}{where}"
            + (": the prompt is the sum." if count else ".")
        ]

    def error(self) -> InvalidInputError:
        parts, whole = self._names
        row = int(np.argmax(self.part > 0))
        total = self.log.counts.get("total")
        words, argument = ("thought", "thought") if self.kind == "thought" else ("cached", "cache")
        neither = (
            f" Line {self.log.lines[row]:,}: the total {total[row]:,} is neither prompt + output nor that + {words}."
            if total is not None and total[row] > 0 and not (self.within[row] or self.beside[row])
            else ""
        )
        name = "output" if self.kind == "thought" else "prompt"
        return InvalidInputError(
            f"{self.log.owner}: the {words} tokens {parts} count either within the {name} {whole} or beside it, and "
            f"nothing in the file says which of all rows.{neither} Pass {argument}='within' if the {name} counts them "
            f"already, or {argument}='beside' if they are to be added to it."
        )


def _refuse_missing(log: Log, kind: str, mask: Any) -> None:
    _refuse(log, mask, lambda row: f", column {shown(log.titles[kind])}: '' is empty.")


def _refuse_rows(log: Log, prompt: Any, output: Any, cached: Any, thought: Any, kept: Any) -> None:
    _refuse(
        log,
        kept & (prompt < 1),
        lambda row: f", column {shown(log.titles['prompt'])}: '0' has no token; a request has at least 1.",
    )
    _refuse(
        log,
        kept & (cached >= prompt),
        lambda row: (
            f": {cached[row]:,} cached of {prompt[row]:,} prompt tokens; at least one prompt token is computed. "
            "If the cached tokens stand beside the prompt, pass cache='beside'."
        ),
    )
    _refuse(
        log,
        kept & (thought > output),
        lambda row: (
            f": {thought[row]:,} thought tokens within {output[row]:,} output tokens. If they stand beside the output, "
            "pass thought='beside'."
        ),
    )


def _long(log: Log, lengths: Any, kept: Any) -> Sequence[str]:
    """A note where a row has more tokens than a request can have."""
    places = np.flatnonzero(kept & (lengths > LONGEST))
    if not len(places):
        return ()
    row = int(places[0])
    return (
        f"{len(places):,} rows have more tokens than any model takes, as line {log.lines[row]:,} with "
        f"{lengths[row]:,}: they may be sums of many requests.",
    )


def _sums(log: Log, prompt: Any, output: Any, rows: Any, kept: Any) -> Sequence[str]:
    """A note where the first row or one of the last two is the sum of the others; InvalidInputError if of many.

    `rows`: a mask of those that are no total by their name; requests that failed may be summed, too.
    """
    for counted in (kept, rows):
        places = np.flatnonzero(counted)
        p, o = prompt[places], output[places]
        for place, others in ((-1, slice(None, -1)), (-2, slice(None, -2)), (0, slice(1, None))):
            if len(p[others]) < 2 or p[place] != p[others].sum() or o[place] != o[others].sum() or not o[place]:
                continue
            row = int(places[place])
            said = (
                f"Line {log.lines[row]:,} (row {row + 1:,}) is the sum of all rows {'above' if place else 'below'} it"
            )
            if len(p[others]) + 1 >= FEWEST_SUMMED:
                raise InvalidInputError(f"{log.owner}: {said}; leave it out.")
            return (f"{said}: if it is a total, leave it out.",)
    return ()


def _refuse(log: Log, mask: Any, say: Any) -> None:
    places = np.flatnonzero(mask)
    problems = Problems(log.owner)
    problems.add({int(row): say(row) for row in places[:3]}, log.lines, 0)
    problems.count = len(places)
    problems.refuse()


def _totals(log: Log, total: Any, prompt: Any, output: Any, kept: Any) -> Sequence[str]:
    """A note where totals say more, or less, than prompt and output."""
    differs = kept & (total > 0) & (total != prompt + output)
    title = log.titles.get("total")
    if title is None or not differs.any():
        return ()
    row = int(np.argmax(differs))
    more = total[row] > prompt[row] + output[row]
    return (
        f"In {int(differs.sum()):,} rows the total {shown(title)} is not prompt + output: line {log.lines[row]:,} has "
        f"{total[row]:,} for {prompt[row]:,} + {output[row]:,}."
        + (" Thought or cached tokens may be missing from the columns." if more else ""),
    )
