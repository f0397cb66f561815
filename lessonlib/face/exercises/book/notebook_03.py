"""The exercises of notebook 03_how_the_kv_cache_grows."""

from lessonlib.face.exercises.book.common import REASONING, cost_of, server
from lessonlib.face.exercises.exercises import Choice, Number, choice, number, predict
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.model.precision import Precision
from lessonlib.policy.cache import answer_traffic, cache_by_kind, span_where_cache_passes_weights, step_parts
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

LAST_STEP = REASONING.output - 1  # the steps are counted from 1
TWICE = Request(REASONING.prompt, 2 * REASONING.output)


def _first_and_last(batch: int, together: bool = False) -> tuple[float, float]:
    """Milliseconds of the first and of the last step of the reasoning answer."""
    first, last = (1e3 * step_parts(server(), REASONING, at, batch, together).seconds for at in (1, LAST_STEP))
    return first, last


def _bytes_that_grow(name: str) -> float:
    """Cache bytes of a token, in 16 bits, in the layers without a window."""
    kinds = Deployment(load_model(name), load_accelerator("h100-sxm")).sizes.kinds
    return sum(kind.cache_bytes for kind in kinds if kind.mixer.held(1e9) == 1e9)


@number("MB", tolerance=0.004)
def alternating_cache(answer: Number) -> str:
    """How many MB of cache does gpt-oss-20b hold for the finished reasoning answer (12,927 tokens, bf16)?

    - Half of its layers keep all tokens, and half keep the last 128. A token takes 2,048 bytes in one layer.
    - Add 12 layers x 2,048 bytes x 12,927 tokens and 12 layers x 2,048 bytes x 128 tokens.
    """
    tokens = REASONING.prompt + REASONING.output - 1
    deployment = Deployment(load_model("gpt-oss-20b"), load_accelerator("h100-sxm"))
    kinds = cache_by_kind(deployment, tokens)
    sliding, full = (kind.bytes / 1e6 for kind in kinds)
    layers, window, whole = (
        kinds[1].layers,
        int(deployment.sizes.kinds[0].mixer.held(1e9)),
        tokens * deployment.cache_bytes_per_token / 1e6,
    )
    answer.value = sliding + full
    answer.slip(whole, "You let every layer keep every token. The sliding layers keep the last 128 only.")
    answer.slip(2 * sliding, "You let every layer slide. Half of them keep all tokens.")
    answer.slip(full, "That is the full layers alone. The sliding ones hold a little, too.")
    return (
        f"{layers} full layers hold {tokens:,} tokens: {full:.1f} MB. {layers} sliding ones hold {window} tokens: "
        f"{sliding:.1f} MB. Together {answer}. Without windows it would be {whole:.1f} MB."
    )


@number("TB")
def cache_of_an_answer(answer: Number) -> str:
    """How many TB of cache do all steps of the reasoning answer read together (128 -> 12,800, batch 1)?

    - Step k finds 128 + k - 1 tokens in the cache. Each takes 131,072 bytes.
    - The sum of 128, 129, ... 12,926 is a triangle on a narrow strip: steps x (first + last) / 2.
    """
    read = answer_traffic(server(), REASONING)
    answer.value = read.triangle / 1e12
    answer.slip(
        read.end / 1e12,
        "You read the cache at its final size in every step. It grows: the first step finds 128 tokens.",
    )
    answer.slip(read.flat / 1e12, "You left the cache as the prompt left it. Every step adds a token to it.")
    return (
        f"{LAST_STEP:,} steps x (128 + 12,926) / 2 tokens x {server().cache_bytes_per_token:,.0f} bytes = {answer}. At "
        f"the final size in every step it would be {read.end / 1e12:.2f} TB."
    )


