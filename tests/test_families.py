"""Model.from_config on real configs: exact to the unit, or refused by name; never silently wrong, never another error.

tests/data/README.md says where the configs and their counts come from.
"""

import json
import math
import re
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from helpers import examples, refuses, some
from hypothesis import given
from hypothesis import strategies as st

from lessonlib.base.errors import InvalidInputError, LessonError, UnsupportedModelError
from lessonlib.model.compressed import Compressed
from lessonlib.model.config.families import FAMILIES, dense, experts, hybrid, inside, latent, layernorm, special, state
from lessonlib.model.config.family import COMMON
from lessonlib.model.config.keys import Keys
from lessonlib.model.config.reader import read_config_as_model, read_fields
from lessonlib.model.draft import DraftHead
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.model.sparse import Indexer
from lessonlib.model.state import ConstantState, Convolutions

HERE = Path(__file__).parent
MODELS = HERE.parent / "data" / "models"


def rows(name):
    return json.loads((HERE / "data" / f"{name}.json").read_text(encoding="utf-8"))


ORACLE = rows("config_oracle")
MORE = rows("more_default_configs")
PUBLISHED = rows("published_style_configs")
RELEASED = rows("released_configs")
VARIED = rows("varied_configs")
SMALL = rows("small_configs")
CATALOGUE = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(MODELS.glob("*.json"))]


# Of wrappers that transformers counts whole, their language part alone, as the same classes count that.
LANGUAGE_PARTS = {
    "Emu3ForCausalLM": 8_492_011_520, "Gemma3ForConditionalGeneration": 2_628_658_432,
    "Qwen3_5ForConditionalGeneration": 8_953_803_264, "Qwen3_5MoeForConditionalGeneration": 34_660_610_688,
    "Phi4MultimodalForCausalLM": 4_400_286_720,
    "MossTranscribeDiarizeForConditionalGeneration": 596_049_920,
    "FuyuForCausalLM": 9_397_175_296, "GotOcr2ForConditionalGeneration": 463_909_888,
}  # fmt: skip


def language_model(config):
    return config.get("text_config", config)


ALL_CONFIGS = [
    *(row["config"] for row in ORACLE + MORE + PUBLISHED + VARIED),
    *(language_model(row["config"]) for row in CATALOGUE + RELEASED),
]


def read(config, **options):
    """The model, or None when it is refused by name."""
    try:
        return Model.from_config(config, **options)
    except UnsupportedModelError:
        return None


@cache
def readable():
    """Every config that is read, with its model."""
    return [(config, model) for config in ALL_CONFIGS if (model := read(config))]


def layout(model):
    """All of a model but its names: equal layouts have equal parameters, cache, FLOPs and positions at every length."""
    return replace(model, name="", family="", defaults_used=(), keys_not_read=(), left_out=(), stored="")


def architectures(config):
    return config.get("architectures", ["?"])[0]


# --- exact or refused ---


@pytest.mark.parametrize(
    ("name", "table", "least"),
    [
        ("oracle", ORACLE, 71),
        ("more classes", MORE, 66),
        ("published style", PUBLISHED, 89),
        ("small sizes", SMALL, len(SMALL)),
    ],
)
def test_each_config_is_exact_or_refused_by_name(name, table, least):
    exact, refused = 0, []
    for row in table:
        model = read(row["config"])
        if row["parameters"] is None:
            continue  # transformers cannot build this class from its own defaults
        if model is None:
            refused.append(row["config"].get("model_type"))
            continue
        is_wrapper = any("beside" in part or "tower" in part for part in model.left_out)
        counted = (
            LANGUAGE_PARTS.get(architectures(row["config"]), row["parameters"]) if is_wrapper else row["parameters"]
        )
        assert model.parameters == counted, architectures(row["config"])
        if row["cache_elements_64_tokens"] is not None:
            # The oracle's cache leaves out the keys of an indexer.
            kernels = [(n, mixer) for n, mixer in model.kernel_kinds if mixer.cache_part == "cache"]
            held = sum(count * mixer.cache_elements * mixer.held(64) for count, mixer in kernels)
            assert held == row["cache_elements_64_tokens"], architectures(row["config"])
        exact += 1
    print(f"{name}: {exact} of {len(table)} exact; refused: {', '.join(refused) or 'none'}")
    assert exact >= least


def flops(model, tokens):
    """2 FLOP a weight and position, the head at each, full attention; without routed experts, whose products the
    counter misses, but for Llama 4, whose class gives every token to all of them."""
    experts = [(count, block.feedforward) for count, block in model.blocks if block.feedforward]
    routed = sum(count * ffn.experts_per_token * ffn.expert_weights for count, ffn in experts)
    if model.family == "llama4_text":
        routed -= sum(count * ffn.experts * ffn.expert_weights for count, ffn in experts)
    found = 2 * tokens * (model.block_matmul_weights - routed + model.head_weights)
    for count, kernel in model.kernel_kinds:
        if isinstance(kernel, Convolutions):  # the library only scales and adds there; so do padded tokens
            found += count * 2 * kernel.channels * kernel.conv_kernel * (tokens + kernel.conv_kernel - 1)
        elif isinstance(kernel, Compressed):  # all tokens with all entries, none before an entry is complete
            found += count * kernel.pair_flops * tokens * int(kernel.held(tokens))
        else:  # DeepSeek's indexer weighs the scores of its heads, too: 2 FLOP more a head and pair
            weighed = 2 * kernel.heads if type(kernel) is Indexer else 0
            found += count * (kernel.fresh_pair_flops + weighed) * tokens * tokens
    return found


