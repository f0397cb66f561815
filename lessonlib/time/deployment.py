"""A deployment: a model on an accelerator, in a precision, with an efficiency; all that a price needs to know."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from lessonlib.base.checks import (
    REFUSED,
    Checked,
    Rule,
    a,
    choice,
    count,
    delay,
    flag,
    fraction,
    optional,
    physical,
    rate,
    reached,
    wrong,
)
from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.base.units import format_bytes
from lessonlib.model.draft import FREE_DRAFTS, DraftHead
from lessonlib.model.model import Model
from lessonlib.model.precision import BLOCKS, KERNELS, Precision
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.memory import largest_batch, require_fit
from lessonlib.work.layouts import EXPERT, LAYOUTS, TENSOR
from lessonlib.work.passes import seats
from lessonlib.work.sizes import ModelSizes, draft_sizes_of, sizes_of

LATENCIES = {TENSOR: "all_reduce_latency", EXPERT: "all_to_all_latency"}  # of an Efficiency, by layout
TOKENS, SEQUENCES = rate("tokens", zero=True), rate("sequences", zero=True)


@dataclass(frozen=True)
class Efficiency(Checked):
    """How much of a datasheet a real machine gives. The defaults are the floor: all of it, and no overhead.

    `mfu`, `mbu`: fractions of peak FLOP/s and of bandwidth. `overhead`: seconds added to every forward pass. `overlap`:
    compute and memory traffic of a kernel overlap fully, so the longer counts; False adds them up, for predictions.
    `all_reduce_latency`: seconds added to every all-reduce of tensor parallelism; 10 microseconds are assumed.
    `all_to_all_latency`: seconds added to every all-to-all of expert parallelism; 5 microseconds, for it has no ring.
    """

    mfu: float = 1.0
    mbu: float = 1.0
    overhead: float = 0.0
    overlap: bool = True
    all_reduce_latency: float = 10e-6
    all_to_all_latency: float = 5e-6

    rules: ClassVar[Mapping[str, Rule]] = {
        "mfu": reached(),
        "mbu": reached(),
        "overhead": delay(),
        "overlap": flag(),
        "all_reduce_latency": delay(),
        "all_to_all_latency": delay(),
    }


@dataclass(frozen=True)
class Speculation(Checked):
    """Speculative decoding: a round proposes `draft_tokens` g, each accepted with probability `acceptance` a.

    A round yields E = (1 - a**(g + 1)) / (1 - a) tokens on average (g + 1 at a = 1). `draft`: the model or head that
    proposes, in the deployment's precision and on its devices: it prefills the prompt too, and its weights and cache
    lie in memory. "free" stands for drafts that cost nothing, a limit. Source: Leviathan et al., arXiv 2211.17192.
    """

    draft_tokens: int
    acceptance: float
    draft: Model | DraftHead | str | None = None  # None is refused: a draft is never free without a word

    rules: ClassVar[Mapping[str, Rule]] = {
        "draft_tokens": count(),
        "acceptance": fraction(zero=True),
        "draft": Rule(
            "a Model, a head such as DraftHead.mtp(model), or 'free', the limit of drafts that cost nothing",
            lambda value: (
                value
                if isinstance(value, Model | DraftHead) or (type(value) is str and value == FREE_DRAFTS)
                else REFUSED
            ),
        ),
    }

    @property
    def drafter(self) -> Model | DraftHead | None:
        """What proposes, where that takes time; None for free drafts."""
        return None if self.draft is None or isinstance(self.draft, str) else self.draft

    @property
    def tokens_per_round(self) -> float:
        """E, the expected number of tokens that one verifying pass yields: 1 + a + ... + a**g."""
        idle = 1 - self.acceptance
        if not 0 < idle < 1:  # every draft accepted, or none
            return 1.0 + self.draft_tokens * (idle == 0)
        return -math.expm1((self.draft_tokens + 1) * math.log1p(-idle)) / idle


@dataclass(frozen=True)
class Deployment(Checked):
    """A model served by `devices` equal accelerators as one group.

    `layout`: "tensor" for tensor parallelism, "expert" for data-parallel attention with expert parallelism
    (work/layouts.py). `link`: byte/s from a device to the others, one way; None takes the accelerator's.
    `memory_fraction`: the share of memory that weights and cache may take. `prefill_chunk`: tokens of a prefill pass at
    most (None: the whole prompt in one). Raises UnknownNameError for a dtype without a peak, InvalidInputError for a
    missing link and for heads that cannot be divided.
    """

    model: Model
    accelerator: Accelerator
    precision: Precision = field(default_factory=Precision)
    devices: int = 1
    layout: str = TENSOR
    link: float | None = None
    efficiency: Efficiency = field(default_factory=Efficiency)
    memory_fraction: float = 0.9
    prefill_chunk: int | None = None
    speculation: Speculation | None = None
    link_rate: float | None = field(init=False, repr=False, compare=False)  # byte/s of a device, one way
    collective_latency: float = field(init=False, repr=False, compare=False)  # seconds, whatever is sent
    sizes: ModelSizes = field(init=False, repr=False, compare=False)
    draft_sizes: ModelSizes | None = field(init=False, repr=False, compare=False, default=None)
    dtypes: Mapping[str, str] = field(init=False, repr=False, compare=False)  # of each kernel, what it multiplies in
    peaks: Mapping[str, float] = field(init=False, repr=False, compare=False)  # of each, FLOP/s of all devices together
    bandwidth: float = field(init=False, repr=False, compare=False)  # byte/s that all devices together give
    memory_available: float = field(init=False, repr=False, compare=False)  # bytes for weights and cache
    max_positions: int | None = field(init=False, repr=False, compare=False)  # of the model, or of a draft with fewer
    limited_by: str = field(init=False, repr=False, compare=False)  # the name of the one that these positions are of
    weight_bytes: float = field(init=False, repr=False, compare=False)  # of all weights, a draft's included

    rules: ClassVar[Mapping[str, Rule]] = {
        "model": a(Model, "load_model('llama-3.1-8b')"),
        "accelerator": a(Accelerator, "load_accelerator('h100-sxm')"),
        "precision": a(Precision, "Precision('bf16')"),
        "devices": count(),
        "layout": choice(LAYOUTS),
        "link": optional(physical("byte/s")),
        "efficiency": a(Efficiency, "Efficiency(mfu=0.5, mbu=0.8)"),
        "memory_fraction": fraction(),
        "prefill_chunk": optional(count()),
        "speculation": optional(a(Speculation, "Speculation(draft_tokens=4, acceptance=0.7)")),
    }

    def complete(self) -> None:
        put = object.__setattr__
        put(self, "collective_latency", getattr(self.efficiency, LATENCIES[self.layout]))
        put(self, "link_rate", self.accelerator.link if self.link is None else self.link)
        if self.devices > 1 and self.link_rate is None:
            raise InvalidInputError(
                f"Deployment: {self.accelerator.name!r} has no link figure, so what {self.devices} devices send cannot "
                "be timed; give link= in byte/s one way, or take devices=1."
            )
        peaks = self.accelerator.peaks
        put(self, "dtypes", {kernel: self.precision.operand(kernel, peaks) for kernel in KERNELS})
        rate = self.devices * self.efficiency.mfu
        put(self, "peaks", {kernel: rate * self.accelerator.peak(dtype) for kernel, dtype in self.dtypes.items()})
        put(self, "sizes", sizes_of(self.model, self.precision, self.devices, self.layout))
        draft = None if self.speculation is None else self.speculation.drafter
        if draft is not None:
            _require_match(draft, self.model)
            put(self, "draft_sizes", draft_sizes_of(draft, self.precision, self.devices, self.layout))
        draft_bytes = 0.0 if self.draft_sizes is None else self.draft_sizes.resident_bytes
        put(self, "weight_bytes", self.sizes.resident_bytes + draft_bytes)
        put(self, "memory_available", self.memory_fraction * self.devices * self.accelerator.memory)
        most, limited_by = _positions(self.model, draft)
        put(self, "max_positions", most)
        put(self, "limited_by", limited_by)
        put(self, "bandwidth", self.devices * self.efficiency.mbu * self.accelerator.bandwidth)

    @property
    def layout_in_words(self) -> str:
        """ " (tensor parallelism)" or the other, "" for one device."""
        return "" if self.devices == 1 else f" ({LAYOUTS[self.layout]})"

    def __repr__(self) -> str:
        return (
            f"Deployment of {self.model.name!r} on {self.devices} x {self.accelerator.name!r}{self.layout_in_words}; "
            f"{self.precision}; "
            f"{self.efficiency}; weights {format_bytes(self.weight_bytes)} of {format_bytes(self.memory_available)}"
        )

    @property
    def peak(self) -> float:
        """FLOP/s of the dense linear layers, all devices together; `peaks` has those of the other kernels."""
        return self.peaks[BLOCKS]

    @property
    def memory_free(self) -> float:
        """M_free: bytes left for the cache after the weights. Negative when the weights alone do not fit."""
        return self.memory_available - self.weight_bytes

    @property
    def cache_bytes_per_token(self) -> float:
        """K: bytes that one more token adds over all layers, as long as each of them keeps every token."""
        return sum(kind.cache_bytes for kind in self.sizes.kinds)

    def sequence_bytes(self, tokens: Any) -> Any:
        """Bytes of cache and constant state of one sequence that holds `tokens` tokens, over all devices."""
        if not isinstance(tokens, np.ndarray) and not (type(tokens) is float and 0 <= tokens < math.inf):
            tokens = TOKENS("Deployment", "tokens", tokens)
        held = self.sizes.sequence_bytes(tokens)
        return held if self.draft_sizes is None else held + self.draft_sizes.sequence_bytes(tokens)

    def memory_needed(self, tokens: Any, batch: Any = 1) -> Any:
        """Bytes of weights and of `batch` sequences of `tokens` tokens each, over all devices.

        Where each device serves sequences of its own, what the fullest needs times the devices.
        """
        if not isinstance(batch, np.ndarray) and not (type(batch) is float and 0 <= batch < math.inf):
            batch = SEQUENCES("Deployment", "batch", batch)
        held = batch if self.sizes.replicas == 1 else seats(self.sizes, batch)
        return self.weight_bytes + held * self.sequence_bytes(tokens)

    largest_batch = largest_batch
    require_fit = require_fit


def _positions(model: Model, draft: Model | DraftHead | None) -> tuple[int | None, str]:
    """The fewest positions of a model and its draft, None where neither states any; and the name of which they are."""
    both = {model.name: model.max_positions}
    if draft is not None:
        both[f"its draft {draft.name}"] = draft.max_positions
    limits = {name: most for name, most in both.items() if most is not None}
    return min(limits.values(), default=None), min(limits, key=limits.__getitem__, default=model.name)


def _require_match(draft: Model | DraftHead, model: Model) -> None:
    """InvalidInputError where a head does not read what the model writes."""
    if isinstance(draft, Model):
        return
    for name in ("width", "vocabulary") if draft.shares_head else ("width",):
        ours, theirs = getattr(draft.body, name), getattr(model, name)
        if ours != theirs:
            raise wrong(f"DraftHead {shown(draft.name)}", name, ours, f"that of its target {model.name}, {theirs:,}")


DEPLOYMENT = a(Deployment, "Deployment(model, accelerator)")  # the rule of every function that is given one
EFFICIENCY = a(Efficiency, "Efficiency(mfu=0.5, mbu=0.8)")
PLAIN = Rule(
    "a Deployment without speculation, as a step here emits one token; request_cost prices speculation",
    lambda value: value if isinstance(value, Deployment) and value.speculation is None else REFUSED,
)
