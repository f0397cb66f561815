"""Other spellings of a config: sizes in an object of their own, and sizes by layer."""

import re
from collections.abc import Iterable
from typing import Any

from lessonlib.base.errors import shown
from lessonlib.model.config.keys import Keys
from lessonlib.model.config.not_read import NO_SIZE


def opened(keys: Keys, key: str, names: dict[str, str | None]) -> None:
    """Put the sizes in the object under `key` beside the other keys, by these names; None: without that one."""
    keys.read[key] = value = keys.config.get(key)
    if key not in keys.config:
        keys.defaults_used.append(key)
    if not isinstance(value, dict | None) or not all(isinstance(name, str) for name in value or ()):
        raise keys.wrong(key, value, "an object")
    for name, inner in (value or {}).items():
        other = names.get(name, None if NO_SIZE.fullmatch(name) else name)
        if other is not None and keys.config.get(other, inner) != inner:
            raise keys.wrong(other, keys.config[other], f"{shown(inner)}, as {key!r} says the same thing")
        if other is not None:
            keys.config = keys.config | {other: inner}


def by_layer(keys: Keys, key: str, kinds: str, allowed: Iterable[str]) -> dict[str, Any]:
    """What the object under `key` says for all layers of these kinds, by number of layer; they must be alike."""
    keys.read[key] = value = keys.config.get(key)
    given = list(({} if value is None else value).items()) if isinstance(value, dict | None) else [("", None)]
    numbers = [int(name) if isinstance(name, str) and re.fullmatch("[0-9]{1,8}", name) else -1 for name, _ in given]
    if (
        len(set(numbers)) != len(given)
        or not all(0 <= i < keys.layers for i in numbers)
        or not all(isinstance(sizes, dict) for _, sizes in given)
    ):
        raise keys.wrong(key, value, f"objects by numbers of layers from 0 to {keys.layers - 1}")
    by_number: dict[int, dict[str, Any]] = {i: sizes for i, (_, sizes) in zip(numbers, given, strict=True)}
    found = [by_number.get(i, {}) for i, kind in enumerate(keys.kinds) if kind in kinds]
    for sizes in found:
        if sizes != found[0] or not sizes.keys() <= set(allowed):
            raise keys.refused(key, value, "layers of one kind must be alike, and differ in nothing but sizes")
    return found[0] if found else {}
