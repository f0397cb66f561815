"""The exercises of notebook 10_your_model_your_traffic."""

from functools import cache

import numpy as np

from lessonlib.face.exercises.exercises import Choice, Number, choice, predict
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.own_traffic import OwnTraffic, read_traffic
from lessonlib.facts.tables import DATA
from lessonlib.policy.full_server import memory_batch
from lessonlib.policy.mix import TrafficCost, price
from lessonlib.policy.ranking import rank_levers
from lessonlib.time.deployment import Deployment


@cache
def server() -> Deployment:
    """The server that notebook 10 ships with."""
    return Deployment(load_model("qwen3-8b"), load_accelerator("h100-sxm"))


@cache
def sample() -> OwnTraffic:
    """The requests that notebook 10 ships with, as far as that server takes them."""
    return read_traffic(DATA / "sample_traffic.csv").taken_by(server())


@cache
def sample_limit() -> int:
    return memory_batch(server(), sample().request)


@cache
def sample_cost(batch: int) -> TrafficCost:
    return price(server(), sample().request, batch)


@predict("requests")
def sample_concurrency(answer: Number) -> str:
    """How many of the sample's requests does memory hold at a time, on average?

    - Divide the memory that the weights leave free by the bytes that a request holds on average over time.
    - Weight each request by its output tokens: for that many steps it holds its prompt and, on average, half its
      answer.
    """
    free, each = server().memory_free, server().cache_bytes_per_token
    mean = float(sample().prompt.mean() + sample().output.mean() / 2)
    by_mean = free // (mean * each)
    answer.value = sample_limit()
    answer.slip(
        by_mean,
        "You divided by the mean lengths. A long answer stays longer, so at any moment more of the requests under "
        "way are long ones.",
    )
    held = np.average(sample().prompt + sample().output / 2, weights=sample().output)
    return (
        f"It holds {answer}. Over time a place holds {held:,.0f} tokens, and the mean request has {mean:,.0f} in the "
        f"middle of its answer; by that {by_mean:,.0f} would fit."
    )


@predict("%")
def sample_prefill_share(answer: Number) -> str:
    """What per cent of the GPU clock is prefill, with as many of the sample's requests under way as memory holds?

    - All requests under way share a step, and none shares a prompt. But each reads its own cache in every step.
    """
    alone, full = sample_cost(1), sample_cost(sample_limit())
    prefill, decode = (1e3 * phase.seconds / len(sample()) for phase in (full.prefill, full.decode))
    answer.value = 100 * (1 - full.decode_share)
    answer.slip(100 * (1 - alone.decode_share), "That is one request alone. On a full server steps are shared.")
    answer.slip(100 * full.decode_share, "That is decode's share. The question asks for the rest.")
    return (
        f"A request takes {prefill:.1f} ms of prefill and {decode:.0f} ms of decode, of which reading caches is most: "
        f"prefill is {answer}. Alone it is {100 * (1 - alone.decode_share):.1g} %."
    )


@choice("d")
def sample_lever(answer: Choice) -> str:
    """Which of these saves the sample's server the most GPU time, each at its own memory limit?

    a: a prefill that takes no time
    b: twice the FLOP/s
    c: 4-bit weights
    d: an fp8 cache

    - Look for the largest part of the GPU clock, and at what fills the memory.
    """
    found = {one.name: one.at_limit for one in rank_levers(server(), sample().request, sample_limit())}
    free, peak, int4, fp8 = (
        found[name]
        for name in ("a prefill that takes no time", "twice the FLOP/s", "4-bit weights (head stays)", "fp8 cache")
    )
    full = sample_cost(sample_limit())
    reads = 100 * full.decode.attention.seconds / full.seconds
    answer.says(
        a=f"Prefill is a small part, and no more than its share can be saved: {free:.2f} times as fast.",
        b=f"Only prefill computes for longer than it reads: {peak:.2f} times as fast.",
        c=f"All under way share the weights, which are already the smaller part: {int4:.2f} times as fast.",
        d=f"Caches take {reads:.0f} % of GPU time, and smaller ones let more requests in: {fp8:.2f} times as fast.",
    )
    return f"{answer}. It makes the server {fp8:.2f} times as fast."
