"""Every number in the question, the hints and the right option of an exercise is held to what the library computes.

A numeral is one of GIVEN or of the question's own inputs in INPUTS (token counts, batches, shares that the exercise
sets), or stands in a phrase of HELD, which maps it to a function that makes it again. Distractors are free; feedback
and solutions are made by the library as they are said.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from test_prose_numbers import NUMERAL, loose_numerals

from lessonlib import pass_cost, request_cost
from lessonlib.face.exercises.asking import all_exercises
from lessonlib.face.exercises.book.common import REASONING, cost_of, server
from lessonlib.face.exercises.book.notebook_01 import PUBLISHED_OUTPUT
from lessonlib.face.exercises.book.notebook_06 import rollout_seconds, thought_lengths
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.measurements import load_measurements
from lessonlib.facts.workloads import load_lengths, load_workload
from lessonlib.measured.calibration import relative_errors
from lessonlib.measured.efficiency import decode_search, typical_efficiency
from lessonlib.measured.published import SUSPECTS, deployment_of, published_row
from lessonlib.measured.timing.cpu import recorded_cpu
from lessonlib.policy.cache import step_parts
from lessonlib.policy.estimates import ridge_tokens
from lessonlib.policy.full_server import steady_state
from lessonlib.policy.levers import RELOAD_RATES, quantised
from lessonlib.policy.ranking import YIELDS

BOOK = all_exercises()
A100 = load_accelerator("a100-sxm-80gb")
AGENT, CHAT_MEAN = load_workload("agent-step").request, load_workload("chat").mean
STEPS = REASONING.output - 1
# What an exercise sets and does not compute: lengths of its request, its batch, its shares and rates.
INPUTS = {
    "decode-over-prefill": {"300"},
    "ratio-at-32": {"95"},
    "hundred-to-one": {"12"},
    "first-answer-token": {"90"},
    "twice-the-answer": {"25,600"},
    "level-then-apart": {"32,768"},
    "free-prefill": {"600", "3,000"},
    "goodput-past-capacity": {"15", "8,000"},
    "half-the-thought": {"6,400"},
    "speculation-experts": {"0.7"},
    "short-prompt": {"19"},  # 19 to 1 is 5 %
    "how-near-on-a-cpu": {"25"},  # test_recorded_timing holds the interval
    "token-at-8000-on-a-cpu": {"8,000"},
    "reasoning-over-chat-on-a-cpu": {"256", "320", "31", "319"},  # n_out - 1 of each
    "quiz-cache-passes-weights": {"24"},
    "quiz-memory-batch": {"90"},
    "steady-last-over-first": {"31"},  # neighbours of one in 32
}


def weights():
    return f"{pass_cost(server(), new=1).linear.bytes / 1e9:.2f}"


def per_token():
    return f"{server().cache_bytes_per_token:,.0f}"


def fitted_error():
    search = decode_search()
    seen = search.alternate()
    return 100 * relative_errors(search.judged(seen)["two numbers"][seen]).median


def turn_at_the_floor():
    machine, w8a8, int4 = server(), quantised(blocks="fp8"), quantised(blocks="int4", experts="int4")
    faster = (b for b in range(1, 369) if w8a8.speedup(machine, CHAT_MEAN, b) > int4.speedup(machine, CHAT_MEAN, b))
    return next(faster)


def with_twice_the_memory():
    machine = server()
    larger = replace(machine, accelerator=replace(machine.accelerator, memory=2 * machine.accelerator.memory))
    return steady_state(larger, REASONING).seconds_per_request


def last_step():
    return float(step_parts(server(), REASONING, STEPS, 32, together=True).seconds)


AT_LEVEL = ("qwen3-30b-a3b", "gpt-oss-120b")


def near_sixty(name):
    """The first of a model's published rates on the device of notebook 03, to tens."""
    rates = load_measurements(model=name, source="llamacpp-benches", metric="decode_rate", accelerator="dgx-spark")
    return f"about {round(min(rates, key=lambda row: row.context_tokens).value, -1):.0f} tokens"


