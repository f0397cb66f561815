"""Rows of dense models: Llama and what differs from it in a few switches, Gemma, Qwen."""

from lessonlib.model.config.families.base import BIASED, UNBIASED
from lessonlib.model.config.family import LAYER_NORM, NO_NORM, Rows
from lessonlib.model.config.rules import windows_without_rope

# fmt: off
rows = Rows()

LLAMA = rows.add("llama", BIASED.but(mlp_bias="mlp_bias"),
    vocabulary=32_000, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048)

rows.add("iquestcoder", LLAMA,
    vocabulary=76_800, width=5120, inner=27_648, layers=80, heads=40, kv_heads=8, head_dim=128, positions=131_072)

rows.add("exaone", LLAMA.but(layers="num_hidden_layers|num_layers"),
    vocabulary=102_400, width=4096, inner=14_336, layers=32, heads=32, kv_heads=8, positions=4096)

rows.add("internlm3", UNBIASED.but(qkv_bias="attention_bias|qkv_bias", out_bias="attention_bias|qkv_bias",
        mlp_bias="mlp_bias|bias"),
    vocabulary=128_512, width=4096, inner=10_240, layers=48, heads=32, kv_heads=2, head_dim=128, positions=32_768)

rows.add("emu3_text_model", UNBIASED,
    vocabulary=184_622, width=4096, inner=14_336, layers=32, heads=32, kv_heads=8, positions=9216)

MISTRAL = rows.add("mistral", UNBIASED.but(window="sliding_window", cycle="W"),
    vocabulary=32_000, width=4096, inner=14_336, layers=32, heads=32, kv_heads=8, positions=131_072, window=4096)

rows.add("ministral", MISTRAL.but(layer_types=True),
    vocabulary=32_000, width=4096, inner=14_336, layers=32, heads=32, kv_heads=8, positions=131_072, window=4096)

rows.add("ministral3", MISTRAL,
    vocabulary=131_072, width=4096, inner=14_336, layers=34, heads=32, kv_heads=8, head_dim=128, positions=262_144,
    window=None)

rows.add("cwm", UNBIASED.but(layer_types=True, window="sliding_window", cycle="FSSS", mlp_bias="mlp_bias"),
    vocabulary=128_256, width=6144, inner=21_504, layers=64, heads=48, kv_heads=8, head_dim=128, positions=131_072,
    window=8192)

PHI3 = rows.add("phi3", UNBIASED.but(window="sliding_window", cycle="W"),
    vocabulary=32_064, width=3072, inner=8192, layers=32, heads=32, kv_heads=None, positions=4096, window=None)

rows.add("granite", LLAMA,
    vocabulary=32_000, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048)

rows.add("granite_swa", LLAMA.but(layer_types=True, window="sliding_window", cycle="FSSS", extra_per_head=1),
    vocabulary=100_352, width=2560, inner=8192, layers=24, heads=20, kv_heads=4, positions=8192, window=128, tied=True)

rows.add("smollm3", LLAMA.but(layer_types=True, window="sliding_window", window_switch="use_sliding_window",
        kinds=windows_without_rope),
    vocabulary=128_256, width=2048, inner=11_008, layers=36, heads=16, kv_heads=4, positions=32_768, window=None,
    use_sliding_window=False, no_rope_layers=None, no_rope_layer_interval=4, tied=True)

rows.add("seed_oss", UNBIASED.but(qkv_bias="attention_bias", out_bias="attention_out_bias", mlp_bias="mlp_bias"),
    vocabulary=155_136, width=4096, inner=27_648, layers=64, heads=80, kv_heads=8, head_dim=128, positions=524_288,
    attention_bias=True, attention_out_bias=False)

