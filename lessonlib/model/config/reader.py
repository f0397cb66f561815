"""Reads the parsed dict of a config.json as a Model, by the rows of families.py. Exact, or refused: never a guess.

Every key is read through one accessor that records it. A key that is absent takes its family's own class default, and
is then named in `Model.defaults_used`; a structural key that is set but was not read is an error that names it.
Nothing of a config is executed.
"""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import copy
from typing import Any

from lessonlib.base.errors import InvalidInputError, LessonError, UnsupportedModelError, shown
from lessonlib.model.attention import (
    GatedDeltaNet,
    GroupedQueryAttention,
    KimiDeltaAttention,
    Mamba1,
    Mamba2,
    Mixer,
    MultiHeadLatentAttention,
    ShortConvolution,
)
from lessonlib.model.block import Block
from lessonlib.model.config.families import (
    ENCODERS,
    FAMILIES,
    GROUPS,
    HARMLESS,
    IRREGULAR,
    SAME_THING,
    STRUCTURAL,
    Family,
    Switch,
)
from lessonlib.model.feedforward import DenseFeedForward, FeedForward, MixtureOfExperts

MOST_LAYERS = 10_000
LARGEST_NUMBER = 10**9
ONE_LETTER = {
    "full_attention": "F",
    "attention": "F",
    "global": "F",
    "sliding_attention": "S",
    "local": "S",
    "linear_attention": "L",
    "mamba": "L",
    "conv": "C",
}
NORM_WEIGHTS = {"rms": 1, "layer": 2, "none": 0}  # times the width


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an int of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _all_are(value: Any, wanted: Any) -> bool:
    """Whether `value` is what is wanted, or a list of nothing else (one entry a layer)."""
    values = value if isinstance(value, list) and not isinstance(wanted, list) else [value]
    return all(type(item) is type(wanted) and item == wanted for item in values)


