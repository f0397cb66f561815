"""The book: the stored notebooks and pages as a site of plain files in build/book, nothing executed.

    python tools/book.py            builds it
    python tools/book.py serve      builds it and serves it on localhost (--port 8000)
    python tools/book.py archive    builds it and packs it as one file to hand out, build/book.zip

A page of it opens from a folder, too. Needs the packages of the extra `book`: `make book` installs them.
"""

import argparse
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from sites import Files, serve, size_of

ROOT = Path(__file__).resolve().parent.parent
BOOK, BUILD = ROOT / "book", ROOT / "build"
PREPARED, SITE, WARNINGS = BUILD / "book-pages", BUILD / "book", BUILD / "book-warnings.txt"
sys.path[:0] = [str(ROOT), str(BOOK)]

# These stand in the book's head, all others under "more".
FIRST = ("docs/glossary.md", "docs/instructors.md", "docs/sources.md")
LINK = re.compile(r"\[([^\]]+)\]\(([^()\s:]+)\)")
CHAPTER_ROW = re.compile(r"^\| \[(\d\d) (.+?)\]\(notebooks/(\w+)\.ipynb\) \| (\d+) \| (\d+) \| (.+?) \|$", re.MULTILINE)

# What the theme brings and no page loads.
NOT_NEEDED = (
    ".buildinfo",
    "objects.inv",
    "_static/**/*.map",
    "_static/scripts/fontawesome*",
    "_static/webpack-macros.html",
)

# One icon of the theme's style sheet, which has two thousand.
ICON = re.compile(r'(?:\.fa-[\w-]+,?)+\{--fa:"[^"]*"\}')
ICON_NAME = re.compile(r"\bfa-[\w-]+")


class BookError(Exception):
    """The book cannot be made; the message says why and what to do."""


def relinked(text: str, page: str) -> str:
    """The Markdown of a page with links that lead somewhere in the book: of a file that it has not, the words alone."""
    there, folder = in_the_book(), os.path.dirname(page)
    instead = {"README.md": "index.md", "data": "data/README.md"}

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        path = target.partition("#")[0]
        if not path:
            return found[0]
        name = os.path.normpath(os.path.join(folder, path)).replace(os.sep, "/")
        if name in there:
            return found[0]
        if name in instead:
            return f"[{words}]({os.path.relpath(instead[name], folder).replace(os.sep, '/')})"
        return words

    return LINK.sub(link, text)


def in_the_book() -> set[str]:
    """The files of the repository that are pages of the book, and the tables that its pages hand out."""
    notebooks = {f"notebooks/{path.name}" for path in notebook_paths()}
    tables = {f"data/{path.name}" for path in (ROOT / "data").glob("*.csv")}
    return {*page_names(), *notebooks, *tables}


def page_names() -> list[str]:
    """The pages that the book takes as they are, but for their links."""
    return [*(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))), "data/README.md"]


def notebook_paths() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def chapter_rows() -> list[tuple[str, ...]]:
    """(number, title, file, minutes to read, with exercises, what it is about) of each chapter, by README.md."""
    rows = [found.groups() for found in CHAPTER_ROW.finditer((ROOT / "README.md").read_text("utf-8"))]
    names = [path.stem for path in notebook_paths()]
    if [row[2] for row in rows] != names:
        raise BookError(
            f"README.md: its table of notebooks has {[row[2] for row in rows]}; expected {names}. Give each its row."
        )
    return rows


def chapter_table(folder: str) -> str:
    """The chapters as a list; `folder`: where they are from the page that shows it."""
    lines = [
        f'<li><a href="{folder}{name}.html">{title}</a> <span>{read} min to read, {done} with exercises</span>'
        f"<p>{about}</p></li>"
        for _, title, name, read, done, about in chapter_rows()
    ]
    return '<ol class="lesson-chapters" start="0">\n' + "\n".join(lines) + "\n</ol>"


