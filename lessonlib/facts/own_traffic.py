"""A learner's own traffic: prompt and output tokens of each request, read from a CSV.

A file is data. Nothing in it is executed, a formula is text, and what cannot be meant is refused with its line: lines
count from 1 as an editor shows them, rows count the requests from 1. No request is dropped without a word.
"""

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from lessonlib.base.errors import MOST_TOKENS, InvalidInputError, shown
from lessonlib.request.request import Request, fits
from lessonlib.time.deployment import Deployment

LARGEST_TRAFFIC = 2**29  # bytes
MOST_COLUMNS = 1000
BATCH = 2**13  # rows read at a time
SHOWN_PROBLEMS = 3
MOST_DIGITS = 15  # of a cell that needs no closer look
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
# Names of the columns in the logs of engines and in published traces, in small letters without punctuation.
PROMPT_NAMES = frozenset(
    "prompttokens inputtokens contexttokens requesttokens numprompttokens numinputtokens prompttokencount "
    "inputtokencount tokensprompt tokensinput promptlength promptlen inputlength inputlen nin usageprompttokens "
    "usageinputtokens nprompttokens ninputtokens".split()
)
OUTPUT_NAMES = frozenset(
    "outputtokens completiontokens generatedtokens generationtokens responsetokens numoutputtokens numcompletiontokens "
    "numgeneratedtokens numgenerationtokens outputtokencount completiontokencount candidatestokencount tokensoutput "
    "tokenscompletion outputlength outputlen completionlength generatedlength nout usagecompletiontokens "
    "usageoutputtokens noutputtokens".split()
)
# Where no name says tokens: these may hold them, or text, which is then refused.
BARE_NAMES = {"prompt": frozenset(("prompt", "input")), "output": frozenset(("output", "completion"))}


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
        arrays = [np.asarray(getattr(self, name)) for name in ("prompt", "output", "cached")]
        whole = all(array.ndim == 1 and array.dtype.kind in "iu" for array in arrays)
        if not whole or not len(arrays[0]) or len({len(array) for array in arrays}) > 1:
            raise InvalidInputError(
                f"OwnTraffic {self.name!r}: expected three arrays of whole numbers, prompt, output and cached, of one "
                "length of at least 1."
            )
        prompt, output, cached = arrays
        wrong = (prompt < 1) | (output < 1) | (cached < 0) | (cached >= prompt) | (prompt > MOST_TOKENS)
        wrong |= output > MOST_TOKENS
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InvalidInputError(
                f"OwnTraffic {self.name!r}: row {row + 1} has prompt {prompt[row]}, output {output[row]}, cached "
                f"{cached[row]}; expected at least 1, at least 1, and fewer cached than prompt tokens."
            )
        for name, array in zip(("prompt", "output", "cached"), arrays, strict=True):
            copied = array.astype(np.int64)
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
        left_out = {
            reason: found.get(reason, 0) + self.left_out.get(reason, 0) for reason in {**self.left_out, **found}
        }
        keep = ~wrong
        return replace(
            self, prompt=self.prompt[keep], output=self.output[keep], cached=self.cached[keep], left_out=left_out
        )

    def __repr__(self) -> str:
        return (
            f"{len(self):,} requests of {self.name!r}; medians {np.median(self.prompt):,.0f} prompt and "
            f"{np.median(self.output):,.0f} output tokens, means {self.prompt.mean():,.1f} and "
            f"{self.output.mean():,.1f}"
        )


