"""One layer of a model: what carries information between its tokens, what works on each token, and its norms."""

from dataclasses import dataclass
from typing import ClassVar

from lessonlib.base.checks import Checked, a, count, optional, wrong
from lessonlib.model.attention import Mixer
from lessonlib.model.feedforward import FeedForward


@dataclass(frozen=True)
class Block(Checked):
    """One layer: a mixer or none, a feed-forward or none, and the weights of its norms.

    `borrowed_weights`: weights of blocks (matrices, and norms with them) that are those of an earlier layer, so that
    they are stored there alone. A pass reads them here again: other layers come in between.
    """

    mixer: Mixer | None
    feedforward: FeedForward | None
    norm_weights: int = 0
    borrowed_weights: int = 0

    rules: ClassVar = {
        "mixer": optional(a(Mixer)),
        "feedforward": optional(a(FeedForward)),
        "norm_weights": count(0),
        "borrowed_weights": count(0),
    }

    def complete(self) -> None:
        if not self.parts:
            raise wrong(self.owner, "mixer", None, "a Mixer, as the feedforward is None too")
        if self.borrowed_weights and self.parameters < 0:
            raise wrong(self.owner, "borrowed_weights", self.borrowed_weights, "at most the weights of the block")

    @property
    def parts(self) -> tuple[Mixer | FeedForward, ...]:
        return tuple(part for part in (self.mixer, self.feedforward) if part is not None)

    @property
    def parameters(self) -> int:
        return sum(part.parameters for part in self.parts) + self.norm_weights - self.borrowed_weights
