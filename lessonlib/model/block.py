"""One layer of a model: what carries information between its tokens, what works on each token, and its norms."""

from dataclasses import dataclass

from lessonlib.base.errors import InvalidInputError, require_count, shown
from lessonlib.model.attention import Mixer
from lessonlib.model.feedforward import FeedForward


@dataclass(frozen=True)
class Block:
    """One layer: a mixer or none, a feed-forward or none, and the weights of its norms."""

    mixer: Mixer | None
    feedforward: FeedForward | None
    norm_weights: int = 0

    def __post_init__(self) -> None:
        if self.mixer is None and self.feedforward is None:
            raise InvalidInputError("Block: it has neither a mixer nor a feed-forward; give it at least one.")
        for key, kind in (("mixer", Mixer), ("feedforward", FeedForward)):
            part = getattr(self, key)
            if part is not None and not isinstance(part, kind):
                raise InvalidInputError(f"Block: its {key} is {shown(part)}; expected a {kind.__name__} or None.")
        require_count("Block", "norm_weights", self.norm_weights, 0)

    @property
    def parts(self) -> tuple[Mixer | FeedForward, ...]:
        return tuple(part for part in (self.mixer, self.feedforward) if part is not None)

    @property
    def parameters(self) -> int:
        return sum(part.parameters for part in self.parts) + self.norm_weights
