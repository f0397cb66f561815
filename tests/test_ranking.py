"""Levers ranked at the floor and at typical efficiency, reloads of a prefix, and drafts with published yields."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import deepseek_v3, device, gqa_model, h100, refuses, server
from hypothesis import given
from hypothesis import strategies as st

from lessonlib import Deployment, load_accelerator, load_model
from lessonlib.facts.measurements import LEVERS, published_gain
from lessonlib.facts.tables import load_table
from lessonlib.model.precision import Precision
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.policy.levers import drafts_that_yield, prefix_reload, quantised, windowed_layers
from lessonlib.policy.mix import price
from lessonlib.policy.ranking import YIELDS, rank_levers, usual_levers
from lessonlib.request.request import Request
from lessonlib.time.deployment import Efficiency, Speculation
from lessonlib.time.roofline import pass_cost

DRIVER = server(accelerator=replace(h100(), memory=85_520_809_984.0))
TYPICAL = Efficiency(0.6, 0.8, 2e-3)
CHAT, REASONING = Request([1024], 128), Request([128], 12_800)


def ranked(request, typical=None, deployment=DRIVER):
    return {one.name: one for one in rank_levers(deployment, request, memory_batch(deployment, request), typical)}


def test_w8a8_is_the_lever_of_a_full_chat_server():
    found = next(one for name, one in ranked(CHAT).items() if name.startswith("W8A8"))
    assert found.at_limit == pytest.approx(1.6, abs=0.05)
    lever = quantised(blocks="fp8", experts="fp8")
    assert found.at_limit == pytest.approx(lever.speedup_at_limit(DRIVER, Request(1024, 128)), rel=1e-9)
    old = server(accelerator=replace(h100(), peaks={"bf16": 989e12}))
    assert not [name for name in usual_levers(old, CHAT) if name.startswith("W8A8")]


def test_free_drafts_are_never_ranked():
    for deployment in (DRIVER, server(deepseek_v3(), device(memory=1e15))):
        names = list(usual_levers(deployment, CHAT))
        assert not [name for name in names if "free" in name]
        assert len([name for name in names if "drafts" in name]) == 1


@pytest.mark.parametrize("request_", [CHAT, REASONING], ids=["chat", "reasoning"])
def test_which_rank_holds_in_both(request_):
    found = list(ranked(request_, TYPICAL).values())
    assert [one.at_limit for one in found] == sorted((one.at_limit for one in found), reverse=True)
    again = sorted(found, key=lambda one: -(one.typical or 0))
    for place, one in enumerate(found):
        other = again.index(one)
        if abs((again[place].typical or 0) - (one.typical or 0)) > 1e-9:
            assert one.holds == (place == other)
    assert all(one.typical is None and one.holds is None for one in ranked(request_).values())


def test_at_typical_efficiency_a_lever_is_priced_there():
    slow = replace(DRIVER, efficiency=TYPICAL)
    lever = quantised(cache="fp8")
    expected = lever.speedup_at_limit(slow, Request(128, 12_800))
    assert ranked(REASONING, TYPICAL)["fp8 cache"].typical == pytest.approx(expected, rel=1e-9)


def test_a_lever_is_shown_with_what_was_published_of_the_like():
    rows = load_table("levers")
    names = [*ranked(CHAT), *usual_levers(server(deepseek_v3(), device(memory=1e15)), CHAT)]
    said = {name: published_gain(name) for name in names}
    for name, kind in (("W8A8", "8-bit weights and activations"), ("fp8 cache", "8-bit cache"), ("MTP", "mtp")):
        gains = [row["times_faster"] for row in rows if row["lever"] == kind]
        words = next(words for lever, words in said.items() if lever.startswith(name))
        assert words.startswith(f"{min(gains):.2f} to {max(gains):.2f} in {len(gains)} measurements")
    assert said["twice the bandwidth"] == ""
    assert {row["lever"] for row in rows} >= set(LEVERS.values())


def test_yields_are_those_of_the_table():
    rows = {row["id"]: row for row in load_table("levers")}
    assert {"MTP": rows["d003"]["tokens_per_round"], "EAGLE-3": rows["d076"]["tokens_per_round"]} == YIELDS
    assert (rows["d003"]["draft_tokens"], rows["d076"]["draft_tokens"]) == (3, 3)


def gain_at_the_floor(row):
    """What the library makes of a published row that states all that it takes; None for another."""
    if not (row["model"] and row["accelerator"] and row["batch"]):
        return None
    machine = Deployment(load_model(row["model"]), load_accelerator(row["accelerator"]))
    if row["lever"] == "eagle-3" and row["model"] == "llama-3.1-8b":
        usual = usual_levers(machine, CHAT)[f"EAGLE-3 drafts, {YIELDS['EAGLE-3']} tokens a round"]
        head = usual(machine, CHAT).deployment.speculation.draft
        lever = drafts_that_yield(row["draft_tokens"], row["tokens_per_round"], head)
        return lever.speedup(machine, Request(1024, 1024), row["batch"])
    if row["lever"] == LEVERS["W8A8"] and "weights fp8" in row["situation"]:
        assert "1,024 in, 128 out" in row["situation"]
        return quantised(blocks="fp8", experts="fp8").speedup(machine, Request(1024, 128), row["batch"])
    return None


def test_the_floor_of_a_lever_promises_no_less_than_was_measured():
    found = {row["id"]: gain / row["times_faster"] for row in load_table("levers") if (gain := gain_at_the_floor(row))}
    assert sorted(found) == ["d074", "d076", "q005"]
    assert all(1 <= times < 1.3 for times in found.values()), found


def test_more_devices_are_counted_in_device_seconds():
    twice = ranked(REASONING)["twice the devices, tensor parallel"]
    pair = replace(DRIVER, devices=2)
    before, after = steady_state(DRIVER, Request(128, 12_800)), steady_state(pair, Request(128, 12_800))
    expected = before.seconds_per_request / (2 * after.seconds_per_request)
    assert twice.at_limit == pytest.approx(expected, rel=1e-9)


# ---- a prefix that lies outside the GPU


def test_a_reload_is_bytes_over_the_rate_against_the_prefill_that_it_spares():
    request = Request(103_647, 216, 102_919)
    found = prefix_reload(DRIVER, request, 63e9)
    assert found.bytes == 131_072 * 102_919 and found.reload == found.bytes / 63e9
    spared = pass_cost(DRIVER, 103_647).seconds - pass_cost(DRIVER, 728, 102_919).seconds
    assert found.recompute == pytest.approx(spared, rel=1e-12)
    assert prefix_reload(DRIVER, request, found.even_rate).reload == pytest.approx(spared, rel=1e-12)
    nothing = prefix_reload(DRIVER, Request(100, 10), 63e9)
    assert (nothing.bytes, nothing.reload, nothing.recompute) == (0, 0, 0)


def test_a_reload_over_a_slower_link_is_a_lesser_lever():
    found = ranked(CHAT)
    half = "half of each prompt in a prefix cache"
    gains = [found[name].at_limit for name in (half, f"{half}, reloaded over NVLink-C2C")]
    gains.append(found[f"{half}, reloaded over PCIe 5.0 x16"].at_limit)
    assert gains == sorted(gains, reverse=True)
    batch = memory_batch(DRIVER, CHAT)
    before, after = price(DRIVER, CHAT, batch), price(DRIVER, Request([1024], 128, 512), batch)
    assert gains[2] == pytest.approx(before.seconds / (after.seconds + 131_072 * 512 / 63e9), rel=1e-12)


# ---- drafts and windows


@given(st.integers(1, 8), st.floats(0, 1))
def test_drafts_yield_what_was_published(drafts, share):
    wanted = 1 + share * drafts
    deployment, _, _ = drafts_that_yield(drafts, wanted, gqa_model())(server(), Request(10, 10))
    assert isinstance(deployment.speculation, Speculation)
    assert deployment.speculation.tokens_per_round == pytest.approx(wanted, rel=1e-9)


def test_a_yield_beyond_all_drafts_is_refused():
    refuses(lambda: drafts_that_yield(3, 4.1, gqa_model()), "drafts_that_yield: tokens_per_round", "4.1")
    refuses(lambda: drafts_that_yield(3, 0.9, gqa_model()), "drafts_that_yield: tokens_per_round", "0.9")


def test_windows_leave_one_layer_of_each_six_full():
    changed, _, _ = windowed_layers(1024, 6)(DRIVER, Request(128, 12_800))
    assert [(layers, block.mixer.window) for layers, block in changed.model.blocks] == [(6, None), (26, 1024)]
    held = changed.sequence_bytes(6528.0)
    assert held == 4096 * (6 * 6528 + 26 * 1024)
    assert changed.model.parameters == DRIVER.model.parameters


def test_levers_in_place_are_left_out():
    small = server(dtype=Precision("fp8", cache="fp8"))
    names = usual_levers(small, Request(np.array([10]), np.array([10]), np.array([5])))
    assert not [name for name in names if name.startswith(("W8A8", "4-bit", "fp8", "half of each prompt"))]
