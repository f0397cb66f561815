"""The exercises of notebook 06_time_it_yourself."""

import math
from functools import cache
from typing import Any

from lessonlib.face.exercises.book.common import CHAT, cost_of, server, smallest_compute_bound_prompt
from lessonlib.face.exercises.exercises import ChoiceExercise, Exercise, NumberExercise, Slip
from lessonlib.measured.timing.cpu import recorded_cpu
from lessonlib.measured.timing.predictions import predictions, this_machine
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

CPU_CHAT, CPU_REASONING = Request(256, 32), Request(16, 320)  # shaped like chat and reasoning, short enough to wait for


@cache
def recorded_machine() -> Deployment:
    """The NumPy decoder on that machine, as its yardsticks describe it."""
    return this_machine(recorded_cpu())


def _recorded_seconds(phase: str, tokens: int, context: int) -> float:
    """Median seconds of a timed pass of the recorded run."""
    wanted = (phase, tokens, context)
    return next(p.median for p in recorded_cpu().points if (p.phase, p.tokens, p.context) == wanted)


def _step_on_the_cpu(cache_share: float = 1.0, embedding: bool = False) -> float:
    """Milliseconds of a step on 8,000 cached tokens, by bytes / bandwidth, as a slip would count the bytes."""
    machine = recorded_machine()
    step = pass_cost(machine, 1, 8_000)
    looked_up = 4 * machine.model.width * machine.model.vocabulary if embedding else 0
    return 1e3 * (step.linear.bytes + looked_up + cache_share * step.attention.bytes) / machine.bandwidth


def _cpu_prefill_numbers() -> dict[str, Any]:
    machine = recorded_machine()
    chat = request_cost(machine, CPU_CHAT)
    gpu = cost_of(CHAT)
    return {
        "cpu": 100 * chat.ttft / chat.elapsed,
        "gpu": 100 * gpu.ttft / gpu.elapsed,
        "cpu_ridge": machine.peak / machine.bandwidth,
        "gpu_ridge": server().peak / server().bandwidth,
    }


def _recorded_steps() -> dict[str, Any]:
    """The recorded decode steps over their prediction: least and most, in per cent above it."""
    ratios = [row.ratio for row in predictions(recorded_cpu()) if row.what.startswith("decode")]
    return {"least": 100 * (min(ratios) - 1), "most": 100 * (max(ratios) - 1)}


