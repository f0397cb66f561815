"""The first view of each chapter: how many bytes it loads, and how soon something, and its first picture, is there.

Each view is in a browser that has seen nothing yet, from a server of this machine. Bytes have a limit; times depend on
what else the machine does, so they are printed beside its load: the median of five, and the slowest.
"""

import os
import statistics
from pathlib import Path

import pytest

import book

CHAPTERS = [f"notebooks/{path.stem}" for path in book.notebook_paths()]
MOST_BYTES = 1.5e6
VIEWS = 5
# When the first picture of an explorer is drawn: before the next frame after it is in the page.
WATCH = """(() => {
  const look = () => {
    if (document.querySelector(".lesson-explorer .pictures svg")) window.pictureAt = performance.now();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""
FOUND = """async () => {
  const loaded = [...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")];
  const painted = performance.getEntriesByName("first-contentful-paint")[0] ?? await new Promise((resolve) =>
    new PerformanceObserver((list) => resolve(list.getEntries()[0])).observe({ type: "paint", buffered: true }));
  return {
    bytes: Object.fromEntries(loaded.map((entry) => [new URL(entry.name).pathname, entry.encodedBodySize])),
    paint: painted.startTime,
    picture: document.querySelector(".lesson-explorer") ? window.pictureAt : null,
  };
}"""


def first_view(browser, address):
    """What the browser says of one view: bytes by file, and milliseconds to paint, picture and load."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(address)
    page.wait_for_function(
        "document.readyState === 'complete' && performance.getEntriesByType('navigation')[0].loadEventEnd"
    )
    page.wait_for_function("!document.querySelector('.lesson-explorer') || window.pictureAt")
    found = page.evaluate(FOUND)
    context.close()
    return found


def seconds(views, what):
    times = [view[what] / 1000 for view in views]
    return f"{statistics.median(times):.2f} / {max(times):.2f} s"


@pytest.fixture(scope="module")
def views(browser, served):
    """Five views of each chapter."""
    first_view(browser, f"{served}/index.html")  # the browser itself starts, once
    return {name: [first_view(browser, f"{served}/{name}.html") for _ in range(VIEWS)] for name in CHAPTERS}


def test_it_is_small(views):
    loaded = {name: sum(of[0]["bytes"].values()) for name, of in views.items()}
    assert {name: found for name, found in loaded.items() if not 100_000 < found < MOST_BYTES} == {}


def test_its_times_are_printed(views, capsys):
    lines = [f"First view of a chapter, median / slowest of {VIEWS}; the machine's load is {os.getloadavg()[0]:.1f}"]
    for name, of in views.items():
        size = sum(of[0]["bytes"].values()) / 1e6
        picture = seconds(of, "picture") if of[0]["picture"] else "none"
        lines.append(f"{name}: {size:.2f} MB, first text {seconds(of, 'paint')}, first explorer {picture}")
    heavy = sorted(views[CHAPTERS[0]][0]["bytes"].items(), key=lambda item: -item[1])[:8]
    lines.append("Most of it: " + ", ".join(f"{Path(path).name} {size / 1e3:.0f} kB" for path, size in heavy))
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert all(view["paint"] > 0 for of in views.values() for view in of)
