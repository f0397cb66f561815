"""Arrays: they broadcast, take what NumPy has, and blank the cells that cannot be meant, with the reason."""

import math
import re

import numpy as np
import pytest
from helpers import device, gpt_oss, gqa_model, llama, refuses, server

from lessonlib.base.errors import InvalidInputError
from lessonlib.request import cost as pricing
from lessonlib.request.cost import request_cost
from lessonlib.request.request import REFUSALS, Request
from lessonlib.time.roofline import Roof

PROMPTS, OUTPUTS, BATCHES = np.array([[1], [1000], [128]]), np.array([1, 300, 12_800, 5]), np.array([1, 2, 1, 4])
NUMBERS = ("seconds", "undisturbed", "ttft", "tpot", "flops", "bytes", "decode_share")


def alone(prompt, output, cached=0, batch=1, deployment=None):
    return request_cost(deployment or server(), Request(int(prompt), int(output), int(cached)), int(batch))


@pytest.mark.parametrize("deployment", [server(), server(gpt_oss(24, 32)), server(prefill_chunk=100)])
def test_inputs_broadcast(deployment):
    cost = request_cost(deployment, Request(PROMPTS, OUTPUTS), BATCHES)
    assert cost.refused.shape == (3, 4) and not cost.refused.any()
    for i, prompt in enumerate(PROMPTS[:, 0]):
        for j, output in enumerate(OUTPUTS):
            one = alone(prompt, output, batch=BATCHES[j], deployment=deployment)
            for name in NUMBERS:
                found = getattr(cost, name)
                assert found.shape == (3, 4) and found.dtype == np.float64
                assert found[i, j] == pytest.approx(getattr(one, name), rel=1e-12, nan_ok=True)
    for phase in (cost.prefill, cost.decode):
        for name in ("cache_read", "cache_write", "state_bytes", "communication", "passes", "seconds"):
            assert np.shape(getattr(phase, name)) == (3, 4)
        for work in (phase.linear, phase.attention):
            assert isinstance(work, Roof)
            assert {np.shape(getattr(work, name)) for name in ("flops", "bytes", "seconds")} == {(3, 4)}


@pytest.mark.parametrize(
    "deployment",
    [
        server(),
        server(gpt_oss(24, 32)),
        server(prefill_chunk=100),
        server(accelerator=device(), devices=4, layout="expert"),
    ],
)
def test_many_cells_are_priced_block_by_block_and_come_to_the_same(deployment, monkeypatch):
    request = Request(PROMPTS, np.array([1, 300, 0, 12_800, 5]), np.array([[0, 9, 0, 0, 0]]))
    for batch in (1, 3, np.array([1, 2, 1, 4, 2])):
        monkeypatch.setattr(pricing, "BLOCK", 15)
        whole = request_cost(deployment, request, batch)
        monkeypatch.setattr(pricing, "BLOCK", 4)
        cost = request_cost(deployment, request, batch)
        assert np.isnan(cost.seconds).tolist() == (cost.refused > 0).tolist() and 0 < (cost.refused > 0).sum() < 15
        for name in NUMBERS:
            np.testing.assert_array_equal(getattr(cost, name), getattr(whole, name))
        for now, was in ((cost.prefill, whole.prefill), (cost.decode, whole.decode)):
            for name in ("cache_read", "state_bytes", "communication", "passes", "seconds"):
                np.testing.assert_array_equal(getattr(now, name), getattr(was, name))
            np.testing.assert_array_equal(now.attention.seconds, was.attention.seconds)
            assert now.roofs.keys() == was.roofs.keys()


@pytest.mark.parametrize(
    "kind", [np.int8, np.int16, np.uint8, np.int32, np.uint64, np.int64, np.float16, np.float32, np.float64]
)
def test_any_numeric_dtype_is_taken_and_computed_in_float64(kind):
    """120 + 120 tokens would wrap in int8."""
    cost = request_cost(server(), Request(np.array([100, 120], kind), np.array([7, 120], kind)))
    assert [cost.seconds[i] for i in (0, 1)] == [alone(100, 7).seconds, alone(120, 120).seconds]


@pytest.mark.parametrize(
    "number", [np.int64(30), np.uint8(30), np.float32(30), np.float64(30), np.array(30), np.array(30.0), 30.0]
)
def test_numpy_scalars_and_0d_arrays_are_numbers(number):
    cost = request_cost(server(), Request(number, number, np.int32(3)), batch=number)
    assert cost.refused is None and type(cost.seconds) is float
    assert cost.seconds == alone(30, 30, 3, 30).seconds
    assert type(cost.request.prompt) is int and type(cost.batch) is int


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0, -1, 2.5])
def test_numpy_scalars_are_checked_like_numbers(wrong):
    for scalar in (np.float64(wrong), np.array(wrong), np.float32(wrong)):
        with pytest.raises(InvalidInputError, match="prompt"):
            Request(scalar, 5)


