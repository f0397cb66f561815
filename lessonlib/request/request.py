"""One request, or many alike: prompt, output and cached tokens; and what is wrong with those that cannot be priced.

Numbers give plain floats, arrays broadcast. A number that cannot be meant is refused; in an array its cell becomes NaN
in what is computed, with a code that says why.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lessonlib.base.errors import (
    MOST_TOKENS,
    InvalidInputError,
    as_numbers,
    is_number,
    require_count,
    require_instance,
    shown,
)
from lessonlib.time.deployment import Deployment, require_deployment

MOST_CHUNKS = 100_000

REFUSALS = {
    1: "prompt is not a whole number of at least 1",
    2: "output is not a whole number of at least 1",
    3: "cached is not a whole number from 0 to prompt - 1",
    4: "batch is not a whole number of at least 1",
    5: "prompt + output is beyond the model's positions",
    6: "weights and cache of the batch do not fit in memory",
    7: f"the prompt needs more than {MOST_CHUNKS:,} prefill chunks",
}


def _as_input(name: str, value: Any, least: int, owner: str = "Request") -> Any:
    """A number as an int, an array-like as an array of float64; InvalidInputError for anything else."""
    if type(value) is int and least <= value <= MOST_TOKENS:  # the usual case, and the fast one
        return value
    if is_number(value):
        count = require_count(owner, name, value, least)
        if count > MOST_TOKENS:
            raise InvalidInputError(f"{owner}: {name} is {shown(value)}; expected at most 2**53, to count exactly.")
        return count
    array = as_numbers(value) if isinstance(value, list | tuple | np.ndarray) else None
    if array is None:
        what = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else shown(value)
        raise InvalidInputError(
            f"{owner}: {name} is {what}; expected a whole number of at least {least}, or an array of them."
        )
    return _as_input(name, array.item(), least, owner) if array.ndim == 0 else array


@dataclass(frozen=True, eq=False)
class Request:
    """Prompt tokens, output tokens, and how many of the prompt's tokens a prefix cache already holds.

    Each is a whole number, or an array of them (they broadcast). A number that cannot be meant raises
    InvalidInputError; in an array its cell becomes NaN in the results, and `RequestCost.refused` says why.
    """

    prompt: Any
    output: Any
    cached: Any = 0
    is_array: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "prompt", _as_input("prompt", self.prompt, 1))
        put(self, "output", _as_input("output", self.output, 1))
        put(self, "cached", _as_input("cached", self.cached, 0))
        put(self, "is_array", any(type(v) is not int for v in (self.prompt, self.output, self.cached)))
        if self.is_array:
            _broadcast_shape(self, 1)
        elif self.cached >= self.prompt:
            raise InvalidInputError(
                f"Request: cached is {self.cached:,} but the prompt has {self.prompt:,} tokens; at least one prompt "
                "token must be computed, so expected at most prompt - 1."
            )


def require_case(owner: str, deployment: Any, request: Any, arrays: bool = False) -> None:
    """InvalidInputError unless these are a Deployment and a Request, one of plain numbers unless `arrays`."""
    require_deployment(owner, deployment)
    require_instance(owner, "request", request, Request, "Request(prompt=128, output=12_800)")
    if request.is_array and not arrays:
        raise InvalidInputError(f"{owner}: the request has arrays; give one request.")


def require_batch(owner: str, batch: Any) -> Any:
    """A batch as an int, or an array of them as it is; InvalidInputError for what is neither."""
    return _as_input("batch", batch, 1, owner)


def require_chunks(owner: str, deployment: Deployment, new: Any) -> None:
    """InvalidInputError where `new` prompt tokens, or the most of an array, take more than MOST_CHUNKS passes."""
    if deployment.prefill_chunk is not None and np.any(np.asarray(new) / deployment.prefill_chunk > MOST_CHUNKS):
        raise InvalidInputError(f"{owner}: {REFUSALS[7]}; take a larger prefill_chunk.")


def counted(owner: str, request: Request, batch: Any = 1) -> tuple[Any, Any, Any, Any]:
    """(prompt, output, cached, batch): numbers as they are; arrays of one shape, NaN in each cell that is refused."""
    batch = require_batch(owner, batch)
    values = (request.prompt, request.output, request.cached, batch)
    if not request.is_array and type(batch) is int:
        return values
    _broadcast_shape(request, batch)
    bad = first_wrong(*values) > 0
    prompt, output, cached, batch = (np.where(bad, np.nan, value) for value in values)
    return prompt, output, cached, batch


def require_rows(owner: str, deployment: Any, request: Any) -> tuple[Any, Any, Any]:
    """(prompt, output, cached) of one request or several, arrays of one dimension in float64.

    InvalidInputError for more dimensions, for none at all, and for the first request that cannot be meant.
    """
    require_case(owner, deployment, request, arrays=True)
    columns = [np.atleast_1d(np.asarray(v, np.float64)) for v in (request.prompt, request.output, request.cached)]
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


def fits(deployment: Deployment, request: Request) -> dict[str, Any]:
    """Which requests (arrays) a server cannot take at all: reason to a mask. A request has the first that is true."""
    prompt, output, _ = require_rows("fits", deployment, request)
    tokens = prompt + output
    limit = deployment.max_positions
    long = np.zeros(tokens.shape, bool) if limit is None else tokens > limit
    large = ~long & (deployment.memory_needed(tokens) > deployment.memory_available)
    positions = "" if limit is None else f" of {limit:,}"
    return {f"beyond the model's positions{positions}": long, "more than the memory holds beside the weights": large}


def _broadcast_shape(request: Request, batch: Any) -> tuple[int, ...]:
    shapes = {name: np.shape(getattr(request, name)) for name in ("prompt", "output", "cached")}
    shapes["batch"] = np.shape(batch)
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        words = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InvalidInputError(f"Request: the shapes do not broadcast together: {words}.") from None


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
