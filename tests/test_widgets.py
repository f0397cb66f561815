"""The explorer shows what request_cost computes, says what it cannot compute, and comes back from it."""

import re
from html.parser import HTMLParser
from itertools import pairwise, product

import numpy as np
import pytest
from helpers import refuses

from lessonlib.base.units import format_percent, format_seconds
from lessonlib.face.widgets.explorer import MOST, UNITS, steps
from lessonlib.face.widgets.request_explorer import START, explore_request, view
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.workloads import load_workload
from lessonlib.policy.estimates import omega, rho
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment


class Table(HTMLParser):
    """The rows of the table and the texts of the picture, as a reader finds them in the widget."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: dict[str, str] = {}
        self.attributes: dict[str, dict] = {}
        self.name = self.tag = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.attributes.setdefault(tag, dict(attrs))
        self.tag = tag

    def handle_data(self, data):
        if self.tag == "th":
            self.name = data
        elif self.tag == "b":
            self.cells[self.name] = data


@pytest.fixture
def explorer():
    return explore_request()


def set_to(explorer, **values):
    for name, value in values.items():
        explorer.controls[name].value = value
    return Table(explorer.shown.value)


def values_of(explorer):
    return {name: control.value for name, control in explorer.controls.items()}


@pytest.mark.parametrize("batch", [1, 24, 35])
@pytest.mark.parametrize("model, accelerator", [("llama-3.1-8b", "h100-sxm"), ("gpt-oss-20b", "b200")])
@pytest.mark.parametrize("prompt, output", [(1024, 128), (128, 12_800), (1, 2)])
def test_the_numbers_shown_are_those_of_request_cost(explorer, model, accelerator, prompt, output, batch):
    shown = set_to(explorer, model=model, accelerator=accelerator, prompt=prompt, output=output, batch=batch).cells
    deployment = Deployment(load_model(model), load_accelerator(accelerator))
    request = Request(prompt, output)
    cost = request_cost(deployment, request, batch)
    assert shown["GPU clock, whole batch"] == format_seconds(cost.seconds)
    assert shown["GPU clock, share of one"] == format_seconds(cost.seconds / batch)
    assert shown["request clock, undisturbed"] == format_seconds(cost.undisturbed)
    assert shown["wait, others' prefills included"] == format_seconds(cost.seconds)  # Little
    assert shown["time to first token"] == format_seconds(cost.ttft)
    assert shown["time per output token, undisturbed"] == format_seconds(cost.tpot)
    assert shown["decode share of GPU time"] == format_percent(cost.decode_share, 5)
    assert shown["decode share of FLOPs"] == format_percent(cost.decode.flops / cost.flops, 4)
    assert float(shown["rho, the estimate"]) == pytest.approx(rho(deployment, request, batch), rel=0.01)
    assert float(shown["prefill / decode, exact"]) == pytest.approx(
        cost.prefill.seconds / cost.decode.seconds, rel=0.01
    )
    assert float(shown["omega"]) == pytest.approx(omega(deployment, Request(prompt, output)), rel=0.01)
    assert int(shown["largest batch that fits"].replace(",", "")) == deployment.largest_batch(prompt + output)


def test_the_lesson_s_own_numbers(explorer):
    shown = set_to(explorer, prompt=1024, output=128, batch=1).cells
    assert (shown["decode share of GPU time"], shown["decode share of FLOPs"]) == ("97.448 %", "11.96 %")
    shown = set_to(explorer, batch=403).cells
    assert shown["decode share of GPU time"].startswith("33.2")
    assert shown["largest batch that fits"] == "403"


@pytest.mark.parametrize("batch, bound", [(256, "memory bound"), (384, "compute bound")])
def test_it_says_what_binds_the_steps(explorer, batch, bound):
    assert set_to(explorer, prompt=128, output=128, batch=batch).cells["decode's linear layers"] == bound


def test_the_bar_s_parts_are_the_parts_of_the_gpu_clock(explorer):
    html = (set_to(explorer, prompt=1024, output=128, batch=32), explorer.shown.value)[1]
    cost = request_cost(Deployment(load_model("llama-3.1-8b"), load_accelerator("h100-sxm")), Request(1024, 128), 32)
    widths = [float(width) for width in re.findall(r'y="26" width="([\d.]+)"', html)]
    parts = (cost.prefill.seconds, cost.decode.linear.seconds, cost.decode.attention.seconds)
    assert widths == [pytest.approx(700 * part / cost.seconds, abs=0.01) for part in parts]
    assert sum(widths) == pytest.approx(700, abs=0.02)


def test_the_picture_has_words_and_a_light_ground(explorer):
    table = Table(explorer.shown.value)
    picture = table.attributes["svg"]
    assert picture["role"] == "img"
    assert "1,024 to 128 tokens, batch 1: decode is 97.45 %" in picture["aria-label"]
    assert "background:#fff" in table.attributes["div"]["style"] and "background:#fff" in picture["style"]


@pytest.mark.parametrize(
    "bad, says",
    [
        ({"prompt": 128, "output": 12_800, "batch": 64}, "What would fit: batch=35"),
        ({"model": "llama-3.1-405b"}, "needs 8"),
        ({"model": "gpt2", "prompt": 1024}, "1,024 positions"),
    ],
    ids=("batch", "weights", "positions"),
)
def test_what_cannot_be_computed_is_said_and_the_controls_keep_their_place(explorer, bad, says):
    good = explorer.shown.value
    table = set_to(explorer, **bad)
    assert says in explorer.shown.value and 'role="alert"' in explorer.shown.value
    assert not table.cells and "svg" not in table.attributes
    assert values_of(explorer) == START | bad
    set_to(explorer, **START)
    assert explorer.shown.value == good


def test_one_output_token_has_no_decode_and_no_time_per_output_token(explorer):
    shown = set_to(explorer, output=1).cells
    assert shown["time per output token, undisturbed"] == shown["prefill / decode, exact"] == "undefined"
    assert shown["decode's linear layers"] == "no decode step"
    assert shown["decode share of GPU time"] == "0 %"


def test_reset_brings_everything_back(explorer):
    first = explorer.shown.value
    set_to(explorer, model="qwen3-8b", accelerator="l4", prompt=64, output=4096, batch=2)
    assert explorer.shown.value != first
    explorer.reset_button.click()
    assert values_of(explorer) == START
    assert explorer.shown.value == first


def test_sliders_say_their_units_and_stop_at_the_lesson_s_numbers(explorer):
    for name, unit in UNITS.items():
        control = explorer.controls[name]
        assert control.description == name
        assert [label for label, _ in control.options][:2] == [f"1 {unit}", f"2 {unit}s"]
        stops = steps(name)
        assert stops[0] == 1 and stops[-1] == MOST[name] and list(stops) == sorted(set(stops))
        assert max(later / sooner for sooner, later in pairwise(stops)) <= 2
    for name in ("chat", "reasoning", "production-reasoning", "agent-step"):
        workload = load_workload(name)
        assert workload.prompt in steps("prompt") and workload.output in steps("output")


def test_every_stop_gives_a_picture_or_a_sentence(explorer):
    fields = [control.options for control in list(explorer.controls.values())[:2]]
    models, accelerators = fields[0][::9], [name for _, name in fields[1][::13]]
    seen = set()
    for model, accelerator, prompt, output, batch in product(
        models, accelerators, steps("prompt")[::17], steps("output")[::17], steps("batch")[::10]
    ):
        html = view(model, accelerator, prompt, output, batch)
        table = Table(html)
        seen.add("svg" in table.attributes)
        assert ("svg" in table.attributes) != ('role="alert"' in html)
        assert not re.search(r"\bnan\b", html) and "Infinity" not in html  # not as in orin-nano
        for number in re.findall(r' (?:x|y|cx|cy|width|height)="(-?[\d.]+)"', html):
            assert -1 <= float(number) <= 721
    assert seen == {True, False}


def test_a_page_without_sliders_says_what_to_do(explorer):
    assert "Run this cell" in repr(explorer) and len(repr(explorer)) < 110  # ipywidgets cuts longer ones


def test_stops_are_of_a_slider():
    for wrong in ("nope", None, []):
        refuses(lambda wrong=wrong: steps(wrong), "control", "prompt", "output", "batch")


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": ["llama-3.1-8b"]},
        {"model": None},
        {"accelerator": {}},
        {"prompt": [1, 2]},
        {"output": np.array([5, 6])},
        {"batch": [1, 2]},
        {"batch": "1"},
    ],
    ids=repr,
)
def test_what_is_no_setting_is_said_in_the_picture_s_place(wrong):
    assert "Not computed." in view(**(START | wrong))