def test_lists_and_tuples_are_arrays():
    for pair in ([10, 20], (10, 20), [10.0, np.int64(20)]):
        cost = request_cost(server(), Request(pair, 5))
        assert cost.prefill.flops.tolist() == [alone(10, 5).prefill.flops, alone(20, 5).prefill.flops]


@pytest.mark.parametrize(
    "wrong",
    [
        np.array(["1", "2"]),
        np.array([1, None]),
        np.array([True, False]),
        np.array(["2026-01-01"], dtype="datetime64[D]"),
        np.array([5], dtype="timedelta64[s]"),
        np.array([1 + 0j]),
        np.array([object()]),
        ["1", 2],
        [1, None],
        [[1, 2], [3]],
        [10**400, 1],
        {1, 2},
        range(3),
        np.array("1"),
        np.array(True),
        np.timedelta64(5, "s"),
        np.bool_(True),
    ],
    ids=lambda value: re.sub(r" at 0x\w+", "", repr(value))[:30],
)
def test_what_is_not_an_array_of_numbers_is_refused(wrong):
    for name in ("prompt", "output", "cached"):
        refuses(lambda name=name: Request(**{"prompt": 5, "output": 5, name: wrong}), f"Request: {name}")
    refuses(lambda: request_cost(server(), Request(5, 5), wrong), "request_cost: batch")


def test_shapes_that_do_not_broadcast():
    with pytest.raises(InvalidInputError, match=r"do not broadcast together: prompt \(2,\), output \(3,\)"):
        Request([1, 2], [1, 2, 3])
    with pytest.raises(InvalidInputError, match=r"do not broadcast .* prompt \(2,\).* batch \(3,\)"):
        request_cost(server(), Request([1, 2], [1, 2]), [1, 2, 3])


def test_a_number_that_cannot_be_meant_raises_beside_an_array_too():
    with pytest.raises(InvalidInputError, match="output is 0"):
        Request([1, 2], 0)
    with pytest.raises(InvalidInputError, match="batch is 0"):
        request_cost(server(), Request([1, 2], 5), 0)


BAD_CELLS = [
    ((0, 5, 0, 1), 1),
    ((-3, 5, 0, 1), 1),
    ((1.5, 5, 0, 1), 1),
    ((math.nan, 5, 0, 1), 1),
    ((math.inf, 5, 0, 1), 1),
    ((2.0**54, 5, 0, 1), 1),
    ((5, 0, 0, 1), 2),
    ((5, 0.5, 0, 1), 2),
    ((5, math.nan, 0, 1), 2),
    ((5, -math.inf, 0, 1), 2),
    ((5, 5, -1, 1), 3),
    ((5, 5, 5, 1), 3),
    ((5, 5, 0.5, 1), 3),
    ((5, 5, math.nan, 1), 3),
    ((5, 5, 0, 0), 4),
    ((5, 5, 0, 1.5), 4),
    ((5, 5, 0, math.nan), 4),
    ((131_071, 2, 0, 1), 5),
    ((1, 131_072, 0, 1), 5),
    ((200, 20_000, 0, 32), 6),
    ((5, 5, 0, 1e12), 6),
    ((0, 0, -1, 0), 1),  # the first thing wrong
]
GOOD_CELLS = [(5, 5, 0, 1), (131_071, 1, 0, 1), (5, 1, 4, 3), (1024, 128, 0, 370)]


def test_a_bad_cell_is_nan_with_its_reason_and_the_others_are_computed():
    cells = [cell for cell, _ in BAD_CELLS] + GOOD_CELLS
    prompt, output, cached, batch = np.array(cells, dtype=float).T
    cost = request_cost(server(), Request(prompt, output, cached), batch)
    assert cost.refused.tolist() == [code for _, code in BAD_CELLS] + [0] * len(GOOD_CELLS)
    for i, (cell, code) in enumerate(BAD_CELLS):
        assert cost.why_refused(i) == REFUSALS[code] != ""
        for name in NUMBERS:
            assert math.isnan(getattr(cost, name)[i]), (name, cell)
        for phase in (cost.prefill, cost.decode):
            for name in ("flops", "bytes", "seconds", "cache_read", "cache_write", "state_bytes", "passes"):
                assert math.isnan(getattr(phase, name)[i]), (name, cell)
    for i, cell in enumerate(GOOD_CELLS, start=len(BAD_CELLS)):
        assert cost.why_refused(i) == ""
        for name in NUMBERS:
            assert getattr(cost, name)[i] == pytest.approx(getattr(alone(*cell), name), rel=1e-12, nan_ok=True)


def test_every_bad_cell_raises_as_a_number():
    for cell, _ in BAD_CELLS:
        with pytest.raises(ValueError):
            request_cost(server(), Request(*cell[:3]), cell[3])


