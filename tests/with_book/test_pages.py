"""The book in a browser: it reads and answers, by keyboard, in both themes, at three widths, and asks no other host."""

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup
from playwright.sync_api import expect

import book
from lessonlib.face.exercises.asking import all_exercises, find
from lessonlib.face.exercises.progress import SCHEMA, Progress, class_table, read_progress

THEMES = ("light", "dark")
WIDTHS = (360, 800, 1280)
CHAPTERS = [f"notebooks/{path.stem}" for path in book.notebook_paths()]
LOOKED_AT = ("index", "notebooks/00_start_here", "notebooks/09_common_questions", "docs/glossary", "api/request")


@pytest.fixture(scope="session")
def names(site):
    """All pages of the book."""
    return sorted(path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html"))


def opened(page, address, name):
    page.goto(f"{address}/{name}.html")
    page.wait_for_load_state("load")
    return page


# All pages

# axe asks for style sheets once more, and for those that one imports at a wrong address.
QUIETLY = {"preload": False}


@pytest.mark.parametrize("theme", THEMES)
def test_every_page_is_accessible_fits_and_is_quiet(theme, names, served, page, shots):
    page.emulate_media(color_scheme=theme)
    wrong = {}
    for name in names:
        opened(page, served, name)
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        page.locator("details").evaluate_all("all => all.forEach(one => (one.open = true))")
        found = [
            (item["id"], node["html"][:120])
            for item in Axe().run(page, options=QUIETLY).response["violations"]
            for node in item["nodes"][:2]
        ]
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            found += [(f"{over} px too wide", f"at {width}")] if over > 0 else []
        if found:
            wrong[name] = found
        if name in LOOKED_AT:
            page.screenshot(path=shots / f"{name.replace('/', '-')}-{theme}.png")
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong.items())
    assert page.said == []
    assert [url for url in page.asked if not url.startswith((served, "data:", "blob:"))] == []


def test_from_a_folder_nothing_is_missing(site, page):
    for name in ("index", *CHAPTERS, "docs/glossary", "api/request"):
        page.goto(f"{site.as_uri()}/{name}.html")
        page.wait_for_load_state("load")
        assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)"), name
        expect(page.locator(".lesson-live")).to_have_count(0)  # a folder runs no notebook
    assert page.said == []
    assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_without_javascript_it_reads(site, browser, served):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{served}/notebooks/00_start_here.html")
    exercise = find("decode-steps")
    asked = page.locator("#ask-decode-steps")
    expect(asked).to_contain_text(exercise.question)
    asked.get_by_text("Solution").click()
    expect(asked.get_by_text(exercise.answer.solution)).to_be_visible()
    page.get_by_text("Show the output").first.click()
    expect(page.get_by_text("decode steps 12,799")).to_be_visible()
    page.locator("a.lesson-term").first.click()
    expect(page).to_have_url(re.compile("docs/glossary.html#term-"))
    assert page.locator(":target").count() == 1
    page.goto(f"{served}/notebooks/00_start_here.html")
    page.get_by_role("link", name="next").click()
    expect(page.locator("article h1")).to_contain_text("Count one pass by hand")
    context.close()


# Questions


def answered(page, key):
    return page.locator(f"#ask-{key} fieldset.ask"), page.locator(f"#ask-{key} .ask-said")


def type_guess(page, key, guess):
    form, said = answered(page, key)
    field = form.get_by_label("Your answer")
    field.fill(str(guess))
    field.press("Enter")
    return said


def choose(page, key, letter):
    form, said = answered(page, key)
    form.locator(f"input[value={letter}]").check()
    form.get_by_role("button", name="Check").click()
    return said


def results(page, key):
    """The folded results below a question, until the next question or heading."""
    return page.locator(f".cell:has(#ask-{key}) + .cell.tag_hide-output details")


