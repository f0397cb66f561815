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
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import count as counted
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from lessonlib.base.checks import REFUSED, Rule, a, checked, choice, count, items, optional, rate, wrong
from lessonlib.base.errors import InvalidInputError
from lessonlib.base.files import GivenFile, quoted, write_new
from lessonlib.model.precision import BITS

SCHEMA = "lessonlib.timing/1"
KINDS = ("cpu", "cuda", "mps", "server", "engine")
LARGEST = 2**20  # bytes of a file
TOY_SIZES = {"layers", "width", "heads", "inner", "vocabulary"}
PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}  # of the seconds between the chunks of a server's reply


def _that(expected: str, holds: Callable[[Any], Any]) -> Rule:
    return Rule(expected, lambda value: value if holds(value) else REFUSED)


def _each(rule: Rule, values: Iterable[Any]) -> bool:
    return all(rule.turn(value) is not REFUSED for value in values)


def _moment(value: Any) -> Any:
    try:
        return value if datetime.fromisoformat(value) else REFUSED
    except (TypeError, ValueError):
        return REFUSED


COUNT, BYTES, SECONDS = count(), rate("bytes"), rate("seconds")
TEXT, OBJECT = a(str), a(dict)
NAME = Rule("a text", lambda value: "" if value is None else TEXT.turn(value))
LIST = Rule("a list", lambda value: tuple(value) if isinstance(value, list | tuple) else REFUSED)
TEXTS = _that("a list of texts", lambda value: isinstance(value, list | tuple) and _each(TEXT, value))
REQUESTS = Rule("a list", lambda value: () if value is None else LIST.turn(value))
SIZES = _that(
    f"whole numbers for some of {', '.join(sorted(TOY_SIZES))}",
    lambda value: isinstance(value, dict) and value.keys() <= TOY_SIZES and _each(COUNT, value.values()),
)


def _objects(**rules: Rule) -> Rule:
    """A list of objects, each with these keys, and others beside them."""
    return _that(
        f"a list of objects, each with {', '.join(rules)}",
        lambda value: (
            isinstance(value, list | tuple)
            and _each(OBJECT, value)
            and all(_each(rule, [one.get(key)]) for one in value for key, rule in rules.items())
        ),
    )


RATES = _that("seconds by name", lambda value: isinstance(value, dict) and _each(SECONDS, value.values()))
VARIANT = _objects(weights=choice(BITS), changed=OBJECT)
VARIANTS = _that(
    "objects by name, each with a format of `weights` and what is `changed` in the config",
    lambda value: isinstance(value, dict) and value and VARIANT.turn(list(value.values())) is not REFUSED,
)
GAP = rate("seconds", zero=True)
GAPS = _that(
    f"seconds for {', '.join(PERCENTILES)}, or an empty object",
    lambda value: (
        value == {} or (isinstance(value, dict) and value.keys() == PERCENTILES.keys() and _each(GAP, value.values()))
    ),
)
REPLIES = _objects(name=TEXT, concurrency=COUNT, problem=TEXT, notes=TEXTS, gaps=GAPS)


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """A ceiling of the machine, measured by itself: a rate with its unit and every repeat."""

    value: Annotated[float, rate("its unit")]
    unit: Annotated[str, TEXT]
    repeats: Annotated[tuple[float, ...], items(rate("its unit"), least=1)]

    @property
    def spread(self) -> float:
        """Largest over smallest repeat: 1 on a quiet machine."""
        return max(self.repeats) / min(self.repeats)


@dataclass(frozen=True, kw_only=True)
class TimedPass:
    """One measured pass: `tokens` new tokens in each of `batch` sequences on `context` cached ones, in seconds.

    `variant`: which of the record's `variants` ran, where it has several.
    """

    phase: Annotated[str, replace(choice(("prefill", "decode")), expected="prefill or decode")]
    context: Annotated[int, count(least=0)]
    tokens: Annotated[int, COUNT]
    batch: Annotated[int, COUNT]
    seconds: Annotated[tuple[float, ...], items(SECONDS, least=1)]
    variant: Annotated[str, NAME] = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def quickest(self) -> float:
        """Of the repeat that was disturbed least: interruptions only ever add time."""
        return min(self.seconds)


