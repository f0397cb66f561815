"""Mixers: the part of a block that carries information between tokens, and what each kind keeps and computes.

Each kind is a small frozen dataclass that answers the same questions, for one layer and one sequence:

    matmul_weights    weights that one token meets in matrix products (2 FLOP each)
    other_weights     biases, norms, sinks, short convolutions: read, only added or scaled
    cache_elements    numbers kept for each token: the KV cache's growth
    span, span_sum    keys that a token attends to, itself included, and their sum over many tokens
    read, read_sum    cached tokens that a pass reads, and their sum over decode steps
    held              tokens that a sequence keeps of those it has seen
    fills_at          tokens up to which all are attended to and held, and after which both stay the same
    pair_flops        FLOP for one (query, key) pair on cached tokens
    fresh_pair_flops  the same when nothing is cached (it differs for MLA only)
    expand_flops      FLOP to re-project one cached token, where that is a choice (MLA only)
    copied_weights    matrix weights that tensor parallelism holds more than once
    state_elements    numbers of constant state; conv_elements those of its convolution, in the compute dtype
    token_flops       FLOP for one token that do not depend on its context (constant state only)
    in_turn           what runs one after another in such a layer, each under a roof of its own: most often itself alone
    stretches         decode steps cut where FLOPs and bytes of a step change their proportion: most often not at all

A new architecture is a new class here, never another `if` elsewhere.

Sources: Vaswani et al. 2017 (arXiv 1706.03762) for attention; Ainslie et al. 2023 (2305.13245) for GQA; DeepSeek-AI
2024 (2405.04434) for MLA.
"""

# A kind derives what the base gives as a plain zero; nobody can write to either, for the classes are frozen.
# mypy: disable-error-code="override,assignment"

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lessonlib.base.checks import wrong
from lessonlib.base.elementwise import floor, maximum, minimum
from lessonlib.model.part import Part


class Mixer(Part):
    """The questions every mixer answers. A kind overrides what it has; a count that it does not give is zero."""

    heads: int
    label: str  # a few words for tables and figures, such as "GQA, window 128"
    note: str = ""  # what its law takes for granted, a sentence

    cache_elements = pair_flops = expand_flops = state_elements = conv_elements = token_flops = 0
    # Infinity: a sequence never stops growing. None: the law has another form, and is known by asking alone.
    fills_at: float | None = None
    copied_whole = False  # whether each device of a tensor-parallel group does all of its work
    cache_part = "cache"  # the part of a Precision that says the dtype of what is cached
    state_dtype: str | None = None  # of the constant state, where the model's config says it
    period: int | None = None  # tokens after which its law begins anew, or at whose multiples alone it never falls

    @property
    def in_turn(self) -> "tuple[Mixer, ...]":
        return (self,)

    @cached_property
    def fresh_pair_flops(self) -> int:
        return self.pair_flops

    def span(self, position: Any) -> Any:
        """Keys that the token at `position` attends to; 1 is the first token, which sees itself."""
        return self.span_sum(position - 1, 1)

    def span_sum(self, cached: Any, new: Any) -> Any:
        """Keys that `new` tokens after `cached` ones attend to in all: the sum of their spans. Here each sees all."""
        return new * cached + new * (new + 1) / 2

    def read(self, cached: Any, new: Any) -> Any:
        """Cached tokens that one pass of `new` tokens reads when `cached` are there."""
        return cached

    def read_sum(self, cached: Any, steps: Any, spans: Any) -> Any:
        """Cached tokens that `steps` decode steps read in all, the first with `cached` there: the law's `read`, summed.

        `spans` is their `span_sum`. Here a step reads its span, all but the token itself.
        """
        return spans - steps

    def stretches(self, cached: Any, steps: Any) -> tuple[tuple[Any, Any], ...]:
        """((tokens that the first step finds cached, steps), ...): in each, FLOPs and bytes keep their proportion."""
        return ((cached, steps),)

    def held(self, tokens: Any) -> Any:
        """Tokens that a sequence of `tokens` tokens keeps; it never falls as a sequence grows."""
        return tokens

    def cache_copies(self, devices: int) -> float:
        """Copies of each cached token over all `devices` of a tensor-parallel group: 1 when it is shared out.

        Raises InvalidInputError when the heads cannot be divided.
        """
        if self.heads % devices:
            raise wrong(self.owner, "devices", devices, f"a number that divides its {self.heads} heads")
        return 1.0

    def copied_weights(self, devices: int) -> float:
        """Matrix weights that a tensor-parallel group of `devices` holds beyond one copy of each."""
        return 0.0


