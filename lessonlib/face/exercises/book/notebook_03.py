"""The exercises of notebook 03_how_the_kv_cache_grows."""

from typing import Any

from lessonlib.face.exercises.book.common import REASONING, cost_of, server
from lessonlib.face.exercises.exercises import ChoiceExercise, Exercise, NumberExercise, Slip
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.policy.cache import answer_traffic, cache_by_kind, span_where_cache_passes_weights, step_parts
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment

LAST_STEP = REASONING.output - 1  # the steps are counted from 1


def _step_ms(position: int, batch: int, together: bool = False) -> float:
    """Milliseconds of the step at `position` of the reasoning answer."""
    return 1e3 * step_parts(server(), REASONING, position, batch, together).seconds


def _twice_the_answer(batch: int) -> float:
    """GPU seconds of an answer twice as long over those of the reasoning answer."""
    twice = Request(REASONING.prompt, 2 * REASONING.output)
    return cost_of(twice, batch).seconds / cost_of(REASONING, batch).seconds


LEVEL_AT_FIRST = {"gpt": "gpt-oss-120b", "qwen": "qwen3-30b-a3b"}


def _bytes_that_grow(name: str) -> float:
    """Cache bytes of a token, in 16 bits, in the layers without a window."""
    kinds = Deployment(load_model(name), load_accelerator("h100-sxm")).sizes.kinds
    return sum(kind.cache_bytes for kind in kinds if kind.mixer.held(1e9) == 1e9)


def _alternating_numbers() -> dict[str, Any]:
    """MB that gpt-oss-20b holds for a finished reasoning answer: its sliding layers, its full ones, and two slips."""
    tokens = REASONING.prompt + REASONING.output - 1
    deployment = Deployment(load_model("gpt-oss-20b"), load_accelerator("h100-sxm"))
    (sliding, full), each = cache_by_kind(deployment, tokens), deployment.cache_bytes_per_token
    return {
        "tokens": tokens,
        "layers": full.layers,
        "window": int(deployment.sizes.kinds[0].mixer.held(1e9)),
        "sliding": sliding.bytes / 1e6,
        "full": full.bytes / 1e6,
        "ignored": tokens * each / 1e6,
        "windowed": 2 * sliding.bytes / 1e6,
    }


EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        key="alternating-cache",
        notebook="03_how_the_kv_cache_grows",
        question="How much cache does gpt-oss-20b hold for the finished reasoning answer (12,927 tokens, bf16)?",
        unit="MB",
        expected=lambda: _alternating_numbers()["sliding"] + _alternating_numbers()["full"],
        tolerance=0.004,  # the sliding layers are a hundredth of it
        slips=(
            Slip(
                lambda: _alternating_numbers()["ignored"],
                "You let every layer keep every token. The sliding layers keep the last 128 only.",
            ),
            Slip(
                lambda: _alternating_numbers()["windowed"], "You let every layer slide. Half of them keep all tokens."
            ),
            Slip(lambda: _alternating_numbers()["full"], "These are the full layers. The sliding ones hold a little."),
        ),
        hints=(
            "Half of its layers keep all tokens, half the last 128. A token takes 2,048 bytes in one layer.",
            "12 layers x 2,048 bytes x 12,927 tokens, and 12 layers x 2,048 bytes x 128 tokens.",
        ),
        solution=(
            "{layers} full layers hold {tokens:,} tokens: {full:.1f} MB. {layers} sliding ones hold {window} tokens: "
            "{sliding:.1f} MB. Together {answer}. Without windows it would be {ignored:.1f} MB."
        ),
        numbers=_alternating_numbers,
    ),
    NumberExercise(
        key="cache-of-an-answer",
        notebook="03_how_the_kv_cache_grows",
        question="How much cache do all steps of the reasoning answer read together (128 -> 12,800, batch 1)?",
        unit="TB",
        expected=lambda: answer_traffic(server(), REASONING).triangle / 1e12,
        slips=(
            Slip(
                lambda: answer_traffic(server(), REASONING).end / 1e12,
                "You read the cache at its final size in every step. It grows: the first step finds 128 tokens.",
            ),
            Slip(
                lambda: answer_traffic(server(), REASONING).flat / 1e12,
                "You let the cache stay as the prompt left it. Every step adds a token to it.",
            ),
        ),
        hints=(
            "Step k finds 128 + k - 1 tokens in the cache. Each takes 131,072 bytes.",
            "The sum of 128, 129, ... 12,926 is a triangle on a narrow strip: steps x (first + last) / 2.",
        ),
        solution=(
            "{steps:,} steps x (128 + 12,926) / 2 tokens x {each:,.0f} bytes = {answer}. At the final size in every "
            "step it would be {end:.2f} TB."
        ),
        numbers=lambda: {
            "steps": LAST_STEP,
            "each": server().cache_bytes_per_token,
            "end": answer_traffic(server(), REASONING).end / 1e12,
        },
    ),
    NumberExercise(
        key="last-over-first",
        notebook="03_how_the_kv_cache_grows",
        question="32 reasoning requests start together. How many times as long as the first step is the last?",
        unit="times",
        expected=lambda: _step_ms(LAST_STEP, 32, together=True) / _step_ms(1, 32, together=True),
        slips=(
            Slip(
                lambda: _step_ms(LAST_STEP, 1) / _step_ms(1, 1),
                "That is one request alone. Here 32 caches grow at the same time.",
            ),
            Slip(
                lambda: (REASONING.prompt + LAST_STEP) / (REASONING.prompt + 1),
                "That is how the cache grows. A step reads the weights as well, and they stay as they are.",
            ),
        ),
        hints=(
            "A step reads the weights once, 15.01 GB, and 32 caches of 131,072 bytes a token.",
            "The first step meets 129 tokens in each sequence, the last 12,927. Divide bytes by bytes.",
        ),
        solution=(
            "The weights take {weights:.2f} ms in every step. 32 caches take {first:.2f} ms at first and {last:.2f} ms "
            "in the end. So the last step is {answer} as long."
        ),
        numbers=lambda: {
            "weights": 1e3 * cost_of(REASONING, 32).decode.linear.seconds / LAST_STEP,
            "first": _step_ms(1, 32, True) - 1e3 * cost_of(REASONING, 32).decode.linear.seconds / LAST_STEP,
            "last": _step_ms(LAST_STEP, 32, True) - 1e3 * cost_of(REASONING, 32).decode.linear.seconds / LAST_STEP,
        },
    ),
    NumberExercise(
        key="steady-last-over-first",
        notebook="03_how_the_kv_cache_grows",
        question="31 neighbours are spread over their answers. By how much is your last step longer than your first?",
        unit="percent",
        expected=lambda: 100 * (_step_ms(LAST_STEP, 32) / _step_ms(1, 32) - 1),
        tolerance=0.05,
        slips=(
            Slip(
                lambda: 100 * (_step_ms(LAST_STEP, 32, True) / _step_ms(1, 32, True) - 1),
                "That is the batch that started together: all 32 caches grow at once. Here only yours grows; the "
                "neighbours' are as large on average in your last step as in your first.",
            ),
            Slip(
                lambda: 100 * (_step_ms(LAST_STEP, 1) / _step_ms(1, 1) - 1),
                "That is one request alone. With neighbours the step is longer, and your own growth a smaller part.",
            ),
        ),
        hints=(
            "What grows from your first step to your last? One cache out of 32.",
            "step_parts(server, reasoning, position, 32).seconds, at position 1 and at position 12,799.",
        ),
        solution="{first:.2f} ms and {last:.2f} ms: {answer}. Your own cache adds {own:.2f} ms. Nothing else grows.",
        numbers=lambda: {
            "first": _step_ms(1, 32),
            "last": _step_ms(LAST_STEP, 32),
            "own": _step_ms(LAST_STEP, 32) - _step_ms(1, 32),
        },
    ),
    NumberExercise(
        key="cache-passes-weights",
        notebook="03_how_the_kv_cache_grows",
        question="At batch 32, from which span on does a step move more bytes of cache than of weights?",
        unit="tokens",
        expected=lambda: float(span_where_cache_passes_weights(server(), 32) or 0),
        slips=(
            Slip(
                lambda: float(span_where_cache_passes_weights(server(), 1) or 0),
                "That is the span at batch 1. The weights are read once for all 32, the caches 32 times.",
            ),
            Slip(
                lambda: server().weight_bytes / (32 * server().cache_bytes_per_token),
                "You counted all the weights that are stored. A step does not read the input embedding.",
            ),
        ),
        hints=(
            "A step reads 15.01 GB of weights, whatever the batch.",
            "15.01 GB / (32 sequences x 131,072 bytes).",
        ),
        solution=(
            "{weights:.3f} GB / (32 x {each:,.0f} bytes) = {exact:.1f}. The first whole span above it: {answer}. At "
            "batch 1 it would be {alone:,} tokens."
        ),
        numbers=lambda: {
            "weights": server().sizes.dense_bytes / 1e9,
            "each": server().cache_bytes_per_token,
            "exact": server().sizes.dense_bytes / (32 * server().cache_bytes_per_token),
            "alone": span_where_cache_passes_weights(server(), 1),
        },
    ),
    NumberExercise(
        key="twice-the-answer",
        notebook="03_how_the_kv_cache_grows",
        question="At batch 16, how many times as long does an answer of 25,600 tokens take as one of 12,800?",
        unit="times",
        expected=lambda: _twice_the_answer(16),
        slips=(
            Slip(lambda: 2.0, "Twice the steps, but the later steps are longer than any before."),
            Slip(
                lambda: 4.0,
                "That would be right if a step read the cache only: twice the steps, each twice as long on average. "
                "The weights do not grow.",
            ),
            Slip(lambda: _twice_the_answer(1), "That is one request alone. At batch 16 a larger part of a step grows."),
        ),
        tolerance=0.015,
        hints=(
            "The weights' part doubles. The caches' part grows with the square of the length.",
            "request_cost(server, Request(128, 25_600), 16).seconds, over the same with 12_800.",
        ),
        solution=(
            "Weights: {weights:.0f} s, then {weights2:.0f} s, twice. Caches: {caches:.0f} s, then {caches2:.0f} s, "
            "four times. Together {answer} as long."
        ),
        numbers=lambda: {
            "weights": cost_of(REASONING, 16).decode.linear.seconds,
            "weights2": cost_of(Request(REASONING.prompt, 2 * REASONING.output), 16).decode.linear.seconds,
            "caches": cost_of(REASONING, 16).decode.attention.seconds,
            "caches2": cost_of(Request(REASONING.prompt, 2 * REASONING.output), 16).decode.attention.seconds,
        },
    ),
    ChoiceExercise(
        key="what-paging-saves",
        notebook="03_how_the_kv_cache_grows",
        question="A server turns from contiguous memory to blocks of 16 tokens. What becomes of a long answer's steps?",
        options={
            "a": "They grow more slowly along the answer.",
            "b": "They stay as they are, in the same batch.",
            "c": "They stop growing, as old blocks are not read.",
        },
        right="b",
        because={
            "a": "Growth is the tokens in the cache. Which of them would a block save from being read?",
            "b": "A step reads every cached token, wherever it lies. Paging frees what nobody used; then more requests "
            "fit, and their caches make every step longer.",
            "c": "Old tokens are attended to as new ones are. Only a sliding window leaves some out.",
        },
        hints=("Which bytes does paging get rid of: bytes that were read, or bytes that were only reserved?",),
        solution="{answer} Paging gets rid of memory that was reserved and never used. Nobody ever read it.",
    ),
    ChoiceExercise(
        key="level-then-apart",
        notebook="03_how_the_kv_cache_grows",
        question="Without a cache both make about 60 tokens a second. Which one is faster at 32,768 tokens of context?",
        options={
            "a": "gpt-oss-120b.",
            "b": "Qwen3-30B-A3B.",
            "c": "Neither: both slow down alike.",
        },
        right="a",
        because={
            "a": "A cached token takes {gpt:,.0f} bytes in those layers of gpt-oss-120b that keep it, and {qwen:,.0f} "
            "bytes in Qwen3-30B-A3B. The count of parameters plays no part in how a step grows.",
            "b": "It has fewer parameters, but that is not what grows. Compare the bytes of a cached token.",
            "c": "Their weights cost a step about the same. Their caches do not: look at layers, KV heads and windows.",
        },
        hints=(
            "What a step reads more of at 32,768 tokens is cache. Compare the layers that keep all tokens.",
            "Half of the layers of gpt-oss-120b have a window of 128 tokens.",
        ),
        solution="{answer} In its layers that keep all tokens, a token takes {gpt:,.0f} bytes, against {qwen:,.0f}.",
        numbers=lambda: {name: _bytes_that_grow(model) for name, model in LEVEL_AT_FIRST.items()},
    ),
)
