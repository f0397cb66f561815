"""The exercises of notebook 04_what_batching_can_pay_for."""

from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of, mixture, server
from lessonlib.face.exercises.exercises import ChoiceExercise, Exercise, NumberExercise, Slip
from lessonlib.policy.batching import memory_batch, output_token_in_prompt_tokens, parallel_thoughts
from lessonlib.policy.estimates import ridge_tokens
from lessonlib.time.roofline import pass_cost

EXERCISES: tuple[Exercise, ...] = (
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
                lambda: mixture().sizes.resident_bytes / 1e9,
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
)
