"""Reads the parsed dict of a config.json as a Model, by the rows of families.py. Exact, or refused: never a guess.

Every key is read through one accessor that records it. A key that is absent takes its family's own class default, and is
then named in `Model.defaults_used`; a structural key that is set but was not read is an error that names it.
"""

import re
from collections.abc import Callable
from typing import Any

from lessonlib.attention import GroupedQueryAttention, Mixer
from lessonlib.errors import InvalidInputError, UnsupportedModelError
from lessonlib.families import FAMILIES, Family, Switch
from lessonlib.feedforward import DenseFeedForward
from lessonlib.model import Block

MOST_LAYERS = 100_000
LARGEST_NUMBER = 10**9

STRUCTURAL = re.compile(
    r"expert|moe|lora_rank|mamba|linear_|conv|ssm|layer_types|block_type|per_layer|index_|indexer|shared_kv|kv_shared"
    r"|cross_attention|^hc_|altup|laurel|window|sliding|vision_config|audio_config|encoder_decoder|sinks?$|mla"
    r"|chunk_size$|rnn|hybrid|dense_replace|nope_head|rope_head|v_head_dim|qk_norm|pruned_heads|global_head"
)
SIZES = frozenset(
    "hidden_size n_embd d_model num_hidden_layers n_layer num_layers num_attention_heads n_head num_heads n_inner"
    " num_key_value_heads num_kv_heads multi_query intermediate_size ffn_dim ffn_hidden_size head_dim qkv_bias".split()
)
HARMLESS = frozenset(
    "router_aux_loss_coef output_router_logits router_jitter_noise moe_router_dtype chunk_size_feed_forward"
    " is_encoder_decoder_ tie_encoder_decoder".split()
)


class ConfigReader:
    """One config.json: hands out checked values, and remembers which keys were read and which were absent."""

    def __init__(self, config: dict[str, Any], owner: str, family: Family, use_defaults: bool):
        self.config, self.owner, self.family, self.use_defaults = config, owner, family, use_defaults
        self.read: set[str] = set()
        self.defaults_used: list[str] = []

    def value(self, key: str) -> Any:
        self.read.add(key)
        if key in self.config:
            return self.config[key]
        if self.use_defaults and key in self.family.defaults:
            if key not in self.defaults_used:
                self.defaults_used.append(key)
            return self.family.defaults[key]
        raise UnsupportedModelError(
            f"{self.owner}: the config has no {key!r}, and the value that its class takes then is not known; "
            f"add {key!r} to the config."
        )

    def wrong(self, key: str, value: Any, expected: str) -> InvalidInputError:
        shown = repr(value)
        shown = shown if len(shown) < 80 else shown[:77] + "..."
        return InvalidInputError(
            f"{self.owner}: missing or contradictory config key {key!r} is {shown}; expected {expected}."
        )

    def count(self, key: str, least: int = 1) -> int:
        value = self.optional_count(key, least)
        if value is None:
            raise self.wrong(key, None, f"a whole number of at least {least}")
        return value

    def optional_count(self, key: str, least: int = 1) -> int | None:
        """The value as an int, None if it is null; InvalidInputError for anything else."""
        value = self.value(key)
        if value is None:
            return None
        whole = isinstance(value, int) and not isinstance(value, bool)
        if isinstance(value, float) and value.is_integer():
            value, whole = int(value), True
        if not whole or not least <= value <= LARGEST_NUMBER:
            raise self.wrong(key, value, f"a whole number from {least} to {LARGEST_NUMBER:,}")
        return value

    def switch(self, switch: Switch) -> bool:
        if isinstance(switch, bool):
            return switch
        value = self.value(switch)
        if not isinstance(value, bool):
            raise self.wrong(switch, value, "true or false")
        return value

    def strings(self, key: str, length: int) -> list[str] | None:
        """A list of `length` words, None if the key is absent or null."""
        self.read.add(key)
        value = self.config.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length or not all(isinstance(word, str) for word in value):
            raise self.wrong(key, value, f"a list of {length} strings, one a layer")
        return value

    def refuse_unread(self) -> None:
        """UnsupportedModelError for the first structural key that is set and was not read."""
        for key, value in self.config.items():
            if key in self.read or key in HARMLESS or key in self.family.ignored:
                continue
            is_set = not (value is None or value is False or value == 0 or value in ("", [], {}))
            if is_set and (key in SIZES or STRUCTURAL.search(key)):
                raise UnsupportedModelError(
                    f"{self.owner}: the config sets {key!r}, which is not read for this family and may change the model; "
                    "it is refused rather than ignored."
                )


