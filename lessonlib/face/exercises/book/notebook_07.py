"""The exercises of notebook 07_time_it_yourself."""

import math
from functools import cache

from lessonlib.face.exercises.book.common import CHAT, cost_of, server, smallest_compute_bound_prompt
from lessonlib.face.exercises.exercises import Choice, Number, choice, number, predict
from lessonlib.measured.timing.cpu import recorded_cpu
from lessonlib.measured.timing.predictions import predictions, this_machine
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

CPU_CHAT, CPU_REASONING = Request(256, 32), Request(16, 320)  # shaped like chat and reasoning, short enough to wait for
TWICE_THE_RIDGE = "That is twice the ridge, where both times are equal. A prompt has whole tokens: take the next one."
HEAD_IS_APART = "That adds the LM head's bytes to the blocks'. The head is a kernel of its own, after them."


@cache
def recorded_machine() -> Deployment:
    """The NumPy decoder on that machine, as its yardsticks describe it."""
    return this_machine(recorded_cpu())


def recorded_steps() -> tuple[float, float]:
    """The recorded decode steps over their prediction: least and most, in per cent above it."""
    ratios = [row.ratio for row in predictions(recorded_cpu()) if row.what.startswith("decode")]
    return 100 * (min(ratios) - 1), 100 * (max(ratios) - 1)


def _recorded_seconds(phase: str, tokens: int, context: int) -> float:
    """Median seconds of a timed pass of the recorded run."""
    wanted = (phase, tokens, context)
    return next(p.median for p in recorded_cpu().points if (p.phase, p.tokens, p.context) == wanted)


@choice("b")
def how_near_on_a_cpu(answer: Choice) -> str:
    """At six contexts, how much longer do the decode steps of the recorded run take than predicted?

    a: by less than 2 %
    b: by 2 to 25 %
    c: twice as long or more

    - The prediction is a floor: it leaves out some small work. How small is that, next to reading all the weights?
    """
    least, most = recorded_steps()
    answer.says(
        a=f"The prediction does not come that near. The steps take {least:.0f} to {most:.0f} % longer: a step does a "
        "little that moves hardly any bytes.",
        b=f"They take {least:.0f} to {most:.0f} % longer. Most of a step is moving its bytes.",
        c=f"The prediction comes nearer than that. The steps take {least:.0f} to {most:.0f} % longer.",
    )
    return f"{answer}. The six lie {least:.0f} to {most:.0f} % above the prediction."


@number("ms")
def token_at_8000_on_a_cpu(answer: Number) -> str:
    """By the yardsticks of the recorded run, how many milliseconds does a decode step take with 8,000 tokens in the
    cache?

    - Divide bytes by bandwidth. The bytes are the weights that a pass streams, and 8,000 times the cache of a token.
    - pass_cost(machine, new=1, cached=8_000) has .linear.bytes and .attention.bytes.
    """
    machine, step = recorded_machine(), pass_cost(recorded_machine(), 1, 8_000)
    weights, cache, rate = step.linear.bytes, step.attention.bytes, machine.bandwidth
    table = 4 * machine.model.width * machine.model.vocabulary
    answer.value = 1e3 * (weights + cache) / rate
    answer.slip(1e3 * weights / rate, "That is the weights alone. The step also reads the cache.")
    answer.slip(1e3 * cache / rate, "That is the cache alone. The step also reads the weights.")
    answer.slip(
        1e3 * (weights + cache / 2) / rate,
        "You counted K without V, or two bytes a number. In float32 a number has four.",
    )
    answer.slip(
        1e3 * (weights + table + cache) / rate,
        "You streamed the input embedding. It is looked up: one row of it is read.",
    )
    return (
        f"{weights / 1e6:.1f} MB of weights and {cache / 1e6:.1f} MB of cache at {rate / 1e9:.1f} GB/s take {answer}."
    )


