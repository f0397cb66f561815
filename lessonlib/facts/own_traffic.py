"""A learner's own traffic: prompt, output and cached tokens of each request, read from a log.

A file is data. Nothing in it is executed, a formula is text, and what cannot be meant is refused with its line: lines
count from 1 as an editor shows them, rows count the requests from 1. No request is dropped without a word.
"""

import io
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from lessonlib.base.checks import REFUSED, Checked, Rule, a, checked, choice, count, items, optional, text
from lessonlib.base.errors import InvalidInputError, printable, shown
from lessonlib.base.files import BYTES, GivenFile
from lessonlib.facts.traffic.read import read_log
from lessonlib.facts.traffic.stream import Progress, opened, refuse_encoding
from lessonlib.request.request import Request, columns_of, fits
from lessonlib.time.deployment import Deployment

LARGEST_TRAFFIC = 2**29  # bytes, unpacked


def _counted(value: Any) -> Any:
    each = value.items() if isinstance(value, Mapping) else [(None, None)]
    taken = all(isinstance(reason, str) and count(0).turn(rows) is not REFUSED for reason, rows in each)
    return value if taken else REFUSED


@dataclass(frozen=True, eq=False, repr=False)
class OwnTraffic(Checked):
    """Requests of a file, in its order: `prompt`, `output` and `cached` tokens, arrays of whole numbers.

    `name`: the file's. `columns`: the columns that were read, by what they hold. `unread`: columns whose name speaks of
    a cache and that were not read. `left_out`: how many rows were left out, by reason. `notes`: what was decided in
    reading, a sentence each.
    """

    name: str
    prompt: Any
    output: Any
    cached: Any
    columns: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    rules: ClassVar = {
        "name": a(str, "'own.csv'"),
        "columns": a(Mapping, "{'prompt': 'prompt_tokens'}"),
        "unread": items(a(str)),
        "left_out": Rule("a dict from reasons to numbers of rows", _counted),
        "notes": items(a(str)),
    }

    def complete(self) -> None:
        try:
            arrays = {name: np.asarray(getattr(self, name)) for name in ("prompt", "output", "cached")}
        except Exception:  # lists of other lengths inside of lists; a tensor that does not leave its device
            arrays = {}
        whole = all(array.ndim == 1 and array.dtype.kind in "iu" for array in arrays.values())
        if not arrays or not whole or len({len(array) for array in arrays.values()}) > 1:
            raise InvalidInputError(
                f"OwnTraffic {self.name!r}: expected three arrays of whole numbers of one length, prompt, output and "
                "cached."
            )
        columns_of(f"OwnTraffic {self.name!r}", Request(**arrays))  # refuses the first request that cannot be meant
        for name, given in arrays.items():
            copied = given.astype(np.int64)
            copied.setflags(write=False)
            object.__setattr__(self, name, copied)

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def request(self) -> Request:
        """All requests as one Request of arrays, ready to be priced."""
        return Request(self.prompt, self.output, self.cached)

    @property
    def mean(self) -> Request:
        """A request of the mean lengths, in whole tokens."""
        prompt, output, cached = (round(int(of.sum()) / len(self)) for of in (self.prompt, self.output, self.cached))
        return Request(max(1, prompt), max(1, output), min(cached, max(1, prompt) - 1))

    def taken_by(self, deployment: Deployment) -> "OwnTraffic":
        """These requests without those that the server cannot take at all, which are counted in `left_out`.

        Raises DoesNotFitError where the weights do not fit, InvalidInputError where no request is left.
        """
        deployment.require_fit(1)
        masks = fits(deployment, self.request)
        wrong = np.any(list(masks.values()), axis=0)
        found = {reason: int(mask.sum()) for reason, mask in masks.items() if mask.any()}
        if wrong.all():
            reasons = "; ".join(f"{count:,} are {reason}" for reason, count in found.items())
            raise InvalidInputError(
                f"Traffic {self.name!r}: the server can take none of its {len(self):,} requests: {reasons}. Take a "
                "model with more positions, more memory, or smaller dtypes."
            )
        kept = {name: getattr(self, name)[~wrong] for name in ("prompt", "output", "cached")}
        return replace(self, **kept, left_out=Counter(self.left_out) + Counter(found))

    def said(self) -> list[str]:
        """What a reader should know of how it was read, a sentence each."""
        rows = len(self) + sum(self.left_out.values())
        lines = [f"Left out: {count:,} of {rows:,} rows, {reason}." for reason, count in self.left_out.items()]
        if self.unread:
            names = ", ".join(map(shown, self.unread))
            taken = (
                "" if "cached" in self.columns else " Prompts are taken as uncached, unless cached_column says more."
            )
            lines.append(f"Not read: {names}.{taken}")
        return [printable(line) for line in (*lines, *self.notes)]

    def __str__(self) -> str:
        return "\n".join([repr(self), *self.said()])

    def __repr__(self) -> str:
        return (
            f"{len(self):,} requests of {self.name!r}; medians {np.median(self.prompt):,.0f} prompt and "
            f"{np.median(self.output):,.0f} output tokens, means {self.prompt.mean():,.1f} and "
            f"{self.output.mean():,.1f}"
        )


