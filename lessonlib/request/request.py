"""One request, or many alike: prompt, output and cached tokens; and what is wrong with those that cannot be priced.

Numbers give plain floats, arrays broadcast. An impossible number is refused; in an array its cell becomes NaN
in what is computed, with a code that says why.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from lessonlib.base.checks import REFUSED, Checked, Rule, a, checked, count
from lessonlib.base.errors import MOST_TOKENS, InvalidInputError, as_numbers, is_number
from lessonlib.time.deployment import DEPLOYMENT, Deployment

MOST_CHUNKS = 100_000

REFUSALS = {
    1: "prompt is not a whole number of at least 1",
    2: "output is not a whole number of at least 1",
    3: "cached is not a whole number from 0 to prompt - 1",
    4: "batch is not a whole number of at least 1",
    5: "prompt + output is beyond the positions of the model, or of its draft",
    6: "weights and cache of the batch do not fit in memory",
    7: f"the prompt needs more than {MOST_CHUNKS:,} prefill chunks",
}


def whole_or_array(least: int) -> Rule:
    """A whole number as an int, or an array-like of numbers as float64; an array's cells are looked at later."""

    def turn(value: Any) -> Any:
        if type(value) is int and least <= value <= MOST_TOKENS:  # the usual case, and the fast one
            return value
        if is_number(value):
            return int(value) if value == int(value) and least <= value <= MOST_TOKENS else REFUSED
        array = as_numbers(value) if isinstance(value, list | tuple | np.ndarray) else None
        if array is None:
            return REFUSED
        return array if array.ndim else turn(array.item())

    return Rule(f"a whole number from {least} to 2**53, or an array of them", turn)


def broadcast_shape(request: Any, batch: Any) -> tuple[int, ...]:
    """The shape that a request's arrays and a batch have together; InvalidInputError where they have none."""
    shapes = {name: np.shape(getattr(request, name)) for name in ("prompt", "output", "cached")}
    shapes["batch"] = np.shape(batch)
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        words = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InvalidInputError(f"Request: the shapes do not broadcast together: {words}.") from None


@dataclass(frozen=True, eq=False)
class Request(Checked):
    """Prompt tokens, output tokens, and how many of the prompt's tokens a prefix cache already holds.

    Each is a whole number, or an array of them (they broadcast). An impossible number raises
    InvalidInputError; in an array its cell becomes NaN in the results, and `RequestCost.refused` says why.
    """

    prompt: Any
    output: Any
    cached: Any = 0
    is_array: bool = field(init=False, repr=False, default=False)

    rules: ClassVar[Mapping[str, Rule]] = {
        "prompt": whole_or_array(1),
        "output": whole_or_array(1),
        "cached": whole_or_array(0),
    }

    def complete(self) -> None:
        is_array = any(type(value) is not int for value in (self.prompt, self.output, self.cached))
        object.__setattr__(self, "is_array", is_array)
        if is_array:
            broadcast_shape(self, 1)
        elif self.cached >= self.prompt:
            raise InvalidInputError(
                f"Request: cached is {self.cached:,} but the prompt has {self.prompt:,} tokens; at least one prompt "
                "token must be computed, so expected at most prompt - 1."
            )


REQUESTS = a(Request, "Request(prompt=128, output=12_800)")
REQUEST = Rule(
    "a Request of plain numbers, such as Request(prompt=128, output=12_800)",
    lambda value: value if isinstance(value, Request) and not value.is_array else REFUSED,
)
BATCH = count(1, MOST_TOKENS)
BATCHES = whole_or_array(1)


@dataclass(frozen=True)
class Case(Checked):
    """A deployment, a request (or arrays of them) and a batch of it, checked once: what levers change."""

    deployment: Deployment
    request: Request
    batch: int = 1

    rules: ClassVar[Mapping[str, Rule]] = {"deployment": DEPLOYMENT, "request": REQUESTS, "batch": BATCH}

    def __iter__(self) -> Iterator[Any]:
        """The three in turn, so that `request_cost(*case)` prices a case."""
        return iter((self.deployment, self.request, self.batch))