@pytest.mark.parametrize("row", rows("tied_embeddings"), ids=lambda row: row["config"]["model_type"])
def test_each_class_ties_its_embeddings_as_transformers_does(row):
    """Some classes tie nothing, whatever the file says; Zamba shares its blocks with the embeddings, or not at all."""
    for said, counted in row["parameters"].items():
        model = read(row["config"] | ({} if said == "absent" else {"tie_word_embeddings": said == "true"}))
        if model is None:
            assert row["config"]["model_type"].startswith("zamba") and said == "false"
        else:
            assert model.parameters == counted, said


def test_flops_of_the_oracle():
    exact = 0
    for row in ORACLE:
        model = read(row["config"])
        if model is None or row["flops_64_tokens"] is None:
            continue
        states = [mixer for _, mixer in model.kernel_kinds if isinstance(mixer, ConstantState)]
        if not all(isinstance(mixer, Convolutions) for mixer in states):
            continue  # their state is counted as a chunked implementation computes it
        assert flops(model, 64) == row["flops_64_tokens"], architectures(row["config"])
        exact += 1
    print(f"FLOPs of 64 tokens: {exact} exact")
    assert exact >= 52


@pytest.mark.parametrize("family", dict.fromkeys(row["config"]["model_type"] for row in VARIED))
def test_each_switch_and_size_of_a_layer_of_its_own_is_exact(family):
    """No refusal here: tied and untied, other patterns, other spellings, each switch on and off."""
    varied = [row for row in VARIED if row["config"]["model_type"] == family]
    for row in varied:
        model = Model.from_config(row["config"])
        assert model.parameters == row["parameters"], row["name"]
        if row["cache_elements_64_tokens"] is not None:
            # DeepSeek-V4's keys are its values, one tensor that the counter sees twice; entries are not among them.
            times = 2 if family == "deepseek_v4" else 1
            kernels = [(n, each) for n, each in model.kernel_kinds if not isinstance(each, (Compressed, Indexer))]
            held = sum(times * n * each.cache_elements * each.held(64) for n, each in kernels)
            assert held == row["cache_elements_64_tokens"], row["name"]
        if row["flops_64_tokens"] is not None:
            assert flops(model, 64) == row["flops_64_tokens"], row["name"]
    assert len(varied) >= 8


@pytest.mark.parametrize("row", CATALOGUE, ids=lambda row: row["name"])
def test_released_models_are_exact(row):
    assert Model.from_config(language_model(row["config"])).parameters == row["parameters"]


NOT_READ = {  # released models whose layout no row describes
}  # fmt: skip
# Files that give no count: transformers 5.24 counts these on the meta device, of wrappers the language part alone, and
# MiMo, whose class is not in it, as the class of Qwen2 that it extends.
COUNTED = {
    "Qwen/Qwen3-VL-235B-A22B-Instruct": 235_093_634_560, "Qwen/Qwen3-VL-2B-Instruct": 1_720_574_976,
    "Qwen/Qwen3-VL-32B-Thinking": 32_762_123_264, "Qwen/Qwen3-VL-4B-Instruct": 4_022_468_096,
    "XiaomiMiMo/MiMo-7B-Base": 7_622_619_136, "moonshotai/Kimi-K2.5": 1_026_408_209_408,
}  # fmt: skip


@pytest.mark.parametrize("row", RELEASED, ids=lambda row: row["hub_id"])
def test_the_other_released_files_are_exact_as_they_are_published(row):
    model = read(row["config"])
    assert (model is None) == (row["hub_id"] in NOT_READ)
    if model is not None:
        assert model.parameters == (row["parameters"] or COUNTED[row["hub_id"]])
        assert ("vision_config" in row["config"]) == ("vision tower (vision_config)" in model.left_out)


def test_the_families_that_the_table_must_hold():
    needed = """
    llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen3_5_text qwen3_5_moe_text
    gemma gemma2 gemma3_text phi phi3 phimoe deepseek_v2 deepseek_v3 kimi_k2 gpt_oss glm glm4 glm4_moe glm4_moe_lite
    olmo olmo2 olmo3 olmoe cohere cohere2 cohere2_moe granite granitemoe granitemoehybrid smollm3 starcoder2
    gpt2 gptj gpt_neox opt falcon bamba minimax_m2
    """
    read_families = {model.family for _, model in readable()}
    assert set(needed.split()) <= read_families
    print(f"{len(FAMILIES)} families in the table, {len(read_families)} held to a count")


# --- keys left out ---


# Of classes that stand only in wrappers, from their configs at default sizes (transformers 5.24).
INSIDE_WRAPPERS = {
    "qwen3_vl_text": {
        "vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 22_016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 128_000,
        "tie_word_embeddings": False,
    },
    "qwen3_vl_moe_text": {
        "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 128_000,
        "moe_intermediate_size": 1408, "num_experts": 60, "num_experts_per_tok": 4, "decoder_sparse_step": 1,
    },
}  # fmt: skip


