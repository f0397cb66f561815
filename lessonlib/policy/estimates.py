"""Estimates in one line each: what decides whether a workload is decode heavy, before anything is computed exactly.

    ridge      = peak / bandwidth x bytes of a weight / 2     tokens in a pass at which linear layers turn compute bound
    rho        = new / n_out x min(b / ridge x used / read, 1) about prefill time over decode time
    chi        = (K s / bandwidth) n_out / ((2 P / peak) (new + n_out))     time to read caches over time to compute the
                                                               linear layers at peak, whatever the batch and the memory
    roof batch = ridge n_out / (new + n_out) x read / used     batch at which the linear layers of passes that mix
                                                               prefill in turn compute bound
    omega      = roof batch / (M_free / (K s)) = chi x 2 P / M_free         above 1 memory is full before that

s = n_in + n_out / 2 is the mean span, K s the bytes of cache that a step reads there (windows and sparse layers as they
read), P the weights that one token multiplies with, M_free the memory left after the weights; used / read: weights that
one token uses over those that a pass reads (1 for a dense model). 2 P / M_free is of 2-byte weights, in general it is
their bytes over M_free. Where the estimates bend: prompts under the ridge, constant state, attention that is compute
bound. The exact numbers are `request_cost`'s and `steady_state`'s.
"""

from typing import Any

import numpy as np

from lessonlib.base.checks import checked, flag
from lessonlib.base.elementwise import minimum
from lessonlib.base.errors import MOST_TOKENS, InvalidInputError
from lessonlib.request.request import BATCHES, REQUESTS, Request, columns_of, counted
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.roofline import pass_cost

RHO_OF_FIVE_PERCENT = 0.05 / 0.95  # where prefill takes 5 % of the time, by the estimate


@checked(deployment=DEPLOYMENT)
def ridge_tokens(deployment: Deployment) -> float:
    """Tokens in one pass at which the linear layers turn from memory bound to compute bound: 295 on an H100 in bf16."""
    return deployment.peak / deployment.bandwidth * deployment.precision.bytes_of("blocks") / 2


@checked(deployment=DEPLOYMENT, batch=BATCHES)
def used_over_read(deployment: Deployment, batch: Any = 1) -> Any:
    """Block weights that one token uses over those that a decode step at `batch` reads; 1 for a dense model."""
    batch = counted(Request(1, 1), batch)[3]
    used = deployment.model.block_matmul_weights
    idle_read: Any = 0.0
    for (layers, ffn), routed in zip(deployment.model.expert_kinds, deployment.sizes.experts, strict=True):
        distinct = -ffn.experts * np.expm1(np.asarray(batch, float) * routed.log_idle)
        idle_read = idle_read + layers * ffn.expert_weights * (distinct - ffn.experts_per_token)
    ratio = used / (used + np.asarray(idle_read))
    return float(ratio) if np.ndim(ratio) == 0 else ratio


@checked(deployment=DEPLOYMENT, request=REQUESTS, batch=BATCHES)
def rho(deployment: Deployment, request: Request, batch: Any = 1) -> Any:
    """About prefill time over decode time at `batch`. Decode-heavy means rho << 1.

    Under the roof it grows with the batch, for steps share what they read; past it steps compute too, and it is the
    ratio of the tokens, whatever the batch.
    """
    prompt, output, cached, batch = counted(request, batch)
    shared = minimum(batch * used_over_read(deployment, batch) / ridge_tokens(deployment), 1.0)
    return (prompt - cached) / output * shared


@checked(deployment=DEPLOYMENT, request=REQUESTS, mix=flag())
def chi(deployment: Deployment, request: Request, mix: bool = False) -> Any:
    """Time to read caches over time to compute the linear layers at peak, prefill's included, whatever the batch.

    Above 1 no batch makes its passes compute bound. A full server then mostly reads caches, where chi is above `omega`
    too: chi over omega is the memory left for caches over the weights that a pass reads, and where weights fill most of
    the memory, steps mostly read weights. Arrays give a number for each request; with `mix` they are one mix, with one
    number: its length-weighted span decides.
    """
    prompt, output, cached, _ = _of(request, "chi", mix)
    span = prompt + output / 2
    each = sum(kind.cache_bytes * (kind.mixer.read(span - 1, 1.0) + 1) for kind in deployment.sizes.kinds)
    reading = output * each / deployment.bandwidth
    each_one = deployment.sizes.replicas  # a token on each device that serves sequences of its own
    computing = (prompt - cached + output) * pass_cost(deployment, 1, 0, each_one).linear.compute_seconds / each_one
    return float(np.sum(reading) / np.sum(computing)) if mix else reading / computing


@checked(deployment=DEPLOYMENT, request=REQUESTS, mix=flag())
def roof_batch(deployment: Deployment, request: Request, mix: bool = False) -> Any:
    """The batch at which the linear layers of passes that mix prefill in turn compute bound: R n_out / (new + n_out).

    It speaks of linear layers, not of a pass, which may spend most of its time on caches: see `chi`. Of a mixture of
    experts, where a pass reads all of them. `mix`: arrays are one mix, which has one number.
    """
    prompt, output, cached, _ = _of(request, "roof_batch", mix)
    roof = ridge_tokens(deployment) / used_over_read(deployment, MOST_TOKENS)
    if mix:
        return float(roof / (1 + np.sum(prompt - cached) / np.sum(output)))
    return roof / (1 + (prompt - cached) / output)


@checked(deployment=DEPLOYMENT, request=REQUESTS, mix=flag())
def omega(deployment: Deployment, request: Request, mix: bool = False) -> Any:
    """Roof batch over memory batch, chi's corollary: above 1, memory is full before the linear layers are busy.

    chi x 2 P / M_free for 2-byte weights, as long as a step reads all that is held. `mix`: arrays are one mix. Raises
    DoesNotFitError when the weights leave no memory, InvalidInputError for a model without a growing cache.
    """
    prompt, output, _, _ = _of(request, "omega", mix)
    if deployment.memory_free <= 0:
        deployment.require_fit(1)
    if not deployment.cache_bytes_per_token:
        raise InvalidInputError(
            f"omega: {deployment.model.name} keeps no growing cache, so omega says nothing about it."
        )
    held = deployment.sequence_bytes(prompt + output / 2)
    if mix:
        held = float(np.sum(output * held) / np.sum(output))
    return roof_batch(deployment, request, mix) * held / deployment.memory_free


def _of(request: Request, owner: str, mix: bool) -> tuple[Any, Any, Any, Any]:
    """(prompt, output, cached, 1): of a mix arrays of one dimension, in which every request must be one."""
    return (*columns_of(owner, request), 1) if mix else counted(request)
