"""From key press to new picture, for every explorer, in JupyterLab in a browser. Run by: make bench-browser

The time runs, by the browser's clock, from the key's event to the frame after the change of the picture. Twice:
`apart`, each key PAUSE after the last picture, as a hand presses; `in a row`, each as soon as the picture is there.
In a row is slower: the widget waits for the kernel's report on the message before, and packets wait for each other.
The aim is for `apart`. The last line is one JSON object: milliseconds by notebook.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from lab import NOTEBOOKS, Explorer, Lab, NoChromiumError, Notebook, chromium, has_explorer, opened_browser

KEYS = 60
PAUSE = 150  # milliseconds
AIM = {"median": 50.0, "95th percentile": 120.0}
# A promise that is kept when the frame after the picture's change has begun: what changed is then on the page.
WATCH = """shown => {
  window.pressed = null;
  document.addEventListener("keydown", event => { window.pressed = event.timeStamp; }, {capture: true, once: true});
  window.drawn = new Promise((resolve, reject) => {
    setTimeout(reject, 30000, new Error("no new picture within 30 s of a key"));
    const watcher = new MutationObserver(() => {
      watcher.disconnect();
      requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - window.pressed)));
    });
    watcher.observe(shown, {childList: true, subtree: true, characterData: true});
  });
}"""


def milliseconds(explorer: Explorer, apart: bool) -> list[float]:
    """The time of each of KEYS presses, to and fro on each slider in turn."""
    sliders, times = explorer.sliders.all(), []
    for i in range(KEYS):
        slider = sliders[i * len(sliders) // KEYS]
        now, least, most = (float(slider.get_attribute(f"aria-value{name}") or 0) for name in ("now", "min", "max"))
        slider.focus()
        explorer.shown.evaluate(WATCH)
        if apart:
            explorer.page.wait_for_timeout(PAUSE)  # the pace that is measured, not a wait for something
        explorer.page.keyboard.press("ArrowLeft" if now == most or (now > least and i % 2) else "ArrowRight")
        times.append(explorer.page.evaluate("() => window.drawn"))
    return times


def summary(times: list[float]) -> dict[str, float]:
    quantiles = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    return {name: round(value, 1) for name, value in zip(AIM, quantiles, strict=True)}


def main() -> int:
    try:
        chromium()
    except NoChromiumError as error:
        print(error, file=sys.stderr)
        return 3
    found = {}
    with tempfile.TemporaryDirectory() as folder, opened_browser() as browser:
        lab = Lab(Path(folder))
        try:
            for name in filter(has_explorer, NOTEBOOKS):
                notebook = Notebook(lab, browser, name)
                notebook.run_all()
                for explorer in notebook.explorers():
                    found[name] = {
                        "apart": summary(milliseconds(explorer, apart=True)),
                        "in a row": summary(milliseconds(explorer, apart=False)),
                    }
                    good = all(found[name]["apart"][key] <= most for key, most in AIM.items())
                    print(f"{name}: {found[name]} ms, {KEYS} keys each; {'within' if good else 'over'} the aim, {AIM}")
                    sys.stdout.flush()
                notebook.close()
        finally:
            lab.close()
    print(json.dumps({"key_to_picture_ms": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
