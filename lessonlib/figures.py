"""Figures in one style, and the bundle in which they reach the reader.

`show(figure, alt, caption)` displays HTML with `<img alt>` and a caption, and the same PNG plain as a fall-back for a
notebook that is not trusted yet. The background is opaque and light in both themes, so no label is lost. A colour
means the same in every figure (Okabe and Ito's palette, told apart by colour-blind readers). Every function here
takes what it draws and returns a Figure; none keeps pyplot state. Needs matplotlib, imported only with this module.
"""

import base64
import io
from collections.abc import Mapping
from html import escape
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from lessonlib.errors import InvalidInputError
from lessonlib.request import RequestCost
from lessonlib.units import format_percent, format_seconds

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


def png_bytes(figure: Figure) -> bytes:
    """The figure as PNG, the same bytes for the same figure (no date, no version inside)."""
    stream = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def figure_html(png: bytes, alt: str, caption: str = "") -> str:
    """A figure as HTML: the picture with its alternative text, and a caption. Both texts are escaped."""
    source = base64.b64encode(png).decode("ascii")
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure style="margin:0"><img src="data:image/png;base64,{source}" alt="{escape(alt, quote=True)}" '
        f'style="max-width:100%;height:auto">{words}</figure>'
    )


def show(figure: Figure, alt: str, caption: str) -> None:
    """Display a figure in a notebook. `alt`: what the picture shows, for who cannot see it; `caption`: what to see.

    Raises InvalidInputError when either is missing: no figure of this collection goes without.
    """
    for name, text in (("alt", alt), ("caption", caption)):
        if not isinstance(text, str) or len(text.split()) < 3:
            raise InvalidInputError(f"show: {name} is {text!r}; expected a sentence that describes the figure.")
    from IPython.display import display

    png = png_bytes(figure)
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
