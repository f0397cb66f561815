"""A config.json read as data, and refused with the exact place."""

import json
import math
import os
import re
from typing import Any

from lessonlib.base.errors import shown
from lessonlib.base.files import GivenFile

LARGEST_CONFIG = 2**24  # bytes; most have a few thousand, those that list their unquantised layers some millions
LONGEST_INTEGER = 40  # digits; no size of a model needs more, and Python's own limit gives an obscure error


def config_file(source: Any) -> GivenFile:
    smaller = "pass the config.json, not the weights or the tokenizer"
    return GivenFile(source, "Config file", "config.json", LARGEST_CONFIG, smaller)


def read_config(path: str | os.PathLike[str] | bytes) -> dict[str, Any]:
    """A learner's own config.json as a dict, for `Model.from_config`. `path`: the file's, or its bytes, as uploaded.

    Read as data, never executed. NaN and Infinity, which some files have for "no limit", are read; no size of a model
    can be one. Raises InvalidInputError, naming the file and what to do, when it is absent, not a file, over 16 MiB,
    not UTF-8, not JSON, or not one JSON object; or holds a key twice in one object, an integer of more than 40 digits,
    a number too large for a float, or brackets nested too deeply to read.
    """
    file = config_file(path)
    text = file.text()

    def line(token: str) -> str:
        """Where a token first stands outside of a string."""
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', lambda string: " " * len(string[0]), text)
        found = re.search(rf"(?<![\w.+-]){re.escape(token)}(?![\w.])", bare)
        return f" on line {text.count(chr(10), 0, found.start()) + 1}" if found else ""

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
        config = json.loads(text, parse_float=finite, parse_int=integer, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        where = f"{error.msg} on line {error.lineno}, column {error.colno}" if text.strip() else "it is empty"
        file.refuse(f"is not JSON: {where}", "download config.json again as a raw file", error)
    except RecursionError as error:
        file.refuse("nests its brackets too deeply to be a config", "check that it is a config.json", error)
    if not isinstance(config, dict):
        kind = {list: "a list", str: "a string", type(None): "null"}.get(type(config), "a bare value")
        file.refuse(f"holds {kind}, not one JSON object", "pass a config.json, which starts with {")
    return config
