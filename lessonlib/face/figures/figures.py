"""Figures in one style, and the bundle in which they reach the reader.

`show(figure, alt, caption)` displays HTML with `<img alt>` and a caption, and the same PNG plain as a fall-back for a
notebook that is not trusted yet. The background is opaque and light in both themes, so no label is lost. A colour
means the same in every figure (Okabe and Ito's palette, told apart by colour-blind readers). Every function here
takes what it draws and returns a Figure; none keeps pyplot state. Needs matplotlib, imported only with this module.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from PIL import Image  # Pillow comes with matplotlib

from lessonlib.base.errors import InvalidInputError
from lessonlib.base.units import format_bytes, format_percent, format_seconds
from lessonlib.policy.cache import StepParts
from lessonlib.policy.levers import (
    Lever,
    break_even_by_rho,
    break_even_output,
    faster_prefill,
    limit_batch,
    omega,
    rho,
)
from lessonlib.request.cost import Request, RequestCost, request_cost
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

if TYPE_CHECKING:
    from lessonlib.facts.workloads import Workload
    from lessonlib.measured.calibration import Fit, Point
    from lessonlib.measured.timing.record import TimedPass

PREFILL = "#D55E00"  # vermilion
DECODE = "#56B4E9"  # sky blue
WEIGHTS = "#0072B2"  # blue
CACHE = "#009E73"  # bluish green
OVERHEAD = "#7F7F7F"  # grey
MEASURED = "#000000"
OTHER = "#CC79A7"  # reddish purple
BOUNDARY = "#222222"  # always dashed
INK = "#222222"
QUIET = "#5A5A5A"
CACHE_INK = "#00664B"  # CACHE and PREFILL, dark enough to be read as letters
PREFILL_INK = "#A84A00"
OTHER_INK = "#8F3F6B"
INKS = {CACHE: CACHE_INK, PREFILL: PREFILL_INK, OTHER: OTHER_INK, OVERHEAD: QUIET}  # the letters of a colour
GRID = "#DDDDDD"

STYLE: Any = {  # a dict of matplotlib's own keys
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 11.0,
    "axes.titlesize": 12.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.2,
    "legend.frameon": False,
}
DPI = 120  # 8 inches are 960 px wide: sharp at full width, and 11 points stay above 12 px at 800

LABEL = 10.5  # points, of a direct label

# Where a label stands beside its point of a curve: its offset in points, and how it is aligned.
CURVE_LABELS = {
    "left": ((-5, 3), "right", "bottom"),
    "above": ((0, 4), "left", "bottom"),
    "below": ((6, -1), "left", "top"),
    "end": ((6, 0), "left", "center"),
}

# Curves of models: label, colour, and the token and the side at which the label stands.
MODEL_CURVES: dict[str, tuple[str, str, tuple[float, str]]] = {
    "llama-2-7b": ("Llama-2-7B: MHA,\n4,096 positions", OVERHEAD, (3_500, "left")),
    "llama-3.1-8b": ("Llama-3.1-8B: GQA", CACHE, (131_072, "end")),
    "deepseek-v3": ("DeepSeek-V3: MLA", OTHER, (131_072, "end")),
    "gpt-oss-20b": ("gpt-oss-20b: GQA, half of\nits layers keep 128 tokens", CACHE, (1_000, "below")),
    "qwen3-next-80b-a3b": ("Qwen3-Next-80B-A3B: a constant\nstate in three of four layers", INK, (1, "above")),
}

# The plane of prompt and output: its ends in tokens, and the place of labels that find no room left of their dot, in
# points from it; those further off get a line to their dot.
PLANE = ((5.0, 300_000.0), (5.0, 40_000.0))
PLANE_LABELS = {"chat": (-9, -10), "production-reasoning": (16, -41), "agent-step": (24, -30)}
EXACT: dict[str, Any] = {"color": PREFILL_INK, "fontsize": LABEL, "va": "center"}


def new_figure(
    title: str, width: float = 8.0, height: float = 4.5, rows: int = 1, columns: int = 1, **keywords: Any
) -> Any:
    """(figure, axes) in the house style; `title` is the figure's one message, said as a sentence."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
        axes = figure.subplots(rows, columns, **keywords)
        first = np.ravel(axes)[0] if isinstance(axes, np.ndarray) else axes
        first.set_title(title, pad=12)
    return figure, axes


def png_bytes(figure: Figure, colours: int = 128) -> bytes:
    """The figure as PNG, the same bytes for the same figure (no date, no version inside).

    Stored with a palette of 128 colours: a quarter of the bytes, and no eye tells the difference in drawn lines. 32
    are enough for lines of one colour, 64 for three.
    """
    drawn, stored = io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(drawn, format="png", metadata={"Software": None})
    picture = Image.open(drawn).convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    picture.save(stored, format="png", optimize=True, dpi=(figure.dpi, figure.dpi))
    return stored.getvalue()


def figure_html(png: bytes, alt: str, caption: str = "") -> str:
    """A figure as HTML: the picture with its alternative text, and a caption. Both texts are escaped."""
    source = base64.b64encode(png).decode("ascii")
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure style="margin:0"><img src="data:image/png;base64,{source}" alt="{escape(alt, quote=True)}" '
        f'style="max-width:100%;height:auto">{words}</figure>'
    )


