"""Rules that rows share, besides mixers.py: the kind of each layer, which layers have experts, inner sizes, norms.

A rule is a function of `Keys`, and reads what it needs through them. One that a single row needs, and that fits on a
line, stands in that row as a lambda.
"""

import re
from typing import Any

from lessonlib.model.config.keys import Keys

# The words that configs have for the kinds of layer in family.py.
WORDS = {
    "F": "full_attention attention global",
    "S": "sliding_attention local",
    "L": "linear_attention mamba",
    "C": "conv",
    "I": "indexed_attention",
    "H": "hybrid",
    "K": "chunked_attention",
    "P": "compressed_sparse_attention",
    "Q": "heavily_compressed_attention",
    "X": "minimax_m3_sparse",
    "Z": "hybrid_sliding",
}
ONE_LETTER = {word: letter for letter, words in WORDS.items() for word in words.split()}


# --- which kind each layer is ---


def cycle(keys: Keys) -> list[str]:
    """The row's cycle repeated, its length as the config says, with the row's first and last layers."""
    family, letters = keys.family, keys.family.cycle
    if family.period:
        period = keys.value(family.period)
        if isinstance(period, str) and re.fullmatch("[LG]{1,99}", period):  # EXAONE writes LLLG: local, global
            letters = period.replace("G", "F").replace("L", letters[0])
        elif not (period is None and keys.window is None and letters[0] == "W"):
            length = keys.count(family.period)
            letters = letters[0] * (length - 1) + "F" if length <= keys.layers else letters[0]
    kinds = [letters[i % len(letters)] for i in range(keys.layers)]
    if family.window_from and keys.window is not None:
        start = keys.count(family.window_from, 0)
        kinds = ["F" if i < start else kind for i, kind in enumerate(kinds)]
    kinds[: len(family.first)] = family.first[: keys.layers]
    if family.last:
        kinds[-1] = family.last
    return kinds


def cycle_with_attention(keys: Keys) -> list[str]:
    """OLMo hybrid: where the cycle gives no layer full attention, the last one has it."""
    kinds = cycle(keys)
    return kinds if "F" in kinds else [*kinds[:-1], "F"]


def cycle_after_dense(keys: Keys) -> list[str]:
    """Cohere 2 MoE: the dense layers at the start have a period of their own, and the cycle starts after them."""
    dense, period = keys.count("first_k_dense_replace", 0), keys.count("prefix_dense_sliding_window_pattern")
    prefix = ["F" if (i + 1) % period == 0 else "S" for i in range(min(dense, keys.layers))]
    return (prefix + cycle(keys))[: keys.layers]


def full_at(keys: Keys, key: str, others: str, unstated: str) -> list[str]:
    """Full attention in the layers that `key` lists; where it is null, `unstated` in all."""
    if keys.value(key) is None:
        return [unstated] * keys.layers
    full = keys.indices(key)
    return ["F" if i in full else others for i in range(keys.layers)]


def indexed(keys: Keys) -> list[str]:
    """GLM-5: layers with an indexer of their own (I), and layers that take over what the one before picked (H).

    The list indexer_types says it, else the pattern index_topk_pattern, else every index_topk_freq-th layer.
    """
    layers, pattern = keys.layers, keys.value("index_topk_pattern")
    frequency, offset = keys.count("index_topk_freq"), keys.count("index_skip_topk_offset", 0)
    words = keys.listed("indexer_types", layers, ("full", "shared"))
    if words is not None:
        return ["I" if word == "full" else "H" for word in words]
    if pattern is None:
        return ["H" if max(i - offset + 1, 0) % frequency else "I" for i in range(layers)]
    if not isinstance(pattern, str) or not re.fullmatch(f"[FS]{{{layers}}}", pattern):
        raise keys.wrong("index_topk_pattern", pattern, f"a letter for each of {layers} layers, F or S")
    return list(pattern.replace("F", "I").replace("S", "H"))


def early_windows(keys: Keys) -> list[str]:
    """Qwen2-MoE: windows in every second of the layers before max_window_layers."""
    last = keys.count("max_window_layers", 0) if keys.window is not None else 0
    return ["S" if i < last and i % 2 == 0 else "F" for i in range(keys.layers)]


def windows_without_rope(keys: Keys) -> list[str]:
    """SmolLM3: where windows are on, the layers without rotary positions have them."""
    if keys.window is None:
        return ["F"] * keys.layers
    return ["F" if has_rotary else "S" for has_rotary in _rotary(keys, keys.value("no_rope_layers"))]


