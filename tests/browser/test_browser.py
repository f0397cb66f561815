"""Every notebook as a reader has it: in JupyterLab, in a browser, with a keyboard, in both themes and two widths."""

import itertools
import json
import re
from dataclasses import replace
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from lab import NOTEBOOKS, THEMES, Notebook
from playwright.sync_api import expect

from lessonlib import Deployment, Precision, load_accelerator, load_model
from lessonlib.face.exercises.asking import find
from lessonlib.face.report.report import traffic_report
from lessonlib.facts.catalogue import model_config
from lessonlib.facts.own_traffic import OwnTraffic, read_traffic
from lessonlib.facts.tables import DATA

WIDTHS = (1280, 800)
# What a page says of each cell: how it ended, and what went wrong in it.
CELLS = """() => Array.from(window.jupyterapp.shell.currentWidget.content.model.cells)
  .filter(cell => cell.type === "code" && cell.sharedModel.source.trim())
  .map(cell => ({source: cell.sharedModel.source, count: cell.executionCount, tags: cell.getMetadata("tags") ?? [],
                 outputs: cell.outputs.toJSON()}))"""
# Ours is what stands in the rendered text and in the outputs. Not ours: code editors.
OURS = {"include": [[".jp-OutputArea-output"], [".jp-MarkdownOutput"]], "exclude": [[".cm-editor"]]}
# Of each picture: its words, its size, its alpha at its four corners, its smallest text as drawn.
PICTURES = """() => Array.from(document.querySelectorAll(".jp-OutputArea-output img, .jp-OutputArea-output svg")).map(
  picture => {
    const box = picture.getBoundingClientRect();
    const page = picture.closest(".jp-OutputArea-output").getBoundingClientRect();
    const found = {alt: picture.alt ?? picture.getAttribute("aria-label"), width: box.width, height: box.height,
                   fits: box.left >= page.left - 1 && box.right <= page.right + 1, corners: [255, 255, 255, 255]};
    if (picture.tagName === "IMG") {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [picture.naturalWidth, picture.naturalHeight];
      const brush = canvas.getContext("2d");
      brush.drawImage(picture, 0, 0);
      const [right, bottom] = [canvas.width - 1, canvas.height - 1];
      const corners = [[0, 0], [right, 0], [0, bottom], [right, bottom]];
      found.corners = corners.map(at => brush.getImageData(...at, 1, 1).data[3]);
    } else found.text = Math.min(...Array.from(picture.querySelectorAll("text")).map(
      text => parseFloat(getComputedStyle(text).fontSize) * box.width / picture.viewBox.baseVal.width));
    return found;
  })"""

# axe judges no contrast here: JupyterLab's body has no height and hides what overflows, so axe takes all for hidden.
# By WCAG's formula: each text of ours on the ground behind it, layers of half transparent ground laid over each other.
CONTRASTS = """() => {
  const read = colour => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const light = colour => colour.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92
    : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const over = (top, under) => under.map((v, i) => i < 3 ? top[i] * top[3] + v * (1 - top[3]) : 1);
  const ground = element => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.unshift(read(getComputedStyle(at).backgroundColor));
      if (layers[0][3] === 1) break;
    }
    return layers.reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const found = [];
  for (const element of document.querySelectorAll(":is(.jp-OutputArea-output, .jp-MarkdownOutput) *")) {
    const own = Array.from(element.childNodes).filter(node => node.nodeType === 3);
    const words = own.map(node => node.data).join("").trim();
    const other = element.closest("svg, mjx-container, .cm-editor, .jp-InternalAnchorLink");
    if (!words || other || !element.checkVisibility()) continue;
    const under = ground(element), style = getComputedStyle(element), ink = over(read(style.color), under);
    const [low, high] = [light(ink), light(under)].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (high + 0.05) / (low + 0.05);
    found.push({words: words.slice(0, 80), tag: element.tagName, ratio, least: large ? 3 : 4.5});
  }
  return found;
}"""


