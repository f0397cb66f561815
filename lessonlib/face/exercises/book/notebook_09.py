"""The exercises of notebook 09_common_questions."""

from lessonlib.face.exercises.book.common import CHAT, FP8_CACHE, INT4, REASONING, cost_of, mixture, server
from lessonlib.face.exercises.exercises import Choice, Number, choice, number
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.workloads import load_workload
from lessonlib.model.precision import Precision
from lessonlib.policy.batching import intensities
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.policy.levers import Lever, faster_peak, more_bandwidth
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

LONG_PROMPT = Request(12_800, 12_800)
CHAT_MEAN = load_workload("chat").mean


def _times_faster(lever: Lever, request: Request = REASONING) -> float:
    """What a lever does for a full server that keeps its batch."""
    return lever.speedup(server(), request, memory_batch(server(), request))


def _attention_intensity(model: str, cache: str, batch: int = 1, devices: int = 1) -> float:
    deployment = Deployment(load_model(model), load_accelerator("h100-sxm"), Precision("bf16", cache=cache), devices)
    return max(float(v) for name, v in intensities(deployment, 8_000, batch).items() if name != "linear layers")


@choice("b")
def quiz_definition(answer: Choice) -> str:
    """What makes a workload decode-heavy?

    a: its outputs are longer than its prompts
    b: decode steps govern its cost
    c: its model does not fit into the GPU's cache

    - Think of chat, alone and on a full server.
    """
    alone, full = 100 * cost_of(CHAT).decode_share, 100 * (1 - steady_state(server(), CHAT_MEAN).shares["prefill"])
    answer.says(
        a=f"Lengths alone do not say it. Chat's prompt is 8 times its output, and alone it is {alone:.1f} % decode.",
        b=f"It is about the cost, so it depends on the batch: chat falls from {alone:.1f} % decode to {full:.0f} %.",
        c="No model of this lesson fits there. That holds for every workload, so it sets none apart.",
    )
    return f"{answer}. Chat is {alone:.1f} % decode alone and {full:.0f} % on a full server."


@choice("c")
def quiz_utilisation(answer: Choice) -> str:
    """One reasoning request decodes alone; GPU utilisation reads 100 %. What share of the peak FLOP/s is used?

    a: nearly all
    b: about half
    c: less than 1 %

    - A step at batch 1 does about 1 FLOP for each byte. The ridge point is near 300.
    """
    decode = cost_of(REASONING).decode
    share = 100 * decode.flops / decode.seconds / server().peak
    answer.says(
        a=f"The counter says that some kernel ran all the time, and not what it did: {share:.2f} % are used.",
        b=f"Half would need a batch near half the ridge point. Here it is 1: {share:.2f} % are used.",
        c=f"{share:.2f} %. The kernels run all the time; their arithmetic units wait for memory.",
    )
    return f"{answer}: {share:.2f} %."


@choice("a")
def quiz_prefill_in_tokens(answer: Choice) -> str:
    """What does the prefill of 128 prompt tokens cost at batch 1?

    a: about one decode step
    b: about 128 decode steps
    c: nothing

    - How often does a pass read the weights?
    """
    prefill, step = 1e3 * cost_of(REASONING).ttft, 1e3 * pass_cost(server(), 1, 128).seconds
    answer.says(
        a=f"The weights are read once, as in a step: {prefill:.2f} ms, and a step {step:.2f} ms.",
        b=f"That would read the weights 128 times. One pass takes all prompt tokens: {prefill:.2f} ms.",
        c=f"It still reads all weights once: {prefill:.2f} ms. Next to 12,799 steps that is little.",
    )
    return f"{answer}: {prefill:.2f} ms against {step:.2f} ms."


@choice("a")
def quiz_paging(answer: Choice) -> str:
    """A server of reasoning requests turns paging on and keeps its batch. What gets smaller?

    a: the memory that is set aside and not used
    b: the bytes that a step reads
    c: the bytes that a token adds

    - Paging is about where the tokens lie.
    """
    reads = 100 * steady_state(server(), REASONING).shares["attention"]
    answer.says(
        a=f"Only that. With memory full, reading the cache stays {reads:.0f} % of the GPU time.",
        b="A step reads the tokens that are there, wherever they lie. Paging moves them; it drops none.",
        c="K and V of a token are as large in a page as anywhere else.",
    )
    return f"{answer}. Growth and reading stay as they were."


