"""Every exercise of the collection, in the order of the notebooks. The machinery is exercises.py.

No expected value is typed in: each is a function that asks the library. So is each slip, from the wrong formula that
leads to it.
"""

from functools import cache
from typing import Any

from lessonlib.catalogue import load_accelerator, load_model
from lessonlib.deployment import Deployment
from lessonlib.exercises import Exercise, NumberExercise, Slip
from lessonlib.levers import ridge_tokens
from lessonlib.precision import Precision
from lessonlib.request import Request, RequestCost, request_cost
from lessonlib.roofline import pass_cost


@cache
def server() -> Deployment:
    """The lesson's own machine: Llama-3.1-8B in bf16 on one H100."""
    return Deployment(load_model("llama-3.1-8b"), load_accelerator("h100-sxm"), Precision("bf16"))


CHAT = Request(1024, 128)
REASONING = Request(128, 12_800)


@cache
def cost_of(request: Request, batch: int = 1) -> RequestCost:
    return request_cost(server(), request, batch)


def smallest_compute_bound_prompt() -> float:
    """Smallest prompt whose linear layers take longer to compute than to stream, at batch 1, by trying each."""
    prompt = 1
    while True:
        linear = pass_cost(server(), new=prompt).linear
        if linear.flops / server().peak > linear.bytes / server().bandwidth:
            return float(prompt)
        prompt += 1


# ---- 01 Redo module 2


def _smallest_prompt_numbers() -> dict[str, Any]:
    model = server().model
    return {
        "weights": server().folded.dense_bytes,
        "stream": 1e3 * server().folded.dense_bytes / server().bandwidth,
        "flops": server().folded.token_flops,
        "head": 100 * model.head_weights / (model.head_weights + model.block_matmul_weights),
    }


EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        key="smallest-prompt",
        notebook="01_redo_module_2",
        question="What is the smallest prompt whose linear layers are compute bound, at batch 1?",
        unit="tokens",
        expected=smallest_compute_bound_prompt,
        tolerance=0.001,
        slips=(
            Slip(
                lambda: float(int(ridge_tokens(server()))),
                "That is the ridge. It would be right if every streamed weight worked for every prompt token. "
                "The LM head is streamed whole and works for the last position only.",
            ),
        ),
        hints=(
            "Compute time is about 2 n P_block / peak. Memory time is the bytes of all streamed weights / bandwidth.",
            "The LM head is in the bytes. It is almost not in the FLOPs: only the last position needs logits.",
        ),
        solution=(
            "All weights are streamed once: {weights:,.0f} bytes, {stream:.3f} ms. A prompt token costs {flops:,.0f} "
            "FLOP in the blocks. The head is {head:.1f} % of these weights and adds one position only. The first prompt "
            "whose compute time is longer: {answer}."
        ),
        numbers=_smallest_prompt_numbers,
    ),
    # ---- 02 Chat versus reasoning
    NumberExercise(
        key="prefill-in-steps",
        notebook="02_chat_versus_reasoning",
        question="How many decode steps does the reasoning request's whole prefill cost (128 -> 12,800, batch 1)?",
        unit="steps",
        expected=lambda: cost_of(REASONING).prefill.seconds / pass_cost(server(), new=1, cached=128).seconds,
        slips=(
            Slip(
                lambda: 128.0,
                "That counts tokens. All prompt tokens go through in one pass, and one pass streams the weights once.",
            ),
        ),
        hints=("Under the ridge a pass costs the time to stream the weights, however many tokens it carries.",),
        solution=(
            "The prefill takes {prefill:.3f} ms and the first decode step {step:.3f} ms: both stream the weights once. "
            "The ratio is {answer}."
        ),
        numbers=lambda: {
            "prefill": 1e3 * cost_of(REASONING).prefill.seconds,
            "step": 1e3 * pass_cost(server(), new=1, cached=128).seconds,
        },
    ),
)
