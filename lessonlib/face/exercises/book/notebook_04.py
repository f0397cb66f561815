"""The exercises of notebook 04_what_batching_can_pay_for."""

from functools import cache

import numpy as np

from lessonlib.base.units import format_seconds
from lessonlib.face.exercises.book.common import REASONING, cost_of, mixture, server
from lessonlib.face.exercises.exercises import Choice, Number, choice, number, predict
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.workloads import load_lengths, load_workload
from lessonlib.model.precision import Precision
from lessonlib.policy.batching import parallel_thoughts
from lessonlib.policy.estimates import chi, ridge_tokens, roof_batch
from lessonlib.policy.full_server import at_latency, steady_state
from lessonlib.policy.serving.findings import ServingRun
from lessonlib.policy.serving.simulator import simulate
from lessonlib.policy.serving.traffic import poisson_traffic
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

CHAT_MEAN = load_workload("chat").mean
MEAN_CACHE = 4_989  # tokens, of R1's service, as its maker published
BETWEEN_NODES = 50e9  # byte/s of a device, one way


@cache
def other() -> Deployment:
    """Another machine than the lesson's own: Qwen3-8B in bf16 on one L40S."""
    return Deployment(load_model("qwen3-8b"), load_accelerator("l40s"), Precision("bf16"))


def even_span(deployment: Deployment) -> float:
    """The span at which reading a token's cache takes as long as computing its linear layers at peak."""
    computing = pass_cost(deployment, 1).linear.flops / deployment.peak
    return computing * deployment.bandwidth / deployment.cache_bytes_per_token


@cache
def r1_per_device(devices: int, layout: str) -> float:
    """Output tokens a second and device of DeepSeek-R1 on H800s with memory full, at the mean cache of its service."""
    link = BETWEEN_NODES if layout == "expert" else None
    machine = Deployment(
        load_model("deepseek-r1"), load_accelerator("h800-sxm"), Precision("fp8"), devices, layout, link=link
    )
    batch = machine.largest_batch(MEAN_CACHE)
    return batch / pass_cost(machine, 1, MEAN_CACHE - 1, batch).seconds / devices


@cache
def past_capacity(requests: int = 8_000, rate: float = 4.0) -> ServingRun:
    """The lesson's server in the traffic of the production service, of which it can take three requests a second."""
    prompts, outputs = (load_lengths("production-reasoning", of) for of in ("prompt", "output"))
    return simulate(server(), poisson_traffic(requests, rate, prompts, outputs, seed=1))


@number("tokens")
def cache_against_compute(answer: Number) -> str:
    """For Llama-3.1-8B in bf16 on an H100, at a span of how many tokens does reading a token's cache take as long as
    computing its linear layers at peak?

    - To read takes K x span / bandwidth seconds, to compute 2 P / peak.
    - 2 P is pass_cost(server, new=1).linear.flops, which is 15.01e9 FLOP.
    """
    machine, flops = server(), pass_cost(server(), 1).linear.flops
    answer.value = even_span(machine)
    answer.slip(answer.value / 2, "A weight that meets a token costs 2 FLOP: one multiplication, one addition.")
    answer.slip(
        answer.value * machine.model.parameters * 2 / flops,
        "The input embedding is looked up, not multiplied. Leave its parameters out.",
    )
    answer.slip(ridge_tokens(machine), "That is the ridge, which compares computing with the reading of weights.")
    return (
        f"{flops:.4g} FLOP / {machine.peak:.3g} FLOP/s are {1e6 * flops / machine.peak:.1f} microseconds. In "
        f"that time {machine.bandwidth:.3g} B/s read the cache of {answer}, {machine.cache_bytes_per_token:,.0f} B "
        "each."
    )


@number("times")
def chi_of_another(answer: Number) -> str:
    """What is chi of a reasoning request (128 -> 12,800) for Qwen3-8B in bf16 on an L40S?

    - First find the span of equal times on that server, as above: even_span(other). Then divide the mean span by it.
    - The prompt is computed as well, so multiply by n_out / (new + n_out). That takes off one per cent.
    """
    machine, even = other(), even_span(other())
    answer.value = chi(machine, REASONING)
    answer.slip(
        (REASONING.prompt + REASONING.output) / even,
        "You took the span at the end. On average half of the output is there.",
    )
    answer.slip(chi(server(), REASONING), "That is Llama-3.1-8B on an H100, whose memory is fast beside its peak.")
    return (
        f"The times are equal at a span of {even:,.0f} tokens. The mean span is {128 + 6_400:,}, "
        f"{(128 + 6_400) / even:.2f} times as much. Output tokens are {100 * 12_800 / 12_928:.1f} % of all: {answer}."
    )


