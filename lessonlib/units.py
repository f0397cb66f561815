"""Numbers as a reader wants them: three or more digits, an SI prefix, a unit. Decimal throughout: GB is 1e9 bytes."""

import math
from collections.abc import Iterable, Sequence

PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SMALL_PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def format_quantity(value: float, unit: str, digits: int = 4) -> str:
    """`value` with `digits` significant digits, an SI prefix and the unit: 15009849344 B is "15.01 GB"."""
    if math.isnan(value):
        return "undefined"
    size = abs(value)
    table = PREFIXES if unit != "s" else ()
    for factor, prefix in table:
        if size >= factor:
            return f"{_significant(value / factor, digits)} {prefix}{unit}"
    if unit == "s" and 0 < size < 1:
        for factor, prefix in SMALL_PREFIXES:
            if size >= factor:
                return f"{_significant(value / factor, digits)} {prefix}{unit}"
    return f"{_significant(value, digits)} {unit}"


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def format_bytes(value: float, digits: int = 4) -> str:
    return format_quantity(value, "B", digits)


def format_flops(value: float, digits: int = 4) -> str:
    return format_quantity(value, "FLOP", digits)


def format_seconds(value: float, digits: int = 4) -> str:
    return format_quantity(value, "s", digits)


def format_percent(fraction: float, digits: int = 3) -> str:
    """A fraction as a percentage with `digits` significant digits."""
    return "undefined" if math.isnan(fraction) else f"{_significant(100 * fraction, digits)} %"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as Markdown text, of cells that are formatted already: the first column to the left, the others right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
