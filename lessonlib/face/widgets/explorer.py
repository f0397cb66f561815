"""What every explorer is made of: menus, sliders and, beneath them, an HTML that follows the controls.

A picture is SVG written by hand into the value of an HTML widget: no figure is built and no output is captured, so a
slider's key reaches the picture in some milliseconds. What cannot be computed is said in the same place, by the
sentence of its error. Needs ipywidgets, imported only with this module.
"""

from collections.abc import Callable
from functools import cache
from html import escape
from typing import Any

import ipywidgets

from lessonlib.base.checks import choice
from lessonlib.base.errors import LessonError
from lessonlib.base.text import html_table
from lessonlib.face.palette import INK
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.tables import load_table
from lessonlib.time.deployment import Deployment

WIDTH = 720  # of a picture, in its own units; it is scaled to the page
MOST = {"prompt": 131_072, "output": 65_536, "batch": 1024}
UNITS = {"prompt": "token", "output": "token", "batch": "request"}
LESSON_STEPS = {
    "prompt": (208, 103_647),
    "output": (216, 792, 12_800),
    "batch": (35, 71, 368, 403),
}  # beside powers of two


def steps(control: str) -> tuple[int, ...]:
    """The stops of a slider: powers of two, those in the middle between two of them, and the lesson's own numbers."""
    most = MOST[choice(MOST)("steps", "control", control)]
    powers = [2**i for i in range(most.bit_length())]
    found = {*powers, *(3 * power // 2 for power in powers[1:]), *LESSON_STEPS[control]}
    return tuple(sorted(step for step in found if step <= most))


def sliders_of(*controls: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """(unit, stops) of some of the lesson's sliders: "prompt", "output" and "batch"."""
    return {control: (UNITS[control], steps(control)) for control in controls}


def deployed(model: str, accelerator: str) -> Deployment:
    """That model of the catalogue in bf16 on one such accelerator."""
    if isinstance(model, str) and isinstance(accelerator, str):
        return _deployed(model, accelerator)
    return _deployed.__wrapped__(model, accelerator)  # no name, so refused; what has no hash cannot be looked up


@cache
def _deployed(model: str, accelerator: str) -> Deployment:
    return Deployment(load_model(model), load_accelerator(accelerator))


def framed(inside: Callable[[], str]) -> str:
    """What `inside` makes, on an opaque light ground; where it cannot be computed, the sentence of its error."""
    try:
        content = inside()
    except LessonError as error:
        content = f'<p role="alert" style="font-weight:bold">Not computed. {escape(str(error))}</p>'
    return f'<div style="background:#fff;color:{INK};padding:8px;max-width:{WIDTH}px;line-height:1.4">{content}</div>'


def table(shown: dict[str, str]) -> str:
    """Two tables side by side where the page is wide enough, one above the other where it is not."""
    rows, half = list(shown.items()), -(-len(shown) // 2)
    styles = {
        "table": f"border-collapse:collapse;font-size:14px;color:{INK};white-space:nowrap",
        # The ground is said row by row: JupyterLab gives every second one a colour of its theme, in the dark one black.
        "tr": "background:#fff",
        "row": "font-weight:normal;padding:1px 10px 1px 0",
    }
    tables = (html_table(part, "lr", bold=True, styles=styles) for part in (rows[:half], rows[half:]))
    return f'<div style="display:flex;flex-wrap:wrap;gap:0 28px;align-items:flex-start">{"".join(tables)}</div>'


def svg(height: int, label: str, drawn: str) -> str:
    """A picture of WIDTH units across on a white ground, read aloud by its `label`."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}" font-family="sans-serif" '
        f'font-size="13" style="width:100%;height:auto;background:#fff">'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{drawn}</svg>'
    )


def svg_text(x: float, y: float, words: str, colour: str = INK, anchor: str = "start", more: str = "") -> str:
    """Words of a picture at (x, y); `anchor`: which end of them stands there; `more`: further attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


class Explorer(ipywidgets.VBox):
    """Menus, sliders, a reset button and the `shown` HTML; `controls` holds the first by name.

    `menus`: options by name; `sliders`: (unit, stops) by name; `start`: where each begins, and what reset goes back to;
    `view`: makes the HTML from the values, by name. What cannot be computed is `view`'s to say: it never raises.
    """

    def __init__(
        self,
        menus: dict[str, Any],
        sliders: dict[str, tuple[str, tuple[int, ...]]],
        start: dict[str, Any],
        view: Callable[..., str],
    ) -> None:
        wide: dict[str, Any] = {
            "style": {"description_width": "110px"},
            "layout": ipywidgets.Layout(width="min(100%, 620px)"),
        }
        self.start, self.view = start, view
        self.controls: dict[str, Any] = {
            name: ipywidgets.Dropdown(options=options, description=name, **wide) for name, options in menus.items()
        } | {
            name: ipywidgets.SelectionSlider(
                options=[(f"{stop:,} {unit}{'' if stop == 1 or not unit else 's'}", stop) for stop in stops],
                description=name,
                **wide,
            )
            for name, (unit, stops) in sliders.items()
        }
        self.reset_button = ipywidgets.Button(description="Reset", tooltip="back to where all controls started")
        self.shown = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%", max_width=f"{WIDTH + 20}px"))
        self.reset()
        for control in self.controls.values():
            control.observe(self._show, "value")
        self.reset_button.on_click(self.reset)
        super().__init__([*self.controls.values(), self.reset_button, self.shown])

    def __repr__(self) -> str:
        """What a page shows that has no sliders: a notebook not trusted yet, GitHub, an export."""
        return "Run this cell to get the sliders."

    def reset(self, _: Any = None) -> None:
        """Set every control to where it starts."""
        for name, control in self.controls.items():
            control.value = self.start[name]
        self._show()

    def _show(self, _: Any = None) -> None:
        self.shown.value = self.view(**{name: control.value for name, control in self.controls.items()})


def accelerator_options() -> list[tuple[str, str]]:
    """(label, name) of every accelerator of the catalogue, for a menu."""
    return [(row["label"], row["name"]) for row in load_table("accelerators")]
