"""The exercises of notebook 01_redo_module_2."""

from functools import cache
from typing import Any

from lessonlib.face.exercises.book.common import REASONING, cost_of, server, smallest_compute_bound_prompt
from lessonlib.face.exercises.exercises import ChoiceExercise, Exercise, NumberExercise, Slip
from lessonlib.facts.catalogue import load_accelerator, load_model, model_config
from lessonlib.model.precision import Precision
from lessonlib.policy.estimates import ridge_tokens
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

MODULE_2 = Request(1000, 300)  # the request that notebook 01 works out by hand
RIDGE_IS_NOT_IT = (
    "That is the ridge. It would be right if every streamed weight worked for every prompt token. "
    "The LM head is streamed whole and works for the last position only."
)
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
        "weights": server().sizes.dense_bytes,
        "stream": 1e3 * server().sizes.dense_bytes / server().bandwidth,
        "flops": server().sizes.token_flops,
        "head": 100 * model.head_weights / (model.head_weights + model.block_matmul_weights),
    }


EXERCISES: tuple[Exercise, ...] = (
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
                lambda: float(round(ridge_tokens(server()))),
                RIDGE_IS_NOT_IT,
            ),
            Slip(lambda: float(round(ridge_tokens(server())) + 1), RIDGE_IS_NOT_IT),
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
            "step": 1e3 * server().sizes.dense_bytes / server().bandwidth,
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
)
