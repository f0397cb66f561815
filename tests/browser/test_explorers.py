"""The explorers in a page of their own: controls by keyboard, what is said and copied, both themes, three widths."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import stills
from lessonlib.face.widgets import explorer
from lessonlib.face.widgets.explorer_data import explorer_data

ROOM = Path(explorer.__file__).parent
PAGE = "http://localhost/explorer"  # nothing is served: the browser asks, and is answered here
HTML = """<!doctype html><html lang="en"><head><title>Explorers</title><link rel="stylesheet" href="/explorer.css">
<style>body{margin:8px;font-family:sans-serif}html[data-theme=dark] body{background:#14181e;color:#e8e8e8}</style>
</head><body><main><h1>Explorers</h1><div id="host"></div></main><script type="module">
import * as lesson from "/explorer.js";
const data = await (await fetch("/data.json")).json();
window.lesson = lesson;
window.lessonData = data;
window.open_ = (name, start) => { window.panel = lesson.mount(document.getElementById("host"), data, name, start); };
</script></body></html>"""
FILES = {
    "/explorer": ("text/html", lambda: HTML),
    "/explorer.js": ("text/javascript", lambda: (ROOM / "explorer.js").read_text(encoding="utf-8")),
    "/explorer.css": ("text/css", lambda: (ROOM / "explorer.css").read_text(encoding="utf-8")),
    "/data.json": ("application/json", lambda: json.dumps(explorer_data())),
}
VIEWS = stills.VIEWS
TOO_LARGE = {"model": "deepseek-v3"}  # on one H100


class Panel:
    """A page with one explorer at a time."""

    def __init__(self, page):
        self.page, self.said = page, []
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("console", lambda line: self.said.append(line.text) if line.type == "error" else None)

    def open(self, name, start=None, address=""):
        self.page.goto("about:blank")
        self.page.goto(PAGE + address)
        self.page.wait_for_function("() => window.open_")
        self.page.evaluate("([name, start]) => window.open_(name, start)", [name, start or {}])
        return self

    def slider(self, label):
        return self.page.get_by_role("slider", name=label, exact=True)

    def field(self, label):
        return self.page.get_by_role("spinbutton", name=re.compile(f"^{re.escape(label)}, "))

    def click(self, name):
        self.page.get_by_role("button", name=name, exact=True).click()

    def settings(self):
        return self.page.evaluate("() => window.panel.settings()")

    def picture(self):
        return self.page.locator(".pictures svg")

    def sentence(self):
        return self.page.locator("p.said").inner_text()

    def shown(self):
        return self.page.locator(".pictures").inner_html() + self.sentence()

    def numbers(self):
        rows = self.page.locator(".numbers tbody tr").all()
        return {row.locator("th").inner_text(): row.locator("td").first.inner_text() for row in rows}


@pytest.fixture(scope="module")
def panel(browser):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])

    def answer(route):
        path = "/" + route.request.url.split("/", 3)[3].split("?")[0]
        kind, content = FILES.get(path, ("text/plain", str))
        route.fulfill(content_type=kind, body=content())

    context.route("http://localhost/**", answer)
    page = context.new_page()
    page.set_default_timeout(60_000)  # a busy machine is slow, and no failure
    expect.set_options(timeout=60_000)
    panel = Panel(page)
    yield panel
    context.close()
    assert panel.said == []


def copied(panel):
    return panel.page.evaluate("() => navigator.clipboard.readText()")


def test_the_measurement_finds_all_that_it_needs():
    """make bench-browser runs its file by itself, without the paths that pytest adds."""
    made = subprocess.run(
        [sys.executable, "-c", "import bench"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


def test_the_stills_are_what_the_module_makes(browser):
    page = stills.open_page(browser)
    assert stills.problems(page) == []
    page.close()


@pytest.mark.parametrize("name", VIEWS)
def test_every_control_moves_by_keyboard_to_both_ends(panel, name):
    panel.open(name)
    first, start = panel.shown(), panel.settings()
    expect(panel.picture()).to_have_count(1)
    for slider in panel.page.get_by_role("slider").all():
        said = {}
        slider.focus()
        for key in ("ArrowRight", "ArrowLeft", "PageUp", "PageDown", "End", "Home"):
            panel.page.keyboard.press(key)
            said[key] = slider.get_attribute("aria-valuetext")
            assert re.fullmatch(r"[\d,.]+ [a-z%][a-z ]+", said[key]), said
            refused = panel.page.locator("p.said[data-refused]").count()
            assert panel.picture().count() == (0 if refused else 1)
            assert not re.search(r"NaN|undefined|Infinity", panel.picture().first.inner_html() if not refused else "")
        assert said["Home"] != said["End"] and said["ArrowRight"] != said["ArrowLeft"]
        panel.click("Reset")
        assert panel.settings() == start and panel.shown() == first


@pytest.mark.parametrize("name", VIEWS)
def test_the_tab_key_meets_every_control_in_order(panel, name):
    panel.open(name)
    wanted = panel.page.locator(".lesson-explore :is(input, select, button)").all()
    wanted[0].focus()
    for control in wanted[1:]:
        panel.page.keyboard.press("Tab")
        expect(control).to_be_focused()


def test_a_number_is_typed_and_what_is_none_is_said(panel):
    panel.open("growth")
    panel.field("prompt").fill("777")
    panel.field("prompt").press("Enter")
    assert panel.settings()["prompt"] == 777
    assert panel.slider("prompt").get_attribute("aria-valuetext") == "777 tokens"
    panel.field("prompt").fill("")
    panel.field("prompt").press("Enter")
    assert panel.settings()["prompt"] == 777 and panel.field("prompt").input_value() == "777"
    expect(panel.page.locator(".told")).to_have_text("prompt stays 777: no number was typed.")
    panel.field("prompt").fill("999999999")
    panel.field("prompt").press("Enter")
    expect(panel.page.locator(".told")).to_have_text("prompt goes from 1 to 131,072.")
    assert panel.field("prompt").input_value() == "131072"


def test_arrows_go_by_round_numbers(panel):
    panel.open("growth")
    panel.slider("output").focus()
    for key, value in (("ArrowRight", 13_000), ("ArrowLeft", 12_000), ("ArrowLeft", 11_000), ("PageDown", 5_500)):
        panel.page.keyboard.press(key)
        assert panel.settings()["output"] == value


def test_presets_put_in_the_lessons_requests(panel):
    panel.open("request")
    for word, preset in explorer_data()["presets"].items():
        panel.click(word)
        assert {key: panel.settings()[key] for key in ("prompt", "output", "cached")} == {
            key: preset[key] for key in ("prompt", "output", "cached")
        }


def test_two_settings_stand_side_by_side(panel):
    panel.open("prefill")
    before = panel.numbers()
    panel.click("Keep beside")
    panel.field("output").fill("12800")
    expect(panel.picture()).to_have_count(2)
    now = panel.numbers()
    kept = [cell.inner_text() for cell in panel.page.locator(".numbers tbody td:nth-of-type(2)").all()]
    assert kept == list(before.values()) and now != before
    panel.click("Copy numbers as CSV")
    expect(panel.page.locator(".told")).to_have_text("Numbers copied.")
    lines = copied(panel).split("\r\n")
    assert lines[0] == '"","this setting","kept"' and '"output","12800","128"' in lines
    panel.click("Drop the kept setting")
    expect(panel.picture()).to_have_count(1)


def test_numbers_are_copied_as_csv(panel):
    panel.open("growth")
    panel.click("Copy numbers as CSV")
    rows = dict(re.findall(r'"(.*?)","(.*?)"', copied(panel)))
    assert rows["model"] == "llama-3.1-8b" and rows["output"] == "12800"
    assert {label: rows[label] for label in panel.numbers()} == panel.numbers()


def test_a_link_leads_to_the_setting(panel):
    panel.open("batch")
    panel.click("chat")
    panel.field("latency target").fill("35.5")
    panel.page.get_by_label("model").select_option("qwen3-8b")
    wanted, shown = panel.settings(), panel.shown()
    panel.click("Copy link")
    link = copied(panel)
    assert link.startswith(PAGE + "#explore-batch?")
    panel.open("batch", address=link.removeprefix(PAGE))
    assert panel.settings() == wanted and panel.shown() == shown
    panel.open("growth", address=link.removeprefix(PAGE))  # a link to another view changes nothing here
    assert panel.settings()["model"] == "llama-3.1-8b"
    panel.open("batch", address="#explore-batch?prompt=many&output=-5&nonsense=1&batch=1e99")
    assert panel.settings()["prompt"] == 128 and panel.settings()["output"] == 1
    for odd in ("#100%", "#explore-batch?prompt=%zz", "#%E0%A4%A", "#explore-batch?__proto__=1&constructor=2"):
        panel.open("batch", address=odd)
        assert panel.settings()["prompt"] == 128 and "tokens/s" in panel.sentence()


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize(
    "setting",
    [TOO_LARGE, {"prompt": 131_072, "output": 65_536}, {"model": "gpt2", "prompt": 2000}, {"precision": "nvfp4"}],
    ids=("weights", "long", "positions", "peak"),
)
def test_there_is_no_dead_end(panel, name, setting):
    """What is refused is said, and one press of a button leads on."""
    panel.open(name, setting)
    if panel.picture().count():
        return
    assert re.match(r"Not computed\. \w.*\.$", panel.sentence())
    ways = panel.page.get_by_role("group", name="What would fit").get_by_role("button")
    expect(ways.first).to_be_visible()
    taken = ways.first.inner_text()
    assert taken.startswith("Take "), taken
    ways.first.click()
    expect(panel.picture()).to_have_count(1)


@pytest.mark.parametrize("name", ["plane", "batch"])
def test_an_accelerator_with_absurd_numbers_is_refused_in_the_panel(panel, name):
    panel.open(name)
    panel.page.evaluate(
        """name => {
        const known = lessonData.accelerators.find(one => one.name === "h100-sxm");
        lessonData.accelerators.unshift({...known, name: "absurd", bandwidth: 1e-300});
        open_(name, {accelerator: "absurd"}); }""",
        name,
    )
    assert panel.sentence().startswith("Not computed. A number is too large or too small")
    way = panel.page.get_by_role("group", name="What would fit").get_by_role("button").first
    expect(way).to_be_visible()
    way.click()
    assert panel.settings()["accelerator"] != "absurd"
    expect(panel.picture()).to_have_count(1)


def test_too_large_a_model_is_offered_more_devices_here(panel):
    panel.open("request", TOO_LARGE)
    way = panel.page.get_by_role("button", name=re.compile(r"Take \d+ devices"))
    expect(way).to_be_visible()
    way.click()
    assert panel.settings()["devices"] > 1
    expect(panel.picture()).to_have_count(1)


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_play_goes_along_the_answer(panel, motion):
    panel.page.emulate_media(reduced_motion=motion)
    panel.page.clock.install()
    panel.open("growth", {"output": 1000, "position": 1})
    seen = set()
    panel.click("Play along the answer")
    for _ in range(60):
        panel.page.clock.run_for(200)
        seen.add(panel.settings()["position"])
    assert panel.settings()["position"] == 999
    assert len(seen) <= 9 if motion == "reduce" else len(seen) > 20
    expect(panel.page.get_by_role("button", name="Play along the answer")).to_be_visible()
    panel.page.emulate_media(reduced_motion=None)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800, 360])
@pytest.mark.parametrize("name", VIEWS)
def test_it_can_be_read(panel, name, width, theme, shots):
    panel.page.set_viewport_size({"width": width, "height": 1200})
    panel.open(name)
    panel.page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    found = Axe().run(panel.page, options={"rules": {"region": {"enabled": False}}})
    said = [f"{rule['id']}: {node['html'][:160]}" for rule in found.response["violations"] for node in rule["nodes"]]
    assert not said, "\n".join(said)
    assert panel.page.evaluate("document.documentElement.scrollWidth") <= width
    small = panel.page.evaluate(
        """() => { const svg = document.querySelector(".pictures svg");
        const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
        const sizes = [...svg.querySelectorAll("text")].map(t => parseFloat(getComputedStyle(t).fontSize));
        return scale * Math.min(...sizes); }"""
    )
    assert small > 10
    panel.page.screenshot(path=shots / f"explorer-{name}-{theme}-{width}.png", full_page=True)


@pytest.mark.parametrize("name", VIEWS)
def test_words_of_a_picture_lie_within_it_and_apart(panel, name):
    for width in (1280, 360):
        panel.page.set_viewport_size({"width": width, "height": 1200})
        panel.open(name)
        boxes = panel.page.evaluate(
            """() => { const svg = document.querySelector(".pictures svg"), all = svg.getBoundingClientRect();
            return [...svg.querySelectorAll("text")].filter(t => t.textContent.trim()).map(t => {
              const b = t.getBoundingClientRect();
              return [t.textContent, b.left - all.left, b.top - all.top, b.right - all.left, b.bottom - all.top,
                all.width, all.height]; }); }"""
        )
        for words, left, top, right, bottom, wide, high in boxes:
            assert left >= -1 and top >= -1 and right <= wide + 1 and bottom <= high + 1, (width, words)
        for i, (one, a, b, c, d, *_) in enumerate(boxes):
            for other, e, f, g, h, *_ in boxes[i + 1 :]:
                over = min(c, g) - max(a, e), min(d, h) - max(b, f)
                assert over[0] < 3 or over[1] < 5, (width, one, other)
