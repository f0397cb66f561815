"""Checks as data: a rule says what a value must be, and every refusal is one form of sentence.

    {owner}: {name} is {value}; expected {what is expected}; {what to do}.

A function states its rules with `@checked(deployment=a(Deployment), batch=count())`, a dataclass with `Checked` and a
table `rules`. Both pass on what a rule turns a value into: a whole 3.0 becomes the int 3, a list a float64 array. Each
rule carries values that it takes and values that it refuses, so the tests of refusals are made from the rules.
"""

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from types import MappingProxyType
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np

from lessonlib.base.errors import InvalidInputError, LessonError, as_numbers, is_number, shown

P = ParamSpec("P")
R = TypeVar("R")

REFUSED: Any = object()  # what `turn` returns for a value that cannot be meant
LARGEST = sys.float_info.max
ABOVE_ZERO = math.ulp(0.0)  # the smallest float above zero, so that a bound may be included always
NOT_A_NUMBER = (math.nan, "1", None, True, np.True_, [1], np.array([1.0, 2.0]), 1j, 10**400)  # beyond all floats
MASKED: Any = np.ma.masked_equal([1, 2], 2)
HIDING = ([1, True], [[1, np.True_]], [np.array([True]), [2]], np.array([True]), MASKED, [np.ma.masked, 2])
NOT_NUMBERS: tuple[Any, ...] = ("1", None, True, {}, [[1], [1, 2]], [10**400, 1], np.array("now", "M8[s]"), *HIDING)


def wrong(
    owner: str, name: str, value: Any, expected: str, remedy: str = "", error: type[LessonError] = InvalidInputError
) -> LessonError:
    """The error to raise for one wrong value: the one place where its sentence is made."""
    return error(f"{owner}: {name} is {shown(value)}; expected {expected}{'; ' if remedy else ''}{remedy}.")


@dataclass(frozen=True, eq=False)
class Rule:
    """What a value must be. Called with the owner's name, the value's name and the value, it returns the value to keep.

    `turn` gives that value, or REFUSED. `expected` says in words what is taken, `remedy` what to do. `part` finds the
    part of a value that is wrong, as `fault` returns it: the second of several points. `kind` is the class of which an
    instance is asked for, if one is. `good` and `bad` are values to test the rule with.
    """

    expected: str
    turn: Callable[[Any], Any]
    good: tuple[Any, ...] = ()
    bad: tuple[Any, ...] = ()
    kind: type | None = None
    remedy: str = ""
    part: Callable[[str, Any], tuple[str, Any, str] | None] = lambda name, value: None
    error: type[LessonError] = InvalidInputError

    def __call__(self, owner: str, name: str, value: Any) -> Any:
        turned = self.turn(value)
        if turned is REFUSED:
            raise wrong(owner, *self.fault(name, value), self.remedy, self.error)
        return turned

    def fault(self, name: str, value: Any) -> tuple[str, Any, str]:
        """Of a value that is refused: the name of what is wrong, that itself, and what was expected."""
        return self.part(name, value) or (name, value, self.expected)


def a(kind: type, example: str = "") -> Rule:
    """An instance of `kind`; `example` is how to make one."""
    article = "an" if kind.__name__[0] in "AEIOUaeiou" else "a"
    others: tuple[Any, ...] = (None, 12, "a word", ("a", 1), [], kind)
    bad = tuple(value for value in others if not isinstance(value, kind))
    return Rule(
        f"{article} {kind.__name__}{', such as ' if example else ''}{example}",
        lambda value: value if isinstance(value, kind) else REFUSED,
        bad=bad,
        kind=kind,
    )


def count(least: int = 1, most: int | None = None) -> Rule:
    """A whole number, as an int."""
    largest = int(LARGEST) if most is None else most

    def turn(value: Any) -> Any:
        if type(value) is int:  # the usual case, and the fast one
            return value if least <= value <= largest else REFUSED
        whole = int(value) if is_number(value) else None
        return whole if whole is not None and whole == value and least <= whole <= largest else REFUSED

    good: tuple[Any, ...] = (least, float(least), np.int64(least))
    bad = (least - 1, least - 2, least + 0.5, -math.inf, math.inf, *NOT_A_NUMBER)
    if most is None:
        return Rule(f"a whole number of at least {least:,}", turn, good, bad)
    return Rule(f"a whole number from {least:,} to {most:,}", turn, (*good, most), (*bad, most + 1))


