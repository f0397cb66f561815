"""Rows of models whose layers are of several makes: one part each, two mixers at once, a block that many share."""

from functools import partial

from lessonlib.model.config import hybrids
from lessonlib.model.config.families.base import BIASED, UNBIASED
from lessonlib.model.config.families.experts import DEEPSEEK, MIXTRAL_EXPERTS
from lessonlib.model.config.families.latent import LATENT
from lessonlib.model.config.family import LAYER_NORM, Experts, Rows
from lessonlib.model.config.mixers import attention, mamba2
from lessonlib.model.config.rules import stated_inner

# fmt: off
rows = Rows()

# The class ties nothing, whatever the key says: both tables are stored.
rows.add("nemotron_h", UNBIASED.but(mixers={"F": attention, "-": hybrids.no_mixer, "+": hybrids.no_mixer,
            "L": partial(mamba2, heads="mamba_num_heads", head_dim="mamba_head_dim", groups="n_groups|mamba_n_groups",
                state_size="ssm_state_size", conv_kernel="conv_kernel|mamba_d_conv")},
        layer_count=hybrids.nemotron_layers, kinds=hybrids.nemotron_kinds, no_feedforward="FL", norms=1, gated=False,
        mlp_bias="mlp_bias", tied=False,
        experts=Experts(experts="n_routed_experts|num_local_experts", latent="moe_latent_size",
            shared_inner="moe_shared_expert_intermediate_size",
            placement=lambda keys: [kind == "+" for kind in hybrids.nemotron_kinds(keys)]),
        required={"use_bias": False, "use_conv_bias": True, "mamba_proj_bias": False, "n_shared_experts": 1},
        ignored=dict.fromkeys(("expand", "mamba_expand", "mamba_hidden_act", "moe_shared_expert_overlap",
            "mtp_layers_block_type", "mtp_hybrid_override_pattern", "tie_word_embeddings", "time_step_rank"))),
    vocabulary=131_072, width=4096, inner=21_504, heads=32, kv_heads=8, head_dim=128, positions=4096,
    layers_block_type=None, hybrid_override_pattern=None, ssm_state_size=128, mamba_num_heads=128, mamba_head_dim=64,
    n_groups=8, conv_kernel=4, experts=8, top_k=2, expert_inner=7688, shared_inner=7688, moe_latent_size=None,
    mamba_ssm_cache_dtype="float32")

rows.add("jamba", UNBIASED.but(mixers={"F": attention, "L": hybrids.mamba1_with_norms}, kinds=hybrids.jamba_kinds,
        experts=Experts(expert_inner="intermediate_size", placement=hybrids.jamba_sparse, none_is_dense=True),
        required={"mamba_conv_bias": True, "mamba_proj_bias": False},
        ignored={"mamba_inner_layernorms": True, "calc_logits_for_entire_prompt": None}),
    vocabulary=65_536, width=4096, inner=14_336, layers=32, heads=32, kv_heads=8, positions=262_144, experts=16,
    top_k=2, expert_layer_period=2, expert_layer_offset=1, attn_layer_period=8, attn_layer_offset=4, mamba_d_state=16,
    mamba_d_conv=4, mamba_expand=2, mamba_dt_rank="auto")

rows.add("falcon_h1", BIASED.but(mixers={"H": hybrids.falcon_h1}, cycle="H", mlp_bias="mlp_bias",
        required={"mamba_conv_bias": True, "mamba_proj_bias": False, "projectors_bias": False},
        ignored={"mamba_use_mlp": True, **dict.fromkeys(("mamba_norm_before_gate", "mlp_expansion_factor",
            "mlp_multipliers", "ssm_multipliers", "ssm_in_multiplier", "ssm_out_multiplier"))}),
    vocabulary=128_000, width=4096, inner=14_336, layers=32, heads=32, kv_heads=8, positions=8192, mamba_d_ssm=1024,
    mamba_n_heads=128, mamba_d_head="auto", mamba_n_groups=1, mamba_d_state=256, mamba_d_conv=4, mamba_expand=2,
    mamba_rms_norm=False)

