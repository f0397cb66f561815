"""The numbers beneath each explorer are the library's, printed as it prints them, at its start and elsewhere."""

import re

import pytest
from explorer_models import own_accelerators, own_models
from javascript import answers

from lessonlib import policy
from lessonlib.base.units import format_bytes, format_percent, format_seconds
from lessonlib.face.widgets.explorer_data import PRECISIONS, explorer_data
from lessonlib.face.widgets.explorer_views import VIEWS
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.model.precision import Precision
from lessonlib.policy.full_server import steady_state
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment, Efficiency
from lessonlib.time.roofline import pass_cost
from lessonlib.work.passes import attention_work

START = {"model": "llama-3.1-8b", "accelerator": "h100-sxm", "precision": "bf16", "devices": 1, "layout": "tensor"}
START |= {"efficiency": "floor", "prompt": 1024, "output": 128, "cached": 0, "batch": 1}
STARTS = {
    "request": {"batch": 32},
    "plane": {"batch": 32},
    "growth": {"prompt": 128, "output": 12_800, "batch": 32, "position": 6_400},
    "kinds": {"model": "gpt-oss-20b", "prompt": 128, "output": 12_800},
    "batch": {"prompt": 128, "output": 12_800, "batch": 32, "target": 20},
    "prefill": {"batch": 32, "times": 2},
    "levers": {"prompt": 128, "output": 12_800},
    "price": {"dollars": 2},
}
OTHERS = (
    {},
    {"model": "qwen3-8b", "accelerator": "a100-sxm-80gb", "prompt": 500, "output": 4_000, "batch": 16},
    {"efficiency": "typical", "prompt": 208, "output": 792, "batch": 7},
    {"prompt": 103_647, "cached": 102_919, "output": 216, "batch": 1},
    {
        "model": "deepseek-r1",
        "accelerator": "h200-sxm",
        "devices": 8,
        "layout": "expert",
        "precision": "fp8",
        "batch": 16,
    },
    {"model": "gpt-oss-20b", "precision": "bf16, fp8 cache", "prompt": 3_000, "output": 900, "batch": 5},
    {"model": "deepseek-v3.2", "accelerator": "b200", "devices": 8, "precision": "fp8", "prompt": 9_000, "output": 300},
)


def case(setting):
    """(deployment, request, batch) of a setting."""
    device, precision = load_accelerator(setting["accelerator"]), Precision(**PRECISIONS[setting["precision"]])
    typical = setting["efficiency"] == "typical"
    efficiency = typical_efficiency(device).middle if typical else Efficiency()
    group = {"devices": setting["devices"], "layout": setting["layout"], "efficiency": efficiency}
    deployment = Deployment(load_model(setting["model"]), device, precision, **group)
    return deployment, Request(setting["prompt"], setting["output"], setting["cached"]), setting["batch"]


def of_request(d, r, b, s):
    cost, full, tokens = request_cost(d, r, b), steady_state(d, r), r.prompt + r.output
    linear = cost.decode.linear
    return {
        "started together: GPU clock of the batch": format_seconds(cost.seconds),
        "started together: share of one": format_seconds(cost.seconds / b),
        "started together: request clock": format_seconds(cost.undisturbed),
        "full server: GPU time of one": format_seconds(full.seconds_per_request),
        "full server: wait of a user": format_seconds(full.wait),
        "time to first token": format_seconds(cost.ttft),
        "time per output token, undisturbed": format_seconds(cost.tpot),
        "decode's linear layers": f"{'compute' if linear.compute_seconds > linear.memory_seconds else 'memory'} bound",
        "decode share of GPU time": format_percent(cost.decode_share, 5),
        "decode share of FLOPs": format_percent(cost.decode.flops / cost.flops, 4),
        "memory needed": f"{format_bytes(d.memory_needed(tokens, b), 3)} of {format_bytes(d.memory_available, 3)}",
        "largest batch, started together": f"{d.largest_batch(tokens):,}",
        "memory batch, full server": f"{policy.memory_batch(d, r):,}",
    }


