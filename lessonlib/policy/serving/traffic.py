"""Requests as they reach a server: when each arrives, how long its prompt is, and how long its answer will be.

Arrivals of many independent users are close to a Poisson process: gaps between them are exponential with mean 1 / rate.
Lengths come from numbers, from arrays (a trace replayed), or from the quantiles of published traffic.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lessonlib.base.errors import (
    MOST_TOKENS,
    InvalidInputError,
    as_numbers,
    is_number,
    require_count,
    require_rate,
    shown,
)
from lessonlib.request.lengths import LengthQuantiles

MOST_REQUESTS = 10_000_000  # that are drawn at once: half a gigabyte


def _tokens(name: str, value: Any, count: int) -> Any:
    """`count` whole numbers of tokens from one number or an array of that many."""
    if is_number(value):
        value = np.full(count, require_count("Traffic", name, value, 1, MOST_TOKENS))
    array = _array(name, value)
    if array.shape != (count,):
        raise InvalidInputError(
            f"Traffic: {name} has shape {array.shape}; expected one for each of {count:,} arrivals."
        )
    good = (array >= 1) & (array <= MOST_TOKENS) & (array == np.floor(array))
    if not good.all():
        first = int(np.argmin(good))
        raise InvalidInputError(
            f"Traffic: {name} of request {first} is {shown(array[first].item())}; expected a whole number from 1."
        )
    return array.astype(np.int64)


def _array(name: str, value: Any) -> Any:
    array = as_numbers(value)
    if array is None or array.ndim > 1:
        raise InvalidInputError(
            f"Traffic: {name} is {shown(value)}; expected a number or a one-dimensional array of them."
        )
    return np.atleast_1d(array)


@dataclass(frozen=True, eq=False, repr=False)
class Traffic:
    """Requests in order of arrival. A trace is replayed by giving its arrays: `Traffic(arrivals, prompt, output)`.

    `arrivals`: seconds, sorted. `prompt`, `output`: tokens, an array or one number for all. `thought_share`: the share
    of the output, in [0, 1], that is thought before the answer begins; a number or an array. Raises InvalidInputError
    for what cannot be meant, naming the first such request.
    """

    arrivals: Any
    prompt: Any
    output: Any
    thought_share: Any = 0.0

    def __post_init__(self) -> None:
        arrivals = _array("arrivals", self.arrivals)
        count = len(arrivals)
        if not count:
            raise InvalidInputError("Traffic: arrivals is empty; expected at least one request.")
        finite = np.isfinite(arrivals) & (arrivals >= 0)
        if not finite.all():
            first = int(np.argmin(finite))
            raise InvalidInputError(
                f"Traffic: request {first} arrives at {arrivals[first]}; expected finite seconds, zero or more."
            )
        if np.any(np.diff(arrivals) < 0):
            first = int(np.argmax(np.diff(arrivals) < 0)) + 1
            raise InvalidInputError(
                f"Traffic: request {first} arrives at {arrivals[first]} s, before the one ahead of it "
                f"({arrivals[first - 1]} s); sort the requests by arrival."
            )
        share = _array("thought_share", self.thought_share)
        if share.shape not in ((1,), (count,)) or not np.all((share >= 0) & (share <= 1)):
            raise InvalidInputError(
                f"Traffic: thought_share is {shown(self.thought_share)}; expected a fraction from 0 to 1, or one for "
                "each request."
            )
        columns = {
            "arrivals": arrivals.copy(),
            "prompt": _tokens("prompt", self.prompt, count),
            "output": _tokens("output", self.output, count),
            "thought_share": np.broadcast_to(share, (count,)).copy(),
        }
        for name, column in columns.items():
            column.setflags(write=False)
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.arrivals)

    @property
    def answer_starts(self) -> Any:
        """Which output token begins the answer, 1 for the first: floor(thought share x output) + 1."""
        return np.floor(self.thought_share * self.output + 1e-9).astype(np.int64) + 1  # 0.29 x 100 is 28.999...

    def __repr__(self) -> str:
        return (
            f"Traffic of {len(self):,} requests, from {self.arrivals[0]:,.6g} s to {self.arrivals[-1]:,.6g} s; on "
            f"average {self.prompt.mean():,.1f} prompt and {self.output.mean():,.1f} output tokens"
        )


def _lengths(random: np.random.Generator, count: int, value: Any) -> Any:
    return value.sample(random, count) if isinstance(value, LengthQuantiles) else value


def poisson_traffic(count: int, rate: float, prompt: Any, output: Any, seed: int, thought_share: Any = 0.0) -> Traffic:
    """`count` requests at `rate` a second on average, with exponential gaps. The same seed gives the same requests.

    `prompt`, `output`: a number, an array of `count`, or LengthQuantiles to draw from. They are drawn independently of
    each other and of the arrivals: published marginals do not say how a long prompt goes with a long answer.
    """
    count = require_count("poisson_traffic", "count", count, 1, MOST_REQUESTS)
    rate = require_rate("poisson_traffic", "rate", rate, "requests a second")
    random = np.random.default_rng(require_count("poisson_traffic", "seed", seed, 0))
    arrivals = np.cumsum(random.exponential(1 / rate, count))
    return Traffic(arrivals, _lengths(random, count, prompt), _lengths(random, count, output), thought_share)


def all_at_once(count: int, prompt: Any, output: Any, seed: int = 0, thought_share: Any = 0.0) -> Traffic:
    """`count` requests that all arrive at 0 s, with lengths as in `poisson_traffic`; the seed is for drawn ones."""
    count = require_count("all_at_once", "count", count, 1, MOST_REQUESTS)
    random = np.random.default_rng(require_count("all_at_once", "seed", seed, 0))
    return Traffic(np.zeros(count), _lengths(random, count, prompt), _lengths(random, count, output), thought_share)
