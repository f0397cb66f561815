"""An empty sheet, and the boxes, arrows and words that a drawing puts on it."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from lessonlib.face.figures.labels import LABEL
from lessonlib.face.figures.style import new_figure
from lessonlib.face.palette import INK, QUIET
from lessonlib.time.deployment import Deployment

UNIT = 12.5  # units of a drawing to an inch: 8 inches are 100 of them


def sheet(title: str, height: float) -> tuple[Figure, Axes]:
    """An empty sheet of 100 units by 12.5 an inch, without axes."""
    figure, axes = new_figure(title, height=height)
    figure.set_layout_engine("none")  # the sheet is all there is to lay out
    axes.set_position((0.01, 0.0, 0.98, 1 - 0.5 / height))
    axes.set(xlim=(0, 100), ylim=(0, UNIT * (height - 0.5)))
    axes.set_axis_off()
    return figure, axes


def write(axes: Axes, x: float, y: float, words: str, ha: str = "center", **style: Any) -> None:
    axes.text(x, y, words, **{"ha": ha, "va": "center", "fontsize": LABEL, "linespacing": 1.35, **style})


def box(axes: Axes, x: float, y: float, w: float, h: float, colour: str, words: str = "", **style: Any) -> None:
    """A box with its lower left corner at (x, y): filled and with white words, or `pale` with dark ones."""
    pale, ink = style.pop("pale", False), style.pop("color", None)
    shape: dict[str, Any] = {
        "boxstyle": f"round,pad=0,rounding_size={min(0.8, w / 4, h / 4)}",
        "linewidth": 1.3,
        "edgecolor": colour,
    }
    face = (*rgb(colour), 0.12) if pale else colour
    axes.add_patch(FancyBboxPatch((x, y), w, h, facecolor=face, clip_on=False, **shape))
    if words:
        write(axes, x + w / 2, y + h / 2, words, color=ink or (INK if pale else "white"), **style)


def rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def arrow(axes: Axes, start: Any, end: Any, colour: str = QUIET, width: float = 1.8, **style: Any) -> None:
    head = 4 + 1.6 * width
    how = f"-|>,head_length={0.11 * head},head_width={0.055 * head}"
    style = {"arrowstyle": how, "mutation_scale": 10, "shrinkA": 0, "shrinkB": 0, "linewidth": width, **style}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, **style))


def setting(deployment: Deployment) -> str:
    """What a caption says of every drawing: the model, its dtype and the devices."""
    devices = "one" if deployment.devices == 1 else f"{deployment.devices} x"
    return f"{deployment.model.name}, {deployment.precision.blocks}, on {devices} {deployment.accelerator.name}"
