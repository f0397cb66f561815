"""Layers with more than one mixer (Falcon-H1, Zamba), attention of a block that layers share, and of differences."""

# A kind derives what the base gives as a plain zero; nobody can write to either, for the classes are frozen.
# mypy: disable-error-code="override"

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from lessonlib.base.checks import a, items, wrong
from lessonlib.model.attention import GroupedQueryAttention, Mixer


@dataclass(frozen=True, kw_only=True)
class SeveralMixers(Mixer):
    """Mixers of one layer, side by side (Falcon-H1, arXiv 2507.22448) or one after the other: each keeps what is its.

    It has no law of its own: whatever is cached, attended to or computed is asked of `mixers`, each under its own roof.
    """

    width: int
    mixers: tuple[Mixer, ...]

    rules: ClassVar = {"mixers": items(a(Mixer), least=2)}

    def complete(self) -> None:
        for mixer in self.mixers:
            if mixer.width != self.width:
                raise wrong(self.owner, f"width of {mixer.owner}", mixer.width, f"that of the layer, {self.width}")

    @cached_property
    def label(self) -> str:
        return " with ".join(mixer.label for mixer in self.mixers)

    @property
    def in_turn(self) -> tuple[Mixer, ...]:
        return tuple(kernel for mixer in self.mixers for kernel in mixer.in_turn)

    @cached_property
    def heads(self) -> int:
        return self.mixers[0].heads

    @cached_property
    def matmul_weights(self) -> int:
        return sum(mixer.matmul_weights for mixer in self.mixers)

    @cached_property
    def other_weights(self) -> int:
        return sum(mixer.parameters - mixer.matmul_weights for mixer in self.mixers)

    def copied_weights(self, devices: int) -> float:
        return sum(mixer.copied_weights(devices) for mixer in self.mixers)


@dataclass(frozen=True, kw_only=True)
class SharedBlockAttention(GroupedQueryAttention):
    """Attention of the block that several layers of Zamba share (arXiv 2405.16712; Zamba2: 2411.15242).

    Its queries, keys and values are made of the hidden state beside the embedding, 2 w numbers. Each layer that uses
    the block has a matrix of its own behind it, w x w, and in Zamba2 may add adapters to the three projections:
    2 w x `adapter_rank` and back.
    """

    adapter_rank: int = 0

    @cached_property
    def own_weights(self) -> int:
        """Matrix weights that each layer has for itself; the others are the block's."""
        return self.width * self.width + 3 * 2 * (2 * self.width) * self.adapter_rank

    @cached_property
    def matmul_weights(self) -> int:
        shared = self.width * (3 * self.heads * self.head_dim + 2 * self.cache_elements)
        return shared + self.own_weights

    def copied_weights(self, devices: int) -> float:
        return 2 * super().copied_weights(devices)


@dataclass(frozen=True, kw_only=True)
class DifferentialAttention(GroupedQueryAttention):
    """Differential attention (arXiv 2410.05258): the difference of two softmaxes, each over values of twice the size.

    As engines and its class compute it, with keys and values of one size: all scores once for each half of the values,
    so twice the FLOP a pair of plain attention, on the same cache.
    """

    @cached_property
    def label(self) -> str:
        return f"differential {super().label}"

    @cached_property
    def pair_flops(self) -> int:
        return 2 * super().pair_flops