def read_traffic(
    source: Any, prompt_column: str | None = None, output_column: str | None = None, cached_column: str | None = None
) -> OwnTraffic:
    """The requests of a CSV: a path, the text itself (a string with a line break), or the bytes of an upload.

    The first line names the columns; comma, semicolon, tab or bar between them. Columns are recognised by the names
    that engines and traces use, or chosen by name. `cached_column`: of the prompt, the tokens that a prefix cache held;
    read only when named, since some logs count these within the prompt, as is meant here, and some beside it. An
    upload may have a `name`, as an Upload of own_files.py has.

    Raises InvalidInputError, with line and row, for what is no table of whole numbers from 1: an empty file, UTF-16 or
    Latin-1, no header, a quote never closed, a row of another length, a cell that is negative, zero, NaN, too large.
    """
    name, content = _content(source)
    owner = f"Traffic file {name!r}"
    text = content if isinstance(content, str) else _decoded(owner, content)
    if text.lstrip()[:1] in ("{", "["):
        line = _line_of(text, len(text) - len(text.lstrip()))
        raise InvalidInputError(
            f"{owner}, line {line}: it is JSON and no table; write a CSV with prompt_tokens,output_tokens, "
            "and a line a request."
        )
    if not text.strip(" \t\r\n,;|"):
        raise _empty(owner)
    reader = _Rows(owner, text)
    found = _columns(owner, reader, prompt_column, output_column, cached_column)
    kinds, places = tuple(found), tuple(found.values())
    columns = {kind: reader.header[place] for kind, place in found.items()}
    arrays = _tokens(owner, reader, kinds, places, tuple(columns.values()))
    unread = tuple(title for title in reader.header if "cache" in title.lower() and title not in columns.values())
    cached = arrays.get("cached", np.zeros(len(arrays["prompt"]), dtype=np.int64))
    return OwnTraffic(name, arrays["prompt"], arrays["output"], cached, columns, unread)


def _content(source: Any) -> tuple[str, str | bytes]:
    """Name and content of what was given."""
    if isinstance(source, str) and ("\n" in source or "\r" in source):
        return "text", source.removeprefix("\ufeff")
    if isinstance(source, bytes | bytearray | memoryview):
        name = str(getattr(source, "name", "upload"))
        if len(source) > LARGEST_TRAFFIC:
            raise InvalidInputError(_too_large(name))
        return name, bytes(source)
    if not isinstance(source, str | os.PathLike):
        raise InvalidInputError(
            f"read_traffic: source is {shown(source)}; expected the path of a CSV, its text, or its bytes."
        )
    path = Path(source)
    try:
        if path.is_dir():
            raise InvalidInputError(f"Traffic file {path.name!r} is a folder; pass the CSV inside it.")
        if not path.is_file():
            raise InvalidInputError(
                f"Traffic file {shown(os.fspath(path))} does not exist; check the name and the folder that you run in. "
                "(Text of a CSV needs a line break to be taken for text.)"
            )
        with path.open("rb") as stream:
            content = stream.read(LARGEST_TRAFFIC + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"Traffic file {shown(os.fspath(path))} cannot be read: {error}.") from error
    if len(content) > LARGEST_TRAFFIC:
        raise InvalidInputError(_too_large(path.name))
    return path.name, content


def _empty(owner: str) -> InvalidInputError:
    return InvalidInputError(f"{owner} is empty; expected a first line of column names and then a line a request.")


def _too_large(name: str) -> str:
    return f"Traffic file {name!r} has over {LARGEST_TRAFFIC:,} bytes; keep the two columns of tokens, or fewer rows."


