"""The words of errors, one sentence for each kind of rule. No other test holds words."""

import math

from helpers import refuses

from lessonlib.base import checks
from lessonlib.base.checks import (
    a,
    between,
    choice,
    count,
    flag,
    fraction,
    items,
    named,
    numbers,
    optional,
    rate,
    text,
    wrong,
)
from lessonlib.model.precision import Precision

SENTENCES = [
    (a(Precision), 3, "a Precision."),
    (a(int, "3"), "3", "an int, such as 3."),
    (count(), 0, "a whole number of at least 1."),
    (count(0, 2**20), -1, "a whole number from 0 to 1,048,576."),
    (rate("byte/s"), 0, "a finite number of byte/s, more than zero."),
    (rate("seconds", zero=True), -1, "a finite number of seconds, zero or more."),
    (rate("seconds", infinite=True), 0, "a number of seconds, more than zero."),
    (between(1e-9, 1e-2, "ln x"), 1, "a number of ln x from 1e-09 to 0.01."),
    (fraction(), 0, "a fraction more than 0 and at most 1."),
    (fraction(zero=True), 2, "a fraction from 0 to 1."),
    (flag(), 1, "True or False."),
    (choice(("first", "joint")), "last", "one of first, joint."),
    (text("'vLLM'"), 3, "a text, such as 'vLLM'."),
    (numbers(), "x", "a number, or an array of them."),
    (numbers(checks.ABOVE_ZERO, math.inf), 0, "a number above 0, or an array of them."),
    (numbers(0, 1, flat=True), 2, "a number from 0 to 1, or a list of them."),
    (numbers(1, whole=True), 0.5, "a whole number of at least 1, or an array of them."),
    (items(count()), 3, "a list of any length, each a whole number of at least 1."),
    (items(flag(), least=2), [], "2 or more, each True or False."),
    (named(flag(), "{'a': True}"), {}, "a dict such as {'a': True}, each True or False."),
    (optional(count()), 0, "a whole number of at least 1, or None."),
]


def test_the_sentence_of_each_kind_of_rule():
    for rule, value, words in SENTENCES:
        message = refuses(lambda rule=rule, value=value: rule("thing", "size", value))
        assert message == f"thing: size is {value!r}; expected {words}"


def test_the_sentence_of_a_part():
    message = refuses(lambda: numbers(1, whole=True)("thing", "size", [1, 0.5]))
    assert message == "thing: size[1] is 0.5; expected a whole number of at least 1."
    message = refuses(lambda: items(fraction())("thing", "size", [1, 7]))
    assert message == "thing: size[1] is 7; expected a fraction more than 0 and at most 1."


def test_the_one_form_of_sentence():
    assert str(wrong("thing", "size", -1, "0 or more")) == "thing: size is -1; expected 0 or more."
    assert str(wrong("thing", "n", 9, "at most 8", "take less")) == "thing: n is 9; expected at most 8; take less."