@number("times")
def sparse_step(answer: Number) -> str:
    """In the last step of the reasoning answer, how many times as much cache does DeepSeek-V3 read as V3.2?

    - Both have the same layers and the same bytes a number, so it is enough to compare the numbers of one layer.
    - V3 reads 576 numbers of each of 12,926 tokens. V3.2 reads 576 of each chosen token, and 128 of all.
    """
    tokens = REASONING.prompt + REASONING.output - 2
    precision, h200 = Precision("fp8", cache="bf16"), load_accelerator("h200-sxm")
    read = [
        {kind: work.cache_read for kind, work in pass_cost(each, 1, tokens).roofs.items() if work.cache_read}
        for name in ("deepseek-v3", "deepseek-v3.2")
        for each in [Deployment(load_model(name), h200, precision, 8, layout="expert")]
    ]
    (dense,), (chosen, keys) = read[0].values(), read[1].values()
    answer.value = dense / (chosen + keys)
    answer.slip(dense / chosen, "You left out the indexer. It reads a key of every token, to find the chosen ones.")
    answer.slip(
        dense / (chosen + keys * chosen / dense),
        "You read the index keys of the chosen tokens only. How would the layer choose them without the keys of all?",
    )
    return (
        f"V3 reads {dense / 1e6:.0f} MB. V3.2 reads {chosen / 1e6:.0f} MB of latents and {keys / 1e6:.0f} MB of index "
        f"keys: more keys than latents. V3 reads {answer} as much."
    )


@number("times")
def last_over_first(answer: Number) -> str:
    """32 reasoning requests start together. How many times as long as the first step is the last?

    - A step reads the weights once, 15.01 GB, and 32 caches of 131,072 bytes a token.
    - The first step meets 129 tokens in each sequence, the last 12,927. Divide bytes by bytes.
    """
    first, last = _first_and_last(32, together=True)
    alone = _first_and_last(1)
    weights = 1e3 * cost_of(REASONING, 32).decode.linear.seconds / LAST_STEP
    answer.value = last / first
    answer.slip(alone[1] / alone[0], "That is one request alone. Here 32 caches grow at the same time.")
    answer.slip(
        (REASONING.prompt + LAST_STEP) / (REASONING.prompt + 1),
        "That is how the cache grows. A step also reads the weights, and they stay as they are.",
    )
    return (
        f"The weights take {weights:.2f} ms in every step. The 32 caches take {first - weights:.2f} ms at first and "
        f"{last - weights:.2f} ms at the end. So the last step is {answer} as long."
    )


@choice("b")
def tpot_near_the_end(answer: Choice) -> str:
    """32 reasoning requests start together. How long does each wait for a token near the end of its answer?

    a: As long as TPOT says.
    b: About 1.6 times TPOT.
    c: About 4.5 times TPOT.

    - TPOT is the average of all steps, and they grow evenly. Which step takes the average?
    - Divide the last step by the mean of the first and the last.
    """
    first, last = _first_and_last(32, together=True)
    mean = (first + last) / 2
    answer.says(
        a=f"TPOT is not constant: it is an average, {mean:.1f} ms, of steps from {first:.1f} to {last:.1f} ms.",
        b=f"{last:.1f} ms over an average of {mean:.1f} ms is {last / mean:.2f}. The first tokens took "
        f"{first / mean:.2f} of TPOT.",
        c=f"That is last over first, {last / first:.2f}. TPOT is the average, not the first step.",
    )
    return f"{answer} The average is {mean:.1f} ms, the last step {last:.1f} ms."


@predict("%")
def steady_last_over_first(answer: Number) -> str:
    """31 neighbours are spread over their answers. By how many per cent is your last step longer than your first?

    - What grows from your first step to your last? One cache out of 32.
    - Compare policy.step_parts(server, reasoning, position, 32).seconds at position 1 and at position 12,799.
    """
    (first, last), together, alone = _first_and_last(32), _first_and_last(32, together=True), _first_and_last(1)
    answer.value = 100 * (last / first - 1)
    answer.slip(
        100 * (together[1] / together[0] - 1),
        "That is the batch that started together: all 32 caches grow at once. Here only yours grows; the "
        "neighbours' are as large on average in your last step as in your first.",
    )
    answer.slip(
        100 * (alone[1] / alone[0] - 1),
        "That is one request alone. With neighbours the step is longer, and your own growth a smaller part.",
    )
    return (
        f"The first takes {first:.2f} ms and the last {last:.2f} ms, which is {answer} longer. Your own cache adds "
        f"{last - first:.2f} ms. Nothing else grows."
    )