def _real(least: float, most: float, expected: str) -> Rule:
    """A number from `least` to `most`, both included, as a float."""

    def turn(value: Any) -> Any:
        number = float(value) if isinstance(value, float) or is_number(value) else math.nan
        return number if least <= number <= most else REFUSED

    good = (most, max(least, min(1.0, most)), *(() if most < 1 else (1, np.float32(1))))
    bad = (math.nextafter(least, -math.inf), least - 1, -math.inf, *NOT_A_NUMBER)
    return Rule(expected, turn, good, bad if most == math.inf else (*bad, math.nextafter(most, math.inf)))


def rate(unit: str, zero: bool = False, infinite: bool = False) -> Rule:
    """A positive number of `unit`, finite unless `infinite`, as a float; `zero` takes 0 as well."""
    kind = "number" if infinite else "finite number"
    least = "zero or more" if zero else "more than zero"
    return _real(0.0 if zero else ABOVE_ZERO, math.inf if infinite else LARGEST, f"a {kind} of {unit}, {least}")


def between(least: float, most: float, unit: str) -> Rule:
    """A number of `unit` from `least` to `most`, as a float."""
    return _real(least, most, f"a number of {unit} from {least:g} to {most:g}")


def fraction(zero: bool = False) -> Rule:
    """A number above 0 (from 0, if `zero`) and at most 1, as a float."""
    expected = "from 0 to 1" if zero else "more than 0 and at most 1"
    return _real(0.0 if zero else ABOVE_ZERO, 1.0, f"a fraction {expected}")


def flag() -> Rule:
    """True or False, as a bool; what merely counts as one is refused."""
    return Rule(
        "True or False",
        lambda value: bool(value) if isinstance(value, bool | np.bool_) else REFUSED,
        good=(True, False, np.True_),
        bad=(None, 0, 1, "True", [], [True], np.array(True)),
    )


def choice(words: Iterable[str], error: type[LessonError] = InvalidInputError) -> Rule:
    """One of some words."""
    known = tuple(words)
    return Rule(
        f"one of {', '.join(known)}",
        lambda value: value if isinstance(value, str) and value in known else REFUSED,
        good=known,
        bad=(None, 1, True, "", "a word", known[0] + " ", known[0].encode(), [known[0]], []),
        error=error,
    )


def text(example: str = "", error: type[LessonError] = InvalidInputError) -> Rule:
    """A string that is not empty."""
    return Rule(
        f"a text{', such as ' if example else ''}{example}",
        lambda value: value if isinstance(value, str) and value else REFUSED,
        good=("a word",),
        bad=(None, 1, "", b"a word", ["a word"]),
        error=error,
    )


def numbers(
    least: float = -LARGEST, most: float = LARGEST, whole: bool = False, holes: bool = False, flat: bool = False
) -> Rule:
    """A number or an array-like of numbers from `least` to `most`, as a float64 array, read-only.

    `holes`: NaN in an array is taken, as the mark of a cell that has no number. `flat`: of one dimension at most. An
    infinite bound takes infinity.
    """

    def outside(array: Any) -> Any:
        misses = ~((array >= least) & (array <= most))
        if whole:
            misses |= array != np.floor(array)
        return misses & ~np.isnan(array) if holes and array.ndim else misses

    def turn(value: Any) -> Any:
        array = as_numbers(value)
        return REFUSED if array is None or (flat and array.ndim > 1) or outside(array).any() else array

    def part(name: str, value: Any) -> tuple[str, Any, str] | None:
        array = as_numbers(value)
        misses = None if array is None or not array.ndim else outside(array)
        if misses is None or not misses.any():
            return None
        cell = np.unravel_index(np.argmax(misses), array.shape)
        return f"{name}[{', '.join(str(i) for i in cell)}]", array[cell].item(), each

    low = "above 0" if least == ABOVE_ZERO else "" if least <= -LARGEST else f"of at least {least:,.10g}"
    limits = f"from {least:,.10g} to {most:,.10g}" if low and most < LARGEST else low
    each = f"a {'whole ' if whole else ''}number {limits}".rstrip()
    expected = f"{each}, or {'a list' if flat else 'an array'} of them"
    inside = max(least, min(1.0, most))
    ends = ((least, -math.inf), (most, math.inf))
    misses = [math.nan, *(math.nextafter(end, far) for end, far in ends if end != far)]
    misses += [inside + 0.5] if whole else []
    bad = (*NOT_NUMBERS, *misses, *([inside, miss] for miss in misses if not (holes and math.isnan(miss))))
    table = np.array([[inside, inside]])
    good = (inside, [inside, inside], *(() if flat else (table,)))
    return Rule(expected, turn, good, (*bad, *((table,) if flat else ())), part=part)


