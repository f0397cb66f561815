"""Rows of language models that stand only inside wrappers, beside towers for images or sound.

The wrapper's default for tied embeddings is theirs, for it decides.
"""

from lessonlib.model.config.families.base import BIASED, UNBIASED
from lessonlib.model.config.families.dense import PHI3, QWEN2
from lessonlib.model.config.families.experts import GLM4_MOE
from lessonlib.model.config.family import Experts, Rows
from lessonlib.model.config.rules import sparse_steps

# fmt: off
rows = Rows()

QWEN3_EXPERTS = Experts(experts="num_experts|num_local_experts", placement=sparse_steps, none_is_dense=True)

rows.add("qwen2_vl_text qwen2_5_vl_text", QWEN2,
    vocabulary=152_064, width=8192, inner=29_568, layers=80, heads=64, kv_heads=8, positions=32_768, window=4096,
    use_sliding_window=False, max_window_layers=80)

rows.add("qwen3_vl_text", BIASED.but(qk_norm=True),
    vocabulary=151_936, width=4096, inner=22_016, layers=32, heads=32, kv_heads=32, head_dim=128, positions=128_000)

rows.add("qwen3_vl_moe_text", BIASED.but(qk_norm=True, experts=QWEN3_EXPERTS),
    vocabulary=151_936, width=2048, inner=5632, layers=24, heads=16, kv_heads=16, positions=128_000, experts=60,
    top_k=4, expert_inner=1408, mlp_only_layers=None, decoder_sparse_step=1)

rows.add("qwen3_omni_moe_text", BIASED.but(qk_norm=True, floors_head_dim=True, experts=QWEN3_EXPERTS),
    vocabulary=3584, width=2048, inner=18_944, layers=28, heads=28, kv_heads=4, positions=32_768, experts=128,
    top_k=8, expert_inner=768, mlp_only_layers=None, decoder_sparse_step=1)

rows.add("glm4v_text", UNBIASED.but(qkv_bias=True, floors_head_dim=True, norms=4),
    vocabulary=151_552, width=4096, inner=13_696, layers=40, heads=32, kv_heads=2, positions=32_768)

rows.add("glm4v_moe_text", GLM4_MOE.but(qk_norm=False),
    vocabulary=151_424, width=4096, inner=10_944, layers=46, heads=96, kv_heads=8, positions=65_536, experts=128,
    top_k=8, expert_inner=1408, shared_experts=1, first_k_dense_replace=1, attention_bias=True)

rows.add("phi4_multimodal_text", PHI3,
    vocabulary=200_064, width=3072, inner=8192, layers=32, heads=32, kv_heads=8, positions=131_072, window=None)
