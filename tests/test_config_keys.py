"""Keys of a config beyond its sizes: second names, positions, what is not read, how the file is stored; own layouts."""

import contextlib
import io
import json
import re
from functools import cache
from pathlib import Path

import pytest
from helpers import refuses

from lessonlib.base.errors import InvalidInputError, LessonError, UnsupportedModelError
from lessonlib.facts.catalogue import load_model, model_config
from lessonlib.facts.own_config import own_model
from lessonlib.model.config.stored import METHODS, stored_as
from lessonlib.model.draft import DraftHead
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision

HERE = Path(__file__).parent
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 131_072,
    "tie_word_embeddings": False,
}  # fmt: skip
PLAIN = 8_030_261_248
VISION = {"vision_config": {"depth": 2}}

# --- second names ---


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gemma-2-9b", "sliding_window_size"), ("gemma-2-9b", "window_size"), ("llama-3.1-8b", "n_embd"),
        ("llama-3.1-8b", "ffn_dim"), ("llama-3.1-8b", "n_layers"), ("llama-3.1-8b", "n_kv_heads"),
        ("llama-3.1-8b", "padded_vocab_size"), ("mixtral-8x7b", "n_routed_experts"), ("mixtral-8x7b", "moe_topk"),
        ("qwen3-8b", "kv_channels"),
    ],
)  # fmt: skip
def test_a_second_name_is_taken_where_it_says_the_same_and_refused_where_not(name, key):
    plain, config = load_model(name), model_config(name)
    value = {
        "sliding_window_size": config.get("sliding_window"), "window_size": config.get("sliding_window"),
        "n_embd": config["hidden_size"], "ffn_dim": config["intermediate_size"],
        "n_layers": config["num_hidden_layers"], "n_kv_heads": config["num_key_value_heads"],
        "padded_vocab_size": config["vocab_size"], "n_routed_experts": config.get("num_local_experts"),
        "moe_topk": config.get("num_experts_per_tok"), "kv_channels": config.get("head_dim"),
    }[key]  # fmt: skip
    twin = Model.from_config(config | {key: value})
    assert twin.parameters == plain.parameters and key not in twin.keys_not_read
    try:
        other = Model.from_config(config | {key: value + 8})
    except LessonError as error:
        assert key in str(error)
    else:
        assert key in other.keys_not_read  # a vocabulary with rows to spare: named


def test_all_refused_keys_are_named_at_once():
    extra = {"kv_lora_rank": 512, "mamba_d_state": 128, "num_experts": 8, "index_topk": 2048}
    message = refuses(lambda: Model.from_config(LLAMA | extra), *extra, kind=UnsupportedModelError)
    assert "'kv_lora_rank' is 512" in message
    many = {f"moe_key_{i}": 1 for i in range(40)}
    assert "and 28 more" in refuses(lambda: Model.from_config(LLAMA | many), kind=UnsupportedModelError)


def test_the_two_layouts_of_falcon_may_stand_in_one_file():
    """Falcon-40B as published: 41.3 billion, eight KV heads, whatever the switch of the old layout says."""
    config = {
        "model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128,
        "num_kv_heads": 8, "vocab_size": 65_024, "new_decoder_architecture": True, "parallel_attn": True, "bias": False,
    }  # fmt: skip
    model = Model.from_config(config | {"multi_query": True})
    assert model.parameters == Model.from_config(config).parameters == 41_303_293_952
    assert model.mixer_kinds[0][1].kv_heads == 8


def test_an_output_gate_may_name_its_function():
    qwen = {"model_type": "qwen3_5_text"}
    assert Model.from_config(qwen | {"output_gate_type": "swish"}).parameters == Model.from_config(qwen).parameters
    with pytest.raises(UnsupportedModelError, match="output_gate_type"):
        Model.from_config(LLAMA | {"output_gate_type": "swish"})


