"""Rows of models whose attention has a law, or whose layers have parts, that no other family has."""

from lessonlib.model.config.families.base import BIASED
from lessonlib.model.config.families.dense import GEMMA2
from lessonlib.model.config.family import Experts, Rows
from lessonlib.model.config.gemma import (
    gemma3n_beside,
    gemma3n_layer,
    gemma4,
    gemma4_layer,
    layer_tables,
    one_inner,
    sharing,
)
from lessonlib.model.config.mixers import attention, chunked
from lessonlib.model.config.rules import listed_experts, rotary_chunks, stated_inner

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

GEMMA3N = rows.add("gemma3n_text", GEMMA2.but(qk_norm=True, cycle="SSSSF", shared_cache="num_kv_shared_layers",
        mixers=dict.fromkeys("FSfs", sharing), dense_inner=one_inner, amended=gemma3n_layer, beside=gemma3n_beside,
        ignored=dict.fromkeys(("altup_active_idx", "altup_coef_clip", "altup_correct_scale"))),
    vocabulary=262_400, width=2048, inner=16_384, layers=35, heads=8, kv_heads=2, head_dim=256, positions=32_768,
    window=512, tied=True, num_kv_shared_layers=15, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262_144,
    altup_num_inputs=4, laurel_rank=64)

rows.add("gemma4_text", GEMMA3N.but(cycle="SSSSSF", last="F", mixers=dict.fromkeys("FSfs", gemma4),
        dense_inner=stated_inner, amended=gemma4_layer, beside=layer_tables, ignored={},
        experts=Experts(experts="num_experts", top_k="top_k_experts", shared_inner="intermediate_size",
            on="enable_moe_block")),
    vocabulary=262_144, width=2304, inner=9216, layers=30, heads=8, kv_heads=4, head_dim=256, positions=131_072,
    window=512, tied=True, num_kv_shared_layers=0, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262_144,
    attention_k_eq_v=False, global_head_dim=512, num_global_key_value_heads=None, use_double_wide_mlp=False,
    use_bidirectional_attention=None, enable_moe_block=False, experts=None, top_k=None, expert_inner=None)