TRAFFIC = a(OwnTraffic, "read_traffic('own.csv')")  # the rule of every function that is given some
SIDE = optional(choice(("within", "beside")))


@checked(thought=SIDE, cache=SIDE)
def read_traffic(
    source: Any,
    prompt_column: str | None = None,
    output_column: str | None = None,
    cached_column: str | None = None,
    thought_column: str | None = None,
    *,
    thought: str | None = None,
    cache: str | None = None,
    progress: Progress | None = None,
) -> OwnTraffic:
    """The requests of a log: a path, the text itself (a string with a line break, or JSON), or the bytes of an upload.

    CSV with any of four delimiters, JSON lines, or JSON with an array of requests; plain or gzip, UTF-8 or UTF-16.
    Columns are recognised by the names that docs/traffic.md lists, or chosen by name; of JSON a name is dotted, such as
    usage.prompt_tokens. Thought tokens are output tokens: `thought` says whether a column of them counts "within" the
    output or "beside" it, `cache` likewise of cached tokens and the prompt, where neither totals nor the kind of log
    do. `progress` is called with the share that was read, from 0 to 1. An upload may have a `name`, as an Upload has.

    Requests that failed or have no output token are left out and counted in `left_out`. Raises InvalidInputError, with
    line and row, for what holds no whole numbers of tokens, a row a request.
    """
    if isinstance(source, str) and ("\n" in source or "\r" in source or source.lstrip()[:1] in ("{", "[")):
        name, owner = "text", "Traffic file 'text'"
        file, stream = None, io.StringIO(source.removeprefix("\ufeff"), newline="")
    elif isinstance(source, str | os.PathLike | BYTES):
        smaller = "keep the columns of tokens, or fewer rows"
        absent = "check the path and the folder that you run in (the text of a CSV is known by its line breaks)"
        if str(source).lower().startswith(("http://", "https://", "s3://", "gs://", "hf://")):
            absent = "download it first, and pass the path of the file: nothing is fetched from an address"
        file = GivenFile(source, "Traffic file", "log", LARGEST_TRAFFIC, smaller, absent)
        name, owner = file.name, str(file)
        stream = opened(file, progress)  # type: ignore[assignment]
    else:
        raise InvalidInputError(
            f"read_traffic: source is {shown(source)}; expected the path of a log, its text, or its bytes."
        )
    given = {"prompt": prompt_column, "output": output_column, "cached": cached_column, "thought": thought_column}
    for kind, title in given.items():
        if title is not None:
            text("prompt_tokens")(owner, f"{kind}_column", title)
    try:
        with stream:
            found, rows = read_log(owner, stream, given, thought, cache)
    except UnicodeDecodeError as error:
        refuse_encoding(file, error)  # type: ignore[arg-type]
    columns = {kind: rows.titles[place] for kind, place in rows.columns.places.items()}
    columns = {kind: title for kind, title in columns.items() if title not in found.unused}
    unread = tuple(title for title in rows.titles if "cache" in title.lower() and title not in columns.values())
    left_out = Counter(getattr(rows, "left_out", {})) + Counter(found.left_out)
    shape = rows.columns.shape
    notes = (*((f"Known as: {shape.name}.",) if shape else ()), *rows.notes, *found.notes)
    if getattr(rows, "threes", False) and max(found.prompt.max(), found.output.max()) < 1000:
        notes += (
            "Every number has three digits at most: if the log has commas between thousands, it is read wrongly.",
        )
    return OwnTraffic(name, found.prompt, found.output, found.cached, columns, unread, left_out, notes)