@pytest.mark.parametrize("key", ["tie_embedding", "tie_embeddings", "share_embedding"])
def test_a_tied_head_under_another_name(key):
    untold = {name: value for name, value in LLAMA.items() if name != "tie_word_embeddings"}
    assert Model.from_config(untold | {key: True}).parameters == PLAIN - 128_256 * 4096
    assert Model.from_config(untold | {key: False}).parameters == PLAIN
    with pytest.raises(UnsupportedModelError, match=key):
        Model.from_config(LLAMA | {key: True})


def test_mobilellm_like_llama():
    """MobileLLM-125M has 124,635,456 parameters: its embedding is the head, under a name of its own."""
    config = {
        "model_type": "mobilellm", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "head_dim": 64, "intermediate_size": 1536, "vocab_size": 32_000,
        "max_position_embeddings": 2048, "share_embedding": True, "layer_sharing": False,
    }  # fmt: skip
    assert Model.from_config(config, like="llama").parameters == 124_635_456
    with pytest.raises(UnsupportedModelError, match="layer_sharing"):
        Model.from_config(config | {"layer_sharing": True}, like="llama")


# --- like= ---

PLAUSIBLE = """
attn_res_scale_heads attention_sinks_count cross_layer_kv depth_router engram_layers extra_norms ffn_groups
global_layers half_layers hyper_connections kv_bits layer_skip_size lora_r memory_slots multi_latent mux_streams
n_future_heads num_memory_tokens_per_layer post_attention_norms parallel_blocks per_layer_embedding_size qk_l2
residual_streams router_groups shared_layers single_norm skip_connections tie_layers token_shift use_gau use_retention
value_residual vocab_factor weight_sharing xpos_heads
""".split()


@pytest.mark.parametrize("key", PLAUSIBLE)
@pytest.mark.parametrize("value", [True, 4, "yes", [1, 2], {"a": 1}, 0.5])
def test_no_key_of_another_model_passes_unnamed(key, value):
    for config, options in ((LLAMA | {"model_type": "brand_new"}, {"like": "llama"}), (LLAMA, {})):
        try:
            model = Model.from_config(config | {key: value}, **options)
        except UnsupportedModelError as error:
            assert key in str(error)
        else:
            assert model.keys_not_read == (key,) and f"Keys not read: '{key}'." in str(model)


def test_keys_that_say_no_are_named_for_another_model_and_not_for_its_own():
    new = LLAMA | {"model_type": "brand_new", "use_qk_norm": False, "is_encoder_decoder": False, "rope_theta": 1e4}
    assert Model.from_config(new, like="llama").keys_not_read == ("use_qk_norm",)
    assert Model.from_config(LLAMA | {"use_qk_norm": False}).keys_not_read == ()


def test_the_catalogue_and_the_released_files_leave_next_to_nothing_unread():
    released = json.loads((HERE / "data" / "released_configs.json").read_text(encoding="utf-8"))
    unread = {}
    for row in released:
        with contextlib.suppress(UnsupportedModelError):
            unread[row["hub_id"]] = Model.from_config(row["config"]).keys_not_read
    assert {key for keys in unread.values() for key in keys} <= {"shared_intermediate_size"}
    assert len(unread) >= 10


# --- positions ---