def test_a_question_answers_and_its_result_unfolds(address, page, tmp_path):
    opened(page, address, "notebooks/00_start_here")
    folded = results(page, "decode-steps")
    expect(folded).to_have_count(1)
    assert folded.get_attribute("open") is None
    kept = Progress(tmp_path / "my_notebooks" / "progress.json")
    kept.path.parent.mkdir()
    for guess in (12_800, 5):
        verdict = find("decode-steps").judge(guess)
        expect(type_guess(page, "decode-steps", guess)).to_have_text(verdict.words)
        kept.tried("decode-steps", verdict.right, verdict.words)
        assert folded.get_attribute("open") is None
    form, said = answered(page, "decode-steps")
    form.get_by_role("button", name="Hint").click()
    expect(said).to_contain_text("Hint 1 of")
    kept.hinted("decode-steps", 1)
    expect(type_guess(page, "decode-steps", "12,799")).to_have_text(find("decode-steps").judge(12_799).words)
    kept.tried("decode-steps", True)
    assert folded.get_attribute("open") is not None
    expect(page.get_by_text("decode steps 12,799")).to_be_visible()

    # A guess before a result unfolds it, right or wrong; a choice does when it is right.
    type_guess(page, "chat-answers", 3)
    kept.tried("chat-answers", False, find("chat-answers").judge(3).words)
    assert results(page, "chat-answers").get_attribute("open") is not None
    for letter in ("a", "d"):
        verdict = find("prefill-over-a-tenth").judge(letter)
        expect(choose(page, "prefill-over-a-tenth", letter)).to_have_text(verdict.words)
        kept.tried("prefill-over-a-tenth", verdict.right, verdict.words)
        assert (results(page, "prefill-over-a-tenth").get_attribute("open") is not None) == bool(verdict.right)

    # All of it is there when the page is opened again, and saved as the file that the notebooks keep.
    page.reload()
    expect(answered(page, "decode-steps")[1]).to_have_text("Answered before, with 3 tries.")
    assert results(page, "decode-steps").get_attribute("open") is not None
    standing = page.locator(".lesson-standing li").first
    words = kept.in_words("00", [key for key, one in all_exercises().items() if one.notebook == "00"])
    assert words == "00: 2 of 3 right, one with help. Left: chat-answers."
    expect(standing).to_have_text(words.partition(" Left")[0])  # without what is left: all notebooks stand there
    with page.expect_download() as download:
        page.get_by_role("button", name="Save my answers").click()
    assert download.value.suggested_filename == "progress.json"
    download.value.save_as(tmp_path / "progress.json")
    assert read_progress(tmp_path / "progress.json") == kept.entries
    assert "decode-steps" in class_table([tmp_path / "progress.json"], all_exercises())

    page.get_by_role("button", name="Forget my answers").click()
    page.get_by_role("button", name="Forget them for good").click()
    expect(standing).to_have_text("00: 0 of 3 right.")
    page.reload()
    expect(answered(page, "decode-steps")[1]).to_have_text("")
    assert page.said == []


def test_a_solution_that_is_looked_at_unfolds_the_result(served, page):
    opened(page, served, "notebooks/00_start_here")
    form, said = answered(page, "decode-steps")
    form.get_by_role("button", name="Solution").click()
    expect(said).to_have_text(find("decode-steps").answer.solution)
    assert results(page, "decode-steps").get_attribute("open") is not None


def test_every_question_of_every_chapter_can_be_answered(address, page):
    for name in CHAPTERS:
        opened(page, address, name)
        for key in page.locator(".lesson-ask").evaluate_all("all => all.map(one => one.dataset.key)"):
            exercise = find(key)
            right = getattr(exercise, "right", None)
            said = choose(page, key, right) if right else type_guess(page, key, repr(float(exercise.answer.value)))
            expect(said).to_have_text(exercise.says[right or "right"])
        number = name.removeprefix("notebooks/")[:2]
        count = sum(one.notebook == number for one in all_exercises().values())
        if number != "00":
            expect(page.locator(".lesson-standing li")).to_contain_text(f"{number}: {count} of {count} right")


def test_the_quiz_has_its_score(served, page, tmp_path):
    quiz = {key: exercise for key, exercise in all_exercises().items() if exercise.again}
    assert len(quiz) == 12
    kept = Progress(tmp_path / "progress.json")
    opened(page, served, "notebooks/09_common_questions")
    for i, (key, exercise) in enumerate(quiz.items()):
        if getattr(exercise, "right", None):
            guess = exercise.right if i % 3 else next(letter for letter in exercise.options if letter != exercise.right)
            choose(page, key, guess)
        else:
            guess = float(exercise.answer.value) if i % 3 else 1e9
            type_guess(page, key, repr(guess))
        verdict = exercise.judge(guess)
        kept.tried(key, verdict.right, verdict.words)
    words = kept.in_words("09", list(quiz), {key: exercise.again for key, exercise in quiz.items()})
    assert "Score: 8 of 12 at the first try; read again: " in words
    expect(page.locator(".lesson-standing li")).to_have_text(words)


# Explorers


def test_every_explorer_is_live(address, page):
    for name in ("index", *CHAPTERS):
        opened(page, address, name)
        text = "plane" if name == "index" else (book.ROOT / f"{name}.ipynb").read_text("utf-8")
        explorers = page.locator(".lesson-explorer")
        expect(explorers).to_have_count(1 if name == "index" else text.count('class=\\"lesson-explorer\\"'))
        for explorer in explorers.all():
            expect(explorer.locator("input[type=range], select").first).to_be_visible()
            slider = explorer.locator("input[type=range]").first
            before = explorer.inner_text()
            slider.focus()
            slider.press("ArrowRight")
            expect(explorer).not_to_have_text(before)
    assert page.said == []


