"""A stored notebook as a chapter of the book: nothing is executed, and no number is touched.

Each output keeps the one form that a page shows best. Questions become forms that the page itself answers, pictures
become files, explorers keep their stills, and what belongs to JupyterLab alone goes: the line of links at head and
foot, and the code of a cell that only asks.
"""

import ast
import base64
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from nbformat import NotebookNode

from cell_code import CellError, parsed
from lessonlib.face.exercises.asking import exported

ASKED = re.compile(r'\bcheck\("([\w-]+)"')
ASKS = re.compile(r'\s*ask\("[\w-]+"\)\s*')
STANDING = re.compile(r'\s*standing\((?:"(\d\d)")?\)\s*')
LINKS = re.compile(r"^previous: .*$\n*", re.MULTILINE)
PICTURE = re.compile(r'src="data:image/png;base64,([^"]+)"')
THEMES = re.compile(r"<style>.*?</style>", re.DOTALL)
FORMS = ("text/html", "text/markdown", "image/png", "text/plain")  # the best first


class ChapterError(Exception):
    """A notebook has something that the book cannot show; the message says what and where."""


@dataclass
class Pictures:
    """The pictures of a page, as files beside it: name to bytes. `up`: the way from the page to the book's root."""

    page: str
    up: str
    files: dict[str, bytes] = field(default_factory=dict)

    def apart(self, html: str) -> str:
        """The HTML with each picture as a file, of a size that is said, so that nothing moves when it comes."""
        return PICTURE.sub(lambda found: self._file(base64.b64decode(found[1])), html)

    def as_files(self) -> Iterator[tuple[str, bytes]]:
        """(name in the book, bytes) of each."""
        yield from ((f"_static/figures/{name}", png) for name, png in self.files.items())

    def _file(self, png: bytes) -> str:
        width, height = struct.unpack(">II", png[16:24])
        name = f"{self.page}-{len(self.files) + 1:02}.png"
        self.files[name] = png
        return f'src="{self.up}_static/figures/{name}" width="{width}" height="{height}" decoding="async"'


@dataclass
class Chapter:
    """A notebook made ready for the book, with the pictures that it needs."""

    name: str
    notebook: NotebookNode
    pictures: Pictures


def chapter(name: str, notebook: NotebookNode) -> Chapter:
    """The notebook `name` (its file's, without .ipynb) as a chapter. The notebook given stays as it is."""
    made = Chapter(name, NotebookNode(notebook.copy()), Pictures(name, "../"))
    made.notebook.metadata = NotebookNode(kernelspec=notebook.metadata.get("kernelspec", {}))
    made.notebook.cells = list(_cells(notebook, made))
    return made


def _cells(notebook: NotebookNode, made: Chapter) -> Iterator[NotebookNode]:
    for cell in notebook.cells:
        found = NotebookNode(cell.copy())
        if cell.cell_type == "code":
            tags = [tag for tag in cell.metadata.get("tags", ()) if tag == "hide-output"]
            found.metadata = NotebookNode(tags=[*tags, *_tags_of_code(cell.source, made.name)])
            found.outputs = list(_outputs(cell, made))
        else:
            found.source = LINKS.sub("", cell.source).rstrip()
            if not found.source:
                continue
        yield found


def _tags_of_code(source: str, where: str) -> list[str]:
    """What happens to the code: a cell that only asks or counts shows none, one that only imports folds it."""
    if ASKS.fullmatch(source) or STANDING.fullmatch(source):
        return ["remove-input"]
    try:
        body = parsed(source, where).body
    except CellError:  # one that is there to fail, as it shows by its output
        return []
    return ["hide-input"] if body and all(isinstance(line, ast.Import | ast.ImportFrom) for line in body) else []


def _outputs(cell: NotebookNode, made: Chapter) -> Iterator[NotebookNode]:
    if found := STANDING.fullmatch(cell.source):
        yield _html(standing_html(found[1] or "", [_text(output) for output in cell.outputs]))
        return
    for output in cell.outputs:
        if output.output_type not in ("display_data", "execute_result"):
            yield output
            continue
        form = next((form for form in FORMS if form in output.data), None)
        if form is None:
            raise ChapterError(f"{made.name}: an output has no form that a page shows: {sorted(output.data)}.")
        text = "".join(output.data[form])
        if form == "text/markdown" and text.startswith("**Question.**"):
            yield _html(question_html(_key(text, cell, made)))
        elif form == "text/html":
            yield _html(made.pictures.apart(THEMES.sub("", text)))
        else:
            yield NotebookNode(output_type="display_data", data=NotebookNode({form: text}), metadata=NotebookNode())


def _key(text: str, cell: NotebookNode, made: Chapter) -> str:
    """The key of the question that an output asks."""
    keys = ASKED.findall(text)
    if len(keys) != 1 or f'ask("{keys[0]}")' not in cell.source:
        raise ChapterError(f"{made.name}: it is not plain which exercise this asks: {text!r}.")
    return keys[0]


def _text(output: NotebookNode) -> str:
    return "".join(output.data["text/plain"])


def _html(text: str) -> NotebookNode:
    return NotebookNode(output_type="display_data", data=NotebookNode({"text/html": text}), metadata=NotebookNode())


def question_html(key: str) -> str:
    """A question as it reads without JavaScript, in the element that the form replaces."""
    exercise = exported(key)
    options = "".join(
        f"<li><b>{letter}</b> {escape(words)}</li>" for letter, words in exercise.get("options", {}).items()
    )
    folded = [(f"Hint {i}", words) for i, words in enumerate(exercise["hints"], 1)]
    folded.append(("Solution", exercise["solution"]))
    details = "".join(f"<details><summary>{name}</summary><p>{escape(words)}</p></details>" for name, words in folded)
    said = f"<p><b>Question.</b> {escape(exercise['question'])}</p>{f'<ul>{options}</ul>' if options else ''}{details}"
    return f'<div class="lesson-ask" id="ask-{key}" data-key="{key}">{said}</div>'


def standing_html(notebook: str, said: list[str]) -> str:
    """Where one stands, in the element that the page fills: how many questions there are, by chapter."""
    lines = "".join(f"<li>{escape(words.partition('.')[0])}.</li>" for words in said)
    return f'<div class="lesson-standing" data-notebook="{notebook}"><ul>{lines}</ul></div>'
