"""More mixers with a state of one size: lightning attention, mLSTM, RG-LRU, RWKV-4. Their sources stand at each."""

# A kind derives what the base gives as a plain zero; nobody can write to either, for the classes are frozen.
# mypy: disable-error-code="override"

from dataclasses import dataclass
from functools import cached_property

from lessonlib.base.checks import wrong
from lessonlib.model.state import ConstantState, StateCounts


@dataclass(frozen=True, kw_only=True)
class LightningAttention(ConstantState):
    """Linear attention with a fixed decay a head (MiniMax-01, arXiv 2501.08313), a norm and an output gate.

    S = decay S + k v, o = q S: a state of head_dim x head_dim for each head
    """

    heads: int
    head_dim: int

    label = "lightning attention"

    @property
    def counts(self) -> StateCounts:
        channels = self.heads * self.head_dim
        return StateCounts(
            matmul_weights=5 * self.width * channels,
            other_weights=channels,
            state_elements=channels * self.head_dim,
            conv_channels=0,
        )


@dataclass(frozen=True, kw_only=True)
class MatrixLstm(ConstantState):
    """mLSTM (xLSTM 7B, arXiv 2503.13427): a matrix memory a head, C = f C + i v k, its normaliser n and a stabiliser.

    An output gate a channel, an input and a forget gate a head. The norm of its heads has `heads` x value_dim weights.
    """

    heads: int
    key_dim: int
    value_dim: int

    label = "mLSTM"

    @property
    def counts(self) -> StateCounts:
        keys, values = self.heads * self.key_dim, self.heads * self.value_dim
        return StateCounts(
            matmul_weights=self.width * (2 * keys + 3 * values + 2 * self.heads),
            other_weights=2 * self.heads + values,
            state_elements=keys * self.value_dim + keys + self.heads,
            conv_channels=0,
        )


@dataclass(frozen=True, kw_only=True)
class GatedLinearRecurrence(ConstantState):
    """RG-LRU (Griffin, arXiv 2402.19427): a number for each of `inner` channels, h = a h + sqrt(1 - a a) i x.

    The gates a and i come from a matrix for each of `heads` groups of channels. All its matrices have biases.
    """

    inner: int
    heads: int

    label = "RG-LRU"

    def complete(self) -> None:
        if self.inner % self.heads:
            raise wrong(self.owner, "inner", self.inner, f"a multiple of its heads, {self.heads}")

    @property
    def counts(self) -> StateCounts:
        return StateCounts(
            matmul_weights=3 * self.width * self.inner + 2 * self.inner * (self.inner // self.heads),
            other_weights=self.width + self.inner * (self.conv_kernel + 6),
            state_elements=self.inner,
            conv_channels=self.inner,
        )


@dataclass(frozen=True, kw_only=True)
class Rwkv4(ConstantState):
    """Time mixing of RWKV-4 (arXiv 2305.13048): of `inner` channels a weighted mean of all values, numerator,
    denominator and largest exponent. Each half of a layer mixes its input with the one before (`conv_kernel` 2).
    """

    inner: int
    conv_kernel: int = 2

    label = "RWKV-4"

    @cached_property
    def heads(self) -> int:
        return self.inner

    @property
    def counts(self) -> StateCounts:
        return StateCounts(
            matmul_weights=4 * self.width * self.inner,
            other_weights=2 * self.inner + 3 * self.width,
            state_elements=3 * self.inner,
            conv_channels=2 * self.width,
        )
