"""Files: one limited reader of what a learner hands in, and one writer that leaves nothing half done.

What is read is data: nothing in it is executed, and what makes no sense is refused in one form of sentence that names
the file whole. What is written is whole or not there, and nobody's file is lost to a race.
"""

import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from lessonlib.base.errors import InvalidInputError, shown

LONGEST_PATH = 300  # characters that an error quotes; of a longer path its end
LONGEST_NAME = 255  # characters of a file's name that file systems take, and that an error never cuts
LONGEST_STEM = 100  # characters of the name that a reader gives to what is saved
NOWHERE = re.compile(r'[<>:"|?*\\]')  # letters and names that Windows keeps for itself: a file goes to others, too
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
BYTES = bytes | bytearray | memoryview
PATIENCE = 500  # times, 20 ms apart, that a writer tries while another writes the same files


class Upload(bytes):
    """The content of an uploaded file, with its `name`."""

    name: str

    def __new__(cls, content: Any, name: str) -> "Upload":
        if not isinstance(content, BYTES) or not isinstance(name, str):
            raise InvalidInputError(
                f"Upload: got {shown(content)} and {shown(name)}; expected the bytes of a file, and its name."
            )
        made = super().__new__(cls, content)
        made.name = name
        return made


def _text_of(path: Any) -> str | None:
    """A path as text; None for what is not a path."""
    try:
        return os.fsdecode(path) if isinstance(path, str | os.PathLike) else None
    except TypeError:  # its __fspath__ gives something else
        return None


def quoted(path: Any) -> str:
    """A path as an error names it: whole; of a very long one the end, with all of the last name."""
    text = _text_of(path)
    if text is None:
        return shown(path)
    if len(text) > LONGEST_PATH:
        text = f"...{text[-LONGEST_PATH:]}" if len(Path(text).name) <= LONGEST_NAME else f"{text[:60]}..."
    return repr(text)


@dataclass(frozen=True)
class GivenFile:
    """A file to read: `given` is its path, its bytes, or an Upload, whose bytes have a name.

    `what` begins its errors ("Config file"); `wanted` is what should be given ("config.json"); `most`, the bytes that
    it may have; `smaller` and `absent`, what to do about a file with more, and about one that is not there.
    """

    given: Any
    what: str
    wanted: str
    most: int
    smaller: str
    absent: str = "check the path and the folder that you run in"

    @property
    def name(self) -> str:
        """The file's name, without the folders of a path."""
        text = _text_of(self.given)
        return str(getattr(self.given, "name", "upload")) if text is None else Path(text).name

    def __str__(self) -> str:
        """How a sentence about the file begins."""
        return f"{self.what} {quoted(self.name if isinstance(self.given, BYTES) else self.given)}"

    def refuse(self, problem: str, remedy: str, cause: Exception | None = None) -> NoReturn:
        """Raise InvalidInputError: the file, what is wrong with it, and what to do."""
        raise InvalidInputError(f"{self} {problem}; {remedy}.") from cause

    def open(self) -> tuple[Any, int]:
        """A binary stream and its size in bytes, which is not too large.

        InvalidInputError where the file is absent, a folder, too large or cannot be opened.
        """
        if isinstance(self.given, BYTES):
            stream: Any = io.BytesIO(self.given)
            size = len(stream.getbuffer())
        else:
            stream = self._opened()
            size = os.fstat(stream.fileno()).st_size
        if size > self.most:
            stream.close()
            self.refuse(f"is over {self.most:,} bytes", self.smaller)
        return stream, size

    def content(self) -> bytes:
        """All bytes of the file; InvalidInputError where it cannot be opened or read, or is too large."""
        with self.open()[0] as stream:
            try:
                content = stream.read(self.most + 1)
            except OSError as error:
                self._unread(error)
        if len(content) > self.most:  # it grew since, or is not a plain file
            self.refuse(f"is over {self.most:,} bytes", self.smaller)
        return bytes(content)

    def _opened(self) -> Any:
        try:
            path = Path(self.given)
            is_folder, is_file = path.is_dir(), path.is_file()
            stream = path.open("rb") if is_file else None
        except TypeError as error:
            self.refuse("is not a path", f"pass the path of a {self.wanted}, a string or a Path, or its bytes", error)
        except (OSError, ValueError) as error:
            self._unread(error)
        if is_folder:
            self.refuse("is a folder", f"pass the {self.wanted} inside it")
        if stream is None:
            self.refuse("does not exist or is not a file", self.absent)
        return stream

    def _unread(self, error: Exception) -> NoReturn:
        self.refuse(f"cannot be read: {_why(error)}", "check the path and its permissions", error)

    def require_text(
        self, content: bytes, where: Callable[[int], str] = "line {:,}".format, form: str = "UTF-8"
    ) -> None:
        """InvalidInputError unless the bytes are UTF-8. `where`: a line in words; `form`: what to save it as."""
        try:
            content.decode()
        except UnicodeDecodeError as error:
            place = f"the byte {content[error.start]:#04x} on {where(line_of(content, error.start))}"
            problem = f"is not UTF-8: it has {place}, as files in Latin-1, Windows-1252 or UTF-16 do"
            self.refuse(problem, f"save it as {form}", error)

    def text(self) -> str:
        """All of the file's text, which is UTF-8, without a byte order mark."""
        content = self.content()
        self.require_text(content)
        return content.decode("utf-8-sig")


