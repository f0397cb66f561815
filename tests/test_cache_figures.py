"""The figures of notebook 03 draw what they are given, and their labels say its numbers."""

import numpy as np
import pytest
from helpers import server

from lessonlib.face.figures.cache import step_by_depth, step_over_answer
from lessonlib.policy.cache import step_parts
from lessonlib.request.request import Request


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize("batch", [2, 8, 32])
def test_the_step_over_an_answer_says_its_parts(batch):
    request, positions = Request(128, 12_800), np.arange(1, 12_800, 100)
    steady, together = (step_parts(server(), request, positions, batch, at_once) for at_once in (False, True))
    figure = step_over_answer(positions, steady, together, batch, "Title")
    (axes,) = figure.axes
    assert list(axes.lines[0].get_ydata()) == pytest.approx(1e3 * together.seconds)
    said = " ".join(words(figure))
    for part in (steady.linear[0], steady.neighbours[0], steady.own[-1], together.seconds[0], together.seconds[-1]):
        assert f"{1e3 * part:.2f}" in said and f"{1e3 * part:.2f}" in figure.alt
    assert f"{batch - 1} neighbours" in said and f"all {batch} started together" in said
    assert axes.get_ylim()[1] > 1e3 * steady.seconds.max()


def test_measured_and_floor_stand_in_one_panel_for_each_model():
    series = {
        "a": ([0, 100, 200], [0.02, 0.03, 0.04], [0.01, 0.015, 0.02]),
        "b": ([0, 50], [0.02, 0.021], [0.01, 0.011]),
    }
    figure = step_by_depth(series, "Title")
    assert [axes.get_title("left") for axes in figure.axes] == ["a", "b"]
    assert words(figure)[:2] == ["measured: 20.0 to 40.0 ms", "floor: 10.0 to 20.0 ms"]
    assert "a: measured 20.0 to 40.0, floor 10.0 to 20.0 ms" in figure.alt
    assert figure.axes[0].get_ylim()[1] > 40
    assert list(figure.axes[1].lines[1].get_ydata()) == [20, 21]
