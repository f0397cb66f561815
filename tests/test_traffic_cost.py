"""A mix of requests: held to request_cost where all are alike, and to a plain sum where they are not."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import deepseek_v3, device, gqa_model, h100, qwen3_30b_a3b, refuses, server

from lessonlib.base.errors import DoesNotFitError, InvalidInputError
from lessonlib.model.precision import Precision
from lessonlib.policy.estimates import chi, omega, roof_batch
from lessonlib.policy.full_server import full_batch, mean_slot_bytes, memory_batch, steady_state
from lessonlib.policy.levers import faster_peak, more_bandwidth
from lessonlib.policy.mix import price
from lessonlib.policy.ranking import rank_levers, usual_levers
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request, fits
from lessonlib.time.deployment import Efficiency, Speculation

MIX = Request(np.array([200, 1024, 30, 9000]), np.array([20_000, 128, 1, 700]), np.array([0, 1000, 0, 100]))
DEPLOYMENTS = {
    "floor": server(),
    "overhead": server(efficiency=Efficiency(0.5, 0.8, 2e-3)),
    "windows": server(gqa_model(window=300, layers=4), device()),
    "experts": server(qwen3_30b_a3b(), device()),
    "mla": server(deepseek_v3(), device()),
    "two devices": server(devices=2),
    "speculation": server(speculation=Speculation(3, 0.6, "free")),
}


@pytest.mark.parametrize("deployment", DEPLOYMENTS.values(), ids=DEPLOYMENTS)
@pytest.mark.parametrize("batch", [1, 7])
def test_the_cost_of_a_mix_is_the_sum_over_its_requests(deployment, batch):
    roomy = replace(deployment, accelerator=replace(deployment.accelerator, memory=1e18))
    found = price(roomy, MIX, batch)
    prefill = decode = flops = 0.0
    for row, (prompt, output, cached) in enumerate(zip(MIX.prompt, MIX.output, MIX.cached, strict=True)):
        request = Request(int(prompt), int(output), int(cached))
        cost = request_cost(roomy, request, batch)
        prefill += cost.ttft
        decode += cost.decode.seconds / batch
        flops += cost.decode.flops / batch
        assert found.ttft[row] == pytest.approx(cost.ttft, rel=1e-12)
    assert found.prefill.seconds == pytest.approx(prefill, rel=1e-12)
    assert found.decode.seconds == pytest.approx(decode, rel=1e-12)
    assert found.decode.flops == pytest.approx(flops, rel=1e-12)
    assert found.seconds == pytest.approx(prefill + decode, rel=1e-12)
    steps = np.sum(MIX.output - 1)
    assert found.step == pytest.approx(batch * decode / steps, rel=1e-12)
    assert found.wait == pytest.approx(batch * (prefill + decode) / 4, rel=1e-12)
    assert found.tpot == pytest.approx((batch * (prefill + decode) - prefill) / steps, rel=1e-12)
    assert found.request_clock_decode_share == pytest.approx(batch * decode / (prefill + batch * decode), rel=1e-12)


def test_requests_all_alike_cost_what_steady_state_says():
    for request in (Request(1024, 128), Request(128, 12_800), Request(5000, 300, 4000)):
        one = steady_state(server(), request)
        many = Request(np.full(9, request.prompt), np.full(9, request.output), np.full(9, request.cached))
        found = price(server(), many, one.batch)
        assert found.seconds / 9 == pytest.approx(one.seconds_per_request, rel=1e-12)
        assert found.wait == pytest.approx(one.wait, rel=1e-12)
        assert found.tpot == pytest.approx(one.tpot, rel=1e-12)
        assert found.step == pytest.approx(one.step, rel=1e-12)


def test_what_binds_each_part():
    chat = Request(np.array([1024]), np.array([128]))
    full = price(server(), chat, 370)
    assert (full.prefill.linear.bound, full.decode.linear.bound, full.decode.attention.bound) == (
        "compute",
        "compute",
        "memory",
    )
    alone = price(server(), chat, 1)
    assert alone.decode.linear.bound == "memory" and alone.decode.linear.compute == 0
    short = price(server(), Request(np.array([10, 1000]), np.array([2, 2])), 1).prefill.linear
    assert short.compute > 0 and short.memory > 0  # one prompt under the ridge, one above


def test_what_cannot_be_taken_is_counted_by_reason():
    long = Request(np.array([10, 131_072, 10, 131_000]), np.array([10, 1, 131_062, 100]))
    masks = fits(server(), long)
    assert [mask.tolist() for mask in masks.values()] == [[False, True, False, True], [False] * 4]
    assert "131,072" in next(iter(masks))
    small = replace(h100(), memory=20e9)
    assert [mask.tolist() for mask in fits(server(accelerator=small), long).values()] == [
        [False, True, False, True],
        [False, False, True, False],
    ]


def test_refusals():
    with pytest.raises(InvalidInputError, match="prefill_chunk"):
        price(server(prefill_chunk=512), MIX, 1)
    with pytest.raises(InvalidInputError, match="Request of arrays"):
        price(server(), Request(1, 2), 1)
    with pytest.raises(InvalidInputError, match="batch is 0"):
        price(server(), MIX, 0)
    with pytest.raises(DoesNotFitError):
        full_batch(server(accelerator=replace(h100(), memory=18e9)), Request(np.array([50_000]), np.array([50_000])))


def test_requests_of_one_output_token_have_no_step():
    found = price(server(), Request(np.array([100, 200]), np.array([1, 1])), 5)
    assert found.decode.seconds == 0 and math.isnan(found.tpot) and found.decode_share == 0
    free = [one for one in rank_levers(server(), Request(np.array([100]), np.array([1])), 1) if "prefill" in one.name]
    assert free[0].held == math.inf


def test_levers_are_ranked_and_are_those_of_one_request():
    many = Request(np.full(3, 128), np.full(3, 12_800))
    ranked = rank_levers(server(), many, 33)
    assert [one.at_limit for one in ranked] == sorted((one.at_limit for one in ranked), reverse=True)
    found = {one.name: one for one in ranked}
    for name, lever in (("twice the FLOP/s", faster_peak(2)), ("twice the bandwidth", more_bandwidth(2))):
        assert found[name].held == pytest.approx(lever.speedup(server(), Request(128, 12_800), 33), rel=1e-3)
    assert found["twice the memory"].held == 1 < found["twice the memory"].at_limit
    assert found["a prefill that takes no time"].held < 1.001


def test_levers_that_are_in_place_already_are_left_out():
    names = usual_levers(server(), MIX)
    assert "half of each prompt in a prefix cache" not in names and "fp8 cache" in names
    small = server(dtype=Precision("int4", cache="fp8"), speculation=Speculation(2, 0.5, "free"))
    left = usual_levers(small, Request(np.array([10]), np.array([10])))
    assert set(left) == {
        "twice the FLOP/s",
        "twice the bandwidth",
        "twice the memory",
        "half the thought: answers half as long",
        "half of each prompt in a prefix cache",
        "sparse layers: 5 of 6 with a window of 1,024 (another model)",
        "twice the devices, tensor parallel",
    }


CALLS = {
    "price": lambda request: price(server(), request, 1),
    "chi": lambda request: chi(server(), request, mix=True),
    "roof_batch": lambda request: roof_batch(server(), request, mix=True),
    "omega": lambda request: omega(server(), request, mix=True),
    "memory_batch": lambda request: memory_batch(server(), request),
    "mean_slot_bytes": lambda request: mean_slot_bytes(server(), request),
    "fits": lambda request: fits(server(), request),
    "usual_levers": lambda request: usual_levers(server(), request),
    "rank_levers": lambda request: rank_levers(server(), request, 1),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "request_, said",
    [
        (Request([100, -50], [10, 10]), ("request 1", "prompt -50")),
        (Request([100, 100, 0], [10, math.nan, 10]), ("request 1", "prompt 100", "output nan")),
        (Request([100, 100], 10, [99, 100]), ("request 1", "cached 100")),
        (Request([2.0**60], [1]), ("request 0", "prompt")),
        (Request([[100, 200]], 10), ("request", "(1, 2)")),
        (Request([], []), ("request", "(0,)")),
        ("mix", ("request", "'mix'")),
    ],
    ids=["negative", "nan", "cached", "huge", "two dimensions", "empty", "no request"],
)
def test_a_mix_with_a_request_that_cannot_be_meant_is_refused_by_its_row(name, request_, said):
    refuses(lambda: CALLS[name](request_), name, *said)


def test_weights_that_leave_no_memory_have_no_omega():
    with pytest.raises(DoesNotFitError):
        omega(server(accelerator=replace(h100(), memory=10e9)), MIX, mix=True)


@pytest.mark.parametrize("call", [memory_batch, mean_slot_bytes])
@pytest.mark.parametrize("wrong", ["yes", 0, None])
def test_a_page_is_a_count_of_tokens(call, wrong):
    refuses(lambda: call(server(), MIX, wrong), f"{call.__name__}: page")


def test_the_caller_s_dtype_does_not_wrap():
    small, large = (Request(np.full(300, 100, kind), np.full(300, 120, kind)) for kind in (np.int8, np.int64))
    assert omega(server(), small, mix=True) == omega(server(), large, mix=True)
    assert memory_batch(server(), small) == memory_batch(server(), large)
    assert price(server(), small, 7).seconds == price(server(), large, 7).seconds
