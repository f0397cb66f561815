"""The sentences of the notebooks' summaries, each as a number that a server gives: which of them hold on a real one.

Alone is the median request on an idle GPU, full a steady state of requests of the mean lengths.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from lessonlib.base.checks import checked, named
from lessonlib.base.units import format_percent
from lessonlib.facts.workloads import load_workload
from lessonlib.policy.cache import step_parts
from lessonlib.policy.estimates import chi, ridge_tokens
from lessonlib.policy.full_server import steady_state
from lessonlib.policy.levers import Lever, prefix_reload, quantised, shorter_answer
from lessonlib.policy.sensitivity import break_even_output
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import DEPLOYMENT, Deployment

NEAR = 0.15  # a number without bounds survives that stays so near the floor's
CHAT, REASONING = load_workload("chat"), load_workload("reasoning")
INT4, FP8_CACHE, W8A8 = quantised(blocks="int4"), quantised(cache="fp8"), quantised(blocks="fp8")


class Sentence(NamedTuple):
    """A claim of a notebook, and the number that it rests on. `form`: how that is printed; "%": as per cent.

    It holds where the number lies within `bounds`; without bounds, where it stays within 15 % of the floor's.
    """

    notebook: str
    claim: str
    value: Callable[[Deployment], float]
    form: str = ".2f"
    bounds: tuple[float, float] | None = None

    def printed(self, value: float) -> str:
        return format_percent(value, 2) if self.form == "%" else f"{value:{self.form}}"

    def holds(self, value: float, floor: float) -> bool:
        low, high = self.bounds or (floor * (1 - NEAR), floor * (1 + NEAR))
        return low <= value <= high


def _chats(machine: Deployment) -> float:
    one, other = (request_cost(machine, request).undisturbed for request in (REASONING.request, CHAT.request))
    return one / other


def _decode_over_prefill(machine: Deployment) -> float:
    cost = request_cost(machine, Request(1_000, 300))
    return cost.decode.seconds / cost.prefill.seconds


def _first_to_compute(machine: Deployment) -> float:
    efficiency = machine.efficiency
    return math.floor(ridge_tokens(machine) * efficiency.mfu / efficiency.mbu) + 1


def _share(request: Request, part: str) -> Callable[[Deployment], float]:
    return lambda machine: steady_state(machine, request).shares[part]


def _neighbours(machine: Deployment) -> float:
    step = step_parts(machine, REASONING.request, 1, 32)
    return step.neighbours / step.seconds


def _own_growth(machine: Deployment) -> float:
    first, last = step_parts(machine, REASONING.request, (1, REASONING.request.output - 1), 32).seconds
    return last / first - 1


def _twice_the_answer(machine: Deployment) -> float:
    one, two = (request_cost(machine, Request(128, output), 16).seconds for output in (12_800, 25_600))
    return two / one


def _alone(lever: Lever) -> Callable[[Deployment], float]:
    return lambda machine: lever.speedup(machine, REASONING.request)


def _full(lever: Lever) -> Callable[[Deployment], float]:
    return lambda machine: lever.speedup_at_limit(machine, REASONING.mean)


def batch_where_w8a8_leads(machine: Deployment) -> float:
    """The batch from which W8A8 gains more than int4 weights on a chat server; infinite where it never does."""
    gains = ((b, *(lever.speedup(machine, CHAT.mean, b) for lever in (W8A8, INT4))) for b in range(1, 65))
    return next((float(b) for b, one, other in gains if one > other), math.inf)


def _even_gigabytes(machine: Deployment) -> float:
    any_rate = 1e9  # of the link: the even rate does not ask for it
    return prefix_reload(machine, Request(1_100, 100, cached=1_000), any_rate).even_rate / 1e9


SENTENCES = (
    Sentence(
        "00",
        "chat alone is at least nine tenths decode",
        lambda m: request_cost(m, CHAT.request).decode_share,
        "%",
        (0.9, 1),
    ),
    Sentence("00", "reasoning takes about 100 chats, alone", _chats, ".0f", (90, 110)),
    Sentence("00", "seconds of reasoning, alone", lambda m: request_cost(m, REASONING.request).undisturbed, ".0f"),
    Sentence(
        "01",
        "1,000 -> 300, alone: decode is at least 50 times its prefill",
        _decode_over_prefill,
        ".0f",
        (50, math.inf),
    ),
    Sentence("01", "the shortest prompt whose linear layers are compute bound", _first_to_compute, ".0f"),
    Sentence("02", "chat, full: prefill is more than half", _share(CHAT.mean, "prefill"), "%", (0.5, 1)),
    Sentence("02", "reasoning, full: prefill is below 0.2 %", _share(REASONING.mean, "prefill"), "%", (0, 0.002)),
    Sentence(
        "02", "reasoning, full: cache reads are the largest part", _share(REASONING.mean, "attention"), "%", (0.5, 1)
    ),
    Sentence("03", "batch 32, steady: neighbours are at least half of a step", _neighbours, "%", (0.5, 1)),
    Sentence("03", "batch 32, steady: your thought adds under 5 % to it", _own_growth, "%", (0, 0.05)),
    Sentence("03", "twice the answer, batch 16: between 2 and 4 times", _twice_the_answer, ".2f", (2, 4)),
    Sentence("04", "chi of chat is below 1", lambda m: chi(m, CHAT.mean), ".2f", (0, 1)),
    Sentence("04", "chi of reasoning is above 1", lambda m: chi(m, REASONING.mean), ".1f", (1, math.inf)),
    Sentence(
        "05", "output that makes 100 prompt tokens a twentieth, alone", lambda m: break_even_output(m, 100), ".0f"
    ),
    Sentence("05", "over 12 GB/s, fetch a prefix of 1,000 tokens", _even_gigabytes, ".1f", (0, 12)),
    Sentence("06", "int4 weights, reasoning alone: times as fast", _alone(INT4)),
    Sentence("06", "fp8 cache, reasoning, full: times as fast", _full(FP8_CACHE)),
    Sentence("06", "half the thought, reasoning, full: times as fast", _full(shorter_answer(0.5))),
    Sentence("08", "W8A8 passes int4 weights on chat from batch", batch_where_w8a8_leads, ".0f"),
)


@checked(machines=named(DEPLOYMENT, "floor=server"))
def what_survives(machines: Mapping[str, Deployment]) -> list[tuple[str, ...]]:
    """Rows of a table: notebook and claim, its number on each machine, and whether it holds on all of them.

    The first machine is the floor, the others are the same server at the efficiencies that it may reach.
    """
    rows = []
    for one in SENTENCES:
        values = [float(one.value(machine)) for machine in machines.values()]
        holds = all(one.holds(value, values[0]) for value in values)
        rows.append((f"{one.notebook}: {one.claim}", *map(one.printed, values), "yes" if holds else "**no**"))
    return rows
