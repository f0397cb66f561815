"""A decoder-only model as counts: what it stores, what one token meets, what it caches. No hardware, no time.

    parameters = embedding + head (once if tied) + positions + layers of (mixer + feed-forward + norms) + final norm
    P_block    = matrix weights of the blocks that one token uses (MoE: router, top-k and shared experts)
    cache      = sum over layers of min(tokens, window) times the elements of a token in that layer

`Model.from_config` reads the parsed dict of a real config.json; how a family differs is data, in config/families.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from lessonlib.base.errors import InvalidInputError, as_numbers, require_count, require_rate, shown
from lessonlib.model.attention import Mixer
from lessonlib.model.block import Block
from lessonlib.model.config.reader import read_config_as_model
from lessonlib.model.feedforward import FeedForward


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder-only transformer or hybrid, `blocks` = ((count, Block), ...) in any order.

    `position_weights` is a table of learned positions (looked up, never streamed); `other_weights` the final norm and
    the like; `head_bias` a bias on the logits. `max_positions` None means no limit is stated. `defaults_used` names the
    keys that were absent from the config and taken from its family's class default.
    """

    name: str
    width: int
    vocabulary: int
    blocks: tuple[tuple[int, Block], ...]
    tied_embeddings: bool = False
    max_positions: int | None = None
    position_weights: int = 0
    other_weights: int = 0
    head_bias: int = 0
    family: str = ""
    defaults_used: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        owner = f"Model {shown(self.name)}"
        for field in ("width", "vocabulary", "position_weights", "other_weights", "head_bias"):
            least = 1 if field in ("width", "vocabulary") else 0
            object.__setattr__(self, field, require_count(owner, field, getattr(self, field), least))
        if self.max_positions is not None:
            object.__setattr__(self, "max_positions", require_count(owner, "max_positions", self.max_positions))
        if not isinstance(self.tied_embeddings, bool):
            raise InvalidInputError(
                f"{owner}: tied_embeddings is {shown(self.tied_embeddings)}; expected True or False."
            )
        pairs = isinstance(self.blocks, tuple) and all(
            isinstance(pair, tuple) and len(pair) == 2 for pair in self.blocks
        )
        if not pairs or not all(isinstance(block, Block) for _, block in self.blocks):
            raise InvalidInputError(
                f"{owner}: blocks is {shown(self.blocks)}; expected ((count, Block), ...) as tuples."
            )
        if not self.blocks:
            raise InvalidInputError(f"{owner}: it has no blocks; expected at least one (count, Block) pair.")
        counts = (require_count(owner, "number of layers of a block", count) for count, _ in self.blocks)
        blocks = tuple((count, block) for count, (_, block) in zip(counts, self.blocks, strict=True))
        object.__setattr__(self, "blocks", blocks)
        for _, block in self.blocks:
            for part in block.parts:
                if part.width != self.width:
                    raise InvalidInputError(
                        f"{owner}: a {part.name} has width {part.width}, the model {self.width}; they must agree."
                    )

    @classmethod
    def from_config(cls, config: dict[str, Any], like: str | None = None, name: str | None = None) -> Self:
        """The model that a config.json describes, exact to the unit, or UnsupportedModelError.

        `config`: the parsed dict. `like`: the family to read it as, for a new model of a known layout (like="llama").
        Raises UnsupportedModelError for an architecture or a structural key that is not read, InvalidInputError for a
        missing or contradictory value. Nothing in a config is ever executed.
        """
        return read_config_as_model(cls, config, like=like, name=name)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{count} x {mixer.label}" for count, mixer in self.mixer_kinds)
        return (
            f"Model {shown(self.name)}: {self.parameters:,} parameters ({self.active_parameters:,} used by a token), "
            f"{self.layers} layers ({kinds}), width {self.width:,}, vocabulary {self.vocabulary:,}"
        )

    @property
    def layers(self) -> int:
        return sum(count for count, _ in self.blocks)

    @property
    def head_weights(self) -> int:
        """Weights of the LM head's matrix: V w, whether or not they are shared with the embedding."""
        return self.vocabulary * self.width

    @property
    def embedding_weights(self) -> int:
        """Weights of an embedding table of its own (0 if tied): looked up, never streamed."""
        return 0 if self.tied_embeddings else self.vocabulary * self.width

    @cached_property
    def parameters(self) -> int:
        """Exact number of parameters; tied tables count once, multi-token-prediction modules do not."""
        blocks = sum(count * block.parameters for count, block in self.blocks)
        tables = self.embedding_weights + self.head_weights + self.head_bias + self.position_weights
        return blocks + tables + self.other_weights

    @cached_property
    def block_matmul_weights(self) -> int:
        """P_block: the matrix weights of the blocks that one token meets."""
        return sum(count * part.matmul_weights for count, block in self.blocks for part in block.parts)

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token uses: all but the routed experts that its router did not choose."""
        idle = 0
        for count, block in self.blocks:
            ffn = block.feedforward
            if ffn is not None:
                idle += count * (ffn.experts - ffn.experts_per_token) * (ffn.expert_weights + ffn.expert_other_weights)
        return self.parameters - idle

    @cached_property
    def weights_by_part(self) -> dict[str, int]:
        """Stored weights by the part whose precision they take; they add up to `parameters`.

        "blocks" are the matrices of mixers, dense feed-forwards and shared experts; "experts" the routed ones; "other"
        norms, biases and routers; "embedding" the tables that are looked up, learned positions among them.
        """
        blocks = experts = other = 0
        for count, block in self.blocks:
            other += count * block.norm_weights
            if block.mixer is not None:
                blocks += count * block.mixer.matmul_weights
                other += count * block.mixer.other_weights
            ffn = block.feedforward
            if ffn is not None:
                blocks += count * ffn.dense_weights
                experts += count * ffn.experts * ffn.expert_weights
                other += count * (ffn.router_weights + ffn.other_weights + ffn.experts * ffn.expert_other_weights)
        return {
            "blocks": blocks,
            "experts": experts,
            "other": other + self.other_weights + self.head_bias,
            "head": self.head_weights,
            "embedding": self.embedding_weights + self.position_weights,
        }

    @cached_property
    def expert_kinds(self) -> tuple[tuple[int, FeedForward], ...]:
        """((layers, feed-forward), ...) of the layers with routed experts, equal ones taken together."""
        counts: dict[FeedForward, int] = {}
        for count, block in self.blocks:
            if block.feedforward is not None and block.feedforward.experts:
                counts[block.feedforward] = counts.get(block.feedforward, 0) + count
        return tuple((count, ffn) for ffn, count in counts.items())

    @cached_property
    def mixer_kinds(self) -> tuple[tuple[int, Mixer], ...]:
        """((layers, mixer), ...): layers with the same mixer taken together, in the order of first appearance."""
        counts: dict[Mixer, int] = {}
        for count, block in self.blocks:
            if block.mixer is not None:
                counts[block.mixer] = counts.get(block.mixer, 0) + count
        return tuple((count, mixer) for mixer, count in counts.items())

    def cache_bytes(self, tokens: Any, bytes_per_element: float = 2) -> Any:
        """Bytes of KV cache that one sequence holds for `tokens` tokens (a number or an array of them).

        A sliding layer holds min(tokens, window). Constant state is apart: `state_bytes`.
        """
        require_rate(f"Model {shown(self.name)}", "bytes_per_element", bytes_per_element, "bytes")
        held = as_numbers(tokens)
        if held is None or not np.all(np.isfinite(held) & (held >= 0)):
            raise InvalidInputError(
                f"Model {shown(self.name)}: tokens is {shown(tokens)}; expected numbers of at least 0."
            )
        total = sum(
            count * mixer.cache_elements * (held if mixer.window is None else np.minimum(held, mixer.window))
            for count, mixer in self.mixer_kinds
        )
        total = np.asarray(total * bytes_per_element + 0 * held)
        return float(total) if total.ndim == 0 else total

    def state_bytes(self, bytes_per_element: float = 2) -> float:
        """Constant state of one sequence, bytes: fp32 for the state, `bytes_per_element` for its convolution."""
        require_rate(f"Model {shown(self.name)}", "bytes_per_element", bytes_per_element, "bytes")
        return float(
            sum(count * (4 * m.state_elements + bytes_per_element * m.conv_elements) for count, m in self.mixer_kinds)
        )
