"""A learner's own traffic: prompt and output tokens of each request, read from a CSV.

A file is data. Nothing in it is executed, a formula is text, and what cannot be meant is refused with its line: lines
count from 1 as an editor shows them, rows count the requests from 1. No request is dropped without a word.
"""

import csv
import io
import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

import numpy as np

from lessonlib.base.checks import a, text
from lessonlib.base.errors import MOST_TOKENS, InvalidInputError, shown
from lessonlib.base.files import BYTES, GivenFile, line_of
from lessonlib.request.request import Request, columns_of, fits
from lessonlib.time.deployment import Deployment

LARGEST_TRAFFIC = 2**29  # bytes
MOST_COLUMNS = 1000
SHOWN_PROBLEMS = 3
MOST_DIGITS = 15  # of a cell that needs no closer look
DELIMITERS = ",;\t|"
BLANK = " \t\r\n,;|"  # a line of these alone names no column
NO_TEXT = {b"PK\x03\x04": "a spreadsheet or a zip archive", b"\x1f\x8b": "compressed", b"PAR1": "Parquet"}
# Names of the columns in the logs of engines and in published traces, in small letters without punctuation: those that
# say tokens; and, where there is none of these, those that may hold tokens, or text, which is then refused.
NAMES = {
    "prompt": (
        "prompttokens inputtokens contexttokens requesttokens numprompttokens numinputtokens prompttokencount "
        "inputtokencount tokensprompt tokensinput promptlength promptlen inputlength inputlen nin usageprompttokens "
        "usageinputtokens nprompttokens ninputtokens",
        "prompt input",
    ),
    "output": (
        "outputtokens completiontokens generatedtokens generationtokens responsetokens numoutputtokens "
        "numcompletiontokens numgeneratedtokens numgenerationtokens outputtokencount completiontokencount "
        "candidatestokencount tokensoutput tokenscompletion outputlength outputlen completionlength generatedlength "
        "nout usagecompletiontokens usageoutputtokens noutputtokens",
        "output completion",
    ),
}
# What is wrong with a cell that does not hold a whole number; any other is "not a number".
PROBLEMS = {
    r"": "is empty",
    r"-\s*[0-9.,]+(e[-+]?[0-9]+)?": "is negative",
    r"[0-9]{1,3}([ ',._\u00a0\u202f][0-9]{3})+": "has marks between its thousands; expected plain digits",
    r"\+?[0-9]*[.,][0-9]+|[0-9.]+e[-+]?[0-9]+": "is not written as a whole number; expected plain digits",
    r"[=+@].*": "is a formula, which stays text; expected plain digits",
}


@dataclass(frozen=True, eq=False, repr=False)
class OwnTraffic:
    """Requests of a file, in its order: `prompt`, `output` and `cached` tokens, arrays of whole numbers.

    `name`: the file's. `columns`: the columns that were read, by what they hold. `unread`: columns whose name speaks of
    a cache and that were not read. `left_out`: how many rows `taken_by` left out, by reason.
    """

    name: str
    prompt: Any
    output: Any
    cached: Any
    columns: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        a(str, "'own.csv'")("OwnTraffic", "name", self.name)
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

    def __repr__(self) -> str:
        return (
            f"{len(self):,} requests of {self.name!r}; medians {np.median(self.prompt):,.0f} prompt and "
            f"{np.median(self.output):,.0f} output tokens, means {self.prompt.mean():,.1f} and "
            f"{self.output.mean():,.1f}"
        )


TRAFFIC = a(OwnTraffic, "read_traffic('own.csv')")  # the rule of every function that is given some


def read_traffic(
    source: Any, prompt_column: str | None = None, output_column: str | None = None, cached_column: str | None = None
) -> OwnTraffic:
    """The requests of a CSV: a path, the text itself (a string with a line break), or the bytes of an upload.

    The first line names the columns; comma, semicolon, tab or bar between them. Columns are recognised by the names
    that engines and traces use, or chosen by name. `cached_column`: of the prompt, the tokens that a prefix cache held;
    read only when named, since some logs count these within the prompt, as is meant here, and some beside it. An
    upload may have a `name`, as an Upload has.

    Raises InvalidInputError, with line and row, for all but a table of whole numbers from 1: an empty file, UTF-16 or
    Latin-1, no header, a quote never closed, a row of another length, a cell that is negative, zero, NaN, too large.
    """
    if isinstance(source, str) and ("\n" in source or "\r" in source):
        name, owner = "text", "Traffic file 'text'"
        lines: TextIO = io.StringIO(source.removeprefix("\ufeff"), newline="")
    elif isinstance(source, str | os.PathLike | BYTES):
        smaller = "keep the two columns of tokens, or fewer rows"
        absent = "check the path and the folder that you run in (the text of a CSV is known by its line breaks)"
        file = GivenFile(source, "Traffic file", "CSV", LARGEST_TRAFFIC, smaller, absent)
        name, owner = file.name, str(file)
        lines = io.TextIOWrapper(io.BytesIO(_content(file)), encoding="utf-8-sig", newline="")
    else:
        raise InvalidInputError(
            f"read_traffic: source is {shown(source)}; expected the path of a CSV, its text, or its bytes."
        )
    table = _Table(owner, lines)
    places = _places(table, {"prompt": prompt_column, "output": output_column, "cached": cached_column})
    columns = {kind: table.header[place] for kind, place in places.items()}
    prompt, output, cached = _tokens(table, places)
    unread = tuple(title for title in table.header if "cache" in title.lower() and title not in columns.values())
    return OwnTraffic(name, prompt, output, cached, columns, unread)


