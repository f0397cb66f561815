"""What Python in a browser cannot do (Pyodide, as in JupyterLite): it has no processes, no threads and no sockets.

So nothing can be timed there. Each timing says so before it begins, and what there is to show instead.
"""

import sys

from lessonlib.base.errors import LessonError


def in_browser() -> bool:
    """Whether this Python runs in a browser."""
    return sys.platform == "emscripten"


def refuse_in_browser(owner: str, instead: str, kind: type[LessonError]) -> None:
    """In a browser raise `kind`: what `owner` would need, and that `instead` is what there is. Elsewhere nothing."""
    if in_browser():
        raise kind(
            f"{owner}: this Python runs in a browser, where it has no processes, no threads and no sockets. "
            f"Nothing can be timed here: {instead}, or time your own machine in JupyterLab (make lab)."
        )
