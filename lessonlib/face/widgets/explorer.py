"""The explorers: controls that move the arithmetic, and what a page shows in their place where nothing runs.

Arithmetic, pictures and controls are explorer.js, which the book of the lesson uses too. It asks no kernel: a key's
picture is there within a frame. A notebook stores the picture and the numbers of the start setting with it: the stills,
which tools/stills.py makes from the same module.
"""

import os
from collections.abc import Callable
from dataclasses import asdict
from html import escape
from json import dumps
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from lessonlib.base.checks import Rule, choice, count, rate
from lessonlib.base.errors import UnknownNameError, shown
from lessonlib.face.exercises.asking import STILL
from lessonlib.face.widgets.asking import WIDGET_VIEW
from lessonlib.face.widgets.explorer_controls import panel_html
from lessonlib.face.widgets.explorer_data import explorer_data
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.model.model import Model
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Efficiency
from lessonlib.work.layouts import LAYOUTS

HERE = Path(__file__).parent
OWN = "given"  # the name of an efficiency that a reader hands in
# A start setting that is a number, or a word, by name; the page holds it to what the view takes.
RULES: dict[str, Rule] = {
    "devices": count(),
    "layout": choice(LAYOUTS),
    "prompt": count(),
    "output": count(),
    "cached": count(0),
    "batch": count(),
    "position": count(),
    "target": rate("milliseconds"),
    "load": rate("per cent"),
    "times": rate("times"),
    "dollars": rate("dollars"),
}
LOADED: dict[str, tuple[type, Callable[[str], Any]]] = {
    "model": (Model, load_model),
    "accelerator": (Accelerator, load_accelerator),
}


def still_html(view: str, start: dict[str, Any]) -> str:
    """What stands in an explorer's place: of its start setting picture and numbers, of another only how to get it."""
    words = "This picture and these numbers are of the start setting. Run this cell to move it, in JupyterLab; or open "
    words += "this page of the book, where it moves as it is."
    inside, file = "", HERE / "stills" / f"{view}.html"
    if start:
        words = "Run this cell to get the explorer."
    else:
        inside = file.read_text(encoding="utf-8")
    given = escape(dumps(start, sort_keys=True))
    return (
        f'<div class="lesson-explorer" data-view="{view}" data-start="{given}">{inside}</div>\n'
        f'<p class="lesson-explorer-note"><em>{words}</em></p>'
    )


class Still:
    """An explorer where nothing runs: its start setting as HTML."""

    def __init__(self, view: str, start: dict[str, Any]) -> None:
        self.view, self.start = view, start

    def __repr__(self) -> str:
        return f"Explorer {self.view!r}: run this cell in JupyterLab to get its controls."

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/html": still_html(self.view, self.start), "text/plain": repr(self)}


class Explorer(anywidget.AnyWidget):
    """One view with its controls, in the page. `start`: where its settings begin, and what its reset goes back to."""

    _esm = (HERE / "explorer.js").read_text(encoding="utf-8")
    _css = (HERE / "explorer.css").read_text(encoding="utf-8")
    data = traitlets.Dict().tag(sync=True)
    view = traitlets.Unicode().tag(sync=True)
    start = traitlets.Dict().tag(sync=True)

    def __repr__(self) -> str:
        return repr(Still(self.view, self.start))

    def _repr_mimebundle_(self, **_: Any) -> Any:
        live = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return Still(self.view, self.start)._repr_mimebundle_() | {WIDGET_VIEW: live}


def _explorer(view: str, given: dict[str, Any]) -> Explorer | Still:
    """The explorer of a view; where outputs are stored, its still."""
    start: dict[str, Any] = {}
    own: dict[str, list[Any]] = {"model": [], "accelerator": []}
    owner = f"explore_{view}"
    for name, value in given.items():
        if name in LOADED:
            kind, load = LOADED[name]
            found: Any = value if isinstance(value, kind) else load(value)
            own[name] += [value] if found is value else []
            start[name] = found.name
        elif name in ("precision", "efficiency"):
            start[name] = value
        elif name in RULES:
            start[name] = RULES[name](owner, name, value)
        else:
            known = ", ".join([*LOADED, "precision", "efficiency", *RULES])
            raise UnknownNameError(f"{owner}: there is no setting {shown(name)}; expected one of {known}.")
    data = explorer_data(own["model"], own["accelerator"])
    if "precision" in start:
        choice(data["precisions"], UnknownNameError)(owner, "precision", start["precision"])
    if isinstance(start.get("efficiency"), Efficiency):
        data["efficiencies"] = data["efficiencies"] | {OWN: asdict(start["efficiency"])}
        data["panel"] = panel_html(data)  # its menu has one choice more
        start["efficiency"] = OWN
    elif "efficiency" in start:
        names = ("floor", "low", "typical", "high")
        start["efficiency"] = choice(names, UnknownNameError)(owner, "efficiency", start["efficiency"])
    if os.environ.get(STILL):
        return Still(view, start)
    return Explorer(data=data, view=view, start=start)


def _explore(view: str, says: str) -> Callable[..., Explorer | Still]:
    """The function explore_VIEW, which `says` what its explorer shows."""

    def explore(**start: Any) -> Explorer | Still:
        return _explorer(view, start)

    explore.__name__ = explore.__qualname__ = f"explore_{view}"
    explore.__doc__ = says + "\n\n" + START
    return explore


START = """As of every explorer, `start` is where its settings begin: model="qwen3-8b" (a name, or a Model of your own),
accelerator="h200-sxm" (or an Accelerator), devices=, layout=, precision="fp8", efficiency="typical" (or an
Efficiency), prompt=, output=, cached=, batch=, and what a view adds. Raises LessonError for what is none.
"""
explore_request = _explore(
    "request", "Where the FLOPs and the time of a request go: alone, in a batch, on a full server."
)
explore_plane = _explore(
    "plane", "Every request on the plane of prompt and output: rho is a line of the batch, omega an edge."
)
explore_growth = _explore(
    "growth",
    "A decode step along the answer: weights, the neighbours' caches and its own. `position`: the output so far.",
)
explore_kinds = _explore(
    "kinds", "What each kind of layer of a model keeps of a sequence, and what a step reads of it."
)
explore_batch = _explore(
    "batch",
    "Tokens a second and the time from one to the next, by batch. `target`: a latency target, in ms a token.",
)
explore_timeline = _explore(
    "timeline", "A server in motion, from idle to overloaded. `load`: per cent of what it can take that arrives."
)
explore_prefill = _explore("prefill", "What a faster prefill saves. `times`: how many times as fast.")
explore_levers = _explore("levers", "The usual levers, ranked: at a batch, and each on its own full server.")
explore_price = _explore(
    "price", "What an output token costs in prompt tokens, by batch. `dollars`: the price of a GPU-hour."
)
