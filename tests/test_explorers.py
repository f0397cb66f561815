"""The explorers of 03, 04, 05 and 08: what they show is what the library computes, errors are said, reset goes back."""

import re
from html import unescape

import pytest

from lessonlib.base.units import format_percent, format_seconds
from lessonlib.face.widgets.explorer import deployed
from lessonlib.face.widgets.explorers import (
    Axis,
    Curve,
    batch_view,
    chart,
    explore_batch,
    explore_growth,
    explore_prefill,
    explore_price,
    growth_view,
    prefill_view,
    price_view,
)
from lessonlib.policy.batching import output_token_in_prompt_tokens
from lessonlib.policy.cache import step_parts
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request

ALL = [explore_growth, explore_batch, explore_prefill, explore_price]
SERVER = deployed("llama-3.1-8b", "h100-sxm")


def rows_of(html):
    """The numbers beneath the picture, by name."""
    cells = re.findall(r"<th[^>]*>(.*?)</th><td[^>]*><b>(.*?)</b>", html)
    plain = [[unescape(re.sub(r"</?span[^>]*>", "", cell)) for cell in row] for row in cells]  # a dollar stands in one
    return dict(plain)


def test_growth_shows_the_lessons_steps():
    rows = rows_of(growth_view("llama-3.1-8b", 128, 12_800, 32))
    steady, together = (
        step_parts(SERVER, Request(128, 12_800), [1, 12_799], 32, together=t).seconds for t in (False, True)
    )
    assert rows["first step, steady"] == format_seconds(steady[0])
    assert rows["last step, together"] == format_seconds(together[1]) == "20.67 ms"
    assert rows["cache passes weights at"] == "3,579 tokens"


def test_batch_shows_the_wall_and_both_ends():
    rows = rows_of(batch_view("llama-3.1-8b", "h100-sxm", 128, 12_800))
    wall = memory_batch(SERVER, Request(128, 12_800))
    assert (rows["largest batch that fits"], rows["roof batch (estimate)"]) == (str(wall), "292")
    rate = steady_state(SERVER, Request(128, 12_800)).tokens_per_second
    assert rows["tokens/s at the memory batch"] == f"{rate:,.1f}"


def test_prefill_shows_both_clocks():
    rows = rows_of(prefill_view(1024, 128, 32))
    cost = request_cost(SERVER, Request(1024, 128), 32)
    assert rows["prefill share, GPU clock"] == format_percent(1 - cost.decode_share)
    assert rows["prefill share, request clock"] == format_percent(cost.ttft / cost.undisturbed)


def test_twice_as_fast_saves_half_of_the_share():
    cost = request_cost(SERVER, Request(1024, 128), 32)
    saved = 1 - (cost.prefill.seconds / 2 + cost.decode.seconds) / cost.seconds
    assert rows_of(prefill_view(1024, 128, 32))["saved by twice as fast, GPU"] == format_percent(saved)


def test_price_shows_the_lessons_prices():
    rows = rows_of(price_view(1024, 128, 1, 2))
    assert (rows["at batch 1"], rows["at the memory batch"], rows["memory batch"]) == (
        "307.9",
        "3.9",
        str(memory_batch(SERVER, Request(1024, 128))),
    )
    assert (
        rows["one output token, in prompt tokens"]
        == f"{output_token_in_prompt_tokens(SERVER, Request(1024, 128), 1):,.1f}"
    )
    seconds = request_cost(SERVER, Request(1024, 128)).seconds
    assert rows["$ a million output, here"] == f"${seconds * 2 / 3600 * 1e6 / 128:,.2f}"


@pytest.mark.parametrize("explore", ALL, ids=lambda explore: explore.__name__)
def test_every_stop_gives_a_picture_or_a_sentence_and_reset_goes_back(explore):
    explorer = explore()
    first = explorer.shown.value
    assert 'role="img"' in first and "aria-label" in first and "<table" in first
    for control in explorer.controls.values():
        for option in control.options:
            control.value = option[1] if isinstance(option, tuple) else option
            shown = explorer.shown.value
            assert ('role="img"' in shown) != ('role="alert"' in shown)
            assert not re.search(r"\bnan\b", shown, re.IGNORECASE)
        explorer.reset_button.click()
        assert explorer.shown.value == first


@pytest.mark.parametrize(
    ("html", "says"),
    [
        (growth_view("deepseek-v3", 128, 12_800, 32), "needs"),
        (growth_view("llama-3.1-8b", 128, 1, 1), "longer output"),
        (batch_view("llama-3.1-8b", "t4", 128, 128), "needs"),
        (batch_view("gpt2", "h100-sxm", 1024, 128), "positions"),
        (prefill_view(131_072, 65_536, 1), "positions"),
        (price_view(128, 1, 1, 2), "no step to price"),
    ],
)
def test_what_cannot_be_computed_is_said(html, says):
    assert 'role="alert"' in html and says in html


def test_a_chart_escapes_its_words_and_drops_what_is_outside():
    curve = Curve("<b>", "#000", [1, 2, 3], [1, 2, 99])
    drawn = chart("<script>", Axis("x", 1, 3), Axis("y", 0, 10), [curve], [(2.0, "a & b")])
    assert "<script>" not in drawn and "<b>" not in drawn and "a &amp; b" in drawn
    assert drawn.count("<path") >= 3


def test_ticks():
    assert Axis("x", 1, 1000, log=True).ticks() == [1, 10, 100, 1000]
    assert Axis("x", 0, 100).ticks()[:2] == [0, 25]
    assert Axis("x", 1, 100, log=True).share(10) == pytest.approx(0.5)
