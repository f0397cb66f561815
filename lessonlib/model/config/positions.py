"""The positions that a config states, stretched as its rotary scaling says."""

from typing import Any

from lessonlib.base.errors import is_number
from lessonlib.model.config.keys import LARGEST_NUMBER, Keys

KEYS = ("rope_scaling", "rope_parameters")
BY_ORIGINAL = ("yarn", "deepseek_yarn", "telechat3-yarn")
BY_STATED = ("linear", "dynamic", "ntk", "dynamic_ntk")  # of the sort that stretches what the model was made for
# Of these the files state the stretched number (Gemma 3), as those of longrope and llama3 do.
STRETCHED_ALREADY = ("gemma3_text", "gemma4_text", "gemma3n_text")


def stretched(keys: Keys, positions: int | None) -> int | None:
    """`positions`, or more where the config's scaling makes it more: YaRN by the original number, linear by the stated.

    The scaling stands in rope_scaling or rope_parameters, or there once for each kind of layer. Where the stated number
    is the longer, it stays. Null stays null: no limit is stated.
    """
    found = [positions]
    for key in KEYS:
        keys.read[key] = scaling = keys.config.get(key)
        if scaling is None:
            continue
        if not isinstance(scaling, dict):
            raise keys.wrong(key, scaling, "an object, or null")
        for one in (scaling, *(value for value in scaling.values() if isinstance(value, dict))):
            found.append(_longer(keys, key, one, positions))
    return max((number for number in found if number is not None), default=None)


def _longer(keys: Keys, key: str, scaling: dict[str, Any], positions: int | None) -> int | None:
    """The positions that one scaling reaches, None where it makes them no more."""
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    if kind not in (*BY_ORIGINAL, *BY_STATED) or factor is None or keys.config.get("model_type") in STRETCHED_ALREADY:
        return None
    original = scaling.get("original_max_position_embeddings")
    original = keys.config.get("original_max_position_embeddings") if original is None else original
    start = positions if original is None else original
    if start is None:
        return None
    if not is_number(factor) or not is_number(start) or not 1 <= factor * start <= LARGEST_NUMBER or factor <= 0:
        raise keys.wrong(key, scaling, "a factor above 0, and the original number of positions or none")
    return int(factor * start)
