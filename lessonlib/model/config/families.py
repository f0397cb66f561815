"""How the families of published models differ from Llama: a table of data, read by config_reader.py.

The base row is Llama: q, k, v, o without bias; a gated feed-forward of three matrices; two RMSNorms a block and a
final one; an untied head. Every other row says only how its family differs, and which values its class takes for the
keys that a published config.json leaves out. A `Switch` is True, False, or the name of the config key that decides. A
key may be written "a|b": names of one thing.

Source: the model and configuration classes of transformers 5.24 (github.com/huggingface/transformers, Apache-2.0).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Switch = bool | str
Sizes = tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Where a mixture of experts keeps its sizes (names of config keys), and which of the optional weights it has."""

    experts: str = "num_experts|num_local_experts"
    top_k: str = "num_experts_per_tok"
    inner: str = "moe_intermediate_size"
    shared_count: str | None = None  # a number of shared experts, each as large as a routed one
    shared_size: str | None = None  # the inner size of all shared experts together
    never_unshared: bool = False  # no shared experts are refused: the class then takes one of the dense size
    shared_gate: bool = False  # one more router column
    bias: bool = False  # on the expert matrices and the router
    correction: Switch = False  # one routing bias an expert, where it is a parameter (a buffer is not counted)
    norm: bool = False  # one more norm in a sparse block
    first_dense: str | int = 0  # how many layers, from the first, have no experts: a number, or the key that says it
    listed: bool = False  # whether mlp_layer_types says it layer by layer, and wins
    placement: str | None = None  # a rule of its own, in config_reader.py


@dataclass(frozen=True, kw_only=True)
class Family:
    """One row. Names are config keys; None means that the family has no such key."""

    width: str = "hidden_size"
    layers: str = "num_hidden_layers"
    heads: str = "num_attention_heads"
    kv_heads: str | None = "num_key_value_heads"  # None, or null where that is the class default: as many as heads
    head_dim: str | None = "head_dim"  # the same: width / heads
    floors_head_dim: bool = False  # width / heads rounded down where it leaves a remainder; otherwise an error
    value_dim: str | None = None  # head_dim, unless it has a key of its own
    inner: str | None = "intermediate_size"  # the same: 4 widths
    positions: str | None = "max_position_embeddings"
    tied: Switch = "tie_word_embeddings"

    qkv_bias: Switch = False
    out_bias: Switch = False
    mlp_bias: Switch = False
    head_bias: Switch = False
    qk_norm: Switch = False
    qk_norm_over: str = "head"  # weights: "head" 2 d, "head and bias" 4 d, "all heads" (h + k) d
    gate: Switch = False  # output gate of the attention
    gate_over: str = "channel"  # outputs: "channel" h d; "query" the same, with the bias of the query; "head" h
    extra_per_head: int = 0  # weights a layer and head that are only added: sinks, gate biases
    gated: bool = True
    activation_weights: int = 0  # parameters of the activation function, a layer
    norm: str = "rms"  # "rms": w weights (also a LayerNorm without bias); "layer": 2 w; "none": none
    norms: int | str = 2  # in a block; a name is a rule of config_reader.py
    final_norm: bool = True
    embedding_norm: bool = False
    position_rows: int | None = None  # rows of a learned table beyond the number of positions; None: no table

    mixers: Mapping[str, str] = field(default_factory=lambda: {"F": "attention", "S": "attention"})
    state_keys: tuple[str, ...] = ()  # sizes of a constant state, in the order in which its rule reads them
    # kinds of the layers, repeated: F full, S sliding, W sliding if a window is set, L constant state, C short
    # convolution, ? not known without layer_types
    cycle: str = "F"
    first: str = ""  # kinds of the first layers, and of the last ones, where the cycle does not hold
    last: str = ""
    period: str | None = None  # key of the cycle's length
    pattern: str | None = None  # a rule of its own, in config_reader.py
    layer_types: str | None = None  # key of a list that says it layer by layer, and wins
    window: str | None = None
    window_switch: Switch = True
    window_from: str | None = None  # windows only from this layer on
    feedforward: str | None = "dense"  # a rule of config_reader.py; None: no feed-forward
    experts: Experts | None = None

    defaults: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)  # other values of these are refused
    ignored: Mapping[str, Any] = field(default_factory=dict)  # not read though structural; at this value; None: any


FAMILIES: dict[str, Family] = {}


def _family(names: str, sizes: Sizes = (), base: str = "", moe: Sizes = (), **changes: Any) -> None:
    """Add a row under each of `names`: the row `base` with `changes`.

    `sizes` are the class defaults of vocabulary, width, inner size, layers, heads, kv heads and positions; `moe` those
    of experts, top-k, expert inner and shared experts; `defaults` those of other keys. No row takes a default from its
    base; COMMON holds what nearly all share.
    """
    stated = changes.pop("defaults", {})
    row = replace(FAMILIES[base] if base else Family(), **changes)
    keys = ["vocab_size", row.width, row.inner, row.layers, row.heads, row.kv_heads, row.positions]
    defaults: dict[str, Any] = dict(COMMON)
    defaults.update((key.split("|")[0], size) for key, size in zip(keys, sizes, strict=False) if key)
    if row.experts is not None:
        shared = row.experts.shared_size or row.experts.shared_count
        keys = [row.experts.experts, row.experts.top_k, row.experts.inner, shared]
        keys = [key if key != row.inner else None for key in keys]  # intermediate_size stands in `sizes`
        defaults.update((key.split("|")[0], size) for key, size in zip(keys, moe, strict=False) if key)
    FAMILIES.update(dict.fromkeys(names.split(), replace(row, defaults={**defaults, **stated})))


