"""The exercises of notebook 05_when_prefill_stops_mattering."""

from functools import cache

from lessonlib.face.exercises.book.common import server
from lessonlib.face.exercises.exercises import Choice, Number, choice, number, predict
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.workloads import load_workload
from lessonlib.model.precision import Precision
from lessonlib.policy.full_server import SteadyState, steady_state
from lessonlib.policy.levers import RELOAD_RATES, PrefixReload, prefix_reload
from lessonlib.policy.sensitivity import break_even_by_rho, break_even_output, faster_prefill
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

PCIE = RELOAD_RATES["PCIe 5.0 x16"]
DISK = 7e9  # byte/s that a fast disk reads
SHORT_PREFIX = Request(1_100, 100, cached=1_000)
RHO_IS_NOT_IT = "That is rho's estimate. rho takes the prefill for compute bound, and 100 tokens are under the ridge."


@cache
def older() -> Deployment:
    """Another machine than the lesson's own: Qwen3-8B in bf16 on one A100."""
    return Deployment(load_model("qwen3-8b"), load_accelerator("a100-sxm-80gb"), Precision("bf16"))


SUMMARY = Request(600, 3_000)


@cache
def full(name: str, mixed: bool = False) -> SteadyState:
    """A full server of requests of a workload's mean lengths."""
    return steady_state(server(), load_workload(name).mean, mixed=mixed)


def _faster(state: SteadyState, k: float = 3.0) -> float:
    prefill = state.parts["prefill"]
    return faster_prefill(prefill, state.seconds_per_request - prefill, k)


def _disk() -> PrefixReload:
    return prefix_reload(server(), SHORT_PREFIX, DISK)


@predict("%")
def free_prefill(answer: Number) -> str:
    """Qwen3-8B on one A100 serves one request alone, of 600 prompt and 3,000 output tokens. If its prefill took no time
    at all, what per cent of its time would be saved?

    - With an infinitely fast prefill, the whole prefill falls away. So what share of the time is prefill?
    - The ridge of an A100 is 153 tokens. How many decode steps does a prefill of 600 tokens cost? 2,999 steps follow.
    """
    cost = request_cost(older(), SUMMARY)
    answer.value = 100 * cost.prefill.seconds / cost.seconds
    answer.slip(
        100 * SUMMARY.prompt / (SUMMARY.prompt + SUMMARY.output),
        "That is the prompt's share of the tokens. Its tokens go through in one pass.",
    )
    answer.slip(
        100 * cost.prefill.flops / cost.flops,
        "That is the prefill's share of the FLOPs. What is saved is a share of seconds.",
    )
    return (
        f"The prefill takes {1e3 * cost.prefill.seconds:.1f} ms, as long as a few steps, and 2,999 steps follow. So "
        f"{answer} is saved."
    )


@number("times")
def prefill_three_times(answer: Number) -> str:
    """On a full server of chat's mean requests, prefill becomes three times as fast. How many times as fast as before
    is the server?

    - Amdahl divides the time before by the time after: (prefill + decode) / (prefill / 3 + decode).
    - full["chat"].shares["prefill"] is the share of GPU time that is prefill.
    """
    state = full("chat")
    share = state.shares["prefill"]
    answer.value = _faster(state)
    answer.slip(3, "Only the prefill is three times as fast. The decode takes as long as before.")
    answer.slip(_faster(state, float("inf")), "That is an infinitely fast prefill. Here a third of the prefill stays.")
    cost = request_cost(server(), load_workload("chat").request)
    answer.slip(
        faster_prefill(cost.prefill.seconds, cost.decode.seconds, 3.0),
        "That is one request alone. Take the full server.",
    )
    saved = 2 * share / 3
    return f"Prefill is {100 * share:.1f} % of GPU time, and two thirds of that go: 1 / (1 - {saved:.4f}) = {answer}."


@choice("c")
def mixed_chat(answer: Choice) -> str:
    """The same full chat server now mixes all its prompts into decode steps. What share of GPU time would a free
    prefill still save?

    a: about 1 %, for prompts ride along on weights that are read anyway
    b: about 20 %
    c: about 55 %, nearly what it was

    - At which batch do the linear layers of a mixed pass reach the roof? Below it, there is compute to spare.
    - A prompt token that rides along still has to be computed.
    """
    state, mixed = full("chat"), full("chat", mixed=True)
    before, after = (100 * one.shares["prefill"] for one in (state, mixed))
    few = steady_state(server(), load_workload("chat").mean, 16, mixed=True)
    answer.says(
        a=f"That is so at batch 16, with {100 * few.shares['prefill']:.1f} %. At batch {state.batch} the linear layers "
        f"compute without a pause, and the prompt tokens have to be computed as well: {after:.0f} %.",
        b=f"There is no compute to spare at batch {state.batch}. It is {after:.0f} %.",
        c=f"It is {after:.1f} % against {before:.1f} %. Mixing saves reads of weights, and nobody waited for these.",
    )
    return f"{answer}. It is {after:.1f} % against {before:.1f} % without mixing."


