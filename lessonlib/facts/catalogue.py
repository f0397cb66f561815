"""Models, accelerators and workloads by name, and published measurements, each with the place where it was read.

The facts lie in data/ beside this package: one JSON file for each model, holding its config.json as published, and one
CSV table of each other kind. Every row carries a source, a date and a licence. A model of the catalogue and a learner's
own file take the same path: `Model.from_config(read_config("config.json"))`. Nothing that is read is ever executed.

Tables keep the units of datasheets (GB, GB/s, TFLOP/s, all decimal); what is returned is in bytes, byte/s and FLOP/s.
"""

import csv
import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from lessonlib.base.checks import Checked, choice, count, optional, rate, wrong
from lessonlib.base.errors import InvalidInputError, UnknownNameError, is_number, require_rate, shown
from lessonlib.model.model import Model
from lessonlib.request.lengths import LengthQuantiles
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator

DATA = Path(__file__).resolve().parent.parent.parent / "data"
LARGEST_CONFIG = 2**20  # bytes; published files have a few thousand
LONGEST_PATH = 300  # characters that an error quotes whole
LONGEST_INTEGER = 40  # digits; no size of a model needs more, and Python's own limit gives an obscure error
PEAK_COLUMNS = {
    "fp16": "fp16_tflops",
    "bf16": "bf16_tflops",
    "fp8": "fp8_tflops",
    "int8": "int8_tops",
    "fp4": "fp4_tflops",
}
# What a published value measures and in which unit the tables keep it; then that unit in SI.
METRICS = {
    "decode_rate": "tok/s",
    "prefill_rate": "tok/s",
    "output_rate": "tok/s",
    "output_rate_per_device": "tok/s/device",
    "request_time": "s",
    "ttft": "ms",
    "tpot": "ms",
    "itl_slope": "ms/token",
    "itl_intercept": "ms",
}
SI_UNITS = {
    "tok/s": ("tokens/s", 1.0),
    "tok/s/device": ("tokens/s/device", 1.0),
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "ms/token": ("s/token", 1e-3),
}
QUALITIES = ("A", "B", "C")


@dataclass(frozen=True, kw_only=True)
class Workload(Checked):
    """A kind of request: `prompt`, `output` and `cached` in tokens, as the lesson rounds them (`basis` says from what).

    The medians and means are those of the source, None where it gives none. `requests`: how many it counts.
    """

    name: str
    label: str
    prompt: int
    output: int
    cached: int = 0
    basis: str = ""
    prompt_median: float | None = None
    output_median: float | None = None
    prompt_mean: float | None = None
    output_mean: float | None = None
    requests: int | None = None
    source: str = ""
    licence: str = ""
    note: str = ""

    rules: ClassVar = {"prompt": count(), "output": count(), "cached": count(0)}

    @property
    def owner(self) -> str:
        return f"Workload {shown(self.name)}"

    def complete(self) -> None:
        if self.cached >= self.prompt:
            raise wrong(self.owner, "cached", self.cached, f"less than the prompt, {self.prompt}")

    @property
    def request(self) -> Request:
        """The same tokens as a Request, ready to be priced."""
        return Request(prompt=self.prompt, output=self.output, cached=self.cached)


@dataclass(frozen=True, kw_only=True)
class Measurement(Checked):
    """A published value and the conditions under which it was measured, in SI units; None where none are stated.

    `model` and `accelerator` are names of the catalogue, None for what it does not hold; `..._published` is how the
    source writes them. `metric` is one of METRICS, `value` is in `unit`; a rate is of the whole batch on all `devices`.
    `weights`, `cache`: dtypes. `weight_bytes`: size of the weights' file. `context_tokens`: cached before the timed
    part begins. `prompt_tokens` to `prompt_tokens_to`: the range of a fit. `quality`: A complete, B with a condition
    assumed, C cannot be true.
    """

    id: str
    source: str
    source_url: str
    licence: str
    retrieved: str
    quality: str
    model: str | None = None
    model_published: str
    accelerator: str | None = None
    accelerator_published: str
    devices: int
    parallelism: str | None = None
    engine: str
    weights: str
    cache: str | None = None
    weight_bytes: float | None = None
    batch: int
    prompt_tokens: int | None = None
    prompt_tokens_to: int | None = None
    output_tokens: int | None = None
    context_tokens: int | None = None
    metric: str
    value: float
    unit: str
    notes: str | None = None

    rules: ClassVar = {
        "metric": choice(METRICS),
        "quality": choice(QUALITIES),
        "value": rate("its unit"),
        **dict.fromkeys(("devices", "batch"), count()),
        **dict.fromkeys(("prompt_tokens", "prompt_tokens_to", "output_tokens", "context_tokens"), optional(count(0))),
    }

    @property
    def owner(self) -> str:
        return f"Measurement {shown(self.id)}"