ERNIE4_5 = rows.add("ernie4_5", UNBIASED.but(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias"),
    vocabulary=103_424, width=1024, inner=3072, layers=18, heads=16, kv_heads=2, head_dim=128, positions=131_072,
    use_bias=False, tied=True)

rows.add("hyperclovax", LLAMA.but(norms=lambda keys: 4 if keys.switch("use_post_norm") else 2),
    vocabulary=32_000, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048,
    use_post_norm=True)

HUNYUAN_V1_DENSE = rows.add("hunyuan_v1_dense", BIASED.but(qk_norm=True, ignored={"use_qk_norm": True}),
    vocabulary=290_943, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048)

rows.add("nanochat", BIASED.but(gated=False, norm=NO_NORM),
    vocabulary=50_304, width=768, inner=8192, layers=12, heads=6, kv_heads=None, positions=2048)

rows.add("arcee", LLAMA.but(gated=False),
    vocabulary=32_000, width=2560, inner=18_432, layers=32, heads=32, kv_heads=None, positions=4096)

JAIS2 = rows.add("jais2", LLAMA.but(gated=False, norm=LAYER_NORM),
    vocabulary=150_272, width=3328, inner=26_624, layers=32, heads=26, kv_heads=None, positions=8192,
    attention_bias=True, mlp_bias=True)

rows.add("nemotron", JAIS2,  # its class builds nothing from its default of KV heads, null
    vocabulary=256_000, width=6144, inner=24_576, layers=32, heads=48, positions=4096)

APERTUS = rows.add("apertus", BIASED.but(qk_norm=True, gated=False, activation_weights=2, ignored={"qk_norm": True}),
    vocabulary=131_072, width=4096, inner=14_336, layers=32, heads=32, kv_heads=None, positions=65_536)

rows.add("apertus1p5_text", APERTUS,
    vocabulary=266_752, width=4096, inner=14_336, layers=32, heads=32, kv_heads=None, positions=65_536)

GLM = rows.add("glm", UNBIASED.but(qkv_bias="attention_bias"),
    vocabulary=151_552, width=4096, inner=13_696, layers=40, heads=32, kv_heads=2, head_dim=128, positions=131_072,
    attention_bias=True)

rows.add("glm4", GLM.but(norms=4),
    vocabulary=151_552, width=4096, inner=13_696, layers=40, heads=32, kv_heads=2, head_dim=128, positions=131_072,
    attention_bias=True)

rows.add("olmo", BIASED.but(norm=NO_NORM),
    vocabulary=50_304, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048)

OLMO2 = rows.add("olmo2", BIASED.but(qk_norm=True, qk_norm_over_all=True),
    vocabulary=50_304, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048)

rows.add("olmo3", OLMO2.but(layer_types=True, window="sliding_window", cycle="SSSF"),
    vocabulary=50_304, width=4096, inner=11_008, layers=32, heads=32, kv_heads=None, positions=2048, window=4096)

EXAONE4 = rows.add("exaone4", UNBIASED.but(qk_norm=True, layer_types=True, window="sliding_window", cycle="WWWF",
        period="sliding_window_pattern"),
    vocabulary=102_400, width=4096, inner=16_384, layers=32, heads=32, kv_heads=32, positions=2048, window=4096,
    sliding_window_pattern=4)

rows.add("cohere", BIASED.but(norms=1, qk_norm="use_qk_norm", qk_norm_over_all=True,
        ignored={"use_gated_activation": True}),
    vocabulary=256_000, width=8192, inner=22_528, layers=40, heads=64, kv_heads=None, positions=8192,
    use_qk_norm=False, tied=True)

COHERE2 = rows.add("cohere2", BIASED.but(layer_types=True, norms=1, window="sliding_window", cycle="SSSF",
        period="sliding_window_pattern", ignored={"use_gated_activation": True}),
    vocabulary=256_000, width=8192, inner=22_528, layers=40, heads=64, kv_heads=None, positions=8192, window=4096,
    sliding_window_pattern=4, tied=True)

# --- Gemma ---

GEMMA = rows.add("gemma", BIASED,
    vocabulary=256_000, width=3072, inner=24_576, layers=28, heads=16, kv_heads=16, head_dim=256, positions=8192,
    tied=True)

GEMMA2 = rows.add("gemma2", GEMMA.but(layer_types=True, norms=4, window="sliding_window", cycle="SF"),
    vocabulary=256_000, width=2304, inner=9216, layers=26, heads=8, kv_heads=4, head_dim=256, positions=8192,
    window=4096, tied=True)

rows.add("vaultgemma", GEMMA2.but(norms=2),
    vocabulary=256_000, width=2304, inner=9216, layers=26, heads=8, kv_heads=4, head_dim=256, positions=8192,
    window=4096, tied=True)

rows.add("gemma3_text", GEMMA2.but(qk_norm=True, cycle="SSSSSF",
        period="sliding_window_pattern|_sliding_window_pattern"),
    vocabulary=262_208, width=2304, inner=9216, layers=26, heads=8, kv_heads=4, head_dim=256, positions=131_072,
    window=4096, sliding_window_pattern=6, tied=True)

# --- Qwen ---

QWEN2 = rows.add("qwen2", UNBIASED.but(layer_types=True, window="sliding_window", cycle="W", qkv_bias=True,
        window_switch="use_sliding_window", window_from="max_window_layers"),
    vocabulary=151_936, width=4096, inner=22_016, layers=32, heads=32, kv_heads=32, positions=32_768, window=4096,
    use_sliding_window=False, max_window_layers=28)

rows.add("qwen3", QWEN2.but(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm=True),
    vocabulary=151_936, width=4096, inner=22_016, layers=32, heads=32, kv_heads=32, head_dim=128, positions=32_768,
    window=4096, use_sliding_window=False, max_window_layers=28)
