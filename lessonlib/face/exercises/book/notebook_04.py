"""The exercises of notebook 04_what_batching_can_pay_for."""

from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of, mixture, server
from lessonlib.face.exercises.exercises import Choice, Number, choice, number
from lessonlib.facts.workloads import load_workload
from lessonlib.policy.batching import output_token_in_prompt_tokens, parallel_thoughts
from lessonlib.policy.estimates import ridge_tokens
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.time.roofline import pass_cost

CHAT_MEAN = load_workload("chat").mean


@number("requests", tolerance=0.02)
def steady_batch(answer: Number) -> str:
    """How many reasoning requests does the server hold in steady state, each at a place of its own?

    - The mean over an answer is the prompt and half of the output.
    - Memory left / bytes of the mean.
    """
    free, each, held = server().memory_free, server().cache_bytes_per_token, 128 + 6400
    answer.value = memory_batch(server(), REASONING)
    answer.slip(
        server().largest_batch(128 + 12_800),
        "That reserves the whole answer for each from the start. In steady state they hold half of it on average.",
    )
    answer.slip(free / (128 * each), "That counts the prompts only. The answer fills the cache as it is written.")
    return (
        f"{free / 1e9:.2f} GB are left after the weights. A sequence holds {held:,} tokens on average, "
        f"{held * each / 1e9:.3f} GB: {answer}."
    )


@number("GB", tolerance=0.03)
def experts_at_32(answer: Number) -> str:
    """How many GB does a step of Qwen3-30B-A3B read at batch 32, in bf16, caches apart?

    - Of 128 experts, a token leaves a given one idle with probability 1 - 8/128.
    - E (1 - (1 - k/E)**32).
    """
    one, many = (pass_cost(mixture(), 1, batch=batch).linear.bytes / 1e9 for batch in (1, 32))
    idle = (1 - 8 / 128) ** 32
    answer.value = many
    answer.slip(
        one,
        "That is one token's experts. 32 tokens choose for themselves, and together they wake most of the experts.",
    )
    answer.slip(
        mixture().sizes.resident_bytes / 1e9,
        "That is all that is stored. A few experts are left over, and the input embedding is looked up.",
    )
    return (
        f"A given expert stays idle through 32 tokens with probability {idle:.3f}, so {128 * (1 - idle):.0f} of 128 "
        f"are read in each layer. With all the rest that is {answer}; one token alone reads {one:.2f} GB."
    )


@number("times one answer", tolerance=0.02)
def sixteen_thoughts(answer: Number) -> str:
    """Sixteen answers to one reasoning prompt, decoded together: how many times the GPU time of one?

    - At batch 1 the cache is about a twentieth of the bytes.
    - Weights once, caches sixteen times.
    """
    cache = cost_of(REASONING).decode.attention.seconds / cost_of(REASONING).seconds
    answer.value = parallel_thoughts(server(), REASONING, 16)
    answer.slip(16, "They share every read of the weights. Only the caches are read sixteen times.")
    answer.slip(1, "Each thought reads a cache of its own. That part is paid sixteen times.")
    return f"Of one answer's time {cache:.1%} is the cache. 1 + 15 x {cache:.4f} = {answer}."


@number("prompt tokens", tolerance=0.03)
def output_token_price(answer: Number) -> str:
    """At batch 1, how many prompt tokens (of a 1,024-token prefill) cost as much as one output token of chat?

    - A step takes about as long as streaming the weights.
    - One prompt token takes prefill / 1,024.
    """
    step, token = cost_of(CHAT).tpot, pass_cost(server(), 1024).seconds / 1024
    answer.value = output_token_in_prompt_tokens(server(), CHAT, 1)
    answer.slip(
        output_token_in_prompt_tokens(server(), CHAT_MEAN, full := memory_batch(server(), CHAT_MEAN)),
        f"That is the price on a full chat server, where {full} requests share the weights.",
    )
    answer.slip(ridge_tokens(server()), "That is the ridge: close, but a step also reads its cache.")
    return f"A step takes {1e3 * step:.3f} ms, a prompt token {1e6 * token:.2f} microseconds: {answer}."


@choice("b")
def wall_before_roof(answer: Choice) -> str:
    """The GPU gets twice the memory. What happens to the GPU time of one reasoning request?

    a: it halves
    b: it falls a little
    c: it stays exactly the same

    - Which part of a step does a larger batch share out?
    """
    full = steady_state(server(), REASONING)
    limit, share, rest = full.batch, full.shares["attention"], full.shares["linear"]
    answer.says(
        a="A batch twice as large halves each one's share of the weights. The caches are not shared, and at batch "
        f"{limit} they are {share:.0%} of a step.",
        b=f"The weights' share falls, the caches' does not: at batch {limit} the caches are {share:.0%} of a step "
        "already.",
        c=f"The weights are shared by more requests, so something is saved: but only on their {rest:.0%} of a step.",
    )
    return f"{answer}. At batch {limit} the caches take {share:.0%} of the steps, and batching never divides a cache."
