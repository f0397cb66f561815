"""Time of work: the roofline, and the seconds of one forward pass.

    roofline(F, B) = max(F / (MFU peak), B / (MBU bandwidth))
    pass = roofline(linear) + for each kind of layer roofline(its attention) + all-reduces + overhead

One roof for each kind: layers run one after another, so a memory-bound kind cannot hide behind a compute-bound one. It
is a floor for kernels run in turn. Source: Williams, Waterman, Patterson, CACM 2009.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.errors import MOST_TOKENS, require_count, require_rate
from lessonlib.time.deployment import Deployment, require_deployment
from lessonlib.work.passes import LinearWork, Terms, attention_terms, linear_work
from lessonlib.work.sizes import FoldedModel, ScalarNamespace

Trace = Callable[[str, Any, Any, Any], None]  # (part, FLOPs, bytes, how many such roofs)


class Work:
    """FLOPs, bytes and seconds of one part."""

    __slots__ = ("bytes", "flops", "seconds")

    def __init__(self, flops: Any, bytes: Any, seconds: Any):
        self.flops = flops
        self.bytes = bytes
        self.seconds = seconds

    @property
    def intensity(self) -> Any:
        """Arithmetic intensity, FLOP/byte; NaN where no byte is moved."""
        moved = np.asarray(self.bytes, dtype=np.float64)
        ratio = np.divide(self.flops, moved, out=np.full(moved.shape, np.nan), where=moved != 0)
        return float(ratio) if ratio.ndim == 0 else ratio

    def __repr__(self) -> str:
        return f"Work(flops={self.flops!r}, bytes={self.bytes!r}, seconds={self.seconds!r})"


class PhaseNumbers(NamedTuple):
    """The numbers of a phase as they are computed: floats, or arrays of one shape."""

    linear_flops: Any
    linear_bytes: Any
    linear_seconds: Any
    attention_flops: Any
    attention_seconds: Any
    cache_read: Any
    cache_write: Any
    state_bytes: Any
    communication: Any
    passes: Any

    def seconds(self, overhead: float) -> Any:
        return self.linear_seconds + self.attention_seconds + self.communication + self.passes * overhead

    def plus(self, other: "PhaseNumbers") -> "PhaseNumbers":
        return PhaseNumbers(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, factor: Any) -> "PhaseNumbers":
        return PhaseNumbers(*(factor * mine for mine in self))


class Phase:
    """One pass, the prefill or the decode of a request. Bytes and FLOPs of all devices, seconds of the group.

    `linear`, `attention`: Work. `cache_read`, `cache_write`, `state_bytes`: the bytes of attention. `communication`,
    `overhead`: seconds. `passes`: forward passes.
    """

    __slots__ = (
        "_attention",
        "cache_read",
        "cache_write",
        "communication",
        "linear",
        "overhead",
        "passes",
        "state_bytes",
    )

    def __init__(self, numbers: PhaseNumbers, overhead: float):
        linear_flops, linear_bytes, linear_seconds, flops, seconds, read, write, state, communication, passes = numbers
        self.linear = Work(linear_flops, linear_bytes, linear_seconds)
        self._attention = (flops, seconds)
        self.cache_read = read
        self.cache_write = write
        self.state_bytes = state
        self.communication = communication
        self.passes = passes
        self.overhead = passes * overhead

    @property
    def attention(self) -> Work:
        flops, seconds = self._attention
        return Work(flops, self.cache_read + self.cache_write + self.state_bytes, seconds)

    @property
    def flops(self) -> Any:
        return self.linear.flops + self._attention[0]

    @property
    def bytes(self) -> Any:
        return self.linear.bytes + self.cache_read + self.cache_write + self.state_bytes

    @property
    def seconds(self) -> Any:
        return self.linear.seconds + self._attention[1] + self.communication + self.overhead


def roofline(flops: float, bytes: float, peak: float, bandwidth: float) -> float:
    """Seconds of work whose compute and memory traffic overlap fully: the longer of the two.

    `flops` in FLOP, `bytes` in bytes, `peak` in FLOP/s and `bandwidth` in byte/s (both already times their efficiency).
    Raises InvalidInputError for a rate that is not positive and finite, or work that is negative or no number.
    """
    work = require_rate("roofline", "flops", flops, "FLOP", zero=True)
    moved = require_rate("roofline", "bytes", bytes, "bytes", zero=True)
    rates = (
        require_rate("roofline", "peak", peak, "FLOP/s"),
        require_rate("roofline", "bandwidth", bandwidth, "byte/s"),
    )
    return float(under_roof(work, moved, *rates))


def under_roof(flops: Any, bytes: Any, peak: float, bandwidth: float, xp: Any = ScalarNamespace) -> Any:
    """`roofline` for numbers that were checked before, or arrays of them: what a request calls many times."""
    return xp.maximum(flops / peak, bytes / bandwidth)


def linear_seconds(deployment: Deployment, work: LinearWork, xp: Any, trace: Trace | None, count: Any = 1.0) -> Any:
    if trace is not None:
        trace("linear layers", work.flops, work.bytes, count)
    return under_roof(work.flops, work.bytes, deployment.peak, deployment.bandwidth, xp)


def attention_numbers(
    deployment: Deployment,
    model: FoldedModel,
    terms_of: Callable[[Any], Terms],
    xp: Any,
    trace: Trace | None,
) -> tuple[Any, Any, Any, Any, Any]:
    """(FLOPs, seconds, read, write, state) over all kinds of layer, each kind under a roof of its own."""
    flops: Any = 0.0
    seconds: Any = 0.0
    read: Any = 0.0
    write: Any = 0.0
    state: Any = 0.0
    peak, bandwidth = deployment.peak, deployment.bandwidth
    for kind in model.kinds:
        computed, fetched, stored, kept = terms_of(kind)
        moved = fetched + stored + kept
        if trace is not None:
            trace(f"{kind.layers} x {kind.label}", computed, moved, 1.0)
        seconds = seconds + xp.maximum(computed / peak, moved / bandwidth)
        flops = flops + computed
        read = read + fetched
        write = write + stored
        state = state + kept
    return flops, seconds, read, write, state


def communication_seconds(deployment: Deployment, model: FoldedModel, tokens: Any, passes: Any = 1.0) -> Any:
    """Ring all-reduces of `passes` passes over `tokens` tokens in all: bytes / link + a latency each. 0 on one device.

    Two a layer, each sending 2 (N - 1) / N b n d s bytes through the link of a device.
    """
    link = deployment.accelerator.link
    if not model.all_reduces or link is None:
        return 0.0
    latency = model.all_reduces * deployment.efficiency.all_reduce_latency
    return tokens * (model.all_reduce_bytes / link) + passes * latency


def pass_numbers(
    deployment: Deployment,
    model: FoldedModel,
    new: Any,
    cached: Any,
    batch: Any,
    logits: Any,
    xp: Any = ScalarNamespace,
    trace: Trace | None = None,
) -> PhaseNumbers:
    """One pass of `model` (the deployment's own or its draft); `logits` positions of each sequence need logits."""
    tokens = batch * new
    linear = linear_work(model, tokens, batch * logits, xp)
    flops, seconds, read, write, state = attention_numbers(
        deployment, model, lambda kind: attention_terms(kind, new, cached, batch, xp), xp, trace
    )
    return PhaseNumbers(
        linear.flops,
        linear.bytes,
        linear_seconds(deployment, linear, xp, trace),
        flops,
        seconds,
        read,
        write,
        state,
        communication_seconds(deployment, model, tokens),
        1.0,
    )


def pass_cost(deployment: Deployment, new: int, cached: int = 0, batch: int = 1, logits: int = 1) -> Phase:
    """One forward pass: `new` tokens in each of `batch` sequences, on `cached` tokens each.

    `logits`: positions of each sequence whose logits are needed, at most `new` (1 emits a token, 0 is an inner chunk).
    Memory limits and the model's positions are not checked here: it is one pass, not a request. Raises
    InvalidInputError.
    """
    require_deployment("pass_cost", deployment)
    n, c, b = (
        float(require_count("pass_cost", name, value, least, MOST_TOKENS))
        for name, value, least in (("new", new, 1), ("cached", cached, 0), ("batch", batch, 1))
    )
    positions = float(require_count("pass_cost", "logits", logits, 0, int(n)))
    return Phase(pass_numbers(deployment, deployment.folded, n, c, b, positions), deployment.efficiency.overhead)
