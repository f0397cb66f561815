"""Other spellings of a config: sizes in an object of their own, and sizes by layer."""

import re
from collections.abc import Iterable
from typing import Any

from lessonlib.base.errors import shown
from lessonlib.model.config.keys import Keys
from lessonlib.model.config.not_read import NO_SIZE


def opened(keys: Keys, key: str, names: dict[str, str | None]) -> None:
    """Put the sizes in the object under `key` beside the other keys, by these names; None: without that one."""
    keys.read[key] = value = keys.config.get(key)
    if key not in keys.config:
        keys.defaults_used.append(key)
    if not isinstance(value, dict | None) or not all(isinstance(name, str) for name in value or ()):
        raise keys.wrong(key, value, "an object")
    for name, inner in (value or {}).items():
        other = names.get(name, None if NO_SIZE.fullmatch(name) else name)
        if other in keys.config and keys.config[other] != inner:
            raise keys.wrong(other, keys.config[other], f"{shown(inner)}, as {key!r} says the same thing")
        if other is not None:
            keys.config = keys.config | {other: inner}


def one_for_all(keys: Keys, *names: str) -> None:
    """Put one number in the place of a list that gives the same to every layer; refused where they differ."""
    for name in names:
        value = keys.config.get(name)
        if isinstance(value, list):
            if not value or any(type(item) is not type(value[0]) or item != value[0] for item in value):
                raise keys.refused(name, value, "layers of different sizes are not read for this family")
            keys.config = keys.config | {name: value[0]}


def by_layer(keys: Keys, key: str, kinds: str, allowed: Iterable[str]) -> dict[str, Any]:
    """What the object under `key` says for all layers of these kinds, by number of layer; they must be alike."""
    keys.read[key] = value = keys.config.get(key)
    given = list(({} if value is None else value).items()) if isinstance(value, dict | None) else [("", None)]
    numbers = [int(name) if isinstance(name, str) and re.fullmatch("[0-9]{1,8}", name) else -1 for name, _ in given]
    if (
        len(set(numbers)) != len(given)
        or not all(0 <= i < keys.layers for i in numbers)
        or not all(isinstance(sizes, dict) for _, sizes in given)
    ):
        raise keys.wrong(key, value, f"objects by numbers of layers from 0 to {keys.layers - 1}")
    by_number: dict[int, dict[str, Any]] = {i: sizes for i, (_, sizes) in zip(numbers, given, strict=True)}
    found = [by_number.get(i, {}) for i, kind in enumerate(keys.kinds) if kind in kinds]
    for sizes in found:
        if sizes != found[0] or not sizes.keys() <= set(allowed):
            raise keys.refused(key, value, "layers of one kind must be alike, and differ in nothing but sizes")
    return found[0] if found else {}


def hunyuan_spelling(keys: Keys) -> None:
    """Hunyuan A13B: sizes once a layer; experts and the shared one are of intermediate_size in its class."""
    one_for_all(keys, "moe_topk", "moe_intermediate_size", "num_shared_expert")
    experts = keys.config.get("moe_intermediate_size")
    if experts is not None and experts != keys.value("intermediate_size"):
        raise keys.wrong("moe_intermediate_size", experts, f"{keys.value('intermediate_size')}, its intermediate_size")
    keys.read["moe_intermediate_size"] = experts


MIMO_WORDS = {
    "hybrid_layer_pattern": ("layer_types", ("full_attention", "sliding_attention")),
    "moe_layer_freq": ("mlp_layer_types", ("dense", "sparse")),
}
MIMO_SIZES = {"num_attention_heads": 1, "num_key_value_heads": 2, "head_dim": 1, "v_head_dim": 1}


def mimo_spelling(keys: Keys) -> None:
    """MiMo V2: a 0 or 1 a layer, sizes of sliding layers apart, and a window that leaves out the token itself."""
    for key, (name, words) in MIMO_WORDS.items():
        keys.read[key] = flags = keys.config.get(key)
        if flags is None:
            continue
        if not isinstance(flags, list) or any(type(flag) is not int or flag not in (0, 1) for flag in flags):
            raise keys.wrong(key, flags, "a list of zeros and ones, one a layer")
        said = [words[flag] for flag in flags]
        if keys.config.get(name) not in (None, said):
            raise keys.wrong(name, keys.config[name], f"what {key!r} says, too")
        keys.config = keys.config | {name: said}
    for name, times in MIMO_SIZES.items():
        if keys.config.get(f"swa_{name}") is not None and keys.count(f"swa_{name}") != times * keys.count(name):
            raise keys.refused(f"swa_{name}", keys.config[f"swa_{name}"], f"its class has {times} x {name!r}")
    if keys.config.get("sliding_window_size") is None:
        if keys.read["hybrid_layer_pattern"] is not None:
            raise keys.refused("sliding_window_size", None, "whether its window has the token itself is not known")
    else:
        window = keys.count("sliding_window_size") + 1
        if keys.config.get("sliding_window") not in (None, window, window - 1):
            raise keys.wrong("sliding_window", keys.config["sliding_window"], "what 'sliding_window_size' says, too")
        keys.config = keys.config | {"sliding_window": window}
