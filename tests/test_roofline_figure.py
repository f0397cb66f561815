"""The roofline figure: every point where it was computed to be, under the roof, and no label upon another."""

import io
import itertools

import pytest

from lessonlib import pass_cost
from lessonlib.face.exercises.book.common import server
from lessonlib.face.figures.requests import roofline_figure


@pytest.fixture(scope="module")
def drawn():
    parts = {f"linear layers, batch {b}": pass_cost(server(), 1, 1024, batch=b).linear for b in (1, 32, 296)}
    parts |= {f"prefill of {n:,}": pass_cost(server(), n).linear for n in (128, 1024)}
    parts["attention, batch 1 to 296"] = pass_cost(server(), 1, 1024, batch=32).attention
    points = [(f"{name}: {w.intensity:.0f}", w.intensity, w.flops / w.seconds, "black") for name, w in parts.items()]
    figure = roofline_figure(points, server().peak, server().bandwidth, "A title")
    figure.savefig(io.BytesIO(), format="png")  # lays it out
    return figure.axes[0], points


def test_points_lie_where_they_were_computed_and_under_the_roof(drawn):
    axes, points = drawn
    dots = [line.get_xydata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert [tuple(dot) for dot in dots] == [(intensity, rate / 1e12) for _, intensity, rate, _ in points]
    for intensity, rate in dots:
        assert rate <= min(server().peak, server().bandwidth * intensity) / 1e12 * (1 + 1e-12)


def test_roof_bends_at_the_ridge(drawn):
    axes, _ = drawn
    xs, ys = axes.lines[0].get_data()
    assert xs[1] == server().peak / server().bandwidth
    assert list(ys[1:]) == [server().peak / 1e12] * 2
    assert ys[0] == pytest.approx(xs[0] * server().bandwidth / 1e12)


def test_no_label_covers_another_or_leaves_the_figure(drawn):
    axes, points = drawn
    canvas = axes.figure.bbox
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    assert {label for label, *_ in points} < set(boxes)
    for name, box in boxes.items():
        assert canvas.x0 <= box.x0 and box.x1 <= canvas.x1, f"{name} is cut off"
    # The box of the slanted label is much larger than its letters: it is left out.
    level = {text.get_text(): boxes[text.get_text()] for text in axes.texts if not text.get_rotation()}
    assert len(level) == len(boxes) - 1
    for (one, box), (two, other) in itertools.combinations(level.items(), 2):
        assert not box.overlaps(other), f"{one!r} and {two!r} overlap"
