"""Figures of the KV cache: how it grows, what its growth does to a step, measured and predicted."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lessonlib.base.units import format_bytes
from lessonlib.face.figures.labels import GROUND, along, label
from lessonlib.face.figures.style import described, house_style, new_figure, new_panels, plain_numbers
from lessonlib.face.palette import BOUNDARY, CACHE, CACHE_INK, INK, INKS, MEASURED, OTHER, OVERHEAD, WEIGHTS
from lessonlib.policy.cache import StepParts

# Curves of models: label and colour.
MODEL_CURVES: dict[str, tuple[str, str]] = {
    "llama-2-7b": ("Llama-2-7B, MHA", OVERHEAD),
    "llama-3.1-8b": ("Llama-3.1-8B, GQA", CACHE),
    "deepseek-v3": ("DeepSeek-V3, MLA", OTHER),
    "gpt-oss-20b": ("gpt-oss-20b, half in windows", WEIGHTS),
    "qwen3-next-80b-a3b": ("Qwen3-Next, mostly states", INK),
}


@house_style()
def cache_growth(curves: Mapping[str, tuple[Any, Any]], title: str) -> Figure:
    """Bytes that one sequence holds, by its tokens, on linear scales. `curves`: model to (tokens, bytes).

    Two panels, the lower one as far as the longest curve goes, the upper one as far as the shortest: its first part. A
    curve that ends stays in sight. MODEL_CURVES says how the lesson's models are drawn; another is grey.
    """
    ends = sorted({float(np.max(tokens)) for tokens, _ in curves.values()})
    limits = list(dict.fromkeys((ends[0], ends[-1])))
    figure, grid = new_figure("", height=1.0 + 2.4 * len(limits), rows=len(limits), squeeze=False)
    panels, ends_of = list(grid[:, 0]), []
    panels[0].set_title(title, pad=12)
    for axes, limit in zip(panels, limits, strict=True):
        last = []
        for name, (tokens, held) in curves.items():
            seen = np.asarray(tokens) <= limit
            words, colour = MODEL_CURVES.get(name, (name, OVERHEAD))
            x, y = np.append(0, np.asarray(tokens)[seen]), 1e-9 * np.asarray(held)[seen]
            axes.plot(x, np.append(y[:1], y), color=colour, clip_on=False, solid_capstyle="butt")
            last.append((y[-1], x[-1], words, INKS.get(colour, colour)))
        axes.set(xlim=(0, limit), ylim=(0, 1.08 * max(last)[0]), ylabel="GB held")
        for axis in (axes.xaxis, axes.yaxis):
            plain_numbers(axis, "{:,.10g}")
        ends_of.append(sorted(last))
    panels[-1].set_xlabel("tokens of one sequence (all scales linear)")
    for axes, limit, last in zip(panels, limits, ends_of, strict=True):  # words, once all is drawn
        top, line = 0.0, 0.09 * axes.get_ylim()[1]
        for y, x, words, ink in last:
            said, lines = f"{words}: {format_bytes(1e9 * y, 3)}", 1 + words.count("\n")
            if x < limit:  # it ended before
                axes.plot(x, y, "o", color=ink, markersize=5, clip_on=False)
                label(axes, (x, y), f"{words.split(',')[0]} ends", "above right", gap=56, color=ink)
                continue
            middle = max(y, top + line * lines / 2)
            label(axes, (limit, middle), said, "right", color=ink)
            top = middle + line * (lines / 2 + 0.15)
    most = "; ".join(
        f"{name} {format_bytes(float(held[-1]), 3)} at {int(tokens[-1]):,}" for name, (tokens, held) in curves.items()
    )
    alt = f"Bytes that one sequence holds by its tokens, linear scales, lines of different slope: {most} tokens."
    return described(figure, alt, "One sequence. The slope is the bytes of a token; what never grows lifts the start.")


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
