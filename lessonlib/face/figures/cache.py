"""Figures of the KV cache: how it grows, what its growth does to a step, measured and predicted."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lessonlib.base.units import format_bytes
from lessonlib.face.figures.labels import GROUND, along, label
from lessonlib.face.figures.style import house_style, log_token_axis, new_figure, new_panels, plain_numbers
from lessonlib.face.palette import BOUNDARY, CACHE, CACHE_INK, INK, INKS, MEASURED, OTHER, OVERHEAD, WEIGHTS
from lessonlib.policy.cache import StepParts

# Curves of models: label, colour, and the token and the side at which the label stands.
MODEL_CURVES: dict[str, tuple[str, str, tuple[float, str]]] = {
    "llama-2-7b": ("Llama-2-7B: MHA,\n4,096 positions", OVERHEAD, (4_096, "above left")),
    "llama-3.1-8b": ("Llama-3.1-8B: GQA", CACHE, (131_072, "right")),
    "deepseek-v3": ("DeepSeek-V3: MLA", OTHER, (131_072, "right")),
    "gpt-oss-20b": ("gpt-oss-20b: GQA, half of\nits layers keep 128 tokens", CACHE, (1_000, "below right")),
    "qwen3-next-80b-a3b": ("Qwen3-Next-80B-A3B:\na constant state\nin three of four layers", INK, (1, "above right")),
}


@house_style()
def cache_growth(curves: Mapping[str, tuple[Any, Any]], title: str) -> Figure:
    """Bytes that one sequence holds, by its tokens, log-log. `curves`: model to (tokens, bytes), drawn as far as given.

    MODEL_CURVES says how the lesson's models are drawn; another is grey, its name at the end.
    """
    figure, axes = new_figure(title, height=5.2)
    axes.set(xscale="log", yscale="log")
    for name, (tokens, held) in curves.items():
        words, colour, (at, side) = MODEL_CURVES.get(name, (name, OVERHEAD, (tokens[-1], "right")))
        axes.plot(tokens, held, color=colour, solid_capstyle="butt")
        height = np.exp(np.interp(np.log(at), np.log(tokens), np.log(held)))
        label(axes, (at, height), words, side, gap=4, color=INKS.get(colour, colour))
    log_token_axis(axes.xaxis, "tokens held")
    axes.yaxis.set_major_formatter(lambda value, _: format_bytes(value, 1))
    axes.set_ylabel("cache and state of one sequence (log scale)")
    axes.grid(axis="y")
    return figure


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
    return figure


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
    return figure