@pytest.mark.parametrize(
    ("stated", "scaling", "positions"),
    [
        (32_768, {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}, 131_072),
        (40_960, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}, 131_072),
        (163_840, {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}, 163_840),
        (262_144, {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32_768}, 262_144),
        (32_768, {"type": "yarn", "factor": 4.0}, 131_072),
        (4096, {"type": "linear", "factor": 4.0}, 16_384), (4096, {"type": "dynamic", "factor": 2.0}, 8192),
        (131_072, {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 131_072),
        (131_072, {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}, 131_072),
        (131_072, {"type": "su", "factor": 32.0}, 131_072), (131_072, {"rope_type": "default"}, 131_072),
        (4096, {"full_attention": {"rope_type": "yarn", "factor": 4.0}, "sliding_attention": {}}, 16_384),
        (None, {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}, 131_072),
        (None, {"type": "yarn", "factor": 4.0}, None), (None, None, None), (2048, {}, 2048),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_positions_are_stretched_as_the_rotary_scaling_says(key, stated, scaling, positions):
    assert Model.from_config(LLAMA | {"max_position_embeddings": stated, key: scaling}).max_positions == positions


def test_gemma_3_states_the_stretched_number():
    config = {"model_type": "gemma3_text", "max_position_embeddings": 131_072}
    linear = config | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert Model.from_config(linear).max_positions == 131_072


@pytest.mark.parametrize(
    "scaling", [5, "yarn", [1], *({"type": "yarn", "factor": f} for f in ("4", True, -4.0, 0, float("nan"), 1e300))]
)
def test_a_scaling_that_cannot_be_meant_is_an_error(scaling):
    refuses(lambda: Model.from_config(LLAMA | {"rope_scaling": scaling}), "rope_scaling")


# --- how the file is stored ---

INT4 = {"num_bits": 4, "type": "int", "group_size": 128}
STORED = {
    "DeepSeek": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, Precision("fp8")),
    "fbgemm": ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, Precision("fp8")),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128}, Precision("int4")),
    "gptq of 8 bits": ({"quant_method": "gptq", "bits": 8}, Precision("int8")),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm"}, Precision("int4")),
    "awq, older": ({"quant_method": "awq", "w_bit": 4}, Precision("int4")),
    "bitsandbytes 4": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, Precision("int4")),
    "bitsandbytes 8": ({"load_in_8bit": True}, Precision("int8")),
    "packed": ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": INT4}}}, Precision("int4")),
    "float": ({"config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}}}, Precision("fp8")),
    "nvfp4": ({"config_groups": {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}},
              Precision("nvfp4")),
    "modelopt": ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8}},
                 Precision("nvfp4", cache="fp8")),
    "modelopt, nested": ({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}},
                         Precision("fp8", cache="fp8")),
}  # fmt: skip


@pytest.mark.parametrize(("quantisation", "precision"), STORED.values(), ids=STORED)
def test_a_file_says_how_it_is_stored(quantisation, precision):
    config = LLAMA | {"quantization_config": quantisation, "torch_dtype": "bfloat16"}
    assert Precision.from_config(config) == precision
    model = Model.from_config(config)
    assert precision.blocks in model.stored and "Precision(" in model.stored and "\nStored in" in str(model)
    wrapper = {"model_type": "seer", "text_config": LLAMA, "quantization_config": quantisation}
    assert Precision.from_config(wrapper) == Precision.from_config({"text_config": config}) == precision


def test_released_files_say_how_they_are_stored():
    oss = {"num_local_experts": 32, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}  # fmt: skip
    assert Precision.from_config(oss) == Precision("bf16", experts="mxfp4")
    ignored = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]
    kimi = {"n_routed_experts": 384, "quantization_config": {"config_groups": {"g": {"weights": INT4}},
                                                              "ignore": ignored}}  # fmt: skip
    assert Precision.from_config(kimi) == Precision("bf16", experts="int4")
    one = {"n_routed_experts": 8, "num_hidden_layers": 4, "quantization_config": {
        "quant_method": "fp8", "ignored_layers": ["model.layers.0.self_attn.q_proj"]}}  # fmt: skip
    assert Precision.from_config(one) == Precision("fp8")
    assert Precision.from_config(one | {"expert_dtype": "fp4"}) == Precision("fp8", experts="mxfp4")


@pytest.mark.parametrize(
    ("stated", "dtype"),
    [({}, "bf16"), ({"torch_dtype": "float16"}, "fp16"), ({"dtype": "float32"}, "fp32"), ({"dtype": "auto"}, "bf16"),
     ({"torch_dtype": "torch.bfloat16"}, "bf16"), ({"quantization_config": None}, "bf16")],
)  # fmt: skip
def test_a_file_that_is_not_quantised(stated, dtype):
    assert Precision.from_config(LLAMA | stated) == Precision(dtype)
    assert Model.from_config(LLAMA | stated).stored == ""


