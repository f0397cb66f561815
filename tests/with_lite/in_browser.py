"""A notebook of the site, opened and run in a browser; and what its cells print, without what may differ."""

import re
import time
from typing import Any

from playwright.sync_api import Browser, Page

import lite

SECONDS = 300
FONTS = re.compile(r"Matplotlib is building the font cache; this may take a moment\.\n?")  # where it takes long
KERNEL = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel"
PICTURE = re.compile(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=\s]+|<svg\b.*?</svg>", re.DOTALL)


class SiteNotebook:
    """One notebook of the site in a page of its own, its cells run once. `opened`, `ready`, `first`, `all`: seconds."""

    def __init__(self, browser: Browser, address: str, name: str) -> None:
        self.asked: list[str] = []
        self.errors: list[str] = []
        self.context = browser.new_context(viewport={"width": 1280, "height": 900})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(1000 * SECONDS)
        self.context.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        begun = time.perf_counter()
        self.page.goto(f"{address}/lab/index.html?path={lite.FOLDER}/{name}")
        self.page.wait_for_function(
            "window.jupyterapp?.shell?.currentWidget?.content?.model && document.querySelector('.jp-Notebook')"
        )
        self.opened = time.perf_counter() - begun
        self.page.wait_for_function(f"{KERNEL}?.status === 'idle'")
        self.ready = time.perf_counter() - begun
        self.page.evaluate(
            """async () => {
                const notebook = window.jupyterapp.shell.currentWidget.content;
                notebook.activeCellIndex = notebook.widgets.findIndex((cell) => cell.model.type === "code");
                notebook.deselectAll();
                await window.jupyterapp.commands.execute("notebook:run-cell");
            }"""
        )
        self.first = time.perf_counter() - begun
        begun = time.perf_counter()
        self.page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        self.page.wait_for_function(f"{KERNEL}?.status === 'idle'")
        self.all = time.perf_counter() - begun
        self.notebook: dict[str, Any] = self.page.evaluate(
            "window.jupyterapp.shell.currentWidget.content.model.toJSON()"
        )

    def value_of(self, code: str) -> str:
        """What the kernel prints of this code, in a new last cell."""
        cell = self.page.evaluate(
            """async (code) => {
                const app = window.jupyterapp;
                const notebook = app.shell.currentWidget.content;
                notebook.activeCellIndex = notebook.widgets.length - 1;
                await app.commands.execute("notebook:insert-cell-below");
                notebook.activeCell.model.sharedModel.setSource(code);
                await app.commands.execute("notebook:run-cell");
                return notebook.model.toJSON().cells[notebook.activeCellIndex];
            }""",
            code,
        )
        return printed(cell)

    def close(self) -> None:
        self.context.close()

    def away(self, address: str) -> list[str]:
        """What was asked of any other host."""
        return [url for url in self.asked if not url.startswith((address, "data:", "blob:"))]


def joined(text: Any) -> str:
    return "".join(text) if isinstance(text, list) else text or ""


def printed(cell: dict[str, Any]) -> str:
    """What a cell prints, as text: streams, results and pages, pictures masked. A page's text stands for it."""
    found = []
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if output["output_type"] == "error":
            found.append(f"{output['ename']}: {output['evalue']}")
        found.append(joined(output.get("text")))
        found += [joined(data.get(kind)) for kind in ("text/markdown", "text/html", "text/plain")]
    return FONTS.sub("", PICTURE.sub("PICTURE", "\n".join(filter(None, found))))


def failed(cell: dict[str, Any]) -> str:
    """The error with which a cell ended, or ""."""
    errors = [output for output in cell.get("outputs", ()) if output["output_type"] == "error"]
    return "".join(f"{error['ename']}: {error['evalue']}" for error in errors)
