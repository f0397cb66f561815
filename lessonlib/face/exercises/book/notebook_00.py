"""The exercises of notebook 00_start_here."""

from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of
from lessonlib.face.exercises.exercises import Choice, Number, choice, number, predict


@number("steps", tolerance=1e-6)
def decode_steps(answer: Number) -> str:
    """How many decode steps does a request with 12,800 output tokens take?

    - A decode step is one forward pass, and it emits one token.
    - Which pass emits the first output token?
    """
    answer.value = cost_of(REASONING).decode.passes
    answer.slip(
        REASONING.output, "Nearly: that is one too many. The prefill pass already emits the first output token."
    )
    answer.slip(
        REASONING.prompt + REASONING.output,
        "That counts the prompt tokens, too. They all go through together, in one prefill pass.",
    )
    return (
        "The prefill pass takes all prompt tokens at once and emits output token 1. Each further token costs one "
        f"step: {answer}."
    )


@predict("chat requests")
def chat_answers(answer: Number) -> str:
    """How many chat requests take as long as one reasoning request, each of them alone on the GPU?

    - Almost all the time of both requests goes into decode steps, and a step takes about as long in both.
    - Divide the output tokens of one by those of the other.
    """
    chat, reasoning = cost_of(CHAT), cost_of(REASONING)
    answer.value = reasoning.undisturbed / chat.undisturbed
    answer.slip(
        (REASONING.prompt + REASONING.output) / (CHAT.prompt + CHAT.output),
        "That compares all tokens, prompt and output alike. A prompt token costs far less time, for all of "
        "them share one pass.",
    )
    answer.slip(
        reasoning.flops / chat.flops,
        "That compares FLOPs. A decode step waits for memory, not for FLOPs, so the FLOPs do not set its time.",
    )
    return (
        f"{reasoning.undisturbed:.2f} s / {chat.undisturbed:.4f} s = {answer}. The reasoning request has "
        f"{reasoning.decode.passes / chat.decode.passes:.1f} times as many decode steps, and each takes "
        f"{reasoning.tpot / chat.tpot:.3f} times as long, because of the cache that it reads. The chat request's "
        "prefill takes a little off the ratio."
    )


@choice("d")
def prefill_over_a_tenth(answer: Choice) -> str:
    """In which request does the prefill take more than a tenth of the time, each alone on the GPU?

    a: in both
    b: in chat only
    c: in reasoning only
    d: in neither

    - Chat has one prefill pass, and then a decode step for each output token after the first. Count both.
    - Every pass reads all the weights once, in prefill and in decode. Chat's prefill takes as long as a few steps.
    """
    chat, reasoning = cost_of(CHAT), cost_of(REASONING)
    chat_share, reasoning_share = (100 * cost.ttft / cost.undisturbed for cost in (chat, reasoning))
    answer.says(
        a="Each prefill is one forward pass. Compare it with the decode passes of the same request.",
        b=f"Chat's prompt is {CHAT.prompt / CHAT.output:.0f} times as long as its output, but it goes through in one "
        f"pass of {1e3 * chat.ttft:.1f} ms. Then come {chat.decode.passes:.0f} steps of {1e3 * chat.tpot:.2f} ms: "
        f"prefill is {chat_share:.1f} % of the time.",
        c=f"Reasoning has the short prompt and the long output: its prefill is {reasoning_share:.4f} % of the time.",
        d=f"Chat's prefill takes {1e3 * chat.ttft:.1f} ms, {chat_share:.1f} % of its time; reasoning's takes "
        f"{1e3 * reasoning.ttft:.2f} ms, {reasoning_share:.4f} %. Alone on the GPU, both are almost pure decode.",
    )
    return f"{answer}. Prefill is {chat_share:.1f} % of chat's time, and {reasoning_share:.4f} % of reasoning's."