def below(limit: int, cached: Any, new: Any) -> Any:
    """How many of `new` tokens after `cached` ones have a span below or at `limit` because no more tokens are there."""
    return minimum(maximum(floor(limit - cached), 0.0), new)


def spans_up_to(limit: int, cached: Any, new: Any) -> Any:
    """The sum of min(cached + i, limit) over i = 1 .. new: tokens that see all before them, then full spans."""
    if type(cached) is float and cached >= limit:  # the usual decode step, and the fast one
        return new * limit
    growing = below(limit, cached, new)
    return growing * cached + growing * (growing + 1) / 2 + (new - growing) * limit


class Followed(Mixer):
    """A mixer after which another runs in the same layer, under a roof of its own; its weights are the layer's, too."""

    @property
    def follower(self) -> Mixer | None:
        return None

    @cached_property
    def in_turn(self) -> tuple[Mixer, ...]:
        return (self,) if self.follower is None else (self, self.follower)

    @cached_property
    def matmul_weights(self) -> int:
        return super().matmul_weights + (0 if self.follower is None else self.follower.matmul_weights)

    @cached_property
    def parameters(self) -> int:
        return super().parameters + (0 if self.follower is None else self.follower.other_weights)

    def copied_weights(self, devices: int) -> float:
        more = 0.0 if self.follower is None else self.follower.copied_weights(devices)
        return super().copied_weights(devices) + more


class Windowed(Mixer):
    """The law of all tokens, or of a window that slides: it counts the token itself, so a step reads window - 1."""

    window: int | None

    def span_sum(self, cached: Any, new: Any) -> Any:
        return super().span_sum(cached, new) if self.window is None else spans_up_to(self.window, cached, new)

    def read(self, cached: Any, new: Any) -> Any:
        return cached if self.window is None else minimum(cached, self.window - 1.0)

    def held(self, tokens: Any) -> Any:
        return tokens if self.window is None else minimum(tokens, float(self.window))

    @cached_property
    def fills_at(self) -> float:
        return math.inf if self.window is None else self.window

    def windowed(self, kind: str) -> str:
        return kind if self.window is None else f"{kind}, window {self.window:,}"


@dataclass(frozen=True, kw_only=True)
class GroupedQueryAttention(Windowed):
    """Softmax attention with `kv_heads` shared by `heads`: MHA (equal), GQA (fewer) or MQA (one), full or sliding.

    `value_dim` is `head_dim` unless
    given; `gate_outputs` is the width of an output gate; `other_weights` holds biases, per-head norms and sinks. With
    `values_are_keys` one projection makes both (Gemma 4).

    FLOP a pair: 2 h (d_k + d_v), which is 4 h d_h when they are equal. Cache a token: h_kv (d_k + d_v) elements.
    """

    width: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int | None = None
    window: int | None = None
    gate_outputs: int = 0
    other_weights: int = 0
    values_are_keys: bool = False

    def complete(self) -> None:
        if self.heads % self.kv_heads:
            raise wrong(self.owner, "heads", self.heads, f"a multiple of its kv_heads, {self.kv_heads}")

    @cached_property
    def label(self) -> str:
        kind = "MHA" if self.kv_heads == self.heads else "MQA" if self.kv_heads == 1 else "GQA"
        return self.windowed(kind)

    @property
    def key_and_value_dim(self) -> int:
        return self.head_dim + (self.head_dim if self.value_dim is None else self.value_dim)

    @cached_property
    def matmul_weights(self) -> int:
        query_and_output = self.heads * self.key_and_value_dim
        return self.width * (query_and_output + self.projected + self.gate_outputs)

    @property
    def projected(self) -> int:
        """Outputs of W_k and W_v for a token."""
        return self.kv_heads * (self.head_dim if self.values_are_keys else self.key_and_value_dim)

    @cached_property
    def cache_elements(self) -> int:
        return self.kv_heads * self.key_and_value_dim

    @cached_property
    def pair_flops(self) -> int:
        return 2 * self.heads * self.key_and_value_dim

    def cache_copies(self, devices: int) -> float:
        super().cache_copies(devices)
        if self.kv_heads % devices and devices % self.kv_heads:
            expected = f"a number that divides its {self.kv_heads} KV heads, or a multiple of them"
            raise wrong(self.owner, "devices", devices, expected)
        return max(1.0, devices / self.kv_heads)

    def copied_weights(self, devices: int) -> float:
        """W_k and W_v of the KV heads that several devices have."""
        return (self.cache_copies(devices) - 1) * self.width * self.projected


