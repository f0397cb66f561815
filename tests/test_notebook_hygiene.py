"""What every stored notebook keeps to, so that it can be read, checked and trusted without being run."""

import json
import re
import statistics
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import numpy as np
import pytest

import notebooks

FILES = sorted(notebooks.FOLDER.glob("*.ipynb"))
VIEW = "application/vnd.jupyter.widget-view+json"
IGNORE = "nbval-ignore-output"
REASONS = {"widget", "timing", "environment"}
FOLDED = "hide-output"  # of the book; JupyterLab folds by outputs_hidden
TAGS = REASONS | {IGNORE, FOLDED, "raises-exception", "hide-input"}
HEADINGS = ("What you will do", "Where this stops being true", "Sources")
LARGEST = 300_000  # bytes
MOST_CELLS, MOST_WORDS = 50, 1_500  # of a notebook
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PICTURE_DATA = re.compile(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+")
LOCAL_PATH = re.compile(r"(?<![\w.:/])/(?:home|root|Users|tmp|work|private|mnt|opt|srv|var)/|\b[A-Z]:\\\w|file:///")
NAVIGATION = re.compile(r"previous.*\|.*index.*\|.*next", re.IGNORECASE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


class Images(HTMLParser):
    """The alt texts of all <img> of an HTML text; an image without one gives an empty string."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.alts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.alts.append((dict(attrs).get("alt") or "").strip())


def texts(cell) -> Iterator[str]:
    """The source of a cell and all that it shows as text, pictures left out."""
    yield cell.source
    for output in cell.get("outputs", ()):
        yield "".join(output.get("traceback", ())) + output.get("text", "") + output.get("evalue", "")
        for kind, content in output.get("data", {}).items():
            if not kind.startswith("image/"):
                yield PICTURE_DATA.sub("", content if isinstance(content, str) else json.dumps(content))


def lines_of_code(source: str) -> int:
    lines = (line.strip() for line in source.splitlines())
    return sum(1 for line in lines if line and not line.startswith("#"))


def words_of(notebook) -> int:
    """Words of all Markdown, code in it left out; what stands between spaces is one, a formula's terms too."""
    prose = (FENCED.sub(" ", cell.source) for cell in notebook.cells if cell.cell_type == "markdown")
    return sum(len(text.split()) for text in prose)


def output_problems(cell, state) -> Iterator[str]:
    tags = cell.metadata.get("tags", [])
    for output in cell.outputs:
        data = output.get("data", {})
        pictures = [kind for kind in data if kind.startswith("image/")]
        alts = Images(data.get("text/html", "") + data.get("text/markdown", "")).alts
        if pictures and not alts:
            yield f"shows {pictures[0]} without an <img> in HTML beside it"
        if "" in alts:
            yield "shows an <img> without alt text"
        if VIEW in data and data[VIEW]["model_id"] not in state:
            yield "shows a widget whose state is not saved"
        if output.output_type == "error" and "raises-exception" not in tags:
            yield f"stores an error: {output.ename}"
        if output.get("name") == "stderr":
            yield f"stores a message on stderr: {output.text[:80]!r}"


def tag_problems(cell) -> Iterator[str]:
    tags = set(cell.metadata.get("tags", []))
    if tags - TAGS:
        yield f"has the unknown tag {min(tags - TAGS)!r}"
    if (IGNORE in tags) != (len(tags & REASONS) == 1):
        yield f"is tagged {sorted(tags)}: {IGNORE} and one of {sorted(REASONS)} go together"
    if (FOLDED in tags) != bool(cell.metadata.get("jupyter", {}).get("outputs_hidden")):
        yield f"is folded in one place only: the tag {FOLDED!r} and jupyter.outputs_hidden go together"
    if "widget" in tags and not any(VIEW in output.get("data", {}) for output in cell.outputs):
        yield "is tagged 'widget' but shows none"
    if re.search(r"#\s*(NBVAL|PYTEST_VALIDATE)_", cell.source):
        yield "steers nbval by a comment; only tags may"


def markdown_problems(notebook, folder: Path) -> Iterator[str]:
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    if not notebook.cells or not re.match(r"# \S", notebook.cells[0].source):
        yield "does not begin with a title"
    found = set(re.findall(r"^#+ +(.+?) *$", "\n".join(prose), flags=re.MULTILINE))
    for heading in HEADINGS:
        if heading not in found:
            yield f"has no heading {heading!r}"
    if not NAVIGATION.search("\n".join(prose)):
        yield "has no line with previous | index | next"
    for target in LINK.findall("\n".join(prose)):
        file = target.partition("#")[0]
        if file and not re.match(r"\w+:", file) and not (folder / file).exists():
            yield f"links to {target}, which is not there"


def problems(text: str, folder: Path) -> list[str]:
    """All that is wrong with the text of a notebook's file that lies in `folder`."""
    notebook = nbformat.reads(text, as_version=4)
    found = list(markdown_problems(notebook, folder))
    if len(text.encode()) >= LARGEST:
        found.append(f"has {len(text.encode())} bytes; fewer than {LARGEST} are wanted")
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        found.append("does not name the kernel python3")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        found.append(f"was not run from top to bottom: counts {[cell.execution_count for cell in code]}")
    state = notebook.metadata.get("widgets", {}).get(notebooks.WIDGET_STATE, {}).get("state", {})
    for model in state.values():
        if "" in Images(str(model["state"].get("value", ""))).alts:
            found.append("has a widget that shows an <img> without alt text")
    for number, cell in enumerate(notebook.cells):
        said = [f"names the local path {match[0]!r}" for part in texts(cell) if (match := LOCAL_PATH.search(part))]
        if cell.cell_type == "code":
            said += [*output_problems(cell, state), *tag_problems(cell)]
            if cell.source.rstrip().endswith(";"):
                said.append("ends in a semicolon")
        found += [f"cell {number} {what}" for what in said]
    sizes = [lines_of_code(cell.source) for cell in code] or [0]
    if len(notebook.cells) > MOST_CELLS:
        found.append(f"has {len(notebook.cells)} cells; at most {MOST_CELLS} are wanted")
    if (words := words_of(notebook)) > MOST_WORDS:
        found.append(f"has {words:,} words; at most {MOST_WORDS:,} are wanted")
    if statistics.median(sizes) > 4:
        found.append(f"has a median of {statistics.median(sizes)} lines of code in a cell; at most 4 are wanted")
    if (p90 := float(np.percentile(sizes, 90))) > 8:
        found.append(f"has a 90th percentile of {p90:.3g} lines of code in a cell; at most 8 are wanted")
    if not found and notebooks.normalised(notebook) != text:
        found.append("is not stored as `make notebooks` stores it")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_notebook(path):
    assert problems(path.read_text(encoding="utf-8"), path.parent) == []


def test_words_are_those_of_prose():
    prose = nbformat.v4.new_markdown_cell("one two\n\n```python\nthree = 3\n```\n\nfour")
    assert words_of(nbformat.v4.new_notebook(cells=[prose, nbformat.v4.new_code_cell("a b")])) == 3


def test_there_are_notebooks_to_look_at():
    """Parametrised over nothing, the test above would be skipped without a word."""
    assert bool(FILES) == notebooks.FOLDER.exists()


@pytest.fixture
def sample(tmp_path, sample_text):
    (tmp_path / "sample.ipynb").write_text(sample_text, encoding="utf-8")
    return nbformat.reads(sample_text, as_version=4)


def code_cell(notebook, holds):
    return next(cell for cell in notebook.cells if cell.cell_type == "code" and holds in cell.source)


def test_a_good_notebook_has_no_problems(tmp_path, sample, sample_text):
    assert problems(sample_text, tmp_path) == []


def spoil_title(n):
    n.cells[0].source = "Count the dots\n\nprevious | [index](sample.ipynb) | next"


def spoil_heading(n):
    n.cells[1].source = "## What you might do"


def spoil_navigation(n):
    n.cells[0].source = "# Count the dots"


def spoil_link(n):
    n.cells[-1].source += "\n\n[next](07_not_there.ipynb)"


def spoil_size(n):
    n.cells[-1].source += "x" * LARGEST


def spoil_kernel(n):
    n.metadata.kernelspec.name = "my-env"


def spoil_counts(n):
    code_cell(n, "12_800").execution_count = 7


def spoil_run(n):
    code_cell(n, "12_800").execution_count = None


def spoil_alt(n):
    output = code_cell(n, "img").outputs[0]
    output.data["text/html"] = output.data["text/html"].replace("one dot", " ")


def spoil_bundle(n):
    del code_cell(n, "img").outputs[0].data["text/html"]


def spoil_widget_state(n):
    del n.metadata["widgets"]


def spoil_widget_alt(n):
    models = n.metadata.widgets[notebooks.WIDGET_STATE]["state"]
    next(iter(models.values()))["state"]["value"] = '<img src="a.png">'


def spoil_error(n):
    code_cell(n, "1 / 0").metadata.tags = []


def spoil_stderr(n):
    code_cell(n, "nothing").outputs[0].name = "stderr"


def spoil_tag(n):
    code_cell(n, "12_800").metadata.tags = ["nbval-skip"]


def spoil_reason(n):
    code_cell(n, "12_800").metadata.tags = [IGNORE]


def spoil_fold(n):
    code_cell(n, "12_800").metadata.tags = [FOLDED]


def spoil_widget_tag(n):
    code_cell(n, "12_800").metadata.tags = [IGNORE, "widget"]


def spoil_comment(n):
    code_cell(n, "12_800").source += "  # NBVAL_IGNORE_OUTPUT"


def spoil_semicolon(n):
    code_cell(n, "12_800").source += ";"


def spoil_path_in_source(n):
    code_cell(n, "12_800").source += "\nopen('/home/ada/config.json')"


def spoil_path_in_output(n):
    code_cell(n, "nothing").outputs[0].text += "read C:\\Users\\ada"


def spoil_cells(n):
    n.cells += [nbformat.v4.new_markdown_cell(str(number)) for number in range(60)]


def spoil_words(n):
    n.cells[-1].source += " word" * MOST_WORDS


def spoil_median(n):
    for cell in n.cells:
        if cell.cell_type == "code":
            cell.source = "a = 1\n" * 5


def spoil_ninth_decile(n):
    for holds in ("12_800", "nothing"):
        code_cell(n, holds).source = "a = 1\n" * 9


def spoil_format(n):
    n.cells[0].metadata.collapsed = True


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (spoil_title, "title"),
        (spoil_heading, "'What you will do'"),
        (spoil_navigation, "previous | index | next"),
        (spoil_link, "07_not_there"),
        (spoil_size, "bytes"),
        (spoil_kernel, "kernel python3"),
        (spoil_counts, "top to bottom"),
        (spoil_run, "top to bottom"),
        (spoil_alt, "alt text"),
        (spoil_bundle, "without an <img>"),
        (spoil_widget_state, "state is not saved"),
        (spoil_widget_alt, "widget that shows an <img> without alt"),
        (spoil_error, "ZeroDivisionError"),
        (spoil_stderr, "stderr"),
        (spoil_tag, "unknown tag 'nbval-skip'"),
        (spoil_reason, "go together"),
        (spoil_fold, "folded in one place only"),
        (spoil_widget_tag, "shows none"),
        (spoil_comment, "only tags may"),
        (spoil_semicolon, "semicolon"),
        (spoil_path_in_source, "'/home/'"),
        (spoil_path_in_output, "local path"),
        (spoil_cells, "at most 50"),
        (spoil_words, "at most 1,500"),
        (spoil_median, "median of 5"),
        (spoil_ninth_decile, "90th percentile of 9"),
        (spoil_format, "as `make notebooks` stores it"),
    ],
    ids=lambda value: value.__name__.removeprefix("spoil_") if callable(value) else "",
)
def test_each_rule_sees_its_breach(spoil, says, tmp_path, sample):
    spoil(sample)
    found = problems(nbformat.writes(sample) + "\n", tmp_path)
    assert any(says in problem for problem in found), found
