"""A record of timings: one JSON file, checked when it is read, written whole or not at all.

    {"schema": "lessonlib.timing/1", "what": "cpu", "when": "2026-11-30T12:00:00Z", "device": {...}, "versions": {...},
     "conditions": {...}, "yardsticks": {"matvec_bandwidth": {"value": 2.1e10, "unit": "byte/s", "repeats": [...]}},
     "points": [{"phase": "decode", "context": 64, "tokens": 1, "batch": 1, "seconds": [...]}, ...],
     "requests": [{"name": "chat", "prompt": 256, "output": 32, "batch": 1, "ttft": 0.4, "seconds": 1.1}]}

Every repeat is kept. Units are SI. What a file holds is data: it is compared with the schema and never executed.
"""

import json
import math
import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

from lessonlib.base.checks import choice
from lessonlib.base.errors import InvalidInputError, is_number, shown
from lessonlib.base.files import GivenFile, quoted, write_new

SCHEMA = "lessonlib.timing/1"
KINDS = ("cpu", "cuda", "mps", "server")
LARGEST = 2**20  # bytes of a file
TOY_SIZES = {"layers", "width", "heads", "inner", "vocabulary"}
PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}  # of the seconds between the chunks of a server's reply


class Need(NamedTuple):
    """What a value must be: in words, as a test, how it is kept, and what each value of a list must be."""

    words: str
    holds: Callable[[Any], bool]
    kept: Callable[[Any], Any] = lambda value: value
    each: "Need | None" = None


def _whole(least: int) -> Need:
    words = f"a whole number of at least {least}"
    return Need(words, lambda value: is_number(value) and value == int(value) and value >= least, int)


def _is_moment(value: Any) -> bool:
    try:
        return bool(datetime.fromisoformat(value))
    except (TypeError, ValueError):
        return False


COUNT, LENGTH = _whole(1), _whole(0)
RATE = Need("a positive number", lambda value: is_number(value) and value > 0, float)
BYTES = RATE._replace(words="a positive number of bytes")
TEXT = Need("a text", lambda value: isinstance(value, str))
MODEL, DTYPE = (TEXT._replace(words=f"the name of a {kind}") for kind in ("model", "dtype"))
OBJECT = Need("an object", lambda value: isinstance(value, dict))
LIST = Need("a list", lambda value: isinstance(value, list | tuple))
TEXTS = Need("a list of texts", lambda value: LIST.holds(value) and all(map(TEXT.holds, value)))
REPEATS = Need("a list of at least one number", lambda value: LIST.holds(value) and bool(value), tuple, RATE)
REQUESTS = Need(LIST.words, lambda value: value is None or LIST.holds(value), lambda value: value or ())
PHASE = Need("prefill or decode", lambda value: value in ("prefill", "decode"))
KIND = Need(f"one of {', '.join(KINDS)}", lambda value: value in KINDS)
MOMENT = Need("a date and time such as '2026-11-30T12:00:00Z'", _is_moment)
SIZES = Need(
    f"whole numbers for some of {', '.join(sorted(TOY_SIZES))}",
    lambda value: OBJECT.holds(value) and value.keys() <= TOY_SIZES and all(map(COUNT.holds, value.values())),
)
GAPS = Need(
    f"seconds for {', '.join(PERCENTILES)}, or nothing",
    lambda value: (
        OBJECT.holds(value)
        and (not value or value.keys() == PERCENTILES.keys())
        and all(is_number(gap) and gap >= 0 for gap in value.values())
    ),
)
REPLY = {"name": TEXT, "concurrency": COUNT, "problem": TEXT, "notes": TEXTS, "gaps": GAPS}
REPLIES = Need(
    f"a list of replies, each with {', '.join(REPLY)}",
    lambda value: (
        LIST.holds(value)
        and all(OBJECT.holds(one) and all(need.holds(one.get(key)) for key, need in REPLY.items()) for one in value)
    ),
)


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """A ceiling of the machine, measured by itself: a rate with its unit and every repeat."""

    value: Annotated[float, RATE]
    unit: Annotated[str, TEXT]
    repeats: Annotated[tuple[float, ...], REPEATS]

    @property
    def spread(self) -> float:
        """Largest over smallest repeat: 1 on a quiet machine."""
        return max(self.repeats) / min(self.repeats)


@dataclass(frozen=True, kw_only=True)
class TimedPass:
    """One measured pass: `tokens` new tokens in each of `batch` sequences on `context` cached ones, in seconds."""

    phase: Annotated[str, PHASE]
    context: Annotated[int, LENGTH]
    tokens: Annotated[int, COUNT]
    batch: Annotated[int, COUNT]
    seconds: Annotated[tuple[float, ...], REPEATS]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True, kw_only=True)
