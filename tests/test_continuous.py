"""Continuous batching against a server that goes token by token, against request_cost, and for what must conserve."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import (
    assembled,
    deepseek_v3,
    deployments,
    device,
    examples,
    gpt_oss,
    h100,
    qwen3_30b_a3b,
    qwen3_next,
    refuses,
    server,
)
from hypothesis import given
from hypothesis import strategies as st
from token_by_token import (
    TIGHT,
    TokenByToken,
    assert_conserved,
    assert_same,
    random_traffic,
    with_cache_of,
)

from lessonlib.base.errors import DoesNotFitError, UnknownNameError
from lessonlib.facts.tables import load_table
from lessonlib.facts.workloads import load_lengths
from lessonlib.model.attention import GroupedQueryAttention, MultiHeadLatentAttention
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts
from lessonlib.model.state import GatedDeltaNet
from lessonlib.policy.serving.clock import steps_until
from lessonlib.policy.serving.simulator import POLICIES, simulate
from lessonlib.policy.serving.traffic import Traffic, all_at_once, poisson_traffic
from lessonlib.request.cost import request_cost
from lessonlib.request.lengths import LengthQuantiles
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment, Efficiency, Speculation
from lessonlib.time.roofline import pass_cost


@examples(80)
@given(
    deployments(),
    st.integers(0, 2**32),
    st.sampled_from([("first", None), ("joint", None), ("chunked", 1), ("chunked", 7), ("chunked", 64)]),
    st.sampled_from([1, 3, 16]),
    st.sampled_from([0.0, 0.01, 0.2]),
    st.sampled_from([1.0, 1.5, 4.0]),
    st.sampled_from([0.5, 3.0, 30.0]),
    st.sampled_from([None, None, 2]),
)
def test_events_are_the_token_by_token_server(deployment, seed, mode, block, watermark, size, load, most):
    prefill, budget = mode
    if prefill == "joint":
        deployment = replace(deployment, prefill_chunk=None)
    longest = 24
    traffic = random_traffic(deployment, seed, 10, longest, load)
    largest = TokenByToken(deployment, traffic, prefill, block, watermark).bytes_of(2 * longest)
    deployment = with_cache_of(deployment, math.ceil(size * largest))
    report = simulate(deployment, traffic, prefill, block, watermark, most, budget)
    assert_same(report, TokenByToken(deployment, traffic, prefill, block, watermark, budget, most).run())
    assert_conserved(report)


def grouped(window=None):
    return GroupedQueryAttention(width=256, heads=8, kv_heads=4, head_dim=64, window=window)


LATENT = MultiHeadLatentAttention(width=256, heads=8, kv_rank=64, nope_dim=32, rope_dim=16, value_dim=32)
DELTA = GatedDeltaNet(width=256, key_heads=4, value_heads=4, key_dim=32, value_dim=32, conv_kernel=4)
EXPERTS = MixtureOfExperts(width=256, experts=16, experts_per_token=2, expert_inner=256)
MIXERS = {
    "full": [grouped()],
    "one window": [grouped(50)],
    "windows": [grouped(24), grouped(), grouped(90)],
    "everything": [LATENT, grouped(37), DELTA, grouped(), grouped(130)],
    "constant state": [DELTA],
}


def tiny(tokens, mixers="full", **efficiency):
    """A model of a few layers, on a device slow enough for steps of about a millisecond, with a cache for `tokens`."""
    dense = DenseFeedForward(width=256, inner=512)
    blocks = tuple((2, mixer, EXPERTS if i % 2 else dense) for i, mixer in enumerate(MIXERS[mixers]))
    slow = device(bandwidth=1e9, peaks={"bf16": 1e11})
    deployment = Deployment(assembled("toy", 256, 100, blocks), slow, efficiency=Efficiency(**efficiency), devices=2)
    return with_cache_of(deployment, deployment.sequence_bytes(float(tokens)))


@pytest.mark.parametrize("prefill", POLICIES)
@pytest.mark.parametrize("mixers", MIXERS)
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 6))])
def test_longer_requests_with_preemptions_are_the_token_by_token_server(mixers, prefill, seed):
    block, watermark, budget = (1, 7, 16)[seed % 3], (0.0, 0.05)[seed % 2], (None, 48, 9)[seed % 3]
    budget = budget if prefill == "chunked" else None
    deployment = tiny(900, mixers, overhead=1e-4)
    traffic = random_traffic(deployment, seed, 40, 200, load=20.0)
    if mixers in ("one window", "windows", "constant state"):  # the cache stops growing: room for three and a half
        largest = TokenByToken(deployment, traffic, prefill, block, watermark).bytes_of(400)
        deployment = with_cache_of(deployment, 3.5 * largest)
    report = simulate(deployment, traffic, prefill, block, watermark, token_budget=budget)
    assert_same(report, TokenByToken(deployment, traffic, prefill, block, watermark, budget).run())
    assert_conserved(report)
    assert report.occupancy.waiting.max() > 5
    if mixers == "constant state":
        assert report.preemptions.sum() == report.recomputed_tokens == 0
    else:
        assert report.preemptions.sum() > 0 < report.recomputed_tokens
    if prefill != "chunked":
        assert (report.seconds["recompute"] > 0) == (report.recomputed_tokens > 0) and report.seconds["mixed"] == 0
    else:
        assert report.seconds["mixed"] > 0


# ---- against the closed form of one request, and of a static batch

SERVERS = {
    "llama": lambda: server(),
    "overhead": lambda: server(efficiency=Efficiency(0.5, 0.7, 3e-3)),
    "windows": lambda: server(gpt_oss(24, 32)),
    "experts": lambda: server(qwen3_30b_a3b(), replace(h100(), memory=1e12)),
    "latent": lambda: server(deepseek_v3(), replace(h100(), memory=1e12), "fp8", devices=2),
    "constant state": lambda: server(qwen3_next(), replace(h100(), memory=1e12)),
}


@pytest.mark.parametrize("chunk", [None, 300])
@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize(("prompt", "output"), [(1024, 128), (128, 12_800), (1, 1), (1000, 2)])
def test_a_request_alone_is_request_cost(name, chunk, prompt, output):
    deployment = replace(SERVERS[name](), prefill_chunk=chunk)
    cost = request_cost(deployment, Request(prompt, output))
    for prefill in ("first", "chunked") if chunk else POLICIES:
        report = simulate(deployment, Traffic([0.0], prompt, output), prefill)
        assert report.finish[0] == pytest.approx(cost.undisturbed, rel=TIGHT)
        assert report.ttft[0] == pytest.approx(cost.ttft, rel=TIGHT)
        assert report.tpot[0] == pytest.approx(cost.tpot, rel=TIGHT, nan_ok=True)
        assert report.seconds["decode"] == pytest.approx(cost.decode.seconds, rel=TIGHT)
        assert report.seconds["prefill"] == pytest.approx(cost.prefill.seconds, rel=TIGHT)
        assert report.utilisation == 1 and report.seconds["idle"] == 0
        assert_conserved(report)


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize(("prompt", "output", "batch"), [(1024, 128, 32), (128, 5000, 33), (77, 2, 5), (300, 1, 9)])
def test_identical_requests_at_once_are_the_static_batch(name, prompt, output, batch):
    deployment = replace(SERVERS[name](), efficiency=Efficiency(0.6, 0.8, 1e-3))
    report = simulate(deployment, all_at_once(batch, prompt, output), "joint")
    assert report.elapsed == pytest.approx(request_cost(deployment, Request(prompt, output), batch).seconds, rel=TIGHT)
    assert set(report.finish) == {report.end} and report.peak_running == batch
    assert_conserved(report)


def test_one_request_at_a_time_is_a_queue_of_request_costs():
    """With a batch of one, each begins when it has arrived and the one before is done (Lindley's recursion)."""
    deployment = server()
    traffic = poisson_traffic(200, 1 / 4, load_lengths("chat", "prompt"), load_lengths("chat", "output"), seed=5)
    report = simulate(deployment, traffic, max_batch=1)
    done = 0.0
    for i, arrival in enumerate(traffic.arrivals):
        cost = request_cost(deployment, Request(int(traffic.prompt[i]), int(traffic.output[i])))
        done = max(arrival, done) + cost.undisturbed
        assert report.finish[i] == pytest.approx(done, rel=TIGHT)
    assert report.peak_running == 1 and report.seconds["idle"] > 0
    assert_conserved(report)


def test_a_mixed_pass_has_one_linear_roof_and_attention_for_each_sequence():
    """A decodes alone; B's prompt of 1,000 tokens rides on one of its steps, as computed here by hand."""
    deployment = server()
    step_one = pass_cost(deployment, 1, 100)
    arrival = pass_cost(deployment, 100).seconds + step_one.seconds / 2
    report = simulate(deployment, Traffic([0.0, arrival], [100, 1000], [50, 1]), "chunked")
    sizes, peak, bandwidth = deployment.sizes, deployment.peak, deployment.bandwidth
    linear = max(sizes.token_flops * 1001 / peak, sizes.block_bytes / bandwidth)  # compute bound
    linear += max(sizes.logit_flops * 2 / peak, sizes.head_bytes / bandwidth)  # memory bound
    decoding, prompt = pass_cost(deployment, 1, 101).attention.seconds, pass_cost(deployment, 1000).attention.seconds
    assert report.seconds["mixed"] == pytest.approx(linear + decoding + prompt, rel=TIGHT)
    assert report.first_token[1] == pytest.approx(
        pass_cost(deployment, 100).seconds + step_one.seconds + report.seconds["mixed"], rel=TIGHT
    )
    apart = simulate(deployment, report.traffic, "first")
    saved = apart.end - report.end  # one read of the weights, as the blocks of the prompt's pass are compute bound
    assert saved == pytest.approx(sizes.dense_bytes / bandwidth - sizes.token_flops / peak, rel=1e-6)


@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e3), st.one_of(st.just(0.0), st.floats(1e-15, 1e3)))
def test_steps_until_is_the_first_step_that_ends_late_enough(seconds, rate, growth):
    m = steps_until(seconds, rate, growth)

    def taken(m):
        return m * (rate + growth * (m + 1) / 2)

    assert m >= 1 and taken(m) >= seconds and (m == 1 or taken(m - 1) < seconds)


