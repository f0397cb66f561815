"""Estimates in one line each: what decides whether a workload is decode heavy, before anything is computed exactly.

    ridge      = peak / bandwidth x bytes of a weight / 2     tokens in a pass at which linear layers turn compute bound
    rho        = b n_in / (ridge n_out) x used / read          about prefill time over decode time
    omega      = n_out K ridge / M_free                        above 1 memory is full before the linear layers are busy
    roof batch = ridge / (1 + n_in / n_out)                    batch at which passes that mix prefill in reach the ridge

K is the cache bytes of a token, M_free the memory left after the weights, used / read the weights that one token uses
over those that a step at this batch reads (1 for a dense model). Where rho and omega bend: cache reads, prompts under
the ridge, windows, constant state. The exact numbers are `request_cost`'s.
"""

from typing import Any

import numpy as np

from lessonlib.base.checks import checked
from lessonlib.base.errors import InvalidInputError
from lessonlib.request.request import BATCHES, REQUESTS, Request, counted, whole_or_array
from lessonlib.time.deployment import DEPLOYMENT, Deployment

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
    """About prefill time over decode time at `batch`. Decode-heavy means rho << 1."""
    prompt, output, cached, batch = counted(request, batch)
    return batch * (prompt - cached) / (ridge_tokens(deployment) * output) * used_over_read(deployment, batch)


@checked(deployment=DEPLOYMENT, output=whole_or_array(1))
def omega(deployment: Deployment, output: Any) -> Any:
    """Roof batch over memory batch for answers of `output` tokens. Above 1, batching cannot make decode compute bound.

    Raises DoesNotFitError when the weights leave no memory, InvalidInputError for a model without a growing cache.
    """
    if deployment.memory_free <= 0:
        deployment.require_fit(1)
    output = counted(Request(1, output))[1]
    if not deployment.cache_bytes_per_token:
        raise InvalidInputError(
            f"omega: {deployment.model.name} keeps no growing cache, so omega says nothing about it."
        )
    return output * (deployment.cache_bytes_per_token * ridge_tokens(deployment) / deployment.memory_free)


@checked(deployment=DEPLOYMENT, request=REQUESTS)
def roof_batch(deployment: Deployment, request: Request) -> Any:
    """The batch at which passes that mix each request's prefill into its decode steps reach the ridge (an estimate)."""
    prompt, output, cached, _ = counted(request)
    return ridge_tokens(deployment) / (1 + (prompt - cached) / output)
