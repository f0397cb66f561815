"""Time of work: the roofline, and the seconds of one forward pass or many.

    roofline(F, B) = max(F / (MFU peak), B / (MBU bandwidth))
    pass = roofline(linear) + for each kind of layer roofline(its attention) + all-reduces + overhead

One roof for each kind: layers run one after another, so a memory-bound kind cannot hide behind a compute-bound one. It
is a floor for kernels run in turn. Source: Williams, Waterman, Patterson, CACM 2009.
"""

from collections.abc import Iterable
from typing import Any

from lessonlib.base.checks import checked, count, rate, wrong
from lessonlib.base.elementwise import maximum, ratio
from lessonlib.base.errors import MOST_TOKENS
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.parallel import communication_seconds
from lessonlib.work.passes import LINEAR, Passes, Work, equal_passes


@checked(flops=rate("FLOP", zero=True), bytes=rate("bytes", zero=True), peak=rate("FLOP/s"), bandwidth=rate("byte/s"))
def roofline(flops: float, bytes: float, peak: float, bandwidth: float) -> float:
    """Seconds of work whose compute and memory traffic overlap fully: the longer of the two.

    `flops` in FLOP, `bytes` in bytes, `peak` in FLOP/s and `bandwidth` in byte/s (both already times their efficiency).
    Raises InvalidInputError for a rate that is not positive and finite, or work that is negative or not finite.
    """
    return max(flops / peak, bytes / bandwidth)


class Roof:
    """Works of one part, each under the roofline, added up. Floats, or arrays of one shape.

    `flops`; `weights`, `cache_read`, `cache_write`, `state`: the bytes by what they carry, `bytes` in all; `seconds`,
    and what compute and memory would take alone. `intensity`: FLOP/byte, NaN where no byte is moved. `bounds`: which of
    "compute" and "memory" binds, both where its works differ; it is not kept of arrays.
    """

    SUMS = ("flops", "weights", "cache_read", "cache_write", "state", "seconds")
    __slots__ = ("bounds", "deployment", "part", "phase", *SUMS)

    def __init__(self, phase: str, part: str, deployment: Deployment, sums: Any = (0.0,) * 6, bounds: Any = ()):
        self.phase, self.part, self.deployment, self.bounds = phase, part, deployment, bounds
        self.flops, self.weights, self.cache_read, self.cache_write, self.state, self.seconds = sums

    def add(self, sums: Iterable[Any], bounds: tuple[str, ...] = ()) -> None:
        """Add sums of the same part. A zero adds nothing, and no array as long as the others."""
        for name, value in zip(self.SUMS, sums, strict=True):
            if type(value) is not float or value:
                setattr(self, name, getattr(self, name) + value)
        if bounds != self.bounds:
            self.bounds = tuple(sorted({*self.bounds, *bounds}))

    bytes = property(lambda self: self.weights + self.cache_read + self.cache_write + self.state)
    compute_seconds = property(lambda self: self.flops / self.deployment.peak)
    memory_seconds = property(lambda self: self.bytes / self.deployment.bandwidth)
    intensity = property(lambda self: ratio(self.flops, self.bytes))

    @property
    def bound(self) -> str:
        """ "compute" or "memory"; "both" when its works differ, "nothing" where there is no work. For plain numbers."""
        return "both" if len(self.bounds) > 1 else "".join(self.bounds) or "nothing"

    def __repr__(self) -> str:
        return f"Roof({self.part!r}, flops={self.flops!r}, bytes={self.bytes!r}, seconds={self.seconds!r})"


def under_roof(work: Work, peak: float, bandwidth: float) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """The six sums of a work that runs `times` times, each under a roof of its own, and what binds it."""
    _, flops, weights, read, write, state, times = work
    compute, memory = flops / peak, (weights + read + write + state) / bandwidth
    if type(compute) is float and type(memory) is float and type(times) is float:
        busy = compute > memory
        seconds = (compute if busy else memory) * times
        bounds = (("compute",) if busy else ("memory",)) if seconds else ()
        if times == 1:
            return (flops, weights, read, write, state, seconds), bounds
        return (flops * times, weights * times, read * times, write * times, state * times, seconds), bounds
    sums = (flops, weights, read, write, state, maximum(compute, memory))
    if type(times) is float and times == 1:
        return sums, ()
    return tuple(value * times if type(value) is not float or value else value for value in sums), ()