# --- a block that layers share; without tied embeddings the class would give each its own ---

ZAMBA = UNBIASED.but(norms={"L": 1, "H": 4, "B": 4}, no_feedforward="L", borrowed=hybrids.zamba_borrowed,
                     head_dim="attention_head_dim|head_dim")

rows.add("zamba", ZAMBA.but(kinds=hybrids.zamba_kinds,
        mixers={"L": hybrids.zamba_mamba, "H": hybrids.zamba_hybrid, "B": hybrids.zamba_hybrid},
        required={"tie_word_embeddings": True, "mamba_conv_bias": True, "mamba_proj_bias": False},
        ignored={"hidden_mamba_act": None}),
    vocabulary=32_000, width=3712, inner=14_848, layers=76, heads=16, kv_heads=16, attention_head_dim=None,
    attention_hidden_size=None, positions=4096, attn_layer_period=6, attn_layer_offset=4, mamba_d_state=16,
    mamba_d_conv=4, mamba_expand=2, mamba_dt_rank="auto", n_mamba_heads=2, layers_block_type=None)

rows.add("zamba2", ZAMBA.but(kinds=hybrids.zamba2_kinds,
        mixers={"L": hybrids.zamba2_mamba, "H": hybrids.zamba2_hybrid, "B": hybrids.zamba2_hybrid},
        extra_inner=lambda keys: keys.count("adapter_rank") * (keys.width + 2 * stated_inner(keys)),
        required={"tie_word_embeddings": True, "add_bias_linear": False, "use_long_context": False},
        ignored={"use_shared_mlp_adapter": True, **dict.fromkeys(("kv_channels", "num_query_groups", "use_conv_bias",
            "use_mem_eff_path", "use_mem_rope"))}),
    vocabulary=32_000, width=2560, inner=None, layers=54, heads=32, kv_heads=None, attention_head_dim=None,
    attention_hidden_size=None, positions=4096, mamba_d_state=64, mamba_d_conv=4, mamba_expand=2, mamba_ngroups=1,
    n_mamba_heads=8, mamba_headdim="auto", num_mem_blocks=1, use_shared_attention_adapter=False, adapter_rank=128,
    layers_block_type=None, hybrid_layer_ids=None)

# --- a constant state ---

rows.add("recurrent_gemma", UNBIASED.but(mixers={"L": hybrids.linear_recurrence, "S": attention},
        kinds=hybrids.recurrent_kinds, window="attention_window_size|sliding_window", qkv_bias="attention_bias",
        out_bias=True, mlp_bias=True, dense_inner=lambda keys: stated_inner(keys) // 2, positions=None,
        ignored=dict.fromkeys(("final_w_init_variance_scale", "w_init_variance_scale", "embeddings_scale_by_sqrt_dim",
            "max_position_embeddings"))),
    vocabulary=256_000, width=2560, inner=7680, layers=26, heads=10, kv_heads=None, lru_width=None, window=2048,
    conv1d_width=4, block_types=["recurrent", "recurrent", "attention"], tied=True)

# Half of a layer mixes its input with that of the token before: 2 weights a channel, as many as a third LayerNorm.
rows.add("rwkv", UNBIASED.but(mixers={"L": hybrids.rwkv4}, cycle="L", kv_heads=None, positions=None, norm=LAYER_NORM,
        norms=3, embedding_norm=True, gated=False, extra_inner=lambda keys: keys.width**2,
        ignored=dict.fromkeys(("context_length", "max_position_embeddings", "rescale_every"))),
    vocabulary=50_277, width=4096, inner=None, layers=32, attention_hidden_size=None)

