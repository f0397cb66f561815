"""Mixers whose memory of the past has one size: linear attention, Mamba, convolutions. Each pass moves it whole.

Sources: Yang et al. 2024 (arXiv 2412.06464) for the gated delta rule; Dao and Gu 2024 (2405.21060) for Mamba-2; the
others stand at their classes.
"""

# A kind derives what the base gives as a plain zero; nobody can write to either, for the classes are frozen.
# mypy: disable-error-code="override"

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from lessonlib.base.checks import optional
from lessonlib.model.attention import Mixer
from lessonlib.model.precision import DTYPE


class StateCounts(NamedTuple):
    """What a kind of constant state counts, in one layer; a short convolution keeps its last inputs, a channel each."""

    matmul_weights: int
    other_weights: int
    state_elements: int
    conv_channels: int


@dataclass(frozen=True, kw_only=True)
class ConstantState(Mixer):
    """A mixer whose memory of the past has one size: a state that every pass reads and writes whole.

    `conv_kernel` is the length of its short convolution (1: it has none); `extra_weights` are weights beyond the
    published layout that are only added or scaled. `state_dtype`: of the state, where the model's config says it; None
    is the dtype that the model computes in. A kind says its `counts`.
    """

    width: int
    conv_kernel: int = 1
    extra_weights: int = 0
    state_dtype: str | None = None

    rules: ClassVar = {"state_dtype": optional(DTYPE)}

    flops_per_state_element = 4

    @property
    def counts(self) -> StateCounts:
        raise NotImplementedError

    @cached_property
    def matmul_weights(self) -> int:
        return self.counts.matmul_weights

    @cached_property
    def other_weights(self) -> int:
        return self.counts.other_weights + self.extra_weights

    @cached_property
    def state_elements(self) -> int:
        return self.counts.state_elements

    @cached_property
    def conv_elements(self) -> int:
        return self.counts.conv_channels * (self.conv_kernel - 1)

    @cached_property
    def token_flops(self) -> int:
        return self.flops_per_state_element * self.state_elements


@dataclass(frozen=True, kw_only=True)
class GatedDeltaNet(ConstantState):
    """Gated delta rule (Qwen3-Next). It takes 6 FLOP a state element and token: decay, read, correct, write, query."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int

    label = "gated delta rule"
    flops_per_state_element = 6

    @cached_property
    def heads(self) -> int:
        return self.key_heads

    @property
    def counts(self) -> StateCounts:
        values = self.value_heads * self.value_dim
        channels = 2 * self.key_heads * self.key_dim + values
        return StateCounts(
            matmul_weights=self.width * (channels + values + 2 * self.value_heads) + values * self.width,
            other_weights=2 * self.value_heads + channels * self.conv_kernel + self.value_dim,
            state_elements=self.key_dim * values,
            conv_channels=channels,
        )


@dataclass(frozen=True, kw_only=True)
class KimiDeltaAttention(ConstantState):
    """Kimi Delta Attention (Kimi Linear, arXiv 2510.26692): a delta rule with a gate for each channel.

    The two projections that make its gates have the rank of a head, or (`full_rank_gates`, Ling) a matrix each.
    """

    heads: int
    head_dim: int
    full_rank_gates: bool = False

    label = "Kimi delta attention"
    flops_per_state_element = 6

    @property
    def counts(self) -> StateCounts:
        channels = self.heads * self.head_dim
        gate = self.width * self.head_dim + self.head_dim * channels
        gate = self.width * channels if self.full_rank_gates else gate
        return StateCounts(
            matmul_weights=4 * self.width * channels + 2 * gate + self.width * self.heads,
            other_weights=3 * channels * self.conv_kernel + channels + self.heads + self.head_dim,
            state_elements=channels * self.head_dim,
            conv_channels=3 * channels,
        )


@dataclass(frozen=True, kw_only=True)
class Mamba2(ConstantState):
    """Mamba-2 (arXiv 2405.21060): an inner width of heads x head_dim. It takes 4 FLOP a state element and token.

    `gated_norm`: whether its output is normed (in Falcon-H1 it may not be).
    """

    heads: int
    head_dim: int
    groups: int
    state_size: int
    gated_norm: bool = True

    label = "Mamba-2"

    @property
    def counts(self) -> StateCounts:
        inner = self.heads * self.head_dim
        channels = inner + 2 * self.groups * self.state_size
        return StateCounts(
            matmul_weights=self.width * (inner + channels + self.heads) + inner * self.width,
            other_weights=3 * self.heads + channels * (self.conv_kernel + 1) + inner * self.gated_norm,
            state_elements=inner * self.state_size,
            conv_channels=channels,
        )


@dataclass(frozen=True, kw_only=True)
class Mamba1(ConstantState):
    """Mamba-1 (arXiv 2312.00752): `state_size` numbers for each of `inner` channels, and a step of rank `step_rank`."""

    inner: int
    state_size: int
    step_rank: int

    label = "Mamba-1"

    @cached_property
    def heads(self) -> int:
        return self.inner

    @property
    def counts(self) -> StateCounts:
        step_and_state = self.inner * (self.step_rank + 2 * self.state_size) + self.step_rank * self.inner
        return StateCounts(
            matmul_weights=3 * self.width * self.inner + step_and_state,
            other_weights=self.inner * (self.state_size + 2 + self.conv_kernel + 1),
            state_elements=self.inner * self.state_size,
            conv_channels=self.inner,
        )


@dataclass(frozen=True, kw_only=True)
class ShortConvolution(ConstantState):
    """Gated short convolution (LFM2): four projections and a depthwise convolution, whose last inputs are kept."""

    label = "short convolution"

    @cached_property
    def heads(self) -> int:
        return self.width

    @property
    def counts(self) -> StateCounts:
        return StateCounts(
            matmul_weights=4 * self.width * self.width,
            other_weights=self.width * self.conv_kernel,
            state_elements=0,
            conv_channels=self.width,
        )


@dataclass(frozen=True, kw_only=True)
class Convolutions(ConstantState):
    """Short depthwise convolutions of `channels` channels in all, beside a mixer: their last inputs are kept."""

    channels: int

    label = "its convolutions"
    flops_per_state_element = 0

    @cached_property
    def heads(self) -> int:
        return self.channels

    @property
    def counts(self) -> StateCounts:
        kept = self.channels * (self.conv_kernel - 1)
        return StateCounts(0, self.channels * self.conv_kernel, kept, 0)
