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
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from lessonlib.base.errors import InvalidInputError, is_number, shown
from lessonlib.base.files import GivenFile, quoted, write_new

SCHEMA = "lessonlib.timing/1"
KINDS = ("cpu", "cuda", "mps", "server")
PHASES = ("prefill", "decode")
LARGEST = 2**20  # bytes of a file


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """A ceiling of the machine, measured by itself: a rate with its unit and every repeat."""

    value: float
    unit: str
    repeats: tuple[float, ...]

    @property
    def spread(self) -> float:
        """Largest over smallest repeat: 1 on a quiet machine."""
        return max(self.repeats) / min(self.repeats)


@dataclass(frozen=True, kw_only=True)
class TimedPass:
    """One measured pass: `tokens` new tokens in each of `batch` sequences on `context` cached ones, in seconds."""

    phase: str
    context: int
    tokens: int
    batch: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True, kw_only=True)
class MeasuredRequest:
    """One request run from its prompt to its last token, in seconds."""

    name: str
    prompt: int
    output: int
    batch: int
    ttft: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was measured, when, on what, under which conditions."""

    what: str
    when: str
    device: dict[str, Any]
    versions: dict[str, str]
    conditions: dict[str, Any]
    yardsticks: dict[str, Yardstick]
    points: tuple[TimedPass, ...]
    requests: tuple[MeasuredRequest, ...] = ()
    schema: str = field(default=SCHEMA)


def _fail(name: str, problem: str) -> None:
    raise InvalidInputError(f"timing record {name}: {problem}.")


def _is_count(value: Any) -> bool:
    return is_number(value) and value == int(value) and value >= 1


def _is_rate(value: Any) -> bool:
    return is_number(value) and value > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


def _are_toy_sizes(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() <= TOY_SIZES and all(map(_is_count, value.values()))


def _are_replies(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, dict) and _is_reply(**one) for one in value)


def _is_reply(
    name: Any = None, concurrency: Any = None, problem: Any = None, notes: Any = None, gaps: Any = None, **_: Any
) -> bool:
    numbers = isinstance(gaps, dict) and all(is_number(gap) and gap >= 0 for gap in gaps.values())
    whole = numbers and (not gaps or gaps.keys() == PERCENTILES)
    return whole and _is_text(name) and _is_count(concurrency) and _is_text(problem) and _are_texts(notes)


# What the functions read that put a prediction beside a record: where it stands, what it must be, and that in words.
Need = tuple[str, str, Callable[[Any], bool], str]
TOY_SIZES = {"layers", "width", "heads", "inner", "vocabulary"}
PERCENTILES = {"p50", "p90", "p99", "max"}
CPU_NEEDS: tuple[Need, ...] = (
    ("conditions", "model", _are_toy_sizes, f"whole numbers for some of {', '.join(sorted(TOY_SIZES))}"),
    ("yardsticks", "matvec_bandwidth", bool, "a yardstick"),
    ("yardsticks", "matmul_rate", bool, "a yardstick"),
)
GPU_NEEDS: tuple[Need, ...] = (
    ("device", "name", _is_text, "a text"),
    ("device", "memory", _is_rate, "a positive number of bytes"),
    ("conditions", "model", _is_text, "the name of a model"),
    ("conditions", "dtype", _is_text, "the name of a dtype"),
    ("conditions", "bucket", _is_count, "a whole number of at least 1"),
    ("conditions", "attention", _is_text, "a text"),
    ("conditions", "left_out", _are_texts, "a list of texts"),
    ("yardsticks", "read_bandwidth", bool, "a yardstick"),
    ("yardsticks", "matmul_rate", bool, "a yardstick"),
)
SERVER_NEEDS: tuple[Need, ...] = (
    ("conditions", "model", _is_text, "the name of a model"),
    ("conditions", "ended", _is_text, "a text"),
    ("conditions", "replies", _are_replies, "a list of replies, each with name, concurrency, problem, notes and gaps"),
)
NEEDS = {"cpu": CPU_NEEDS, "cuda": GPU_NEEDS, "mps": GPU_NEEDS, "server": SERVER_NEEDS}


def _positive(name: str, key: str, value: Any) -> float:
    if not _is_rate(value):
        _fail(name, f"{key} is {shown(value)}; expected a positive number")
    return float(value)


def _whole(name: str, key: str, value: Any, least: int) -> int:
    if not is_number(value) or value != int(value) or value < least:
        _fail(name, f"{key} is {shown(value)}; expected a whole number of at least {least}")
    return int(value)


def _repeats(name: str, key: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, list | tuple) or not values:
        _fail(name, f"{key} is {shown(values)}; expected a list of at least one number")
    return tuple(_positive(name, key, value) for value in values)


def _section(name: str, data: dict[str, Any], key: str, kind: type) -> Any:
    if not isinstance(data.get(key), kind):
        _fail(
            name, f"{key} is {shown(data.get(key))}; expected {'an object' if kind is dict else 'a ' + kind.__name__}"
        )
    return data[key]


def record_from(data: Any, name: str = "given") -> Record:
    """A Record from parsed JSON; InvalidInputError naming `name` and the field for anything that is not one."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        _fail(name, f"its schema is not {SCHEMA!r}, so it is no timing record of this library")
    if data.get("what") not in KINDS:
        _fail(name, f"what is {shown(data.get('what'))}; expected one of {', '.join(KINDS)}")
    yardsticks = {}
    for key, entry in _section(name, data, "yardsticks", dict).items():
        if not isinstance(entry, dict) or not isinstance(entry.get("unit"), str):
            _fail(name, f"yardstick {key!r} is {shown(entry)}; expected value, unit and repeats")
        repeats = _repeats(name, f"repeats of {key!r}", entry.get("repeats"))
        value = _positive(name, f"value of {key!r}", entry.get("value"))
        yardsticks[key] = Yardstick(value=value, unit=entry["unit"], repeats=repeats)
    points = []
    for i, entry in enumerate(_section(name, data, "points", list)):
        if not isinstance(entry, dict) or entry.get("phase") not in PHASES:
            _fail(name, f"point {i} is {shown(entry)}; expected an object with a phase, {' or '.join(PHASES)}")
        counts = {
            key: _whole(name, f"point {i}: {key}", entry.get(key), 0 if key == "context" else 1) for key in COUNTS
        }
        seconds = _repeats(name, f"point {i}: seconds", entry.get("seconds"))
        points.append(TimedPass(phase=entry["phase"], seconds=seconds, **counts))
    requests = []
    for i, entry in enumerate([] if data.get("requests") is None else _section(name, data, "requests", list)):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            _fail(name, f"request {i} is {shown(entry)}; expected an object with a name")
        fields: dict[str, Any] = {"name": entry["name"]}
        fields |= {key: _whole(name, f"request {i}: {key}", entry.get(key), 1) for key in ("prompt", "output", "batch")}
        fields |= {key: _positive(name, f"request {i}: {key}", entry.get(key)) for key in ("ttft", "seconds")}
        requests.append(MeasuredRequest(**fields))
    texts = {key: _section(name, data, key, dict) for key in ("device", "versions", "conditions")}
    when = _section(name, data, "when", str)
    try:
        datetime.fromisoformat(when)
    except ValueError:
        _fail(name, f"when is {shown(when)}; expected a date and time such as '2026-11-30T12:00:00Z'")
    if data["what"] == "cpu" and "memory" in texts["device"]:
        _positive(name, "memory of its device", texts["device"]["memory"])
    for section, key, is_right, words in NEEDS[data["what"]]:
        value = (texts | {"yardsticks": yardsticks})[section].get(key)
        if not is_right(value):
            _fail(name, f"{key!r} of its {section} is {shown(value)}; expected {words}")
    return Record(
        what=data["what"], when=when, yardsticks=yardsticks, points=tuple(points), requests=tuple(requests), **texts
    )


COUNTS = ("context", "tokens", "batch")


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
    if what is not None and not (isinstance(what, str) and what in KINDS):
        raise InvalidInputError(f"read_records: what is {shown(what)}; expected one of {', '.join(KINDS)}, or None.")
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
