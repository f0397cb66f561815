"""The exercises of notebook 05_when_prefill_stops_mattering."""

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
from lessonlib.face.exercises.exercises import Choice, Number, choice, number
from lessonlib.policy.levers import faster_peak, more_bandwidth, prefix_cache
from lessonlib.policy.sensitivity import break_even_by_rho, break_even_output, faster_prefill
from lessonlib.request.cost import request_cost
from lessonlib.time.deployment import Deployment, Efficiency, Speculation
from lessonlib.time.roofline import pass_cost

SLOW_STEPS = 2e-3  # seconds of overhead that a pass has in one exercise
SPECULATION = Speculation(draft_tokens=4, acceptance=0.7, draft="free")
RHO_IS_NOT_IT = "That is rho's estimate. rho takes the prefill for compute bound, and 100 tokens are under the ridge."


def _twice_prefill(batch: int, k: float = 2.0) -> float:
    cost = cost_of(CHAT, batch)
    return faster_prefill(cost.prefill.seconds, cost.decode.seconds, k)


def _with_overhead(bandwidth: float) -> float:
    efficiency = Efficiency(overhead=SLOW_STEPS)
    slow = Deployment(server().model, server().accelerator, server().precision, efficiency=efficiency)
    case = more_bandwidth(bandwidth)(slow, REASONING)
    return request_cost(case.deployment, case.request, case.batch).seconds


@number("%", tolerance=0.02)
def free_prefill(answer: Number) -> str:
    """The reasoning prefill takes no time at all. What per cent of its time is saved, alone on the GPU?

    - Infinitely fast means that the whole prefill falls away. So: which share of the seconds is prefill?
    - The prefill costs as much as one decode step, and there are 12,799 of those.
    """
    cost = cost_of(REASONING)
    answer.value = 100 * cost.prefill.seconds / cost.seconds
    answer.slip(
        100 * REASONING.prompt / (REASONING.prompt + REASONING.output),
        "That is the prompt's share of the tokens. All its tokens go through in one pass.",
    )
    answer.slip(
        100 * cost.prefill.flops / cost.flops,
        "That is the prefill's share of the FLOPs. What is saved is a share of seconds.",
    )
    return f"Prefill {1e3 * cost.prefill.seconds:.3f} ms of {cost.seconds:.2f} s: {answer}."


@number("times")
def twice_prefill(answer: Number) -> str:
    """At chat's memory limit the prefill becomes twice as fast. How many times faster is the GPU clock?

    - Amdahl: time before over time after, (prefill + decode) / (prefill / 2 + decode).
    - policy.faster_prefill(prefill, decode, 2); seconds of request_cost(server, chat, limits["chat"]).
    """
    limit = int(largest_batch(CHAT))
    prefill, decode = cost_of(CHAT, limit).prefill.seconds, cost_of(CHAT, limit).decode.seconds
    answer.value = _twice_prefill(limit)
    answer.slip(2, "Only the prefill is twice as fast. The decode takes as long as before.")
    answer.slip(
        _twice_prefill(limit, float("inf")), "That is an infinitely fast prefill. Twice as fast leaves half of it."
    )
    answer.slip(_twice_prefill(1), "That is one request alone. Take the batch that fills the memory.")
    answer.slip(_twice_prefill(32), "That is batch 32, a server that is nearly empty.")
    return (
        f"At batch {limit} prefill takes {prefill:.3f} s and decode {decode:.3f} s. Half of the prefill stays: "
        f"{answer}."
    )


@number("output tokens", tolerance=0.001)
def short_prompt(answer: Number) -> str:
    """A prompt of 100 tokens, alone: from how many output tokens on is its prefill under 5 % of the time?

    - What does a prefill of 100 tokens cost, in decode steps?
    - Under 5 % is at least 19 steps for one prefill. And the prefill emits a token itself.
    """
    prefill, step = (pass_cost(server(), new, cached).seconds for new, cached in ((100, 0), (1, 100)))
    exact, rho = break_even_output(server(), 100), break_even_by_rho(server(), 100)
    answer.value = exact
    answer.slip(round(rho), RHO_IS_NOT_IT)
    answer.slip(rho, RHO_IS_NOT_IT)
    answer.slip(exact - 1, "Close: these are the steps. The prefill emits one more token.")
    return (
        f"The prefill takes {1e3 * prefill:.3f} ms, a step {1e3 * step:.3f} ms: as much. 5 to 95 is 1 to 19, and the "
        f"prefill emits the first token: {answer}. rho said {rho:.1f}."
    )