def _why(error: Exception) -> object:
    return getattr(error, "strerror", None) or error


def line_of(content: bytes, place: int) -> int:
    """The line, from 1, on which the byte at `place` stands."""
    return 1 + len(re.findall(rb"\r\n|\r|\n", content[:place]))


@contextmanager
def _written(folder: Path, content: bytes) -> Iterator[str]:
    """The path of a file in `folder` that has all of `content`; gone at the end, unless it got another name."""
    import tempfile

    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # mkstemp lets nobody else read
        yield temporary
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_new(places: Iterable[Path], content: bytes) -> Path:
    """Write `content` to the first of `places` that is free, whole or not at all, and return that place.

    `places`: paths in one folder. A place that holds this very content is returned as it is. A file that holds another
    is never replaced, whoever else writes at the same moment.
    """
    remaining = iter(places)
    path = next(remaining)
    with _written(path.parent, content) as temporary:
        while True:
            try:
                _take(temporary, path)
                return path
            except FileExistsError:
                if path.is_file() and path.read_bytes() == content:
                    return path
            path = next(remaining)


def _take(temporary: str, path: Path) -> None:
    """Give the file the name `path`; FileExistsError where something has it, were it only since this moment."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: an empty file takes the place, and is replaced at one stroke
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        try:
            os.replace(temporary, path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def write_together(files: Mapping[Path, bytes], replace: bool = False) -> bool:
    """Write files of one folder, all of them or none; whether they are there now.

    Where one of the names is taken by another content nothing is written, unless `replace`. All are written under other
    names first, so a full disk leaves the old ones as they were; where a step fails later, the old ones come back. One
    writer at a time: what two write at once is never mixed.
    """
    path = next(iter(files))
    try:
        with ExitStack() as stack:
            stack.enter_context(alone(path.with_suffix(".lock")))
            ready: dict[Path, str] = {}
            before: dict[Path, str] = {}
            for path, content in files.items():
                if path.exists() and not path.is_file():  # a pipe would be waited for
                    what = "a folder" if path.is_dir() else "not a plain file"
                    raise InvalidInputError(f"save: {path.name!r} is {what}; choose another name.")
                if not replace and path.exists() and path.read_bytes() != content:
                    return False
                ready[path] = stack.enter_context(_written(path.parent, content))
                if path.exists():
                    before[path] = stack.enter_context(_written(path.parent, path.read_bytes()))
            undo = stack.enter_context(ExitStack())  # done on the way out, unless all goes well
            for path, temporary in ready.items():
                undo.callback(*((os.replace, before[path], path) if path in before else (path.unlink, True)))
                os.replace(temporary, path)
            undo.pop_all()
        return True
    except InvalidInputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise InvalidInputError(f"save: {path.name!r} cannot be written: {_why(error)}.") from error


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold the file `lock` while the block runs: only one can make it, and others wait until it is gone."""
    for _ in range(PATIENCE):
        with suppress(FileExistsError):
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
            break
        time.sleep(0.02)
    else:
        raise InvalidInputError(
            f"save: {lock.name!r} is there, so another program saves under this name; wait for it, or delete that file "
            "if none does."
        )
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def place_of(name: Any) -> Path:
    """Where what is saved under that name goes, without an ending; InvalidInputError for what can be no file's name."""
    text = _text_of(name) or ""
    base = Path(text)
    stem = base.name
    for ending in (".html", ".md", ".png"):
        stem = stem.removesuffix(ending)
    if not text or not stem.strip(". ") or text[-1] in "/\\" or not stem.isprintable():
        raise InvalidInputError(f"save: name is {shown(name)}; expected a name without ending, such as 'my_report'.")
    if NOWHERE.search(stem) or RESERVED.fullmatch(stem):
        raise InvalidInputError(
            f"save: name is {shown(name)}, which Windows takes for no file; expected a name such as 'my_report', "
            'without any of < > : " | ? * \\.'
        )
    if len(stem) > LONGEST_STEM:
        raise InvalidInputError(f"save: name has {len(stem)} characters; expected at most {LONGEST_STEM}.")
    try:
        there = base.parent.is_dir()
    except OSError:  # a name too long for any folder
        there = False
    if not there:
        raise InvalidInputError(f"save: the folder {quoted(base.parent)} does not exist; make it first.")
    return base.parent / stem
