"""The accessor through which every key of a config is read: it checks the value, and remembers that it was read."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from functools import cache
from typing import Any

import numpy as np

from lessonlib.base.checks import REFUSED, Rule, count, optional
from lessonlib.base.errors import InvalidInputError, LessonError, UnsupportedModelError, shown
from lessonlib.model.config.family import Family, Switch

LARGEST_NUMBER = 10**9


@contextmanager
def no_deeper() -> Iterator[None]:
    """Turn the error of Python for a value that is nested too deeply into one of ours."""
    try:
        yield
    except RecursionError:
        raise InvalidInputError("config: a value is nested too deeply; expected a config.json as published.") from None


def require_parsed(value: Any, name: str = "config") -> None:
    """InvalidInputError unless `value` is what parsing a config.json gives: objects, lists, texts, numbers, null."""
    if name == "config" and not isinstance(value, dict):
        raise InvalidInputError(
            f"config is a {type(value).__name__}; expected the parsed object of a config.json, a dict."
        )
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidInputError(f"A key of {name} is {shown(key)}; expected texts, as in a config.json.")
            require_parsed(inner, f"{name}[{key!r}]")
    elif isinstance(value, list | tuple):
        for inner in value:
            require_parsed(inner, name)
    elif value is not None and not isinstance(value, str | int | float | np.generic):
        raise InvalidInputError(f"{name} holds {shown(value)}; expected what a config.json may hold.")


@cache
def _size_or_null(least: int) -> Rule:
    return optional(count(least, LARGEST_NUMBER))


class Keys:
    """One config.json and its family. It hands out checked values, and remembers which keys were read or absent.

    A key may be written "a|b": names of one thing, which must agree where both are there. `width`, `layers`,
    `window` and `kinds` are known once the reader has come to them.
    """

    def __init__(self, config: dict[str, Any], owner: str, family: Family, class_is_known: bool):
        self.config, self.owner, self.family, self.class_is_known = config, owner, family, class_is_known
        self.read: dict[str, Any] = {}
        self.defaults_used: list[str] = []
        self.width = self.layers = 0
        self.window: int | None = None
        self.kinds: list[str] = []

    def wrong(self, key: str, value: Any, expected: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self.owner}: missing or contradictory config key {key.split('|')[0]!r}: it is {shown(value)}; "
            f"expected {expected}."
        )

    def refused(self, key: str, value: Any, why: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self.owner}: key {key.split('|')[0]!r} is {shown(value)}: {why}; not read, so refused."
        )

    def value(self, key: str) -> Any:
        """The raw value, or the family's class default; UnsupportedModelError when there is neither."""
        names = key.split("|")
        given = [(name, self.config[name]) for name in names if name in self.config]
        if not given and not (self.class_is_known and names[0] in self.family.defaults):
            raise UnsupportedModelError(
                f"{self.owner}: key {names[0]!r} is absent, and the value that its class takes then is not known; "
                f"add {names[0]!r} to the config."
            )
        value = given[0][1] if given else self.family.defaults[names[0]]
        for name, other in given:
            if other != value and not (other is None or value is None):
                raise self.wrong(name, other, f"{shown(value)}, as {given[0][0]!r} says the same thing")
            value = other if value is None else value
        self.read.update(dict.fromkeys(names, value))
        if not given:
            self.defaults_used.extend(name for name in names if name not in self.defaults_used)
        return value

    def optional(self, key: str, least: int = 1) -> int | None:
        """The value as an int, None if it is null; InvalidInputError for anything else."""
        value = self.value(key)
        rule = _size_or_null(least)
        turned = rule.turn(value)
        if turned is REFUSED:
            raise self.wrong(key, value, rule.expected)
        return turned

    def count(self, key: str, least: int = 1) -> int:
        """The value as an int; null is refused."""
        value = self.optional(key, least)
        if value is None:
            raise self.refused(key, None, "its size is not stated")
        return value

    def derived(self, key: str | None, otherwise: int) -> int:
        """The value of a key that may be null, `otherwise` if it is, or if the family has no such key."""
        value = self.optional(key) if key else None
        if value is None and key and self.family.defaults.get(key.split("|")[0], key) is not None:
            raise self.refused(key, None, "its class has no rule for that")
        return otherwise if value is None else value

    def switch(self, switch: Switch) -> bool:
        value = switch if isinstance(switch, bool) else self.value(switch)
        if not isinstance(value, bool):
            raise self.wrong(str(switch), value, "true or false")
        return value

    def listed(self, key: str, length: int, words: Iterable[str]) -> list[str] | None:
        """A list of `length` of these words, or None when the key is absent (then it is noted) or null."""
        self.read[key] = value = self.config.get(key)
        if value is None:
            if key not in self.config and key not in self.defaults_used:
                self.defaults_used.append(key)
            return None
        if not isinstance(value, list) or len(value) != length:
            raise self.wrong(key, value, f"a list of {length} words, one a layer")
        for word in value:
            if not isinstance(word, str) or word not in words:
                raise self.refused(key, word, "a kind of layer that this family does not have")
        return value

    def indices(self, key: str, first: int = 0) -> set[int]:
        """A list of layer numbers as a set counted from 0 (null: none); `first` is the number of the first layer."""
        value = self.value(key)
        value = self.family.defaults.get(key) or [] if value is None else value
        whole = isinstance(value, list) and all(type(i) is int and 0 <= i - first < self.layers for i in value)
        if not whole:
            raise self.wrong(key, value, f"a list of layer numbers from {first} to {self.layers - 1 + first}")
        return {i - first for i in value}

    def inside(self, key: str) -> "Keys":
        """The keys of the object under `key`, or of an empty one; they have no defaults."""
        self.read[key] = value = self.config.get(key)
        if not isinstance(value, dict | None):
            raise self.wrong(key, value, "an object")
        inner = Keys(value or {}, f"{self.owner}, in {key!r}", self.family, False)
        inner.layers = self.layers
        return inner

    def where(self, values: dict[str, Any]) -> "Keys":
        """The same config with other values, as single layers may have them; what is read of it counts as read."""
        other = copy(self)
        other.config = self.config | values
        return other

    def mark_read(self, rule: Callable[["Keys", Any], Any], what: Any) -> None:
        """Count as read what `rule` reads of `what`: sizes of parts that no layer has may stand in a config."""
        trial = copy(self)
        trial.defaults_used = []
        with suppress(LessonError):
            rule(trial, what)
