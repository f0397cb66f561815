"""The exercises of notebook 08_common_questions."""

from functools import cache
from typing import Any

from lessonlib.face.exercises.book.common import CHAT, FP8_CACHE, INT4, REASONING, cost_of, mixture, server
from lessonlib.face.exercises.exercises import ChoiceExercise, Exercise, NumberExercise, Slip
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.workloads import load_workload
from lessonlib.model.precision import Precision
from lessonlib.policy.batching import intensities, memory_batch
from lessonlib.policy.levers import faster_peak, more_bandwidth
from lessonlib.request.cost import Request
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost


def _full_server() -> dict[str, Any]:
    """Chat and reasoning, each at its own memory limit: GPU seconds of one request, and what binds it."""
    found: dict[str, Any] = {}
    for name, request in (("chat", CHAT), ("reasoning", REASONING)):
        limit = memory_batch(server(), request)
        cost = cost_of(request, limit)
        found |= {
            f"{name}_limit": limit,
            name: cost.seconds / limit,
            f"{name}_decode": 100 * cost.decode_share,
            f"{name}_compute": faster_peak(2).speedup(server(), request, limit),
            f"{name}_bandwidth": more_bandwidth(2).speedup(server(), request, limit),
            f"{name}_int4": INT4.speedup(server(), request, limit),
            f"{name}_fp8": FP8_CACHE.speedup(server(), request, limit),
            f"{name}_cache": 100 * cost.decode.attention.seconds / cost.seconds,
        }
    return found


def _peak_percent(request: Request, batch: int) -> float:
    """Per cent of the peak FLOP/s that decode reaches."""
    decode = cost_of(request, batch).decode
    return 100 * decode.flops / decode.seconds / server().peak


def _rate_gain(request: Request, batch: int) -> float:
    """Output tokens a second at twice the batch, over those at the batch."""
    return 2 * cost_of(request, batch).seconds / cost_of(request, 2 * batch).seconds


def _attention_intensity(model: str, precision: Precision, batch: int) -> float:
    deployment = Deployment(load_model(model), load_accelerator("h100-sxm"), precision)
    return max(float(v) for name, v in intensities(deployment, 8_000, batch).items() if name != "linear layers")


@cache
def agent_step() -> Request:
    return load_workload("agent-step").request


LONG_PROMPT = Request(12_800, 12_800)
NEXT_TURN = {"kept": Request(13_028, 500, cached=12_927), "dropped": Request(1_508, 500, cached=128)}


