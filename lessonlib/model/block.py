"""One layer of a model: what carries information between its tokens, what works on each token, and what is beside."""

from dataclasses import dataclass
from typing import ClassVar

from lessonlib.base.checks import Checked, a, count, optional, wrong
from lessonlib.model.attention import Mixer
from lessonlib.model.feedforward import FeedForward


@dataclass(frozen=True)
class Block(Checked):
    """One layer: a mixer or none, a feed-forward or none, and the weights of its norms.

    `matrices` are matrix weights beside both, such as gates for inputs of the layer. `again` counts multiplications of
    a token beyond one for each matrix weight: weights that it meets once more, products of small matrices with it.
    `passes`: how often a token goes through the layer (Dory); each time has a cache of its own and streams all weights,
    which are stored once.
    `borrowed_weights`: weights of blocks (matrices, and norms with them) that are those of an earlier layer, so that
    they are stored there alone. A pass reads them here again: other layers come in between.
    """

    mixer: Mixer | None
    feedforward: FeedForward | None
    norm_weights: int = 0
    borrowed_weights: int = 0
    matrices: int = 0
    again: int = 0
    passes: int = 1

    rules: ClassVar = {
        "mixer": optional(a(Mixer)),
        "feedforward": optional(a(FeedForward)),
        **dict.fromkeys(("norm_weights", "matrices", "again", "borrowed_weights"), count(0)),
        "passes": count(),
    }

    def complete(self) -> None:
        if not self.parts:
            raise wrong(self.owner, "mixer", None, "a Mixer, as the feedforward is None too")
        if self.passes > 1 and self.feedforward is not None and self.feedforward.experts:
            raise wrong(self.owner, "passes", self.passes, "1, as it has routed experts")
        if self.borrowed_weights and self.parameters < 0:
            raise wrong(self.owner, "borrowed_weights", self.borrowed_weights, "at most the weights of the block")

    @property
    def parts(self) -> tuple[Mixer | FeedForward, ...]:
        return tuple(part for part in (self.mixer, self.feedforward) if part is not None)

    @property
    def products(self) -> int:
        """Multiplications of one token in its matrices: most often one a weight."""
        once = sum(part.matmul_weights for part in self.parts) + self.matrices + self.again
        return self.passes * once

    @property
    def parameters(self) -> int:
        stored = sum(part.parameters for part in self.parts) + self.norm_weights + self.matrices
        return stored - self.borrowed_weights
