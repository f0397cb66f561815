"""The form of a question: it judges every guess as the library does, and answers by keyboard in JupyterLab."""

import base64
import json
import random
from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from lab import THEMES, Notebook
from playwright.sync_api import expect

from lessonlib.face.exercises.asking import all_exercises, exported, find
from lessonlib.face.exercises.progress import read_progress
from lessonlib.face.widgets import asking
from notebooks import KERNEL

MODULE = (Path(asking.__file__).parent / "ask.js").read_text(encoding="utf-8")
ADDRESS = "data:text/javascript;base64," + base64.b64encode(MODULE.encode()).decode()
TYPED = {
    "12,800": 12_800,
    " 1.5e3 ": 1500,
    "60 s": 60,
    "60s": 60,
    "-3": -3,
    ".5": 0.5,
    "5.": 5,
    "1,234,567.8": 1_234_567.8,
    "1,5": None,
    "12,80": None,
    "": None,
    "many": None,
    "1e999": None,
    "0x10": None,
    "Infinity": None,
    "NaN": None,
    "3 ms": None,
}


@pytest.fixture(scope="module")
def page(browser):
    page = browser.new_page()
    yield page
    page.close()


def guesses(key):
    """The right answer, slips and what lies around them; every option, and what is none."""
    exercise, draw = find(key), random.Random(key)
    if not hasattr(exercise, "tolerance"):
        return [*exercise.options, "z"]
    values = [exercise.answer.value, *(value for value, _ in exercise.slips)]
    factors = [
        1,
        1 - 1e-9,
        *(draw.uniform(0.8, 1.25) for _ in range(12)),
        *(10 ** draw.uniform(-4, 4) for _ in range(4)),
    ]
    found = [value * factor for value in values for factor in factors]
    found += [float(f"{value:.{digits}g}") for value in values for digits in (1, 2, 3)]
    return [*found, 0.0, -exercise.answer.value]


def test_the_page_judges_as_the_library_does(page):
    asked = {key: (exported(key), guesses(key)) for key in all_exercises()}
    script = """async ([address, asked]) => {
      const { judge } = await import(address);
      return asked.map(([exercise, guesses]) => guesses.map(guess => judge(exercise, guess)));
    }"""
    found = page.evaluate(script, [ADDRESS, json.loads(json.dumps(list(asked.values())))])
    count = 0
    for (key, (_, given)), verdicts in zip(asked.items(), found, strict=True):
        for guess, verdict in zip(given, verdicts, strict=True):
            right, words = find(key).judge(guess)
            assert verdict["right"] is right, (key, guess)
            if right is not None:
                assert verdict["words"] == words, (key, guess)
            count += 1
    assert count > 5_000
    print(f"{count:,} guesses judged alike")


def test_what_is_typed_is_a_number_or_is_not(page):
    script = """async ([address, typed]) => {
      const { numberOf } = await import(address);
      return typed.map(text => numberOf(text, "s"));
    }"""
    assert page.evaluate(script, [ADDRESS, list(TYPED)]) == list(TYPED.values())


class Copy(Notebook):
    """A notebook of a learner's own copies."""

    folder = "my_notebooks"


@pytest.fixture(scope="module")
def copy(lab, browser):
    """A copy that asks for a number and for a letter, all its cells run."""
    folder = lab.root / "my_notebooks"
    folder.mkdir(exist_ok=True)
    asked = ("from lessonlib.face import ask, standing", 'ask("chat-answers")', 'ask("prefill-over-a-tenth")')
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in asked])
    notebook.metadata.kernelspec = KERNEL  # or JupyterLab asks which
    nbformat.write(notebook, folder / "ask.ipynb")
    copy = Copy(lab, browser, "ask.ipynb")
    copy.run_all()
    expect(copy.page.locator("fieldset.ask")).to_have_count(2)
    yield copy
    copy.close()


def kept(copy, key, wanted):
    """What the progress file has of that key, once it is `wanted`."""
    path = copy.lab.root / "my_notebooks" / "progress.json"
    for _ in range(600):
        entries = read_progress(path) if path.exists() else {}
        found = {name: value for name, value in entries.get(key, {}).items() if name in wanted}
        if found == wanted:
            return
        copy.page.wait_for_timeout(50)  # what the page tells the kernel writes
    raise AssertionError(f"{key}: {entries.get(key)}")


def test_a_number_is_answered_by_keyboard(copy):
    form = copy.page.locator('fieldset.ask[data-key="chat-answers"]')
    field, said = form.get_by_label("Your answer"), form.get_by_role("status")
    field.focus()
    field.press("Enter")
    expect(said).to_contain_text("Not answered yet")
    field.fill("200")
    field.press("Enter")
    expect(said).to_have_text(find("chat-answers").judge(200).words)
    copy.page.keyboard.press("Tab")
    copy.page.keyboard.press("Tab")
    expect(form.get_by_role("button", name="Hint")).to_be_focused()
    copy.page.keyboard.press("Enter")
    expect(said).to_contain_text("Hint 1 of")
    field.fill("102.8")
    field.press("Enter")
    expect(said).to_have_text(find("chat-answers").judge(102.8).words)
    kept(copy, "chat-answers", {"tries": 2, "right": True, "first": False, "hints": 1, "looked": False})


def test_a_letter_is_answered_by_keyboard(copy):
    form = copy.page.locator('fieldset.ask[data-key="prefill-over-a-tenth"]')
    said = form.get_by_role("status")
    form.get_by_role("radio").first.focus()
    for letter in ("b", "c", "d"):
        copy.page.keyboard.press("ArrowDown")
        expect(form.locator(f"input[value={letter}]")).to_be_checked()
    copy.page.keyboard.press("Enter")
    expect(said).to_have_text(find("prefill-over-a-tenth").judge("d").words)
    kept(copy, "prefill-over-a-tenth", {"tries": 1, "right": True, "first": True})
    assert [line for line in copy.said if "favicon" not in line] == []


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [1280, 800])
def test_the_forms_have_names_and_fit(copy, theme, width, shots):
    copy.theme(theme)
    copy.page.set_viewport_size({"width": width, "height": 900})
    found = Axe().run(copy.page, context={"include": [[".ask"]]})
    assert [item["id"] for item in found.response["violations"]] == []
    for form in copy.page.locator("fieldset.ask").all():
        box, inside = form.bounding_box(), form.evaluate("form => [form.scrollWidth, form.clientWidth]")
        assert box["width"] > 200 and inside[0] <= inside[1] + 1
    copy.page.screenshot(path=shots / f"ask-{theme}-{width}.png")
