"""What the policies refuse: growth, batches, levers and elasticities of what cannot be meant."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers import device, gqa_model, llama, qwen3_30b_a3b, refuses, server

from lessonlib.base.errors import LessonError, UnknownNameError
from lessonlib.policy import batching, cache, full_server
from lessonlib.policy.estimates import chi, omega, rho, roof_batch, used_over_read
from lessonlib.policy.levers import faster_peak, quantised, shorter_answer, speculative_decoding
from lessonlib.policy.sensitivity import break_even_output, elasticities, faster_prefill, gpu_seconds
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Case, Request
from lessonlib.time.roofline import pass_cost

pytestmark = pytest.mark.filterwarnings("error")
CHAT = Request(1024, 128)
MASKED = np.ma.array([1, 2], mask=[0, 1])
HIDING = [MASKED, [[1, True]], [np.True_, 2], [np.array([True]), [2]], [np.ma.masked, 2], np.array([True])]

ON_A_DEPLOYMENT = {
    "pass_cost of a step": lambda s: cache.shared_step_seconds(s, 1),
    "cache_by_kind": lambda s: cache.cache_by_kind(s, 1),
    "span_where_cache_passes_weights": cache.span_where_cache_passes_weights,
    "used_over_read": used_over_read,
    "break_even_output": lambda s: break_even_output(s, 1),
    "intensities": lambda s: batching.intensities(s, 1, 1),
}
ON_A_CASE = {
    "steady_attention_seconds": cache.steady_attention_seconds,
    "step_parts": lambda s, r: cache.step_parts(s, r, 1),
    "answer_traffic": cache.answer_traffic,
    "memory_batch": full_server.memory_batch,
    "mean_slot_bytes": full_server.mean_slot_bytes,
    "steady_state": full_server.steady_state,
    "mixed_pass": lambda s, r: full_server.mixed_pass(s, r, 1),
    "at_latency": full_server.at_latency,
    "parallel_thoughts": lambda s, r: batching.parallel_thoughts(s, r, 2),
    "output_token_in_prompt_tokens": lambda s, r: batching.output_token_in_prompt_tokens(s, r, 1),
    "price_of_request": lambda s, r: batching.price_of_request(s, r, 1, 2.0),
    "rho": rho,
    "roof_batch": roof_batch,
    "chi": chi,
    "omega": omega,
    "elasticities": elasticities,
    "Case": lambda s, r: faster_peak(2)(s, r),
    "Case of a speedup": lambda s, r: faster_peak(2).speedup(s, r),
    "Case of a speedup at the limit": lambda s, r: faster_peak(2).speedup_at_limit(s, r),
    "Case of an answer": lambda s, r: shorter_answer(0.5)(s, r),
}


@pytest.mark.parametrize("name", [*ON_A_DEPLOYMENT, *ON_A_CASE])
def test_a_deployment_and_a_request_are_what_they_are_called(name):
    owner = name.partition(" of ")[0]
    for wrong in (None, "server", llama(), CHAT):
        call = ON_A_DEPLOYMENT.get(name) or (lambda wrong: ON_A_CASE[name](wrong, CHAT))
        refuses(lambda call=call, wrong=wrong: call(wrong), f"{owner}: deployment", "Deployment")
    for wrong in (None, (1024, 128), server()):
        if name in ON_A_CASE:
            refuses(lambda wrong=wrong: ON_A_CASE[name](server(), wrong), f"{owner}: request", "Request")


@pytest.mark.parametrize("batch", [-5, 0, 1.5, math.nan, "3", None, True], ids=repr)
def test_a_batch_is_a_count_everywhere(batch):
    moe = server(qwen3_30b_a3b())
    for call in (
        lambda: cache.shared_step_seconds(moe, batch),
        lambda: gpu_seconds(Case(server(), CHAT, batch)),
        lambda: elasticities(server(), CHAT, batch),
        lambda: faster_peak(2)(server(), CHAT, batch),
        lambda: batching.intensities(server(), 5, batch),
    ):
        refuses(call, "batch")


@pytest.mark.parametrize("tokens", [-100, math.nan, math.inf, "3", None, True], ids=repr)
def test_memory_is_of_a_number_of_tokens(tokens):
    for call in (server().memory_needed, server().sequence_bytes):
        refuses(lambda call=call: call(tokens), "Deployment", "tokens")
    refuses(lambda: server().memory_needed(5, tokens), "Deployment", "batch")
    assert server().memory_needed(5, 2) == server().weight_bytes + 10 * 131_072


@pytest.mark.parametrize("hiding", HIDING, ids=repr)
def test_masks_and_flags_are_not_numbers(hiding):
    for call in (
        lambda: Request(hiding, 3),
        lambda: request_cost(server(), CHAT, hiding),
        lambda: llama().cache_bytes(hiding),
        lambda: cache.cache_by_kind(server(), hiding),
        lambda: cache.step_parts(server(), CHAT, hiding),
        lambda: batching.intensities(server(), 5, hiding),
        lambda: faster_prefill(hiding, 1, 2),
        lambda: faster_prefill(1, 1, hiding),
    ):
        refuses(call)


@pytest.mark.parametrize("wrong", ["3", np.array(["2026-01-01"], "datetime64[D]"), {}, [[1], [1, 2]]], ids=repr)
def test_intensities_want_numbers(wrong):
    refuses(lambda: batching.intensities(server(), 5, wrong), "intensities: batch")


@pytest.mark.parametrize("wrong", ["x", 1, 0, None, []], ids=repr)
def test_a_choice_of_two_is_true_or_false(wrong):
    refuses(lambda: full_server.steady_state(server(), CHAT, 1, wrong), "steady_state: mixed")
    refuses(lambda: full_server.at_latency(server(), CHAT, 0.03, wrong), "at_latency: mixed")
    refuses(lambda: chi(server(), CHAT, wrong), "chi: mix")
    refuses(lambda: cache.step_parts(server(), CHAT, 1, together=wrong), "step_parts: together")


def test_a_pass_has_no_more_logits_than_tokens_and_no_more_tokens_than_can_be_counted():
    assert pass_cost(server(), 3, logits=3).linear.flops > pass_cost(server(), 3, logits=2).linear.flops
    refuses(lambda: pass_cost(server(), 1, 0, 1, logits=100), "pass_cost: logits", "100", "1")
    for name in ("new", "cached", "batch"):
        refuses(lambda name=name: pass_cost(server(), **({"new": 1} | {name: 1e200})), f"pass_cost: {name}", "1e+200")


def test_a_cache_is_of_tokens_that_can_be_counted():
    refuses(lambda: cache.cache_by_kind(server(), 1e308), "cache_by_kind: tokens", "1e+308")


# Amdahl


def test_a_speed_up_takes_lists_and_says_what_does_not_go_together():
    assert faster_prefill([1], [3], 2) == pytest.approx([4 / 3.5])
    assert faster_prefill([1, math.nan], 3, 2) == pytest.approx([4 / 3.5, math.nan], nan_ok=True)
    call = lambda: faster_prefill([1, 2], [1, 2, 3], 2)  # noqa: E731
    refuses(call, "faster_prefill", "prefill_seconds (2,)", "decode_seconds (3,)", "k ()")
    refuses(lambda: faster_prefill(0, 0, 2), "faster_prefill: prefill_seconds", "decode_seconds")
    assert np.isnan(faster_prefill([0], [0], 2)).all()


# What would never end


def test_too_many_chunks_are_refused_wherever_a_prompt_is_priced():
    chunked = server(gqa_model(), device(), prefill_chunk=1)
    for call in (
        lambda: break_even_output(chunked, 2**50),
        lambda: break_even_output(chunked, [5, 2**50]),
        lambda: batching.output_token_in_prompt_tokens(chunked, Request(5, 5), 1, prompt=10**12),
        lambda: gpu_seconds(Case(chunked, Request(10**12, 5))),
        lambda: elasticities(chunked, Request(10**12, 5)),
    ):
        refuses(call, "100,000", "prefill_chunk")


def test_a_break_even_that_no_output_reaches_is_refused():
    for prompt, share in ((5, 1e-310), ([1e300], 0.05), (2**53 + 2, 0.05)):
        refuses(lambda prompt=prompt, share=share: break_even_output(server(), prompt, share=share))


# Elasticities and levers


def test_a_step_of_a_derivative_is_small_and_not_lost_in_rounding():
    for good in (1e-9, 1e-2):
        assert elasticities(server(), CHAT, step=good)["bandwidth"] == pytest.approx(
            elasticities(server(), CHAT)["bandwidth"], rel=1e-2
        )


def test_waits_that_would_leave_floats_are_refused_before_elasticities_are_asked():
    refuses(lambda: replace(server().efficiency, overhead=1e306), "overhead", "from 0 to 1e+09")
    slow = server(efficiency=replace(server().efficiency, overhead=1e8))
    assert elasticities(slow, Request(5, 5000))["overhead"] == pytest.approx(1, abs=1e-6)


def test_parts_that_a_lever_quantises_are_those_of_a_precision():
    refuses(lambda: quantised(weights="int4"), "quantised", "'weights'", "blocks", kind=UnknownNameError)
    refuses(lambda: quantised(cache="int3"), "cache", "'int3'", kind=UnknownNameError)


def test_a_fraction_is_an_acceptance():
    assert speculative_decoding(4, Fraction(1, 3), "free").name == "speculation, 4 free drafts, acceptance 0.333333"


@pytest.mark.parametrize("wrong", [1.0, True, np.float64(1), np.True_], ids=repr)
def test_a_cell_is_named_by_whole_numbers(wrong):
    cost = request_cost(server(), Request([1, 0], 2))
    refuses(lambda: cost.why_refused(wrong), "why_refused", repr(wrong), "(2,)", kind=LessonError)
    assert "prompt" in cost.why_refused(np.int64(1))
