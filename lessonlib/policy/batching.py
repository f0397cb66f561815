"""What a batch pays for, and what it cannot: parallel thoughts, the price of a token, intensities. In closed form.

Batching divides the weights' bytes among more tokens. It never divides a cache's: each sequence reads its own. A batch
that comes and goes, and the largest that memory holds, are `full_server`'s.
"""

from typing import Any

from lessonlib.base.checks import checked, count, numbers, rate
from lessonlib.base.errors import MOST_TOKENS
from lessonlib.policy.full_server import steady_state
from lessonlib.request.cost import prefill_phase, request_cost
from lessonlib.request.request import BATCH, REQUEST, Request, require_chunks
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.roofline import Phase
from lessonlib.work.passes import equal_passes


@checked(deployment=DEPLOYMENT, request=REQUEST, thoughts=BATCH)
def parallel_thoughts(deployment: Deployment, request: Request, thoughts: int) -> float:
    """GPU seconds of `thoughts` answers to one prompt over those of one answer. They share one prefill."""
    together = request_cost(deployment, request, thoughts)
    one = request_cost(deployment, request)
    return (one.prefill.seconds + together.decode.seconds) / one.seconds


@checked(deployment=DEPLOYMENT, request=REQUEST, batch=BATCH, prompt=count(1, MOST_TOKENS))
def output_token_in_prompt_tokens(deployment: Deployment, request: Request, batch: int, prompt: int = 1024) -> float:
    """GPU seconds of an output token at `batch` over those of a prompt token in a prefill of `prompt` tokens alone.

    In steady state; NaN for one output token, which the prefill emits.
    """
    step = steady_state(deployment, request, batch).step
    require_chunks("output_token_in_prompt_tokens", deployment, prompt)
    alone = prefill_phase(deployment, float(prompt), 0.0, 1.0)
    return step / batch / (alone.seconds / prompt)


@checked(deployment=DEPLOYMENT, request=REQUEST, batch=BATCH, price_per_hour=rate("currency an hour"))
def price_of_request(deployment: Deployment, request: Request, batch: int, price_per_hour: float) -> float:
    """Price of one request in steady state, in the currency of `price_per_hour`, that of a device for a busy hour."""
    return steady_state(deployment, request, batch).seconds_per_request * deployment.devices * price_per_hour / 3600


@checked(deployment=DEPLOYMENT, context=count(1, MOST_TOKENS), batch=numbers(1, MOST_TOKENS, whole=True))
def intensities(deployment: Deployment, context: int, batch: Any) -> dict[str, Any]:
    """FLOP/byte of a decode step by batch (an array): the linear layers, and each kind of attention or state.

    `context`: tokens cached. Linear layers rise with the batch; attention does not, whatever the batch.
    """
    step = Phase(deployment, [equal_passes(deployment.sizes, 1.0, float(context), batch, 1.0)])
    kinds = {kind.part: kind.label for kind in deployment.sizes.kinds}
    return {kinds.get(part, part): roof.intensity for part, roof in step.roofs.items()}
