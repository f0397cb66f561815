"""A decoder-only model as counts: what it stores, what one token meets, what it caches. No hardware, no time.

    parameters = embedding + head (once if tied) + positions + layers of (mixer + feed-forward + norms) + final norm
    P_block    = matrix weights of the blocks that one token uses (MoE: router, top-k and shared experts)
    cache      = sum over layers of the tokens that its mixer holds times the elements of a token in that layer

`Model.from_config` reads the parsed dict of a real config.json; how a family differs is data, in config/families.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from lessonlib.base.checks import (
    REFUSED,
    Checked,
    Rule,
    a,
    checked,
    count,
    flag,
    items,
    numbers,
    optional,
    rate,
    wrong,
)
from lessonlib.base.errors import printable, shown
from lessonlib.model.attention import Mixer
from lessonlib.model.block import Block
from lessonlib.model.feedforward import FeedForward
from lessonlib.model.precision import bytes_of

Kind = TypeVar("Kind", bound=Mixer | FeedForward)


def _together(parts: Iterable[tuple[int, Kind | None]]) -> tuple[tuple[int, Kind], ...]:
    """((layers, part), ...) with equal parts taken together, in the order of first appearance."""
    counts: dict[Kind, int] = {}
    for layers, part in parts:
        if part is not None:
            counts[part] = counts.get(part, 0) + layers
    return tuple((layers, part) for part, layers in counts.items())


class Stack:
    """The layers of a model, `blocks` = ((layers, Block), ...) in any order, and what a sequence keeps in them."""

    blocks: tuple[tuple[int, Block], ...]
    matrices = 0

    @property
    def layers(self) -> int:
        return sum(layers for layers, _ in self.blocks)

    @cached_property
    def mixer_kinds(self) -> tuple[tuple[int, Mixer], ...]:
        """((layers, mixer), ...): layers with the same mixer together, each as often as a token goes through it."""
        return _together((layers * block.passes, block.mixer) for layers, block in self.blocks)

    @cached_property
    def kernel_kinds(self) -> tuple[tuple[int, Mixer], ...]:
        """((layers, mixer), ...): the same with what runs in turn in a layer taken apart."""
        return _together((layers, kernel) for layers, mixer in self.mixer_kinds for kernel in mixer.in_turn)

    @cached_property
    def expert_kinds(self) -> tuple[tuple[int, FeedForward], ...]:
        """((layers, feed-forward), ...) of the layers with routed experts."""
        found = _together((layers, block.feedforward) for layers, block in self.blocks)
        return tuple((layers, ffn) for layers, ffn in found if ffn.experts)

    def block_weights(self, streamed: bool = False) -> tuple[int, int, int]:
        """Weights of the blocks: matrices but routed experts', these, others. As stored, or as a pass streams them."""
        dense = experts = other = 0
        for layers, block in self.blocks:
            times = layers * (block.passes if streamed else 1)
            dense += times * block.matrices - (0 if streamed else layers * block.borrowed_weights)
            other += times * block.norm_weights
            if (mixer := block.mixer) is not None:
                dense += times * mixer.matmul_weights
                other += times * (mixer.parameters - mixer.matmul_weights)
            if (ffn := block.feedforward) is not None:
                dense += times * ffn.dense_weights
                experts += times * ffn.experts * ffn.expert_weights
                other += times * (ffn.other_weights + ffn.router_weights + ffn.experts * ffn.expert_other_weights)
        return dense, experts, other

    @cached_property
    def borrowed_weights(self) -> int:
        """Weights that layers take over from earlier ones: stored once, and read by a pass wherever they are used."""
        return sum(layers * block.borrowed_weights for layers, block in self.blocks)

    @cached_property
    def block_matmul_weights(self) -> int:
        """P_block: the matrix weights that one token meets in the blocks and beside them, but for the head."""
        return sum(layers * block.products for layers, block in self.blocks) + self.matrices

    @checked(tokens=numbers(0), bytes_per_element=rate("bytes"))
    def cache_bytes(self, tokens: Any, bytes_per_element: float = 2) -> Any:
        """Bytes of KV cache that one sequence holds for `tokens` tokens (a number or an array of them).

        What a layer holds is its mixer's law. Constant state is apart: `state_bytes`.
        """
        total = sum(layers * kind.cache_elements * kind.held(tokens) for layers, kind in self.kernel_kinds)
        total = np.asarray(total * bytes_per_element + 0 * tokens)
        return float(total) if total.ndim == 0 else total

    @checked(bytes_per_element=rate("bytes"))
    def state_bytes(self, bytes_per_element: float = 2) -> float:
        """Constant state of one sequence, bytes: the state in the dtype that its config says, all else as given."""
        total = 0.0
        for layers, mixer in self.kernel_kinds:
            each = bytes_per_element if mixer.state_dtype is None else bytes_of(mixer.state_dtype)
            total += layers * (each * mixer.state_elements + bytes_per_element * mixer.conv_elements)
        return total


LAYERS, BLOCK = count(), a(Block)


def _layers(value: Any) -> Any:
    """(number of layers, Block), or REFUSED."""
    if not isinstance(value, tuple) or len(value) != 2:
        return REFUSED
    pair = LAYERS.turn(value[0]), BLOCK.turn(value[1])
    return REFUSED if REFUSED in pair else pair


