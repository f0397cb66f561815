"""The exercises of notebook 06_which_lever."""

from functools import cache
from typing import Any

from lessonlib.face.exercises.book.common import FP8_CACHE, INT4, REASONING, cost_of, mixture, server
from lessonlib.face.exercises.exercises import Choice, Number, choice, number, predict
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.tables import load_table
from lessonlib.facts.workloads import load_workload
from lessonlib.model.precision import Precision
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.policy.levers import faster_peak, more_bandwidth, prefix_cache, quantised, shorter_answer
from lessonlib.policy.ranking import YIELDS, usual_levers
from lessonlib.request.cost import request_cost
from lessonlib.time.deployment import Deployment, Efficiency, Speculation
from lessonlib.time.roofline import pass_cost

SLOW_STEPS = 2e-3  # seconds of overhead that a pass has in one exercise
SPECULATION = Speculation(draft_tokens=4, acceptance=0.7, draft="free")
W8A8 = quantised(blocks="fp8", experts="fp8")
EAGLE, MTP = "EAGLE-3 drafts, 3.14 tokens a round", "MTP drafts, 2.44 tokens a round"


def _with_overhead(bandwidth: float) -> float:
    efficiency = Efficiency(overhead=SLOW_STEPS)
    slow = Deployment(server().model, server().accelerator, server().precision, efficiency=efficiency)
    case = more_bandwidth(bandwidth)(slow, REASONING)
    return request_cost(case.deployment, case.request, case.batch).seconds


def rollout_seconds() -> tuple[float, float]:
    """Seconds of the mean and of the longest answer of one published batch of rollouts."""
    rows = {row["metric"]: row["value"] for row in load_table("rl_rollouts") if row["source"] == "verl issue 7412"}
    return rows["time of a request, mean"], rows["time of a request, largest"]


def thought_lengths() -> tuple[int, int]:
    """Output tokens of gpt-oss-120b for a question of AIME 2025, without a tool and with one, as published."""
    rows = {row["effort_or_budget"]: row for row in load_table("reasoning_lengths") if row["benchmark"] == "AIME 2025"}
    return tuple(rows[how]["output_tokens_mean"] for how in ("high, no tool", "high, with Python tool"))


@cache
def r1_on_b200() -> Deployment:
    """DeepSeek-R1 in nvfp4 on one node of eight B200s, tensor parallel."""
    return Deployment(load_model("deepseek-r1"), load_accelerator("b200"), Precision("nvfp4"), devices=8)


