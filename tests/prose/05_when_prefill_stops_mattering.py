"""The numbers that notebook 05 says in its prose, each made by the library."""

from dataclasses import replace

from lessonlib import Efficiency
from lessonlib.face.exercises.book.common import CHAT, FP8_CACHE, INT4, REASONING, cost_of, server
from lessonlib.face.exercises.book.notebook_05 import SPECULATION
from lessonlib.policy.levers import faster_peak, more_bandwidth, prefix_cache
from lessonlib.policy.sensitivity import break_even_output, elasticities

REAL = Efficiency(mfu=0.6, mbu=0.8)


def prefill_percent(request, batch=1):
    return 100 * (1 - cost_of(request, batch).decode_share)


def at_limit(request, rate):
    return elasticities(server(), request, server().largest_batch(request.prompt + request.output))[rate]


def faster(lever, batch):
    return lever.speedup(server(), REASONING, batch)


def turn(request, one, other, efficiency=None):
    """The first batch at which one lever beats the other."""
    machine = replace(server(), efficiency=efficiency or Efficiency())
    batches = range(1, machine.largest_batch(request.prompt + request.output) + 1)
    return next(b for b in batches if one.speedup(machine, request, b) > other.speedup(machine, request, b))


HELD = {
    "each accepted with 0.7": lambda: f"each accepted with {SPECULATION.acceptance}",
    "**Acceptance is assumed**: 0.7": lambda: f"**Acceptance is assumed**: {SPECULATION.acceptance}",
    "0.0074 % of reasoning alone, 2.6 % of chat alone, 67 % of chat's GPU clock at its limit": lambda: (
        f"{prefill_percent(REASONING):.4f} % of reasoning alone, {prefill_percent(CHAT):.1f} % of chat alone, "
        f"{prefill_percent(CHAT, server().largest_batch(1152)):.0f} % of chat's GPU clock at its limit"
    ),
    "for one of 100 tokens, 20 output tokens make its prefill a twentieth": lambda: (
        f"for one of 100 tokens, {break_even_output(server(), 100)} output tokens make its prefill a twentieth"
    ),
    "20 or 21 output tokens": lambda: (
        " or ".join(str(found) for found in sorted({break_even_output(server(), prompt) for prompt in range(1, 296)}))
        + " output tokens"
    ),
    "chat follows peak (-0.755) and reasoning bandwidth (-0.9996)": lambda: (
        f"chat follows peak ({at_limit(CHAT, 'peak'):.3f}) and reasoning bandwidth "
        f"({at_limit(REASONING, 'bandwidth'):.4f})"
    ),
    "4-bit weights: 2.83 times alone, 1.32 at batch 32.": lambda: (
        f"4-bit weights: {faster(INT4, 1):.2f} times alone, {faster(INT4, 32):.2f} at batch 32."
    ),
    "An fp8 cache: 1.03, then 1.48.": lambda: (
        f"An fp8 cache: {faster(FP8_CACHE, 1):.2f}, then {faster(FP8_CACHE, 32):.2f}."
    ),
    "below batch 37": lambda: f"below batch {turn(CHAT, prefix_cache(1.0), INT4)}",
    "From batch 64 on": lambda: f"From batch {turn(CHAT, faster_peak(2), more_bandwidth(2))} on",
    "With 0.6 of the peak and 0.8 of the bandwidth, chat's cached prompts pass int4 weights at batch 26 already, and "
    "FLOP/s pass bandwidth at batch 41. Reasoning's 24 stays.": lambda: (
        f"With {REAL.mfu} of the peak and {REAL.mbu} of the bandwidth, chat's cached prompts pass int4 weights at "
        f"batch {turn(CHAT, prefix_cache(1.0), INT4, REAL)} already, and FLOP/s pass bandwidth at batch "
        f"{turn(CHAT, faster_peak(2), more_bandwidth(2), REAL)}. Reasoning's {turn(REASONING, FP8_CACHE, INT4, REAL)} "
        "stays."
    ),
    "passes int4 weights at batch 24": lambda: f"passes int4 weights at batch {turn(REASONING, FP8_CACHE, INT4)}",
    "at batch 37 for chat (prefill passes weights) and at batch 24 for reasoning": lambda: (
        f"at batch {turn(CHAT, prefix_cache(1.0), INT4)} for chat (prefill passes weights) and at batch "
        f"{turn(REASONING, FP8_CACHE, INT4)} for reasoning"
    ),
}
