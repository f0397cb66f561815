"""Wrappers: the language part of a file with towers, its tied embedding, and what is said to be left out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import refuses

from lessonlib.base.errors import InvalidInputError, LessonError, UnsupportedModelError
from lessonlib.model.config.wrappers import LANGUAGE_PARTS, TIES
from lessonlib.model.model import Model

HERE = Path(__file__).parent
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 131_072,
}  # fmt: skip
PLAIN, TIED, TABLE = 8_030_261_248, 7_504_924_672, 128_256 * 4096
VISION = {"vision_config": {"hidden_size": 1024, "num_hidden_layers": 24}}


def rows(name):
    return json.loads((HERE / "data" / f"{name}.json").read_text(encoding="utf-8"))


def alone(model):
    return replace(model, name="", left_out=(), defaults_used=())


@pytest.mark.parametrize("part", LANGUAGE_PARTS)
def test_the_language_part_of_a_wrapper_is_read_as_a_file_of_its_own(part):
    wrapper = {"model_type": "seer", "architectures": ["SeerForConditionalGeneration"], part: LLAMA, **VISION}
    model = Model.from_config(wrapper)
    assert alone(model) == alone(Model.from_config(LLAMA)) and model.parameters == PLAIN
    assert model.left_out == ("vision tower (vision_config)",)
    assert "Left out: vision tower (vision_config)." in str(model) and "Left out" not in str(Model.from_config(LLAMA))


def test_a_wrapper_in_a_wrapper():
    inner = {"model_type": "omni_thinker", "text_config": LLAMA, "audio_config": {"d_model": 1280}, **VISION}
    model = Model.from_config({"model_type": "omni", "thinker_config": inner, "talker_config": {"layers": 2}})
    assert model.parameters == PLAIN
    assert model.left_out == (
        "talker tower (talker_config)", "audio tower (audio_config)", "vision tower (vision_config)"
    )  # fmt: skip


@pytest.mark.parametrize("key", TIES)
def test_the_wrapper_alone_says_that_the_embedding_is_the_head(key):
    assert Model.from_config({"model_type": "seer", "text_config": LLAMA, key: True, **VISION}).parameters == TIED
    assert Model.from_config({"model_type": "seer", "text_config": LLAMA, key: False, **VISION}).parameters == PLAIN
    assert Model.from_config({"model_type": "seer", "text_config": LLAMA, key: None, **VISION}).parameters == PLAIN
    text = LLAMA | {"tie_word_embeddings": True}
    assert Model.from_config({"text_config": text, key: True}).parameters == TIED
    assert PLAIN - TIED == TABLE
    with pytest.raises(UnsupportedModelError, match="tie_word_embeddings"):
        Model.from_config({"model_type": "seer", "text_config": text, key: False})


@pytest.mark.parametrize(
    ("kind", "tied"),
    [("qwen3_vl", False), ("llava_next", False), ("gemma3", True), ("gemma4", True), ("shieldgemma2", True)],
)
def test_where_the_wrapper_says_nothing_its_class_may_overrule_its_language_model(kind, tied):
    config = {"model_type": kind, "text_config": LLAMA, **VISION}
    untold = LLAMA | {"tie_word_embeddings": None}
    for text in (untold, LLAMA | {"tie_word_embeddings": tied}):
        assert Model.from_config(config | {"text_config": text}).parameters == (TIED if tied else PLAIN)
    against = LLAMA | {"tie_word_embeddings": not tied}
    with pytest.raises(UnsupportedModelError, match="tie_word_embeddings"):
        Model.from_config(config | {"text_config": against})
    told = config | {"text_config": against, "tie_word_embeddings": not tied}
    assert Model.from_config(told).parameters == (PLAIN if tied else TIED)


@pytest.mark.parametrize("kind", ["gemma3", "shieldgemma2"])
def test_null_is_no_word_where_the_wrappers_class_ties_by_default(kind):
    """Their classes take null for untied, and an absent key for tied (transformers 5.24)."""
    with pytest.raises(UnsupportedModelError, match="tie_word_embeddings"):
        Model.from_config({"model_type": kind, "text_config": LLAMA, "tie_word_embeddings": None})


@pytest.mark.parametrize("kind", ["voxtral", "qwen2_audio", "audioflamingo3", "vibevoice"])
def test_a_wrapper_whose_class_ties_nothing_is_refused_where_a_level_says_it_does(kind):
    assert Model.from_config({"model_type": kind, "text_config": LLAMA}).parameters == PLAIN
    tied = LLAMA | {"tie_word_embeddings": True}
    for told in ({"text_config": tied}, {"text_config": LLAMA, "tie_word_embeddings": True}):
        with pytest.raises(UnsupportedModelError, match="tie_word_embeddings"):
            Model.from_config({"model_type": kind, **told})


def test_the_language_model_of_some_wrappers_ties_by_its_own_word_alone():
    """Their classes make a whole language model of the part, which does not see the wrapper's word."""
    for told in (True, False, None):
        assert (
            Model.from_config({"model_type": "llama4", "text_config": LLAMA, "tie_word_embeddings": told}).parameters
            == PLAIN
        )
    opt = {"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
    model = Model.from_config({"model_type": "blip-2", "text_config": opt, "tie_word_embeddings": False})
    assert model.tied_embeddings and model.parameters == 125_239_296


def test_each_level_must_be_meant():
    refuses(lambda: Model.from_config({"text_config": [LLAMA]}), "text_config")
    refuses(lambda: Model.from_config({"text_config": {1: 2}}), "text_config")
    refuses(lambda: Model.from_config({"text_config": LLAMA, "llm_config": LLAMA}), "llm_config",
            kind=UnsupportedModelError)  # fmt: skip
    for part in ({}, {"model_type": "llama"}, {"a": 1}):
        with pytest.raises(LessonError):
            Model.from_config({"model_type": "seer", "text_config": part})
        with pytest.raises(LessonError):
            Model.from_config({"model_type": "qwen3_vl", "text_config": part})
    circle = dict(LLAMA)
    circle["text_config"] = circle
    with pytest.raises(InvalidInputError, match="nested"):
        Model.from_config(circle)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"architectures": ["SeerForSequenceClassification"]}, "another head"),
        ({"architectures": ["SeerModel"]}, "no LM head"), ({"is_encoder_decoder": True}, "encoder"),
        ({"model_type": "whisper"}, "encoder"), ({"text_config": LLAMA | {"model_type": "bart"}}, "encoder"),
        ({"text_config": LLAMA | {"model_type": "longcat_flash"}}, "compute nothing"),
        ({"text_config": LLAMA | {"model_type": "clip_text_model"}}, "not an architecture"),
        ({"text_config": {"hidden_size": 4096}}, "'seer_text'"), ({"draft_vocab_size": 32_000}, "draft"),
        ({"text_config": LLAMA | {"draft_vocab_size": 32_000}}, "draft"),
    ],
)  # fmt: skip
def test_what_is_no_language_model_is_refused_inside_a_wrapper_too(change, why):
    with pytest.raises(UnsupportedModelError, match=why):
        Model.from_config({"model_type": "seer", "text_config": LLAMA, **VISION, **change})