# What classes take for keys that their own configs do not have when they are written: older spellings, and sizes that
# become lists or numbers by layer (transformers 5.24).
TURNED = {
    "gemma4_text": {"global_head_dim": 512},
    "gemma3n_text": {"intermediate_size": 16_384},
    "dots3_note_text": {
        "swa_q_lora_rank": 1024, "swa_kv_lora_rank": 1024, "swa_head_dim": 256, "swa_v_head_dim": 128, "use_dsa": True,
        "use_sliding_window": True, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "moe_shared_expert_intermediate_size": 1536,
    },
    "inkling_text": {"dense_mlp_idx": 0, "sconv_kernel_size": 4},
    "dbrx": {"vocab_size": 32_000, "d_model": 2048, "n_heads": 16, "n_layers": 24, "max_seq_len": 2048},
    "deepseek_v4": {"compress_rate_csa": 4, "compress_rate_hca": 128, "intermediate_size": 2048},
    "dory": {"n_input_layers": 8, "n_output_layers": 8},
}  # fmt: skip


def class_defaults():
    """Per model_type the values that its class takes for absent keys, as the default configs have them."""
    found = INSIDE_WRAPPERS | {row["config"]["model_type"]: row["config"] for row in ORACLE + MORE}
    return found | {name: found.get(name, {}) | keys for name, keys in TURNED.items()}


# Without it a state takes the dtype of compute, which a cost's assumptions say; no size hangs on it.
STATE_DTYPES = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")


