"""The scripts of the book: modules as one classic script, which a page may also load from a folder (`file://`).

Browsers refuse modules, and `fetch`, where the address of a page begins with `file:`. So the modules that notebooks use
are put into one function each, and what they export becomes `window.lesson`; the data is a script, too.
"""

import json
import re
from pathlib import Path
from typing import Any

import lessonlib
from lessonlib.face.exercises.asking import all_exercises, exported
from lessonlib.face.widgets.explorer_data import explorer_data

WIDGETS = Path(lessonlib.__file__).parent / "face" / "widgets"
MODULES = ("explorer.js", "ask.js")  # where both export a name, that of the later one stays
EXPORTED = re.compile(r"^export ((?:async )?(?:function\*?|class|const|let) +(\w+))", re.MULTILINE)
SEVERAL = re.compile(r"^export ((?:const|let) [\[{]([\w\s,]*)[\]}])", re.MULTILINE)
DEFAULT = re.compile(r"^export default ", re.MULTILINE)
LIST = re.compile(r"^export \{([\w\s,]*)\};?$", re.MULTILINE)
LEFT = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


class ScriptError(Exception):
    """A module cannot be a classic script; the message names the line."""


def in_a_function(source: str, name: str) -> str:
    """A module as an expression: a function that is called at once and gives what the module exports."""
    names = [found[1] for found in EXPORTED.findall(source)]
    lists = [*LIST.findall(source), *(found[1] for found in SEVERAL.findall(source))]
    names += [word for found in lists for word in re.findall(r"\w+", found)]
    source = SEVERAL.sub(r"\1", source)
    source = DEFAULT.sub("const anywidget = ", LIST.sub("", EXPORTED.sub(r"\1", source)))
    if left := LEFT.search(source):
        raise ScriptError(f"{name}: a classic script cannot have the line {left[0]!r}; export a name where it is made.")
    return f"(() => {{\n{source}\nreturn {{ {', '.join(names)} }};\n}})()"


def classic_script() -> str:
    """explorer.js and ask.js as one script: it sets `window.lesson` to what they export."""
    parts = [f"Object.assign(lesson, {in_a_function((WIDGETS / name).read_text('utf-8'), name)});" for name in MODULES]
    return "\n".join(['(() => {\n"use strict";\nconst lesson = {};', *parts, "window.lesson = lesson;\n})();\n"])


def lesson_data() -> dict[str, Any]:
    """What explorers and questions of the book need: the explorers' data, and every exercise worked out, by key."""
    return {**explorer_data(), "exercises": {key: exported(key) for key in all_exercises()}}


def data_script() -> str:
    """lesson_data as a script: it sets `window.lessonData`."""
    text = json.dumps(lesson_data(), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return f"window.lessonData = {text};\n"