@number("times")
def int4_at_32(answer: Number) -> str:
    """Weights in 4 bits, reasoning at batch 32: how many times faster is it?

    - Which share of the time at batch 32 is weights? Only that shrinks.
    - policy.quantised(blocks="int4", experts="int4").speedup(server, reasoning, 32)
    """
    cost = cost_of(REASONING, 32)
    weights = cost.prefill.linear.seconds + cost.decode.linear.seconds
    before, after = server().sizes.dense_bytes, INT4(server(), REASONING).deployment.sizes.dense_bytes
    answer.value = INT4.speedup(server(), REASONING, 32)
    answer.slip(4, "That is the ratio of 16 bits to 4. A step also reads the cache, which stays as it is.")
    answer.slip(
        cost.seconds / (cost.seconds - 0.75 * weights),
        "You made every weight four times smaller. The LM head and the norms stay in bf16, and int4 carries scales: "
        "4.25 bits a weight.",
    )
    answer.slip(INT4.speedup(server(), REASONING, 1), "That is batch 1. At batch 32 the steps read 32 caches as well.")
    return (
        f"Weights are {100 * cost.decode.linear.seconds / cost.seconds:.0f} % of the time at batch 32. A pass streams "
        f"{before / 1e9:.2f} GB of them before and {after / 1e9:.2f} GB after, since the head stays in bf16: {answer}."
    )


@number("times")
def fp8_cache_at_32(answer: Number) -> str:
    """The cache in fp8 instead of bf16, reasoning at batch 32: how many times faster is it?

    - Which share of the time at batch 32 is cache? Half of that falls away.
    - policy.quantised(cache="fp8").speedup(server, reasoning, 32)
    """
    cost = cost_of(REASONING, 32)
    answer.value = FP8_CACHE.speedup(server(), REASONING, 32)
    answer.slip(2, "Only the cache's bytes are halved. The weights are read as before.")
    answer.slip(FP8_CACHE.speedup(server(), REASONING, 1), "That is batch 1, where a step reads one small cache.")
    reads = 100 * cost.decode.attention.seconds / cost.seconds
    return f"Cache reads are {reads:.1f} % of the time, and half of that is saved: {answer}."


@choice("d")
def lever_at_limit(answer: Choice) -> str:
    """A reasoning server is at its memory limit. Which of these helps most?

    a: every prompt found in a prefix cache
    b: twice the FLOP/s
    c: weights in int4
    d: the cache in fp8

    - What do its steps read at batch 33: more weights or more cache?
    - A smaller cache does two things: a step reads less, and more requests fit.
    """
    prefix, peak, int4, fp8 = (
        lever.speedup_at_limit(server(), REASONING) for lever in (prefix_cache(1.0), faster_peak(2), INT4, FP8_CACHE)
    )
    cost = cost_of(REASONING, int(largest_batch(REASONING)))
    prefill, weights, reads = (
        100 * part.seconds / cost.seconds for part in (cost.prefill, cost.decode.linear, cost.decode.attention)
    )
    answer.says(
        a=f"Prefill is {prefill:.3f} % of its GPU clock. A prefix cache makes it {prefix:.4f} times as fast.",
        b=f"Decode waits for memory, not for FLOPs: {peak:.4f} times as fast.",
        c=f"{int4:.2f} times as fast: weights are only {weights:.0f} % of the time, and the room they leave holds a "
        "few more requests.",
        d=f"{fp8:.2f} times as fast. Cache reads are {reads:.0f} % of the time, and half the bytes also make room for "
        "twice the batch, so the weights are shared by twice as many.",
    )
    return f"{answer}: {fp8:.2f} times as fast, against {int4:.2f} for int4 weights."


@number("times")
def speculation_experts(answer: Number) -> str:
    """Qwen3-30B-A3B, batch 1: 4 drafts cost nothing, each is accepted with 0.7. By the bytes of the weights alone, how
    many times faster is it?

    - Tokens of a round, over how many times more bytes the verifying pass reads than a step.
    - Bytes of a pass of n tokens: pass_cost(mixture, new=n, logits=n).linear.bytes, for n = 1 and n = 5.
    """
    one, five = (pass_cost(mixture(), new=n, logits=n).linear.bytes for n in (1, 5))
    separate = one + 4 * (one - mixture().sizes.dense_bytes)  # if no two of the five tokens ever shared an expert
    tokens = SPECULATION.tokens_per_round
    answer.value = tokens * one / five
    answer.slip(
        tokens,
        "These are the tokens of a round. But the pass that verifies five tokens reads the experts of five.",
    )
    answer.slip(5 * one / five, "You took every draft for accepted. A round yields 1 + a + ... + a**4 tokens.")
    answer.slip(tokens * one / separate, "You gave every token experts of its own. Some tokens choose the same ones.")
    return (
        f"A round yields {tokens:.2f} tokens. Its pass reads {five / 1e9:.2f} GB, a step {one / 1e9:.2f} GB: {answer}. "
        "It is slower."
    )


@number("times")
def bandwidth_with_overhead(answer: Number) -> str:
    """Each pass has 2 ms of overhead. What does twice the bandwidth buy the reasoning request, alone: how many times
    faster?

    - A step is about 4.7 ms of reading and 2 ms of overhead. Halve one of them.
    - Deployment(..., efficiency=Efficiency(overhead=2e-3)), then policy.more_bandwidth(2).speedup(...).
    """
    before, after, overhead = _with_overhead(1), _with_overhead(2), SLOW_STEPS * REASONING.output
    answer.value = before / after
    answer.slip(2, "Only reading gets faster. The 2 ms of each step stay.")
    answer.slip(
        cost_of(REASONING).seconds / after,
        "You put the overhead into the time after only. It is in the time before as well.",
    )
    return f"Before {before:.1f} s, after {after:.1f} s, of which overhead {overhead:.1f} s each: {answer}."
