"""The exercises of notebook 02_chat_versus_reasoning."""

from dataclasses import replace

from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of, largest_batch, server
from lessonlib.face.exercises.exercises import Choice, Number, choice, number, predict
from lessonlib.facts.catalogue import load_accelerator
from lessonlib.facts.tables import load_table
from lessonlib.facts.workloads import load_workload
from lessonlib.policy.estimates import RHO_OF_FIVE_PERCENT, ridge_tokens
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request

AGENT = load_workload("agent-step").request
THOUGHT = 0.9  # share of the reasoning output that is thought, before the answer


@predict("%")
def agent_prefill_share(answer: Number) -> str:
    """An agent step of the median lengths runs alone, with its history cached. What per cent of its time is prefill?

    - Its 728 new tokens go through in one pass. Each output token after the first needs a pass of its own.
    - A pass of 728 tokens is compute bound; a step reads all weights, and here a long cache, for one token.
    """
    cost = cost_of(AGENT)
    new = AGENT.prompt - AGENT.cached
    answer.value = 100 * cost.prefill.seconds / cost.seconds
    answer.slip(
        100 * cost.prefill.flops / cost.flops,
        "That is the share of FLOPs. A step has few of them, but it reads every weight.",
    )
    answer.slip(
        100 * new / (new + AGENT.output),
        "That is the share of tokens. All new prompt tokens share one pass; each output token needs a pass of its own.",
    )
    return (
        f"Prefill takes {1e3 * cost.prefill.seconds:.0f} ms and decode {cost.decode.seconds:.2f} s: prefill is "
        f"{answer} of the time. It has {100 * cost.prefill.flops / cost.flops:.0f} % of the FLOPs, but is only one of "
        f"{AGENT.output} passes."
    )


@predict("decode steps")
def prefill_in_steps(answer: Number) -> str:
    """Alone on an A100 (312 TFLOP/s, 2.04 TB/s), how many decode steps take as long as chat's prefill of 1,024 tokens?

    - A step reads all the weights. In that time the A100 could compute as many tokens as its ridge: 312 / 2.04.
    """
    a100 = replace(server(), accelerator=load_accelerator("a100-sxm-80gb"))
    cost = request_cost(a100, CHAT)
    answer.value = cost.prefill.seconds * cost.decode.passes / cost.decode.seconds
    answer.slip(
        CHAT.prompt, "That counts tokens. All prompt tokens go through in one pass, which streams the weights once."
    )
    answer.slip(
        cost_of(CHAT).prefill.seconds * cost_of(CHAT).decode.passes / cost_of(CHAT).decode.seconds,
        "That is the H100, whose ridge is higher.",
    )
    answer.slip(1, "That holds only for a prompt under the ridge.")
    return (
        f"The ridge is {ridge_tokens(a100):.0f} tokens, and 1,024 tokens hold {CHAT.prompt / ridge_tokens(a100):.1f} "
        f"ridges. A step also reads its cache, and the head works for one position, so the prefill takes as long as "
        f"{answer}."
    )


@number("ms")
def gpu_share_of_chat(answer: Number) -> str:
    """32 chat requests (1,024 -> 128) start together. How many milliseconds of GPU time is one request's share?

    - In its cost .seconds is the GPU clock for the whole batch, and .undisturbed the request clock.
    - Take request_cost(server, medians["chat"], batch=32).seconds, and divide it by the batch.
    """
    ms, wait = 1e3 * cost_of(CHAT, 32).seconds, 1e3 * cost_of(CHAT, 32).undisturbed
    answer.value = ms / 32
    answer.slip(ms, "That is the GPU clock of all 32 together. One request's share is a 32nd of it.")
    answer.slip(wait, "That is the request clock. In its steps the GPU serves the other 31 requests as well.")
    answer.slip(
        wait / 32, "You divided the request clock by 32. But all 32 prompts have to be prefilled, not only that user's."
    )
    answer.slip(
        1e3 * cost_of(CHAT).seconds / 32,
        "You divided the time of one request alone by 32. The steps are shared; the prefills add up.",
    )
    return (
        f"The GPU clock for all 32 is {ms / 1e3:.4f} s. A 32nd of it is {answer}. The request clock shows "
        f"{wait / 1e3:.4f} s."
    )


