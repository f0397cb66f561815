"""A notebook of the site, opened and run in a browser; and what its cells print, with pictures masked."""

import re
import time
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

import lite

SECONDS = 300  # for each step, on a machine that does much else
KERNEL = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel"
PICTURE = re.compile(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=\s]+|<svg\b.*?</svg>", re.DOTALL)
NOTEBOOK = "window.jupyterapp.shell.currentWidget.content"


class SiteNotebook:
    """One notebook of the site in a browser profile, its kernel ready. `seconds`: how long each step took."""

    def __init__(self, browser: Browser, address: str, name: str, context: BrowserContext | None = None) -> None:
        self.asked: list[str] = []
        self.errors: list[str] = []
        self.name, self.seconds = name, {}
        self.context = context or browser.new_context(viewport={"width": 1280, "height": 900})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(1000 * SECONDS)
        expect.set_options(timeout=1000 * SECONDS)
        self.context.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        self.open(address)

    def open(self, address: str) -> None:
        """Open it by the address that the book links to, and wait until its kernel has nothing to do."""
        self.begun = time.perf_counter()
        self.page.goto(f"{address}/lab/index.html?path={lite.FOLDER}/{self.name}")
        self.wait_until_open()

    def wait_until_open(self) -> None:
        """Until the notebook is on the page and its kernel has nothing to do."""
        self.page.wait_for_function(f"{NOTEBOOK.replace('.', '?.')}?.model && document.querySelector('.jp-Notebook')")
        self.seconds["open after"] = time.perf_counter() - self.begun
        self.wait_until_idle()
        self.seconds["kernel ready after"] = time.perf_counter() - self.begun

    def wait_until_idle(self) -> None:
        """Until its kernel is there and has nothing to do."""
        self.page.wait_for_function(f"{KERNEL}?.status === 'idle'")

    def command(self, name: str) -> None:
        """Run a command of JupyterLab's menus, and wait until it is done."""
        self.page.evaluate("(name) => window.jupyterapp.commands.execute(name).then(() => null)", name)

    def run(self, index: int) -> dict[str, Any]:
        """Run the code cell of this number, counted from 0, and return it."""
        self.page.evaluate(
            f"""(number) => {{
                const cells = {NOTEBOOK}.widgets;
                const code = cells.filter((cell) => cell.model.type === "code");
                {NOTEBOOK}.activeCellIndex = cells.indexOf(code[number]);
                {NOTEBOOK}.deselectAll();
            }}""",
            index,
        )
        self.command("notebook:run-cell")
        self.wait_until_idle()
        return [cell for cell in self.content["cells"] if cell["cell_type"] == "code"][index]

    def run_all(self) -> None:
        """Run each cell once, in order: the first by itself, to see how long that takes."""
        self.run(0)
        self.seconds["first cell after"] = time.perf_counter() - self.begun
        begun = time.perf_counter()
        self.page.evaluate(f"{NOTEBOOK}.activeCellIndex = {NOTEBOOK}.activeCellIndex + 1")
        self.command("notebook:run-all-below")
        self.wait_until_idle()
        self.seconds["all others in"] = time.perf_counter() - begun

    @property
    def content(self) -> dict[str, Any]:
        return self.page.evaluate(f"{NOTEBOOK}.model.toJSON()")

    def change(self, index: int, source: str) -> None:
        """Type another source into the code cell of this number."""
        self.page.evaluate(
            f"""([number, source]) => {{
                const code = {NOTEBOOK}.widgets.filter((cell) => cell.model.type === "code");
                code[number].model.sharedModel.setSource(source);
            }}""",
            [index, source],
        )

    def cell(self, index: int) -> Locator:
        """The code cell of this number on the page."""
        return self.page.locator(".jp-CodeCell").nth(index)

    def close(self) -> None:
        self.context.close()

    def away(self, address: str) -> list[str]:
        """What was asked of any other host."""
        return [url for url in self.asked if not url.startswith((address, "data:", "blob:"))]

    def loaded(self, address: str) -> int:
        """Bytes of the site's files that were asked for, each once."""
        paths = {url.partition("?")[0].removeprefix(f"{address}/") for url in self.asked if url.startswith(address)}
        return sum((lite.SITE / path).stat().st_size for path in paths if (lite.SITE / path).is_file())


def joined(text: Any) -> str:
    return "".join(text) if isinstance(text, list) else text or ""


def printed(cell: dict[str, Any]) -> str:
    """What a cell prints, as text: streams first, as notebooks are stored, then errors, results and pages."""
    outputs = cell.get("outputs", ())
    found = [joined(output.get("text")) for output in outputs]
    for output in outputs:
        data = output.get("data", {})
        if output["output_type"] == "error":
            found.append(f"{output['ename']}: {output['evalue']}\n")
        kinds = ("text/markdown",) if "text/markdown" in data else ("text/html", "text/plain")
        found += [joined(data[kind]) + "\n" for kind in kinds if kind in data]
    return PICTURE.sub("PICTURE", "".join(found))


def failed(cell: dict[str, Any]) -> str:
    """The error with which a cell ended, or ""."""
    errors = [output for output in cell.get("outputs", ()) if output["output_type"] == "error"]
    return "".join(f"{error['ename']}: {error['evalue']}" for error in errors)
