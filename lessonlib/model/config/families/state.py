"""Rows of models whose layers, some or all, keep a constant state: the delta rule, Mamba, short convolutions."""

from functools import partial

from lessonlib.model.config.families.base import BIASED, UNBIASED
from lessonlib.model.config.families.experts import GRANITE_EXPERTS, QWEN
from lessonlib.model.config.family import Experts, Rows
from lessonlib.model.config.mixers import attention, gated_delta, mamba1, mamba2, short_convolution
from lessonlib.model.config.rules import cycle, cycle_with_attention, full_at, rounded_inner, stated_inner

# fmt: off
rows = Rows()

# --- the delta rule ---

QWEN3_NEXT = rows.add("qwen3_next", BIASED.but(layer_types=True, cycle="LLLF", period="full_attention_interval",
        mixers={"L": gated_delta, "F": attention}, qk_norm=True, gate=True, gate_in_query=True,
        ignored={"attn_output_gate": True}, experts=QWEN),
    vocabulary=151_936, width=2048, inner=5632, layers=48, heads=16, kv_heads=2, head_dim=256, positions=32_768,
    experts=512, top_k=10, expert_inner=512, shared_inner=512, full_attention_interval=4, linear_num_key_heads=16,
    linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4,
    mlp_only_layers=None, decoder_sparse_step=1)

QWEN3_5 = rows.add("qwen3_5_text", QWEN3_NEXT.but(experts=None),
    vocabulary=248_320, width=4096, inner=12_288, layers=32, heads=16, kv_heads=4, head_dim=256, positions=32_768,
    full_attention_interval=4, linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
    linear_value_head_dim=128, linear_conv_kernel_dim=4)

QWEN3_5_EXPERTS = QWEN.but(placement=None, none_is_dense=False)
QWEN3_5_MOE = rows.add("qwen3_5_moe_text", QWEN3_5.but(inner=None, experts=QWEN3_5_EXPERTS,
        ignored={"intermediate_size": None, "attn_output_gate": True}),
    vocabulary=248_320, width=2048, layers=40, heads=16, kv_heads=2, head_dim=256, positions=32_768, experts=256,
    top_k=8, expert_inner=512, shared_inner=512, full_attention_interval=4, linear_num_key_heads=16,
    linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4)

rows.add("lara_mini", QWEN3_5_MOE.but(cycle="LSLFS", period=None, window="sliding_window", gate=False,
        mixers={"L": gated_delta, "F": attention, "S": attention}, experts=QWEN3_5_EXPERTS.but(shared_gate=False),
        ignored={"intermediate_size": None, "attn_output_gate": False}),
    vocabulary=151_936, width=1024, layers=34, heads=16, kv_heads=4, head_dim=128, positions=131_072, window=512,
    experts=128, top_k=4, expert_inner=512, shared_inner=512, linear_num_key_heads=8,
    linear_num_value_heads=16, linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4, tied=True)

rows.add("olmo_hybrid", QWEN3_5.but(kinds=cycle_with_attention, period=None, qk_norm_over_all=True, gate=False,
        ignored=dict.fromkeys(("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max",
            "linear_dt_init_floor", "linear_allow_neg_eigval"))),
    vocabulary=100_352, width=3840, inner=11_008, layers=32, heads=30, kv_heads=None, positions=65_536,
    linear_num_key_heads=None, linear_num_value_heads=None, linear_key_head_dim=None, linear_value_head_dim=None,
    linear_conv_kernel_dim=4)

# --- Mamba ---

BAMBA = rows.add("bamba", BIASED.but(mlp_bias="mlp_bias",
        kinds=lambda keys: full_at(keys, "attn_layer_indices", others="L", unstated="L"),
        mixers={"F": attention, "L": partial(mamba2, heads="mamba_n_heads", head_dim="mamba_d_head",
            groups="mamba_n_groups", state_size="mamba_d_state", conv_kernel="mamba_d_conv", expand="mamba_expand")},
        required={"mamba_conv_bias": True, "mamba_proj_bias": False}),
    vocabulary=128_000, width=4096, inner=14_336, layers=32, heads=32, kv_heads=8, positions=262_144,
    mamba_n_heads=128, mamba_d_head="auto", mamba_n_groups=1, mamba_d_state=256, mamba_d_conv=4, mamba_expand=2,
    attn_layer_indices=None)

