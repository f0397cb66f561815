"""Mistakes that calculators of this kind make. Each test works out the mistaken number, and that it is not ours.

Without another word: Llama-3.1-8B in bf16 on one H100, 1000 -> 300 (chat) or 200 -> 20,000 (reasoning), batch 1.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import (
    assembled,
    device,
    gpt_oss,
    gqa_model,
    h100,
    llama,
    mixtral_8x7b,
    qwen3_next,
    qwen25_05b,
    server,
)

from lessonlib.base.errors import DoesNotFitError, LessonError, UnknownNameError
from lessonlib.base.units import format_bytes, format_flops
from lessonlib.facts import catalogue
from lessonlib.model.attention import GroupedQueryAttention
from lessonlib.model.feedforward import DenseFeedForward
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Efficiency
from lessonlib.time.roofline import pass_cost

HEAD = 128_256 * 4096  # weights of the LM head, and of the embedding
BANDWIDTH, PEAK = 3.35e12, 989e12


def chat(batch=1, **changes):
    return request_cost(server(**changes), Request(1000, 300), batch)


def reasoning(batch=1, **changes):
    return request_cost(server(**changes), Request(200, 20_000), batch)


def weights(**changes):
    return pass_cost(server(**changes), 1).linear.bytes


def test_01_the_head_is_applied_to_the_last_prompt_position_only():
    extra = 999 * 2 * HEAD
    assert extra == pytest.approx(1.05e12, rel=2e-3)
    assert extra / chat().prefill.flops == pytest.approx(0.07, abs=0.005)
    everywhere = pass_cost(server(), 1000, logits=1000)
    assert everywhere.flops - chat().prefill.flops == extra


def test_02_the_input_embedding_is_a_look_up_and_not_a_matrix_product():
    as_product = 2 * 1000 * HEAD
    assert as_product == pytest.approx(1.05e12, rel=2e-3)
    blocks_and_head = 2 * 1000 * llama().block_matmul_weights + 2 * HEAD
    assert chat().prefill.linear.flops == blocks_and_head
    assert llama().block_matmul_weights == llama().parameters - 2 * HEAD - (2 * 32 + 1) * 4096


def test_03_an_untied_input_embedding_is_never_streamed_and_a_tied_one_once():
    assert weights() == 2 * (llama().parameters - HEAD)
    slower = reasoning().decode.seconds + 19_999 * 2 * HEAD / BANDWIDTH
    assert slower / reasoning().decode.seconds > 1.06
    assert 2 * llama().parameters / weights() == pytest.approx(1.07, abs=0.001)
    tied = gqa_model(tied_embeddings=True)
    assert weights(model=tied) == 2 * tied.parameters == weights(model=gqa_model())


def test_04_the_bytes_of_the_head_are_streamed_at_every_step():
    without = 2 * (llama().parameters - 2 * HEAD)
    assert without / weights() == pytest.approx(0.93, abs=0.001)
    assert chat().decode.linear.bytes == 299 * (without + 2 * HEAD)


def test_05_the_head_takes_two_flops_for_each_weight():
    missing = 299 * HEAD
    assert missing == pytest.approx(0.16e12, rel=0.02)
    assert chat().decode.linear.flops == 299 * 2 * (llama().block_matmul_weights + HEAD)


def test_06_the_prefill_is_causal():
    full = 4 * 32 * 32 * 128 * 1000 * 1000
    causal = chat().prefill.attention.flops
    assert causal == 4 * 32 * 32 * 128 * 1000 * 1001 // 2
    assert (full - causal) / chat().prefill.flops == pytest.approx(0.018, abs=0.0005)


def test_07_decode_has_attention_flops():
    assert reasoning().decode.linear.flops == pytest.approx(300e12, rel=2e-3)
    assert reasoning().decode.flops == pytest.approx(407e12, rel=1e-3)
    spans = sum(200 + k for k in range(1, 20_000))
    assert reasoning().decode.attention.flops == 4 * 32 * 32 * 128 * spans


def test_08_the_cache_is_charged_as_it_grows_and_a_step_writes_one_token():
    decode, token = reasoning().decode, 131_072
    moved = decode.cache_read + decode.cache_write
    assert moved == token * sum(200 + k for k in range(1, 20_000))
    assert decode.cache_write == token * 19_999
    at_the_end = token * 20_199 * 19_999
    assert at_the_end / moved == pytest.approx(1.98, abs=0.01)
    assert 2 * at_the_end / moved == pytest.approx(3.96, abs=0.01)  # read and written whole


def test_09_the_cache_is_sized_by_kv_heads():
    by_query_heads = 32 * 32 * 2 * 128 * 2
    assert by_query_heads == 4 * llama().cache_bytes(1) == 4 * server().cache_bytes_per_token
    assert pass_cost(server(), 1, 1000).cache_read == 1000 * by_query_heads / 4


def test_10_rates_and_sizes_are_decimal():
    assert h100().bandwidth == 3350e9 != 3350 * 2**30
    assert h100().peak("bf16") == 989e12 != 989 * 2**40
    assert h100().memory == 81_559 * 2**20 != 80 * 2**30
    assert pytest.approx((0.07, 0.10), abs=0.005) == (2**30 / 1e9 - 1, 2**40 / 1e12 - 1)
    assert (format_bytes(1e9), format_bytes(2**30)) == ("1.000 GB", "1.074 GB")
    assert format_flops(2**40) == "1.100 TFLOP"


def test_11_the_prefill_emits_the_first_token():
    assert chat().decode.passes == 299
    one_too_many = chat().decode.seconds + pass_cost(server(), 1, 1299).seconds
    assert one_too_many / chat().decode.seconds == pytest.approx(1.003, abs=0.0005)
    last = pass_cost(server(), 1, 1298)  # the last step sees 1,298 tokens and itself
    before = request_cost(server(), Request(1000, 299)).decode.seconds
    assert chat().decode.seconds - before == pytest.approx(last.seconds, rel=1e-9)


def test_12_a_short_prefill_is_memory_bound_too():
    prefill = reasoning().prefill
    assert prefill.flops / PEAK == pytest.approx(2.83e-3, rel=2e-3)
    assert prefill.linear.seconds == weights() / BANDWIDTH == pytest.approx(4.48e-3, rel=1e-3)
    assert prefill.seconds > 1.5 * prefill.flops / PEAK


def test_13_activations_are_left_out_and_that_is_said():
    prefill = chat().prefill
    assert prefill.bytes == weights() + 1000 * 131_072
    unfused_scores = 32 * 32 * 1000 * 1000 * 2 * 2  # written and read, in bf16
    assert unfused_scores > 0.2 * prefill.bytes
    assert any("Left out: unfused activations" in line for line in chat().assumptions())


def test_14_the_peak_is_the_dense_one_of_the_dtype_used():
    assert server().peak == PEAK
    sparse = chat(accelerator=replace(h100(), peaks={"bf16": 2 * PEAK}))
    vector = chat(accelerator=replace(h100(), peaks={"bf16": 6.7e12}))  # fp32 without tensor cores, sold as a peak
    assert sparse.prefill.linear.seconds < 0.6 * chat().prefill.linear.seconds
    assert vector.prefill.linear.seconds > 140 * chat().prefill.linear.seconds
    assert (Efficiency().mfu, Efficiency().mbu, Efficiency().overhead) == (1, 1, 0)  # no factor that was fitted
    with pytest.raises(UnknownNameError, match="no fp32 peak"):
        server(dtype="fp32")
    old = Accelerator(name="old", memory=1e12, bandwidth=1e12, peaks={"fp16": 1e14, "int8": 2e14})
    assert server(accelerator=old).peak == 1e14  # its only 16-bit peak, and the cost says so
    assert "bf16 weights are multiplied in fp16: old has no bf16 peak." in chat(accelerator=old).assumptions()
    with pytest.raises(UnknownNameError, match="no bf16 peak"):  # a card without bf16 borrows no other where it is told
        server(accelerator=old, dtype=Precision(compute="bf16"))


@pytest.mark.parametrize("devices", [4, 8])
def test_15_tensor_parallelism_is_in_the_time_as_well_as_in_the_memory(devices):
    alone, group = reasoning(), reasoning(devices=devices)
    assert server(devices=devices).memory_available == devices * server().memory_available
    work = group.decode.seconds - group.decode.communication
    assert work == pytest.approx(alone.decode.seconds / devices, rel=1e-12)
    assert group.decode.communication > 0 and group.prefill.communication > 0
    assert alone.decode.seconds / devices < group.decode.seconds < alone.decode.seconds


def test_16_what_fits_is_tested_at_prompt_and_output():
    prompt_only = server().memory_needed(200.0, 32)
    assert prompt_only == pytest.approx(17e9, rel=0.01) and prompt_only < server().memory_available
    with pytest.raises(DoesNotFitError, match=r"needs 100\.8 GB"):
        reasoning(batch=32)
    assert server().memory_needed(20_200.0, 32) == pytest.approx(100.8e9, rel=1e-3)


def test_17_the_cache_holds_keys_and_values_with_the_head_dim_of_the_config():
    keys_only = 32 * 8 * 128 * 2
    assert llama().cache_bytes(1) == 2 * keys_only
    small = catalogue.load_model("qwen3-0.6b")
    config = catalogue.model_config("qwen3-0.6b")
    quotient = config["hidden_size"] // config["num_attention_heads"]
    assert (config["head_dim"], quotient) == (128, 64)
    assert small.cache_bytes(1) == 28 * 8 * 2 * 128 * 2 == 2 * (28 * 8 * 2 * quotient * 2)


def test_18_a_batch_reads_more_experts_than_one_token_does():
    model = mixtral_8x7b()
    top_two, found = weights(model=model, accelerator=device()), pass_cost(server(model, device()), 1, 1, batch=32)
    assert top_two == pytest.approx(25.5e9, rel=2e-3)
    assert found.linear.bytes == pytest.approx(93e9, rel=2e-3)
    every_expert = 2 * (model.parameters - 32_000 * 4096)
    assert top_two < found.linear.bytes < every_expert


def test_19_a_window_is_neither_ignored_nor_scaled_nor_one_too_long():
    windowed, full = gqa_model(layers=4, window=4096), gqa_model(layers=4)
    token = full.cache_bytes(1)
    for context in (8192, 20_000):
        step = pass_cost(server(windowed), 1, context)
        assert step.cache_read == token * 4095
        assert pass_cost(server(full), 1, context).cache_read >= 2 * step.cache_read  # ignored
        assert token * 4096 != step.cache_read  # a window of 4,097 tokens
        assert (
            windowed.cache_bytes(context) == token * 4096 != windowed.cache_bytes(1) * context
        )  # scaled from one token
    assert pass_cost(server(windowed), 1, 4095).cache_read == token * 4095
    assert windowed.cache_bytes(1) == full.cache_bytes(1)
    half_and_half = gpt_oss(24, 32)  # by kind of layer: 12 of 24 slide
    assert half_and_half.cache_bytes(10_000) == 12 * 2048 * (10_000 + 128)


def test_20_a_tied_head_still_runs():
    """Llama-3.2-1B to Qwen2.5-0.5B: 12 to 28 % of a step's FLOPs are the head's."""
    model = qwen25_05b()
    step = pass_cost(server(model), 1, 1)
    head = 2 * 151_936 * 896
    assert head / step.flops == pytest.approx(0.276, abs=0.002)
    assert step.linear.flops == 2 * model.block_matmul_weights + head


# Names that are fine-tunes of one another, and so have one and the same shape. Any other pair would be an alias.
SAME_SHAPE = {
    frozenset({"deepseek-r1", "deepseek-v3"}),
    frozenset({"deepseek-r1-distill-llama-8b", "llama-3.1-8b"}),
    frozenset({"deepseek-r1-distill-llama-70b", "llama-3.1-70b"}),
    frozenset({"deepseek-r1-distill-qwen-7b", "qwen2-7b", "qwen2.5-7b"}),
    frozenset({"deepseek-r1-distill-qwen-32b", "qwen2.5-32b"}),
}


def test_21_no_two_names_load_the_same_model():
    names = catalogue.model_names()
    hub_ids = [catalogue.model_record(name)["hub_id"] for name in names]
    assert len(set(hub_ids)) == len(names)
    shapes: dict[Model, set[str]] = {}
    for name in names:
        model = catalogue.load_model(name)
        assert model.parameters == catalogue.model_record(name)["parameters"]
        shapes.setdefault(replace(model, name="", defaults_used=()), set()).add(name)
    assert {frozenset(group) for group in shapes.values() if len(group) > 1} == SAME_SHAPE


# More of the same family


def test_one_roof_over_all_kinds_of_layer_is_too_low():
    """MiMo-V2-Flash's two kinds under a pass of 24 tokens: full layers are compute bound, sliding ones are not."""
    sizes = {"width": 4096, "heads": 64, "head_dim": 192, "value_dim": 128}
    full = GroupedQueryAttention(**sizes, kv_heads=4)
    sliding = GroupedQueryAttention(**sizes, kv_heads=8, window=128)
    ffn = DenseFeedForward(width=4096, inner=2048)
    cost = pass_cost(server(assembled("toy", 4096, 100, ((9, full, ffn), (39, sliding, ffn)))), 24, 8000)
    one_roof = max(cost.attention.flops / PEAK, cost.attention.bytes / BANDWIDTH)
    assert one_roof < 0.99 * cost.attention.seconds


