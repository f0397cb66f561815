"""Laws that hold on every model, device and request: hypothesis looks for one on which they don't."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import deployments, device, examples, models
from hypothesis import given
from hypothesis import strategies as st

from lessonlib.model.block import Block
from lessonlib.model.feedforward import MixtureOfExperts
from lessonlib.model.model import Model
from lessonlib.model.precision import KERNELS
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment, Efficiency, Speculation
from lessonlib.time.roofline import pass_cost

TERMS = ("flops", "bytes", "seconds", "cache_read", "cache_write", "state_bytes", "communication", "overhead", "passes")
EXACT = 1e-12
HAIR = 1 + 1e-12  # what rounding may do to an inequality


def terms(phase):
    """Every number of a phase, each kernel's parts apart."""
    parts = [
        sum(getattr(roof, name) for roof in phase.roofs.values() if roof.kernel == kernel)
        for kernel in KERNELS
        for name in ("flops", "bytes", "seconds", "compute_seconds", "memory_seconds")
    ]
    return [getattr(phase, name) for name in TERMS] + parts


def total(phases):
    """The sum of each number over passes; math.fsum, so that the loop's own rounding is no part of the comparison."""
    return [math.fsum(column) for column in zip(*map(terms, phases), strict=True)] or [0.0] * (
        len(TERMS) + 5 * len(KERNELS)
    )


