"""The exercises of notebook 09_common_questions: a quiz on a model and a GPU that no notebook used before.

Each knows the notebook to read again where its first answer is wrong.
"""

from dataclasses import replace
from functools import cache

from lessonlib.face.exercises.book.common import CHAT, FP8_CACHE, INT4, REASONING, smallest_compute_bound_prompt
from lessonlib.face.exercises.exercises import Choice, Number, choice, predict
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.workloads import load_workload
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.policy.cache import span_where_cache_passes_weights
from lessonlib.policy.full_server import SteadyState, steady_state
from lessonlib.policy.levers import Lever, faster_peak
from lessonlib.request.cost import RequestCost, request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost


@cache
def machine(model: str = "phi-4") -> Deployment:
    """The server of the quiz, in bf16."""
    return Deployment(load_model(model), load_accelerator("mi300x"))


@cache
def alone(request: Request) -> RequestCost:
    return request_cost(machine(), request)


@cache
def full(request: Request) -> SteadyState:
    return steady_state(machine(), request)


def _times_faster(lever: Lever) -> float:
    """What a lever does for a full server of reasoning requests that keeps its batch."""
    return lever.speedup(machine(), REASONING, full(REASONING).batch)


@predict("tokens", again="01")
def quiz_compute_bound_prompt(answer: Number) -> str:
    """At batch 1, how many tokens long is the shortest prompt whose linear layers are compute bound?

    - A prompt of n tokens computes about n FLOP for each byte of bf16 weights.
    - Divide the peak by the bandwidth.
    """
    answer.value = smallest_compute_bound_prompt(machine())
    answer.slip(smallest_compute_bound_prompt(), "That is the prompt for an H100. This GPU has another ridge point.")
    return (
        f"It has {answer}. The ridge point is {machine().peak / machine().bandwidth:.1f} FLOP/byte, and in bf16 a "
        "token does about 1 FLOP for each byte of weights."
    )


@choice("c", again="01")
def quiz_utilisation(answer: Choice) -> str:
    """One reasoning request decodes alone, and GPU utilisation reads 100 %. What share of the peak FLOP/s is used?

    a: nearly 100 %
    b: about 50 %
    c: about 0.5 %

    - A step at batch 1 does about 1 FLOP for each byte. Where is the ridge point?
    """
    decode = alone(REASONING).decode
    share = 100 * decode.flops / decode.seconds / machine().peak
    answer.says(
        a=f"The counter says that some kernel ran all the time, and not what it did: {share:.2f} % of the peak is "
        "used.",
        b=f"Half the peak would need a batch near half the ridge point. At batch 1, {share:.2f} % of it is used.",
        c=f"It is {share:.2f} %. Kernels run all the time, and their arithmetic units wait for memory.",
    )
    return f"{answer}. It is {share:.2f} %."


@predict("s", again="02")
def quiz_reasoning_seconds(answer: Number) -> str:
    """How many seconds does one reasoning request take alone, from its prompt to its last token, at the floor?

    - Every step reads all weights. How many seconds is that, and how many steps are there?
    - Add the cache: on average a step reads some 6,500 tokens of it.
    """
    cost = alone(REASONING)
    short, long = (1e3 * pass_cost(machine(), 1, tokens).seconds for tokens in (128, 12_926))
    answer.value = cost.undisturbed
    return (
        f"Its 12,799 steps take from {short:.2f} ms to {long:.2f} ms each, and the prefill is one more pass: {answer}."
    )


@choice("c", again="02")
def quiz_chat_alone(answer: Choice) -> str:
    """Chat's median request runs alone. What share of its seconds is decode?

    a: about 10 %
    b: about 50 %
    c: about 95 %

    - Count passes over the weights, not tokens.
    """
    cost = alone(CHAT)
    share, flops = 100 * cost.decode_share, 100 * cost.decode.flops / cost.flops
    steps = cost.ttft / (cost.decode.seconds / (CHAT.output - 1))
    answer.says(
        a=f"That is decode's share of the FLOPs, {flops:.1f} %. In seconds it is {share:.1f} %.",
        b=f"The prompt takes as long as {steps:.1f} steps, and there are 127 steps: decode is {share:.1f} %.",
        c=f"It is {share:.1f} %, for the prompt takes as long as {steps:.1f} of the 127 steps.",
    )
    return f"{answer}. It is {share:.1f} %."


@predict("tokens", again="03")
def quiz_cache_passes_weights(answer: Number) -> str:
    """At batch 24, from a context of how many tokens on does a step read more bytes of cache than of weights?

    - Divide the bytes of the weights by the bytes that one token takes in each of the 24 sequences together.
    """
    one, answer.value = (float(span_where_cache_passes_weights(machine(), batch) or 0) for batch in (1, 24))
    answer.slip(one, "That is batch 1. Here each of 24 sequences reads a cache of its own.")
    return (
        f"A token adds {machine().cache_bytes_per_token:,.0f} B in each of the 24 sequences, and the weights are read "
        f"once for all: {answer}."
    )


@choice("a", again="03")
def quiz_paging(answer: Choice) -> str:
    """A server of reasoning requests turns paging on and keeps its batch. What gets smaller?

    a: the memory that is set aside and not used
    b: the bytes that a step reads
    c: the bytes that a token adds

    - Paging changes where the tokens lie. Does it change how many there are?
    """
    reads = 100 * full(REASONING).shares["attention"]
    answer.says(
        a=f"Only that gets smaller. With memory full, reading caches stays {reads:.0f} % of the GPU time.",
        b="A step reads the tokens that are there, wherever they lie. Paging moves them; it drops none.",
        c="The K and V of a token are as large in a page as anywhere else.",
    )
    return f"{answer}. Growth and reading stay as they were."


