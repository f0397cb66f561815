"""Text as a page shows it: names on one line, tables as Markdown and as HTML, nothing in them taken for markup."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from lessonlib.base.checks import a, checked, flag, items, wrong
from lessonlib.base.errors import printable

# What begins mathematics. JupyterLab looks for it in the source and again in the finished page, where an entity is a
# dollar like any other; but never across elements, so each stands in one of its own.
MATHEMATICS = {"$": "<span>&#36;</span>", "\\": "<span>&#92;</span>"}
IN_HTML = str.maketrans(MATHEMATICS)
IN_A_CELL = str.maketrans({"|": "\\|", "<": "&lt;"} | MATHEMATICS)
# What Markdown reads as more than a letter, wherever it stands; HTML; and addresses.
MARKS = {mark: f"\\{mark}" for mark in "`*_{}[]#!|~"}
PLAIN = str.maketrans({**MARKS, "&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", **MATHEMATICS})
ALIGN = {"l": "text-align:left", "r": "text-align:right"}


def one_line(text: str, most: int = 40) -> str:
    """A name from outside as one printable line of at most `most` characters; a control character becomes "?"."""
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 3]}..."


def plain_markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line: its marks escaped, HTML, mathematics and links too."""
    line = printable(" ".join(text.split())).translate(PLAIN)
    return line.replace("://", "&#58;//").replace("www.", "www&#46;")


def plain_html(text: str) -> str:
    """Text that a page shows as it is, between tags: HTML escaped, mathematics too, what cannot be seen spelled out."""
    return escape(_one_line(text)).translate(IN_HTML)


def _one_line(text: str) -> str:
    return printable(" ".join(text.splitlines()).replace("\t", " "))


CELLS = items(a(str, "'1,024'"))


@checked(header=items(a(str, "'seconds'"), least=1), rows=items(CELLS), plain=flag())
def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], plain: bool = False) -> str:
    """A table as Markdown text, of cells that are formatted already: the first column to the left, the others right.

    Markdown inside a cell counts, unless `plain`; a bar, a new line, HTML and mathematics do not: "$" is a dollar.
    Raises InvalidInputError for a cell that is not text, and for a row that has not one for each of `header`.
    """
    rows = list(rows)
    for i, row in enumerate(rows):
        if len(row) != len(header):
            raise wrong("markdown_table", f"rows[{i}]", row, f"{len(header)} cells, as many as the header has")
    said = plain_markdown if plain else _inside_a_cell
    first, *others = [[said(cell) for cell in row] for row in (header, *rows)]
    lines = [first, ["---", *["---:"] * (len(header) - 1)], *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _inside_a_cell(text: str) -> str:
    return _one_line(text).translate(IN_A_CELL)


def html_table(
    rows: Iterable[Sequence[str]],
    align: str,
    *,
    header: Sequence[str] = (),
    caption: str = "",
    named: bool = True,
    bold: bool = False,
    styles: Mapping[str, str] | None = None,
) -> str:
    """A table as HTML, of plain text that `plain_html` makes fit here.

    `align`: "l" or "r" for each column. `named`: the first cell of a row is its header. `bold`: what the other cells
    say. `styles`: further CSS of "table", "tr", "col" (headers of columns), "row" (headers of rows) and "td".
    """
    css = styles or {}

    def tag(name: str, kind: str, inside: str, side: str = "") -> str:
        style = ";".join(filter(None, (ALIGN.get(side), css.get(kind))))
        attributes = (f' scope="{kind}"' if name == "th" else "") + (f' style="{style}"' if style else "")
        return f"<{name}{attributes}>{inside}</{name}>"

    def line(cells: Sequence[str], heads: int, kind: str) -> str:
        said = [
            tag("th", kind, plain_html(cell), align[i])
            if i < heads
            else tag("td", "td", f"<b>{plain_html(cell)}</b>" if bold else plain_html(cell), align[i])
            for i, cell in enumerate(cells)
        ]
        return tag("tr", "tr", "".join(said))

    body = "".join(line(row, int(named), "row") for row in rows)
    head = f"<thead>{line(header, len(header), 'col')}</thead>" if header else ""
    title = tag("caption", "caption", plain_html(caption), "l") if caption else ""
    return tag("table", "table", f"{title}{head}<tbody>{body}</tbody>" if title or head else body)
