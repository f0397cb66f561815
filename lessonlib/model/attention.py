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
    state_elements    numbers of constant state, fp32 as engines keep it; conv_elements in the compute dtype
    token_flops       FLOP for one token that do not depend on its context (constant state only)

A new architecture is a new class here, never another `if` elsewhere.

Sources: Vaswani et al. 2017 (arXiv 1706.03762) for attention; Ainslie et al. 2023 (2305.13245) for GQA; DeepSeek-AI
2024 (2405.04434) for MLA; Yang et al. 2024 (2412.06464) for the gated delta rule; Dao and Gu 2024 (2405.21060) for
Mamba-2.
"""

import math
from dataclasses import dataclass
from typing import Any

from lessonlib.base.elementwise import floor, maximum, minimum
from lessonlib.base.errors import InvalidInputError
from lessonlib.model.part import Part


class Mixer(Part):
    """The questions every mixer answers. A kind overrides what it has; the rest is none."""

    heads: int

    @property
    def label(self) -> str:
        """A few words for tables and figures, such as "sliding attention, window 128"."""
        raise NotImplementedError

    @property
    def cache_elements(self) -> int:
        return 0

    def span_sum(self, cached: Any, new: Any) -> Any:
        """Keys that `new` tokens after `cached` ones attend to in all: the sum of their spans. Here each sees all."""
        return new * cached + new * (new + 1) / 2

    def read(self, cached: Any, new: Any) -> Any:
        """Cached tokens that one pass of `new` tokens reads when `cached` are there."""
        return cached

    def held(self, tokens: Any) -> Any:
        """Tokens that a sequence of `tokens` tokens keeps; it never falls as a sequence grows."""
        return tokens

    @property
    def fills_at(self) -> float | None:
        """Tokens up to which each attends to all before it and all are kept; beyond, span and held stay the same.

        A step reads its span, all but the token itself. Infinity: a sequence never stops growing. None: the law has
        another form, and is known by asking alone.
        """
        return None

    def span(self, position: Any) -> Any:
        """Keys that the token at `position` attends to; 1 is the first token, which sees itself."""
        return self.span_sum(position - 1, 1)

    def read_sum(self, cached: Any, steps: Any) -> Any:
        """Cached tokens that `steps` decode steps read in all, the first with `cached` there: the law's `read`, summed.

        Here a step reads its span, all but the token itself.
        """
        return self.span_sum(cached, steps) - steps

    @property
    def pair_flops(self) -> int:
        return 0

    @property
    def fresh_pair_flops(self) -> int:
        return self.pair_flops

    @property
    def expand_flops(self) -> int:
        return 0

    @property
    def state_elements(self) -> int:
        return 0

    @property
    def conv_elements(self) -> int:
        return 0

    @property
    def token_flops(self) -> int:
        return 0

    def cache_copies(self, devices: int) -> float:
        """Copies of each cached token over all `devices` of a tensor-parallel group: 1 when it is shared out.

        Raises InvalidInputError when the heads cannot be divided.
        """
        if self.heads % devices:
            raise InvalidInputError(
                f"{self.name}: {self.heads} heads cannot be divided over {devices} devices; "
                f"take a number of devices that divides {self.heads}."
            )
        return 1.0


@dataclass(frozen=True, kw_only=True)
class GroupedQueryAttention(Mixer):
    """Softmax attention with `kv_heads` shared by `heads`: MHA (equal), GQA (fewer) or MQA (one), full or sliding.

    `window` counts the token itself, so a step reads at most window - 1 cached tokens. `value_dim` is `head_dim` unless
    given; `gate_outputs` is the width of an output gate; `other_weights` holds biases, per-head norms and sinks.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads % self.kv_heads:
            raise InvalidInputError(
                f"{self.name}: {self.heads} heads do not divide into groups for {self.kv_heads} kv_heads; "
                "heads must be a multiple of kv_heads."
            )

    @property
    def label(self) -> str:
        kind = "MHA" if self.kv_heads == self.heads else "MQA" if self.kv_heads == 1 else "GQA"
        return kind if self.window is None else f"{kind}, window {self.window:,}"

    def span_sum(self, cached: Any, new: Any) -> Any:
        """With a window, the sum of min(cached + i, window): tokens that see all before them, then full windows."""
        if self.window is None:
            return super().span_sum(cached, new)
        growing = minimum(maximum(floor(self.window - cached), 0.0), new)
        return growing * cached + growing * (growing + 1) / 2 + (new - growing) * self.window

    def read(self, cached: Any, new: Any) -> Any:
        return cached if self.window is None else minimum(cached, self.window - 1.0)

    def held(self, tokens: Any) -> Any:
        return tokens if self.window is None else minimum(tokens, float(self.window))

    @property
    def fills_at(self) -> float:
        return math.inf if self.window is None else self.window

    @property
    def key_and_value_dim(self) -> int:
        return self.head_dim + (self.head_dim if self.value_dim is None else self.value_dim)

    @property
    def matmul_weights(self) -> int:
        query_and_output = self.width * self.heads * self.key_and_value_dim
        return query_and_output + self.width * self.cache_elements + self.width * self.gate_outputs

    @property
    def cache_elements(self) -> int:
        return self.kv_heads * self.key_and_value_dim

    @property
    def pair_flops(self) -> int:
        return 2 * self.heads * self.key_and_value_dim

    def cache_copies(self, devices: int) -> float:
        super().cache_copies(devices)
        if self.kv_heads % devices and devices % self.kv_heads:
            raise InvalidInputError(
                f"{self.name}: {self.kv_heads} KV heads can neither be divided over {devices} devices nor copied "
                "evenly; take a number of devices that divides the KV heads or is a multiple of them."
            )
        return max(1.0, devices / self.kv_heads)