# Words, search, print


def test_a_word_is_explained_on_hover_and_by_keyboard(address, page):
    opened(page, address, "notebooks/00_start_here")
    word = page.locator("a.lesson-term", has_text="KV cache")
    box = page.locator(".lesson-tip-box")
    word.focus()
    expect(box).to_contain_text("kept so that no step computes them again")
    assert word.evaluate("link => document.getElementById(link.getAttribute('aria-describedby')).textContent") == (
        box.inner_text()
    )
    place = box.bounding_box()
    assert place["x"] >= 0 and place["x"] + place["width"] <= 1280
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)
    other = page.locator("a.lesson-term", has_text="prompt tokens")
    other.hover()
    expect(box).to_contain_text("The tokens that a request comes with")
    box.hover()
    expect(box).to_be_visible()
    page.mouse.move(0, 0)
    expect(box).to_have_count(0)


def test_search_finds_a_word(served, page):
    opened(page, served, "search")
    page.goto(f"{served}/search.html?q=disaggregation")
    expect(page.locator("#search-results li").first).to_be_visible()
    found = page.locator("#search-results li").all_inner_texts()
    assert any("prefill stops mattering" in text for text in found), found
    assert page.said == []


def test_the_search_button_leads_there_by_keyboard(served, page):
    opened(page, served, "notebooks/00_start_here")
    page.keyboard.press("Control+k")
    page.keyboard.type("paging")
    page.keyboard.press("Enter")
    expect(page.locator("#search-results li").first).to_be_visible()


def test_the_theme_is_chosen_and_kept(address, page):
    opened(page, address, "index")
    for _ in range(3):
        if page.evaluate("document.documentElement.dataset.mode") == "dark":
            break
        page.locator(".theme-switch-button:visible").click()
        page.get_by_role("button", name="Dark").click()
    opened(page, address, "notebooks/01_one_pass_by_hand")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_on_paper_there_is_the_text_alone_and_all_of_it(served, page):
    page.emulate_media(color_scheme="dark")
    opened(page, served, "notebooks/02_chat_versus_reasoning")
    page.evaluate("addEventListener('beforeprint', () => (window.printed = document.documentElement.dataset.theme))")
    assert page.pdf().startswith(b"%PDF") and page.evaluate("window.printed") == "light"
    folded = page.locator("details.hide:not([open])")
    before = folded.count()
    assert before > 10 and page.evaluate("document.documentElement.dataset.theme") == "dark"  # as it was
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    hidden = ".bd-header .bd-sidebar-primary .bd-sidebar-secondary .prev-next-footer .ask-buttons .buttons".split()
    for left in (*hidden, "details.hide > summary"):
        for element in page.locator(left).all():
            expect(element).to_be_hidden()
    expect(page.locator("article h1")).to_be_visible()
    assert folded.count() == 0
    cut = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent.slice(0, 60))"
    assert page.locator("article pre").evaluate_all(cut) == []
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert folded.count() == before


def test_a_chapter_leads_to_its_live_version_and_its_neighbours(site):
    stems = [path.stem for path in book.notebook_paths()]
    for i, stem in enumerate(stems):
        soup = BeautifulSoup((site / "notebooks" / f"{stem}.html").read_text("utf-8"), "html.parser")
        live = soup.select_one(".lesson-live a")["href"]
        assert live == f"../../lite/lab/index.html?path=my_notebooks/{stem}.ipynb"
        for relation, neighbour in (("prev", i - 1), ("next", i + 1)):
            if 0 <= neighbour < len(stems):
                assert soup.select_one(f"link[rel={relation}]")["href"] == f"{stems[neighbour]}.html"


def test_the_data_of_the_page_is_what_the_library_exports(served, page):
    from lessonlib.face.exercises.asking import exported

    opened(page, served, "index")
    found = page.evaluate("window.lessonData.exercises")
    assert found == json.loads(json.dumps({key: exported(key) for key in all_exercises()}))


FOREIGN = ["{", "[]", "null", '"x"', "{}", "[[1]]"]
FOREIGN += [json.dumps({"schema": SCHEMA, "exercises": each}) for each in (None, [], "x", {"decode-steps": None})]
FOREIGN += [json.dumps({"schema": SCHEMA, "exercises": {"decode-steps": {"tries": 1, "slips": "x", "right": "yes"}}})]


def test_what_another_page_wrote_in_this_browser_is_no_answer(served, page):
    name = "notebooks/02_chat_versus_reasoning"
    for text in FOREIGN:
        opened(page, served, name)
        page.evaluate("([key, text]) => localStorage.setItem(key, text)", [SCHEMA, text])
        opened(page, served, name)
        expect(page.locator(".lesson-standing").first).to_contain_text("0 of")
        page.get_by_role("button", name="Solution").first.click()
    assert page.said == []
