"""Estimates and levers. rho, omega and the roof batch: the lesson's own figures, the formulae by hand, where they bend.

Each lever has a row in LEVERS with its effect on one stated case, worked out by hand or bounded.
"""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from helpers import BY_HAND, assembled, deepseek_v3, device, h100, llama, qwen3_30b_a3b, server

from lessonlib import policy
from lessonlib.base.errors import DoesNotFitError, InvalidInputError
from lessonlib.facts.tables import load_table
from lessonlib.facts.workloads import load_workload
from lessonlib.model.feedforward import DenseFeedForward
from lessonlib.model.precision import Precision
from lessonlib.model.state import GatedDeltaNet
from lessonlib.policy import levers
from lessonlib.policy.estimates import omega, rho, ridge_tokens, roof_batch, used_over_read
from lessonlib.policy.full_server import memory_batch
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Efficiency

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
    """n_out / n_in > 0.064 b keeps prefill under 5 %: past the ridge (0.068 at batch 1), up to 7,300 tokens."""
    prompts = np.unique(np.geomspace(296, 7300, 60).round())
    for batch in (1, 2, 8, 32, 100, 256, 1000, 1549):  # with no limit of positions or memory
        outputs = np.floor((0.068 if batch == 1 else 0.064 * batch) * prompts) + 1
        assert np.all(prefill_share(roomy(), prompts, outputs, batch) < 0.05)
    assert 100 > 0.064 * 1549  # a ratio of 100 is enough for every batch below 1,550 ...
    assert 100 < 0.064 * 1564  # ... and not for much larger ones


def test_the_sufficient_condition_is_not_loose_and_ends_where_it_says():
    assert prefill_share(roomy(), 8000, int(0.9 * 0.064 * 8000), 1) > 0.05
    assert prefill_share(roomy(), 20_000, int(0.064 * 20_000) + 1, 1) > 0.05  # attention over the prompt itself
    assert prefill_share(roomy(), 100, int(0.064 * 100) + 1, 1) > 0.05  # a prompt under the ridge costs one step ...
    for prompt in (1, 100, 296):
        assert prefill_share(roomy(), prompt, 21, 1) < 0.05 < prefill_share(roomy(), prompt, 19, 1)  # ... 20 tokens do


def test_past_the_roof_rho_is_the_ratio_of_the_tokens():
    assert rho(server(), CHAT, 294) == pytest.approx(294 / RIDGE * 8, rel=1e-14)
    assert rho(server(), CHAT, 296) == rho(server(), CHAT, 10**6) == 8
    mixture = server(qwen3_30b_a3b(), replace(h100(), memory=1e15))
    assert rho(mixture, CHAT, 1000) < 8 == rho(mixture, CHAT, 10_000)


def test_rho_overstates_prefill_where_cache_reads_slow_the_steps():
    cost = request_cost(server(), CHAT, 370)
    exact = cost.prefill.seconds / cost.decode.seconds
    assert rho(server(), CHAT, 370) / exact == pytest.approx(4, rel=0.01)


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


@pytest.mark.parametrize("request_, roof", [(CHAT, 33), (REASONING, 292)], ids=("chat", "reasoning"))
def test_roof_batch_over_memory_batch_is_omega(request_, roof):
    assert round(roof_batch(server(), request_)) == roof
    # The memory batch is a whole number of requests, each in the middle of its answer.
    exact, memory = omega(server(), request_), memory_batch(server(), request_)
    assert roof_batch(server(), request_) / (memory + 1) < exact <= roof_batch(server(), request_) / memory


def test_for_decode_alone_the_roof_batch_is_the_ridge():
    assert 295 < ridge_tokens(server()) < 296
    assert roof_batch(server(), Request(1, 10**9)) == pytest.approx(RIDGE, rel=1e-8)


def test_omega_falls_with_a_smaller_cache_and_with_more_memory():
    assert omega(server(dtype=Precision("bf16", cache="fp8")), REASONING) == omega(server(), REASONING) / 2
    assert omega(server(accelerator=replace(h100(), memory=160e9)), REASONING) < omega(server(), REASONING)


def test_omega_refuses_what_it_cannot_say():
    with pytest.raises(DoesNotFitError, match="needs"):
        omega(server(accelerator=replace(h100(), memory=16e9)), CHAT)
    delta = GatedDeltaNet(width=256, key_heads=2, value_heads=2, key_dim=64, value_dim=64, conv_kernel=4)
    constant = assembled("constant", 256, 1000, ((2, delta, DenseFeedForward(width=256, inner=512)),))
    with pytest.raises(InvalidInputError, match="no growing cache"):
        omega(server(constant), CHAT)


# ---- what the lesson says of the workloads


def test_the_ratio_of_100_is_not_the_typical_reasoning_request():
    rows = [row for row in load_table("workload_shares") if row["workload"] == "production-reasoning"]
    assert [f"{edge(row['ratio_median'] for row in rows):.1f}" for edge in (min, max)] == ["3.0", "6.2"]
    assert [f"{100 * edge(row['requests_ratio_ge_100'] for row in rows):.0f}" for edge in (min, max)] == ["2", "12"]
    agent = load_workload("agent-step")
    assert agent.output / agent.prompt < 0.01


