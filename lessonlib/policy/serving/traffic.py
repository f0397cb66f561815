"""Requests as they reach a server: when each arrives, how long its prompt is, and how long its answer will be.

Arrivals of many independent users are close to a Poisson process: gaps between them are exponential with mean 1 / rate.
Lengths come from numbers, from arrays (a trace replayed), or from the quantiles of published traffic.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lessonlib.base.checks import Checked, checked, count, numbers, rate, wrong
from lessonlib.base.errors import MOST_TOKENS
from lessonlib.request.lengths import LengthQuantiles
from lessonlib.request.request import Request

MOST_REQUESTS = 10_000_000  # that are drawn at once: half a gigabyte


TOKENS = numbers(1, MOST_TOKENS, whole=True, flat=True)


@dataclass(frozen=True, eq=False, repr=False)
class Traffic(Checked):
    """Requests in order of arrival. A trace is replayed by giving its arrays: `Traffic(arrivals, prompt, output)`.

    `arrivals`: seconds, sorted. `prompt`, `output`: tokens, an array or one number for all. `thought_share`: the share
    of the output, in [0, 1], that is thought before the answer begins; a number or an array. `cached_share`: the share
    of the prompt that a prefix cache holds, likewise; at least one token of it is computed all the same. Raises
    InvalidInputError for an impossible request, naming the first.
    """

    arrivals: Any
    prompt: Any
    output: Any
    thought_share: Any = 0.0
    cached_share: Any = 0.0

    rules: ClassVar = {
        "arrivals": numbers(0, flat=True),
        "prompt": TOKENS,
        "output": TOKENS,
        "thought_share": numbers(0, 1, flat=True),
        "cached_share": numbers(0, 1, flat=True),
    }

    def complete(self) -> None:
        arrivals = np.atleast_1d(self.arrivals)
        if not arrivals.size:
            raise wrong(self.owner, "arrivals", [], "at least one request")
        late = np.flatnonzero(np.diff(arrivals) < 0)
        if late.size:
            before, here = arrivals[late[0] : late[0] + 2].tolist()
            name = f"arrivals[{late[0] + 1}]"
            raise wrong(self.owner, name, here, f"at least {before} s, that of the request ahead of it", "sort them")
        for name in self.rules:
            kind = np.int64 if name in ("prompt", "output") else float
            column = getattr(self, name)
            if column.ndim and column.shape != arrivals.shape:
                raise wrong(self.owner, f"length of {name}", len(column), f"one for each of {len(arrivals):,} arrivals")
            column = np.broadcast_to(column, arrivals.shape).astype(kind)
            column.setflags(write=False)
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.arrivals)

    @property
    def answer_starts(self) -> Any:
        """Which output token begins the answer, 1 for the first: floor(thought share x output) + 1."""
        return np.floor(self.thought_share * self.output + 1e-9).astype(np.int64) + 1  # 0.29 x 100 is 28.999...

    @property
    def cached(self) -> Any:
        """Prompt tokens that a prefix cache holds: floor(cached share x prompt), at most all but one."""
        return np.minimum(np.floor(self.cached_share * self.prompt + 1e-9).astype(np.int64), self.prompt - 1)

    @property
    def request(self) -> Request:
        """All requests as one mix, arrays of lengths, for `memory_batch` and `price`."""
        return Request(self.prompt, self.output, self.cached)

    @property
    def requests_per_second(self) -> float:
        """Requests offered a second between the first arrival and the last; NaN where all arrive at once."""
        span = float(self.arrivals[-1] - self.arrivals[0])
        return (len(self) - 1) / span if span else math.nan

    @property
    def tokens_per_second(self) -> float:
        """Output tokens offered a second."""
        return self.requests_per_second * float(np.mean(self.output))

    def __repr__(self) -> str:
        return (
            f"Traffic of {len(self):,} requests, from {self.arrivals[0]:,.6g} s to {self.arrivals[-1]:,.6g} s; on "
            f"average {self.prompt.mean():,.1f} prompt and {self.output.mean():,.1f} output tokens"
        )


def _lengths(random: "np.random.Generator", count: int, value: Any) -> Any:
    return value.sample(random, count) if isinstance(value, LengthQuantiles) else value


@checked(count=count(1, MOST_REQUESTS), rate=rate("requests a second"), seed=count(0))
def poisson_traffic(
    count: int, rate: float, prompt: Any, output: Any, seed: int, thought_share: Any = 0.0, cached_share: Any = 0.0
) -> Traffic:
    """`count` requests at `rate` a second on average, with exponential gaps. The same seed gives the same requests.

    `prompt`, `output`: a number, an array of `count`, or LengthQuantiles to draw from. They are drawn independently of
    each other and of the arrivals: published marginals do not say how a long prompt goes with a long answer.
    """
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.exponential(1 / rate, count))
    lengths = _lengths(random, count, prompt), _lengths(random, count, output)
    return Traffic(arrivals, *lengths, thought_share, cached_share)


@checked(count=count(1, MOST_REQUESTS), seed=count(0))
def all_at_once(
    count: int, prompt: Any, output: Any, seed: int = 0, thought_share: Any = 0.0, cached_share: Any = 0.0
) -> Traffic:
    """`count` requests that all arrive at 0 s, with lengths as in `poisson_traffic`; the seed is for drawn ones."""
    random = np.random.default_rng(seed)
    lengths = _lengths(random, count, prompt), _lengths(random, count, output)
    return Traffic(np.zeros(count), *lengths, thought_share, cached_share)