COMMON = {"tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "head_dim": None}
TIED = {"tie_word_embeddings": True}
BIASES: dict[str, Any] = {"qkv_bias": "attention_bias", "out_bias": "attention_bias"}
ALL_BIASES: dict[str, Any] = {"qkv_bias": True, "out_bias": True, "mlp_bias": True}
PLAIN: dict[str, Any] = {"kv_heads": None, "head_dim": None, "norm": "layer", "gated": False}
LISTED: dict[str, Any] = {"layer_types": "layer_types"}
WINDOW: dict[str, Any] = {"window": "sliding_window", "cycle": "W"}
QK_NORM: dict[str, Any] = {"qk_norm": True}
QK_NORM_OVER_ALL: dict[str, Any] = {"qk_norm": True, "qk_norm_over": "all heads"}

MIXTRAL = Experts(experts="num_local_experts|num_experts", inner="intermediate_size")
GRANITE = Experts(experts="num_local_experts", inner="intermediate_size")
QWEN = Experts(
    experts="num_experts", shared_size="shared_expert_intermediate_size", shared_gate=True, placement="steps"
)
DEEPSEEK = Experts(
    experts="n_routed_experts|num_local_experts", shared_count="n_shared_experts", first_dense="first_k_dense_replace"
)
SARVAM = Experts(
    experts="n_routed_experts|num_local_experts|num_experts",
    shared_count="n_shared_experts|num_shared_experts",
    first_dense="first_k_dense_replace",
)

# fmt: off
# --- Llama, and what differs from it in a few switches ---
_family("llama", (32000, 4096, 11008, 32, 32, None, 2048), **BIASES, mlp_bias="mlp_bias")
_family("iquestcoder", (76800, 5120, 27648, 80, 40, 8, 131072), "llama", defaults={"head_dim": 128})
_family("exaone", (102400, 4096, 14336, 32, 32, 8, 4096), "llama", layers="num_hidden_layers|num_layers")
_family("internlm3", (128512, 4096, 10240, 48, 32, 2, 32768), qkv_bias="attention_bias|qkv_bias",
        out_bias="attention_bias|qkv_bias", mlp_bias="mlp_bias|bias", defaults={"head_dim": 128})
_family("emu3_text_model", (184622, 4096, 14336, 32, 32, 8, 9216))
_family("mistral", (32000, 4096, 14336, 32, 32, 8, 131072), **WINDOW, defaults={"sliding_window": 4096})
_family("ministral", (32000, 4096, 14336, 32, 32, 8, 131072), "mistral", **LISTED, defaults={"sliding_window": 4096})
_family("ministral3", (131072, 4096, 14336, 34, 32, 8, 262144), "mistral",
        defaults={"head_dim": 128, "sliding_window": None})
_family("cwm", (128256, 6144, 21504, 64, 48, 8, 131072), **LISTED, window="sliding_window", cycle="FSSS",
        mlp_bias="mlp_bias", defaults={"head_dim": 128, "sliding_window": 8192})
_family("phi3", (32064, 3072, 8192, 32, 32, None, 4096), **WINDOW, defaults={"sliding_window": None})
_family("granite", (32000, 4096, 11008, 32, 32, None, 2048), "llama")
_family("granite_swa", (100352, 2560, 8192, 24, 20, 4, 8192), "llama", **LISTED, window="sliding_window", cycle="FSSS",
        extra_per_head=1, defaults={**TIED, "sliding_window": 128})
_family("smollm3", (128256, 2048, 11008, 36, 16, 4, 32768), "llama", **LISTED, window="sliding_window",
        window_switch="use_sliding_window", pattern="no_rope",
        defaults={**TIED, "use_sliding_window": False, "sliding_window": None, "no_rope_layers": None,
            "no_rope_layer_interval": 4})
_family("seed_oss", (155136, 4096, 27648, 64, 80, 8, 524288), qkv_bias="attention_bias", out_bias="attention_out_bias",
        mlp_bias="mlp_bias", defaults={"attention_bias": True, "attention_out_bias": False, "head_dim": 128})
_family("ernie4_5", (103424, 1024, 3072, 18, 16, 2, 131072), qkv_bias="use_bias", out_bias="use_bias",
        mlp_bias="use_bias", defaults={**TIED, "use_bias": False, "head_dim": 128})
_family("hyperclovax", (32000, 4096, 11008, 32, 32, None, 2048), "llama", norms="post_norm",
        defaults={"use_post_norm": True})
_family("hunyuan_v1_dense", (290943, 4096, 11008, 32, 32, None, 2048), **BIASES, **QK_NORM,
        ignored={"use_qk_norm": True})
_family("nanochat", (50304, 768, 8192, 12, 6, None, 2048), **BIASES, gated=False, norm="none")
_family("arcee", (32000, 2560, 18432, 32, 32, None, 4096), "llama", gated=False)
_family("jais2", (150272, 3328, 26624, 32, 26, None, 8192), "llama", gated=False, norm="layer",
        defaults={"attention_bias": True, "mlp_bias": True})
_family("nemotron", (256000, 6144, 24576, 32, 48, None, 4096), "jais2")
_family("apertus", (131072, 4096, 14336, 32, 32, None, 65536), **BIASES, **QK_NORM, gated=False, activation_weights=2,
        ignored={"qk_norm": True})
_family("apertus1p5_text", (266752, 4096, 14336, 32, 32, None, 65536), "apertus")
_family("glm", (151552, 4096, 13696, 40, 32, 2, 131072), qkv_bias="attention_bias",
        defaults={"head_dim": 128, "attention_bias": True})
_family("glm4", (151552, 4096, 13696, 40, 32, 2, 131072), "glm", norms=4,
        defaults={"head_dim": 128, "attention_bias": True})
_family("olmo", (50304, 4096, 11008, 32, 32, None, 2048), **BIASES, norm="none")
_family("olmo2", (50304, 4096, 11008, 32, 32, None, 2048), **BIASES, **QK_NORM_OVER_ALL)
_family("olmo3", (50304, 4096, 11008, 32, 32, None, 2048), "olmo2", **LISTED, window="sliding_window", cycle="SSSF",
        defaults={"sliding_window": 4096})
_family("exaone4", (102400, 4096, 16384, 32, 32, 32, 2048), **QK_NORM, **LISTED, window="sliding_window", cycle="WWWF",
        period="sliding_window_pattern", defaults={"sliding_window": 4096, "sliding_window_pattern": 4})
_family("cohere", (256000, 8192, 22528, 40, 64, None, 8192), **BIASES, norms=1, qk_norm="use_qk_norm",
        qk_norm_over="all heads", ignored={"use_gated_activation": True}, defaults={**TIED, "use_qk_norm": False})
_family("cohere2", (256000, 8192, 22528, 40, 64, None, 8192), **BIASES, **LISTED, norms=1, window="sliding_window",
        cycle="SSSF", period="sliding_window_pattern", ignored={"use_gated_activation": True},
        defaults={**TIED, "sliding_window": 4096, "sliding_window_pattern": 4})

# --- Gemma ---
_family("gemma", (256000, 3072, 24576, 28, 16, 16, 8192), **BIASES, defaults={**TIED, "head_dim": 256})
_family("gemma2", (256000, 2304, 9216, 26, 8, 4, 8192), "gemma", **LISTED, norms=4, window="sliding_window", cycle="SF",
        defaults={**TIED, "head_dim": 256, "sliding_window": 4096})
_family("vaultgemma", (256000, 2304, 9216, 26, 8, 4, 8192), "gemma2", norms=2,
        defaults={**TIED, "head_dim": 256, "sliding_window": 4096})
_family("gemma3_text", (262208, 2304, 9216, 26, 8, 4, 131072), "gemma2", **QK_NORM, cycle="SSSSSF",
        period="sliding_window_pattern|_sliding_window_pattern",
        defaults={**TIED, "head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 6})

# --- Qwen, and the delta rule ---
_family("qwen2", (151936, 4096, 22016, 32, 32, 32, 32768), **LISTED, **WINDOW, qkv_bias=True,
        window_switch="use_sliding_window", window_from="max_window_layers",
        defaults={"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28})
_family("qwen3", (151936, 4096, 22016, 32, 32, 32, 32768), "qwen2", **BIASES, **QK_NORM,
        defaults={"head_dim": 128, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28})
_family("qwen2_moe", (151936, 2048, 5632, 24, 16, 16, 32768), "qwen2", qkv_bias="qkv_bias", pattern="early_windows",
        experts=QWEN, moe=(60, 4, 1408, 5632),
        defaults={"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "qkv_bias": True,
            "mlp_only_layers": None, "decoder_sparse_step": 1})
_family("qwen3_moe", (151936, 2048, 6144, 24, 32, 4, 32768), **WINDOW, **BIASES, **QK_NORM,
        window_switch="use_sliding_window", experts=Experts(placement="steps"), moe=(128, 8, 768),
        defaults={"use_sliding_window": False, "sliding_window": 4096, "mlp_only_layers": None,
            "decoder_sparse_step": 1})
DELTA: dict[str, Any] = {
    **LISTED, **BIASES, **QK_NORM, "gate": True, "gate_over": "query", "cycle": "LLLF",
    "period": "full_attention_interval",
    "mixers": {"L": "gated_delta", "F": "attention"}, "ignored": {"attn_output_gate": True},
}
DELTA_SIZES = {
    "head_dim": 256, "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
}
_family("qwen3_next", (151936, 2048, 5632, 48, 16, 2, 32768), **DELTA, experts=QWEN, moe=(512, 10, 512, 512),
        defaults={**DELTA_SIZES, "mlp_only_layers": None, "decoder_sparse_step": 1})
_family("qwen3_5_text", (248320, 4096, 12288, 32, 16, 4, 32768), **DELTA, defaults=DELTA_SIZES)
_family("qwen3_5_moe_text", (248320, 2048, None, 40, 16, 2, 32768), "qwen3_5_text", inner=None,
        experts=replace(QWEN, placement=None), ignored={"intermediate_size": None, "attn_output_gate": True},
        moe=(256, 8, 512, 512), defaults=DELTA_SIZES)
_family("lara_mini", (151936, 1024, None, 34, 16, 4, 131072), "qwen3_5_moe_text", gate=False, cycle="LSLFS",
        period=None, window="sliding_window", mixers={"L": "gated_delta", "F": "attention", "S": "attention"},
        experts=replace(QWEN, placement=None, shared_gate=False), moe=(128, 4, 512, 512),
        ignored={"intermediate_size": None, "attn_output_gate": False},
        defaults={**TIED, **DELTA_SIZES, "head_dim": 128, "linear_num_key_heads": 8, "linear_num_value_heads": 16,
            "sliding_window": 512})
_family("olmo_hybrid", (100352, 3840, 11008, 32, 30, None, 65536), "qwen3_5_text", gate=False, period=None,
        qk_norm_over="all heads", pattern="some_full",
        ignored=dict.fromkeys(("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max",
            "linear_dt_init_floor", "linear_allow_neg_eigval")),
        defaults={"linear_num_key_heads": None, "linear_num_value_heads": None, "linear_key_head_dim": None,
            "linear_value_head_dim": None, "linear_conv_kernel_dim": 4})

# --- multi-head latent attention ---
MLA: dict[str, Any] = {
    "mixers": {"F": "latent"}, "ignored": {"num_key_value_heads": None, "head_dim": None, "qk_head_dim": None},
}
MLA_SIZES = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}
_family("deepseek_v3", (129280, 7168, 18432, 61, 128, None, 4096), **MLA, experts=DEEPSEEK, moe=(256, 8, 2048, 1),
        defaults={**MLA_SIZES, "first_k_dense_replace": 3})
_family("deepseek_v2", (102400, 4096, 11008, 32, 32, None, 2048), "deepseek_v3", mlp_bias="mlp_bias",
        experts=replace(DEEPSEEK, experts="n_routed_experts|num_experts"), moe=(64, None, 1407, 2),
        defaults={**MLA_SIZES, "first_k_dense_replace": 0})
_family("kimi_k2", (), "deepseek_v3")
_family("sarvam_mla", (262144, 4096, 16384, 32, 64, None, 4096), "deepseek_v3", experts=SARVAM,
        ignored={**MLA["ignored"], "q_head_dim": None}, moe=(128, 8, 2048, 1),
        defaults={**MLA_SIZES, "q_lora_rank": None, "first_k_dense_replace": 1})
_family("glm4_moe_lite", (154880, 2048, 10240, 47, 20, None, 202752), "deepseek_v3",
        experts=replace(DEEPSEEK, first_dense=1, listed=True),
        ignored={"num_key_value_heads": None, "qk_head_dim": None, "first_k_dense_replace": 1}, moe=(64, 4, 1536, 1),
        defaults={**MLA_SIZES, "q_lora_rank": 768, "qk_nope_head_dim": 192, "v_head_dim": 256})
_family("axk1", (163840, 7168, 18432, 61, 64, None, 32768), "deepseek_v3",
        experts=replace(DEEPSEEK, norm=True, listed=True), moe=(192, 8, 2048, 1),
        defaults={**MLA_SIZES, "first_k_dense_replace": 1})
_family("youtu", (128256, 2048, 6144, 32, 16, None, 131072), **MLA, defaults={**TIED, **MLA_SIZES})
_family("minicpm3", (73448, 2560, 6400, 62, 40, None, 32768), **MLA, mlp_bias="mlp_bias",
        defaults={**TIED, "q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
            "v_head_dim": None})
_family("kimi_linear", (163840, 2304, 9216, 27, 32, None, 1048576), **LISTED, pattern="kimi",
        positions="model_max_length|max_position_embeddings", mixers={"F": "latent", "L": "kimi_delta"}, tied=False,
        experts=Experts(top_k="num_experts_per_token|num_experts_per_tok", first_dense="first_k_dense_replace",
            shared_count="num_shared_experts|n_shared_experts", listed=True),
        ignored={**MLA["ignored"], "mla_use_nope": None}, cycle="FLLL", first="L", moe=(256, 8, 1024, 1),
        defaults={**MLA_SIZES, "q_lora_rank": None, "linear_num_heads": 32, "linear_head_dim": 128,
            "linear_conv_kernel_dim": 4, "first_k_dense_replace": 1})

# --- mixtures of experts with grouped-query attention ---
_family("mixtral", (32000, 4096, 14336, 32, 32, 8, 131072), **WINDOW, experts=MIXTRAL, moe=(8, 2),
        defaults={"sliding_window": None})
_family("phimoe", (32064, 4096, 6400, 32, 32, 8, 131072), "mixtral", **BIASES, norm="layer", head_bias="lm_head_bias",
        experts=GRANITE, moe=(16, 2), defaults={"sliding_window": None, "lm_head_bias": False})
_family("gpt_oss", (201088, 2880, 2880, 36, 64, 8, 131072), **LISTED, **BIASES, window="sliding_window", cycle="SF",
        extra_per_head=1, experts=replace(MIXTRAL, bias=True), moe=(128, 4),
        defaults={"head_dim": 64, "attention_bias": True, "sliding_window": 128})
_family("olmoe", (50304, 2048, 2048, 16, 16, None, 4096), **BIASES, **QK_NORM_OVER_ALL,
        experts=Experts(inner="intermediate_size"), moe=(64, 8))
_family("flex_olmo", (100352, 4096, 11008, 32, 32, None, 4096), "olmoe", moe=(7, 5))
_family("minimax_m2", (200064, 3072, 1536, 62, 48, 8, 196608), **QK_NORM_OVER_ALL, experts=MIXTRAL,
        ignored={"use_qk_norm": True, "qk_norm_type": "per_layer", "use_routing_bias": None, "attn_type_list": 1},
        moe=(256, 8), defaults={"head_dim": 128})
_family("granitemoe", (32000, 4096, 11008, 32, 32, None, 2048), **BIASES, experts=GRANITE, moe=(8, 2))
_family("granitemoeshared", (32000, 4096, 11008, 32, 32, None, 2048), "granitemoe",
        experts=replace(GRANITE, shared_size="shared_intermediate_size"), moe=(8, 2, None, 0))
_family("granitemoe_swa", (32000, 4096, 11008, 32, 32, None, 2048), "granitemoeshared", **LISTED,
        window="sliding_window", cycle="FSSS", extra_per_head=1, moe=(8, 2, None, 0), defaults={"sliding_window": 128})
_family("hunyuan_v1_moe", (290943, 4096, 11008, 32, 32, None, 2048), "hunyuan_v1_dense",
        experts=Experts(top_k="moe_topk|num_experts_per_tok", inner="intermediate_size",
            shared_size="intermediate_size"), moe=(1, 1))
_family("glm4_moe", (151552, 4096, 10944, 46, 96, 8, 131072), qkv_bias="attention_bias", qk_norm="use_qk_norm",
        floors_head_dim=True, experts=DEEPSEEK, moe=(128, 8, 1408, 1),
        defaults={"use_qk_norm": False, "first_k_dense_replace": 1})
_family("sarvam_moe", (262144, 4096, 8192, 19, 64, 4, 131072), "glm4_moe", qkv_bias="attention_bias|use_qkv_bias",
        experts=SARVAM, moe=(128, 6, 1024, 1),
        defaults={"head_dim": 64, "use_qk_norm": True, "first_k_dense_replace": 1})
_family("solar_open", (196608, 4096, None, 48, 64, 8, 131072), qkv_bias="attention_bias", inner=None,
        experts=replace(DEEPSEEK, first_dense=0), ignored={"intermediate_size": None, "first_k_dense_replace": 0},
        moe=(128, 8, 1280, 1), defaults={"head_dim": 128})
_family("dots1", (152064, 4608, 10944, 62, 32, 32, 2048), **LISTED, **WINDOW, **BIASES, **QK_NORM,
        window_from="max_window_layers", experts=DEEPSEEK, moe=(None, None, 1408, None),
        defaults={"sliding_window": 4096, "max_window_layers": 62, "first_k_dense_replace": 0})
_family("exaone_moe", (102400, 4096, 16384, 32, 32, 32, 2048), "exaone4",
        experts=Experts(experts="num_experts", shared_count="num_shared_experts", listed=True,
            first_dense="first_k_dense_replace"), moe=(64, 8, 1024, 1),
        defaults={"sliding_window": 4096, "sliding_window_pattern": 4, "first_k_dense_replace": 1})
_family("cohere2_moe", (256000, 8192, 22528, 40, 64, None, 8192), "cohere2", feedforward="prefix_dense",
        ignored={"use_gated_activation": True, "prefix_dense_sliding_window_pattern": None},
        experts=Experts(experts="num_experts", inner="intermediate_size", shared_count="num_shared_experts",
            first_dense="first_k_dense_replace", listed=True), pattern="after_prefix", moe=(8, 2, None, 0),
        defaults={**TIED, "head_dim": 128, "sliding_window": 4096, "sliding_window_pattern": 4,
            "first_k_dense_replace": 0, "prefix_dense_intermediate_size": None,
            "prefix_dense_sliding_window_pattern": 1})
_family("ernie4_5_moe", (103424, 2560, 12288, 28, 20, 4, 131072), "ernie4_5",
        experts=Experts(experts="moe_num_experts|num_experts", top_k="moe_k|num_experts_per_tok", correction=True,
            shared_count="moe_num_shared_experts", placement="range"),
        ignored=dict.fromkeys(("moe_capacity", "moe_gate", "moe_use_aux_free")), moe=(64, 6, 1536, 2),
        defaults={**TIED, "use_bias": False, "moe_layer_start_index": 1, "moe_layer_end_index": -1,
            "moe_layer_interval": 1})
_family("aria_text", (32000, 4096, 4096, 32, 32, None, 2048), **BIASES, mlp_bias="mlp_bias",
        experts=Experts(experts="moe_num_experts", top_k="moe_topk", inner="intermediate_size",
            shared_count="moe_num_shared_experts"), moe=(8, 2, None, 2))
_family("hy_v3", (120832, 4096, 13312, 80, 64, 8, 131072), **BIASES, **QK_NORM, mlp_bias="mlp_bias",
        experts=Experts(shared_count="num_shared_experts", never_unshared=True, first_dense=1, listed=True),
        ignored={"first_k_dense_replace": 1}, moe=(192, 8, 1536, 1), defaults={"head_dim": 128})
_family("mellum", (98304, 2304, 7168, 28, 32, 4, 131072), **LISTED, **BIASES, **QK_NORM, window="sliding_window",
        experts=Experts(experts="num_experts|num_local_experts", listed=True), moe=(64, 8, 896),
        defaults={"head_dim": 128, "sliding_window": 1024})
_family("kolibri1", (128000, 2560, None, 50, 48, 4, 262144), **LISTED, **QK_NORM, window="sliding_window", norms=4,
        cycle="SSSSF", inner=None, experts=Experts(shared_size="shared_expert_intermediate_size"),
        ignored={"intermediate_size": None}, moe=(384, 6, 512, 512), defaults={"head_dim": 128, "sliding_window": 513})
_family("flint", (150144, 2048, 6144, 49, 32, 4, 262144), **LISTED, **BIASES, **QK_NORM, window="sliding_window",
        extra_per_head=1, cycle="SFSS", first="FF", last="F", experts=replace(QWEN, shared_gate=False),
        moe=(256, 6, 512, 1024),
        defaults={"head_dim": 128, "sliding_window": 513, "mlp_only_layers": [0, 1], "decoder_sparse_step": 1})
_family("laguna", (100352, 2048, 8192, 40, 48, 8, 131072), **LISTED, **BIASES, **QK_NORM, window="sliding_window",
        gate=True, gate_over="head", required={"gating": True},
        experts=Experts(experts="num_experts", shared_size="shared_expert_intermediate_size", correction=True,
            first_dense=1, listed=True), moe=(256, 8, 512, 512),
        defaults={"head_dim": 128, "gating": True, "sliding_window": 512})
_family("afmoe", (200192, 2048, 6144, 32, 16, None, 16384), **LISTED, **BIASES, **QK_NORM, window="sliding_window",
        norms=4, gate=True, cycle="SSSF", period="global_attn_every_n_layers",
        experts=Experts(experts="num_experts", shared_count="num_shared_experts", correction=True,
            first_dense="num_dense_layers"), moe=(64, 6, 1408, 2),
        defaults={"head_dim": 128, "global_attn_every_n_layers": 4, "sliding_window": 1024, "num_dense_layers": 1})
_family("beam", (151936, 5120, 20480, 52, 48, 8, 8192), **LISTED, **BIASES, **QK_NORM, window="sliding_window", norms=4,
        gate=True, extra_per_head=1, cycle="SSSSSF", last="F",
        experts=Experts(experts="num_experts", first_dense=3, listed=True), moe=(256, 8, 2560),
        defaults={"head_dim": 128, "sliding_window": 512})
_family("mimo_v2_flash", (152576, 4096, 16384, 48, 64, 4, 131072), **LISTED, qkv_bias="attention_bias",
        window="sliding_window", value_dim="v_head_dim", cycle="SSSSSF", first="F",
        mixers={"F": "attention", "S": "doubled_kv"},
        experts=replace(DEEPSEEK, shared_count=None, first_dense=1, listed=True), moe=(256, 8, 2048),
        defaults={"head_dim": 192, "v_head_dim": 128, "sliding_window": 129})

# --- LayerNorm, a plain feed-forward, biases: GPT-2 and its kin ---
GPT2: dict[str, Any] = {
    **PLAIN, "width": "n_embd|hidden_size", "layers": "n_layer|num_hidden_layers",
    "heads": "n_head|num_attention_heads",
    "inner": "n_inner", "positions": "n_positions|max_position_embeddings", "ignored": {"n_ctx": None},
}
_family("gpt2 gpt-sw3", (50257, 768, None, 12, 12, None, 1024), **GPT2, **ALL_BIASES, position_rows=0, defaults=TIED)
_family("openai-gpt", (40478, 768, None, 12, 12, None, 512), **{**GPT2, "inner": None}, **ALL_BIASES, position_rows=0,
        final_norm=False, defaults=TIED)
_family("gpt_bigcode", (50257, 768, None, 12, 12, None, 1024), "gpt2", mixers={"F": "multi_query"},
        ignored={"n_ctx": None, "num_key_value_heads": None}, defaults={**TIED, "multi_query": True})
_family("gptj codegen", (50400, 4096, None, 28, 16, None, 2048), **GPT2, norms=1, mlp_bias=True, head_bias=True)
_family("ctrl", (246534, 1280, 8192, 48, 16, None, 256), **{**GPT2, "inner": "dff"}, **ALL_BIASES, head_bias=True,
        defaults=TIED)
_family("gpt_neo", (50257, 2048, None, 24, 16, None, 2048), **PLAIN, layers="num_layers|num_hidden_layers",
        heads="num_heads|num_attention_heads", out_bias=True, mlp_bias=True, position_rows=0, window="window_size",
        pattern="gpt_neo", defaults={**TIED, "window_size": 256, "attention_types": [[["global", "local"], 12]]})
_family("gpt_neox", (50432, 6144, 24576, 44, 64, None, 2048), **PLAIN, **BIASES, mlp_bias=True,
        defaults={"attention_bias": True})
_family("opt", (50272, 768, 3072, 12, 12, None, 2048), **PLAIN, inner="ffn_dim", qkv_bias="enable_bias",
        out_bias="enable_bias", mlp_bias="enable_bias", position_rows=2,
        required={"do_layer_norm_before": True, "_remove_final_layer_norm": False,
            "layer_norm_elementwise_affine": True},
        defaults={**TIED, "enable_bias": True, "do_layer_norm_before": True, "_remove_final_layer_norm": False,
            "layer_norm_elementwise_affine": True})
_family("biogpt", (42384, 1024, 4096, 24, 16, None, 1024), **PLAIN, **ALL_BIASES, position_rows=2, defaults=TIED)
_family("xglm", (256008, 1024, 4096, 24, 16, None, 2048), **PLAIN, **ALL_BIASES, width="d_model|hidden_size",
        layers="num_layers|num_hidden_layers", heads="attention_heads|num_attention_heads", inner="ffn_dim",
        defaults=TIED)
_family("bloom", (250880, 64, None, 2, 8, None, None), **PLAIN, **ALL_BIASES, width="hidden_size|n_embed",
        layers="n_layer|num_hidden_layers", heads="n_head|num_attention_heads", inner=None, positions=None,
        embedding_norm=True, defaults=TIED)
_family("falcon", (65024, 4544, None, 32, 71, None, 2048), **{**PLAIN, "kv_heads": "num_kv_heads"}, qkv_bias="bias",
        width="hidden_size|n_embed", out_bias="bias", mlp_bias="bias", inner="ffn_hidden_size", norms="falcon",
        mixers={"F": "falcon"},
        defaults={**TIED, "bias": False, "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True,
            "num_ln_in_parallel_attn": None})
_family("phi", (51200, 2048, 8192, 24, 32, None, 2048), **ALL_BIASES, norm="layer", norms=1, gated=False,
        head_bias=True, qk_norm="qk_layernorm", qk_norm_over="head and bias", defaults={"qk_layernorm": False})
_family("persimmon", (262144, 4096, 16384, 36, 64, None, 16384), **PLAIN, **ALL_BIASES, qk_norm="qk_layernorm",
        qk_norm_over="head and bias", defaults={"qk_layernorm": True})
_family("stablelm", (50304, 2560, 6912, 32, 32, 32, 4096), head_dim=None, norm="layer", norms="stablelm",
        qkv_bias="use_qkv_bias", qk_norm="qk_layernorm", qk_norm_over="all heads",
        defaults={"use_qkv_bias": False, "qk_layernorm": False, "use_parallel_residual": False})
_family("starcoder2", (49152, 3072, 12288, 30, 24, 2, 4096), **WINDOW, norm="layer", gated=False, qkv_bias="use_bias",
        out_bias="use_bias", mlp_bias="use_bias", defaults={**TIED, "use_bias": True, "sliding_window": None})

# --- constant state ---
BAMBA_STATE = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv", "mamba_expand")
BAMBA_SIZES = {
    "mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
    "mamba_expand": 2, "mamba_conv_bias": True, "mamba_proj_bias": False,
}
BAMBA: dict[str, Any] = {
    **BIASES, "mixers": {"L": "mamba2", "F": "attention"}, "state_keys": BAMBA_STATE,
    "required": {"mamba_conv_bias": True, "mamba_proj_bias": False},
}
_family("bamba", (128000, 4096, 14336, 32, 32, 8, 262144), **BAMBA, mlp_bias="mlp_bias", pattern="bamba",
        defaults={**BAMBA_SIZES, "attn_layer_indices": None})
_family("granitemoehybrid", (32000, 4096, 11008, 32, 32, None, 2048), **BAMBA, layer_types="layer_types", cycle="L",
        feedforward="shared_only", experts=replace(GRANITE, shared_size="shared_intermediate_size"),
        moe=(8, 2, None, 1024), defaults={**BAMBA_SIZES})
_family("mamba2", (32768, 4096, None, 64, 128, None, None), cycle="L", mixers={"L": "mamba2"}, norms=1, inner=None,
        heads="num_heads", kv_heads=None, positions=None, feedforward=None,
        state_keys=("num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", "expand"),
        ignored={"intermediate_size": None, "norm_before_gate": None},
        required={"use_bias": False, "use_conv_bias": True},
        defaults={"head_dim": 64, "n_groups": 8, "state_size": 128, "conv_kernel": 4, "expand": 2, "use_bias": False,
            "use_conv_bias": True})
_family("mamba falcon_mamba", (50280, 768, None, 32), cycle="L", mixers={"L": "mamba1"}, norms=1, inner=None,
        kv_heads=None, positions=None, feedforward=None, required={"use_bias": False, "use_conv_bias": True},
        ignored={"use_mambapy": None, "use_falcon_mambapy": None},
        defaults={**TIED, "state_size": 16, "conv_kernel": 4, "expand": 2, "time_step_rank": "auto", "use_bias": False,
            "use_conv_bias": True})
_family("lfm2", (65536, 2560, 12288, 32, 32, 8, 128000), **LISTED, **QK_NORM, inner="intermediate_size|block_ff_dim",
        tied="tie_word_embeddings|tie_embedding", pattern="lfm2", feedforward="rounded",
        mixers={"C": "short_convolution", "F": "attention"}, required={"conv_bias": False},
        ignored={"conv_use_xavier_init": None},
        defaults={**TIED, "full_attn_idxs": None, "conv_L_cache": 3, "conv_bias": False, "block_multiple_of": 256,
            "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": True})
_family("lfm2_moe", (65536, 2048, 7168, 32, 32, 8, 128000), "lfm2", pattern=None, cycle="?", feedforward="dense",
        inner="intermediate_size", experts=Experts(experts="num_experts", first_dense="num_dense_layers"),
        ignored={"use_expert_bias": None, "conv_use_xavier_init": None}, moe=(32, 4, 1792),
        defaults={**TIED, "conv_L_cache": 3, "conv_bias": False, "num_dense_layers": 2})
_family("lfm3", (128000, 2048, 7680, 24, 16, 4, 128000), **LISTED, **BIASES, **QK_NORM, window="sliding_window",
        gate="use_attention_gate", gate_over="head", norms="sandwich", cycle="SCFC", first="C",
        mixers={"C": "short_convolution", "F": "attention", "S": "attention"}, required={"conv_bias": False},
        defaults={**TIED, "head_dim": 128, "sliding_window": 256, "use_attention_gate": True,
            "use_sandwich_norm": True, "conv_L_cache": 7, "conv_bias": False})

# --- what is refused by name, and why ---
_ENCODERS = """
albert bart bert bert-generation big_bird bigbird_pegasus blenderbot blenderbot-small camembert convbert data2vec-text
deberta deberta-v2 distilbert electra ernie esm flaubert fnet fsmt funnel git ibert layoutlm led longformer longt5
luke m2m_100 marian mbart megatron-bert mobilebert modernbert mpnet mra mt5 musicgen
musicgen_melody mvp nezha nllb-moe nystromformer pegasus pegasus_x plbart prophetnet qdqbert reformer rembert roberta
roberta-prelayernorm roc_bert roformer speech_to_text squeezebert switch_transformers t5 t5gemma t5gemma2 trocr udop
umt5 whisper xlm xlm-prophetnet xlm-roberta xlm-roberta-xl xlnet xmod yoso
"""
ENCODERS = frozenset(_ENCODERS.split())
_NO_ROW = """
bailing_hybrid bitnet blt cpmant diffllama doge dory dots3_note dots3_note_text gpt_neox_japanese helium hrm_text hy_v4
inkling_text inkling2_text inkling2_loop_text jetmoe minimax minimax_m3_vl_text modernbert-decoder moshi phi4_multimodal
qwen4_exp qwen4_exp_text recurrent_gemma rwkv xlstm zaya
"""
IRREGULAR = {
    **dict.fromkeys(_NO_ROW.split(), "its layers have parts of their own, which no row of the table describes"),
    **dict.fromkeys(("llama4", "llama4_text"), "its layers attend within chunks, so the span is a sawtooth"),
    **dict.fromkeys(("deepseek_v32", "deepseek_v4", "glm_moe_dsa", "axk2"),
                    "its queries attend to the tokens that an indexer picks, while all are stored"),
    **dict.fromkeys(("gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gemma4_unified_text"),
                    "its layers share caches, take inputs of their own and differ in head size"),
    "nemotron_h": "a layer is one of mixer, feed-forward or experts, and the experts may work in a latent of their own",
    "longcat_flash": "a layer has two attentions, two feed-forwards and experts that compute nothing",
    "mllama": "it attends across to a vision tower",
    "jamba": "its Mamba layers have norms of their own",
    "falcon_h1": "a layer has attention and Mamba side by side",
    **dict.fromkeys(("zamba", "zamba2"), "its blocks share weights through adapters"),
    **dict.fromkeys(("dbrx", "mpt"), "its sizes stand in nested objects"),
}

# --- which keys are structural: set and unread, they are an error ---
STRUCTURAL = re.compile(
    r"expert|moe|lora|mamba|ssm|conv|linear_|rnn|state_size|layer_types|layers_type|block_type|block_config|per_layer|layers_block"
    r"|layer_indices|layer_list|attn_type|index_|indexer|shared_kv|kv_shared|cross_att|encoder|^hc_|altup|laurel|window"
    r"|sliding|chunk_size|vision|audio|sink|mla|hybrid|dense|dff|nope_head|rope_head|q_head_dim|k_head_dim|v_head_dim"
    r"|head_dim|qk_norm|qk_layernorm|pruned_heads|layer_norm_elementwise|bidirectional|loop|recurrence"
    r"|output_vocab|embed_proj|emb_dim|embedding_size|gating|gate_|_gate|bias$|tie_|multi_query|parallel_attn"
    r"|post_norm|sandwich|sub_norm|use_post|relative|compress|n_groups"
    r"|^(hidden_size|n_embd|n_embed|d_model|num_hidden_layers|n_layers?|num_layers|num_attention_heads|n_heads?|num_heads"
    r"|attention_heads|num_key_value_heads|num_kv_heads|n_head_kv|intermediate_size|n_inner|ffn_dim|ffn_hidden_size"
    r"|text_config|is_encoder_decoder)$"
)
GROUPS = re.compile("kv|group|gqa|mqa|key_value")  # with a number: how many heads share keys and values
HARMLESS: dict[str, Any] = {  # look structural, and change neither sizes nor work; with the value where that holds
    **dict.fromkeys((
        "router_aux_loss_coef", "chunk_size_feed_forward", "moe_router_dtype", "num_expert_group", "moe_norm_min",
        "moe_renormalize", "moe_routed_scaling_factor", "moe_router_logit_softcapping", "expert_selection_fn",
        "shared_expert_combination_strategy", "enable_moe_fp32_combine", "mamba_chunk_size", "use_mamba_kernels",
        "chunk_size", "moe_router_activation_func", "num_expert_groups", "max_window_layers", "n_group", "topk_group",
        "num_beam_groups", "clip_qkv",
    )),
    "moe_layer_freq": 1, "mamba_ssm_cache_dtype": "float32", "mamba_ssm_dtype": "float32",  # as the state is counted
}
SAME_THING = (  # names of one thing: an unread one is harmless where it equals the one that was read
    ("hidden_size", "n_embd", "n_embed", "d_model", "dim", "word_embed_proj_dim", "conv_dim", "conv_dim_out",
     "block_dim"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "num_attention_heads_per_layer"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "n_kv_head", "kv_heads", "num_heads_kv",
     "num_query_groups"),
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k"),
    ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
)
# fmt: on
