"""Levers, Amdahl, the break-even line and elasticities: each against a direct computation of the changed case."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import deepseek_v3, device, gqa_model, h100, qwen3_30b_a3b, refuses, server
from hypothesis import given
from hypothesis import strategies as st

from lessonlib.base.errors import InvalidInputError, LessonError
from lessonlib.model.attention import MultiHeadLatentAttention
from lessonlib.model.precision import Precision
from lessonlib.policy.batching import memory_batch
from lessonlib.policy.levers import (
    Lever,
    batch_to_limit,
    chunked_prefill,
    faster_peak,
    latent_attention,
    more_bandwidth,
    prefix_cache,
    quantised,
    scaled_overhead,
    shorter_answer,
    speculative_decoding,
    tensor_parallel,
)
from lessonlib.policy.sensitivity import break_even_by_rho, break_even_output, elasticities, faster_prefill, gpu_seconds
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Case, Request
from lessonlib.time.deployment import Efficiency, Speculation
from lessonlib.time.roofline import pass_cost

CHAT, REASONING = Request(1024, 128), Request(128, 12_800)
SLOW = server(efficiency=Efficiency(0.5, 0.7, 2e-3))


def changed_server(**changes):
    return server(efficiency=Efficiency(0.5, 0.7, 2e-3), **changes)


DIRECT = {
    "peak": (
        faster_peak(2),
        lambda: (changed_server(accelerator=replace(h100(), peaks={"bf16": 2 * 989e12})), CHAT, 4),
    ),
    "bandwidth": (
        more_bandwidth(3),
        lambda: (changed_server(accelerator=replace(h100(), bandwidth=3 * 3.35e12)), CHAT, 4),
    ),
    "overhead": (scaled_overhead(0), lambda: (server(efficiency=Efficiency(0.5, 0.7, 0.0)), CHAT, 4)),
    "int4 weights": (quantised(blocks="int4"), lambda: (changed_server(dtype=Precision(blocks="int4")), CHAT, 4)),
    "fp8 weights": (
        quantised(blocks="fp8", experts="fp8"),
        lambda: (changed_server(dtype=Precision(blocks="fp8")), CHAT, 4),
    ),
    "fp8 cache": (quantised(cache="fp8"), lambda: (changed_server(dtype=Precision(cache="fp8")), CHAT, 4)),
    "tensor parallel": (tensor_parallel(4), lambda: (changed_server(devices=4), CHAT, 4)),
    "prefix cache": (prefix_cache(0.9), lambda: (SLOW, Request(1024, 128, cached=921), 4)),
    "whole prefix": (prefix_cache(1.0), lambda: (SLOW, Request(1024, 128, cached=1023), 4)),
    "chunks": (chunked_prefill(256), lambda: (changed_server(prefill_chunk=256), CHAT, 4)),
    "speculation": (
        speculative_decoding(4, 0.7, gqa_model()),
        lambda: (changed_server(speculation=Speculation(4, 0.7, gqa_model())), CHAT, 4),
    ),
    "limit": (batch_to_limit(), lambda: (SLOW, CHAT, 370)),
    "shorter": (shorter_answer(0.3), lambda: (SLOW, Request(1024, 39), 4)),
}


@pytest.mark.parametrize("name", DIRECT)
def test_a_lever_is_the_changed_case(name):
    lever, direct = DIRECT[name]
    expected_deployment, expected_request, expected_batch = direct()
    deployment, request, batch = lever(SLOW, CHAT, 4)
    assert batch == expected_batch
    found = request_cost(deployment, request, batch)
    expected = request_cost(expected_deployment, expected_request, expected_batch)
    assert found.seconds == pytest.approx(expected.seconds, rel=1e-14)
    assert found.flops == expected.flops
    before = request_cost(SLOW, CHAT, 4).seconds / 4
    assert lever.speedup(SLOW, CHAT, 4) == pytest.approx(before / (expected.seconds / expected_batch), rel=1e-12)
    assert isinstance(lever, Lever) and lever.name


def test_the_lessons_speedups():
    def speedups(lever):
        return [round(lever.speedup(server(), REASONING, batch), 2) for batch in (1, 32)]

    assert speedups(quantised(blocks="int4", experts="int4")) == [2.83, 1.32]
    assert speedups(quantised(cache="fp8")) == [1.03, 1.48]
    assert speedups(more_bandwidth(2)) == [2.0, 2.0]


def test_twice_the_bandwidth_with_two_milliseconds_of_overhead():
    slow = server(efficiency=Efficiency(overhead=2e-3))
    assert more_bandwidth(2).speedup(slow, REASONING) == pytest.approx(1.54, abs=0.005)


def test_at_the_limit_a_smaller_cache_buys_a_larger_batch():
    lever = quantised(cache="fp8")
    deployment, request, _ = lever(server(), REASONING, 33)
    assert memory_batch(server(), REASONING) == 33
    after = memory_batch(deployment, request)
    assert after == 66
    by_hand = (request_cost(server(), REASONING, 33).seconds / 33) / (
        request_cost(deployment, request, 66).seconds / 66
    )
    assert lever.speedup_at_limit(server(), REASONING) == pytest.approx(by_hand, rel=1e-12)


def test_latent_attention_by_hand():
    deployment, _, _ = latent_attention(512, 64)(server(), CHAT, 1)
    mixer = deployment.model.mixer_kinds[0][1]
    assert isinstance(mixer, MultiHeadLatentAttention)
    assert deployment.cache_bytes_per_token == 32 * 576 * 2
    assert mixer.pair_flops == 2 * 32 * 576 + 2 * 32 * 512
    assert latent_attention()(server(deepseek_v3(), device()), CHAT, 1).deployment.model.blocks == deepseek_v3().blocks


# ---- speculation


def simulated_tokens_per_round(drafts, acceptance, rounds=200_000):
    random = np.random.default_rng(1)
    accepted = random.random((rounds, drafts)) < acceptance
    return 1 + np.cumprod(accepted, axis=1).sum(axis=1).mean()


@pytest.mark.parametrize(("drafts", "acceptance"), [(1, 0.5), (4, 0.7), (8, 0.9), (3, 0.0), (5, 1.0)])
def test_expected_tokens_of_a_round_against_a_simulation(drafts, acceptance):
    expected = Speculation(drafts, acceptance, "free").tokens_per_round
    assert expected == pytest.approx(simulated_tokens_per_round(drafts, acceptance), rel=5e-3)
    if acceptance < 1:
        assert expected == pytest.approx((1 - acceptance ** (drafts + 1)) / (1 - acceptance), rel=1e-12)


def test_speculation_round_by_round():
    draft = gqa_model(vocabulary=128_256)
    deployment = server(speculation=Speculation(4, 0.7, draft))
    request = Request(1000, 200)
    context = 1000 + (200 - 2) // 2  # the answer's mean context
    verify = pass_cost(server(), 5, context, 3, logits=5)
    drafting = pass_cost(server(draft), 1, context, 3)
    rounds = 199 / Speculation(4, 0.7, "free").tokens_per_round
    found = request_cost(deployment, request, 3).decode
    assert found.seconds == pytest.approx(rounds * (verify.seconds + 4 * drafting.seconds), rel=1e-12)
    assert found.flops == pytest.approx(rounds * (verify.flops + 4 * drafting.flops), rel=1e-12)


def test_speculation_makes_a_mixture_read_more_experts_and_can_lose():
    """Qwen3-30B-A3B at batch 1: five tokens read the experts of five; with free drafts still slower (weights only)."""
    plain = server(qwen3_30b_a3b(), device())
    one, five = pass_cost(plain, 1).linear.bytes, pass_cost(plain, 5, logits=5).linear.bytes
    assert Speculation(4, 0.7, "free").tokens_per_round * one / five == pytest.approx(0.91, abs=0.005)


# ---- Amdahl and the break-even line


def test_amdahl_for_the_two_requests():
    chat, reasoning = request_cost(server(), CHAT), request_cost(server(), REASONING)
    saved = [1 - 1 / faster_prefill(c.prefill.seconds, c.decode.seconds, math.inf) for c in (chat, reasoning)]
    assert saved[0] == pytest.approx(0.02552, abs=5e-6)
    assert saved[1] == pytest.approx(0.000074, abs=5e-7)
    assert faster_prefill(1.0, 2.0, 1) == 1
    assert faster_prefill(1.0, 0.0, math.inf) == math.inf
    assert faster_prefill(1.0, 2.0, [2, math.inf]) == pytest.approx([3 / 2.5, 1.5])
    limit = request_cost(server(), CHAT, 370)
    assert 1 - 1 / faster_prefill(limit.prefill.seconds, limit.decode.seconds, math.inf) == pytest.approx(
        0.67, abs=0.005
    )


@given(st.integers(1, 5000), st.integers(1, 64), st.sampled_from([0.02, 0.05, 0.3]))
def test_the_break_even_output_is_the_first_below_the_share(prompt, batch, share):
    deployment = server(accelerator=replace(h100(), memory=1e15))
    output = break_even_output(deployment, prompt, batch, share)
    shares = [1 - decode_share(deployment, prompt, n, batch) for n in (output - 1, output)]
    assert shares[1] < share <= shares[0]


def decode_share(deployment, prompt, output, batch):
    seconds = gpu_seconds(Case(deployment, Request(prompt, 1), batch))
    return 1 - seconds / gpu_seconds(Case(deployment, Request(prompt, output), batch))


def test_the_line_of_many_prompts_is_each_prompts_own():
    prompts = np.array([1, 128, 318, 1024, 8000])
    line = break_even_output(server(), prompts, 1)
    assert line.tolist() == [break_even_output(server(), int(p), 1) for p in prompts]
    assert line[1] == 20  # a short prompt costs one step, and 20 output tokens make it a twentieth


def test_rho_estimates_the_line_where_prompts_are_compute_bound():
    prompts = np.array([512, 1024, 8000])
    assert break_even_by_rho(server(), prompts) == pytest.approx(break_even_output(server(), prompts), rel=0.06)
    assert break_even_by_rho(server(), 32) < 0.2 * break_even_output(server(), 32)  # under the ridge rho is too low


# ---- elasticities


CASES = [
    (server(), CHAT, 1),
    (server(), CHAT, 370),
    (server(), REASONING, 33),
    (server(devices=4, efficiency=Efficiency(0.6, 0.7, 1e-3)), CHAT, 8),
    (server(qwen3_30b_a3b(), device(), devices=2, prefill_chunk=256), CHAT, 16),
    (server(deepseek_v3(), device(), devices=8, dtype=Precision(cache="fp8")), Request(5000, 100, cached=4000), 3),
    (server(gqa_model(window=50), device(), speculation=Speculation(3, 0.6, gqa_model())), CHAT, 5),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_rates_and_waits_add_up_to_minus_one(case):
    e = elasticities(*case)
    assert e["peak"] + e["bandwidth"] + e["link"] - e["latency"] - e["overhead"] == pytest.approx(-1, abs=1e-6)
    assert all(e[name] <= 1e-12 for name in ("peak", "bandwidth", "link"))
    assert all(e[name] >= -1e-12 for name in ("latency", "overhead", "weight bytes", "cache bytes", "prompt", "output"))


def test_the_lessons_elasticities():
    chat, reasoning = elasticities(server(), CHAT, 370), elasticities(server(), REASONING, 33)
    assert (round(chat["peak"], 3), round(chat["bandwidth"], 3)) == (-0.755, -0.245)
    assert (round(reasoning["peak"], 4), round(reasoning["bandwidth"], 4)) == (-0.0004, -0.9996)


def test_bytes_are_the_memory_bound_shares():
    """At batch 1 the weights' and the cache's elasticities are their shares of the time, all of it memory bound."""
    cost = request_cost(server(), REASONING)
    found = elasticities(server(), REASONING)
    share = (cost.decode.linear.seconds + cost.prefill.linear.seconds) / cost.seconds
    assert found["weight bytes"] == pytest.approx(share, abs=1e-6)
    assert found["weight bytes"] + found["cache bytes"] == pytest.approx(1, abs=1e-4)


def test_prompt_and_output_one_token_either_way():
    found = elasticities(server(), CHAT, 2)
    seconds = {n: request_cost(server(), Request(1024, n), 2).seconds for n in (127, 129)}
    assert found["output"] == pytest.approx(math.log(seconds[129] / seconds[127]) / math.log(129 / 127), rel=1e-9)
    edge = elasticities(server(), Request(1, 1), 1)  # neither can shrink: one side only
    assert all(math.isfinite(value) for value in edge.values())


# ---- bad input


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: quantised(), "quantised: parts"),
        (lambda: quantised(cache="int3")(server(), CHAT, 1), "int3"),
        (lambda: tensor_parallel(3)(server(), CHAT, 1), "32 heads"),
        (lambda: speculative_decoding(0, 0.5, "free"), "draft_tokens"),
        (lambda: speculative_decoding(2, 1.5, "free"), "acceptance"),
        (lambda: speculative_decoding(2, 0.5, "small"), "draft"),
        (lambda: batch_to_limit()(server(deepseek_v3()), CHAT, 1), "deepseek-v3"),
        (lambda: break_even_by_rho(server(), 0), "prompt"),
    ],
)
def test_bad_input_is_refused_by_name(call, name):
    refuses(call, name, kind=LessonError)


def test_arrays_go_through_the_levers_that_change_the_request():
    _, request, _ = prefix_cache(0.5)(server(), Request([2, 9], 4), 1)
    assert request.cached.tolist() == [1, 4]
    _, request, _ = shorter_answer(0.5)(server(), Request(10, [3, 8]), 1)
    assert request.output.tolist() == [2, 4]
    with pytest.raises(InvalidInputError):
        memory_batch(server(), request)
