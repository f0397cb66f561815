"""Rows of mixtures of experts with grouped-query attention."""

from lessonlib.model.config.families.base import BIASED, UNBIASED
from lessonlib.model.config.families.dense import COHERE2, ERNIE4_5, EXAONE4, HUNYUAN_V1_DENSE, MISTRAL, QWEN2
from lessonlib.model.config.family import LAYER_NORM, Experts, Rows
from lessonlib.model.config.mixers import attention
from lessonlib.model.config.rules import cycle_after_dense, early_windows, sparse_range, sparse_steps, stated_inner
from lessonlib.model.config.spelling import hunyuan_spelling, mimo_spelling

# fmt: off
rows = Rows()

MIXTRAL_EXPERTS = Experts(experts="num_local_experts|num_experts", expert_inner="intermediate_size")
GRANITE_EXPERTS = Experts(experts="num_local_experts", expert_inner="intermediate_size")
QWEN = Experts(experts="num_experts", shared_inner="shared_expert_intermediate_size", shared_gate=True,
               placement=sparse_steps, none_is_dense=True)
DEEPSEEK = Experts(experts="n_routed_experts|num_local_experts", shared_experts="n_shared_experts",
                   first_dense="first_k_dense_replace")
SARVAM = DEEPSEEK.but(experts="n_routed_experts|num_local_experts|num_experts",
                      shared_experts="n_shared_experts|num_shared_experts")

MIXTRAL = rows.add("mixtral", MISTRAL.but(experts=MIXTRAL_EXPERTS),
    vocabulary=32_000, width=4096, inner=14_336, layers=32, heads=32, kv_heads=8, positions=131_072, window=None,
    experts=8, top_k=2)

rows.add("phimoe", MIXTRAL.but(qkv_bias="attention_bias", out_bias="attention_bias", norm=LAYER_NORM,
        head_bias="lm_head_bias", experts=GRANITE_EXPERTS),
    vocabulary=32_064, width=4096, inner=6400, layers=32, heads=32, kv_heads=8, positions=131_072, window=None,
    experts=16, top_k=2, lm_head_bias=False)

rows.add("gpt_oss", BIASED.but(layer_types=True, window="sliding_window", cycle="SF", extra_per_head=1,
        experts=MIXTRAL_EXPERTS.but(bias=True)),
    vocabulary=201_088, width=2880, inner=2880, layers=36, heads=64, kv_heads=8, head_dim=64, positions=131_072,
    window=128, experts=128, top_k=4, attention_bias=True)

OLMOE = rows.add("olmoe", BIASED.but(qk_norm=True, qk_norm_over_all=True,
        experts=Experts(expert_inner="intermediate_size")),
    vocabulary=50_304, width=2048, inner=2048, layers=16, heads=16, kv_heads=None, positions=4096, experts=64, top_k=8)

rows.add("flex_olmo", OLMOE,
    vocabulary=100_352, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=4096, experts=7,
    top_k=5)

rows.add("minimax_m2", UNBIASED.but(qk_norm=True, qk_norm_over_all=True, experts=MIXTRAL_EXPERTS,
        ignored={"use_qk_norm": True, "qk_norm_type": "per_layer", "use_routing_bias": None, "attn_type_list": 1}),
    vocabulary=200_064, width=3072, inner=1536, layers=62, heads=48, kv_heads=8, head_dim=128, positions=196_608,
    experts=256, top_k=8)

GRANITEMOE = rows.add("granitemoe", BIASED.but(experts=GRANITE_EXPERTS),
    vocabulary=32_000, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048, experts=8,
    top_k=2)

GRANITEMOESHARED = rows.add("granitemoeshared", GRANITEMOE.but(
        experts=GRANITE_EXPERTS.but(shared_inner="shared_intermediate_size")),
    vocabulary=32_000, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048, experts=8,
    top_k=2, shared_inner=0)

rows.add("granitemoe_swa", GRANITEMOESHARED.but(layer_types=True, window="sliding_window", cycle="FSSS",
        extra_per_head=1),
    vocabulary=32_000, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048, window=128,
    experts=8, top_k=2, shared_inner=0)

rows.add("qwen2_moe", QWEN2.but(qkv_bias="qkv_bias", kinds=early_windows, experts=QWEN),
    vocabulary=151_936, width=2048, inner=5632, layers=24, heads=16, kv_heads=16, positions=32_768, window=4096,
    experts=60, top_k=4, expert_inner=1408, shared_inner=5632, use_sliding_window=False, max_window_layers=28,
    qkv_bias=True, mlp_only_layers=None, decoder_sparse_step=1)