def _content(file: GivenFile) -> bytes:
    """The bytes of the file, if they are UTF-8 and a table may be in them."""
    content = file.content()
    form = "CSV UTF-8 (in a spreadsheet: Save as, then that format)"
    for start, what in NO_TEXT.items():
        if content.startswith(start):
            file.refuse(f"is {what}, not text", f"save it as {form}")
    zero = content.find(b"\0")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")) or zero >= 0:
        line = _line_words(line_of(content, max(zero, 0)))
        file.refuse(f"is UTF-16 or not text at all: {line} holds zero bytes", f"save it as {form}")
    file.require_text(content, _line_words, form)
    return content


def _line_words(line: int) -> str:
    return f"line {line} ({'the column names' if line == 1 else f'about row {line - 1:,}'})"


class _Table:
    """A CSV, read once from its first line to its last. `header`: the names of its columns; `header_line`: where."""

    def __init__(self, owner: str, lines: TextIO) -> None:
        self.owner = owner
        empty = InvalidInputError(f"{owner} is empty; expected a first line of column names and then a line a request.")
        number, first = next(((n, line) for n, line in enumerate(lines, 1) if line.strip(BLANK)), (0, ""))
        if not first:
            raise empty
        if first.lstrip()[:1] in ("{", "["):
            raise InvalidInputError(
                f"{owner}, line {number}: it is JSON, not a table; write a CSV with prompt_tokens,output_tokens, "
                "and a line a request."
            )
        lines.seek(0)
        self.reader = csv.reader(lines, delimiter=_delimiter(first), strict=True)
        self.rows = self._rows()
        titles = ([title.strip() for title in cells] for cells, _ in self.rows)
        self.header = next(filter(any, titles), [])
        if not self.header:
            raise empty
        self.header_line = self.reader.line_num

    def _rows(self) -> Iterator[tuple[list[str], int]]:
        """Each row that is not blank, and the line on which it begins."""
        reader, begins = self.reader, 1
        try:
            for cells in reader:
                if cells:
                    yield cells, begins
                begins = reader.line_num + 1
        except csv.Error as error:
            raise InvalidInputError(f"{self.owner}, line {begins:,}: {_csv_problem(str(error))}") from None


def _delimiter(line: str) -> str:
    """The one that parts the line into the most fields."""

    def fields(delimiter: str) -> int:
        try:
            return len(next(csv.reader([line], delimiter=delimiter)))
        except (csv.Error, StopIteration):
            return line.count(delimiter) + 1

    return max(DELIMITERS, key=fields)


def _csv_problem(error: str) -> str:
    if "unexpected end" in error or "field larger" in error:
        return (
            'a quote (") that opens here is never closed, or a field is longer than '
            f"{csv.field_size_limit():,} characters; close the quote, or keep the columns of tokens alone."
        )
    if "expected after" in error:
        return 'after a closing quote (") comes other text; write a quote inside a quoted field twice.'
    return f"it cannot be read as CSV ({error})."


def _places(table: _Table, columns: Mapping[str, str | None]) -> dict[str, int]:
    """The place of each column to read: "prompt", "output" and, only when chosen, "cached"."""
    header, where = table.header, f"{table.owner}, line {table.header_line}"
    if len(header) > MOST_COLUMNS:
        raise InvalidInputError(
            f"{where}: it has {len(header):,} columns; expected at most {MOST_COLUMNS:,}. Is a line break missing?"
        )
    found: dict[str, int] = {}
    for kind, chosen in columns.items():
        if chosen is not None:
            chosen = text("prompt_tokens")(table.owner, f"{kind}_column", chosen)
            places = [place for place, title in enumerate(header) if title == chosen.strip()]
        elif kind not in NAMES:
            continue
        else:
            plain = [re.sub(r"[^a-z0-9]", "", title.lower()) for title in header]
            matches = ([place for place, title in enumerate(plain) if title in names.split()] for names in NAMES[kind])
            places = next(filter(None, matches), [])
        if len(places) != 1:
            problem = _column_problem(header, kind, chosen, [header[place] for place in places])
            raise InvalidInputError(f"{where}: {problem}")
        found[kind] = places[0]
    if len(set(found.values())) < len(found):
        raise InvalidInputError(
            f"{table.owner}: one column, {shown(header[found['prompt']])}, is chosen for two things; choose two."
        )
    return found