def _decoded(owner: str, content: bytes) -> str:
    """The bytes as text, if they are UTF-8."""
    remedy = "save it as CSV UTF-8 (in a spreadsheet: Save as, then that format)"
    for start, what in (
        (b"PK\x03\x04", "a spreadsheet or a zip archive"),
        (b"\x1f\x8b", "compressed"),
        (b"PAR1", "Parquet"),
    ):
        if content.startswith(start):
            raise InvalidInputError(f"{owner} is {what}, not text; {remedy}.")
    zero = content.find(b"\0")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")) or zero >= 0:
        line = 1 if zero < 0 else _line_of(content, zero)
        raise InvalidInputError(
            f"{owner} is UTF-16 or no text at all: line {line}{_row_words(line)} holds zero bytes; {remedy}."
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = _line_of(content, error.start)
        raise InvalidInputError(
            f"{owner} is not UTF-8: line {line}{_row_words(line)} holds the byte {content[error.start]:#04x}, as files "
            f"in Latin-1 or Windows-1252 do; {remedy}."
        ) from None


def _line_of(content: Any, place: int) -> int:
    breaks = rb"\r\n|\r|\n" if isinstance(content, bytes) else r"\r\n|\r|\n"
    return 1 + len(re.findall(breaks, content[:place]))


def _row_words(line: int) -> str:
    return " (the column names)" if line == 1 else f" (about row {line - 1:,})"


class _Rows:
    """The rows of a CSV, in batches, with the line on which each begins. `header`: the names of the columns."""

    def __init__(self, owner: str, text: str) -> None:
        self.owner = owner
        first = next(line for line in io.StringIO(text, newline="") if line.strip(" \t\r\n,;|"))
        self.delimiter = self._delimiter(first)
        self.reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, strict=True)
        self.quoted = '"' in text
        self.header: list[str] = []
        while not any(self.header):
            row = next(self._read(), None)
            if row is None:
                raise _empty(owner)
            self.header = [title.strip() for title in row[0]]
        self.header_line = self.reader.line_num

    def _delimiter(self, first: str) -> str:
        """The one that parts the first line into the most fields."""

        def fields(delimiter: str) -> int:
            try:
                return len(next(csv.reader([first], delimiter=delimiter)))
            except (csv.Error, StopIteration):
                return first.count(delimiter) + 1

        return max(DELIMITERS, key=fields)

    def _read(self) -> Iterator[tuple[list[str], int]]:
        """(fields, line on which they begin) of each row that is not blank."""
        reader = self.reader
        begins = reader.line_num + 1
        try:
            for fields in reader:
                if fields:
                    yield fields, begins
                begins = reader.line_num + 1
        except csv.Error as error:
            raise self._refused(begins, error) from None

    def _refused(self, line: int, error: csv.Error) -> InvalidInputError:
        return InvalidInputError(f"{self.owner}, line {line:,}: {self._said(str(error))}")

    def _said(self, error: str) -> str:
        if "unexpected end" in error or "field larger" in error:
            return (
                'a quote (") that opens here is never closed, or a field is longer than '
                f"{csv.field_size_limit():,} characters; close the quote, or keep the columns of tokens alone."
            )
        if "expected after" in error:
            return 'after a closing quote (") comes other text; write a quote inside a quoted field twice.'
        return f"it cannot be read as CSV ({error})."

    def batches(self) -> Iterator[tuple[list[list[str]], Sequence[int]]]:
        """Rows that are not blank, and the lines on which they begin, some thousands at a time."""
        rows = self._read()
        while True:
            lines: Sequence[int]
            if self.quoted:
                batch = list(islice(rows, BATCH))
                fields, lines = [row for row, _ in batch], [line for _, line in batch]
            else:  # a row is a line, which saves counting
                begins = self.reader.line_num + 1
                try:
                    fields = list(islice(self.reader, BATCH))
                except csv.Error as error:
                    raise self._refused(self.reader.line_num, error) from None
                lines = range(begins, begins + len(fields))
            if not fields:
                return
            if not all(fields):
                lines = [line for line, row in zip(lines, fields, strict=True) if row]
                fields = [row for row in fields if row]
            if fields:
                yield fields, lines


def _plain(title: str) -> str:
    return re.sub(r"[^a-z0-9]", "", title.lower())


