"""Names from outside (a model's, a file's, a column's, a currency) in all that the library prints, raises and shows.

None moves a cursor, turns the direction of the text or hides in it; and none becomes mathematics, which JupyterLab
looks for in the source of Markdown and then again in the finished page.
"""

import importlib
import inspect
import io
import json
import pkgutil
import re
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from unicodedata import category

import mistune
import nbformat
import numpy as np
import pytest
from helpers import h100, llama, server
from test_own_files import upload

import lessonlib
from lessonlib.base.errors import LessonError, printable, shown
from lessonlib.base.files import GivenFile, Upload, place_of, quoted
from lessonlib.base.text import html_table, markdown_table, one_line, plain_html, plain_markdown
from lessonlib.face.figures.cache import step_by_depth
from lessonlib.face.figures.style import figure_html, png_bytes
from lessonlib.face.figures.traffic_panels import traffic_panels
from lessonlib.face.report.report import hourly_price, traffic_report
from lessonlib.face.widgets.choosers import choose_model, choose_traffic, in_words, serve
from lessonlib.face.widgets.explorer import still_html
from lessonlib.face.widgets.report_form import OWN, report_form
from lessonlib.facts.catalogue import load_accelerator, load_model, source_of
from lessonlib.facts.config_file import read_config
from lessonlib.facts.own_config import own_model
from lessonlib.facts.own_traffic import OwnTraffic, read_traffic
from lessonlib.facts.workloads import load_workload
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.measured.timing.cpu import recorded_cpu
from lessonlib.measured.timing.predictions import timing_report
from lessonlib.measured.timing.record import read_record, record_from
from lessonlib.measured.timing.server import time_server
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.policy.serving.simulator import simulate
from lessonlib.policy.serving.traffic import all_at_once
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Speculation

ROOT = Path(__file__).parent.parent
CONTROLS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0xAD]))
UNSEEN = "".join(map(chr, [*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF, 0xE0041]))
ANSI = "\x1b[31m\x1b[2J\x1b]0;title\x07"
MATHEMATICS = r"$x_a$ \(y\) \[z\] \begin{align}v\end{align} \ref{w} \$5 $6"
NASTY = f"m{CONTROLS}{UNSEEN}{ANSI}\ud800 {MATHEMATICS} <b>|`*_"


def invisible(text):
    return sorted({hex(ord(c)) for c in text if not (c.isprintable() or c == "\n" or category(c) == "Zs")})


class Runs(HTMLParser):
    """The runs of text of a page that MathJax looks at: each ends at an element, but for line breaks."""

    def __init__(self, html):
        super().__init__()
        self.runs = [""]
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.runs += [""] * (tag not in ("br", "wbr"))

    def handle_endtag(self, tag):
        self.runs.append("")

    def handle_data(self, data):
        self.runs[-1] += data


def mathematics(html):
    """The runs in which something may be mathematics: two dollars, or a backslash before anything."""
    return [run for run in Runs(html).runs if re.search(r"\$.*\$|\\.", run, re.DOTALL)]


def mathematics_of_markdown(text):
    """The same of Markdown: what JupyterLab sets apart in the source, and what it finds in the page made of it."""
    page = mistune.create_markdown(escape=False, plugins=["table"])(text)
    return re.findall(r"\$[^$]*\$|\\\\[()\[\]]|\\(?:begin|ref)", text) + mathematics(page)


@cache
def nasty():
    """Things with such a name: a deployment that drafts, a traffic, a report, a run, a record."""
    accelerator = replace(h100(), name=NASTY, label=NASTY, memory_from=NASTY, peaks={"bf16": 1e15, NASTY: 1e15})
    names = {"defaults_used": (NASTY,), "keys_not_read": (NASTY,), "left_out": (NASTY,), "stored": NASTY}
    model = replace(llama(), name=NASTY, **names)
    speculation = Speculation(2, 0.5, replace(load_model("llama-3.2-1b"), name=NASTY))
    deployment = Deployment(model, accelerator, Precision("fp8", cache="bf16"))
    lengths = np.array([100, 300]), np.array([20, 200]), np.array([0, 0])
    traffic = OwnTraffic(NASTY, *lengths, {"prompt": NASTY}, (NASTY,), {NASTY: 2}, (NASTY,))
    report = traffic_report(deployment, traffic, 2.0, "$|\x1b\u202e")
    run = simulate(deployment, all_at_once(3, 10, 10))
    told = json.loads(
        json.dumps(recorded_cpu(), default=lambda one: vars(one) if hasattr(one, "__dict__") else list(one))
    )
    del told["conditions"]["model"]
    told |= {"requests": [one | {"name": NASTY} for one in told["requests"]], "what": "cpu"}
    told["conditions"] |= {"model": {}, "left_out": [NASTY]}
    return deployment, replace(deployment, speculation=speculation), traffic, report, run, record_from(told)


