"""Rows of models with LayerNorm, a feed-forward of two matrices and biases: GPT-2 and its kin."""

from lessonlib.model.config.families.base import UNBIASED
from lessonlib.model.config.family import LAYER_NORM, Rows
from lessonlib.model.config.mixers import attention, falcon
from lessonlib.model.config.rules import falcon_norms, gpt_neo_kinds

# fmt: off
rows = Rows()

PLAIN = UNBIASED.but(kv_heads=None, head_dim=None, norm=LAYER_NORM, gated=False)
ALL_BIASED = PLAIN.but(qkv_bias=True, out_bias=True, mlp_bias=True)

GPT2 = rows.add("gpt2 gpt-sw3", ALL_BIASED.but(width="n_embd|hidden_size", layers="n_layer|num_hidden_layers",
        heads="n_head|num_attention_heads", inner="n_inner", positions="n_positions|max_position_embeddings",
        position_rows=0, ignored={"n_ctx": None}),
    vocabulary=50_257, width=768, inner=None, layers=12, heads=12, positions=1024, tied=True)

rows.add("openai-gpt", GPT2.but(inner=None, final_norm=False),
    vocabulary=40_478, width=768, layers=12, heads=12, positions=512, tied=True)

rows.add("gpt_bigcode", GPT2.but(ignored={"n_ctx": None, "num_key_value_heads": None},
        mixers={"F": lambda keys, kind: attention(keys, kind, kv_heads=1 if keys.switch("multi_query") else None)}),
    vocabulary=50_257, width=768, inner=None, layers=12, heads=12, positions=1024, multi_query=True, tied=True)

rows.add("gptj codegen", GPT2.but(qkv_bias=False, out_bias=False, head_bias=True, norms=1, position_rows=None),
    vocabulary=50_400, width=4096, inner=None, layers=28, heads=16, positions=2048)

rows.add("ctrl", GPT2.but(inner="dff", head_bias=True, position_rows=None),
    vocabulary=246_534, width=1280, inner=8192, layers=48, heads=16, positions=256, tied=True)

rows.add("gpt_neo", PLAIN.but(layers="num_layers|num_hidden_layers", heads="num_heads|num_attention_heads",
        out_bias=True, mlp_bias=True, position_rows=0, window="window_size", kinds=gpt_neo_kinds),
    vocabulary=50_257, width=2048, inner=None, layers=24, heads=16, positions=2048, window=256,
    attention_types=[[["global", "local"], 12]], tied=True)

rows.add("gpt_neox", PLAIN.but(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias=True,
        ignored={"use_parallel_residual": None}),
    vocabulary=50_432, width=6144, inner=24_576, layers=44, heads=64, positions=2048, attention_bias=True)

rows.add("opt", PLAIN.but(inner="ffn_dim", qkv_bias="enable_bias", out_bias="enable_bias", mlp_bias="enable_bias",
        position_rows=2, required={"do_layer_norm_before": True, "_remove_final_layer_norm": False,
            "layer_norm_elementwise_affine": True}),
    vocabulary=50_272, width=768, inner=3072, layers=12, heads=12, positions=2048, enable_bias=True,
    tied=True)

rows.add("biogpt", ALL_BIASED.but(position_rows=2),
    vocabulary=42_384, width=1024, inner=4096, layers=24, heads=16, positions=1024, tied=True)

rows.add("xglm", ALL_BIASED.but(width="d_model|hidden_size", layers="num_layers|num_hidden_layers",
        heads="attention_heads|num_attention_heads", inner="ffn_dim"),
    vocabulary=256_008, width=1024, inner=4096, layers=24, heads=16, positions=2048, tied=True)

rows.add("bloom", ALL_BIASED.but(width="hidden_size|n_embed", layers="n_layer|num_hidden_layers",
        heads="n_head|num_attention_heads", inner=None, positions=None, embedding_norm=True),
    vocabulary=250_880, width=64, layers=2, heads=8, tied=True)

rows.add("falcon", PLAIN.but(width="hidden_size|n_embed", kv_heads="num_kv_heads", inner="ffn_hidden_size",
        qkv_bias="bias", out_bias="bias", mlp_bias="bias", norms=falcon_norms, mixers={"F": falcon}),
    vocabulary=65_024, width=4544, inner=None, layers=32, heads=71, kv_heads=None, positions=2048, bias=False,
    new_decoder_architecture=False, multi_query=True, parallel_attn=True, num_ln_in_parallel_attn=None, tied=True)

rows.add("phi", UNBIASED.but(qkv_bias=True, out_bias=True, mlp_bias=True, head_bias=True, norm=LAYER_NORM, norms=1,
        gated=False, qk_norm="qk_layernorm", qk_norm_bias=True),
    vocabulary=51_200, width=2048, inner=8192, layers=24, heads=32, kv_heads=None, positions=2048, qk_layernorm=False)

rows.add("persimmon", ALL_BIASED.but(qk_norm="qk_layernorm", qk_norm_bias=True),
    vocabulary=262_144, width=4096, inner=16_384, layers=36, heads=64, positions=16_384, qk_layernorm=True)

rows.add("stablelm", UNBIASED.but(head_dim=None, qkv_bias="use_qkv_bias", qk_norm="qk_layernorm", qk_norm_over_all=True,
        norm=LAYER_NORM, norms=lambda keys: 1 if keys.switch("use_parallel_residual") else 2),
    vocabulary=50_304, width=2560, inner=6912, layers=32, heads=32, kv_heads=32, positions=4096, use_qkv_bias=False,
    qk_layernorm=False, use_parallel_residual=False)

rows.add("starcoder2", UNBIASED.but(window="sliding_window", cycle="W", norm=LAYER_NORM, gated=False,
        qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias"),
    vocabulary=49_152, width=3072, inner=12_288, layers=30, heads=24, kv_heads=2, positions=4096, window=None,
    use_bias=True, tied=True)
