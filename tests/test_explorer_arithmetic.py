"""explorer.js computes as the library does: every number to 1e-12, refusals to the word, numbers printed alike."""

import json
import math
from collections import Counter
from functools import cache
from random import Random

import pytest
from explorer_cases import answer, as_asked, cases, counts_for, data, is_refused
from explorer_compare import differences
from explorer_models import own_accelerators, own_models
from explorer_traffic import served, traffics
from helpers import assembled
from javascript import MODULE, answers, decoded, encoded

from lessonlib.base.units import format_bytes, format_flops, format_percent, format_seconds, tokens_label
from lessonlib.face.widgets.explorer_data import explorer_data
from lessonlib.model.attention import GroupedQueryAttention
from lessonlib.model.precision import Precision
from lessonlib.work.sizes import sizes_of

EXACT = 1e-12
KINDS = ("mla", "window", "chunk", "sparse", "state", "experts", "tensor", "expert")
FEW, MANY = 600, 20_000


def compared(many: int) -> Counter:
    """Hold all answers of so many cases to the library's; what they counted for."""
    asked, counted = cases(many), Counter()
    theirs = answers("cases", [as_asked(one) for one in asked], data())
    for number, (one, found) in enumerate(zip(asked, theirs, strict=True)):
        ours = decoded(encoded(answer(one)))
        apart = [difference for difference in differences(ours, found) if difference[-1] > EXACT]
        assert not apart, f"case {number}, {one}: {apart[:3]}"
        counted["refused"] += is_refused(ours)
        counted["questions"] += len(ours)
        counted.update(counts_for(one) if not is_refused(ours) else ())
    return counted


def test_every_number_and_every_refusal_is_the_librarys():
    counted = compared(FEW)
    assert counted["refused"] >= 0.3 * FEW and all(counted[kind] >= 15 for kind in KINDS), counted


@pytest.mark.slow
def test_twenty_thousand_cases_are_the_librarys():
    counted = compared(MANY)
    assert counted["refused"] >= 0.3 * MANY and all(counted[kind] >= 500 for kind in KINDS), counted