def of_plane(d, r, b, s):
    state, full = steady_state(d, r, b), steady_state(d, r)
    prefill = state.parts["prefill"]
    return {
        "rho, the estimate": f"{policy.rho(d, r, b):.3g}",
        "prefill / decode, exact": f"{prefill / (state.parts['linear'] + state.parts['attention']):.3g}",
        "prefill's share, exact": format_percent(prefill / state.seconds_per_request),
        "omega": f"{policy.omega(d, r):.3g}",
        "roof batch (estimate)": f"{int(policy.roof_batch(d, r) + 0.5):,}",
        "memory batch": f"{full.batch:,}",
        "chi": f"{policy.chi(d, r):.3g}",
        "cache reads on a full server": format_percent(full.shares["attention"]),
    }


def of_growth(d, r, b, s):
    last = r.output - 1
    at = min(s["position"], last)
    steady = policy.step_parts(d, r, (1, last), b).seconds
    together = policy.step_parts(d, r, (1, last), b, together=True).seconds
    here, traffic = policy.step_parts(d, r, at, b), policy.answer_traffic(d, r, b)
    passes = policy.span_where_cache_passes_weights(d, b)
    so_far = policy.answer_traffic(d, Request(r.prompt, at + 1, r.cached), b).triangle
    return {
        "first step, steady": format_seconds(steady[0]),
        "last step, steady": format_seconds(steady[1]),
        "first step, together": format_seconds(together[0]),
        "last step, together": format_seconds(together[1]),
        "this step: linear layers": format_seconds(here.linear + here.other),
        "this step: the neighbours' caches": format_seconds(here.neighbours),
        "this step: its own cache": format_seconds(here.own),
        "cache of one token": format_bytes(d.cache_bytes_per_token),
        "cache read so far, the batch": format_bytes(so_far),
        "cache read over the answer": format_bytes(traffic.triangle),
        "if it had its final size": format_bytes(traffic.end),
        "cache passes weights at": "never" if passes is None else f"{passes:,} tokens",
    }


def of_kinds(d, r, b, s):
    tokens, most = r.prompt + r.output - 1, d.max_positions or float("inf")
    works = [attention_work(kind, 1.0, float(tokens), 1.0) for kind in d.sizes.kinds]
    read = format_bytes(sum(work.cache_read + work.state / 2 for work in works), 3)
    found = {
        f"{kind.layers} × {kind.label}, at {tokens:,} tokens": format_bytes(kind.bytes, 3)
        for kind in policy.cache_by_kind(d, tokens)
    }
    for n in (1, 4096, 32_768, 131_072):
        held = format_bytes(d.sequence_bytes(n), 3) if n <= most else "beyond its positions"
        found[f"held at {n:,} token{'' if n == 1 else 's'}"] = held
    return found | {
        f"read in a step at {tokens:,} tokens": read,
        "held by the batch": format_bytes(b * d.sequence_bytes(tokens), 3),
        "weights": format_bytes(d.weight_bytes, 3),
    }


def of_batch(d, r, b, s):
    alone, here, full = (steady_state(d, r, batch) for batch in (1, b, None))
    kept = policy.at_latency(d, r, s["target"] / 1e3) if s["target"] / 1e3 >= alone.tpot else None
    return {
        "memory batch": f"{full.batch:,}",
        "roof batch (estimate)": f"{int(policy.roof_batch(d, r) + 0.5):,}",
        "omega": f"{policy.omega(d, r):.3g}",
        "tokens/s at batch 1": f"{alone.tokens_per_second:,.1f}",
        "tokens/s at this batch": f"{here.tokens_per_second:,.1f}",
        "tokens/s at the memory batch": f"{full.tokens_per_second:,.1f}",
        "TPOT at batch 1": format_seconds(alone.tpot),
        "TPOT at this batch": format_seconds(here.tpot),
        "TPOT at the memory batch": format_seconds(full.tpot),
        "GPU seconds a request, memory batch": format_seconds(full.seconds_per_request),
        "largest batch within the target": f"{kept.batch:,}" if kept else "none",
        "tokens/s there": f"{kept.state.tokens_per_second:,.1f}" if kept else "-",
    }


