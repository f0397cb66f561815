"""rho, omega and their like on arrays: float64 whatever comes in, NaN where a cell cannot be meant, no warning."""

import math

import numpy as np
import pytest
from helpers import qwen3_30b_a3b, server

from lessonlib.base.errors import InvalidInputError
from lessonlib.policy.estimates import chi, omega, rho, roof_batch, used_over_read
from lessonlib.policy.sensitivity import break_even_by_rho
from lessonlib.request.request import Request

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.float16, np.int32, np.uint64, np.float64])
def test_the_caller_s_dtype_does_not_wrap(kind):
    """120 tokens x batch 100 is beyond int16, and ridge x output beyond float16."""
    tokens, batch = np.array([120], kind), np.array([100], kind)
    assert rho(server(), Request(tokens, tokens), batch)[0] == rho(server(), Request(120, 120), 100)
    assert omega(server(), Request(tokens, tokens))[0] == omega(server(), Request(120, 120))
    assert chi(server(), Request(tokens, tokens))[0] == chi(server(), Request(120, 120))
    assert roof_batch(server(), Request(tokens, tokens))[0] == roof_batch(server(), Request(120, 120))
    assert break_even_by_rho(server(), tokens, 100)[0] == break_even_by_rho(server(), 120, 100)


def test_large_counts_do_not_overflow():
    many = 2**40
    assert rho(server(), Request(np.array([many]), 1), many)[0] == rho(server(), Request(many, 1), many) > 0


@pytest.mark.parametrize("bad", [-5, 0, 1.5, math.nan, math.inf, 2.0**60])
def test_a_cell_that_cannot_be_meant_is_nan_and_its_neighbour_is_not(bad):
    cells = [bad, 7]
    for name, found in {
        "rho of prompts": rho(server(), Request(cells, 10)),
        "rho of outputs": rho(server(), Request(10, cells)),
        "rho of batches": rho(server(), Request(10, 10), cells),
        "omega": omega(server(), Request(10, cells)),
        "chi": chi(server(), Request(10, cells)),
        "roof batch": roof_batch(server(), Request(10, cells)),
        "break even": break_even_by_rho(server(), cells),
        "used over read": used_over_read(server(qwen3_30b_a3b()), cells),
    }.items():
        assert math.isnan(found[0]) and found[1] > 0, name
    with pytest.raises(InvalidInputError):
        omega(server(), Request(10, bad))


def test_more_cached_than_there_is_prompt_is_nan():
    request = Request([5, 5], [5, 5], [9, 2])
    for found in (rho(server(), request), roof_batch(server(), request)):
        assert math.isnan(found[0]) and found[1] > 0


def test_shapes_that_do_not_broadcast_are_said():
    with pytest.raises(InvalidInputError, match=r"do not broadcast together: prompt \(2,\).* batch \(3,\)"):
        rho(server(), Request([1, 2], 3), [1, 2, 3])


@pytest.mark.parametrize("bad", [-1, 0, None, "3", True, [True]], ids=repr)
def test_used_over_read_wants_a_batch(bad):
    with pytest.raises(InvalidInputError, match="batch is"):
        used_over_read(server(qwen3_30b_a3b()), bad)