def changed_without_saying_so(config, model, stated_layout, key, defaults):
    """Why the config without `key` is read as a wrong model; None if it is right. `stated_layout`: the model's."""
    without = {name: value for name, value in config.items() if name != key}
    try:
        left = Model.from_config(without)
    except LessonError:
        return None
    if layout(left) == stated_layout or key in STATE_DTYPES:
        return None
    if left.family != model.family:
        return f"read as {left.family}"
    if key not in left.defaults_used:
        return "another model, and the key is not in defaults_used"
    if isinstance(config[key], list) or key == "per_layer_config":
        return None  # a rule of its class, by layer: held by the tests of windows and of whole configs
    row = FAMILIES[model.family]
    names = next((names for names in row if isinstance(names, str) and key in names.split("|")), key)
    stated = defaults.get(config.get("model_type"), {})
    derived = [None, {}]  # as heads are; the sizes of Kimi Linear
    if key == "head_dim":  # divided where it is absent, and in some classes not where it is null
        derived.append(config["hidden_size"] // config["num_attention_heads"])
    for default in [*(stated[name] for name in names.split("|") if name in stated), *derived]:
        try:
            if layout(left) == layout(Model.from_config({**config, key: default})):
                return None
        except LessonError:
            continue
    return "not the class default"


@pytest.mark.parametrize("every", [pytest.param(4, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_no_key_of_a_default_config_can_be_lost_without_a_word(every):
    lost = 0
    for row in ORACLE + MORE:
        if not (model := read(row["config"])):
            continue
        stated_layout = layout(model)
        for key in some([*row["config"]], every, architectures(row["config"])):
            without = {name: value for name, value in row["config"].items() if name != key}
            try:
                left = Model.from_config(without)
            except LessonError:
                continue
            assert layout(left) == stated_layout, (row["config"]["model_type"], key)
            lost += 1
    print(f"{lost} configs with one key less are the same model")


@pytest.mark.slow
def test_a_lost_key_is_the_same_model_an_error_or_the_class_default():
    defaults, wrong, tried = class_defaults(), [], 0
    for config, model in readable():
        stated_layout = layout(model)
        for key in config:
            tried += 1
            reason = changed_without_saying_so(config, model, stated_layout, key, defaults)
            if reason:
                wrong.append((config.get("model_type"), key, reason))
    print(f"{tried} single keys left out")
    assert not wrong


def test_a_config_without_a_key_is_the_model_that_its_class_makes_or_an_error():
    exact = 0
    for row in rows("configs_without_a_key"):
        with suppress(LessonError):
            counted = Model.from_config(row["config"]).parameters
            assert counted == row["parameters"], (row["config"]["model_type"], row["without"])
            exact += 1
    assert exact > 100


def test_the_default_used_is_named_and_can_be_seen():
    config = {"model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32}
    model = Model.from_config(config)
    assert "sliding_window" in model.defaults_used
    assert "hidden_size" not in model.defaults_used
    assert [mixer.window for _, mixer in model.mixer_kinds] == [4096]
    assert Model.from_config({**config, "sliding_window": None}).mixer_kinds[0][1].window is None


# --- which family ---

LLAMA = next(row["config"] for row in CATALOGUE if row["name"] == "llama-3.2-1b")


def test_the_class_is_held_against_the_model_type():
    assert Model.from_config({**LLAMA, "architectures": None}).parameters == Model.from_config(LLAMA).parameters
    assert Model.from_config({**LLAMA, "architectures": []}).family == "llama"
    for name in ("Qwen3MoeForCausalLM", "Qwen2ForCausalLM", "MistralForCausalLM", "BrandNewForCausalLM", "LlamaPlus"):
        with pytest.raises(UnsupportedModelError, match=f"architectures names '{name}'"):
            Model.from_config({**LLAMA, "architectures": [name]})
    for name in ("BrandNewForCausalLM", "LlamaForCausalLM"):  # a class of its own, whose layout is said to be Llama's
        assert Model.from_config({**LLAMA, "architectures": [name]}, like="llama").family == "llama"
    with pytest.raises(UnsupportedModelError, match="Qwen3Moe"):
        Model.from_config({**LLAMA, "architectures": ["Qwen3MoeForCausalLM"]}, like="llama")
    for names in (5, [5], {}, [None]):
        with pytest.raises(InvalidInputError, match="architectures"):
            Model.from_config({**LLAMA, "architectures": names})
    kimi = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2"}  # the class of the same layout
    deepseek = next(row["config"] for row in CATALOGUE if row["name"] == "deepseek-v3")
    assert layout(Model.from_config(deepseek | kimi)) == layout(Model.from_config(deepseek))


MISTRAL_7B = next(row["config"] for row in CATALOGUE if row["name"] == "mistral-7b")


@pytest.mark.parametrize("options", [{}, {"like": "mistral"}])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("MistralModel", "no LM head"), ("MistralForSequenceClassification", "another head"),
        ("MistralForTokenClassification", "another head"), ("MistralForQuestionAnswering", "another head"),
        ("MistralForRewardModel", "another head"), ("MistralForCausalLMEagle", "draft"),
        ("EagleMistralForCausalLM", "draft"), ("MistralForCausalLMNextN", "draft"), ("MistralMTPModel", "draft"),
        ("MedusaModel", "draft"), ("MLPSpeculatorPreTrainedModel", "draft"),
    ],
)  # fmt: skip
def test_other_heads_and_drafts_are_refused_by_name(name, why, options):
    with pytest.raises(UnsupportedModelError, match=f"(?s)(?=.*{name})(?=.*{why})"):
        Model.from_config({**MISTRAL_7B, "architectures": [name]}, **options)


@pytest.mark.parametrize(
    "keys",
    [{"draft_vocab_size": 32_000}, {"eagle_config": {"layers": 1}}, {"target_hidden_size": 4096},
     {"speculators_model_type": "eagle3"}, {"medusa_num_heads": 3}, {"model_type": "eagle"}],
)  # fmt: skip
def test_a_key_betrays_a_draft_that_has_its_targets_class(keys):
    body = {**LLAMA, "num_hidden_layers": 1, "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048}
    for options in ({}, {"like": "llama"}):
        with pytest.raises(UnsupportedModelError, match=r"draft head \((draft_v|eagle|target_h|spec|medusa)"):
            Model.from_config(body | keys, **options)


def test_without_model_type_no_default_is_taken():
    full = {**LLAMA, "attention_bias": False, "mlp_bias": False}
    del full["model_type"]
    assert layout(Model.from_config(full)) == layout(Model.from_config(LLAMA))
    del full["num_key_value_heads"]
    with pytest.raises(UnsupportedModelError, match="num_key_value_heads"):
        Model.from_config(full)


def published(name):
    return next(row["config"] for row in PUBLISHED if row["name"] == name)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("XiaomiMiMo/MiMo-V2-Flash", {"swa_num_key_value_heads": 4}, "2 x 'num_key_value_heads'"),
        ("XiaomiMiMo/MiMo-V2-Flash", {"swa_head_dim": 128}, "1 x 'head_dim'"),
        ("XiaomiMiMo/MiMo-V2-Flash", {"add_swa_attention_sink_bias": False}, "add_swa_attention_sink_bias"),
        ("XiaomiMiMo/MiMo-V2-Flash", {"sliding_window_size": 64}, "'sliding_window_size' says"),
        ("XiaomiMiMo/MiMo-V2-Flash", {"sliding_window_size": None}, "whether its window"),
        ("XiaomiMiMo/MiMo-V2-Flash", {"hybrid_layer_pattern": [0, 1]}, "48 words"),
        ("XiaomiMiMo/MiMo-V2-Flash", {"hybrid_layer_pattern": [0, 2] * 24}, "zeros and ones"),
        ("XiaomiMiMo/MiMo-V2-Flash", {"moe_layer_freq": 1}, "zeros and ones"),
        ("XiaomiMiMo/MiMo-V2-Flash", {"mlp_layer_types": ["dense"] * 48}, "'moe_layer_freq' says"),
        ("tencent/Hunyuan-A13B-Instruct", {"moe_topk": [8] * 31 + [4]}, "different sizes"),
        ("tencent/Hunyuan-A13B-Instruct", {"moe_topk": []}, "different sizes"),
        ("tencent/Hunyuan-A13B-Instruct", {"moe_intermediate_size": [1024] * 32}, "3072, its intermediate_size"),
        ("tencent/Hunyuan-A13B-Instruct", {"num_shared_expert": [2] * 32}, "num_shared_expert"),
        ("tencent/Hunyuan-A13B-Instruct", {"use_cla": True}, "use_cla"),
    ],
)
def test_what_a_published_spelling_says_is_held_against_the_class(name, change, words):
    with pytest.raises((UnsupportedModelError, InvalidInputError), match=words):
        Model.from_config(published(name) | change)


@pytest.mark.parametrize("value", [0, "", False, {}, 0.5, [0, 2] * 24])
def test_a_list_of_rotary_layers_is_a_list_or_null(value):
    scout = published("meta-llama/Llama-4-Scout-17B-16E (text)")
    for unsaid in (None, []):
        assert Model.from_config(scout | {"no_rope_layers": unsaid}).parameters == 107_769_861_120
    with pytest.raises(InvalidInputError, match="no_rope_layers"):
        Model.from_config(scout | {"no_rope_layers": value})


@pytest.mark.parametrize(
    ("name", "where", "key"),
    [("mosaicml/mpt-7b", "attn_config", "softmax_scale"), ("databricks/dbrx-base", "ffn_config", "ffn_hidden_size"),
     ("databricks/dbrx-base", "ffn_config", "moe_top_k")],
)  # fmt: skip
def test_a_number_that_is_none_in_a_nested_object_is_no_error_of_python(name, where, key):
    """NaN is not equal to itself, which looked like another value under the same name."""
    config = published(name)
    with suppress(UnsupportedModelError, InvalidInputError):
        Model.from_config(config | {where: config[where] | {key: math.nan}})


def test_the_window_of_mimo_leaves_out_the_token_itself():
    """Its class attends to sliding_window_size tokens before the query, so the window is one more."""
    windows = [mixer.window for _, mixer in Model.from_config(published("XiaomiMiMo/MiMo-V2-Flash")).mixer_kinds]
    assert windows == [None, 129]


def test_like_reads_a_new_model_of_a_known_layout():
    new = {**LLAMA, "model_type": "brand_new", "architectures": ["BrandNewForCausalLM"]}
    with pytest.raises(UnsupportedModelError, match="own_layout") as caught:
        Model.from_config(new)
    assert "llama" not in str(caught.value)  # no advice that was not derived
    assert layout(Model.from_config(new, like="llama")) == layout(Model.from_config(LLAMA))
    with pytest.raises(UnsupportedModelError, match="num_experts"):
        Model.from_config({**new, "num_experts": 8}, like="llama")
    for like in ("lama", 5, [], "", 10**5000):
        with pytest.raises(UnsupportedModelError, match="like="):
            Model.from_config(new, like=like)
    with pytest.raises(UnsupportedModelError, match="layout of its own"):
        Model.from_config(next(row["config"] for row in CATALOGUE if row["name"] == "qwen3-8b"), like="llama")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"model_type": "brand_new", "_name_or_path": "somebody/tiny"}, "brand_new"),
        ({"_name_or_path": "somebody/tiny/", "architectures": ["BrandNewForCausalLM"]}, "tiny"),
        ({"_name_or_path": "C:\\models\\tiny"}, "tiny"),
        ({"_name_or_path": "/", "architectures": ["BrandNewForCausalLM"]}, "BrandNewForCausalLM"),
        ({"model_type": 5, "_name_or_path": [], "architectures": "x"}, "unnamed model"),
        ({"model_type": "x" * 1000}, "x" * 200),
    ],
)
def test_a_model_read_like_another_keeps_the_name_that_its_config_gives_it(names, expected):
    config = {key: value for key, value in LLAMA.items() if key not in ("model_type", "architectures")} | names
    assert Model.from_config(config, like="llama").name == expected
    assert Model.from_config(config, like="llama", name="mine").name == "mine"
    assert Model.from_config(LLAMA).name == Model.from_config(LLAMA, like="llama").name == "llama"


