"""The style of every figure, and the bundle in which it reaches the reader.

A function that makes a figure is decorated with `@house_style()`: it starts from matplotlib's defaults, whatever the
reader's matplotlibrc says. It takes what it draws and returns a Figure; none keeps pyplot state. `show(figure, alt,
caption)` displays HTML with `<img alt>` and a caption, and the same PNG plain as a fall-back. The PNG is opaque and
light, so no label is lost wherever it is shown. Where JupyterLab's theme is known (a trusted notebook, an HTML export),
a rule of style makes it one with the page: in a dark theme light and dark change places, and each colour stays itself.
A notebook that is not trusted yet loses the rule, and shows the light card.
"""

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from PIL import Image  # Pillow comes with matplotlib

from lessonlib.base.checks import a, checked, count
from lessonlib.base.errors import InvalidInputError, printable, shown
from lessonlib.base.text import plain_html
from lessonlib.base.units import tokens_label
from lessonlib.face.palette import GRID, INK, QUIET

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
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "text.parse_math": False,  # a dollar in a name is a dollar
}
CARD = "box-sizing:border-box;max-width:100%;height:auto;background:#fff;padding:8px;border-radius:8px"
THEMES = (  # 93 % of white turned round is the ground of JupyterLab's dark theme; on another, what is lighter is seen
    "<style>[data-jp-theme-light=true] .lesson-figure{mix-blend-mode:darken}[data-jp-theme-light=false] .lesson-figure"
    "{filter:invert(.933) hue-rotate(180deg);mix-blend-mode:lighten}</style>"
)
DPI = 120  # 8 inches are 960 px wide: sharp at full width, and 11 points stay above 12 px at 800


@contextmanager
def house_style() -> Iterator[None]:
    """matplotlib's defaults and STYLE, in a `with` or as a decorator; afterwards the reader's own are back."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def new_figure(
    title: str, width: float = 8.0, height: float = 4.5, rows: int = 1, columns: int = 1, **keywords: Any
) -> Any:
    """(figure, axes) in the house style; `title` is the figure's one message, said as a sentence."""
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    axes = figure.subplots(rows, columns, **keywords)
    first = np.ravel(axes)[0] if isinstance(axes, np.ndarray) else axes
    first.set_title(title, pad=12)
    return figure, axes


def new_panels(title: str, names: Sequence[str], **keywords: Any) -> tuple[Figure, list[Axes]]:
    """Panels with a name each and one y axis, under a title of the whole figure."""
    figure, axes = new_figure("", sharey=True, **keywords)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12.5, fontweight="bold", color=INK)
    panels = list(np.ravel(axes))
    for panel, name in zip(panels, names, strict=True):
        panel.set_title(name, loc="left", fontsize=11, fontweight="bold", color=INK)
    return figure, panels


def plain_numbers(axis: Any, form: str = "{:,.0f}") -> None:
    """Ticks as numbers in full, 1,000 and not 10 to the third, as `form` says."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: form.format(value)))


def log_token_axis(axis: Any, label: str) -> None:
    """A logarithmic axis of tokens; the label says that it is logarithmic."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: tokens_label(value)))
    axis.set_label_text(f"{label} (log scale)")


@house_style()
def png_bytes(figure: Figure, colours: int = 128) -> bytes:
    """The figure as PNG, the same bytes for the same figure (no date, no version inside).

    Stored with a palette of 128 colours: a quarter of the bytes, and no eye tells the difference in drawn lines. 32
    are enough for lines of one colour, 64 for three.
    """
    drawn, stored = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", metadata={"Software": None})
    picture = Image.open(drawn).convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    picture.save(stored, format="png", optimize=True, dpi=(figure.dpi, figure.dpi))
    return stored.getvalue()


def figure_html(png: bytes, alt: str, caption: str = "", rule: str = "") -> str:
    """A figure as HTML: the picture with its alternative text, and a caption. Both texts are escaped.

    `rule`: an element of style that goes before it, such as THEMES.
    """
    source = base64.b64encode(png).decode("ascii")
    words = f"<figcaption>{plain_html(caption)}</figcaption>" if caption else ""
    return (
        f'{rule}<figure style="margin:0"><img class="lesson-figure" src="data:image/png;base64,{source}" '
        f'alt="{escape(printable(alt))}" style="{CARD}">{words}</figure>'
    )


def described(figure: Figure, alt: str, caption: str) -> Figure:
    """The figure with the words that `show` takes where it is given none; what is a line of a label becomes a space."""
    figure.alt, figure.caption = (" ".join(words.split()) for words in (alt, caption))  # type: ignore[attr-defined]
    return figure


@checked(figure=a(Figure), colours=count(2, 256))
def show(figure: Figure, alt: str = "", caption: str = "", colours: int = 128) -> None:
    """Display a figure in a notebook. `alt`: what the picture shows, for those who do not see it; `caption`: its point.

    Where they are not given, they are those that the figure's function attached. Raises InvalidInputError when either
    is missing: no figure of this collection goes without.
    """
    alt, caption = alt or getattr(figure, "alt", ""), caption or getattr(figure, "caption", "")
    for name, text in (("alt", alt), ("caption", caption)):
        if not isinstance(text, str) or len(text.split()) < 3:
            raise InvalidInputError(f"show: {name} is {shown(text)}; expected a sentence that describes the figure.")
    from IPython.display import display

    png = png_bytes(figure, colours)
    bundle = {
        "text/html": figure_html(png, alt, caption, THEMES),
        "image/png": base64.b64encode(png).decode(),
        "text/plain": printable(alt),
    }
    display(bundle, raw=True)
