"""Published measurements, and a learner's own: each a value with its conditions, in SI units, and where it was read."""

import csv
import io
import os
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar

import numpy as np

from lessonlib.base.checks import Checked, checked, choice, count, flag, optional, rate, text, wrong
from lessonlib.base.errors import InvalidInputError, LessonError, is_number, shown
from lessonlib.base.files import GivenFile
from lessonlib.facts.tables import cell, known_name, load_table, rows_of, unknown
from lessonlib.model.precision import DTYPE

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
# The tokens without which a metric says nothing.
NEEDED = {
    "prompt_tokens": ("prefill_rate", "ttft", "output_rate", "output_rate_per_device", "request_time"),
    "output_tokens": ("output_rate", "output_rate_per_device", "request_time"),
    "context_tokens": ("decode_rate", "tpot"),
}
SI_UNITS = {
    "tok/s": ("tokens/s", 1.0),
    "tok/s/device": ("tokens/s/device", 1.0),
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "ms/token": ("s/token", 1e-3),
}


# Columns of text, and those that no row can be without.
WORDS = tuple(
    "id source source_url licence retrieved quality model model_published accelerator accelerator_published "
    "parallelism engine weights cache metric unit notes".split()
)
REQUIRED = tuple(
    "id source quality model_published accelerator_published devices engine weights batch metric value unit".split()
)
LARGEST_TABLE = 2**24  # bytes
# How the name of a lever begins; what data/levers.csv calls it.
LEVERS = {
    "W8A8": "8-bit weights and activations",
    "4-bit weights": "4-bit weights",
    "fp8 cache": "8-bit cache",
    "EAGLE-3": "eagle-3",
    "MTP": "mtp",
}


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
    source_url: str | None = None
    licence: str | None = None
    retrieved: str | None = None
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
        "quality": choice("ABC"),
        "value": rate("its unit"),
        "weights": DTYPE,
        "cache": optional(DTYPE),
        **dict.fromkeys(("devices", "batch"), count()),
        **dict.fromkeys(("prompt_tokens", "prompt_tokens_to", "output_tokens", "context_tokens"), optional(count(0))),
    }

    @property
    def owner(self) -> str:
        return f"Measurement {shown(self.id)}"

    def complete(self) -> None:
        for name, metrics in NEEDED.items():
            if self.metric in metrics and getattr(self, name) is None:
                raise wrong(self.owner, name, None, f"tokens, which {self.metric} needs")
        if self.metric == "tpot" and self.output_tokens == 1:
            raise wrong(self.owner, "output_tokens", 1, "2 or more, as tpot is of the tokens after the first")


@checked(impossible=flag())
def load_measurements(*, impossible: bool = False, **conditions: Any) -> tuple[Measurement, ...]:
    """Published measurements, in the order of the table; those that meet every condition, such as metric="decode_rate".

    A condition names a field of Measurement and the value that it must have. Raises UnknownNameError for another name,
    and for a value that no row of the table has, with the nearest ones. `impossible`: instead, the rows of
    data/impossible_measurements.csv, which cannot be true and are kept as an exercise.
    """
    table = "impossible_measurements" if impossible else "measurements"
    rows = _measurements(table)
    for name, wanted in conditions.items():
        known_name("condition", name, [field.name for field in fields(Measurement)], "Measurement's fields")
        plain = wanted is None or isinstance(wanted, str) or is_number(wanted)
        if not plain or not any(getattr(row, name) == wanted for row in rows):
            found = sorted({str(getattr(row, name)) for row in rows})
            unknown(f"value of {name}", wanted, found, f"data/{table}.csv")
    return tuple(row for row in rows if all(getattr(row, name) == wanted for name, wanted in conditions.items()))