def test_an_unknown_way_to_store_is_refused_by_name_and_said():
    config = LLAMA | {"quantization_config": {"quant_method": "aqlm", "nbits_per_codebook": 16}}
    message = refuses(lambda: Precision.from_config(config), "'aqlm'", *METHODS, kind=UnsupportedModelError)
    assert "Precision(" in message
    assert "not read" in Model.from_config(config).stored and "aqlm" in str(Model.from_config(config))
    two = {"config_groups": {"a": {"weights": INT4}, "b": {"weights": {"num_bits": 8, "type": "float"}}}}
    for quantisation in (two, {"quant_algo": "W3A2"}, {"config_groups": {"a": {"weights": {"type": "float"}}}}):
        refuses(lambda q=quantisation: stored_as({"quantization_config": q}), kind=UnsupportedModelError)


@pytest.mark.parametrize(
    "quantisation",
    [5, "fp8", [1], {"quant_method": "gptq"}, {"quant_method": "gptq", "bits": "4"},
     {"quant_method": "awq", "bits": 99}, {"quant_method": "bitsandbytes"}, {"config_groups": []},
     {"config_groups": {"a": 1}},
     {"quant_method": "fp8", "ignore": 5}, {"quant_method": "fp8", "ignore": [5]}],
)  # fmt: skip
def test_a_way_to_store_that_cannot_be_meant(quantisation):
    refuses(lambda: stored_as({"quantization_config": quantisation}), "config")


def test_names_of_modules_are_never_run():
    hostile = {"quant_method": "fp8", "ignore": ["re:(a+)+$", "re:[", "a" * 100_000, "re:(?P<x"]}
    assert Precision.from_config({"quantization_config": hostile}) == Precision("fp8")


# --- draft heads ---

EAGLE = LLAMA | {
    "num_hidden_layers": 1, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32_000,
    "max_position_embeddings": 2048,
}  # fmt: skip


@pytest.mark.parametrize("change", [{}, {"architectures": ["LlamaForCausalLM"]}, {"architectures": None},
                                    {"eagle_config": {"use_aux_hidden_state": True}, "target_hidden_size": 4096},
                                    {"tie_word_embeddings": True, "num_hidden_layers": 1}])  # fmt: skip
def test_an_eagle_3_head_is_read_as_a_draft_and_never_as_a_model(change):
    """fc of three hidden states, q, k and v over 2 h, o, the feed-forward, four norms, and a head of 32,000."""
    h, kv, inner = 4096, 1024, 14_336
    head = DraftHead.from_config(EAGLE | change)
    assert head.parameters == 424_689_664
    assert head.parameters == 3 * h * h + 2 * h * (h + 2 * kv) + h * h + 3 * h * inner + 4 * h + 32_000 * h
    assert head.max_positions == 2048 and not head.shares_head
    message = refuses(lambda: Model.from_config(EAGLE | change), "draft head", "DraftHead.from_config",
                      kind=UnsupportedModelError)  # fmt: skip
    assert "draft_vocab_size" in message


@pytest.mark.parametrize(
    "change",
    [{"num_hidden_layers": 2}, {"attention_bias": True}, {"target_hidden_size": 8192}, {"medusa_num_heads": 3},
     {"num_experts": 8}, {"model_type": "qwen2"}, {"model_type": []}, {"draft_vocab_size": "many"},
     {"draft_vocab_size": -1}, {"hidden_size": None}, {"draft_vocab_size": None, "architectures": None},
     {"architectures": [5]}, {"strange_streams": 4}],
)  # fmt: skip
def test_a_draft_of_another_kind_is_refused(change):
    with pytest.raises((UnsupportedModelError, InvalidInputError)):
        DraftHead.from_config(EAGLE | change)


@pytest.mark.parametrize("config", [None, [], {1: 2}, {}, LLAMA])
def test_what_is_no_draft_is_refused(config):
    with pytest.raises((UnsupportedModelError, InvalidInputError)):
        DraftHead.from_config(config)


LONG = "moe_" + "x" * 9000