@dataclass(frozen=True, kw_only=True)
class MeasuredRequest:
    """One request run from its prompt to its last token, in seconds.

    `tpot`: of a server, where it is known better than as (seconds - ttft) / (output - 1).
    """

    name: Annotated[str, TEXT]
    prompt: Annotated[int, COUNT]
    output: Annotated[int, COUNT]
    batch: Annotated[int, COUNT]
    ttft: Annotated[float, SECONDS]
    seconds: Annotated[float, SECONDS]
    tpot: Annotated[float | None, optional(SECONDS)] = None


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was measured, when, on what, under which conditions."""

    what: Annotated[str, choice(KINDS)]
    when: Annotated[str, Rule("a date and time such as '2026-11-30T12:00:00Z'", _moment)]
    device: Annotated[dict[str, Any], OBJECT]
    versions: Annotated[dict[str, str], OBJECT]
    conditions: Annotated[dict[str, Any], OBJECT]
    yardsticks: Annotated[dict[str, Yardstick], OBJECT]
    points: Annotated[tuple[TimedPass, ...], LIST]
    requests: Annotated[tuple[MeasuredRequest, ...], REQUESTS] = ()
    schema: Annotated[str, choice((SCHEMA,))] = SCHEMA


YARDSTICK = a(Yardstick)
GAUGE = rate("cores", zero=True)
ENGINE = {
    "predicted": _objects(predicted=TEXT, timed=TEXT, by=RATES),
    "load": _objects(waited=GAP, before=GAUGE, during=GAUGE),
}
GPU = {
    "device": {"name": TEXT, "memory": BYTES},
    "conditions": {"model": TEXT, "dtype": TEXT, "bucket": COUNT, "attention": TEXT, "left_out": TEXTS},
    "yardsticks": {"read_bandwidth": YARDSTICK, "matmul_rate": YARDSTICK},
}
# What the functions read that put a prediction beside a record: by its kind, section and key.
NEEDS: dict[str, dict[str, dict[str, Rule]]] = {
    "cpu": {
        "device": {"memory": optional(BYTES)},
        "conditions": {"model": SIZES},
        "yardsticks": {"matvec_bandwidth": YARDSTICK, "matmul_rate": YARDSTICK},
    },
    "cuda": GPU,
    "mps": GPU,
    "server": {"conditions": {"model": TEXT, "ended": TEXT, "replies": REPLIES}},
    "engine": {
        "conditions": {"model": TEXT, "changed": OBJECT, "variants": VARIANTS} | ENGINE,
        "yardsticks": {"read_bandwidth": YARDSTICK, "matmul_rate": YARDSTICK},
    },
}


def head(what: str, **versions: str | None) -> dict[str, Any]:
    """The first fields of a new record: its schema, kind and moment, and the versions of what runs here."""
    told = {name: version for name, version in versions.items() if version is not None}
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"schema": SCHEMA, "what": what, "when": moment, "versions": {"python": platform.python_version()} | told}


def _read(kind: type, entry: Any, where: str, name: str = "") -> Any:
    """A dataclass from an object of the JSON, each field as its annotation says."""
    entry = OBJECT(where, name, entry)
    where, hints = f"{where}: {name}", get_type_hints(kind, include_extras=True)
    return kind(**{key: hint.__metadata__[0](where, key, entry.get(key)) for key, hint in hints.items()})


def record_from(data: Any, name: str = "given") -> Record:
    """A Record from parsed JSON; InvalidInputError naming `name` and the field for anything that is not one."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        problem = f"its schema is not {SCHEMA!r}, so it is not a timing record of this library"
        raise InvalidInputError(f"timing record {name}: {problem}.")
    record = _read(Record, data, "timing record", name)
    where = f"timing record {name}"
    sticks = {key: _read(Yardstick, one, where, f"yardstick {key!r}") for key, one in record.yardsticks.items()}
    points, requests = (
        tuple(_read(kind, one, where, f"{what} {i}") for i, one in enumerate(entries))
        for what, kind, entries in (("point", TimedPass, record.points), ("request", MeasuredRequest, record.requests))
    )
    record = replace(record, yardsticks=sticks, points=points, requests=requests)
    for section, rules in NEEDS[record.what].items():
        for key, rule in rules.items():
            rule(where, f"{key!r} of its {section}", getattr(record, section).get(key))
    return record


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


@checked(what=optional(choice(KINDS)))
def read_records(folder: str | os.PathLike[str], what: str | None = None) -> tuple[list[Record], list[str]]:
    """All records of a folder, the newest last, and a sentence for each file that was skipped.

    `what`: those of one of KINDS alone. InvalidInputError for another, and for a folder that does not exist.
    """
    try:
        paths = sorted(Path(folder).glob("*.json")) if Path(folder).is_dir() else None
    except (OSError, TypeError, ValueError):
        paths = None
    if paths is None:
        raise InvalidInputError(f"read_records: folder is {quoted(folder)}; expected a folder that exists.")
    records, skipped = [], []
    for path in paths:
        try:
            records.append(read_record(path))
        except InvalidInputError as error:
            skipped.append(f"skipped: {error}")
    kept = (record for record in records if what in (None, record.what))
    return sorted(kept, key=lambda record: record.when), skipped


def content_of(record: Record) -> bytes:
    """The bytes of a record's file; InvalidInputError for what JSON does not have."""
    try:
        return (json.dumps(asdict(record), indent=1, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"write_record: the record holds what JSON does not have ({error}).") from None


def write_record(record: Record, folder: str | os.PathLike[str]) -> Path:
    """Write a record into `folder`, whole or not at all, and return its path. The same record is the same file.

    A file that holds another record is never replaced: the name then ends in -2, -3. Raises InvalidInputError, before
    anything is written, for what could not be read again and for what cannot be a folder.
    """
    a(Record)("write_record", "record", record)
    content = content_of(record)
    record_from(json.loads(content), "to be written")  # never write what could not be read
    if len(content) > LARGEST:
        most, remedy = f"at most {LARGEST:,} bytes", "keep fewer points, repeats or replies"
        raise wrong("write_record", "the length of the record in bytes", len(content), most, remedy)
    try:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        stamp = "".join(character if character.isalnum() else "-" for character in record.when)
        endings = ("" if number == 1 else f"-{number}" for number in counted(1))
        return write_new((folder / f"{record.what}-{stamp}{ending}.json" for ending in endings), content)
    except (OSError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"write_record: folder {quoted(folder)} cannot be written to ({why}).") from error
