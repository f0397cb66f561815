"""What a batch pays for: each closed form against a plain count of its own, the lesson's figures, and bad input."""

import math

import numpy as np
import pytest
from helpers import deepseek_v3, device, gqa_model, qwen3_30b_a3b, qwen3_next, server
from hypothesis import given
from hypothesis import strategies as st

from lessonlib.base.errors import DoesNotFitError, InvalidInputError
from lessonlib.policy.batching import (
    SteadyState,
    intensities,
    memory_batch,
    mixed_pass,
    output_token_in_prompt_tokens,
    parallel_thoughts,
    prefill_share,
    price_of_request,
    steady_state,
)
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Efficiency, Speculation
from lessonlib.time.roofline import pass_cost

CHAT, REASONING = Request(1024, 128), Request(128, 12_800)


def mean_step(deployment, request, batch):
    """The mean over an answer of a step in which all sequences have the same context: a plain loop of passes."""
    steps = range(request.output - 1)
    return math.fsum(pass_cost(deployment, 1, request.prompt + k, batch).seconds for k in steps) / len(steps)


# ---- memory


@pytest.mark.parametrize(("request_", "batch"), [(CHAT, 370), (REASONING, 33)], ids=["chat", "reasoning"])
def test_the_lessons_memory_limits(request_, batch):
    assert memory_batch(server(), request_) == batch