@pytest.mark.parametrize(
    "change",
    [{LONG: 8}, {f"eagle_{LONG}": 8}, {"architectures": [f"{LONG}Model"]}, {"architectures": [f"{LONG}ForCausalLM"]},
     {"architectures": [f"{LONG}Eagle"] * 90}, {"model_type": LONG}, {"rope_scaling": LONG},
     {"quantization_config": LONG}, {"text_config": LONG}, {f"{LONG}_config": {"a": 1}, "text_config": {LONG: 1}}],
)  # fmt: skip
def test_no_long_name_fills_a_page(change):
    with pytest.raises((UnsupportedModelError, InvalidInputError)) as caught:
        Model.from_config(LLAMA | change)
    assert len(str(caught.value)) < 1000


def test_what_is_printed_of_a_file_moves_no_cursor():
    hostile = {"quant_method": "fp8", "ignore": ["\x1b[2J", "a\nb", "y" * 9000]}
    config = LLAMA | {"quantization_config": hostile, "strange\x1b[2J": 4, "z" * 9000: 1}
    said = str(Model.from_config({"model_type": "seer", "text_config": config, "\x1b_config": {"a": 1}, **VISION}))
    assert len(said) < 1000 and all(line.isprintable() for line in said.splitlines()) and len(said.splitlines()) == 4


# --- own files and own layouts ---


def test_a_large_file_with_infinity_where_no_size_stands(tmp_path):
    skipped = [f"model.layers.{i}.self_attn.q_proj" for i in range(80_000)]
    config = LLAMA | {"time_step_limit": [0.0, float("inf")], "quantization_config": {
        "quant_method": "fp8", "modules_to_not_convert": skipped}}  # fmt: skip
    path = tmp_path / "large.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    assert path.stat().st_size > 3_000_000
    assert own_model(path).parameters == PLAIN
    path.write_text(json.dumps(config | {"hidden_size": float("inf")}), encoding="utf-8")
    refuses(lambda: own_model(path), "hidden_size", "large.json")


def test_an_own_file_that_is_not_read_names_the_nearest_model(tmp_path):
    path = tmp_path / "new.json"
    for config, near in ((LLAMA, "32 layers of width 4,096"), ({"hidden_size": 576, "num_hidden_layers": 30}, "")):
        path.write_text(json.dumps(config | {"model_type": "zaya"}), encoding="utf-8")
        message = refuses(lambda: own_model(path), "zaya", "own_layout.md", near, kind=UnsupportedModelError)
        assert re.search(r"load_model\('[\w.-]+'\)", message)
    path.write_text(json.dumps({"model_type": "zaya", "hidden_size": "x"}), encoding="utf-8")
    assert "load_model" not in refuses(lambda: own_model(path), "zaya", kind=UnsupportedModelError)


def test_active_parameters_with_and_without_the_embedding():
    """The card of gpt-oss-20b counts 3.6 billion active, its head and not its embedding; that of Mixtral 12.9 both."""
    oss, mixtral, tied = load_model("gpt-oss-20b"), load_model("mixtral-8x7b"), load_model("llama-3.2-1b")
    assert round(oss.active_parameters_without_embedding / 1e9, 1) == 3.6 and oss.active_parameters > 4.1e9
    assert oss.active_parameters - oss.active_parameters_without_embedding == 201_088 * 2880
    assert round(mixtral.active_parameters / 1e9, 1) == 12.9
    assert tied.active_parameters_without_embedding == tied.active_parameters == tied.parameters
    assert f"{oss.active_parameters_without_embedding:,} without the embedding table" in repr(oss)
    assert "without" not in repr(tied)


@cache
def page():
    return (HERE.parent / "docs" / "own_layout.md").read_text(encoding="utf-8")


def test_the_page_of_own_layouts_prints_what_it_says():
    fences = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page(), re.DOTALL)
    names = {}
    for code, printed in fences:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, names)
        assert out.getvalue() == printed
    assert len(fences) == 2 and names["model"].parameters == PLAIN
    assert isinstance(names["sparse"], Model) and InvalidInputError.__name__ == "InvalidInputError"