# ---- traffic as it is published


def production(count, rate, seed=3, thought_share=0.7):
    prompt, output = (load_lengths("production-reasoning", name) for name in ("prompt", "output"))
    return poisson_traffic(count, rate, prompt, output, seed, thought_share)


@pytest.mark.parametrize("prefill", POLICIES)
@pytest.mark.parametrize("rate", [1.0, 20.0])
def test_production_traffic_conserves_everything(prefill, rate):
    report = simulate(server(), production(1500, rate), prefill)
    assert_conserved(report)
    if rate > 10:  # far more than this server can take
        assert report.preemptions.sum() > 0 and report.peak_cache_bytes > 0.999 * report.cache_bytes_available
        assert report.events < 5 * len(report.traffic)  # a preempted request is not readmitted at once
    else:
        assert report.preemptions.sum() == 0


def test_first_come_first_served_while_none_is_preempted():
    report = simulate(server(), production(400, 1.0))
    assert report.preemptions.sum() == 0 and np.all(np.diff(report.first_token) > 0)


@pytest.mark.parametrize("prefill", ["first", "chunked"])
def test_a_horizon_ends_an_overload_with_a_report_that_loses_nothing(prefill):
    traffic = production(3000, 30.0)
    report = simulate(server(), traffic, prefill, horizon=60.0)
    whole = simulate(server(), traffic, prefill)
    assert report.ended == "the horizon was reached" and 60 <= report.end < 61
    assert 0 < report.finished < report.finished + len(report.unfinished) == 3000
    before = whole.finish <= report.end
    assert report.finish[before] == pytest.approx(whole.finish[before], rel=TIGHT)
    assert np.isnan(report.finish[~before]).all()
    answered = whole.first_answer_token <= report.end
    assert report.first_answer_token == pytest.approx(
        np.where(answered, whole.first_answer_token, np.nan), rel=TIGHT, nan_ok=True
    )
    arrived = traffic.arrivals <= report.end
    in_system = np.where(before, report.finish, report.end) - traffic.arrivals
    assert report.request_seconds == pytest.approx(in_system[arrived].sum(), rel=TIGHT)
    assert math.fsum(report.seconds.values()) == pytest.approx(report.elapsed, rel=TIGHT)
    waiting_or_running = report.occupancy.waiting[-1] + report.occupancy.running[-1]
    assert waiting_or_running == arrived.sum() - report.finished
    assert traffic.output[before].sum() < report.output_tokens < traffic.output[arrived].sum()
    assert f"{report.finished:,} finished, {len(report.unfinished):,} unfinished" in repr(report)


