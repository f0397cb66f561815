"""The layers of a model as counts, in any order: equal ones taken together, and what a sequence keeps in them."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from lessonlib.base.checks import checked, numbers, rate
from lessonlib.model.attention import Mixer
from lessonlib.model.block import Block
from lessonlib.model.feedforward import FeedForward

Kind = TypeVar("Kind", bound=Mixer | FeedForward)


def _together(parts: Iterable[tuple[int, Kind | None]]) -> tuple[tuple[int, Kind], ...]:
    """((layers, part), ...) with equal parts taken together, in the order of first appearance."""
    counts: dict[Kind, int] = {}
    for layers, part in parts:
        if part is not None:
            counts[part] = counts.get(part, 0) + layers
    return tuple((layers, part) for part, layers in counts.items())


class Stack:
    """Layers of a model, `blocks` = ((layers, Block), ...)."""

    blocks: tuple[tuple[int, Block], ...]

    @property
    def layers(self) -> int:
        return sum(layers for layers, _ in self.blocks)

    @cached_property
    def mixer_kinds(self) -> tuple[tuple[int, Mixer], ...]:
        """((layers, mixer), ...): layers with the same mixer taken together."""
        return _together((layers, block.mixer) for layers, block in self.blocks)

    @cached_property
    def expert_kinds(self) -> tuple[tuple[int, FeedForward], ...]:
        """((layers, feed-forward), ...) of the layers with routed experts."""
        found = _together((layers, block.feedforward) for layers, block in self.blocks)
        return tuple((layers, ffn) for layers, ffn in found if ffn.experts)

    @cached_property
    def block_matmul_weights(self) -> int:
        """P_block: the matrix weights of the blocks that one token meets."""
        return sum(layers * part.matmul_weights for layers, block in self.blocks for part in block.parts)

    @checked(tokens=numbers(0), bytes_per_element=rate("bytes"))
    def cache_bytes(self, tokens: Any, bytes_per_element: float = 2) -> Any:
        """Bytes of KV cache that one sequence holds for `tokens` tokens (a number or an array of them).

        What a layer holds is its mixer's law. Constant state is apart: `state_bytes`.
        """
        total = sum(layers * mixer.cache_elements * mixer.held(tokens) for layers, mixer in self.mixer_kinds)
        total = np.asarray(total * bytes_per_element + 0 * tokens)
        return float(total) if total.ndim == 0 else total

    @checked(bytes_per_element=rate("bytes"))
    def state_bytes(self, bytes_per_element: float = 2) -> float:
        """Constant state of one sequence, bytes: fp32 for the state, `bytes_per_element` for its convolution."""
        return float(
            sum(layers * (4 * m.state_elements + bytes_per_element * m.conv_elements) for layers, m in self.mixer_kinds)
        )