def printed(call):
    with redirect_stdout(io.StringIO()) as said:
        call()
    return said.getvalue()


def own_config():
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config |= {"intermediate_size": 8, "vocab_size": 9, "num_key_value_heads": 2, "tie_word_embeddings": False}
    config = {"model_type": NASTY, "text_config": config | {NASTY: 4}, "vision_config": {"depth": 1}}
    config |= {"_name_or_path": NASTY, NASTY + "_config": {"depth": 2}}
    return json.dumps(config).encode()


def chosen():
    chooser = choose_model()
    said = printed(lambda: chooser.take(Upload(own_config(), NASTY)))
    return said + printed(chooser.take) + str(chooser) + Runs(chooser.said.value).runs[1]


def filled_in():
    form = report_form()
    form.traffic_file.value = nasty()[2]
    upload(form.model_file, own_config(), "config.json")
    assert form.fields["model"].value == OWN
    form.report_button.click()
    made, form.fields["name"].value, form.fields["batch"].value = form.said.value, NASTY, NASTY
    form.report_button.click()
    labels = "".join(label for label, _ in form.fields["model"].options)
    return repr(form) + labels + Runs(made).runs[1] + Runs(form.said.value).runs[1]


TEXTS = {
    "Model": lambda: f"{nasty()[0].model!r}\n{nasty()[0].model}",
    "Accelerator": lambda: repr(nasty()[0].accelerator),
    "Deployment": lambda: repr(nasty()[1]),
    "RequestCost": lambda: repr(request_cost(nasty()[1], Request(10, 10))),
    "RequestCost of arrays": lambda: repr(request_cost(nasty()[1], Request([10, 20], 10))),
    "assumptions": lambda: "\n".join(request_cost(nasty()[1], Request(10, 10)).assumptions()),
    "Roof": lambda: repr(request_cost(nasty()[1], Request(10, 10)).roofs()),
    "OwnTraffic": lambda: f"{nasty()[2]!r}\n{nasty()[2]}",
    "TrafficReport": lambda: repr(nasty()[3]),
    "ServingRun": lambda: repr(nasty()[4]),
    "Traffic": lambda: repr(nasty()[4].traffic),
    "Record": lambda: f"{nasty()[5]!r}\n{timing_report(nasty()[5])}",
    "Precision": lambda: str(nasty()[0].precision),
    "GivenFile": lambda: str(GivenFile(NASTY, "File", "x", 1, "less")) + quoted(NASTY) + shown(NASTY),
    "Chooser": chosen,
    "ReportForm": filled_in,
    "serve": lambda: printed(lambda: serve(nasty()[0], replace(nasty()[2], prompt=np.array([10**6, 9])))),
    "one_line": lambda: one_line(NASTY, 10**6) + printable(NASTY),
}
HTML = {
    "RequestCost": lambda: request_cost(nasty()[1], Request(10, 10))._repr_html_(),
    "RequestCost of arrays": lambda: request_cost(nasty()[1], Request([10, 20], 10))._repr_html_(),
    "ServingRun": lambda: nasty()[4]._repr_html_(),
    "TrafficReport": lambda: nasty()[3]._repr_html_(),
    "page": lambda: re.sub("<style>.*?</style>", "", nasty()[3].html(), flags=re.DOTALL),
    "html_table": lambda: html_table([(NASTY, NASTY)], "lr", header=(NASTY, NASTY), caption=NASTY),
    "figure": lambda: figure_html(b"x", NASTY, NASTY),
    "plain_html": lambda: plain_html(NASTY),
    "explorer": lambda: still_html("growth", {"model": NASTY}),
}
MARKDOWN = {
    "TrafficReport": lambda: nasty()[3]._repr_markdown_(),
    "TrafficReport with its figure": lambda: nasty()[3].markdown("a.png"),
    "equations": lambda: request_cost(nasty()[0], Request(10, 10)).equations(),
    "table": lambda: markdown_table((NASTY, "$"), [(NASTY, "$0.15 to $0.22"), ("$x", "y$")]),
    "plain table": lambda: markdown_table((NASTY, "$"), [(NASTY, "$0.15 to $0.22"), ("$x", "y$")], plain=True),
    "plain_markdown": lambda: plain_markdown(NASTY),
}


@pytest.mark.parametrize("made", [*TEXTS.items(), *HTML.items(), *MARKDOWN.items()], ids=lambda item: item[0])
def test_nothing_unseen_reaches_what_is_printed_or_shown(made):
    text = made[1]()
    assert text and invisible(text) == []
    text.encode()  # a half of a pair of surrogates cannot be printed


@pytest.mark.parametrize("made", HTML.items(), ids=lambda item: item[0])
def test_html_is_no_mathematics(made):
    assert mathematics(made[1]()) == []


