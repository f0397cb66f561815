"""The explorers as Python makes them: what they carry into a page, what a page without a kernel shows, what is refused.

What happens in the page is held in tests/browser/test_explorers.py.
"""

import json
import re
from dataclasses import replace

import pytest
from helpers import refuses

from lessonlib.base.errors import LessonError
from lessonlib.base.text import one_line
from lessonlib.face import palette, widgets
from lessonlib.face.exercises.asking import STILL
from lessonlib.face.widgets import explorer as made
from lessonlib.face.widgets.asking import WIDGET_VIEW
from lessonlib.face.widgets.explorer import HERE, Explorer, Still
from lessonlib.face.widgets.explorer_views import VIEWS
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.time.deployment import Efficiency

SCRIPT, STYLE = ((HERE / name).read_text(encoding="utf-8") for name in ("explorer.js", "explorer.css"))
EXPLORERS = {name.removeprefix("explore_"): each for name, each in vars(made).items() if name.startswith("explore_")}


@pytest.fixture(autouse=True)
def live(monkeypatch):
    monkeypatch.delenv(STILL, raising=False)  # a test that stores notebooks sets it


@pytest.fixture(params=VIEWS)
def view(request):
    return request.param


def test_every_view_of_the_module_has_its_function():
    assert list(VIEWS) == re.findall(r"^VIEWS\.(\w+) = ", SCRIPT, re.MULTILINE)
    assert set(VIEWS) == set(EXPLORERS) == {path.stem for path in (HERE / "stills").glob("*.html")}
    assert all(getattr(widgets, f"explore_{view}") is EXPLORERS[view] for view in VIEWS)


def test_every_view_has_its_still(view):
    explorer = EXPLORERS[view]()
    assert isinstance(explorer, Explorer) and explorer.view == view and explorer.start == {}
    shown = explorer._repr_mimebundle_()
    assert set(shown) == {"text/plain", "text/html", WIDGET_VIEW}
    html = shown["text/html"]
    assert f'data-view="{view}" data-start="{{}}"' in html
    assert html.count("<img ") == html.count('src="data:image/png;base64,') == 1
    alt = re.search(r'alt="([^"]{40,})"', html)
    assert alt and html.count("<th scope") == html.count("<td>") >= 7
    assert "of the start setting" in html and "Run this cell to move it" in html
    assert "run this cell" in shown["text/plain"]


def test_where_outputs_are_stored_no_widget_is(view, monkeypatch):
    live = EXPLORERS[view]()._repr_mimebundle_()
    monkeypatch.setenv(STILL, "1")
    still = EXPLORERS[view]()
    assert isinstance(still, Still)
    assert still._repr_mimebundle_() == {kind: live[kind] for kind in ("text/html", "text/plain")}


def test_a_start_of_ones_own_has_no_picture_of_another():
    html = made.explore_growth(output=500, model="qwen3-8b")._repr_mimebundle_()["text/html"]
    assert "<img" not in html and "<table" not in html and "Run this cell" in html
    start = json.loads(re.search(r'data-start="(.*?)"', html)[1].replace("&quot;", '"'))
    assert start == {"model": "qwen3-8b", "output": 500}


def test_settings_reach_the_page():
    given = {"accelerator": "h200-sxm", "devices": 2, "layout": "tensor", "precision": "fp8", "efficiency": "typical"}
    given |= {"prompt": 7, "output": 8, "cached": 6, "batch": 9, "target": 20.5, "times": 1.5, "dollars": 3.25}
    assert made.explore_batch(**given).start == given


def test_own_models_and_accelerators_come_first():
    model = replace(load_model("llama-3.1-8b"), name="my model")
    device = replace(load_accelerator("h100-sxm"), name="my device", memory=2e11)
    explorer = made.explore_growth(model=model, accelerator=device)
    assert explorer.start == {"model": "my model", "accelerator": "my device"}
    assert explorer.data["models"][0]["name"] == "my model"
    assert explorer.data["accelerators"][0]["memory"] == 2e11
    assert all(f'<option value="{name}">' in explorer.data["panel"] for name in ("my model", "my device"))


def test_an_efficiency_of_ones_own_is_one_more_choice():
    explorer = made.explore_growth(efficiency=Efficiency(mfu=0.5, mbu=0.8, overhead=1e-3))
    assert explorer.start == {"efficiency": "given"}
    assert explorer.data["efficiencies"]["given"]["mbu"] == 0.8
    assert '<option value="given">' in explorer.data["panel"]
    assert not any("given" in made.explore_growth().data[part] for part in ("efficiencies", "panel"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"model": "no-such"}, ["no-such"]),
        ({"accelerator": 5}, ["5"]),
        ({"promt": 5}, ["promt", "prompt"]),
        ({"prompt": 0}, ["prompt", "0"]),
        ({"batch": 1.5}, ["batch", "1.5"]),
        ({"layout": "pipeline"}, ["layout", "tensor"]),
        ({"precision": "fp7"}, ["precision", "bf16"]),
        ({"efficiency": "best"}, ["efficiency", "typical"]),
        ({"target": -1}, ["target", "milliseconds"]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_setting_is_refused(view, given, says):
    refuses(lambda: EXPLORERS[view](**given), *says, kind=LessonError)


def test_what_a_page_shows_has_no_host_of_another():
    assert not re.search(r"https?://(?!www\.w3\.org)", SCRIPT + STYLE)
    assert "import " not in SCRIPT.replace("important", "")
    assert one_line(repr(made.explore_growth()), 100)


def test_a_colour_means_what_it_means_in_the_figures():
    light = dict(re.findall(r"--le-([\w-]+): (#\w+);", STYLE.partition('[data-theme="dark"]')[0]))
    named = {"prefill": "PREFILL", "weights": "WEIGHTS", "cache": "CACHE", "own": "OTHER", "other": "OVERHEAD"}
    named |= {"ink-cache": "CACHE_INK", "quiet": "QUIET"}
    assert {name: light[name].upper() for name in named} == {name: vars(palette)[of] for name, of in named.items()}
