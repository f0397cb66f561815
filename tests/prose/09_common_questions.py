"""The numbers that notebook 09 says in its prose, each made by the library."""

import math
from dataclasses import replace

from lessonlib.face.exercises.book.common import CHAT, server
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.workloads import load_workload
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.model.precision import Precision
from lessonlib.policy.batching import intensities
from lessonlib.policy.full_server import steady_state
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment

CHAT_MEAN = load_workload("chat").mean
LONG = load_workload("reasoning").mean
HALF_CACHED = Request(CHAT_MEAN.prompt, CHAT_MEAN.output, CHAT_MEAN.prompt // 2)


def decode(request):
    return f"{100 * (1 - steady_state(server(), request).shares['prefill']):.0f}"


def spread(cache):
    """FLOP/byte of MLA's decode attention on each of eight devices."""
    precision = Precision("bf16", cache=cache)
    deployment = Deployment(load_model("deepseek-v3"), load_accelerator("h100-sxm"), precision, devices=8)
    return f"{intensities(deployment, 8_000, 1)['MLA']:.0f}"


def alone() -> str:
    """FLOP/byte of MLA's decode attention on one device, its cache in fp8, and the ridge of that device in bf16."""
    machine = Deployment(load_model("deepseek-v3"), load_accelerator("h100-sxm"), Precision("bf16", cache="fp8"))
    return f"{intensities(machine, 8_000, 1)['MLA']:.0f} against {machine.accelerator.ridge('bf16'):.0f}"


def token_of(name: str) -> float:
    mean = load_workload(name).mean
    return steady_state(server(), mean).seconds_per_request / mean.output


def survives() -> str:
    """What becomes of the full server's prefill at typical efficiencies."""
    typical = typical_efficiency("h100-sxm")
    reached = [replace(server(), efficiency=one) for one in (typical.high, typical.middle, typical.low)]
    chat, reasoning = (
        [steady_state(of, r).shares["prefill"] for of in (server(), *reached)] for r in (CHAT_MEAN, LONG)
    )
    dearer = "costs more" if min(chat[1:]) > chat[0] else "costs less"
    return f"chat's prefill {dearer}, reasoning's stays under {math.ceil(1000 * max(reasoning)) / 10:g} %"


HELD = {
    "its output token takes 0.77 of the GPU time of chat's": lambda: (
        f"its output token takes {token_of('production-reasoning') / token_of('chat'):.2f} of the GPU time of chat's"
    ),
    "484 against 295": alone,
    "chat's prefill costs more, reasoning's stays under 0.2 %": survives,
    "from 33 % decode (its two medians) to 61 % (half of the prompt cached)": lambda: (
        f"from {decode(CHAT)} % decode (its two medians) to {decode(HALF_CACHED)} % (half of the prompt cached)"
    ),
    "30 FLOP/byte, memory bound, and 60 in fp8": lambda: (
        f"{spread('bf16')} FLOP/byte, memory bound, and {spread('fp8')} in fp8"
    ),
}