def model_names() -> tuple[str, ...]:
    """Names that `load_model` knows, in alphabetical order."""
    return tuple(sorted(path.stem for path in _data_path("models").glob("*.json")))


def accelerator_names() -> tuple[str, ...]:
    """Names that `load_accelerator` knows, in the order of the table: data centre first, edge last."""
    return tuple(row["name"] for row in load_table("accelerators"))


def workload_names() -> tuple[str, ...]:
    """Names that `load_workload` knows."""
    return tuple(row["name"] for row in load_table("workloads"))


def load_model(name: str) -> Model:
    """The model of that name, read from its published config; its parameter count is exact.

    Raises UnknownNameError with the nearest names. `model_record(name)` says where the file comes from.
    """
    return Model.from_config(model_config(name), name=name)


def model_config(name: str) -> dict[str, Any]:
    """The published config.json of a catalogue model as a dict; of a wrapper, its part for the text model."""
    record = _model_file(name)
    config = record["config"]
    for key in record.get("config_path", ()):
        config = config[key]
    return config


def model_record(name: str) -> dict[str, Any]:
    """What the catalogue knows of a model besides its config: hub_id, parameters, kind, provenance, source, licence."""
    return {key: value for key, value in _model_file(name).items() if key != "config"}


def load_accelerator(name: str) -> Accelerator:
    """The accelerator of that name, in SI units; `.source` and `.notes` say where its figures come from.

    Peaks are dense, by dtype; a dtype whose peak does not exist or is not known is absent. Raises UnknownNameError
    with the nearest names.
    """
    row = _row("accelerators", "accelerator", name)
    peaks = {dtype: row[column] * 1e12 for dtype, column in PEAK_COLUMNS.items() if row[column] is not None}
    return Accelerator(
        name=name,
        label=row["label"],
        memory=row["memory_gb"] * 1e9,
        bandwidth=row["bandwidth_gb_s"] * 1e9,
        peaks=peaks,
        link=None if row["link_gb_s"] is None else row["link_gb_s"] * 1e9,
        source=row["source_url"],
        notes=row["notes"] or "",
    )


def load_workload(name: str) -> Workload:
    """The workload of that name; `.request` is its typical request. Raises UnknownNameError with the nearest names."""
    row = _row("workloads", "workload", name)
    same = ("label", "basis", "prompt_median", "output_median", "prompt_mean", "output_mean", "requests", "licence")
    return Workload(
        name=name,
        prompt=row["prompt_tokens"],
        output=row["output_tokens"],
        cached=row["cached_tokens"],
        source=f"{row['source']}, {row['source_url']}",
        note=row["note"] or "",
        **{field: row[field] for field in same},
    )


def load_measurements(*, impossible: bool = False, **conditions: Any) -> tuple[Measurement, ...]:
    """Published measurements, in the order of the table; those that meet every condition, such as metric="decode_rate".

    A condition names a field of Measurement and the value that it must have. Raises UnknownNameError for another name,
    and for a value that no row of the table has, with the nearest ones. `impossible`: instead, the rows of
    data/impossible_measurements.csv, which cannot be true and are kept as an exercise.
    """
    table = "impossible_measurements" if impossible else "measurements"
    rows = _measurements(table)
    for name, wanted in conditions.items():
        known = tuple(field.name for field in fields(Measurement))
        if name not in known:
            _unknown("condition", name, known, "Measurement's fields")
        plain = wanted is None or isinstance(wanted, str) or is_number(wanted)
        if not plain or not any(getattr(row, name) == wanted for row in rows):
            found = sorted({str(getattr(row, name)) for row in rows})
            _unknown(f"value of {name}", wanted, found, f"data/{table}.csv")
    return tuple(row for row in rows if all(getattr(row, name) == wanted for name, wanted in conditions.items()))


@cache
def _measurements(table: str) -> tuple[Measurement, ...]:
    return tuple(_measurement(row) for row in _read_table(table))