@number("requests")
def roof_batch_of_chat(answer: Number) -> str:
    """From which batch on are the linear layers of a chat server (1,155 -> 211) compute bound, its prompts mixed in?

    - A pass of b requests carries b output tokens, and b x new / n_out prompt tokens beside them.
    - At the roof batch their sum is the ridge, 295 tokens.
    """
    ridge = ridge_tokens(server())
    answer.value = roof_batch(server(), CHAT_MEAN)
    answer.slip(ridge, "That is the ridge. Beside each output token the pass also carries prompt tokens of newcomers.")
    answer.slip(
        ridge / (CHAT_MEAN.prompt / CHAT_MEAN.output),
        "You counted the prompt tokens alone. The output tokens count, too.",
    )
    return (
        f"For each output token {CHAT_MEAN.prompt / CHAT_MEAN.output:.2f} prompt tokens ride along: "
        f"{ridge:.1f} / {1 + CHAT_MEAN.prompt / CHAT_MEAN.output:.2f} = {answer}."
    )


@choice("b")
def wall_before_roof(answer: Choice) -> str:
    """On a full server a reasoning request took 4.1 s of GPU time. Now the GPU gets twice the memory, and holds more
    than twice the batch. How much GPU time does a request take?

    a: about 2.0 s
    b: about 3.6 s
    c: still 4.1 s

    - Which part of a step does a larger batch share out?
    """
    full = steady_state(server(), REASONING)
    limit, share, rest = full.batch, full.shares["attention"], full.shares["linear"]
    answer.says(
        a="A batch twice as large halves each one's share of the weights. The caches are not shared, and at batch "
        f"{limit} they are {100 * share:.0f} % of a step.",
        b=f"The weights cost each request less, but its cache costs as much as before: at batch {limit} the caches are "
        f"already {100 * share:.0f} % of a step.",
        c=f"The weights are shared by more requests, so something is saved, but only on their {100 * rest:.0f} % of a "
        "step.",
    )
    return (
        f"{answer}. At batch {limit} the caches take {100 * share:.0f} % of the steps' time, and batching never "
        "divides a cache."
    )


@predict("requests")
def batch_under_a_target(answer: Number) -> str:
    """A full chat server holds 368 requests, with 53 ms from token to token. The target is 20 ms. What is the
    largest batch that keeps it?

    - TPOT is the wait over the steps. The wait is the batch times the GPU time of one request.
    - If the GPU time of one request stayed the same, the batch would fall in proportion to TPOT. But with fewer to
      share the weights, a request takes a little more GPU time.
    """
    full, batch = steady_state(server(), CHAT_MEAN), at_latency(server(), CHAT_MEAN, 0.02).batch
    answer.value = batch
    each = [1e3 * state.seconds_per_request for state in (full, steady_state(server(), CHAT_MEAN, batch))]
    return (
        f"In proportion, {full.batch} x 20 / {1e3 * full.tpot:.1f} = {full.batch * 0.02 / full.tpot:.0f} would remain. "
        f"But with fewer to share the weights a request takes {each[1]:.1f} ms of GPU time, not {each[0]:.1f} ms: "
        f"{answer}."
    )


@number("GB")
def experts_at_32(answer: Number) -> str:
    """How many GB of weights does a step of Qwen3-30B-A3B read at batch 32, in bf16?

    - Of 128 experts, a token leaves a given one idle with probability 1 - 8/128.
    - A step reads E (1 - (1 - k/E)**32) experts in each layer, and nearly all that is stored is experts.
    """
    one, many = (pass_cost(mixture(), 1, batch=batch).linear.bytes / 1e9 for batch in (1, 32))
    idle = (1 - 8 / 128) ** 32
    answer.value = many
    answer.slip(
        one,
        "That is one token's experts. Each of 32 tokens chooses its own, and together they choose most of the experts.",
    )
    answer.slip(
        mixture().sizes.resident_bytes / 1e9,
        "That is all that is stored. A few experts are not read, and the input embedding is only looked up.",
    )
    return (
        f"A given expert stays idle through 32 tokens with probability {idle:.3f}, so {128 * (1 - idle):.0f} of 128 "
        f"are read in each layer. With all the rest that is {answer}; one token alone reads {one:.2f} GB."
    )


