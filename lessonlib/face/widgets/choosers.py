"""A learner's own files and numbers: by upload or by path, and a sentence in place of a traceback.

What cannot be taken is said, and what was taken last stays. Nothing that a file holds is shown as HTML. Needs
ipywidgets, imported only with this module.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ipywidgets

from lessonlib.base.checks import checked
from lessonlib.base.errors import InvalidInputError, LessonError, printable
from lessonlib.base.files import Upload
from lessonlib.base.text import plain_html
from lessonlib.facts.catalogue import load_model
from lessonlib.facts.own_config import own_model
from lessonlib.facts.own_traffic import TRAFFIC, OwnTraffic, read_traffic
from lessonlib.time.deployment import DEPLOYMENT, Deployment

# What a device may have, from a small board to a rack: a number outside is one with the wrong unit.
PLAUSIBLE = {"memory": (1e8, 1e15, "bytes", "96e9"), "bandwidth": (1e9, 1e16, "byte/s", "4e12")}
PATIENCE = 1.0  # seconds until a bar is shown
PLAUSIBLE_PEAK = (1e9, 1e19, "FLOP/s", "750e12")


@contextmanager
def in_words(otherwise: str = "What you had before stays.") -> Iterator[None]:
    """In a cell: what lessonlib refuses is printed as a sentence, without a traceback; names keep what they had.

    Only a LessonError is taken so: a slip of Python is shown by Python.
    """
    try:
        yield
    except LessonError as error:
        print(f"Not taken. {error} {otherwise}".rstrip())


def sentence(role: str, words: str) -> str:
    """What a control says, as HTML: a "status", or an "alert", which a screen reader says at once."""
    weight = "bold" if role == "alert" else "normal"
    style = f"white-space:normal;line-height:1.4;overflow-wrap:anywhere;font-weight:{weight}"
    return f'<div role="{role}" style="{style}">{plain_html(words)}</div>'


class Chooser(ipywidgets.VBox):
    """An upload button, and beneath it what was read, or why it was not. `value`: the last that could be read.

    `read`: makes a value of a path or an Upload, or raises LessonError; one that may take `long` has an argument
    `progress`, shown beneath the button after a second. `start`: the value until then.
    """

    def __init__(self, words: str, accept: str, read: Callable[..., Any], start: Any, long: bool = False) -> None:
        self.read, self.value, self.problem, self.long = read, start, "", long
        self.upload = ipywidgets.FileUpload(accept=accept, description=words, layout=ipywidgets.Layout(width="240px"))
        self.said = ipywidgets.HTML()
        self.upload.observe(self._uploaded, "value")
        super().__init__([self.upload, self.said])
        self._show("status", f"Until you choose a file: {start!r}.")

    def put(self, value: Any) -> None:
        """Have this value instead, chosen otherwise than by a file, and say so."""
        self.value, self.problem = value, ""
        self._show("status", f"Until you choose a file: {value!r}.")

    def take(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """The value: of a file at `path`, or of what was uploaded, or the one before. Prints what it is.

        `options` go to the reader, such as prompt_column="..." for traffic.
        """
        source = path if path is not None else self._upload() if options else None
        problem = self.problem if source is None else self._read(source, options)
        if path is None or not problem:  # a path that is wrong is forgotten with its cell
            self.problem = problem
        print(f"Not taken. {problem}\nThis stays: {self.value!r}" if problem else self.value)
        return self.value

    def _upload(self) -> Upload | None:
        if not self.upload.value:
            return None
        file = self.upload.value[-1]
        return Upload(file["content"], str(file["name"]))

    def _uploaded(self, _: Any) -> None:
        source = self._upload()
        if source is not None:
            self.problem = self._read(source, {})
            if self.problem:
                self._show("alert", f"Not taken. {self.problem} This stays: {self.value!r}.")

    def _read(self, source: Any, options: dict[str, Any]) -> str:
        """Read it into `value`, or return why not."""
        started, said = time.monotonic(), self.said.value

        def progress(share: float) -> None:
            if time.monotonic() - started > PATIENCE:
                self._show("status", f"Reading: {'#' * round(20 * share):.<20} {share:.0%}")

        try:
            self.value = self.read(source, **({"progress": progress} if self.long else {}), **options)
        except LessonError as error:
            self.said.value = said
            return str(error)
        first, *more = str(self.value).splitlines()
        self._show("status", " ".join([f"Read: {first}.", *more, "Now run the cells below."]))
        return ""

    def _show(self, role: str, words: str) -> None:
        self.said.value = sentence(role, words)

    def __repr__(self) -> str:
        """What a page shows that has no button: a notebook not trusted yet, GitHub, an export."""
        return f"Run this cell to get the button. Until then: {self.value!r}."


def choose_model(start: str = "llama-3.1-8b") -> Chooser:
    """A chooser of a config.json. `start`: a model of the catalogue, until a file is read."""
    return Chooser("config.json", ".json", own_model, load_model(start))


def choose_traffic(start: str | os.PathLike[str]) -> Chooser:
    """A chooser of a log of requests. `start`: the path of one, until a file is read."""
    endings = ".csv,.tsv,.txt,.json,.jsonl,.ndjson,.gz"
    return Chooser("traffic (CSV, JSON)", endings, read_traffic, read_traffic(start), long=True)


@checked(deployment=DEPLOYMENT, traffic=TRAFFIC)
def serve(deployment: Deployment, traffic: OwnTraffic) -> tuple[Deployment, OwnTraffic]:
    """The two as given, once checked: the device's numbers have their units, the weights fit, some requests fit.

    Rows that the server cannot take are left out, and it prints how many. Raises LessonError otherwise.
    """
    device = deployment.accelerator
    found = [(name, getattr(device, name), *bounds) for name, bounds in PLAUSIBLE.items()]
    found += [(f"peak of {dtype}", peak, *PLAUSIBLE_PEAK) for dtype, peak in device.peaks.items()]
    for name, value, low, high, unit, example in found:
        if not low <= value <= high:
            raise InvalidInputError(
                f"Accelerator {device.name!r}: {name} is {value:g} {unit}, which no device has; give it in {unit}, "
                f"such as {example}."
            )
    taken = traffic.taken_by(deployment)
    rows = len(taken) + sum(taken.left_out.values())
    for reason, count in taken.left_out.items():
        print(printable(f"Left out: {count:,} of {rows:,} requests, {reason}."))
    return deployment, taken
