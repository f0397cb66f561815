"""A cost in words: its table shows parts, roofs and assumptions; its equations hold the numbers."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers import deepseek_v3, device, gqa_model, h100, llama, mixtral_8x7b, qwen3_next, server

from lessonlib.base.errors import InvalidInputError
from lessonlib.model.precision import Precision
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Efficiency, Speculation

REASONING = Request(128, 12_800)


def cost_of(request=REASONING, batch=1, **changes):
    return request_cost(server(**changes), request, batch)


class Table(HTMLParser):
    """The cells of a table by row, its caption and list items; and every tag that was opened."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.items, self.tags, self.open = [], [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "li":
            self.items.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        elif self.open and self.open[-1] == "li":
            self.items[-1] += data


def test_the_table_shows_flops_bytes_seconds_and_what_binds():
    table = Table(cost_of()._repr_html_())
    assert table.rows[0] == ["part", "FLOPs", "bytes", "seconds", "bound by"]
    rows = {row[0]: row[1:] for row in table.rows[1:]}
    assert set(rows) == {
        "prefill: linear layers",
        "prefill: LM head",
        "prefill: 32 x GQA",
        "decode: linear layers",
        "decode: LM head",
        "decode: 32 x GQA",
        "prefill",
        "decode",
        "all",
    }
    assert rows["decode: linear layers"] == ["178.7 TFLOP", "178.7 TB", "53.33 s", "memory"]
    assert rows["prefill"][2] == "4.486 ms" and rows["decode"][2] == "60.62 s"
    assert rows["decode"][3] == "99.993 % of time" and rows["all"][3] == "100.00 % of time"
    assert table.open == [] and table.items == list(cost_of().assumptions())


def test_the_text_shows_the_same_as_the_html():
    text, table = repr(cost_of()), Table(cost_of()._repr_html_())
    for row in table.rows:
        assert any(all(cell in line for cell in row) for line in text.splitlines())
    for line in cost_of().assumptions():
        assert line in text
    assert "llama-3.1-8b on h100-sxm, batch 1: 128 -> 12,800 tokens" in text
    assert "request clock 60.62 s: TTFT 4.486 ms, TPOT 4.736 ms" in text


def test_prefill_of_a_long_prompt_is_compute_bound():
    bounds = {roof.part: roof.bound for roof in cost_of(Request(8000, 2)).roofs() if roof.phase == "prefill"}
    assert bounds == {"linear layers": "compute", "LM head": "memory", "32 x GQA": "compute"}
    assert {roof.bound for roof in cost_of(Request(50, 2)).roofs()} == {"memory"}


def test_a_part_whose_passes_differ_is_bound_by_both():
    roofs = cost_of(Request(1010, 2), prefill_chunk=1000).roofs()
    assert next(roof.bound for roof in roofs if roof.part == "linear layers") == "both"


def test_a_phase_that_does_nothing_is_bound_by_nothing():
    roofs = cost_of(Request(100, 1)).roofs()
    assert {roof.bound for roof in roofs if roof.phase == "decode"} == {"nothing"}
    assert "undefined" in repr(cost_of(Request(100, 1)))


def test_what_is_added_to_the_roofs_has_rows_of_its_own():
    plain, slow = repr(cost_of()), repr(cost_of(devices=2, efficiency=Efficiency(overhead=2e-3)))
    for row in ("prefill: all-reduces", "decode: all-reduces", "prefill: overhead", "decode: overhead"):
        assert row in slow and row not in plain


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({}, "MFU 1 of 989 TFLOP/s dense bf16, MBU 1 of 3,350 GB/s"),
        ({"efficiency": Efficiency(0.5, 0.8, 2e-3)}, "MFU 0.5 of 989 TFLOP/s dense bf16, MBU 0.8"),
        ({"efficiency": Efficiency(overhead=2e-3)}, "Overhead of a pass: 2.000 ms"),
        ({}, "Precision: bf16 for all parts"),
        ({"dtype": "int4"}, "int4: blocks, experts; bf16: head"),
        ({"memory_fraction": 0.8}, "Memory: 80% of 1 x 80.00 GB, reserved for prompt + output tokens"),
        ({}, "Left out: unfused activations"),
        ({"devices": 4}, "ring all-reduces over 450 GB/s one way, 10.00 µs latency each (assumed)"),
        ({"prefill_chunk": 512}, "Prefill in chunks of 512 tokens"),
        (
            {"speculation": Speculation(4, 0.7, "free")},
            "4 drafted tokens, acceptance 0.7, free drafts, a limit that no draft reaches",
        ),
        ({"speculation": Speculation(4, 0.7, gqa_model())}, "draft toy, whose own prefill is in the prefill"),
        ({"model": mixtral_8x7b(), "accelerator": device()}, "uniform routing"),
        ({"model": qwen3_next(), "accelerator": device()}, "Constant state: bf16 (the dtype of its numbers)"),
        ({"model": deepseek_v3(), "accelerator": device()}, "MLA: absorbed in decode, expanded for a prompt"),
    ],
)
def test_every_assumption_is_said(changes, sentence):
    lines = cost_of(**changes).assumptions()
    assert any(sentence in line for line in lines)
    assert all(line.endswith(".") for line in lines)
    if changes:
        default = cost_of().assumptions()
        assert not any(sentence in line for line in default)


