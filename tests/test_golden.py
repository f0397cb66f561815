"""The lesson's own numbers, to the digits that it prints: they were found by plain loops, independent of lessonlib."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import BY_HAND, deepseek_v3, gpt_oss, h100, llama, qwen3_30b_a3b, qwen3_next, server

from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.model.precision import Precision
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Efficiency
from lessonlib.time.roofline import pass_cost

CHAT, REASONING = (1024, 128), (128, 12_800)


def shows(value: float, printed: str) -> bool:
    """Whether `value`, rounded to as many significant digits as `printed` has, is `printed`."""
    digits = len(printed.split("e")[0].replace(".", "").replace("-", "").lstrip("0"))
    return float(f"{value:.{digits - 1}e}") == float(printed)


def test_shows_sees_a_difference_in_the_last_digit():
    assert shows(14.22210049, "14.2221005") and not shows(14.2221006, "14.2221005")
    assert shows(0.97499496, "0.974995") and not shows(0.9749960, "0.974995")


def cost_of(prompt_and_output, batch=1, **changes):
    return request_cost(server(**changes), Request(*prompt_and_output), batch=batch)


def test_llama_31_8b_as_counts():
    assert llama().parameters == 8_030_261_248
    assert llama().cache_bytes(1) == 131_072
    assert server().cache_bytes_per_token == 131_072
    assert shows(pass_cost(server(), new=1).linear.bytes, "15.009849e9")
    assert (h100().peak("bf16"), h100().bandwidth, h100().memory) == (989e12, 3.35e12, 85_520_809_984)
    assert (server().efficiency.mfu, server().efficiency.mbu) == (1, 1)


@pytest.mark.parametrize(
    "tokens, prefill_flops, prefill_seconds, decode_flops, decode_bytes, decode_seconds",
    [
        ((1000, 300), "14.2221005e12", "14.692855e-3", "4.66806217e12", "4.53301e12", "1.35314"),
        ((200, 20_000), "2.80331760e12", "4.49121e-3", "407.120732e12", "326.919e12", "97.5879"),
    ],
)
def test_two_requests_from_first_principles(
    tokens, prefill_flops, prefill_seconds, decode_flops, decode_bytes, decode_seconds
):
    cost = cost_of(tokens)
    assert shows(cost.prefill.flops, prefill_flops)
    assert shows(cost.prefill.seconds, prefill_seconds)
    assert shows(cost.decode.flops, decode_flops)
    assert shows(cost.decode.bytes, decode_bytes)
    assert shows(cost.decode.seconds, decode_seconds)


@pytest.mark.parametrize(
    "tokens, prefill_seconds, decode_seconds, shares_of_time, share_of_flops, cache_shares",
    [
        (CHAT, "15.044470e-3", "0.5744364", ("0.974478", "0.611363"), "0.1196", ("0.0094", "0.2331")),
        (REASONING, "4.485560e-3", "60.6156336", ("0.9999260", "0.9996403"), "0.9925", ("0.0539", "0.6459")),
    ],
)
def test_chat_and_reasoning(tokens, prefill_seconds, decode_seconds, shares_of_time, share_of_flops, cache_shares):
    alone, together = cost_of(tokens), cost_of(tokens, batch=32)
    assert shows(alone.prefill.seconds, prefill_seconds)
    assert shows(alone.decode.seconds, decode_seconds)
    for cost, share, cache_share in zip((alone, together), shares_of_time, cache_shares, strict=True):
        assert shows(cost.decode_share, share)
        assert shows(cost.decode.seconds / cost.seconds, share)
        assert shows(cost.decode.flops / cost.flops, share_of_flops)
        assert shows((cost.decode.cache_read + cost.decode.cache_write) / cost.decode.bytes, cache_share)


def test_the_cache_makes_the_last_step_slower_than_the_first():
    prompt, output = REASONING
    first, last = (pass_cost(server(), 1, context, batch=32).seconds for context in (prompt, prompt + output - 2))
    assert shows(first, "4.642e-3") and shows(last, "20.666e-3")
    step = cost_of((prompt, 2), batch=32).decode
    assert step.seconds == pytest.approx(first, rel=1e-15)


def test_memory_limits():
    assert server().memory_available == pytest.approx(0.9 * 85_520_809_984, rel=1e-15)
    assert server().largest_batch(sum(CHAT)) == 403
    assert server().largest_batch(sum(REASONING)) == 35
    assert shows(32 / 403, "0.08")  # batch 32 fills 8 % of what a chat server could hold


def test_what_differs_between_chat_and_reasoning():
    chat, reasoning = cost_of(CHAT), cost_of(REASONING)
    assert shows(chat.decode_share, "0.974")
    assert shows(chat.decode.flops / chat.flops, "0.12") and shows(reasoning.decode.flops / reasoning.flops, "0.99")
    assert shows(chat.undisturbed, "0.59") and shows(reasoning.undisturbed, "60.6")


@pytest.mark.parametrize(
    "tokens, batch, share, to_peak, to_bandwidth",
    [(CHAT, 370, "0.33", "-0.755", "-0.245"), (REASONING, 33, "0.9996", "-0.0004", "-0.9996")],
)
def test_at_its_own_memory_limit(tokens, batch, share, to_peak, to_bandwidth):
    """Elasticities d ln T / d ln rate, by a central difference of a millionth."""
    assert shows(cost_of(tokens, batch).decode_share, share)
    step = 1e-6

    def elasticity(changed):
        up, down = (cost_of(tokens, batch, accelerator=changed(1 + sign * step)).seconds for sign in (1, -1))
        return (up - down) / (2 * step * cost_of(tokens, batch).seconds)

    peak = elasticity(lambda factor: replace(h100(), peaks={"bf16": 989e12 * factor}))
    bandwidth = elasticity(lambda factor: replace(h100(), bandwidth=3.35e12 * factor))
    assert shows(peak, to_peak) and shows(bandwidth, to_bandwidth)
    assert peak + bandwidth == pytest.approx(-1, abs=1e-6)


def test_two_milliseconds_of_overhead_make_twice_the_bandwidth_worth_less():
    slow = Efficiency(overhead=2e-3)
    twice = replace(h100(), bandwidth=2 * 3.35e12)
    now, then = (cost_of(REASONING, efficiency=slow, accelerator=device).tpot for device in (h100(), twice))
    assert shows(now / then, "1.54")
    assert shows(cost_of(REASONING).tpot / cost_of(REASONING, accelerator=twice).tpot, "2.00")


def test_rho_is_a_sufficient_sign_of_a_decode_heavy_request():
    """Prefill is under 5 % when n_out / n_in > 0.064 b, for prompts past the ridge: 296 to about 8,000 tokens.

    At batch 1 the head's own 0.3 ms in the prefill show, beside the shortest prompts: 0.068.
    """
    roomy = server(accelerator=replace(h100(), memory=1e15))
    for batch, least in ((1, 0.068), (2, 0.064), (8, 0.064), (32, 0.064), (256, 0.064), (1549, 0.064)):
        prompts = np.arange(296, 7_301)
        outputs = np.floor(least * batch * prompts) + 1
        cost = request_cost(roomy, Request(prompts, outputs), batch)
        computed = cost.refused == 0
        assert np.array_equal(computed, prompts + outputs <= llama().max_positions)
        assert np.all(cost.decode_share[computed] > 0.95)


def test_a_ratio_of_100_suffices_below_a_batch_of_1550():
    prompts = np.arange(1, 1_298)
    cost = request_cost(server(accelerator=replace(h100(), memory=1e15)), Request(prompts, 100 * prompts), batch=1549)
    assert not cost.refused.any() and np.all(cost.decode_share > 0.95)


def test_a_short_prompt_costs_about_one_step():
    """Twenty output tokens, nineteen steps and the prefill, make a short request decode-heavy at batch 1."""
    assert cost_of((10, 20)).decode_share > 0.95 > cost_of((10, 19)).decode_share
    assert shows(cost_of((128, 20)).decode_share, "0.950")


def test_the_batch_at_which_a_decode_step_reaches_the_ridge():
    ridge = h100().ridge("bf16")
    assert ridge < 296 < ridge + 1


def test_attention_intensities():
    assert pass_cost(server(), 1, 5000, batch=32).attention.intensity == 4
    deployment = server(deepseek_v3(), dtype="fp8", devices=8, accelerator=replace(h100(), memory=1e15))
    kind = deployment.sizes.kinds[0]
    assert shows(kind.pair_flops / (61 * 576 * 2), "242")
    assert kind.pair_flops / (61 * 576 * 1) > h100().ridge("bf16")  # an fp8 cache: decode attention is compute bound
    assert 2 * kind.pair_flops / (61 * 576 * 2) > h100().ridge("bf16")  # and so with two queries


def test_deepseek_v3():
    model = deepseek_v3()
    assert model.mixer_kinds[0][1].pair_flops == 278_528
    assert model.cache_bytes(1) == 70_272


def test_qwen3_next():
    model = qwen3_next()
    state = sum(4 * layers * mixer.state_elements for layers, mixer in model.mixer_kinds)
    assert state == 75_497_472
    assert model.cache_bytes(1) == 24_576
    convolution = 36 * 2 * (2 * 16 * 128 + 32 * 128) * 3
    assert model.state_bytes() == state / 2 + convolution  # its config names no dtype, so as the model computes
    step = pass_cost(server(model, dtype=Precision("bf16", state="fp32")), 1, 1000)
    assert step.state_bytes == 2 * (state + convolution)
    assert pass_cost(server(model), 1, 1000).state_bytes == 2 * (state / 2 + convolution)
    assert shows(2 * state, "151e6")


def test_qwen3_30b_a3b_reads_more_experts_in_a_larger_batch():
    deployment = server(qwen3_30b_a3b())
    assert shows(pass_cost(deployment, 1, 1000).linear.bytes, "6.0837e9")
    assert shows(pass_cost(deployment, 1, 1000, batch=32).linear.bytes, "53.090e9")


def test_gpt_oss_20b_reads_its_experts_in_mxfp4_and_all_else_in_bf16():
    experts_only = server(gpt_oss(24, 32), dtype=Precision("bf16", experts="mxfp4"))
    assert shows(pass_cost(experts_only, 1, 1000).linear.bytes, "3.708e9")


@pytest.mark.parametrize("name", BY_HAND)
def test_a_model_built_by_hand_has_the_published_number_of_parameters(name):
    build, parameters = BY_HAND[name]
    assert build().parameters == parameters
    assert sum(build().weights_by_part.values()) == parameters


@pytest.mark.parametrize("name", BY_HAND)
def test_the_catalogue_reads_the_same_model_from_its_config(name):
    """Two entries of the books, the config and the sizes written out, give the same parts and so the same numbers."""
    by_hand, read = BY_HAND[name][0](), load_model(name)
    for number in ("parameters", "active_parameters", "block_matmul_weights", "weights_by_part", "max_positions"):
        assert getattr(read, number) == getattr(by_hand, number)
    assert set(read.mixer_kinds) == set(by_hand.mixer_kinds)
    assert set(read.expert_kinds) == set(by_hand.expert_kinds)


def test_linear_layers_are_compute_bound_from_a_prompt_of_296_tokens():
    assert shows(h100().ridge("bf16"), "295.2239")
    for prompt in range(1, 400):
        bounds = {part: roof.bound for part, roof in pass_cost(server(), prompt).roofs.items()}
        assert bounds["linear layers"] == ("compute" if prompt >= 296 else "memory") and bounds["LM head"] == "memory"


def test_the_head_has_a_roof_of_its_own():
    head = pass_cost(server(), 1024).roofs["LM head"]
    assert shows(head.seconds, "0.313634e-3") and head.bound == "memory"
    assert head.bytes == 2 * 128_256 * 4096 and head.flops == 2 * 128_256 * 4096
    assert shows(server().sizes.dense_bytes, "15.009849344e9")
    assert shows(server().sizes.dense_bytes / 131_072 / h100().ridge("bf16"), "387.8957")
    assert shows(cost_of((128, 1)).prefill.seconds, "4.485560e-3")


def test_experts_have_a_roof_of_their_own():
    """A pass of 512 tokens: the attention's matrices are compute bound, the experts, with 32 tokens each, are not."""
    roofs = pass_cost(server(qwen3_30b_a3b()), 512).roofs
    assert {part: roof.bound for part, roof in roofs.items()} == {
        "48 x GQA": "compute",
        "linear layers": "compute",
        "routed experts": "memory",
        "LM head": "memory",
    }
    one = 3 * 2048 * 768
    assert roofs["routed experts"].flops == 512 * 48 * 8 * 2 * one
    assert shows(roofs["routed experts"].bytes / (48 * 128 * 2 * one), "1.0000000000")


def test_a_step_of_an_nvfp4_model_multiplies_in_fp4():
    b200 = load_accelerator("b200")
    prompt = pass_cost(server(accelerator=b200, dtype="nvfp4"), 8192)
    linear = prompt.roofs["linear layers"]
    assert linear.bound == "compute" and linear.seconds == linear.flops / b200.peak("fp4")
    assert prompt.roofs["32 x GQA"].compute_seconds == prompt.roofs["32 x GQA"].flops / b200.peak("bf16")