def show(figure: Figure, alt: str, caption: str, colours: int = 128) -> None:
    """Display a figure in a notebook. `alt`: what the picture shows, for who cannot see it; `caption`: what to see.

    Raises InvalidInputError when either is missing: no figure of this collection goes without.
    """
    for name, text in (("alt", alt), ("caption", caption)):
        if not isinstance(text, str) or len(text.split()) < 3:
            raise InvalidInputError(f"show: {name} is {text!r}; expected a sentence that describes the figure.")
    from IPython.display import display

    png = png_bytes(figure, colours)
    bundle = {
        "text/html": figure_html(png, alt, caption),
        "image/png": base64.b64encode(png).decode(),
        "text/plain": alt,
    }
    display(bundle, raw=True)


def tokens_label(value: float) -> str:
    """1, 128, 1k, 12.8k, 1M: a token count as an axis says it."""
    for factor, suffix in ((1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.4g}{suffix}"
    return f"{value:.4g}"


def log_token_axis(axis: Any, label: str) -> None:
    """A logarithmic axis of tokens; the label says that it is logarithmic."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: tokens_label(value)))
    axis.set_label_text(f"{label} (log scale)")


def note(axes: Axes, text: str, at: tuple[float, float], **keywords: Any) -> None:
    """A direct label in data coordinates, on a white ground so that no line runs through it."""
    ground = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    style: dict[str, Any] = {"color": INK, "fontsize": 10.5, "bbox": ground} | keywords
    axes.text(*at, text, **style)


def request_bars(costs: Mapping[str, RequestCost], title: str) -> Figure:
    """What one user waits for each request, as bars on one linear axis: prefill, then decode. `costs`: label to cost.

    A line points to each prefill; where the prefill is narrower on the page than that line, the label says so.
    """
    figure, axes = new_figure(title, height=3.4)
    longest = max(cost.elapsed for cost in costs.values())
    axes.set_xlim(0, 1.02 * longest)
    axes.set_ylim(len(costs) - 0.35, -0.4)
    line = 1.5  # points
    line_seconds = line / 72 * axes.get_xlim()[1] / (0.8 * figure.get_figwidth())  # the axis has 0.8 of the width
    text: dict[str, Any] = {"color": INK, "fontsize": 11, "va": "center"}
    for row, cost in enumerate(costs.values()):
        axes.barh(row, cost.ttft, 0.4, color=PREFILL)
        axes.barh(row, cost.decode.seconds, 0.4, left=cost.ttft, color=DECODE)
        inside = cost.elapsed > longest / 2
        at, align = (longest / 2, "center") if inside else (cost.elapsed + 0.01 * longest, "left")
        share = format_percent(cost.decode.seconds / cost.elapsed, 5)
        axes.text(at, row, f"{cost.elapsed:.3g} s, of which decode {share}", ha=align, **text)
        axes.vlines(0, row + 0.2, row + 0.5, color=PREFILL, linewidth=line, clip_on=False)
        thinner = ", thinner than this line" if cost.ttft < line_seconds else ""
        axes.text(0.01 * longest, row + 0.37, f"prefill {format_seconds(cost.ttft, 3)}{thinner}", **text)
    axes.set_yticks(range(len(costs)), list(costs), color=INK)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("seconds from the prompt to the last token, one request alone (linear scale)")
    return figure


def roofline_figure(
    points: Sequence[tuple[str, float, float, str]], peak: float, bandwidth: float, title: str
) -> Figure:
    """The roofline, log-log: FLOP/s that a piece of work attains, by its FLOP/byte, under the roof of a device.

    `points`: (label, FLOP/byte, FLOP/s, colour) each; `peak` in FLOP/s and `bandwidth` in byte/s draw the roof, and the
    ridge where they meet. Source: Williams, Waterman, Patterson, CACM 2009.
    """
    ridge = peak / bandwidth
    figure, axes = new_figure(title, height=5.2)
    left, right, top = 0.4, 10_000.0, peak / 1e12
    bottom = left * bandwidth / 1e12
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, 4 * top))
    axes.plot([left, ridge, right], [bottom, top, top], color=INK, linewidth=1.8)
    axes.plot([ridge, ridge], [bottom, top], "--", color=BOUNDARY, linewidth=1.2)
    quiet: dict[str, Any] = {"color": QUIET, "fontsize": LABEL}
    axes.text(1.1 * ridge, 1.3 * bottom, f"ridge: {ridge:.0f} FLOP/byte", **quiet)
    axes.text(right, top / 1.15, f"compute bound: {top:,.0f} TFLOP/s", ha="right", va="top", **quiet)
    x, y = ridge / 50, top / 50 * 1.3
    slope: dict[str, Any] = {"rotation": np.degrees(np.arctan2(y, x)), "rotation_mode": "anchor"}
    words = f"memory bound: {bandwidth / 1e12:,.3g} TB/s"
    axes.text(x, y, words, transform_rotates_text=True, **slope, **quiet)
    for label, intensity, rate, colour in points:
        axes.plot(intensity, rate / 1e12, "o", color=colour, markersize=11, markeredgecolor="white", zorder=4)
        place, side = (11, -3), "left"
        if intensity > ridge:  # above the flat roof, and away from the ridge
            place, side = (0, 24), "left" if intensity > 2 * ridge else "right"
        ink = {CACHE: CACHE_INK, PREFILL: PREFILL_INK}.get(colour, colour)
        style: dict[str, Any] = {"color": ink, "fontsize": LABEL, "fontweight": "bold", "ha": side, "va": "top"}
        style["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.annotate(label, (intensity, rate / 1e12), place, textcoords="offset points", **style)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_xlabel("arithmetic intensity, FLOP/byte (log scale)")
    axes.set_ylabel("attained, TFLOP/s (log scale)")
    return figure


def time_shares(costs: Mapping[str, RequestCost], title: str) -> Figure:
    """Shares of the GPU clock, a bar for each cost: prefill, decode's linear layers, decode's attention.

    `costs`: label to cost. Labels that begin alike up to a comma stand together as a group.
    """
    figure, axes = new_figure(title, height=1.5 + 0.36 * len(costs))
    parts = (("prefill", PREFILL), ("decode: linear layers", WEIGHTS), ("decode: attention", CACHE))
    row, rows, group = 0.0, [], ""
    for label, cost in costs.items():
        row += 1.4 if group and label.split(",")[0] != group else 1.0
        rows.append(row)
        group, left = label.split(",")[0], 0.0
        for seconds, (_, colour) in zip(
            (cost.prefill.seconds, cost.decode.linear.seconds, cost.decode.attention.seconds), parts, strict=True
        ):
            share = 100 * seconds / cost.seconds
            axes.barh(row, share, 0.86, left=left, color=colour)
            if share > 5.5:
                axes.text(
                    left + share / 2, row, f"{share:.0f} %", color="white", ha="center", va="center", weight="bold"
                )
            left += share
    for x, (name, _), ink in zip((0, 16, 56), parts, (PREFILL_INK, WEIGHTS, CACHE_INK), strict=True):
        axes.text(x, 0.25, name, color=ink, va="bottom", weight="bold")
    axes.set_yticks(rows, list(costs), color=INK)
    axes.set(xlim=(0, 100), ylim=(row + 0.6, 0.0), xlabel="share of the GPU clock, % (linear scale)")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return figure


def plane(
    deployment: Deployment,
    workloads: Sequence["Workload"],
    batches: Sequence[int] = (1, 32, 256),
    prefill_share: float = 0.05,
) -> Figure:
    """The plane of prompt and output tokens, log-log: which requests are decode-heavy, and which batching cannot help.

    Dashed: rho = share / (1 - share) for each batch, an estimate; solid: where the share of prefill in the GPU clock is
    exactly `prefill_share`, by `request_cost` with nothing cached, as far as the batch fits. Shaded: omega above 1. A
    workload stands at the tokens that are prefilled, the hollow dot at its whole prompt. Without a
    growing cache there is no omega to draw.
    """
    odds = prefill_share / (1 - prefill_share)
    percent = format_percent(prefill_share, 1)
    figure, axes = new_figure(
        f"Nothing cached: above its batch's line, prefill takes under {percent} of GPU time", height=5.9
    )
    (left, right), (low, high) = PLANE
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    log_token_axis(axes.xaxis, "prompt tokens to prefill")
    log_token_axis(axes.yaxis, "output tokens")
    if deployment.cache_bytes_per_token:
        _omega_region(axes, 1 / omega(deployment, 1))
    prompts, outputs = (np.unique(np.geomspace(*ends, 220).round()) for ends in PLANE)
    for batch in batches:
        edge = rho(deployment, Request(prompts, 1), batch) / odds
        axes.plot(prompts, edge, "--", color=BOUNDARY, linewidth=1.3)
        x = np.interp(min(high, edge[-1]) / 3, edge, prompts)
        y = np.interp(x, prompts, edge)
        name = f"batch {batch:,}: rho = {odds:.4f}" if batch == batches[0] else f"batch {batch:,}"
        y /= 1.13  # below its line, and along it
        along: dict[str, Any] = {
            "rotation": np.degrees(np.arctan2(y, x)),
            "rotation_mode": "anchor",
            "transform_rotates_text": True,
        }
        axes.text(x, y, name, ha="center", va="top", fontsize=LABEL, **along)
        exact = request_cost(deployment, Request(prompts, outputs[:, None]), batch)
        line = axes.contour(prompts, outputs, 1 - exact.decode_share, [prefill_share], colors=[PREFILL], linewidths=2)
        if batch == batches[len(batches) // 2] and len(line.get_paths()[0].vertices):
            end = max(line.get_paths()[0].vertices, key=sum)
            axes.annotate("exact,\nuntil memory\nis full", end, (5, 0), textcoords="offset points", **EXACT)
    axes.annotate(
        "a short prompt costs\none decode step", (17, 1 + 1 / odds), (0, -18), textcoords="offset points", **EXACT
    )
    for workload in workloads:
        _workload_dot(axes, workload, 1 - request_cost(deployment, workload.request).decode_share)
    return figure


def _omega_region(axes: Axes, outputs: float) -> None:
    """What lies above omega = 1, at `outputs` tokens: shaded, its line dashed."""
    (left, _), (_, high) = PLANE
    axes.axhspan(outputs, high, color=CACHE, alpha=0.08, linewidth=0)
    axes.axhline(outputs, color=CACHE, linestyle="--", linewidth=1.6)
    words: dict[str, Any] = {"color": CACHE_INK, "fontsize": LABEL}
    axes.text(left * 1.15, outputs / 1.1, f"omega = 1 at {outputs:,.0f}", va="top", **words)
    axes.text(left * 1.15, outputs * 1.12, "memory is full before\nthe batch reaches\nthe ridge", va="bottom", **words)


def _workload_dot(axes: Axes, workload: "Workload", prefill: float) -> None:
    """A workload at the tokens that are prefilled; from the hollow dot at its whole prompt, what a cache saves.

    `prefill`: its exact share at batch 1, said where tokens are cached: the new ones attend to them, as no line shows.
    """
    at = (workload.prompt - workload.cached, workload.output)
    axes.plot(*at, "o", color=MEASURED, markersize=9, zorder=5)
    if workload.cached:
        whole = (workload.prompt, workload.output)
        axes.annotate("", at, whole, arrowprops={"arrowstyle": "-|>", "color": QUIET, "shrinkB": 7})
        axes.plot(*whole, "o", markeredgecolor=MEASURED, markerfacecolor="white", markersize=8, zorder=5)
        saved = f"{format_percent(workload.cached / workload.prompt)} cached"
        axes.annotate(saved, whole, (-6, 5), textcoords="offset points", ha="right", color=QUIET, fontsize=LABEL)
    words = f"{workload.label}\n{workload.prompt:,} → {workload.output:,}".replace(", ", ",\n")
    if workload.cached:
        words += f"\n(prefill {format_percent(prefill, 2)}: it attends\nto the cached tokens)"
    style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": LABEL, "fontweight": "bold"}
    place = PLANE_LABELS.get(workload.name, (-10, 0))
    if place[1] < -30:
        style["arrowprops"] = {"arrowstyle": "-", "color": QUIET, "shrinkB": 5, "relpos": (0, 1)}
    axes.annotate(words, at, place, ha="left" if place[0] > 0 else "right", **style)


def _panels(title: str, names: Sequence[str], **keywords: Any) -> tuple[Figure, list[Axes]]:
    """Panels with a name each and one y axis, under a title of the whole figure."""
    figure, axes = new_figure("", sharey=True, **keywords)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12.5, fontweight="bold", color=INK)
    panels = list(np.ravel(axes))
    for panel, name in zip(panels, names, strict=True):
        panel.set_title(name, loc="left", fontsize=11, fontweight="bold", color=INK)
    return figure, panels


def prefill_savings(alone: Mapping[str, RequestCost], full: Mapping[str, RequestCost], title: str) -> Figure:
    """Amdahl: the share of time that a prefill k times faster saves, for k from 1 to infinity, which stands at the end.

    `alone` and `full`: label to cost, at batch 1 and at a full server's batch. Three panels: alone, where both clocks
    are the same, and full on each clock. A label says the saving at infinity, the most there is; dashed is 5 %.
    """
    panels = {
        "alone: both clocks": {label: (cost.ttft, cost.decode.seconds) for label, cost in alone.items()},
        "own limit: GPU clock": {label: (cost.prefill.seconds, cost.decode.seconds) for label, cost in full.items()},
        "own limit: request clock": {label: (cost.ttft, cost.decode.seconds) for label, cost in full.items()},
    }
    figure, axes = _panels(title, list(panels), height=4.8, columns=len(panels))
    removed = np.append(np.geomspace(1e-4, 0.05, 60), np.linspace(0.05, 1, 120)[1:])  # 1 - 1 / k
    with np.errstate(divide="ignore"):
        factors = 1 / (1 - removed)
    for panel, seconds in zip(axes, panels.values(), strict=True):
        panel.set(yscale="log", xlim=(0, 1), ylim=(1e-3, 130))
        panel.axhline(5, color=BOUNDARY, linestyle="--", linewidth=1.2, zorder=1)
        panel.set_xticks([1 - 1 / k for k in (1, 2, 4, 10, np.inf)], ["1", "2", "4", "10", "∞"], color=INK)
        savings = {label: 100 * (1 - 1 / faster_prefill(*both, factors)) for label, both in seconds.items()}
        for label, saving in savings.items():
            most = saving[-1]
            panel.plot(removed, saving, color=PREFILL)
            below = any(1 < other[-1] / most < 2 for other in savings.values())  # no room above its line
            ground = {"facecolor": "white", "edgecolor": "none", "alpha": 0.9, "pad": 0.5}
            style: dict[str, Any] = {"ha": "right", "color": PREFILL_INK, "fontsize": LABEL, "bbox": ground}
            words = f"{label} {format_percent(most / 100, 2)}"
            panel.annotate(words, (1, most), (0, -44 if below else 4), textcoords="offset points", **style)
    axes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes[0].set_ylabel("time saved (log scale); dashed: 5 %")
    figure.supxlabel("prefill k times faster (on a scale of 1 - 1/k, which has infinity on it)", fontsize=11, color=INK)
    return figure


def break_even_lines(deployment: Deployment, batches: Sequence[int] = (1, 32), share: float = 0.05) -> Figure:
    """The output from which on prefill takes less than `share` of the GPU clock, by prompt, log-log, for each batch.

    Solid: exact, by `break_even_output`. Dashed: rho's estimate. Neither asks whether the batch fits in memory.
    """
    title = f"Above its line, a request spends under {format_percent(share, 1)} of GPU time on prefill"
    figure, axes = new_figure(title, height=4.6)
    least, most, high = 4, deployment.model.max_positions or 131_072, 60_000
    axes.set(xscale="log", yscale="log", xlim=(least, most), ylim=(8, high))
    log_token_axis(axes.xaxis, "prompt tokens, nothing cached")
    log_token_axis(axes.yaxis, "output tokens")
    prompts = np.unique(np.geomspace(least, most, 160).round())
    for batch in batches:
        exact = break_even_output(deployment, prompts, batch, share)
        estimate = break_even_by_rho(deployment, prompts, batch, share)
        axes.plot(prompts, estimate, "--", color=BOUNDARY, linewidth=1.3)
        axes.plot(prompts, exact, color=PREFILL)
        axes.annotate(f"batch {batch:,}", (most, exact[-1]), (5, 0), textcoords="offset points", **EXACT)
        x, y = next((x, y) for x, y in zip(prompts[::-1], estimate[::-1], strict=True) if y < high / 3)
        along: dict[str, Any] = {"rotation": np.degrees(np.arctan2(y, x)), "rotation_mode": "anchor"}
        style: dict[str, Any] = {"ha": "right", "va": "top", "fontsize": LABEL, "transform_rotates_text": True}
        axes.text(x, y / 1.1, f"rho, batch {batch:,}", **along, **style)
    shortest = break_even_output(deployment, least, min(batches), share)
    words = f"{shortest} output tokens"
    axes.annotate(words, (6 * least, shortest), (0, 9), textcoords="offset points", **EXACT)
    return figure


def lever_curves(
    deployment: Deployment,
    requests: Mapping[str, Request],
    levers: Mapping[str, Lever],
    title: str,
    colours: Sequence[str] = (WEIGHTS, CACHE, PREFILL),
) -> Figure:
    """How many times faster each lever makes each of four requests, by batch, up to the memory limit (log scale).

    `requests`: label to request, four of them; `levers`: label to lever, in the order of `colours`. GPU clock, the
    batch held. A dot marks the batch from which on the lever that is best at the limit is the best.
    """
    figure, axes = _panels(title, list(requests), height=5.8, rows=2, columns=2)
    for panel, request in zip(axes, requests.values(), strict=True):
        limit = limit_batch(deployment, request)
        batches = range(1, limit + 1)
        panel.set(xscale="log", xlim=(1, limit), ylim=(0.9, 3.3))
        ticks = [batch for batch in (1, 2, 4, 10, 32, 100) if batch < 0.7 * limit] + [limit]
        panel.set_xticks(ticks, [str(tick) for tick in ticks], color=INK)
        panel.set_xticks([], minor=True)
        panel.grid(axis="y")
        curves = {
            label: np.array([lever.speedup(deployment, request, batch) for batch in batches])
            for label, lever in levers.items()
        }
        lowest = 0.0
        for label, curve in sorted(curves.items(), key=lambda item: item[1][-1]):
            colour = colours[list(levers).index(label)]
            panel.plot(batches, curve, color=colour, clip_on=False)
            lowest = max(curve[-1], lowest + 0.19)  # the labels one above the other
            ink = {CACHE: CACHE_INK, PREFILL: PREFILL_INK}.get(colour, colour)
            style: dict[str, Any] = {"color": ink, "fontsize": LABEL, "va": "center", "annotation_clip": False}
            panel.annotate(f"{label} {curve[-1]:.2f}", (limit, lowest), (6, 0), textcoords="offset points", **style)
        best = max(curves.values(), key=lambda curve: curve[-1])
        turn = int(np.argmax(best >= np.max(list(curves.values()), axis=0)))
        panel.vlines(turn + 1, best[turn], 2.9, color=QUIET, linewidth=1)
        panel.plot(turn + 1, best[turn], "o", color=INK, markersize=6, zorder=5, clip_on=False)
        panel.text(turn + 1, 2.95, f"from batch {turn + 1}", ha="center", va="bottom", fontsize=LABEL, color=INK)
    for panel in axes[::2]:
        panel.set_ylabel("times faster")
    figure.supxlabel("batch, up to the memory limit (log scale)", fontsize=11, color=INK)
    return figure


def throughput_by_batch(
    series: Mapping[str, tuple[Sequence[float], Sequence[float], float, tuple[float, float]]], title: str
) -> Figure:
    """Output tokens a second by batch, log-log: a curve for each request, its memory wall, its roof batch.

    `series`: label to (batches, tokens a second, roof batch, offset of the label in points). The last batch is the
    wall. Where the roof batch lies beyond the wall it is drawn hollow, at the height that the wall allows.
    """
    figure, axes = new_figure(title, height=5.0)
    axes.set(xscale="log", yscale="log", xlim=(1, 700))
    for (label, (batches, rates, roof, offset)), colour, ink in zip(
        series.items(), (INK, OTHER), (INK, OTHER_INK), strict=False
    ):
        axes.plot(batches, rates, color=colour)
        axes.plot([batches[-1]] * 2, [rates[0] / 2, rates[-1]], color=colour, linestyle="--", linewidth=1.6)
        axes.plot(batches[-1], rates[-1], "s", color=colour, markersize=8)
        reached = roof <= batches[-1]
        height = float(np.interp(min(roof, batches[-1]), batches, rates))
        axes.plot(roof, height, "o", color=colour, markerfacecolor=colour if reached else "white", markersize=9)
        if not reached:
            axes.annotate(
                "", (roof, height), (batches[-1], height), arrowprops={"arrowstyle": "-", "color": QUIET, "ls": ":"}
            )
        words = f"{label}: memory full at {batches[-1]:,.0f}\n{rates[-1]:,.0f} tokens/s\nroof batch {roof:,.0f}"
        style: dict[str, Any] = {"textcoords": "offset points", "color": ink, "fontsize": LABEL, "fontweight": "bold"}
        axes.annotate(words, (batches[-1], rates[-1]), offset, ha="right" if offset[0] < 0 else "left", **style)
    axes.set_ylim(min(s[1][0] for s in series.values()) / 1.5, max(s[1][-1] for s in series.values()) * 2.2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y")
    axes.set_xlabel("batch size (log scale)")
    axes.set_ylabel("output tokens a second (log scale)")
    return figure


def output_token_prices(series: Mapping[str, tuple[Sequence[int], Sequence[float]]], title: str) -> Figure:
    """Price of an output token, in prompt tokens, by batch, log-log; each curve ends at its memory limit.

    `series`: label to (batches, prices), two of them. The first point stands for both: alone they nearly agree.
    """
    figure, axes = new_figure(title, height=5.0)
    axes.set(xscale="log", yscale="log", xlim=(0.9, 900), ylim=(0.75, 600))
    axes.axhline(1, color=BOUNDARY, linestyle="--", linewidth=1.6, clip_on=False)
    axes.text(1, 1.08, "as dear as a prompt token", color=INK, fontsize=LABEL, va="bottom")
    colours = ((INK, INK), (OTHER, OTHER_INK))  # requests, not phases or parts
    for (label, (batches, prices)), (colour, ink) in zip(series.items(), colours, strict=True):
        axes.plot(batches, prices, color=colour)
        axes.plot(batches[-1], prices[-1], "s", color=colour, markersize=8)
        words = f"{label}: memory is full at {batches[-1]:,}\n{prices[-1]:.2g} prompt tokens"
        offset, side = ((9, 2), "left") if batches[-1] < 100 else ((64, 15), "right")  # clear of the curve, and inside
        style: dict[str, Any] = {"color": ink, "fontsize": LABEL, "fontweight": "bold", "ha": side}
        axes.annotate(words, (batches[-1], prices[-1]), offset, textcoords="offset points", **style)
    alone = [prices[0] for _, prices in series.values()]
    axes.plot(1, alone[0], "o", color=INK, markersize=6, zorder=5)
    words = f"alone: {min(alone):.0f} to {max(alone):.0f}"
    axes.annotate(words, (1, alone[0]), (12, 2), textcoords="offset points", color=INK, fontsize=LABEL)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y")
    axes.set_xlabel("batch size (log scale)")
    axes.set_ylabel("prompt tokens for one output token (log scale)")
    return figure


def occupancy_over_time(panels: Mapping[str, tuple[Any, Any, float]], title: str) -> Figure:
    """Bytes of cache that a server holds over a run, a panel for each traffic; dashed: what memory there is.

    `panels`: label to (seconds, bytes, bytes available). Linear scales.
    """
    figure, axes = _panels(title, list(panels), height=3.6, columns=len(panels))
    for panel, (time, held, available) in zip(axes, panels.values(), strict=True):
        panel.fill_between(time, 0, np.asarray(held) / 1e9, step="post", color=CACHE, alpha=0.75, linewidth=0)
        panel.axhline(available / 1e9, color=BOUNDARY, linestyle="--", linewidth=1.5)
        panel.set(xlim=(time[0], time[-1]), ylim=(0, 1.22 * available / 1e9))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        panel.set_xlabel("seconds")
        panel.text(time[-1], 1.03 * available / 1e9, f"memory: {available / 1e9:.0f} GB", ha="right", fontsize=LABEL)
    axes[0].set_ylabel("GB of KV cache held")
    return figure


def cache_growth(curves: Mapping[str, tuple[Any, Any]], title: str) -> Figure:
    """Bytes that one sequence holds, by its tokens, log-log. `curves`: model to (tokens, bytes), drawn as far as given.

    MODEL_CURVES says how the lesson's models are drawn; another is grey, its name at the end.
    """
    figure, axes = new_figure(title, height=5.2)
    axes.set(xscale="log", yscale="log")
    for name, (tokens, held) in curves.items():
        label, colour, (at, side) = MODEL_CURVES.get(name, (name, OVERHEAD, (tokens[-1], "end")))
        axes.plot(tokens, held, color=colour, solid_capstyle="butt")
        height = np.exp(np.interp(np.log(at), np.log(tokens), np.log(held)))
        offset, across, up = CURVE_LABELS[side]
        style: dict[str, Any] = {"ha": across, "va": up, "fontsize": LABEL, "annotation_clip": False}
        colour = INKS.get(colour, colour)
        axes.annotate(label, (at, height), offset, textcoords="offset points", color=colour, **style)
    log_token_axis(axes.xaxis, "tokens held")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value, 1)))
    axes.set_ylabel("cache and state of one sequence (log scale)")
    axes.grid(axis="y")
    return figure


def step_over_answer(positions: Any, steady: StepParts, together: StepParts, batch: int, title: str) -> Figure:
    """A decode step along an answer, stacked: weights, the neighbours' caches, the own cache. Linear scales.

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
    top = dashed[-1]
    axes.plot(x, dashed, "--", color=BOUNDARY, linewidth=1.6)
    axes.set(xlim=(0, x[-1]), ylim=(0, 1.05 * top), yticks=np.arange(0, top, 5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    text: dict[str, Any] = {"fontsize": LABEL, "va": "center"}
    words = f"weights: {weights[0]:.2f} ms, read once for all {batch}"
    axes.text(0.02 * x[-1], weights[0] / 2, words, color="white", **text)
    words = f"the caches of {batch - 1} neighbours: {neighbours[0]:.2f} ms"
    axes.text(0.98 * x[-1], weights[0] + neighbours[0] / 3, words, ha="right", **text)
    text |= {"va": "bottom"}
    words = f"your own cache: {own[0]:.3f} to {own[-1]:.2f} ms"
    place = (0.98 * x[-1], edges[-1][-1] + 0.005 * top)
    axes.text(*place, words, ha="right", color=CACHE_INK, fontweight="bold", **text)
    middle = int(0.53 * len(x))
    slope = np.degrees(np.arctan2(dashed[-1] - dashed[0], x[-1] - x[0]))
    text |= {"rotation": slope, "rotation_mode": "anchor", "transform_rotates_text": True}
    words = f"all {batch} started together: {dashed[0]:.2f} to {top:.2f} ms"
    axes.text(x[middle], dashed[middle] + 0.03 * top, words, **text)
    axes.set_xlabel("your output token (linear scale)")
    axes.set_ylabel("a decode step, ms (linear scale)")
    return figure


def step_by_depth(series: Mapping[str, tuple[Sequence[int], Any, Any]], title: str) -> Figure:
    """Measured time of an output token by context, and its floor, a panel for each model. Linear scales.

    `series`: label to (contexts in tokens, measured seconds, floor seconds), from the smallest context to the largest.
    """
    figure, axes = _panels(title, list(series), height=4.4, columns=len(series))
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    text: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "fontsize": LABEL, "bbox": ground}
    for panel, (contexts, measured, floor) in zip(axes, series.values(), strict=True):
        dots, line, end = 1e3 * np.asarray(measured), 1e3 * np.asarray(floor), contexts[-1]
        panel.grid(axis="y")
        panel.plot(contexts, line, color=CACHE, clip_on=False)
        panel.plot(contexts, dots, "o", color=MEASURED, markersize=7, clip_on=False, zorder=4)
        words = f"measured: {dots[0]:.1f} to {dots[-1]:.1f} ms"
        panel.annotate(words, (end, dots[-1]), (0, 9), va="bottom", **text)
        words = f"floor: {line[0]:.1f} to {line[-1]:.1f} ms"
        panel.annotate(words, (end, line[0]), (0, -10), va="top", color=CACHE_INK, **text)
        panel.set(xlim=(0, end), xticks=(0, end // 2, end))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        panel.get_xticklabels()[-1].set_horizontalalignment("right")  # clear of the next panel's 0
    axes[0].set_ylim(0, 1.12e3 * max(max(measured) for _, measured, _ in series.values()))
    axes[0].set_ylabel("ms for an output token (linear scale)")
    figure.supxlabel("tokens in the cache (linear scale)", fontsize=11, color=INK)
    return figure


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
    text: dict[str, Any] = {"color": "white", "fontsize": LABEL, "va": "center", "ha": "right", "fontweight": "bold"}
    upper.text(0.97 * ends[-1], weights[0] / 2, f"predicted, weights: {weights[0]:.1f} ms", **text)
    place = (0.97 * ends[-1], weights[-1] + 0.42 * (both[-1] - weights[-1]))
    words = f"predicted, cache: {both[-1] - weights[-1]:.1f} ms at the end"
    upper.text(*place, words, **(text | {"color": INK}))
    words = f"measured: median and range of {min(len(point.seconds) for point in points)} repeats"
    upper.text(0.02 * ends[-1], 0.98 * np.max(times), words, color=MEASURED, fontsize=LABEL, va="top")
    upper.set(xlim=(0, ends[-1]), ylim=(0, 1.08 * np.max(times)), ylabel="ms a token (linear scale)")
    lower.set(ylim=(0, 1.15 * max(1.0, ratios.max())), yticks=(0, 0.5, 1, *([1.5] if ratios.max() > 1.3 else [])))
    lower.set_ylabel("measured /\npredicted")
    lower.set_xlabel("context: tokens already cached (linear scale)")
    lower.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return figure


# Colour and shape of a class of memory, and the colour of its name and of its edges. None is a phase's or a part's.
MEMORY_CLASSES = {
    "HBM": (OTHER, "o", "#8A3A68"),
    "GDDR": ("#E69F00", "s", "#8A5F00"),
    "unified": ("#F0E442", "^", "#6B6200"),
}


def _class_points(
    axes: Axes, points: Sequence["Point"], x: Any, y: Any, names: Mapping[str, tuple[float, float]]
) -> None:
    """The points in the colour and shape of their class of memory, whose name stands at `names`, in axes fractions."""
    classes = np.array([point.memory_class for point in points])
    for name, (colour, marker, ink) in MEMORY_CLASSES.items():
        mine = classes == name
        style: dict[str, Any] = {"color": colour, "markeredgewidth": 0.5, "markeredgecolor": ink}
        axes.plot(x[mine], y[mine], marker, markersize=5.5, alpha=0.85, zorder=3, **style)
        axes.plot(*names[name], marker, markersize=8, transform=axes.transAxes, **style)
        words: dict[str, Any] = {"color": ink, "fontsize": 11, "fontweight": "bold", "va": "center"}
        count = f"{name} ({mine.sum()})"
        axes.annotate(count, names[name], (9, 0), xycoords="axes fraction", textcoords="offset points", **words)


def _milliseconds(axis: Any, label: str) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_label_text(f"{label}, ms (log scale)")


def measured_against_floor(points: Sequence["Point"], title: str) -> Figure:
    """Measured time of a pass by its bytes / bandwidth, log-log, with the diagonal. Nothing in it is fitted.

    Ringed: points under the diagonal. A time of several passes is divided by their number.
    """
    figure, axes = new_figure(title, height=6.4)
    passes = np.array([point.passes for point in points])
    x = 1e3 * np.array([sum(point.memory) for point in points]) / passes
    y = 1e3 * np.array([point.measured for point in points]) / passes
    ends = np.array([0.8 * x.min(), 1.25 * x.max()])
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=(0.7 * ends[0], 1.3 * y.max()))
    for factor, words in ((1, "the floor: bytes / bandwidth"), (2, "twice"), (4, "four times"), (8, "eight times")):
        colour = INK if factor == 1 else QUIET
        axes.plot(ends, factor * ends, color=colour, linewidth=1.8 if factor == 1 else 0.8)
        at, side = (1.2 * ends[0], "left") if factor == 1 else (axes.get_ylim()[1] / factor / 1.15, "right")
        along: dict[str, Any] = {
            "rotation": np.degrees(np.arctan(factor)),
            "rotation_mode": "anchor",
            "transform_rotates_text": True,
        }
        axes.text(at, 1.06 * factor * at, words, ha=side, va="bottom", fontsize=LABEL, color=colour, **along)
    _class_points(axes, points, x, y, {"HBM": (0.72, 0.2), "GDDR": (0.72, 0.145), "unified": (0.72, 0.09)})
    below = y < x
    axes.plot(x[below], y[below], "o", markersize=11, markerfacecolor="none", markeredgecolor=INK, zorder=4)
    _milliseconds(axes.xaxis, "bytes / bandwidth of a pass")
    _milliseconds(axes.yaxis, "measured time of a pass")
    return figure


def fraction_by_step(points: Sequence["Point"], fit: "Fit", title: str) -> Figure:
    """The fraction of bandwidth reached by the floor of a step (log), and the curve of two numbers through all.

    The curve is floor / (floor / fraction + overhead).
    """
    figure, axes = new_figure(title, height=4.8)
    x = 1e3 * np.array([point.floor / point.passes for point in points])
    steps = np.geomspace(0.8 * float(np.min(x)), 1.25 * float(np.max(x)), 200)
    curve = steps / (steps / fit.fraction + 1e3 * fit.overhead)
    axes.set(xscale="log", xlim=(steps[0], steps[-1]), ylim=(0, 1.05))
    axes.axhline(1, color=INK, linewidth=1.8)
    axes.text(steps[0] * 1.1, 1.015, "the datasheet", va="bottom", fontsize=LABEL)
    axes.plot(steps, curve, "--", color=BOUNDARY, zorder=4)
    words = f"dashed: {fit.fraction:.2f} of bandwidth\nand {1e3 * fit.overhead:.1f} ms a step"
    axes.text(steps[0] * 1.1, 0.82, words, va="top", fontsize=LABEL)
    fractions = np.array([point.fraction for point in points])
    _class_points(axes, points, x, fractions, {"HBM": (0.78, 0.24), "GDDR": (0.78, 0.16), "unified": (0.78, 0.08)})
    _milliseconds(axes.xaxis, "floor of a step")
    axes.set_ylabel("fraction reached (linear scale)")
    return figure
