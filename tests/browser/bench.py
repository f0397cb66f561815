"""From key press to new picture, for every explorer, in JupyterLab and in a page. Run by: make bench-browser

The time runs, by the browser's clock, from the key's event to the frame after the change of the picture: up to 16 ms of
it are the wait for that frame, so the share of the module itself stands beside it. The last line is one JSON object.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from lab import NOTEBOOKS, Explorer, Lab, NoChromiumError, Notebook, chromium, explorers_of, opened_browser  # noqa: E402

import stills  # noqa: E402
from lessonlib.face.widgets.explorer_data import explorer_data  # noqa: E402

KEYS = 60
PAUSE = 40  # milliseconds from a picture to the next key, as a hand presses
AIM = 16.0  # milliseconds, the median
# A promise that is kept when the frame after the picture's change has begun: what changed is then on the page.
WATCH = """pictures => {
  window.pressed = null;
  document.addEventListener("keydown", event => { window.pressed = event.timeStamp; }, {capture: true, once: true});
  window.drawn = new Promise((resolve, reject) => {
    setTimeout(reject, 10000, new Error("no new picture within 10 s of a key"));
    const watcher = new MutationObserver(() => {
      const made = performance.now() - window.pressed;
      watcher.disconnect();
      requestAnimationFrame(() => setTimeout(() => resolve([performance.now() - window.pressed, made])));
    });
    watcher.observe(pictures, {childList: true, subtree: true, characterData: true});
  });
}"""


def milliseconds(explorer: Explorer) -> list[list[float]]:
    """[to the frame, to the new picture in the page] of each of KEYS presses, to and fro on each slider in turn."""
    sliders, times = explorer.sliders.all(), []
    for slider in sliders:
        for i in range(-(-KEYS // len(sliders))):
            slider.focus()
            explorer.pictures.evaluate(WATCH)
            explorer.page.wait_for_timeout(PAUSE)  # the pace that is measured, not a wait for something
            at_end = float(slider.input_value()) > 0.999
            explorer.page.keyboard.press("ArrowLeft" if at_end or i % 2 else "ArrowRight")
            times.append(explorer.page.evaluate("() => window.drawn"))
        explorer.reset()
    return times


def summary(times: list[list[float]]) -> dict[str, float]:
    shown, made = zip(*times, strict=True)
    found = {"median": statistics.median(shown), "95th percentile": statistics.quantiles(shown, n=20)[-1]}
    return {name: round(value, 1) for name, value in (found | {"module's median": statistics.median(made)}).items()}


def say(where: str, view: str, found: dict[str, float]) -> None:
    print(
        f"{where}, {view}: {found} ms; {'within' if found['median'] <= AIM else 'over'} the aim of {AIM:g}", flush=True
    )


def in_a_page(browser: Any) -> dict[str, dict[str, float]]:
    """Each view in a page of its own: the module, its style, its data, and no kernel, as in the book."""
    found = {}
    page = stills.open_page(browser)
    page.set_viewport_size({"width": 1280, "height": 900})
    start = """async ([address, data, name]) => {
      window.module ??= await import(address);
      document.body.replaceChildren(document.createElement("div"));
      window.module.mount(document.body.firstChild, data, name);
    }"""
    for view in stills.VIEWS:
        page.evaluate(start, [stills.address(), explorer_data(), view])
        found[view] = summary(milliseconds(Explorer(page, page.locator(".lesson-explore"))))
        say("page", view, found[view])
    return found


def in_jupyterlab(browser: Any, folder: Path) -> dict[str, dict[str, float]]:
    found = {}
    lab = Lab(folder)
    try:
        for name in filter(explorers_of, NOTEBOOKS):
            notebook = Notebook(lab, browser, name)
            notebook.run_all()
            for view, explorer in zip(explorers_of(name), notebook.explorers(), strict=True):
                found[view] = summary(milliseconds(explorer))
                say(name, view, found[view])
            notebook.close()
    finally:
        lab.close()
    return found


def main() -> int:
    try:
        chromium()
    except NoChromiumError as error:
        print(error, file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder, opened_browser() as browser:
        found = {"page": in_a_page(browser), "jupyterlab": in_jupyterlab(browser, Path(folder))}
    print(json.dumps({"key_to_picture_ms": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