def test_every_cell_ends_well_in_a_fresh_kernel(notebook):
    cells = notebook.page.evaluate(CELLS)
    assert [cell["count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        wrong = [out for out in cell["outputs"] if out["output_type"] == "error" or out.get("name") == "stderr"]
        assert bool(wrong) == ("raises-exception" in cell["tags"]), (cell["source"], wrong)


def test_explorers_follow_the_keyboard(notebook):
    """All keys, to both ends, and none goes to JupyterLab: a picture or a sentence, and never a stuck page."""
    for explorer in notebook.explorers():
        cells = explorer.page.locator(".jp-Cell").count()
        first = explorer.shown()
        assert "<svg" in first
        for slider in explorer.sliders.all():
            slider.focus()
            for key in ("ArrowRight", "ArrowUp", "PageDown", "End", "Home"):
                slider.press(key)
                expect(slider).to_be_focused()
                shown = explorer.shown()
                assert ("<svg" in shown) != ("Not computed. " in shown), shown
            explorer.reset()
            assert explorer.shown() == first
        explorer.sliders.first.focus()
        explorer.page.keyboard.press("b")  # with the focus on a cell, this key adds one
        assert explorer.page.locator(".jp-Cell").count() == cells


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_of_ours(notebook, theme):
    notebook.theme(theme)
    found = Axe().run(notebook.page, context=OURS)
    assert found.response["passes"], "axe looked at nothing"
    said = [
        f"{rule['id']}: {node['html'][:200]}\n    {node['failureSummary']}"
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ]
    assert not said, "\n".join(said)


@pytest.mark.parametrize("theme", THEMES)
def test_text_stands_out_from_its_ground(notebook, theme):
    notebook.theme(theme)
    found = notebook.page.evaluate(CONTRASTS)
    assert len(found) > 100, "hardly any text was judged"
    faint = [text for text in found if text["ratio"] < text["least"]]
    assert not faint, "\n".join(f"{text['ratio']:.2f} {text['tag']} {text['words']!r}" for text in faint)


def test_headings_are_in_order(notebook):
    levels = notebook.page.eval_on_selector_all(
        ".jp-MarkdownOutput :is(h1, h2, h3, h4, h5, h6)", "found => found.map(heading => Number(heading.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels)), levels


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_pictures_can_be_read(notebook, theme, width, shots):
    notebook.theme(theme)
    page = notebook.page
    page.set_viewport_size({"width": width, "height": 1400})  # the highest explorer is in sight as a whole
    if page.locator("#jp-left-stack").is_visible() != (width > 1000):  # on a narrow page without the list of files
        notebook.command("application:toggle-left-area")
    pictures = page.evaluate(PICTURES)
    assert pictures
    for picture in pictures:
        assert picture["alt"] and picture["fits"], picture
        assert picture["width"] > 450 and picture["height"] > 100, picture
        assert picture["corners"] == [255] * 4, picture  # a ground of its own: black on a dark page is not read
        assert picture.get("text", 99) > 9, picture
    stem = notebook.name.removesuffix(".ipynb")
    for i, output in enumerate(page.locator(".jp-OutputArea-output:has(img, svg)").all()):
        output.screenshot(path=shots / f"{stem}_{i}_{theme}_{width}.png")


def test_links_lead_on_inside_jupyterlab(notebook, lab):
    page = notebook.page
    links = page.locator(f'.jp-MarkdownOutput a[href^="{lab.url}/files/"]')
    seen = set()
    for i in range(links.count()):
        path = unquote(urlsplit(links.nth(i).get_attribute("href")).path).removeprefix("/files/")
        assert (lab.root / path).is_file(), path
        if path in seen:
            continue
        seen.add(path)
        links.nth(i).click()
        opened = page.locator(".lm-DockPanel-tabBar .lm-mod-current .lm-TabBar-tabLabel")
        expect(opened).to_have_text(path.split("/")[-1])
        notebook.show_itself()
    assert "README.md" in seen
    assert len(page.context.pages) == 1, "a link left JupyterLab"


def test_no_output_is_mathematics(notebook):
    """A price or a name between two dollars is none; the equations of the text are."""
    expect(notebook.page.locator(".jp-OutputArea-output mjx-container")).to_have_count(0)


def test_the_console_has_no_error(notebook):
    """Last of the tests that share a page: what all of them made the browser say."""
    assert not notebook.said


def test_an_exercise_answered_wrong_and_right_says_so(lab, browser):
    (name,) = [name for name in NOTEBOOKS if name.startswith("01")]
    notebook = Notebook(lab, browser, name)
    notebook.run_all()
    form = notebook.page.locator('fieldset.ask[data-key="smallest-prompt"]')
    for guess, verdict in ((295, "Not yet. "), (296, "Right: 296 tokens")):
        form.get_by_label("Your answer").fill(str(guess))
        form.get_by_label("Your answer").press("Enter")
        expect(form.get_by_role("status")).to_have_text(find("smallest-prompt").judge(guess).words)
        assert find("smallest-prompt").judge(guess).words.startswith(verdict)
    notebook.close()


LOG = "prompt_tokens,output_tokens\n" + "200,4000\n1000,800\n" * 20
BAD_FILES = {
    "requests.csv": (
        "prompt_tokens,output_tokens\n200,4000\n1000,-8\n",
        ("requests.csv", "Line 3 (row 2)", "negative"),
    ),
    "no_names.csv": ("200,4000\n1000,8\n", ("no_names.csv", "line 1", "a number, where column names are expected")),
    "config.json": ('{"model_type": "llama",\n"hidden_size": ', ("config.json", "not JSON", "line 2")),
    "other.json": ('{"model_type": "<img src=x>"}', ("other.json", "<img src=x>", "not an architecture that is read")),
}


def test_own_files_are_taken_bad_ones_refused_and_the_last_good_ones_stay(lab, browser, tmp_path, shots):
    (name,) = [name for name in NOTEBOOKS if name.startswith("10")]
    notebook = Notebook(lab, browser, name)
    notebook.run_all()
    page = notebook.page
    buttons, said = (
        page.locator(".jp-OutputArea-output button:not(.ask-button)"),
        page.locator(".widget-html-content [role]"),
    )
    expect(said).to_have_count(3)
    names = [re.compile(r"config\.json"), re.compile(r"traffic \(CSV, JSON\)"), "Report", "Save"]
    expect(buttons).to_have_text(names)

    def choose(file: str, content: str, words: str) -> None:
        path = tmp_path / file
        path.write_text(content, encoding="utf-8")
        which = int(file.endswith(".csv"))
        with page.expect_file_chooser() as asked:  # the widget's input is in no page, only its button is
            buttons.nth(which).click()
        asked.value.set_files(path)
        expect(said.nth(which)).to_contain_text(words)

    def run_below() -> str:
        """Run the cells below the buttons, and return all that the page shows then."""
        page.locator(".jp-CodeCell", has=page.locator(".cm-content", has_text="model_file.take()")).locator(
            ".cm-content"
        ).click()
        notebook.command("notebook:run-all-below")
        notebook.wait_until_idle()
        cells = page.evaluate(CELLS)
        assert not [out for cell in cells for out in cell["outputs"] if out["output_type"] == "error"]
        shown = page.locator(".jp-OutputArea-output").all_inner_texts()
        assert not [text for text in shown if "Traceback" in text]
        return "\n".join(shown)

    config = model_config("qwen3-8b") | {"_name_or_path": "somebody/my-own-8b"}
    choose("config.json", json.dumps(config), "Read: Model 'my-own-8b'")
    choose("mine.csv", LOG, "Read: 40 requests of 'mine.csv'")
    title = "mine.csv on my-own-8b, H100 SXM"
    assert "mine.csv on my-own-8b" not in page.locator(".jp-Notebook").inner_text()
    assert title in run_below()
    report = page.locator(".jp-OutputArea-output", has=page.get_by_role("heading", name=title))
    expect(report.locator("img")).to_have_count(1)
    page.set_viewport_size({"width": 1280, "height": 2400})
    report.screenshot(path=shots / "10_own_report.png")

    for file, (content, words) in BAD_FILES.items():
        choose(file, content, f"Not taken. {'Traffic' if file.endswith('.csv') else 'Config'} file '{file}'")
        sentence = said.nth(int(file.endswith(".csv"))).inner_text()
        assert all(word in sentence for word in words) and "This stays: " in sentence, sentence
    shown = run_below()
    assert title in shown and "no_names.csv" in shown and "other.json" in shown
    assert page.locator('img[src="x"]').count() == 0
    assert not notebook.said
    notebook.close()


def test_the_form_makes_a_report_by_keyboard_and_says_what_it_cannot_make(lab, browser, shots):
    (name,) = [name for name in NOTEBOOKS if name.startswith("10")]
    notebook = Notebook(lab, browser, name)
    notebook.run_all()
    page = notebook.page
    form = page.locator(".widget-vbox", has=page.get_by_role("button", name="Report"))
    said, heading = form.locator("[role=status], [role=alert]").last, form.get_by_role("heading", level=3)
    form.get_by_label("Requests at a time").fill("many")
    form.get_by_role("button", name="Report").focus()
    page.keyboard.press("Enter")
    expect(said).to_contain_text("Not done. Requests at a time: got 'many'")
    form.get_by_label("Requests at a time").fill("")
    form.get_by_label("Accelerator").select_option(label="H200 SXM")
    form.get_by_role("button", name="Report").focus()
    page.keyboard.press("Enter")
    expect(said).to_contain_text("Made: sample_traffic.csv on qwen3-8b, H200 SXM")
    expect(heading).to_have_text("sample_traffic.csv on qwen3-8b, H200 SXM")
    expect(form.locator("img")).to_have_count(1)
    for theme in THEMES:
        notebook.theme(theme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 2400})
            form.screenshot(path=shots / f"10_form_{theme}_{width}.png")
    notebook.close()


def test_the_report_prints_on_one_sheet(browser, tmp_path):
    sample = traffic_report(
        Deployment(load_model("llama-3.1-8b"), load_accelerator("h100-sxm")),
        read_traffic(DATA / "sample_traffic.csv"),
        2.5,
    )
    wide = "W" * 80
    model = replace(load_model("deepseek-v3"), name=wide, defaults_used=tuple(f"{wide}{i}" for i in range(9)))
    device = replace(load_accelerator("h200-sxm"), label=wide)
    random = np.random.default_rng(0)
    prompts, outputs = random.integers(100, 100_000, 500), random.integers(1, 160_000, 500)
    columns = {"prompt": wide, "output": wide}
    longest = traffic_report(
        Deployment(model, device, Precision("fp8", cache="bf16"), devices=16),
        OwnTraffic(wide, prompts, outputs, 0 * prompts, columns, (wide,) * 9),
        123_456.789,
        "W" * 8,
    )
    page = browser.new_page()
    for name, report in (("sample", sample), ("longest", longest)):
        html, *_ = report.save(tmp_path / name)
        page.goto(html.as_uri())
        sheets = re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))
        assert len(sheets) == 1, name
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
    page.close()
