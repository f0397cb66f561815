"""A table as a notebook shows it."""

from collections.abc import Iterable, Sequence

from lessonlib.base.checks import Rule, checked, items
from lessonlib.base.text import markdown_table


@checked(rows=items(items(Rule("a text, or what becomes one", lambda cell: cell))))
def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Display a table: the first column to the left, the others to the right. Cells are text, or become it by str().

    Without a notebook it is printed as Markdown.
    """
    from IPython.core.getipython import get_ipython

    text = markdown_table(header, [[str(cell) for cell in row] for row in rows])
    if get_ipython() is None:
        print(text)
        return
    from IPython.display import Markdown, display

    display(Markdown(text))