def _columns(owner: str, reader: _Rows, prompt: str | None, output: str | None, cached: str | None) -> dict[str, int]:
    """What to read from which place: "prompt", "output" and, when chosen, "cached"."""
    header, line = reader.header, reader.header_line
    if len(header) > MOST_COLUMNS:
        raise InvalidInputError(
            f"{owner}, line {line}: it has {len(header):,} columns; expected at most {MOST_COLUMNS:,}. "
            "Is a line break missing?"
        )
    wanted = {"prompt": (prompt, PROMPT_NAMES), "output": (output, OUTPUT_NAMES)}
    if cached is not None:
        wanted["cached"] = (cached, frozenset())
    found: dict[str, int] = {}
    for kind, (chosen, names) in wanted.items():
        if chosen is not None and not isinstance(chosen, str):
            raise InvalidInputError(f"{owner}: {kind}_column is {shown(chosen)}; expected the name of a column.")
        if chosen is not None:
            places = [place for place, title in enumerate(header) if title == chosen.strip()]
        else:
            plain = [_plain(title) for title in header]
            places = [place for place, title in enumerate(plain) if title in names]
            places = places or [place for place, title in enumerate(plain) if title in BARE_NAMES[kind]]
        if len(places) != 1:
            raise InvalidInputError(_column_problem(owner, reader, kind, chosen, [header[place] for place in places]))
        found[kind] = places[0]
    if len(set(found.values())) < len(found):
        raise InvalidInputError(
            f"{owner}: one column, {shown(header[found['prompt']])}, is chosen for two things; choose two."
        )
    return found


def _column_problem(owner: str, reader: _Rows, kind: str, chosen: str | None, places: Sequence[str]) -> str:
    header, where = reader.header, f"{owner}, line {reader.header_line}"
    if any(_is_number(title) for title in header):
        return (
            f"{where}: it holds {shown(next(filter(_is_number, header)))}, a number, where column names are expected; "
            "add a first line such as prompt_tokens,output_tokens."
        )
    if len(header) == 1:
        return (
            f"{where}: it has one column, {shown(header[0])}; expected two or more, with a comma, a semicolon, a tab "
            "or a bar between them."
        )
    known = ", ".join(shown(title) for title in header[:8]) + (", ..." if len(header) > 8 else "")
    if places:
        several = ", ".join(shown(title) for title in places)
        return (
            f"{where}: {len(places)} columns may hold the {kind} tokens ({several}); choose with {kind}_column='...', "
            "and give each its own name."
        )
    if chosen is not None:
        return f"{where}: there is no column {shown(chosen)}; the columns are {known}."
    return f"{where}: no column is known to hold the {kind} tokens; choose one of {known} with {kind}_column='...'."


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"\s*[-+]?\d+([.,]\d*)?\s*", text))


def _tokens(
    owner: str, reader: _Rows, kinds: tuple[str, ...], places: tuple[int, ...], titles: tuple[str, ...]
) -> dict[str, Any]:
    """Each column as an array of whole numbers; InvalidInputError with the first lines that hold none."""
    width, pick = len(reader.header), itemgetter(*places)
    parts: dict[str, list[Any]] = {kind: [] for kind in kinds}
    problems: list[str] = []
    wrong = rows = 0
    for fields, lines in reader.batches():
        found = _batch(fields, width, pick, kinds)
        if found is None:
            found, said = _slowly(fields, lines, rows, width, places, kinds, titles)
            wrong += len(said)
            problems += said[: SHOWN_PROBLEMS - len(problems)]
        for kind, values in zip(kinds, found, strict=True):
            parts[kind].append(values)
        rows += len(fields)
    if wrong:
        others = f" And {wrong - len(problems):,} more such lines." if wrong > len(problems) else ""
        raise InvalidInputError(f"{owner}: {' '.join(problems)}{others} Mend these lines, or leave them out.")
    if not rows:
        raise InvalidInputError(
            f"{owner} holds column names and no row; expected a line a request after line {reader.header_line}."
        )
    return {kind: np.concatenate(values) for kind, values in parts.items()}


