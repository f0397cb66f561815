"""Formulas as MathML, which browsers draw by themselves: no script, and they stand there without JavaScript.

Brackets and sums grow only in a font that says how, which not every system has. So the book brings the part of one that
it needs: of DejaVu Serif, which comes with matplotlib and is free to pass on.
"""

import io
import re
from pathlib import Path
from typing import Any

import matplotlib
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from fontTools import subset

FONT = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSerif.ttf"
# ASCII, letters in italics and Greek ones, and the signs of the lesson's formulas.
LETTERS = [*range(0x20, 0x7F), 0x210E, *range(0x1D434, 0x1D468), *range(0x391, 0x3CA), 0x3D5, 0xB1, 0xB7, 0xD7]
SIGNS = [0x2032, *range(0x2190, 0x2195), 0x2202, 0x2208, 0x220F, 0x2211, 0x2212, 0x221A, 0x221E, 0x2248, 0x2260]
SIGNS += [0x2264, 0x2265, 0x226A, 0x226B, *range(0x2308, 0x230C), 0x2026, 0x22C5, 0x22EF]

# The size of a bracket, which in MathML grows by itself.
SIZES = (
    (re.compile(r"\\[Bb]ig+l?(?=[(\[])"), r"\\left"),
    (re.compile(r"\\[Bb]ig+r?(?=[)\]])"), r"\\right"),
)
NAMES = re.compile(r"_\{([a-zA-Z]{2,})\}")  # a word below a letter is one name, not a product of letters
GREEK = re.compile(r"<mi>([\u0370-\u03ff])</mi>")  # upright: few fonts have these in italics
BRACE = re.compile(
    r"<msub>\s*<munder>(.*?)<mo>\u23df</mo>\s*</munder>\s*(<mtext>.*?</mtext>)\s*</msub>", re.DOTALL
)  # a term with its name below: a rule in the place of the brace, which grows in no font


class FormulaError(Exception):
    """A formula that cannot be shown; the message has it."""


def mathml(formula: str, block: bool) -> str:
    """A formula of TeX as an element of MathML."""
    tex = formula
    for size, grows in SIZES:
        tex = size.sub(grows, tex)
    try:
        made = tex2mathml(NAMES.sub(r"_{\\text{\1}}", tex), as_block=block)
    except Exception as error:  # docutils raises several kinds
        raise FormulaError(f"The formula {formula!r} cannot be shown: {error}") from error
    made = GREEK.sub(r'<mi mathvariant="normal">\1</mi>', made)
    return BRACE.sub(r'<munder><mrow class="lesson-named">\1</mrow>\2</munder>', made)


def font() -> bytes:
    """The part of the font that formulas need, with what makes its brackets grow, as WOFF."""
    options = subset.Options(flavor="woff", layout_features=[], notdef_outline=True, name_IDs=[0, 1, 2, 13, 14])
    options.drop_tables = [*options.drop_tables, "FFTM"]  # when it was made, by which program; else a warning
    with subset.load_font(str(FONT), options) as loaded, io.BytesIO() as file:
        chosen = subset.Subsetter(options)
        chosen.populate(unicodes=[*LETTERS, *SIGNS])
        chosen.subset(loaded)
        subset.save_font(loaded, file, options)
        return file.getvalue()


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math" tabindex="0">{mathml(node.astext(), block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