def _measurement(row: dict[str, Any]) -> Measurement:
    """A row of the table in SI units; InvalidInputError for an unknown metric or one in another unit than METRICS'."""
    others = {key: value for key, value in row.items() if key not in ("value", "unit", "weight_gib")}
    owner = f"Measurement {row['id']!r}"
    unit, factor = SI_UNITS.get(row["unit"], (row["unit"], 1.0))
    value = factor * require_rate(owner, "value", row["value"], row["unit"])
    gib = row["weight_gib"]
    weights = None if gib is None else 2.0**30 * require_rate(owner, "weight_gib", gib, "GiB")
    found = Measurement(value=value, unit=unit, weight_bytes=weights, **others)
    if row["unit"] != METRICS[found.metric]:
        raise InvalidInputError(
            f"{owner}: unit is {shown(row['unit'])}; expected {METRICS[found.metric]!r}, in which the table keeps "
            f"{found.metric}."
        )
    return found


def load_lengths(workload: str, quantity: str) -> LengthQuantiles:
    """The published distribution of a workload's "prompt" or "output" tokens, to draw lengths from.

    `load_lengths("production-reasoning", "output")`. Raises UnknownNameError with what the table has.
    """
    rows = {f"{row['workload']}: {row['quantity']}": row for row in load_table("workload_quantiles")}
    name = f"{workload}: {quantity}" if isinstance(workload, str) and isinstance(quantity, str) else ""
    if name not in rows:
        _unknown("distribution", name or (workload, quantity), tuple(rows), "load_table('workload_quantiles')")
    quantiles = {
        float(column[1:].replace("_", ".")) / 100: value  # p99_9 is the quantile at 0.999
        for column, value in rows[name].items()
        if column[0] == "p" and column[1:].replace("_", "").isdigit()
    }
    return LengthQuantiles((*quantiles, 1.0), (*quantiles.values(), rows[name]["max"]))


def source_of(name: str) -> str:
    """One line: where the model, accelerator or workload of that name was read, when, and under which licence."""
    known = (*model_names(), *accelerator_names(), *workload_names())
    if not isinstance(name, str) or name not in known:
        _unknown("name", name, known, "model_names(), accelerator_names() and workload_names()")
    if name in accelerator_names():
        row = _row("accelerators", "accelerator", name)
        where = f"{row['source_url']} ({row['seen']}: {row['seen_at']})"
    elif name in workload_names():
        row = _row("workloads", "workload", name)
        where = f"{row['source']}, {row['source_url']}"
    else:
        row = model_record(name)
        where = f"{row['provenance']}: {row['source']}"
    return f"{where}; retrieved {row['retrieved']}; licence: {row['licence']}"


def load_references() -> dict[str, str]:
    """The papers that the notebooks cite: key to authors, year, title, venue and address."""
    return {
        row["key"]: f"{row['authors']} ({row['year']}). {row['title']}. {row['venue']}. {row['url']}"
        for row in load_table("references")
    }


def load_table(name: str) -> tuple[dict[str, Any], ...]:
    """The rows of data/NAME.csv in the table's own units: numbers as int or float, an empty cell as None.

    Columns are described in data/README.md. Raises UnknownNameError with the nearest tables.
    """
    tables = sorted(path.stem for path in _data_path("").glob("*.csv"))
    if not isinstance(name, str) or name not in tables:
        _unknown("table", name, tables, "data/README.md")
    return tuple(dict(row) for row in _read_table(name))  # copies: a caller may change its own


def read_config(path: str | os.PathLike[str] | bytes) -> dict[str, Any]:
    """A learner's own config.json as a dict, for `Model.from_config`. `path`: the file's, or its bytes, as uploaded.

    Read as data, never executed. Raises InvalidInputError, naming the file and what to do, when it is absent, not a
    file, over 1 MiB, not UTF-8, not JSON, or not one JSON object; or holds NaN or Infinity, a key twice in one object,
    an integer of more than 40 digits, or brackets nested too deeply to read.
    """
    text = _read_text(path)

    def line(token: str) -> str:
        """Where a token first stands outside of a string."""
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', lambda string: " " * len(string[0]), text)
        found = re.search(rf"(?<![\w.+-]){re.escape(token)}(?![\w.])", bare)
        return f" on line {text.count(chr(10), 0, found.start()) + 1}" if found else ""

    def refuse_constant(constant: str) -> NoReturn:
        _refuse(path, f"holds {constant}{line(constant)}, which is not JSON", "replace it by a finite number or null")

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            _refuse(path, f"holds {shown(digits)}{line(digits)}, which is too large", "replace it by a number or null")
        return number

    def integer(digits: str) -> int:
        if len(digits.lstrip("-")) > LONGEST_INTEGER:
            problem = f"holds an integer of {len(digits)} characters{line(digits)}"
            _refuse(path, problem, f"give at most {LONGEST_INTEGER} digits")
        return int(digits)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                _refuse(path, f"has the key {shown(key)} twice in one object", "keep the one that is meant")
            result[key] = value
        return result

    try:
        config = json.loads(
            text, parse_constant=refuse_constant, parse_float=finite, parse_int=integer, object_pairs_hook=once
        )
    except json.JSONDecodeError as error:
        where = f"{error.msg} on line {error.lineno}, column {error.colno}" if text.strip() else "it is empty"
        _refuse(path, f"is not JSON: {where}", "download config.json again as a raw file", error)
    except RecursionError as error:
        _refuse(path, "nests its brackets too deeply to be a config", "check that it is a config.json", error)
    if not isinstance(config, dict):
        kind = {list: "a list", str: "a string", type(None): "null"}.get(type(config), "a bare value")
        _refuse(path, f"holds {kind}, not one JSON object", "pass a config.json, which starts with {")
    return config