@predict("times one answer")
def sixteen_thoughts(answer: Number) -> str:
    """Sixteen answers to one reasoning prompt are decoded together. How many times the GPU time of one answer do they
    take?

    - At batch 1 the cache is about a twentieth of the bytes.
    - A step of all sixteen reads the weights once, and sixteen caches.
    """
    cache = cost_of(REASONING).decode.attention.seconds / cost_of(REASONING).seconds
    answer.value = parallel_thoughts(server(), REASONING, 16)
    answer.slip(16, "They share every read of the weights. Only the caches are read sixteen times.")
    answer.slip(1, "Each thought reads a cache of its own. That part is paid sixteen times.")
    return f"The cache takes {100 * cache:.1f} % of one answer's time. 1 + 15 x {cache:.4f} = {answer}."


@predict("%", tolerance=0.3)
def slots_of_a_static_batch(answer: Number) -> str:
    """32 production answers start together, and nobody joins until the longest is done. The mean answer has 1,592
    tokens. What per cent of the slots (32 x steps) are used?

    - The batch runs as long as its longest answer.
    - One answer in a hundred has more than 13,000 tokens.
    """
    answers = load_lengths("production-reasoning", "output").sample(np.random.default_rng(0), 32 * 4_000)
    longest = answers.reshape(4_000, 32).max(axis=1).mean()
    answer.value = 100 * answers.mean() / longest
    return (
        f"The longest of 32 has {longest:,.0f} tokens on average, and the mean answer {answers.mean():,.0f}: {answer} "
        "of the slots are used."
    )


@choice("c")
def how_long_you_watch(answer: Choice) -> str:
    """Four requests a second arrive, and the server can take three. What is the median time to the first token?

    a: about 10 ms, as below capacity: the GPU was busy there, too
    b: about 10 s
    c: it depends on how long you watch

    - How many requests a second join the queue, and when does it end?
    """
    runs = [past_capacity(count) for count in (2_000, 8_000, 32_000)]
    seen = ", ".join(format_seconds(run.percentiles("ttft", (50,))[0], 2) for run in runs)
    answer.says(
        a="That holds as long as there is room for all. Here, once memory is full, the queue grows by one request a "
        "second.",
        b=f"At some moment that is so. But after 2,000, 8,000 and 32,000 requests it is {seen}.",
        c=f"Once memory is full, the queue only grows. After 2,000, 8,000 and 32,000 requests the median is {seen}.",
    )
    return f"{answer}. The queue grows by {runs[1].growth:.1f} requests a second for ever."


@choice("c")
def goodput_past_capacity(answer: Choice) -> str:
    """8,000 requests come, four a second. How many a second are answered in time, with the first token within 1 s and
    then 15 ms a token?

    a: three a second
    b: one or two a second
    c: far fewer than one a second

    - A newcomer is served after all who came before. How long is the queue?
    """
    run = past_capacity()
    share, good = run.goodput(ttft=1, tpot=0.015)
    answer.says(
        a=f"That many are served, but nearly all of them have queued first: only {100 * share:.0f} % are in time.",
        b=f"Nobody is taken out of turn, so nearly all are late: {good:.1f} a second are in time.",
        c=f"Only those are in time who came before the queue: {100 * share:.0f} % of all.",
    )
    return f"{answer}. It is {good:.1f} a second: the server works as hard as ever, for requests that are late."


@choice("c")
def expert_against_tensor(answer: Choice) -> str:
    """DeepSeek-R1 runs in fp8 on 32 H800s, with memory full. How many times as many output tokens a second does the
    expert layout reach as tensor parallelism?

    a: about as many
    b: three times
    c: more than ten times

    - Is each cache stored once, or 32 times? How large a batch does that allow?
    """
    expert, tensor = (r1_per_device(32, layout) for layout in ("expert", "tensor"))
    found = f"{expert:,.0f} tokens/s a GPU against {tensor:,.0f}"
    answer.says(
        a=f"Both spread the weights. But tensor parallelism copies each latent to every device: {found}.",
        b=f"It is more than that: {found}.",
        c=f"{found}: no cache is stored or read twice, so the batch is far larger.",
    )
    return f"{answer}. It is {found}."