@pytest.mark.parametrize(
    "request_, words",
    [
        (Request(500, 10), "expanded here, as nothing is cached"),
        (Request(5000, 10, 4999), "absorbed here"),
        (Request(5000, 10, 500), "expanded here, its prefix re-projected"),
    ],
)
def test_it_is_said_which_form_the_prefill_of_mla_took(request_, words):
    cost = cost_of(request_, model=deepseek_v3(), accelerator=device())
    assert any(words in line for line in cost.assumptions())
    heads, rank, nope, rope, value = 128, 512, 128, 64, 128
    new, cached = request_.prompt - request_.cached, request_.cached
    pairs = new * cached + new * (new + 1) // 2
    absorbed = 61 * pairs * 2 * heads * (2 * rank + rope)
    fresh = 61 * (pairs * 2 * heads * (nope + rope + value) + cached * 2 * rank * heads * (nope + value))
    assert cost.prefill.attention.flops == (absorbed if "absorbed" in words else fresh)


def numbers_in(text):
    return set(re.findall(r"\d[\d,]*(?:\.\d+)?", text))


def test_the_equations_have_the_numbers_put_in():
    text = cost_of(batch=4).equations()
    found = numbers_in(text)
    block = f"{llama().block_matmul_weights:,}"
    pair, token = f"{4 * 32 * 32 * 128:,}", "131,072"
    assert {"128", "12,800", "12,799", "4", "128,256", "4,096", "525,336,576", block, pair, token} <= found
    assert "989 TFLOP/s" in text and "3,350 GB/s" in text
    cost = cost_of(batch=4)
    for roof in cost.roofs():
        assert f"{roof.phase}, {roof.part}: max(" in text and f"({roof.bound})" in text
    line = text.splitlines()[-1]
    parts = [float(number.replace(",", "")) for number in re.findall(r"[\d,.]+(?= m?s)", line)]
    assert "T = T_prefill + T_decode" in line and len(parts) == 3
    assert parts[1] + parts[0] / (1000 if " ms" in line else 1) == pytest.approx(parts[2], rel=1e-5)


def test_the_equations_show_a_window_and_a_state():
    windowed = cost_of(model=gqa_model(window=40)).equations()
    pairs = [sum(min(position, 40) for position in positions) for positions in (range(1, 129), range(129, 12_928))]
    assert windowed.count("window 40:") == 3  # the kind, and its two roofs
    assert f"{pairs[0]:,} in the prefill, {pairs[1]:,} in decode" in windowed
    assert "B of constant state a sequence" in cost_of(model=qwen3_next(), accelerator=device()).equations()


def test_the_equations_show_both_forms_of_mla():
    text = cost_of(model=deepseek_v3(), accelerator=device()).equations()
    absorbed, expanded = 61 * 278_528, 61 * 2 * 128 * (128 + 64 + 128)
    assert f"{absorbed:,} FLOP a pair absorbed, {expanded:,} expanded" in text


def test_a_maximum_taken_pass_by_pass_is_not_shown_as_one():
    cost = cost_of(Request(1010, 2), prefill_chunk=1000)
    lines = [line for line in cost.equations().splitlines() if "sum over its passes of max(" in line]
    assert len(lines) == sum(roof.bound == "both" for roof in cost.roofs()) == 2


def test_a_name_is_text_and_never_markup():
    trap = "<script>alert('&')</script>"
    cost = cost_of(model=replace(llama(), name=trap), accelerator=replace(h100(), name="<b>card"))
    html = cost._repr_html_()
    assert "<script" not in html and "<b>" not in html
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in html
    assert set(Table(html).tags) == set(Table(cost_of()._repr_html_()).tags)
    assert trap in repr(cost)
    draft = cost_of(speculation=Speculation(2, 0.5, replace(gqa_model(), name=trap)))
    assert "<script" not in draft._repr_html_()
    array = request_cost(server(replace(llama(), name=trap)), Request([1, 2], [1, 2]))
    assert "<script" not in array._repr_html_()


def test_arrays_say_how_many_were_computed():
    cost = request_cost(server(), Request(np.array([1, 0, 5]), np.array([2, 2, 2])))
    assert "3 requests, shape (3,); 2 computed" in repr(cost)
    assert "3 requests" in cost._repr_html_()
    for ask in (cost.roofs, cost.equations):
        with pytest.raises(InvalidInputError, match="plain numbers"):
            ask()


def test_what_is_shown_is_what_was_computed():
    """The rows are found by running the arithmetic again: they hold the cost's own numbers."""
    for changes in ({}, {"prefill_chunk": 50}, {"dtype": Precision("int4", cache="fp8")}, {"devices": 8}):
        cost = cost_of(Request(700, 60, 99), 7, **changes)
        for name, phase in (("prefill", cost.prefill), ("decode", cost.decode)):
            rows = [roof for roof in cost.roofs() if roof.phase == name]
            assert sum(roof.flops for roof in rows) == pytest.approx(phase.flops, rel=1e-12)
            assert sum(roof.bytes for roof in rows) == pytest.approx(phase.bytes, rel=1e-12)


def test_a_model_s_name_is_shown_as_it_is():
    named = replace(llama(), name="a*b_c|<b>`x`\n# y")
    equations = cost_of(model=named).equations().splitlines()
    assert r"a\*b\_c\|&lt;b&gt;\`x\` \# y on h100-sxm" in equations[0]
