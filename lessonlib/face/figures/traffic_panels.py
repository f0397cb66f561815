"""The figure of the report: a learner's requests on the plane of prompt and output, and where the GPU clock goes."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lessonlib.base.units import format_percent
from lessonlib.face.figures.figures import (
    BOUNDARY,
    CACHE,
    CACHE_INK,
    INKS,
    MEASURED,
    OVERHEAD,
    PREFILL,
    QUIET,
    WEIGHTS,
    log_token_axis,
    new_figure,
)
from lessonlib.policy.estimates import RHO_OF_FIVE_PERCENT, omega, rho
from lessonlib.policy.mix import TrafficCost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment

LEAST_WRITTEN = 10.0  # per cent of a bar that holds its own number


def traffic_panels(deployment: Deployment, new: Any, output: Any, costs: Mapping[str, TrafficCost]) -> Figure:
    """Left: a dot a request, `new` prompt tokens to prefill and `output` tokens, log-log; a dashed line for the batch
    of each of `costs`, above which rho is below 0.0526; shaded, omega above 1. Right: the parts of their GPU clock.
    """
    figure, (plane, bars) = new_figure(
        "Your requests, a dot each", height=2.75, columns=2, gridspec_kw={"width_ratios": (1.25, 1)}
    )
    _requests(plane, deployment, np.asarray(new), np.asarray(output), costs)
    _parts(bars, costs)
    return figure


def _decades(values: Any) -> tuple[float, float]:
    """Powers of ten around all values, at least two of them."""
    low, high = math.floor(math.log10(values.min())), math.ceil(math.log10(values.max()) + 1e-9)
    return 10.0**low, 10.0 ** max(high, low + 2)


def _requests(axes: Axes, deployment: Deployment, new: Any, output: Any, costs: Mapping[str, TrafficCost]) -> None:
    (left, right), (low, high) = _decades(new), _decades(output)
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    axes.minorticks_off()
    log_token_axis(axes.xaxis, "prompt tokens to prefill")
    log_token_axis(axes.yaxis, "output tokens")
    ground = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}
    if deployment.cache_bytes_per_token:
        edge = 1 / omega(deployment, 1)
        if edge < high:
            axes.axhspan(max(edge, low), high, color=CACHE, alpha=0.1, linewidth=0)
            above = math.log10(high / max(edge, low)) > 0.25 * math.log10(high / low)
            axes.text(left * 1.12, high / 1.12 if above else max(edge, low) / 1.12, "omega > 1",
                      va="top", color=CACHE_INK, bbox=ground)  # fmt: skip
        if low < edge < high:
            axes.axhline(edge, color=CACHE, linestyle="--", linewidth=1.5)
    axes.plot(new, output, "o", color=MEASURED, markersize=2.4, markeredgewidth=0, alpha=0.35, zorder=1.5)
    ends = np.array((left, right))
    for cost, along in zip(costs.values(), (0.35, 0.65), strict=False):
        slope = rho(deployment, Request(1, 1), cost.batch) / RHO_OF_FIVE_PERCENT
        axes.plot(ends, slope * ends, "--", color=BOUNDARY, linewidth=1.2)
        # Its name stands on the part of the line that is in the picture, if that is long enough.
        first, last = math.log10(max(left, low / slope)), math.log10(min(right, high / slope))
        if last - first > 0.8:
            x = 10 ** (first + along * (last - first))
            style: dict[str, Any] = {"rotation": math.degrees(math.atan2(slope * x, x)), "rotation_mode": "anchor"}
            axes.text(x, slope * x, f"batch {cost.batch:,}", ha="center", va="center", bbox=ground,
                      transform_rotates_text=True, **style)  # fmt: skip


def _parts(axes: Axes, costs: Mapping[str, TrafficCost]) -> None:
    """A bar of the GPU clock for each of `costs`, the last of which the title speaks of."""
    parts = (
        ("prefill", PREFILL, lambda c: c.prefill.seconds),
        ("decode: linear layers", WEIGHTS, lambda c: c.decode.linear.seconds),
        ("decode: attention", CACHE, lambda c: c.decode.attention.seconds),
        ("decode: the rest", OVERHEAD, lambda c: c.decode.communication + c.decode.overhead),
    )
    used = [part for part in parts if any(part[2](cost) > 0 for cost in costs.values())]
    for row, cost in enumerate(costs.values()):
        start = 0.0
        for _, colour, of in used:
            share = 100 * of(cost) / cost.seconds
            axes.barh(row, share, 0.62, left=start, color=colour)
            if share > LEAST_WRITTEN:
                axes.text(
                    start + share / 2, row, f"{share:.0f} %", color="white", ha="center", va="center", weight="bold"
                )
            start += share
    share = cost.decode_share
    said = f"Decode takes {format_percent(share)}" if share >= 0.5 else f"Prefill takes {format_percent(1 - share)}"
    axes.set_title(said, pad=12, fontsize=12.5, fontweight="bold", loc="left")
    places, size = ((0, 22, 65), 10.5) if len(used) < 4 else ((0, 20, 58, 86), 9)
    for x, (name, colour, _) in zip(places, used, strict=False):
        words = name.replace(": ", ":\n")
        axes.text(x, -0.42, words, color=INKS.get(colour, colour), va="bottom", weight="bold", fontsize=size)
    axes.set_yticks(range(len(costs)), [label.replace(" at a", "\nat a") for label in costs])
    axes.set(xlim=(0, 100), ylim=(len(costs) - 0.6, -1.05), xlabel="share of the GPU clock, % (linear scale)")
    axes.tick_params(axis="y", length=0, labelcolor=QUIET)
    axes.spines["left"].set_visible(False)