@pytest.mark.parametrize("prefill", POLICIES)
@pytest.mark.parametrize("share", [0.05, 0.2, 0.4, 0.6, 0.8])
def test_a_run_that_ends_early_is_the_beginning_of_the_whole_run(prefill, share):
    deployment = tiny(900)
    for seed in range(6):
        traffic = random_traffic(deployment, seed, 40, 200, load=20.0)
        whole = simulate(deployment, traffic, prefill)
        early = simulate(deployment, traffic, prefill, horizon=whole.start + share * whole.elapsed)
        for name in ("first_token", "first_answer_token", "finish"):
            expected = getattr(whole, name)
            expected = np.where(expected <= early.end * (1 + TIGHT), expected, np.nan)
            assert getattr(early, name) == pytest.approx(expected, rel=TIGHT, nan_ok=True)
        assert np.all(early.preemptions <= whole.preemptions) and early.output_tokens < whole.output_tokens


def test_a_horizon_in_an_idle_stretch_and_after_the_end():
    traffic = Traffic([1.0, 50.0], 100, 20)
    report = simulate(server(), traffic, horizon=10.0)
    assert (report.end, report.finished, report.unfinished.tolist()) == (10.0, 1, [1])
    assert report.occupancy.waiting[-1] == report.occupancy.running[-1] == 0
    assert report.utilisation == pytest.approx(report.latency[0] / 9)
    late = simulate(server(), traffic, horizon=1000.0)
    assert late.ended == "every request finished" and late.end == late.finish[1]