def of_prefill(d, r, b, s):
    cost = request_cost(d, r, b)
    alone, here, full = (steady_state(d, r, batch).shares["prefill"] for batch in (1, b, None))
    saved = 1 - 1 / s["times"]
    return {
        "prefill share, GPU clock": format_percent(here),
        "prefill share, request clock": format_percent(cost.ttft / cost.undisturbed),
        "prefill share, alone": format_percent(alone),
        "prefill share, full server": format_percent(full),
        "saved by this prefill, GPU": format_percent(here * saved),
        "saved by this prefill, full server": format_percent(full * saved),
        "rho, the estimate": f"{policy.rho(d, r, b):.3g}",
        "time to first token": format_seconds(cost.ttft),
        "under 5 % from this output on": f"{policy.break_even_output(d, r.prompt, b):,} tokens",
    }


def of_levers(d, r, b, s):
    ranked = policy.rank_levers(d, Request([r.prompt], [r.output], [r.cached]), b)
    kept = [lever for lever in ranked if "reloaded" not in lever.name]  # a prefix that lies elsewhere is not drawn
    return {lever.name: f"{lever.held:,.2f} → {lever.at_limit:,.2f}" for lever in kept}


def of_price(d, r, b, s):
    full = policy.memory_batch(d, r)
    here, alone, most = (f"{policy.output_token_in_prompt_tokens(d, r, n):,.1f}" for n in (b, 1, full))
    paid, least = (policy.price_of_request(d, r, n, s["dollars"]) * 1e6 / r.output for n in (b, full))
    return {
        "one output token, in prompt tokens": here,
        "at batch 1": alone,
        "at the memory batch": most,
        "memory batch": f"{full:,}",
        "$ a million output, here": f"${paid:,.2f}",
        "$ a million output, at the memory batch": f"${least:,.2f}",
        "GPU time of one output token": format_seconds(request_cost(d, r, b).tpot / b),
    }


@pytest.mark.parametrize("view", STARTS)
def test_numbers_are_the_librarys(view):
    asked = [{"view": view, "setting": STARTS[view] | other} for other in OTHERS]
    for one, numbers in zip(asked, answers("views", asked, explorer_data()), strict=True):
        setting = START | one["setting"]
        assert isinstance(numbers, list), (setting, numbers)
        expected = globals()[f"of_{view}"](*case(setting), setting)
        assert dict(numbers) == expected, setting
        if view != "levers":  # where gains are equal, rounding decides their order
            assert [label for label, _ in numbers] == list(expected)


def test_a_server_in_motion_serves_what_it_can():
    """Below capacity it serves what is asked for; past it, the queue grows and the first token comes ever later."""
    loads = (50, 180)
    asked = [{"view": "timeline", "setting": {"load": load}} for load in loads]
    calm, over = (dict(numbers) for numbers in answers("views", asked, explorer_data()))
    setting = START | {"prompt": 1268, "output": 1527, "batch": 24}
    deployment, request, batch = case(setting)
    rate = 1 / steady_state(deployment, request, batch).seconds_per_request
    for numbers, load in zip((calm, over), loads, strict=True):
        assert numbers["requests a second that it can take"] == f"{rate:.3g}"
        assert numbers["requests a second that arrive"] == f"{rate * load / 100:.3g}"
        assert numbers["memory batch"] == f"{policy.memory_batch(deployment, request):,}"

    def number(numbers, label):
        return float(numbers[label].split()[0].replace(",", ""))

    asked_for, served = "tokens/s asked for, second half", "tokens/s served, second half"
    assert number(calm, served) == pytest.approx(number(calm, asked_for), rel=0.25)
    assert number(over, served) == pytest.approx(rate * request.output, rel=0.1)
    assert number(over, served) < 0.75 * number(over, asked_for)
    assert number(over, "waiting at the end") > 24 > number(calm, "waiting at the end")
    assert number(over, "served at a time, at most") == 24