@number("output tokens", tolerance=0.001)
def short_prompt(answer: Number) -> str:
    """A request with a prompt of 100 tokens runs alone. From how many output tokens on does its prefill take under 5 %
    of the time?

    - How many decode steps take as long as a prefill of 100 tokens?
    - Under 5 % means at least 19 times the prefill in steps. And the prefill emits a token itself.
    """
    prefill, step = (pass_cost(server(), new, cached).seconds for new, cached in ((100, 0), (1, 100)))
    exact, rho = break_even_output(server(), 100), break_even_by_rho(server(), 100)
    answer.value = exact
    answer.slip(round(rho), RHO_IS_NOT_IT)
    answer.slip(rho, RHO_IS_NOT_IT)
    answer.slip(exact - 1, "Nearly: that is the number of steps. The prefill emits one more token.")
    answer.slip(
        exact + 1,
        "Nearly: so it would be if a step took exactly as long as the prefill. A step reads a little more, the cache "
        "of the output so far, and that is enough.",
    )
    return (
        f"The prefill takes {1e3 * prefill:.3f} ms, and a step as long, {1e3 * step:.3f} ms. 5 to 95 is 1 to 19, and "
        f"the prefill emits the first token: {answer}. rho says {rho:.1f}."
    )


@number("ms")
def reload_agent(answer: Number) -> str:
    """The agent step finds 102,919 tokens of its prompt in a prefix cache, in the memory of the CPU. How many
    milliseconds does it take to bring their KV cache to the GPU over PCIe 5.0, 63 GB/s one way?

    - The bytes of a cached token are 131,072 for Llama-3.1-8B in bf16.
    - Divide the bytes of all tokens by the bytes that the link carries in a second.
    """
    request = load_workload("agent-step").request
    found = prefix_reload(server(), request, PCIE)
    answer.value = 1e3 * found.reload
    answer.slip(1e3 * found.bytes / server().bandwidth, "That is the time to read them from the GPU's own memory.")
    link = 1e3 * prefix_reload(server(), request, RELOAD_RATES["NVLink-C2C"]).reload
    answer.slip(link, "That is NVLink-C2C, 450 GB/s. Over PCIe it takes longer.")
    return f"{request.cached:,} x 131,072 B = {found.bytes / 1e9:.2f} GB, over 63 GB/s: {answer}."


@choice("b")
def prefix_on_disk(answer: Choice) -> str:
    """A prefix of 1,000 tokens lies on a fast disk, 7 GB/s. Is it quicker to fetch it, or to compute it again?

    a: to fetch it, by far: ten times as quick or more
    b: to compute it again, but less than twice as quick
    c: to compute it again, by far: ten times as quick or more

    - To fetch takes 1,000 x 131,072 bytes over 7 GB/s.
    - To compute takes 2 FLOP for each of 8 billion parameters and each token, at 989 TFLOP/s.
    """
    found = _disk()
    fetch, again = 1e3 * found.reload, 1e3 * found.recompute
    answer.says(
        a=f"That would be so over NVLink. From the disk it takes {fetch:.1f} ms, and computing takes {again:.1f} ms.",
        b=f"Fetching takes {fetch:.1f} ms, and computing {again:.1f} ms.",
        c=f"A disk is slow, but a prefill takes its time, too: {fetch:.1f} ms against {again:.1f} ms.",
    )
    return f"{answer}. To fetch it takes {fetch:.1f} ms, and to compute it {again:.1f} ms."


@number("decode GPUs")
def decode_gpus(answer: Number) -> str:
    """Production R1 runs on full servers of its mean request. One GPU does nothing but prefill. How many GPUs that do
    nothing but decode does it keep busy?

    - Divide the GPU seconds of decode by those of prefill, of the same request.
    - full["production R1"].shares has the share of prefill, of linear layers and of attention.
    """
    state = full("production-reasoning")
    prefill = state.shares["prefill"]
    answer.value = (1 - prefill) / prefill
    answer.slip(1 / prefill, "That is all GPU time over that of prefill. The GPU that prefills does not decode.")
    share = state.shares["linear"] / prefill
    answer.slip(share, "You left out the reading of the KV caches, which is most of decode.")
    return f"Prefill is {100 * prefill:.2f} % of GPU time, decode {100 * (1 - prefill):.2f} %: {answer}."
