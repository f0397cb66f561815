"""Every notebook runs in the browser to its end, asks no other host, and prints the numbers that are stored."""

import json
from pathlib import Path

import pytest
from in_browser import SiteNotebook, failed, printed
from playwright.sync_api import expect

import lite

DIFFERENT = json.loads((Path(__file__).parent / "differences.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def run(browser, address, name, shots):
    """The notebook, run once; its times are printed."""
    notebook = SiteNotebook(browser, address, name)
    print(
        f"\n{name}: page {notebook.opened:.1f} s, kernel {notebook.ready:.1f} s, first cell {notebook.first:.1f} s, "
        f"then all cells {notebook.all:.1f} s"
    )
    notebook.page.screenshot(path=shots / f"{name}.png")
    yield notebook
    notebook.close()


def code_cells(notebook):
    return {cell["id"]: cell for cell in notebook["cells"] if cell["cell_type"] == "code"}


def source(cell):
    return "".join(cell["source"])


def reason(cell):
    """Why what this cell prints differs in a browser; "" where it must not."""
    return "".join(row["reason"] for row in DIFFERENT if source(cell).startswith(row["begins"]))


def test_every_cell_runs_and_nothing_is_asked_of_another_host(run, address):
    cells = code_cells(run.notebook)
    wrong = {
        source(cell)[:60]: failed(cell)
        for cell in cells.values()
        if bool(failed(cell)) != ("raises-exception" in cell["metadata"].get("tags", ()))
    }
    assert not wrong
    assert all(cell["execution_count"] for cell in cells.values() if source(cell).strip())
    assert not run.away(address)


def test_every_cell_prints_what_is_stored(run, name):
    stored = code_cells(json.loads((lite.ROOT / "notebooks" / name).read_text(encoding="utf-8")))
    cells = code_cells(run.notebook)
    assert cells.keys() == stored.keys()
    same, different = 0, {}
    for key, cell in cells.items():
        if printed(cell) == printed(stored[key]):
            same += bool(printed(cell))
        elif reason(cell):
            print(f"{name}, {source(cell)[:40]!r} differs: {reason(cell)}")
        else:
            different[source(cell)] = (printed(stored[key]), printed(cell))
    assert not different
    print(f"{name}: {same} cells print what is stored")
    assert same > 0


def test_a_question_answers_and_work_is_kept_in_the_browser(browser, address, shots):
    notebook = SiteNotebook(browser, address, "00_start_here.ipynb")
    page = notebook.page
    form = page.locator("fieldset.ask[data-key]").first
    form.locator("input[type=text], input[type=radio]").first.wait_for()
    form.get_by_role("button", name="Solution").click()
    expect(form.locator(".ask-said")).not_to_be_empty()
    page.screenshot(path=shots / "question.png")
    page.evaluate(
        """async () => {
            const app = window.jupyterapp;
            const notebook = app.shell.currentWidget.content;
            notebook.model.cells.get(0).sharedModel.setSource("# Kept");
            await app.commands.execute("docmanager:save");
        }"""
    )
    page.reload()
    page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.content?.model?.cells.length")
    kept = "window.jupyterapp.shell.currentWidget.content.model.cells.get(0).sharedModel.source"
    page.wait_for_function(f"{kept} === '# Kept'")
    assert any(command == "docmanager:download" for command in page.evaluate("window.jupyterapp.commands.listCommands()"))
    notebook.close()


def test_what_a_browser_cannot_time_is_said(browser, address):
    notebook = SiteNotebook(browser, address, "00_start_here.ipynb")
    said = notebook.value_of(
        "from lessonlib.base.errors import LessonError\n"
        "from lessonlib.measured import time_cpu\n"
        "try:\n    time_cpu()\nexcept LessonError as error:\n    print(error)"
    )
    assert "browser" in said and "make lab" in said
    notebook.close()