def test_like_takes_no_size_from_the_class_of_another_model():
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size")
    for config in (
        {},
        {"tokenizer_class": "X", "model_max_length": 8192},
        {"block_count": 80, "embedding_length": 8192},
    ):
        with pytest.raises(UnsupportedModelError, match="does not state") as caught:
            Model.from_config(config, like="llama")
        assert all(size in str(caught.value) for size in sizes)
    new = {**LLAMA, "model_type": "brand_new"}
    for size in sizes:
        with pytest.raises(UnsupportedModelError, match=f"does not state {size}"):
            Model.from_config({key: value for key, value in new.items() if key != size}, like="llama")
    mixtral = next(row["config"] for row in CATALOGUE if row["name"] == "mixtral-8x7b") | {"model_type": "brand_new"}
    assert Model.from_config(mixtral, like="mixtral").expert_kinds
    for size in ("num_key_value_heads", "num_local_experts", "num_experts_per_tok"):
        with pytest.raises(UnsupportedModelError, match=f"does not state {size}"):
            Model.from_config({key: value for key, value in mixtral.items() if key != size}, like="mixtral")
    nano = next(row["config"] for row in CATALOGUE if row["name"].startswith("nemotron-3")) | {"model_type": "new"}
    assert Model.from_config(nano, like="nemotron_h").expert_kinds
    for key in ("ssm_state_size", "mamba_num_heads", "n_routed_experts", "hybrid_override_pattern"):
        with pytest.raises(UnsupportedModelError, match="layers_block_type" if "pattern" in key else key):
            Model.from_config({name: value for name, value in nano.items() if name != key}, like="nemotron_h")
    deepseek = next(row["config"] for row in CATALOGUE if row["name"] == "deepseek-v3") | {"model_type": "brand_new"}
    del deepseek["kv_lora_rank"]
    with pytest.raises(UnsupportedModelError, match="does not state kv_lora_rank"):
        Model.from_config(deepseek, like="deepseek_v3")


