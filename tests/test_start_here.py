"""Notebook 00: its check of the set-up says what is wrong, and its figure says only what it shows."""

import os
import subprocess
import sys

import nbformat
import pytest

import notebooks
from lessonlib.base.text import markdown_table
from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of
from lessonlib.face.figures.requests import request_bars
from lessonlib.request.request import Request


def run_check(prelude):
    """The lines that the cell prints, run as a script after `prelude`."""
    notebook = nbformat.read(notebooks.FOLDER / "00_start_here.ipynb", as_version=4)
    (cell,) = (cell.source for cell in notebook.cells if "environment" in cell.metadata.get("tags", []))
    environment = {**os.environ, "MPLBACKEND": "agg"}
    run = subprocess.run([sys.executable, "-c", f"{prelude}\n{cell}"], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_all_is_there():
    lines = run_check("")
    assert [line.split()[0] for line in lines[:-1]] == ["Python", "numpy", "matplotlib", "ipywidgets", "lessonlib"]
    assert lines[-1] == "All is there."


@pytest.mark.parametrize(
    ("prelude", "says"),
    [
        ("import sys; sys.modules['numpy'] = None", "numpy cannot be used"),
        ("import sys; sys.modules['lessonlib'] = None", "lessonlib cannot be used"),
        ("import sys; sys.version_info = (3, 10, 2)", "this Python is older than 3.11"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(prelude, says):
    last = run_check(prelude)[-1]
    assert last.startswith(f"Not ready: {says}") and last.endswith("start it with: make lab")


def words_in(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_prefill_is_called_thinner_than_its_line_only_where_it_is():
    costs = {"chat": cost_of(CHAT), "reasoning": cost_of(REASONING)}
    words = words_in(request_bars(costs, "Both"))
    assert [text for text in words if "thinner than this line" in text] == [
        "prefill 15.0 ms, thinner than this line",
        "prefill 4.49 ms, thinner than this line",
    ]
    assert "60.6 s, of which decode 99.993 %" in words
    long_prompt = {"long prompt": cost_of(Request(8192, 20))}
    assert not any("thinner" in text for text in words_in(request_bars(long_prompt, "One")))


def test_the_line_really_is_thicker_than_the_prefills():
    costs = {"chat": cost_of(CHAT), "reasoning": cost_of(REASONING)}
    figure = request_bars(costs, "Both")
    figure.draw_without_rendering()
    axes = figure.axes[0]
    pixels = axes.get_window_extent().width / (axes.get_xlim()[1] - axes.get_xlim()[0])
    line = axes.collections[0].get_linewidth()[0] * figure.dpi / 72
    assert cost_of(CHAT).ttft * pixels < line
    bars = [patch.get_width() for patch in axes.patches]
    assert bars == [part for cost in costs.values() for part in (cost.ttft, cost.decode.seconds)]


def test_a_table_of_cells():
    assert markdown_table(("who", "s"), [("chat", "1")]) == "| who | s |\n| --- | ---: |\n| chat | 1 |"
