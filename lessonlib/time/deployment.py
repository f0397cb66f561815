"""A deployment: a model on an accelerator, in a precision, with an efficiency; and what fits in its memory.

    needed    = weights + batch x (cache and state of prompt + output tokens)
    available = memory fraction x devices x memory of a device

Memory is reserved for prompt + output tokens. Activations and the engine's own buffers live in the
rest, 10 % by default.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from lessonlib.base.errors import (
    DoesNotFitError,
    InvalidInputError,
    LessonError,
    require_count,
    require_fraction,
    require_instance,
    require_rate,
    shown,
)
from lessonlib.base.units import format_bytes
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.time.accelerator import Accelerator
from lessonlib.work.sizes import FoldedModel, ScalarNamespace, fold

MOST_DEVICES = 1024  # of one tensor-parallel group that a remedy may name


@dataclass(frozen=True)
class Efficiency:
    """How much of a datasheet a real machine gives. The defaults are the floor: all of it, and no overhead.

    `mfu`, `mbu`: fractions of peak FLOP/s and of bandwidth. `overhead`: seconds added to every forward pass.
    `all_reduce_latency`: seconds added to every all-reduce of tensor parallelism, an assumption of 10 microseconds.
    """

    mfu: float = 1.0
    mbu: float = 1.0
    overhead: float = 0.0
    all_reduce_latency: float = 10e-6

    def __post_init__(self) -> None:
        for name in ("mfu", "mbu"):
            object.__setattr__(self, name, require_fraction("Efficiency", name, getattr(self, name)))
        for name in ("overhead", "all_reduce_latency"):
            value = require_rate("Efficiency", name, getattr(self, name), "seconds", zero=True)
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Speculation:
    """Speculative decoding: `draft_tokens` g proposed a round, each accepted with probability `acceptance` a.

    A round yields E = (1 - a**(g + 1)) / (1 - a) tokens on average (g + 1 at a = 1). `draft` is the model that
    proposes, in the deployment's precision and on its devices; None means that drafts are free.
    Source: Leviathan et al., 2211.17192.
    """

    draft_tokens: int
    acceptance: float
    draft: Model | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "draft_tokens", require_count("Speculation", "draft_tokens", self.draft_tokens))
        acceptance = require_fraction("Speculation", "acceptance", self.acceptance, zero=True)
        object.__setattr__(self, "acceptance", acceptance)
        if self.draft is not None and not isinstance(self.draft, Model):
            raise InvalidInputError(
                f"Speculation: draft is {shown(self.draft)}; expected a Model, or None for free drafts."
            )

    @property
    def tokens_per_round(self) -> float:
        """E, the expected number of tokens that one verifying pass yields: 1 + a + ... + a**g."""
        idle = 1 - self.acceptance
        if not 0 < idle < 1:  # every draft accepted, or none
            return 1.0 + self.draft_tokens * (idle == 0)
        return -math.expm1((self.draft_tokens + 1) * math.log1p(-idle)) / idle


@dataclass(frozen=True)
class Deployment:
    """A model served by `devices` equal accelerators as one tensor-parallel group.

    `memory_fraction`: the share of memory that weights and cache may take. `prefill_chunk`: tokens of a prefill pass at
    most (None: the whole prompt in one). Raises for a dtype without a peak, a missing link, heads that do not divide.
    """

    model: Model
    accelerator: Accelerator
    precision: Precision = field(default_factory=Precision)
    devices: int = 1
    efficiency: Efficiency = field(default_factory=Efficiency)
    memory_fraction: float = 0.9
    prefill_chunk: int | None = None
    speculation: Speculation | None = None
    folded: FoldedModel = field(init=False, repr=False, compare=False)
    folded_draft: FoldedModel | None = field(init=False, repr=False, compare=False, default=None)
    peak: float = field(init=False, repr=False, compare=False)  # FLOP/s that all devices together give
    bandwidth: float = field(init=False, repr=False, compare=False)  # byte/s that all devices together give
    memory_available: float = field(init=False, repr=False, compare=False)  # bytes for weights and cache
    max_positions: int | None = field(init=False, repr=False, compare=False)  # of the model, and of a draft
    weight_bytes: float = field(init=False, repr=False, compare=False)  # of all weights, a draft's included

    def __post_init__(self) -> None:
        expected: tuple[tuple[str, type, str], ...] = (
            ("model", Model, "load_model('llama-3.1-8b')"),
            ("accelerator", Accelerator, "load_accelerator('h100-sxm')"),
            ("precision", Precision, "Precision('bf16')"),
            ("efficiency", Efficiency, "Efficiency(mfu=0.5, mbu=0.8)"),
        )
        for name, kind, example in expected:
            require_instance("Deployment", name, getattr(self, name), kind, example)
        if self.speculation is not None and not isinstance(self.speculation, Speculation):
            raise InvalidInputError(
                f"Deployment: speculation is {shown(self.speculation)}; expected a Speculation or None."
            )
        put = object.__setattr__
        put(self, "devices", require_count("Deployment", "devices", self.devices))
        put(self, "memory_fraction", require_fraction("Deployment", "memory_fraction", self.memory_fraction))
        if self.prefill_chunk is not None:
            put(self, "prefill_chunk", require_count("Deployment", "prefill_chunk", self.prefill_chunk))
        if self.devices > 1 and self.accelerator.link is None:
            raise InvalidInputError(
                f"Deployment: {self.accelerator.name!r} has no link figure, so the all-reduces of {self.devices} "
                "devices cannot be timed; take devices=1, or an Accelerator with link in byte/s."
            )
        peak = self.accelerator.peak(str(self.precision.compute))
        put(self, "folded", fold(self.model, self.precision, self.devices))
        if self.speculation is not None and self.speculation.draft is not None:
            put(self, "folded_draft", fold(self.speculation.draft, self.precision, self.devices))
        draft_bytes = 0.0 if self.folded_draft is None else self.folded_draft.resident_bytes
        put(self, "weight_bytes", self.folded.resident_bytes + draft_bytes)
        put(self, "memory_available", self.memory_fraction * self.devices * self.accelerator.memory)
        draft = None if self.speculation is None else self.speculation.draft
        limits = [m.max_positions for m in (self.model, draft) if m is not None and m.max_positions is not None]
        put(self, "max_positions", min(limits, default=None))
        put(self, "peak", self.devices * self.efficiency.mfu * peak)
        put(self, "bandwidth", self.devices * self.efficiency.mbu * self.accelerator.bandwidth)

    def __repr__(self) -> str:
        return (
            f"Deployment of {self.model.name!r} on {self.devices} x {self.accelerator.name!r}; {self.precision}; "
            f"{self.efficiency}; weights {format_bytes(self.weight_bytes)} of {format_bytes(self.memory_available)}"
        )

    @property
    def memory_free(self) -> float:
        """M_free: bytes left for the cache after the weights. Negative when the weights alone do not fit."""
        return self.memory_available - self.weight_bytes

    @property
    def cache_bytes_per_token(self) -> float:
        """K: bytes that one more token adds over all layers, as long as no window is full."""
        return sum(kind.cache_bytes for kind in self.folded.kinds)

    def sequence_bytes(self, tokens: Any, xp: Any = ScalarNamespace) -> Any:
        """Bytes of cache and constant state of one sequence that holds `tokens` tokens, over all devices."""
        if xp is ScalarNamespace and not (type(tokens) is float and 0 <= tokens < math.inf):
            tokens = require_rate("Deployment", "tokens", tokens, "tokens", zero=True)
        held = self.folded.sequence_bytes(tokens, xp)
        return held if self.folded_draft is None else held + self.folded_draft.sequence_bytes(tokens, xp)

    def memory_needed(self, tokens: Any, batch: Any = 1, xp: Any = ScalarNamespace) -> Any:
        """Bytes of weights and of `batch` sequences of `tokens` tokens each, over all devices."""
        if xp is ScalarNamespace and not (type(batch) is float and 0 <= batch < math.inf):
            batch = require_rate("Deployment", "batch", batch, "sequences", zero=True)
        return self.weight_bytes + batch * self.sequence_bytes(tokens, xp)

    def largest_batch(self, tokens: int) -> int:
        """The largest batch of sequences of `tokens` (prompt + output) tokens that fits; 0 when not even one does."""
        tokens = require_count("largest_batch", "tokens", tokens)
        if self.memory_free <= 0:
            return 0
        each = self.sequence_bytes(float(tokens))
        if not each:
            raise InvalidInputError(f"largest_batch: {self.model.name} keeps neither cache nor state; any batch fits.")
        batch = math.floor(self.memory_free / each)
        while self.memory_needed(float(tokens), batch + 1) <= self.memory_available:
            batch += 1
        while batch and self.memory_needed(float(tokens), batch) > self.memory_available:
            batch -= 1
        return batch

    def require_fit(self, tokens: int, batch: int = 1) -> None:
        """Raise DoesNotFitError, with the smallest changes that fit, unless `batch` sequences of `tokens` fit."""
        tokens, batch = require_count("require_fit", "tokens", tokens), require_count("require_fit", "batch", batch)
        needed = self.memory_needed(float(tokens), batch)
        if needed <= self.memory_available:
            return
        remedies = tuple(self._remedies(tokens, batch))
        nothing = "no dtype does, and there is no link figure to join more devices"
        if self.accelerator.link is not None:
            nothing = f"no dtype and no number of these devices up to {MOST_DEVICES:,} does"
        advice = "; or ".join(remedies) if remedies else nothing
        raise DoesNotFitError(
            f"{self.model.name} with {batch:,} x {tokens:,} tokens on {self.devices} x {self.accelerator.name} needs "
            f"{format_bytes(needed)} (weights {format_bytes(self.weight_bytes)}, cache "
            f"{format_bytes(needed - self.weight_bytes)}); available are {format_bytes(self.memory_available)} "
            f"({self.memory_fraction:.0%} of the memory). What would fit: {advice}.",
            needed=needed,
            available=self.memory_available,
            remedies=remedies,
        )

    def _remedies(self, tokens: int, batch: int) -> list[str]:
        """The smallest change of each kind that fits: batch, precision, devices."""
        found = []
        largest = self.largest_batch(tokens)
        if largest:
            found.append(f"batch={largest}")
        for change, words in (
            ({"cache": "fp8"}, "an fp8 cache"),
            ({"blocks": "fp8", "experts": "fp8"}, "fp8 weights"),
            ({"blocks": "int4", "experts": "int4"}, "int4 weights"),
            ({"blocks": "int4", "experts": "int4", "cache": "fp8"}, "int4 weights and an fp8 cache"),
        ):
            smaller = replace(self, precision=replace(self.precision, **change))
            if smaller.memory_needed(float(tokens), batch) <= self.memory_available:
                found.append(words)
                break
        if self.accelerator.link is not None:
            found += self._more_devices(tokens, batch, alone=not found)
        return found

    def _more_devices(self, tokens: int, batch: int, alone: bool) -> list[str]:
        """The fewest devices that hold the batch; failing that, if `alone`, the fewest that hold a smaller one."""
        each = self.memory_fraction * self.accelerator.memory
        fewest = math.ceil(self.memory_needed(float(tokens), batch) / each)  # more devices never need fewer bytes
        second: list[str] = []
        for devices in range(self.devices + 1, MOST_DEVICES + 1):
            if devices < fewest and (second or batch == 1 or not alone):
                continue
            try:
                more = replace(self, devices=devices)
            except LessonError:  # heads that do not divide over so many
                continue
            if more.memory_needed(float(tokens), batch) <= more.memory_available:
                return [f"devices={devices}"]
            if alone and not second and batch > 1 and (largest := more.largest_batch(tokens)):
                second.append(f"devices={devices} with batch={largest}")
        return second


def require_deployment(owner: str, deployment: Any) -> None:
    """InvalidInputError unless `deployment` is a Deployment."""
    require_instance(owner, "deployment", deployment, Deployment, "Deployment(model, accelerator)")