KV_SPELLINGS = """n_kv_heads n_kv_head kv_heads num_query_groups num_kv_groups num_groups num_heads_kv gqa_groups
multi_query_group_num num_key_value_groups n_key_value_heads attention.head_count_kv numKVHeads""".split()


@pytest.mark.parametrize("key", KV_SPELLINGS)
def test_no_spelling_of_grouped_heads_becomes_a_model_without_groups(key):
    alone = {name: value for name, value in LLAMA.items() if name != "num_key_value_heads"} | {key: 8}
    with pytest.raises(UnsupportedModelError, match=key):
        Model.from_config(alone)
    with pytest.raises(UnsupportedModelError, match=key):
        Model.from_config(alone | {"model_type": "brand_new"}, like="llama")
    with pytest.raises(UnsupportedModelError, match=key):
        Model.from_config(alone | {key: [8] * 16})


def test_a_second_spelling_that_agrees_and_routing_groups_are_no_error():
    plain = layout(Model.from_config(LLAMA))
    same = {"n_kv_heads": 8, "num_query_groups": 8, "n_group": 4, "topk_group": 2, "use_kv_cache": True}
    assert layout(Model.from_config(LLAMA | same)) == plain
    with pytest.raises(UnsupportedModelError, match="n_kv_heads"):
        Model.from_config(LLAMA | {"n_kv_heads": 4})


def test_blocks_with_sizes_of_their_own_are_refused():
    blocks = [{"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 2.6}}] * 16
    for model_type in ("llama", "nemotron-nas"):
        with pytest.raises(UnsupportedModelError, match="block_configs"):
            Model.from_config({**LLAMA, "model_type": model_type, "block_configs": blocks}, like="llama")


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("qwen3_5_text", "attn_output_gate", False), ("qwen3_next", "attn_output_gate", False),
        ("lara_mini", "attn_output_gate", True), ("hunyuan_v1_dense", "use_qk_norm", False),
        ("hunyuan_v1_moe", "use_qk_norm", False), ("minimax_m2", "use_qk_norm", False), ("apertus", "qk_norm", False),
        ("qwen3", "use_qk_norm", False), ("cohere", "use_gated_activation", False),
        ("cohere2", "use_gated_activation", False), ("cohere2_moe", "use_gated_activation", False),
        ("solar_open", "first_k_dense_replace", 1),
    ],
)  # fmt: skip
def test_a_switch_that_is_set_against_what_is_counted_is_an_error(model_type, key, value):
    plain = Model.from_config({"model_type": model_type})
    assert Model.from_config({"model_type": model_type, key: None}).parameters == plain.parameters
    with pytest.raises(UnsupportedModelError, match=key):
        Model.from_config({"model_type": model_type, key: value})


@pytest.mark.parametrize("model_type", ["bert", "roberta", "bart", "t5", "whisper", "electra", "xlm-roberta", "marian"])
@pytest.mark.parametrize("options", [{}, {"like": "llama"}])
def test_encoders_are_refused_by_name(model_type, options):
    with pytest.raises(UnsupportedModelError, match=f"{model_type}.* encoder"):
        Model.from_config({**LLAMA, "model_type": model_type, "is_decoder": True}, **options)
    with pytest.raises(UnsupportedModelError, match="encoder"):
        Model.from_config({**LLAMA, "is_encoder_decoder": True}, **options)


@pytest.mark.parametrize("model_type", ["longcat_flash", "axk2", "cpmant"])
def test_irregular_architectures_are_refused_with_the_reason(model_type):
    for options in ({}, {"like": "llama"}):
        with pytest.raises(UnsupportedModelError, match=f"{model_type}.* is not read: "):
            Model.from_config({**LLAMA, "model_type": model_type}, **options)


# --- keys that are set and not read ---


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_experts", 8), ("num_local_experts", 8), ("kv_lora_rank", 512), ("sliding_window", 4096),
        ("layer_types", ["full_attention"] * 16), ("linear_num_key_heads", 16), ("mamba_d_state", 128),
        ("conv_L_cache", 3), ("index_topk", 2048),
        ("hc_mult", 4), ("altup_num_inputs", 4), ("num_kv_shared_layers", 2), ("add_cross_attention", True),
        ("moe_intermediate_size", 512), ("hidden_size_per_layer_input", 256), ("use_qk_norm", True), ("qkv_bias", True),
        ("vision_config", {"depth": 2}), ("v_head_dim", 128), ("pruned_heads", {"0": [1]}), ("n_embd", 1024),
    ],
)  # fmt: skip
def test_a_structural_key_that_is_not_read_is_an_error(key, value):
    with pytest.raises(UnsupportedModelError, match=key):
        Model.from_config({**LLAMA, key: value})


def test_unset_keys_and_second_names_are_no_error():
    plain = layout(Model.from_config(LLAMA))
    for key in ("num_experts", "kv_lora_rank", "sliding_window", "use_sliding_window"):
        for value in (None, False, 0, []):
            assert layout(Model.from_config({**LLAMA, key: value})) == plain
    assert layout(Model.from_config({**LLAMA, "n_embd": LLAMA["hidden_size"], "torch_dtype": "float16"})) == plain