@st.composite
def requests(draw, longest=60):
    prompt = draw(st.integers(1, longest))
    return Request(prompt, draw(st.integers(1, longest)), draw(st.sampled_from([0, 0, prompt // 2, prompt - 1])))


DEPLOYMENTS = st.sampled_from(["tensor", "tensor", "expert"]).flatmap(lambda layout: deployments(layout=layout))
BATCHES = st.sampled_from([1, 2, 5, 32, 1000])


def prefill_by_loop(deployment, request, batch):
    size = deployment.prefill_chunk or request.prompt
    starts = range(request.cached, request.prompt, size)
    several = deployment.layout == "expert" and deployment.devices > 1
    most = deployment.devices if several else batch  # prompts of a pass: one a device
    for first in range(0, batch, most):
        for start in starts:
            end = min(start + size, request.prompt)
            together = min(most, batch - first)
            yield pass_cost(deployment, end - start, start, together, logits=int(end == request.prompt))


def decode_by_loop(deployment, request, batch):
    for k in range(1, request.output):
        yield pass_cost(deployment, 1, request.prompt + k - 1, batch)


@examples(60)
@given(DEPLOYMENTS, requests(), BATCHES)
def test_the_closed_form_is_the_plain_loop_of_passes(deployment, request, batch):
    cost = request_cost(deployment, request, batch)
    prefill = total(prefill_by_loop(deployment, request, batch))
    decode = total(decode_by_loop(deployment, request, batch))
    assert terms(cost.prefill) == pytest.approx(prefill, rel=EXACT)
    assert terms(cost.decode) == pytest.approx(decode, rel=EXACT)
    assert cost.ttft == pytest.approx(total(prefill_by_loop(deployment, request, 1))[2], rel=EXACT)
    assert cost.undisturbed == pytest.approx(cost.ttft + decode[2], rel=EXACT)
    assert cost.seconds == pytest.approx(prefill[2] + decode[2], rel=EXACT)
    if request.output > 1:
        assert cost.tpot == pytest.approx(decode[2] / (request.output - 1), rel=EXACT)


@examples(5)
@given(DEPLOYMENTS, st.sampled_from([(127, 3000), (9_000, 2_500)]), BATCHES)
def test_the_closed_form_is_the_plain_loop_over_thousands_of_steps(deployment, tokens, batch):
    request = Request(*tokens)
    decode = request_cost(deployment, request, batch).decode
    assert terms(decode) == pytest.approx(total(decode_by_loop(deployment, request, batch)), rel=EXACT)


@examples(25)
@given(DEPLOYMENTS, requests(), BATCHES, st.integers(1, 40))
def test_time_never_falls_as_prompt_output_or_batch_grows(deployment, request, batch, more):
    """Cached tokens stay what they are: a longer prompt is more to compute."""
    now = request_cost(deployment, request, batch)
    longer_prompt = request_cost(deployment, replace_request(request, prompt=request.prompt + more), batch)
    longer_output = request_cost(deployment, replace_request(request, output=request.output + more), batch)
    larger_batch = request_cost(deployment, request, batch + more)
    for grown in (longer_prompt, longer_output, larger_batch):
        for name in ("seconds", "undisturbed", "flops", "bytes"):
            assert getattr(now, name) <= getattr(grown, name) * HAIR
    assert now.decode.seconds <= longer_prompt.decode.seconds * HAIR
    if request.output > 1:
        assert now.tpot <= larger_batch.tpot * HAIR and now.tpot <= longer_prompt.tpot * HAIR


def replace_request(request, **changes):
    return Request(**({"prompt": request.prompt, "output": request.output, "cached": request.cached} | changes))


@examples(25)
@given(DEPLOYMENTS, requests(), BATCHES, st.floats(1.0, 30.0))
def test_time_never_rises_with_peak_bandwidth_or_link(deployment, request, batch, factor):
    now = request_cost(deployment, request, batch)
    device = deployment.accelerator
    for faster in (
        replace(device, peaks={dtype: factor * peak for dtype, peak in device.peaks.items()}),
        replace(device, bandwidth=factor * device.bandwidth),
        replace(device, link=factor * device.link),
    ):
        then = request_cost(replace(deployment, accelerator=faster), request, batch)
        assert then.seconds <= now.seconds * HAIR and then.undisturbed <= now.undisturbed * HAIR
        assert (then.flops, then.bytes) == (now.flops, now.bytes)


@examples(25)
@given(DEPLOYMENTS, requests(), BATCHES)
def test_all_rates_doubled_is_exactly_half_the_time(deployment, request, batch):
    device, efficiency = deployment.accelerator, deployment.efficiency
    twice = replace(
        device,
        peaks={dtype: 2 * peak for dtype, peak in device.peaks.items()},
        bandwidth=2 * device.bandwidth,
        link=2 * device.link,
    )
    waits = ("overhead", "all_reduce_latency", "all_to_all_latency")
    half = replace(efficiency, **{name: getattr(efficiency, name) / 2 for name in waits})
    now = request_cost(deployment, request, batch)
    then = request_cost(replace(deployment, accelerator=twice, efficiency=half), request, batch)
    for name in ("seconds", "undisturbed", "ttft"):
        assert 2 * getattr(then, name) == getattr(now, name)
    assert 2 * then.tpot == now.tpot or request.output == 1


@examples(20)
@given(DEPLOYMENTS, requests())
def test_the_two_clocks_agree_at_batch_one(deployment, request):
    cost = request_cost(deployment, request, batch=1)
    assert cost.undisturbed == cost.seconds and cost.ttft == cost.prefill.seconds


@examples(25)
@given(DEPLOYMENTS, requests(), BATCHES, st.integers(1, 50))
def test_cost_is_additive_in_the_output(deployment, request, batch, more):
    """T(n_in, a + b) - T(n_in, a) are the steps in between."""
    short = request_cost(deployment, request, batch)
    long = request_cost(deployment, replace_request(request, output=request.output + more), batch)
    steps = [
        pass_cost(deployment, 1, request.prompt + k - 1, batch) for k in range(request.output, request.output + more)
    ]
    assert terms(long.prefill) == terms(short.prefill)
    for after, before, between in zip(terms(long.decode), terms(short.decode), total(steps), strict=True):
        assert after == pytest.approx(before + between, rel=EXACT)


CELLS = st.lists(st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(0, 5), st.integers(1, 9)), min_size=1)


@examples(25)
@given(DEPLOYMENTS, CELLS)
def test_arrays_are_scalars_cell_by_cell(deployment, cells):
    prompts, outputs, cached, batches = np.array(cells).T
    cached = np.minimum(cached, prompts - 1)
    found = request_cost(deployment, Request(prompts, outputs, cached), batches)
    assert not found.refused.any()
    for i, (prompt, output, held, batch) in enumerate(zip(prompts, outputs, cached, batches, strict=True)):
        alone = request_cost(deployment, Request(int(prompt), int(output), int(held)), int(batch))
        for phase in ("prefill", "decode"):
            expected = terms(getattr(alone, phase))
            cell = [np.broadcast_to(value, prompts.shape)[i] for value in terms(getattr(found, phase))]
            assert cell == pytest.approx(expected, rel=EXACT)
        for name in ("seconds", "undisturbed", "ttft", "flops", "bytes", "decode_share"):
            assert getattr(found, name)[i] == pytest.approx(getattr(alone, name), rel=EXACT)
        assert found.tpot[i] == pytest.approx(alone.tpot, rel=EXACT, nan_ok=True)


@examples(20)
@given(DEPLOYMENTS, st.integers(1, 60), st.integers(1, 60), st.integers(1, 9), st.floats(0, 1), st.integers(1, 6))
def test_speculation_prices_arrays_and_scalars_alike_and_grows_with_the_output(
    deployment, prompt, output, batch, acceptance, drafts
):
    deployment = replace(deployment, speculation=Speculation(drafts, acceptance, deployment.model))
    alone = request_cost(deployment, Request(prompt, output), batch)
    pair = request_cost(deployment, Request(prompt, np.array([output, output + 1])), batch)
    assert terms(alone.decode) == pytest.approx([np.broadcast_to(v, (2,))[0] for v in terms(pair.decode)], rel=EXACT)
    assert pair.seconds[0] <= pair.seconds[1] * HAIR
    rounds = (output - 1) / sum(acceptance**i for i in range(drafts + 1))
    assert alone.decode.passes == pytest.approx(rounds * (drafts + 1), rel=EXACT)


@examples(50)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 2000), st.integers(1, 50))
def test_distinct_experts_lie_between_top_k_and_all_and_grow_with_the_tokens(experts, per_token, tokens, more):
    per_token = min(per_token, experts)
    ffn = MixtureOfExperts(width=16, experts=experts, experts_per_token=per_token, expert_inner=8)
    deployment = Deployment(Model(name="toy", width=16, vocabulary=2, blocks=((1, Block(None, ffn)),)), device())

    def distinct(batch):
        return (pass_cost(deployment, 1, batch=batch).linear.bytes - deployment.sizes.dense_bytes) / (2 * 3 * 16 * 8)

    assert distinct(1) == pytest.approx(per_token, rel=1e-10)
    assert per_token <= distinct(tokens) * (1 + 1e-10) and distinct(tokens) <= experts * (1 + 1e-10)
    assert distinct(tokens) <= distinct(tokens + more) * (1 + 1e-10)


@examples(30)
@given(models(), st.integers(1, 500), st.integers(1, 500))
def test_weight_bytes_lie_between_those_of_one_token_and_all_and_grow_with_the_tokens(model, some, more):
    deployment = Deployment(model, device())
    one, few, many = (pass_cost(deployment, 1, 3, batch=tokens).linear.bytes for tokens in (1, some, some + more))
    tables = model.embedding_weights + model.position_weights
    unused = model.parameters - model.active_parameters
    read = model.parameters + model.borrowed_weights - tables  # those that layers share: once in each
    assert one == pytest.approx(2 * (read - unused), rel=EXACT)
    assert one <= few * HAIR and few <= many * HAIR and many <= 2 * read * HAIR


@examples(25)
@given(DEPLOYMENTS, requests(), BATCHES)
def test_the_parts_add_up(deployment, request, batch):
    cost = request_cost(deployment, request, batch)
    for phase in (cost.prefill, cost.decode):
        assert phase.flops == phase.linear.flops + phase.attention.flops
        assert phase.bytes == pytest.approx(phase.linear.bytes + phase.attention.bytes, rel=EXACT)
        moved = phase.cache_read + phase.cache_write + phase.state_bytes
        assert phase.attention.bytes == pytest.approx(moved, rel=EXACT)
        parts = phase.linear.seconds + phase.attention.seconds + phase.communication + phase.overhead
        assert phase.seconds == pytest.approx(parts, rel=EXACT)
        floor = max(phase.flops / max(deployment.peaks.values()), phase.bytes / deployment.bandwidth)
        assert phase.seconds >= floor / HAIR
    assert cost.flops == cost.prefill.flops + cost.decode.flops
    assert cost.bytes == cost.prefill.bytes + cost.decode.bytes
    assert sum(deployment.model.weights_by_part.values()) == deployment.model.parameters


@examples(25)
@given(deployments(efficiency=Efficiency()), requests(), BATCHES)
def test_roofs_add_up_to_the_seconds(deployment, request, batch):
    cost = request_cost(deployment, request, batch)
    for name, phase in (("prefill", cost.prefill), ("decode", cost.decode)):
        rows = [roof for roof in cost.roofs() if roof.phase == name]
        seconds = math.fsum(roof.seconds for roof in rows)
        assert seconds == pytest.approx(phase.linear.seconds + phase.attention.seconds, rel=EXACT)
        assert math.fsum(roof.flops for roof in rows) == pytest.approx(phase.flops, rel=EXACT)
        assert math.fsum(roof.bytes for roof in rows) == pytest.approx(phase.bytes, rel=EXACT)
        for roof in rows:
            if roof.bound == "compute":
                assert roof.seconds == pytest.approx(roof.compute_seconds, rel=EXACT)
                assert roof.compute_seconds >= roof.memory_seconds
            elif roof.bound == "memory":
                assert roof.seconds == pytest.approx(roof.memory_seconds, rel=EXACT)
                assert roof.memory_seconds >= roof.compute_seconds
            elif roof.bound == "both":
                assert roof.seconds >= max(roof.compute_seconds, roof.memory_seconds) / HAIR
            else:
                assert roof.seconds == 0


@examples(25)
@given(DEPLOYMENTS, st.integers(1, 200), st.integers(1, 40))
def test_the_largest_batch_fits_and_one_more_does_not(deployment, tokens, wanted):
    needed = deployment.memory_needed(float(tokens), wanted)
    tight = replace(deployment.accelerator, memory=needed / (0.9 * deployment.devices) * (1 + 1e-9))
    limited = replace(deployment, accelerator=tight)
    largest = limited.largest_batch(tokens)
    assert largest >= wanted
    assert limited.memory_needed(float(tokens), largest) <= limited.memory_available
    assert limited.memory_needed(float(tokens), largest + 1) > limited.memory_available
