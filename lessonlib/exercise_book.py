"""Every exercise of the collection, in the order of the notebooks. The machinery is exercises.py.

No expected value is typed in: each is a function that asks the library. So is each slip, from the wrong formula that
leads to it.
"""

from functools import cache
from typing import Any

from lessonlib.catalogue import load_accelerator, load_model
from lessonlib.deployment import Deployment
from lessonlib.exercises import ChoiceExercise, Exercise, NumberExercise, Slip
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


# ---- 00 Start here


def _chat_answers_numbers() -> dict[str, Any]:
    chat, reasoning = cost_of(CHAT), cost_of(REASONING)
    return {
        "chat": chat.elapsed,
        "reasoning": reasoning.elapsed,
        "steps": reasoning.decode.passes / chat.decode.passes,
        "dearer": reasoning.tpot / chat.tpot,
    }


def _prefill_share_numbers() -> dict[str, Any]:
    chat, reasoning = cost_of(CHAT), cost_of(REASONING)
    return {
        "longer": CHAT.prompt / CHAT.output,
        "chat_ms": 1e3 * chat.ttft,
        "chat": 100 * chat.ttft / chat.elapsed,
        "step_ms": 1e3 * chat.tpot,
        "steps": chat.decode.passes,
        "reasoning_ms": 1e3 * reasoning.ttft,
        "reasoning": 100 * reasoning.ttft / reasoning.elapsed,
    }


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
    # ---- 00 Start here
    NumberExercise(
        key="decode-steps",
        notebook="00_start_here",
        question="How many decode steps does a request with 12,800 output tokens take?",
        unit="steps",
        expected=lambda: cost_of(REASONING).decode.passes,
        tolerance=1e-6,
        slips=(
            Slip(
                lambda: float(REASONING.output),
                "Close: one too many. The prefill pass already emits the first output token.",
            ),
            Slip(
                lambda: float(REASONING.prompt + REASONING.output),
                "That counts the prompt tokens too. They all go through together, in one prefill pass.",
            ),
        ),
        hints=(
            "A decode step is one forward pass, and it emits one token.",
            "Which pass emits the first output token?",
        ),
        solution=(
            "The prefill pass takes all prompt tokens at once and emits output token 1. "
            "Each further token costs one step: {answer}."
        ),
    ),
    NumberExercise(
        key="chat-answers",
        notebook="00_start_here",
        question="One reasoning request takes as long as how many chat requests, each alone on the GPU?",
        unit="chat requests",
        expected=lambda: cost_of(REASONING).elapsed / cost_of(CHAT).elapsed,
        tolerance=0.05,
        slips=(
            Slip(
                lambda: (REASONING.prompt + REASONING.output) / (CHAT.prompt + CHAT.output),
                "That compares all tokens, prompt and output alike. A prompt token costs far less time: "
                "all of them share one pass.",
            ),
            Slip(
                lambda: cost_of(REASONING).flops / cost_of(CHAT).flops,
                "That compares FLOPs. A decode step waits for memory, not for FLOPs, so they do not set its time.",
            ),
        ),
        hints=(
            "Almost all the time of both is decode steps, and a step takes about the same time in both.",
            "Divide the output tokens.",
        ),
        solution=(
            "{reasoning:.2f} s / {chat:.4f} s = {answer}. The reasoning request has {steps:.1f} times as many decode "
            "steps, and each takes {dearer:.3f} times as long, for the cache that it reads. The chat request's prefill "
            "takes a little off the ratio."
        ),
        numbers=_chat_answers_numbers,
    ),
    ChoiceExercise(
        key="prefill-over-a-tenth",
        notebook="00_start_here",
        question="In which request does the prefill take more than a tenth of the time, each alone on the GPU?",
        options={"a": "in both", "b": "in chat only", "c": "in reasoning only", "d": "in neither"},
        right="d",
        because={
            "a": "Each prefill is one forward pass. Compare it with the decode passes of the same request.",
            "b": "Chat's prompt is {longer:.0f} times as long as its output, but it goes through in one pass of "
            "{chat_ms:.1f} ms. Then come {steps:.0f} steps of {step_ms:.2f} ms: prefill is {chat:.1f} % of the time.",
            "c": "Reasoning has the short prompt and the long output: its prefill is {reasoning:.4f} % of the time.",
            "d": "Chat's prefill takes {chat_ms:.1f} ms, {chat:.1f} % of its time; reasoning's takes "
            "{reasoning_ms:.2f} ms, {reasoning:.4f} %. Alone on the GPU, both are almost pure decode.",
        },
        hints=(
            "Chat: one prefill pass, then a decode step for each output token after the first. Count both.",
            "Every pass reads all the weights once, prefill or decode. Chat's prefill pass costs a few steps.",
        ),
        solution="{answer}. Chat: {chat:.1f} % of its time is prefill. Reasoning: {reasoning:.4f} %.",
        numbers=_prefill_share_numbers,
    ),
    # ---- 01 Redo module 2
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
            "FLOP in the blocks. The head is {head:.1f} % of these weights and adds one position only. The first "
            "prompt whose compute time is longer: {answer}."
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
