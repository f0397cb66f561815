"""Figures of measurements: timed steps on their prediction, published passes by their floor."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lessonlib.face.figures.labels import along, label
from lessonlib.face.figures.style import described, house_style, new_figure, plain_numbers
from lessonlib.face.palette import BOUNDARY, CACHE, INK, MEASURED, OTHER, QUIET, WEIGHTS
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

if TYPE_CHECKING:
    from lessonlib.measured.calibration import Fit, MeasuredTime
    from lessonlib.measured.timing.record import TimedPass

THICK = 0.12  # of a panel's height: what a line of text needs


@house_style()
def measured_steps(deployment: Deployment, points: Sequence["TimedPass"], title: str) -> Figure:
    """Measured time of a decode step by context on its predicted parts, weights and cache; their ratio beneath.

    `points`: timed decode steps of one batch size, of a record; `deployment` predicts them. A dot is the median of a
    point's repeats, its bar their range. Linear scales.
    """
    contexts = [point.context for point in points]
    times = 1e3 * np.array([(point.median, min(point.seconds), max(point.seconds)) for point in points]).T
    ends = np.linspace(0, max(contexts), 50)
    steps = [pass_cost(deployment, 1, int(context), points[0].batch) for context in ends]
    weights, both = (1e3 * np.array(part) for part in zip(*((s.linear.seconds, s.seconds) for s in steps), strict=True))
    predicted = [1e3 * pass_cost(deployment, 1, point.context, point.batch).seconds for point in points]
    figure, (upper, lower) = new_figure(title, height=5.6, rows=2, sharex=True, height_ratios=(3, 1.15))
    upper.fill_between(ends, 0, weights, color=WEIGHTS, linewidth=0)
    upper.fill_between(ends, weights, both, color=CACHE, alpha=0.75, linewidth=0)
    upper.plot(ends, both, color=INK, linewidth=1.8)
    style: dict[str, Any] = {"fmt": "o", "color": MEASURED, "markersize": 6, "elinewidth": 1.6, "capsize": 3}
    style |= {"clip_on": False, "zorder": 4}
    ratios = times / predicted
    for panel, (middle, low, high) in ((upper, times), (lower, ratios)):
        panel.errorbar(contexts, middle, (middle - low, high - middle), **style)
    lower.axhline(1, color=BOUNDARY, linestyle="--", linewidth=1.4)
    lower.grid(axis="y")
    end, cache = ends[-1], both[-1] - weights[-1]
    upper.set(xlim=(0, end), ylim=(0, 1.08 * np.max(times)), ylabel="ms a token (linear scale)")
    text: dict[str, Any] = {"gap": 14, "fontweight": "bold"}
    label(upper, (end, weights[0] / 2), f"predicted, weights: {weights[0]:.1f} ms", "left", color="white", **text)
    words = f"predicted, cache: {cache:.1f} ms at the end"
    if cache > THICK * np.max(times):
        label(upper, (end, weights[-1] + 0.42 * cache), words, "left", **text)
    else:  # the wedge is thinner than a line of text
        label(upper, (end, both[-1]), words, "above left", **text)
    few, many = min(repeats := [len(point.seconds) for point in points]), max(repeats)
    counted = f"{few} repeats" if few == many else f"{few} to {many} repeats"
    words = "measured once each" if many == 1 else f"measured: median and range of {counted}"
    label(upper, (0, np.max(times)), words, "below right", color=MEASURED)
    lower.set(
        ylim=(0, 1.15 * max(1.0, ratios.max())),
        yticks=np.arange(0, 1.15 * max(1.0, ratios.max()), 0.5 if ratios.max() < 2 else 1),
    )
    lower.set_ylabel("measured /\npredicted")
    lower.set_xlabel("context: tokens already cached (linear scale)")
    plain_numbers(lower.xaxis)
    alt = (
        f"Milliseconds a token by context. Predicted: a level area of weights, {weights[0]:.1f} ms, on it a wedge of "
        f"cache, {cache:.1f} ms at the end. Dots, measured: {times[0][0]:.1f} to {times[0][-1]:.1f} ms. Beneath, "
        f"measured over predicted, {ratios[0].min():.2f} to {ratios[0].max():.2f}, against a line at one."
    )
    return described(
        figure, alt, "Dots: measured, the bar the range of the repeats. Area: predicted. Nothing is fitted."
    )


# Colour and shape of a class of memory, and the colour of its name and of its edges. None is a phase's or a part's.
MEMORY_CLASSES = {
    "HBM": (OTHER, "o", "#8A3A68"),
    "GDDR": ("#E69F00", "s", "#8A5F00"),
    "unified": ("#F0E442", "^", "#6B6200"),
}


def _class_points(axes: Axes, points: Sequence["MeasuredTime"], x: Any, y: Any) -> None:
    """The points in the colour and shape of their class of memory, whose names stand in the lower right corner."""
    classes = np.array([point.memory_class for point in points])
    step = 0.36 / axes.get_figure().get_figheight()  # type: ignore[union-attr]
    for row, (name, (colour, marker, ink)) in enumerate(MEMORY_CLASSES.items()):
        mine, place = classes == name, (0.75, 0.08 + step * (len(MEMORY_CLASSES) - 1 - row))
        style: dict[str, Any] = {"color": colour, "markeredgewidth": 0.5, "markeredgecolor": ink}
        axes.plot(x[mine], y[mine], marker, markersize=5.5, alpha=0.85, zorder=3, **style)
        axes.plot(*place, marker, markersize=8, transform=axes.transAxes, **style)
        words: dict[str, Any] = {"color": ink, "fontsize": 11, "fontweight": "bold", "xycoords": "axes fraction"}
        label(axes, place, f"{name} ({mine.sum()})", "right", gap=9, **words)


def _milliseconds(axis: Any, words: str) -> None:
    plain_numbers(axis, "{:g}")
    axis.set_label_text(f"{words}, ms (log scale)")


@house_style()
def measured_against_floor(points: Sequence["MeasuredTime"], title: str) -> Figure:
    """Measured time of a pass by its floor, log-log, with the diagonal. Nothing in it is fitted.

    The floor is that of each roof, the longer of bytes / bandwidth and FLOPs / peak: a whole request has a prefill too,
    which computes. Ringed: points under the diagonal. A time of several passes is divided by their number.
    """
    figure, axes = new_figure(title, height=6.4)
    passes = np.array([point.passes for point in points])
    x = 1e3 * np.array([point.floor for point in points]) / passes
    y = 1e3 * np.array([point.measured for point in points]) / passes
    ends = np.array([0.8 * x.min(), 1.25 * x.max()])
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=(0.7 * ends[0], 1.3 * y.max()))
    axes.plot(ends, ends, color=INK, linewidth=1.8)
    along(axes, ends, ends, "the floor", 0.02, ha="left")
    for factor, words in ((2, "twice"), (4, "four times"), (8, "eight times")):
        axes.plot(ends, factor * ends, color=QUIET, linewidth=0.8)
        along(axes, ends, factor * ends, words, 0.96, ha="right", color=QUIET)
    _class_points(axes, points, x, y)
    below = y < x
    axes.plot(x[below], y[below], "o", markersize=11, markerfacecolor="none", markeredgecolor=INK, zorder=4)
    _milliseconds(axes.xaxis, "floor of a pass")
    _milliseconds(axes.yaxis, "measured time of a pass")
    classes = ", ".join(f"{name} ({sum(p.memory_class == name for p in points)})" for name in MEMORY_CLASSES)
    alt = (
        f"Measured time of a pass by its floor, log-log, a dot for each of {len(points)} rows: {classes}. "
        f"{below.sum()} lie under the diagonal, ringed; half of all take less than {np.median(y / x):.1f} times the "
        f"floor, one in ten more than {np.quantile(y / x, 0.9):.1f} times."
    )
    caption = "Floor: the longer of bytes / bandwidth and FLOPs / peak, roof by roof. Nothing is fitted."
    return described(figure, alt, caption)


@house_style()
def fraction_by_step(points: Sequence["MeasuredTime"], fit: "Fit", title: str) -> Figure:
    """The fraction of bandwidth reached by the floor of a step (log), and the curve of two numbers through all.

    The curve is floor / (floor / fraction + overhead).
    """
    figure, axes = new_figure(title, height=4.8)
    x = 1e3 * np.array([point.floor / point.passes for point in points])
    steps = np.geomspace(0.8 * float(np.min(x)), 1.25 * float(np.max(x)), 200)
    curve = steps / (steps / fit.fraction + 1e3 * fit.overhead)
    axes.set(xscale="log", xlim=(steps[0], steps[-1]), ylim=(0, 1.05))
    axes.axhline(1, color=INK, linewidth=1.8)
    axes.plot(steps, curve, "--", color=BOUNDARY, zorder=4)
    label(axes, (steps[0], 1), "the datasheet", "above right", gap=4)
    words = f"dashed: {fit.fraction:.2f} of bandwidth\nand {1e3 * fit.overhead:.1f} ms a step"
    label(axes, (steps[0], 0.82), words, "below right")
    _class_points(axes, points, x, np.array([point.fraction for point in points]))
    _milliseconds(axes.xaxis, "floor of a step")
    axes.set_ylabel("fraction reached (linear scale)")
    alt = (
        f"Fraction of the bandwidth reached by the floor of a step, which is logarithmic, for {len(points)} rows. The "
        f"dots of HBM, GDDR and unified memory rise along one dashed curve, from {curve[0]:.2f} to {curve[-1]:.2f}; "
        "some lie far below it."
    )
    return described(figure, alt, "Dashed: two numbers, a fraction of the bandwidth and a time a step, fitted to all.")
