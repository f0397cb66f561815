"""Wrappers: files that keep a language model beside towers for images or sound. The part that writes text, alone.

A published wrapper has its language model in an object of its own, text_config in most. That part is read as a file of
its own, with the wrapper's word on whether the embedding is the head, which many files say only there.
"""

import re
from typing import Any

from lessonlib.base.errors import InvalidInputError, UnsupportedModelError, shown

# Where wrappers keep their language model; thinker_config (Qwen Omni) is a wrapper in a wrapper.
LANGUAGE_PARTS = (
    "text_config", "llm_config", "language_config", "thinker_config", "language_model_config", "text_model_config",
    "lm_config",
)  # fmt: skip
# Wrappers that state the sizes of their language model beside its towers, and what that model is called inside others.
FLAT = {name: f"{name}_text" for name in ("qwen2_vl", "qwen2_5_vl", "phi4_multimodal", "dots3_note")}
TIES = ("tie_word_embeddings", "tie_embedding", "tie_embeddings", "share_embedding")
# Wrappers that decide by themselves whether the embedding is the head, whatever the part says; and what they take where
# they do not say it.
DECIDES = {"moss_transcribe_diarize": True}
# Wrappers whose class in transformers 5.24 ties by its own default, whatever their language model says.
_UNTIED = """apertus1p5 aria cosmos3_omni dots3_note exaone4_5 fuyu glm46v glmga idefics2 idefics3 llava_next
minicpmv4_6 minicpmv4_7 qianfan_ocr qwen3_5 qwen3_5_moe qwen3_omni_moe_thinker qwen3_vl qwen3_vl_moe smolvlm
video_llava vipllava"""
_TIED = "cohere2_vision gemma3 gemma4 gemma4_unified lfm2_vl lfm3_vl paligemma shieldgemma2"
CLASS_TIES = dict.fromkeys(_UNTIED.split(), False) | dict.fromkeys(_TIED.split(), True)
# Wrappers whose class ties nothing, whatever any level says; and those that leave it to their language model's class.
STORES_BOTH = frozenset("audioflamingo3 musicflamingo omniasr qwen2_audio vibevoice vibevoice_asr voxtral".split())
PART_DECIDES = frozenset("blip-2 instructblip instructblipvideo llama4".split())
MOST_LEVELS = 4
TOWER = re.compile(r"^(\w{1,40}?)_?(config|cfg)$|^(vision_tower|mm_vision_tower|audio_tower)$")
NO_TOWER = re.compile(r"quant|generation|rope|compression|auto_map|eagle|linear_attn|ffn|attn|draft|speculat")


def language_part(config: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config of the language model alone, and in words what stands beside it and is not counted.

    A config without towers is returned as it is. UnsupportedModelError where two parts could be meant or where levels
    disagree on whether the embedding is the head, InvalidInputError for a part that is not an object.
    """
    left_out: list[str] = []
    levels = [config]
    while part := _part_of(levels[-1]):
        levels.append(levels[-1][part])
        left_out += _towers(levels[-2], part)
        if len(levels) > MOST_LEVELS:
            raise InvalidInputError(
                f"config: {part!r} is nested more than {MOST_LEVELS} times; expected a config.json."
            )
    inner = levels[-1]
    kind = inner.get("model_type")
    if isinstance(kind, str) and kind in FLAT and len(levels) == 1:
        left_out += _towers(inner, "")
        towers = [key for key in inner if TOWER.match(key) and not NO_TOWER.search(key)]
        inner = {key: value for key, value in inner.items() if key not in towers} | {"model_type": FLAT[kind]}
        return inner, tuple(left_out)
    if len(levels) == 1:
        return config, ()
    outer = next((level["model_type"] for level in levels if isinstance(level.get("model_type"), str)), None)
    if kind is None and isinstance(outer, str):
        inner = {"model_type": f"{outer}_text"} | {key: value for key, value in inner.items() if key != "model_type"}
    if not left_out and not (isinstance(kind, str) and kind.startswith(f"{outer}_text")):
        left_out.append(f"what {shown(outer)} has beside its language model")
    if not any(re.search(r"hidden_size|n_embd|d_model|layers?$", key) for key in inner):
        raise InvalidInputError(
            f"config: the language model of {shown(outer)} is {shown(levels[-1])}; expected one that states its sizes."
        )
    tie = _tie(levels[:1]) if outer in DECIDES else _tie(levels)
    tie = _tie(levels[1:]) if outer in PART_DECIDES else tie
    tie = DECIDES[outer] if tie is None and outer in DECIDES else tie
    return (inner if tie is None else inner | {"tie_word_embeddings": tie}), tuple(dict.fromkeys(left_out))


def with_its_tie(config: dict[str, Any]) -> dict[str, Any]:
    """The config with tie_word_embeddings, where it says that under another name alone."""
    tie = _tie([config])
    said = config.get("tie_word_embeddings") is not None
    return config if tie is None or said else config | {"tie_word_embeddings": tie}


def _part_of(config: dict[str, Any]) -> str | None:
    """The key of the language model in this level, None where there is none."""
    found = [key for key in LANGUAGE_PARTS if config.get(key) is not None]
    for key in found:
        part = config[key]
        if not isinstance(part, dict) or not all(isinstance(name, str) for name in part):
            raise InvalidInputError(f"config: {key!r} is {shown(part)}; expected the config of a language model.")
    if len(found) > 1:
        raise UnsupportedModelError(
            f"config has {' and '.join(map(repr, found))}, and either may be its language model: pass the one that "
            f"writes the text alone, such as config[{found[0]!r}]."
        )
    return found[0] if found else None


def _towers(config: dict[str, Any], part: str) -> list[str]:
    """In words, what else this level of a wrapper holds."""
    found = []
    for key, value in config.items():
        match = TOWER.match(key)
        if key == part or not match or NO_TOWER.search(key) or not isinstance(value, dict | str) or not value:
            continue
        found.append(f"{(match[1] or match[3]).replace('_', ' ').removesuffix(' tower')} tower ({key})")
    return found


def _tie(levels: list[dict[str, Any]]) -> bool | None:
    """Whether the head is the embedding, as the levels say it; None where none does."""
    said = [(key, level[key]) for level in levels for key in TIES if level.get(key) is not None]
    outer, kind = levels[0], levels[0].get("model_type")
    kind = kind if isinstance(kind, str) and len(levels) > 1 else ""
    if kind in STORES_BOTH:
        said.append((TIES[0], False))
    elif kind in CLASS_TIES and all(outer.get(key) is None for key in TIES):
        said.append((TIES[0], CLASS_TIES[kind]))
        if CLASS_TIES[kind] and TIES[0] in outer:  # null is neither its default nor a word
            said.append((TIES[0], None))
    if any(value is not said[0][1] for _, value in said):
        names = " and ".join(sorted({repr(key) for key, _ in said}))
        raise UnsupportedModelError(
            f"config: {names} does not say in all places the same, so it is not known whether the head is stored or is "
            "the embedding: give the value that the model's card or its list of weights says."
        )
    return said[0][1] if said else None