class FromConfig:
    """What a model that was read says of its file: `left_out`, `keys_not_read` and `stored` are fields of Model."""

    left_out: tuple[str, ...]
    keys_not_read: tuple[str, ...]
    stored: str

    @classmethod
    def from_config(cls, config: dict[str, Any], like: str | None = None, name: str | None = None) -> Self:
        """The model that a config.json describes, exact to the unit, or UnsupportedModelError.

        `config`: the parsed dict. `like`: the family to read it as, for a new model of a known layout (like="llama").
        Raises UnsupportedModelError for an architecture or a structural key that is not read, InvalidInputError for a
        missing or contradictory value. Nothing in a config is ever executed.
        """
        from lessonlib.model.config.reader import read_config_as_model  # all families, when a config is first read

        return read_config_as_model(cls, config, like=like, name=name)

    def __str__(self) -> str:
        """The model in a line, and a line for each thing that its config holds and the model does not."""
        lines = [repr(self)]
        lines += [f"Left out: {', '.join(self.left_out)}."] * bool(self.left_out)
        lines += [f"Keys not read: {', '.join(map(shown, self.keys_not_read))}."] * bool(self.keys_not_read)
        lines += [f"Stored {self.stored.removesuffix('.')}."] * bool(self.stored)
        return "\n".join(map(printable, lines))


@dataclass(frozen=True, kw_only=True)
class Model(Checked, Stack, FromConfig):
    """A decoder-only transformer or hybrid, `blocks` = ((count, Block), ...) in any order.

    `position_weights` is a table of learned positions, `layer_tables` those of inputs to each layer (looked up, never
    streamed); `matrices` are matrix weights beside the blocks that each token meets, `idle_weights` those that no token
    of text meets, such as layers for images alone; `other_weights` the final norm and the like; `head_bias` a bias on
    the logits. `max_positions` None means no limit is stated. Of a config that was read, `defaults_used` names the keys
    that it lacks, taken from its family's class; `keys_not_read` those that were neither read nor known to be harmless;
    `left_out` says what is not counted: towers, and layers that draft; `stored`, how its file is quantised ("" if it is
    not), which `Precision.from_config` gives.
    """

    name: str
    width: int
    vocabulary: int
    blocks: tuple[tuple[int, Block], ...]
    tied_embeddings: bool = False
    max_positions: int | None = None
    position_weights: int = 0
    layer_tables: int = 0
    matrices: int = 0
    idle_weights: int = 0
    other_weights: int = 0
    head_bias: int = 0
    family: str = ""
    defaults_used: tuple[str, ...] = ()
    keys_not_read: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    stored: str = ""

    rules: ClassVar = {
        "name": a(str, "'llama-3.1-8b'"),
        "family": a(str, "'llama'"),
        "stored": a(str),
        **dict.fromkeys(("defaults_used", "keys_not_read", "left_out"), items(a(str))),
        "width": count(),
        "vocabulary": count(),
        "blocks": items(Rule("(number of layers, Block)", _layers), least=1),
        "tied_embeddings": flag(),
        "max_positions": optional(count()),
        **dict.fromkeys(
            ("position_weights", "layer_tables", "matrices", "idle_weights", "other_weights", "head_bias"), count(0)
        ),
    }

    @property
    def owner(self) -> str:
        return f"Model {shown(self.name)}"

    def complete(self) -> None:
        for _, block in self.blocks:
            for part in block.parts:
                if part.width != self.width:
                    expected = f"that of the model, {self.width}, in every part"
                    raise wrong(self.owner, f"width of {part.owner}", part.width, expected)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{count} x {mixer.label}" for count, mixer in self.mixer_kinds)
        less = self.active_parameters_without_embedding
        table = f", {less:,} without the embedding table" if less != self.active_parameters else ""
        return (
            f"{self.owner}: {self.parameters:,} parameters ({self.active_parameters:,} used by a token{table}), "
            f"{self.layers} layers ({kinds}), width {self.width:,}, vocabulary {self.vocabulary:,}"
        )

    @property
    def head_weights(self) -> int:
        """Weights of the LM head's matrix: V w, whether or not they are shared with the embedding."""
        return self.vocabulary * self.width

    @property
    def embedding_weights(self) -> int:
        """Weights of an embedding table of its own (0 if tied): looked up, never streamed."""
        return 0 if self.tied_embeddings else self.vocabulary * self.width

    @property
    def looked_up_weights(self) -> int:
        """Weights of all tables that are looked up, never streamed; a tied embedding is the head."""
        return self.embedding_weights + self.position_weights + self.layer_tables

    @cached_property
    def parameters(self) -> int:
        """Exact number of parameters; tied tables count once, multi-token-prediction modules do not."""
        blocks = sum(count * block.parameters for count, block in self.blocks)
        tables = self.looked_up_weights + self.head_weights + self.head_bias
        return blocks + tables + self.matrices + self.idle_weights + self.other_weights

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token uses: all but the routed experts that its router did not choose."""
        idle = (
            layers * (ffn.experts - ffn.experts_per_token) * (ffn.expert_weights + ffn.expert_other_weights)
            for layers, ffn in self.expert_kinds
        )
        return self.parameters - self.idle_weights - sum(idle)

    @property
    def active_parameters_without_embedding(self) -> int:
        """Those without the tables that are looked up, as many model cards count; a tied embedding is the head."""
        return self.active_parameters - self.looked_up_weights

    @cached_property
    def weights_by_part(self) -> dict[str, int]:
        """Stored weights by the part whose precision they take; they add up to `parameters`.

        "blocks" are the matrices of mixers, dense feed-forwards and shared experts; "experts" the routed ones; "other"
        norms, biases and routers; "embedding" the tables that are looked up, learned positions among them.
        """
        dense, experts, other = self.block_weights()
        return {
            "blocks": dense + self.matrices + self.idle_weights,
            "experts": experts,
            "other": other + self.other_weights + self.head_bias,
            "head": self.head_weights,
            "embedding": self.looked_up_weights,
        }
