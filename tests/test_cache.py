"""The cache over an answer against plain loops: bytes by kind, a step apart, the crossing, the triangle, paging."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from helpers import (
    BY_HAND,
    deepseek_v3,
    deployments,
    device,
    examples,
    gpt_oss,
    gqa_model,
    llama,
    qwen3_next,
    refuses,
    server,
)
from hypothesis import given
from hypothesis import strategies as st

from lessonlib.base.errors import DoesNotFitError, InvalidInputError
from lessonlib.model.precision import Precision
from lessonlib.policy.cache import (
    answer_traffic,
    cache_by_kind,
    paging,
    shared_step_seconds,
    span_where_cache_passes_weights,
    steady_attention_seconds,
    step_parts,
)
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Speculation
from lessonlib.time.roofline import pass_cost

REASONING = Request(128, 12_800)
REQUESTS = st.builds(Request, st.integers(1, 200), st.integers(2, 60))
BATCHES = st.integers(1, 40)
DEPLOYMENTS = st.sampled_from([1, 2]).flatmap(lambda devices: deployments(devices=devices))


def layers_of(deployment):
    """Every mixer of the model, one for each layer."""
    for layers, mixer in deployment.model.kernel_kinds:
        yield from [mixer] * layers


def held(mixer, tokens):
    window = getattr(mixer, "window", None)  # of constant state there is none
    return tokens if window is None else min(tokens, window)


def kappa(deployment, mixer):
    """Bytes of a cached token in one layer, all devices together."""
    return mixer.cache_elements * deployment.precision.bytes_of("cache") * mixer.cache_copies(deployment.devices)


def state(deployment, mixer):
    return 2 * mixer.state_elements + deployment.precision.compute_bytes * mixer.conv_elements


def attention_seconds(deployment, span):
    """Of one sequence in one step, layer by layer, each under its own roof."""
    total = 0.0
    for mixer in layers_of(deployment):
        flops = mixer.pair_flops * held(mixer, span) + mixer.token_flops
        moved = kappa(deployment, mixer) * held(mixer, span) + 2 * state(deployment, mixer)
        both = flops / deployment.peaks["attention"], moved / deployment.bandwidth
        total += max(both) if deployment.efficiency.overlap else sum(both)
    return total


def moved_by_step(deployment, span, batch):
    """Cache and state bytes that a step of `batch` sequences reads and writes."""
    layers = layers_of(deployment)
    return batch * sum(kappa(deployment, m) * held(m, span) + 2 * state(deployment, m) for m in layers)


# ---- bytes by kind of layer


@examples(30)
@given(DEPLOYMENTS, st.integers(0, 20_000))
def test_bytes_by_kind_are_those_of_its_layers(deployment, tokens):
    found = cache_by_kind(deployment, tokens)
    kinds = deployment.model.kernel_kinds
    assert [(kind.label, kind.layers) for kind in found] == [(mixer.label, layers) for layers, mixer in kinds]
    for kind, (layers, mixer) in zip(found, kinds, strict=True):
        by_hand = 0.0
        for _ in range(layers):
            by_hand += kappa(deployment, mixer) * held(mixer, tokens) + state(deployment, mixer)
        assert isinstance(kind.bytes, float)
        assert kind.bytes == pytest.approx(by_hand, rel=1e-13)
    assert sum(kind.bytes for kind in found) == pytest.approx(deployment.sequence_bytes(float(tokens)), rel=1e-13)


@pytest.mark.parametrize("name", BY_HAND)
def test_bytes_by_kind_add_up_to_the_models_own_count(name):
    model = BY_HAND[name][0]()
    tokens = np.array([0, 1, 127, 128, 129, 4096, 100_000])
    total = sum(kind.bytes for kind in cache_by_kind(server(model), tokens))
    assert total == pytest.approx(model.cache_bytes(tokens) + model.state_bytes(), rel=1e-13)


def test_bytes_by_kind_of_four_designs():
    one = {
        name: {kind.label: kind.bytes for kind in cache_by_kind(server(model), 1000)}
        for name, model in (("gqa", llama()), ("mla", deepseek_v3()), ("state", qwen3_next()), ("mix", gpt_oss(24, 32)))
    }
    assert one["gqa"] == {"GQA": 32 * 2 * 8 * 128 * 2 * 1000}
    assert one["mla"] == {"MLA": 61 * (512 + 64) * 2 * 1000}
    assert one["mix"] == {"GQA, window 128": 12 * 2 * 8 * 64 * 2 * 128, "GQA": 12 * 2 * 8 * 64 * 2 * 1000}
    state_and_convolution = 36 * (2 * 32 * 128 * 128 + 2 * 3 * (2 * 16 * 128 + 32 * 128))
    assert one["state"] == {"gated delta rule": state_and_convolution, "GQA": 12 * 2 * 2 * 256 * 2 * 1000}


def test_no_cache_before_the_first_token_but_the_state_is_there():
    assert [kind.bytes for kind in cache_by_kind(server(), 0)] == [0.0]
    assert cache_by_kind(server(qwen3_next()), 0)[0].bytes > 75_497_472 / 2


@pytest.mark.parametrize("tokens", [-1, float("nan"), float("inf"), [1, -2], "many", None, [[1], [2, 3]], True, 1j])
def test_bytes_by_kind_refuses_what_is_no_number_of_tokens(tokens):
    with pytest.raises(InvalidInputError, match="cache_by_kind: tokens"):
        cache_by_kind(server(), tokens)


# ---- a step apart


@examples(30)
@given(DEPLOYMENTS, REQUESTS, BATCHES)
def test_a_batch_started_together_has_the_passes_of_its_context(deployment, request, batch):
    for position in range(1, request.output):
        parts = step_parts(deployment, request, position, batch, together=True)
        whole = pass_cost(deployment, new=1, cached=request.prompt + position - 1, batch=batch)
        assert parts.linear == pytest.approx(whole.linear.seconds, rel=1e-12)
        assert parts.other == pytest.approx(whole.communication + whole.overhead, rel=1e-12)
        assert parts.own + parts.neighbours == pytest.approx(whole.attention.seconds, rel=1e-12)
        assert parts.seconds == pytest.approx(whole.seconds, rel=1e-12)


@examples(30)
@given(DEPLOYMENTS, REQUESTS, BATCHES)
def test_in_a_steady_state_each_neighbour_costs_the_mean_of_an_answer(deployment, request, batch):
    steps = request.output - 1
    own = [attention_seconds(deployment, request.prompt + k) for k in range(1, steps + 1)]
    mean = 0.0
    for seconds in own:
        mean += seconds / steps
    assert steady_attention_seconds(deployment, request) == pytest.approx(mean, rel=1e-12)
    for k in (1, (steps + 1) // 2, steps):
        parts = step_parts(deployment, request, k, batch)
        assert parts.own == pytest.approx(own[k - 1], rel=1e-12)
        assert parts.neighbours == pytest.approx((batch - 1) * mean, rel=1e-12)
        assert (parts.linear, parts.other) == shared_step_seconds(deployment, batch)


@examples(30)
@given(DEPLOYMENTS, REQUESTS, BATCHES, st.booleans())
def test_the_steps_add_up_to_the_answer_whoever_started_when(deployment, request, batch, together):
    total = 0.0
    for position in range(1, request.output):
        total += step_parts(deployment, request, position, batch, together).seconds
    assert total == pytest.approx(request_cost(deployment, request, batch).decode.seconds, rel=1e-11)


@examples(30)
@given(DEPLOYMENTS, REQUESTS, BATCHES, st.booleans())
def test_arrays_of_positions_give_what_single_ones_give(deployment, request, batch, together):
    positions = np.arange(1, request.output)
    parts = step_parts(deployment, request, positions, batch, together)
    singles = [step_parts(deployment, request, int(k), batch, together) for k in positions]
    for name in ("linear", "neighbours", "own", "other", "seconds"):
        single = [getattr(one, name) for one in singles]
        assert getattr(parts, name).shape == positions.shape
        assert list(getattr(parts, name)) == single
        assert all(type(value) is float for value in single)


@examples(30)
@given(DEPLOYMENTS, REQUESTS, st.integers(1, 20))
def test_a_step_never_gets_shorter_along_the_answer_nor_with_the_batch(deployment, request, batch):
    positions = np.arange(1, request.output)
    for together in (False, True):
        small = step_parts(deployment, request, positions, batch, together)
        large = step_parts(deployment, request, positions, batch + 1, together)
        assert np.all(np.diff(small.seconds) >= -1e-12 * small.seconds[1:])
        assert np.all(large.seconds >= small.seconds * (1 - 1e-12))


def test_alone_there_are_no_neighbours():
    for together in (False, True):
        assert step_parts(server(), REASONING, 6_400, 1, together).neighbours == 0


def test_the_lessons_step_apart():
    first, last = (step_parts(server(), REASONING, k, 32) for k in (1, 12_799))
    milliseconds = [1e3 * x for x in (first.linear, first.neighbours, first.own, last.own, last.neighbours)]
    assert milliseconds == pytest.approx([4.4806, 7.9178, 0.0050473, 0.50578, 7.9178], rel=2e-5)
    together = [1e3 * step_parts(server(), REASONING, k, 32, together=True).seconds for k in (1, 12_799)]
    assert together == pytest.approx([4.642, 20.666], abs=5e-4)
    assert together[1] / together[0] == pytest.approx(4.45, abs=5e-3)


def test_twice_the_answer():
    def ratio(batch):
        once, twice = (request_cost(server(), Request(128, n), batch).seconds for n in (12_800, 25_600))
        return twice / once

    assert (round(ratio(1), 2), round(ratio(16), 2)) == (2.11, 2.93)


def test_two_tokens_are_one_step_and_one_token_none():
    assert steady_attention_seconds(server(), Request(128, 1)) == 0.0
    assert step_parts(server(), Request(128, 2), 1).own == pytest.approx(129 * 131_072 / 3.35e12, rel=1e-13)
    refuses(lambda: step_parts(server(), Request(128, 1), 1), "step_parts: position", "1", "0")


@pytest.mark.parametrize(
    "position", [0, -1, 12_800, 1.5, float("nan"), [1, 12_800], "first", None, True, [[1], [1, 2]]]
)
def test_a_position_outside_the_answer_is_refused(position):
    refuses(lambda: step_parts(server(), REASONING, position), "step_parts: position")


@pytest.mark.parametrize("batch", [0, -3, 1.5, float("nan"), "32", None, True])
def test_a_batch_that_cannot_be_meant_is_refused(batch):
    for function in (
        lambda: step_parts(server(), REASONING, 1, batch),
        lambda: answer_traffic(server(), REASONING, batch),
        lambda: span_where_cache_passes_weights(server(), batch),
    ):
        refuses(function, ": batch")


def test_arrays_speculation_and_other_things_are_refused():
    many = Request(np.array([128, 256]), 100)
    for function in (step_parts, answer_traffic):
        extra = (1,) if function is step_parts else ()
        name, drafts = function.__name__, server(speculation=Speculation(4, 0.7, "free"))
        for asked, named in (
            ((server(), many), (name, "request")),
            ((drafts, REASONING), (name, "deployment", "speculation")),
            ((server(), 12), (f"{name}: request", "12")),
            ((12, REASONING), (f"{name}: deployment", "12")),
            ((server(), Request(128, 131_000)), ("prompt", "output", "131,072")),
        ):
            refuses(lambda function=function, asked=(*asked, *extra): function(*asked), *named)
    with pytest.raises(InvalidInputError, match="answer_traffic: batch"):
        answer_traffic(server(), REASONING, np.array([1, 2]))
    with pytest.raises(InvalidInputError, match="steady_attention_seconds: request"):
        steady_attention_seconds(server(), many)


def test_a_batch_that_does_not_fit_is_refused_at_its_end_or_at_its_mean():
    assert step_parts(server(), REASONING, 1, 35, together=True).seconds > 0
    with pytest.raises(DoesNotFitError):
        step_parts(server(), REASONING, 1, 36, together=True)
    most = server().largest_batch(128 + 6_400)
    assert most > 60 and step_parts(server(), REASONING, 1, most).seconds > 0
    with pytest.raises(DoesNotFitError):
        step_parts(server(), REASONING, 1, most + 1)
    with pytest.raises(DoesNotFitError):
        answer_traffic(server(), REASONING, 36)


# ---- where the cache passes the weights


@examples(50)
@given(DEPLOYMENTS, st.integers(1, 5000))
def test_the_crossing_is_the_first_span_that_moves_more_than_the_weights(deployment, batch):
    weights = pass_cost(deployment, new=1, batch=batch).linear.bytes
    span = span_where_cache_passes_weights(deployment, batch)
    slack = 1e-12 * weights
    if span is None:
        assert moved_by_step(deployment, 2**52, batch) <= weights + slack
    else:
        assert moved_by_step(deployment, span, batch) > weights - slack
        assert span == 1 or moved_by_step(deployment, span - 1, batch) <= weights + slack


@pytest.mark.parametrize("window", [None, 5, 40])
@pytest.mark.parametrize("batch", [1, 3, 16])
def test_the_crossing_by_trying_each_span(window, batch):
    deployment = server(gqa_model(window=window), device())
    weights = pass_cost(deployment, new=1, batch=batch).linear.bytes
    tried = range(1, 10_000)
    by_hand = next((span for span in tried if moved_by_step(deployment, span, batch) > weights), None)
    assert span_where_cache_passes_weights(deployment, batch) == by_hand


def test_the_lessons_crossings():
    found = {batch: span_where_cache_passes_weights(server(), batch) for batch in (1, 16, 32, 256)}
    assert found == {1: 114_517, 16: 7_158, 32: 3_579, 256: 448}
    for batch, span in found.items():
        by_hand = next(s for s in count(span - 1) if batch * 131_072 * s > 15_009_849_344)
        assert span == by_hand


def test_a_smaller_cache_crosses_later_and_smaller_weights_sooner():
    cache, weights = (server(dtype=Precision("bf16", cache="fp8")), server(dtype=Precision("fp8", cache="bf16")))
    assert span_where_cache_passes_weights(cache, 32) == 7_158
    assert span_where_cache_passes_weights(weights, 32) < 3_579


def test_a_window_may_keep_the_cache_below_the_weights_for_good():
    assert span_where_cache_passes_weights(server(gqa_model(window=2), device())) is None


# ---- the triangle


@examples(30)
@given(DEPLOYMENTS, st.builds(Request, st.integers(1, 200), st.integers(1, 60)), BATCHES)
def test_traffic_of_an_answer_is_the_sum_of_its_reads(deployment, request, batch):
    triangle = flat = end = 0.0
    last = request.prompt + request.output - 2
    for step in range(1, request.output):
        for mixer in layers_of(deployment):
            window = getattr(mixer, "window", None)
            most = float("inf") if window is None else window - 1
            each = batch * kappa(deployment, mixer)
            triangle += each * min(request.prompt + step - 1, most)
            flat += each * min(request.prompt, most)
            end += each * min(last, most)
    found = answer_traffic(deployment, request, batch)
    assert [found.triangle, found.flat, found.end] == pytest.approx([triangle, flat, end], rel=1e-11)
    assert found.flat <= found.triangle * (1 + 1e-12) and found.triangle <= found.end * (1 + 1e-12)


def test_the_lessons_triangle_to_the_byte():
    found = answer_traffic(server(), REASONING)
    assert found.triangle == 131_072 * sum(range(128, 12_927)) == 10_949_633_376_256
    assert found.flat == 131_072 * 12_799 * 128
    assert found.end == 131_072 * 12_799 * 12_926
    assert [round(x / 1e12, 2) for x in (found.triangle, found.flat, found.end)] == [10.95, 0.21, 21.68]


def test_one_output_token_reads_no_cache():
    found = answer_traffic(server(), Request(128, 1))
    assert (found.triangle, found.flat, found.end) == (0, 0, 0)


def test_constant_state_is_no_cache_that_grows():
    only_state = replace(qwen3_next(), blocks=qwen3_next().blocks[:1])
    found = answer_traffic(server(only_state, device()), Request(128, 100))
    assert (found.triangle, found.flat, found.end) == (0, 0, 0)


# ---- paging

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=8)


def blocks_filled_token_by_token(lengths, block, prefix):
    """(blocks of all sequences, distinct ones when equal full blocks are stored once): tokens put down one by one."""
    every, stored = 0, set()
    for sequence, length in enumerate(lengths):
        blocks = []
        for place in range(length):
            if place % block == 0:
                blocks.append([])
            blocks[-1].append(("prefix", place) if place < prefix else (sequence, place))
        every += len(blocks)
        for number, tokens in enumerate(blocks):
            full = len(tokens) == block
            stored.add((tuple(tokens), None if full else (sequence, number)))
    return every, len(stored)


@given(LENGTHS, st.integers(1, 70), st.integers(0, 100), st.data())
def test_paging_is_what_filling_blocks_token_by_token_gives(lengths, block, extra, data):
    prefix = data.draw(st.integers(0, min(lengths)))
    maximum = max(lengths) + extra
    found = paging(lengths, maximum, block, prefix)
    every, stored = blocks_filled_token_by_token(lengths, block, prefix)
    assert found.used == sum(lengths)
    assert found.contiguous == maximum * len(lengths)
    assert found.paged == block * every
    assert found.paged - found.shared == block * stored


@given(LENGTHS, st.integers(1, 70), st.integers(0, 100))
def test_paging_wastes_less_than_a_block_a_sequence(lengths, block, extra):
    found = paging(lengths, max(lengths) + extra, block)
    assert 0 <= found.paged - found.used <= (block - 1) * len(lengths)
    assert 0 <= found.paged_waste < 1 and 0 <= found.contiguous_waste < 1
    assert found.paged_waste == pytest.approx((found.paged - found.used) / found.paged, abs=1e-12)
    assert found.contiguous_waste == pytest.approx((found.contiguous - found.used) / found.contiguous, abs=1e-12)
    assert paging(lengths, max(lengths) + extra, 1).paged_waste == 0
    assert paging(lengths, max(lengths) + extra, 2 * block).paged >= found.paged


@given(st.integers(1, 500), st.integers(1, 70))
def test_blocks_hold_the_tokens_of_the_context_and_no_others(context, block):
    """Growth: whatever the block size, a step reads each cached token once, so its bytes are those of the context."""
    full, rest = divmod(context, block)
    assert paging([context], context, block).used == full * block + rest == context


def test_paging_by_hand():
    found = paging([1, 16, 17, 100], maximum=128)
    assert (found.used, found.contiguous, found.paged, found.shared) == (134, 512, 16 + 16 + 32 + 112, 0)
    shared = paging([40, 50, 60], maximum=64, block=16, prefix=35)
    assert shared.shared == 2 * 16 * 2  # two full blocks of the prefix, for two of three sequences


def test_paging_takes_arrays_of_lengths():
    lengths = np.array([1, 16, 17, 100])
    assert paging(lengths, 128) == paging([1, 16, 17, 100], 128)


@pytest.mark.parametrize(
    "arguments, name",
    [
        (([], 10), "lengths"),
        ((5, 10), "lengths"),
        ((None, 10), "lengths"),
        (([3, 11], 10), "length"),
        (([0], 10), "length"),
        (([2.5], 10), "length"),
        (([float("nan")], 10), "length"),
        ((["3"], 10), "length"),
        (([True], 10), "length"),
        (("12", 10), "lengths"),
        ((np.ones((2, 2)), 10), "lengths"),
        (([3], 0), "maximum"),
        (([3], None), "maximum"),
        (([3], 10, 0), "block"),
        (([3], 10, 1.5), r"block"),
        (([3], 10, 16, -1), "prefix"),
        (([3, 9], 10, 16, 4), "length"),
    ],
)
def test_paging_refuses_what_cannot_be_meant(arguments, name):
    refuses(lambda: paging(*arguments), f"paging: {name}")