class MeasuredRequest:
    """One request run from its prompt to its last token, in seconds."""

    name: Annotated[str, TEXT]
    prompt: Annotated[int, COUNT]
    output: Annotated[int, COUNT]
    batch: Annotated[int, COUNT]
    ttft: Annotated[float, RATE]
    seconds: Annotated[float, RATE]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was measured, when, on what, under which conditions."""

    what: Annotated[str, KIND]
    when: Annotated[str, MOMENT]
    device: Annotated[dict[str, Any], OBJECT]
    versions: Annotated[dict[str, str], OBJECT]
    conditions: Annotated[dict[str, Any], OBJECT]
    yardsticks: Annotated[dict[str, Yardstick], OBJECT]
    points: Annotated[tuple[TimedPass, ...], LIST]
    requests: Annotated[tuple[MeasuredRequest, ...], REQUESTS] = ()
    schema: Annotated[str, Need(SCHEMA, lambda value: value == SCHEMA)] = SCHEMA


YARDSTICK = Need("a yardstick", bool)
GPU = {
    "device": {"name": TEXT, "memory": BYTES},
    "conditions": {"model": MODEL, "dtype": DTYPE, "bucket": COUNT, "attention": TEXT, "left_out": TEXTS},
    "yardsticks": {"read_bandwidth": YARDSTICK, "matmul_rate": YARDSTICK},
}
# What the functions read that put a prediction beside a record: by its kind, section and key.
NEEDS: dict[str, dict[str, dict[str, Need]]] = {
    "cpu": {
        "device": {"memory": BYTES._replace(holds=lambda value: value is None or BYTES.holds(value))},
        "conditions": {"model": SIZES},
        "yardsticks": {"matvec_bandwidth": YARDSTICK, "matmul_rate": YARDSTICK},
    },
    "cuda": GPU,
    "mps": GPU,
    "server": {"conditions": {"model": MODEL, "ended": TEXT, "replies": REPLIES}},
}


def head(what: str, **versions: str | None) -> dict[str, Any]:
    """The first fields of a new record: its schema, kind and moment, and the versions of what runs here."""
    told = {name: version for name, version in versions.items() if version is not None}
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"schema": SCHEMA, "what": what, "when": moment, "versions": {"python": platform.python_version()} | told}


def _value(need: Need, value: Any, where: str) -> Any:
    if not need.holds(value):
        raise InvalidInputError(f"{where} is {shown(value)}; expected {need.words}.")
    return need.kept(value if need.each is None else [_value(need.each, one, where) for one in value])


def _fields(kind: type, entry: Any, where: str) -> dict[str, Any]:
    """The fields of a dataclass from an object of the JSON, each as its annotation needs it."""
    entry, hints = _value(OBJECT, entry, where), get_type_hints(kind, include_extras=True)
    return {name: _value(hint.__metadata__[0], entry.get(name), f"{where}: {name}") for name, hint in hints.items()}


def record_from(data: Any, name: str = "given") -> Record:
    """A Record from parsed JSON; InvalidInputError naming `name` and the field for anything that is not one."""
    where = f"timing record {name}"
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        _fail(name, f"its schema is not {SCHEMA!r}, so it is no timing record of this library")
    found = _fields(Record, data, where)
    sticks = found["yardsticks"].items()
    found["yardsticks"] = {
        key: Yardstick(**_fields(Yardstick, one, f"{where}: yardstick {key!r}")) for key, one in sticks
    }
    for key, kind in (("points", TimedPass), ("requests", MeasuredRequest)):
        entries = enumerate(found[key])
        found[key] = tuple(kind(**_fields(kind, one, f"{where}: {key[:-1]} {i}")) for i, one in entries)
    for section, needs in NEEDS[found["what"]].items():
        for key, need in needs.items():
            _value(need, found[section].get(key), f"{where}: {key!r} of its {section}")
    return Record(**found)


def _fail(name: str, problem: str) -> None:
    raise InvalidInputError(f"timing record {name}: {problem}.")


def read_record(path: str | os.PathLike[str]) -> Record:
    """The record in a file; InvalidInputError that names the file when it is damaged, too large or foreign."""
    file = GivenFile(path, "Timing record", "timing record", LARGEST, "no timing record of this library is so large")
    content = file.content()
    try:
        return record_from(json.loads(content.decode(), parse_constant=lambda text: math.nan), repr(file.name))
    except InvalidInputError:
        raise
    except (ValueError, RecursionError) as error:
        file.refuse(f"is damaged ({error})", "measure again, or leave it out", error)


def read_records(folder: str | os.PathLike[str], what: str | None = None) -> tuple[list[Record], list[str]]:
    """All records of a folder, the newest last, and a sentence for each file that was skipped.

    `what`: those of one of KINDS alone. InvalidInputError for another, and for a folder that does not exist.
    """
    if what is not None:
        choice(KINDS)("read_records", "what", what)
    try:
        paths = sorted(Path(folder).glob("*.json")) if Path(folder).is_dir() else None
    except (OSError, TypeError, ValueError):
        paths = None
    if paths is None:
        raise InvalidInputError(f"read_records: folder is {quoted(folder)}; expected a folder that exists.")
    records, skipped = [], []
    for path in paths:
        try:
            record = read_record(path)
        except InvalidInputError as error:
            skipped.append(f"skipped: {error}")
            continue
        if what is None or record.what == what:
            records.append(record)
    return sorted(records, key=lambda record: record.when), skipped


def write_record(record: Record, folder: str | os.PathLike[str]) -> Path:
    """Write a record into `folder`, whole or not at all, and return its path. The same record is the same file.

    A file that holds another record is never replaced: the name then ends in -2, -3. Raises InvalidInputError, before
    anything is written, for what could not be read again and for a folder that is none.
    """
    if not isinstance(record, Record):
        raise InvalidInputError(f"write_record: record is {shown(record)}; expected a Record.")
    try:
        content = (json.dumps(asdict(record), indent=1, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"write_record: the record holds what JSON has not ({error}).") from None
    record_from(json.loads(content), "to be written")  # never write what could not be read
    if len(content) > LARGEST:
        raise InvalidInputError(
            f"write_record: the record has {len(content):,} bytes; expected at most {LARGEST:,}. Keep fewer points, "
            "repeats or replies."
        )
    try:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        stamp = "".join(character if character.isalnum() else "-" for character in record.when)
        endings = ("" if number == 1 else f"-{number}" for number in count(1))
        return write_new((folder / f"{record.what}-{stamp}{ending}.json" for ending in endings), content)
    except (OSError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"write_record: folder {quoted(folder)} cannot be written to ({why}).") from error
