"""A report as one page: HTML, two columns under its figure, printed on one sheet of A4; and the same as Markdown.

It shows plain text only. Whatever comes from a file (its name, a column, a model) is escaped: none of it becomes HTML
or Markdown. The page loads nothing and runs nothing.
"""

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple
from urllib.parse import quote

from lessonlib.base.units import plain_markdown

USUAL_LINES = 88  # of the report, tables and lists together; the sample has 84

STYLE = """
html{font-size:14px}
body{max-width:68rem;margin:1.6rem auto;padding:0 1.2rem;font-family:system-ui,"DejaVu Sans",Arial,sans-serif;
line-height:1.4;color:#222;background:#fff}
h1{font-size:1.45rem;line-height:1.2;margin:0 0 .5rem;padding-bottom:.3rem;border-bottom:3px solid #0072b2}
h1,li,p{overflow-wrap:anywhere}
h2{font-size:1.02rem;margin:.7rem 0 .2rem;color:#00507e}
div>h2:first-child{margin-top:0}
ul{margin:.2rem 0;padding-left:1.2rem}li{margin:.1rem 0}p{margin:.25rem 0}
div>div :is(p,table,li),figcaption{font-size:.92rem}
table{border-collapse:collapse}
th,td{border-bottom:1px solid #ddd;vertical-align:bottom}
thead th{border-bottom:1.5px solid #777}
@media print,(min-width:900px){tbody th{white-space:nowrap}}
figure img{width:100%}figcaption{color:#444;margin:0 0 .6rem}
@page{size:A4;margin:8mm 11mm}
@media print{body{max-width:none;margin:0;padding:0;line-height:1.3}}
"""


class Block(NamedTuple):
    """A piece of the report. `kind`: "heading", "text", "list", "facts" (a list of lead and rest), "table" (its first
    row names the columns), "figure" (after which there are two columns)."""

    kind: str
    lines: Sequence[Any]


class Picture(NamedTuple):
    png: bytes
    alt: str
    caption: str


def whole_page(title: str, blocks: Sequence[Block]) -> str:
    """The report as an HTML page of its own, its figure inside."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}@media print{{html{{font-size:{_print_size(title, blocks)}pt}}}}"
        "</style></head>\n"
        f"<body><main>{as_html(title, blocks, 1)}</main></body></html>\n"
    )


def _print_size(title: str, blocks: Sequence[Block]) -> float:
    """Points of the letters with which the report, and a long one too, goes on one sheet."""
    lines = len(title) // 50
    for kind, rows in blocks:
        lines += sum(1 + len(row) // 70 for row in rows) if kind in ("list", "text") else len(rows)
    return 7.5 if lines < USUAL_LINES else 6.8


def _in_tag(tag: str, text: str, more: str = "") -> str:
    return f"<{tag}{more}>{escape(text)}</{tag}>"


def _cell(text: str, row: int, column: int) -> str:
    """A cell of a table: a header in its first row and its first column."""
    style = f"text-align:{'right' if column else 'left'};padding:.1em .25em"
    if row and column:
        return _in_tag("td", text, f' style="{style};white-space:nowrap"')
    weight = "normal" if row else "bold"
    return _in_tag("th", text, f' scope="{"row" if row else "col"}" style="{style};font-weight:{weight}"')


def as_html(title: str, blocks: Sequence[Block], level: int) -> str:
    """The report as HTML, its title a heading of `level`. What follows the figure stands in two columns, with room."""
    parts = [_in_tag(f"h{level}", title)]
    open_columns = False
    for kind, lines in blocks:
        if kind == "heading":
            parts.append(_in_tag(f"h{level + 1}", lines[0], ' style="break-after:avoid"'))
        elif kind == "text":
            parts += [_in_tag("p", line) for line in lines]
        elif kind == "list":
            parts.append(f"<ul>{''.join(_in_tag('li', line) for line in lines)}</ul>")
        elif kind == "facts":
            facts = (f"<li>{_in_tag('strong', f'{lead}:')} {escape(rest)}</li>" for lead, rest in lines)
            parts.append(f'<ul style="list-style:none;padding:0;margin:0 0 .6em">{"".join(facts)}</ul>')
        elif kind == "table":
            rows = ["".join(_cell(cell, row, i) for i, cell in enumerate(cells)) for row, cells in enumerate(lines)]
            rows = [f"<tr>{row}</tr>" for row in rows]
            style = ' style="width:100%;table-layout:auto;margin:0 0 .6em;break-inside:avoid"'
            parts.append(f"<table{style}><thead>{rows[0]}</thead><tbody>{''.join(rows[1:])}</tbody></table>")
        else:
            from lessonlib.face.figures.figures import figure_html

            parts += [figure_html(picture.png, picture.alt, picture.caption) for picture in lines]
            parts.append('<div style="columns:2 21rem;column-gap:2rem">')
            open_columns = True
    inside = "\n".join(parts) + ("</div>" if open_columns else "")
    # The classes tell a notebook not to look for formulas between dollar signs.
    return f'<div class="tex2jax_ignore mathjax_ignore">{inside}</div>'


def as_markdown(title: str, blocks: Sequence[Block], picture: str | None) -> str:
    """The report as Markdown. `picture`: the name of the file with its figure; None: the figure in words alone."""
    parts = [f"# {plain_markdown(title)}" if picture else f"### {plain_markdown(title)}"]
    deeper = "##" if picture else "####"
    for kind, lines in blocks:
        if kind == "heading":
            parts.append(f"{deeper} {plain_markdown(lines[0])}")
        elif kind == "text":
            parts += [plain_markdown(line) for line in lines]
        elif kind == "list":
            parts.append("\n".join(f"- {plain_markdown(line)}" for line in lines))
        elif kind == "facts":
            parts.append("\n".join(f"- **{plain_markdown(lead)}:** {plain_markdown(rest)}" for lead, rest in lines))
        elif kind == "table":
            rule = ["---", *["---:"] * (len(lines[0]) - 1)]
            rows = [[plain_markdown(cell) for cell in row] for row in lines]
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])))
        else:
            for _, alt, caption in lines:
                parts.append(
                    f"![{plain_markdown(alt)}]({quote(picture)})" if picture else f"Figure: {plain_markdown(alt)}"
                )
                parts.append(plain_markdown(caption))
    return "\n\n".join(parts) + "\n"
