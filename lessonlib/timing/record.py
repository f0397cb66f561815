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
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lessonlib.errors import InvalidInputError, is_number, shown

SCHEMA = "lessonlib.timing/1"
KINDS = ("cpu", "cuda", "mps", "server")
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
class Point:
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
    points: tuple[Point, ...]
    requests: tuple[MeasuredRequest, ...] = ()
    schema: str = field(default=SCHEMA)


def _fail(name: str, problem: str) -> None:
    raise InvalidInputError(f"timing record {name}: {problem}.")


def _positive(name: str, key: str, value: Any) -> float:
    if not is_number(value) or value <= 0:
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
        if not isinstance(entry, dict) or not isinstance(entry.get("phase"), str):
            _fail(name, f"point {i} is {shown(entry)}; expected an object with a phase")
        counts = {
            key: _whole(name, f"point {i}: {key}", entry.get(key), 0 if key == "context" else 1) for key in COUNTS
        }
        seconds = _repeats(name, f"point {i}: seconds", entry.get("seconds"))
        points.append(Point(phase=entry["phase"], seconds=seconds, **counts))
    requests = []
    for i, entry in enumerate(data.get("requests") or []):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            _fail(name, f"request {i} is {shown(entry)}; expected an object with a name")
        fields: dict[str, Any] = {"name": entry["name"]}
        fields |= {key: _whole(name, f"request {i}: {key}", entry.get(key), 1) for key in ("prompt", "output", "batch")}
        fields |= {key: _positive(name, f"request {i}: {key}", entry.get(key)) for key in ("ttft", "seconds")}
        requests.append(MeasuredRequest(**fields))
    texts = {key: _section(name, data, key, dict) for key in ("device", "versions", "conditions")}
    when = _section(name, data, "when", str)
    return Record(
        what=data["what"], when=when, yardsticks=yardsticks, points=tuple(points), requests=tuple(requests), **texts
    )


COUNTS = ("context", "tokens", "batch")


def read_record(path: str | Path) -> Record:
    """The record in a file; InvalidInputError that names the file when it is damaged, too large or foreign."""
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST:
            _fail(path.name, f"it has more than {LARGEST:,} bytes, so it is no timing record")
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda text: math.nan)
    except OSError as error:
        raise InvalidInputError(f"timing record {path.name}: it cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"timing record {path.name}: it is damaged ({error}).") from None
    return record_from(data, path.name)


def read_records(folder: str | Path, what: str | None = None) -> tuple[list[Record], list[str]]:
    """All records of a folder, the newest last, and a sentence for each file that was skipped."""
    records, skipped = [], []
    for path in sorted(Path(folder).glob("*.json")):
        try:
            record = read_record(path)
        except InvalidInputError as error:
            skipped.append(f"skipped: {error}")
            continue
        if what is None or record.what == what:
            records.append(record)
    return sorted(records, key=lambda record: record.when), skipped


def write_record(record: Record, folder: str | Path) -> Path:
    """Write a record into `folder`, whole or not at all, and return its path. The same record is the same file."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stamp = "".join(character if character.isalnum() else "-" for character in record.when)
    path = folder / f"{record.what}-{stamp}.json"
    text = json.dumps(asdict(record), indent=1, allow_nan=False) + "\n"
    record_from(json.loads(text), path.name)  # never write what could not be read
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o644)  # mkstemp lets nobody else read, and a record is there to be read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