def _rotary(keys: Keys, rotary: Any) -> list[Any]:
    """For each layer whether it has rotary positions: as listed, else all but every no_rope_layer_interval-th."""
    if rotary is None:
        interval = keys.count("no_rope_layer_interval")
        rotary = [int((i + 1) % interval != 0) for i in range(keys.layers)]
    if not isinstance(rotary, list) or len(rotary) != keys.layers or any(x not in (0, 1) for x in rotary):
        raise keys.wrong("no_rope_layers", rotary, f"a list of {keys.layers} zeros and ones")
    return rotary


def rotary_chunks(keys: Keys) -> list[str]:
    """Llama 4: where a chunk is stated, the layers with rotary positions attend within it."""
    chunk, listed = keys.optional("attention_chunk_size"), keys.value("no_rope_layers")
    rotary = _rotary(keys, None if listed == [] else listed)
    return ["K" if has_rotary and chunk else "F" for has_rotary in rotary]


def gpt_neo_kinds(keys: Keys) -> list[str]:
    """A word a layer in attention_layers, or groups of words and how often each is repeated in attention_types."""
    words, layers = ("global", "local"), keys.layers
    listed = keys.listed("attention_layers", layers, words) if "attention_layers" in keys.config else None
    groups = keys.value("attention_types")
    if listed is None:
        listed, well_formed = [], isinstance(groups, list)
        for group in groups if well_formed else []:
            match group:
                case [[*some], int(times)] if 0 <= len(some) * times <= layers:
                    listed += some * times
                case _:
                    well_formed = False
        if not well_formed or len(listed) != layers or any(word not in words for word in listed):
            raise keys.wrong(
                "attention_types", groups, f"a list of [kinds, repeats] for {layers} layers, global or local"
            )
    return [ONE_LETTER[word] for word in listed]


def kimi_kinds(keys: Keys) -> list[str]:
    """Kimi Linear: the published file keeps kinds and sizes in linear_attn_config, its layers counted from 1."""
    nested = keys.config.get("linear_attn_config", {})
    if not isinstance(nested, dict) or (nested and not {"full_attn_layers", "kda_layers"} <= nested.keys()):
        raise keys.wrong("linear_attn_config", nested, "an object with full_attn_layers and kda_layers")
    if not nested:
        keys.defaults_used.append("linear_attn_config")
        return cycle(keys)
    inside = keys.inside("linear_attn_config")
    full, state = inside.indices("full_attn_layers", 1), inside.indices("kda_layers", 1)
    if full & state or len(full | state) != keys.layers:
        raise keys.wrong(
            "linear_attn_config", nested, f"each of {keys.layers} layers once, in full_attn_layers or kda_layers"
        )
    return ["F" if i in full else "L" for i in range(keys.layers)]


# --- which layers have experts, where more than the first are dense ---


def sparse_steps(keys: Keys) -> list[bool]:
    step, dense = keys.count("decoder_sparse_step"), keys.indices("mlp_only_layers")
    return [i not in dense and (i + 1) % step == 0 for i in range(keys.layers)]


def listed_experts(keys: Keys) -> list[bool]:
    """Llama 4: the layers that moe_layers lists, where it is null every interleave_moe_layer_step-th."""
    step, listed = keys.count("interleave_moe_layer_step"), keys.value("moe_layers") is not None
    sparse = keys.indices("moe_layers") if listed else range(step - 1, keys.layers, step)
    return [i in sparse for i in range(keys.layers)]


def sparse_range(keys: Keys) -> list[bool]:
    first, step = keys.count("moe_layer_start_index", 0), keys.count("moe_layer_interval")
    last = keys.count("moe_layer_end_index", -1)
    last = keys.layers - 1 if last == -1 else last
    return [(i + 1) % step == 0 and first <= i <= last for i in range(keys.layers)]


# --- the inner size of dense layers, and norms in a block ---


def stated_inner(keys: Keys) -> int:
    return keys.derived(keys.family.inner, 4 * keys.width)


def rounded_inner(keys: Keys) -> int:
    """LFM2: two thirds of the stated size, times a factor, rounded up to a multiple."""
    inner, factor = stated_inner(keys), keys.value("block_ffn_dim_multiplier")
    if not keys.switch("block_auto_adjust_ff_dim"):
        return inner
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1000:
        raise keys.wrong("block_ffn_dim_multiplier", factor, "a factor more than zero")
    multiple = keys.count("block_multiple_of")
    return -(-int(factor * int(2 * inner / 3)) // multiple) * multiple


def falcon_norms(keys: Keys) -> int:
    """Two where attention and feed-forward follow each other, or where each branch has its own; otherwise one."""
    stated, parallel = keys.optional("num_ln_in_parallel_attn"), keys.switch("parallel_attn")
    stated = stated or (2 if keys.switch("new_decoder_architecture") else 1)
    return 2 if stated == 2 or not parallel else 1
