"""A form for the report, for who has no code: menus, two files, a few words, and a button that makes the page.

It asks what `traffic_report` takes and says what that refuses, as a sentence in the report's place; the last report
stays. Needs ipywidgets, imported only with this module.
"""

import os
import re
from collections.abc import Callable
from typing import Any

import ipywidgets

from lessonlib.base.errors import InvalidInputError, LessonError, printable, shown
from lessonlib.face.report.report import TrafficReport, hourly_price, traffic_report
from lessonlib.face.widgets.choosers import choose_model, choose_traffic, sentence
from lessonlib.facts.catalogue import load_accelerator, load_model, model_names
from lessonlib.facts.tables import DATA, load_table
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.model.precision import Precision
from lessonlib.time.deployment import Deployment, Efficiency

OWN = ""  # the menu's value for a model of one's own
PRECISIONS = {"bf16": "bf16", "fp8: weights and activations": "fp8", "4-bit weights (int4)": "int4", "nvfp4": "nvfp4"}
FLOOR = "the floor"
START: dict[str, Any] = {"model": "qwen3-8b", "accelerator": "h100-sxm", "devices": 1, "weights": "bf16"}
START |= {"cache": "bf16", "efficiency": FLOOR, "batch": "", "price": "2.50 USD"}
WIDE: dict[str, Any] = {
    "style": {"description_width": "150px"},
    "layout": {"width": "min(100%, 560px)"},
}


class ReportForm(ipywidgets.VBox):
    """The form. `fields`: its menus and lines by name; `model_file`, `traffic_file`: its choosers of files.

    `deployment()` and `traffic` are what it says; `report`: the last that was made, or None. Sentences stand in `said`,
    the page in `shown`.
    """

    def __init__(self, traffic: str | os.PathLike[str]) -> None:
        self.report: TrafficReport | None = None
        self.model_file, self.traffic_file = choose_model(START["model"]), choose_traffic(traffic)
        menus: dict[str, tuple[str, Any]] = {
            "model": ("Model", [(name, name) for name in model_names()]),
            "accelerator": ("Accelerator", [(row["label"], row["name"]) for row in load_table("accelerators")]),
            "devices": ("Devices", [1, 2, 4, 8, 16, 32, 64]),
            "weights": ("Weights", list(PRECISIONS.items())),
            "cache": ("KV cache", ["bf16", "fp8"]),
            "efficiency": ("Efficiency", [FLOOR, "typical, high", "typical, middle", "typical, low"]),
        }
        lines = {
            "batch": ("Requests at a time", "empty: as many as memory holds"),
            "price": ("Price", "of a device and hour, such as 2.50 USD; empty: none"),
            "name": ("Name of the page", "empty: made of model, accelerator, traffic"),
        }
        self.fields: dict[str, Any] = {
            name: ipywidgets.Dropdown(options=options, description=words, value=START[name], **WIDE)
            for name, (words, options) in menus.items()
        } | {
            name: ipywidgets.Text(description=words, placeholder=hint, value=START.get(name, ""), **WIDE)
            for name, (words, hint) in lines.items()
        }
        self.report_button = ipywidgets.Button(description="Report", button_style="primary", tooltip="make the page")
        self.save_button = ipywidgets.Button(description="Save", tooltip="write the page as HTML and Markdown")
        self.said, self.shown = ipywidgets.HTML(), ipywidgets.HTML(layout=ipywidgets.Layout(width="auto"))
        self.fields["model"].observe(self._chosen, "value")
        self.model_file.upload.observe(self._uploaded, "value")  # after the chooser, which has read the file by then
        self.report_button.on_click(lambda _: self._doing(self._make))
        self.save_button.on_click(lambda _: self._doing(self._keep))
        first, last = ("model", "accelerator", "devices", "weights", "cache", "efficiency"), ("batch", "price")
        rows = [self.fields["model"], self.model_file, *(self.fields[name] for name in first[1:]), self.traffic_file]
        rows += [*(self.fields[name] for name in last), self.report_button, self.said, self.shown]
        super().__init__([*rows, self.fields["name"], self.save_button])
        self._say("status", "No report yet.")

    @property
    def traffic(self) -> Any:
        """The requests: of the file that was chosen, or the sample's."""
        return self.traffic_file.value

    def deployment(self) -> Deployment:
        """The server that the menus describe. Raises LessonError where there is none such."""
        said = {name: field.value for name, field in self.fields.items()}
        model = self.model_file.value if said["model"] == OWN else load_model(said["model"])
        efficiency = Efficiency()
        if said["efficiency"] != FLOOR:
            efficiency = getattr(typical_efficiency(said["accelerator"]), said["efficiency"].partition(", ")[2])
        precision = Precision(said["weights"], cache=said["cache"])
        return Deployment(
            model, load_accelerator(said["accelerator"]), precision, said["devices"], efficiency=efficiency
        )

    def _chosen(self, _: Any) -> None:
        if self.fields["model"].value != OWN:
            self.model_file.put(load_model(self.fields["model"].value))  # what .take() gives in code, too

    def _uploaded(self, _: Any) -> None:
        if self.model_file.upload.value and not self.model_file.problem:
            menu = self.fields["model"]
            label = printable(f"your file: {self.model_file.value.name}")
            menu.options = [(label, OWN), *((name, name) for name in model_names())]
            menu.value = OWN

    def _make(self) -> str:
        hour, currency = priced(self.fields["price"].value)
        batch = whole(self.fields["batch"].value)
        self.report = traffic_report(self.deployment(), self.traffic, hour, currency, batch)
        self.shown.value = f'<div style="line-height:1.4">{self.report._repr_html_()}</div>'
        return f"Made: {self.report.title}. Save it below."

    def _keep(self) -> str:
        if self.report is None:
            raise InvalidInputError("There is no report to save yet: press Report first.")
        return f"Written: {', '.join(path.name for path in self.report.save(self.fields['name'].value or None))}."

    def _doing(self, act: Callable[[], str]) -> None:
        """Do it and say what was done, or why not."""
        self._say("status", "Working ...")
        try:
            self._say("status", act())
        except LessonError as error:
            self._say("alert", f"Not done. {error}{' The report below stays.' if self.report else ''}")

    def _say(self, role: str, words: str) -> None:
        self.said.value = sentence(role, words)

    def __repr__(self) -> str:
        """What a page shows that has no form: a notebook not trusted yet, GitHub, an export."""
        return "Run this cell to get the form."


def whole(words: str) -> int | None:
    """Requests at a time from a line of the form; None where it is empty. Raises InvalidInputError."""
    text = words.strip().replace(",", "")
    if text and not re.fullmatch(r"\d{1,9}", text):
        raise InvalidInputError(
            f"Requests at a time: got {shown(words)}; expected a whole number such as 64, or nothing, for as many as "
            "memory holds."
        )
    return int(text) if text else None


def priced(words: str) -> tuple[float | None, str]:
    """(price, currency) of a device and hour from a line of the form; no price where it is empty. LessonError else."""
    if not words.strip():
        return None, ""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s+(\S.*)", words.strip())
    if not found:
        raise InvalidInputError(
            f"Price: got {shown(words)}; expected a number with a decimal point and a currency, such as 2.50 USD, or "
            "nothing."
        )
    return hourly_price(float(found[1]), found[2])


def report_form(traffic: str | os.PathLike[str] = DATA / "sample_traffic.csv") -> ReportForm:
    """The form; `traffic`: the path of a log of requests, until a file is chosen."""
    return ReportForm(traffic)
