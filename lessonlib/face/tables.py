"""What a notebook shows in a cell's output, and a terminal prints: a table, or a text in several forms."""

from collections.abc import Iterable, Sequence
from typing import Any

from lessonlib.base.text import markdown_table


def show_forms(forms: dict[str, Any]) -> None:
    """Display one thing in its forms, by their MIME types; without a notebook its "text/plain" is printed."""
    from IPython.core.getipython import get_ipython

    if get_ipython() is None:
        print(forms["text/plain"])
        return
    from IPython.display import display

    display(forms, raw=True)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Display a table: the first column to the left, the others to the right. Cells are text, or become it by str()."""
    text = markdown_table(header, [[str(cell) for cell in row] for row in rows])
    show_forms({"text/markdown": text, "text/plain": text})
