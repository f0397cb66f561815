"""The clock of a server: seconds of passes and steps, the time that they take, and the log of all events.

While the same n sequences decode and hold S tokens together, m steps take, in closed form,

    m (linear layers of n tokens + all-reduces + overhead + constant states) + a (m S + n m (m + 1) / 2)

with a the seconds of attention for each token of span, under each kind's roof, which does not move with the span. The
steps before a time are the root of a quadratic, held to whole steps. Layers of a law that only their mixer knows add
what it says for each sequence, as in the cost of a request, and the steps before a time are found by halving.
"""

import math
from array import array
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.errors import InvalidInputError
from lessonlib.model.precision import ATTENTION
from lessonlib.policy.cache import shared_step_seconds
from lessonlib.policy.serving.memory import CountedLayers, Layers
from lessonlib.policy.serving.traffic import Traffic
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import sums_of
from lessonlib.work.passes import Passes, Work, attention_of_steps, attention_work, linear_work

COARSEST_CLOCK = 1e-3  # of the shortest step, between two numbers of the clock


def steps_until(seconds: float, rate: float, growth: float) -> int:
    """The first m >= 1 with m rate + growth m (m + 1) / 2 >= seconds: the root, then held to whole steps."""
    half = rate + growth / 2
    m = max(1, math.ceil(2 * seconds / (half + math.sqrt(half * half + 2 * growth * seconds))))
    while m > 1 and (m - 1) * (rate + growth * m / 2) >= seconds:
        m -= 1
    while m * (rate + growth * (m + 1) / 2) < seconds:
        m += 1
    return m


class Pace(NamedTuple):
    """Seconds of the decode steps to come: step j takes rate + growth j, and what the layers in `asked` add."""

    clock: "Clock"
    rate: float
    growth: float

    def seconds(self, steps: int) -> float:
        seconds = steps * (self.rate + self.growth * (steps + 1) / 2)
        for layers in self.clock.asked:
            seconds += self.clock.asked_seconds(layers, steps)
        return seconds

    def steps_until(self, seconds: float, most: int) -> int:
        """The first of `most` steps at whose end `seconds` have passed, or the last of them."""
        if not self.clock.asked:
            return min(most, steps_until(seconds, self.rate, self.growth))
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.seconds(middle) >= seconds else (middle, high)
        return high


class Clock:
    """Time on the clock of the arrivals, decode steps so far, and what passes of a deployment take."""

    def __init__(self, deployment: Deployment, layers: list[Layers], start: float):
        self.deployment, self.time = deployment, start
        self.step = 0
        self.phases = dict.fromkeys(("prefill", "recompute", "decode", "mixed", "idle"), 0.0)
        self.request_seconds = 0.0
        self.log = array("d")  # by event: time, step, requests that hold memory, that wait, bytes taken, rate, growth
        self.counted = [(self.span_seconds(one), one) for one in layers if isinstance(one, CountedLayers)]
        self.asked = [one for one in layers if not isinstance(one, CountedLayers)]
        states = [kind for kind in deployment.sizes.kinds if not kind.cache_bytes]
        self.state_seconds = self.seconds_of([attention_work(kind, 1.0, 0.0, 1.0) for kind in states])
        self.shared_seconds = cache(self._shared_seconds)
        self.chunk_seconds = lru_cache(2**16)(self._chunk_seconds)
        self.linear_seconds = lru_cache(2**16)(self._linear_seconds)

    def seconds_of(self, works: list[Work], tokens: float = 0.0, passes: float = 0.0) -> Any:
        run = Passes(self.deployment.sizes, works, tokens, passes)
        busy, communication, number = sums_of(self.deployment, [run])
        return busy + communication + number * self.deployment.efficiency.overhead

    def _chunk_seconds(self, new: int, cached: int) -> float:
        """Attention of `new` prompt tokens of one sequence."""
        works = [attention_work(kind, float(new), float(cached), 1.0) for kind in self.deployment.sizes.kinds]
        return float(self.seconds_of(works))

    def _shared_seconds(self, n: int) -> float:
        """Of a decode step of n sequences, all that does not depend on their spans."""
        return sum(shared_step_seconds(self.deployment, n)) + n * self.state_seconds

    def _linear_seconds(self, tokens: int, logits: int) -> float:
        """Of a pass over `tokens` tokens, all but attention and constant states."""
        works = linear_work(self.deployment.sizes, float(tokens), float(logits))
        return float(self.seconds_of(works, float(tokens), 1.0))

    def span_seconds(self, layers: CountedLayers) -> float:
        """Attention of a decode step for each token of span, under each kind's roof."""
        works = [Work(kind.part, ATTENTION, kind.pair_flops, 0.0, kind.cache_bytes) for kind in layers.kinds]
        return float(self.seconds_of(works))

    def asked_seconds(self, layers: Layers, steps: int) -> float:
        """Attention of the next `steps` decode steps, priced as in the cost of a request: one roof for a sequence."""
        tokens, count = layers.sequences(self.step)
        works = [work for kind in layers.kinds for work in attention_of_steps(kind, tokens, float(steps), count)]
        return float(np.sum(self.seconds_of(works)))

    def attention(self, shared: float = 0.0) -> Pace:
        """The pace of the decode steps to come: attention on the caches, and `shared` seconds in each."""
        rate = growth = 0.0
        for seconds, layers in self.counted:
            rate += seconds * layers.span(self.step)
            growth += seconds * layers.growing
        return Pace(self, rate + shared, growth)


def require_fine_clock(traffic: Traffic, step: float) -> None:
    """A float64 has some 16 digits: on a clock that reads 1.7e18 a step of 5 ms is lost, and so is the latency."""
    last = float(traffic.arrivals[-1])
    if np.spacing(last) > COARSEST_CLOCK * step:
        raise InvalidInputError(
            f"simulate: the last request arrives at {last:,.10g} s, where numbers are {np.spacing(last):.2g} s apart, "
            f"too coarse for a step of {step:.2g} s; give seconds, and subtract the first arrival from all."
        )