def read_config_as_model(cls: Any, config: Any, like: str | None = None, name: str | None = None) -> Any:
    """The Model of class `cls` that `config` describes; see `Model.from_config`."""
    if not isinstance(config, dict) or not all(isinstance(key, str) for key in config):
        raise InvalidInputError(
            f"config is a {type(config).__name__}; expected the parsed object of a config.json, a dict with string keys."
        )
    family_name, stated = _choose_family(config, like)
    family = FAMILIES[family_name]
    reader = ConfigReader(config, f"config of a {family_name!r} model", family, stated)
    try:
        model = _build(cls, family_name, family, reader, name or family_name)
    except RecursionError:  # a value nested beyond what repr can show
        raise InvalidInputError(f"{reader.owner}: a value is nested too deeply to be read.") from None
    reader.refuse_unread()
    return model


def _choose_family(config: dict[str, Any], like: str | None) -> tuple[str, bool]:
    """Name of the row, and whether it was stated (by model_type or `like`), so that class defaults are known."""
    model_type = config.get("model_type")
    if like is not None:
        if not isinstance(like, str) or like not in FAMILIES:
            raise UnsupportedModelError(
                f"like={like!r} is not a family that is read; known: {', '.join(sorted(FAMILIES))}."
            )
        return like, True
    if isinstance(model_type, str) and model_type in FAMILIES:
        return model_type, True
    raise UnsupportedModelError(
        f"model_type {model_type!r} is not an architecture that is read. If its layout is that of a known family, "
        'say so: like="llama".'
    )


def _build(cls: Any, family_name: str, family: Family, r: ConfigReader, name: str) -> Any:
    width, layers = r.count(family.width), r.count(family.layers)
    if layers > MOST_LAYERS:
        raise r.wrong(family.layers, layers, f"at most {MOST_LAYERS:,} layers")
    kinds = PATTERNS[family.pattern](r, family, layers)
    norm = {"rms": 1, "layer": 2, "none": 0}[family.norm] * width
    mixers = {kind: MIXERS[kind](r, family, width) for kind in dict.fromkeys(kinds)}
    inner = r.count(family.inner)
    bias = (2 if family.gated else 1) * inner + width if r.switch(family.mlp_bias) else 0
    dense = DenseFeedForward(width=width, inner=inner, gated=family.gated, other_weights=bias)
    blocks: dict[Block, int] = {}
    for kind in kinds:
        block = Block(mixers[kind], dense, family.norms * norm)
        blocks[block] = blocks.get(block, 0) + 1
    vocabulary = r.count("vocab_size")
    positions = r.optional_count(family.positions) if family.positions else None
    return cls(
        name=name,
        width=width,
        vocabulary=vocabulary,
        blocks=tuple((count, block) for block, count in blocks.items()),
        tied_embeddings=r.switch(family.tied),
        max_positions=positions,
        other_weights=norm if family.final_norm else 0,
        family=family_name,
        defaults_used=tuple(r.defaults_used),
    )


def _attention(r: ConfigReader, family: Family, width: int) -> Mixer:
    heads = r.count(family.heads)
    kv_heads = (r.optional_count(family.kv_heads) if family.kv_heads else None) or heads
    head_dim = r.optional_count(family.head_dim) if family.head_dim else None
    if head_dim is None:
        if width % heads:
            raise r.wrong(family.heads, heads, f"a divisor of {family.width}, {width}, as no head_dim is given")
        head_dim = width // heads
    other = 0
    if r.switch(family.qkv_bias):
        other += (heads + 2 * kv_heads) * head_dim
    if r.switch(family.out_bias):
        other += width
    return GroupedQueryAttention(width=width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, other_weights=other)


PATTERNS: dict[str, Callable[[ConfigReader, Family, int], list[str]]] = {
    "full": lambda r, family, layers: ["full_attention"] * layers
}
MIXERS: dict[str, Callable[[ConfigReader, Family, int], Mixer]] = {"full_attention": _attention}
