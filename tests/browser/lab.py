"""JupyterLab and Chromium for the tests and the bench: a server on a copy of the repository, pages in a browser.

Nothing sleeps: every step waits for a state that a reader could see, or that JupyterLab holds.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

ROOT = Path(__file__).parent.parent.parent
SECONDS = 60
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
FLAGS = (
    "--no-sandbox",  # Chromium refuses to start as root otherwise
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
# JupyterLab as it comes, but that it asks no server for news.
SETTINGS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
# The cells outside the window are drawn too, so that they can be looked at.
ALL_DRAWN = {"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}}
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "tests", "build", "dist", "*.egg-info")


def explorers_of(name: str) -> list[str]:
    """The views of the explorers that the notebook's cells make, in order."""
    cells = nbformat.read(ROOT / "notebooks" / name, as_version=4).cells
    sources = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    return re.findall(r"^explore_(\w+)\(", sources, re.MULTILINE)


class NoChromiumError(Exception):
    """No browser on this machine; the message says what to do."""


def chromium() -> str:
    """The path of the browser: CHROMIUM of the environment, else the first of its usual names on PATH."""
    named = os.environ.get("CHROMIUM")
    names = [named] if named else ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise NoChromiumError(
        f"No Chromium: {' or '.join(names)} is not there. Install it (Debian: apt install chromium), or set CHROMIUM "
        "to the path of a Chromium or Chrome. Nothing else needs it: make test runs without."
    )


@contextmanager
def opened_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Lab:
    """A running JupyterLab of this Python, on a copy of the repository in `folder`, with `settings` of its own."""

    def __init__(self, folder: Path, settings: dict[str, dict] | None = None) -> None:
        self.root, self.token = folder / "copy", secrets.token_hex(16)
        shutil.copytree(ROOT, self.root, ignore=NOT_COPIED)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        names = "JUPYTER_CONFIG_DIR JUPYTER_DATA_DIR IPYTHONDIR JUPYTERLAB_SETTINGS_DIR JUPYTERLAB_WORKSPACES_DIR"
        own = {name: str(folder / name.lower()) for name in names.split()}
        for name, value in (SETTINGS | (settings or {})).items():
            plugin, _, key = name.partition(":")
            file = Path(own["JUPYTERLAB_SETTINGS_DIR"]) / plugin / f"{key}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(value), encoding="utf-8")
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": self.root,
            "IdentityProvider.token": self.token,
            "LabApp.expose_app_in_browser": True,
        }
        command = [sys.executable, "-m", "jupyterlab", "--no-browser"]
        command += ["--allow-root"] if hasattr(os, "getuid") and os.getuid() == 0 else []
        command += [f"--{name}={value}" for name, value in options.items()]
        self.log = folder / "jupyterlab.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **own}, cwd=self.root)
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        request = urllib.request.Request(f"{self.url}/api/status", headers={"Authorization": f"token {self.token}"})
        for _ in range(4 * SECONDS):
            try:
                with urllib.request.urlopen(request, timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError):
                try:
                    self.process.wait(0.25)  # ends early, and the wait with it, when the server does
                except subprocess.TimeoutExpired:
                    continue
                break
        self.close()
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text(errors='replace')[-3000:]}")

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Notebook:
    """One notebook, open in a page of its own. `said`: what the browser's console had to say, errors only."""

    folder = "notebooks"

    def __init__(self, lab: Lab, browser: Browser, name: str) -> None:
        self.lab, self.name, self.said = lab, name, []
        self.page: Page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.page.set_default_timeout(SECONDS * 1000)
        expect.set_options(timeout=SECONDS * 1000)
        self.page.on("console", lambda line: self.said.append(line.text) if line.type == "error" else None)
        self.page.on("pageerror", lambda error: self.said.append(f"uncaught: {error}\n{error.stack}"))
        workspace = Path(name).stem
        self.page.goto(f"{lab.url}/lab/workspaces/{workspace}/tree/{self.folder}/{name}?token={lab.token}&reset")
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Until the status bar says that the kernel is there and has nothing to do."""
        expect(self.page.locator("#jp-bottom-panel, #jp-main-statusbar").get_by_text("| Idle").first).to_be_visible()

    def command(self, name: str, **arguments: object) -> None:
        """Run a command of JupyterLab's menus, and wait until it is done."""
        self.page.evaluate(
            "([name, given]) => window.jupyterapp.commands.execute(name, given).then(() => null)", [name, arguments]
        )

    def run_all(self) -> None:
        """Run every cell. The kernel is a fresh one: the server and this page are."""
        self.command("notebook:run-all-cells")
        self.wait_until_idle()

    def theme(self, name: str) -> None:
        self.command("apputils:change-theme", theme=THEMES[name])
        expect(self.page.locator(f'body[data-jp-theme-name="{THEMES[name]}"]')).to_be_attached()
        # The splash of the change fades for a while; the next change within that time makes JupyterLab remove it twice.
        expect(self.page.locator("#jupyterlab-splash")).to_have_count(0)

    def show_itself(self) -> None:
        """Bring this notebook's tab to the front again, after a link opened another."""
        self.command("docmanager:open", path=f"{self.folder}/{self.name}")
        expect(self.page.locator(".jp-mod-current .lm-TabBar-tabLabel").first).to_have_text(self.name)

    def explorers(self) -> list["Explorer"]:
        """The explorers in the page, in order."""
        boxes = self.page.locator(".lesson-explore")
        expect(boxes).to_have_count(len(explorers_of(self.name)))
        return [Explorer(self.page, boxes.nth(i)) for i in range(boxes.count())]

    def close(self) -> None:
        self.page.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")
        self.page.close()


class Explorer:
    """One explorer of a page: its sliders, its picture, and what it says of it."""

    def __init__(self, page: Page, box: Locator) -> None:
        self.page, self.box = page, box
        self.sliders, self.pictures, self.sentence = (
            box.get_by_role("slider"),
            box.locator(".pictures"),
            box.locator(".said"),
        )

    def reset(self) -> None:
        self.box.get_by_role("button", name="Reset").press("Enter")

    def shown(self) -> str:
        """The picture as SVG, and its sentence, or why there is none."""
        return self.pictures.inner_html() + self.sentence.inner_text()