class Phase:
    """Passes on a machine, one after another: one of them, the prefill or the decode of a request, or of many.

    Bytes and FLOPs of all devices, seconds of the group. `roofs`: the parts by name, each under its roof; `linear` and
    `attention` (constant state included) add them up. `communication`, `overhead`: seconds. `passes`: forward passes.
    Arrays where `runs` has them; `blank` is an array of their shape, 1 where a cell counts and NaN where it does not.
    """

    __slots__ = ("_blank", "_deployment", "communication", "name", "passes", "roofs")

    def __init__(self, deployment: Deployment, runs: Iterable[Passes], name: str = "pass", blank: Any = None):
        roofs: dict[str, Roof] = {}
        peak, bandwidth = deployment.peak, deployment.bandwidth
        communication: Any = 0.0
        number: Any = 0.0
        for sizes, works, tokens, times in runs:
            for work in works:
                sums, bounds = under_roof(work, peak, bandwidth)
                part = work[0]
                if part in roofs:
                    roofs[part].add(sums, bounds)
                else:
                    roofs[part] = Roof(name, part, deployment, sums, bounds)
            if sizes.all_reduces:
                link, latency = deployment.accelerator.link, deployment.efficiency.all_reduce_latency
                communication = communication + communication_seconds(link, latency, sizes, tokens, times)
            number = number + times
        self._deployment, self._blank, self.name, self.roofs = deployment, blank, name, roofs
        self.communication = communication if blank is None else communication * blank
        self.passes = number if blank is None else number * blank

    def _sum(self, name: str) -> Any:
        total: Any = 0.0
        for roof in self.roofs.values():
            total = total + getattr(roof, name)
        return total if self._blank is None else total * self._blank

    def part(self, linear: bool) -> Roof:
        """The roofs of the linear layers added up, or those of attention and constant state."""
        found = Roof(self.name, LINEAR if linear else "attention", self._deployment)
        for name, roof in self.roofs.items():
            if name.endswith(LINEAR) == linear:
                found.add([getattr(roof, sum) for sum in Roof.SUMS], roof.bounds)
        if self._blank is not None:
            for sum in Roof.SUMS:
                setattr(found, sum, getattr(found, sum) * self._blank)
        return found

    linear = property(lambda self: self.part(True))
    attention = property(lambda self: self.part(False))
    flops = property(lambda self: self._sum("flops"))
    bytes = property(lambda self: self._sum("bytes"))
    cache_read = property(lambda self: self._sum("cache_read"))
    cache_write = property(lambda self: self._sum("cache_write"))
    state_bytes = property(lambda self: self._sum("state"))
    overhead = property(lambda self: self.passes * self._deployment.efficiency.overhead)
    seconds = property(lambda self: self._sum("seconds") + self.communication + self.overhead)


@checked(
    deployment=DEPLOYMENT,
    new=count(1, MOST_TOKENS),
    cached=count(0, MOST_TOKENS),
    batch=count(1, MOST_TOKENS),
    logits=count(0, MOST_TOKENS),
)
def pass_cost(deployment: Deployment, new: int, cached: int = 0, batch: int = 1, logits: int = 1) -> Phase:
    """One forward pass: `new` tokens in each of `batch` sequences, on `cached` tokens each.

    `logits`: positions of each sequence whose logits are needed, at most `new` (1 emits a token, 0 is an inner chunk).
    Memory limits and the model's positions are not checked here: it is one pass, not a request. Raises
    InvalidInputError.
    """
    if logits > new:
        raise wrong("pass_cost", "logits", logits, f"a whole number from 0 to {new:,}, the new tokens")
    return Phase(deployment, [equal_passes(deployment.sizes, *map(float, (new, cached, batch, logits)))])