def test_most_events_ends_a_run():
    report = simulate(server(), production(500, 5.0), most_events=100)
    assert report.events == 100 and report.ended == "most_events = 100 was reached"
    assert 0 < report.finished < 500 and "100 events" in repr(report)


def test_a_seed_is_a_run():
    one, same, other = (simulate(server(), production(300, 2.0, seed)) for seed in (1, 1, 2))
    assert repr(one) == repr(same) != repr(other)
    assert np.array_equal(one.finish, same.finish) and np.array_equal(one.occupancy.time, same.occupancy.time)


def test_an_answer_begins_after_the_thought():
    deployment = server()
    first, half, last, never = (
        simulate(deployment, Traffic([0.0], 100, 1001, share)) for share in (0.0, 0.5, 0.9999, 1.0)
    )
    assert first.first_answer_token[0] == first.first_token[0]
    until = request_cost(deployment, Request(100, 501))  # token 501 is the first after 500 of thought
    assert half.time_to_answer[0] == pytest.approx(until.undisturbed, rel=TIGHT)
    assert last.first_answer_token[0] == pytest.approx(last.finish[0], rel=TIGHT)
    assert math.isnan(never.first_answer_token[0]) and never.finish[0] == first.finish[0]
    assert Traffic([0.0], 1, 100, 0.29).answer_starts.tolist() == [30]


def test_watermark_batch_and_block_limit_admission():
    deployment = tiny(1000)
    traffic = all_at_once(10, 100, 2)
    each = 7 * 16  # tokens in blocks

    def peak(**options):
        return simulate(deployment, traffic, "joint", **options).peak_running

    assert peak(watermark=0.0) == 1000 // each == 8
    assert peak(watermark=0.5) == 4
    assert peak(watermark=1.0) == 1
    assert peak(watermark=0.0, block=1) == 10  # their prompts fit, and not one token more:
    assert simulate(deployment, traffic, "joint", watermark=0.0, block=1).preemptions.tolist() == [0] * 9 + [1]
    assert peak(max_batch=3) == 3


