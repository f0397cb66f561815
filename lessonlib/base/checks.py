"""Checks as data: a rule says what a value must be, and every refusal is one form of sentence.

    {owner}: {name} is {value}; expected {what is expected}; {what to do}.

A function states its rules with `@checked(deployment=a(Deployment), batch=count())`, a dataclass with `Checked` and a
table `rules`. Both pass on what a rule turns a value into: a whole 3.0 becomes the int 3, a list a float64 array.
"""

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from types import MappingProxyType
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np

from lessonlib.base.errors import InvalidInputError, LessonError, as_numbers, is_number, shown

P = ParamSpec("P")
R = TypeVar("R")

REFUSED: Any = object()  # what `turn` returns for a value that it refuses
LARGEST = sys.float_info.max
ABOVE_ZERO = math.ulp(0.0)  # the smallest float above zero, so that a bound may be included always


def wrong(
    owner: str, name: str, value: Any, expected: str, remedy: str = "", error: type[LessonError] = InvalidInputError
) -> LessonError:
    """The error to raise for one wrong value: the one place where its sentence is made."""
    return error(f"{owner}: {name} is {shown(value)}; expected {expected}{'; ' if remedy else ''}{remedy}.")


@dataclass(frozen=True, eq=False)
class Rule:
    """What a value must be. Called with the owner's name, the value's name and the value, it returns the value to keep.

    `turn` gives that value, or REFUSED. `expected` says in words what is taken. `part` finds the part of a value that
    is wrong, as `fault` returns it: the second of several points.
    """

    expected: str
    turn: Callable[[Any], Any]
    part: Callable[[str, Any], tuple[str, Any, str] | None] = lambda name, value: None
    error: type[LessonError] = InvalidInputError

    def __call__(self, owner: str, name: str, value: Any) -> Any:
        turned = self.turn(value)
        if turned is REFUSED:
            raise wrong(owner, *self.fault(name, value), error=self.error)
        return turned

    def fault(self, name: str, value: Any) -> tuple[str, Any, str]:
        """Of a value that is refused: the name of what is wrong, that itself, and what was expected."""
        return self.part(name, value) or (name, value, self.expected)


def a(kind: type, example: str = "") -> Rule:
    """An instance of `kind`; `example` is how to make one."""
    article = "an" if kind.__name__[0] in "AEIOUaeiou" else "a"
    expected = f"{article} {kind.__name__}{', such as ' if example else ''}{example}"
    return Rule(expected, lambda value: value if isinstance(value, kind) else REFUSED)


def count(least: int = 1, most: int | None = None) -> Rule:
    """A whole number, as an int."""
    largest = int(LARGEST) if most is None else most

    def turn(value: Any) -> Any:
        if type(value) is int:  # the usual case, and the fast one
            return value if least <= value <= largest else REFUSED
        whole = int(value) if is_number(value) else None
        return whole if whole is not None and whole == value and least <= whole <= largest else REFUSED

    limits = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
    return Rule(f"a whole number {limits}", turn)


def _real(least: float, most: float, expected: str) -> Rule:
    """A number from `least` to `most`, both included, as a float."""

    def turn(value: Any) -> Any:
        number = float(value) if isinstance(value, float) or is_number(value) else math.nan
        return number if least <= number <= most else REFUSED

    return Rule(expected, turn)


def rate(unit: str, zero: bool = False, infinite: bool = False) -> Rule:
    """A positive number of `unit`, finite unless `infinite`, as a float; `zero` takes 0 as well."""
    kind = "number" if infinite else "finite number"
    least = "zero or more" if zero else "more than zero"
    return _real(0.0 if zero else ABOVE_ZERO, math.inf if infinite else LARGEST, f"a {kind} of {unit}, {least}")


def between(least: float, most: float, unit: str) -> Rule:
    """A number of `unit` from `least` to `most`, as a float."""
    return _real(least, most, f"a number of {unit} from {least:g} to {most:g}")