def test_too_many_chunks_are_a_reason_too():
    deployment = server(gqa_model(), device(), prefill_chunk=2)
    cost = request_cost(deployment, Request(np.array([10, 10**6]), np.array([1, 1])))
    assert cost.refused.tolist() == [0, 7] and "prefill chunks" in cost.why_refused(1)
    assert cost.prefill.passes[0] == 5


def test_bad_cells_among_many_rows():
    size = 25_000
    for bad in ({3}, {8193}, {size - 1}, {0, 8191, 8192, 16_384}):
        prompt = np.full(size, 10)
        prompt[list(bad)] = 0
        output = np.arange(size) % 7 + 1
        cost = request_cost(server(), Request(prompt, output), 2)
        assert set(np.flatnonzero(cost.refused)) == set(np.flatnonzero(np.isnan(cost.seconds))) == bad
        expected = np.array([alone(10, n, batch=2).seconds for n in range(1, 8)])[output - 1]
        good = cost.refused == 0
        assert np.array_equal(cost.seconds[good], expected[good])
        assert np.all(cost.prefill.passes[good] == 1) and np.all(np.isnan(cost.prefill.passes[~good]))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2)])
def test_empty_arrays(shape):
    cost = request_cost(server(), Request(np.ones(shape), 5), 2)
    for name in NUMBERS:
        assert getattr(cost, name).shape == shape
    assert cost.refused.shape == shape
    assert "0 requests" in repr(cost)


def test_one_output_token_has_no_decode_and_no_time_per_token():
    cost = alone(100, 1)
    assert (cost.decode.seconds, cost.decode.flops, cost.decode.bytes, cost.decode.passes) == (0, 0, 0, 0)
    assert math.isnan(cost.tpot) and cost.seconds == cost.prefill.seconds > 0 and cost.decode_share == 0
    array = request_cost(server(), Request(np.array([100, 100]), np.array([1, 2])))
    assert math.isnan(array.tpot[0]) and array.tpot[1] == array.decode.seconds[1]
    assert array.decode.seconds[0] == 0 and not array.refused.any()


def test_numbers_give_plain_floats():
    cost = alone(10, 10)
    for phase in (cost.prefill, cost.decode):
        for name in ("flops", "bytes", "seconds", "cache_read", "cache_write", "state_bytes", "passes"):
            assert type(getattr(phase, name)) is float
        for work in (phase.linear, phase.attention):
            assert {type(value) for value in (work.flops, work.bytes, work.seconds, work.intensity)} == {float}
    assert all(type(getattr(cost, name)) is float for name in NUMBERS)
    assert cost.refused is None and cost.why_refused() == ""


def test_cache_bytes_take_arrays():
    tokens = np.array([[1, 10], [128, 1000]])
    found = llama().cache_bytes(tokens)
    assert found.shape == (2, 2) and np.array_equal(found, 131_072 * tokens)
    assert type(llama().cache_bytes(5)) is float
    sliding = gpt_oss(24, 32).cache_bytes(tokens)
    assert np.array_equal(sliding, 12 * 2048 * (tokens + np.minimum(tokens, 128)))


def test_a_number_and_an_array_together():
    cost = request_cost(server(), Request(1000, np.array([1, 2, 300])))
    assert not cost.refused.any() and cost.decode.passes[2] == 299
    assert cost.seconds[1] == request_cost(server(), Request(1000, 2)).seconds
    assert not request_cost(server(), Request(1000, [5])).refused.any()
    assert not request_cost(server(), Request(128, 128), np.arange(1, 9)).refused.any()


def test_an_array_is_the_requests_own():
    mine = np.array([10, 20])
    request = Request(5, mine)
    before = request_cost(server(), request).tpot
    mine[:] = 1
    assert (request_cost(server(), request).tpot == before).all()
    with pytest.raises(ValueError, match="read-only"):
        request.output[0] = 3


@pytest.mark.parametrize(
    "wrong", [[True, 2], np.ma.array([1, 2], mask=[0, 1]), [10**400, 1]], ids=["bool", "masked", "huge"]
)
def test_arrays_that_hide_something_are_refused(wrong):
    with pytest.raises(InvalidInputError):
        Request(5, wrong)


def test_why_refused_wants_a_cell():
    cost = request_cost(server(), Request([1, 0], 2))
    assert "prompt" in cost.why_refused(1) and cost.why_refused(0) == ""
    for wrong in ((), (-1,), (2,), (0, 0), ("0",), (0.5,)):
        with pytest.raises(InvalidInputError, match=r"is not a cell; the results have the shape \(2,\)"):
            cost.why_refused(*wrong)


def test_no_byte_has_no_intensity():
    assert np.isnan(request_cost(server(), Request(5, 1)).decode.linear.intensity)
    found = request_cost(server(), Request(5, [1, 3])).decode.linear.intensity
    assert np.isnan(found[0]) and found[1] > 0.9
