"""Efficiency from runs of one's own: two timings of decode steps and, if there, one of a prefill, solved exactly.

    seconds = compute / mfu + memory / mbu + communication + passes x overhead

is linear in 1 / mfu, 1 / mbu and the overhead. Two decode runs that read different bytes a step give bandwidth and
overhead, a prefill the fraction of peak. One's own server, timed once, predicts better than any table of others. Where
compute and memory overlap, each roof counts with the longer of its two, and the sum is linear once it is known which.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lessonlib.base.checks import Checked, a, checked, count, flag, optional, rate, wrong
from lessonlib.base.errors import MOST_TOKENS, InvalidInputError
from lessonlib.request.cost import decode_passes, prefill_passes
from lessonlib.time.deployment import PLAIN, Deployment, Efficiency
from lessonlib.time.roofline import Phase

LEAST_DIFFERENCE = 1e-3  # of the bytes that two runs read in a step: of less, a stopwatch makes anything
MOST_ALIKE = 1e6  # the condition number of the equations, above which rounding decides
LEAST_FRACTION = {"peak": 1e-3, "bandwidth": 1e-2}  # of the datasheet's that any engine reaches
BINDING = ("compute", "memory")
TRIES = 20  # of finding out which of the two binds each roof
ROUNDING = 1e-9  # relative, by which exact timings may seem faster than the datasheet

TOO_ALIKE = (
    "the runs ask too alike a mixture of compute and bytes to be told apart; time decode of small batches at two "
    "contexts, and a prefill of a long prompt."
)


class _Seconds(NamedTuple):
    """Of a run at the full peak and bandwidth, of each of its roofs; `passes` is a number."""

    computes: Any
    memories: Any
    communication: float
    passes: float

    @property
    def compute(self) -> float:
        return float(self.computes.sum())

    @property
    def memory(self) -> float:
        return float(self.memories.sum())

    def row(self, inverse_mfu: float, slower: float, overlap: bool) -> tuple[float, float, float]:
        """The factors of 1 / mfu, 1 / mbu and the overhead; with `overlap` those of what binds each roof by then."""
        if not overlap:
            return self.compute, self.memory, self.passes
        computes = self.computes * inverse_mfu > self.memories * slower
        return float(self.computes[computes].sum()), float(self.memories[~computes].sum()), self.passes


@dataclass(frozen=True)
class TimedRun(Checked):
    """`seconds` of `steps` decode steps of `batch` sequences, or of the prefill of `new` tokens in each of them.

    `cached`: tokens in each sequence before the first timed step; the answer of 1,024 -> 128 tokens is 127 steps from
    1,024 cached ones. `new`: 1 for decode; 2 or more for one prefill. The deployment says model, device and dtypes; of
    its efficiency the latencies of the link count, and `mfu` where no prefill is timed.
    """

    deployment: Deployment
    seconds: float
    cached: int = 0
    batch: int = 1
    steps: int = 1
    new: int = 1

    rules: ClassVar = {
        "deployment": PLAIN,
        "seconds": rate("seconds"),
        "cached": count(0, MOST_TOKENS),
        **dict.fromkeys(("batch", "steps", "new"), count(1, MOST_TOKENS)),
    }

    def complete(self) -> None:
        if self.new > 1 and self.steps > 1:
            raise wrong(self.owner, "steps", self.steps, f"1, as {self.new:,} new tokens are one prefill")

    @cached_property
    def at_full_rates(self) -> _Seconds:
        """The seconds of its roofs, and how many passes it has."""
        given = self.deployment.efficiency
        floor = replace(self.deployment, efficiency=replace(given, mfu=1.0, mbu=1.0, overhead=0.0))
        cached, batch = float(self.cached), float(self.batch)
        if self.new > 1:
            done = Phase(floor, prefill_passes(floor, cached + self.new, cached, batch))
        else:
            done = Phase(floor, decode_passes(floor, cached, self.steps + 1.0, batch))
        roofs = done.roofs.values()
        compute, memory = (np.array([getattr(roof, f"{name}_seconds") for roof in roofs]) for name in BINDING)
        return _Seconds(compute, memory, float(done.communication), float(done.passes))


RUN = a(TimedRun, "TimedRun(deployment, seconds=1.2, cached=1024, steps=127)")


@checked(first=RUN, second=RUN, prefill=optional(RUN), overlap=flag())
def efficiency_from_runs(
    first: TimedRun, second: TimedRun, prefill: TimedRun | None = None, overlap: bool = False
) -> Efficiency:
    """The Efficiency of one's own server or GPU, from two timings of decode and one of a prefill, for predictions.

    The decode runs differ in what a step reads: by batch, context or the bytes of the weights. It reproduces all given
    timings with compute and memory time added up or, with `overlap`, with the longer of the two: so for a CPU, whose
    ridge is a few FLOP/byte, where a step computes nearly as long as it reads. Without a prefill `mfu` is that of the
    first run's deployment, 1 unless told. Raises InvalidInputError for runs that contradict each other or the
    datasheet: equal reads, more read in less time, faster than peak or bandwidth or a hundred times slower, or contexts
    beyond the model's positions.
    """
    runs = [first, second] if prefill is None else [first, second, prefill]
    for name, run in zip(("first", "second", "prefill"), runs, strict=False):
        _require_kind(name, run, first)
    full = [run.at_full_rates for run in runs]
    reads = [of.memory / of.passes for of in full[:2]]
    if abs(reads[0] - reads[1]) <= LEAST_DIFFERENCE * max(reads):
        raise InvalidInputError(
            f"efficiency_from_runs: a step of the first run and one of the second read the same, {reads[0]:.6g} and "
            f"{reads[1]:.6g} s at the full bandwidth; time two that differ more, by batch, context or bytes."
        )
    if prefill is not None and full[2].compute <= full[2].memory:
        raise wrong("efficiency_from_runs", "prefill", prefill.new, "a prompt so long that its compute outweighs")
    rest = np.array([run.seconds - of.communication for run, of in zip(runs, full, strict=True)])
    inverse_mfu, slower, overhead = 1 / first.deployment.efficiency.mfu, 1.0, 0.0
    table = None
    for _ in range(TRIES):
        before, table = table, np.array([of.row(inverse_mfu, slower, overlap) for of in full])
        if before is not None and np.array_equal(before, table):
            break
        if prefill is None:
            slower, overhead = _solved(table[:, 1:], rest - table[:, 0] * inverse_mfu)
        else:
            inverse_mfu, slower, overhead = _solved(table, rest)
    else:
        raise InvalidInputError(f"efficiency_from_runs: {TOO_ALIKE}")
    least = min(run.seconds / of.passes for run, of in zip(runs, full, strict=True))
    return replace(
        first.deployment.efficiency,
        mfu=_fraction(inverse_mfu, "peak"),
        mbu=_fraction(slower, "bandwidth"),
        overhead=_overhead(0.0 if abs(overhead) <= ROUNDING * least else overhead),
        overlap=overlap,
    )


def _solved(table: Any, seconds: Any) -> Any:
    """1 / mfu where a prefill tells it, 1 / mbu and the overhead; InvalidInputError where the runs do not tell them."""
    scale = np.max(table, axis=0)
    if not np.all(scale) or np.linalg.cond(table / scale) > MOST_ALIKE:
        raise InvalidInputError(f"efficiency_from_runs: {TOO_ALIKE}")
    return np.linalg.solve(table / scale, seconds) / scale


def _require_kind(name: str, run: TimedRun, first: TimedRun) -> None:
    """Two of decode and one of prefill, all on the same machine."""
    if (run.new > 1) != (name == "prefill"):
        expected = "2 or more, a prefill" if name == "prefill" else "1, decode steps"
        raise wrong("efficiency_from_runs", f"{name}.new", run.new, expected)
    ours, theirs = run.deployment, first.deployment
    if (ours.accelerator, ours.devices, ours.layout) != (theirs.accelerator, theirs.devices, theirs.layout):
        raise wrong("efficiency_from_runs", f"{name}.deployment", ours, "the machine of the first run")
    positions, limit = run.cached + run.new + run.steps - 1, ours.max_positions
    if limit is not None and positions > limit:
        expected = f"at most {limit:,} tokens with those that were timed, the model's positions"
        raise wrong("efficiency_from_runs", f"{name}.cached", run.cached, expected)


def _fraction(inverse: float, what: str) -> float:
    """1 / inverse, a fraction of peak or bandwidth; InvalidInputError where that cannot be."""
    if inverse <= 0:
        raise InvalidInputError(
            f"efficiency_from_runs: the run with more to do at the {what} took less time for it; the runs contradict "
            "each other. Time both again on a quiet machine, with one engine and the same settings."
        )
    if inverse < 1 - ROUNDING:
        raise InvalidInputError(
            f"efficiency_from_runs: the runs differ as if the {what} were {1 / inverse:.3g} times the datasheet's; "
            "check seconds, steps, batch and the bytes of the weights, and whether speculation or a prefix cache is on."
        )
    if inverse > 1 / LEAST_FRACTION[what]:
        raise InvalidInputError(
            f"efficiency_from_runs: the runs differ as if the {what} were {1 / inverse:.3g} of the datasheet's, and no "
            "engine is so slow; check that seconds are seconds and not milliseconds, and that steps are all that the "
            "seconds took."
        )
    return min(1.0, 1 / float(inverse))


def _overhead(seconds: float) -> float:
    if seconds < 0:
        raise InvalidInputError(
            f"efficiency_from_runs: the overhead comes out at {seconds:.3g} s a pass, below zero; the runs contradict "
            "each other. Time both again on a quiet machine, with one engine and the same settings."
        )
    return float(seconds)