EXERCISES: tuple[Exercise, ...] = (
    ChoiceExercise(
        key="quiz-definition",
        notebook="08_common_questions",
        question="What makes a workload decode-heavy?",
        options={
            "a": "its outputs are longer than its prompts",
            "b": "decode steps govern its cost",
            "c": "its model does not fit into the GPU's cache",
        },
        right="b",
        because={
            "a": "Lengths alone do not say it. Chat's prompt is 8 times its output, and alone it is {alone:.1f} "
            "% decode.",
            "b": "It is about the cost, so it depends on the batch: chat falls from {alone:.1f} % decode to "
            "{full:.0f} %.",
            "c": "No model of this lesson fits there. That holds for every workload, so it sets none apart.",
        },
        hints=("Think of chat, alone and on a full server.",),
        solution="{answer}. Chat is {alone:.1f} % decode alone and {full:.0f} % on a full server.",
        numbers=lambda: {
            "alone": 100 * cost_of(CHAT).decode_share,
            "full": _full_server()["chat_decode"],
        },
    ),
    ChoiceExercise(
        key="quiz-utilisation",
        notebook="08_common_questions",
        question=(
            "One reasoning request decodes alone; GPU utilisation reads 100 %. What share of the peak FLOP/s is used?"
        ),
        options={"a": "nearly all", "b": "about half", "c": "less than 1 %"},
        right="c",
        because={
            "a": "The counter says that some kernel ran all the time, and not what it did: {share:.2f} % are used.",
            "b": "Half would need a batch near half the ridge point. Here it is 1: {share:.2f} % are used.",
            "c": "{share:.2f} %. The kernels run all the time; their arithmetic units wait for memory.",
        },
        hints=("A step at batch 1 does about 1 FLOP for each byte. The ridge point is near 300.",),
        solution="{answer}: {share:.2f} %.",
        numbers=lambda: {"share": _peak_percent(REASONING, 1)},
    ),
    ChoiceExercise(
        key="quiz-prefill-in-tokens",
        notebook="08_common_questions",
        question="What does the prefill of 128 prompt tokens cost at batch 1?",
        options={"a": "about one decode step", "b": "about 128 decode steps", "c": "nothing"},
        right="a",
        because={
            "a": "The weights are read once, as in a step: {prefill:.2f} ms, and a step {step:.2f} ms.",
            "b": "That would read the weights 128 times. One pass takes all prompt tokens: {prefill:.2f} ms.",
            "c": "It still reads all weights once: {prefill:.2f} ms. Next to 12,799 steps that is little.",
        },
        hints=("How often does a pass read the weights?",),
        solution="{answer}: {prefill:.2f} ms against {step:.2f} ms.",
        numbers=lambda: {"prefill": 1e3 * cost_of(REASONING).ttft, "step": 1e3 * pass_cost(server(), 1, 128).seconds},
    ),
    ChoiceExercise(
        key="quiz-paging",
        notebook="08_common_questions",
        question="A server of reasoning requests turns paging on and keeps its batch. What gets smaller?",
        options={
            "a": "the memory that is set aside and not used",
            "b": "the bytes that a step reads",
            "c": "the bytes that a token adds",
        },
        right="a",
        because={
            "a": "Only that. At the limit, reading the cache stays {reasoning_cache:.0f} % of the GPU time.",
            "b": "A step reads the tokens that are there, wherever they lie. Paging moves them; it drops none.",
            "c": "K and V of a token are as large in a page as anywhere else.",
        },
        hints=("Paging is about where the tokens lie.",),
        solution="{answer}. Growth and reading stay as they were.",
        numbers=_full_server,
    ),
    NumberExercise(
        key="quiz-dearer-when-full",
        notebook="08_common_questions",
        question=(
            "Each on a full server of its own kind: how many chat requests cost the GPU time of one reasoning request?"
        ),
        unit="times",
        tolerance=0.02,
        expected=lambda: _full_server()["reasoning"] / _full_server()["chat"],
        slips=(
            Slip(lambda: REASONING.output / CHAT.output, "You compared output tokens. Reasoning's are dearer each."),
            Slip(
                lambda: cost_of(REASONING).seconds / cost_of(CHAT).seconds,
                "That is alone. On full servers a step is shared by far fewer reasoning requests than chat requests.",
            ),
        ),
        hints=(
            "Each step is shared by the whole batch. Reasoning's batch is smaller, and its caches are longer.",
            "request_cost(server, request, limit).seconds / limit, for each of the two.",
        ),
        solution="{reasoning:.2f} GPU-seconds against {chat:.4f}: {answer}.",
        numbers=_full_server,
    ),
    ChoiceExercise(
        key="quiz-twice-the-flops",
        notebook="08_common_questions",
        question=(
            "Reasoning on a full server gets an accelerator with twice the FLOP/s and the same memory. What is gained?"
        ),
        options={"a": "twice the speed", "b": "about half as much again", "c": "next to nothing"},
        right="c",
        because={
            "a": "Twice the bandwidth would give {reasoning_bandwidth:.2f}. Twice the FLOP/s give "
            "{reasoning_compute:.4f}.",
            "b": "That is chat: {chat_compute:.2f}. Reasoning gets {reasoning_compute:.4f}.",
            "c": "{reasoning_compute:.4f} times as fast. Only the prefill is compute bound, and it hardly shows.",
        },
        hints=("Which roof binds a step of 33 long caches?",),
        solution="{answer}: {reasoning_compute:.4f} times. Twice the bandwidth: {reasoning_bandwidth:.2f} times.",
        numbers=_full_server,
    ),
    ChoiceExercise(
        key="quiz-twice-the-batch",
        notebook="08_common_questions",
        question="The batch of reasoning requests goes from 16 to 32. What happens to the output tokens a second?",
        options={"a": "they double", "b": "they rise by about a third", "c": "they stay"},
        right="b",
        because={
            "a": "Only the reading of the weights is shared. Each new request brings a cache of its own: "
            "{gain:.2f} times.",
            "b": "{gain:.2f} times. The weights are shared by more, the caches are not.",
            "c": "The weights are still a part of the step, and that part is shared: {gain:.2f} times.",
        },
        hints=("Which bytes of a step does a new request share, and which does it bring along?",),
        solution="{answer}: {gain:.2f} times.",
        numbers=lambda: {"gain": _rate_gain(REASONING, 16)},
    ),
    NumberExercise(
        key="quiz-long-prompt",
        notebook="08_common_questions",
        question=(
            "The prompt grows from 128 to 12,800 tokens, the output stays at 12,800, batch 1. "
            "How many times as long does the request take?"
        ),
        unit="times",
        tolerance=0.02,
        expected=lambda: cost_of(LONG_PROMPT).elapsed / cost_of(REASONING).elapsed,
        slips=(
            Slip(
                lambda: 100.0, "The prompt is 100 times as long. The steps, which cost the time, are as many as before."
            ),
            Slip(
                lambda: (12_800 + 12_800) / (128 + 12_800),
                "You gave prompt tokens and output tokens the same price. A prompt token shares its pass.",
            ),
            Slip(
                lambda: (cost_of(LONG_PROMPT).ttft + cost_of(REASONING).decode.seconds) / cost_of(REASONING).elapsed,
                "That is the prefill alone. The longer cache is also read in every step.",
            ),
        ),
        hints=(
            "Two things grow: the prefill, and what every step reads of the cache.",
            "A token has 131,072 B of cache; 12,672 more of them are 1.66 GB for each step. The weights are 15 GB.",
        ),
        solution="From {short:.1f} s to {long:.1f} s: {answer}. Of the difference, prefill is {prefill:.2f} s.",
        numbers=lambda: {
            "short": cost_of(REASONING).elapsed,
            "long": cost_of(LONG_PROMPT).elapsed,
            "prefill": cost_of(LONG_PROMPT).ttft - cost_of(REASONING).ttft,
        },
    ),
    ChoiceExercise(
        key="quiz-what-to-quantise",
        notebook="08_common_questions",
        question="A full server of reasoning requests keeps its batch. Which helps more?",
        options={"a": "4-bit weights", "b": "an fp8 cache", "c": "neither helps"},
        right="b",
        because={
            "a": "They help less here, {reasoning_int4:.2f} against {reasoning_fp8:.2f}: the caches are most of "
            "the bytes.",
            "b": "{reasoning_fp8:.2f} times, and 4-bit weights {reasoning_int4:.2f}: caches are most of the bytes.",
            "c": "Both take bytes away, and a step waits for bytes: {reasoning_int4:.2f} and {reasoning_fp8:.2f} "
            "times.",
        },
        hints=("What does a step at batch 33 read most of?",),
        solution="{answer}: {reasoning_fp8:.2f} times against {reasoning_int4:.2f}.",
        numbers=_full_server,
    ),
    NumberExercise(
        key="quiz-experts-read",
        notebook="08_common_questions",
        question=(
            "Qwen3-30B-A3B in bf16, uniform routing: a step at batch 32 reads how many times the weight "
            "bytes of a step "
            "at batch 1?"
        ),
        unit="times",
        tolerance=0.03,
        expected=lambda: pass_cost(mixture(), 1, batch=32).linear.bytes / pass_cost(mixture(), 1).linear.bytes,
        slips=(
            Slip(lambda: 1.0, "That would be a dense model. Each token chooses experts of its own."),
            Slip(lambda: 32.0, "Tokens share experts, and all share attention and head."),
        ),
        hints=(
            "Of 128 experts a token takes 8. How many different ones do 32 tokens take?",
            "128 (1 - (1 - 8/128)**32) experts a layer; the other weights are read once.",
        ),
        solution="{one:.2f} GB at batch 1, {many:.2f} GB at 32: {answer}.",
        numbers=lambda: {
            "one": pass_cost(mixture(), 1).linear.bytes / 1e9,
            "many": pass_cost(mixture(), 1, batch=32).linear.bytes / 1e9,
        },
    ),
    ChoiceExercise(
        key="quiz-attention-intensity",
        notebook="08_common_questions",
        question="Which change makes decode attention itself compute bound on an H100?",
        options={
            "a": "Llama-3.1-8B at batch 370 instead of 1",
            "b": "Llama-3.1-8B with an fp8 cache",
            "c": "DeepSeek-V3's latent cache (MLA), in fp8",
        },
        right="c",
        because={
            "a": "A batch does not change it: {batch:.0f} FLOP/byte at 1 and at 370. Each sequence reads its own "
            "cache.",
            "b": "Half the bytes, twice the intensity: {fp8:.0f} FLOP/byte, far under the ridge point of {ridge:.0f}.",
            "c": "{mla:.0f} FLOP/byte, over the ridge point of {ridge:.0f}: all heads share one latent.",
        },
        hints=("How many query heads use each byte of cache that is read?",),
        solution="{answer}: {mla:.0f} FLOP/byte; the ridge point is {ridge:.0f}.",
        numbers=lambda: {
            "batch": _attention_intensity("llama-3.1-8b", Precision("bf16"), 370),
            "fp8": _attention_intensity("llama-3.1-8b", Precision("bf16", cache="fp8"), 1),
            "mla": _attention_intensity("deepseek-v3", Precision("bf16", cache="fp8"), 1),
            "ridge": server().peak / server().bandwidth,
        },
    ),
    ChoiceExercise(
        key="quiz-agent-step",
        notebook="08_common_questions",
        question=(
            "An agent step has 122,317 prompt tokens, 96 % of them cached, and 440 output tokens. What takes its "
            "time, alone?"
        ),
        options={"a": "the prefill", "b": "the decode steps", "c": "each about half"},
        right="b",
        because={
            "a": "Only {new:,} tokens are prefilled: {ttft:.2f} s. The steps take {decode:.2f} s. Uncached: "
            "{cold:.2f} s.",
            "b": "{decode:.2f} s of {all:.2f} s. Its steps read {cache:.0f} GB of cache each, on top of the weights.",
            "c": "Nearer to half without the cached prefix. With it: prefill {ttft:.2f} s, decode {decode:.2f} s.",
        },
        hints=("How many prompt tokens have to be computed?",),
        solution="{answer}: {decode:.2f} s of {all:.2f} s.",
        numbers=lambda: {
            "new": agent_step().prompt - agent_step().cached,
            "ttft": cost_of(agent_step()).ttft,
            "decode": cost_of(agent_step()).decode.seconds,
            "all": cost_of(agent_step()).elapsed,
            "cache": agent_step().prompt * server().cache_bytes_per_token / 1e9,
            "cold": cost_of(Request(agent_step().prompt, agent_step().output)).ttft,
        },
    ),
    ChoiceExercise(
        key="quiz-next-turn",
        notebook="08_common_questions",
        question="A thought is dropped before the next turn. What must be prefilled, with prefix caching on?",
        options={
            "a": "the new question only",
            "b": "the answer and the new question",
            "c": "everything, the first question too",
        },
        right="b",
        because={
            "a": "The answer's cache was made with the thought before it. Without the thought it is another text.",
            "b": "What stood before the thought is a valid prefix. What came after it is not: {dropped:.1f} ms "
            "of prefill.",
            "c": "The first question stands before the thought. Its cache stays valid.",
        },
        hints=("A cached token is valid if everything before it is the same.",),
        solution="{answer}: {dropped:.1f} ms; with the thought kept {kept:.1f} ms.",
        numbers=lambda: {name: 1e3 * cost_of(request).ttft for name, request in NEXT_TURN.items()},
    ),
)
