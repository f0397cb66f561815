"""Figures of passes and requests: the roofline, what one user waits, where the GPU clock goes."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lessonlib.base.checks import a, checked, named
from lessonlib.base.units import format_percent, format_seconds
from lessonlib.face.figures.labels import GROUND, along, label
from lessonlib.face.figures.style import described, house_style, new_figure, plain_numbers
from lessonlib.face.palette import (
    BOUNDARY,
    CACHE,
    DECODE,
    INK,
    INKS,
    PREFILL,
    QUIET,
    WEIGHTS,
)
from lessonlib.policy.full_server import SteadyState
from lessonlib.request.cost import RequestCost


@house_style()
@checked(costs=named(a(RequestCost), "{'chat': request_cost(...)}"))
def request_bars(costs: Mapping[str, RequestCost], title: str) -> Figure:
    """What one user waits for each request, as bars on one linear axis: prefill, then decode. `costs`: label to cost.

    A line points to each prefill; where the prefill is narrower on the page than that line, the label says so.
    """
    figure, axes = new_figure(title, height=3.4)
    longest = max(cost.undisturbed for cost in costs.values())
    axes.set_xlim(0, 1.02 * longest)
    axes.set_ylim(len(costs) - 0.35, -0.4)
    line = 1.5  # points
    line_seconds = line / 72 * axes.get_xlim()[1] / (0.8 * figure.get_figwidth())  # the axis has 0.8 of the width
    for row, cost in enumerate(costs.values()):
        axes.barh(row, cost.ttft, 0.4, color=PREFILL)
        axes.barh(row, cost.decode.seconds, 0.4, left=cost.ttft, color=DECODE)
        words = f"{cost.undisturbed:.3g} s, of which decode {format_percent(cost.decode.seconds / cost.undisturbed, 5)}"
        if cost.undisturbed > longest / 2:
            axes.text(longest / 2, row, words, ha="center", va="center")
        else:
            label(axes, (cost.undisturbed, row), words, "right", fontsize=11)
        axes.vlines(0, row + 0.2, row + 0.5, color=PREFILL, linewidth=line, clip_on=False)
        thinner = ", thinner than this line" if cost.ttft < line_seconds else ""
        label(axes, (0, row + 0.37), f"prefill {format_seconds(cost.ttft, 3)}{thinner}", "right", fontsize=11)
    axes.set_yticks(range(len(costs)), list(costs), color=INK)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("seconds from the prompt to the last token, one request alone (linear scale)")
    said = "; ".join(
        f"{n} {c.undisturbed:.3g} s, of which prefill {format_seconds(c.ttft, 3)}" for n, c in costs.items()
    )
    caption = "One request alone. Blue: decode. Vermilion: prefill; the line below only points to it."
    return described(figure, f"Bars to scale, prefill and then decode: {said}.", caption)


@house_style()
def roofline_figure(
    points: Sequence[tuple[str, float, float, str]], peak: float, bandwidth: float, title: str
) -> Figure:
    """The roofline, log-log: FLOP/s that a piece of work attains, by its FLOP/byte, under the roof of a device.

    `points`: (label, FLOP/byte, FLOP/s, colour) each; `peak` in FLOP/s and `bandwidth` in byte/s draw the roof, and the
    ridge where they meet. Source: Williams, Waterman, Patterson, CACM 2009.
    """
    ridge = peak / bandwidth
    figure, axes = new_figure(title, height=5.2)
    left, right, top = 0.4, 60_000.0, peak / 1e12
    bottom = left * bandwidth / 1e12
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, 4 * top))
    axes.plot([left, ridge, right], [bottom, top, top], color=INK, linewidth=1.8)
    axes.plot([ridge, ridge], [bottom, top], "--", color=BOUNDARY, linewidth=1.2)
    label(axes, (ridge, bottom), f"ridge: {ridge:.0f} FLOP/byte", "above right", color=QUIET)
    label(axes, (right, top), f"compute bound: {top:,.0f} TFLOP/s", "below left", color=QUIET)
    along(axes, [left, ridge], [bottom, top], f"memory bound: {bandwidth / 1e12:,.3g} TB/s", 0.22, gap=8, color=QUIET)
    for words, intensity, rate, colour in points:
        at = intensity, rate / 1e12
        axes.plot(*at, "o", color=colour, markersize=11, markeredgecolor="white", zorder=4)
        # Under the slope to its right, but not over the ridge; on the flat roof above it, and away from the ridge.
        side = "above left" if ridge / 16 < intensity <= ridge else "below right"
        side = side if intensity <= ridge else "above right" if intensity > 2 * ridge else "above left"
        style: dict[str, Any] = {"color": INKS.get(colour, colour), "fontweight": "bold", "bbox": GROUND}
        label(axes, at, words, side, **style)
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis, "{:,.10g}")
    axes.set_xlabel("arithmetic intensity, FLOP/byte (log scale)")
    axes.set_ylabel("attained, TFLOP/s (log scale)")
    said = "; ".join(f"{words}, {rate / 1e12:,.3g} TFLOP/s" for words, _, rate, _ in points)
    alt = f"Roofline, log-log: a slope of {bandwidth / 1e12:,.3g} TB/s up to the ridge at {ridge:.0f} FLOP/byte, then "
    alt += f"a level of {peak / 1e12:,.0f} TFLOP/s beyond. Points under it: {said}."
    return described(figure, alt, "A dot is a piece of work: across its FLOP/byte, up the FLOP/s that it attains.")


def share_bar(axes: Axes, row: float, height: float, parts: Sequence[tuple[float, str]], least: float) -> None:
    """A bar of shares, in per cent with their colours, one after another; one above `least` says its own number."""
    left = 0.0
    for share, colour in parts:
        axes.barh(row, share, height, left=left, color=colour)
        if share > least:
            style: dict[str, Any] = {"color": "white", "ha": "center", "va": "center", "weight": "bold"}
            axes.text(left + share / 2, row, f"{share:.0f} %", **style)
        left += share


def share_axes(axes: Axes, names: Mapping[str, str], height: float, gap: float = 16, **style: Any) -> None:
    """The axes of such bars: names of the parts in their colours, `gap` points apart at `height`; no spine."""
    place: dict[str, Any] = {"xy": (0, height), "xytext": (0, 0)}
    for name, colour in names.items():
        words: dict[str, Any] = {"color": INKS.get(colour, colour), "va": "bottom", "weight": "bold"} | place | style
        said = axes.annotate(name, textcoords="offset points", annotation_clip=False, **words)
        place = {"xy": (1, 0), "xycoords": said, "xytext": (gap, 0)}  # the next one begins where this one ends
    axes.set(xlim=(0, 100), xlabel="share of the GPU clock, % (linear scale)")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


@house_style()
@checked(states=named(a(SteadyState), "{'chat': steady_state(...)}"))
def time_shares(states: Mapping[str, SteadyState], title: str) -> Figure:
    """Shares of the GPU clock, a bar for each state: prefill, decode's linear layers, decode's attention.

    `states`: label to state of a server. Labels that begin alike up to a comma stand together as a group.
    """
    figure, axes = new_figure(title, height=1.5 + 0.36 * len(states))
    names = {"prefill": PREFILL, "decode: linear layers": WEIGHTS, "decode: attention": CACHE}
    row, rows, group = 0.0, [], ""
    for name, state in states.items():
        row += 1.4 if group and name.split(",")[0] != group else 1.0
        rows.append(row)
        group = name.split(",")[0]
        shares = [100 * state.shares[part] for part in ("prefill", "linear", "attention")]
        share_bar(axes, row, 0.86, list(zip(shares, names.values(), strict=True)), least=5.5)
    axes.set_yticks(rows, list(states), color=INK)
    axes.set_ylim(row + 0.6, 0.0)
    share_axes(axes, names, 0.25)
    said = "; ".join(
        f"{n}: {', '.join(format_percent(part, 2) for part in s.shares.values())}" for n, s in states.items()
    )
    alt = f"Bars, each the whole GPU clock of a server: prefill, linear layers, attention of decode. {said}."
    return described(figure, alt, "Each bar is the whole GPU clock of a server that always has that many requests.")