@dataclass(frozen=True, kw_only=True)
class MultiHeadLatentAttention(Mixer):
    """MLA: one latent of `kv_rank` and one rotary key of `rope_dim` are cached for all heads together.

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
    other_weights: int = 0

    @property
    def label(self) -> str:
        return "MLA"

    @property
    def fills_at(self) -> float:
        return math.inf

    @property
    def matmul_weights(self) -> int:
        query_dim = self.heads * (self.nope_dim + self.rope_dim)
        rank = self.query_rank
        query = self.width * query_dim if rank is None else self.width * rank + rank * query_dim
        latent = self.width * self.cache_elements + self.kv_rank * self.heads * (self.nope_dim + self.value_dim)
        return query + latent + self.heads * self.value_dim * self.width

    @property
    def cache_elements(self) -> int:
        return self.kv_rank + self.rope_dim

    @property
    def pair_flops(self) -> int:
        return 2 * self.heads * (self.kv_rank + self.rope_dim) + 2 * self.heads * self.kv_rank

    @property
    def fresh_pair_flops(self) -> int:
        return 2 * self.heads * (self.nope_dim + self.rope_dim) + 2 * self.heads * self.value_dim

    @property
    def expand_flops(self) -> int:
        return 2 * self.kv_rank * self.heads * (self.nope_dim + self.value_dim)

    def cache_copies(self, devices: int) -> float:
        super().cache_copies(devices)
        return float(devices)  # the latent belongs to all heads, so every device holds it whole


class ConstantState(Mixer):
    """A mixer whose memory of the past has one size: a state that every pass reads and writes whole."""

    flops_per_state_element = 4

    @property
    def token_flops(self) -> int:
        return self.flops_per_state_element * self.state_elements


@dataclass(frozen=True, kw_only=True)
class GatedDeltaNet(ConstantState):
    """Gated delta rule (Qwen3-Next): Q = key_heads key_dim, U = value_heads value_dim.

    6 FLOP a state element and token: decay, read, correct, write, query. `extra_weights` are weights beyond the
    published layout that are only added or scaled.
    """

    width: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    extra_weights: int = 0

    flops_per_state_element = 6

    @property
    def heads(self) -> int:  # type: ignore[override]
        return self.key_heads

    @property
    def label(self) -> str:
        return "gated delta rule"

    @property
    def conv_channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def matmul_weights(self) -> int:
        values = self.value_heads * self.value_dim
        return self.width * (self.conv_channels + values + 2 * self.value_heads) + values * self.width

    @property
    def other_weights(self) -> int:
        return 2 * self.value_heads + self.conv_channels * self.conv_kernel + self.value_dim + self.extra_weights

    @property
    def state_elements(self) -> int:
        return self.value_heads * self.key_dim * self.value_dim

    @property
    def conv_elements(self) -> int:
        return self.conv_channels * (self.conv_kernel - 1)


@dataclass(frozen=True, kw_only=True)
class KimiDeltaAttention(ConstantState):
    """Kimi Delta Attention (Kimi Linear, arXiv 2510.26692): a delta rule with a gate for each channel."""

    width: int
    heads: int
    head_dim: int
    conv_kernel: int
    extra_weights: int = 0

    flops_per_state_element = 6

    @property
    def label(self) -> str:
        return "Kimi delta attention"

    @property
    def channels(self) -> int:
        return self.heads * self.head_dim

    @property
    def matmul_weights(self) -> int:
        low_rank = self.width * self.head_dim + self.head_dim * self.channels
        return 4 * self.width * self.channels + 2 * low_rank + self.width * self.heads

    @property
    def other_weights(self) -> int:
        return 3 * self.channels * self.conv_kernel + self.channels + self.heads + self.head_dim + self.extra_weights

    @property
    def state_elements(self) -> int:
        return self.channels * self.head_dim

    @property
    def conv_elements(self) -> int:
        return 3 * self.channels * (self.conv_kernel - 1)


@dataclass(frozen=True, kw_only=True)
class Mamba2(ConstantState):
    """Mamba-2 (arXiv 2405.21060): I = heads head_dim, C = I + 2 groups state_size. 4 FLOP a state element and token."""

    width: int
    heads: int
    head_dim: int
    groups: int
    state_size: int
    conv_kernel: int
    extra_weights: int = 0

    @property
    def label(self) -> str:
        return "Mamba-2"

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        return self.inner + 2 * self.groups * self.state_size

    @property
    def matmul_weights(self) -> int:
        return self.width * (self.inner + self.conv_channels + self.heads) + self.inner * self.width

    @property
    def other_weights(self) -> int:
        return 3 * self.heads + self.conv_channels * (self.conv_kernel + 1) + self.inner + self.extra_weights

    @property
    def state_elements(self) -> int:
        return self.inner * self.state_size

    @property
    def conv_elements(self) -> int:
        return self.conv_channels * (self.conv_kernel - 1)


@dataclass(frozen=True, kw_only=True)
class Mamba1(ConstantState):
    """Mamba-1 (arXiv 2312.00752): inner width I, `state_size` numbers for each channel, a step of rank `step_rank`."""

    width: int
    inner: int
    state_size: int
    step_rank: int
    conv_kernel: int
    extra_weights: int = 0

    @property
    def heads(self) -> int:  # type: ignore[override]
        return self.inner

    @property
    def label(self) -> str:
        return "Mamba-1"

    @property
    def matmul_weights(self) -> int:
        step_and_state = self.inner * (self.step_rank + 2 * self.state_size) + self.step_rank * self.inner
        return 3 * self.width * self.inner + step_and_state

    @property
    def other_weights(self) -> int:
        return self.inner * (self.state_size + 2 + self.conv_kernel + 1) + self.extra_weights

    @property
    def state_elements(self) -> int:
        return self.inner * self.state_size

    @property
    def conv_elements(self) -> int:
        return self.inner * (self.conv_kernel - 1)


@dataclass(frozen=True, kw_only=True)
class ShortConvolution(ConstantState):
    """Gated short convolution (LFM2): four projections and a depthwise convolution, whose last inputs are kept."""

    width: int
    conv_kernel: int
    extra_weights: int = 0

    @property
    def heads(self) -> int:  # type: ignore[override]
        return self.width

    @property
    def label(self) -> str:
        return "short convolution"

    @property
    def matmul_weights(self) -> int:
        return 4 * self.width * self.width

    @property
    def other_weights(self) -> int:
        return self.width * self.conv_kernel + self.extra_weights

    @property
    def conv_elements(self) -> int:
        return self.width * (self.conv_kernel - 1)