@number("times", tolerance=0.02)
def quiz_dearer_when_full(answer: Number) -> str:
    """Each on a full server of its own kind: how many chat requests cost the GPU time of one reasoning request?

    - Each step is shared by the whole batch. Reasoning's batch is smaller, and its caches are longer.
    - steady_state(server, request).seconds_per_request, for each of the two: reasoning, and chat's mean lengths.
    """
    chat, reasoning = (steady_state(server(), request).seconds_per_request for request in (CHAT_MEAN, REASONING))
    answer.value = reasoning / chat
    answer.slip(REASONING.output / CHAT.output, "You compared output tokens. Reasoning's are dearer each.")
    answer.slip(
        cost_of(REASONING).seconds / cost_of(CHAT).seconds,
        "That is alone. On full servers a step is shared by far fewer reasoning requests than chat requests.",
    )
    return f"{reasoning:.2f} GPU-seconds against {chat:.4f}: {answer}."


@choice("c")
def quiz_twice_the_flops(answer: Choice) -> str:
    """Reasoning on a full server gets an accelerator with twice the FLOP/s and the same memory. What is gained?

    a: twice the speed
    b: about half as much again
    c: next to nothing

    - Which roof binds the step of a full server?
    """
    bandwidth, compute = _times_faster(more_bandwidth(2)), _times_faster(faster_peak(2))
    answer.says(
        a=f"Twice the bandwidth would give {bandwidth:.2f}. Twice the FLOP/s give {compute:.4f}.",
        b=f"That is more like chat: {_times_faster(faster_peak(2), CHAT_MEAN):.2f}. Reasoning gets {compute:.4f}.",
        c=f"{compute:.4f} times as fast. Only the prefill is compute bound, and it hardly shows.",
    )
    return f"{answer}: {compute:.4f} times. Twice the bandwidth: {bandwidth:.2f} times."


@choice("b")
def quiz_twice_the_batch(answer: Choice) -> str:
    """The batch of reasoning requests goes from 16 to 32. What happens to the output tokens a second?

    a: they double
    b: they rise by about a third
    c: they stay

    - Which bytes of a step does a new request share, and which does it bring along?
    """
    gain = 2 * cost_of(REASONING, 16).seconds / cost_of(REASONING, 32).seconds
    answer.says(
        a=f"Only the reading of the weights is shared. Each new request brings a cache of its own: {gain:.2f} times.",
        b=f"{gain:.2f} times. The weights are shared by more, the caches are not.",
        c=f"The weights are still a part of the step, and that part is shared: {gain:.2f} times.",
    )
    return f"{answer}: {gain:.2f} times."


@number("times", tolerance=0.02)
def quiz_long_prompt(answer: Number) -> str:
    """The prompt grows from 128 to 12,800 tokens, the output stays at 12,800, batch 1. How many times as long does the
    request take?

    - Two things grow: the prefill, and what every step reads of the cache.
    - A token has 131,072 B of cache; 12,672 more of them are 1.66 GB for each step. The weights are 15 GB.
    """
    short, long = cost_of(REASONING), cost_of(LONG_PROMPT)
    answer.value = long.undisturbed / short.undisturbed
    answer.slip(100, "The prompt is 100 times as long. The steps, which cost the time, are as many as before.")
    answer.slip(
        (12_800 + 12_800) / (128 + 12_800),
        "You gave prompt tokens and output tokens the same price. A prompt token shares its pass.",
    )
    answer.slip(
        (long.ttft + short.decode.seconds) / short.undisturbed,
        "That is the prefill alone. The longer cache is also read in every step.",
    )
    return (
        f"From {short.undisturbed:.1f} s to {long.undisturbed:.1f} s: {answer}. Of the difference, prefill is "
        f"{long.ttft - short.ttft:.2f} s."
    )


@choice("b")
def quiz_what_to_quantise(answer: Choice) -> str:
    """A full server of reasoning requests keeps its batch. Which helps more?

    a: 4-bit weights
    b: an fp8 cache
    c: neither helps

    - What does a step of a full server read most of?
    """
    int4, fp8 = _times_faster(INT4), _times_faster(FP8_CACHE)
    answer.says(
        a=f"They help less here, {int4:.2f} against {fp8:.2f}: the caches are most of the bytes.",
        b=f"{fp8:.2f} times, and 4-bit weights {int4:.2f}: caches are most of the bytes.",
        c=f"Both take bytes away, and a step waits for bytes: {int4:.2f} and {fp8:.2f} times.",
    )
    return f"{answer}: {fp8:.2f} times against {int4:.2f}."