@dataclass(frozen=True, kw_only=True)
class SharedCacheAttention(GroupedQueryAttention):
    """Attention to the keys and values that a layer before has cached (Gemma 3n): no W_k, no W_v, no cache of its own.

        held = 0; a pass reads what the other layer has cached, and the n tokens that it has just written

    `cache_elements` are those of the other layer, so that `read` and the n new ones are counted in them.
    """

    fills_at, projected = None, 0

    @cached_property
    def label(self) -> str:
        return f"{super().label}, shared cache"

    @property
    def note(self) -> str:
        return "Shared cache: some layers read the keys and values of another one, and keep none of their own."

    def held(self, tokens: Any) -> Any:
        return 0.0 * tokens


@dataclass(frozen=True, kw_only=True)
class ChunkedAttention(GroupedQueryAttention):
    """Attention within chunks of `chunk` tokens (Llama 4): each chunk begins anew, so the span is a sawtooth.

        span(p) = ((p - 1) mod chunk) + 1, so a step reads c mod chunk cached tokens

    Memory is that of a full chunk: what a chunk leaves at its end is kept for the next one.
    """

    chunk: int

    fills_at = None

    @property
    def period(self) -> int:
        return self.chunk

    def complete(self) -> None:
        super().complete()
        if self.window is not None:
            raise wrong(self.owner, "window", self.window, "None: a chunked layer has no sliding window")

    @cached_property
    def label(self) -> str:
        return f"{super().label}, chunk {self.chunk:,}"

    @property
    def note(self) -> str:
        return (
            f"Chunked attention: a token attends within its chunk of {self.chunk:,}; memory is that of a whole chunk."
        )

    def span_sum(self, cached: Any, new: Any) -> Any:
        """From the chunk's beginning on: whole chunks and the rest, less what was there before."""
        before = cached % self.chunk
        whole, rest = floor((before + new) / self.chunk), (before + new) % self.chunk
        total = whole * (self.chunk * (self.chunk + 1) / 2) + rest * (rest + 1) / 2
        return total - before * (before + 1) / 2

    def read(self, cached: Any, new: Any) -> Any:
        return cached % self.chunk

    def held(self, tokens: Any) -> Any:
        return minimum(tokens, float(self.chunk))


@dataclass(frozen=True, kw_only=True)
class MultiHeadLatentAttention(Windowed):
    """MLA: one latent of `kv_rank` and one rotary key of `rope_dim` are cached for all heads together.

    `gate_outputs` is the width of an output gate.

    On cached tokens the projections are absorbed into query and output, (2 h (r_kv + d_rope) + 2 h r_kv) FLOP a pair; a
    prompt with nothing cached is expanded to plain heads, (2 h (d_nope + d_rope) + 2 h d_v). Expanding cached latents
    costs 2 r_kv h (d_nope + d_v) a token. `query_rank` None is a plain query. Source: DeepSeek-V2, arXiv 2405.04434.
    """

    width: int
    heads: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    query_rank: int | None = None
    gate_outputs: int = 0
    other_weights: int = 0
    window: int | None = None

    @cached_property
    def label(self) -> str:
        return self.windowed("MLA")

    @cached_property
    def matmul_weights(self) -> int:
        query_dim, rank = self.heads * (self.nope_dim + self.rope_dim), self.query_rank
        query = self.width * query_dim if rank is None else self.width * rank + rank * query_dim
        latent = self.width * self.cache_elements + self.kv_rank * self.heads * (self.nope_dim + self.value_dim)
        return query + latent + (self.heads * self.value_dim + self.gate_outputs) * self.width

    @cached_property
    def cache_elements(self) -> int:
        return self.kv_rank + self.rope_dim

    @cached_property
    def pair_flops(self) -> int:
        return 2 * self.heads * (self.kv_rank + self.rope_dim) + 2 * self.heads * self.kv_rank

    @cached_property
    def fresh_pair_flops(self) -> int:
        return 2 * self.heads * (self.nope_dim + self.rope_dim) + 2 * self.heads * self.value_dim

    @cached_property
    def expand_flops(self) -> int:
        return 2 * self.kv_rank * self.heads * (self.nope_dim + self.value_dim)

    def cache_copies(self, devices: int) -> float:
        super().cache_copies(devices)
        return float(devices)  # the latent belongs to all heads, so every device holds it whole

    def copied_weights(self, devices: int) -> float:
        """The down-projections, of the latent that all heads share and of the query's."""
        return (devices - 1.0) * self.width * (self.cache_elements + (self.query_rank or 0))