def _column_problem(header: Sequence[str], kind: str, chosen: str | None, fitting: Sequence[str]) -> str:
    """Why not exactly one column holds the tokens of that kind, and what to do."""
    numbers = [title for title in header if re.fullmatch(r"\s*[-+]?\d+([.,]\d*)?\s*", title)]
    if numbers:
        return (
            f"it holds {shown(numbers[0])}, a number, where column names are expected; add a first line such as "
            "prompt_tokens,output_tokens."
        )
    if len(header) == 1:
        return (
            f"it has one column, {shown(header[0])}; expected two or more, with a comma, a semicolon, a tab or a bar "
            "between them."
        )
    if fitting:
        return (
            f"{len(fitting)} columns may hold the {kind} tokens ({', '.join(map(shown, fitting))}); choose with "
            f"{kind}_column='...', and give each its own name."
        )
    known = ", ".join(map(shown, header[:8])) + (", ..." if len(header) > 8 else "")
    if chosen is not None:
        return f"there is no column {shown(chosen)}; the columns are {known}."
    return f"no column is known to hold the {kind} tokens; choose one of {known} with {kind}_column='...'."


def _tokens(table: _Table, places: Mapping[str, int]) -> tuple[Any, Any, Any]:
    """Prompt, output and cached tokens as arrays; InvalidInputError with the first lines that hold none."""
    width = len(table.header)
    counts = {kind: _counter(place, table.header[place], kind != "cached") for kind, place in places.items()}
    prompt_of, output_of = counts["prompt"], counts["output"]
    cached_of = counts.get("cached", lambda cells: 0)
    prompts, outputs, cached = array("q"), array("q"), array("q")
    wrong, problems = 0, []
    for row, (cells, line) in enumerate(table.rows, 1):
        try:
            if len(cells) != width:
                raise ValueError(f" has {len(cells):,} fields, the line of column names {width:,}.")
            prompt, output, held = prompt_of(cells), output_of(cells), cached_of(cells)
            if held >= prompt:
                raise ValueError(
                    f": {held:,} cached of {prompt:,} prompt tokens; at least one prompt token is computed, and cached "
                    "tokens count within the prompt."
                )
            prompts.append(prompt)
            outputs.append(output)
            cached.append(held)
        except ValueError as problem:  # what is wrong with the row, to be said after its line
            wrong += 1
            if wrong <= SHOWN_PROBLEMS:
                problems.append(f"Line {line:,} (row {row:,}){problem}")
    if wrong:
        others = f" And {wrong - len(problems):,} more such lines." if wrong > len(problems) else ""
        raise InvalidInputError(f"{table.owner}: {' '.join(problems)}{others} Mend these lines, or leave them out.")
    if not prompts:
        raise InvalidInputError(
            f"{table.owner} holds column names and no row; expected a line a request after line {table.header_line}."
        )
    return np.array(prompts), np.array(outputs), np.array(cached)


def _counter(place: int, title: str, least: int) -> Callable[[Sequence[str]], int]:
    """A function that takes a row and returns the whole number in one of its cells, or raises ValueError."""

    def count(cells: Sequence[str]) -> int:
        text = cells[place]
        digits = text if text.isdigit() else text.strip().removesuffix(".0")  # ".0": as a table of floats writes them
        if digits.isdigit() and digits.isascii() and len(digits) <= MOST_DIGITS and (tokens := int(digits)) >= least:
            return tokens
        try:
            return _looked_at(text.strip(), least)
        except ValueError as problem:
            raise ValueError(f", column {shown(title)}: {shown(text)} {problem}.") from None

    return count


def _looked_at(text: str, least: int) -> int:
    """A cell that is not plain digits as a whole number; ValueError with what is wrong with it."""
    if re.fullmatch(r"[0-9]{1,3}\.000", text):
        whole = text.partition(".")[0]
        raise ValueError(f"may be {whole} or {whole} thousand; expected plain digits, {whole} or {whole}000")
    if re.fullmatch(r"[0-9]+(\.0*)?", text):
        digits = text.partition(".")[0].lstrip("0") or "0"
        if len(digits) > MOST_DIGITS + 1 or int(digits) > MOST_TOKENS:
            raise ValueError("is too large for a number of tokens")
        if int(digits) < least:
            raise ValueError("has no token; a request has at least 1 (one that failed or was cancelled has none)")
        return int(digits)
    patterns = (what for pattern, what in PROBLEMS.items() if re.fullmatch(pattern, text, re.IGNORECASE | re.DOTALL))
    raise ValueError(next(patterns, "is not a number; expected plain digits"))
