"""Values that nobody means, at the doors that have no table of rules: each is refused by an error of lessonlib."""

import io
import math
from contextlib import redirect_stdout
from dataclasses import replace

import numpy as np
import pytest
from helpers import device, gqa_model, h100, llama, refuses, server
from matplotlib.figure import Figure

from lessonlib.base.errors import MOST_TOKENS, LessonError, as_numbers, shown
from lessonlib.base.files import Upload, place_of, quoted
from lessonlib.base.text import markdown_table
from lessonlib.face.figures.style import show
from lessonlib.face.widgets.explorer import explore_growth, explore_price
from lessonlib.facts.catalogue import model_config
from lessonlib.facts.config_file import read_config
from lessonlib.facts.own_traffic import OwnTraffic, read_traffic
from lessonlib.measured.timing.decoder import NumpyDecoder, toy_model
from lessonlib.model.draft import DraftHead
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.policy.estimates import chi, omega, rho, roof_batch
from lessonlib.policy.full_server import at_latency, memory_batch, steady_state
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Efficiency


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no words")


class OnADevice:
    """As a tensor that does not leave its device."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


class NoPath:
    def __fspath__(self):
        return 3


class PathOfBytes:
    def __fspath__(self):
        return b"absent.csv"


ONES = np.array([1, 2])
CALLS = {
    "a value without words": lambda: Request(Unprintable(), 1),
    "a tensor on a device": lambda: Request([OnADevice()], 1),
    "traffic on a device": lambda: OwnTraffic("x", OnADevice(), ONES, ONES),
    "ragged traffic": lambda: OwnTraffic("x", [[1], [1, 2]], ONES, ONES),
    "traffic without a name": lambda: OwnTraffic(10**5000, ONES, ONES, 0 * ONES),
    "no path": lambda: read_config(NoPath()),
    "no path of traffic": lambda: read_traffic(NoPath()),
    "a path of bytes": lambda: read_traffic(PathOfBytes()),
    "a name that is no path": lambda: place_of(NoPath()),
    "a count for bytes": lambda: Upload(5, "x"),
    "an upload without a name": lambda: Upload(b"x", None),
    "a table of numbers": lambda: markdown_table(("a",), [(1,)]),
    "a table of a word": lambda: markdown_table("ab", [("1", "2")]),
    "a short row": lambda: markdown_table(("a", "b"), [("1", "2"), ("1",)]),
    "no answer": lambda: at_latency(server(), Request([], [])),
    "no steps": lambda: explore_growth(output=[]),
    "no model": lambda: explore_growth(model=ONES),
    "no precision": lambda: explore_growth(precision=["bf16"]),
    "no efficiency": lambda: explore_growth(efficiency=0.5),
    "no setting": lambda: explore_growth(**{"promt": 5}),
    "a price in words": lambda: explore_price(dollars="two"),
    "no head": lambda: toy_model(heads=0),
    "a seed that NumPy cannot take": lambda: NumpyDecoder(toy_model(1, 4, 2, 4, 4), 4, seed=[[]]),
    "no room": lambda: NumpyDecoder(toy_model(1, 4, 2, 4, 4), 0),
    "no picture": lambda: show(None, "a b c", "a b c"),
    "no alt text": lambda: show(Figure(), 10**5000, "a b c"),
    "a peak of no name": lambda: h100().peak(10**5000),
    "a name that is none": lambda: Model.from_config(model_config("llama-3.1-8b"), name=ONES),
    "little memory": lambda: server(accelerator=device(memory=1)).require_fit(10),
    "no memory": lambda: server(accelerator=device(memory=1), memory_fraction=1e-300).require_fit(10),
    "a peak without a name": lambda: device(peaks={"": 1e12}),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_it_is_refused_in_words(call):
    with pytest.raises(LessonError) as caught, redirect_stdout(io.StringIO()):
        call()
    message = str(caught.value)
    assert len(message) < 1000 and message.endswith(".")


@pytest.mark.parametrize("value", [ONES, np.array(5), object(), {5: 1}, [OnADevice()], {"a": ONES}, {1, 2}, b"x", 5j])
def test_a_config_holds_what_json_holds(value):
    config = model_config("llama-3.1-8b")
    for key in (*config, "quantization_config", "num_experts", "strange"):
        for read in (Model.from_config, Precision.from_config, DraftHead.from_config):
            refuses(lambda key=key, read=read: read(config | {key: value}), "config", repr(key))
    for other in (value, [config], None):
        if not isinstance(other, dict):
            refuses(lambda other=other: Model.from_config(other), "config")


def test_what_is_no_number_and_has_no_words_is_shown_by_its_type():
    assert shown(Unprintable()) == "a value of type Unprintable that cannot be printed"
    assert as_numbers(OnADevice()) is None
    assert quoted(PathOfBytes()) == "'absent.csv'" and "NoPath" in quoted(NoPath())


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.float32, np.float64])
def test_sizes_of_small_integers_do_not_wrap(kind):
    """4,096 squared is 0 in 16 bits."""
    sizes = {"width": 4096, "inner": 14336, "heads": 32, "kv_heads": 8, "head_dim": 128, "vocabulary": 32_000}
    given = {name: kind(size) for name, size in sizes.items()}
    assert DraftHead.eagle3(**given) == DraftHead.eagle3(**sizes)
    refuses(lambda: DraftHead.eagle3(**sizes | {"heads": True}), "eagle3", "heads")


def test_a_batch_is_counted_as_far_as_floats_count():
    """Beyond, one more is the same number, and a search by ones would not end."""
    endless = server(gqa_model(), device(memory=1e30, bandwidth=1e30))
    for request in (Request(10, 10), Request([10, 20], [10, 5])):
        assert memory_batch(endless, request) == MOST_TOKENS
    assert steady_state(endless, Request(10, 10)).batch == MOST_TOKENS
    assert server(llama(), device(memory=1e18)).largest_batch(20) < MOST_TOKENS


ABSURD = (5e-324, 1e-300, 1e31, 1e300, 1.7e308, float("nan"), float("inf"), 0, -1)


@pytest.mark.parametrize("value", ABSURD)
def test_an_accelerator_and_an_efficiency_that_would_leave_floats_are_refused_where_they_are_made(value):
    """1e-300 byte/s made infinite seconds and NaN shares, a peak of 1.7e308 divided by zero, without a word."""
    for name, unit in (("memory", "bytes"), ("bandwidth", "byte/s"), ("link", "byte/s")):
        refuses(lambda name=name: device(**{name: value}), name, f"a number of {unit} from 1 to 1e+30")
    refuses(lambda: device(peaks={"bf16": value}), "peaks['bf16']", "a number of FLOP/s from 1 to 1e+30")
    refuses(lambda: server(link=value), "link", "a number of byte/s from 1 to 1e+30")
    for name in ("mfu", "mbu"):
        refuses(lambda name=name: Efficiency(**{name: value}), name, "a fraction from 1e-09 to 1")
    if not 0 <= value <= 1e9:
        for name in ("overhead", "all_reduce_latency", "all_to_all_latency"):
            refuses(lambda name=name: Efficiency(**{name: value}), name, "a number of seconds from 0 to 1e+09")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("memory", [2e10, 1e30])
@pytest.mark.parametrize("rates", [(1, 1), (1, 1e30), (1e30, 1), (1e30, 1e30)])
def test_at_the_bounds_every_number_is_finite_and_above_zero(memory, rates):
    peak, bandwidth = rates
    slow = Efficiency(mfu=1e-9, mbu=1e-9, overhead=1e9)
    for efficiency in (Efficiency(), slow):
        deployment = server(accelerator=device(memory=memory, bandwidth=bandwidth, peaks={"bf16": peak}))
        deployment = replace(deployment, efficiency=efficiency)
        request = Request(128, 1280)
        found = steady_state(deployment, request)
        numbers = [found.wait, found.tpot, found.tokens_per_second, request_cost(deployment, request).seconds]
        numbers += [estimate(deployment, request) for estimate in (chi, omega, rho, roof_batch)]
        assert all(0 < number < math.inf for number in numbers), numbers