@number("tokens")
def compute_bound_prompt_on_a_cpu(answer: Number) -> str:
    """By the yardsticks of the recorded run, how many tokens long is the shortest prompt whose linear layers take
    longer to compute than to stream?

    - n tokens give each weight, of 4 bytes, 2 n FLOP. The ridge is the matmul rate over the bandwidth.
    - Take twice the ridge, and round it up. The LM head has a roof of its own.
    """
    machine = recorded_machine()
    ridge, sizes = machine.peak / machine.bandwidth, machine.sizes
    answer.value = smallest_compute_bound_prompt(recorded_machine())
    answer.slip(smallest_compute_bound_prompt(), "That is the prompt for an H100. This machine has another ridge.")
    answer.slip(ridge, "That is the ridge in FLOP/byte. In float32 a weight of 4 bytes gives 2 FLOP to each token.")
    answer.slip(2 * ridge, TWICE_THE_RIDGE)
    answer.slip(math.ceil(sizes.dense_bytes / machine.bandwidth * machine.peak / sizes.token_flops), HEAD_IS_APART)
    return f"The ridge is {ridge:.2f} FLOP/byte, and twice that is {2 * ridge:.2f}. So the prompt has {answer}."


@predict("times")
def prompt_tokens_a_second_on_a_cpu(answer: Number) -> str:
    """In the recorded run a prompt of 512 was prefilled, and tokens were decoded at a context of 64. How many times as
    many tokens a second did prefill take in?

    - The rates are 512 over the time of the pass, and 1 over the time of the step.
    - Both times are in the tables above. Divide one rate by the other.
    """
    prefill, step = _recorded_seconds("prefill", 512, 0), _recorded_seconds("decode", 1, 64)
    answer.value = 512 * step / prefill
    answer.slip(512, "That would be right if the pass took as long as a step. It is compute bound, and takes longer.")
    answer.slip(
        prefill / step, "That is the time of the pass over that of the step. The pass has 512 tokens, the step has one."
    )
    return f"{512 / prefill:.0f} prompt tokens a second against {1 / step:.1f} output tokens: {answer} as many."


@number("times")
def reasoning_over_chat_on_a_cpu(answer: Number) -> str:
    """By the yardsticks of the recorded run, how many times as long does the reasoning-shaped request (16 -> 320) take
    as the chat-shaped one (256 -> 32)?

    - Chat has one compute-bound pass and 31 steps, reasoning one short pass and 319 steps.
    - The time of chat is request_cost(machine, Request(256, 32)).undisturbed, and that of reasoning likewise.
    """
    chat, reasoning = (request_cost(recorded_machine(), request) for request in (CPU_CHAT, CPU_REASONING))
    answer.value = reasoning.undisturbed / chat.undisturbed
    answer.slip(10, "That is the ratio of the output tokens. But here chat's prefill is not small.")
    answer.slip(336 / 288, "You counted all tokens alike. A prompt token is far cheaper than an output token.")
    return (
        f"Chat takes {chat.undisturbed:.2f} s, of which prefill is {chat.ttft:.2f} s, and reasoning "
        f"{reasoning.undisturbed:.2f} s: {answer} as long."
    )


@choice("b")
def why_prefill_weighs_on_a_cpu(answer: Choice) -> str:
    """Prefill is a large share of the chat request here, and a small one on an H100. Why?

    a: A CPU's memory is slow
    b: A CPU has little compute for its bandwidth: its ridge is low
    c: NumPy loses time between its calls
    d: The model is small

    - Which number of the machine stands in rho?
    - Compare the matmul rate over the bandwidth here with that of an H100.
    """
    here, there = (machine.peak / machine.bandwidth for machine in (recorded_machine(), server()))
    cpu, gpu = request_cost(recorded_machine(), CPU_CHAT), cost_of(CHAT)
    answer.says(
        a="Slow memory makes decode slow, and so makes the share of prefill smaller.",
        b=f"Alone, rho is n_in / (ridge x n_out). The ridge is {here:.1f} FLOP/byte here, and {there:.0f} on an H100.",
        c=f"The prediction has no such loss in it, and still says that prefill is "
        f"{100 * cpu.ttft / cpu.undisturbed:.0f} % "
        f"here and {100 * gpu.ttft / gpu.undisturbed:.1f} % there.",
        d="The parameter count cancels in rho: both phases shrink alike.",
    )
    return f"{answer}. It is {here:.1f} FLOP/byte here, and {there:.0f} on an H100."