GEMMA = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], **VISION}
MISTRAL = {"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], **VISION}
PUBLISHED = {  # the keys of the released files; counts of their text classes by transformers 5.24
    "Gemma 3 4B": (GEMMA | {"text_config": {
        "hidden_size": 2560, "intermediate_size": 10_240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}}, 3_880_263_168, 131_072),
    "Gemma 3 27B": (GEMMA | {"text_config": {
        "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21_504, "model_type": "gemma3_text",
        "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}}, 27_009_346_304, 131_072),
    "Mistral Small 3.1 24B": (MISTRAL | {"text_config": {
        "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
        "initializer_range": 0.02, "intermediate_size": 32_768, "max_position_embeddings": 131_072,
        "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05, "rope_theta": 1e9, "sliding_window": None, "use_cache": True, "vocab_size": 131_072},
        "image_token_index": 10, "multimodal_projector_bias": False, "vision_feature_layer": -1},
        23_572_403_200, 131_072),
}  # fmt: skip


@pytest.mark.parametrize(("config", "parameters", "positions"), PUBLISHED.values(), ids=PUBLISHED)
def test_wrappers_as_they_are_published(config, parameters, positions):
    model = Model.from_config(config)
    assert (model.parameters, model.max_positions) == (parameters, positions)
    assert model.left_out == ("vision tower (vision_config)",) and model.keys_not_read == ()


def test_a_wrapper_named_like_a_method_of_drafting_is_no_draft():
    names = {"model_type": "eagle_2_5_vl", "architectures": ["Eagle2_5_VLForConditionalGeneration"]}
    assert Model.from_config(names | {"text_config": LLAMA} | VISION).parameters == PLAIN


def test_a_wrapper_that_states_its_sizes_beside_its_towers():
    """Qwen2.5-VL-3B as published: 3,085,938,688 parameters without its tower (those of Qwen2.5-3B)."""
    config = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "hidden_size": 2048,
        "intermediate_size": 11_008, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2,
        "vocab_size": 151_936, "max_position_embeddings": 128_000, "max_window_layers": 70, "sliding_window": 32_768,
        "use_sliding_window": False, "tie_word_embeddings": True, "rope_scaling": {"type": "mrope"},
        "vision_start_token_id": 151_652, "image_token_id": 151_655,
        "vision_config": {"depth": 32, "hidden_size": 1280},
    }  # fmt: skip
    model = Model.from_config(config)
    assert model.parameters == 3_085_938_688 and model.max_positions == 128_000 and model.keys_not_read == ()
    assert model.left_out == ("vision tower (vision_config)",)


def test_a_causal_model_with_a_text_config_has_no_tower_to_leave_out():
    config = next(row["config"] for row in rows("config_oracle") if row["config"]["model_type"] == "qwen3_5")
    text = config["text_config"]
    model = Model.from_config({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5", "text_config": text})
    assert model.family == "qwen3_5_text" and model.left_out == ()
    with pytest.raises(UnsupportedModelError, match="tie_word_embeddings"):
        Model.from_config(config | {"tie_word_embeddings": True, "text_config": text | {"tie_word_embeddings": False}})


def test_layers_that_draft_ahead_are_left_out_and_said():
    model = Model.from_config(LLAMA | {"num_nextn_predict_layers": 2})
    assert model.parameters == PLAIN and model.left_out == ("2 layers that draft ahead (num_nextn_predict_layers)",)
    assert Model.from_config(LLAMA | {"num_nextn_predict_layers": 0}).left_out == ()


def test_no_key_of_a_published_wrapper_can_be_spoilt_without_a_word():
    """The same count, or an error."""
    tried = 0
    for row in rows("released_configs"):
        config = row["config"]
        if "text_config" not in config:
            continue
        try:
            model = Model.from_config(config)
        except UnsupportedModelError:
            continue
        for key, value in config["text_config"].items():
            for other in ("x", [], {}, -1, 2.5, 10**18, float("inf"), float("nan")):
                tried += 1
                try:
                    left = Model.from_config(config | {"text_config": config["text_config"] | {key: other}})
                except LessonError:
                    continue
                assert left.parameters == model.parameters, (row["hub_id"], key, value, other)
    assert tried > 1000