@number("tokens")
def cache_passes_weights(answer: Number) -> str:
    """At batch 32, from a span of how many tokens on does a step move more bytes of cache than of weights?

    - A step reads 15.01 GB of weights, whatever the batch.
    - Divide 15.01 GB by 32 sequences x 131,072 bytes.
    """
    weights, each = server().sizes.dense_bytes, server().cache_bytes_per_token
    alone, full = (span_where_cache_passes_weights(server(), batch) or 0 for batch in (1, 32))
    answer.value = full
    answer.slip(alone, "That is the span at batch 1. The weights are read once for all 32, the caches 32 times.")
    answer.slip(
        server().weight_bytes / (32 * each),
        "You counted all the weights that are stored. A step does not read the input embedding.",
    )
    return (
        f"{weights / 1e9:.3f} GB / (32 x {each:,.0f} bytes) = {weights / (32 * each):.1f}, and the first whole span "
        f"above that is {answer}. At batch 1 it would be {alone:,} tokens."
    )


@number("times", tolerance=0.015)
def twice_the_answer(answer: Number) -> str:
    """At batch 16, how many times as long does an answer of 25,600 tokens take as one of 12,800?

    - The weights' part doubles. The caches' part grows with the square of the length.
    - Divide request_cost(server, Request(128, 25_600), 16).seconds by the same with 12_800.
    """
    once, twice = cost_of(REASONING, 16), cost_of(TWICE, 16)
    answer.value = twice.seconds / once.seconds
    answer.slip(2, "Twice the steps, but the later steps are longer than any before.")
    answer.slip(
        4,
        "That would be right if a step read the cache alone: twice the steps, each twice as long on average. The "
        "weights do not grow.",
    )
    answer.slip(
        cost_of(TWICE).seconds / cost_of(REASONING).seconds,
        "That is one request alone. At batch 16 a larger part of a step grows.",
    )
    return (
        f"Reading the weights takes {once.decode.linear.seconds:.0f} s, then {twice.decode.linear.seconds:.0f} s: "
        f"twice as long. Reading the caches takes {once.decode.attention.seconds:.0f} s, then "
        f"{twice.decode.attention.seconds:.0f} s: four times as long. Together they take {answer} as long."
    )


@choice("b")
def what_paging_saves(answer: Choice) -> str:
    """A server changes from contiguous memory to pages of 16 tokens. What happens to the steps of a long answer?

    a: They grow more slowly along the answer.
    b: They stay as they are, at the same batch.
    c: They stop growing, because old pages are not read.

    - Which bytes does paging get rid of: bytes that were read, or bytes that were only reserved?
    """
    answer.says(
        a="A step grows with the tokens in the cache. Which of these tokens would a page keep from being read?",
        b="A step reads every cached token, wherever it lies. Paging frees what nobody used; then more requests fit, "
        "and their caches make every step longer.",
        c="Old tokens are attended to as new ones are. Only a sliding window leaves some out.",
    )
    return f"{answer} Paging gets rid of memory that was reserved and never used. Nobody ever read it."


@choice("a")
def level_then_apart(answer: Choice) -> str:
    """Without a cache gpt-oss-120b and Qwen3-30B-A3B both make about 60 tokens a second here. Which one is faster at
    32,768 tokens of context?

    a: gpt-oss-120b.
    b: Qwen3-30B-A3B.
    c: Neither: both slow down alike.

    - At 32,768 tokens a step reads more cache, and no more weights. Compare the layers that keep all tokens.
    - Half of the layers of gpt-oss-120b have a window of 128 tokens.
    """
    gpt, qwen = _bytes_that_grow("gpt-oss-120b"), _bytes_that_grow("qwen3-30b-a3b")
    answer.says(
        a=f"A cached token takes {gpt:,.0f} bytes in those layers of gpt-oss-120b that keep it, and {qwen:,.0f} bytes "
        "in Qwen3-30B-A3B. The count of parameters plays no part in how a step grows.",
        b="It has fewer parameters, but parameters are not what grows. Compare the bytes of a cached token.",
        c="Reading their weights takes about as long. Reading their caches does not: look at layers, KV heads and "
        "windows.",
    )
    return f"{answer} In its layers that keep all tokens, a token takes {gpt:,.0f} bytes, against {qwen:,.0f}."