def read_measurements(path: str | os.PathLike[str] | bytes) -> tuple[Measurement, ...]:
    """A learner's own measurements, from a CSV with the columns of data/measurements.csv (data/README.md says each).

    `path`: the file's, or its bytes, as uploaded. The columns may stand in any order, and those that are blank in every
    row may be left out. Raises InvalidInputError with the file, the line and the column: for one that is unknown,
    twice or missing, a row too short or too long, an id twice, and an impossible value.
    """
    file = GivenFile(path, "Measurements file", "CSV", LARGEST_TABLE, "leave rows out")
    reader = csv.reader(io.StringIO(file.text(), newline=""), strict=True)
    read: dict[str, Measurement] = {}
    try:
        header = next(reader, [])
        _require_columns(file, header)
        for cells in reader:
            if not any(text.strip() for text in cells):
                continue
            where = f"line {reader.line_num:,}"
            if len(cells) != len(header):
                file.refuse(f"has {len(cells):,} cells on {where}", f"give {len(header):,}, one for each column name")
            row = _own_row(file, where, dict(zip(header, cells, strict=True)))
            if row.id in read:
                file.refuse(f"has the id {shown(row.id)} twice, again on {where}", "give each row one of its own")
            read[row.id] = row
    except csv.Error as error:
        file.refuse(f"cannot be read as CSV on line {reader.line_num:,} ({error})", "close its quotes", error)
    if not read:
        file.refuse("has no row below its column names", "add a line a measurement")
    return tuple(read.values())


def _require_columns(file: GivenFile, header: list[str]) -> None:
    known = list(rows_of("measurements")[0])
    for name in header:
        if name not in known:
            file.refuse(f"has a column {shown(name)}", f"keep to the columns {', '.join(known)}")
        if header.count(name) > 1:
            file.refuse(f"has the column {shown(name)} twice", "keep the one that is meant")
    if missing := [name for name in known if name in REQUIRED and name not in header]:
        file.refuse(f"lacks the column {', '.join(missing)}", "add it, as data/README.md describes it")


def _own_row(file: GivenFile, where: str, texts: dict[str, str]) -> Measurement:
    empty: dict[str, Any] = dict.fromkeys(rows_of("measurements")[0])
    row = empty | {name: text.strip() if name in WORDS else cell(text.strip()) for name, text in texts.items()}
    row |= {name: row[name] or None for name in WORDS}
    if absent := [name for name in REQUIRED if row[name] is None]:
        file.refuse(f"has no {absent[0]} on {where}", "fill it in")
    try:
        return _measurement(row)
    except LessonError as error:
        file.refuse(f"has a wrong value on {where}: {str(error).rstrip('.')}", "mend that row", error)


@cache
def _measurements(table: str) -> tuple[Measurement, ...]:
    return tuple(_measurement(row) for row in rows_of(table))


def _measurement(row: dict[str, Any]) -> Measurement:
    """A row of the table in SI units; InvalidInputError for an unknown metric or one in another unit than METRICS'."""
    others = {key: value for key, value in row.items() if key not in ("value", "unit", "weight_gib")}
    owner = f"Measurement {row['id']!r}"
    unit, factor = SI_UNITS.get(row["unit"], (row["unit"], 1.0))
    value = factor * rate(row["unit"])(owner, "value", row["value"])
    gib = row["weight_gib"]
    weights = None if gib is None else 2.0**30 * rate("GiB")(owner, "weight_gib", gib)
    found = Measurement(value=value, unit=unit, weight_bytes=weights, **others)
    if row["unit"] != METRICS[found.metric]:
        raise InvalidInputError(
            f"{owner}: unit is {shown(row['unit'])}; expected {METRICS[found.metric]!r}, in which the table keeps "
            f"{found.metric}."
        )
    return found


@checked(lever=text("'MTP'"))
def published_gain(lever: str) -> str:
    """What was measured of a lever like the one named so, in words: on other models and servers; "" where nothing was.

    The rows are those of data/levers.csv, each with its conditions: slow-downs are among them.
    """
    kind = next((kind for start, kind in LEVERS.items() if lever.startswith(start)), "")
    gains = sorted(row["times_faster"] for row in load_table("levers") if row["lever"] == kind)
    if not gains:
        return ""
    return f"{gains[0]:.2f} to {gains[-1]:.2f} in {len(gains)} measurements, {np.median(gains):.2f} in the median"
