"""Full servers as published: none faster than its floor; the limits of a benchmark are targets; nvfp4 in fp4."""

from dataclasses import replace
from datetime import date
from statistics import median

import pytest

from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.measurements import load_measurements
from lessonlib.facts.tables import load_table
from lessonlib.measured.published import deployment_of
from lessonlib.model.precision import BITS, Precision
from lessonlib.policy.full_server import at_latency, steady_state
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment, Efficiency
from lessonlib.time.roofline import pass_cost

ROWS = load_table("serving")
RATES = [row for row in ROWS if row["metric"].startswith("output_rate")]
LIMITS = {(row["id"][:4], row["metric"]): row for row in ROWS if row["metric"].endswith("_limit")}
TARGETS = sorted({name for name, _ in LIMITS})
FASTEST = Efficiency(all_reduce_latency=0.0, all_to_all_latency=0.0)


def fastest(row):
    """Output tokens a second of the floor: an fp8 cache where none is stated, prompts alone or riding on steps."""
    model, accelerator = load_model(row["model"]), load_accelerator(row["accelerator"])
    precision = Precision(row["weights"], cache=row["cache"] or "fp8")
    server = Deployment(model, accelerator, precision, row["devices"], row["layout"], efficiency=FASTEST)
    request = Request(row["prompt_tokens"], row["output_tokens"])
    return max(steady_state(server, request, row["batch"], mixed).tokens_per_second for mixed in (False, True))


def test_no_published_server_is_faster_than_its_floor(capsys):
    ratios = {}
    for row in RATES:
        devices = row["devices"] if row["metric"] == "output_rate_per_device" else 1
        ratios[row["id"]] = fastest(row) / (row["value"] * devices)
    with capsys.disabled():
        print(f"\nfull servers, floor over published: median {median(ratios.values()):.1f} of {len(ratios)} rows")
    assert len(ratios) == 6 and min(ratios.values()) > 1
    assert median(ratios.values()) == pytest.approx(4.05, rel=0.05)


def test_every_row_is_attributed_and_complete():
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    for row in ROWS:
        load_model(row["model"])
        assert row["source"] and row["source_url"].startswith("https://") and date.fromisoformat(row["retrieved"]), row
        assert row["licence"] in ("Apache-2.0", "none stated") and row["value"] > 0
        units = {"output_rate": "tok/s", "output_rate_per_device": "tok/s/device"}
        assert row["unit"] == units.get(row["metric"], "ms")
    for row in RATES:
        assert row["weights"] in BITS and row["layout"] in ("tensor", "expert") and row["devices"] and row["batch"], row
        assert row["prompt_tokens"] and row["output_tokens"], row
    assert sum(row["licence"] == "none stated" for row in ROWS) <= 20


@pytest.mark.parametrize("name", TARGETS)
def test_a_benchmarks_limits_are_targets(name):
    """One request more misses the limit per token, or does not fit; the first token keeps its own, without a queue."""
    row, first = LIMITS[name, "tpot_limit"], LIMITS[name, "ttft_limit"]
    model, h200 = load_model(row["model"]), load_accelerator("h200-sxm")
    server, request = Deployment(model, h200, Precision("fp8"), 8), Request(1024, 256)
    target = row["value"] * 1e-3
    found = at_latency(server, request, target)
    assert found.state.tpot <= target and found.state.ttft <= first["value"] * 1e-3
    assert found.batch == found.state.batch > 1
    if found.binds == "target":
        assert steady_state(server, request, found.batch + 1).tpot > target
    else:
        assert steady_state(server, request).batch == found.batch


def test_an_interactive_limit_costs_throughput():
    h200 = load_accelerator("h200-sxm")
    for server, interactive in (("s060", "s061"), ("s063", "s064"), ("s067", "s068")):
        model = load_model(LIMITS[server, "tpot_limit"]["model"])
        deployment = Deployment(model, h200, Precision("fp8"), 8)
        targets = [LIMITS[name, "tpot_limit"]["value"] * 1e-3 for name in (server, interactive)]
        slow, fast = (at_latency(deployment, Request(1024, 256), target) for target in targets)
        assert fast.batch < slow.batch and fast.state.tokens_per_second < slow.state.tokens_per_second


def test_decode_of_an_nvfp4_model_is_priced_at_the_fp4_peak():
    model, b200 = load_model("llama-3.1-8b"), load_accelerator("b200")
    server = Deployment(model, b200, Precision("nvfp4"))
    wide = Deployment(model, b200, Precision("nvfp4", compute="bf16"))
    row = replace(load_measurements()[0], weights="nvfp4", cache="fp8", engine="vLLM 0.11")
    of_row = deployment_of(row, model=model, accelerator=b200)
    assert server.dtypes["blocks"] == of_row.dtypes["blocks"] == "fp4"
    batch = 2048  # by hand: 2 FLOP a weight and sequence, over the peak of fp4
    seconds = 2 * model.block_matmul_weights * batch / b200.peaks["fp4"]
    for deployment in (server, of_row):
        assert pass_cost(deployment, 1, 0, batch).roofs["linear layers"].seconds == pytest.approx(seconds, rel=1e-9)
    assert pass_cost(wide, 1, 0, batch).roofs["linear layers"].seconds > 3.9 * seconds
