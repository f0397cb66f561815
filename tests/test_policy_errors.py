"""What the policies refuse: growth, batches, levers and elasticities of what cannot be meant."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers import device, gqa_model, llama, server

from lessonlib.base.errors import InvalidInputError, LessonError, UnknownNameError
from lessonlib.policy import batching, cache
from lessonlib.policy.levers import quantised, speculative_decoding
from lessonlib.policy.sensitivity import break_even_output, elasticities, faster_prefill, gpu_seconds
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.roofline import pass_cost

pytestmark = pytest.mark.filterwarnings("error")
CHAT = Request(1024, 128)
MASKED = np.ma.array([1, 2], mask=[0, 1])
HIDING = [MASKED, [[1, True]], [np.True_, 2], [np.array([True]), [2]], [np.ma.masked, 2], np.array([True])]


@pytest.mark.parametrize("tokens", [-100, math.nan, math.inf, "3", None, True], ids=repr)
def test_memory_is_of_a_number_of_tokens(tokens):
    for call in (server().memory_needed, server().sequence_bytes):
        with pytest.raises(InvalidInputError, match=r"tokens is .*; expected a finite number"):
            call(tokens)
    with pytest.raises(InvalidInputError, match="batch is"):
        server().memory_needed(5, tokens)
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
        with pytest.raises(InvalidInputError):
            call()


@pytest.mark.parametrize("wrong", ["3", np.array(["2026-01-01"], "datetime64[D]"), {}, [[1], [1, 2]]], ids=repr)
def test_intensities_want_numbers(wrong):
    with pytest.raises(InvalidInputError, match="batch is"):
        batching.intensities(server(), 5, wrong)


@pytest.mark.parametrize("wrong", ["x", 1, 0, None, []], ids=repr)
def test_a_choice_of_two_is_true_or_false(wrong):
    for call in (
        lambda: batching.memory_batch(server(), CHAT, wrong),
        lambda: batching.steady_state(server(), CHAT, 1, wrong),
        lambda: batching.prefill_share(server(), CHAT, 1, wrong),
        lambda: cache.step_parts(server(), CHAT, 1, together=wrong),
    ):
        with pytest.raises(InvalidInputError, match="expected True or False"):
            call()


def test_a_pass_has_no_more_logits_than_tokens_and_no_more_tokens_than_can_be_counted():
    assert pass_cost(server(), 3, logits=3).linear.flops > pass_cost(server(), 3, logits=2).linear.flops
    with pytest.raises(InvalidInputError, match="logits is 100"):
        pass_cost(server(), 1, 0, 1, logits=100)
    for name in ("new", "cached", "batch"):
        with pytest.raises(InvalidInputError, match=f"pass_cost: {name} is 1e.200"):
            pass_cost(server(), **({"new": 1} | {name: 1e200}))


def test_a_cache_is_of_tokens_that_can_be_counted():
    with pytest.raises(InvalidInputError, match="tokens is 1e"):
        cache.cache_by_kind(server(), 1e308)


# Amdahl


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, "1", None, True, [True], [1, -1], [math.inf]], ids=repr)
def test_a_speed_up_is_of_seconds(wrong):
    for name, given in (("prefill_seconds", (wrong, 3, 2)), ("decode_seconds", (3, wrong, 2))):
        with pytest.raises(InvalidInputError, match=f"faster_prefill: {name} is"):
            faster_prefill(*given)


@pytest.mark.parametrize("wrong", [["2"], [True], [2, 0], [math.nan], np.ma.array([2])], ids=repr)
def test_a_speed_up_is_by_numbers(wrong):
    with pytest.raises(InvalidInputError, match="faster_prefill: k is"):
        faster_prefill(1, 1, wrong)


def test_a_speed_up_takes_lists_and_says_what_does_not_go_together():
    assert faster_prefill([1], [3], 2) == pytest.approx([4 / 3.5])
    assert faster_prefill([1, math.nan], 3, 2) == pytest.approx([4 / 3.5, math.nan], nan_ok=True)
    with pytest.raises(InvalidInputError, match=r"prefill_seconds \(2,\), decode_seconds \(3,\), k \(\)"):
        faster_prefill([1, 2], [1, 2, 3], 2)
    with pytest.raises(InvalidInputError, match="prefill_seconds is 0"):
        faster_prefill(0, 0, 2)
    assert np.isnan(faster_prefill([0], [0], 2)).all()


# What would never end


def test_too_many_chunks_are_refused_wherever_a_prompt_is_priced():
    chunked = server(gqa_model(), device(), prefill_chunk=1)
    for call in (
        lambda: break_even_output(chunked, 2**50),
        lambda: break_even_output(chunked, [5, 2**50]),
        lambda: batching.output_token_in_prompt_tokens(chunked, Request(5, 5), 1, prompt=10**12),
        lambda: gpu_seconds(chunked, Request(10**12, 5)),
        lambda: elasticities(chunked, Request(10**12, 5)),
    ):
        with pytest.raises(InvalidInputError, match="more than 100,000 prefill chunks; take a larger prefill_chunk"):
            call()


def test_a_break_even_that_no_output_reaches_is_refused():
    for prompt, share in ((5, 1e-310), ([1e300], 0.05), (2**53 + 2, 0.05)):
        with pytest.raises(InvalidInputError):
            break_even_output(server(), prompt, share=share)


# Elasticities and levers


@pytest.mark.parametrize("step", [1e-300, 1e-12, 0.1, 800.0, 0, -1, math.nan])
def test_a_step_of_a_derivative_is_small_and_not_lost_in_rounding(step):
    with pytest.raises(InvalidInputError, match="elasticities: step is"):
        elasticities(server(), CHAT, step=step)
    for good in (1e-9, 1e-2):
        assert elasticities(server(), CHAT, step=good)["bandwidth"] == pytest.approx(
            elasticities(server(), CHAT)["bandwidth"], rel=1e-2
        )


def test_elasticities_that_are_no_numbers_are_refused():
    slow = server(efficiency=replace(server().efficiency, overhead=1e306))
    with pytest.raises(InvalidInputError, match="beyond what a float holds"):
        elasticities(slow, Request(5, 5000))


def test_parts_that_a_lever_quantises_are_those_of_a_precision():
    with pytest.raises(UnknownNameError, match="part is 'weights'; expected one of blocks, experts, head"):
        quantised(weights="int4")
    with pytest.raises(UnknownNameError, match="cache has dtype 'int3'"):
        quantised(cache="int3")


def test_a_fraction_is_an_acceptance():
    assert speculative_decoding(4, Fraction(1, 3)).name == "speculation, 4 free drafts, acceptance 0.333333"


@pytest.mark.parametrize("wrong", [1.0, True, np.float64(1), np.True_], ids=repr)
def test_a_cell_is_named_by_whole_numbers(wrong):
    cost = request_cost(server(), Request([1, 0], 2))
    with pytest.raises(LessonError, match="is no cell"):
        cost.why_refused(wrong)
    assert "prompt" in cost.why_refused(np.int64(1))