class ConfigReader:
    """One config.json: hands out checked values, remembers which keys were read, and which were absent.

    A key may be written "a|b": names of one thing, which must agree where both are there.
    """

    def __init__(self, config: dict[str, Any], owner: str, family: Family, class_is_known: bool):
        self.config, self.owner, self.family, self.class_is_known = config, owner, family, class_is_known
        self.read: dict[str, Any] = {}
        self.defaults_used: list[str] = []
        self.width = self.layers = 0
        self.window: int | None = None

    def value(self, key: str) -> Any:
        """The raw value, or the family's class default; UnsupportedModelError when there is neither."""
        names = key.split("|")
        given = [(name, self.config[name]) for name in names if name in self.config]
        if not given and not (self.class_is_known and names[0] in self.family.defaults):
            raise UnsupportedModelError(
                f"{self.owner}: key {names[0]!r} is absent, and the value that its class takes then is not known; "
                f"add {names[0]!r} to the config."
            )
        value = given[0][1] if given else self.family.defaults[names[0]]
        for name, other in given:
            if other != value and not (other is None or value is None):
                raise self.wrong(name, other, f"{_short(value)}, as {given[0][0]!r} says the same thing")
            value = other if value is None else value
        self.read.update(dict.fromkeys(names, value))
        if not given:
            self.defaults_used.extend(name for name in names if name not in self.defaults_used)
        return value

    def wrong(self, key: str, value: Any, expected: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self.owner}: missing or contradictory config key {key.split('|')[0]!r}: it is {_short(value)}; "
            f"expected {expected}."
        )

    def refused(self, key: str, value: Any, why: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self.owner}: key {key.split('|')[0]!r} is {_short(value)}: {why}; not read, so refused."
        )

    def optional(self, key: str, least: int = 1) -> int | None:
        """The value as an int, None if it is null; InvalidInputError for anything else."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST_NUMBER:
            raise self.wrong(key, value, f"a whole number from {least} to {LARGEST_NUMBER:,}")
        return value

    def count(self, key: str, least: int = 1) -> int:
        value = self.optional(key, least)
        if value is None:
            raise self.refused(key, None, "its size is not stated")
        return value

    def derived(self, key: str | None, otherwise: int) -> int:
        """The value of a key that may be null, `otherwise` if it is, or if the family has no such key."""
        value = self.optional(key) if key else None
        if value is None and key and self.family.defaults.get(key.split("|")[0]) is not None:
            raise self.refused(key, None, "its class has no rule for that")
        return otherwise if value is None else value

    def switch(self, switch: Switch) -> bool:
        if isinstance(switch, bool):
            return switch
        value = self.value(switch)
        if not isinstance(value, bool):
            raise self.wrong(switch, value, "true or false")
        return value

    def listed(self, key: str, length: int, words: Iterable[str]) -> list[str] | None:
        """A list of `length` of these words, or None when the key is absent (then it is noted) or null."""
        value = self.config.get(key)
        self.read[key] = value
        if value is None:
            if key not in self.config and key not in self.defaults_used:
                self.defaults_used.append(key)
            return None
        if not isinstance(value, list) or len(value) != length:
            raise self.wrong(key, value, f"a list of {length} words, one a layer")
        for word in value:
            if not isinstance(word, str) or word not in words:
                raise self.refused(key, word, "a kind of layer that this family has not")
        return value

    def indices(self, key: str, layers: int, first: int = 0) -> set[int]:
        """A list of layer numbers as a set counted from 0 (null: none); `first` is the number of the first layer."""
        value = self.value(key)
        value = self.family.defaults.get(key) or [] if value is None else value
        whole = isinstance(value, list) and all(type(i) is int and 0 <= i - first < layers for i in value)
        if not whole:
            raise self.wrong(key, value, f"a list of layer numbers from {first} to {layers - 1 + first}")
        return {i - first for i in value}

    def inside(self, key: str) -> "ConfigReader":
        """A reader of the object under `key`, or of an empty one; its keys have no defaults."""
        self.read[key] = value = self.config.get(key)
        if not isinstance(value, dict | None):
            raise self.wrong(key, value, "an object")
        return ConfigReader(value or {}, f"{self.owner}, in {key!r}", self.family, False)

    def mark_read(self, build: Callable[["ConfigReader", Any], Any], what: Any) -> None:
        """Count as read what `build` reads, without building."""
        trial = copy(self)
        trial.defaults_used = []
        with suppress(LessonError):
            build(trial, what)

    def refuse_unread(self) -> None:
        """UnsupportedModelError for the first structural key that is set, was not read, and is not what is counted."""
        assumed = {**HARMLESS, **self.family.ignored}
        if self.family.qk_norm is True:
            assumed = dict.fromkeys(("qk_norm", "use_qk_norm"), True) | assumed
        for key, value in self.config.items():
            if value is None or key in self.read or key.endswith("_token_id"):
                continue
            unset = value is False or value in (0, "", [], {})
            counts_groups = GROUPS.search(key.lower()) and not isinstance(value, bool | str | dict)
            if key not in assumed and (unset or not (STRUCTURAL.search(key) or counts_groups)):
                continue
            if key in assumed and (assumed[key] is None or _all_are(value, assumed[key])):
                continue
            same = next((names for names in SAME_THING if key in names), ())
            if any(name in self.read and _all_are(value, self.read[name]) for name in same):
                continue
            raise self.refused(key, value, "it may change the model, and this family's layout does not have it")

    def refuse_borrowed(self) -> None:
        """UnsupportedModelError for sizes that a model of another class took from the class defaults of this family."""
        family, moe = self.family, self.family.experts
        keys = [family.width, family.layers, family.heads, family.kv_heads, "vocab_size", family.inner]
        keys += [moe.experts, moe.top_k, moe.inner, moe.shared_count, moe.shared_size] if moe else []
        keys += [key for key in family.defaults if "head_dim" in key or "rank" in key]
        names = dict.fromkeys(key.split("|")[0] for key in keys if key)
        missing = [name for name in names if name in self.defaults_used and family.defaults.get(name) is not None]
        if missing:
            raise UnsupportedModelError(
                f"{self.owner}, by like=: it does not state {', '.join(missing)}. The class defaults of another "
                "model's family are no sizes of this one: add these keys, under these names, to the config."
            )


def read_config_as_model(cls: Any, config: Any, like: str | None = None, name: str | None = None) -> Any:
    """The Model of class `cls` that `config` describes; see `Model.from_config`."""
    if not isinstance(config, dict) or not all(isinstance(key, str) for key in config):
        raise InvalidInputError(
            f"config is a {type(config).__name__}; expected the parsed object of a config.json, a dict."
        )
    try:
        config = _text_config(config, like)
        family_name, class_is_known = _choose_family(config, like)
        family = FAMILIES[family_name]
        reader = ConfigReader(config, f"config of a {family_name!r} model", family, class_is_known)
        model = _build(cls, reader, family_name, name)
        if like is not None and config.get("model_type") != family_name:
            reader.refuse_borrowed()
        reader.refuse_unread()
    except RecursionError:
        raise InvalidInputError("config: a value is nested too deeply; expected a config.json as published.") from None
    return model


def _text_config(config: dict[str, Any], like: str | None) -> dict[str, Any]:
    """`config` itself, or the text_config of a causal language model that keeps its sizes there."""
    text = config.get("text_config")
    if text is None:
        return config
    names = config.get("architectures")
    causal = isinstance(names, list) and bool(names) and all(str(name).endswith("ForCausalLM") for name in names)
    readable = isinstance(text, dict) and all(isinstance(key, str) for key in text)
    # Fuyu is a ForCausalLM with image weights of its own; a family that reads text alone names both levels alike
    if not causal or not readable or not str(text.get("model_type")).startswith(f"{config.get('model_type')}_text"):
        raise UnsupportedModelError(
            f"config of model_type {_short(config.get('model_type'))} wraps a language model and other towers: "
            "pass config['text_config'] to read the language model alone."
        )
    if config.get("tie_word_embeddings") != text.get("tie_word_embeddings") or "tie_word_embeddings" not in text:
        raise UnsupportedModelError(
            "config and its text_config do not agree on 'tie_word_embeddings', so the head is not known: "
            "pass config['text_config'] to read the language model alone."
        )
    return text


def _choose_family(config: dict[str, Any], like: str | None) -> tuple[str, bool]:
    """Name of the row, and whether the class that gives the defaults is known: by model_type, or by `like`."""
    model_type = config.get("model_type")
    named = model_type if isinstance(model_type, str) else None
    if like is not None and not (isinstance(like, str) and like in FAMILIES):
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModelError(f"like={shown(like)} is no family that is read; known: {known}.")
    if named in ENCODERS or config.get("is_encoder_decoder") not in (None, False):
        raise UnsupportedModelError(
            f"model_type {named!r} is an encoder or has one; only decoder-only models are read, and a switch "
            "such as is_decoder does not make it one."
        )
    if named in IRREGULAR:
        raise UnsupportedModelError(f"model_type {named!r} is not read: {IRREGULAR[named]}.")
    if named in FAMILIES:
        if like is not None and FAMILIES[like] is not FAMILIES[named]:
            raise UnsupportedModelError(f"model_type {named!r} has a layout of its own; leave out like={like!r}.")
        return named, True
    if like is not None:
        return like, True
    if model_type is None:  # then the class, and with it the default of an absent key, is not known
        names = config.get("architectures")
        for name in names if isinstance(names, list) else []:
            plain = re.sub(r"(ForCausalLM|LMHeadModel)$|_", "", str(name)).lower()
            for family_name in FAMILIES:
                if re.sub(r"_text$|[_-]", "", family_name) == plain and str(name) != plain:
                    return family_name, False
    raise UnsupportedModelError(
        f"model_type {_short(model_type)} (architectures {_short(config.get('architectures'))}) is not an architecture "
        'that is read. If it has the layout of a known family, say so: like="llama".'
    )


def _build(cls: Any, r: ConfigReader, family_name: str, name: str | None) -> Any:
    family = r.family
    r.width, r.layers = r.count(family.width), r.count(family.layers)
    if r.layers > MOST_LAYERS:
        raise r.wrong(family.layers, r.layers, f"at most {MOST_LAYERS:,} layers")
    norm = NORM_WEIGHTS[family.norm] * r.width
    norms = family.norms if isinstance(family.norms, int) else NORMS[family.norms](r)
    kinds, sparse = _kinds(r), _sparse(r)
    mixers = {kind: MIXERS[family.mixers[kind]](r, kind) for kind in dict.fromkeys(kinds)}
    feedforwards = {has_experts: _feedforward(r, has_experts) for has_experts in dict.fromkeys(sparse)}
    for kind in family.mixers.keys() - mixers.keys():  # sizes of parts that no layer has may stand in the config
        r.mark_read(MIXERS[family.mixers[kind]], kind)
    for has_experts in {True, False} - feedforwards.keys():
        r.mark_read(_feedforward, has_experts)
    counts: dict[tuple[str, bool], int] = {}
    for pair in zip(kinds, sparse, strict=True):
        counts[pair] = counts.get(pair, 0) + 1
    one_more = family.experts is not None and family.experts.norm
    blocks = tuple(
        (count, Block(mixers[kind], feedforwards[has_experts], (norms + (one_more and has_experts)) * norm))
        for (kind, has_experts), count in counts.items()
    )
    vocabulary = r.count("vocab_size")
    positions = r.optional(family.positions) if family.positions else None
    table = 0
    if family.position_rows is not None:
        if positions is None:
            raise r.refused(str(family.positions), None, "the size of its table of positions is not stated")
        table = (positions + family.position_rows) * r.width
    for key, needed in family.required.items():
        if type(r.value(key)) is not type(needed) or r.value(key) != needed:
            raise r.refused(key, r.value(key), f"only {needed!r} is read for this family")
    return cls(
        name=name or family_name,
        width=r.width,
        vocabulary=vocabulary,
        blocks=blocks,
        tied_embeddings=r.switch(family.tied),
        max_positions=positions,
        position_weights=table,
        other_weights=(family.final_norm + family.embedding_norm) * norm,
        head_bias=vocabulary if r.switch(family.head_bias) else 0,
        family=family_name,
        defaults_used=tuple(r.defaults_used),
    )


# --- which kind each layer is: F full, S sliding, L a constant state, C a short convolution ---


def _kinds(r: ConfigReader) -> list[str]:
    family = r.family
    words = r.listed(family.layer_types, r.layers, ONE_LETTER) if family.layer_types else None
    if family.window:
        on, window = r.switch(family.window_switch), r.value(family.window)
        r.window = r.count(family.window) if on and window is not None else None
    if words is not None:
        kinds = [ONE_LETTER[word] for word in words]
        r.read.update(dict.fromkeys((family.period or "").split("|")))  # the list wins over it
    else:
        kinds = PATTERNS[family.pattern](r) if family.pattern else _cycle(r)
    kinds = [("F" if r.window is None else "S") if kind == "W" else kind for kind in kinds]
    for kind in dict.fromkeys(kinds):
        if kind not in family.mixers:
            raise r.refused(family.layer_types or family.layers, words, "some layers are of a kind it has no row for")
        if kind == "S" and r.window is None:
            key = family.window or family.layers
            raise r.refused(key, r.config.get(key), "some layers are sliding, and their window is off or not stated")
    return kinds


def _cycle(r: ConfigReader) -> list[str]:
    """The row's cycle repeated, its length as the config says, with the row's first and last layers."""
    family, cycle = r.family, r.family.cycle
    if family.period:
        period = r.value(family.period)
        if isinstance(period, str) and re.fullmatch("[LG]{1,99}", period):  # EXAONE writes LLLG: local, global
            cycle = period.replace("G", "F").replace("L", cycle[0])
        elif not (period is None and r.window is None and cycle[0] == "W"):
            cycle = cycle[0] * (r.count(family.period) - 1) + "F" if r.count(family.period) <= r.layers else cycle[0]
    kinds = [cycle[i % len(cycle)] for i in range(r.layers)]
    if family.window_from and r.window is not None:
        start = r.count(family.window_from, 0)
        kinds = ["F" if i < start else kind for i, kind in enumerate(kinds)]
    kinds[: len(family.first)] = family.first[: r.layers]
    if family.last:
        kinds[-1] = family.last
    return kinds


def _early_windows(r: ConfigReader) -> list[str]:
    last = r.count("max_window_layers", 0) if r.window is not None else 0
    return ["S" if i < last and i % 2 == 0 else "F" for i in range(r.layers)]


def _no_rope(r: ConfigReader) -> list[str]:
    """SmolLM3: where windows are on, the layers without rotary positions have them."""
    if r.window is None:
        return ["F"] * r.layers
    rotary = r.value("no_rope_layers")
    if rotary is None:
        interval = r.count("no_rope_layer_interval")
        rotary = [int((i + 1) % interval != 0) for i in range(r.layers)]
    if not isinstance(rotary, list) or len(rotary) != r.layers or any(x not in (0, 1) for x in rotary):
        raise r.wrong("no_rope_layers", rotary, f"a list of {r.layers} zeros and ones")
    return ["F" if has_rotary else "S" for has_rotary in rotary]


def _by_index(r: ConfigReader, key: str, others: str, unstated: str) -> list[str]:
    """Full attention in the layers that `key` lists; where it is null, `unstated` in all."""
    if r.value(key) is None:
        return [unstated] * r.layers
    full = r.indices(key, r.layers)
    return ["F" if i in full else others for i in range(r.layers)]


def _some_full(r: ConfigReader) -> list[str]:
    kinds = _cycle(r)
    return kinds if "F" in kinds else [*kinds[:-1], "F"]


def _after_prefix(r: ConfigReader) -> list[str]:
    """Cohere 2 MoE: the dense layers at the start have a period of their own, and the cycle starts after them."""
    dense = r.count("first_k_dense_replace", 0)
    period = r.count("prefix_dense_sliding_window_pattern")
    prefix = ["F" if (i + 1) % period == 0 else "S" for i in range(min(dense, r.layers))]
    return (prefix + _cycle(r))[: r.layers]


def _gpt_neo(r: ConfigReader) -> list[str]:
    listed = r.listed("attention_layers", r.layers, ("global", "local")) if "attention_layers" in r.config else None
    groups = r.value("attention_types")
    if listed is None:
        listed, well_formed = [], isinstance(groups, list)
        for group in groups if well_formed else []:
            match group:
                case [[*words], int(times)] if 0 <= len(words) * times <= r.layers:
                    listed += words * times
                case _:
                    well_formed = False
        if not well_formed or len(listed) != r.layers or any(word not in ("global", "local") for word in listed):
            raise r.wrong(
                "attention_types", groups, f"a list of [kinds, repeats] for {r.layers} layers, global or local"
            )
    return [ONE_LETTER[word] for word in listed]


def _kimi(r: ConfigReader) -> list[str]:
    """Kimi Linear: the published file keeps kinds and sizes in linear_attn_config, its layers counted from 1."""
    nested = r.config.get("linear_attn_config")
    if not isinstance(nested, dict) or not {"full_attn_layers", "kda_layers"} <= nested.keys():
        r.defaults_used.append("linear_attn_config")
        return _cycle(r)
    full, state = (
        r.inside("linear_attn_config").indices(key, r.layers, 1) for key in ("full_attn_layers", "kda_layers")
    )
    if full & state or len(full | state) != r.layers:
        raise r.wrong(
            "linear_attn_config", nested, f"each of {r.layers} layers once, in full_attn_layers or kda_layers"
        )
    return ["F" if i in full else "L" for i in range(r.layers)]


PATTERNS: dict[str, Callable[[ConfigReader], list[str]]] = {
    "early_windows": _early_windows,
    "no_rope": _no_rope,
    "bamba": lambda r: _by_index(r, "attn_layer_indices", "L", "L"),
    "lfm2": lambda r: _by_index(r, "full_attn_idxs", "C", "F"),
    "some_full": _some_full,
    "after_prefix": _after_prefix,
    "gpt_neo": _gpt_neo,
    "kimi": _kimi,
}


# --- norms in a block, where a key decides ---


def _falcon_norms(r: ConfigReader) -> int:
    stated, parallel = r.optional("num_ln_in_parallel_attn"), r.switch("parallel_attn")
    stated = stated or (2 if r.switch("new_decoder_architecture") else 1)
    return 2 if stated == 2 or not parallel else 1


NORMS: dict[str, Callable[[ConfigReader], int]] = {
    "falcon": _falcon_norms,
    "stablelm": lambda r: 1 if r.switch("use_parallel_residual") else 2,
    "post_norm": lambda r: 4 if r.switch("use_post_norm") else 2,
    "sandwich": lambda r: 4 if r.switch("use_sandwich_norm") else 2,
}


# --- mixers ---


def _head_sizes(r: ConfigReader) -> tuple[int, int]:
    """Heads and the size of one; where no size is stated, the width divided by them."""
    family = r.family
    heads = r.count(family.heads)
    head_dim = r.derived(family.head_dim, 0)
    if not head_dim:
        head_dim = r.width // heads
        if head_dim * heads != r.width and not family.floors_head_dim:
            raise r.wrong(family.heads, heads, f"a divisor of the width {r.width}, as no head_dim is stated")
    if not family.head_dim and "head_dim" in r.config and r.value("head_dim") not in (None, head_dim):
        raise r.refused("head_dim", r.value("head_dim"), "this family takes the width over the heads")
    return heads, head_dim


def _attention(r: ConfigReader, kind: str, kv_heads: int | None = None, sinks: int | None = None) -> Mixer:
    family = r.family
    heads, head_dim = _head_sizes(r)
    if kv_heads is None:
        kv_heads = r.derived(family.kv_heads, heads)
    if heads % kv_heads:
        raise r.wrong(family.kv_heads or family.heads, kv_heads, f"a divisor of the {heads} heads")
    value_dim = r.count(family.value_dim) if family.value_dim else head_dim
    other = heads * (family.extra_per_head if sinks is None else sinks)
    gate = (heads if family.gate_over == "head" else heads * value_dim) if r.switch(family.gate) else 0
    if r.switch(family.qkv_bias):
        other += heads * head_dim + kv_heads * (head_dim + value_dim) + (gate if family.gate_over == "query" else 0)
    if r.switch(family.out_bias):
        other += r.width
    if r.switch(family.qk_norm):
        over = {"head": 2, "head and bias": 4, "all heads": heads + kv_heads}
        other += over[family.qk_norm_over] * head_dim
    return GroupedQueryAttention(
        width=r.width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=None if value_dim == head_dim else value_dim,
        window=r.window if kind == "S" else None,
        gate_outputs=gate,
        other_weights=other,
    )


def _doubled_kv(r: ConfigReader, kind: str) -> Mixer:
    """MiMo-V2: sliding layers have sinks and twice the KV heads."""
    return _attention(r, kind, kv_heads=2 * r.count(str(r.family.kv_heads)), sinks=1)


def _multi_query(r: ConfigReader, kind: str) -> Mixer:
    return _attention(r, kind, kv_heads=1 if r.switch("multi_query") else None)


def _falcon(r: ConfigReader, kind: str) -> Mixer:
    """Only the new layout groups its heads; the old one has one KV head for all, or one for each."""
    stated, heads = r.optional("num_kv_heads"), r.count(r.family.heads)
    if r.switch("new_decoder_architecture"):
        return _attention(r, kind, kv_heads=stated)
    if r.switch("multi_query"):
        return _attention(r, kind, kv_heads=1)
    if stated not in (None, heads):
        raise r.refused("num_kv_heads", stated, f"without the new layout each of the {heads} heads has its own")
    return _attention(r, kind, kv_heads=heads)


def _latent(r: ConfigReader, kind: str) -> Mixer:
    heads, query_rank, kv_rank = r.count(r.family.heads), r.optional("q_lora_rank"), r.count("kv_lora_rank")
    rope_dim, value_dim = r.count("qk_rope_head_dim"), r.derived("v_head_dim", r.width // heads)
    other = kv_rank + (query_rank or 0)
    if r.switch("attention_bias"):
        other += kv_rank + rope_dim + (query_rank or 0) + r.width
    return MultiHeadLatentAttention(
        width=r.width,
        heads=heads,
        kv_rank=kv_rank,
        nope_dim=r.count("qk_nope_head_dim"),
        rope_dim=rope_dim,
        value_dim=value_dim,
        query_rank=query_rank,
        other_weights=other,
    )


def _gated_delta(r: ConfigReader, kind: str) -> Mixer:
    """Sizes under linear_*; where null, as OLMo hybrid has it: the heads of attention, and keys of 3/4 their share."""
    key_heads = r.derived("linear_num_key_heads", r.count(r.family.heads))
    value_heads = r.derived("linear_num_value_heads", r.count(r.family.heads))
    if value_heads % key_heads:
        raise r.wrong("linear_num_value_heads", value_heads, f"a multiple of the {key_heads} key heads")
    key_dim = r.derived("linear_key_head_dim", int(0.75 * r.width / key_heads))
    return GatedDeltaNet(
        width=r.width,
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=r.derived("linear_value_head_dim", 2 * key_dim),
        conv_kernel=r.count("linear_conv_kernel_dim"),
    )


def _kimi_delta(r: ConfigReader, kind: str) -> Mixer:
    nested = r.inside("linear_attn_config")
    keys = {"num_heads": "linear_num_heads", "head_dim": "linear_head_dim"}
    keys["short_conv_kernel_size"] = "linear_conv_kernel_dim"
    sizes = [nested.count(inner) if inner in nested.config else r.count(outer) for inner, outer in keys.items()]
    if set(keys.values()) & set(r.defaults_used) and "linear_attn_config" not in r.defaults_used:
        r.defaults_used.append("linear_attn_config")
    return KimiDeltaAttention(width=r.width, heads=sizes[0], head_dim=sizes[1], conv_kernel=sizes[2])


def _mamba2(r: ConfigReader, kind: str) -> Mixer:
    heads_key, dim_key, groups, state, conv, expand = r.family.state_keys
    heads, inner = r.count(heads_key), r.count(expand) * r.width
    head_dim = inner // heads if r.value(dim_key) == "auto" else r.count(dim_key)
    if heads * head_dim != inner:
        raise r.wrong(heads_key, heads, f"heads of {head_dim} that make up the inner width {inner}")
    return Mamba2(
        width=r.width,
        heads=heads,
        head_dim=head_dim,
        groups=r.count(groups),
        state_size=r.count(state),
        conv_kernel=r.count(conv),
    )


def _mamba1(r: ConfigReader, kind: str) -> Mixer:
    inner = r.count("expand") * r.width
    if "intermediate_size" in r.config and r.count("intermediate_size") != inner:
        raise r.wrong("intermediate_size", r.value("intermediate_size"), f"expand times the width, {inner}")
    auto = r.value("time_step_rank") == "auto"
    return Mamba1(
        width=r.width,
        inner=inner,
        state_size=r.count("state_size"),
        step_rank=-(-r.width // 16) if auto else r.count("time_step_rank"),
        conv_kernel=r.count("conv_kernel"),
    )


def _short_convolution(r: ConfigReader, kind: str) -> Mixer:
    return ShortConvolution(width=r.width, conv_kernel=r.count("conv_L_cache"))


MIXERS: dict[str, Callable[[ConfigReader, str], Mixer]] = {
    "attention": _attention,
    "doubled_kv": _doubled_kv,
    "multi_query": _multi_query,
    "falcon": _falcon,
    "latent": _latent,
    "gated_delta": _gated_delta,
    "kimi_delta": _kimi_delta,
    "mamba2": _mamba2,
    "mamba1": _mamba1,
    "short_convolution": _short_convolution,
}


# --- feed-forwards ---


def _sparse(r: ConfigReader) -> list[bool]:
    """For each layer whether it has experts."""
    moe = r.family.experts
    if moe is None:
        return [False] * r.layers
    if r.family.inner:
        r.read[r.family.inner] = r.config.get(r.family.inner)  # of dense layers, of which there may be none
    dense_first = isinstance(moe.first_dense, str) and moe.first_dense
    words = r.listed("mlp_layer_types", r.layers, ("dense", "sparse")) if moe.listed else None
    number = r.optional(moe.experts, 0)
    if number is None:
        raise r.refused(moe.experts, None, "the number of experts is not stated")
    if number == 0 and moe.placement != "steps" and r.family.feedforward != "shared_only":
        raise r.refused(moe.experts, 0, "without experts its class does not become a dense model")
    if words is not None:
        if dense_first:
            r.read[dense_first] = r.config.get(dense_first)
        return [word == "sparse" and number > 0 for word in words]
    if moe.placement:
        return [sparse and number > 0 for sparse in PLACEMENTS[moe.placement](r)]
    first = r.count(dense_first, 0) if dense_first else int(moe.first_dense)
    return [i >= first and number > 0 for i in range(r.layers)]


def _steps(r: ConfigReader) -> list[bool]:
    step, dense = r.count("decoder_sparse_step"), r.indices("mlp_only_layers", r.layers)
    return [i not in dense and (i + 1) % step == 0 for i in range(r.layers)]


def _range(r: ConfigReader) -> list[bool]:
    first, step = r.count("moe_layer_start_index", 0), r.count("moe_layer_interval")
    last = r.count("moe_layer_end_index", -1)
    last = r.layers - 1 if last == -1 else last
    return [(i + 1) % step == 0 and first <= i <= last for i in range(r.layers)]


PLACEMENTS: dict[str, Callable[[ConfigReader], list[bool]]] = {"steps": _steps, "range": _range}


def _feedforward(r: ConfigReader, has_experts: bool) -> FeedForward | None:
    family, moe = r.family, r.family.experts
    if family.feedforward is None:
        return None
    bias = r.switch(family.mlp_bias)
    if not has_experts or moe is None:
        inner = DENSE_INNER[family.feedforward](r)
        others = (2 if family.gated else 1) * inner + r.width if bias else 0
        return DenseFeedForward(
            width=r.width, inner=inner, gated=family.gated, other_weights=others + family.activation_weights
        )
    if bias:
        raise r.refused(str(family.mlp_bias), True, "biases of experts are not read for this family")
    experts, top_k, inner = r.count(moe.experts), r.count(moe.top_k), r.count(moe.inner)
    if top_k > experts:
        raise r.wrong(moe.top_k, top_k, f"at most the {experts} experts that there are")
    shared = r.optional(moe.shared_size, 0) if moe.shared_size else None
    if shared is None and moe.shared_count:
        shared = (r.optional(moe.shared_count, 0) or 0) * inner
        if moe.never_unshared and not shared:
            raise r.refused(moe.shared_count, r.value(moe.shared_count), "its class has a shared expert all the same")
    return MixtureOfExperts(
        width=r.width,
        experts=experts,
        experts_per_token=top_k,
        expert_inner=inner,
        shared_inner=shared or 0,
        gated=family.gated,
        shared_gate=moe.shared_gate,
        expert_other_weights=2 * inner + r.width if moe.bias else 0,
        other_weights=(experts if moe.bias else 0) + (experts if r.switch(moe.correction) else 0),
    )


def _inner(r: ConfigReader) -> int:
    return r.derived(r.family.inner, 4 * r.width)


def _rounded_inner(r: ConfigReader) -> int:
    """LFM2: two thirds of the stated size, times a factor, rounded up to a multiple."""
    inner, factor = _inner(r), r.value("block_ffn_dim_multiplier")
    if not r.switch("block_auto_adjust_ff_dim"):
        return inner
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1000:
        raise r.wrong("block_ffn_dim_multiplier", factor, "a factor more than zero")
    multiple = r.count("block_multiple_of")
    return -(-int(factor * int(2 * inner / 3)) // multiple) * multiple


DENSE_INNER: dict[str, Callable[[ConfigReader], int]] = {
    "dense": _inner,
    "rounded": _rounded_inner,
    "prefix_dense": lambda r: r.optional("prefix_dense_intermediate_size") or _inner(r),
    "shared_only": lambda r: r.count("shared_intermediate_size"),
}
