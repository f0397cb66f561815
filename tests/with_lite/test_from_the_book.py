"""From a chapter of the book to its live notebook, both sites as the workflow of book.yml publishes them."""

import re
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from in_browser import SiteNotebook, failed, printed
from lab import NOTEBOOKS, ROOT

import book
import lite
import sites

BELOW = "lesson"  # where a host has the pages of a repository: below its name
WORKFLOW = ROOT / ".github" / "workflows" / "book.yml"


class FromItsChapter(SiteNotebook):
    """The notebook, opened by the link of its chapter."""

    def open(self, address: str) -> None:
        self.begun = time.perf_counter()
        self.page.goto(f"{address}/book/notebooks/{Path(self.name).stem}.html")
        self.page.get_by_role("link", name="Open live").click()
        self.wait_until_open()


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The address of what the workflow publishes: its own commands put the two sites in their places."""
    if not (book.SITE / "index.html").is_file():
        pytest.skip("build/book is not there: make book makes it, and these tests then go from it to the notebooks")
    folder = tmp_path_factory.mktemp("published")
    (folder / "build").mkdir()
    for site in (book.SITE, lite.SITE):
        (folder / "build" / site.name).symlink_to(site, target_is_directory=True)
    steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["publish"]["steps"]
    (gather,) = (step["run"] for step in steps if "mkdir build/site" in step.get("run", ""))
    (upload,) = (step["with"]["path"] for step in steps if "upload-pages" in step.get("uses", ""))
    subprocess.run(["bash", "-euo", "pipefail", "-c", gather], cwd=folder, check=True)
    (folder / "server").mkdir()
    (folder / upload).rename(folder / "server" / BELOW)
    with sites.served(folder / "server") as address:
        yield f"{address}/{BELOW}"


def test_the_address_of_all_leads_to_the_book(browser, published):
    page = browser.new_page()
    page.goto(published)
    page.wait_for_url(f"{published}/book/index.html")
    page.get_by_role("link", name="Start here").first.click()
    page.wait_for_url(re.compile("/book/notebooks/00_start_here.html$"))
    page.close()


def test_open_live_opens_that_notebook_and_its_first_cell_runs(name, browser, published):
    notebook = FromItsChapter(browser, published, name)
    try:
        assert notebook.page.evaluate("window.jupyterapp.shell.currentWidget.context.path") == f"{lite.FOLDER}/{name}"
        cell = notebook.run(0)
        assert cell["execution_count"] == 1 and not failed(cell)
        notebook.change(1, 'import os\nprint(sum(name.endswith(".ipynb") for name in os.listdir()))')
        assert printed(notebook.run(1)) == f"{len(NOTEBOOKS)}\n"  # the copies lie beside it, below any path
        assert notebook.away(published.removesuffix(f"/{BELOW}")) == []
    finally:
        notebook.close()
