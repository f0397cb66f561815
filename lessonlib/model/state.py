"""Mixers whose memory of the past has one size: delta rules, Mamba, short convolutions. Each pass moves it whole.

Sources: Yang et al. 2024 (arXiv 2412.06464) for the gated delta rule; Dao and Gu 2024 (2405.21060) for Mamba-2.
"""

from dataclasses import dataclass

from lessonlib.model.attention import Mixer


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