# ---- what the report says


def test_percentiles_and_goodput_by_hand():
    report = simulate(server(), Traffic(np.arange(11.0) * 100, np.linspace(100, 1100, 11).astype(int), [2] * 10 + [1]))
    ttft = np.sort(report.ttft)
    assert report.percentiles("ttft", (0, 50, 100)) == pytest.approx((ttft[0], ttft[5], ttft[10]))
    assert report.percentiles("tpot", (100,)) == pytest.approx((np.nanmax(report.tpot),))
    share, rate = report.goodput(ttft=(ttft[3] + ttft[4]) / 2)
    assert share == pytest.approx(4 / 11) and rate == pytest.approx(4 / report.elapsed)
    assert report.goodput() == pytest.approx((1.0, 11 / report.elapsed))
    assert report.goodput(tpot=1e-9)[0] == pytest.approx(1 / 11)  # the request of one token has no TPOT
    early = simulate(server(), Traffic([0.0], 100, 20_000), horizon=1.0)
    assert np.isnan(early.percentiles("latency")).all() and early.goodput() == (0.0, 0.0)


def test_mean_running_is_between_nothing_and_the_peak():
    report = simulate(server(), production(300, 2.0))
    assert 0 < report.mean_running <= report.mean_in_system <= report.peak_running + report.occupancy.waiting.max()


def test_a_report_shows_as_a_table_with_units():
    report = simulate(server(), production(50, 2.0), "chunked")
    text, html = repr(report), report._repr_html_()
    for words in (
        "llama-3.1-8b on 1 x h100-sxm",
        "ride on decode steps",
        "50 finished",
        "tokens/s",
        "GB of",
        " ms",
        "TTFT",
    ):
        assert words in text and words in html
    assert html.count("<tr>") == len(text.splitlines()) - 1