def drawn_answers():
    """The answers of which the exercise takes 32 at a time."""
    return load_lengths("production-reasoning", "output").sample(np.random.default_rng(0), 32 * 4_000)


def recorded(phase, size):
    points = [point for point in recorded_cpu().points if point.phase == phase]
    return next(point for point in points if size in (point.tokens, point.context))


def qwen_step():
    """GB of weights that a step of Qwen2-7B reads."""
    return pass_cost(deployment_of(published_row(SUSPECTS["d"])), new=1).linear.bytes / 1e9


HELD = {
    "decode-over-prefill": {
        "299 steps": lambda: f"{300 - 1} steps",
        "295 tokens": lambda: f"{ridge_tokens(server()):.0f} tokens",
    },
    "reasoning-decode": {"12,799 steps": lambda: f"{STEPS:,} steps"},
    "impossible-row": {"2,047 decode steps": lambda: f"{PUBLISHED_OUTPUT - 1:,} decode steps"},
    "agent-prefill-share": {
        "728 new tokens": lambda: f"{AGENT.prompt - AGENT.cached} new tokens",
        "pass of 728 tokens": lambda: f"pass of {AGENT.prompt - AGENT.cached} tokens",
    },
    "prefill-in-steps": {
        "312 TFLOP/s, 2.04 TB/s": lambda: f"{A100.peak('bf16') / 1e12:.0f} TFLOP/s, {A100.bandwidth / 1e12:.2f} TB/s",
        "312 / 2.04": lambda: f"{A100.peak('bf16') / 1e12:.0f} / {A100.bandwidth / 1e12:.2f}",
    },
    "chat-share-at-limit": {"1,155 -> 211": lambda: f"{CHAT_MEAN.prompt:,} -> {CHAT_MEAN.output}"},
    "roof-batch-of-chat": {
        "1,155 -> 211": lambda: f"{CHAT_MEAN.prompt:,} -> {CHAT_MEAN.output}",
        "295 tokens": lambda: f"{ridge_tokens(server()):.0f} tokens",
    },
    "ratio-at-32": {
        "989e12 / 3.35e12": lambda: f"{server().peak / 1e12:.0f}e12 / {server().bandwidth / 1e12:.2f}e12",
    },
    "hundred-to-one": {
        "208 and 792": lambda: "{} and {}".format(
            *(getattr(load_workload("production-reasoning").request, name) for name in ("prompt", "output"))
        ),
    },
    "alternating-cache": {"12,927 tokens": lambda: f"{REASONING.prompt + STEPS:,} tokens"},
    "cache-of-an-answer": {
        "131,072 bytes": lambda: f"{per_token()} bytes",
        "128, 129, ... 12,926": lambda: (
            f"{REASONING.prompt}, {REASONING.prompt + 1}, ... {REASONING.prompt + STEPS - 1:,}"
        ),
    },
    "sparse-step": {
        "576 numbers of each of 12,926 tokens": lambda: (
            f"{load_model('deepseek-v3').mixer_kinds[0][1].cache_elements} numbers of each of "
            f"{REASONING.prompt + STEPS - 1:,} tokens"
        ),
        "576 of each chosen": lambda: f"{load_model('deepseek-v3').mixer_kinds[0][1].cache_elements} of each chosen",
    },
    "last-over-first": {
        "15.01 GB": lambda: f"{weights()} GB",
        "131,072 bytes": lambda: f"{per_token()} bytes",
        "129 tokens in each sequence, the last 12,927": lambda: (
            f"{REASONING.prompt + 1} tokens in each sequence, the last {REASONING.prompt + STEPS:,}"
        ),
    },
    "tpot-near-the-end": {
        "About 1.6 times": lambda: f"About {last_step() / cost_of(REASONING, 32).tpot:.1f} times",
    },
    "steady-last-over-first": {"position 12,799": lambda: f"position {STEPS:,}"},
    "cache-passes-weights": {
        "15.01 GB": lambda: f"{weights()} GB",
        "131,072 bytes": lambda: f"{per_token()} bytes",
    },
    "cache-against-compute": {
        "15.01e9 FLOP": lambda: f"{pass_cost(server(), new=1).linear.flops / 1e9:.2f}e9 FLOP",
    },
    "level-then-apart": {"about 60 tokens": lambda: " and ".join(sorted(set(map(near_sixty, AT_LEVEL))))},
    "wall-before-roof": {
        "took 4.1 s": lambda: f"took {steady_state(server(), REASONING).seconds_per_request:.1f} s",
        "about 3.6 s": lambda: f"about {with_twice_the_memory():.1f} s",
    },
    "batch-under-a-target": {
        "368 requests, with 53 ms": lambda: (
            f"{steady_state(server(), CHAT_MEAN).batch} requests, with "
            f"{1e3 * steady_state(server(), CHAT_MEAN).tpot:.0f} ms"
        ),
    },
    "slots-of-a-static-batch": {
        "1,592 tokens": lambda: f"{drawn_answers().mean():,.0f} tokens",
        "more than 13,000 tokens": lambda: f"more than {round(np.quantile(drawn_answers(), 0.99), -3):,.0f} tokens",
    },
    "free-prefill": {
        "153 tokens": lambda: f"{A100.peak('bf16') / A100.bandwidth:.0f} tokens",
        "2,999 steps": lambda: f"{3_000 - 1:,} steps",
    },
    "mixed-chat": {
        "about 55 %": lambda: f"about {100 * steady_state(server(), CHAT_MEAN, mixed=True).shares['prefill']:.0f} %",
    },
    "reload-agent": {
        "102,919 tokens": lambda: f"{AGENT.cached:,} tokens",
        "PCIe 5.0, 63 GB/s": lambda: f"PCIe 5.0, {RELOAD_RATES['PCIe 5.0 x16'] / 1e9:.0f} GB/s",
        "131,072 for": lambda: f"{per_token()} for",
    },
    "prefix-on-disk": {
        "131,072 bytes": lambda: f"{per_token()} bytes",
        "989 TFLOP/s": lambda: f"{server().peak / 1e12:.0f} TFLOP/s",
    },
    "tokens-with-a-tool": {
        "takes 21,070 output tokens": lambda: f"takes {thought_lengths()[0]:,} output tokens",
        "about 14,000": lambda: f"about {round(thought_lengths()[1], -3):,}",
    },
    "mtp-alone": {"yields 2.44 tokens": lambda: f"yields {YIELDS['MTP']} tokens"},
    "eagle-alone": {
        "yields 3.14 tokens": lambda: f"yields {YIELDS['EAGLE-3']} tokens",
        "3.14 tokens read the weights 3.14 times": lambda: (
            f"{YIELDS['EAGLE-3']} tokens read the weights {YIELDS['EAGLE-3']} times"
        ),
    },
    "bandwidth-with-overhead": {
        "about 4.7 ms": lambda: f"about {1e3 * cost_of(REASONING).tpot:.1f} ms",
    },
    "rollout-slots": {
        "539.5 s, where an answer takes 266.6 s": lambda: "{1} s, where an answer takes {0} s".format(
            *rollout_seconds()
        ),
    },
    "prompt-tokens-a-second-on-a-cpu": {
        "a prompt of 512": lambda: f"a prompt of {recorded('prefill', 512).tokens}",
        "a context of 64": lambda: f"a context of {recorded('decode', 64).context}",
        "512 over the time": lambda: f"{recorded('prefill', 512).tokens} over the time",
    },
    "reached-on-an-a6000": {
        "40.25 tokens": lambda: f"{published_row('m0280').value} tokens",
        "768 GB/s": lambda: f"{load_accelerator('rtx-a6000').bandwidth / 1e9:.0f} GB/s",
    },
    "which-row-is-impossible": {
        "14 GB of weights": lambda: f"{qwen_step():.0f} GB of weights",
        "at 3.35 TB/s": lambda: f"at {server().bandwidth / 1e12:.2f} TB/s",
        "more than 4 ms": lambda: f"more than {int(1e12 * qwen_step() / server().bandwidth)} ms",
    },
    "faster-memory": {
        "A B200 reads 7.7 TB/s": lambda: f"A B200 reads {load_accelerator('b200').bandwidth / 1e12:.1f} TB/s",
        "an H100 3.35": lambda: f"an H100 {server().bandwidth / 1e12:.2f}",
        "15.01 GB": lambda: f"{weights()} GB",
    },
    "slope-of-the-cache": {
        "a B200 (7.7 TB/s)": lambda: f"a B200 ({deployment_of(published_row('m2815')).bandwidth / 1e12:.1f} TB/s)",
        "over 7.7 TB/s": lambda: f"over {load_accelerator('b200').bandwidth / 1e12:.1f} TB/s",
        "by 18 ns": lambda: f"by {1e9 * published_row('m2815').value:.0f} ns",
        '"m2815"': lambda: f'"{published_row("m2815").id}"',
    },
    "eight-devices": {
        "take 9.5 ms": lambda: f"take {1e3 / published_row('m1349').value:.1f} ms",
        "of the 9.5": lambda: f"of the {1e3 / published_row('m1349').value:.1f}",
    },
    "unseen-publishers": {"off by 6.6 %": lambda: f"off by {fitted_error():.1f} %"},
    "reasoning-on-an-a100": {
        "takes 99.6 s": lambda: (
            f"takes {request_cost(replace(server(), accelerator=A100), REASONING).undisturbed:.1f} s"
        ),
        "12,799 steps": lambda: f"{STEPS:,} steps",
    },
    "levers-change-places": {
        "a batch of 26": lambda: f"a batch of {turn_at_the_floor()}",
        "about 0.8 of": lambda: f"about {typical_efficiency('h100-sxm').middle.mbu:.1f} of",
    },
    "quiz-reasoning-seconds": {
        "some 6,500 tokens": lambda: f"some {round(REASONING.prompt + REASONING.output / 2, -2):,.0f} tokens",
    },
}