@number("requests", tolerance=0.001)
def reasoning_limit(answer: Number) -> str:
    """How many reasoning requests (128 -> 12,800) are under way on a full H100 whose memory is handed out in pages?

    - On average a request is in the middle of its answer: it holds its prompt and half of its output.
    - Divide the memory left after the weights by that. lessonlib.policy.memory_batch(server, request) does the same.
    """
    machine, tokens = server(), REASONING.prompt + REASONING.output // 2
    answer.value = memory_batch(machine, REASONING)
    answer.slip(
        largest_batch(REASONING),
        "You reserved memory to the end of each answer. Pages are handed out as answers grow: half of it on average.",
    )
    answer.slip(
        largest_batch(REASONING, tokens=REASONING.prompt),
        "You counted the prompt alone. The cache grows with every output token.",
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
        f"{machine.sequence_bytes(float(tokens)) / 1e9:.3f} GB of cache on average. So there is room for {answer}."
    )


@number("s")
def wait_by_little(answer: Number) -> str:
    """How many seconds does a user wait on a full server of production requests of the mean lengths?

    - The wait is the batch times the GPU time of one request. Both are in the table above.
    """
    state = steady_state(server(), load_workload("production-reasoning").mean)
    answer.value = state.wait
    answer.slip(
        state.seconds_per_request, "That is the GPU time of one request. Meanwhile the GPU serves the others, too."
    )
    answer.slip(
        state.ttft + state.steps * state.step,
        "That is the request clock: the user's own prefill, then all steps. Other users' prefills run in between.",
    )
    answer.slip(cost_of(state.request).undisturbed, "That is one request alone.")
    return f"{state.batch} requests x {1e3 * state.seconds_per_request:.1f} ms = {answer}."


@predict("%")
def chat_share_at_limit(answer: Number) -> str:
    """On a full server of chat's means (1,155 -> 211), what per cent of the GPU clock is prefill?

    - With hundreds of requests, hundreds of tokens share one read of the weights. What does a prompt share?
    - steady_state(server, means["chat"]) is such a server. Its .shares are those of the GPU clock.
    """
    mean = load_workload("chat").mean
    full = steady_state(server(), mean)
    answer.value = 100 * full.shares["prefill"]
    answer.slip(
        100 * steady_state(server(), mean, 32).shares["prefill"],
        "That is batch 32, which is far from full. Leave the batch out, and steady_state takes the memory batch.",
    )
    answer.slip(100 * (1 - cost_of(mean).decode_share), "That is one request alone.")
    answer.slip(100 * (1 - full.shares["prefill"]), "That is the share of decode; prefill is the rest.")
    answer.slip(
        100 * steady_state(server(), CHAT).shares["prefill"],
        "That is a server of the two medians. For many requests the means decide, because GPU time adds up.",
    )
    return (
        f"At batch {full.batch:,} a request takes {1e3 * full.seconds_per_request:.1f} ms of GPU time, "
        f"{1e3 * full.parts['prefill']:.1f} ms of it prefill: {answer}. Steps are shared, prompts are not."
    )


