"""Rows of models with multi-head latent attention."""

from functools import partial

from lessonlib.model.config.families.base import UNBIASED
from lessonlib.model.config.families.experts import DEEPSEEK, SARVAM
from lessonlib.model.config.family import Experts, Rows
from lessonlib.model.config.mixers import kimi_delta, latent, sparse_latent
from lessonlib.model.config.rules import indexed, kimi_kinds

# fmt: off
rows = Rows()

LATENT = UNBIASED.but(kv_heads=None, mixers={"F": latent},
                      ignored={"num_key_value_heads": None, "head_dim": None, "qk_head_dim": None})

DEEPSEEK_V3 = rows.add("deepseek_v3", LATENT.but(experts=DEEPSEEK),
    vocabulary=129_280, width=7168, inner=18_432, layers=61, heads=128, positions=4096, experts=256,
    top_k=8, expert_inner=2048, shared_experts=1, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
    qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=3)

rows.add("deepseek_v2", DEEPSEEK_V3.but(mlp_bias="mlp_bias",
        experts=DEEPSEEK.but(experts="n_routed_experts|num_experts")),
    vocabulary=102_400, width=4096, inner=11_008, layers=32, heads=32, positions=2048, experts=64,
    top_k=None, expert_inner=1407, shared_experts=2, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
    qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=0)

rows.add("kimi_k2", DEEPSEEK_V3)  # its class is not in transformers, so no default is known

rows.add("sarvam_mla", DEEPSEEK_V3.but(experts=SARVAM, ignored={**LATENT.ignored, "q_head_dim": None}),
    vocabulary=262_144, width=4096, inner=16_384, layers=32, heads=64, positions=4096, experts=128,
    top_k=8, expert_inner=2048, shared_experts=1, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128,
    qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=1)

rows.add("glm4_moe_lite", DEEPSEEK_V3.but(experts=DEEPSEEK.but(first_dense=1, listed=True),
        ignored={"num_key_value_heads": None, "qk_head_dim": None, "first_k_dense_replace": 1}),
    vocabulary=154_880, width=2048, inner=10_240, layers=47, heads=20, positions=202_752, experts=64,
    top_k=4, expert_inner=1536, shared_experts=1, q_lora_rank=768, kv_lora_rank=512, qk_nope_head_dim=192,
    qk_rope_head_dim=64, v_head_dim=256)

rows.add("axk1", DEEPSEEK_V3.but(mixers={"F": partial(latent, query_ranked=True)},
        experts=DEEPSEEK.but(norm=True, listed=True)),
    vocabulary=163_840, width=7168, inner=18_432, layers=61, heads=64, positions=32_768, experts=192,
    top_k=8, expert_inner=2048, shared_experts=1, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
    qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=1)

rows.add("deepseek_v32", DEEPSEEK_V3.but(mixers={"I": sparse_latent}, cycle="I", layer_types=True, mlp_bias="mlp_bias",
        experts=DEEPSEEK.but(listed=True)),
    vocabulary=129_280, width=7168, inner=18_432, layers=61, heads=128, positions=163_840, experts=256,
    top_k=8, expert_inner=2048, shared_experts=1, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
    qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=3, index_topk=2048, index_n_heads=64, index_head_dim=128)

rows.add("glm_moe_dsa", DEEPSEEK_V3.but(mixers={"I": sparse_latent, "H": sparse_latent}, kinds=indexed,
        mlp_bias="mlp_bias", experts=DEEPSEEK.but(listed=True),
        ignored={**LATENT.ignored, "index_share_for_mtp_iteration": None, "indexer_rope_interleave": None,
                 "layer_types": None}),
    vocabulary=154_880, width=6144, inner=12_288, layers=78, heads=64, positions=202_752, experts=256,
    top_k=8, expert_inner=2048, shared_experts=1, q_lora_rank=2048, kv_lora_rank=512, qk_nope_head_dim=192,
    qk_rope_head_dim=64, v_head_dim=256, first_k_dense_replace=3, index_topk=2048, index_n_heads=32, index_head_dim=128,
    indexer_types=None, index_topk_pattern=None, index_topk_freq=1, index_skip_topk_offset=2)

rows.add("youtu", LATENT,
    vocabulary=128_256, width=2048, inner=6144, layers=32, heads=16, positions=131_072,
    q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, tied=True)

rows.add("minicpm3", LATENT.but(mlp_bias="mlp_bias"),
    vocabulary=73_448, width=2560, inner=6400, layers=62, heads=40, positions=32_768, q_lora_rank=768,
    kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=None, tied=True)

rows.add("kimi_linear", LATENT.but(layer_types=True, kinds=kimi_kinds, cycle="FLLL", first="L",
        mixers={"F": latent, "L": kimi_delta}, positions="model_max_length|max_position_embeddings",
        tied=False,  # whatever the key says
        experts=Experts(top_k="num_experts_per_token|num_experts_per_tok", listed=True,
            shared_experts="num_shared_experts|n_shared_experts", first_dense="first_k_dense_replace"),
        ignored={**LATENT.ignored, "mla_use_nope": None, "tie_word_embeddings": None}),
    vocabulary=163_840, width=2304, inner=9216, layers=27, heads=32, positions=1_048_576, experts=256,
    top_k=8, expert_inner=1024, shared_experts=1, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128,
    qk_rope_head_dim=64, v_head_dim=128, linear_num_heads=32, linear_head_dim=128, linear_conv_kernel_dim=4,
    first_k_dense_replace=1)
