"""The exercises of notebook 05_when_prefill_stops_mattering."""

from typing import Any

from lessonlib.face.exercises.book.common import (
    CHAT,
    FP8_CACHE,
    INT4,
    REASONING,
    cost_of,
    largest_batch,
    mixture,
    server,
)
from lessonlib.face.exercises.exercises import ChoiceExercise, Exercise, NumberExercise, Slip
from lessonlib.policy.levers import Lever, faster_peak, more_bandwidth, prefix_cache
from lessonlib.policy.sensitivity import break_even_by_rho, break_even_output, faster_prefill
from lessonlib.request.cost import request_cost
from lessonlib.time.deployment import Deployment, Efficiency, Speculation
from lessonlib.time.roofline import pass_cost

SLOW_STEPS = 2e-3  # seconds of overhead that a pass has in one exercise
SPECULATION = Speculation(draft_tokens=4, acceptance=0.7)


def _faster(lever: Lever, batch: int) -> float:
    return lever.speedup(server(), REASONING, batch)


def _quarter_of_all_weights() -> float:
    """Speed-up of the reasoning request at batch 32 if every weight were read in exactly a quarter of the time."""
    cost = cost_of(REASONING, 32)
    return cost.seconds / (cost.seconds - 0.75 * (cost.prefill.linear.seconds + cost.decode.linear.seconds))


def _twice_prefill(batch: int, k: float = 2.0) -> float:
    cost = cost_of(CHAT, batch)
    return faster_prefill(cost.prefill.seconds, cost.decode.seconds, k)


def _verifying_bytes(tokens: int) -> float:
    return pass_cost(mixture(), new=tokens, logits=tokens).linear.bytes


def _separate_experts() -> float:
    """Bytes of a pass of g + 1 tokens if no two of them ever shared an expert."""
    one, tokens = _verifying_bytes(1), SPECULATION.draft_tokens + 1
    return one + (tokens - 1) * (one - mixture().sizes.dense_bytes)


def _with_overhead(bandwidth: float) -> float:
    efficiency = Efficiency(overhead=SLOW_STEPS)
    slow = Deployment(server().model, server().accelerator, server().precision, efficiency=efficiency)
    case = more_bandwidth(bandwidth)(slow, REASONING)
    return request_cost(case.deployment, case.request, case.batch).seconds


def _levers_at_limit() -> dict[str, Any]:
    levers = {"prefix": prefix_cache(1.0), "peak": faster_peak(2), "int4": INT4, "fp8": FP8_CACHE}
    found = {name: lever.speedup_at_limit(server(), REASONING) for name, lever in levers.items()}
    cost = cost_of(REASONING, int(largest_batch(REASONING)))
    return found | {
        "prefill": 100 * cost.prefill.seconds / cost.seconds,
        "weights": 100 * cost.decode.linear.seconds / cost.seconds,
        "cache": 100 * cost.decode.attention.seconds / cost.seconds,
    }


EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        key="free-prefill",
        notebook="05_when_prefill_stops_mattering",
        question="The reasoning prefill takes no time at all. What per cent of its time is saved, alone on the GPU?",
        unit="%",
        expected=lambda: 100 * cost_of(REASONING).prefill.seconds / cost_of(REASONING).seconds,
        tolerance=0.02,
        slips=(
            Slip(
                lambda: 100 * REASONING.prompt / (REASONING.prompt + REASONING.output),
                "That is the prompt's share of the tokens. All its tokens go through in one pass.",
            ),
            Slip(
                lambda: 100 * cost_of(REASONING).prefill.flops / cost_of(REASONING).flops,
                "That is the prefill's share of the FLOPs. What is saved is a share of seconds.",
            ),
        ),
        hints=(
            "Infinitely fast means that the whole prefill falls away. So: which share of the seconds is prefill?",
            "The prefill costs as much as one decode step, and there are 12,799 of those.",
        ),
        solution="Prefill {prefill:.3f} ms of {all:.2f} s: {answer}.",
        numbers=lambda: {"prefill": 1e3 * cost_of(REASONING).prefill.seconds, "all": cost_of(REASONING).seconds},
    ),
    NumberExercise(
        key="twice-prefill",
        notebook="05_when_prefill_stops_mattering",
        question="At chat's memory limit the prefill becomes twice as fast. How many times faster is the GPU clock?",
        unit="times",
        expected=lambda: _twice_prefill(int(largest_batch(CHAT))),
        slips=(
            Slip(lambda: 2.0, "Only the prefill is twice as fast. The decode takes as long as before."),
            Slip(
                lambda: _twice_prefill(int(largest_batch(CHAT)), float("inf")),
                "That is an infinitely fast prefill. Twice as fast leaves half of it.",
            ),
            Slip(lambda: _twice_prefill(1), "That is one request alone. Take the batch that fills the memory."),
            Slip(lambda: _twice_prefill(32), "That is batch 32, a server that is nearly empty."),
        ),
        hints=(
            "Amdahl: time before over time after, (prefill + decode) / (prefill / 2 + decode).",
            'policy.faster_prefill(prefill, decode, 2); seconds of request_cost(server, chat, limits["chat"]).',
        ),
        solution=(
            "At batch {limit:.0f} prefill takes {prefill:.3f} s and decode {decode:.3f} s. Half of the prefill stays: "
            "{answer}."
        ),
        numbers=lambda: {
            "limit": largest_batch(CHAT),
            "prefill": cost_of(CHAT, int(largest_batch(CHAT))).prefill.seconds,
            "decode": cost_of(CHAT, int(largest_batch(CHAT))).decode.seconds,
        },
    ),
    NumberExercise(
        key="short-prompt",
        notebook="05_when_prefill_stops_mattering",
        question="A prompt of 100 tokens, alone: from how many output tokens on is its prefill under 5 % of the time?",
        unit="output tokens",
        expected=lambda: float(break_even_output(server(), 100)),
        tolerance=0.001,
        slips=(
            Slip(
                lambda: float(round(break_even_by_rho(server(), 100))),
                "That is rho's estimate. rho takes the prefill for compute bound, and 100 tokens are under the ridge.",
            ),
            Slip(
                lambda: break_even_by_rho(server(), 100),
                "That is rho's estimate. rho takes the prefill for compute bound, and 100 tokens are under the ridge.",
            ),
            Slip(
                lambda: float(break_even_output(server(), 100) - 1),
                "Close: these are the steps. The prefill emits one more token.",
            ),
        ),
        hints=(
            "What does a prefill of 100 tokens cost, in decode steps?",
            "Under 5 % is at least 19 steps for one prefill. And the prefill emits a token itself.",
        ),
        solution=(
            "The prefill takes {prefill:.3f} ms, a step {step:.3f} ms: as much. 5 to 95 is 1 to 19, and the prefill "
            "emits the first token: {answer}. rho said {rho:.1f}."
        ),
        numbers=lambda: {
            "prefill": 1e3 * pass_cost(server(), new=100).seconds,
            "step": 1e3 * pass_cost(server(), new=1, cached=100).seconds,
            "rho": break_even_by_rho(server(), 100),
        },
    ),
    NumberExercise(
        key="int4-at-32",
        notebook="05_when_prefill_stops_mattering",
        question="Weights in 4 bits, reasoning at batch 32: how many times faster is it?",
        unit="times",
        expected=lambda: _faster(INT4, 32),
        slips=(
            Slip(
                lambda: 4.0,
                "That is the ratio of 16 bits to 4. A step also reads the cache, which stays as it is.",
            ),
            Slip(
                _quarter_of_all_weights,
                "You made every weight four times smaller. The LM head and the norms stay in bf16, and int4 carries "
                "scales: 4.25 bits a weight.",
            ),
            Slip(lambda: _faster(INT4, 1), "That is batch 1. At batch 32 the steps read 32 caches as well."),
        ),
        hints=(
            "Which share of the time at batch 32 is weights? Only that shrinks.",
            'policy.quantised(blocks="int4", experts="int4").speedup(server, reasoning, 32)',
        ),
        solution=(
            "Weights are {weights:.0f} % of the time at batch 32. A pass streams {before:.2f} GB of them before and "
            "{after:.2f} GB after, since the head stays in bf16: {answer}."
        ),
        numbers=lambda: {
            "weights": 100 * cost_of(REASONING, 32).decode.linear.seconds / cost_of(REASONING, 32).seconds,
            "before": server().sizes.dense_bytes / 1e9,
            "after": INT4(server(), REASONING).deployment.sizes.dense_bytes / 1e9,
        },
    ),
    NumberExercise(
        key="fp8-cache-at-32",
        notebook="05_when_prefill_stops_mattering",
        question="The cache in fp8 instead of bf16, reasoning at batch 32: how many times faster is it?",
        unit="times",
        expected=lambda: _faster(FP8_CACHE, 32),
        slips=(
            Slip(lambda: 2.0, "Only the cache's bytes are halved. The weights are read as before."),
            Slip(lambda: _faster(FP8_CACHE, 1), "That is batch 1, where a step reads one small cache."),
        ),
        hints=(
            "Which share of the time at batch 32 is cache? Half of that falls away.",
            'policy.quantised(cache="fp8").speedup(server, reasoning, 32)',
        ),
        solution="Cache reads are {cache:.1f} % of the time, and half of that is saved: {answer}.",
        numbers=lambda: {
            "cache": 100 * cost_of(REASONING, 32).decode.attention.seconds / cost_of(REASONING, 32).seconds
        },
    ),
    ChoiceExercise(
        key="lever-at-limit",
        notebook="05_when_prefill_stops_mattering",
        question="A reasoning server is at its memory limit. Which of these helps most?",
        options={
            "a": "every prompt found in a prefix cache",
            "b": "twice the FLOP/s",
            "c": "weights in int4",
            "d": "the cache in fp8",
        },
        right="d",
        because={
            "a": "Prefill is {prefill:.3f} % of its GPU clock. A prefix cache makes it {prefix:.4f} times as fast.",
            "b": "Decode waits for memory, not for FLOPs: {peak:.4f} times as fast.",
            "c": "{int4:.2f} times as fast: weights are only {weights:.0f} % of the time, and the room they leave "
            "holds a few more requests.",
            "d": "{fp8:.2f} times as fast. Cache reads are {cache:.0f} % of the time, and half the bytes also make "
            "room for twice the batch, so the weights are shared by twice as many.",
        },
        hints=(
            "What do its steps read at batch 33: more weights or more cache?",
            "A smaller cache does two things: a step reads less, and more requests fit.",
        ),
        solution="{answer}: {fp8:.2f} times as fast, against {int4:.2f} for int4 weights.",
        numbers=_levers_at_limit,
    ),
    NumberExercise(
        key="speculation-experts",
        notebook="05_when_prefill_stops_mattering",
        question=(
            "Qwen3-30B-A3B, batch 1: 4 drafts cost nothing, each is accepted with 0.7. By the bytes of the weights "
            "alone, how many times faster is it?"
        ),
        unit="times",
        expected=lambda: SPECULATION.tokens_per_round * _verifying_bytes(1) / _verifying_bytes(5),
        slips=(
            Slip(
                lambda: SPECULATION.tokens_per_round,
                "These are the tokens of a round. But the pass that verifies five tokens reads the experts of five.",
            ),
            Slip(
                lambda: 5 * _verifying_bytes(1) / _verifying_bytes(5),
                "You took every draft for accepted. A round yields 1 + a + ... + a**4 tokens.",
            ),
            Slip(
                lambda: SPECULATION.tokens_per_round * _verifying_bytes(1) / _separate_experts(),
                "You gave every token experts of its own. Some tokens choose the same ones.",
            ),
        ),
        hints=(
            "Tokens of a round, over how many times more bytes the verifying pass reads than a step.",
            "Bytes of a pass of n tokens: pass_cost(mixture, new=n, logits=n).linear.bytes, for n = 1 and n = 5.",
        ),
        solution=(
            "A round yields {tokens:.2f} tokens. Its pass reads {five:.2f} GB, a step {one:.2f} GB: {answer}. "
            "It is slower."
        ),
        numbers=lambda: {
            "tokens": SPECULATION.tokens_per_round,
            "five": _verifying_bytes(5) / 1e9,
            "one": _verifying_bytes(1) / 1e9,
        },
    ),
    NumberExercise(
        key="bandwidth-with-overhead",
        notebook="05_when_prefill_stops_mattering",
        question=(
            "Each pass has 2 ms of overhead. What does twice the bandwidth buy the reasoning request, alone: how many "
            "times faster?"
        ),
        unit="times",
        expected=lambda: _with_overhead(1) / _with_overhead(2),
        slips=(
            Slip(lambda: 2.0, "Only reading gets faster. The 2 ms of each step stay."),
            Slip(
                lambda: cost_of(REASONING).seconds / _with_overhead(2),
                "You put the overhead into the time after only. It is in the time before as well.",
            ),
        ),
        hints=(
            "A step is about 4.7 ms of reading and 2 ms of overhead. Halve one of them.",
            "Deployment(..., efficiency=Efficiency(overhead=2e-3)), then policy.more_bandwidth(2).speedup(...).",
        ),
        solution="Before {before:.1f} s, after {after:.1f} s, of which overhead {overhead:.1f} s each: {answer}.",
        numbers=lambda: {
            "before": _with_overhead(1),
            "after": _with_overhead(2),
            "overhead": SLOW_STEPS * REASONING.output,
        },
    ),
)
