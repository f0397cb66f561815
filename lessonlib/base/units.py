"""Numbers as a reader wants them: three or more digits, an SI prefix, a unit. Decimal throughout: GB is 1e9 bytes."""

import math
from numbers import Real
from typing import Any

from lessonlib.base.checks import checked, count, wrong

PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
PREFIXES_OF_SECONDS = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))  # 1,000 s stays so
DIGITS = count(1, 17)  # a float64 has no more


@checked(digits=DIGITS)
def format_quantity(value: float, unit: str, digits: int = 4) -> str:
    """`value` with `digits` significant digits, an SI prefix and the unit: 15009849344 B is "15.01 GB"."""
    value = _number(value)
    if math.isnan(value):
        return "undefined"
    # As it will be shown: 999,999 B is 1.000 MB.
    size = 0.0 if math.isinf(value) else abs(float(f"{value:.{digits - 1}e}"))
    for factor, prefix in PREFIXES_OF_SECONDS if unit == "s" else PREFIXES:
        if size >= factor:
            return f"{_significant(value / factor, digits)} {prefix}{unit}"
    return f"{_significant(value, digits)} {unit}"


def _number(value: Any) -> float:
    """A real number, NaN and infinity too, as a float."""
    number = value.item() if getattr(value, "shape", None) == () else value  # NumPy's own numbers
    try:
        if isinstance(number, Real) and not isinstance(number, bool):
            return float(number)
    except OverflowError:
        pass
    raise wrong("format", "value", value, "a number that a float holds")


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding: 9.9999 is 10.00
    decimals = max(0, digits - 1 - exponent)
    return f"{value:,.{decimals}f}"


def format_bytes(value: float, digits: int = 4) -> str:
    """Bytes with `digits` significant digits: 15009849344 is "15.01 GB"."""
    return format_quantity(value, "B", digits)


def format_flops(value: float, digits: int = 4) -> str:
    """A count of FLOPs with `digits` significant digits: 3.7e13 is "37.00 TFLOP"."""
    return format_quantity(value, "FLOP", digits)


def format_seconds(value: float, digits: int = 4) -> str:
    """Seconds with `digits` significant digits: 0.0123456 is "12.35 ms"."""
    return format_quantity(value, "s", digits)


@checked(digits=DIGITS)
def format_percent(fraction: float, digits: int = 3) -> str:
    """A fraction as a percentage with `digits` significant digits."""
    value = 100 * _number(fraction)
    return "undefined" if math.isnan(value) else f"{_significant(value, digits)} %"


def tokens_label(value: float) -> str:
    """1, 128, 1k, 12.8k, 1M: a token count as an axis says it."""
    for factor, suffix in ((1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.4g}{suffix}"
    return f"{value:.4g}"