rows.add("qwen3_moe", BIASED.but(window="sliding_window", cycle="W", window_switch="use_sliding_window", qk_norm=True,
        experts=Experts(placement=sparse_steps, none_is_dense=True)),
    vocabulary=151_936, width=2048, inner=6144, layers=24, heads=32, kv_heads=4, positions=32_768, window=4096,
    experts=128, top_k=8, expert_inner=768, use_sliding_window=False, mlp_only_layers=None, decoder_sparse_step=1)

rows.add("hunyuan_v1_moe", HUNYUAN_V1_DENSE.but(spelled=hunyuan_spelling, experts=Experts(
        top_k="moe_topk|num_experts_per_tok", expert_inner="intermediate_size", shared_inner="intermediate_size"),
        ignored={"use_qk_norm": True, "num_shared_expert": 1, "moe_drop_tokens": None, "moe_layer_num_skipped": 0,
            "moe_random_routing_dropped_token": None, "use_mixed_mlp_moe": True, "use_cla": False,
            "cla_share_factor": None}),
    vocabulary=290_943, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048, experts=1,
    top_k=1)

GLM4_MOE = rows.add("glm4_moe", UNBIASED.but(qkv_bias="attention_bias", qk_norm="use_qk_norm", floors_head_dim=True,
        experts=DEEPSEEK),
    vocabulary=151_552, width=4096, inner=10_944, layers=46, heads=96, kv_heads=8, positions=131_072, experts=128,
    top_k=8, expert_inner=1408, shared_experts=1, use_qk_norm=False, first_k_dense_replace=1)

rows.add("sarvam_moe", GLM4_MOE.but(qkv_bias="attention_bias|use_qkv_bias", experts=SARVAM),
    vocabulary=262_144, width=4096, inner=8192, layers=19, heads=64, kv_heads=4, head_dim=64, positions=131_072,
    experts=128, top_k=6, expert_inner=1024, shared_experts=1, use_qk_norm=True, first_k_dense_replace=1)

rows.add("solar_open", UNBIASED.but(qkv_bias="attention_bias", inner=None, experts=DEEPSEEK.but(first_dense=0),
        ignored={"intermediate_size": None, "first_k_dense_replace": 0}),
    vocabulary=196_608, width=4096, layers=48, heads=64, kv_heads=8, head_dim=128, positions=131_072, experts=128,
    top_k=8, expert_inner=1280, shared_experts=1)

rows.add("dots1", BIASED.but(layer_types=True, window="sliding_window", cycle="W", qk_norm=True,
        window_from="max_window_layers", experts=DEEPSEEK),
    vocabulary=152_064, width=4608, inner=10_944, layers=62, heads=32, kv_heads=32, positions=2048, window=4096,
    experts=None, top_k=None, expert_inner=1408, shared_experts=None, max_window_layers=62, first_k_dense_replace=0)

rows.add("exaone_moe", EXAONE4.but(experts=Experts(experts="num_experts", shared_experts="num_shared_experts",
        first_dense="first_k_dense_replace", listed=True)),
    vocabulary=102_400, width=4096, inner=16_384, layers=32, heads=32, kv_heads=32, positions=2048, window=4096,
    experts=64, top_k=8, expert_inner=1024, shared_experts=1, sliding_window_pattern=4, first_k_dense_replace=1)

rows.add("cohere2_moe", COHERE2.but(kinds=cycle_after_dense,
        dense_inner=lambda keys: keys.optional("prefix_dense_intermediate_size") or stated_inner(keys),
        experts=Experts(experts="num_experts", expert_inner="intermediate_size", shared_experts="num_shared_experts",
            first_dense="first_k_dense_replace", listed=True),
        ignored={"use_gated_activation": True, "prefix_dense_sliding_window_pattern": None}),
    vocabulary=256_000, width=8192, inner=22_528, layers=40, heads=64, kv_heads=None, head_dim=128, positions=8192,
    window=4096, experts=8, top_k=2, shared_experts=0, sliding_window_pattern=4, first_k_dense_replace=0,
    prefix_dense_intermediate_size=None, prefix_dense_sliding_window_pattern=1, tied=True)

rows.add("ernie4_5_moe", ERNIE4_5.but(
        experts=Experts(experts="moe_num_experts|num_experts", top_k="moe_k|num_experts_per_tok", correction=True,
            shared_experts="moe_num_shared_experts", placement=sparse_range),
        ignored=dict.fromkeys(("moe_capacity", "moe_gate", "moe_use_aux_free"))),
    vocabulary=103_424, width=2560, inner=12_288, layers=28, heads=20, kv_heads=4, positions=131_072, experts=64,
    top_k=6, expert_inner=1536, shared_experts=2, use_bias=False, moe_layer_start_index=1, moe_layer_end_index=-1,
    moe_layer_interval=1, tied=True)