@number("times")
def int4_at_32(answer: Number) -> str:
    """The weights of the blocks go from 16 bits to 4. How many times as fast is reasoning at batch 32?

    - What share of the time at batch 32 goes into reading weights? Only that part shrinks.
    - The LM head stays as it was, and a weight of 4 bits takes a quarter of a bit more with its part of a scale.
    - In code it is int4.speedup(server, reasoning, 32).
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
    answer.slip(INT4.speedup(server(), REASONING, 1), "That is batch 1. At batch 32 a step reads 32 caches as well.")
    return (
        f"Weights take {100 * cost.decode.linear.seconds / cost.seconds:.0f} % of the time at batch 32. A pass streams "
        f"{before / 1e9:.2f} GB of them before and {after / 1e9:.2f} GB after, for the head stays in bf16: {answer} as "
        "fast."
    )


@number("times")
def fp8_cache_at_32(answer: Number) -> str:
    """The cache goes from bf16 to fp8. How many times as fast is reasoning at batch 32?

    - What share of the time at batch 32 goes into reading caches? Half of that falls away.
    - In code it is fp8_cache.speedup(server, reasoning, 32).
    """
    cost = cost_of(REASONING, 32)
    answer.value = FP8_CACHE.speedup(server(), REASONING, 32)
    answer.slip(2, "Only the cache's bytes are halved. The weights are read as before.")
    answer.slip(FP8_CACHE.speedup(server(), REASONING, 1), "That is batch 1, where a step reads one small cache.")
    reads = 100 * cost.decode.attention.seconds / cost.seconds
    return f"Cache reads take {reads:.1f} % of the time, and half of that is saved: {answer} as fast."


@choice("d")
def lever_at_limit(answer: Choice) -> str:
    """Which of these helps a full reasoning server most, each at the memory batch that it leaves?

    a: every prompt found in a prefix cache
    b: twice the FLOP/s
    c: weights in int4
    d: the cache in fp8

    - What do its steps read on a full server: more weights or more cache?
    - A smaller cache does two things: a step reads less, and more requests fit.
    """
    prefix, peak, int4, fp8 = (
        lever.speedup_at_limit(server(), REASONING) for lever in (prefix_cache(1.0), faster_peak(2), INT4, FP8_CACHE)
    )
    full = steady_state(server(), REASONING)
    prefill, weights, reads = (100 * share for share in full.shares.values())
    answer.says(
        a=f"Prefill is {prefill:.3f} % of its GPU clock. And with all of a prompt cached, its last "
        f"token still needs a pass: {prefix:.4f} times as fast.",
        b=f"Decode waits for memory, not for FLOPs: the server is {peak:.4f} times as fast.",
        c=f"It is {int4:.2f} times as fast: weights are only {weights:.0f} % of the time, and the room they leave "
        "holds a few more requests.",
        d=f"It is {fp8:.2f} times as fast. Cache reads are {reads:.0f} % of the time, and half the bytes also make "
        "room for twice the batch, so twice as many requests share the weights.",
    )
    return f"{answer}. It makes the server {fp8:.2f} times as fast, and int4 weights {int4:.2f} times."


@predict("times")
def w8a8_chat(answer: Number) -> str:
    """A full chat server goes from bf16 to W8A8: weights and activations in fp8, multiplied at twice the peak. How many
    times as fast is it?

    - Over half of its GPU time is prefill, a tenth is the linear layers of steps, and a third is cache reads.
    - Which of the three does W8A8 touch?
    """
    mean = load_workload("chat").mean
    state = steady_state(server(), mean)
    reads = state.shares["attention"]
    answer.value = W8A8.speedup_at_limit(server(), mean)
    answer.slip(2, "Cache reads are still in bf16, and so is the LM head.")
    answer.slip(
        INT4.speedup_at_limit(server(), mean), "That is the gain of int4 weights, which still multiply in bf16."
    )
    return (
        f"Linear layers, of prefill and of steps, are {100 * (1 - reads):.0f} % of its GPU time. Nearly all of that is "
        f"halved, for it waits for FLOPs. Cache reads stay: {answer} as fast."
    )


@choice("a")
def tokens_with_a_tool(answer: Choice) -> str:
    """At high effort gpt-oss-120b takes 21,070 output tokens for a question of AIME 2025, on average. How many does it
    take when it may use Python?

    a: about 14,000
    b: about 21,000
    c: about 28,000

    - On what does a thought about mathematics spend its tokens?
    """
    plain, tool = (f"{tokens:,}" for tokens in thought_lengths())
    answer.says(
        a=f"A sum that Python does need not be thought: it takes {tool} tokens instead of {plain}.",
        b=f"Calls cost tokens, but the sums that Python does cost none: it takes {tool}.",
        c=f"Calls are short, and sums worked out in words are long: it takes {tool}.",
    )
    return f"{answer}. It takes {tool} instead of {plain}, and more of its answers are right."


@predict("times")
def half_the_thought(answer: Number) -> str:
    """A full reasoning server is told to think half as long: 6,400 output tokens instead of 12,800. How many times as
    many requests does it finish in an hour?

    - A request has half the steps. And what does each step read?
    - A request that is half as long holds half the cache: how many fit?
    """
    half = shorter_answer(0.5)
    before, after = (memory_batch(server(), one) for one in (REASONING, half(server(), REASONING).request))
    answer.value = half.speedup_at_limit(server(), REASONING)
    answer.slip(2, "Half the steps is right. But each of them also reads caches that are half as long.")
    return (
        f"A request has half the steps, with caches half as long: reading them takes a quarter of the time. And "
        f"{after} "
        f"requests share the weights instead of {before}: it finishes {answer} as many."
    )


@number("times")
def eagle_alone(answer: Number) -> str:
    """Llama-3.1-8B decodes at batch 1, and a round of three EAGLE-3 drafts yields 3.14 tokens. By the bytes of the
    weights alone, how many times as fast is it as without drafts?

    - Without drafts, 3.14 tokens read the weights 3.14 times.
    - With them, a round reads the weights once, and the draft head three times.
    """
    speculation: Any = usual_levers(server(), REASONING)[EAGLE](server(), REASONING).deployment.speculation
    model, head, tokens = server().sizes.dense_bytes, 2 * speculation.draft.parameters, YIELDS["EAGLE-3"]
    answer.value = tokens * model / (model + 3 * head)
    answer.slip(tokens, "That would be right if drafts were free. The head is read for each draft.")
    answer.slip(4 * model / (model + 3 * head), "You counted every draft as accepted.")
    answer.slip(tokens * model / (model + head), "You read the head once. It runs for each of the three drafts.")
    return (
        f"The model has {model / 1e9:.2f} GB, and the head, which is read three times, {head / 1e9:.2f} GB: "
        f"{tokens} x {model / 1e9:.2f} / ({model / 1e9:.2f} + 3 x {head / 1e9:.2f}) = {answer}."
    )


@number("times")
def speculation_experts(answer: Number) -> str:
    """Qwen3-30B-A3B decodes at batch 1 with 4 drafts that cost nothing, each accepted with probability 0.7. By the
    bytes of the weights alone, how many times as fast is it as without drafts?

    - Divide the tokens of a round by how many times as many bytes the verifying pass reads as a step.
    - A pass of n tokens reads pass_cost(mixture, new=n, logits=n).linear.bytes. Take n = 1 and n = 5.
    """
    one, five = (pass_cost(mixture(), new=n, logits=n).linear.bytes for n in (1, 5))
    separate = one + 4 * (one - mixture().sizes.dense_bytes)  # if no two of the five tokens ever shared an expert
    tokens = SPECULATION.tokens_per_round
    answer.value = tokens * one / five
    answer.slip(
        tokens,
        "That is the tokens of a round. But the pass that verifies five tokens reads the experts of all five.",
    )
    answer.slip(5 * one / five, "You counted every draft as accepted. A round yields 1 + a + ... + a**4 tokens.")
    answer.slip(tokens * one / separate, "You gave every token experts of its own. Some tokens choose the same ones.")
    return (
        f"A round yields {tokens:.2f} tokens. Its pass reads {five / 1e9:.2f} GB, and a step {one / 1e9:.2f} GB: "
        f"{answer} "
        "as fast, which is slower."
    )


@predict("times")
def mtp_alone(answer: Number) -> str:
    """A reasoning request runs alone on DeepSeek-R1, in nvfp4 on eight B200s, at the floor. A round of three MTP drafts
    yields 2.44 tokens, as published of another server. How many times as fast is it as without drafts?

    - The head is a layer with experts, and it runs three times a round.
    - The model verifies four tokens in a pass. Each chooses experts of its own.
    """
    machine = r1_on_b200()
    one, four = (pass_cost(machine, new=n, logits=n).linear.bytes for n in (1, 4))
    tokens = YIELDS["MTP"]
    answer.value = usual_levers(machine, REASONING)[MTP].speedup(machine, REASONING)
    answer.slip(tokens, "That is the tokens of a round. To verify four tokens reads more than a step does.")
    answer.slip(4, "You counted every draft as accepted, and all of them as free.")
    return (
        f"A round yields {tokens} tokens. But to verify them reads {four / one:.2f} times the weights of a step, and "
        f"the head is read three times: {answer} as fast."
    )


@number("times")
def bandwidth_with_overhead(answer: Number) -> str:
    """Each pass has 2 ms of overhead. How many times as fast does twice the bandwidth make the reasoning request,
    alone?

    - A step is about 4.7 ms of reading and 2 ms of overhead. Only one of the two is halved.
    - Make Deployment(..., efficiency=Efficiency(overhead=2e-3)), then policy.more_bandwidth(2).speedup(...).
    """
    before, after, overhead = _with_overhead(1), _with_overhead(2), SLOW_STEPS * REASONING.output
    answer.value = before / after
    answer.slip(2, "Only reading gets faster. The 2 ms of each step stay.")
    answer.slip(
        cost_of(REASONING).seconds / after,
        "You counted the overhead only after the change. It is there before it as well.",
    )
    return (
        f"It takes {before:.1f} s before and {after:.1f} s after, and {overhead:.1f} s of each is overhead: {answer} "
        "as fast."
    )


@number("%")
def rollout_slots(answer: Number) -> str:
    """A step of training waits until the slowest of its answers is done: 539.5 s, where an answer takes 266.6 s on
    average. What per cent of the slots' time is used?

    - Each answer has a slot. It is used until the answer ends.
    - Divide the mean by the longest.
    """
    mean, longest = rollout_seconds()
    answer.value = 100 * mean / longest
    answer.slip(100 - 100 * mean / longest, "That is the share that stays unused.")
    return f"On average a slot is used for {mean} s of {longest} s: {answer}."
