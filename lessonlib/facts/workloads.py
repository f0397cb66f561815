"""Kinds of request by name, and the published distributions of their lengths."""

from dataclasses import dataclass
from typing import ClassVar

from lessonlib.base.checks import Checked, count, wrong
from lessonlib.base.errors import shown
from lessonlib.facts.tables import known_name, load_table, row_named
from lessonlib.request.lengths import LengthQuantiles
from lessonlib.request.request import Request


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


def workload_names() -> tuple[str, ...]:
    """Names that `load_workload` knows."""
    return tuple(row["name"] for row in load_table("workloads"))


def load_workload(name: str) -> Workload:
    """The workload of that name; `.request` is its typical request. Raises UnknownNameError with the nearest names."""
    row = row_named("workloads", "workload", name)
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


def load_lengths(workload: str, quantity: str) -> LengthQuantiles:
    """The published distribution of a workload's "prompt" or "output" tokens, to draw lengths from.

    `load_lengths("production-reasoning", "output")`. Raises UnknownNameError with what the table has.
    """
    rows = {f"{row['workload']}: {row['quantity']}": row for row in load_table("workload_quantiles")}
    name = f"{workload}: {quantity}" if isinstance(workload, str) and isinstance(quantity, str) else ""
    known_name("distribution", name or (workload, quantity), rows, "load_table('workload_quantiles')")
    quantiles = {
        float(column[1:].replace("_", ".")) / 100: value  # p99_9 is the quantile at 0.999
        for column, value in rows[name].items()
        if column[0] == "p" and column[1:].replace("_", "").isdigit()
    }
    return LengthQuantiles((*quantiles, 1.0), (*quantiles.values(), rows[name]["max"]))