def texts(exercise):
    """What a learner reads before the answer, and the right option; code in quotes and tolerances taken out."""
    yield exercise.question.partition(" (Right within")[0]
    yield from exercise.hints
    if exercise.options and (exercise.key in HELD or exercise.key not in NUMERIC):
        yield exercise.options[exercise.right]


CODE = re.compile(r"'[^']*'|\b\w+\([^)]*\)|\b\d+(?:_\d+)+\b|\bgpt-oss-120b\b")


@pytest.mark.parametrize("key", BOOK)
def test_every_number_of_an_exercise_is_held(key):
    held, inputs = HELD.get(key, {}), INPUTS.get(key, set())
    whole = " ".join(texts(BOOK[key]))
    for phrase, computed in held.items():
        assert phrase in whole, f"{key}: the phrase {phrase!r} is held but no longer in the exercise"
        assert computed() == phrase, f"{key} says {phrase!r}, the library {computed()!r}"
    loose = [numeral for text in texts(BOOK[key]) for numeral in loose_numerals(CODE.sub(" ", text), held)]
    assert set(loose) <= inputs, f"{key}: numbers that nothing holds: {sorted(set(loose) - inputs)}"


NUMERIC = [key for key, one in BOOK.items() if one.options and all(map(NUMERAL.search, one.options.values()))]


@pytest.mark.parametrize("key", [key for key in NUMERIC if key not in HELD and key.startswith("quiz")])
def test_the_right_option_is_the_nearest_to_what_is_computed(key):
    exercise = BOOK[key]
    options = {letter: float(NUMERAL.search(words)[0]) for letter, words in exercise.options.items()}
    computed = float(NUMERAL.search(exercise.answer.solution.removeprefix(str(exercise.answer)))[0])
    assert min(options, key=lambda letter: abs(np.log(options[letter] / computed))) == exercise.right


def test_what_is_held_is_of_an_exercise():
    assert set(HELD) | set(INPUTS) <= set(BOOK)
