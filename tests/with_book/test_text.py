"""The book says what the notebooks say, word for word and number for number; its files need no other host."""

import ast
import re
import zipfile
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import mistune
import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_notebook, new_output
from reading import NOTEBOOKS

import book
from chapters import ASKS, LINKS, STANDING, ChapterError, chapter
from docstrings import DOORS
from lessonlib.face.exercises.asking import all_exercises, find
from mathml import font
from scripts import ScriptError, in_a_function
from terms import terms

MARKDOWN = mistune.create_markdown(escape=False, plugins=["table", "math"])
SCRIPTED = ".lesson-ask, .lesson-standing, .lesson-tip, .headerlink, summary, math, script, style, .lesson-live"


def words(html: str) -> list[str]:
    soup = BeautifulSoup(html, "html.parser")
    for left in soup.select("style, script, summary, .math"):
        left.decompose()
    return soup.get_text(" ").split()


def letters(found: list[str]) -> str:
    """All that is read, without spaces: a tag may stand where a notebook has none."""
    return "".join(found)


def told(cell) -> list[str]:
    """The words of a cell that a page shows, in their order; questions and where one stands are of the page."""
    if cell.cell_type == "markdown":
        return words(MARKDOWN(LINKS.sub("", cell.source)))
    if STANDING.fullmatch(cell.source):
        return []
    found = [] if ASKS.fullmatch(cell.source) else cell.source.split()
    for output in cell.outputs:
        if output.output_type == "stream":
            found += output.text.split()
        elif "text/html" in output.data:
            found += words(output.data["text/html"])
        elif not output.data.get("text/markdown", "").startswith("**Question.**"):
            markdown = output.data.get("text/markdown")
            found += words(MARKDOWN(markdown)) if markdown else output.data["text/plain"].split()
    return found


def article(site, name):
    return BeautifulSoup((site / f"{name}.html").read_text("utf-8"), "html.parser").select_one("article.bd-article")