def pages() -> Iterator[tuple[str, str | bytes]]:
    """(name, content) of all that Sphinx reads, and of the files that pages load."""
    import nbformat

    from chapters import Pictures, chapter
    from docstrings import pages as reference
    from lessonlib.face.widgets.explorer import still_html
    from mathml import font
    from scripts import WIDGETS, classic_script, data_script
    from terms import with_anchors

    index, pictures = (BOOK / "index.md").read_text("utf-8"), Pictures("index", "")
    parts = {"chapters": chapter_table("notebooks/"), "plane": pictures.apart(still_html("plane", {}))}
    for name, part in parts.items():
        index = index.replace(f"<!-- {name} -->", part)
    yield "index.md", index
    yield from pictures.as_files()
    others = "\n".join(page.removesuffix(".md") for page in page_names() if page not in FIRST)
    yield "more.md", (BOOK / "more.md").read_text("utf-8").replace("<!-- others -->", others)
    tree = "\n".join(path.stem for path in notebook_paths())
    hidden = f"\n\n```{{toctree}}\n:hidden:\n{tree}\n```\n"
    yield "notebooks/index.md", f"# Chapters\n\n{chapter_table('')}{hidden}"
    for path in notebook_paths():
        made = chapter(path.stem, nbformat.read(path, as_version=4))
        for cell in made.notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = relinked(cell.source, f"notebooks/{path.name}")
        yield f"notebooks/{path.name}", nbformat.writes(made.notebook)
        yield from made.pictures.as_files()
    for page in page_names():
        text = relinked((ROOT / page).read_text("utf-8"), page)
        yield page, with_anchors(text) if page == "docs/glossary.md" else text
    yield from ((f"data/{path.name}", path.read_bytes()) for path in (ROOT / "data").glob("*.csv"))
    yield from ((f"api/{name}.rst", text) for name, text in reference().items())
    yield "_static/formulas.woff", font()
    yield "_static/lesson.js", classic_script()
    yield "_static/lesson-data.js", data_script()
    yield from ((f"_static/{path.name}", path.read_bytes()) for path in WIDGETS.glob("*.css"))


def prepare() -> None:
    """Write all that Sphinx reads into a folder of its own."""
    shutil.rmtree(PREPARED, ignore_errors=True)
    for name, content in pages():
        path = PREPARED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def build() -> list[str]:
    """Make the book; the warnings of Sphinx, one a line."""
    from sphinx.cmd.build import build_main

    prepare()
    shutil.rmtree(SITE, ignore_errors=True)
    os.environ["LESSON_BOOK"] = str(PREPARED)
    trees = BUILD / "book-trees"
    shutil.rmtree(trees, ignore_errors=True)
    arguments = ["-q", "-b", "html", "-c", BOOK, "-d", trees, "-w", WARNINGS, PREPARED, SITE]
    if code := build_main([str(argument) for argument in arguments]):
        raise BookError(f"Sphinx ended with {code}; its message above says why.")
    for left in NOT_NEEDED:
        for path in SITE.glob(left):
            path.unlink()
    drop_idle_icons()
    return WARNINGS.read_text("utf-8").splitlines()


def drop_idle_icons() -> None:
    """Leave out of the style sheets the icons that no page has and no script may add."""
    files = [*SITE.rglob("*.html"), *SITE.glob("_static/**/*.js")]
    used = {name for file in files for name in ICON_NAME.findall(file.read_text("utf-8"))}
    for path in SITE.glob("_static/styles/*.css"):
        text = path.read_text("utf-8")
        path.write_text(ICON.sub(lambda rule: rule[0] if used & {*ICON_NAME.findall(rule[0])} else "", text), "utf-8")


def archive() -> Path:
    """The book as one file, the same bytes for the same pages."""
    packed = BUILD / "book.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(path for path in SITE.rglob("*") if path.is_file()):
            info = zipfile.ZipInfo(f"book/{path.relative_to(SITE).as_posix()}")
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, path.read_bytes())
    return packed


class Pages(Files):
    """The folder build/: the book, and beside it the live notebooks where they were made."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        if code == 404 and self.path.startswith("/lite/"):
            message, explain = (
                "No live notebooks here",
                "They are a site of their own, build/lite, made by `make lite`.",
            )
        super().send_error(code, message, explain)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the book of the notebooks, in build/book.")
    parser.add_argument("what", nargs="?", choices=("serve", "archive"), help="and then serve it, or pack it")
    parser.add_argument("--port", type=int, default=8000, help="where to serve it (8000)")
    chosen = parser.parse_args(arguments)
    try:
        warnings = build()
    except BookError as error:
        print(error, file=sys.stderr)
        return 1
    count = len(list(SITE.rglob("*.html")))
    print(f"build/book/index.html: {count} pages, {size_of(SITE) / 1e6:.1f} MB, {len(warnings)} warnings")
    if chosen.what == "archive":
        packed = archive()
        print(f"build/{packed.name}: {packed.stat().st_size / 1e6:.1f} MB. Unpack it and open book/index.html.")
    if chosen.what == "serve":
        serve(BUILD, chosen.port, "book/", Pages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
