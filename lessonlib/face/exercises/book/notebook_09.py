"""The exercises of notebook 09_your_model_your_traffic."""

from functools import cache
from typing import Any

from lessonlib.face.exercises.book.common import server
from lessonlib.face.exercises.exercises import ChoiceExercise, Exercise, NumberExercise, Slip
from lessonlib.facts.own_traffic import OwnTraffic, read_traffic
from lessonlib.facts.tables import DATA
from lessonlib.policy.mix import TrafficCost, concurrency, price, rank_levers


@cache
def sample() -> OwnTraffic:
    """The requests that notebook 09 ships with."""
    return read_traffic(DATA / "sample_traffic.csv")


@cache
def sample_cost(batch: int) -> TrafficCost:
    return price(server(), sample().request, batch)


@cache
def sample_limit() -> int:
    return concurrency(server(), sample().request)


def _sample_limit_of_means() -> float:
    mean = float(sample().prompt.mean() + sample().output.mean())
    return server().memory_free // (mean * server().cache_bytes_per_token)


def _sample_numbers() -> dict[str, Any]:
    alone, full = sample_cost(1), sample_cost(sample_limit())
    levers = {one.name: one.at_limit for one in rank_levers(server(), sample().request, sample_limit())}
    return {
        "limit": sample_limit(),
        "means": _sample_limit_of_means(),
        "slot": server().memory_free / sample_limit() / server().cache_bytes_per_token,
        "mean": float(sample().prompt.mean() + sample().output.mean()),
        "alone": 100 * alone.decode_share,
        "prefill": 1e3 * full.prefill.seconds / len(sample()),
        "decode": 1e3 * full.decode.seconds / len(sample()),
        "attention": 100 * full.decode.attention.seconds / full.seconds,
        "free": levers["a prefill that takes no time"],
        "peak": levers["twice the FLOP/s"],
        "int4": levers["4-bit weights (head stays)"],
        "fp8": levers["fp8 cache"],
    }


EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        key="sample-concurrency",
        notebook="09_your_model_your_traffic",
        question="How many of the sample's requests does the memory of the H100 hold at a time, on average?",
        unit="requests",
        expected=lambda: float(sample_limit()),
        tolerance=0.03,
        slips=(
            Slip(
                _sample_limit_of_means,
                "You divided by the mean length. A long answer stays longer, so at any moment more of the requests "
                "under way are long ones.",
            ),
        ),
        hints=(
            "Take what memory leaves beside the weights, and the bytes of a request on average *over time*.",
            "Weight each request by its output tokens: it holds its place for that many steps.",
        ),
        solution="{answer}. Over time a place holds {slot:,.0f} tokens, and the mean request has {mean:,.0f}; by that "
        "mean {means:,.0f} would fit.",
        numbers=_sample_numbers,
    ),
    NumberExercise(
        key="sample-decode-share",
        notebook="09_your_model_your_traffic",
        question="What per cent of the GPU clock is decode, with as many under way as memory holds?",
        unit="per cent",
        expected=lambda: 100 * sample_cost(sample_limit()).decode_share,
        slips=(
            Slip(
                lambda: 100 * sample_cost(1).decode_share,
                "That is one request alone. On a full server steps are shared.",
            ),
            Slip(
                lambda: 100 * (1 - sample_cost(sample_limit()).decode_share),
                "That is prefill's share. The rest is asked for.",
            ),
        ),
        hints=("Steps are shared by all under way, prompts are not. But each reads its own cache in every step.",),
        solution="{answer}. A request takes {prefill:.1f} ms of prefill and {decode:.0f} ms of decode; alone decode "
        "has {alone:.1f} per cent.",
        numbers=_sample_numbers,
    ),
    ChoiceExercise(
        key="sample-lever",
        notebook="09_your_model_your_traffic",
        question="Which of these saves the sample's server most GPU time, each at its own memory limit?",
        options={
            "a": "a prefill that takes no time",
            "b": "twice the FLOP/s",
            "c": "4-bit weights",
            "d": "an fp8 cache",
        },
        right="d",
        because={
            "a": "Prefill is a small part, and no more than its share can be saved: {free:.2f} times.",
            "b": "Only the prefill computes for longer than it reads: {peak:.2f} times.",
            "c": "The weights are shared by all under way, and already the smaller part: {int4:.2f} times.",
            "d": "Reading caches is {attention:.0f} per cent, and a smaller one lets more in: {fp8:.2f} times.",
        },
        hints=("Look for the largest part of the GPU clock, and at what fills the memory.",),
        solution="{answer}: {fp8:.2f} times.",
        numbers=_sample_numbers,
    ),
)