rows.add("xlstm", UNBIASED.but(mixers={"L": hybrids.matrix_lstm}, cycle="L", layers="num_hidden_layers|num_blocks",
        heads="num_heads", kv_heads=None, inner=None, positions=None, dense_inner=hybrids.matrix_lstm_inner, tied=False,
        required={"use_bias": False},
        ignored=dict.fromkeys(("tie_word_embeddings", "add_out_norm", "weight_mode", "chunkwise_kernel",
            "sequence_kernel", "step_kernel", "mode", "return_last_states", "autocast_kernel_dtype", "gate_soft_cap",
            "max_inference_chunksize", "norm_reduction_force_float32", "output_logit_soft_cap", "head_dim",
            "igate_bias_init_range"))),
    vocabulary=50_304, width=4096, layers=32, heads=8, embedding_dim=None, qk_dim_factor=0.5, v_dim_factor=1.0,
    ffn_proj_factor=2.667, ffn_round_up_to_multiple_of=64, inference_state_dtype="float32")

MINIMAX = rows.add("minimax", UNBIASED.but(mixers={"F": attention, "L": hybrids.lightning}, layer_types=True,
        kinds=hybrids.alternating_unless_listed, experts=MIXTRAL_EXPERTS,
        ignored={"shared_intermediate_size": 0, **dict.fromkeys(("block_size", "shared_moe_mode", "postnorm",
            *(f"{part}_{factor}_factor" for part in ("full_attn", "linear_attn", "mlp") for factor in ("alpha", "beta"))
        ))}),
    vocabulary=32_000, width=4096, inner=14_336, layers=32, heads=32, kv_heads=8, positions=131_072, experts=8, top_k=2)

# As released at first; its class is not in transformers, so no default is known.
rows.add("minimax_text_01 minimax_m1", MINIMAX.but(kinds=hybrids.listed_kinds, layer_types=False,
        ignored={**MINIMAX.ignored, **dict.fromkeys(f"layernorm_{part}_{factor}" for factor in ("alpha", "beta")
            for part in ("full_attention", "linear_attention", "mlp"))}))

rows.add("bailing_hybrid", LATENT.but(mixers={"F": hybrids.latent_with_gate, "L": hybrids.full_rank_delta},
        layer_types=True, cycle="LF", period="layer_group_size", tied=False,
        positions="max_position_embeddings|model_max_length",
        experts=DEEPSEEK.but(experts="num_local_experts|num_experts", listed=True,
            top_k="num_experts_per_tok|num_experts_per_token", shared_experts="n_shared_experts|num_shared_experts"),
        ignored={**LATENT.ignored, **dict.fromkeys(("tie_word_embeddings", "kda_safe_gate", "kda_lower_bound"))}),
    vocabulary=157_184, width=2560, inner=6144, layers=42, heads=32, positions=262_144, experts=512, top_k=8,
    expert_inner=768, shared_experts=1, first_k_dense_replace=2, q_lora_rank=None, kv_lora_rank=512,
    qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, head_dim=128, layer_group_size=6,
    short_conv_kernel_size=4, linear_num_heads=None, linear_head_dim=None, linear_conv_kernel_dim=None)

# --- nearly Llama ---

rows.add("bitnet", BIASED.but(norms=3, activation_weights=stated_inner),  # norms before the output and the down matrix
    vocabulary=128_256, width=2560, inner=6912, layers=30, heads=20, kv_heads=5, positions=2048)

rows.add("helium", UNBIASED.but(mixers={"F": hybrids.square_output}, qkv_bias="attention_bias", mlp_bias="mlp_bias"),
    vocabulary=48_000, width=2560, inner=7040, layers=24, heads=20, kv_heads=20, head_dim=128, positions=4096)

rows.add("diffllama", BIASED.but(mixers={"F": hybrids.differential}),
    vocabulary=32_000, width=2048, inner=8192, layers=16, heads=32, kv_heads=None, positions=2048)

rows.add("gpt_neox_japanese", UNBIASED.but(mixers={"F": attention, "B": hybrids.biased_output}, last="B",
        kv_heads=None, head_dim=None, inner=None, gated=False, norm=LAYER_NORM,
        dense_inner=lambda keys: keys.width * keys.count("intermediate_multiple_size")),
    vocabulary=32_000, width=2560, layers=32, heads=32, positions=2048, intermediate_multiple_size=4, tied=True)