SLIPS = {
    "a window keeps one token more": ("Math.min(tokens, window)", "Math.min(tokens, window + 1)"),
    "a latent is projected for nothing": ("+ kind.expandFlops * read", ""),
    "the floor adds its roofs up": ("efficiency.overlap ? Math.max", "!efficiency.overlap ? Math.max"),
    "experts do not overlap by chance": ("Math.expm1(tokens * logIdle)", "(tokens * logIdle)"),
    "a ring sends to itself": ("2 * (devices - 1) * model.width", "2 * devices * model.width"),
    "KV heads are never copied": ("Math.max(1, split / kvHeads)", "1"),
    "the middle of the answer is half a token early": ("Math.floor((output + 1) / 2)", "Math.floor(output / 2)"),
    "a sentence has another word": ("shorten one of them", "shorten one"),
    "half is rounded up": ("quotient % 2n", "true"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_the_module_is_seen(slip):
    source = MODULE.read_text(encoding="utf-8")
    assert source.count(SLIPS[slip][0]) == 1, "the slip is of a line that is no longer there"
    slipped = source.replace(*SLIPS[slip])
    if slip == "half is rounded up":
        assert answers("formats", [["fixed", 2.5, 0]], None, slipped) != ["2"]
        return
    asked, ours = answered(60)
    apart = map(differences, ours, answers("cases", [as_asked(one) for one in asked], data(), slipped))
    assert any(difference[-1] > EXACT for one in apart for difference in one)


@cache
def answered(many: int) -> tuple[list, list]:
    """So many cases, and what the library answers to them."""
    return (asked := cases(many)), [decoded(encoded(answer(one))) for one in asked]


def test_a_server_over_time_is_the_simulators():
    asked, counted = traffics(120), Counter()
    theirs = answers("served", asked, data())
    for one, found in zip(asked, theirs, strict=True):
        ours = decoded(encoded(served(one)))
        refused = "refused" in ours and "refused" in found  # in other words: a view prices its request before
        apart = [difference for difference in differences(ours, found) if difference[-1] > 1e-9 and not refused]
        assert not apart, f"{one}: {apart[:3]}"
        counted["refused"] += "refused" in ours
        counted["preempted"] += sum(ours.get("preemptions", [])) > 0
        counted["late"] += any(math.isnan(end) for end in ours.get("finish", []))
        counted["waited"] += ours.get("mostWaiting", 0) > 0
    assert min(counted.values()) >= 5 and counted["refused"] < 60, counted


FORMATS = {
    "bytes": format_bytes,
    "flops": format_flops,
    "seconds": format_seconds,
    "percent": format_percent,
    "tokens": lambda value, digits: tokens_label(value),
    "general": lambda value, digits: f"{value:.{digits}g}",
    "grouped": lambda value, digits: f"{value:,.{digits}g}",
    "fixed": lambda value, digits: f"{value:.{digits}f}",
    "commas": lambda value, digits: f"{value:,.{digits}f}",
}


def values(random: Random) -> float:
    """A number that is hard to print: of any size, halfway between two shorter ones, next to a power of ten."""
    kind = random.randrange(6)
    if kind == 0:
        return random.choice([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 2.0**53])
    if kind == 1:
        return random.choice([-1, 1]) * math.exp(random.uniform(-80, 80))
    if kind == 2:
        return random.randrange(10**6) + 0.5
    if kind == 3:
        return (2 * random.randrange(10**5) + 1) / 2 ** random.randrange(1, 12)
    if kind == 4:
        return 10.0 ** random.randint(-12, 20) * (1 - random.choice([0, 1e-16, 1e-5, 4.9e-5, 5e-5, 5e-4]))
    return 10 * random.randrange(10**5) + 5


def test_numbers_are_printed_as_the_library_prints_them():
    random = Random(7)
    asked = [[name, values(random), random.randint(1, 12)] for _ in range(1_500) for name in FORMATS]
    found = answers("formats", asked)
    for (name, value, digits), theirs in zip(asked, found, strict=True):
        ours = FORMATS[name](value, digits)
        assert ours == theirs, (name, value, digits)


def test_the_data_is_plain_json_and_holds_the_whole_catalogue():
    found = explorer_data()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert len(found["models"]) > 40 and len(found["accelerators"]) > 50
    assert not [model["name"] for model in found["models"] if "unknown" in model]
    assert {"chat", "reasoning", "production", "agent"} <= found["presets"].keys()
    assert len(json.dumps(found)) < 250_000


def test_own_models_and_accelerators_come_first():
    found = explorer_data(own_models(), own_accelerators())
    assert [model["name"] for model in found["models"][:2]] == [model.name for model in own_models()[:2]]
    assert found["accelerators"][0]["name"] == own_accelerators()[0].name


class AnotherAttention(GroupedQueryAttention):
    """A kind of layer that explorer.js does not have."""

    def held(self, tokens):
        return tokens / 2


def test_a_law_that_the_module_does_not_have_is_refused():
    mixer = AnotherAttention(width=64, heads=4, kv_heads=2, head_dim=16)
    model = assembled("mine", 64, 100, ((2, mixer, None),))
    found = explorer_data([model])
    asked = {"model": "mine", "accelerator": "h100-sxm", "prompt": 1, "output": 2, "batch": 1, "asked": ["cost"]}
    (refused,) = answers("cases", [asked], found)
    assert "AnotherAttention" in refused["made"]["words"] and refused["made"]["refused"] == "InvalidInputError"
    assert sizes_of(model, Precision()).kinds


def test_the_module_is_one_file_without_imports_of_at_most_1500_lines_of_120_columns():
    source = MODULE.read_text(encoding="utf-8")
    lines = source.splitlines()
    assert len(lines) <= 1_500 and max(map(len, lines)) <= 120
    assert not [line for line in lines if line.startswith("import ") or "import(" in line]
    assert "http" not in source.replace("http://www.w3.org/2000/svg", "")
