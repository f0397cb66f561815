"""A CSV as rows: its delimiter found by trying, its names, and blocks of rows with the lines on which they begin."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from operator import itemgetter

from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.facts.traffic.columns import Columns, ColumnsError, find_columns
from lessonlib.facts.traffic.json_values import FEW, NameTwiceError, Values, object_in
from lessonlib.facts.traffic.numbers import TAIL, Block, WrongRowsError

DELIMITERS = ",;\t|"
BLANK = " \t\r\n,;|"  # a line of these alone names no column
ROWS = 1_000  # in a block: more would leave the processor's cache
SEPARATOR = re.compile(r'\s*"?#?\s*sep\s*= *(\\t|[^ ])"?[\s,;|]*', re.IGNORECASE)
TAB = "\t"
HEAD, HEAD_CHARACTERS = 40, 2**16  # lines, and characters, among which the column names are looked for
BREAK = re.compile(r"\r\n|\r|\n")
SPLIT = re.compile(r"(?:^|\n)0\d\d(?:\n|$)")  # a cell that looks like the rest of a number with marks between thousands


class CsvRows:
    """A table read once from its first line to its last. `titles`; `columns`, found in them; `where` they stand."""

    def __init__(self, owner: str, lines: Iterator[str], blank: int, chosen: Mapping[str, str | None]) -> None:
        self.owner, self.way = owner, ""  # no names lead to the rows
        self.before = blank
        self.notes: tuple[str, ...] = ()
        first, delimiters, lines = self._first(lines, chosen)
        empty = f"{owner} is empty; expected a first line of column names and then a line a request."
        if not first:
            raise InvalidInputError(empty)
        self.threes: bool | None = None  # whether each cell behind the first has three digits, in the first block
        self.delimiter = _delimiter(first, delimiters, chosen)
        self.reader = csv.reader(chain([first], lines), delimiter=self.delimiter, strict=True)
        rows = (cells for block, _ in self._lines(1) for cells in block)
        self.titles = next(filter(any, ([title.strip() for title in cells] for cells in rows)), [])
        while self.titles and not self.titles[-1]:  # a delimiter at the end of each line
            del self.titles[-1]
        if not self.titles:
            raise InvalidInputError(empty)
        self.line = self.reader.line_num + self.before
        self.where = f"{owner}, line {self.line}"
        self.problem: str | None = None
        try:
            self.columns: Columns = find_columns(self.titles, chosen)
        except ColumnsError as problem:
            self.problem = f"{self.where}: {problem}"

    def _first(self, lines: Iterator[str], chosen: Mapping[str, str | None]) -> tuple[str, str, Iterator[str]]:
        """The line of column names, the delimiters that it may have, and the lines behind it.

        It is the first one that is not blank, unless one further down names the columns that are needed: what a
        spreadsheet has above its table is skipped.
        """
        delimiters, seen, first, looked = DELIMITERS, list[str](), None, 0
        for line in lines:
            separator = SEPARATOR.fullmatch(line)
            if separator and (looked == 0 or seen[-1].lstrip()[:1] == "#"):
                delimiters = TAB if separator[1] == r"\t" else separator[1]
                if delimiters not in DELIMITERS:
                    raise InvalidInputError(
                        f"{self.owner}, line {self.before + len(seen) + 1}: sep= names {shown(delimiters)}; expected a "
                        "comma, a semicolon, a tab or a bar."
                    )
            elif line.strip(BLANK):
                first = len(seen) if first is None else first
                looked += 1
                whole = sum(above.count('"') for above in seen[first:]) % 2 == 0  # else it is the rest of a row
                if whole and any(_works(line, delimiter, chosen) for delimiter in delimiters):
                    self._skip(seen[first:])
                    first = len(seen)
                    looked = HEAD
            seen.append(line)
            if looked >= HEAD or (first is not None and sum(map(len, seen)) > HEAD_CHARACTERS):
                break
        if first is None:
            self.before += len(seen)
            return "", delimiters, lines
        self.before += first
        return seen[first], delimiters, chain(seen[first + 1 :], lines)

    def _skip(self, above: Sequence[str]) -> None:
        """Say what stands above the line of column names."""
        if skipped := sum(bool(line.strip(BLANK)) and not SEPARATOR.fullmatch(line) for line in above):
            self.notes = (f"Not read: {skipped:,} lines above the line of column names.",)

    def _lines(self, most: int) -> Iterator[tuple[list[list[str]], int]]:
        """Blocks of rows as the reader gives them, blank lines as empty rows; and the line on which each begins."""
        while True:
            rows: list[list[str]] = []
            begins = self.reader.line_num + self.before + 1
            try:
                rows.extend(islice(self.reader, most))
            except csv.Error as error:
                begins += sum(_height(cells) for cells in rows)
                raise InvalidInputError(f"{self.owner}, line {begins:,}: {_csv_problem(str(error))}") from None
            if not rows:
                return
            yield rows, begins

    def blocks(self) -> Iterator[Block]:
        width, places = len(self.titles), list(self.columns.places.values())
        for rows, begins in self._lines(ROWS):
            ends = self.reader.line_num + self.before + 1
            lines: Sequence[int] = range(begins, ends)
            if ends - begins != len(rows):
                lines = list(accumulate((_height(cells) for cells in rows[:-1]), initial=begins))
            if set(map(len, rows)) != {width}:
                rows = [cells if len(cells) <= width or any(cells[width:]) else cells[:width] for cells in rows]
                kept = [i for i, cells in enumerate(rows) if any(cells)]  # a blank line is not a row
                lines, rows = [lines[i] for i in kept], [rows[i] for i in kept]
                wrong = {
                    i: f" has {len(cells):,} fields, the line of column names {width:,}."
                    for i, cells in enumerate(rows)
                    if len(cells) != width
                }
                if wrong:
                    raise WrongRowsError(wrong, lines)
            if not rows:
                continue
            block = Block(lines, lambda place, rows=rows: list(map(itemgetter(place), rows)), rows[-TAIL:])  # type: ignore[misc]
            if self.threes is None:
                three = [_of_three_digits(block.pick(place)) for place in range(1, width)]
                self.threes = (
                    width > 2 and self.delimiter == "," and (all(three) or (width % 2 == 0 and all(three[::2])))
                )
            if self.delimiter == ",":
                self._refuse_split_numbers(block, {min(p + step, width - 1) for p in places for step in (0, 1)} - {0})
            yield block

    def _refuse_split_numbers(self, block: Block, places: set[int]) -> None:
        """WrongRowsError for 1,024 without quotes, which is read as 1 and 024."""
        for place in places:
            cells = block.pick(place)
            text = "\n".join(cells)
            if ("\n0" in text or text[:1] == "0") and SPLIT.search(text):
                heads = block.pick(place - 1)
                wrong = {
                    i: f", column {shown(self.titles[place])}: {shown(cell)} seems to be the rest of "
                    f"{head},{cell}, a number with a mark between its thousands; write plain digits."
                    for i, (head, cell) in enumerate(zip(heads, cells, strict=True))
                    if re.fullmatch(r"0\d\d", cell) and re.fullmatch(r"\d{1,3}", head.strip())
                }
                if wrong:
                    raise WrongRowsError(wrong, block.lines)

    def named(self) -> Values:
        """The rows by their names, each with its line: the cells that hold something, JSON objects as such."""
        for (cells,), line in self._lines(1):
            if any(cells):
                where = f"{self.owner}, line {line:,}"
                while len(cells) > len(self.titles) and not cells[-1]:
                    del cells[-1]
                if len(cells) != len(self.titles):
                    wrong = f"{len(cells):,} fields, the line of column names {len(self.titles):,}"
                    raise InvalidInputError(f"{where} has {wrong}.")
                try:
                    row = {title: object_in(cell) for title, cell in zip(self.titles, cells, strict=True) if cell}
                except NameTwiceError as error:
                    raise InvalidInputError(f"{where}: it cannot be read: {error}.") from error
                yield row, line

    @property
    def nothing(self) -> str:
        return f"{self.owner} holds column names and no row; expected a line a request after line {self.line}."


def objects_in(table: CsvRows) -> Values | None:
    """The rows by their names, each with its line and with its cells' objects; None where the first rows hold none."""
    rows, first = table.named(), []
    try:
        for row, line in islice(rows, FEW):  # the first requests may have failed, and hold nothing
            first.append((row, line))
            if any(isinstance(cell, dict) for cell in row.values()):
                return None if len(set(table.titles)) < len(table.titles) else chain(first, rows)
    except InvalidInputError as error:
        if isinstance(error.__cause__, NameTwiceError):
            raise
    return None  # the names in the first line are wrong, and that is said


