"""What is refused after a config was read: sizes borrowed from another class, and keys that were not read."""

import re
from typing import Any

from lessonlib.base.errors import UnsupportedModelError
from lessonlib.model.config.keys import Keys
from lessonlib.model.config.not_read import GROUPS, HARMLESS, SAME_THING, STRUCTURAL


def refuse_borrowed(keys: Keys) -> None:
    """UnsupportedModelError for sizes that a model of another class took from the class defaults of this family."""
    family, moe = keys.family, keys.family.experts
    sizes = [family.width, family.layers, family.heads, family.kv_heads, family.vocabulary, family.inner]
    sizes += [moe.experts, moe.top_k, moe.expert_inner, moe.shared_experts, moe.shared_inner] if moe else []
    sizes += [key for key in family.defaults if "head_dim" in key or "rank" in key]
    names = dict.fromkeys(key.split("|")[0] for key in sizes if key)
    missing = [name for name in names if name in keys.defaults_used and family.defaults.get(name) is not None]
    if missing:
        raise UnsupportedModelError(
            f"{keys.owner}, by like=: it does not state {', '.join(missing)}. The class defaults of another "
            "model's family are no sizes of this one: add these keys, under these names, to the config."
        )


def refuse_unread(keys: Keys) -> None:
    """UnsupportedModelError for the first structural key that is set, was not read, and is not what is counted."""
    assumed = HARMLESS | dict(keys.family.ignored)
    if keys.family.qk_norm is True:
        assumed = {"qk_norm": True, "use_qk_norm": True} | assumed
    for key, value in keys.config.items():
        if value is None or key in keys.read or key.endswith("_token_id"):
            continue
        unset = value is False or value in (0, "", [], {})
        counts_groups = re.search(GROUPS, key.lower()) and not isinstance(value, bool | str | dict)
        if key not in assumed and (unset or not (re.search(STRUCTURAL, key) or counts_groups)):
            continue
        if key in assumed and (assumed[key] is None or _all_are(value, assumed[key])):
            continue
        same = next((names for names in SAME_THING if key in names), ())
        if any(name in keys.read and _all_are(value, keys.read[name]) for name in same):
            continue
        raise keys.refused(key, value, "it may change the model, and this family's layout does not have it")


def _all_are(value: Any, wanted: Any) -> bool:
    """Whether `value` is what is wanted, or a list of nothing else (one entry a layer)."""
    values = value if isinstance(value, list) and not isinstance(wanted, list) else [value]
    return all(type(item) is type(wanted) and item == wanted for item in values)
