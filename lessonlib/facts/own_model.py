"""A learner's own config.json: read as data, refused with the exact place, and made a Model under its own name."""

import json
import math
import os
import re
from pathlib import Path
from typing import Any, NoReturn

from lessonlib.base.errors import LessonError, shown
from lessonlib.base.files import GivenFile, Upload
from lessonlib.base.text import one_line
from lessonlib.model.model import Model

LARGEST_CONFIG = 2**20  # bytes; published files have a few thousand
LONGEST_INTEGER = 40  # digits; no size of a model needs more, and Python's own limit gives an obscure error


def _config_file(source: Any) -> GivenFile:
    smaller = "pass the config.json, not the weights or the tokenizer"
    return GivenFile(source, "Config file", "config.json", LARGEST_CONFIG, smaller)


def read_config(path: str | os.PathLike[str] | bytes) -> dict[str, Any]:
    """A learner's own config.json as a dict, for `Model.from_config`. `path`: the file's, or its bytes, as uploaded.

    Read as data, never executed. Raises InvalidInputError, naming the file and what to do, when it is absent, not a
    file, over 1 MiB, not UTF-8, not JSON, or not one JSON object; or holds NaN or Infinity, a key twice in one object,
    an integer of more than 40 digits, or brackets nested too deeply to read.
    """
    file = _config_file(path)
    text = file.text()

    def line(token: str) -> str:
        """Where a token first stands outside of a string."""
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', lambda string: " " * len(string[0]), text)
        found = re.search(rf"(?<![\w.+-]){re.escape(token)}(?![\w.])", bare)
        return f" on line {text.count(chr(10), 0, found.start()) + 1}" if found else ""

    def refuse_constant(constant: str) -> NoReturn:
        file.refuse(f"holds {constant}{line(constant)}, which is not JSON", "replace it by a finite number or null")

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            file.refuse(f"holds {shown(digits)}{line(digits)}, which is too large", "replace it by a number or null")
        return number

    def integer(digits: str) -> int:
        if len(digits.lstrip("-")) > LONGEST_INTEGER:
            problem = f"holds an integer of {len(digits)} characters{line(digits)}"
            file.refuse(problem, f"give at most {LONGEST_INTEGER} digits")
        return int(digits)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                file.refuse(f"has the key {shown(key)} twice in one object", "keep the one that is meant")
            result[key] = value
        return result

    try:
        config = json.loads(
            text, parse_constant=refuse_constant, parse_float=finite, parse_int=integer, object_pairs_hook=once
        )
    except json.JSONDecodeError as error:
        where = f"{error.msg} on line {error.lineno}, column {error.colno}" if text.strip() else "it is empty"
        file.refuse(f"is not JSON: {where}", "download config.json again as a raw file", error)
    except RecursionError as error:
        file.refuse("nests its brackets too deeply to be a config", "check that it is a config.json", error)
    if not isinstance(config, dict):
        kind = {list: "a list", str: "a string", type(None): "null"}.get(type(config), "a bare value")
        file.refuse(f"holds {kind}, not one JSON object", "pass a config.json, which starts with {")
    return config


def own_model(source: Any, like: str | None = None) -> Model:
    """The model of a config.json, a path or an Upload, under the name that it has in the file or outside.

    `like`: the family, for an architecture that has another's shape and a name of its own.
    """
    if isinstance(source, bytes) and not isinstance(source, Upload):
        source = Upload(source, "config.json")
    config = read_config(source)
    try:
        return Model.from_config(config, like=like, name=_model_name(config, source))
    except LessonError as error:
        raise type(error)(f"{_config_file(source)}: {error}") from error


def _model_name(config: dict[str, Any], source: Any) -> str:
    """What the config calls itself; or the file's name, its folder's where that is config.json; or its family's."""
    path = Path(source.name if isinstance(source, Upload) else source)
    called = config.get("_name_or_path")
    names = (
        called.replace("\\", "/").rstrip("/").split("/")[-1] if isinstance(called, str) else "",
        path.stem if path.stem.split(" ")[0] != "config" else path.parent.name,
        f"your {config.get('model_type')}" if isinstance(config.get("model_type"), str) else "your model",
    )
    return one_line(next(name for name in names if name.strip(" .")), 200)
