"""Time of work: the roofline, and the seconds of one forward pass or many.

    roofline(F, B) = max(F / (MFU peak), B / (MBU bandwidth))
    pass = roofline(dense linear layers) + roofline(routed experts) + roofline(LM head)
           + for each kind of layer roofline(its attention) + all-reduces + overhead

Each roof has the peak of the dtype that its kernel multiplies in. Kernels run one after another, so a memory-bound one
cannot hide behind a compute-bound one: it is a floor for kernels run in turn. With `Efficiency(overlap=False)` compute
and memory time of a kernel are added up, which predicts better and bounds nothing. Source: Williams, Waterman,
Patterson, CACM 2009.
"""

from collections.abc import Iterable
from typing import Any

from lessonlib.base.checks import checked, count, rate, wrong
from lessonlib.base.elementwise import maximum, ratio
from lessonlib.base.errors import MOST_TOKENS
from lessonlib.model.precision import ATTENTION, BLOCKS, EXPERTS
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.parallel import communication_seconds
from lessonlib.work.passes import Passes, Work, equal_passes


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
    and what compute and memory would take alone. `kernel`: what decides its peak. `intensity`: FLOP/byte, NaN where no
    byte is moved. `bounds`: which of "compute" and "memory" binds, both where its works differ; it is not kept of
    arrays.
    """

    SUMS = ("flops", "weights", "cache_read", "cache_write", "state", "compute_seconds", "memory_seconds", "seconds")
    __slots__ = ("bounds", "kernel", "part", "phase", *SUMS)

    def __init__(self, phase: str, part: str, kernel: str):
        self.phase, self.part, self.kernel = phase, part, kernel
        self.bounds: tuple[str, ...] = ()
        nothing: Any = 0.0
        self.flops = self.weights = self.cache_read = self.cache_write = self.state = nothing
        self.compute_seconds = self.memory_seconds = self.seconds = nothing

    def add(self, sums: Iterable[Any], bounds: tuple[str, ...] = ()) -> None:
        """Add sums of the same part. A zero adds nothing, and no array as long as the others."""
        for name, value in zip(self.SUMS, sums, strict=True):
            if type(value) is not float or value:
                setattr(self, name, getattr(self, name) + value)
        if bounds != self.bounds:
            self.bounds = tuple(sorted({*self.bounds, *bounds}))

    bytes = property(lambda self: self.weights + self.cache_read + self.cache_write + self.state)
    intensity = property(lambda self: ratio(self.flops, self.bytes))

    @property
    def bound(self) -> str:
        """ "compute" or "memory"; "both" when its works differ, "nothing" where there is no work. For plain numbers."""
        return "both" if len(self.bounds) > 1 else "".join(self.bounds) or "nothing"

    def __repr__(self) -> str:
        return f"Roof({self.part!r}, flops={self.flops!r}, bytes={self.bytes!r}, seconds={self.seconds!r})"


def under_roof(work: Work, deployment: Deployment, done: Any = 1.0) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """The sums of a work that runs `times` times, each under a roof of its own, as in Roof.SUMS; and what binds it.

    `done`: the share of its FLOPs, cache and state that is done, where devices less full wait for the fullest.
    """
    _, kernel, flops, weights, read, write, state, times = work
    compute, memory = flops / deployment.peaks[kernel], (weights + read + write + state) / deployment.bandwidth
    seconds = maximum(compute, memory) if deployment.efficiency.overlap else compute + memory
    bounds: tuple[str, ...] = ()
    if type(seconds) is float and type(times) is float and seconds * times:
        bounds = ("compute",) if compute > memory else ("memory",)
    if kernel != EXPERTS and (type(done) is not float or done != 1):
        flops, read, write, state = flops * done, read * done, write * done, state * done
    sums = (flops, weights, read, write, state, compute, memory, seconds)
    if type(times) is float and times == 1:
        return sums, bounds
    return tuple(value * times if type(value) is not float or value else value for value in sums), bounds


def sums_of(deployment: Deployment, runs: Iterable[Passes], take: Any = None) -> tuple[Any, Any, Any]:
    """Of passes one after another: seconds of their kernels, seconds of what devices send, and how many passes.

    `take` is called with each of `runs`.
    """
    peaks, bandwidth, overlap = deployment.peaks, deployment.bandwidth, deployment.efficiency.overlap
    busy: Any = 0.0
    communication: Any = 0.0
    number: Any = 0.0
    for run in runs:
        sizes, works, tokens, times, _ = run
        for _, kernel, flops, weights, read, write, state, repeats in works:
            compute, memory = flops / peaks[kernel], (weights + read + write + state) / bandwidth
            if not overlap:
                seconds = compute + memory
            elif type(compute) is type(memory) is float:
                seconds = compute if compute > memory else memory
            else:
                seconds = maximum(compute, memory)
            busy = busy + (seconds if type(repeats) is float and repeats == 1 else repeats * seconds)
        if take is not None:
            take(run)
        if sizes.collectives:
            link, latency = deployment.link_rate, deployment.collective_latency
            communication = communication + communication_seconds(link, latency, sizes, tokens, times)
        number = number + times
    return busy, communication, number


class Phase:
    """Passes on a machine, one after another: one of them, the prefill or the decode of a request, or of many.

    Bytes and FLOPs of all devices, seconds of the group. `roofs`: the parts by name, each under its roof; `linear` (the
    routed experts and the LM head included) and `attention` (constant state included) add them up. `communication`,
    `overhead`: seconds. `passes`: forward passes. Arrays where `runs` has them; `blank` is an array of their shape, 1
    where a cell counts and NaN where it does not. Where their `sums` are known, `runs` may be what makes the passes.
    """

    __slots__ = ("_blank", "_busy", "_deployment", "_roofs", "_runs", "communication", "name", "passes")

    def __init__(self, deployment: Deployment, runs: Any, name: str = "pass", blank: Any = None, sums: Any = None):
        self._deployment, self._blank, self.name = deployment, blank, name
        self._roofs: dict[str, Roof] = {}
        # A list, or what makes one, waits until a roof is asked for.
        self._runs: Any = runs if type(runs) is list or sums is not None else None
        if sums is None:
            sums = sums_of(deployment, runs, None if self._runs is runs else self._take)
            if blank is not None:
                sums = [value * blank for value in sums]
        self._busy, self.communication, self.passes = sums

    def _take(self, run: Passes) -> None:
        for work in run.works:
            if work.part not in self._roofs:
                self._roofs[work.part] = Roof(self.name, work.part, work.kernel)
            self._roofs[work.part].add(*under_roof(work, self._deployment, run.done))

    @property
    def roofs(self) -> dict[str, Roof]:
        if self._runs is not None:
            for run in self._runs() if callable(self._runs) else self._runs:
                self._take(run)
            self._runs = None
        return self._roofs

    def _sum(self, name: str) -> Any:
        total: Any = 0.0
        for roof in self.roofs.values():
            total = total + getattr(roof, name)
        return total if self._blank is None else total * self._blank

    def part(self, linear: bool) -> Roof:
        """The roofs of the linear layers added up, or those of attention and constant state."""
        found = Roof(self.name, *(("linear layers", BLOCKS) if linear else ("attention", ATTENTION)))
        for roof in self.roofs.values():
            if (roof.kernel == ATTENTION) != linear:
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
    seconds = property(lambda self: self._busy + self.communication + self.overhead)


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
