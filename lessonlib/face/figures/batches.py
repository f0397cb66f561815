"""Figures by batch: throughput, prices, occupancy, levers; and what a faster prefill saves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lessonlib.base.checks import checked, count, items
from lessonlib.base.units import format_percent
from lessonlib.face.figures.labels import along, label
from lessonlib.face.figures.sheet import setting
from lessonlib.face.figures.style import described, house_style, log_token_axis, new_figure, new_panels, plain_numbers
from lessonlib.face.palette import (
    BOUNDARY,
    CACHE,
    INK,
    INKS,
    OTHER,
    PREFILL,
    PREFILL_INK,
    QUIET,
    WEIGHTS,
)
from lessonlib.policy.full_server import memory_batch
from lessonlib.policy.levers import Lever
from lessonlib.policy.sensitivity import break_even_by_rho, break_even_output
from lessonlib.request.request import Request
from lessonlib.time.deployment import DEPLOYMENT, Deployment, Efficiency

TWO_REQUESTS = (INK, OTHER)  # their curves: requests, not phases or parts
BAND_POINTS = 24  # batches at which a band is computed


@house_style()
def throughput_by_batch(series: Mapping[str, tuple[Sequence[float], Sequence[float], float]], title: str) -> Figure:
    """Output tokens a second by batch, log-log: a curve for each request, its memory batch, its roof batch.

    `series`: label to (batches, tokens a second with prompts mixed in, as the roof batch is of such passes, roof
    batch). The last batch is the memory batch. Where the roof batch lies beyond it, it is drawn hollow, at its height.
    """
    figure, axes = new_figure(title, height=5.0)
    axes.set(xscale="log", yscale="log", xlim=(1, 700))
    axes.set_ylim(min(s[1][0] for s in series.values()) / 1.5, max(s[1][-1] for s in series.values()) * 2.2)
    for (batches, rates, roof), colour in zip(series.values(), TWO_REQUESTS, strict=False):
        axes.plot(batches, rates, color=colour)
        axes.plot([batches[-1]] * 2, [rates[0] / 2, rates[-1]], color=colour, linestyle="--", linewidth=1.6)
        axes.plot(batches[-1], rates[-1], "s", color=colour, markersize=8)
        reached = roof <= batches[-1]
        height = float(np.interp(min(roof, batches[-1]), batches, rates))
        axes.plot(roof, height, "o", color=colour, markerfacecolor=colour if reached else "white", markersize=9)
        if not reached:
            axes.plot([batches[-1], roof], [height] * 2, ":", color=QUIET, linewidth=1, zorder=1.5)
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis)
    axes.grid(axis="y")
    axes.set_xlabel("batch size (log scale)")
    axes.set_ylabel("output tokens a second (log scale)")
    for (name, (batches, rates, roof)), colour in zip(series.items(), TWO_REQUESTS, strict=False):
        words = f"{name}: memory full at {batches[-1]:,.0f}\n{rates[-1]:,.0f} tokens/s"
        style: dict[str, Any] = {"fontweight": "bold", "color": INKS.get(colour, colour)}
        lower = rates[-1] < max(s[1][-1] for s in series.values())  # beside its dashed line, below all curves
        place = ((batches[-1], rates[-1] / 6), words, "left", "right") if lower else ((batches[-1], rates[-1]), words)
        label(axes, *place, **style)
        reached = roof <= batches[-1]
        at = float(np.interp(min(roof, batches[-1]), batches, rates))
        words = f"roof batch {roof:,.0f}" if reached else f"roof batch {roof:,.0f},\nout of reach"
        label(axes, (roof, at), words, "above left" if reached else "below left", gap=9, **style)
    ends = "; ".join(
        f"{name} ends at batch {batches[-1]:,.0f}, where memory is full, with {rates[-1]:,.0f} tokens/s; its linear "
        f"layers turn compute bound at {roof:,.0f}, {'on the curve' if roof <= batches[-1] else 'beyond that'}"
        for name, (batches, rates, roof) in series.items()
    )
    alt = f"Output tokens a second by batch, both logarithmic, rising curves that flatten: {ends}."
    caption = "Prompts ride on the steps. Squares, dashed: memory is full. Circles: roof batch, hollow if out of reach."
    return described(figure, alt, caption)


@house_style()
def output_token_prices(series: Mapping[str, tuple[Sequence[int], Sequence[float]]], title: str) -> Figure:
    """Price of an output token, in prompt tokens, by batch, log-log; each curve ends at its memory limit.

    `series`: label to (batches, prices), two of them. The first point stands for both: alone they nearly agree.
    """
    figure, axes = new_figure(title, height=5.0)
    axes.set(xscale="log", yscale="log", xlim=(0.9, 900), ylim=(0.75, 600))
    axes.axhline(1, color=BOUNDARY, linestyle="--", linewidth=1.6, clip_on=False)
    label(axes, (0.9, 1), "as dear as a prompt token", "above right")
    for (batches, prices), colour in zip(series.values(), TWO_REQUESTS, strict=True):
        axes.plot(batches, prices, color=colour)
        axes.plot(batches[-1], prices[-1], "s", color=colour, markersize=8)
    alone = [prices[0] for _, prices in series.values()]
    axes.plot(1, alone[0], "o", color=INK, markersize=6, zorder=5)
    label(axes, (1, alone[0]), f"alone: {min(alone):.0f} to {max(alone):.0f}", "above right", gap=4)
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis)
    axes.grid(axis="y")
    axes.set_xlabel("batch size (log scale)")
    axes.set_ylabel("prompt tokens for one output token (log scale)")
    for (name, (batches, prices)), colour in zip(series.items(), TWO_REQUESTS, strict=True):
        words = f"{name}: memory is full at {batches[-1]:,}\n{prices[-1]:.2g} prompt tokens"
        label(axes, (batches[-1], prices[-1]), words, gap=9, color=INKS.get(colour, colour), fontweight="bold")
    ends = "; ".join(f"{name} {prices[-1]:.2g} at batch {batches[-1]:,}" for name, (batches, prices) in series.items())
    alt = f"Price of an output token in prompt tokens by batch, from about {max(alone):.0f} alone down to: {ends}."
    caption = "GPU time of an output token over that of a prompt token. Squares: memory is full."
    return described(figure, alt, caption)


@house_style()
def savings_dots(alone: Mapping[str, Sequence[float]], full: Mapping[str, Sequence[float]], title: str) -> Figure:
    """The share of time that a free prefill saves, a row for each workload, on a log scale; dashed is 5 %.

    `alone` and `full`: label to shares, the floor's first and then those at some efficiencies. A dot stands at the
    floor, which its label says, hollow where the request is alone. The line through it reaches from the least of its
    shares to the largest.
    """
    figure, axes = new_figure(title, height=4.6)
    axes.set(xscale="log", xlim=(3e-3, 100), ylim=(len(full) - 0.4, -0.5))
    axes.set_yticks(range(len(full)), list(full), color=INK)
    axes.tick_params(axis="y", length=0)
    plain_numbers(axes.xaxis, "{:g} %")
    axes.grid(axis="x")
    axes.axvline(5, color=BOUNDARY, linestyle="--", linewidth=1.2, zorder=1)
    axes.set_xlabel("time that a free prefill saves (log scale); dashed: 5 %")
    words = []
    for rows, name, shift in ((alone, "alone", -0.15), (full, "full server", 0.2)):
        for row, shares in enumerate(rows.values()):
            floor, low, high = (100 * share for share in (shares[0], min(shares), max(shares)))
            axes.plot((low, high), [row + shift] * 2, color=PREFILL, linewidth=5, alpha=0.35, solid_capstyle="butt")
            filled = PREFILL if rows is full else "white"
            axes.plot(floor, row + shift, "o", color=PREFILL, markerfacecolor=filled, markersize=8)
            words.append(((floor, row + shift), f"{name} {format_percent(floor / 100, 2)}"))
    for at, said in words:
        label(axes, at, said, "above right", "above left", gap=5, color=PREFILL_INK)
    ends = (
        f"{name}: alone {format_percent(alone[name][0], 2)}, full server {format_percent(full[name][0], 2)} "
        f"({format_percent(min(full[name]), 2)} to {format_percent(max(full[name]), 2)})"
        for name in full
    )
    alt = (
        f"The time that a free prefill saves, a row for each request, log scale, with a line at 5 %. {'; '.join(ends)}."
    )
    return described(
        figure, alt, "Dots: the floor, hollow where alone. Pale lines: from there to published efficiencies."
    )


@house_style()
@checked(deployment=DEPLOYMENT, batches=items(count(), least=1))
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
        label(axes, (most, exact[-1]), f"batch {batch:,}", "right", color=PREFILL_INK)
        along(axes, prompts, estimate, f"rho, batch {batch:,}", 0.85, "below" if batch == batches[0] else "above")
    shortest = break_even_output(deployment, least, min(batches), share)
    label(axes, (6 * least, shortest), f"{shortest} output tokens", "above right", gap=3, color=PREFILL_INK)
    alt = (
        f"Output by prompt tokens, both logarithmic. Lines for batch {', '.join(f'{b:,}' for b in batches)}, above "
        f"which prefill takes under {format_percent(share, 1)}: level at {shortest} output tokens while a prompt costs "
        "one step, then along the dashed line of rho, and off it where prompts are long."
    )
    caption = f"{setting(deployment)}. Solid: exact. Dashed: rho. Whether the batch fits is not asked."
    return described(figure, alt, caption)


@house_style()
def lever_curves(
    deployment: Deployment,
    requests: Mapping[str, Request],
    levers: Mapping[str, Lever],
    title: str,
    efficiencies: Sequence[Efficiency] = (),
    colours: Sequence[str] = (WEIGHTS, CACHE, PREFILL),
) -> Figure:
    """How many times as fast each lever makes each of four requests, by batch, up to the memory limit (log scale).

    `requests`: label to request, four of them; `levers`: label to lever, in the order of `colours`. GPU clock, the
    batch held. A dot marks the batch from which on the lever that is best at the limit is the best. A band beside a
    curve is what the lever gives at `efficiencies`.
    """
    figure, axes = new_panels(title, list(requests), height=5.8, rows=2, columns=2)
    said = []
    for panel, (workload, request) in zip(axes, requests.items(), strict=True):
        deployment.require_fit(request.prompt + request.output)
        limit = memory_batch(deployment, request)
        batches = range(1, limit + 1)
        panel.set(xscale="log", xlim=(1, limit), ylim=(0.9, 3.3))
        ticks = [batch for batch in (1, 2, 4, 10, 32, 100) if batch < 0.7 * limit] + [limit]
        panel.set_xticks(ticks, [str(tick) for tick in ticks], color=INK)
        panel.set_xticks([], minor=True)
        panel.grid(axis="y")
        curves = {
            name: np.array([lever.speedup(deployment, request, batch) for batch in batches])
            for name, lever in levers.items()
        }
        lowest = 0.0
        for name, curve in sorted(curves.items(), key=lambda item: item[1][-1]):
            colour = colours[list(levers).index(name)]
            panel.plot(batches, curve, color=colour, clip_on=False)
            if efficiencies:
                machines = [replace(deployment, efficiency=efficiency) for efficiency in efficiencies]
                some = np.unique(np.geomspace(1, limit, BAND_POINTS).round().astype(int))
                gains = [[levers[name].speedup(machine, request, int(b)) for b in some] for machine in machines]
                panel.fill_between(some, np.min(gains, 0), np.max(gains, 0), color=colour, alpha=0.2, linewidth=0)
            lowest = max(curve[-1], lowest + 0.19)  # a line of letters apart from the label beneath
            label(panel, (limit, lowest), f"{name} {curve[-1]:.2f}", "right", color=INKS.get(colour, colour))
        best = max(curves.values(), key=lambda curve: curve[-1])
        turn = int(np.argmax(best >= np.max(list(curves.values()), axis=0)))
        first, last = (list(curves)[int(np.argmax([curve[at] for curve in curves.values()]))] for at in (0, -1))
        said.append(f"{workload}: {first} at batch 1, {last} from batch {turn + 1} to {limit}")
        panel.vlines(turn + 1, best[turn], 2.9, color=QUIET, linewidth=1)
        panel.plot(turn + 1, best[turn], "o", color=INK, markersize=6, zorder=5, clip_on=False)
        label(panel, (turn + 1, 2.9), f"from batch {turn + 1}", "above", gap=2)
    for panel in axes[::2]:
        panel.set_ylabel("times as fast")
    figure.supxlabel("batch, up to the memory limit (log scale)", fontsize=11, color=INK)
    alt = f"Times as fast by batch, a panel for each request, up to the memory limit. The best: {'; '.join(said)}."
    caption = f"{setting(deployment)}, GPU clock, the same batch with each lever. Dot: the one best at the limit leads."
    caption += " Bands: at published efficiencies." if efficiencies else ""
    return described(figure, alt, caption)
