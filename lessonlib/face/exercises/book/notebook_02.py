"""The exercises of notebook 02_chat_versus_reasoning."""

from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of, largest_batch, server
from lessonlib.face.exercises.exercises import Choice, Number, choice, number
from lessonlib.facts.tables import load_table
from lessonlib.facts.workloads import load_workload
from lessonlib.policy.estimates import RHO_OF_FIVE_PERCENT, ridge_tokens
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.request.request import Request
from lessonlib.time.roofline import pass_cost

THOUGHT = 0.9  # share of the reasoning output that is thought, before the answer


@number("times one step")
def prefill_in_steps(answer: Number) -> str:
    """How many decode steps does the reasoning request's whole prefill cost (128 -> 12,800, batch 1)?

    - Under the ridge a pass costs the time to stream the weights, however many tokens it carries.
    """
    prefill, step = cost_of(REASONING).prefill.seconds, pass_cost(server(), new=1, cached=128).seconds
    answer.value = prefill / step
    answer.slip(
        128, "That counts tokens. All prompt tokens go through in one pass, and one pass streams the weights once."
    )
    return (
        f"The prefill takes {1e3 * prefill:.3f} ms and the first decode step {1e3 * step:.3f} ms: both stream the "
        f"weights once. So the whole prefill takes {answer}."
    )


@number("ms")
def gpu_share_of_chat(answer: Number) -> str:
    """32 chat requests are served together. How many milliseconds of GPU time is one request's share?

    - `.seconds` is the GPU clock for the whole batch, `.undisturbed` the request clock: own prefill, then the steps.
    - Take request_cost(server, chat, batch=32).seconds, and divide by the batch.
    """
    ms, wait = 1e3 * cost_of(CHAT, 32).seconds, 1e3 * cost_of(CHAT, 32).undisturbed
    answer.value = ms / 32
    answer.slip(ms, "That is the GPU clock of all 32 together. One request's share is a 32nd of it.")
    answer.slip(wait, "That is the request clock. In its steps the GPU serves the other 31 as well.")
    answer.slip(
        wait / 32, "You shared the request clock among 32. All 32 prompts have to be prefilled, not only that user's."
    )
    answer.slip(
        1e3 * cost_of(CHAT).seconds / 32,
        "You shared the time of one request alone among 32. The steps are shared; the prefills add up.",
    )
    return (
        f"GPU clock for all 32: {ms / 1e3:.4f} s. Divided by 32: {answer}. The request clock shows {wait / 1e3:.4f} s."
    )


@number("%")
def chat_time_share(answer: Number) -> str:
    """One chat request runs alone. What per cent of its seconds is decode?

    - Count passes: one prefill, then 127 steps. A step takes about as long as it takes to read the weights.
    - request_cost(server, chat, batch=1) has .prefill.seconds and .decode.seconds.
    """
    chat = cost_of(CHAT)
    answer.value = 100 * chat.decode_share
    answer.slip(
        100 * chat.decode.flops / chat.flops,
        "That is the share of FLOPs. A decode step does few FLOPs, but it reads every weight.",
    )
    answer.slip(
        100 * CHAT.output / (CHAT.prompt + CHAT.output),
        "That is the share of tokens. Prompt tokens go through in one pass, output tokens one pass each.",
    )
    return (
        f"Prefill {1e3 * chat.prefill.seconds:.1f} ms, decode {1e3 * chat.decode.seconds:.1f} ms: decode is {answer} "
        "of the seconds."
    )


@number("requests", tolerance=0.001)
def reasoning_limit(answer: Number) -> str:
    """How many reasoning requests (128 -> 12,800) are under way on a full H100, its memory handed out in pages?

    - On average a request is in the middle of its answer: it holds its prompt and half of its output.
    - Divide the memory left after the weights by that. policy.memory_batch(server, request) does it for you.
    """
    machine, tokens = server(), REASONING.prompt + REASONING.output // 2
    answer.value = memory_batch(machine, REASONING)
    answer.slip(
        largest_batch(REASONING),
        "You reserved memory to the end of each answer. Pages are handed out as answers grow: half of it on average.",
    )
    answer.slip(
        largest_batch(REASONING, tokens=REASONING.prompt),
        "You counted the prompt only. The cache grows with every output token.",
    )
    answer.slip(
        largest_batch(REASONING, memory_free=machine.memory_available, tokens=tokens),
        "You forgot that the weights lie in the same memory.",
    )
    answer.slip(
        largest_batch(REASONING, machine.accelerator.memory - machine.weight_bytes, tokens),
        "You gave all of the memory away. A tenth is kept for activations and the engine's buffers.",
    )
    return (
        f"{machine.memory_free / 1e9:.2f} GB are free after the weights; one of {tokens:,} tokens holds "
        f"{machine.sequence_bytes(float(tokens)) / 1e9:.3f} GB of cache on average. So {answer} are under way."
    )


