"""Keys that a family's layout does not read: the structural ones are refused, all at once, and the rest are named."""

import re
from typing import Any

from lessonlib.base.errors import UnsupportedModelError, shown
from lessonlib.model.config.keys import Keys
from lessonlib.model.config.not_read import DRAFT_LAYERS, GROUPS, HARMLESS, NO_SIZE, SAME_THING, STRUCTURAL, TOKENS

BIASES = ("qkv_bias", "attention_bias", "use_qkv_bias", "add_qkv_bias", "attn_bias")
MOST_NAMED = 12  # keys that one refusal names; it counts the rest


def keys_not_read(keys: Keys, its_own_class: bool) -> tuple[str, ...]:
    """The keys that are set, were not read and are not known to be harmless; UnsupportedModelError for structural ones.

    A second name of a thing is harmless where it says the same; where it says another, it is structural. A structural
    key that says no is harmless where the layout is that of `its_own_class`; of another model it is named.
    """
    known = _known(keys)
    refused, named = [], []
    for key, value in keys.config.items():
        drafts = DRAFT_LAYERS.search(key) and type(value) is int  # said by draft_layers
        if value is None or key in keys.read or drafts or TOKENS.search(key) or _is_harmless(keys, known, key, value):
            continue
        counts_groups = re.search(GROUPS, key.lower()) and not isinstance(value, bool | str | dict)
        structural = re.search(STRUCTURAL, key) or counts_groups
        unset = value is False or value in (0, "", [], {})
        if key in known or key in HARMLESS or (structural and not unset):
            refused.append(key)
        elif not NO_SIZE.fullmatch(key) and value not in ("", [], {}) and not (structural and unset and its_own_class):
            named.append(key)
    if refused:
        raise _refusal(keys, refused)
    return tuple(named)


def draft_layers(config: dict[str, Any]) -> tuple[str, ...]:
    """In words, the layers of a config that draft ahead, multi-token prediction: they are not counted."""
    found = {key: value for key, value in config.items() if DRAFT_LAYERS.search(key) and type(value) is int}
    return tuple(
        f"{n} layer{'s' * (n > 1)} that draft{'s' * (n == 1)} ahead ({key})" for key, n in found.items() if 0 < n < 1000
    )


def _known(keys: Keys) -> dict[str, Any]:
    """What unread keys must say, by name: what the row takes for certain, and what was read under another name."""
    family = keys.family
    known = dict(family.ignored)
    if family.qk_norm is True:
        known = {"qk_norm": True, "use_qk_norm": True} | known
    if family.gate is True:
        known = {"output_gate_type": None} | known
    return known


def _is_harmless(keys: Keys, known: dict[str, Any], key: str, value: Any) -> bool:
    for assumed in (known, HARMLESS):
        if key in assumed:
            return assumed[key] is None or _all_are(value, assumed[key])
    if keys.family.qkv_bias is True and value is True and key in BIASES:
        return True
    same = next((names for names in SAME_THING if key in names), ())
    return any(name in keys.read and _all_are(value, keys.read[name]) for name in same)


def _refusal(keys: Keys, refused: list[str]) -> UnsupportedModelError:
    pairs = [f"{shown(key)} is {shown(keys.config[key])}" for key in refused[:MOST_NAMED]]
    if sum(map(len, pairs)) > 600:  # the names are what counts: all of them, and no values
        pairs = [shown(key) for key in refused[:MOST_NAMED]]
    more = f" and {len(refused) - MOST_NAMED} more" if len(refused) > MOST_NAMED else ""
    one = len(refused) == 1
    return UnsupportedModelError(
        f"{keys.owner}: {'key' if one else 'keys'} {', '.join(pairs)}{more}: {'it' if one else 'they'} may change the "
        "model, and this family's layout does not have what they say; not read, so refused."
    )


def _all_are(value: Any, wanted: Any) -> bool:
    """Whether `value` is what is wanted, or a list of nothing else (one entry a layer)."""
    values = value if isinstance(value, list) and not isinstance(wanted, list) else [value]
    return all(type(item) is type(wanted) and item == wanted for item in values)
