"""How the weights of a released file are stored, as its quantization_config says: which parts in which format.

Formats are named as in precision.py. A method that is not known here is refused by name; nothing of a config, its
patterns of module names included, is executed.
"""

import re
from collections.abc import Callable
from typing import Any

from lessonlib.base.errors import InvalidInputError, UnsupportedModelError, shown
from lessonlib.base.text import one_line
from lessonlib.model.config.keys import no_deeper, require_parsed
from lessonlib.model.config.wrappers import language_part

PLAIN = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32", "bf16": "bf16",
    "fp16": "fp16", "fp32": "fp32", "float8_e4m3fn": "fp8",
}  # fmt: skip
SKIPPED = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules")
MOST_MODULES = 4  # kinds of module that a sentence names


@no_deeper()
def stored_as(config: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The fields of Precision in which the file is stored, those that are not its defaults, and the same in words.

    The words are empty where the file is not quantised.
    UnsupportedModelError names a method or a format that is not known, InvalidInputError a value that cannot be meant.
    """
    require_parsed(config)
    part, _ = language_part(config)
    levels = [part, config, *(value for value in config.values() if isinstance(value, dict))]
    quantisation = next((level["quantization_config"] for level in levels if level.get("quantization_config")), None)
    plain = _plain(levels)
    if quantisation is None:
        return {"blocks": plain}, ""
    if not isinstance(quantisation, dict):
        raise InvalidInputError(f"config: 'quantization_config' is {shown(quantisation)}; expected an object or null.")
    method = _word(quantisation.get("quant_method") or _unnamed(quantisation))
    if method not in METHODS:
        raise UnsupportedModelError(
            f"config: quantization_config says the method {shown(quantisation.get('quant_method'))}, which is not "
            f"read; known: {', '.join(METHODS)}. Give the bits of a weight instead, as in Precision(bits=4.25)."
        )
    dtype = METHODS[method](quantisation)
    names = _not_converted(quantisation)
    experts_only = _has_experts(part) and (method == "mxfp4" or _keeps_attention(quantisation, part))
    fields: dict[str, Any] = {"blocks": plain, "experts": dtype} if experts_only else {"blocks": dtype}
    if part.get("expert_dtype") == "fp4":  # DeepSeek-V4: a scale for 32, beside blocks of fp8
        fields["experts"] = "mxfp4"
    if _has_experts(part) and any(name.endswith("experts") and "shared" not in name for name in names):
        fields["experts"] = plain
    if plain != "bf16" and not experts_only:
        fields |= dict.fromkeys(("head", "embedding", "other", "cache"), plain)
    if _holds_8_bit_cache(quantisation):
        fields["cache"] = "fp8"
    more = f" and {len(names) - MOST_MODULES} more" if len(names) > MOST_MODULES else ""
    some = ", ".join(one_line(name, 40) for name in names[:MOST_MODULES])
    kept = f"; not converted: {some}{more}" if names else ""
    call = ", ".join(f'{name}="{value}"' for name, value in fields.items())
    return fields, f"in {dtype}, by the method {method}{kept}; the rest in {plain}: Precision({call})"


def _word(value: Any) -> str:
    """A name as the tables here have it; "" for what is not a name."""
    return value.lower().replace("_", "-") if isinstance(value, str) else ""


def _plain(levels: list[dict[str, Any]]) -> str:
    """The dtype of what is not quantised; bf16 where none is stated."""
    said = [level[key] for level in levels for key in ("dtype", "torch_dtype") if isinstance(level.get(key), str)]
    names = [PLAIN.get(name.removeprefix("torch.")) for name in said]
    return next((name for name in names if name), "bf16")


def _has_experts(config: dict[str, Any]) -> bool:
    return any(re.search("experts$|_experts_", key) and value for key, value in config.items())


def _unnamed(quantisation: dict[str, Any]) -> str:
    """The method of an object that does not name it."""
    if "config_groups" in quantisation:
        return "compressed-tensors"
    if "quant_algo" in quantisation or isinstance(quantisation.get("quantization"), dict):
        return "modelopt"
    return "bitsandbytes" if quantisation.get("load_in_4bit") or quantisation.get("load_in_8bit") else ""


def _by_bits(bits: Any, where: str) -> str:
    if type(bits) is not int or not 1 <= bits <= 8:
        raise InvalidInputError(f"config: {where} of quantization_config is {shown(bits)}; expected 1 to 8 bits.")
    return {4: "int4", 8: "int8"}.get(bits, f"{bits + 0.25} bits")


def _stated_bits(quantisation: dict[str, Any]) -> str:
    key = next((key for key in ("bits", "w_bit", "nbits") if quantisation.get(key) is not None), "bits")
    return _by_bits(quantisation.get(key), key)


def _bitsandbytes(quantisation: dict[str, Any]) -> str:
    four, eight = (quantisation.get(key) or quantisation.get(f"_{key}") for key in ("load_in_4bit", "load_in_8bit"))
    if bool(four) == bool(eight):
        raise InvalidInputError("config: quantization_config says neither 4 nor 8 bits, or both; expected one of them.")
    return "int4" if four else "int8"


def _groups(quantisation: dict[str, Any]) -> str:
    """compressed-tensors: the weights of its groups, which must have one format."""
    groups = quantisation.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise InvalidInputError(f"config: 'config_groups' is {shown(groups)}; expected an object of groups.")
    formats = set()
    for name, group in groups.items():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            raise InvalidInputError(f"config: the weights of {name!r} are {shown(weights)}; expected an object.")
        bits, kind, size = (weights.get(key) for key in ("num_bits", "type", "group_size"))
        if kind == "float" and bits == 8:
            formats.add("fp8")
        elif kind == "float" and bits == 4 and size in (16, 32):
            formats.add("nvfp4" if size == 16 else "mxfp4")
        elif kind == "int":
            formats.add(_by_bits(bits, "num_bits"))
        else:
            raise UnsupportedModelError(
                f"config: {name!r} of quantization_config has weights of type {shown(kind)} with {shown(bits)} bits in "
                f"groups of {shown(size)}, a format that is not read; give Precision(bits=...) instead."
            )
    if len(formats) > 1:
        raise UnsupportedModelError(
            f"config: the groups of quantization_config are in {', '.join(sorted(formats))}: which part has which is "
            "not read; give Precision(blocks=..., experts=...) instead."
        )
    return formats.pop()


ALGORITHMS = {"fp8": "fp8", "fp8-pb-wo": "fp8", "nvfp4": "nvfp4", "w4a16": "int4", "w4a16-awq": "int4",
              "w4a8-awq": "int4", "int8-sq": "int8", "w8a16": "int8", "mxfp4": "mxfp4", "mxfp8": "fp8"}  # fmt: skip


def _modelopt(quantisation: dict[str, Any]) -> str:
    inner = quantisation.get("quantization")
    said = quantisation.get("quant_algo") or (inner.get("quant_algo") if isinstance(inner, dict) else None)
    found = ALGORITHMS.get(_word(said))
    if found is None and said is None and "config_groups" in quantisation:
        return _groups(quantisation)
    if found is None:
        raise UnsupportedModelError(
            f"config: quantization_config says quant_algo {shown(said)}, which is not read; known: "
            f"{', '.join(ALGORITHMS)}."
        )
    return found


METHODS: dict[str, Callable[[dict[str, Any]], str]] = {
    "fp8": lambda _: "fp8",
    "fbgemm-fp8": lambda _: "fp8",
    "mxfp4": lambda _: "mxfp4",
    "gptq": _stated_bits,
    "awq": _stated_bits,
    "auto-round": _stated_bits,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _groups,
    "modelopt": _modelopt,
    "modelopt-fp4": lambda _: "nvfp4",
}


def _not_converted(quantisation: dict[str, Any]) -> list[str]:
    """The kinds of module that are left as they were, without the numbers of layers and signs of patterns."""
    inner = quantisation.get("quantization")
    found: dict[str, None] = {}
    for level in (quantisation, inner if isinstance(inner, dict) else {}):
        for key in SKIPPED:
            names = level.get(key) or []
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise InvalidInputError(f"config: {key!r} of quantization_config is {shown(names)}; expected names.")
            for name in names:
                plain = re.sub(r"^re:|[\\^$?]|\.\*", "", name)
                plain = re.sub(r"^(language_)?model\.|^layers\.|\blayers\b\.?|(^|\.)(\d+|\*)(?=\.|$)", "", plain)
                found[plain.strip(".*") or name] = None
    return list(found)


def _keeps_attention(quantisation: dict[str, Any], part: dict[str, Any]) -> bool:
    """Whether the attention of all layers is left as it was: by a pattern, or layer by layer."""
    raw = [name for key in SKIPPED for name in quantisation.get(key) or [] if "attn" in name or "attention" in name]
    numbers = {found[1] for name in raw if (found := re.search(r"layers\\?\.(\d+)\b", name))}
    layers = part.get("num_hidden_layers")
    patterns = any(not re.search(r"layers\\?\.\d", name) for name in raw)
    return patterns or (type(layers) is int and 0 < layers <= len(numbers))


def _holds_8_bit_cache(quantisation: dict[str, Any]) -> bool:
    scheme, inner = quantisation.get("kv_cache_scheme"), quantisation.get("quantization")
    algorithms = [level.get("kv_cache_quant_algo") for level in (quantisation, inner) if isinstance(level, dict)]
    return (isinstance(scheme, dict) and scheme.get("num_bits") == 8) or "FP8" in algorithms
