"""Cost of a mix of requests, each with its own lengths, on a server that always has as many of them under way.

    memory batch = M_free / (sum(output x bytes held in the middle of the answer) / sum(output))
    GPU seconds = sum over requests of T_prefill, alone, + sum over its steps of (linear part at batch b) / b
                  + its own attention
    wait        = b x GPU seconds of a request, on average                Little's law
    TPOT        = (b x sum of GPU seconds - sum of prefills) / sum of steps

A request stays as many steps as it has output tokens, so a slot is weighted by these. For requests that are all alike,
`price` is `steady_state`; of a mix, a step's cost goes by the length-weighted span. The sum is over all requests.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.checks import checked
from lessonlib.base.elementwise import ratio
from lessonlib.base.errors import InvalidInputError
from lessonlib.model.precision import ATTENTION
from lessonlib.request.cost import decode_phase, prefill_phase
from lessonlib.request.request import BATCH, REQUESTS, Request, columns_of
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.roofline import Phase


class PartSeconds(NamedTuple):
    """A part of a phase: its GPU seconds where compute binds and where memory does, its FLOPs and its bytes.

    `bound`: "compute" or "memory", whichever binds for more of its seconds.
    """

    compute: float
    memory: float
    flops: float
    bytes: float

    @property
    def seconds(self) -> float:
        return self.compute + self.memory

    @property
    def bound(self) -> str:
        return "compute" if self.compute > self.memory else "memory"


@dataclass(frozen=True)
class PhaseSeconds:
    """GPU seconds of one phase of all requests, each one's share of its batch: `linear`, `attention`, and the rest."""

    linear: PartSeconds
    attention: PartSeconds
    communication: float
    overhead: float
    seconds = property(lambda self: self.linear.seconds + self.attention.seconds + self.communication + self.overhead)
    flops = property(lambda self: self.linear.flops + self.attention.flops)


@dataclass(frozen=True, eq=False)
class TrafficCost:
    """What all requests cost together when `batch` of them are always under way.

    `steps`: decode steps of all requests. `ttft`: seconds of each request's prefill alone, an array. `seconds`: the GPU
    clock, and `decode_share` the share of it that is decode. `wait`: seconds from admission to the last token, the mean
    over requests (Little). `step`: seconds of a decode step. `tpot`: seconds from a user's token to the next, others'
    prefills included; both NaN where no request has a second token.
    """

    batch: int
    steps: float
    prefill: PhaseSeconds
    decode: PhaseSeconds
    ttft: Any
    seconds = property(lambda self: self.prefill.seconds + self.decode.seconds)
    decode_share = property(lambda self: self.decode.seconds / self.seconds)
    wait = property(lambda self: self.batch * self.seconds / len(self.ttft))
    step = property(lambda self: ratio(self.batch * self.decode.seconds, self.steps))
    tpot = property(lambda self: ratio(self.batch * self.seconds - float(np.sum(self.ttft)), self.steps))

    @property
    def request_clock_decode_share(self) -> float:
        """Share of all waiting, each request's TTFT and then its steps at this batch, that is decode."""
        waiting = self.batch * self.decode.seconds
        return waiting / (self.prefill.seconds + waiting)


@checked(deployment=DEPLOYMENT, request=REQUESTS, batch=BATCH)
def price(deployment: Deployment, request: Request, batch: int) -> TrafficCost:
    """GPU seconds of all requests (arrays of one dimension) when `batch` of them are always under way.

    Whether they fit is not asked: see `fits` and `memory_batch`. Raises InvalidInputError for a deployment with prefill
    chunks, which belong to engines that mix them into decode steps.
    """
    prompt, output, cached = columns_of("price", request)
    if not request.is_array:
        raise InvalidInputError("price: the request has no array; expected a Request of arrays.")
    if deployment.prefill_chunk is not None:
        raise InvalidInputError("price: the deployment has a prefill_chunk; take one without: prompts are taken whole.")
    prompts = float(min(batch, deployment.sizes.replicas))  # in a pass, one on each device with sequences of its own
    prefill = prefill_phase(deployment, prompt, cached, prompts)
    decode = decode_phase(deployment, prompt, output, float(batch))
    phases = (_summed(prefill, len(prompt), 1.0 / prompts), _summed(decode, len(prompt), 1.0 / batch))
    return TrafficCost(batch, float(np.sum(output - 1)), *phases, prefill.seconds + np.zeros(len(prompt)))


def _summed(phase: Phase, rows: int, share: float) -> PhaseSeconds:
    """A phase of many requests, each its `share` of a batch, added up."""

    def total(value: Any) -> float:
        return share * float(np.sum(np.broadcast_to(value, (rows,))))

    parts = {part: [0.0, 0.0, 0.0, 0.0] for part in (True, False)}
    for roof in phase.roofs.values():
        busy, row = roof.compute_seconds > roof.memory_seconds, parts[roof.kernel != ATTENTION]
        sums = (np.where(busy, roof.seconds, 0.0), np.where(busy, 0.0, roof.seconds), roof.flops, roof.bytes)
        row[:] = (before + total(value) for before, value in zip(row, sums, strict=True))
    linear, attention = PartSeconds(*parts[True]), PartSeconds(*parts[False])
    return PhaseSeconds(linear, attention, total(phase.communication), total(phase.overhead))
