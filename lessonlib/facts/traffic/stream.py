"""A file as text, a piece at a time: gzip unpacked, the encoding found, no more read than allowed."""

import gzip
import io
import re
import zlib
from collections.abc import Callable
from typing import Any, NoReturn, TextIO

from lessonlib.base.errors import InvalidInputError
from lessonlib.base.files import GivenFile

FORM = "CSV UTF-8 (in a spreadsheet: Save as, then that format)"
BUFFER = 2**18
GZIP = b"\x1f\x8b"
NO_TEXT = {
    b"PK\x03\x04": "a spreadsheet or a zip archive",
    b"PAR1": "Parquet",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    GZIP: "compressed twice",
    b"SQLite format 3": "a database of SQLite",
    b"ARROW1": "Arrow or Feather",
    b"Obj\x01": "Avro",
    b"\xd0\xcf\x11\xe0": "a spreadsheet of an old kind",
    b"%PDF": "a PDF",
    b"<!DOCTYPE": "a web page",
    b"<!doctype": "a web page",
    b"<html": "a web page",
    b"version https://git-lfs": "a pointer of Git LFS instead of the file (git lfs pull fetches it)",
}
MARKS = {  # a byte order mark and its encoding; the longer ones first
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
    b"\xef\xbb\xbf": "utf-8-sig",
}

Progress = Callable[[float], Any]


class _Limited(io.RawIOBase):
    """What `unpacked` yields, until it is more than the file may have. `progress` hears the share that was read."""

    def __init__(self, file: GivenFile, packed: Any, unpacked: Any, size: int, progress: Progress | None) -> None:
        self.file, self.packed, self.unpacked, self.size, self.progress = file, packed, unpacked, size, progress
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = int(self.unpacked.readinto(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            problem = "is compressed by gzip and cannot be unpacked whole: it is damaged or was cut short"
            self.file.refuse(problem, "copy or download it again", error)
        except OSError as error:
            self.file.refuse(f"cannot be read: {error.strerror or error}", "check the path and its permissions", error)
        self.count += count
        if self.count > self.file.most:
            self.file.refuse(f"is over {self.file.most:,} bytes", self.file.smaller)
        if self.progress is not None:
            self.progress(min(self.packed.tell() / max(self.size, 1), 1.0))
        return count

    def close(self) -> None:
        self.unpacked.close()
        self.packed.close()
        super().close()


def _bytes_of(file: GivenFile, progress: Progress | None) -> io.BufferedReader:
    """The file's bytes, unpacked."""
    packed, size = file.open()
    try:
        head = packed.read(len(GZIP))
        packed.seek(0)
    except OSError as error:
        packed.close()
        file.refuse(f"cannot be read: {error.strerror or error}", "check the path and its permissions", error)
    unpacked = gzip.GzipFile(fileobj=packed) if head == GZIP else packed
    return io.BufferedReader(_Limited(file, packed, unpacked, size, progress), BUFFER)


def opened(file: GivenFile, progress: Progress | None = None) -> TextIO:
    """The file's text, with line ends as they are; InvalidInputError for what is not text."""
    stream = _bytes_of(file, progress)
    try:
        return io.TextIOWrapper(stream, encoding=_encoding(file, stream.peek(4096)), newline="")
    except InvalidInputError:
        stream.close()
        raise


def _encoding(file: GivenFile, head: bytes) -> str:
    """The encoding of a file that begins so."""
    for start, what in NO_TEXT.items():
        if head.startswith(start):
            file.refuse(f"is {what}, not a table or JSON", f"save it as {FORM}")
    for mark, encoding in MARKS.items():
        if head.startswith(mark):
            return encoding
    zeros = head[0:200:2].count(0), head[1:200:2].count(0)  # of each unit of UTF-16, the half that is zero
    if min(zeros) > 0:
        file.refuse("is not text: it holds zero bytes", f"save it as {FORM}")
    return "utf-16-be" if zeros[0] > 20 else "utf-16-le" if zeros[1] > 20 else "utf-8"


def refuse_encoding(file: GivenFile, error: UnicodeDecodeError) -> NoReturn:
    """Raise InvalidInputError for a file that cannot be decoded, with the line on which it cannot."""
    line = 0
    with _bytes_of(file, None) as stream:
        for part in stream if error.encoding.startswith("utf-8") else ():
            file.require_text(part, lambda inside, before=line: line_words(before + inside), FORM)  # type: ignore[misc]
            line += len(re.findall(rb"\r\n|\r|\n", part))
    file.refuse(f"is {error.encoding.upper()[:6]} at its start and cannot be decoded further on", f"save it as {FORM}")


def line_words(line: int) -> str:
    return f"line {line:,} ({'the column names' if line == 1 else f'about row {line - 1:,}'})"
