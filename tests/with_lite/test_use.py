"""The site as a learner uses it: questions are answered and counted, explorers move, files are taken, work is kept."""

import json

import pytest
from in_browser import SECONDS, SiteNotebook, failed, printed
from lab import THEMES
from playwright.sync_api import expect

# In one cell each of a notebook: what cannot be timed in a browser, and the start of its sentence.
TIMINGS = {
    "time_cpu()": "time_cpu",
    "time_gpu(quick=True)": "time_gpu",
    "time_engine()": "time_engine",
    'time_server("http://127.0.0.1:8000/v1", "a-model")': "time_server",
}


# Kept when the file in which answers are counted has one that is right; wait_for_function would not wait for a promise.
COUNTED = """async (tries) => {
    const files = window.jupyterapp.serviceManager.contents;
    for (let i = 0; i < tries; i++) {
        try {
            const kept = await files.get("my_notebooks/progress.json", {content: true});
            const text = kept.format === "base64" ? atob(kept.content) : kept.content;  // as the drive wrote it
            const found = typeof text === "string" ? JSON.parse(text) : text;
            if (Object.values(found.exercises).some((entry) => entry.right)) return;
        } catch (error) {
            if (i === tries - 1) throw error;  // until then it may not be there yet
        }
        await new Promise((again) => setTimeout(again, 200));
    }
    throw new Error("no answer was counted");
}"""


@pytest.fixture(scope="module")
def start(browser, address, notebooks):
    """Notebook 00, its imports run."""
    notebook = SiteNotebook(browser, address, notebooks["00"])
    notebook.run(1)
    yield notebook
    notebook.close()


@pytest.fixture(scope="module")
def own(browser, address, notebooks):
    """Notebook 10, its imports and the buttons for files run."""
    notebook = SiteNotebook(browser, address, notebooks["10"])
    notebook.run(0)
    notebook.run(4)
    yield notebook
    notebook.close()


def test_a_question_answers_and_the_answer_is_written(start, shots):
    start.run(4)
    form = start.page.locator('fieldset.ask[data-key="chat-answers"]')
    field, said = form.get_by_label("Your answer"), form.get_by_role("status")
    field.fill("3")
    field.press("Enter")
    expect(said).not_to_be_empty()
    wrong = said.inner_text()
    field.fill("102.8")
    field.press("Enter")
    expect(said).not_to_have_text(wrong)
    expect(said).to_contain_text("Right within")
    start.page.screenshot(path=shots / "question.png")
    start.page.evaluate(COUNTED, 5 * SECONDS)  # the page tells the kernel, which writes the file
    assert "00: 1 of 3 right." in printed(start.run(10))


def test_work_is_kept_in_the_browser_and_can_be_downloaded(start, address):
    mine = 'print("this line is mine")'
    start.change(8, mine)
    start.command("docmanager:save")
    with start.page.expect_download() as download:
        start.command("docmanager:download")
    given = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert mine in ["".join(cell["source"]) for cell in given["cells"]]
    later = SiteNotebook(start.context.browser, address, start.name, start.context)
    assert "this line is mine" in printed(later.run(8))
    later.run(1)
    assert "00: 1 of 3 right." in printed(later.run(10))
    path = later.page.evaluate("window.jupyterapp.shell.currentWidget.context.path")
    anew = later.page.evaluate(
        """async (path) => {
            const files = window.jupyterapp.serviceManager.contents;
            await files.delete(path);
            return JSON.stringify((await files.get(path, {content: true})).content);
        }""",
        path,
    )
    assert "this line is mine" not in anew and "Check your set-up" in anew
    later.page.close()


def test_the_page_and_its_settings_say_nothing_is_wrong(start, address):
    assert start.away(address) == []
    assert [line for line in start.errors if "404" not in line] == []  # folders are asked for before they are there


def test_own_files_are_taken_and_bad_ones_refused(own, tmp_path):
    buttons = own.cell(4).locator(".jp-OutputArea-output button")
    said = own.cell(4).locator(".widget-html-content [role]")

    def choose(which, name, content, words):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        with own.page.expect_file_chooser() as asked:
            buttons.nth(which).click()
        asked.value.set_files(path)
        expect(said.nth(which)).to_contain_text(words)

    log = "prompt_tokens,output_tokens\n" + "".join(f"{100 + i},{200 + i}\n" for i in range(30))
    choose(1, "mine.csv", log, "Read: 30 requests of 'mine.csv'")
    choose(1, "none.csv", "200,4000\n", "Not taken. Traffic file 'none.csv'")
    choose(0, "config.json", '{"model_type": "llama"', "Not taken. Config file 'config.json'")
    assert "30 requests" in printed(own.run(6))


@pytest.mark.parametrize("theme", THEMES)
def test_an_explorer_moves_by_keyboard(own, theme, shots):
    own.change(7, "from lessonlib.face.widgets import explore_growth\n\nexplore_growth()")
    assert not failed(own.run(7))
    own.page.evaluate(
        "(name) => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", THEMES[theme]
    )
    expect(own.page.locator(f'body[data-jp-theme-name="{THEMES[theme]}"]')).to_be_attached()
    box = own.cell(7).locator(".lesson-explore")
    pictures = box.locator(".pictures")
    expect(pictures.locator("svg").first).to_be_visible()
    before, slider = pictures.inner_html(), box.get_by_role("slider").first
    slider.focus()
    slider.press("ArrowRight")
    expect(slider).to_be_focused()
    assert pictures.inner_html() != before
    box.screenshot(path=shots / f"explorer-{theme}.png")
    own.page.screenshot(path=shots / f"site-{theme}.png")


def test_what_a_browser_cannot_time_is_said_and_the_record_is_there(own):
    own.change(
        8,
        "from lessonlib.measured import recorded_cpu, time_cpu, time_engine, time_gpu, time_server\n"
        "recorded_cpu().when",
    )
    assert "2026-" in printed(own.run(8))
    for call, begins in TIMINGS.items():
        own.change(8, call)
        said = failed(own.run(8))
        assert f"{begins}: this Python runs in a browser, where it has no processes, no threads" in said, said
        assert "make lab" in said
