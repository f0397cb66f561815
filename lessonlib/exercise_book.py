"""Every exercise of the collection, in the order of the notebooks. The machinery is exercises.py.

No expected value is typed in: each is a function that asks the library. So is each slip, from the wrong formula that
leads to it.
"""

from functools import cache
from typing import Any

from lessonlib.catalogue import load_accelerator, load_model, model_config
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

MODULE_2 = Request(1000, 300)  # the request that notebook 01 works out by hand
PUBLISHED_OUTPUT = 2048  # tokens of the published row that cannot be true


def _feed_forward_percent(matrices: int) -> float:
    """Share of all parameters that `matrices` of the three matrices of every gated feed-forward hold, in percent."""
    model = server().model
    per_matrix = sum(count * block.feedforward.dense_weights for count, block in model.blocks if block.feedforward) / 3
    return 100 * matrices * per_matrix / model.parameters


def _tied_step(tables: int) -> float:
    """GB of a step of Llama-3.2-1B in bf16 if the table that embedding and head share is streamed `tables` times."""
    model = load_model("llama-3.2-1b")
    return 2 * (model.parameters + (tables - 1) * model.head_weights) / 1e9


def _cache_of_qwen3(heads_key: str = "num_key_value_heads", head_dim: float | None = None, layers: int = 64) -> float:
    """Cache bytes a token of Qwen3-32B as a slip would count them: other heads, another head_dim, other layers."""
    config = model_config("qwen3-32b")
    return 2 * layers * config[heads_key] * (config["head_dim"] if head_dim is None else head_dim) * 2


