"""A full server: the table of the lesson, each term against a plain loop, Little's law, latency targets, bad input."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import deepseek_v3, device, gqa_model, h100, qwen3_30b_a3b, qwen3_next, refuses, server
from hypothesis import given
from hypothesis import strategies as st

from lessonlib.base.errors import DoesNotFitError, InvalidInputError
from lessonlib.policy.estimates import chi, omega, roof_batch
from lessonlib.policy.full_server import at_latency, mean_slot_bytes, memory_batch, mixed_pass, steady_state
from lessonlib.policy.mix import price
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment, Efficiency, Speculation
from lessonlib.time.roofline import pass_cost

MEANS = {
    "chat": Request(1155, 211),
    "reasoning": Request(128, 12_800),
    "production": Request(1268, 1527),
    "agent": Request(122_317, 440, 117_804),
}
CHAT, REASONING = Request(1024, 128), MEANS["reasoning"]


def lessons(**changes) -> Deployment:
    """Llama-3.1-8B in bf16 on an H100 with the bytes that its driver reports."""
    return server(accelerator=replace(h100(), memory=85_520_809_984.0), **changes)


def by_a_loop(deployment, request, batch):
    """GPU seconds of one request: its prompt by itself, then its share of each step, one pass after another."""
    prefill = pass_cost(deployment, request.prompt - request.cached, request.cached).seconds
    steps = range(request.prompt, request.prompt + request.output - 1)
    return prefill, math.fsum(pass_cost(deployment, 1, cached, batch).seconds for cached in steps) / batch


# ---- the table of the lesson


@pytest.mark.parametrize(
    ("name", "batch", "shares", "seconds", "wait", "tpot"),
    [
        ("chat", 368, (55.6, 10.4, 33.9), 0.0305, 11.2, 53.4),
        ("reasoning", 71, (0.110, 19.8, 80.1), 4.08, 290, 22.6),
        ("production", 228, (11.0, 17.6, 71.4), 0.170, 38.7, 25.4),
        ("agent", 3, (11.3, 21.1, 67.6), 3.11, 9.3, 20.5),
    ],
)
def test_a_full_server_of_the_lessons_means(name, batch, shares, seconds, wait, tpot):
    full = steady_state(lessons(), MEANS[name])
    assert full.batch == batch == memory_batch(lessons(), MEANS[name])
    for part, share in zip(("prefill", "linear", "attention"), shares, strict=True):
        assert 100 * full.shares[part] == pytest.approx(share, rel=5e-3)
    assert full.seconds_per_request == pytest.approx(seconds, rel=5e-3)
    assert full.wait == pytest.approx(wait, rel=5e-3)
    assert 1e3 * full.tpot == pytest.approx(tpot, rel=5e-3)


@pytest.mark.parametrize(
    ("request_", "seconds", "share"),
    [
        (CHAT, 0.5895, 97.45),
        (REASONING, 60.62, 99.993),
        (Request(208, 792), 3.567, 99.87),
        (Request(103_647, 216, 103_647 - 728), 1.887, 97.3),
    ],
    ids=["chat", "reasoning", "production", "agent"],
)
def test_one_request_alone_of_the_lessons_medians(request_, seconds, share):
    cost = request_cost(lessons(), request_)
    assert cost.seconds == pytest.approx(seconds, rel=6e-4)
    assert 100 * cost.decode_share == pytest.approx(share, rel=6e-4)


@pytest.mark.parametrize(
    ("name", "reads", "full"),
    [("chat", 0.50, 0.12), ("production", 2.9, 0.71), ("reasoning", 17, 4.1), ("agent", 28, 6.9)],
)
def test_chi_and_omega_of_the_lesson(name, reads, full):
    assert chi(lessons(), MEANS[name]) == pytest.approx(reads, rel=0.03)
    assert omega(lessons(), MEANS[name]) == pytest.approx(full, rel=0.04)


def test_chi_is_1_at_388_tokens_of_decode_alone():
    below, above = (chi(lessons(), Request(1, 2 * span - 2)) for span in (387, 388))
    assert below * 773 / 772 < 1 < above * 775 / 774


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_omega_is_chis_corollary(prompt, output):
    """chi x 2 P / M, and the roof batch over M / (K s); windows and sparse layers apart."""
    deployment, request = lessons(), Request(prompt, output, prompt // 3)
    used = deployment.model.block_matmul_weights + deployment.model.head_weights
    span = prompt + output / 2
    assert omega(deployment, request) == pytest.approx(
        chi(deployment, request) * 2 * used / deployment.memory_free, rel=1e-12
    )
    assert omega(deployment, request) == pytest.approx(
        roof_batch(deployment, request) / (deployment.memory_free / (131_072 * span)), rel=1e-12
    )


@pytest.mark.parametrize("layout", ["tensor", "expert"])
def test_chi_does_not_depend_on_the_number_of_devices(layout):
    one, four = (server(qwen3_30b_a3b(), device(), devices=n, layout=layout) for n in (1, 4))
    routers = 4 * 48 * 2048 * 128 if layout == "tensor" else 48 * 2048 * 128  # tensor parallelism copies them
    used = one.model.block_matmul_weights + one.model.head_weights
    expected = chi(one, REASONING) * used / (used - 48 * 2048 * 128 + routers)
    assert chi(four, REASONING) == pytest.approx(expected, rel=1e-9)


def test_int4_weights_leave_chi_as_it_is_and_a_window_ends_its_growth():
    assert chi(server(dtype="int4"), REASONING) == chi(server(), REASONING)
    short, long = (chi(server(gqa_model(window=40), device()), Request(30, n)) for n in (1000, 100_000))
    assert long == pytest.approx(short, rel=0.04)


def test_of_a_mixture_of_experts_the_roof_batch_counts_what_a_pass_reads():
    deployment = server(qwen3_30b_a3b(), device(bandwidth=3.35e12, peaks={"bf16": 989e12}))
    used = deployment.model.block_matmul_weights
    read = used + 48 * (128 - 8) * 3 * 2048 * 768
    assert roof_batch(deployment, Request(1, 10**9)) == pytest.approx(989e12 / 3.35e12 * read / used, rel=1e-6)


# ---- memory


def test_memory_holds_each_request_in_the_middle_of_its_answer():
    deployment = lessons()
    assert memory_batch(deployment, REASONING) == int(deployment.memory_free // (131_072 * (128 + 6400))) == 71
    odd = Request(100, 3)  # two more tokens than the prompt in the middle: (3 + 1) // 2
    assert memory_batch(deployment, odd) == int(deployment.memory_free // (131_072 * 102))


def test_pages_round_each_sequence_up():
    deployment = server()
    request = Request(100, 1)  # 101 tokens are 7 pages of 16
    assert memory_batch(deployment, request, page=16) == int(deployment.memory_free // (131_072 * 112))
    assert memory_batch(deployment, request) == int(deployment.memory_free // (131_072 * 101))
    assert steady_state(deployment, request, page=16).batch == memory_batch(deployment, request, page=16)


def test_nothing_fits():
    assert memory_batch(server(deepseek_v3()), CHAT) == 0
    with pytest.raises(DoesNotFitError):
        steady_state(server(deepseek_v3()), CHAT)


def test_any_batch_that_fits_is_taken_and_one_more_is_refused_with_the_number():
    for batch in (1, 33, 34, 71):
        assert steady_state(lessons(), REASONING, batch).batch == batch
    refuses(lambda: steady_state(lessons(), REASONING, 72), "batch=71", kind=DoesNotFitError)


def test_a_mix_of_requests_all_alike_holds_as_many_as_one_kind():
    for request in MEANS.values():
        many = Request(np.full(5, request.prompt), np.full(5, request.output), np.full(5, request.cached))
        assert memory_batch(lessons(), many) == memory_batch(lessons(), request)
        for of in (chi, omega, roof_batch):
            assert of(lessons(), many, mix=True) == pytest.approx(of(lessons(), request), rel=1e-12)


def test_a_slot_is_weighted_by_the_steps_that_it_is_taken_for():
    mix = Request([1000, 100], [10, 990])
    by_hand = 131_072 * (10 * 1005 + 990 * 595) / 1000
    assert mean_slot_bytes(server(), mix) == pytest.approx(by_hand, rel=1e-14)
    span = (10 * 1005 + 990 * 595) / 1000  # the length-weighted span decides a mix
    reading, computing = 131_072 * span / 3.35e12 * 1000, 2 * 7_504_658_432 / 989e12 * 2100
    assert chi(server(), mix, mix=True) == pytest.approx(reading / computing, rel=1e-9)


# ---- GPU seconds, wait and TPOT


@pytest.mark.parametrize("model", [None, gqa_model(window=40), qwen3_next(), qwen3_30b_a3b()], ids=str)
@pytest.mark.parametrize("batch", [1, 7])
def test_a_request_costs_its_own_prefill_and_its_share_of_the_steps(model, batch):
    deployment = server(model, device(), efficiency=Efficiency(0.5, 0.8, 1e-3))
    request = Request(30, 50)
    state = steady_state(deployment, request, batch)
    prefill, decode = by_a_loop(deployment, request, batch)
    assert state.parts["prefill"] == state.ttft == pytest.approx(prefill, rel=1e-12)
    assert state.parts["linear"] + state.parts["attention"] == pytest.approx(decode, rel=1e-12)
    assert state.seconds_per_request == pytest.approx(prefill + decode, rel=1e-12)
    assert state.wait == pytest.approx(batch * (prefill + decode), rel=1e-12)
    assert state.tpot == pytest.approx((state.wait - prefill) / 49, rel=1e-12)
    assert state.tokens_per_second == pytest.approx(50 / (prefill + decode), rel=1e-12)
    assert sum(state.shares.values()) == pytest.approx(1, rel=1e-14)
    assert state.step == pytest.approx(decode * batch / 49, rel=1e-12)


def test_at_batch_1_steady_is_one_request_after_another():
    state, cost = steady_state(server(), CHAT, 1), request_cost(server(), CHAT)
    assert state.wait == pytest.approx(cost.seconds, rel=1e-12)
    assert state.tpot == pytest.approx(cost.tpot, rel=1e-12)


def test_one_output_token_has_no_step():
    state = steady_state(server(), Request(100, 1), 4)
    assert math.isnan(state.tpot) and math.isnan(state.step)
    assert state.wait == pytest.approx(4 * request_cost(server(), Request(100, 1)).seconds)
    assert state.parts["linear"] == state.parts["attention"] == 0


def test_speculation_is_priced_by_its_rounds():
    deployment = server(speculation=Speculation(3, 0.7, gqa_model(width=64)))
    state, cost = steady_state(deployment, CHAT, 8), request_cost(deployment, CHAT, 8)
    assert state.seconds_per_request == pytest.approx(
        request_cost(deployment, CHAT).prefill.seconds + cost.decode.seconds / 8, rel=1e-12
    )


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 60))
def test_littles_law_and_more_users_never_wait_less(prompt, output, batch):
    request = Request(prompt, output)
    one, more = (steady_state(server(accelerator=device()), request, b) for b in (batch, batch + 1))
    assert one.wait == one.batch * one.seconds_per_request < more.wait
    assert more.seconds_per_request <= one.seconds_per_request * (1 + 1e-12)


def test_devices_with_sequences_of_their_own_prefill_a_prompt_each():
    deployment = server(qwen3_30b_a3b(), device(), devices=4, layout="expert")
    request = Request(3000, 100)
    together = request_cost(deployment, request, 4)
    state = steady_state(deployment, request, 64)
    assert state.ttft == pytest.approx(together.prefill.seconds, rel=1e-12)
    assert state.parts["prefill"] == pytest.approx(together.prefill.seconds / 4, rel=1e-12)
    assert state.tpot == pytest.approx((state.wait - state.ttft) / 99, rel=1e-12)
    many = Request(np.full(3, 3000), np.full(3, 100))
    assert price(deployment, many, 64).seconds / 3 == pytest.approx(state.seconds_per_request, rel=1e-12)
    assert price(deployment, many, 64).tpot == pytest.approx(state.tpot, rel=1e-12)
    mixed = steady_state(deployment, request, 64, mixed=True)
    assert mixed.seconds_per_request <= state.seconds_per_request * (1 + 1e-12)


# ---- mixed passes


def test_mixing_makes_chats_prefill_marginal_at_batch_32_and_spares_reads_of_the_head_at_its_limit():
    assert steady_state(server(), CHAT, 32).shares["prefill"] == pytest.approx(0.39, abs=0.006)
    assert steady_state(server(), CHAT, 32, mixed=True).shares["prefill"] == pytest.approx(0.012, abs=0.0015)
    alone, mixed = (steady_state(server(), CHAT, 370, mixed=m).seconds_per_request for m in (False, True))
    head = 2 * 128_256 * 4096  # bytes, and FLOPs of one position: alone a prompt reads it, mixed it computes
    assert alone - mixed == pytest.approx(head * (1 / 3.35e12 - 1 / 989e12), rel=1e-9)


def test_a_mixed_pass_by_hand():
    """b decode tokens and b n / (n_out - 1) prompt tokens under the same linear roofs; each attention under its own."""
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
    mixed = steady_state(deployment, request, batch, mixed=True)
    assert mixed.wait <= steady_state(deployment, request, batch).wait * (1 + 1e-12)
    assert mixed.tpot == pytest.approx(mixed_pass(deployment, request, batch), rel=1e-9)


def test_a_cached_prefix_is_not_prefilled_when_mixed():
    asked = Request(1024, 128, cached=1000)
    assert mixed_pass(server(), asked, 32) < mixed_pass(server(), CHAT, 32)


# ---- latency targets


@pytest.mark.parametrize("tpot", [0.01, 0.02, 0.03, 0.05])
@pytest.mark.parametrize("name", ["chat", "production", "agent"])
def test_the_largest_batch_at_a_target_is_that_of_a_plain_search(name, tpot):
    deployment, request = lessons(), MEANS[name]
    batches = range(1, memory_batch(deployment, request) + 1)
    kept = [batch for batch in batches if steady_state(deployment, request, batch).tpot <= tpot]
    if not kept:
        refuses(lambda: at_latency(deployment, request, tpot), "at_latency", "tpot", "one request at a time")
        return
    found = at_latency(deployment, request, tpot)
    assert found.batch == found.state.batch == kept[-1]
    assert found.binds == ("memory" if kept[-1] == batches[-1] else "target")
    assert found.state.tpot <= tpot


def test_memory_binds_reasoning_and_the_target_binds_chat_at_30_ms():
    assert at_latency(lessons(), REASONING)[:2] == (71, "memory")
    chat = at_latency(lessons(), MEANS["chat"])
    assert chat.binds == "target" and chat.batch < 368


@pytest.mark.parametrize("tpot", [0.01, 0.02, 0.03])
def test_the_largest_batch_of_a_mix_is_that_of_a_plain_search(tpot):
    deployment, mix = lessons(), Request([100, 3_000, 40_000], [2_000, 1, 500])
    batches = range(1, memory_batch(deployment, mix) + 1)
    kept = [batch for batch in batches if price(deployment, mix, batch).tpot <= tpot]
    if not kept:
        refuses(lambda: at_latency(deployment, mix, tpot), "at_latency", "tpot", "one request at a time")
        return
    found = at_latency(deployment, mix, tpot)
    assert found.batch == found.state.batch == kept[-1] and found.state.tpot <= tpot
    assert found.binds == ("memory" if kept[-1] == batches[-1] else "target")


def test_a_mix_of_one_kind_keeps_the_batch_of_that_kind():
    one, many = MEANS["chat"], Request([MEANS["chat"].prompt] * 3, MEANS["chat"].output)
    assert at_latency(lessons(), many)[:2] == at_latency(lessons(), one)[:2]


# ---- bad input


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: memory_batch(server(), CHAT, page=0), "page is 0"),
        (lambda: steady_state(server(), CHAT, 0), "batch is 0"),
        (lambda: steady_state(server(), CHAT, 1.5), "batch is 1.5"),
        (lambda: steady_state(server(), Request([1], 2), 1), "steady_state: request"),
        (lambda: steady_state(server(), Request(131_000, 1000)), "positions"),
        (lambda: steady_state(server(), CHAT, mixed=1), "mixed is 1"),
        (lambda: steady_state(server(), Request(100, 1), 4, mixed=True), "one output token"),
        (lambda: mixed_pass(server(), Request(100, 1), 4), "one output token"),
        (lambda: mixed_pass(server(), CHAT, -1), "batch is -1"),
        (lambda: mixed_pass(server(speculation=Speculation(2, 0.5, "free")), CHAT, 1), "mixed_pass: speculation"),
        (lambda: at_latency(server(), CHAT, 0), "tpot is 0"),
        (lambda: at_latency(server(), CHAT, math.nan), "tpot is nan"),
        (lambda: at_latency(server(), Request(100, 1)), "output is 1"),
        (lambda: at_latency(server(), Request([100], [1])), "output is"),
        (lambda: at_latency(server(), Request([100], [10]), mixed=True), "mixed is True"),
        (lambda: chi(server(), Request([0], [1]), mix=True), "chi: request 0"),
        (lambda: omega(server(), CHAT, mix=2), "mix is 2"),
    ],
)
def test_bad_input_is_refused_by_name(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()


@pytest.mark.parametrize("weights_fill", [0.1, 0.3, 0.6, 0.9])
def test_where_weights_fill_the_memory_a_full_server_reads_them_whatever_chi_says(weights_fill):
    """chi over omega is the memory left for caches over the weights that a pass reads; below 1 these are read more."""
    memory = lessons().weight_bytes / weights_fill / 0.9
    machine = server(accelerator=replace(h100(), memory=memory))
    read = pass_cost(machine, 1).linear.bytes
    assert chi(machine, REASONING) > 1  # of no memory
    assert chi(machine, REASONING) / omega(machine, REASONING) == pytest.approx(machine.memory_free / read, rel=0.1)
    parts = steady_state(machine, REASONING).parts
    caches_are_more = chi(machine, REASONING) > omega(machine, REASONING)
    assert caches_are_more == (parts["attention"] > parts["linear"]) == (weights_fill < 0.5)
