"""Runs explorer.js: in Node where there is one, else in Chromium, else nowhere, and then says so."""

import json
import math
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

import lessonlib

MODULE = Path(lessonlib.__file__).parent / "face" / "widgets" / "explorer.js"
DRIVER = Path(__file__).with_name("explorer_answers.js")
IN_NODE = """
import * as module from "./module.mjs";
import { answers, decoded, encoded } from "./driver.mjs";
let text = "";
for await (const chunk of process.stdin.setEncoding("utf8")) text += chunk;
process.stdout.write(encoded(answers(module, decoded(text))));
"""
IN_CHROMIUM = """async ([module, driver, text]) => {
  const load = source => import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
  const { answers, decoded, encoded } = await load(driver);
  return encoded(answers(await load(module), decoded(text)));
}"""
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def encoded(value: Any) -> str:
    """JSON in which NaN and the infinities are words."""
    return json.dumps(_worded(value))


def _worded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _worded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_worded(each) for each in value]
    return f"#{value}" if isinstance(value, float) and not math.isfinite(value) else value


def decoded(text: str) -> Any:
    """What `encoded` wrote, floats and all."""

    def number(value: Any) -> Any:
        return float(value[1:]) if value in ("#nan", "#inf", "#-inf") else value

    def each(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: each(inside) for key, inside in value.items()}
        return [each(inside) for inside in value] if isinstance(value, list) else number(value)

    return each(json.loads(text))


def answers(kind: str, asked: list[Any], data: dict[str, Any] | None = None, module: str | None = None) -> list[Any]:
    """What explorer.js answers to all that is `asked`; skips, with the reason, where nothing runs it.

    `module`: the source to run in its place.
    """
    text = encoded({"kind": kind, "data": data or {}, "asked": asked})
    source = MODULE.read_text(encoding="utf-8") if module is None else module
    node = shutil.which("node")
    return decoded(_in_chromium(text, source) if node is None else _in_node(node, text, source))


def _in_node(node: str, text: str, source: str) -> str:
    with tempfile.TemporaryDirectory() as folder:  # as .mjs, which is a module whatever lies around it
        sources = {"module": source, "driver": DRIVER.read_text(encoding="utf-8"), "run": IN_NODE}
        for name, content in sources.items():
            Path(folder, f"{name}.mjs").write_text(content, encoding="utf-8")
        command = [node, str(Path(folder, "run.mjs"))]
        run = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8", check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


def _in_chromium(text: str, source: str) -> str:
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        pytest.skip("explorer.js needs Node, or Chromium with Playwright, to be run; neither is here.")
    named = os.environ.get("CHROMIUM")
    path = next(filter(None, map(shutil.which, (named,) if named else CHROMIUMS)), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        except Error as error:
            reason = error.message.splitlines()[0][:200]
            pytest.skip(f"explorer.js needs Node or Chromium to be run; Chromium does not start: {reason}")
        try:
            page = browser.new_page()
            return page.evaluate(IN_CHROMIUM, [source, DRIVER.read_text(encoding="utf-8"), text])
        finally:
            browser.close()
