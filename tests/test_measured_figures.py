"""The two figures of published measurements show every point where it belongs, and ring what lies under the floor."""

import numpy as np
import pytest

from lessonlib.face.figures.measured import MEMORY_CLASSES, fraction_by_step, measured_against_floor
from lessonlib.measured.efficiency import decode_fits, decode_search
from lessonlib.measured.published import points


def dots(axes):
    """Marker to the points drawn with it, as arrays of x and y; the dots of the legend have one point each."""
    drawn = [line for line in axes.lines if line.get_linestyle() == "None" and len(line.get_xdata()) > 1]
    return [(line.get_marker(), line.get_markerfacecolor(), *map(np.asarray, line.get_data())) for line in drawn]


def test_measured_against_floor_draws_all_and_rings_those_under_the_diagonal():
    passes = [point for point in points() if point.phase != "prefill"]
    axes = measured_against_floor(passes, "A title").axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log" and axes.get_title(loc="left") == "A title"
    *classes, (_, face, x, y) = dots(axes)
    assert face == "none"
    assert sorted(y / x) == pytest.approx(sorted(p.measured / p.floor for p in passes if p.measured < p.floor))
    for (marker, _, x, y), name in zip(classes, MEMORY_CLASSES, strict=True):
        mine = [point for point in passes if point.memory_class == name]
        assert marker == MEMORY_CLASSES[name][1]
        assert list(y) == pytest.approx([1e3 * point.measured / point.passes for point in mine])
        assert list(x) == pytest.approx([1e3 * point.floor / point.passes for point in mine])
    assert all(f"{name} ({sum(p.memory_class == name for p in passes)})" in words(axes) for name in MEMORY_CLASSES)


def words(axes):
    return [text.get_text() for text in axes.texts]


def test_fraction_by_step_draws_the_curve_of_its_two_numbers():
    fit, shown = decode_fits()[()], decode_search().points
    axes = fraction_by_step(shown, fit, "A title").axes[0]
    curve = next(line for line in axes.lines if line.get_linestyle() == "--")
    step, fraction = curve.get_data()
    assert list(fraction) == pytest.approx(list(1e-3 * step / (1e-3 * step / fit.fraction + fit.overhead)))
    drawn = np.concatenate([y for _, _, _, y in dots(axes)])
    assert sorted(drawn) == pytest.approx(sorted(point.fraction for point in shown))
    assert any(f"{fit.fraction:.2f} of bandwidth" in text for text in words(axes))