@pytest.mark.parametrize("workload", ["chat", "production-reasoning"])
@pytest.mark.parametrize("quantity", ["prompt", "output"])
def test_lengths_have_the_published_quantiles_and_nearly_the_published_mean(workload, quantity):
    row = next(r for r in load_table("workload_quantiles") if (r["workload"], r["quantity"]) == (workload, quantity))
    sample = load_lengths(workload, quantity).sample(np.random.default_rng(0), 400_000)
    assert sample.dtype == np.int64 and sample.min() == row["p0_1"] and sample.max() <= row["max"]
    for column, at in (("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert np.quantile(sample, at) == pytest.approx(row[column], rel=0.06)
    assert sample.mean() == pytest.approx(row["mean"], rel=0.06)  # the published quantiles do not fix the mean


def test_between_quantiles_the_logarithm_is_linear():
    class Half:
        def random(self, count):
            return np.full(count, 0.5)

    assert LengthQuantiles((0.25, 0.75, 1.0), (10, 1000, 1000)).sample(Half(), 2).tolist() == [100, 100]


def test_poisson_gaps_and_independent_lengths():
    traffic = production(100_000, 2.0)
    gaps = np.diff(traffic.arrivals)
    assert gaps.mean() == pytest.approx(0.5, rel=0.02) and gaps.std() == pytest.approx(0.5, rel=0.02)
    assert abs(np.corrcoef(np.log(traffic.prompt), np.log(traffic.output))[0, 1]) < 0.01
    assert np.array_equal(traffic.prompt, production(100_000, 7.0).prompt)  # the rate changes the arrivals alone
    assert "100,000 requests" in repr(traffic)


# ---- bad input


def one(**changes):
    return Traffic(**({"arrivals": [0.0, 1.0], "prompt": 10, "output": 5} | changes))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: one(arrivals=[]), "Traffic: arrivals"),
        (lambda: one(arrivals=[1.0, 0.5]), "Traffic: arrivals[1]"),
        (lambda: one(output=[5, 5, 5]), "output"),
        (lambda: one(thought_share=[0.1, 0.2, 0.3]), "thought_share"),
        (lambda: poisson_traffic(5, 1.0, [1, 2], 5, 0), "prompt"),
        (lambda: LengthQuantiles((0.5, 1.0), (10, 20, 30)), "LengthQuantiles: lengths"),
        (lambda: LengthQuantiles((0.5, 0.9), (10, 20)), "LengthQuantiles: probabilities"),
        (lambda: LengthQuantiles((0.9, 0.5, 1.0), (10, 20, 30)), "LengthQuantiles: probabilities"),
        (lambda: LengthQuantiles((0.5, 1.0), (20, 10)), "LengthQuantiles: lengths"),
        (lambda: LengthQuantiles((0.5, 1.0), (0, 10)), "LengthQuantiles: lengths"),
        (lambda: simulate("llama", one()), "simulate: deployment"),
        (lambda: simulate(server(), [1, 2]), "simulate: traffic"),
        (lambda: simulate(server(speculation=Speculation(3, 0.7, "free")), one()), "speculation"),
        (lambda: simulate(server(), one(), "last"), "simulate: prefill"),
        (lambda: simulate(server(prefill_chunk=512), one(), "joint"), "prefill_chunk"),
        (lambda: simulate(server(), one(), token_budget=512), "token_budget"),
        (lambda: simulate(server(), one(), "chunked", token_budget=0), "simulate: token_budget"),
        (lambda: simulate(server(), one(), block=0), "simulate: block"),
        (lambda: simulate(server(), one(), block=10**9), "simulate: block"),
        (lambda: simulate(server(), one(), watermark=1.1), "simulate: watermark"),
        (lambda: simulate(server(), one(), max_batch=0), "simulate: max_batch"),
        (lambda: simulate(server(), one(), horizon=math.nan), "simulate: horizon"),
        (lambda: simulate(server(), one(), horizon=0.0), "simulate: horizon"),
        (lambda: simulate(server(), one(), most_events=0), "simulate: most_events"),
        (
            lambda: simulate(server(), one(prompt=[10, 131_000], output=[5, 73])),
            "request 1",
        ),
        (lambda: simulate(server(), one(), []), "simulate: prefill"),
        (lambda: simulate(server(), Traffic([1.7e18], 10, 5)), "1.7e+18"),
        (lambda: simulate(server(), Traffic([0.0, 1.7e12], 10, 5)), "arrival"),
    ],
)
def test_bad_input_is_refused_by_name(make, name):
    refuses(make, name)


def test_lengths_that_the_table_lacks():
    with pytest.raises(UnknownNameError, match="production-reasoning: output"):
        load_lengths("production-reasoning", "outputs")


def test_a_request_that_never_fits_is_named_before_anything_runs():
    deployment = tiny(1000)
    fits = simulate(deployment, Traffic([0.0, 1.0], [10, 993], [5, 8]), block=1)
    assert fits.finished == 2
    with pytest.raises(DoesNotFitError, match="request 1 by itself: toy with 1 x 1,001 tokens") as caught:
        simulate(deployment, Traffic([0.0, 1.0], [10, 993], [5, 9]), block=1)
    assert caught.value.needed > caught.value.available and caught.value.remedies
    with pytest.raises(DoesNotFitError, match=r"request 0 takes .* in blocks for its 993 tokens") as caught:
        simulate(deployment, Traffic([0.0], 993, 1))  # 63 blocks of 16 are 1,008 tokens
    assert caught.value.needed > caught.value.available
    with pytest.raises(DoesNotFitError, match="request 0 by itself"):
        simulate(server(deepseek_v3()), Traffic([0.0], 10, 5))  # not even the weights do


def test_a_clock_of_epoch_seconds_is_fine_enough():
    found = simulate(server(), Traffic([1.7e9], 1024, 128))
    assert found.latency[0] == pytest.approx(request_cost(server(), Request(1024, 128)).undisturbed, rel=1e-5)
