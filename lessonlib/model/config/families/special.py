"""Rows of models whose attention has a law, or whose layers have parts, that no other family has."""

from lessonlib.model.config.families.base import BIASED
from lessonlib.model.config.family import Experts, Rows
from lessonlib.model.config.mixers import attention, chunked
from lessonlib.model.config.rules import listed_experts, rotary_chunks

# fmt: off
rows = Rows()

rows.add("llama4_text", BIASED.but(layer_types=True, kinds=rotary_chunks, mixers={"F": attention, "K": chunked},
        inner="intermediate_size_mlp", ignored={"use_qk_norm": None},
        experts=Experts(experts="num_local_experts", expert_inner="intermediate_size", shared_inner="intermediate_size",
            placement=listed_experts)),
    vocabulary=202_048, width=5120, inner=16_384, layers=48, heads=40, kv_heads=8, head_dim=128, positions=131_072,
    experts=16, top_k=1, expert_inner=8192, moe_layers=None, interleave_moe_layer_step=1, no_rope_layers=None,
    no_rope_layer_interval=4, attention_chunk_size=8192)