@number("%")
def chat_share_at_limit(answer: Number) -> str:
    """On a full server of chat's mean lengths (1,155 -> 211), what per cent of the GPU clock is decode?

    - steady_state(server, means["chat"]) is the full server. Its .shares are of the GPU clock.
    - Decode is all that is not "prefill".
    """
    mean = load_workload("chat").mean
    full = steady_state(server(), mean)
    answer.value = 100 * (1 - full.shares["prefill"])
    answer.slip(
        100 * (1 - steady_state(server(), mean, 32).shares["prefill"]),
        "That is batch 32, which is far from full. Leave the batch out, and steady_state takes the memory batch.",
    )
    answer.slip(100 * cost_of(mean).decode_share, "That is one request alone.")
    answer.slip(100 * full.shares["prefill"], "That is the share of prefill; decode is the rest.")
    answer.slip(
        100 * (1 - steady_state(server(), CHAT).shares["prefill"]),
        "That is a server of the two medians. Of many requests the means decide, for GPU time adds up.",
    )
    return (
        f"At batch {full.batch:,} a request takes {1e3 * full.seconds_per_request:.1f} ms of GPU time, "
        f"{1e3 * full.parts['prefill']:.1f} ms of it prefill: decode is {answer}."
    )


@number("requests", tolerance=0.02)
def half_prefill(answer: Number) -> str:
    """From which batch on does prefill take half of the GPU clock or more, for chat (1,024 -> 128)?

    - Prefill seconds grow in proportion to the batch. Decode seconds grow slowly: the weights are shared.
    - Try batches with request_cost(server, chat, batch).decode_share until it is a half.
    """
    limit = int(largest_batch(CHAT))
    batch = next(batch for batch in range(1, limit + 1) if cost_of(CHAT, batch).decode_share <= 0.5)
    there = cost_of(CHAT, batch)
    answer.value = batch
    answer.slip(
        ridge_tokens(server()) * CHAT.output / CHAT.prompt,
        "That is where rho reaches 1. rho is an estimate: it leaves out that a larger batch also reads more cache, "
        "which makes decode slower.",
    )
    return f"{answer}: there prefill takes {there.prefill.seconds:.3f} s and decode {there.decode.seconds:.3f} s."


@number("output tokens per prompt token")
def ratio_at_32(answer: Number) -> str:
    """By rho, how many output tokens a prompt token keep prefill at 5 % of the GPU clock at batch 32?

    - Set rho = b n_in / (ridge n_out) to 5 / 95 and solve for n_out / n_in.
    - The ridge of the H100 is peak / bandwidth, 989e12 / 3.35e12 FLOP/byte.
    """
    ridge = ridge_tokens(server())
    ratio = 32 / (ridge * RHO_OF_FIVE_PERCENT)
    answer.value = ratio
    answer.slip(ratio / 32, "That is batch 1. At batch 32 a step serves 32 requests at once.")
    answer.slip(
        32 / (ridge * 0.05), "Nearly: rho is prefill over decode, not prefill over all. A share of 5 % is 5 to 95."
    )
    answer.slip(1 / ratio, "That is prompt tokens for each output token: the other way round.")
    return f"n_out / n_in = b / (ridge x 5 / 95) = 32 / ({ridge:.1f} x 0.0526) = {answer}."


@choice("c")
def hundred_to_one(answer: Choice) -> str:
    """How many requests of a production R1 service have an output at least 100 times their prompt?

    a: nearly all
    b: about half
    c: fewer than one in eight

    - Look at the medians of prompt and output above.
    """
    rows = [row for row in load_table("workload_shares") if row["workload"] == "production-reasoning"]
    shares, medians = ([row[name] for row in rows] for name in ("requests_ratio_ge_100", "ratio_median"))
    bounds, middle = (
        f"{100 * min(shares):.0f} and {100 * max(shares):.0f}",
        f"{min(medians):.1f} and {max(medians):.1f}",
    )
    answer.says(
        a="100 to 1 is competition mathematics: a short problem and a long thought. Most prompts are no such thing.",
        b=f"The median ratio is far smaller than 100: between {middle}.",
        c=f"Between {bounds} %: the service released prompt and output lengths separately, so only bounds can be "
        f"given. The median ratio lies between {middle}.",
    )
    return f"{answer}: between {bounds} % of the requests."


@number("s")
def first_answer_token(answer: Number) -> str:
    """90 % of the reasoning output is thought. When does the first token of the answer come, alone?

    - 0.9 x 12,800 output tokens are thought. The answer begins with the next one.
    - What does a request cost whose output ends with that token?
    """
    begins = cost_of(Request(REASONING.prompt, round(THOUGHT * REASONING.output) + 1))
    answer.value = begins.undisturbed
    answer.slip(
        cost_of(REASONING).ttft,
        "That is TTFT: the first token of the thought. The user sees an answer only after the thought.",
    )
    answer.slip(
        cost_of(REASONING).undisturbed, "That is the last token. The answer begins a tenth of the output earlier."
    )
    return (
        f"Output token {begins.request.output:,} is the first of the answer. A request that ends there takes {answer}; "
        f"its TTFT is {1e3 * begins.ttft:.2f} ms."
    )
