"""The code of a notebook's cell as Python's own tree, where it begins with IPython's % or !, too."""

import ast

from IPython.core.inputtransformer2 import TransformerManager


class CellError(Exception):
    """A cell is no Python and nothing that IPython takes; the message says which, and where."""


def parsed(source: str, where: str) -> ast.Module:
    """The tree of a cell's code; a %magic or a !command is the call that IPython makes of it. `where`: the notebook.

    Of a cell for another language, such as %%bash, it is empty. Raises CellError where IPython could not run it either.
    """
    first, _, rest = source.partition("\n")
    if first.startswith("%%"):
        try:
            return parsed(rest, where)
        except CellError:
            return ast.Module([], [])
    try:
        return ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError as error:
        line = (error.text or "").strip() or source.partition("\n")[0]
        raise CellError(
            f"{where}: a code cell is no Python, at the line {line!r} ({error.msg}); expected what a kernel can run. "
            "Mend the cell, or make it one of Markdown."
        ) from None
