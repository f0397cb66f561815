"""Formulas as MathML, which browsers draw by themselves: nothing to load, and they stand there without JavaScript."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

# The size of a bracket, which in MathML grows by itself.
SIZES = (
    (re.compile(r"\\[Bb]ig+l?(?=[(\[])"), r"\\left"),
    (re.compile(r"\\[Bb]ig+r?(?=[)\]])"), r"\\right"),
)
NAMES = re.compile(r"_\{([a-zA-Z]{2,})\}")  # a word below a letter is one name, not a product of letters


class FormulaError(Exception):
    """A formula that cannot be shown; the message has it."""


def mathml(formula: str, block: bool) -> str:
    """A formula of TeX as an element of MathML."""
    for size, grows in SIZES:
        formula = size.sub(grows, formula)
    try:
        return tex2mathml(NAMES.sub(r"_{\\text{\1}}", formula), as_block=block)
    except Exception as error:  # docutils raises several kinds
        raise FormulaError(f"The formula {formula!r} cannot be shown: {error}") from error


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math" tabindex="0">{mathml(node.astext(), block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
