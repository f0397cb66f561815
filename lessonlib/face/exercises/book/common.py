"""What the exercises of several notebooks ask about: the lesson's own server and its two requests."""

from functools import cache

from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.model.precision import Precision
from lessonlib.policy.levers import quantised
from lessonlib.request.cost import RequestCost, request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost


@cache
def server() -> Deployment:
    """The lesson's own machine: Llama-3.1-8B in bf16 on one H100."""
    return Deployment(load_model("llama-3.1-8b"), load_accelerator("h100-sxm"), Precision("bf16"))


@cache
def mixture() -> Deployment:
    """A mixture of experts: Qwen3-30B-A3B in bf16 on the same accelerator."""
    return Deployment(load_model("qwen3-30b-a3b"), load_accelerator("h100-sxm"), Precision("bf16"))


CHAT = Request(1024, 128)
REASONING = Request(128, 12_800)
INT4, FP8_CACHE = quantised(blocks="int4", experts="int4"), quantised(cache="fp8")


@cache
def cost_of(request: Request, batch: int = 1) -> RequestCost:
    return request_cost(server(), request, batch)


def largest_batch(request: Request, memory_free: float | None = None, tokens: int | None = None) -> float:
    """Requests whose caches fill the free memory; `memory_free` and `tokens` as a slip would take them."""
    tokens = request.prompt + request.output if tokens is None else tokens
    memory = server().memory_free if memory_free is None else memory_free
    return float(memory // server().sequence_bytes(float(tokens)))


def smallest_compute_bound_prompt(deployment: Deployment | None = None) -> float:
    """Smallest prompt whose linear layers take longer to compute than to stream, at batch 1, by trying each."""
    machine, prompt = deployment or server(), 1
    while pass_cost(machine, new=prompt).roofs["linear layers"].bound != "compute":
        prompt += 1
    return float(prompt)
