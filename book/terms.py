"""Words of the glossary in a chapter: each is a link where it first stands, and says what it is on hover and focus.

The row of the glossary is the only place where a word is explained. Without JavaScript the link leads there; with it,
`static/book.js` shows the explanation beside the word. Readers of the screen hear it as the link's description.
"""

import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = "docs/glossary"
ROW = re.compile(r"^\| \*\*(.+?)\*\* \| (.+?) \|", re.MULTILINE)
SAID = {"ridge point": "ridge", "decode-heavy workload": "decode-heavy"}  # how prose says a word, where it is shorter
# In these a word is no word of the lesson's, or is a link already.
SKIPPED = (nodes.title, nodes.reference, nodes.literal, nodes.literal_block, nodes.math, nodes.raw, nodes.thead)


class GlossaryError(Exception):
    """docs/glossary.md has no row that can be read."""


class Term(NamedTuple):
    """A word of the glossary, what it is, and the forms in which prose says it."""

    word: str
    text: str
    forms: tuple[str, ...]

    @property
    def anchor(self) -> str:
        return "term-" + re.sub(r"\W+", "-", self.word.lower()).strip("-")


class LessonTerm(nodes.reference):
    """A word that is explained: a link to its row. `tip`: what it is; `tip_id`: of the element that says so."""


@cache
def terms() -> dict[str, Term]:
    """The words of the glossary by each of their forms."""
    found = {}
    for word, text in ROW.findall((ROOT / f"{GLOSSARY}.md").read_text("utf-8")):
        forms = [form.strip() for form in re.split("[()]", word) if form.strip()]
        forms += [SAID[word]] if word in SAID else []
        for form in forms:
            found[form] = Term(word, text, tuple(forms))
    if not found:
        raise GlossaryError(f"{GLOSSARY}.md: no row of the form '| **word** | what it is | ...' was found.")
    return found


@cache
def pattern() -> re.Pattern[str]:
    """Any form of any word, the longest first; capitals count where the form has some."""
    forms = sorted(terms(), key=len, reverse=True)
    each = (re.escape(form) if form != form.lower() else f"(?i:{re.escape(form)})" for form in forms)
    return re.compile(rf"(?<![\w/-])({'|'.join(each)})(?:s|es)?(?![\w/-])(?! by step)")


def with_anchors(page: str) -> str:
    """The glossary's Markdown, each word with the anchor that its links name."""
    by_word = {one.word: one for one in terms().values()}
    return ROW.sub(lambda row: row[0].replace("**", f'<span id="{by_word[row[1]].anchor}"></span>**', 1), page)


def parts(text: str, met: set[str]) -> Iterator[str | tuple[Term, str]]:
    """The text in pieces: as it is, or a word that is met for the first time. `met` grows."""
    at = 0
    for found in pattern().finditer(text):
        one = terms().get(found[1]) or terms()[found[1].lower()]
        if one.word in met:
            continue
        met.add(one.word)
        yield text[at : found.start()]
        yield one, found[0]
        at = found.end()
    yield text[at:]


def _is_prose(text: nodes.Text) -> bool:
    node = text.parent
    while node is not None:
        if isinstance(node, SKIPPED) or "cell" in node.get("classes", ()):
            return False
        node = node.parent
    return True


def mark(app: Any, doctree: nodes.document, docname: str) -> None:
    """Make links of the words that a chapter meets, each once."""
    if not re.match(r"notebooks/\d\d_", docname):
        return
    address, met = app.builder.get_relative_uri(docname, GLOSSARY), set[str]()
    for text in [text for text in doctree.findall(nodes.Text) if _is_prose(text)]:
        made: list[nodes.Node] = []
        for part in parts(text.astext(), met):
            if isinstance(part, str):
                made += [nodes.Text(part)] if part else []
                continue
            one, said = part
            made.append(
                LessonTerm("", said, refuri=f"{address}#{one.anchor}", tip=one.text, tip_id=f"tip-{one.anchor}")
            )
        if any(isinstance(node, LessonTerm) for node in made):
            text.parent.replace(text, made)


def visit(translator: Any, node: LessonTerm) -> None:
    translator.body.append(
        f'<a class="lesson-term" href="{escape(node["refuri"])}" aria-describedby="{node["tip_id"]}">'
    )


def depart(translator: Any, node: LessonTerm) -> None:
    translator.body.append(f'</a><span class="lesson-tip" id="{node["tip_id"]}" hidden>{escape(node["tip"])}</span>')


def setup(app: Any) -> dict[str, bool]:
    app.add_node(LessonTerm, html=(visit, depart))
    app.connect("doctree-resolved", mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
