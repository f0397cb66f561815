"""A report as one page: HTML, two columns under its figure, printed on one sheet of A4; and the same as Markdown.

It shows plain text only. Whatever comes from a file (its name, a column, a model) is escaped: none of it becomes HTML
or Markdown. The page loads nothing and runs nothing.
"""

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple
from urllib.parse import quote

from lessonlib.base.errors import printable
from lessonlib.base.text import html_table, markdown_table, plain_html, plain_markdown

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


class Section(NamedTuple):
    """A piece of the report. `kind`: "heading", "text", "list", "facts" (a list of lead and rest), "table" (its first
    row names the columns), "figure" (after which there are two columns)."""

    kind: str
    lines: Sequence[Any]


class Picture(NamedTuple):
    png: bytes
    alt: str
    caption: str


def whole_page(title: str, sections: Sequence[Section]) -> str:
    """The report as an HTML page of its own, its figure inside."""
    style = f"{STYLE}@media print{{html{{font-size:{_print_size(title, sections)}pt}}}}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        f"<title>{escape(printable(title))}</title><style>{style}</style></head>\n"
        f"<body><main>{as_html(title, sections, 1)}</main></body></html>\n"
    )


def _print_size(title: str, sections: Sequence[Section]) -> float:
    """Points of the letters with which the report, and a long one too, goes on one sheet."""
    lines = len(title) // 50
    for kind, rows in sections:
        lines += sum(1 + len(row) // 70 for row in rows) if kind in ("list", "text") else len(rows)
    return 7.5 if lines < USUAL_LINES else 5.9


def _in_tag(tag: str, text: str, more: str = "") -> str:
    return f"<{tag}{more}>{plain_html(text)}</{tag}>"


CELL = "padding:.1em .25em"
TABLE = {
    "table": "width:100%;table-layout:auto;margin:0 0 .6em;break-inside:avoid",
    "col": f"{CELL};font-weight:bold",
    "row": f"{CELL};font-weight:normal",
    "td": f"{CELL};white-space:nowrap",
}


def as_html(title: str, sections: Sequence[Section], level: int) -> str:
    """The report as HTML, its title a heading of `level`. What follows the figure stands in two columns, with room."""
    parts = [_in_tag(f"h{level}", title)]
    open_columns = False
    for kind, lines in sections:
        if kind == "heading":
            parts.append(_in_tag(f"h{level + 1}", lines[0], ' style="break-after:avoid"'))
        elif kind == "text":
            parts += [_in_tag("p", line) for line in lines]
        elif kind == "list":
            parts.append(f"<ul>{''.join(_in_tag('li', line) for line in lines)}</ul>")
        elif kind == "facts":
            facts = (f"<li>{_in_tag('strong', f'{lead}:')} {plain_html(rest)}</li>" for lead, rest in lines)
            parts.append(f'<ul style="list-style:none;padding:0;margin:0 0 .6em">{"".join(facts)}</ul>')
        elif kind == "table":
            header, *rows = lines
            parts.append(html_table(rows, "l" + "r" * (len(header) - 1), header=header, styles=TABLE))
        else:
            from lessonlib.face.figures.style import figure_html

            parts += [figure_html(*lines[0]), '<div style="columns:2 21rem;column-gap:2rem">']
            open_columns = True
    inside = "\n".join(parts) + ("</div>" if open_columns else "")
    return f"<div>{inside}</div>"


def as_markdown(title: str, sections: Sequence[Section], picture: str | None) -> str:
    """The report as Markdown. `picture`: the name of the file with its figure; None: the figure in words alone."""
    plain, (mark, deeper) = plain_markdown, ("#", "##") if picture else ("###", "####")
    parts = [f"{mark} {plain(title)}"]
    for kind, lines in sections:
        if kind == "heading":
            parts.append(f"{deeper} {plain(lines[0])}")
        elif kind == "text":
            parts += map(plain, lines)
        elif kind == "list":
            parts.append("\n".join(f"- {plain(line)}" for line in lines))
        elif kind == "facts":
            parts.append("\n".join(f"- **{plain(lead)}:** {plain(rest)}" for lead, rest in lines))
        elif kind == "table":
            parts.append(markdown_table(lines[0], lines[1:], plain=True))
        else:
            ((_, alt, caption),) = lines
            parts += [f"![{plain(alt)}]({quote(picture)})" if picture else f"Figure: {plain(alt)}", plain(caption)]
    return "\n\n".join(parts) + "\n"