def test_layer_types_win_and_must_fit():
    config = next(row["config"] for row in CATALOGUE if row["name"] == "gpt-oss-20b")
    layers = config["num_hidden_layers"]
    full = Model.from_config({**config, "layer_types": ["full_attention"] * layers})
    assert [(count, mixer.window) for count, mixer in full.mixer_kinds] == [(layers, None)]
    with pytest.raises(InvalidInputError, match=f"list of {layers} words"):
        Model.from_config({**config, "layer_types": config["layer_types"][:-1]})
    with pytest.raises(UnsupportedModelError, match="chunked_attention"):
        Model.from_config({**config, "layer_types": ["chunked_attention"] * layers})
    with pytest.raises(UnsupportedModelError, match="sliding_window"):
        Model.from_config({**config, "sliding_window": None})


def test_windows_of_the_families():
    def windows(**config):
        return {mixer.window: count for count, mixer in Model.from_config(config).mixer_kinds}

    qwen = {"num_hidden_layers": 24, "sliding_window": 1000, "max_window_layers": 20}
    assert windows(model_type="qwen2", **qwen, use_sliding_window=False) == {None: 24}
    assert windows(model_type="qwen2", **qwen, use_sliding_window=True) == {None: 20, 1000: 4}
    assert windows(model_type="gemma2", num_hidden_layers=27) == {4096: 14, None: 13}  # sliding first
    assert windows(model_type="gemma3_text", num_hidden_layers=34, sliding_window=1024) == {1024: 29, None: 5}
    assert windows(model_type="cohere2", num_hidden_layers=32) == {4096: 24, None: 8}
    assert windows(model_type="cohere2", num_hidden_layers=32, sliding_window_pattern=2) == {4096: 16, None: 16}
    assert windows(model_type="exaone4", num_hidden_layers=64, sliding_window_pattern="LLLG") == {4096: 48, None: 16}
    assert windows(model_type="olmo3", num_hidden_layers=32) == {4096: 24, None: 8}
    assert windows(model_type="phi3") == {None: 32}


# --- values that cannot be meant ---


@pytest.mark.parametrize("config", [None, [], "llama", 3, {1: 2}, [LLAMA]])
def test_a_config_that_is_no_object(config):
    refuses(lambda: read_config_as_model(Model, config), "config")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "2048"), ("hidden_size", -1), ("hidden_size", 0), ("hidden_size", 2048.5),
        ("hidden_size", True), ("hidden_size", float("nan")), ("hidden_size", float("inf")), ("hidden_size", [2048]),
        ("num_hidden_layers", 0), ("num_hidden_layers", 10**9), ("num_attention_heads", 7),
        ("num_key_value_heads", 64), ("num_key_value_heads", 3), ("vocab_size", "many"), ("vocab_size", 10**12),
        ("tie_word_embeddings", "yes"), ("tie_word_embeddings", None),
        ("max_position_embeddings", 0), ("attention_bias", 1), ("intermediate_size", {}),
    ],
)  # fmt: skip
def test_a_wrong_value_names_key_value_and_what_was_expected(key, value):
    message = refuses(lambda: Model.from_config({**LLAMA, "head_dim": None, key: value}))
    assert f"'{key}'" in message or "'num_attention_heads'" in message


def test_null_is_not_the_class_default():
    assert Model.from_config({**LLAMA, "num_key_value_heads": None}).mixer_kinds[0][1].kv_heads == 32  # all heads
    for key in ("hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers"):
        with pytest.raises(UnsupportedModelError, match=key):
            Model.from_config({**LLAMA, key: None})
    qwen = next(row["config"] for row in CATALOGUE if row["name"] == "qwen3-8b")
    for key in ("head_dim", "num_key_value_heads"):
        with pytest.raises(UnsupportedModelError, match=key):
            Model.from_config({**qwen, key: None})


@pytest.mark.parametrize(
    ("model_type", "key"),
    [
        ("deepseek_v3", "n_shared_experts"), ("glm4_moe", "n_shared_experts"), ("afmoe", "num_shared_experts"),
        ("qwen3_next", "shared_expert_intermediate_size"), ("flint", "shared_expert_intermediate_size"),
        ("granitemoehybrid", "shared_intermediate_size"), ("axk1", "q_lora_rank"), ("glm4_moe", "head_dim"),
        ("kimi_linear", "linear_attn_config"), ("kimi_linear", "num_shared_experts"),
        ("nemotron", "num_key_value_heads"), ("ernie4_5_moe", "moe_num_shared_experts"),
    ],
)  # fmt: skip
def test_null_is_refused_where_the_class_cannot_be_built_from_it(model_type, key):
    with pytest.raises(LessonError, match=key):
        Model.from_config({"model_type": model_type, key: None})


def test_null_in_a_family_without_known_defaults_is_refused():
    kimi = next(row["config"] for row in RELEASED if row["hub_id"] == "moonshotai/Kimi-K2.5")["text_config"]
    for key in ("intermediate_size", "v_head_dim", "n_shared_experts", "moe_intermediate_size"):
        with pytest.raises(UnsupportedModelError, match=key):
            Model.from_config({**kimi, key: None})