rows.add("granitemoehybrid", BAMBA.but(mlp_bias=False, layer_types=True, kinds=cycle, cycle="L",
        dense_inner=lambda keys: keys.count("shared_intermediate_size"),
        experts=GRANITE_EXPERTS.but(shared_inner="shared_intermediate_size", none_is_dense=True)),
    vocabulary=32_000, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048, experts=8,
    top_k=2, shared_inner=1024, mamba_n_heads=128, mamba_d_head="auto", mamba_n_groups=1, mamba_d_state=256,
    mamba_d_conv=4, mamba_expand=2)

rows.add("mamba2", UNBIASED.but(cycle="L", heads="num_heads", kv_heads=None, inner=None, positions=None, norms=1,
        mixers={"L": partial(mamba2, heads="num_heads", head_dim="head_dim", groups="n_groups",
            state_size="state_size", conv_kernel="conv_kernel", expand="expand")}, dense_inner=None,
        required={"use_bias": False, "use_conv_bias": True},
        ignored={"intermediate_size": None, "norm_before_gate": None}),
    vocabulary=32_768, width=4096, layers=64, heads=128, head_dim=64, n_groups=8, state_size=128, conv_kernel=4,
    expand=2)

rows.add("mamba falcon_mamba", UNBIASED.but(cycle="L", kv_heads=None, inner=None, positions=None, norms=1,
        mixers={"L": mamba1}, dense_inner=None, required={"use_bias": False, "use_conv_bias": True},
        ignored={"use_mambapy": None, "use_falcon_mambapy": None}),
    vocabulary=50_280, width=768, layers=32, state_size=16, conv_kernel=4, expand=2, time_step_rank="auto",
    tied=True)

# --- short convolutions ---

LFM2 = rows.add("lfm2", UNBIASED.but(layer_types=True, qk_norm=True, inner="intermediate_size|block_ff_dim",
        kinds=lambda keys: full_at(keys, "full_attn_idxs", others="C", unstated="F"), dense_inner=rounded_inner,
        mixers={"C": short_convolution, "F": attention}, tied="tie_word_embeddings|tie_embedding",
        required={"conv_bias": False}, ignored={"conv_use_xavier_init": None}),
    vocabulary=65_536, width=2560, inner=12_288, layers=32, heads=32, kv_heads=8, positions=128_000,
    full_attn_idxs=None, conv_L_cache=3, block_multiple_of=256, block_ffn_dim_multiplier=1.0,
    block_auto_adjust_ff_dim=True, tied=True)

rows.add("lfm2_moe", LFM2.but(kinds=cycle, cycle="?", inner="intermediate_size", dense_inner=stated_inner,
        experts=Experts(experts="num_experts", first_dense="num_dense_layers"),
        ignored={"use_expert_bias": None, "conv_use_xavier_init": None}),
    vocabulary=65_536, width=2048, inner=7168, layers=32, heads=32, kv_heads=8, positions=128_000, experts=32, top_k=4,
    expert_inner=1792, conv_L_cache=3, num_dense_layers=2, tied=True)

rows.add("lfm3", BIASED.but(layer_types=True, cycle="SCFC", first="C", window="sliding_window",
        mixers={"C": short_convolution, "F": attention, "S": attention},
        qk_norm=True, gate="use_attention_gate", gate_per_head=True,
        norms=lambda keys: 4 if keys.switch("use_sandwich_norm") else 2, required={"conv_bias": False}),
    vocabulary=128_000, width=2048, inner=7680, layers=24, heads=16, kv_heads=4, head_dim=128, positions=128_000,
    window=256, use_attention_gate=True, use_sandwich_norm=True, conv_L_cache=7, tied=True)
