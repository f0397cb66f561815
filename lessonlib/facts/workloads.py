"""Kinds of request by name, and the published distributions of their lengths.

A median describes one request; of many, the means decide what is linear in tokens, and the length-weighted span decides
cache reads and memory held: S = E[n_out (n_in + n_out / 2)] / E[n_out]. Where prompt and output are not published in
pairs it is a range over couplings: independent of each other, the longest with the longest, with the shortest.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lessonlib.base.checks import Checked, checked, choice, count, wrong
from lessonlib.base.errors import shown
from lessonlib.facts.tables import known_name, load_table, row_named
from lessonlib.request.lengths import LengthQuantiles
from lessonlib.request.request import Request

COUPLING = choice(("independent", "comonotone", "antimonotone"))
POINTS = 1000  # lengths of equal probability that stand for a distribution
GROUPS = 100  # of prompts, by their mean, that meet each output where the two are independent


class WeightedSpan(NamedTuple):
    """The length-weighted span in tokens: of independent lengths, and its bounds over all couplings of the two."""

    independent: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Workload(Checked):
    """A kind of request: `prompt`, `output` and `cached` in tokens, as the lesson rounds them (`basis` says from what).

    The medians and means are those of the source, None where it gives none; `new_`: of the prompt, not cached.
    `requests`: how many it counts. `pairing`: whether its prompts and outputs are published in pairs.
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
    new_median: float | None = None
    new_mean: float | None = None
    pairing: str = ""
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
        """The same tokens as a Request, ready to be priced: the medians, each taken for itself. It describes one."""
        return Request(prompt=self.prompt, output=self.output, cached=self.cached)

    @property
    def mean(self) -> Request:
        """A request of the mean lengths in whole tokens, for many of them; `request` where the source has no means."""
        if self.prompt_mean is None or self.output_mean is None:
            return self.request
        prompt, new = round(self.prompt_mean), round(self.prompt_mean if self.new_mean is None else self.new_mean)
        return Request(prompt, round(self.output_mean), prompt - new)

    @property
    def weighted_span(self) -> WeightedSpan:
        """The length-weighted span: what a step of a full server reads and holds for a sequence, on average."""
        prompt, output = (_points(self, quantity) for quantity in ("prompt", "output"))
        growth, total = float(np.sum(output**2)) / 2, float(np.sum(output))
        high, low = (float(np.sum(one * output) + growth) / total for one in (prompt, prompt[::-1]))
        return WeightedSpan(float(np.mean(prompt)) + growth / total, low, high)

    def mix(self, coupling: str = "independent") -> Request:
        """Many requests, arrays in whole tokens, that stand for the published lengths, to be priced as a mix.

        `coupling`: "independent", each output meets prompts of all lengths; "comonotone", the longest prompt has the
        longest output; "antimonotone", the shortest. Of each prompt the mean's share is cached.
        """
        return _mix(self, coupling)


def workload_names() -> tuple[str, ...]:
    """Names that `load_workload` knows."""
    return tuple(row["name"] for row in load_table("workloads"))


def load_workload(name: str) -> Workload:
    """The workload of that name; `.request` is its typical request. Raises UnknownNameError with the nearest names."""
    row = row_named("workloads", "workload", name)
    published = [f"{of}_{what}" for of in ("prompt", "output", "new") for what in ("median", "mean")]
    same = ["label", "basis", "requests", "licence", "pairing", *published]
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


def _points(workload: Workload, quantity: str) -> Any:
    """Lengths of equal probability in ascending order: as released, else by the published quantiles, else one."""
    rows = {(row["workload"], row["quantity"]): row["lengths"] for row in load_table("workload_marginals")}
    if lengths := rows.get((workload.name, quantity)):
        return np.array(lengths.split(), float)
    if any(row["workload"] == workload.name for row in load_table("workload_quantiles")):
        return load_lengths(workload.name, quantity).at((np.arange(POINTS) + 0.5) / POINTS)
    return np.array([getattr(workload, quantity)], float)


@checked(coupling=COUPLING)
def _mix(workload: Workload, coupling: str) -> Request:
    prompt, output = (_points(workload, quantity) for quantity in ("prompt", "output"))
    if coupling == "independent":
        groups = prompt.reshape(min(GROUPS, len(prompt)), -1).mean(axis=1)
        output, prompt = (each.ravel() for each in np.meshgrid(output, groups))
    elif coupling == "antimonotone":
        prompt = prompt[::-1]
    prompt, output = np.maximum(np.rint(prompt), 1), np.maximum(np.rint(output), 1)
    mean = workload.mean
    return Request(prompt, output, np.minimum(np.rint(prompt * (mean.cached / mean.prompt)), prompt - 1))
