"""Memory of a server: the blocks that sequences hold, and those that decode steps take.

Layers with one law of spans are counted together. Where the law is all tokens up to a point and then constant
(`Mixer.fills_at`), sums over the sequences that decode are kept as these come and go, and the blocks that m steps take
are a count of boundaries. Any other law is asked of its mixer, for each sequence anew. Bytes are of all devices.

Source: Kwon et al., 2309.06180 (blocks).
"""

import math
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np

from lessonlib.base.errors import DoesNotFitError, InvalidInputError
from lessonlib.base.units import format_bytes
from lessonlib.model.attention import Mixer
from lessonlib.policy.serving.traffic import Traffic
from lessonlib.time.deployment import Deployment
from lessonlib.work.sizes import LayerKind


class Layers:
    """All layers of one law of spans, which their mixer is asked for, and the sequences that decode in them.

    A sequence that holds h tokens after G steps of the server keeps its offset h - G, so that no step touches it.
    Whatever the law, a sequence never holds less as it grows.
    """

    fills_at = math.inf  # tokens at which a sequence stops growing

    def __init__(self, kinds: list[LayerKind], block: int):
        self.kinds, self.block = kinds, block
        self.held = kinds[0].mixer.held
        self.block_bytes = math.ceil(sum(kind.cache_bytes for kind in kinds) * block)
        self.most_new_bytes = math.inf  # that one sequence takes in one step
        self.by_offset: Counter[int] = Counter()

    def held_bytes(self, tokens: Any) -> Any:
        """Bytes of the blocks of a sequence that has `tokens` tokens: a float, or an array of them."""
        blocks = self.held(tokens) / self.block
        return self.block_bytes * (np.ceil(blocks) if isinstance(blocks, np.ndarray) else math.ceil(blocks))

    def join(self, offset: int, step: int) -> bool:
        """Take in a sequence after `step` steps; whether it is one that will reach `fills_at`."""
        self.by_offset[offset] += 1
        return False

    def leave(self, offset: int, step: int) -> None:
        self.by_offset[offset] -= 1
        if not self.by_offset[offset]:
            del self.by_offset[offset]

    def fill(self, offset: int) -> None:
        """A sequence that grew has reached `fills_at`."""

    def sequences(self, step: int) -> tuple[Any, Any]:
        """(tokens held after `step` steps, sequences that hold as many): two arrays."""
        counts = self.by_offset
        return np.array([*counts], dtype=float) + step, np.array([*counts.values()], dtype=float)

    def new_bytes(self, steps: int, step: int) -> int:
        """Bytes of the blocks that `steps` steps after `step` take."""
        tokens, count = self.sequences(step)
        return int(count @ (self.held_bytes(tokens + steps) - self.held_bytes(tokens)))


class CountedLayers(Layers):
    """Layers whose law is all tokens up to `fills_at` and then constant: sums stand for the sequences.

    `growing`: sequences that are not full; `offsets`: the sum of theirs. `boundaries[r]`: growing sequences that take a
    new block in step G + 1 when G mod block is r.
    """

    def __init__(self, kinds: list[LayerKind], block: int, fills_at: float):
        super().__init__(kinds, block)
        self.fills_at, self.most_new_bytes = fills_at, self.block_bytes
        self.growing = self.offsets = self.full = 0
        self.boundaries = [0] * block

    def count(self, offset: int, sign: int) -> None:
        """Count a growing sequence in (1) or out (-1)."""
        self.growing += sign
        self.offsets += sign * offset
        self.boundaries[-offset % self.block] += sign

    def join(self, offset: int, step: int) -> bool:
        grows = offset + step < self.fills_at
        if grows:
            self.count(offset, 1)
        else:
            self.full += 1
        return grows and self.fills_at < math.inf

    def leave(self, offset: int, step: int) -> None:
        if offset + step < self.fills_at:
            self.count(offset, -1)
        else:
            self.full -= 1

    def fill(self, offset: int) -> None:
        self.count(offset, -1)
        self.full += 1

    def span(self, step: int) -> float:
        """The sum of the spans of all sequences in step `step`; each step adds `growing` to it."""
        span: float = self.offsets + self.growing * step
        if self.full:
            span += self.full * self.fills_at
        return span

    def new_bytes(self, steps: int, step: int) -> int:
        whole, rest = divmod(steps, self.block)  # each growing sequence takes one block in every `block` steps
        first = step % self.block
        last = first + rest
        crossed = sum(self.boundaries[first:last]) if rest else 0
        if last > self.block:
            crossed += sum(self.boundaries[: last - self.block])
        return self.block_bytes * (whole * self.growing + crossed)