# ---- levers, on one stated case: reasoning at batch 32 on the lesson's server, with 2 ms of overhead in each pass

MEMORY = h100().memory
STATED = server(efficiency=Efficiency(overhead=2e-3))
GQA, FFN = 2 * 4096 * 4096 + 2 * 4096 * 1024, 3 * 4096 * 14_336  # matmul weights of a layer, of 32
HEAD = 128_256 * 4096
MLA = 4096 * 32 * (128 + 64) + 4096 * (512 + 64) + 512 * 32 * (128 + 128) + 32 * 128 * 4096


def limit(saved=0.0, token=131_072, memory=MEMORY, output=12_800, **others):
    """The memory batch: sequences in the middle of their answers in 0.9 of the memory, beside the weights."""
    return (0.9 * memory - (2 * 8_030_261_248 - saved)) // (token * (128 + output / 2))


def seconds_each(
    batch=32, saved=0.0, token=131_072, output=12_800, bandwidth=3.35e12, wait=2e-3, passed=1.0, new=1, **others
):
    """GPU seconds of a request on a full server: a prefill of its own, and its share of the steps.

    A pass yields `passed` tokens of the `new` that it takes a sequence. It reads all weights but the embedding, less
    the bytes `saved` in the blocks, and of each sequence the prompt and, on average, half of the answer; then it waits.
    """

    def linear(tokens, logits):
        blocks = (2 * 32 * (GQA + FFN) - saved) / bandwidth, 2 * tokens * 32 * (GQA + FFN) / 989e12
        return max(blocks) + max(2 * HEAD / bandwidth, 2 * logits * HEAD / 989e12) + wait

    caches = batch * token * (128 + output / 2) / bandwidth
    return linear(128, 1) + (linear(batch * new, batch * new) + caches) * (output - 1) / passed / batch


EXPERTS = server(qwen3_30b_a3b(), device())
LATENT = server(deepseek_v3(), device())
# A lever, its arguments, and what it changes by hand: sizes of the above, or bounds of the speed-up. Where that case is
# not touched, another deployment comes last.
LEVERS = {
    "faster_peak": ([2], (0.9999, 1.0001)),  # a prefill under the ridge is memory bound, as its steps are
    "more_bandwidth": ([2], {"bandwidth": 2 * 3.35e12}),
    "more_memory": ([2], {"memory": 2 * h100().memory}),
    "scaled_overhead": ([0], {"wait": 0}),
    "quantised": ({"blocks": "int4", "cache": "fp8"}, {"saved": 32 * (GQA + FFN) * (2 - 4.25 / 8), "token": 65_536}),
    "latent_attention": ([512, 64], {"saved": 32 * (GQA - MLA) * 2, "token": 32 * (512 + 64) * 2}),
    "tensor_parallel": ([4], (1, seconds_each() / seconds_each(bandwidth=4 * 3.35e12))),  # all-reduces come on top
    "prefix_cache": ([1.0], (0.9999, 1.0004)),
    "chunked_prefill": ([64], (0.998, 1)),  # a second prefill pass reads the weights once more
    "speculative_decoding": ([4, 0.7, "free"], {"passed": 1 + 0.7 + 0.7**2 + 0.7**3 + 0.7**4, "new": 5}),
    "batch_to_limit": ([], {"batch": limit()}),
    "expert_parallel": ([4], (1, 4), EXPERTS),
    "sparse_attention": ([2048, 64, 128], (0.9, 3), LATENT),
    "drafts_that_yield": (
        [4, 2.7731, "free"],
        {"passed": 2.7731, "new": 5},
    ),
    "windowed_layers": ([1024, 6], (1.0, seconds_each() / seconds_each(token=6 * 4096))),
    "shorter_answer": ([0.5], {"output": 6400}),
}


def test_every_lever_has_a_row():
    public = {name: found for name, found in vars(levers).items() if inspect.isfunction(found) and name[0] != "_"}
    made = {name for name, found in public.items() if inspect.signature(found).return_annotation is levers.Lever}
    assert made == set(LEVERS), "every lever of lessonlib/policy/levers.py has a row in LEVERS, with its effect by hand"
    assert made <= set(dir(policy)), "every lever is imported by lessonlib/policy/__init__.py"


@pytest.mark.parametrize("name", LEVERS)
def test_a_lever_buys_what_it_buys_by_hand(name):
    given, effect, *other = LEVERS[name]
    lever = getattr(levers, name)(**given) if isinstance(given, dict) else getattr(levers, name)(*given)
    found = lever.speedup(*(other or [STATED]), REASONING, 32)
    if isinstance(effect, tuple):
        assert effect[0] < found < effect[1]
        return
    assert found == pytest.approx(seconds_each() / seconds_each(**effect), rel=2e-3)
    at_limit = seconds_each(limit()) / seconds_each(**{**effect, "batch": limit(**effect)})
    assert lever.speedup_at_limit(STATED, REASONING) == pytest.approx(at_limit, rel=2e-3)
