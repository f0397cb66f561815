"""The figures of notebooks 05 and 06: curves end where the arithmetic ends, labels say it, and none covers another."""

import io
import itertools
from dataclasses import replace

import numpy as np
import pytest

from lessonlib.face.exercises.book.common import server
from lessonlib.face.figures.batches import break_even_lines, lever_curves, savings_dots
from lessonlib.face.palette import CACHE
from lessonlib.facts.workloads import load_workload
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.policy.levers import prefix_cache, quantised
from lessonlib.policy.sensitivity import break_even_by_rho, break_even_output
from lessonlib.request.cost import request_cost
from lessonlib.time.deployment import Efficiency

NAMES = {"chat": "chat", "reasoning": "reasoning", "production R1": "production-reasoning", "agent step": "agent-step"}
REQUESTS = {label: load_workload(name).request for label, name in NAMES.items()}


def laid_out(figure):
    figure.savefig(io.BytesIO(), format="png")
    return figure


def assert_labels_are_apart_and_inside(figure):
    level = [text for axes in figure.axes for text in axes.texts if not text.get_rotation()]
    boxes = {(number, text.get_text()): text.get_window_extent() for number, text in enumerate(level)}
    for (_, words), box in boxes.items():
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, f"{words!r} is cut off"
    for (one, box), (two, other) in itertools.combinations(boxes.items(), 2):
        assert not box.overlaps(other), f"{one[1]!r} and {two[1]!r} overlap"


def test_a_dot_is_the_share_at_the_floor_and_its_line_reaches_over_the_efficiencies():
    efficiencies = (Efficiency(), Efficiency(mfu=0.4, mbu=0.8), Efficiency(mfu=0.8, mbu=0.6))
    machines = [replace(server(), efficiency=each) for each in efficiencies]
    shares = [
        {name: [of(one, load_workload(w)) for one in machines] for name, w in NAMES.items()}
        for of in (
            lambda machine, load: 1 - request_cost(machine, load.request).decode_share,
            lambda machine, load: steady_state(machine, load.mean).shares["prefill"],
        )
    ]
    figure = laid_out(savings_dots(*shares, "A title"))
    (axes,) = figure.axes
    dots = [float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "o"]
    assert dots == [100 * found[0] for rows in shares for found in rows.values()]
    spans = [tuple(line.get_xdata()) for line in axes.lines if line.get_linewidth() == 5]
    assert spans == [(100 * min(found), 100 * max(found)) for rows in shares for found in rows.values()]
    assert all(low <= dot <= high for (low, high), dot in zip(spans, dots, strict=True))
    labels = [text.get_text() for text in axes.texts]
    assert labels[0] == "alone 2.6 %" and labels[4] == "full server 56 %"
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
    turns = []
    for axes, request in zip(figure.axes, REQUESTS.values(), strict=True):
        cache = next(line for line in axes.lines if line.get_color() == CACHE)
        batches, found = cache.get_data()
        assert batches[-1] == memory_batch(server(), request)
        assert found[-1] == levers["fp8 cache"].speedup(server(), request, int(batches[-1]))
        dot = next(line for line in axes.lines if line.get_marker() == "o").get_xydata()[0]
        at = [line.get_ydata()[int(dot[0]) - 1] for line in axes.lines if len(line.get_xdata()) == len(batches)]
        assert dot[1] == np.max(at)
        turns.append(f"from batch {dot[0]:.0f}")
    assert said == turns
    assert_labels_are_apart_and_inside(figure)


def test_a_band_reaches_over_the_efficiencies():
    efficiencies, lever = (Efficiency(mbu=0.5), Efficiency(overhead=2e-3)), quantised(blocks="int4")
    figure = lever_curves(server(), REQUESTS, {"int4 weights": lever}, "A title", efficiencies)
    (band,) = figure.axes[1].collections[:1]
    found = [[lever.speedup(replace(server(), efficiency=e), REQUESTS["reasoning"], 1)] for e in efficiencies]
    at_one = band.get_paths()[0].vertices
    ends = at_one[at_one[:, 0] == 1][:, 1]
    assert min(ends) == pytest.approx(np.min(found)) and max(ends) == pytest.approx(np.max(found))
