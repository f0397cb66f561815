"""A question with a field or buttons to answer it: its form is ask.js, which the book of the lesson uses too.

The page judges a guess by what `exported` says of the exercise, as `check` does, and tells the kernel what was tried.
"""

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from lessonlib.face.exercises.progress import NOTHING, Progress

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class Question(anywidget.AnyWidget):
    """The form of one exercise. `kept`: what the progress file holds of it; `event`: what the learner did last."""

    _esm = (Path(__file__).parent / "ask.js").read_text(encoding="utf-8")
    _css = (Path(__file__).parent / "ask.css").read_text(encoding="utf-8")
    exercise = traitlets.Dict().tag(sync=True)
    kept = traitlets.Dict().tag(sync=True)
    event = traitlets.Dict().tag(sync=True)

    def __init__(self, exercise: dict[str, Any], progress: Progress) -> None:
        key = exercise["key"]
        super().__init__(exercise=exercise, kept=progress.entries.get(key, NOTHING))
        self._progress = progress
        self.observe(self._keep, "event")

    def _keep(self, change: Any) -> None:
        key, event = self.exercise["key"], change["new"]
        if event.get("what") == "guess":
            self._progress.tried(key, bool(event.get("right")), str(event.get("words", "")))
        elif event.get("what") == "hint" and isinstance(event.get("number"), int):
            self._progress.hinted(key, event["number"])
        elif event.get("what") == "solution":
            self._progress.looked(key)


def question_widget(exercise: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The part of a display that shows the form where widgets live."""
    model = Question(exercise, progress).model_id
    return {WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": model}}