def test_one_precision_for_all_parts_halves_gpt_oss():
    model = gpt_oss(24, 32)
    all_parts = (model.active_parameters - model.embedding_weights) / 2  # four bits for all that a token uses
    experts_only = weights(model=model, dtype=Precision("bf16", experts="mxfp4"))
    assert all_parts == pytest.approx(1.80e9, rel=5e-3)
    assert all_parts / experts_only == pytest.approx(0.49, abs=0.005)


def test_constant_state_is_not_free():
    deployment = server(qwen3_next(), device())
    step = pass_cost(deployment, 1, 1000, batch=8)
    assert step.state_bytes > 8 * 150.9e6 / 2  # in bf16
    assert step.attention.bytes == step.cache_read + step.cache_write + step.state_bytes
    held = deployment.memory_needed(1.0, 8) - deployment.weight_bytes
    assert held == pytest.approx(8 * (qwen3_next().state_bytes() + qwen3_next().cache_bytes(1)), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, float])
def test_ten_million_tokens_do_not_wrap(dtype):
    roomy = server(replace(llama(), max_positions=None), device())
    tokens = 10_000_000
    spans = tokens * (tokens - 1) + tokens * (tokens - 1) // 2
    flops = 4 * 32 * 32 * 128 * spans
    assert flops > 2**63
    alone = request_cost(roomy, Request(tokens, tokens)).decode.attention.flops
    array = request_cost(roomy, Request(np.array([tokens], dtype), np.array([tokens], dtype))).decode.attention.flops
    assert array[0] == alone == pytest.approx(flops, rel=1e-15)