@number("times", tolerance=0.03)
def quiz_experts_read(answer: Number) -> str:
    """Qwen3-30B-A3B in bf16, uniform routing: a step at batch 32 reads how many times the weight bytes of a step at
    batch 1?

    - Of 128 experts a token takes 8. How many different ones do 32 tokens take?
    - 128 (1 - (1 - 8/128)**32) experts a layer; the other weights are read once.
    """
    one, many = (pass_cost(mixture(), 1, batch=batch).linear.bytes for batch in (1, 32))
    answer.value = many / one
    answer.slip(1, "That would be a dense model. Each token chooses experts of its own.")
    answer.slip(32, "Tokens share experts, and all share attention and head.")
    return f"{one / 1e9:.2f} GB at batch 1, {many / 1e9:.2f} GB at 32: {answer}."


@choice("c")
def quiz_attention_intensity(answer: Choice) -> str:
    """Which change makes decode attention itself compute bound on an H100?

    a: Llama-3.1-8B at batch 368 instead of 1
    b: Llama-3.1-8B with an fp8 cache
    c: DeepSeek-V3's latent cache (MLA), in fp8, all heads on one device

    - How many query heads use each byte of cache that is read?
    """
    batch, fp8 = _attention_intensity("llama-3.1-8b", "bf16", 368), _attention_intensity("llama-3.1-8b", "fp8")
    mla, ridge = _attention_intensity("deepseek-v3", "fp8"), server().peak / server().bandwidth
    spread = _attention_intensity("deepseek-v3", "fp8", devices=8)
    answer.says(
        a=f"A batch does not change it: {batch:.0f} FLOP/byte at 1 and at 368. Each sequence reads its own cache.",
        b=f"Half the bytes, twice the intensity: {fp8:.0f} FLOP/byte, far under the ridge point of {ridge:.0f}.",
        c=f"{mla:.0f} FLOP/byte, over the ridge point of {ridge:.0f}: all heads share one latent. "
        f"(Spread over 8 devices: {spread:.0f}, memory bound.)",
    )
    return f"{answer}: {mla:.0f} FLOP/byte; the ridge point is {ridge:.0f}."


@choice("b")
def quiz_agent_step(answer: Choice) -> str:
    """An agent step has 103,647 prompt tokens, 99 % of them cached, and 216 output tokens. What takes its time, alone?

    a: the prefill
    b: the decode steps
    c: each about half

    - How many prompt tokens have to be computed?
    """
    agent = load_workload("agent-step").request
    ttft, decode, wait = cost_of(agent).ttft, cost_of(agent).decode.seconds, cost_of(agent).undisturbed
    cold, read = cost_of(Request(agent.prompt, agent.output)).ttft, agent.prompt * server().cache_bytes_per_token
    answer.says(
        a=f"Only {agent.prompt - agent.cached:,} tokens are prefilled: {ttft:.2f} s. The steps take {decode:.2f} s. "
        f"Uncached: {cold:.2f} s.",
        b=f"{decode:.2f} s of {wait:.2f} s. Its steps read {read / 1e9:.0f} GB of cache each, on top of the weights.",
        c=f"Without the cached prefix prefill would rule. With it: prefill {ttft:.2f} s, decode {decode:.2f} s.",
    )
    return f"{answer}: {decode:.2f} s of {wait:.2f} s."


@choice("b")
def quiz_next_turn(answer: Choice) -> str:
    """A thought is dropped before the next turn. What must be prefilled, with prefix caching on?

    a: the new question only
    b: the answer and the new question
    c: everything, the first question too

    - A cached token is valid if everything before it is the same.
    """
    kept, dropped = 1e3 * cost_of(Request(13_028, 500, 12_927)).ttft, 1e3 * cost_of(Request(1_508, 500, 128)).ttft
    answer.says(
        a="The answer's cache was made with the thought before it. Without the thought it is another text.",
        b=f"What stood before the thought is a valid prefix. What came after it is not: {dropped:.1f} ms of prefill.",
        c="The first question stands before the thought. Its cache stays valid.",
    )
    return f"{answer}: {dropped:.1f} ms; with the thought kept {kept:.1f} ms."
