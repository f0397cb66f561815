"""rho, omega and the roof batch: the lesson's own figures, the formulae by hand, where they hold and bend."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import BY_HAND, assembled, h100, llama, qwen3_30b_a3b, server

from lessonlib.base.errors import DoesNotFitError, InvalidInputError
from lessonlib.facts.tables import load_table
from lessonlib.facts.workloads import load_workload
from lessonlib.model.feedforward import DenseFeedForward
from lessonlib.model.precision import Precision
from lessonlib.model.state import GatedDeltaNet
from lessonlib.policy.estimates import omega, rho, ridge_tokens, roof_batch, used_over_read
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request

RIDGE = 989e12 / 3.35e12
CHAT, REASONING = Request(1024, 128), Request(128, 12_800)


def roomy(**changes):
    """The lesson's server with memory for everything, and Llama's positions lifted: only time is asked about."""
    return server(replace(llama(), max_positions=None), replace(h100(), memory=1e15), **changes)


def prefill_share(deployment, prompt, output, batch):
    return 1 - request_cost(deployment, Request(prompt, output), batch).decode_share


# ---- rho


@pytest.mark.parametrize("request_", [CHAT, REASONING, Request(122_317, 440, cached=117_804)], ids=repr)
@pytest.mark.parametrize("batch", [1, 32])
def test_rho_of_a_dense_model_is_tokens_over_tokens_times_the_ridge(request_, batch):
    by_hand = batch * (request_.prompt - request_.cached) / (RIDGE * request_.output)
    assert rho(server(), request_, batch) == pytest.approx(by_hand, rel=1e-14)


def test_the_parameter_count_of_a_dense_model_cancels():
    assert rho(server(BY_HAND["qwen2.5-0.5b"][0]()), CHAT) == rho(server(), CHAT)


def test_rho_takes_arrays():
    batches = np.array([[1], [32]])
    prompts = np.array([128, 1024, 4096])
    table = rho(server(), Request(prompts, 128), batches)
    assert table.shape == (2, 3)
    assert table[1, 1] == rho(server(), CHAT, 32)


@pytest.mark.parametrize("dtype, bytes_of_a_weight", [("bf16", 2), ("fp8", 1), ("int4", 4.25 / 8)])
def test_smaller_weights_lower_the_ridge_and_so_raise_rho(dtype, bytes_of_a_weight):
    deployment = server(dtype=Precision(dtype, compute="bf16"))
    assert ridge_tokens(deployment) == pytest.approx(RIDGE * bytes_of_a_weight / 2, rel=1e-14)
    assert rho(deployment, CHAT) == pytest.approx(rho(server(), CHAT) * 2 / bytes_of_a_weight, rel=1e-14)


def test_the_sufficient_condition():
    """n_out / n_in > 0.064 b keeps prefill under 5 %: prompts of 318 to about 8,000 tokens (7,300 at batch 1)."""
    prompts = np.unique(np.geomspace(318, 7300, 60).round())
    for batch in (1, 2, 8, 32, 100, 256, 1000, 1549):  # with no limit of positions or memory
        outputs = np.floor(0.064 * batch * prompts) + 1
        assert np.all(prefill_share(roomy(), prompts, outputs, batch) < 0.05)
    assert 100 > 0.064 * 1549  # a ratio of 100 is enough for every batch below 1,550 ...
    assert 100 < 0.064 * 1564  # ... and not for much larger ones


def test_the_sufficient_condition_is_not_loose_and_ends_where_it_says():
    assert prefill_share(roomy(), 8000, int(0.9 * 0.064 * 8000), 1) > 0.05
    assert prefill_share(roomy(), 20_000, int(0.064 * 20_000) + 1, 1) > 0.05  # attention over the prompt itself
    assert prefill_share(roomy(), 100, int(0.064 * 100) + 1, 1) > 0.05  # a prompt under the ridge costs one step ...
    for prompt in (1, 100, 318):
        assert prefill_share(roomy(), prompt, 21, 1) < 0.05 < prefill_share(roomy(), prompt, 19, 1)  # ... 20 tokens do


def test_rho_overstates_prefill_where_cache_reads_slow_the_steps():
    cost = request_cost(server(), CHAT, 370)
    exact = cost.prefill.seconds / cost.decode.seconds
    assert rho(server(), CHAT, 370) / exact == pytest.approx(5, rel=0.01)


def test_rho_understates_a_short_prompt():
    cost = request_cost(server(), REASONING)
    assert rho(server(), REASONING) < 0.5 * cost.prefill.seconds / cost.decode.seconds


# ---- a mixture of experts


def test_a_mixture_of_experts_reads_more_than_it_uses():
    """Qwen3-30B-A3B by hand: 48 layers, 128 experts of 3 x 2048 x 768, 8 a token; attention and router beside them."""
    expert = 3 * 2048 * 768
    beside = 2 * 2048 * 32 * 128 + 2 * 2048 * 4 * 128 + 2048 * 128
    deployment = server(qwen3_30b_a3b(), replace(h100(), memory=1e15))
    for batch in (1, 2, 32, 1000):
        distinct = 128 * (1 - (1 - 8 / 128) ** batch)
        by_hand = (beside + 8 * expert) / (beside + distinct * expert)
        assert used_over_read(deployment, batch) == pytest.approx(by_hand, rel=1e-12)
        dense = batch * 1024 / (RIDGE * 128)
        assert rho(deployment, CHAT, batch) == pytest.approx(dense * by_hand, rel=1e-12)
    assert used_over_read(deployment, 1) == pytest.approx(1, rel=1e-14)
    assert np.all(np.diff(used_over_read(deployment, np.arange(1, 200))) < 0)


def test_with_its_factor_rho_is_as_near_for_a_mixture_of_experts_as_for_a_dense_model():
    """A long prompt, and steps that read few cached tokens: nothing but the linear layers."""
    deployment = server(replace(qwen3_30b_a3b(), max_positions=None), replace(h100(), memory=1e15))
    for batch in (32, 128):
        cost = request_cost(deployment, Request(400, 4000), batch)
        linear = cost.prefill.linear.seconds / cost.decode.linear.seconds
        assert rho(deployment, Request(400, 4000), batch) == pytest.approx(linear, rel=0.1)
        assert rho(server(), Request(400, 4000), batch) > 2 * linear  # without the factor


def test_a_dense_model_uses_what_it_reads():
    assert used_over_read(server(), 32) == 1


# ---- omega and the roof batch


def test_omega_of_the_lesson():
    production = load_workload("production-reasoning")
    for output, printed in (
        (CHAT.output, "0.09"),
        (production.output_median, "0.55"),
        (round(production.output_mean), "1.06"),
        (REASONING.output, "8.9"),
    ):
        found = omega(server(), output)
        assert f"{found:.2g}" == printed or f"{found:.2f}" == printed
    by_hand = 12_800 * 131_072 * RIDGE / (0.9 * 80e9 - 2 * 8_030_261_248)
    assert omega(server(), 12_800) == pytest.approx(by_hand, rel=1e-14)


@pytest.mark.parametrize("request_, roof, memory", [(CHAT, 33, 370), (REASONING, 292, 33)], ids=("chat", "reasoning"))
def test_roof_batch_over_memory_batch_is_omega(request_, roof, memory):
    assert round(roof_batch(server(), request_)) == roof
    assert server().largest_batch(request_.prompt + request_.output) == memory
    # The memory batch is a whole number: omega lies between the two quotients.
    exact = omega(server(), request_.output)
    assert roof_batch(server(), request_) / (memory + 1) < exact <= roof_batch(server(), request_) / memory


def test_for_decode_alone_the_roof_batch_is_the_ridge():
    assert 295 < ridge_tokens(server()) < 296
    assert roof_batch(server(), Request(1, 10**9)) == pytest.approx(RIDGE, rel=1e-8)


def test_omega_falls_with_a_smaller_cache_and_with_more_memory():
    assert omega(server(dtype=Precision("bf16", cache="fp8")), 12_800) == omega(server(), 12_800) / 2
    assert omega(server(accelerator=replace(h100(), memory=160e9)), 12_800) < omega(server(), 12_800)


def test_omega_refuses_what_it_cannot_say():
    with pytest.raises(DoesNotFitError, match="needs"):
        omega(server(accelerator=replace(h100(), memory=16e9)), 128)
    delta = GatedDeltaNet(width=256, key_heads=2, value_heads=2, key_dim=64, value_dim=64, conv_kernel=4)
    constant = assembled("constant", 256, 1000, ((2, delta, DenseFeedForward(width=256, inner=512)),))
    with pytest.raises(InvalidInputError, match="no growing cache"):
        omega(server(constant), 128)


# ---- what the lesson says of the workloads


def test_the_ratio_of_100_is_not_the_typical_reasoning_request():
    rows = [row for row in load_table("workload_shares") if row["workload"] == "production-reasoning"]
    assert [f"{edge(row['ratio_median'] for row in rows):.1f}" for edge in (min, max)] == ["3.0", "6.2"]
    assert [f"{100 * edge(row['requests_ratio_ge_100'] for row in rows):.0f}" for edge in (min, max)] == ["2", "12"]
    agent = load_workload("agent-step")
    assert agent.output / agent.prompt < 0.01