def test_a_step_reads_what_a_pass_reads():
    """What the kinds of layer say is the cache that a pass of one token reads."""
    deployment, *_ = case(START | {"model": "deepseek-v3.2", "accelerator": "b200", "devices": 8, "precision": "fp8"})
    read = pass_cost(deployment, 1, 9_000).cache_read
    asked = {"view": "kinds", "setting": {"model": "deepseek-v3.2", "accelerator": "b200", "devices": 8}}
    asked["setting"] |= {"precision": "fp8", "prompt": 9_000, "output": 1}
    (numbers,) = answers("views", [asked], explorer_data())
    assert dict(numbers)["read in a step at 9,000 tokens"] == format_bytes(read, 3)


@pytest.mark.slow
def test_every_model_and_accelerator_gives_a_picture_or_a_sentence():
    """Own models among them, with laws and states that the catalogue has not; no picture has a number that is none."""
    data = explorer_data(own_models(), own_accelerators())
    views = [*STARTS, "timeline"]
    asked = [{"view": view, "setting": {"model": each["name"]}} for view in views for each in data["models"]]
    asked += [{"view": v, "setting": {"accelerator": each["name"]}} for v in views for each in data["accelerators"]]
    drawn = 0
    for one, found in zip(asked, answers("stills", asked, data), strict=True):
        if isinstance(found, dict):
            assert found["refused"] and found["words"].endswith((".", "any number fits")), (one, found)
            continue
        drawn += 1
        assert not re.search(r"NaN|nan\b|undefined|Infinity|\binf\b", found), (one, found)
        for number in re.findall(r' (?:x|y|cx|cy|width|height)="(-?[\d.]+)"', found):
            assert -50 <= float(number) <= 1500, (one, number)
    assert drawn > 0.6 * len(asked)


ABSURD = (1e-300, 1, 1e30, 1e300)  # the library itself takes none but those in the middle


@pytest.mark.parametrize("name", ["bandwidth", "memory", "peaks", "link"])
def test_an_accelerator_with_absurd_numbers_is_drawn_or_refused_in_words(name):
    """No view throws or hangs, and none shows a number that cannot be read."""
    data = explorer_data()
    (known,) = (one for one in data["accelerators"] if one["name"] == "h100-sxm")
    given = {v: dict.fromkeys(known["peaks"], v) if name == "peaks" else v for v in ABSURD}
    absurd = [known | {"name": f"absurd {value}", name: numbers} for value, numbers in given.items()]
    devices = 2 if name == "link" else 1
    cases = [(value, view) for value in ABSURD for view in VIEWS]
    asked = [{"view": v, "setting": {"accelerator": f"absurd {value}", "devices": devices}} for value, v in cases]
    found = dict(zip(cases, answers("stills", asked, data | {"accelerators": absurd}), strict=True))
    for case, one in found.items():
        if isinstance(one, dict):
            assert re.search(r"\w+.* [\w.]+\.$", one["words"]), (case, one)
        else:
            assert not re.search(r"NaN|nan\b|undefined|Infinity|\binf\b|[\d,]{40}", one), (case, one)
    if name == "bandwidth":
        tiny = {view: found[1e-300, view] for view in VIEWS}
        assert {view for view, one in tiny.items() if isinstance(one, dict)} == VIEWS.keys() - {"kinds"}
        assert "too large or too small to compute or draw" in tiny["plane"]["words"]
        assert tiny["plane"] == tiny["batch"]


def test_one_output_token_and_a_quiet_server_are_said_in_words():
    views = ("request", "plane", "levers", "prefill", "kinds")
    asked = [{"view": view, "setting": {"prompt": 43, "output": 1, "cached": 42, "batch": 1}} for view in views]
    quiet = {"model": "llama-3.2-3b", "prompt": 5878, "output": 2, "batch": 1, "load": 5}
    asked.append({"view": "timeline", "setting": quiet})
    for one, found in zip(asked, answers("stills", asked, explorer_data()), strict=True):
        assert isinstance(found, str), (one, found)
        assert not re.search(r"NaN|nan\b|undefined|null|Infinity|\binf\b", found), (one, found)
    for key in ("prompt", "output"):
        (found,) = answers("stills", [{"view": "kinds", "setting": {key: 1.5}}], explorer_data())
        assert f"{key} is 1.5;" in found["words"]
