"""Rows of models whose attention has a law, or whose layers have parts, that no other family has."""

from lessonlib.model.config import parts
from lessonlib.model.config.families.base import BIASED, UNBIASED
from lessonlib.model.config.families.dense import GEMMA2, LLAMA, QWEN2
from lessonlib.model.config.families.experts import DEEPSEEK
from lessonlib.model.config.families.latent import DEEPSEEK_V3, LATENT
from lessonlib.model.config.family import NO_NORM, Experts, Rows
from lessonlib.model.config.gemma import (
    gemma3n_beside,
    gemma3n_layer,
    gemma4,
    gemma4_layer,
    last_share,
    layer_tables,
    one_inner,
    sharing,
)
from lessonlib.model.config.mixers import attention, chunked, sparse_latent
from lessonlib.model.config.rules import listed_experts, rotary_chunks, stated_inner
from lessonlib.model.config.spelling import opened

# fmt: off
rows = Rows()

rows.add("llama4_text", BIASED.but(layer_types=True, kinds=rotary_chunks, mixers={"F": attention, "K": chunked},
        inner="intermediate_size_mlp", ignored={"use_qk_norm": None},
        experts=Experts(experts="num_local_experts", expert_inner="intermediate_size", shared_inner="intermediate_size",
            placement=listed_experts)),
    vocabulary=202_048, width=5120, inner=16_384, layers=48, heads=40, kv_heads=8, head_dim=128, positions=131_072,
    experts=16, top_k=1, expert_inner=8192, moe_layers=None, interleave_moe_layer_step=1, no_rope_layers=None,
    no_rope_layer_interval=4, attention_chunk_size=8192)

# --- Gemma 3n and 4: shared caches, inputs of each layer ---

GEMMA3N = rows.add("gemma3n_text", GEMMA2.but(qk_norm=True, cycle="SSSSF", marked=last_share,
        mixers=dict.fromkeys("FSfs", sharing), dense_inner=one_inner, amended=gemma3n_layer, beside=gemma3n_beside,
        ignored=dict.fromkeys(("altup_active_idx", "altup_coef_clip", "altup_correct_scale", "altup_lr_multiplier",
            "activation_sparsity_pattern"))),
    vocabulary=262_400, width=2048, inner=16_384, layers=35, heads=8, kv_heads=2, head_dim=256, positions=32_768,
    window=512, tied=True, num_kv_shared_layers=15, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262_144,
    altup_num_inputs=4, laurel_rank=64)

GEMMA4 = rows.add("gemma4_text", GEMMA3N.but(cycle="SSSSSF", last="F", mixers=dict.fromkeys("FSfs", gemma4),
        dense_inner=stated_inner, amended=gemma4_layer, beside=layer_tables, ignored={},
        experts=Experts(experts="num_experts", top_k="top_k_experts", shared_inner="intermediate_size",
            on="enable_moe_block")),
    vocabulary=262_144, width=2304, inner=9216, layers=30, heads=8, kv_heads=4, head_dim=256, positions=131_072,
    window=512, tied=True, num_kv_shared_layers=0, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262_144,
    attention_k_eq_v=False, global_head_dim=512, num_global_key_value_heads=None, use_double_wide_mlp=False,
    use_bidirectional_attention=None, enable_moe_block=False, experts=None, top_k=None, expert_inner=None)

rows.add("gemma4_unified_text", GEMMA4.but(experts=None, required={"hidden_size_per_layer_input": 0}),
    vocabulary=262_144, width=2304, inner=9216, layers=30, heads=8, kv_heads=4, head_dim=256, positions=262_144,
    window=1024, tied=True, num_kv_shared_layers=0, vocab_size_per_layer_input=1, attention_k_eq_v=False,
    global_head_dim=512, num_global_key_value_heads=None, use_double_wide_mlp=False,
    use_bidirectional_attention="vision")

# --- sparse attention, hyper-connections, convolutions beside attention ---

rows.add("doge", LLAMA.but(window="sliding_window", cycle="W", qk_norm=True, floors_head_dim=True,
        amended=parts.doge_layer,
        mixers=dict.fromkeys("FS", parts.all_kept), required={"is_moe": False},
        ignored=dict.fromkeys(("num_experts", "num_experts_per_tok"))),
    vocabulary=32_768, width=1024, inner=2048, layers=32, heads=8, kv_heads=None, positions=2048, window=None,
    keep_window_size=2048)