def require_chunks(owner: str, deployment: Deployment, new: Any) -> None:
    """InvalidInputError where `new` prompt tokens, or the most of an array, take more than MOST_CHUNKS passes."""
    if deployment.prefill_chunk is not None and np.any(np.asarray(new) / deployment.prefill_chunk > MOST_CHUNKS):
        raise InvalidInputError(f"{owner}: {REFUSALS[7]}; take a larger prefill_chunk.")


def counted(request: Request, batch: Any = 1) -> tuple[Any, Any, Any, Any]:
    """(prompt, output, cached, batch): numbers as they are; arrays of one shape, NaN in each cell that is refused."""
    values = (request.prompt, request.output, request.cached, batch)
    if not request.is_array and type(batch) is int:
        return values
    broadcast_shape(request, batch)
    bad = first_wrong(*values) > 0
    prompt, output, cached, batch = (np.where(bad, np.nan, value) for value in values)
    return prompt, output, cached, batch


def columns_of(owner: str, request: Request) -> tuple[Any, Any, Any]:
    """(prompt, output, cached) of one request or several, arrays of one dimension in float64.

    InvalidInputError for more dimensions, for none at all, and for the first impossible request.
    """
    columns = (np.atleast_1d(np.asarray(v, np.float64)) for v in (request.prompt, request.output, request.cached))
    prompt, output, cached = np.broadcast_arrays(*columns)
    if prompt.ndim > 1 or not prompt.size:
        raise InvalidInputError(
            f"{owner}: the request's arrays have the shape {prompt.shape}; expected one dimension, with one request or "
            "more."
        )
    codes = first_wrong(prompt, output, cached, 1.0)
    if codes.any():
        row = int(np.argmax(codes > 0))
        raise InvalidInputError(
            f"{owner}: request {row} has prompt {prompt[row]:,.10g}, output {output[row]:,.10g}, cached "
            f"{cached[row]:,.10g}: {REFUSALS[int(codes[row])]}; mend it or leave it out."
        )
    return prompt, output, cached


@checked(deployment=DEPLOYMENT, request=REQUESTS)
def fits(deployment: Deployment, request: Request) -> dict[str, Any]:
    """Which requests (arrays) a server cannot take at all: reason to a mask. A request has the first that is true."""
    prompt, output, _ = columns_of("fits", request)
    tokens = prompt + output
    limit = deployment.max_positions
    long = np.zeros(tokens.shape, bool) if limit is None else tokens > limit
    large = ~long & (deployment.memory_needed(tokens) > deployment.memory_available)
    positions = "" if limit is None else f" of {limit:,}"
    whose = "the model" if deployment.limited_by == deployment.model.name else deployment.limited_by
    return {f"beyond {whose}'s positions{positions}": long, "more than the memory holds beside the weights": large}


def _not_whole(value: Any, least: int) -> Any:
    return ~((value >= least) & (value <= MOST_TOKENS) & (np.floor(value) == value))


def first_wrong(prompt: Any, output: Any, cached: Any, batch: Any, *, deployment: Deployment | None = None) -> Any:
    """The code in REFUSALS of the first thing wrong with each cell, 0 where nothing is: an array.

    Without a deployment, only what no deployment could take. Numbers or arrays in.
    """
    checks = [
        (1, _not_whole(prompt, 1)),
        (2, _not_whole(output, 1)),
        (3, _not_whole(cached, 0) | np.logical_not(cached < prompt)),
        (4, _not_whole(batch, 1)),
    ]
    if deployment is not None:
        limit, chunk = deployment.max_positions, deployment.prefill_chunk
        checks += [
            (5, False if limit is None else prompt + output > limit),
            (6, deployment.memory_needed(prompt + output, batch) > deployment.memory_available),
            (7, False if chunk is None else (prompt - cached) / chunk > MOST_CHUNKS),
        ]
    codes = np.zeros(np.broadcast_shapes(*(np.shape(v) for v in (prompt, output, cached, batch))), dtype=np.uint8)
    for code, wrong in reversed(checks):  # the first one wrong is written last, and so stays
        if np.any(wrong):
            codes[np.broadcast_to(wrong, codes.shape)] = code
    return codes
