"""The exercises of notebook 00_start_here."""

from typing import Any

from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of
from lessonlib.face.exercises.exercises import ChoiceExercise, Exercise, NumberExercise, Slip


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


EXERCISES: tuple[Exercise, ...] = (
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
)
