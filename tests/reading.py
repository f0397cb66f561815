"""The collection as a learner reads it: README, then every notebook from its first cell to its last, in plain text."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import NamedTuple

import nbformat

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PICTURE = re.compile(r"<svg.*?</svg>|data:image/[^\"')]+", re.DOTALL)
BREAKS = re.compile(r"</(?:tr|p|li|h\d|caption|summary|div|figcaption)>|<br ?/?>")
CELLS = re.compile(r"</t[hd]>")
TAG = re.compile(r"<[^>]+>")
# A numeral, with its power of ten, that is no part of a name, a version or a date.
NUMERAL = re.compile(r"(?<![\w.,:/-])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\d.]*\w*[\d_])")


class Passage(NamedTuple):
    """A piece of text, and where it stands: the page, the cell (from 0) and whether it is prose or an output."""

    page: str
    cell: int
    kind: str
    text: str


def plain(html: str) -> str:
    """The words of HTML: a line for each row of a table, a bar between its cells."""
    text = CELLS.sub(" | ", BREAKS.sub("\n", PICTURE.sub(" ", html)))
    return unescape(TAG.sub(" ", text))


def shown(output) -> str:
    """What a reader sees of an output; of a picture its alternative text and caption."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    data = output.data
    if "text/html" in data:
        alt = " ".join(re.findall(r'(?:alt|aria-label)="([^"]*)"', data["text/html"]))
        return f"{unescape(alt)}\n{plain(data['text/html'])}"
    return plain(data.get("text/markdown") or data.get("text/plain", ""))


def passages() -> Iterator[Passage]:
    """All that is read, in order: prose, and what cells show. The code of a cell is its own kind."""
    yield Passage("README.md", 0, "prose", plain((ROOT / "README.md").read_text(encoding="utf-8")))
    for path in NOTEBOOKS:
        for i, cell in enumerate(nbformat.read(path, as_version=4).cells):
            if cell.cell_type == "markdown":
                yield Passage(path.name, i, "prose", plain(cell.source))
            elif cell.cell_type == "code":
                yield Passage(path.name, i, "code", cell.source)
                for output in cell.outputs:
                    yield Passage(path.name, i, "output", shown(output))


def figures(numeral: str) -> int:
    """Significant figures of a numeral: 4 of 102.8, 1 of 300."""
    digits = numeral.split("e")[0].replace(",", "")
    return len((digits.replace(".", "") if "." in digits else digits.rstrip("0")).lstrip("0"))