rows.add("minimax_m3_vl_text", UNBIASED.but(layer_types=True, kinds=parts.m3_kinds, spelled=parts.m3_spelling,
        mixers={"F": attention, "X": parts.block_sparse}, qk_norm=True, inner="dense_intermediate_size",
        experts=Experts(experts="num_local_experts|num_experts", expert_inner="intermediate_size",
            shared_inner="shared_intermediate_size", listed=True, placement=parts.m3_sparse)),
    vocabulary=200_064, width=6144, inner=12_288, layers=60, heads=64, kv_heads=4, head_dim=128, positions=524_288,
    experts=128, top_k=4, expert_inner=3072, shared_inner=3072, index_n_heads=4, index_head_dim=128,
    index_block_size=128, index_topk_blocks=16, index_local_blocks=1, sparse_attention_freq=None, moe_layer_freq=None)

rows.add("hy_v4", DEEPSEEK_V3.but(mixers=dict.fromkeys("IH", sparse_latent), kinds=parts.hy_v4_indexed,
        amended=parts.hy_v4_layer, beside=parts.one_stream, experts=DEEPSEEK.but(first_dense=1, listed=True),
        ignored={**LATENT.ignored, "layer_types": "indexed_attention", "hc_magnitude": None, "hc_eps": None}),
    vocabulary=120_832, width=2816, inner=6912, layers=34, heads=32, positions=262_144, experts=256, top_k=8,
    expert_inner=768, shared_experts=1, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=192, qk_rope_head_dim=64,
    v_head_dim=256, index_topk=2048, index_n_heads=16, index_head_dim=128, hc_mult=4)

rows.add("deepseek_v4", UNBIASED.but(layer_types=True, kinds=parts.v4_kinds, spelled=parts.v4_spelling,
        mixers=dict.fromkeys("SPQ", parts.compressed), kv_heads=None, window="sliding_window", inner=None,
        amended=parts.v4_layer, beside=parts.one_stream,
        experts=Experts(experts="n_routed_experts|num_local_experts",
            expert_inner="moe_intermediate_size|intermediate_size",
            shared_inner="moe_intermediate_size|intermediate_size"),
        required={"mlp_bias": False},
        ignored={"num_key_value_heads": 1, "n_shared_experts": 1, **dict.fromkeys(("num_hash_layers",
            "qk_rope_head_dim", "partial_rotary_factor", "compress_rope_theta", "hc_eps", "hc_sinkhorn_iters",
            "expert_dtype"))}),
    vocabulary=129_280, width=4096, layers=43, heads=64, head_dim=512, positions=1_048_576, window=128, experts=256,
    top_k=6, expert_inner=2048, shared_inner=2048, q_lora_rank=1024, o_groups=8, o_lora_rank=1024, compress_rate_csa=4,
    compress_rate_hca=128, compress_ratios=None, index_topk=512, index_n_heads=64, index_head_dim=128, hc_mult=4)

rows.add("dots3_note_text", DEEPSEEK_V3.but(layer_types=True, kinds=parts.dots_kinds, spelled=parts.dots_spelling,
        mixers=dict.fromkeys("FIS", parts.dots_latent), window="sliding_window|sliding_window_size",
        amended=parts.dots_layer, ignored={"head_dim": None, "mlp_bias": None},
        experts=DEEPSEEK.but(first_dense=0, never_unshared=True, listed=True, placement=parts.dots_sparse)),
    vocabulary=152_064, width=5120, inner=13_824, layers=46, heads=128, positions=524_288, window=512, experts=256,
    top_k=8, expert_inner=1536, shared_experts=1, shared_experts_intermediate_size=1536, q_lora_rank=1024,
    kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, num_key_value_heads=128,
    first_k_dense_replace=1, moe_layer_freq=1, use_sliding_window=True, index_topk=2048, index_n_heads=64,
    index_head_dim=128, swa_num_attention_heads=64, swa_num_key_value_heads=64, swa_q_lora_rank=1024,
    swa_kv_lora_rank=1024, swa_head_dim=256, swa_qk_nope_head_dim=192, swa_v_head_dim=128, swa_qk_rope_head_dim=None)