@predict("requests", again="04")
def quiz_memory_batch(answer: Number) -> str:
    """How many reasoning requests does memory hold at a time, each at its own place in its answer?

    - Free memory is 90 % of all memory, less the weights.
    - A request holds its prompt and, on average, half of its answer.
    """
    answer.value = full(REASONING).batch
    end = machine().memory_free // machine().sequence_bytes(float(REASONING.prompt + REASONING.output))
    answer.slip(
        end, "That counts each at its full length. Requests come and go, so on average half of the answer is there."
    )
    return (
        f"{machine().memory_free / 1e9:.1f} GB are free, and a request holds {REASONING.prompt + 6_400:,} tokens of "
        f"{machine().cache_bytes_per_token:,.0f} B on average: {answer}."
    )


@choice("b", again="04")
def quiz_twice_the_batch(answer: Choice) -> str:
    """The batch of reasoning requests goes from 16 to 32. How many times as many output tokens a second is that?

    a: 2.0
    b: 1.4
    c: 1.0

    - Which bytes of a step does a new request share, and which does it bring along?
    """
    rates = [steady_state(machine(), REASONING, batch).tokens_per_second for batch in (16, 32)]
    gain = rates[1] / rates[0]
    answer.says(
        a=f"Only the reading of the weights is shared. Each new request brings a cache of its own, so it is {gain:.2f} "
        "times.",
        b=f"It is {gain:.2f} times. More requests share the weights, and none shares a cache.",
        c=f"Reading the weights is still a part of the step, and that part is shared: it is {gain:.2f} times.",
    )
    return f"{answer}. It is {gain:.2f} times."


@predict("times", again="04")
def quiz_experts_read(answer: Number) -> str:
    """Mixtral 8x7B chooses 2 of 8 experts for each token. With uniform routing, how many times as many bytes of weights
    does a step read at batch 8 as at batch 1?

    - An expert is read if any of the 8 tokens takes it.
    - It reads 8 (1 - (1 - 2/8)**8) experts in a layer, and nearly all weights are in experts.
    """
    one, many = (pass_cost(machine("mixtral-8x7b"), 1, batch=batch).linear.bytes for batch in (1, 8))
    answer.value = many / one
    answer.slip(8, "That would be right if tokens shared no expert, and neither attention nor head.")
    answer.slip(1, "That would be right for a dense model. Here each token chooses experts of its own.")
    return (
        f"It reads {one / 1e9:.1f} GB at batch 1 and {many / 1e9:.1f} GB at batch 8: {answer} as many. Nearly all of "
        "the 8 experts of a layer are chosen by some token."
    )


@choice("b", again="05")
def quiz_free_prefill(answer: Choice) -> str:
    """A full server of chat requests of the mean lengths gets a prefill that takes no time. What share of GPU time is
    saved?

    a: about 3 %
    b: about 60 %
    c: about 85 %

    - Hundreds of requests share a step. How many share a prompt?
    """
    mean = load_workload("chat").mean
    share = 100 * full(mean).shares["prefill"]
    cost = alone(mean)
    single, flops = 100 * (1 - cost.decode_share), 100 * cost.prefill.flops / cost.flops
    answer.says(
        a=f"One request alone would save so little, {single:.1f} %. With {full(mean).batch} under way it is "
        f"{share:.0f} %.",
        b=f"It is {share:.0f} %, with {full(mean).batch} under way. Alone it would be {single:.1f} %.",
        c=f"That is prefill's share of the FLOPs, {flops:.0f} %. Of the time it is {share:.0f} %.",
    )
    return f"{answer}. It is {share:.0f} %."


@choice("b", again="06")
def quiz_which_lever(answer: Choice) -> str:
    """A full server of reasoning requests keeps its batch. Which of these makes it fastest?

    a: 4-bit weights
    b: an fp8 cache
    c: twice the FLOP/s

    - What does a step of a full server read most of?
    """
    int4, fp8, peak = map(_times_faster, (INT4, FP8_CACHE, faster_peak(2)))
    answer.says(
        a=f"They make it {int4:.2f} times as fast, and an fp8 cache {fp8:.2f} times: caches are most of the bytes.",
        b=f"It makes it {fp8:.2f} times as fast, and 4-bit weights {int4:.2f} times: caches are most of the bytes.",
        c=f"Only prefill is compute bound, and it hardly counts: {peak:.4f} times as fast. An fp8 cache gives "
        f"{fp8:.2f}.",
    )
    return f"{answer}. It makes it {fp8:.2f} times as fast, against {int4:.2f} and {peak:.4f} times."


@choice("b", again="08")
def quiz_what_to_plan_with(answer: Choice) -> str:
    """At batch 1, how many times its floor should you plan for a decode step to take?

    a: 1.0
    b: 1.6
    c: 5.0

    - An MI300X has HBM. What share of the bandwidth did published measurements reach there, in the median?
    """
    typical, floor = typical_efficiency("mi300x"), pass_cost(machine(), 1, 128).seconds
    low, middle, high = (
        pass_cost(replace(machine(), efficiency=one), 1, 128).seconds / floor
        for one in (typical.low, typical.middle, typical.high)
    )
    answer.says(
        a=f"No engine beats the floor, and few come near it: the middle of the typical range is {middle:.1f} times.",
        b=f"It is {middle:.1f} times at the middle of the typical range, and {high:.1f} to {low:.1f} times in the "
        "range.",
        c=f"The slow end of the typical range is {low:.1f} times, and its middle {middle:.1f} times.",
    )
    return f"{answer}. It is {middle:.2f} times, in a range from {high:.2f} to {low:.2f}."
