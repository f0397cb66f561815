"""Numbers as they are printed: digits, prefixes, and what is no number; tables that their cells cannot break."""

import math
from fractions import Fraction

import numpy as np
import pytest

from lessonlib.base.errors import InvalidInputError, LessonError
from lessonlib.base.text import html_table, markdown_table, one_line
from lessonlib.base.units import format_bytes, format_flops, format_percent, format_seconds
from lessonlib.model.model import Model

FORMATS = (format_bytes, format_flops, format_seconds, format_percent)


@pytest.mark.parametrize(
    "found, expected",
    [
        (format_bytes(999_999), "1.000 MB"),
        (format_bytes(999_949), "999.9 kB"),
        (format_bytes(999.99), "1.000 kB"),
        (format_bytes(-999_999), "-1.000 MB"),
        (format_bytes(999_999, 6), "999.999 kB"),
        (format_flops(9.9996e12), "10.00 TFLOP"),
        (format_seconds(0.99999), "1.000 s"),
        (format_seconds(0.00099999), "1.000 ms"),
        (format_percent(0.99996), "100 %"),
        (format_percent(0.99996, 5), "99.996 %"),
        (format_bytes(123_456, 2), "123 kB"),
        (format_seconds(12_345.6), "12,346 s"),
        (format_bytes(0), "0 B"),
        (format_bytes(math.nan), "undefined"),
        (format_bytes(math.inf), "inf B"),
        (format_percent(math.nan), "undefined"),
        (format_bytes(np.int64(2048)), "2.048 kB"),
        (format_seconds(np.array(0.5)), "500.0 ms"),
        (format_percent(Fraction(1, 3)), "33.3 %"),
    ],
)
def test_digits_and_prefix_are_those_of_the_rounded_number(found, expected):
    assert found == expected


@pytest.mark.parametrize(
    "wrong",
    [None, "12", True, 10**400, 10**5000, [1], np.array([1.0, 2.0]), 1j],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_is_not_printed(wrong):
    for call in FORMATS:
        with pytest.raises(InvalidInputError, match="value is"):
            call(wrong)


@pytest.mark.parametrize("digits", [0, -1, 1.5, 1e300, "3", None])
def test_digits_are_a_few(digits):
    for call in FORMATS:
        with pytest.raises(InvalidInputError, match="digits is"):
            call(0.5, digits)


def test_a_cell_does_not_break_out_of_its_table():
    table = markdown_table(("a|b", "c"), [("x\ny", "<b>1</b>"), ("1 -> 2", "**3**")])
    assert table.splitlines() == [r"| a\|b | c |", "| --- | ---: |", "| x y | &lt;b>1&lt;/b> |", "| 1 -> 2 | **3** |"]


def test_an_html_table_is_escaped_and_says_what_its_headers_head():
    rows = [("<i>", "1 & 2"), ("b", '"')]
    assert html_table(rows, "lr") == (
        '<table><tr><th scope="row" style="text-align:left">&lt;i&gt;</th>'
        '<td style="text-align:right">1 &amp; 2</td></tr>'
        '<tr><th scope="row" style="text-align:left">b</th><td style="text-align:right">&quot;</td></tr></table>'
    )
    styles = {"col": "color:red", "td": "color:blue"}
    assert html_table([("1",)], "r", header=("<n>",), caption="a<b", named=False, bold=True, styles=styles) == (
        '<table><caption style="text-align:left">a&lt;b</caption>'
        '<thead><tr><th scope="col" style="text-align:right;color:red">&lt;n&gt;</th></tr></thead>'
        '<tbody><tr><td style="text-align:right;color:blue"><b>1</b></td></tr></tbody></table>'
    )


def test_a_name_is_one_printable_line():
    assert one_line(" a\tb\x1b[31m\n\u202ec ") == "a b?[31m ?c"
    assert one_line("x" * 50, 10) == "x" * 7 + "..."


def test_a_name_too_long_to_print_is_an_error_in_words():
    with pytest.raises(LessonError, match="too long to print"):
        Model(name=10**5000, width=0, vocabulary=1, blocks=())