def test_contradictions_are_errors():
    mixtral = next(row["config"] for row in CATALOGUE if row["name"] == "mixtral-8x7b")
    with pytest.raises(InvalidInputError, match="num_experts_per_tok"):
        Model.from_config({**mixtral, "num_experts_per_tok": 9})
    with pytest.raises(InvalidInputError, match=r"num_experts.*num_local_experts"):
        Model.from_config({**mixtral, "num_experts": 16})
    with pytest.raises(UnsupportedModelError, match="num_local_experts"):
        Model.from_config({**mixtral, "num_local_experts": None})
    with pytest.raises(UnsupportedModelError, match="num_local_experts"):
        Model.from_config({**mixtral, "num_local_experts": 0})
    with pytest.raises(UnsupportedModelError, match="num_shared_experts"):
        Model.from_config({"model_type": "hy_v3", "num_shared_experts": 0})
    falcon = {"model_type": "falcon", "num_attention_heads": 71, "multi_query": False}
    assert Model.from_config({**falcon, "num_kv_heads": 71}).mixer_kinds[0][1].kv_heads == 71
    with pytest.raises(UnsupportedModelError, match="num_kv_heads"):
        Model.from_config({**falcon, "num_kv_heads": 1})


def test_no_experts_make_a_dense_model_only_where_the_class_says_so():
    for name, family in FAMILIES.items():
        if family.experts is None or "vocab_size" not in family.defaults:
            continue
        config = {"model_type": name, family.experts.experts.split("|")[0]: 0}
        if re.match("qwen2_moe|qwen3_(vl_|omni_)?moe|qwen3_next|flint|granitemoehybrid|jamba|gemma4", name):
            assert not Model.from_config(config).expert_kinds
        else:
            with pytest.raises(LessonError):
                Model.from_config(config)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([0, 1, -1, 2, 3, 7, 64, 10**6, 10**12, "auto", "full_attention", "sliding_attention", "dense"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
SOME_KEYS = sorted({key for config in ALL_CONFIGS for key in config})


@examples(300)
@given(data=st.data())
def test_no_value_raises_anything_but_our_errors(data):
    config = dict(data.draw(st.sampled_from(ALL_CONFIGS)))
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted(config)) | st.sampled_from(SOME_KEYS))
        config[key] = data.draw(values)
    for reads in (Precision.from_config, DraftHead.from_config, Model.from_config):
        with suppress(UnsupportedModelError, InvalidInputError):
            made = reads(config)
            assert reads is not Model.from_config or made.parameters > 0


def test_deep_nesting_and_endless_numbers_are_no_crash():
    with pytest.raises(InvalidInputError, match="hidden_size"):
        Model.from_config({**LLAMA, "hidden_size": 10**5000})
    deep = []
    for key in (
        "model_type",
        "architectures",
        "quantization_config",
        "rope_scaling",
        "draft_vocab_size",
        "torch_dtype",
    ):
        for value in (10**5000, {"quant_method": 10**5000, "type": 10**5000, "factor": 10**5000}):
            for reads in (Precision.from_config, DraftHead.from_config, Model.from_config):
                with suppress(UnsupportedModelError, InvalidInputError):
                    reads({**LLAMA, key: value})
    for _ in range(100_000):
        deep = [deep]
    for key in ("hidden_size", "layer_types", "text_config", "num_experts", "model_type", "quantization_config"):
        with pytest.raises(LessonError):
            Model.from_config({**LLAMA, key: deep})
        with suppress(UnsupportedModelError, InvalidInputError):
            DraftHead.from_config({**LLAMA, "draft_vocab_size": 32_000, "num_hidden_layers": 1, key: deep})
    with pytest.raises(LessonError):
        Precision.from_config({**LLAMA, "quantization_config": {"quant_method": deep}})


def stated_at_least(name):
    """What a class without a default for it must be told."""
    if name in ("deepseek_v2", "dots1"):
        return {"num_experts_per_tok": 2, "n_routed_experts": 8, "n_shared_experts": 2}
    if name == "gemma4_text":
        return {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 64}
    if name == "nemotron":
        return {"num_key_value_heads": 48}
    return {"layer_types": ["conv"] * 30 + ["full_attention"] * 2} if name == "lfm2_moe" else {}


def test_every_row_is_read_whole():
    """No row names a rule or a kind that the reader does not have: reading its class defaults builds each part."""
    for name, family in FAMILIES.items():
        if "vocab_size" not in family.defaults:
            continue  # kimi_k2: its class and so its defaults are not known
        model = Model.from_config({"model_type": name, **stated_at_least(name)})
        assert model.family == name
        assert model.parameters > 0


def test_every_default_of_a_row_is_read():
    """A default under a key that nothing reads is a slip: a misspelt size, or a key of another class."""
    for name, family in FAMILIES.items():
        if "vocab_size" not in family.defaults:
            continue  # kimi_k2
        read = set(COMMON)
        for windows in ({}, {family.window_switch: True, family.window: 512}):
            keys = Keys(stated_at_least(name) | windows, name, family, True)
            read_fields(keys)
            read |= keys.read.keys()
        assert family.defaults.keys() <= read, name


def test_no_family_has_two_rows():
    files = (dense, experts, hybrid, inside, latent, layernorm, special, state)
    assert sum(len(file.rows) for file in files) == len(FAMILIES)