@cache
def _qwen2() -> Deployment:
    return Deployment(load_model("qwen2-7b"), load_accelerator("h100-sxm"), Precision("bf16"))


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
        key="feed-forward-share",
        notebook="01_redo_module_2",
        question="Which share of the parameters of Llama-3.1-8B lies in its feed-forwards?",
        unit="percent",
        expected=lambda: _feed_forward_percent(3),
        tolerance=0.03,
        slips=(
            Slip(
                lambda: _feed_forward_percent(2),
                "That counts two matrices in each feed-forward. A gated one has three: gate, up and down.",
            ),
        ),
        hints=(
            "A gated feed-forward has three matrices of hidden_size x intermediate_size, in each layer.",
            "Divide 3 x 32 x 4,096 x 14,336 by all 8,030,261,248 parameters.",
        ),
        solution="{weights:,} of {parameters:,} parameters lie in the feed-forwards: {answer}.",
        numbers=lambda: {
            "weights": round(_feed_forward_percent(3) / 100 * server().model.parameters),
            "parameters": server().model.parameters,
        },
    ),
    NumberExercise(
        key="tied-head",
        notebook="01_redo_module_2",
        question="Llama-3.2-1B has one table for embedding and LM head (tied). What does its step stream, in bf16?",
        unit="GB",
        expected=lambda: _tied_step(1),
        tolerance=0.005,
        slips=(
            Slip(
                lambda: _tied_step(0),
                "You left the table out, as if it were only looked up. It is the LM head too, and the head is a "
                "matrix product: every step streams it whole.",
            ),
            Slip(lambda: _tied_step(2), "You counted the table twice. Tied means that there is only one."),
        ),
        hints=(
            "How many parameters has it? load_model('llama-3.2-1b').parameters counts the shared table once.",
            "The look-up reads one row. The LM head reads the whole table. So which parameters are not streamed?",
        ),
        solution=(
            "The LM head streams the shared table once, so nothing is left out: 2 bytes x {parameters:,} parameters = "
            "{answer}. Without the table it would be {without:.3f} GB, {share:.0f} % too little."
        ),
        numbers=lambda: {
            "parameters": load_model("llama-3.2-1b").parameters,
            "without": _tied_step(0),
            "share": 100 * (1 - _tied_step(0) / _tied_step(1)),
        },
    ),
    NumberExercise(
        key="cache-per-token",
        notebook="01_redo_module_2",
        question="How many bytes of KV cache does one token of Qwen3-32B take in bf16, over all layers?",
        unit="bytes",
        expected=lambda: load_model("qwen3-32b").cache_bytes(1),
        tolerance=0.001,
        slips=(
            Slip(
                lambda: _cache_of_qwen3("num_attention_heads"),
                "That is the cache of all query heads. With grouped-query attention only the KV heads are cached.",
            ),
            Slip(
                lambda: _cache_of_qwen3(
                    head_dim=model_config("qwen3-32b")["hidden_size"] / model_config("qwen3-32b")["num_attention_heads"]
                ),
                "You took hidden_size / num_attention_heads for the size of a head. This config gives head_dim itself.",
            ),
            Slip(lambda: _cache_of_qwen3(layers=1), "That is one layer. Every layer keeps its own cache."),
        ),
        hints=(
            "Look into model_config('qwen3-32b'): num_hidden_layers, num_key_value_heads, head_dim.",
            "K and V x layers x KV heads x head_dim x bytes of a number.",
        ),
        solution=(
            "2 (K and V) x {layers} layers x {kv_heads} KV heads x {head_dim} numbers x 2 bytes = {answer}. "
            "Its {heads} query heads are not cached."
        ),
        numbers=lambda: {
            "layers": model_config("qwen3-32b")["num_hidden_layers"],
            "kv_heads": model_config("qwen3-32b")["num_key_value_heads"],
            "head_dim": model_config("qwen3-32b")["head_dim"],
            "heads": model_config("qwen3-32b")["num_attention_heads"],
        },
    ),
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
    NumberExercise(
        key="decode-over-prefill",
        notebook="01_redo_module_2",
        question="1,000 prompt and 300 output tokens at batch 1: how many times longer than the prefill is the decode?",
        unit="times the prefill",
        expected=lambda: cost_of(MODULE_2).decode.seconds / cost_of(MODULE_2).prefill.seconds,
        tolerance=0.02,
        slips=(
            Slip(
                lambda: cost_of(MODULE_2).decode.flops / cost_of(MODULE_2).prefill.flops,
                "That is the ratio of the FLOPs. FLOPs are not time: a step waits for its bytes.",
            ),
            Slip(
                lambda: cost_of(MODULE_2).prefill.flops / cost_of(MODULE_2).decode.flops,
                "That is the ratio of the FLOPs, prefill over decode. FLOPs are not time.",
            ),
            Slip(
                lambda: float(MODULE_2.output - 1),
                "That would be right if the prefill cost one step. 1,000 tokens are past the ridge: they cost more.",
            ),
        ),
        hints=(
            "The prefill is compute bound: FLOPs over the peak. A step is memory bound: bytes over the bandwidth.",
            "A step takes about 4.5 ms. There are 299 of them. The prefill takes about 14 ms.",
        ),
        solution=(
            "Prefill {prefill:.2f} ms for {prefill_flops:.2f} TFLOP; decode {decode:.0f} ms for {decode_flops:.2f} "
            "TFLOP. {ratio:.2f} of the FLOPs take {answer}: every step streams all the weights for one token."
        ),
        numbers=lambda: {
            "prefill": 1e3 * cost_of(MODULE_2).prefill.seconds,
            "decode": 1e3 * cost_of(MODULE_2).decode.seconds,
            "prefill_flops": cost_of(MODULE_2).prefill.flops / 1e12,
            "decode_flops": cost_of(MODULE_2).decode.flops / 1e12,
            "ratio": cost_of(MODULE_2).decode.flops / cost_of(MODULE_2).prefill.flops,
        },
    ),
    ChoiceExercise(
        key="attention-batch",
        notebook="01_redo_module_2",
        question="A step serves 32 sequences instead of 1. What happens to the FLOP/byte of its attention?",
        options={
            "a": "It rises 32 times, as that of the linear layers does.",
            "b": "It stays as it is.",
            "c": "It falls, because more cache is read.",
        },
        right="b",
        because={
            "a": "The linear layers gain because all sequences share the weights. Which bytes of cache do they share?",
            "b": "Each sequence brings its own cache: FLOPs and bytes both grow 32 times. The ratio stays {ratio:.3g}.",
            "c": "More cache is read, but the FLOPs on it grow just as much.",
        },
        hints=("Which bytes are shared by the sequences of a batch, and which does each bring along?",),
        solution="{answer} Its FLOPs and its bytes both grow with the batch; the ratio stays {ratio:.3g} FLOP/byte.",
        numbers=lambda: {"ratio": pass_cost(server(), new=1, cached=1024, batch=32).attention.intensity},
    ),
    NumberExercise(
        key="reasoning-decode",
        notebook="01_redo_module_2",
        question="How long does the decode of the reasoning request take (128 -> 12,800, batch 1)?",
        unit="seconds",
        expected=lambda: cost_of(REASONING).decode.seconds,
        tolerance=0.003,
        slips=(
            Slip(lambda: cost_of(REASONING).decode.linear.seconds, "These are the weights. The cache is missing."),
            Slip(
                lambda: 12_799 * pass_cost(server(), new=1, cached=12_926).seconds,
                "You read the final cache at every step. Step k has a context of 128 + k - 1 tokens only.",
            ),
        ),
        hints=(
            "Sum pass_seconds(1, 128 + k - 1) over the steps. The prefill emits token 1, so there are 12,799 steps.",
            "sum(pass_seconds(1, 128 + k - 1) for k in range(1, 12_800))",
        ),
        solution=(
            "Weights: 12,799 x {step:.4f} ms = {weights:.2f} s. Cache: {cache:.2f} TB over the bandwidth = "
            "{attention:.2f} s. Together {answer}."
        ),
        numbers=lambda: {
            "step": 1e3 * server().folded.dense_bytes / server().bandwidth,
            "weights": cost_of(REASONING).decode.linear.seconds,
            "cache": cost_of(REASONING).decode.attention.bytes / 1e12,
            "attention": cost_of(REASONING).decode.attention.seconds,
        },
    ),
    NumberExercise(
        key="impossible-row",
        notebook="01_redo_module_2",
        question="2,048 output tokens of Qwen2-7B (bf16, one H100, batch 1): how long do the weights alone take?",
        unit="seconds",
        expected=lambda: (PUBLISHED_OUTPUT - 1) * pass_cost(_qwen2(), new=1).linear.seconds,
        tolerance=0.005,
        slips=(
            Slip(
                lambda: PUBLISHED_OUTPUT * 2 * _qwen2().model.parameters / _qwen2().bandwidth,
                "You streamed the input embedding at every step (and counted one step too many). It is only looked up.",
            ),
        ),
        hints=(
            "Streamed weights x 2 bytes / bandwidth is one step. The input embedding is not tied here.",
            "The prefill emits token 1, so 2,047 decode steps remain.",
        ),
        solution=(
            "{streamed:.3f} GB a step, {step:.3f} ms. Times 2,047 steps: {answer}. No H100 can do it faster one token "
            "at a time, so the published 0.083 s cannot be what the row says it is."
        ),
        numbers=lambda: {
            "streamed": pass_cost(_qwen2(), new=1).linear.bytes / 1e9,
            "step": 1e3 * pass_cost(_qwen2(), new=1).linear.seconds,
        },
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
