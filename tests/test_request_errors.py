"""What cannot be meant is refused, by an error that names it. What follows from rules is in test_checks.py."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers import deepseek_v3, device, gqa_model, h100, llama, refuses, server

from lessonlib.base.errors import MOST_TOKENS, DoesNotFitError, InvalidInputError, LessonError, UnknownNameError
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.workloads import load_workload
from lessonlib.model.block import Block
from lessonlib.model.feedforward import MixtureOfExperts
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.policy.cache import steady_attention_seconds
from lessonlib.policy.estimates import omega, rho, ridge_tokens, roof_batch
from lessonlib.policy.full_server import memory_batch, mixed_pass, steady_state
from lessonlib.policy.sensitivity import elasticities
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Efficiency, Speculation
from lessonlib.time.roofline import pass_cost, roofline

HUGE = 10**400
NOT_NUMBERS = [math.nan, math.inf, -math.inf, "12", "", None, True, False, b"1", [], {}, object(), 1j, HUGE]
NOT_COUNTS = [0, -1, -(2**70), 0.5, 1.5, Fraction(1, 2), *NOT_NUMBERS]


@pytest.mark.parametrize("wrong", NOT_COUNTS, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("name", ["prompt", "output", "cached"])
def test_a_request_takes_whole_numbers(name, wrong):
    if name == "cached" and (wrong == 0 and not isinstance(wrong, bool)):
        assert Request(5, 5, wrong).cached == 0
    elif wrong == [] and isinstance(wrong, list):
        assert Request(**{"prompt": 5, "output": 5, name: wrong}).is_array  # no requests, and no error
    else:
        message = refuses(lambda: Request(**{"prompt": 5, "output": 5, name: wrong}), f"Request: {name}")
        if isinstance(wrong, int | float | str) and wrong is not HUGE:
            assert repr(wrong) in message or "an array" in message


@pytest.mark.parametrize("wrong", NOT_COUNTS, ids=lambda v: repr(v)[:20])
def test_a_batch_is_a_whole_number_of_at_least_one(wrong):
    for request in (Request(5, 5), Request([5, 6], 5)):
        if isinstance(wrong, list):
            continue  # an empty array of batches is no error where it broadcasts
        refuses(lambda request=request: request_cost(server(), request, wrong), "request_cost: batch")


def test_a_value_is_quoted_and_cut_where_it_is_long():
    refuses(lambda: Request(-3, 5), "prompt", "-3")
    refuses(lambda: Request(5, "many"), "output", "'many'")
    refuses(lambda: Request(HUGE, 5), "prompt", "(401 characters)")
    refuses(lambda: Request(10**5000, 5), "prompt", "int too long to print")


def test_a_count_is_one_that_a_float_holds_exactly():
    assert Request(MOST_TOKENS, 1).prompt == 2**53
    refuses(lambda: Request(MOST_TOKENS + 1, 1), "prompt", str(MOST_TOKENS + 1))


def test_cached_is_less_than_the_prompt():
    assert Request(10, 1, 9).cached == 9
    for cached in (10, 11, 10**9):
        refuses(lambda cached=cached: Request(10, 1, cached), "Request: cached", "prompt", "10")


def test_the_model_s_positions_are_the_limit_of_prompt_and_output_together():
    limit = llama().max_positions
    for prompt in (1, 1000, limit - 1):
        assert request_cost(server(), Request(prompt, limit - prompt)).seconds > 0
        refuses(
            lambda prompt=prompt: request_cost(server(), Request(prompt, limit - prompt + 1)),
            "prompt",
            "output",
            "131,073",
            "llama-3.1-8b",
            "131,072",
        )
    unlimited = server(gqa_model(), device())
    assert request_cost(unlimited, Request(10_000_000, 10_000_000)).seconds > 0


def test_arguments_of_the_wrong_kind():
    for wrong in (None, 5, "server", Request(1, 1)):
        refuses(lambda wrong=wrong: request_cost(wrong, Request(1, 1)), "request_cost: deployment")
    for wrong in (None, (128, 12_800), {"prompt": 1}):
        refuses(lambda wrong=wrong: request_cost(server(), wrong), "request_cost: request")


@pytest.mark.parametrize("name, least", [("new", 1), ("cached", 0), ("batch", 1), ("logits", 0)])
def test_a_pass_takes_whole_numbers(name, least):
    for wrong in (least - 1, 1.5, math.nan, "3", None, True, HUGE, [1]):
        refuses(lambda wrong=wrong: pass_cost(server(), **({"new": 1} | {name: wrong})), f"pass_cost: {name}")


# The device


def test_a_dtype_without_a_peak():
    for dtype in ("fp32", "fp4", "int4"):
        refuses(
            lambda dtype=dtype: server(dtype=Precision("bf16", compute=dtype)),
            "'h100-sxm'",
            dtype,
            "bf16",
            kind=UnknownNameError,
        )


def test_no_link_figure():
    alone = Accelerator(name="alone", memory=1e12, bandwidth=1e12, peaks={"bf16": 1e14})
    assert server(accelerator=alone).devices == 1
    refuses(lambda: server(accelerator=alone, devices=2), "'alone'", "link", "devices")


def test_heads_that_do_not_divide():
    refuses(lambda: server(devices=5), "GroupedQueryAttention: devices", "5", "32 heads")


@pytest.mark.parametrize("wrong", [0, -0.1, 1.01, 50, math.nan, "half", None, True])
def test_fractions(wrong):
    for name in ("mfu", "mbu"):
        refuses(lambda name=name: Efficiency(**{name: wrong}), f"Efficiency: {name}")
    refuses(lambda: server(memory_fraction=wrong), "Deployment: memory_fraction")
    if wrong != 0 or isinstance(wrong, bool):
        refuses(lambda: Speculation(3, wrong, "free"), "Speculation: acceptance")


@pytest.mark.parametrize("wrong", [-1e-9, math.nan, math.inf, "2 ms", None, True])
def test_seconds_that_are_added(wrong):
    for name in ("overhead", "all_reduce_latency"):
        refuses(lambda name=name: Efficiency(**{name: wrong}), f"Efficiency: {name}")


@pytest.mark.parametrize("name", ["devices", "prefill_chunk"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, math.nan, "2", True, HUGE])
def test_counts_of_a_deployment(name, wrong):
    refuses(lambda: server(**{name: wrong}), f"Deployment: {name}")


def test_parts_of_a_deployment_of_the_wrong_kind():
    parts = {"model": llama(), "accelerator": h100(), "precision": Precision(), "efficiency": Efficiency()}
    for name, value in parts.items():
        for wrong in ("llama-3.1-8b", None, 3):
            refuses(
                lambda name=name, wrong=wrong: Deployment(**(parts | {name: wrong})),
                f"Deployment: {name}",
                repr(wrong),
                type(value).__name__,
            )
    refuses(lambda: server(speculation=4), "Deployment: speculation", "Speculation")
    refuses(lambda: Speculation(3, 0.5, "draft"), "Speculation: draft", "Model")


def test_too_many_chunks_are_refused():
    deployment = server(gqa_model(), device(), prefill_chunk=1)
    refuses(lambda: request_cost(deployment, Request(10**6, 1)), "prompt", "100,000", "prefill_chunk")


# Models put together by hand


def test_sizes_of_parts_go_together():
    refuses(lambda: gqa_model(heads=8, kv_heads=3), "GroupedQueryAttention: heads", "kv_heads")
    experts = {"width": 8, "experts": 4, "experts_per_token": 5, "expert_inner": 8}
    refuses(lambda: MixtureOfExperts(**experts), "MixtureOfExperts: experts_per_token", "4")


def test_a_model_is_of_blocks_that_agree():
    block = gqa_model().blocks[0][1]
    toy = {"name": "toy", "width": 64, "vocabulary": 2}
    refuses(lambda: Model(**toy | {"width": 63}, blocks=((1, block),)), "Model 'toy'", "width", "64", "63")
    refuses(lambda: Model(**toy, blocks=()), "Model 'toy': blocks")
    for count in (0, -1, 1.5, "2", True, None):
        refuses(lambda count=count: Model(**toy, blocks=((1, block), (count, block))), "Model 'toy': blocks[1]")
    refuses(lambda: Block(None, None), "Block: mixer", "feedforward")
    refuses(lambda: Block("attention", block.feedforward), "Block: mixer", "'attention'", "Mixer")
    refuses(lambda: Block(block.mixer, block.mixer), "Block: feedforward", "FeedForward")


# What does not fit


def test_what_does_not_fit_is_said_with_its_remedies():
    with pytest.raises(DoesNotFitError) as caught:
        request_cost(server(), Request(200, 20_000), batch=32)
    error = caught.value
    assert error.needed == 2 * 8_030_261_248 + 32 * 20_200 * 131_072
    assert error.available == 0.9 * 85_520_809_984
    message = str(error)
    assert "32 x 20,200 tokens on 1 x h100-sxm needs 100.8 GB" in message and "available are 76.97 GB" in message
    assert error.remedies == ("batch=23", "an fp8 cache", "devices=2")
    assert all(remedy in message for remedy in error.remedies)


PRECISIONS = {
    "an fp8 cache": {"cache": "fp8"},
    "fp8 weights": {"blocks": "fp8", "experts": "fp8"},
    "int4 weights": {"blocks": "int4", "experts": "int4"},
    "int4 weights and an fp8 cache": {"blocks": "int4", "experts": "int4", "cache": "fp8"},
}


def fits(deployment, tokens, batch):
    try:
        deployment.require_fit(tokens, batch)
    except DoesNotFitError:
        return False
    return True


@pytest.mark.parametrize(
    "model, memory, tokens, batch",
    [
        (llama(), 80e9, 20_200, 32),
        (llama(), 80e9, 20_200, 100),
        (llama(), 16e9, 1000, 1),
        (llama(), 16e9, 100, 1),
        (llama(), 8e9, 1000, 1),
        (llama(), 5e9, 1000, 1),
        (llama(), 7e9, 8000, 2),
        (llama(), 19e9, 20_000, 2),
        (deepseek_v3(), 80e9, 4000, 1),
        (deepseek_v3(), 141e9, 100_000, 3),
    ],
)
def test_each_remedy_fits_and_is_the_smallest_of_its_kind(model, memory, tokens, batch):
    deployment = server(model, device(memory=memory))
    with pytest.raises(DoesNotFitError) as caught:
        deployment.require_fit(tokens, batch)
    remedies = caught.value.remedies
    assert remedies
    for remedy in remedies:
        kind, _, number = remedy.partition("=")
        if kind == "batch":
            assert int(number) < batch
            assert fits(deployment, tokens, int(number)) and not fits(deployment, tokens, int(number) + 1)
        elif kind == "devices":
            assert fits(replace(deployment, devices=int(number)), tokens, batch)
            for fewer in range(2, int(number)):
                try:
                    smaller = replace(deployment, devices=fewer)
                except InvalidInputError:
                    continue  # heads that do not divide
                assert not fits(smaller, tokens, batch)
        else:
            changes = list(PRECISIONS)
            for earlier in changes[: changes.index(remedy) + 1]:
                precision = replace(deployment.precision, **PRECISIONS[earlier])
                assert fits(replace(deployment, precision=precision), tokens, batch) == (earlier == remedy)
    named = {remedy.partition("=")[0] for remedy in remedies}
    assert ("batch" in named) == (deployment.largest_batch(tokens) > 0)


def test_a_model_that_nothing_makes_fit():
    with pytest.raises(DoesNotFitError, match="no dtype and no number of these devices up to 1,024 does") as caught:
        request_cost(server(accelerator=device(memory=1e6)), Request(1, 1))
    assert caught.value.remedies == ()


def test_without_a_link_figure_it_is_not_said_that_more_devices_would_not_do():
    with pytest.raises(DoesNotFitError, match="no dtype does, and there is no link figure to join more devices"):
        request_cost(server(accelerator=device(memory=1e6, link=None)), Request(1, 1))


@pytest.mark.parametrize(
    "wrong", [None, 3, "x", [1], np.array([]), np.array([1, 2]), object()], ids=lambda v: repr(v)[:16]
)
def test_what_is_no_request_or_name_is_refused_everywhere(wrong):
    for call in (
        lambda: rho(server(), wrong),
        lambda: roof_batch(server(), wrong),
        lambda: elasticities(server(), wrong),
        lambda: memory_batch(server(), wrong),
        lambda: steady_state(server(), wrong, 1),
        lambda: mixed_pass(server(), wrong, 1),
        lambda: steady_attention_seconds(server(), wrong),
        lambda: load_model(wrong),
        lambda: load_accelerator(wrong),
        lambda: load_workload(wrong),
        lambda: Precision(wrong),
    ):
        refuses(call, kind=LessonError)


@pytest.mark.parametrize("wrong", [None, "server", 3, h100()], ids=["none", "word", "number", "accelerator"])
def test_what_is_no_deployment_is_refused_everywhere(wrong):
    for call in (
        lambda: pass_cost(wrong, 1),
        lambda: request_cost(wrong, Request(1, 1)),
        lambda: ridge_tokens(wrong),
        lambda: rho(wrong, Request(1, 1)),
        lambda: omega(wrong, Request(1, 1)),
        lambda: roof_batch(wrong, Request(1, 1)),
    ):
        refuses(call, "deployment", "Deployment")


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, "1", None, True, HUGE], ids=lambda v: repr(v)[:16])
def test_a_roofline_of_no_numbers_is_refused(place, wrong):
    given = [1e12, 1e9, 989e12, 3.35e12]
    assert roofline(*given) == max(1e12 / 989e12, 1e9 / 3.35e12)
    given[place] = wrong
    refuses(lambda: roofline(*given), f"roofline: {('flops', 'bytes', 'peak', 'bandwidth')[place]}")


@pytest.mark.parametrize("wrong", [0, -1, 0.5, True, "1", None], ids=repr)
def test_what_fits_is_asked_with_counts(wrong):
    refuses(lambda: server().require_fit(wrong), "require_fit: tokens")
    refuses(lambda: server().require_fit(10, wrong), "require_fit: batch")