def physical(unit: str) -> Rule:
    """A number of `unit` of a device, as a float: within what no product of it with sizes and tokens leaves floats."""
    return between(1.0, 1e30, unit)


def reached() -> Rule:
    """A fraction of a peak that a machine may reach, as a float, and never so little that times grow past floats."""
    return _real(1e-9, 1.0, "a fraction from 1e-09 to 1")


def delay() -> Rule:
    """Seconds that a pass or a collective takes besides, as a float."""
    return between(0.0, 1e9, "seconds")


def fraction(zero: bool = False) -> Rule:
    """A number above 0 (from 0, if `zero`) and at most 1, as a float."""
    expected = "from 0 to 1" if zero else "more than 0 and at most 1"
    return _real(0.0 if zero else ABOVE_ZERO, 1.0, f"a fraction {expected}")


def flag() -> Rule:
    """True or False, as a bool; what merely counts as one is refused."""
    return Rule("True or False", lambda value: bool(value) if isinstance(value, bool | np.bool_) else REFUSED)


def choice(words: Iterable[str], error: type[LessonError] = InvalidInputError) -> Rule:
    """One of some words."""
    known = tuple(words)
    expected = f"one of {', '.join(known)}"
    return Rule(expected, lambda value: value if isinstance(value, str) and value in known else REFUSED, error=error)


def text(example: str = "", error: type[LessonError] = InvalidInputError) -> Rule:
    """A string that is not empty."""
    expected = f"a text{', such as ' if example else ''}{example}"
    return Rule(expected, lambda value: value if isinstance(value, str) and value else REFUSED, error=error)


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
        if array is None or not array.ndim or not outside(array).any():
            return None
        cell = np.unravel_index(np.argmax(outside(array)), array.shape)
        return f"{name}[{', '.join(str(i) for i in cell)}]", array[cell].item(), each

    low = "above 0" if least == ABOVE_ZERO else "" if least <= -LARGEST else f"of at least {least:,.10g}"
    limits = f"from {least:,.10g} to {most:,.10g}" if low and most < LARGEST else low
    each = f"a {'whole ' if whole else ''}number {limits}".rstrip()
    return Rule(f"{each}, or {'a list' if flat else 'an array'} of them", turn, part=part)


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

    expected = f"{f'{least} or more' if least else 'a list of any length'}, each {rule.expected}"
    return replace(rule, expected=expected, turn=turn, part=part)


def named(rule: Rule, example: str) -> Rule:
    """A mapping, not empty, from names to values that each follow `rule`, as one that cannot be changed."""

    def turn(value: Any) -> Any:
        turned = {name: rule.turn(item) for name, item in value.items()} if isinstance(value, Mapping) else {}
        if not all(isinstance(name, str) and name for name in turned):
            return REFUSED
        return MappingProxyType(turned) if turned and all(item is not REFUSED for item in turned.values()) else REFUSED

    def part(name: str, value: Any) -> tuple[str, Any, str] | None:
        each = value.items() if isinstance(value, Mapping) else ()
        return next((rule.fault(f"{name}[{key!r}]", item) for key, item in each if rule.turn(item) is REFUSED), None)

    return replace(rule, expected=f"a dict such as {example}, each {rule.expected}", turn=turn, part=part)


def optional(rule: Rule) -> Rule:
    """What `rule` takes, or None."""
    expected = f"{rule.expected}, or None"
    return replace(rule, expected=expected, turn=lambda value: None if value is None else rule.turn(value))


def checked(**rules: Rule) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: each named argument follows its rule, in this order, and reaches the function as the rule turns it.

    Arguments that are not given are not looked at: a default is the function's own. `function.rules` keeps the rules.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        body: Any = function
        owner = function.__qualname__.removesuffix(".__init__").removesuffix(".__call__")
        code = body.__code__  # asked itself, for inspect.signature takes many times longer
        first, both = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        at = {name: i if i < first else sys.maxsize for i, name in enumerate(code.co_varnames[:both])}
        places = tuple((at[name], name, rule.turn, rule) for name, rule in rules.items())

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
