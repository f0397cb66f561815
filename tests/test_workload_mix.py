"""Workloads of many requests: medians, means, the length-weighted span, and the full server that it prices."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import h100, refuses, server

from lessonlib.facts.workloads import load_workload, workload_names
from lessonlib.policy.estimates import chi, omega
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.policy.mix import price
from lessonlib.request.request import Request

DRIVER = replace(h100(), memory=85_520_809_984.0)
PRODUCTION = load_workload("production-reasoning")


def of(request):
    return request.prompt, request.output, request.cached


def test_medians_describe_one_request_and_means_many():
    assert {name: of(load_workload(name).request) for name in workload_names()} == {
        "chat": (1024, 128, 0),
        "reasoning": (128, 12_800, 0),
        "production-reasoning": (208, 792, 0),
        "agent-step": (103_647, 216, 103_647 - 728),
    }
    assert {name: of(load_workload(name).mean) for name in workload_names()} == {
        "chat": (1155, 211, 0),
        "reasoning": (128, 12_800, 0),
        "production-reasoning": (1268, 1527, 0),
        "agent-step": (122_317, 440, 117_804),
    }


def test_the_span_of_production_and_its_bounds():
    assert [round(span) for span in PRODUCTION.weighted_span] == [3775, 2715, 9548]
    assert set(load_workload("reasoning").weighted_span) == {128 + 6400}
    for name in workload_names():
        span = load_workload(name).weighted_span
        assert span.low <= span.independent <= span.high


@pytest.mark.parametrize("name", workload_names())
@pytest.mark.parametrize("coupling", ["independent", "comonotone", "antimonotone"])
def test_a_mix_has_the_span_of_its_coupling_and_the_means_of_its_source(name, coupling):
    workload = load_workload(name)
    mix = workload.mix(coupling)
    span = np.sum(mix.output * (mix.prompt + mix.output / 2)) / np.sum(mix.output)
    at = {"independent": 0, "antimonotone": 1, "comonotone": 2}[coupling]
    assert span == pytest.approx(workload.weighted_span[at], rel=2e-3)
    assert np.mean(mix.prompt) == pytest.approx(workload.mean.prompt, rel=0.03)
    assert np.mean(mix.output) == pytest.approx(workload.mean.output, rel=0.06)
    assert np.all(mix.cached < mix.prompt)


@pytest.mark.parametrize(
    ("coupling", "batch", "seconds"),
    [("independent", 123, 0.30), ("antimonotone", 171, 0.22), ("comonotone", 48, 0.73)],
)
def test_a_full_server_of_productions_mix(coupling, batch, seconds):
    """The lesson's figures take each prefill at the mean prompt; long prompts cost more, which adds 2 to 4 %."""
    deployment, mix = server(accelerator=DRIVER), PRODUCTION.mix(coupling)
    found = price(deployment, mix, memory_batch(deployment, mix))
    each = found.seconds / len(mix.prompt)
    assert found.batch == batch and each == pytest.approx(seconds, rel=0.04)
    at_the_mean = steady_state(deployment, PRODUCTION.mean, 1).parts["prefill"]
    assert each - found.prefill.seconds / len(mix.prompt) + at_the_mean == pytest.approx(seconds, rel=0.015)
    assert found.wait == pytest.approx(37, rel=0.05)


def test_chi_and_omega_of_productions_mix():
    deployment, mix = server(accelerator=DRIVER), PRODUCTION.mix()
    assert chi(deployment, mix, mix=True) == pytest.approx(5.3, rel=0.01)
    assert omega(deployment, mix, mix=True) == pytest.approx(1.3, rel=0.01)


def test_chats_prefill_share_by_the_choice_of_request():
    """67 % for the two medians, 46 % for the paired median ratio, 56 % for the means, 39 % with half cached."""
    ways = {67: Request(1024, 128), 46: Request(1020, 285), 56: Request(1155, 211), 39: Request(1155, 211, 577)}
    for share, request in ways.items():
        for accelerator in (DRIVER, h100()):  # it does not depend on how much memory there is
            found = steady_state(server(accelerator=accelerator), request).shares["prefill"]
            assert 100 * found == pytest.approx(share, abs=0.6)


def test_each_workload_says_what_is_paired():
    assert all(load_workload(name).pairing for name in workload_names())
    assert "not paired" in PRODUCTION.pairing
    assert math.isclose(load_workload("agent-step").new_mean or 0, 4513)


def test_a_coupling_that_is_not_known_is_refused():
    refuses(lambda: PRODUCTION.mix("paired"), "coupling", "independent")