def layers_by_law(kinds: tuple[LayerKind, ...], block: int) -> list[Layers]:
    """The layers that have a cache. Those that fill at the same token are one; a law of another form is its mixer's."""
    laws: dict[Any, list[LayerKind]] = {}
    for kind in kinds:
        if kind.cache_bytes:
            fills_at = kind.mixer.fills_at
            laws.setdefault(kind.mixer if fills_at is None else fills_at, []).append(kind)
    return [
        Layers(same, block) if isinstance(law, Mixer) else CountedLayers(same, block, law) for law, same in laws.items()
    ]


class Memory:
    """What is left of a deployment's memory after the weights, and who may take it."""

    def __init__(self, deployment: Deployment, block: int, watermark: float):
        self.capacity = self.free = math.floor(deployment.memory_free)
        self.watermark = math.ceil(watermark * self.capacity)
        self.peak_used, self.block = 0, block
        self.layers = layers_by_law(deployment.sizes.kinds, block)
        self.state_bytes = math.ceil(sum(kind.state_bytes for kind in deployment.sizes.kinds))
        self.most_new_bytes = sum(layers.most_new_bytes for layers in self.layers)
        self.bytes_of = lru_cache(2**16)(self.held_bytes)

    def held_bytes(self, tokens: Any) -> Any:
        """Bytes that one sequence of `tokens` tokens takes, a number or an array. `bytes_of` remembers numbers."""
        total = self.state_bytes
        for layers in self.layers:
            total += layers.held_bytes(tokens)
        return total

    def take(self, taken: int) -> None:
        self.free -= taken
        used = self.capacity - self.free
        if used > self.peak_used:
            self.peak_used = used

    def new_bytes(self, steps: int, step: int) -> int:
        """Bytes that `steps` steps after `step` take."""
        taken = 0
        for layers in self.layers:
            taken += layers.new_bytes(steps, step)
        return taken

    def lacks_a_step(self, sequences: int, step: int) -> bool:
        """Whether the step after `step` takes more than there is. Most often the largest that it could take is free."""
        return self.free < sequences * self.most_new_bytes and self.new_bytes(1, step) > self.free

    def steps_that_fit(self, steps: int, step: int) -> tuple[int, int]:
        """(the most of `steps` steps after `step` that fit, bytes that they take). One step does."""
        taken = self.new_bytes(steps, step)
        if taken > self.free:
            low, high = 1, steps
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self.new_bytes(middle, step) <= self.free else (low, middle)
            steps, taken = low, self.new_bytes(low, step)
        return steps, taken


def require_each_fits(deployment: Deployment, traffic: Traffic, memory: Memory) -> None:
    """Every request by itself: within the model's positions, and within memory at its last step."""
    held = traffic.prompt + traffic.output - 1
    limit = deployment.model.max_positions
    if limit is not None and held.max() >= limit:
        i = int(np.argmax(held >= limit))
        raise InvalidInputError(
            f"simulate: request {i} has prompt {traffic.prompt[i]:,} + output {traffic.output[i]:,} = {held[i] + 1:,} "
            f"tokens, but {deployment.model.name} has {limit:,} positions; shorten it or leave it out."
        )
    needed = memory.held_bytes(held) + 0.0 * held
    if needed.max() > memory.capacity:
        i = int(np.argmax(needed > memory.capacity))
        try:
            deployment.require_fit(int(held[i]))
        except DoesNotFitError as error:
            raise DoesNotFitError(
                f"simulate: request {i} by itself: {error}", error.needed, error.available, error.remedies
            ) from None
        raise DoesNotFitError(
            f"simulate: request {i} takes {format_bytes(needed[i])} in blocks for its {held[i]:,} tokens, but the "
            f"cache has {format_bytes(memory.capacity)}; take a smaller block, shorten it or leave it out.",
            needed=deployment.weight_bytes + float(needed[i]),
            available=deployment.memory_available,
        )
