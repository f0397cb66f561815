"""What a batch pays for: each closed form against a plain count of its own, the lesson's figures, and bad input."""

import math

import numpy as np
import pytest
from helpers import deepseek_v3, device, qwen3_next, server

from lessonlib.base.errors import InvalidInputError
from lessonlib.policy.batching import (
    intensities,
    output_token_in_prompt_tokens,
    parallel_thoughts,
    price_of_request,
)
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.roofline import pass_cost

CHAT, REASONING = Request(1024, 128), Request(128, 12_800)


# ---- thoughts and prices


def test_sixteen_parallel_thoughts_cost_1_81_times_one():
    assert parallel_thoughts(server(), REASONING, 16) == pytest.approx(1.81, abs=0.005)
    assert parallel_thoughts(server(), REASONING, 1) == 1


@pytest.mark.parametrize(
    ("request_", "batch", "price"), [(CHAT, 1, 308), (CHAT, 370, 3.95), (REASONING, 65, 22.1)], ids=str
)
def test_the_price_of_an_output_token(request_, batch, price):
    """Past what fits when all start together, too: a full server holds 65 reasoning requests in 80 GB."""
    found = output_token_in_prompt_tokens(server(), request_, batch)
    assert found == pytest.approx(price, rel=0.01)
    steps = range(request_.prompt, request_.prompt + request_.output - 1)
    decode = math.fsum(pass_cost(server(), 1, cached, batch).seconds for cached in steps)
    one_prompt_token = pass_cost(server(), 1024).seconds / 1024
    assert found == pytest.approx(decode / len(steps) / batch / one_prompt_token, rel=1e-9)


def test_price_of_a_request_is_its_share_of_the_devices_hours():
    pair = server(devices=2)
    alone, eight = request_cost(pair, REASONING), request_cost(pair, REASONING, 8)
    seconds = alone.prefill.seconds + eight.decode.seconds / 8
    assert price_of_request(pair, REASONING, 8, 2.5) == pytest.approx(seconds * 2 * 2.5 / 3600, rel=1e-14)


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
