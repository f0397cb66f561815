"""Figures of the KV cache: how it grows, what its growth does to a step, measured and predicted."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lessonlib.face.figures.labels import GROUND, along, label
from lessonlib.face.figures.style import described, house_style, new_figure, new_panels, plain_numbers
from lessonlib.face.palette import BOUNDARY, CACHE, CACHE_INK, INK, MEASURED, WEIGHTS
from lessonlib.policy.cache import StepParts


@house_style()
def step_over_answer(positions: Any, steady: StepParts, together: StepParts, batch: int, title: str) -> Figure:
    """A decode step along an answer, stacked: weights, the neighbours' caches, the request's cache. Linear scales.

    `steady`, `together`: the step apart at `positions`, in a steady state and with all `batch` sequences started at
    once; the latter is the dashed line. Overhead and all-reduces are not drawn.
    """
    figure, axes = new_figure(title, height=5.2)
    x = np.asarray(positions, dtype=float)
    weights, neighbours, own = (1e3 * part for part in (steady.linear, steady.neighbours, steady.own))
    edges = np.cumsum([0 * x, weights, neighbours, own], axis=0)
    layers = zip(edges, edges[1:], (WEIGHTS, CACHE, CACHE), (0.8, 0.35, 1.0), strict=False)
    for low, high, colour, alpha in layers:
        axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0)
    dashed = 1e3 * (together.linear + together.neighbours + together.own)
    top, end = dashed[-1], x[-1]
    axes.plot(x, dashed, "--", color=BOUNDARY, linewidth=1.6)
    axes.set(xlim=(0, end), ylim=(0, 1.05 * top), yticks=np.arange(0, top, 5))
    plain_numbers(axes.xaxis)
    words = f"weights: {weights[0]:.2f} ms, read once for all {batch}"
    label(axes, (0, weights[0] / 2), words, "right", gap=12, color="white")
    words = f"the caches of {batch - 1} neighbours: {neighbours[0]:.2f} ms"
    label(axes, (end, weights[0] + neighbours[0] / 3), words, "left", gap=12)
    words = f"your own cache: {own[0]:.3f} to {own[-1]:.2f} ms"
    label(axes, (end, edges[-1][-1]), words, "above left", gap=3, color=CACHE_INK, fontweight="bold")
    along(axes, x, dashed, f"all {batch} started together: {dashed[0]:.2f} to {top:.2f} ms", 0.72)
    axes.set_xlabel("your output token (linear scale)")
    axes.set_ylabel("a decode step, ms (linear scale)")
    alt = (
        f"A decode step along an answer, stacked: a level band of weights, {weights[0]:.2f} ms; on it the caches of "
        f"{batch - 1} neighbours, {neighbours[0]:.2f} ms; on top a wedge, the request's own cache, {own[0]:.3f} to "
        f"{own[-1]:.2f} ms. Dashed, all {batch} started together: {dashed[0]:.2f} to {top:.2f} ms."
    )
    return described(figure, alt, f"Batch {batch}. Stacked: each request is at its own place. Dashed: all in step.")


@house_style()
def step_by_depth(series: Mapping[str, tuple[Sequence[int], Any, Any]], title: str) -> Figure:
    """Measured time of an output token by context, and its floor, a panel for each model. Linear scales.

    `series`: label to (contexts in tokens, measured seconds, floor seconds), from the smallest context to the largest.
    """
    figure, axes = new_panels(title, list(series), height=4.4, columns=len(series))
    axes[0].set_ylim(0, 1.12e3 * max(max(measured) for _, measured, _ in series.values()))
    for panel, (contexts, measured, floor) in zip(axes, series.values(), strict=True):
        dots, line, end = 1e3 * np.asarray(measured), 1e3 * np.asarray(floor), contexts[-1]
        panel.grid(axis="y")
        panel.plot(contexts, line, color=CACHE, clip_on=False)
        panel.plot(contexts, dots, "o", color=MEASURED, markersize=7, clip_on=False, zorder=4)
        words = f"measured: {dots[0]:.1f} to {dots[-1]:.1f} ms"
        label(panel, (end, dots[-1]), words, "above left", gap=8, bbox=GROUND)
        words = f"floor: {line[0]:.1f} to {line[-1]:.1f} ms"
        label(panel, (end, line[0]), words, "below left", gap=8, color=CACHE_INK, bbox=GROUND)
        panel.set(xlim=(0, end), xticks=(0, end // 2, end))
        plain_numbers(panel.xaxis)
        panel.get_xticklabels()[-1].set_horizontalalignment("right")  # clear of the next panel's 0
    axes[0].set_ylabel("ms for an output token (linear scale)")
    figure.supxlabel("tokens in the cache (linear scale)", fontsize=11, color=INK)
    said = "; ".join(
        f"{name}: measured {1e3 * measured[0]:.1f} to {1e3 * measured[-1]:.1f}, floor {1e3 * floor[0]:.1f} to "
        f"{1e3 * floor[-1]:.1f} ms"
        for name, (_, measured, floor) in series.items()
    )
    alt = f"Milliseconds for an output token by tokens in the cache, dots above a line that rises. {said}."
    return described(figure, alt, "Dots: measured. Line: the floor, bytes over the datasheet's bandwidth.")