EXERCISES: tuple[Exercise, ...] = (
    ChoiceExercise(
        key="how-near-on-a-cpu",
        notebook="06_time_it_yourself",
        question="Decode steps of the recorded run, at six contexts: how much longer do they take than predicted?",
        options={"a": "by less than 2 %", "b": "by 2 to 25 %", "c": "twice as long or more"},
        right="b",
        because={
            "a": "It does not come that near. They take {least:.0f} to {most:.0f} % longer: a step does a little that "
            "moves hardly any bytes.",
            "b": "They take {least:.0f} to {most:.0f} % longer. Most of a step is moving its bytes.",
            "c": "It comes nearer than that. They take {least:.0f} to {most:.0f} % longer.",
        },
        hints=("The prediction is a floor: it leaves out some small work. How small, next to all the weights?",),
        solution="{answer}: the six lie {least:.0f} to {most:.0f} % above the prediction.",
        numbers=_recorded_steps,
    ),
    NumberExercise(
        key="token-at-8000-on-a-cpu",
        notebook="06_time_it_yourself",
        question=(
            "By the yardsticks of the recorded run: how many milliseconds does a decode step take with 8,000 tokens in "
            "the cache?"
        ),
        unit="ms",
        expected=_step_on_the_cpu,
        slips=(
            Slip(
                lambda: _step_on_the_cpu(cache_share=0.0), "That is the weights alone. The step also reads the cache."
            ),
            Slip(
                lambda: _step_on_the_cpu() - _step_on_the_cpu(cache_share=0.0),
                "That is the cache alone. The step also reads the weights.",
            ),
            Slip(
                lambda: _step_on_the_cpu(cache_share=0.5), "You counted K or V, or two bytes a number. It is float32."
            ),
            Slip(lambda: _step_on_the_cpu(embedding=True), "The embedding is a look-up: one row of it is read."),
        ),
        hints=(
            "Bytes over bandwidth. The bytes are the weights that a pass streams, and 8,000 times a token's cache.",
            "pass_cost(machine, new=1, cached=8_000) has .linear.bytes and .attention.bytes.",
        ),
        solution="{weights:.1f} MB of weights and {cache:.1f} MB of cache at {rate:.1f} GB/s: {answer}.",
        numbers=lambda: {
            "weights": pass_cost(recorded_machine(), 1, 8_000).linear.bytes / 1e6,
            "cache": pass_cost(recorded_machine(), 1, 8_000).attention.bytes / 1e6,
            "rate": recorded_machine().bandwidth / 1e9,
        },
    ),
    NumberExercise(
        key="compute-bound-prompt-on-a-cpu",
        notebook="06_time_it_yourself",
        question=(
            "By the yardsticks of the recorded run: what is the smallest prompt whose linear layers take longer to "
            "compute than to stream?"
        ),
        unit="tokens",
        expected=lambda: smallest_compute_bound_prompt(recorded_machine()),
        slips=(
            Slip(smallest_compute_bound_prompt, "That is the prompt for an H100. This machine has another ridge."),
            Slip(
                lambda: recorded_machine().peak / recorded_machine().bandwidth,
                "That is the ridge in FLOP/byte. In float32 a weight of 4 bytes gives 2 FLOP to each token.",
            ),
            Slip(
                lambda: 2 * recorded_machine().peak / recorded_machine().bandwidth,
                "Close: that is twice the ridge. The LM head is streamed whole too, and works for one token only.",
            ),
            Slip(
                lambda: math.ceil(2 * recorded_machine().peak / recorded_machine().bandwidth),
                "Close: that is twice the ridge. The LM head is streamed whole too, and works for one token only.",
            ),
        ),
        hints=(
            "n tokens give each weight 2 n FLOP, for its 4 bytes. The ridge is matmul rate over bandwidth.",
            "About twice the ridge, and a little more: the LM head sees one token only.",
        ),
        solution="The ridge is {ridge:.2f} FLOP/byte, twice that {twice:.2f}; the head takes it to {answer}.",
        numbers=lambda: {
            "ridge": recorded_machine().peak / recorded_machine().bandwidth,
            "twice": 2 * recorded_machine().peak / recorded_machine().bandwidth,
        },
    ),
    NumberExercise(
        key="prompt-tokens-a-second-on-a-cpu",
        notebook="06_time_it_yourself",
        question=(
            "In the recorded run a prompt of 512 was prefilled, and tokens were decoded at a context of 64. How many "
            "times as many tokens a second did prefill take in?"
        ),
        unit="times",
        tolerance=0.15,
        expected=lambda: 512 * _recorded_seconds("decode", 1, 64) / _recorded_seconds("prefill", 512, 0),
        slips=(
            Slip(lambda: 512.0, "If a pass took as long as a step, yes. This one is compute bound, and takes longer."),
            Slip(
                lambda: _recorded_seconds("prefill", 512, 0) / _recorded_seconds("decode", 1, 64),
                "That is pass over step. The pass has 512 tokens, the step one.",
            ),
        ),
        hints=(
            "Rates: 512 over the time of the pass, 1 over the time of the step.",
            "Both times stand in the tables above. Divide the rates.",
        ),
        solution="{prefill:.0f} prompt tokens a second against {decode:.1f} output tokens: {answer}.",
        numbers=lambda: {
            "prefill": 512 / _recorded_seconds("prefill", 512, 0),
            "decode": 1 / _recorded_seconds("decode", 1, 64),
        },
    ),
    NumberExercise(
        key="reasoning-over-chat-on-a-cpu",
        notebook="06_time_it_yourself",
        question=(
            "Chat-shaped 256 -> 32 and reasoning-shaped 16 -> 320, by the yardsticks of the recorded run: how many "
            "times as long does the second take?"
        ),
        unit="times",
        expected=lambda: (
            request_cost(recorded_machine(), CPU_REASONING).elapsed / request_cost(recorded_machine(), CPU_CHAT).elapsed
        ),
        slips=(
            Slip(lambda: 10.0, "That is the ratio of the output tokens. Here a chat's prefill is not small."),
            Slip(
                lambda: 336 / 288, "You counted all tokens alike. A prompt token is far cheaper than an output token."
            ),
        ),
        hints=(
            "Chat: one compute-bound pass and 31 steps. Reasoning: one short pass and 319 steps.",
            "request_cost(machine, Request(256, 32)).elapsed, and likewise the other.",
        ),
        solution="Chat {chat:.2f} s, of which prefill {first:.2f} s; reasoning {reasoning:.2f} s: {answer}.",
        numbers=lambda: {
            "chat": request_cost(recorded_machine(), CPU_CHAT).elapsed,
            "first": request_cost(recorded_machine(), CPU_CHAT).ttft,
            "reasoning": request_cost(recorded_machine(), CPU_REASONING).elapsed,
        },
    ),
    ChoiceExercise(
        key="why-prefill-weighs-on-a-cpu",
        notebook="06_time_it_yourself",
        question="Prefill is a large share of the chat request here, and a small one on an H100. Why?",
        options={
            "a": "A CPU's memory is slow",
            "b": "A CPU has little compute for its bandwidth: its ridge is low",
            "c": "NumPy loses time between its calls",
            "d": "The model is small",
        },
        right="b",
        because={
            "a": "Slow memory makes decode slow, and so prefill's share smaller.",
            "b": "rho is n_in / (ridge n_out). The ridge is {cpu_ridge:.1f} FLOP/byte here, {gpu_ridge:.0f} there.",
            "c": "The prediction has no such loss in it, and says {cpu:.0f} % of prefill here, {gpu:.1f} % there.",
            "d": "The parameter count cancels in rho: both phases shrink alike.",
        },
        hints=("Which machine number stands in rho?", "Compare matmul rate over bandwidth, here and on an H100."),
        solution="{answer}. Ridge {cpu_ridge:.1f} FLOP/byte here, {gpu_ridge:.0f} on an H100.",
        numbers=_cpu_prefill_numbers,
    ),
)
