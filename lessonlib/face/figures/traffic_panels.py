"""The figure of the report: a learner's requests on the plane of prompt and output, and where the GPU clock goes."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lessonlib.base.units import format_percent
from lessonlib.face.figures.labels import GROUND, label
from lessonlib.face.figures.plane import omega_edge, rho_line
from lessonlib.face.figures.requests import share_axes, share_bar
from lessonlib.face.figures.style import house_style, log_token_axis, new_figure
from lessonlib.face.palette import CACHE, CACHE_INK, MEASURED, OVERHEAD, PREFILL, QUIET, WEIGHTS
from lessonlib.policy.estimates import RHO_OF_FIVE_PERCENT
from lessonlib.policy.mix import TrafficCost
from lessonlib.time.deployment import Deployment

LEAST_WRITTEN = 10.0  # per cent of a bar that holds its own number


@house_style()
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
    if deployment.cache_bytes_per_token:
        edge = max(omega_edge(axes, deployment), low)
        if edge < high:  # its name stands in the shade where that is high enough
            above = math.log10(high / edge) > 0.25 * math.log10(high / low)
            place, side = (left, high if above else edge), "below right"
            label(axes, place, "omega > 1", side, gap=4, color=CACHE_INK, bbox=GROUND)
    axes.plot(new, output, "o", color=MEASURED, markersize=2.4, markeredgewidth=0, alpha=0.35, zorder=1.5)
    for cost, share in zip(costs.values(), (0.35, 0.65), strict=False):
        style: dict[str, Any] = {"side": "on", "least": 0.2, "bbox": GROUND}
        rho_line(axes, deployment, cost.batch, RHO_OF_FIVE_PERCENT, f"batch {cost.batch:,}", share, **style)


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
        shares = [(100 * of(cost) / cost.seconds, colour) for _, colour, of in used]
        share_bar(axes, row, 0.62, shares, LEAST_WRITTEN)
    share = cost.decode_share
    said = f"Decode takes {format_percent(share)}" if share >= 0.5 else f"Prefill takes {format_percent(1 - share)}"
    axes.set_title(said, pad=12, fontsize=12.5, fontweight="bold", loc="left")
    axes.set_yticks(range(len(costs)), [label.replace(" at a", "\nat a") for label in costs])
    axes.set_ylim(len(costs) - 0.6, -1.05)
    names = {name.replace(": ", ":\n"): colour for name, colour, _ in used}
    share_axes(axes, names, -0.42, gap=8, fontsize=10.5 if len(used) < 4 else 9)
    axes.tick_params(axis="y", labelcolor=QUIET)
