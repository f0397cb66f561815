"""The figures of notebook 05: curves end where the arithmetic ends, labels say it, and none covers another."""

import io
import itertools

import numpy as np
import pytest

from lessonlib.base.units import format_percent
from lessonlib.face.exercises.book.common import server
from lessonlib.face.figures.batches import break_even_lines, lever_curves, prefill_savings
from lessonlib.face.palette import CACHE, PREFILL
from lessonlib.facts.workloads import load_workload
from lessonlib.policy.batching import memory_batch
from lessonlib.policy.levers import prefix_cache, quantised
from lessonlib.policy.sensitivity import break_even_by_rho, break_even_output
from lessonlib.request.cost import request_cost

NAMES = {"chat": "chat", "reasoning": "reasoning", "production R1": "production-reasoning", "agent step": "agent-step"}
REQUESTS = {label: load_workload(name).request for label, name in NAMES.items()}


def laid_out(figure):
    figure.savefig(io.BytesIO(), format="png")
    return figure


def assert_labels_are_apart_and_inside(figure):
    level = [text for axes in figure.axes for text in axes.texts if not text.get_rotation()]
    boxes = {(id(text.axes), text.get_text()): text.get_window_extent() for text in level}
    assert len(boxes) == len(level)
    for (_, words), box in boxes.items():
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, f"{words!r} is cut off"
    for (one, box), (two, other) in itertools.combinations(boxes.items(), 2):
        assert not box.overlaps(other), f"{one[1]!r} and {two[1]!r} overlap"


@pytest.fixture(scope="module")
def costs():
    alone = {label: request_cost(server(), request) for label, request in REQUESTS.items()}
    limits = {label: memory_batch(server(), request) for label, request in REQUESTS.items()}
    return alone, {label: request_cost(server(), request, limits[label]) for label, request in REQUESTS.items()}


def test_a_prefill_curve_ends_at_the_share_of_its_clock(costs):
    alone, full = costs
    figure = laid_out(prefill_savings(alone, full, "A title"))
    shares = (
        [cost.prefill.seconds / cost.seconds for cost in alone.values()],
        [cost.prefill.seconds / cost.seconds for cost in full.values()],
        [cost.ttft / cost.undisturbed for cost in full.values()],
    )
    for axes, expected in zip(figure.axes, shares, strict=True):
        curves = [line for line in axes.lines if line.get_color() == PREFILL]
        for curve, share in zip(curves, expected, strict=True):
            removed, saved = curve.get_data()
            assert saved == pytest.approx(100 * share * removed, rel=1e-9)  # 1 - 1 / speed-up = share (1 - 1 / k)
        labels = {text.get_text() for text in axes.texts}
        assert labels == {f"{label} {format_percent(s, 2)}" for label, s in zip(REQUESTS, expected, strict=True)}
    assert "reasoning 0.0074 %" in {text.get_text() for text in figure.axes[0].texts}
    assert_labels_are_apart_and_inside(figure)


def test_the_break_even_lines_are_the_exact_ones_and_rhos():
    figure = laid_out(break_even_lines(server(), batches=(1, 32)))
    lines = figure.axes[0].lines
    for (dashed, solid), batch in (((lines[0], lines[1]), 1), ((lines[2], lines[3]), 32)):
        prompts, exact = solid.get_data()
        assert dashed.get_linestyle() == "--" and solid.get_linestyle() == "-"
        assert list(exact) == list(break_even_output(server(), prompts, batch))
        assert list(dashed.get_ydata()) == list(break_even_by_rho(server(), prompts, batch))
    assert_labels_are_apart_and_inside(figure)


def test_the_dot_is_where_the_best_lever_of_the_limit_takes_over():
    levers = {
        "int4 weights": quantised(blocks="int4"),
        "fp8 cache": quantised(cache="fp8"),
        "prompt cached": prefix_cache(1.0),
    }
    figure = laid_out(lever_curves(server(), REQUESTS, levers, "A title"))
    said = [text.get_text() for axes in figure.axes for text in axes.texts if text.get_text().startswith("from")]
    assert said == ["from batch 27", "from batch 24", "from batch 161", "from batch 2"]
    for axes, request in zip(figure.axes, REQUESTS.values(), strict=True):
        cache = next(line for line in axes.lines if line.get_color() == CACHE)
        batches, found = cache.get_data()
        assert batches[-1] == memory_batch(server(), request)
        assert found[-1] == levers["fp8 cache"].speedup(server(), request, int(batches[-1]))
        dot = next(line for line in axes.lines if line.get_marker() == "o").get_xydata()[0]
        at = [line.get_ydata()[int(dot[0]) - 1] for line in axes.lines if len(line.get_xdata()) == len(batches)]
        assert dot[1] == np.max(at)
    assert_labels_are_apart_and_inside(figure)