def test_a_gated_feed_forward_is_not_guessed_from_its_width():
    """Llama-2's inner width is 2.69 times its width, Qwen2.5's 5.3: both are gated, with three matrices."""
    for name, gated_parameters in (("llama-2-7b", 6_738_415_616), ("qwen2.5-7b", 7_615_616_512)):
        model = catalogue.load_model(name)
        assert model.parameters == gated_parameters
        assert all(block.feedforward.gated for _, block in model.blocks)


def test_the_code_that_a_config_names_is_never_run(tmp_path, monkeypatch):
    (tmp_path / "modeling_trap.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = catalogue.model_config("llama-3.1-8b")
    config |= {"auto_map": {"AutoModelForCausalLM": "modeling_trap.Trap"}, "trust_remote_code": True}
    try:
        model = Model.from_config(config)
    except LessonError as error:
        assert "auto_map" in str(error) or "trust_remote_code" in str(error)
    else:
        assert model.parameters == 8_030_261_248


def test_an_error_that_short_answers_hide_shows_in_long_ones():
    """A cache of four times its size moves a chat by 4 %, within a loose tolerance, and 20,000 tokens by 130 %."""

    def with_error(cost):
        return cost.decode.seconds + 3 * (cost.decode.cache_read + cost.decode.cache_write) / BANDWIDTH

    assert 1.02 < with_error(chat()) / chat().decode.seconds < 1.10
    assert with_error(reasoning()) / reasoning().decode.seconds > 1.2
    long = request_cost(server(), Request(200, 6_000))
    loop = math.fsum(pass_cost(server(), 1, 200 + k - 1).seconds for k in range(1, 6_000))
    assert with_error(long) / loop > 1.05
    assert long.decode.seconds == pytest.approx(loop, rel=1e-12)
