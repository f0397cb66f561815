"""What a row of the table of families says: under which keys its sizes stand, how its layers are made, its defaults.

Rows are read by reader.py and written in families/. A `Switch` is True, False, or the name of the config key that
decides. A key may be written "a|b": names of one thing. None for a key: the family has no such key. A rule is a
function of `Keys`, the reader's accessor (keys.py); those that rows share are in rules.py and mixers.py.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from lessonlib.model.attention import Mixer
from lessonlib.model.block import Block

Switch = bool | str

# Weights of a norm, in widths; a LayerNorm without bias has those of an RMSNorm.
RMS_NORM, LAYER_NORM, NO_NORM = 1, 2, 0
SIZES = ("vocabulary", "width", "inner", "layers", "heads", "kv_heads", "positions", "window", "tied")
EXPERT_SIZES = ("experts", "top_k", "expert_inner", "shared_experts", "shared_inner")
NONE: Mapping[str, Any] = MappingProxyType({})
# What nearly all classes take where a config leaves the key out.
COMMON = {"tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "head_dim": None}


class Experts(NamedTuple):
    """Under which keys a mixture of experts has its sizes, which layers have it, and its optional weights."""

    experts: str = "num_experts|num_local_experts"
    top_k: str = "num_experts_per_tok"
    expert_inner: str = "moe_intermediate_size"
    shared_experts: str | None = None  # a number of shared experts, each as large as a routed one
    shared_inner: str | None = None  # the inner size of all shared experts together
    never_unshared: bool = False  # no shared experts are refused: the class then takes one of the dense size
    none_is_dense: bool = False  # with 0 experts the class becomes a dense model; otherwise that is refused
    shared_gate: bool = False  # one more router column
    latent: str | None = None  # the width that routed experts work in; null: that of the model
    bias: bool = False  # on the expert matrices and the router
    on: Switch = True  # whether there are any at all
    correction: bool = False  # one routing bias an expert, where it is a parameter (a buffer is not counted)
    norm: bool = False  # one more norm in a sparse block
    first_dense: str | int = 0  # how many layers, from the first, have no experts: a number, or the key that says it
    listed: bool = False  # whether mlp_layer_types says it layer by layer, and wins
    placement: Callable[..., list[bool]] | None = None  # a rule instead of `first_dense`

    def but(self, **changes: Any) -> Self:
        return self._replace(**changes)


class Family(NamedTuple):
    """One row. Norms count in weights, biases and the like in what is only added or scaled."""

    # Kinds of layer: F full, S sliding, W sliding if a window is set, L constant state, C short convolution, H several
    # mixers, - a dense feed-forward alone, + experts alone, ? not known without layer_types.
    mixers: Mapping[str, Callable[..., Mixer | None]]  # the rule that reads the mixer of each kind
    kinds: Callable[..., list[str]]  # the rule that says the kind of each layer
    dense_inner: Callable[..., int] | None  # the rule that reads the inner size of dense layers; None: no feed-forward

    vocabulary: str = "vocab_size"
    width: str = "hidden_size"
    layers: str = "num_hidden_layers"
    layer_count: Callable[..., int] | None = None  # a rule instead of that key
    heads: str = "num_attention_heads"
    kv_heads: str | None = "num_key_value_heads"  # None, or null where that is the class default: as many as heads
    head_dim: str | None = "head_dim"  # the same: width / heads
    floors_head_dim: bool = False  # width / heads rounded down where it leaves a remainder; otherwise an error
    value_dim: str | None = None  # head_dim, unless it has a key of its own
    inner: str | None = "intermediate_size"  # the same: 4 widths
    positions: str | None = "max_position_embeddings"
    tied: Switch = "tie_word_embeddings"

    qkv_bias: Switch = False
    out_bias: Switch = False
    mlp_bias: Switch = False
    head_bias: Switch = False
    qk_norm: Switch = False  # a norm of head_dim weights for the queries, and one for the keys
    qk_norm_over_all: bool = False  # one for each head and KV head instead
    qk_norm_bias: bool = False  # twice the weights
    gate: Switch = False  # an output gate of the attention: an output a channel
    gate_per_head: bool = False  # an output a head instead
    gate_in_query: bool = False  # made by the query's projection, and with its bias
    extra_per_head: int = 0  # weights a layer and head that are only added: sinks, gate biases
    gated: bool = True  # a feed-forward of three matrices, not two
    extra_inner: Callable[..., int] | None = None  # a rule: matrix weights of a dense feed-forward beside these
    no_feedforward: str = ""  # the kinds of layer that have none
    activation_weights: int | Callable[..., int] = 0  # parameters of the activation, a layer: a number, or a rule
    norm: int = RMS_NORM
    norms: int | Callable[..., int] | Mapping[str, int] = 2  # in a block: a number, a rule, or a number by kind
    borrowed: Callable[..., int] | None = None  # a rule: the weights of a kind of layer that an earlier one stores
    final_norm: bool = True
    embedding_norm: bool = False
    position_rows: int | None = None  # rows of a learned table beyond the number of positions; None: no table

    cycle: str = "F"  # for that rule: kinds, repeated
    first: str = ""  # kinds of the first layers, and of the last ones, where the cycle does not hold
    last: str = ""
    period: str | None = None  # key of the cycle's length
    layer_types: bool = False  # whether the list layer_types says it layer by layer, and wins
    window: str | None = None
    window_switch: Switch = True
    window_from: str | None = None  # windows only from this layer on
    experts: Experts | None = None
    marked: Callable[..., list[str]] | None = None  # a rule that puts the kinds of some layers in small letters
    spelled: Callable[..., None] | None = None  # a rule that turns other spellings of its class into keys of this row
    amended: Callable[..., Block] | None = None  # a rule that adds to a block of one kind what no field says
    beside: Callable[..., dict[str, int]] | None = None  # a rule of what stands beside the blocks, by fields of Model

    defaults: Mapping[str, Any] = NONE  # of the class, for keys that a config leaves out
    required: Mapping[str, Any] = NONE  # defaults of the class, too; other values are refused
    ignored: Mapping[str, Any] = NONE  # not read though structural; at this value; None: any

    def but(self, **changes: Any) -> Self:
        """The same layout with changes, and without the defaults, which are those of one class."""
        return self._replace(defaults={}, **changes)


class Rows(dict[str, Family]):
    """Rows by model_type."""

    def add(self, names: str, layout: Family, **defaults: Any) -> Family:
        """Add a row under each of `names`, parted by blanks: the layout, and what its class takes for absent keys.

        Sizes are given by the names of SIZES and EXPERT_SIZES (width=4096 is for the key that `layout.width` names),
        other keys by their own. No row takes a default from another; COMMON holds what nearly all share.
        """
        keys = {name: getattr(layout, name) for name in SIZES}
        keys |= {name: getattr(layout.experts, name, None) for name in EXPERT_SIZES}
        stated = {(keys.get(name) or name).split("|")[0]: value for name, value in defaults.items()}
        row = layout._replace(defaults={**COMMON, **layout.required, **stated})
        for name in names.split():
            assert name not in self, f"{name} has a row already"
            self[name] = row
        return row