rows.add("aria_text", BIASED.but(mlp_bias="mlp_bias",
        experts=Experts(experts="moe_num_experts", top_k="moe_topk", expert_inner="intermediate_size",
            shared_experts="moe_num_shared_experts")),
    vocabulary=32_000, width=4096, inner=4096, layers=32, heads=32, kv_heads=None, positions=2048, experts=8, top_k=2,
    shared_experts=2)

rows.add("hy_v3", BIASED.but(qk_norm=True, mlp_bias="mlp_bias",
        experts=Experts(shared_experts="num_shared_experts", never_unshared=True, first_dense=1, listed=True),
        ignored={"first_k_dense_replace": 1}),
    vocabulary=120_832, width=4096, inner=13_312, layers=80, heads=64, kv_heads=8, head_dim=128, positions=131_072,
    experts=192, top_k=8, expert_inner=1536, shared_experts=1)

rows.add("mellum", BIASED.but(layer_types=True, qk_norm=True, window="sliding_window",
        experts=Experts(experts="num_experts|num_local_experts", listed=True)),
    vocabulary=98_304, width=2304, inner=7168, layers=28, heads=32, kv_heads=4, head_dim=128, positions=131_072,
    window=1024, experts=64, top_k=8, expert_inner=896)

rows.add("kolibri1", UNBIASED.but(layer_types=True, qk_norm=True, window="sliding_window", norms=4, cycle="SSSSF",
        inner=None, experts=Experts(shared_inner="shared_expert_intermediate_size"),
        ignored={"intermediate_size": None}),
    vocabulary=128_000, width=2560, layers=50, heads=48, kv_heads=4, head_dim=128, positions=262_144, window=513,
    experts=384, top_k=6, expert_inner=512, shared_inner=512)

rows.add("flint", BIASED.but(layer_types=True, qk_norm=True, window="sliding_window", extra_per_head=1, cycle="SFSS",
        first="FF", last="F", experts=QWEN.but(shared_gate=False)),
    vocabulary=150_144, width=2048, inner=6144, layers=49, heads=32, kv_heads=4, head_dim=128, positions=262_144,
    window=513, experts=256, top_k=6, expert_inner=512, shared_inner=1024, mlp_only_layers=[0, 1],
    decoder_sparse_step=1)

rows.add("laguna", BIASED.but(layer_types=True, qk_norm=True, window="sliding_window", gate=True, gate_per_head=True,
        experts=Experts(experts="num_experts", shared_inner="shared_expert_intermediate_size", correction=True,
            first_dense=1, listed=True),
        required={"gating": True}),
    vocabulary=100_352, width=2048, inner=8192, layers=40, heads=48, kv_heads=8, head_dim=128, positions=131_072,
    window=512, experts=256, top_k=8, expert_inner=512, shared_inner=512)

rows.add("afmoe", BIASED.but(layer_types=True, qk_norm=True, window="sliding_window", norms=4, gate=True, cycle="SSSF",
        period="global_attn_every_n_layers",
        experts=Experts(experts="num_experts", shared_experts="num_shared_experts", correction=True,
            first_dense="num_dense_layers")),
    vocabulary=200_192, width=2048, inner=6144, layers=32, heads=16, kv_heads=None, head_dim=128, positions=16_384,
    window=1024, experts=64, top_k=6, expert_inner=1408, shared_experts=2, global_attn_every_n_layers=4,
    num_dense_layers=1)

rows.add("beam", BIASED.but(layer_types=True, qk_norm=True, window="sliding_window", norms=4, gate=True,
        extra_per_head=1, cycle="SSSSSF", last="F", experts=Experts(experts="num_experts", first_dense=3, listed=True)),
    vocabulary=151_936, width=5120, inner=20_480, layers=52, heads=48, kv_heads=8, head_dim=128, positions=8192,
    window=512, experts=256, top_k=8, expert_inner=2560)

rows.add("mimo_v2_flash", UNBIASED.but(layer_types=True, spelled=mimo_spelling, window="sliding_window",
        qkv_bias="attention_bias", value_dim="v_head_dim", cycle="SSSSSF", first="F",
        mixers={"F": attention, "S": lambda keys, kind: attention(
            keys, kind, kv_heads=2 * keys.count("num_key_value_heads"), extra_per_head=1)},  # twice, and sinks
        experts=DEEPSEEK.but(shared_experts=None, first_dense=1, listed=True),
        ignored={"add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False,
            "attention_chunk_size": None, "hybrid_block_size": None}),
    vocabulary=152_576, width=4096, inner=16_384, layers=48, heads=64, kv_heads=4, head_dim=192, positions=131_072,
    window=129, experts=256, top_k=8, expert_inner=2048, v_head_dim=128)
