"""Published measurements: each a value with its conditions, in SI units, and the place where it was read."""

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar

from lessonlib.base.checks import Checked, choice, count, optional, rate
from lessonlib.base.errors import InvalidInputError, is_number, shown
from lessonlib.facts.tables import known_name, rows_of, unknown

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
        "quality": choice("ABC"),
        "value": rate("its unit"),
        **dict.fromkeys(("devices", "batch"), count()),
        **dict.fromkeys(("prompt_tokens", "prompt_tokens_to", "output_tokens", "context_tokens"), optional(count(0))),
    }

    @property
    def owner(self) -> str:
        return f"Measurement {shown(self.id)}"


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
