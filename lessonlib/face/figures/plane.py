"""The plane of prompt and output tokens, log-log: which requests are decode-heavy, and which batching cannot help."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lessonlib.base.checks import a, between, checked, count, items
from lessonlib.base.units import format_percent
from lessonlib.face.figures.labels import SIDES, along, label
from lessonlib.face.figures.sheet import setting
from lessonlib.face.figures.style import described, house_style, log_token_axis, new_figure
from lessonlib.face.palette import BOUNDARY, CACHE, CACHE_INK, MEASURED, PREFILL, PREFILL_INK, QUIET
from lessonlib.facts.workloads import Workload
from lessonlib.policy.estimates import omega, rho
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import DEPLOYMENT, Deployment

PLANE = ((5.0, 300_000.0), (5.0, 40_000.0))  # its ends in tokens
BATCHES, SHARE = items(count(), least=1), between(0.001, 0.999, "GPU time")


@house_style()
@checked(deployment=DEPLOYMENT, workloads=items(a(Workload)), batches=BATCHES, prefill_share=SHARE)
def plane(
    deployment: Deployment,
    workloads: Sequence[Workload],
    batches: Sequence[int] = (1, 32, 256),
    prefill_share: float = 0.05,
) -> Figure:
    """The plane with a line for each batch, above which prefill takes less than `prefill_share` of the GPU clock.

    Dashed: rho = share / (1 - share), an estimate; solid: where the share is exactly `prefill_share`, by `request_cost`
    with nothing cached, as far as the batch fits; level where a short prompt costs one decode step. Shaded: omega above
    1, unless no cache grows. A workload stands at the tokens that are prefilled, the hollow dot at its whole prompt.
    """
    odds = prefill_share / (1 - prefill_share)
    title = "Nothing cached: above its batch's line, prefill takes under {} of GPU time"
    figure, axes = new_figure(title.format(format_percent(prefill_share, 1)), height=5.9)
    (left, right), (low, high) = PLANE
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    log_token_axis(axes.xaxis, "prompt tokens to prefill")
    log_token_axis(axes.yaxis, "output tokens")
    if deployment.cache_bytes_per_token:
        edge = omega_edge(axes, deployment)
        if low < edge < high:
            label(axes, (left, edge), "memory is full first", "above right", color=CACHE_INK)
    prompts, outputs = (np.unique(np.geomspace(*ends, 220).round()) for ends in PLANE)
    for batch in batches:
        rho_line(axes, deployment, batch, odds, f"batch {batch:,}", 0.85, side="below", gap=4)
        exact = request_cost(deployment, Request(prompts, outputs[:, None]), batch)
        drawn = axes.contour(prompts, outputs, 1 - exact.decode_share, [prefill_share], colors=[PREFILL], linewidths=2)
        _name_of_exact(axes, drawn.allsegs[0], f"exact, {batch:,}")
    for workload in workloads:
        _workload_dot(axes, workload)
    for workload in workloads:  # once all dots are there
        words = f"{workload.label}\n{workload.prompt:,} → {workload.output:,}".replace(", ", ",\n")
        at = (workload.prompt, workload.output)  # of one that is cached, too: there is more room
        sides = ("below", "left", "below left") if workload.cached else SIDES
        label(axes, at, words, *sides, gap=9, far=120, fontweight="bold")
    return described(figure, *_words(deployment, workloads, batches, prefill_share))


def _words(
    deployment: Deployment, workloads: Sequence[Workload], batches: Sequence[int], prefill_share: float
) -> tuple[str, str]:
    """Alt text and caption of the plane: above which lines each workload lies, and what its own tokens say alone."""
    odds, places = prefill_share / (1 - prefill_share), []
    for workload in workloads:
        above = [f"{b:,}" for b in batches if rho(deployment, workload.request, b) < odds]
        place = f"above the line{'s'[: len(above) > 1]} of batch {', '.join(above)}" if above else "below all lines"
        place += ", in the shaded part" if omega(deployment, Request(*_place(workload))) > 1 else ""
        alone = format_percent(1 - request_cost(deployment, workload.request).decode_share, 2)
        places.append(f"{workload.label}: {place}; alone, its prefill takes {alone}.")
    alt = (
        "Prompt tokens across, output tokens up, both logarithmic, with rising lines for batch "
        f"{', '.join(f'{batch:,}' for batch in batches)}: above its line, prefill takes under "
        f"{format_percent(prefill_share, 1)}. Shaded: memory is full before a batch is compute bound. "
    )
    alt += " ".join(places)
    caption = f"{setting(deployment)}. Dashed: rho. Solid: exact, nothing cached, as far as the batch fits. Shaded: "
    return alt, f"{caption}omega above 1. A hollow dot stands at a whole prompt, most of which is cached."


def omega_edge(axes: Axes, deployment: Deployment) -> float:
    """Shade what lies above omega = 1 of the plane, nothing cached, and draw its edge dashed.

    Returns the output tokens of the edge at the shortest prompt shown.
    """
    (low, high), prompts = axes.get_ylim(), np.geomspace(*axes.get_xlim(), 60)
    outputs = np.geomspace(1, 2.0**40, 1600).round()
    over = omega(deployment, Request(np.ceil(prompts), outputs[:, None])) > 1
    edge = np.where(over.any(axis=0), outputs[np.argmax(over, axis=0)], math.inf)
    if edge.min() < high:
        axes.fill_between(prompts, np.clip(edge, low, high), high, color=CACHE, alpha=0.09, linewidth=0)
        axes.plot(prompts, np.where((edge > low) & (edge < high), edge, np.nan), "--", color=CACHE, linewidth=1.6)
    return float(edge[0])


def rho_line(
    axes: Axes, deployment: Deployment, batch: int, odds: float, name: str, share: float, **style: Any
) -> None:
    """The dashed line of a batch where rho, prefill over decode, is `odds`, and its name at a `share` of it."""
    prompts = np.geomspace(*axes.get_xlim(), 50)
    outputs = rho(deployment, Request(1, 1), batch) / odds * prompts
    axes.plot(prompts, outputs, "--", color=BOUNDARY, linewidth=1.3)
    along(axes, prompts, outputs, name, share, **style)


def _name_of_exact(axes: Axes, lines: Sequence[Any], name: str) -> None:
    """The name of a solid line at its right end, where it has a line at all."""
    if lines and len(longest := max(lines, key=len)):
        label(axes, tuple(longest[np.argmax(longest[:, 0])]), name, "above", "above right", gap=3, color=PREFILL_INK)


def _place(workload: "Workload") -> tuple[int, int]:
    return workload.prompt - workload.cached, workload.output


def _workload_dot(axes: Axes, workload: "Workload") -> None:
    """A workload at the tokens that are prefilled; from the hollow dot at its whole prompt, what a cache saves."""
    axes.plot(*_place(workload), "o", color=MEASURED, markersize=9, zorder=5)
    if workload.cached:
        whole = (workload.prompt, workload.output)
        axes.annotate("", _place(workload), whole, arrowprops={"arrowstyle": "-|>", "color": QUIET, "shrinkB": 7})
        axes.plot(*whole, "o", markeredgecolor=MEASURED, markerfacecolor="white", markersize=8, zorder=5)
        label(axes, whole, f"{format_percent(workload.cached / workload.prompt)} cached", "above left", color=QUIET)
        label(axes, _place(workload), f"{workload.prompt - workload.cached:,} new", "above right", color=QUIET)
