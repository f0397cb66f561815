"""Direct labels: words beside a point, and words along a curve. How far they stand off is worked out here."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox, ScaledTranslation

from lessonlib.face.palette import QUIET

LABEL = 10.5  # points, of a direct label
GAP = 6.0  # points between a label and its point
SIDES = ("right", "left", "above left", "above right", "below right", "below left", "above", "below")
GROUND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}  # so that no line runs through words


def label(
    axes: Axes, at: tuple[float, float], words: str, *sides: str, gap: float = GAP, far: float = 60.0, **style: Any
) -> Annotation:
    """Words beside the point `at`, in data coordinates, on one of `sides`: "right", "above left" and the like.

    Of several sides, or of SIDES where none is given, the first is taken on which the words cover no curve, dot or
    label drawn so far and stay inside the axes. Where none is free the search goes on, up to `far` points off, and a
    line leads to the point. All else of the figure is set and drawn before: to find a free place, its layout is made
    and kept.
    """
    style = {"textcoords": "offset points", "fontsize": LABEL, "annotation_clip": False, **style}
    sides = sides or SIDES
    place = _steps(sides[0]) * gap if len(sides) == 1 else _free_place(axes, at, words, sides, (gap, far), style)
    across, up = np.sign(place).astype(int)
    if np.hypot(*place) > 3.5 * GAP:
        nearest = (0.5 - across / 2, 0.5 - up / 2)
        style["arrowprops"] = {"arrowstyle": "-", "color": QUIET, "shrinkA": 1, "shrinkB": 5, "relpos": nearest}
    align: dict[str, Any] = {"ha": ("center", "left", "right")[across], "va": ("center", "bottom", "top")[up]}
    return axes.annotate(words, at, tuple(place), **align, **style)


def _steps(side: str) -> Any:
    """A side as steps to the right and up: "above left" is (-1, 1)."""
    return np.array([("right" in side) - ("left" in side), ("above" in side) - ("below" in side)])


def _free_place(axes: Axes, at: Any, words: str, sides: Sequence[str], steps: tuple[float, float], style: Any) -> Any:
    """The nearest offset, in points, at which the words cover nothing; where there is none, on the first side.

    `steps`: how far one step of the search goes, and all of it.
    """
    gap, far = steps
    figure: Any = axes.get_figure()
    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        figure.draw_without_rendering()  # only now is known what stands where; from here on it stays there
        figure.set_layout_engine("none")
    drawn = [(line.get_transform(), line.get_path()) for line in axes.lines]
    drawn += [(shape.get_transform(), path) for shape in axes.collections for path in shape.get_paths()]
    paths = [transform.transform_path(path) for transform, path in drawn]
    taken = [_extent(text) for text in axes.texts if not text.get_rotation()]
    probe = axes.annotate(words, at, (0, 0), **style)
    size, point = _extent(probe).size, axes.transData.transform(at)
    probe.remove()
    reach = gap * np.arange(1, max(2, far / gap))
    offsets = [_steps(side) * (x, y) for side in sides for x in reach for y in (reach if all(_steps(side)) else [x])]
    for offset in sorted(offsets, key=lambda offset: np.hypot(*offset)):
        corner = point + offset * figure.dpi / 72 + (np.sign(offset) - 1) / 2 * size
        box = Bbox([corner, corner + size]).padded(2)
        inside = axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max)
        crossed = any(path.intersects_bbox(box, filled=len(path) < 2) for path in paths)
        if inside and not crossed and not any(box.overlaps(other) for other in taken):
            return offset
    return _steps(sides[0]) * gap


def _extent(text: Text) -> Bbox:
    """The box of the words alone, without the line that leads from an annotation to its point."""
    text.get_window_extent()  # which puts an annotation in its place
    return Text.get_window_extent(text)


def along(
    axes: Axes,
    x: Any,
    y: Any,
    words: str,
    share: float = 0.5,
    side: str = "above",
    gap: float = 3.0,
    least: float = 0.0,
    **style: Any,
) -> Text | None:
    """Words along the curve (x, y), at a `share` of the way on what is seen of it, turned as the curve is there.

    `side`: "above" or "below" it, `gap` points off, or "on" it. None, and no words, where less than `least` of the
    axes' width is seen. The limits of the axes are set before.
    """
    points = (axes.transScale + axes.transLimits).transform(np.column_stack(np.broadcast_arrays(x, y)))
    ends = np.arange(len(points))
    across, up = (np.interp(np.linspace(0, ends[-1], 500), ends, part) for part in points.T)
    seen = (across >= 0) & (across <= 1) & (up >= 0) & (up <= 1)
    across, up = across[seen], up[seen]
    if len(across) < 2 or np.ptp(across) < least:
        return None
    way = np.append(0, np.cumsum(np.hypot(np.diff(across), np.diff(up))))
    i = min(int(np.searchsorted(way, share * way[-1])), len(way) - 2)
    off, va = {"above": (gap, "bottom"), "below": (-gap, "top"), "on": (0, "center")}[side]
    figure: Any = axes.get_figure()
    place = axes.transAxes + ScaledTranslation(0, off / 72, figure.dpi_scale_trans)
    turn = np.degrees(np.arctan2(up[i + 1] - up[i], across[i + 1] - across[i]))
    style = {"fontsize": LABEL, "ha": "center", "va": va, "transform": place, **style}
    return axes.text(
        across[i], up[i], words, rotation=turn, rotation_mode="anchor", transform_rotates_text=True, **style
    )