def _batch(fields: list[list[str]], width: int, pick: Any, kinds: tuple[str, ...]) -> list[Any] | None:
    """The usual case, and the fast one: digits in every cell, perhaps with ".0". None for rows to look at closely."""
    if set(map(len, fields)) != {width}:
        return None
    arrays: dict[str, Any] = {}
    for kind, cells in zip(kinds, zip(*map(pick, fields), strict=True), strict=True):
        digits = "".join(cells)
        if ".0" in digits:  # whole numbers as a table of floats writes them
            cells = tuple(cell.removesuffix(".0") for cell in cells)
            digits = "".join(cells)
        if not (digits.isascii() and digits.isdigit() and all(cells) and max(map(len, cells)) <= MOST_DIGITS):
            return None
        arrays[kind] = np.array(list(map(int, cells)), dtype=np.int64)
        if kind != "cached" and arrays[kind].min() < 1:
            return None
    if "cached" in arrays and np.any(arrays["cached"] >= arrays["prompt"]):
        return None
    return list(arrays.values())


def _slowly(
    fields: list[list[str]],
    lines: Sequence[int],
    before: int,
    width: int,
    places: tuple[int, ...],
    kinds: tuple[str, ...],
    titles: tuple[str, ...],
) -> tuple[list[Any], list[str]]:
    """Cell by cell: the columns, and a sentence for each row that is wrong."""
    found: list[list[int]] = []
    said = []
    for row, (cells, line) in enumerate(zip(fields, lines, strict=True), before + 1):
        where = f"Line {line:,} (row {row:,})"
        if len(cells) != width:
            said.append(f"{where} has {len(cells):,} fields, the line of column names {width:,}.")
            continue
        values, problem = [], ""
        for kind, place, title in zip(kinds, places, titles, strict=True):
            value, what = _cell(cells[place], 0 if kind == "cached" else 1)
            if what and not problem:
                problem = f"{where}, column {shown(title)}: {shown(cells[place])} {what}."
            values.append(value)
        if not problem and "cached" in kinds and values[kinds.index("cached")] >= values[0]:
            problem = (
                f"{where}: {values[kinds.index('cached')]:,} cached of {values[0]:,} prompt tokens; at least one "
                "prompt token is computed, and cached tokens count within the prompt."
            )
        said += [problem] if problem else []
        found.append(values)
    columns = zip(*found, strict=True) if found else [[] for _ in kinds]
    return [np.array(column, dtype=np.int64) for column in columns], said


def _cell(text: str, least: int) -> tuple[int, str]:
    """A cell as a whole number, or what is wrong with it."""
    plain = text.strip()
    if re.fullmatch(r"[0-9]{1,3}\.000", plain):
        whole = plain.partition(".")[0]
        return 0, f"may be {whole} or {whole} thousand; expected plain digits, {whole} or {whole}000"
    if re.fullmatch(r"[0-9]+(\.0*)?", plain):
        digits = plain.partition(".")[0].lstrip("0") or "0"
        if len(digits) > MOST_DIGITS + 1 or int(digits) > MOST_TOKENS:
            return 0, "is too large for a number of tokens"
        if int(digits) < least:
            return 0, "has no token; a request has at least 1 (one that failed or was cancelled has none)"
        return int(digits), ""
    patterns = {
        r"": "is empty",
        r"-\s*[0-9.,]+(e[-+]?[0-9]+)?": "is negative",
        r"[-+]?(nan|inf|infinity|null|none|n/?a|#n/a|#value!|-)": "is no number",
        r"[0-9]{1,3}([ ',._\u00a0\u202f][0-9]{3})+": "has marks between its thousands; expected plain digits",
        r"\+?[0-9]*[.,][0-9]+|[0-9.]+e[-+]?[0-9]+": "is not written as a whole number; expected plain digits",
        r"[=+@].*": "is a formula, which stays text; expected plain digits",
    }
    for pattern, what in patterns.items():
        if re.fullmatch(pattern, plain, re.IGNORECASE | re.DOTALL):
            return 0, what
    return 0, "is not a number; expected plain digits"
