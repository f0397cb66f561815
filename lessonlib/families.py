"""How the families of published models differ from Llama: a table of data, read by config_reader.py.

The base row is Llama: q, k, v, o without bias; a gated feed-forward of three matrices; two RMSNorms a block and a final
one; an untied head. A row says only how its family differs, and which values its class takes for keys that a published
config.json leaves out. A `Switch` is True, False, or the name of the config key that decides.

Source: the model classes and configuration classes of transformers 5.24 (github.com/huggingface/transformers, Apache-2.0).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Switch = bool | str


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Where a mixture of experts keeps its sizes: names of config keys, and which of the optional weights it has."""

    experts: str = "num_experts"
    top_k: str = "num_experts_per_tok"
    inner: str = "moe_intermediate_size"
    shared_count: str | None = None  # a number of shared experts, each of the routed experts' inner size
    shared_size: str | None = None  # the inner size of all shared experts together
    shared_gate: bool = False  # one more router column
    bias: Switch = False  # on the expert matrices and the router
    correction: Switch = False  # one routing bias an expert that is a parameter (a buffer is not counted)
    placement: str = "all"  # which layers: a function of config_reader.py


@dataclass(frozen=True, kw_only=True)
class Family:
    """One row. The first fields are names of config keys; None means that the family has no such key."""

    width: str = "hidden_size"
    layers: str = "num_hidden_layers"
    heads: str = "num_attention_heads"
    kv_heads: str | None = "num_key_value_heads"  # null: as many as heads
    head_dim: str | None = "head_dim"  # null: width / heads
    inner: str = "intermediate_size"
    positions: str | None = "max_position_embeddings"
    tied: Switch = "tie_word_embeddings"

    qkv_bias: Switch = False
    out_bias: Switch = False
    mlp_bias: Switch = False
    head_bias: Switch = False
    qk_norm: Switch = False
    qk_norm_over: str = "head"  # "head": 2 d weights; "all": (h + k) d
    sinks: Switch = False
    gated: bool = True
    norm: str = "rms"  # "rms": w weights; "layer": 2 w; "none": none
    norms: int = 2  # in a block
    final_norm: bool = True
    position_table: int | None = None  # rows beyond the number of positions; None: no table

    pattern: str = "full"  # which kind each layer is, if no layer_types: a function of config_reader.py
    window: str | None = None
    period: str | int | None = None
    layer_types: bool = False  # whether the class reads that key
    experts: Experts | None = None
    mixer: str = "attention"  # what a full-attention layer is: a function of config_reader.py

    defaults: Mapping[str, Any] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()  # keys that look structural, and are not in this family


BASE = Family()
FAMILIES: dict[str, Family] = {}


def _family(names: str, base: str | None = None, defaults: Mapping[str, Any] | None = None, **changes: Any) -> None:
    """Add a row under each of `names`: the row `base` (Llama) with `changes`, and `defaults` over the base's."""
    row = FAMILIES[base] if base else BASE
    row = replace(row, defaults={**row.defaults, **(defaults or {})}, **changes)
    FAMILIES.update(dict.fromkeys(names.split(), row))


_family(
    "llama",
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    mlp_bias="mlp_bias",
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": None, "head_dim": None, "max_position_embeddings": 2048,
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
    },
)  # fmt: skip