@pytest.mark.parametrize("made", MARKDOWN.items(), ids=lambda item: item[0])
def test_markdown_is_no_mathematics(made):
    assert mathematics_of_markdown(made[1]()) == []


def test_the_oracle_finds_what_jupyterlab_shows_as_mathematics():
    """Each was looked at in JupyterLab 4.6: the first are shown as mathematics, the last are not."""
    for text in (
        "$0.15 and $0.22",
        r"\$0.15 and \$0.22",
        "&#36;x&#36;",
        r"a \\(x\\)",
        r"\\begin\{a\}x\\end\{a\}",
        r"\ref{x}",
    ):
        assert mathematics_of_markdown(text), text
    for text in (
        "<span>&#36;</span>1 and <span>&#36;</span>2",
        r"<span>&#92;</span>(x<span>&#92;</span>)",
        "costs &#36;1",
    ):
        assert not mathematics_of_markdown(text), text
    assert mathematics("<p>$x$</p>") and not mathematics("<td>$x</td><td>$y</td>")


def test_every_class_that_says_how_it_is_shown_is_tried():
    """One that is added gets a row above; the two of exercises and the explorers hold no name from outside."""
    found = set()
    for module in pkgutil.walk_packages(lessonlib.__path__, "lessonlib."):
        if module.name.endswith("__main__") or ".gpu_" in module.name:  # a command; and what needs PyTorch
            continue
        for name, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            shows = (vars(kind).get(way) for way in ("__repr__", "__str__", "_repr_html_", "_repr_markdown_"))
            if any("lessonlib" in getattr(getattr(way, "__code__", None), "co_filename", "") for way in shows):
                found.add(name)
    assert found - {"LessonError", "Choice", "Number", "Explorer", "Still", "FromConfig"} <= TEXTS.keys()


def unnamed(call):
    return lambda: call(NASTY)


ERRORS = {
    "load_model": unnamed(load_model),
    "load_accelerator": unnamed(load_accelerator),
    "load_workload": unnamed(load_workload),
    "source_of": unnamed(source_of),
    "typical_efficiency": unnamed(typical_efficiency),
    "read_config": unnamed(read_config),
    "config": lambda: own_model(Upload(json.dumps({"model_type": NASTY}).encode(), NASTY)),
    "like": lambda: Model.from_config({"model_type": "llama"}, like=NASTY),
    "traffic": lambda: read_traffic(Upload(f"{printable(NASTY)}\u202e\x1b,x\n1,2\n".encode(), NASTY)),
    "column": lambda: read_traffic("a,b\n1,2\n", prompt_column=NASTY),
    "record": unnamed(read_record),
    "place": unnamed(place_of),
    "currency": lambda: hourly_price(2.0, NASTY),
    "dtype": unnamed(Precision),
    "peak": lambda: nasty()[0].accelerator.peak(NASTY + "x"),
    "memory": lambda: request_cost(replace(nasty()[0], devices=1), Request(10, 10), 10**6),
    "link": lambda: replace(nasty()[0], accelerator=replace(nasty()[0].accelerator, link=None), devices=2),
    "accelerator": lambda: Accelerator(name=NASTY, memory=-1, bandwidth=1, peaks={"bf16": 1}),
    "model": lambda: Model(name=NASTY, width=0, vocabulary=1, blocks=()),
    "own traffic": lambda: OwnTraffic(NASTY, np.array([1]), np.array([0]), np.array([0])),
    "server": lambda: time_server(NASTY, NASTY, requests={"a": (1, 1)}),
    "a cell": lambda: read_traffic(f"prompt_tokens,output_tokens\n1,{printable(NASTY)}\u202e\n"),
    "choose_traffic": unnamed(choose_traffic),
}


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS)
def test_nothing_unseen_reaches_an_error(call):
    with pytest.raises(LessonError) as caught:
        call()
    for text in (str(caught.value), repr(caught.value), printed(lambda: say(call))):
        assert text and invisible(text) == []


def say(call):
    with in_words():
        call()


def test_a_dollar_in_a_figure_is_a_dollar():
    """Matplotlib has mathematics of its own, and ends in an error where it cannot read it."""
    tokens = np.array([1.0, 2.0])
    for name in ("$", r"$\frac$", "$x$ and $"):
        png_bytes(step_by_depth({name: (tokens, 0.02 * tokens, 0.01 * tokens)}, name))
        costs = {name: nasty()[3].alone, f"{name}2": nasty()[3].full}
        png_bytes(traffic_panels(server(replace(llama(), name=name)), tokens, tokens, costs))


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_no_stored_output_is_mathematics(path):
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            assert mathematics_of_markdown(data.get("text/markdown", "")) == []
            assert mathematics(re.sub(r'src="data:[^"]*"', "", data.get("text/html", ""))) == []