def test_memory_in_steady_state_holds_half_an_answer_for_each():
    deployment = server()
    each = 131_072 * (128 + 6400)
    assert memory_batch(deployment, REASONING, steady=True) == int(deployment.memory_free // each) == 65


def test_blocks_round_each_sequence_up():
    deployment = server()
    request = Request(100, 1)  # 101 tokens are 7 blocks of 16
    assert memory_batch(deployment, request, block=16) == int(deployment.memory_free // (131_072 * 112))
    assert memory_batch(deployment, request, block=1) == int(deployment.memory_free // (131_072 * 101))


def test_nothing_fits():
    assert memory_batch(server(deepseek_v3()), CHAT) == 0


# ---- steady state


@pytest.mark.parametrize("model", [None, gqa_model(window=40), qwen3_next(), qwen3_30b_a3b()], ids=str)
@pytest.mark.parametrize("batch", [1, 7])
def test_a_steady_step_is_the_mean_of_the_steps_of_an_answer(model, batch):
    deployment = server(model, device(), efficiency=Efficiency(0.5, 0.8, 1e-3))
    request = Request(30, 50)
    state = steady_state(deployment, request, batch)
    assert state.step == pytest.approx(mean_step(deployment, request, batch), rel=1e-12)
    assert state.prefill == pytest.approx(pass_cost(deployment, 30).seconds, rel=1e-12)
    assert state.period == pytest.approx(batch * state.prefill + 49 * state.step, rel=1e-14)
    assert state.tokens_per_second == pytest.approx(batch * 50 / state.period, rel=1e-14)
    assert state.seconds_per_request == pytest.approx(state.period / batch, rel=1e-14)


def test_at_batch_1_steady_is_one_request_after_another():
    state = steady_state(server(), CHAT, 1)
    assert state.period == pytest.approx(request_cost(server(), CHAT).seconds, rel=1e-12)


def test_one_output_token_has_no_step():
    state = steady_state(server(), Request(100, 1), 4)
    assert (state.step > 0, state.steps, math.isnan(state.tpot)) == (True, 0, True)
    assert state.period == pytest.approx(4 * request_cost(server(), Request(100, 1)).seconds)


def test_a_steady_batch_must_fit():
    with pytest.raises(DoesNotFitError, match="batch=33"):
        steady_state(server(), REASONING, 34)


# ---- mixed passes


def test_mixing_makes_chats_prefill_marginal_at_batch_32_and_saves_reads_of_the_head_at_its_limit():
    assert prefill_share(server(), CHAT, 32) == pytest.approx(0.39, abs=0.005)
    assert prefill_share(server(), CHAT, 32, mixed=True) == pytest.approx(0.012, abs=0.0005)
    alone, mixed = (steady_state(server(), CHAT, 370, mixed=m).tokens_per_second for m in (False, True))
    head = 2 * 128_256 * 4096  # bytes, and FLOPs of one position: alone a prompt reads it, mixed it computes
    spared = 370 * head * (1 / 3.35e12 - 1 / 989e12)
    assert 370 * 128 / alone - 370 * 128 / mixed == pytest.approx(spared, rel=1e-9)
    assert mixed / alone == pytest.approx(1.0142, abs=5e-5)


def test_a_mixed_pass_by_hand():
    """b decode tokens and b n / (n_out - 1) prompt tokens under the linear roofs; each attention under its own."""
    deployment, n, output, b = server(), 1024, 128, 32
    begun = b / (output - 1)
    tokens = b + begun * n
    p_block, head = deployment.model.block_matmul_weights, deployment.model.head_weights
    linear = max(2 * tokens * p_block / 989e12, (15_009_849_344 - 2 * head) / 3.35e12)
    linear += max(2 * (b + begun) * head / 989e12, 2 * head / 3.35e12)
    prompt_pairs = n * (n + 1) / 2
    prompt = begun * max(524_288 * prompt_pairs / 989e12, 131_072 * n / 3.35e12)
    mean_span = math.fsum(n + k for k in range(1, output)) / (output - 1)
    decode = b * 131_072 * mean_span / 3.35e12
    assert mixed_pass(deployment, CHAT, b) == pytest.approx(linear + prompt + decode, rel=1e-12)


@given(st.integers(1, 400), st.integers(2, 400), st.integers(1, 64))
def test_mixing_never_costs_time(prompt, output, batch):
    deployment, request = server(accelerator=device()), Request(prompt, output)
    mixed = steady_state(deployment, request, batch, mixed=True).period
    assert mixed <= steady_state(deployment, request, batch).period * (1 + 1e-12)


def test_a_cached_prefix_is_not_prefilled_when_mixed():
    asked = Request(1024, 128, cached=1000)
    assert mixed_pass(server(), asked, 32) < mixed_pass(server(), CHAT, 32)


# ---- thoughts and prices


def test_sixteen_parallel_thoughts_cost_1_81_times_one():
    assert parallel_thoughts(server(), REASONING, 16) == pytest.approx(1.81, abs=0.005)
    assert parallel_thoughts(server(), REASONING, 1) == 1


@pytest.mark.parametrize(
    ("request_", "batch", "price"),
    [(CHAT, 1, 307.9), (CHAT, 370, 3.930), (REASONING, 33, 26.63)],
    ids=["1", "chat", "reasoning"],
)
def test_the_price_of_an_output_token(request_, batch, price):
    found = output_token_in_prompt_tokens(server(), request_, batch)
    assert found == pytest.approx(price, rel=0.01)
    cost = request_cost(server(), request_, batch)
    one_prompt_token = pass_cost(server(), 1024).seconds / 1024
    assert found == pytest.approx(cost.decode.seconds / (request_.output - 1) / batch / one_prompt_token, rel=1e-12)


def test_price_of_a_request_is_its_share_of_the_devices_hours():
    pair = server(devices=2)
    cost = request_cost(pair, REASONING, 8)
    assert price_of_request(pair, REASONING, 8, 2.5) == pytest.approx(cost.seconds / 8 * 2 * 2.5 / 3600, rel=1e-14)


# ---- intensity


def test_batching_raises_the_linear_layers_and_never_attention():
    batch = np.array([1, 32, 296])
    found = intensities(server(), 1000, batch)
    assert found["GQA"] == pytest.approx([4, 4, 4])
    assert found["linear layers"] == pytest.approx(batch, rel=1e-3)  # 2 FLOP for 2 bytes, times the batch


def test_mla_stands_far_above_gqa():
    found = intensities(server(deepseek_v3(), device()), 10_000, [1])
    assert found["MLA"][0] == pytest.approx(278_528 / (576 * 2), rel=1e-9)  # 242 FLOP/byte


def test_constant_state_has_an_intensity_of_its_own():
    found = intensities(server(qwen3_next(), device()), 100, [1, 8])
    state, kept = 32 * 128 * 128, 3 * (2 * 16 * 128 + 32 * 128)  # numbers, two bytes each, read and written once a pass
    by_hand = 6 * state / (2 * 2 * (state + kept))
    assert found["gated delta rule"][0] == found["gated delta rule"][1] == pytest.approx(by_hand, rel=1e-14)


# ---- bad input


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: memory_batch(server(), Request([1, 2], 3)), "memory_batch: request"),
        (lambda: memory_batch(server(), CHAT, block=0), "block is 0"),
        (lambda: steady_state(server(), CHAT, 0), "batch is 0"),
        (lambda: steady_state(server(), CHAT, 1.5), "batch is 1.5"),
        (lambda: steady_state(server(), Request([1], 2), 1), "steady_state: request"),
        (lambda: mixed_pass(server(), Request(100, 1), 4), "one output token"),
        (lambda: mixed_pass(server(), CHAT, -1), "batch is -1"),
        (lambda: mixed_pass(server(speculation=Speculation(2, 0.5, "free")), CHAT, 1), "mixed_pass: deployment"),
        (lambda: steady_state(server(speculation=Speculation(2, 0.5, "free")), CHAT, 1), "steady_state: deployment"),
        (lambda: parallel_thoughts(server(), CHAT, 0), "thoughts is 0"),
        (lambda: output_token_in_prompt_tokens(server(), CHAT, 1, prompt=0), "prompt is 0"),
        (lambda: price_of_request(server(), CHAT, 1, 0), "price_per_hour is 0"),
        (lambda: price_of_request(server(), CHAT, 1, math.nan), "price_per_hour is nan"),
        (lambda: intensities(server(), 0, [1]), "context is 0"),
        (lambda: intensities(server(), 10, [0.5]), "batch"),
    ],
)
def test_bad_input_is_refused_by_name(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()


def test_a_steady_state_is_plain_numbers():
    state = SteadyState(batch=2, step=0.5, prefill=1.0, steps=3, output=4)
    assert (state.period, state.tokens_per_second, state.tpot) == (3.5, 8 / 3.5, 3.5 / 3)
