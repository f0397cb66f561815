"""Every exercise of the collection, in the order of the notebooks. The machinery is exercises.py.

No expected value is typed in: each is a function that asks the library. So is each slip, from the wrong formula that
leads to it.
"""

import math
from functools import cache
from statistics import median
from typing import Any

from lessonlib.batching import intensities, memory_batch, output_token_in_prompt_tokens, parallel_thoughts
from lessonlib.cache import answer_traffic, cache_by_kind, span_where_cache_passes_weights, step_parts
from lessonlib.catalogue import (
    DATA,
    load_accelerator,
    load_measurements,
    load_model,
    load_table,
    load_workload,
    model_config,
)
from lessonlib.deployment import Deployment, Efficiency, Speculation
from lessonlib.exercises import ChoiceExercise, Exercise, NumberExercise, Slip
from lessonlib.levers import (
    Lever,
    break_even_by_rho,
    break_even_output,
    faster_peak,
    faster_prefill,
    more_bandwidth,
    prefix_cache,
    quantised,
    ridge_tokens,
)
from lessonlib.own_traffic import OwnTraffic, read_traffic
from lessonlib.precision import Precision
from lessonlib.published import decode_fits, decode_search, deployment_of, point_of
from lessonlib.request import Request, RequestCost, request_cost
from lessonlib.roofline import pass_cost
from lessonlib.timing.cpu import predicted, this_machine
from lessonlib.timing.record import Record, read_record
from lessonlib.traffic_cost import TrafficCost, concurrency, price, rank_levers


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


@cache
def cost_of(request: Request, batch: int = 1) -> RequestCost:
    return request_cost(server(), request, batch)


def smallest_compute_bound_prompt(deployment: Deployment | None = None) -> float:
    """Smallest prompt whose linear layers take longer to compute than to stream, at batch 1, by trying each."""
    machine, prompt = deployment or server(), 1
    while True:
        linear = pass_cost(machine, new=prompt).linear
        if linear.flops / machine.peak > linear.bytes / machine.bandwidth:
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
        "weights": server().folded.dense_bytes,
        "stream": 1e3 * server().folded.dense_bytes / server().bandwidth,
        "flops": server().folded.token_flops,
        "head": 100 * model.head_weights / (model.head_weights + model.block_matmul_weights),
    }


# ---- 02 Chat versus reasoning

THOUGHT = 0.9  # share of the reasoning output that is thought, before the answer