def items(rule: Rule, least: int = 0) -> Rule:
    """At least `least` values that each follow `rule`, as a tuple."""

    def listed(value: Any) -> tuple[Any, ...] | None:
        alone = isinstance(value, str | bytes) or (isinstance(value, np.ndarray) and not value.ndim)
        return tuple(value) if isinstance(value, Iterable) and not alone else None

    def turn(value: Any) -> Any:
        found = listed(value)
        turned = REFUSED if found is None or len(found) < least else tuple(rule.turn(item) for item in found)
        return REFUSED if turned is REFUSED or any(item is REFUSED for item in turned) else turned

    def part(name: str, value: Any) -> tuple[str, Any, str] | None:
        misses = ((i, item) for i, item in enumerate(listed(value) or ()) if rule.turn(item) is REFUSED)
        return next((rule.fault(f"{name}[{i}]", item) for i, item in misses), None)

    good = ([rule.good[0]] * max(least, 1), (rule.good[-1],) * (least + 1)) if rule.good else ()
    bad: tuple[Any, ...] = (None, 12, "12", np.array(1.0), *([*rule.good[:1], miss] for miss in rule.bad))
    bad = (*bad, [], [*rule.good[:1]] * (least - 1)) if least else bad
    expected = f"{f'{least} or more' if least else 'a list of any length'}, each {rule.expected}"
    return replace(rule, expected=expected, turn=turn, good=good, bad=bad, part=part)


def named(rule: Rule, example: str) -> Rule:
    """A mapping, not empty, from names to values that each follow `rule`, as one that cannot be changed."""

    def turn(value: Any) -> Any:
        turned = {name: rule.turn(item) for name, item in value.items()} if isinstance(value, Mapping) else {}
        return MappingProxyType(turned) if turned and all(item is not REFUSED for item in turned.values()) else REFUSED

    def part(name: str, value: Any) -> tuple[str, Any, str] | None:
        each = value.items() if isinstance(value, Mapping) else ()
        return next((rule.fault(f"{name}[{key!r}]", item) for key, item in each if rule.turn(item) is REFUSED), None)

    bad: tuple[Any, ...] = (None, 12, "a word", [], {}, *({"a": miss} for miss in rule.bad))
    expected = f"a dict such as {example}, each {rule.expected}"
    good = tuple({"a": value} for value in rule.good)
    return replace(rule, expected=expected, turn=turn, good=good, bad=bad, part=part)


def optional(rule: Rule) -> Rule:
    """What `rule` takes, or None."""
    return replace(
        rule,
        expected=f"{rule.expected}, or None",
        turn=lambda value: None if value is None else rule.turn(value),
        good=(None, *rule.good),
        bad=tuple(value for value in rule.bad if value is not None),
    )


def checked(**rules: Rule) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: each named argument follows its rule, in this order, and reaches the function as the rule turns it.

    Arguments that are not given are not looked at: a default is the function's own. `function.rules` keeps the rules.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        body: Any = function
        owner = function.__qualname__.removesuffix(".__init__").removesuffix(".__call__")
        names = list(signature(function).parameters)
        places = tuple((names.index(name), name, rule.turn, rule) for name, rule in rules.items())

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given = list(args)
            positional = len(given)
            for place, name, turn, rule in places:
                if place < positional:
                    value = turn(given[place])
                    given[place] = rule(owner, name, given[place]) if value is REFUSED else value
                elif name in kwargs:
                    value = turn(kwargs[name])
                    kwargs[name] = rule(owner, name, kwargs[name]) if value is REFUSED else value
            return body(*given, **kwargs)

        call.rules = rules  # type: ignore[attr-defined]
        return call

    return decorate


class Checked:
    """A frozen dataclass whose fields follow `rules`, in their order, and are kept as the rules turn them."""

    rules: ClassVar[Mapping[str, Rule]] = {}

    @property
    def owner(self) -> str:
        """What an error calls the whole: its class, or its class and name."""
        return type(self).__name__

    def __post_init__(self) -> None:
        owner = self.owner
        for name, rule in self.rules.items():
            object.__setattr__(self, name, rule(owner, name, getattr(self, name)))
        self.complete()

    def complete(self) -> None:
        """What no rule of one field can say: which fields go together, and fields that follow from others."""