rows.add("inkling_text", UNBIASED.but(layer_types=True, kinds=parts.inkling_kinds, spelled=parts.inkling_spelling,
        mixers=dict.fromkeys("HZ", parts.convolved), qk_norm=True, window="sliding_window_size|sliding_window",
        positions="max_position_embeddings|model_max_length", tied=False, embedding_norm=True, activation_weights=1,
        amended=parts.inkling_layer,
        experts=Experts(experts="n_routed_experts|num_local_experts", shared_experts="n_shared_experts",
            never_unshared=True, first_dense="dense_mlp_idx", listed=True),
        ignored=dict.fromkeys(("tie_word_embeddings", "shared_expert_sink", "unpadded_vocab_size",
            "rms_norm_eps_moe_gate", "number_of_conv_states"))),
    vocabulary=201_024, width=6144, inner=24_576, layers=66, heads=64, kv_heads=8, head_dim=128, positions=131_072,
    window=512, experts=256, top_k=6, expert_inner=3072, shared_experts=2, dense_mlp_idx=0, local_layer_ids=None,
    swa_num_attention_heads=64, swa_num_key_value_heads=16, swa_head_dim=128, d_rel=16, rel_extent=1024,
    conv_kernel_size=4)

rows.add("dory", LLAMA.but(layer_types=True, cycle="SSSF", window="sliding_window", spelled=parts.dory_spelling,
        marked=parts.recurrent, mixers=dict.fromkeys("FSfs", attention), gate=True, norm=NO_NORM, head_bias=True,
        amended=parts.dory_layer, required={"recurrent_kv_cache_mode": "per_loop"},
        ignored={"ngpt_alpha_init": None}),
    vocabulary=131_072, width=2560, inner=7168, layers=36, heads=16, kv_heads=4, head_dim=256, positions=8192,
    window=1024, n_input_layers=8, n_output_layers=8, n_recurrent_layers=None, n_recurrent_loops=2)

# --- layers for images, which text passes by ---

rows.add("mllama_text_model", UNBIASED.but(head_dim=None, layer_count=parts.text_layers, beside=parts.for_images,
        required={"tie_word_embeddings": False}),
    vocabulary=128_256, width=4096, inner=14_336, layers=40, heads=32, kv_heads=8, positions=131_072,
    cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38])

# --- sizes in nested objects ---

rows.add("mpt", UNBIASED.but(width="d_model|hidden_size", layers="n_layers|num_hidden_layers",
        heads="n_heads|num_attention_heads", kv_heads=None, head_dim=None, inner=None, positions="max_seq_len",
        gated=False, spelled=lambda keys: opened(keys, "attn_config", {"alibi": "alibi"}),
        required={"no_bias": True, "expansion_ratio": 4, "attn_type": "multihead_attention", "qk_ln": False,
            "alibi": True},
        ignored=dict.fromkeys(("learned_pos_emb", "prefix_lm", "embedding_fraction", "alibi_bias_max", "attn_impl",
            "attn_uses_sequence_id", "init_config", "init_device", "norm_type"))),
    vocabulary=50_368, width=2048, layers=24, heads=16, positions=2048, tied=True)

rows.add("dbrx", UNBIASED.but(width="d_model|hidden_size", layers="n_layers|num_hidden_layers",
        heads="n_heads|num_attention_heads", kv_heads="kv_n_heads|num_key_value_heads", head_dim=None,
        inner=None, positions="max_seq_len|max_position_embeddings", spelled=parts.dbrx_spelling,
        required={"tie_word_embeddings": False}, ignored=dict.fromkeys(("moe_jitter_eps", "moe_loss_weight",
            "moe_normalize_expert_weights", "ffn_act_fn")),
        experts=Experts(experts="moe_num_experts", top_k="moe_top_k", expert_inner="ffn_hidden_size")),
    vocabulary=32_000, width=2048, layers=24, heads=16, kv_heads=1, positions=2048, experts=4, top_k=1,
    expert_inner=3584)

# --- published with code of their own, so no default of their class is known ---

rows.add("mimo", QWEN2)
rows.add("internlm2", UNBIASED.but(qkv_bias="bias", out_bias="bias"))