def test_sphinx_had_nothing_to_say(warnings):
    assert warnings == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_chapter_says_what_its_notebook_says(path, site):
    found = article(site, f"notebooks/{path.stem}")
    for left in found.select(SCRIPTED):
        left.decompose()
    wanted = [word for cell in nbformat.read(path, as_version=4).cells for word in told(cell)]
    said, wanted = letters(found.get_text(" ").split()), letters(wanted)
    same = next((i for i, (one, other) in enumerate(zip(said, wanted, strict=False)) if one != other), None)
    assert said == wanted, f"{said[same - 60 : same + 60]!r}\n{wanted[same - 60 : same + 60]!r}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_chapter_has_the_questions_and_pictures_of_its_notebook(path, site):
    found, notebook = article(site, f"notebooks/{path.stem}"), nbformat.read(path, as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    alts = [re.findall(r'<img [^>]*alt="([^"]*)"', output.get("data", {}).get("text/html", "")) for output in outputs]
    assert [image["alt"] for image in found.select("img")] == [
        BeautifulSoup(alt, "html.parser").get_text() for one in alts for alt in one
    ]
    keys = [element["data-key"] for element in found.select(".lesson-ask")]
    assert sorted(keys) == sorted(key for key, one in all_exercises().items() if one.notebook == path.stem[:2])
    for element in found.select(".lesson-ask"):
        text, exercise = " ".join(element.get_text(" ").split()), find(element["data-key"])
        for part in (exercise.question, *exercise.options.values(), *exercise.hints, exercise.answer.solution):
            assert " ".join(part.split()) in text


def test_the_font_of_formulas_is_made_without_a_warning(caplog):
    assert font()[:4] == b"wOFF" and caplog.records == []


def test_every_formula_is_drawn(site):
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        wanted = len(re.findall(r"\$\$.+?\$\$|\$[^$\n]+\$", prose, re.DOTALL))
        assert len(article(site, f"notebooks/{path.stem}").select("math")) == wanted, path.stem


def test_each_word_that_a_chapter_meets_is_explained_once(site):
    explained = set()
    for path in NOTEBOOKS:
        links = article(site, f"notebooks/{path.stem}").select("a.lesson-term")
        found = [link["aria-describedby"] for link in links]
        assert len(found) == len(set(found)) > 2, path.stem
        explained |= set(found)
    wanted = {f"tip-{term.anchor}" for term in terms().values()}
    assert len(explained & wanted) > 0.8 * len(wanted), sorted(wanted - explained)
    assert explained <= wanted


# Files


def pages(site):
    return sorted(site.rglob("*.html"))


def test_there_are_all_pages(site):
    names = {path.relative_to(site).as_posix() for path in pages(site)}
    chapters = {f"notebooks/{path.stem}.html" for path in NOTEBOOKS}
    docs = {f"docs/{path.stem}.html" for path in (book.ROOT / "docs").glob("*.md")}
    rooms = "index lessonlib base model work time request policy facts measured face".split()
    assert names >= chapters | docs | {f"api/{room}.html" for room in rooms}
    assert names >= {"index.html", "search.html", "notebooks/index.html", "data/README.html"}


def public(module):
    """The names of a door by its source: what it imports from the library's files, at once or when it is asked for."""
    tree = ast.parse(Path(import_module(module).__file__).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    own = [node for node in imports if node.module.startswith("lessonlib") and node.module != "lessonlib.base.door"]
    return {name.asname or name.name for node in own for name in node.names}


@pytest.mark.parametrize("page", DOORS)
def test_the_reference_has_every_public_name_of_a_room(page, site):
    found = article(site, f"api/{page}")
    described = {element["id"]: element.find_next_sibling("dd") for element in found.select("dt.sig[id]")}
    elsewhere = {link.get_text() for link in found.select("li a")}  # the door of another room has them, too
    for module in DOORS[page]:
        names = public(module)
        assert len(names) >= 3
        assert {name for name in names if f"{module}.{name}" not in described} <= elsewhere
    silent = [name for name, said in described.items() if not (said and said.get_text().strip())]
    assert {name for name in silent if not name.rpartition(".")[2].isupper()} == set()  # a constant shows its value
    assert "TYPE_CHECKING" not in found.get_text()


def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site):
    places: dict[Path, set[str]] = {}
    for path in pages(site):
        soup = BeautifulSoup(path.read_text("utf-8"), "html.parser")
        places[path] = {element["id"] for element in soup.select("[id]")}
    for path in pages(site):
        soup = BeautifulSoup(path.read_text("utf-8"), "html.parser")
        for element in soup.select("[src], [href], [data-src], [srcset]"):
            target = element.get("src") or element.get("href") or element.get("data-src") or element["srcset"]
            if urlparse(target).scheme:
                assert element.name == "a", f"{path.name} loads {target}"
                continue
            if element.name == "a" and "/lite/" in target:  # the live notebooks, a site of their own beside the book
                continue
            name, place = urldefrag(target)
            assert not name.startswith("/"), f"{path.name}: {target} works at the root of a server alone"
            file = (path.parent / unquote(name.partition("?")[0])).resolve() if name else path
            assert file.exists() and file.is_relative_to(site.resolve()), f"{path.name}: {target}"
            if place and file.suffix == ".html" and file in places:
                assert unquote(place) in places[file], f"{path.name}: {target}"
    for style in site.rglob("*.css"):
        loaded = re.findall(r"url\([\"']?([^)\"']+)", style.read_text("utf-8"))
        assert [url for url in loaded if url.startswith(("http:", "https:", "//"))] == [], style.name


def test_the_style_sheet_has_the_icons_of_the_pages_and_few_others(site):
    text = (site / "_static" / "styles" / "pydata-sphinx-theme.css").read_text("utf-8")
    icons = [set(re.findall(r"fa-[\w-]+", rule[0])) for rule in book.ICON.finditer(text)]
    assert len(icons) == text.count('--fa:"') < 30
    for path in pages(site):
        soup = BeautifulSoup(path.read_text("utf-8"), "html.parser")
        for element in soup.select(".fa-solid"):
            assert any(set(element["class"]) & names for names in icons), element


def test_the_archive_holds_every_file(site):
    with zipfile.ZipFile(book.archive()) as packed:
        assert packed.testzip() is None
        files = {f"book/{path.relative_to(site).as_posix()}" for path in site.rglob("*") if path.is_file()}
        assert set(packed.namelist()) == files


# The parts that make it


def test_a_module_becomes_a_function():
    source = (
        "const two = 2;\nexport function four() { return two * 2; }\nexport const one = 1;\nexport default { one };\n"
    )
    made = in_a_function(source, "m.js")
    several = in_a_function("export const [a, b] = [1, 2];\n", "m.js")
    assert several == "(() => {\nconst [a, b] = [1, 2];\n\nreturn { a, b };\n})()"
    assert "export" not in made and made.endswith("return { four, one };\n})()")
    for line in ('import { a } from "./b.js";', 'export * from "./b.js";'):
        with pytest.raises(ScriptError, match=r"m\.js: a classic script cannot have the line"):
            in_a_function(f"{source}{line}\n", "m.js")


def test_code_that_is_no_python_is_shown_as_it_is():
    sources = ["import math", "%matplotlib inline\nimport math", "!ls", "%%bash\nls", "1 +"]
    made = chapter("05", new_notebook(cells=[new_code_cell(source) for source in sources])).notebook
    assert [cell.source for cell in made.cells] == sources
    assert [cell.metadata.tags for cell in made.cells] == [["hide-input"], [], [], [], []]


def test_what_a_page_cannot_show_is_refused():
    strange = new_output("display_data", {"application/x-strange": "?"})
    with pytest.raises(ChapterError, match="05: an output has no form that a page shows"):
        chapter("05", new_notebook(cells=[new_code_cell("1", outputs=[strange])]))
    question = new_output("display_data", {"text/markdown": '**Question.** Why? In code: `check("a-key", ...)`.'})
    with pytest.raises(ChapterError, match="05: it is not plain which exercise this asks"):
        chapter("05", new_notebook(cells=[new_code_cell('ask("another")', outputs=[question])]))


def test_links_to_what_the_book_has_not_are_words():
    page = "[a](../data/README.md) [b](../CONTRIBUTING.md) [c](../README.md) [d](01_one_pass_by_hand.ipynb#x) [e](#f)"
    assert book.relinked(page, "notebooks/00_start_here.ipynb") == (
        "[a](../data/README.md) b [c](../index.md) [d](01_one_pass_by_hand.ipynb#x) [e](#f)"
    )
