"""The reference: a page for each room, of the names that its door has, from their docstrings.

The docstrings are plain text: an indented block is an equation, and nothing is markup but `code` and a list.
"""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import lessonlib

# The doors that a reader uses, in the order of the sentence that the rooms make; a page for each.
DOORS = {
    "lessonlib": ("lessonlib",),
    **{room: (f"lessonlib.{room}",) for room in lessonlib.ROOMS if room != "face"},
    "face": tuple(f"lessonlib.face{more}" for more in ("", ".figures", ".widgets", ".report")),
}
MARKS = re.compile(r"([*|\\]|(?<=\w)_(?!\w))")
LITERAL = re.compile(r"`([^`]+)`")


def door(module: str) -> list[str]:
    """The public names of a door: those that its file imports or opens later, in its order."""
    loaded = import_module(module)
    if "__getattr__" in vars(loaded):  # lessonlib.base.door: each name is loaded when it is asked for
        return list(loaded.__all__)
    tree = ast.parse(Path(loaded.__file__ or "").read_text("utf-8"))
    imports = [line for line in tree.body if isinstance(line, ast.ImportFrom)]
    return [name.asname or name.name for line in imports for name in line.names]


def homes() -> dict[int, str]:
    """By the identity of each public thing, the full name under which a room's page describes it."""
    found: dict[int, str] = {}
    rooms = [module for modules in list(DOORS.values())[1:] for module in modules]
    for module in (*rooms, "lessonlib"):  # which itself describes only what no room's door has
        for name in door(module):
            found.setdefault(id(getattr(import_module(module), name)), f"{module}.{name}")
    return found


def pages() -> dict[str, str]:
    """The pages of the reference by name, as reStructuredText."""
    known = homes()
    made = {"index": _index()}
    for page, modules in DOORS.items():
        parts = [_title(page if page == "lessonlib" else f"lessonlib.{page}", "=")]
        for module in modules:
            parts += [] if len(modules) == 1 or module == modules[0] else [_title(module, "-")]
            parts.append(_first_line(module))
            parts += _described(module, known)
        made[page] = "\n\n".join(parts) + "\n"
    return made


def _index() -> str:
    listed = "\n".join(f"   {page}" for page in DOORS)
    rows = "\n".join(
        f"- :doc:`{'lessonlib' if page == 'lessonlib' else f'lessonlib.{page}'} <{page}>`: {_first_line(modules[0])}"
        for page, modules in DOORS.items()
    )
    text = (
        "The library is a house of rooms, which read as a sentence: a model, its work, its time, a request, what "
        "follows; facts; what was measured; the face that a reader sees. Below all lies ``base``. Most names that one "
        "needs are in ``lessonlib`` itself."
    )
    return f"{_title('API reference', '=')}\n\n{text}\n\n{rows}\n\n.. toctree::\n   :hidden:\n\n{listed}\n"


def _title(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}"


def _first_line(module: str) -> str:
    return plain((inspect.getdoc(import_module(module)) or "").partition("\n")[0])


def _says(thing: Any) -> str:
    """The first sentence of a docstring; a dataclass that has none is given its signature, which is left out."""
    text = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.])\s(?=[A-Z])", text)[0]


def _described(module: str, known: dict[int, str]) -> list[str]:
    loaded, found = import_module(module), []
    for name in door(module):
        thing, full = getattr(loaded, name), f"{module}.{name}"
        if known[id(thing)] != full:  # the door of another room has it, too
            role = "class" if inspect.isclass(thing) else "func"
            found.append(f"- :py:{role}:`{name} <{known[id(thing)]}>`: {plain(_says(thing))}")
        elif inspect.isclass(thing):
            found.append(f".. autoclass:: {full}\n   :members:")
        elif inspect.isroutine(thing):
            found.append(f".. autofunction:: {full}")
        else:
            value = f"\n   :value: {thing!r}" if isinstance(thing, str) else ""
            found.append(f".. py:data:: {full}{value}")
    return found


def plain(text: str) -> str:
    """A line of plain text as reStructuredText that shows it; `code` stays code."""
    pieces = LITERAL.split(text)
    return "".join(f"``{piece}``" if i % 2 else MARKS.sub(r"\\\1", piece) for i, piece in enumerate(pieces))


def as_rest(lines: list[str]) -> list[str]:
    """A docstring as reStructuredText: its equations as they stand, all else as text."""
    made: list[str] = []
    inside = False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not inside:
            made += [*([] if not made or made[-1] == "" else [""]), "::", ""]
        elif inside and line and not indented:
            made += [] if made[-1] == "" else [""]
        inside = indented or (inside and not line)
        made.append(line if indented else plain(line))
    return made


def _convert(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rest(lines)


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _convert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