def _of_three_digits(cells: Sequence[str]) -> bool:
    return set(map(len, cells)) == {3} and "".join(cells).isdigit()


def _height(cells: Sequence[str]) -> int:
    """How many lines a row takes."""
    return 1 + sum(len(BREAK.findall(cell)) for cell in cells)


def _delimiter(line: str, delimiters: str, chosen: Mapping[str, str | None]) -> str:
    """The one by which the line names the columns that are needed; else the one that parts it into the most fields."""
    working = (delimiter for delimiter in delimiters if _works(line, delimiter, chosen))
    return next(working, max(delimiters, key=lambda delimiter: len(_fields(line, delimiter))))


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return [title.strip() for title in next(csv.reader([line], delimiter=delimiter))]
    except (csv.Error, StopIteration, TypeError):
        return [line] * (line.count(delimiter) + 1)


def _works(line: str, delimiter: str, chosen: Mapping[str, str | None]) -> bool:
    """Whether the line names the columns that are needed, parted so."""
    try:
        find_columns(_fields(line, delimiter), chosen)
    except ColumnsError:
        return False
    return True


def _csv_problem(error: str) -> str:
    if "unexpected end" in error or "field larger" in error:
        return (
            'a quote (") that opens here is never closed, or a field is longer than '
            f"{csv.field_size_limit():,} characters; close the quote, or keep the columns of tokens alone."
        )
    if "expected after" in error:
        return 'after a closing quote (") comes other text; write a quote inside a quoted field twice.'
    return f"it cannot be read as CSV ({error})."
