"""What a run says of its rate: offered beside served, capacity, Little's law, prefix hits, batches, goodput."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import h100, refuses, server

from lessonlib.facts.workloads import load_lengths, load_workload
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.policy.mix import price
from lessonlib.policy.serving.simulator import simulate
from lessonlib.policy.serving.traffic import Traffic, all_at_once, poisson_traffic
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request

DRIVER = server(accelerator=replace(h100(), memory=85_520_809_984.0))


@pytest.mark.parametrize(
    ("request_", "count"), [(Request(1155, 211), 12_000), (Request(1268, 1527), 6000), (Request(128, 3000), 6000)]
)
@pytest.mark.parametrize("load", [0.7, 0.9])
def test_littles_law_holds_on_long_runs_and_steady_state_says_the_same(request_, count, load):
    """Mean number running x GPU seconds of a finished request = mean latency after admission, within 3 %.

    And steady_state at that number gives the same GPU seconds. It is not a definition here: the simulator counts.
    """
    rate = load / steady_state(DRIVER, request_, page=16).seconds_per_request
    run = simulate(DRIVER, poisson_traffic(count, rate, request_.prompt, request_.output, seed=1))
    assert run.mean_running * run.seconds_per_request == pytest.approx(float(np.mean(run.wait)), rel=0.03)
    steady = steady_state(DRIVER, request_, max(1, round(run.mean_running)))
    assert steady.seconds_per_request == pytest.approx(run.seconds_per_request, rel=0.03)
    assert steady.wait == pytest.approx(float(np.mean(run.wait)), rel=0.03)
    assert run.growth == 0


def test_a_mix_obeys_it_too():
    lengths = [load_lengths("chat", of) for of in ("prompt", "output")]
    run = simulate(DRIVER, poisson_traffic(12_000, 25, *lengths, seed=2))
    found = price(DRIVER, run.traffic.request, round(run.mean_running))
    assert run.mean_running * run.seconds_per_request == pytest.approx(float(np.mean(run.wait)), rel=0.03)
    assert found.seconds / len(run.traffic) == pytest.approx(run.seconds_per_request, rel=0.03)


@pytest.mark.parametrize("count", [500, 4000])
def test_past_capacity_is_said_whatever_the_count(count):
    """3.2 requests a second of production R1: how many are watched decides no verdict."""
    lengths = [load_lengths("production-reasoning", of) for of in ("prompt", "output")]
    run = simulate(server(), poisson_traffic(count, 4.0, *lengths, seed=3))
    mix = run.traffic.request
    capacity = count / price(server(), mix, memory_batch(server(), mix, 16)).seconds
    assert run.capacity == pytest.approx(capacity, rel=1e-12)
    assert run.growth == pytest.approx(run.traffic.requests_per_second - capacity, rel=1e-12) and run.growth > 0
    words = repr(run)
    assert "past capacity" in words and "no percentile exists; the queue grows by" in words and "TTFT" not in words
    assert f"offered {run.traffic.tokens_per_second:,.1f}, served {run.tokens_per_second:,.1f} tokens/s" in words


@pytest.mark.parametrize("rate", [1.0, 2.0, 4.0])
def test_seeds_agree_on_the_runs_of_notebook_04(rate):
    lengths = [load_lengths("production-reasoning", of) for of in ("prompt", "output")]
    runs = [simulate(server(), poisson_traffic(20_000, rate, *lengths, seed=seed)) for seed in (1, 2)]
    assert {run.growth > 0 for run in runs} == {rate == 4.0}
    found = np.array([[run.tokens_per_second, *run.percentiles("ttft", (50, 99))] for run in runs])
    kept = found[:, :1] if rate == 4.0 else found  # past capacity no percentile is shown
    assert np.all(np.ptp(kept, axis=0) < 0.06 * kept.mean(axis=0))


@pytest.mark.parametrize(("name", "count"), [("chat", 3_000), ("reasoning", 1_500)])
def test_at_seven_tenths_of_capacity_memory_is_not_full_whatever_the_seed(name, count):
    request = load_workload(name).mean
    rate = 0.7 / steady_state(server(), request).seconds_per_request
    runs = [simulate(server(), poisson_traffic(count, rate, request.prompt, request.output, seed=s)) for s in range(4)]
    assert all(run.preemptions.sum() == 0 for run in runs)
    assert max(run.occupancy.cache_bytes.max() / run.cache_bytes_available for run in runs) < 0.95


def test_within_capacity_the_percentiles_stand():
    run = simulate(server(), poisson_traffic(200, 2.0, 1000, 100, seed=3))
    assert run.growth == 0 and "past capacity" not in repr(run) and "TTFT, 50 / 90 / 99 %" in repr(run)
    assert run.traffic.requests_per_second == pytest.approx(2, rel=0.2)


def test_a_smaller_largest_batch_has_a_smaller_capacity():
    traffic = poisson_traffic(100, 3.0, 1000, 500, seed=1)
    few, many = simulate(server(), traffic, max_batch=4), simulate(server(), traffic)
    assert few.peak_running == 4 and few.capacity < many.capacity and few.growth > 0 == many.growth


def test_all_at_once_has_no_rate():
    run = simulate(server(), all_at_once(50, 100, 10))
    assert math.isnan(run.growth) and "offered" not in repr(run) and "TTFT" in repr(run)


@pytest.mark.parametrize("prefill", ["first", "joint", "chunked"])
def test_a_prefix_hit_is_not_prefilled(prefill):
    alone = simulate(DRIVER, Traffic([0.0], 1000, 20, cached_share=0.9), prefill)
    assert alone.traffic.cached.tolist() == [900]
    assert float(alone.finish[0]) == pytest.approx(request_cost(DRIVER, Request(1000, 20, 900)).seconds, rel=1e-9)
    whole = Traffic([0.0], 1000, 20, cached_share=1)
    assert whole.cached.tolist() == [999]  # one token is computed all the same


def test_prefix_hits_of_half_the_prompts_save_prefill_and_hold_the_same_memory():
    given = poisson_traffic(300, 5, 2000, 100, seed=1), poisson_traffic(300, 5, 2000, 100, seed=1, cached_share=0.5)
    without, hits = (simulate(DRIVER, traffic) for traffic in given)
    one, half = (request_cost(DRIVER, Request(2000, 100, cached)).prefill.seconds for cached in (0, 1000))
    assert hits.seconds["prefill"] / without.seconds["prefill"] == pytest.approx(half / one, rel=1e-9)
    assert simulate(DRIVER, Traffic([0.0], 2000, 1, cached_share=0.5)).peak_cache_bytes == 131_072 * 2000


def test_goodput_counts_requests_within_both_limits():
    run = simulate(server(), poisson_traffic(300, 20, 1000, 100, seed=1))
    share, rate = run.goodput(ttft=0.05, tpot=0.006)
    good = (run.ttft <= 0.05) & (run.tpot <= 0.006)
    assert 0 < share < 1 and share == pytest.approx(good.mean()) and rate == pytest.approx(good.sum() / run.elapsed)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, "half"])
def test_a_share_that_cannot_be_meant_is_refused(share):
    refuses(lambda: Traffic([0.0], 10, 10, cached_share=share), "cached_share")