def _limit(request: Request, memory_free: float | None = None, tokens: int | None = None) -> float:
    """Requests whose caches fill the free memory; `memory_free` and `tokens` as a slip would take them."""
    tokens = request.prompt + request.output if tokens is None else tokens
    memory = server().memory_free if memory_free is None else memory_free
    return float(memory // server().sequence_bytes(float(tokens)))


def _percent_at_limit(part: str) -> float:
    cost = cost_of(CHAT, int(_limit(CHAT)))
    return 100 * getattr(cost, part).seconds / cost.seconds


@cache
def batch_of_half_prefill() -> float:
    """Smallest batch of chat requests whose prefill takes at least half of the GPU clock, by trying each."""
    return float(next(batch for batch in range(1, 371) if cost_of(CHAT, batch).decode_share <= 0.5))


def _tokens_per_prompt_token(batch: int, rho: float = 0.05 / 0.95) -> float:
    return batch / (ridge_tokens(server()) * rho)


@cache
def _up_to_first_answer_token() -> RequestCost:
    return cost_of(Request(REASONING.prompt, round(THOUGHT * REASONING.output) + 1))


def _hundred_to_one_numbers() -> dict[str, Any]:
    rows = [row for row in load_table("workload_shares") if row["workload"] == "production-reasoning"]
    shares = [100 * row["requests_ratio_ge_100"] for row in rows]
    medians = [row["ratio_median"] for row in rows]
    return {"least": min(shares), "most": max(shares), "low": min(medians), "high": max(medians)}


# ---- 03 How the KV cache grows

LAST_STEP = REASONING.output - 1  # the steps are counted from 1


def _step_ms(position: int, batch: int, together: bool = False) -> float:
    """Milliseconds of the step at `position` of the reasoning answer."""
    return 1e3 * step_parts(server(), REASONING, position, batch, together).seconds


def _twice_the_answer(batch: int) -> float:
    """GPU seconds of an answer twice as long over those of the reasoning answer."""
    twice = Request(REASONING.prompt, 2 * REASONING.output)
    return cost_of(twice, batch).seconds / cost_of(REASONING, batch).seconds


LEVEL_AT_FIRST = {"gpt": "gpt-oss-120b", "qwen": "qwen3-30b-a3b"}


def _bytes_that_grow(name: str) -> float:
    """Cache bytes of a token, in 16 bits, in the layers without a window."""
    kinds = Deployment(load_model(name), load_accelerator("h100-sxm")).folded.kinds
    return sum(kind.cache_bytes for kind in kinds if kind.window is None)


def _alternating_numbers() -> dict[str, Any]:
    """MB that gpt-oss-20b holds for a finished reasoning answer: its sliding layers, its full ones, and two slips."""
    tokens = REASONING.prompt + REASONING.output - 1
    deployment = Deployment(load_model("gpt-oss-20b"), load_accelerator("h100-sxm"))
    (sliding, full), each = cache_by_kind(deployment, tokens), deployment.cache_bytes_per_token
    return {
        "tokens": tokens,
        "layers": full.layers,
        "window": deployment.folded.kinds[0].window,
        "sliding": sliding.bytes / 1e6,
        "full": full.bytes / 1e6,
        "ignored": tokens * each / 1e6,
        "windowed": 2 * sliding.bytes / 1e6,
    }


# ---- 05 When prefill stops mattering

INT4, FP8_CACHE = quantised(blocks="int4", experts="int4"), quantised(cache="fp8")
SLOW_STEPS = 2e-3  # seconds of overhead that a pass has in one exercise
SPECULATION = Speculation(draft_tokens=4, acceptance=0.7)


def _faster(lever: Lever, batch: int) -> float:
    return lever.speedup(server(), REASONING, batch)


def _quarter_of_all_weights() -> float:
    """Speed-up of the reasoning request at batch 32 if every weight were read in exactly a quarter of the time."""
    cost = cost_of(REASONING, 32)
    return cost.seconds / (cost.seconds - 0.75 * (cost.prefill.linear.seconds + cost.decode.linear.seconds))


def _twice_prefill(batch: int, k: float = 2.0) -> float:
    cost = cost_of(CHAT, batch)
    return faster_prefill(cost.prefill.seconds, cost.decode.seconds, k)


@cache
def _mixture() -> Deployment:
    return Deployment(load_model("qwen3-30b-a3b"), load_accelerator("h100-sxm"), Precision("bf16"))


def _verifying_bytes(tokens: int) -> float:
    return pass_cost(_mixture(), new=tokens, logits=tokens).linear.bytes


def _separate_experts() -> float:
    """Bytes of a pass of g + 1 tokens if no two of them ever shared an expert."""
    one, tokens = _verifying_bytes(1), SPECULATION.draft_tokens + 1
    return one + (tokens - 1) * (one - _mixture().folded.dense_bytes)


def _with_overhead(bandwidth: float) -> float:
    efficiency = Efficiency(overhead=SLOW_STEPS)
    slow = Deployment(server().model, server().accelerator, server().precision, efficiency=efficiency)
    deployment, request, batch = more_bandwidth(bandwidth)(slow, REASONING, 1)
    return request_cost(deployment, request, batch).seconds


def _levers_at_limit() -> dict[str, Any]:
    levers = {"prefix": prefix_cache(1.0), "peak": faster_peak(2), "int4": INT4, "fp8": FP8_CACHE}
    found = {name: lever.speedup_at_limit(server(), REASONING) for name, lever in levers.items()}
    cost = cost_of(REASONING, int(_limit(REASONING)))
    return found | {
        "prefill": 100 * cost.prefill.seconds / cost.seconds,
        "weights": 100 * cost.decode.linear.seconds / cost.seconds,
        "cache": 100 * cost.decode.attention.seconds / cost.seconds,
    }


# ---- 06 Time it yourself

RECORDED = "cpu-2026-11-30T05-55-03Z.json"  # the run that notebook 06 replays
CPU_CHAT, CPU_REASONING = Request(256, 32), Request(16, 320)  # shaped like chat and reasoning, short enough to wait for


@cache
def recorded_cpu() -> Record:
    """The recorded run of lessonlib.timing.cpu, made on a machine that did little else."""
    return read_record(DATA / "timings" / RECORDED)


@cache
def recorded_machine() -> Deployment:
    """The NumPy decoder on that machine, as its yardsticks describe it."""
    return this_machine(recorded_cpu())


def _recorded_seconds(phase: str, tokens: int, context: int) -> float:
    """Median seconds of a timed pass of the recorded run."""
    wanted = (phase, tokens, context)
    return next(p.median for p in recorded_cpu().points if (p.phase, p.tokens, p.context) == wanted)


def _step_on_the_cpu(cache_share: float = 1.0, embedding: bool = False) -> float:
    """Milliseconds of a step on 8,000 cached tokens, by bytes / bandwidth, as a slip would count the bytes."""
    machine = recorded_machine()
    step = pass_cost(machine, 1, 8_000)
    looked_up = 4 * machine.model.width * machine.model.vocabulary if embedding else 0
    return 1e3 * (step.linear.bytes + looked_up + cache_share * step.attention.bytes) / machine.bandwidth


def _cpu_prefill_numbers() -> dict[str, Any]:
    machine = recorded_machine()
    chat = request_cost(machine, CPU_CHAT)
    gpu = cost_of(CHAT)
    return {
        "cpu": 100 * chat.ttft / chat.elapsed,
        "gpu": 100 * gpu.ttft / gpu.elapsed,
        "cpu_ridge": machine.peak / machine.bandwidth,
        "gpu_ridge": server().peak / server().bandwidth,
    }


def _recorded_steps() -> dict[str, Any]:
    """The recorded decode steps over their prediction: least and most, in per cent above it."""
    ratios = [row["ratio"] for row in predicted(recorded_cpu()) if row["what"].startswith("decode")]
    return {"least": 100 * (min(ratios) - 1), "most": 100 * (max(ratios) - 1)}


# ---- 07 Predicted and published

SUSPECTS = {"a": "m2264", "b": "m2266", "c": "m2276", "d": "m2262", "e": "m2269"}  # Qwen2-7B in fp16 on H100


@cache
def published_row(name: str) -> Any:
    """The published row of that id, possible or not."""
    return next(row for row in (*load_measurements(), *load_measurements(impossible=True)) if row.id == name)


def _fractions(memory_class: str) -> list[float]:
    """Floor over measured time of the rows of one sequence on one device."""
    return [point.fraction for point in decode_search().points if point.memory_class == memory_class]


def _reached_percent(embedding: bool = False) -> float:
    """Percent of its bandwidth that an RTX A6000 reached on Llama 3 8B in fp16; `embedding`: the table streamed too."""
    point, deployment = point_of(published_row("m0280")), deployment_of(published_row("m0280"))
    table = deployment.weight_bytes - deployment.folded.dense_bytes
    more = point.passes * table / deployment.bandwidth if embedding else 0.0
    return 100 * (point.floor + more) / point.measured


def _suspects() -> dict[str, Any]:
    points = {letter: point_of(published_row(name)) for letter, name in SUSPECTS.items()}
    floors = {f"{letter}_floor": point.floor for letter, point in points.items()}
    return floors | {letter: point.measured for letter, point in points.items()}


def _steps_that_fit(embedding: bool = False) -> float:
    """Steps of the published batch of 64 that its 3.4 s had time for, if each reads the weights and nothing else."""
    row = published_row("m2267")
    deployment = deployment_of(row)
    streamed = deployment.weight_bytes if embedding else deployment.folded.dense_bytes
    return row.value / (streamed / deployment.bandwidth)


def _slope_percent(kappa: float = 1.0) -> float:
    """Percent of a B200's bandwidth at which the published slope reads the cache, its bytes a token times `kappa`."""
    row = published_row("m2815")
    deployment = deployment_of(row)
    return 100 * kappa * deployment.cache_bytes_per_token / deployment.bandwidth / row.value


def _step_by_two_numbers(accelerator: str) -> float:
    """Seconds of a step of Llama-3.1-8B in bf16 that reads its weights, by the two numbers from all publishers."""
    fit = decode_fits()[()]
    streamed = server().folded.dense_bytes / load_accelerator(accelerator).bandwidth
    return streamed / fit.fraction + fit.overhead


EIGHT = {1: "m1349", 2: "m1365", 4: "m1367", 8: "m1369"}  # Llama-2-7B in bf16 on so many A100


# ---- 08 Common questions


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


# ---- 09 Your model, your traffic


@cache
def sample() -> OwnTraffic:
    """The requests that notebook 09 ships with."""
    return read_traffic(DATA / "sample_traffic.csv")


@cache
def sample_cost(batch: int) -> TrafficCost:
    return price(server(), sample().request, batch)


@cache
def sample_limit() -> int:
    return concurrency(server(), sample().request)


def _sample_limit_of_means() -> float:
    mean = float(sample().prompt.mean() + sample().output.mean())
    return server().memory_free // (mean * server().cache_bytes_per_token)


def _sample_numbers() -> dict[str, Any]:
    alone, full = sample_cost(1), sample_cost(sample_limit())
    levers = {one.name: one.at_limit for one in rank_levers(server(), sample().request, sample_limit())}
    return {
        "limit": sample_limit(),
        "means": _sample_limit_of_means(),
        "slot": server().memory_free / sample_limit() / server().cache_bytes_per_token,
        "mean": float(sample().prompt.mean() + sample().output.mean()),
        "alone": 100 * alone.decode_share,
        "prefill": 1e3 * full.prefill.seconds / len(sample()),
        "decode": 1e3 * full.decode.seconds / len(sample()),
        "attention": 100 * full.decode.attention.seconds / full.seconds,
        "free": levers["a prefill that takes no time"],
        "peak": levers["twice the FLOP/s"],
        "int4": levers["4-bit weights (head stays)"],
        "fp8": levers["fp8 cache"],
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
        unit="times one step",
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
            "So the whole prefill takes {answer}."
        ),
        numbers=lambda: {
            "prefill": 1e3 * cost_of(REASONING).prefill.seconds,
            "step": 1e3 * pass_cost(server(), new=1, cached=128).seconds,
        },
    ),
    NumberExercise(
        key="gpu-share-of-chat",
        notebook="02_chat_versus_reasoning",
        question="32 chat requests are served together. How many milliseconds of GPU time is one request's share?",
        unit="ms",
        expected=lambda: 1e3 * cost_of(CHAT, 32).seconds / 32,
        slips=(
            Slip(
                lambda: 1e3 * cost_of(CHAT, 32).seconds,
                "That is the GPU clock of all 32 together. One request's share is a 32nd of it.",
            ),
            Slip(
                lambda: 1e3 * cost_of(CHAT, 32).elapsed,
                "That is the request clock: what one user waits. In that time the GPU serves the other 31 as well.",
            ),
            Slip(
                lambda: 1e3 * cost_of(CHAT, 32).elapsed / 32,
                "You shared one user's wait among 32. All 32 prompts have to be prefilled, not only that user's.",
            ),
            Slip(
                lambda: 1e3 * cost_of(CHAT).seconds / 32,
                "You shared the time of one request alone among 32. The steps are shared; the prefills add up.",
            ),
        ),
        hints=(
            "`.seconds` is the GPU clock for the whole batch, `.elapsed` the request clock of one user.",
            "Take request_cost(server, chat, batch=32).seconds, and divide by the batch.",
        ),
        solution="GPU clock for all 32: {all:.4f} s. Divided by 32: {answer}. One user waits {elapsed:.4f} s.",
        numbers=lambda: {"all": cost_of(CHAT, 32).seconds, "elapsed": cost_of(CHAT, 32).elapsed},
    ),
    NumberExercise(
        key="chat-time-share",
        notebook="02_chat_versus_reasoning",
        question="One chat request runs alone. What per cent of its seconds is decode?",
        unit="%",
        expected=lambda: 100 * cost_of(CHAT).decode_share,
        slips=(
            Slip(
                lambda: 100 * cost_of(CHAT).decode.flops / cost_of(CHAT).flops,
                "That is the share of FLOPs. A decode step does few FLOPs, but it reads every weight.",
            ),
            Slip(
                lambda: 100 * CHAT.output / (CHAT.prompt + CHAT.output),
                "That is the share of tokens. Prompt tokens go through in one pass, output tokens one pass each.",
            ),
        ),
        hints=(
            "Count passes: one prefill, then 127 steps. A step takes about as long as it takes to read the weights.",
            "request_cost(server, chat, batch=1) has .prefill.seconds and .decode.seconds.",
        ),
        solution="Prefill {prefill:.1f} ms, decode {decode:.1f} ms: decode is {answer} of the seconds.",
        numbers=lambda: {"prefill": 1e3 * cost_of(CHAT).prefill.seconds, "decode": 1e3 * cost_of(CHAT).decode.seconds},
    ),
    NumberExercise(
        key="reasoning-limit",
        notebook="02_chat_versus_reasoning",
        question="How many reasoning requests (128 -> 12,800) fit on the H100 at once, reserved to their ends?",
        unit="requests",
        expected=lambda: _limit(REASONING),
        tolerance=0.001,
        slips=(
            Slip(
                lambda: _limit(REASONING, tokens=REASONING.prompt),
                "You reserved memory for the prompt only. The cache grows with every output token.",
            ),
            Slip(
                lambda: _limit(REASONING, memory_free=server().memory_available),
                "You forgot that the weights lie in the same memory.",
            ),
            Slip(
                lambda: _limit(REASONING, memory_free=server().accelerator.memory - server().weight_bytes),
                "You gave all of the memory away. A tenth is kept for activations and the engine's buffers.",
            ),
        ),
        hints=(
            "Free memory after the weights, divided by the cache of prompt + output tokens.",
            "server.largest_batch(tokens) does it for you.",
        ),
        solution=(
            "{free:.2f} GB are free after the weights; one of {tokens:,} tokens reserves {each:.3f} GB of cache. "
            "So {answer} fit."
        ),
        numbers=lambda: {
            "free": server().memory_free / 1e9,
            "tokens": REASONING.prompt + REASONING.output,
            "each": server().sequence_bytes(float(REASONING.prompt + REASONING.output)) / 1e9,
        },
    ),
    NumberExercise(
        key="chat-share-at-limit",
        notebook="02_chat_versus_reasoning",
        question="At chat's own memory limit, what per cent of the GPU clock is decode?",
        unit="%",
        expected=lambda: _percent_at_limit("decode"),
        slips=(
            Slip(
                lambda: 100 * cost_of(CHAT, 32).decode_share,
                "That is batch 32, which is far from chat's limit. Ask server.largest_batch for chat's tokens.",
            ),
            Slip(lambda: 100 * cost_of(CHAT).decode_share, "That is one request alone."),
            Slip(lambda: _percent_at_limit("prefill"), "That is the share of prefill; decode is the rest."),
        ),
        hints=(
            "First the limit: server.largest_batch(1024 + 128). Then request_cost at that batch.",
            "A cost has .decode_share: decode seconds over all seconds of the GPU clock.",
        ),
        solution="At batch {limit:,.0f} prefill takes {prefill:.2f} s and decode {decode:.2f} s: decode is {answer}.",
        numbers=lambda: {
            "limit": _limit(CHAT),
            "prefill": cost_of(CHAT, int(_limit(CHAT))).prefill.seconds,
            "decode": cost_of(CHAT, int(_limit(CHAT))).decode.seconds,
        },
    ),
    NumberExercise(
        key="half-prefill",
        notebook="02_chat_versus_reasoning",
        question="From which batch on does prefill take half of the GPU clock or more, for chat (1,024 -> 128)?",
        unit="requests",
        expected=batch_of_half_prefill,
        tolerance=0.02,
        slips=(
            Slip(
                lambda: ridge_tokens(server()) * CHAT.output / CHAT.prompt,
                "That is where rho reaches 1. rho is an estimate: it leaves out that a larger batch also reads more "
                "cache, which makes decode slower.",
            ),
        ),
        hints=(
            "Prefill seconds grow in proportion to the batch. Decode seconds grow slowly: the weights are shared.",
            "Try batches with request_cost(server, chat, batch).decode_share until it is a half.",
        ),
        solution="{answer}: there prefill takes {prefill:.3f} s and decode {decode:.3f} s.",
        numbers=lambda: {
            "prefill": cost_of(CHAT, int(batch_of_half_prefill())).prefill.seconds,
            "decode": cost_of(CHAT, int(batch_of_half_prefill())).decode.seconds,
        },
    ),
    NumberExercise(
        key="ratio-at-32",
        notebook="02_chat_versus_reasoning",
        question="By rho, how many output tokens a prompt token keep prefill at 5 % of the GPU clock at batch 32?",
        unit="output tokens per prompt token",
        expected=lambda: _tokens_per_prompt_token(32),
        slips=(
            Slip(
                lambda: _tokens_per_prompt_token(1), "That is batch 1. At batch 32 a step serves 32 requests at once."
            ),
            Slip(
                lambda: _tokens_per_prompt_token(32, rho=0.05),
                "Nearly: rho is prefill over decode, not prefill over all. A share of 5 % is 5 to 95.",
            ),
            Slip(
                lambda: 1 / _tokens_per_prompt_token(32),
                "That is prompt tokens for each output token: the other way round.",
            ),
        ),
        hints=(
            "Set rho = b n_in / (ridge n_out) to 5 / 95 and solve for n_out / n_in.",
            "The ridge of the H100 is peak / bandwidth, 989e12 / 3.35e12 FLOP/byte.",
        ),
        solution="n_out / n_in = b / (ridge x 5 / 95) = 32 / ({ridge:.1f} x 0.0526) = {answer}.",
        numbers=lambda: {"ridge": ridge_tokens(server())},
    ),
    ChoiceExercise(
        key="hundred-to-one",
        notebook="02_chat_versus_reasoning",
        question="How many requests of a production R1 service have an output at least 100 times their prompt?",
        options={"a": "nearly all", "b": "about half", "c": "fewer than one in eight"},
        right="c",
        because={
            "a": "100 to 1 is the hard end: short competition problems at full effort. Most prompts are no such thing.",
            "b": "The median ratio is far smaller than 100: between {low:.1f} and {high:.1f}.",
            "c": "Between {least:.0f} and {most:.0f} %: the service released prompt and output lengths separately, so "
            "only bounds can be given. The median ratio lies between {low:.1f} and {high:.1f}.",
        },
        hints=("Look at the medians of prompt and output above.",),
        solution="{answer}: between {least:.0f} and {most:.0f} % of the requests.",
        numbers=_hundred_to_one_numbers,
    ),
    NumberExercise(
        key="first-answer-token",
        notebook="02_chat_versus_reasoning",
        question="90 % of the reasoning output is thought. When does the first token of the answer come, alone?",
        unit="s",
        expected=lambda: _up_to_first_answer_token().elapsed,
        slips=(
            Slip(
                lambda: cost_of(REASONING).ttft,
                "That is TTFT: the first token of the thought. The user sees an answer only after the thought.",
            ),
            Slip(
                lambda: cost_of(REASONING).elapsed,
                "That is the last token. The answer begins a tenth of the output earlier.",
            ),
        ),
        hints=(
            "0.9 x 12,800 output tokens are thought. The answer begins with the next one.",
            "What does a request cost whose output ends with that token?",
        ),
        solution=(
            "Output token {token:,} is the first of the answer. A request that ends there takes {answer}; its TTFT is "
            "{ttft:.2f} ms."
        ),
        numbers=lambda: {
            "token": _up_to_first_answer_token().request.output,
            "ttft": 1e3 * _up_to_first_answer_token().ttft,
        },
    ),
    # ---- 03 How the KV cache grows
    NumberExercise(
        key="alternating-cache",
        notebook="03_how_the_kv_cache_grows",
        question="How much cache does gpt-oss-20b hold for the finished reasoning answer (12,927 tokens, bf16)?",
        unit="MB",
        expected=lambda: _alternating_numbers()["sliding"] + _alternating_numbers()["full"],
        tolerance=0.004,  # the sliding layers are a hundredth of it
        slips=(
            Slip(
                lambda: _alternating_numbers()["ignored"],
                "You let every layer keep every token. The sliding layers keep the last 128 only.",
            ),
            Slip(
                lambda: _alternating_numbers()["windowed"], "You let every layer slide. Half of them keep all tokens."
            ),
            Slip(lambda: _alternating_numbers()["full"], "These are the full layers. The sliding ones hold a little."),
        ),
        hints=(
            "Half of its layers keep all tokens, half the last 128. A token takes 2,048 bytes in one layer.",
            "12 layers x 2,048 bytes x 12,927 tokens, and 12 layers x 2,048 bytes x 128 tokens.",
        ),
        solution=(
            "{layers} full layers hold {tokens:,} tokens: {full:.1f} MB. {layers} sliding ones hold {window} tokens: "
            "{sliding:.1f} MB. Together {answer}. Without windows it would be {ignored:.1f} MB."
        ),
        numbers=_alternating_numbers,
    ),
    NumberExercise(
        key="cache-of-an-answer",
        notebook="03_how_the_kv_cache_grows",
        question="How much cache do all steps of the reasoning answer read together (128 -> 12,800, batch 1)?",
        unit="TB",
        expected=lambda: answer_traffic(server(), REASONING).triangle / 1e12,
        slips=(
            Slip(
                lambda: answer_traffic(server(), REASONING).end / 1e12,
                "You read the cache at its final size in every step. It grows: the first step finds 128 tokens.",
            ),
            Slip(
                lambda: answer_traffic(server(), REASONING).flat / 1e12,
                "You let the cache stay as the prompt left it. Every step adds a token to it.",
            ),
        ),
        hints=(
            "Step k finds 128 + k - 1 tokens in the cache. Each takes 131,072 bytes.",
            "The sum of 128, 129, ... 12,926 is a triangle on a narrow strip: steps x (first + last) / 2.",
        ),
        solution=(
            "{steps:,} steps x (128 + 12,926) / 2 tokens x {each:,.0f} bytes = {answer}. At the final size in every "
            "step it would be {end:.2f} TB."
        ),
        numbers=lambda: {
            "steps": LAST_STEP,
            "each": server().cache_bytes_per_token,
            "end": answer_traffic(server(), REASONING).end / 1e12,
        },
    ),
    NumberExercise(
        key="last-over-first",
        notebook="03_how_the_kv_cache_grows",
        question="32 reasoning requests start together. How many times as long as the first step is the last?",
        unit="times",
        expected=lambda: _step_ms(LAST_STEP, 32, together=True) / _step_ms(1, 32, together=True),
        slips=(
            Slip(
                lambda: _step_ms(LAST_STEP, 1) / _step_ms(1, 1),
                "That is one request alone. Here 32 caches grow at the same time.",
            ),
            Slip(
                lambda: (REASONING.prompt + LAST_STEP) / (REASONING.prompt + 1),
                "That is how the cache grows. A step reads the weights as well, and they stay as they are.",
            ),
        ),
        hints=(
            "A step reads the weights once, 15.01 GB, and 32 caches of 131,072 bytes a token.",
            "The first step meets 129 tokens in each sequence, the last 12,927. Divide bytes by bytes.",
        ),
        solution=(
            "The weights take {weights:.2f} ms in every step. 32 caches take {first:.2f} ms at first and {last:.2f} ms "
            "in the end. So the last step is {answer} as long."
        ),
        numbers=lambda: {
            "weights": 1e3 * cost_of(REASONING, 32).decode.linear.seconds / LAST_STEP,
            "first": _step_ms(1, 32, True) - 1e3 * cost_of(REASONING, 32).decode.linear.seconds / LAST_STEP,
            "last": _step_ms(LAST_STEP, 32, True) - 1e3 * cost_of(REASONING, 32).decode.linear.seconds / LAST_STEP,
        },
    ),
    NumberExercise(
        key="steady-last-over-first",
        notebook="03_how_the_kv_cache_grows",
        question="31 neighbours are spread over their answers. By how much is your last step longer than your first?",
        unit="percent",
        expected=lambda: 100 * (_step_ms(LAST_STEP, 32) / _step_ms(1, 32) - 1),
        tolerance=0.05,
        slips=(
            Slip(
                lambda: 100 * (_step_ms(LAST_STEP, 32, True) / _step_ms(1, 32, True) - 1),
                "That is the batch that started together: all 32 caches grow at once. Here only yours grows; the "
                "neighbours' are as large on average in your last step as in your first.",
            ),
            Slip(
                lambda: 100 * (_step_ms(LAST_STEP, 1) / _step_ms(1, 1) - 1),
                "That is one request alone. With neighbours the step is longer, and your own growth a smaller part.",
            ),
        ),
        hints=(
            "What grows from your first step to your last? One cache out of 32.",
            "step_parts(server, reasoning, position, 32).seconds, at position 1 and at position 12,799.",
        ),
        solution="{first:.2f} ms and {last:.2f} ms: {answer}. Your own cache adds {own:.2f} ms. Nothing else grows.",
        numbers=lambda: {
            "first": _step_ms(1, 32),
            "last": _step_ms(LAST_STEP, 32),
            "own": _step_ms(LAST_STEP, 32) - _step_ms(1, 32),
        },
    ),
    NumberExercise(
        key="cache-passes-weights",
        notebook="03_how_the_kv_cache_grows",
        question="At batch 32, from which span on does a step move more bytes of cache than of weights?",
        unit="tokens",
        expected=lambda: float(span_where_cache_passes_weights(server(), 32) or 0),
        slips=(
            Slip(
                lambda: float(span_where_cache_passes_weights(server(), 1) or 0),
                "That is the span at batch 1. The weights are read once for all 32, the caches 32 times.",
            ),
            Slip(
                lambda: server().weight_bytes / (32 * server().cache_bytes_per_token),
                "You counted all the weights that are stored. A step does not read the input embedding.",
            ),
        ),
        hints=(
            "A step reads 15.01 GB of weights, whatever the batch.",
            "15.01 GB / (32 sequences x 131,072 bytes).",
        ),
        solution=(
            "{weights:.3f} GB / (32 x {each:,.0f} bytes) = {exact:.1f}. The first whole span above it: {answer}. At "
            "batch 1 it would be {alone:,} tokens."
        ),
        numbers=lambda: {
            "weights": server().folded.dense_bytes / 1e9,
            "each": server().cache_bytes_per_token,
            "exact": server().folded.dense_bytes / (32 * server().cache_bytes_per_token),
            "alone": span_where_cache_passes_weights(server(), 1),
        },
    ),
    NumberExercise(
        key="twice-the-answer",
        notebook="03_how_the_kv_cache_grows",
        question="At batch 16, how many times as long does an answer of 25,600 tokens take as one of 12,800?",
        unit="times",
        expected=lambda: _twice_the_answer(16),
        slips=(
            Slip(lambda: 2.0, "Twice the steps, but the later steps are longer than any before."),
            Slip(
                lambda: 4.0,
                "That would be right if a step read the cache only: twice the steps, each twice as long on average. "
                "The weights do not grow.",
            ),
            Slip(lambda: _twice_the_answer(1), "That is one request alone. At batch 16 a larger part of a step grows."),
        ),
        tolerance=0.015,
        hints=(
            "The weights' part doubles. The caches' part grows with the square of the length.",
            "request_cost(server, Request(128, 25_600), 16).seconds, over the same with 12_800.",
        ),
        solution=(
            "Weights: {weights:.0f} s, then {weights2:.0f} s, twice. Caches: {caches:.0f} s, then {caches2:.0f} s, "
            "four times. Together {answer} as long."
        ),
        numbers=lambda: {
            "weights": cost_of(REASONING, 16).decode.linear.seconds,
            "weights2": cost_of(Request(REASONING.prompt, 2 * REASONING.output), 16).decode.linear.seconds,
            "caches": cost_of(REASONING, 16).decode.attention.seconds,
            "caches2": cost_of(Request(REASONING.prompt, 2 * REASONING.output), 16).decode.attention.seconds,
        },
    ),
    ChoiceExercise(
        key="what-paging-saves",
        notebook="03_how_the_kv_cache_grows",
        question="A server turns from contiguous memory to blocks of 16 tokens. What becomes of a long answer's steps?",
        options={
            "a": "They grow more slowly along the answer.",
            "b": "They stay as they are, in the same batch.",
            "c": "They stop growing, as old blocks are not read.",
        },
        right="b",
        because={
            "a": "Growth is the tokens in the cache. Which of them would a block save from being read?",
            "b": "A step reads every cached token, wherever it lies. Paging frees what nobody used; then more requests "
            "fit, and their caches make every step longer.",
            "c": "Old tokens are attended to as new ones are. Only a sliding window leaves some out.",
        },
        hints=("Which bytes does paging get rid of: bytes that were read, or bytes that were only reserved?",),
        solution="{answer} Paging gets rid of memory that was reserved and never used. Nobody ever read it.",
    ),
    ChoiceExercise(
        key="level-then-apart",
        notebook="03_how_the_kv_cache_grows",
        question="Without a cache both make about 60 tokens a second. Which one is faster at 32,768 tokens of context?",
        options={
            "a": "gpt-oss-120b.",
            "b": "Qwen3-30B-A3B.",
            "c": "Neither: both slow down alike.",
        },
        right="a",
        because={
            "a": "A cached token takes {gpt:,.0f} bytes in those layers of gpt-oss-120b that keep it, and {qwen:,.0f} "
            "bytes in Qwen3-30B-A3B. The count of parameters plays no part in how a step grows.",
            "b": "It has fewer parameters, but that is not what grows. Compare the bytes of a cached token.",
            "c": "Their weights cost a step about the same. Their caches do not: look at layers, KV heads and windows.",
        },
        hints=(
            "What a step reads more of at 32,768 tokens is cache. Compare the layers that keep all tokens.",
            "Half of the layers of gpt-oss-120b have a window of 128 tokens.",
        ),
        solution="{answer} In its layers that keep all tokens, a token takes {gpt:,.0f} bytes, against {qwen:,.0f}.",
        numbers=lambda: {name: _bytes_that_grow(model) for name, model in LEVEL_AT_FIRST.items()},
    ),
    # ---- 04 What batching can pay for
    NumberExercise(
        key="steady-batch",
        notebook="04_what_batching_can_pay_for",
        question="How many reasoning requests does the server hold in steady state, each at a place of its own?",
        unit="requests",
        expected=lambda: float(memory_batch(server(), REASONING, steady=True)),
        tolerance=0.02,
        slips=(
            Slip(
                lambda: float(memory_batch(server(), REASONING)),
                "That reserves the whole answer for each from the start. In steady state they hold half of it "
                "on average.",
            ),
            Slip(
                lambda: server().memory_free / (128 * server().cache_bytes_per_token),
                "That counts the prompts only. The answer fills the cache as it is written.",
            ),
        ),
        hints=("The mean over an answer is the prompt and half of the output.", "Memory left / bytes of the mean."),
        solution="{free:.2f} GB are left after the weights. A sequence holds {held:,} tokens on average, "
        "{each:.3f} GB: {answer}.",
        numbers=lambda: {
            "free": server().memory_free / 1e9,
            "held": 128 + 6400,
            "each": (128 + 6400) * server().cache_bytes_per_token / 1e9,
        },
    ),
    NumberExercise(
        key="experts-at-32",
        notebook="04_what_batching_can_pay_for",
        question="How many GB does a step of Qwen3-30B-A3B read at batch 32, in bf16, caches apart?",
        unit="GB",
        expected=lambda: pass_cost(mixture(), 1, batch=32).linear.bytes / 1e9,
        tolerance=0.03,
        slips=(
            Slip(
                lambda: pass_cost(mixture(), 1).linear.bytes / 1e9,
                "That is one token's experts. 32 tokens choose for themselves, and together they wake most of "
                "the experts.",
            ),
            Slip(
                lambda: mixture().folded.resident_bytes / 1e9,
                "That is all that is stored. A few experts are left over, and the input embedding is looked up.",
            ),
        ),
        hints=("Of 128 experts, a token leaves a given one idle with probability 1 - 8/128.", "E (1 - (1 - k/E)**32)."),
        solution=(
            "A given expert stays idle through 32 tokens with probability {idle:.3f}, so {distinct:.0f} of 128 "
            "are read in each "
            "layer. With all the rest that is {answer}; one token alone reads {one:.2f} GB."
        ),
        numbers=lambda: {
            "idle": (1 - 8 / 128) ** 32,
            "distinct": 128 * (1 - (1 - 8 / 128) ** 32),
            "one": pass_cost(mixture(), 1).linear.bytes / 1e9,
        },
    ),
    NumberExercise(
        key="sixteen-thoughts",
        notebook="04_what_batching_can_pay_for",
        question="Sixteen answers to one reasoning prompt, decoded together: how many times the GPU time of one?",
        unit="times one answer",
        expected=lambda: parallel_thoughts(server(), REASONING, 16),
        tolerance=0.02,
        slips=(
            Slip(lambda: 16.0, "They share every read of the weights. Only the caches are read sixteen times."),
            Slip(lambda: 1.0, "Each thought reads a cache of its own. That part is paid sixteen times."),
        ),
        hints=("At batch 1 the cache is about a twentieth of the bytes.", "Weights once, caches sixteen times."),
        solution="Of one answer's time {cache:.1%} is the cache. 1 + 15 x {cache:.4f} = {answer}.",
        numbers=lambda: {"cache": cost_of(REASONING).decode.attention.seconds / cost_of(REASONING).seconds},
    ),
    NumberExercise(
        key="output-token-price",
        notebook="04_what_batching_can_pay_for",
        question="At batch 1, how many prompt tokens (of a 1,024-token prefill) cost as much as one output "
        "token of chat?",
        unit="prompt tokens",
        expected=lambda: output_token_in_prompt_tokens(server(), CHAT, 1),
        tolerance=0.03,
        slips=(
            Slip(
                lambda: output_token_in_prompt_tokens(server(), CHAT, 370),
                "That is the price at chat's memory limit, where 370 requests share the weights.",
            ),
            Slip(lambda: ridge_tokens(server()), "That is the ridge: close, but a step also reads its cache."),
        ),
        hints=("A step takes about as long as streaming the weights.", "One prompt token takes prefill / 1,024."),
        solution="A step takes {step:.3f} ms, a prompt token {token:.2f} microseconds: {answer}.",
        numbers=lambda: {
            "step": 1e3 * cost_of(CHAT).tpot,
            "token": 1e6 * pass_cost(server(), 1024).seconds / 1024,
        },
    ),
    ChoiceExercise(
        key="wall-before-roof",
        notebook="04_what_batching_can_pay_for",
        question="The GPU gets twice the memory. What happens to the GPU time of one reasoning request?",
        options={"a": "it halves", "b": "it falls a little", "c": "it stays exactly the same"},
        right="b",
        because={
            "a": "A batch twice as large halves each one's share of the weights. The caches are not shared, and at "
            "batch {limit} they are {share:.0%} of a step.",
            "b": "The weights' share falls, the caches' does not: at batch {limit} the caches are {share:.0%} "
            "of a step already.",
            "c": "The weights are shared by more requests, so something is saved: but only on their {rest:.0%} "
            "of a step.",
        },
        hints=("Which part of a step does a larger batch share out?",),
        solution="{answer}. At batch {limit} the caches take {share:.0%} of the steps, and batching never "
        "divides a cache.",
        numbers=lambda: {
            "limit": memory_batch(server(), REASONING),
            "share": cost_of(REASONING, 33).decode.attention.seconds / cost_of(REASONING, 33).decode.seconds,
            "rest": cost_of(REASONING, 33).decode.linear.seconds / cost_of(REASONING, 33).decode.seconds,
        },
    ),
    # ---- 05 When prefill stops mattering
    NumberExercise(
        key="free-prefill",
        notebook="05_when_prefill_stops_mattering",
        question="The reasoning prefill takes no time at all. What per cent of its time is saved, alone on the GPU?",
        unit="%",
        expected=lambda: 100 * cost_of(REASONING).prefill.seconds / cost_of(REASONING).seconds,
        tolerance=0.02,
        slips=(
            Slip(
                lambda: 100 * REASONING.prompt / (REASONING.prompt + REASONING.output),
                "That is the prompt's share of the tokens. All its tokens go through in one pass.",
            ),
            Slip(
                lambda: 100 * cost_of(REASONING).prefill.flops / cost_of(REASONING).flops,
                "That is the prefill's share of the FLOPs. What is saved is a share of seconds.",
            ),
        ),
        hints=(
            "Infinitely fast means that the whole prefill falls away. So: which share of the seconds is prefill?",
            "The prefill costs as much as one decode step, and there are 12,799 of those.",
        ),
        solution="Prefill {prefill:.3f} ms of {all:.2f} s: {answer}.",
        numbers=lambda: {"prefill": 1e3 * cost_of(REASONING).prefill.seconds, "all": cost_of(REASONING).seconds},
    ),
    NumberExercise(
        key="twice-prefill",
        notebook="05_when_prefill_stops_mattering",
        question="At chat's memory limit the prefill becomes twice as fast. How many times faster is the GPU clock?",
        unit="times",
        expected=lambda: _twice_prefill(int(_limit(CHAT))),
        slips=(
            Slip(lambda: 2.0, "Only the prefill is twice as fast. The decode takes as long as before."),
            Slip(
                lambda: _twice_prefill(int(_limit(CHAT)), float("inf")),
                "That is an infinitely fast prefill. Twice as fast leaves half of it.",
            ),
            Slip(lambda: _twice_prefill(1), "That is one request alone. Take the batch that fills the memory."),
            Slip(lambda: _twice_prefill(32), "That is batch 32, a server that is nearly empty."),
        ),
        hints=(
            "Amdahl: time before over time after, (prefill + decode) / (prefill / 2 + decode).",
            'levers.faster_prefill(prefill, decode, 2); seconds of request_cost(server, chat, limits["chat"]).',
        ),
        solution=(
            "At batch {limit:.0f} prefill takes {prefill:.3f} s and decode {decode:.3f} s. Half of the prefill stays: "
            "{answer}."
        ),
        numbers=lambda: {
            "limit": _limit(CHAT),
            "prefill": cost_of(CHAT, int(_limit(CHAT))).prefill.seconds,
            "decode": cost_of(CHAT, int(_limit(CHAT))).decode.seconds,
        },
    ),
    NumberExercise(
        key="short-prompt",
        notebook="05_when_prefill_stops_mattering",
        question="A prompt of 100 tokens, alone: from how many output tokens on is its prefill under 5 % of the time?",
        unit="output tokens",
        expected=lambda: float(break_even_output(server(), 100)),
        tolerance=0.001,
        slips=(
            Slip(
                lambda: float(round(break_even_by_rho(server(), 100))),
                "That is rho's estimate. rho takes the prefill for compute bound, and 100 tokens are under the ridge.",
            ),
            Slip(
                lambda: break_even_by_rho(server(), 100),
                "That is rho's estimate. rho takes the prefill for compute bound, and 100 tokens are under the ridge.",
            ),
            Slip(
                lambda: float(break_even_output(server(), 100) - 1),
                "Close: these are the steps. The prefill emits one more token.",
            ),
        ),
        hints=(
            "What does a prefill of 100 tokens cost, in decode steps?",
            "Under 5 % is at least 19 steps for one prefill. And the prefill emits a token itself.",
        ),
        solution=(
            "The prefill takes {prefill:.3f} ms, a step {step:.3f} ms: as much. 5 to 95 is 1 to 19, and the prefill "
            "emits the first token: {answer}. rho said {rho:.1f}."
        ),
        numbers=lambda: {
            "prefill": 1e3 * pass_cost(server(), new=100).seconds,
            "step": 1e3 * pass_cost(server(), new=1, cached=100).seconds,
            "rho": break_even_by_rho(server(), 100),
        },
    ),
    NumberExercise(
        key="int4-at-32",
        notebook="05_when_prefill_stops_mattering",
        question="Weights in 4 bits, reasoning at batch 32: how many times faster is it?",
        unit="times",
        expected=lambda: _faster(INT4, 32),
        slips=(
            Slip(
                lambda: 4.0,
                "That is the ratio of 16 bits to 4. A step also reads the cache, which stays as it is.",
            ),
            Slip(
                _quarter_of_all_weights,
                "You made every weight four times smaller. The LM head and the norms stay in bf16, and int4 carries "
                "scales: 4.25 bits a weight.",
            ),
            Slip(lambda: _faster(INT4, 1), "That is batch 1. At batch 32 the steps read 32 caches as well."),
        ),
        hints=(
            "Which share of the time at batch 32 is weights? Only that shrinks.",
            'levers.quantised(blocks="int4", experts="int4").speedup(server, reasoning, 32)',
        ),
        solution=(
            "Weights are {weights:.0f} % of the time at batch 32. A pass streams {before:.2f} GB of them before and "
            "{after:.2f} GB after, since the head stays in bf16: {answer}."
        ),
        numbers=lambda: {
            "weights": 100 * cost_of(REASONING, 32).decode.linear.seconds / cost_of(REASONING, 32).seconds,
            "before": server().folded.dense_bytes / 1e9,
            "after": INT4(server(), REASONING)[0].folded.dense_bytes / 1e9,
        },
    ),
    NumberExercise(
        key="fp8-cache-at-32",
        notebook="05_when_prefill_stops_mattering",
        question="The cache in fp8 instead of bf16, reasoning at batch 32: how many times faster is it?",
        unit="times",
        expected=lambda: _faster(FP8_CACHE, 32),
        slips=(
            Slip(lambda: 2.0, "Only the cache's bytes are halved. The weights are read as before."),
            Slip(lambda: _faster(FP8_CACHE, 1), "That is batch 1, where a step reads one small cache."),
        ),
        hints=(
            "Which share of the time at batch 32 is cache? Half of that falls away.",
            'levers.quantised(cache="fp8").speedup(server, reasoning, 32)',
        ),
        solution="Cache reads are {cache:.1f} % of the time, and half of that is saved: {answer}.",
        numbers=lambda: {
            "cache": 100 * cost_of(REASONING, 32).decode.attention.seconds / cost_of(REASONING, 32).seconds
        },
    ),
    ChoiceExercise(
        key="lever-at-limit",
        notebook="05_when_prefill_stops_mattering",
        question="A reasoning server is at its memory limit. Which of these helps most?",
        options={
            "a": "every prompt found in a prefix cache",
            "b": "twice the FLOP/s",
            "c": "weights in int4",
            "d": "the cache in fp8",
        },
        right="d",
        because={
            "a": "Prefill is {prefill:.3f} % of its GPU clock. A prefix cache makes it {prefix:.4f} times as fast.",
            "b": "Decode waits for memory, not for FLOPs: {peak:.4f} times as fast.",
            "c": "{int4:.2f} times as fast: weights are only {weights:.0f} % of the time, and the room they leave "
            "holds a few more requests.",
            "d": "{fp8:.2f} times as fast. Cache reads are {cache:.0f} % of the time, and half the bytes also make "
            "room for twice the batch, so the weights are shared by twice as many.",
        },
        hints=(
            "What do its steps read at batch 33: more weights or more cache?",
            "A smaller cache does two things: a step reads less, and more requests fit.",
        ),
        solution="{answer}: {fp8:.2f} times as fast, against {int4:.2f} for int4 weights.",
        numbers=_levers_at_limit,
    ),
    NumberExercise(
        key="speculation-experts",
        notebook="05_when_prefill_stops_mattering",
        question=(
            "Qwen3-30B-A3B, batch 1: 4 drafts cost nothing, each is accepted with 0.7. By the bytes of the weights "
            "alone, how many times faster is it?"
        ),
        unit="times",
        expected=lambda: SPECULATION.tokens_per_round * _verifying_bytes(1) / _verifying_bytes(5),
        slips=(
            Slip(
                lambda: SPECULATION.tokens_per_round,
                "These are the tokens of a round. But the pass that verifies five tokens reads the experts of five.",
            ),
            Slip(
                lambda: 5 * _verifying_bytes(1) / _verifying_bytes(5),
                "You took every draft for accepted. A round yields 1 + a + ... + a**4 tokens.",
            ),
            Slip(
                lambda: SPECULATION.tokens_per_round * _verifying_bytes(1) / _separate_experts(),
                "You gave every token experts of its own. Some tokens choose the same ones.",
            ),
        ),
        hints=(
            "Tokens of a round, over how many times more bytes the verifying pass reads than a step.",
            "Bytes of a pass of n tokens: pass_cost(mixture, new=n, logits=n).linear.bytes, for n = 1 and n = 5.",
        ),
        solution=(
            "A round yields {tokens:.2f} tokens. Its pass reads {five:.2f} GB, a step {one:.2f} GB: {answer}. "
            "It is slower."
        ),
        numbers=lambda: {
            "tokens": SPECULATION.tokens_per_round,
            "five": _verifying_bytes(5) / 1e9,
            "one": _verifying_bytes(1) / 1e9,
        },
    ),
    NumberExercise(
        key="bandwidth-with-overhead",
        notebook="05_when_prefill_stops_mattering",
        question=(
            "Each pass has 2 ms of overhead. What does twice the bandwidth buy the reasoning request, alone: how many "
            "times faster?"
        ),
        unit="times",
        expected=lambda: _with_overhead(1) / _with_overhead(2),
        slips=(
            Slip(lambda: 2.0, "Only reading gets faster. The 2 ms of each step stay."),
            Slip(
                lambda: cost_of(REASONING).seconds / _with_overhead(2),
                "You put the overhead into the time after only. It is in the time before as well.",
            ),
        ),
        hints=(
            "A step is about 4.7 ms of reading and 2 ms of overhead. Halve one of them.",
            "Deployment(..., efficiency=Efficiency(overhead=2e-3)), then levers.more_bandwidth(2).speedup(...).",
        ),
        solution="Before {before:.1f} s, after {after:.1f} s, of which overhead {overhead:.1f} s each: {answer}.",
        numbers=lambda: {
            "before": _with_overhead(1),
            "after": _with_overhead(2),
            "overhead": SLOW_STEPS * REASONING.output,
        },
    ),
    ChoiceExercise(
        key="how-near-on-a-cpu",
        notebook="06_time_it_yourself",
        question="Decode steps of the recorded run, at six contexts: how much longer do they take than predicted?",
        options={"a": "by less than 2 %", "b": "by 2 to 25 %", "c": "twice as long or more"},
        right="b",
        because={
            "a": "It does not come that near. They take {least:.0f} to {most:.0f} % longer: a step does a little that "
            "moves hardly any bytes.",
            "b": "They take {least:.0f} to {most:.0f} % longer. Most of a step is moving its bytes.",
            "c": "It comes nearer than that. They take {least:.0f} to {most:.0f} % longer.",
        },
        hints=("The prediction is a floor: it leaves out some small work. How small, next to all the weights?",),
        solution="{answer}: the six lie {least:.0f} to {most:.0f} % above the prediction.",
        numbers=_recorded_steps,
    ),
    NumberExercise(
        key="token-at-8000-on-a-cpu",
        notebook="06_time_it_yourself",
        question=(
            "By the yardsticks of the recorded run: how many milliseconds does a decode step take with 8,000 tokens in "
            "the cache?"
        ),
        unit="ms",
        expected=_step_on_the_cpu,
        slips=(
            Slip(
                lambda: _step_on_the_cpu(cache_share=0.0), "That is the weights alone. The step also reads the cache."
            ),
            Slip(
                lambda: _step_on_the_cpu() - _step_on_the_cpu(cache_share=0.0),
                "That is the cache alone. The step also reads the weights.",
            ),
            Slip(
                lambda: _step_on_the_cpu(cache_share=0.5), "You counted K or V, or two bytes a number. It is float32."
            ),
            Slip(lambda: _step_on_the_cpu(embedding=True), "The embedding is a look-up: one row of it is read."),
        ),
        hints=(
            "Bytes over bandwidth. The bytes are the weights that a pass streams, and 8,000 times a token's cache.",
            "pass_cost(machine, new=1, cached=8_000) has .linear.bytes and .attention.bytes.",
        ),
        solution="{weights:.1f} MB of weights and {cache:.1f} MB of cache at {rate:.1f} GB/s: {answer}.",
        numbers=lambda: {
            "weights": pass_cost(recorded_machine(), 1, 8_000).linear.bytes / 1e6,
            "cache": pass_cost(recorded_machine(), 1, 8_000).attention.bytes / 1e6,
            "rate": recorded_machine().bandwidth / 1e9,
        },
    ),
    NumberExercise(
        key="compute-bound-prompt-on-a-cpu",
        notebook="06_time_it_yourself",
        question=(
            "By the yardsticks of the recorded run: what is the smallest prompt whose linear layers take longer to "
            "compute than to stream?"
        ),
        unit="tokens",
        expected=lambda: smallest_compute_bound_prompt(recorded_machine()),
        slips=(
            Slip(smallest_compute_bound_prompt, "That is the prompt for an H100. This machine has another ridge."),
            Slip(
                lambda: recorded_machine().peak / recorded_machine().bandwidth,
                "That is the ridge in FLOP/byte. In float32 a weight of 4 bytes gives 2 FLOP to each token.",
            ),
            Slip(
                lambda: 2 * recorded_machine().peak / recorded_machine().bandwidth,
                "Close: that is twice the ridge. The LM head is streamed whole too, and works for one token only.",
            ),
            Slip(
                lambda: math.ceil(2 * recorded_machine().peak / recorded_machine().bandwidth),
                "Close: that is twice the ridge. The LM head is streamed whole too, and works for one token only.",
            ),
        ),
        hints=(
            "n tokens give each weight 2 n FLOP, for its 4 bytes. The ridge is matmul rate over bandwidth.",
            "About twice the ridge, and a little more: the LM head sees one token only.",
        ),
        solution="The ridge is {ridge:.2f} FLOP/byte, twice that {twice:.2f}; the head takes it to {answer}.",
        numbers=lambda: {
            "ridge": recorded_machine().peak / recorded_machine().bandwidth,
            "twice": 2 * recorded_machine().peak / recorded_machine().bandwidth,
        },
    ),
    NumberExercise(
        key="prompt-tokens-a-second-on-a-cpu",
        notebook="06_time_it_yourself",
        question=(
            "In the recorded run a prompt of 512 was prefilled, and tokens were decoded at a context of 64. How many "
            "times as many tokens a second did prefill take in?"
        ),
        unit="times",
        tolerance=0.15,
        expected=lambda: 512 * _recorded_seconds("decode", 1, 64) / _recorded_seconds("prefill", 512, 0),
        slips=(
            Slip(lambda: 512.0, "If a pass took as long as a step, yes. This one is compute bound, and takes longer."),
            Slip(
                lambda: _recorded_seconds("prefill", 512, 0) / _recorded_seconds("decode", 1, 64),
                "That is pass over step. The pass has 512 tokens, the step one.",
            ),
        ),
        hints=(
            "Rates: 512 over the time of the pass, 1 over the time of the step.",
            "Both times stand in the tables above. Divide the rates.",
        ),
        solution="{prefill:.0f} prompt tokens a second against {decode:.1f} output tokens: {answer}.",
        numbers=lambda: {
            "prefill": 512 / _recorded_seconds("prefill", 512, 0),
            "decode": 1 / _recorded_seconds("decode", 1, 64),
        },
    ),
    NumberExercise(
        key="reasoning-over-chat-on-a-cpu",
        notebook="06_time_it_yourself",
        question=(
            "Chat-shaped 256 -> 32 and reasoning-shaped 16 -> 320, by the yardsticks of the recorded run: how many "
            "times as long does the second take?"
        ),
        unit="times",
        expected=lambda: (
            request_cost(recorded_machine(), CPU_REASONING).elapsed / request_cost(recorded_machine(), CPU_CHAT).elapsed
        ),
        slips=(
            Slip(lambda: 10.0, "That is the ratio of the output tokens. Here a chat's prefill is not small."),
            Slip(
                lambda: 336 / 288, "You counted all tokens alike. A prompt token is far cheaper than an output token."
            ),
        ),
        hints=(
            "Chat: one compute-bound pass and 31 steps. Reasoning: one short pass and 319 steps.",
            "request_cost(machine, Request(256, 32)).elapsed, and likewise the other.",
        ),
        solution="Chat {chat:.2f} s, of which prefill {first:.2f} s; reasoning {reasoning:.2f} s: {answer}.",
        numbers=lambda: {
            "chat": request_cost(recorded_machine(), CPU_CHAT).elapsed,
            "first": request_cost(recorded_machine(), CPU_CHAT).ttft,
            "reasoning": request_cost(recorded_machine(), CPU_REASONING).elapsed,
        },
    ),
    ChoiceExercise(
        key="why-prefill-weighs-on-a-cpu",
        notebook="06_time_it_yourself",
        question="Prefill is a large share of the chat request here, and a small one on an H100. Why?",
        options={
            "a": "A CPU's memory is slow",
            "b": "A CPU has little compute for its bandwidth: its ridge is low",
            "c": "NumPy loses time between its calls",
            "d": "The model is small",
        },
        right="b",
        because={
            "a": "Slow memory makes decode slow, and so prefill's share smaller.",
            "b": "rho is n_in / (ridge n_out). The ridge is {cpu_ridge:.1f} FLOP/byte here, {gpu_ridge:.0f} there.",
            "c": "The prediction has no such loss in it, and says {cpu:.0f} % of prefill here, {gpu:.1f} % there.",
            "d": "The parameter count cancels in rho: both phases shrink alike.",
        },
        hints=("Which machine number stands in rho?", "Compare matmul rate over bandwidth, here and on an H100."),
        solution="{answer}. Ridge {cpu_ridge:.1f} FLOP/byte here, {gpu_ridge:.0f} on an H100.",
        numbers=_cpu_prefill_numbers,
    ),
    NumberExercise(
        key="reached-on-an-a6000",
        notebook="07_predicted_and_published",
        question=(
            "Llama 3 8B in fp16 on an RTX A6000: 40.25 tokens a second were published. Its bandwidth is 768 GB/s. "
            "What per cent of the bandwidth was reached?"
        ),
        unit="%",
        expected=_reached_percent,
        slips=(
            Slip(
                lambda: _reached_percent(embedding=True),
                "You streamed the whole file. The input embedding is a look-up: one row a token.",
            ),
        ),
        hints=(
            "Bytes a second are bytes a step times steps a second. A step reads what `step.linear.bytes` says.",
            "point_of(row).fraction is floor over measured time; the cache, still small, is in it.",
        ),
        solution="The floor of a step is {floor:.2f} ms, the measured time {measured:.2f} ms: {answer}.",
        numbers=lambda: {
            "floor": 1e3 * point_of(published_row("m0280")).floor / point_of(published_row("m0280")).passes,
            "measured": 1e3 / published_row("m0280").value,
        },
    ),
    NumberExercise(
        key="fraction-on-hbm",
        notebook="07_predicted_and_published",
        question=(
            "Published decode steps of one sequence, on one device with HBM: what per cent of the datasheet's "
            "bandwidth do they reach in the median?"
        ),
        unit="%",
        tolerance=0.1,
        expected=lambda: 100 * median(_fractions("HBM")),
        slips=(Slip(lambda: 100.0, "That is the datasheet, or near it. Hardly anybody measures that."),),
        hints=(
            "Faster memory makes shorter steps. What else is in a step, that no memory makes shorter?",
            "Median of point.fraction over the points of decode_search() whose memory_class is HBM.",
        ),
        solution="{count} rows on HBM, median {answer}. GDDR: {gddr:.0f} %, unified: {unified:.0f} %.",
        numbers=lambda: {
            "count": len(_fractions("HBM")),
            "gddr": 100 * median(_fractions("GDDR")),
            "unified": 100 * median(_fractions("unified")),
        },
    ),
    ChoiceExercise(
        key="which-row-is-impossible",
        notebook="07_predicted_and_published",
        question="Five published rows of Qwen2-7B in fp16 on H100s, one engine. Which one cannot be true?",
        options={
            "a": "one device, 64 sequences, 128 -> 128",
            "b": "one device, 16 sequences, 2,048 -> 2,048",
            "c": "four devices, 64 sequences, 128 -> 128",
            "d": "one device, 1 sequence, 128 -> 128",
            "e": "two devices, 16 sequences, 128 -> 128",
        },
        right="b",
        because={
            "a": "Many sequences, few steps: its floor is {a_floor:.2f} s, and {a:.2f} s were measured.",
            "b": "Its floor is {b_floor:.1f} s, and {b:.2f} s are claimed. There is no time for 2,047 steps in it.",
            "c": "Four devices read four times as fast: its floor is {c_floor:.2f} s, and {c:.2f} s were measured.",
            "d": "Possible: its floor is {d_floor:.2f} s, and {d:.2f} s were measured.",
            "e": "Possible: its floor is {e_floor:.2f} s, and {e:.2f} s were measured.",
        },
        hints=(
            "Forget the batch. How many steps does each row take, and what does each step read at least?",
            "A step reads 14 GB of weights at 3.35 TB/s, more than 4 ms. Multiply by output - 1.",
        ),
        solution="{answer}: {b:.2f} s claimed, at least {b_floor:.1f} s needed.",
        numbers=_suspects,
    ),
    NumberExercise(
        key="steps-that-fit",
        notebook="07_predicted_and_published",
        question=(
            "The same source has 64 sequences, 2,048 -> 2,048, in 3.3922 s. For how many decode steps at most was "
            "there time, if each reads the weights and nothing else?"
        ),
        unit="steps",
        tolerance=0.02,
        expected=_steps_that_fit,
        slips=(
            Slip(
                lambda: _steps_that_fit(embedding=True),
                "You streamed the embedding too. It is looked up: only rows of it are read.",
            ),
            Slip(
                lambda: _steps_that_fit() / 64,
                "You read the weights once for each sequence. A step reads them once for the whole batch.",
            ),
        ),
        hints=(
            "The batch does not matter here: one step serves all 64 sequences.",
            'deployment_of(published_row("m2267")): its .folded.dense_bytes a step, over its .bandwidth.',
        ),
        solution=(
            "A step reads {gb:.2f} GB in at least {step:.2f} ms: {answer} of the 2,047. The answers were cut "
            "short, or the time is another's."
        ),
        numbers=lambda: {
            "gb": deployment_of(published_row("m2267")).folded.dense_bytes / 1e9,
            "step": 1e3 * published_row("m2267").value / _steps_that_fit(),
        },
    ),
    NumberExercise(
        key="faster-memory",
        notebook="07_predicted_and_published",
        question=(
            "A B200 has 8 TB/s, an H100 3.35. Llama-3.1-8B in bf16, one sequence, empty cache: how many times faster "
            "is a step on the B200, by the two numbers?"
        ),
        unit="times",
        expected=lambda: _step_by_two_numbers("h100-sxm") / _step_by_two_numbers("b200"),
        slips=(
            Slip(
                lambda: load_accelerator("b200").bandwidth / load_accelerator("h100-sxm").bandwidth,
                "That is the ratio of the datasheets. The overhead of a step stays what it was.",
            ),
        ),
        hints=(
            "A step is bytes / (fraction x bandwidth) + overhead. Only the first part gets shorter.",
            "fit.fraction and fit.overhead are the two numbers; step.linear.bytes the bytes.",
        ),
        solution="H100 {h100:.2f} ms, B200 {b200:.2f} ms: {answer}.",
        numbers=lambda: {
            "h100": 1e3 * _step_by_two_numbers("h100-sxm"),
            "b200": 1e3 * _step_by_two_numbers("b200"),
        },
    ),
    NumberExercise(
        key="slope-of-the-cache",
        notebook="07_predicted_and_published",
        question=(
            "On a B200 a step of Llama-3.1-8B grew by 0.000018 ms with each token of context, cache in bf16. At what "
            "per cent of 8 TB/s was the cache read?"
        ),
        unit="%",
        expected=_slope_percent,
        slips=(
            Slip(lambda: _slope_percent(0.5), "You counted K only, or one byte a number. K and V, two bytes each."),
            Slip(lambda: _slope_percent(4.0), "You counted all query heads. The cache has KV heads only."),
        ),
        hints=(
            "One token more of context is that token's K and V more to read, in every layer.",
            'deployment_of(published_row("m2815")).cache_bytes_per_token over 8 TB/s is the floor of the slope.',
        ),
        solution="A token has {bytes:,.0f} B of cache. At 8 TB/s that is {floor:.3g} ms: {answer}.",
        numbers=lambda: {
            "bytes": deployment_of(published_row("m2815")).cache_bytes_per_token,
            "floor": 10 * _slope_percent() * published_row("m2815").value,
        },
    ),
    NumberExercise(
        key="eight-devices",
        notebook="07_predicted_and_published",
        question=(
            "Llama-2-7B in bf16, one sequence: on one A100, then split over eight. How many times faster was it "
            "measured to be on eight?"
        ),
        unit="times",
        tolerance=0.15,
        expected=lambda: published_row(EIGHT[8]).value / published_row(EIGHT[1]).value,
        slips=(Slip(lambda: 8.0, "That is what the datasheet gives: an eighth of the bytes for each device."),),
        hints=(
            "On one device a step took 9.5 ms, some 2 of them overhead. Only the reading shrinks to an eighth.",
            "The overhead stays, and two all-reduces a layer are new: each of them waits.",
        ),
        solution="{one:.1f} tokens a second on one, {eight:.1f} on eight: {answer}.",
        numbers=lambda: {"one": published_row(EIGHT[1]).value, "eight": published_row(EIGHT[8]).value},
    ),
    # ---- 08 Common questions
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
    NumberExercise(
        key="sample-concurrency",
        notebook="09_your_model_your_traffic",
        question="How many of the sample's requests does the memory of the H100 hold at a time, on average?",
        unit="requests",
        expected=lambda: float(sample_limit()),
        tolerance=0.03,
        slips=(
            Slip(
                _sample_limit_of_means,
                "You divided by the mean length. A long answer stays longer, so at any moment more of the requests "
                "under way are long ones.",
            ),
        ),
        hints=(
            "Take what memory leaves beside the weights, and the bytes of a request on average *over time*.",
            "Weight each request by its output tokens: it holds its place for that many steps.",
        ),
        solution="{answer}. Over time a place holds {slot:,.0f} tokens, and the mean request has {mean:,.0f}; by that "
        "mean {means:,.0f} would fit.",
        numbers=_sample_numbers,
    ),
    NumberExercise(
        key="sample-decode-share",
        notebook="09_your_model_your_traffic",
        question="What per cent of the GPU clock is decode, with as many under way as memory holds?",
        unit="per cent",
        expected=lambda: 100 * sample_cost(sample_limit()).decode_share,
        slips=(
            Slip(
                lambda: 100 * sample_cost(1).decode_share,
                "That is one request alone. On a full server steps are shared.",
            ),
            Slip(
                lambda: 100 * (1 - sample_cost(sample_limit()).decode_share),
                "That is prefill's share. The rest is asked for.",
            ),
        ),
        hints=("Steps are shared by all under way, prompts are not. But each reads its own cache in every step.",),
        solution="{answer}. A request takes {prefill:.1f} ms of prefill and {decode:.0f} ms of decode; alone decode "
        "has {alone:.1f} per cent.",
        numbers=_sample_numbers,
    ),
    ChoiceExercise(
        key="sample-lever",
        notebook="09_your_model_your_traffic",
        question="Which of these saves the sample's server most GPU time, each at its own memory limit?",
        options={
            "a": "a prefill that takes no time",
            "b": "twice the FLOP/s",
            "c": "4-bit weights",
            "d": "an fp8 cache",
        },
        right="d",
        because={
            "a": "Prefill is a small part, and no more than its share can be saved: {free:.2f} times.",
            "b": "Only the prefill computes for longer than it reads: {peak:.2f} times.",
            "c": "The weights are shared by all under way, and already the smaller part: {int4:.2f} times.",
            "d": "Reading caches is {attention:.0f} per cent, and a smaller one lets more in: {fp8:.2f} times.",
        },
        hints=("Look for the largest part of the GPU clock, and at what fills the memory.",),
        solution="{answer}: {fp8:.2f} times.",
        numbers=_sample_numbers,
    ),
)