def _read_text(path: str | os.PathLike[str] | bytes) -> str:
    """The text of a file, or of an upload, that is small enough to be a config."""
    try:
        if isinstance(path, bytes):
            content = path
        else:
            file = Path(path)
            if file.is_dir():
                _refuse(path, "is a folder", "pass the config.json inside it")
            if not file.is_file():
                _refuse(path, "does not exist or is not a file", "check the path and the folder you run in")
            with file.open("rb") as stream:
                content = stream.read(LARGEST_CONFIG + 1)
    except TypeError as error:
        _refuse(path, "is not a path", "pass the name of a config.json as a string or a Path", error)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        why = getattr(error, "strerror", None) or error
        _refuse(path, f"cannot be read: {why}", "check the path and its permissions", error)
    if len(content) > LARGEST_CONFIG:
        _refuse(path, f"is over {LARGEST_CONFIG:,} bytes", "pass the config.json, not the weights or the tokenizer")
    try:
        return content.decode("utf-8-sig")  # a byte order mark is accepted
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"is not UTF-8 text: {error.reason} at byte {error.start}, on line {line}"
        _refuse(path, problem, "save it as UTF-8", error)


def _refuse(path: object, problem: str, remedy: str, cause: Exception | None = None) -> NoReturn:
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if isinstance(path, bytes):
        name = getattr(path, "name", "upload")
    words = repr(name) if isinstance(name, str) and len(name) <= LONGEST_PATH else shown(name)
    raise InvalidInputError(f"Config file {words} {problem}; {remedy}.") from cause


def _unknown(kind: str, name: object, known: Sequence[str], where: str) -> NoReturn:
    wanted = name.lower() if isinstance(name, str) else ""
    near = get_close_matches(wanted, known, n=4, cutoff=0.5) or [k for k in known if wanted and wanted in k][:4]
    hint = f"the nearest are {', '.join(near)}" if near else "nothing is near it"
    raise UnknownNameError(f"Unknown {kind} {shown(name)}: {hint}. See {where} for all {len(known)}.")


def _row(table: str, kind: str, name: str) -> dict[str, Any]:
    rows = load_table(table)
    for row in rows:
        if isinstance(name, str) and row["name"] == name:
            return row
    _unknown(kind, name, tuple(row["name"] for row in rows), f"{kind}_names()")


def _model_file(name: str) -> dict[str, Any]:
    names = model_names()
    if not isinstance(name, str) or name not in names:  # before any path is made of it
        _unknown("model", name, names, "model_names()")
    return read_config(_data_path("models") / f"{name}.json")


def _data_path(part: str) -> Path:
    path = DATA / part
    if not path.is_dir():
        raise InvalidInputError(
            f"The catalogue's folder {str(path)!r} does not exist; install lessonlib from its checkout, "
            "where data/ lies beside it (pip install -e .)."
        )
    return path


@cache
def _read_table(name: str) -> tuple[dict[str, Any], ...]:
    with (_data_path("") / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return tuple({column: _cell(text) for column, text in row.items()} for row in csv.DictReader(stream))


def _cell(text: str) -> int | float | str | None:
    """A cell as a number where it is one; dates, names and sentences stay text."""
    if not text:
        return None
    try:
        return int(text) if text.isascii() and text.isdigit() else _finite_or_text(text)
    except ValueError:
        return text


def _finite_or_text(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text