@predict("times")
def bill_by_medians(answer: Number) -> str:
    """On full servers, how many times as much GPU time does production's mean request take as its median request?

    - The mean request has more prompt tokens and more output tokens, each of which reads more cache, and fewer fit.
    - steady_state(server, medians["production-reasoning"]).seconds_per_request is that of the median request. The mean
      request's is in the table above.
    """
    production = load_workload("production-reasoning")
    median, mean = (steady_state(server(), request) for request in (production.request, production.mean))
    answer.value = mean.seconds_per_request / median.seconds_per_request
    answer.slip(
        mean.request.output / median.request.output,
        "That is the ratio of the output tokens. Each of them also reads a longer cache, and the prompts count as "
        "well.",
    )
    answer.slip(
        (mean.request.prompt + mean.request.output) / (median.request.prompt + median.request.output),
        "That is the ratio of all tokens. Each output token also reads a longer cache.",
    )
    return (
        f"{1e3 * mean.seconds_per_request:.0f} ms / {1e3 * median.seconds_per_request:.1f} ms = {answer}. "
        f"{mean.batch} mean requests fit, but {median.batch} median ones, and each mean request reads "
        f"{(mean.request.prompt + mean.request.output / 2) / (median.request.prompt + median.request.output / 2):.1f} "
        "times as much cache in a step."
    )


@number("output tokens per prompt token")
def ratio_at_32(answer: Number) -> str:
    """By rho, at batch 32, how many output tokens for each prompt token bring prefill down to 5 % of the GPU clock?

    - Set rho = b n_in / (ridge n_out) to 5 / 95 and solve for n_out / n_in.
    - The ridge of the H100 is peak / bandwidth, 989e12 / 3.35e12 FLOP/byte.
    """
    ridge = ridge_tokens(server())
    ratio = 32 / (ridge * RHO_OF_FIVE_PERCENT)
    answer.value = ratio
    answer.slip(ratio / 32, "That is batch 1. At batch 32 a step serves 32 requests at once.")
    answer.slip(
        32 / (ridge * 0.05), "Nearly: rho is prefill over decode, not prefill over the sum. A share of 5 % is 5 to 95."
    )
    answer.slip(1 / ratio, "That is prompt tokens for each output token: the other way round.")
    return f"n_out / n_in = b / (ridge x 5 / 95) = 32 / ({ridge:.1f} x 0.0526) = {answer}."


@choice("c")
def hundred_to_one(answer: Choice) -> str:
    """What share of the requests of a production R1 service have an output at least 100 times as long as their prompt?

    a: 90 % or more
    b: about 50 %
    c: 12 % or fewer

    - Look at the medians of prompt and output above: 208 and 792.
    """
    rows = [row for row in load_table("workload_shares") if row["workload"] == "production-reasoning"]
    shares, medians = ([row[name] for row in rows] for name in ("requests_ratio_ge_100", "ratio_median"))
    bounds, middle = (
        f"{100 * min(shares):.0f} and {100 * max(shares):.0f}",
        f"{min(medians):.1f} and {max(medians):.1f}",
    )
    answer.says(
        a="100 to 1 is competition mathematics: a short problem and a long thought. Most requests are nothing like it.",
        b=f"The median ratio is far smaller than 100: between {middle}.",
        c=f"It is between {bounds} %: the service released prompt and output lengths separately, so only bounds can be "
        f"given. The median ratio lies between {middle}.",
    )
    return f"{answer}. It is between {bounds} % of the requests."


@number("s")
def first_answer_token(answer: Number) -> str:
    """Alone on the GPU, after how many seconds does the first answer token of the reasoning request come?

    - 90 % of the 12,800 output tokens are thought. The answer begins with the token after these.
    - What does a request cost whose output ends with that token?
    """
    begins = cost_of(Request(REASONING.prompt, round(THOUGHT * REASONING.output) + 1))
    answer.value = begins.undisturbed
    answer.slip(
        cost_of(REASONING).ttft,
        "That is TTFT: the first token of the thought. The user sees an answer only after the thought.",
    )
    answer.slip(
        cost_of(REASONING).undisturbed,
        "That is when the last token comes. The answer begins a tenth of the output earlier.",
    )
    return (
        f"Output token {begins.request.output:,} is the first of the answer. A request that ends there takes {answer}; "
        f"its TTFT is {1e3 * begins.ttft:.2f} ms."
    )
