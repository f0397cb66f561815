"""Doors of rooms: a name of a room is loaded when it is first asked for, and what nobody asks for costs nothing.

A door lists its names by imports, for readers and type checkers, and hands them over (PEP 562):

    if TYPE_CHECKING:
        from lessonlib.policy.batching import intensities
    else:
        __getattr__, __dir__ = opened(__name__)
"""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def opened(room: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the room whose door is the module of that name, by the imports in its `if`."""
    door = sys.modules[room]

    @cache
    def files() -> dict[str, str]:
        """Each name of the door, and the file that defines it."""
        tree = ast.parse(door.__loader__.get_source(room))  # type: ignore[union-attr]
        listed = next(node for node in tree.body if isinstance(node, ast.If)).body
        imports = [node for node in listed if isinstance(node, ast.ImportFrom)]
        return {name.name: str(node.module) for node in imports for name in node.names}

    def load(name: str) -> Any:
        if name == "__all__":
            return list(files())
        if name.startswith("__") or name not in files():
            raise AttributeError(f"module {room!r} has no attribute {name!r}", name=name, obj=door)
        value = getattr(import_module(files()[name]), name)
        setattr(door, name, value)  # the next time it is found without asking here
        return value

    return load, lambda: sorted({*vars(door), *files()})
