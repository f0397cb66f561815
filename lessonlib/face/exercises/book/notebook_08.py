"""The exercises of notebook 08_predicted_and_published."""

from statistics import median

from lessonlib.face.exercises.book.common import server
from lessonlib.face.exercises.exercises import Choice, Number, choice, number
from lessonlib.facts.catalogue import load_accelerator
from lessonlib.measured.efficiency import decode_fits, decode_search
from lessonlib.measured.published import SUSPECTS, deployment_of, point_of, published_row


def _fractions(memory_class: str) -> list[float]:
    """Floor over measured time of the rows of one sequence on one device."""
    return [point.fraction for point in decode_search().points if point.memory_class == memory_class]


def _step_by_two_numbers(accelerator: str) -> float:
    """Seconds of a step of Llama-3.1-8B in bf16 that reads its weights, by the two numbers from all publishers."""
    fit = decode_fits()[()]
    streamed = server().sizes.dense_bytes / load_accelerator(accelerator).bandwidth
    return streamed / fit.fraction + fit.overhead


@number("%")
def reached_on_an_a6000(answer: Number) -> str:
    """Llama 3 8B in fp16 on an RTX A6000: 40.25 tokens a second were published. Its bandwidth is 768 GB/s. What per
    cent of the bandwidth was reached?

    - Bytes a second are bytes a step times steps a second. A step reads what `step.linear.bytes` says.
    - point_of(row).fraction is floor over measured time; the cache, still small, is in it.
    """
    row = published_row("m0280")
    point, deployment = point_of(row), deployment_of(row)
    table = point.passes * (deployment.weight_bytes - deployment.sizes.dense_bytes) / deployment.bandwidth
    answer.value = 100 * point.floor / point.measured
    answer.slip(
        100 * (point.floor + table) / point.measured,
        "You streamed the whole file. The input embedding is a look-up: one row a token.",
    )
    floor = 1e3 * point.floor / point.passes
    return f"The floor of a step is {floor:.2f} ms, the measured time {1e3 / row.value:.2f} ms: {answer}."


@number("%", tolerance=0.1)
def fraction_on_hbm(answer: Number) -> str:
    """Published decode steps of one sequence, on one device with HBM: what per cent of the datasheet's bandwidth do
    they reach in the median?

    - Faster memory makes shorter steps. What else is in a step, that no memory makes shorter?
    - Median of point.fraction over the points of decode_search() whose memory_class is HBM.
    """
    hbm, gddr, unified = (100 * median(_fractions(name)) for name in ("HBM", "GDDR", "unified"))
    answer.value = hbm
    answer.slip(100, "That is the datasheet, or near it. Hardly anybody measures that.")
    return f"{len(_fractions('HBM'))} rows on HBM, median {answer}. GDDR: {gddr:.0f} %, unified: {unified:.0f} %."


@choice("b")
def which_row_is_impossible(answer: Choice) -> str:
    """Five published rows of Qwen2-7B in fp16 on H100s, one engine. Which one cannot be true?

    a: one device, 64 sequences, 128 -> 128
    b: one device, 16 sequences, 2,048 -> 2,048
    c: four devices, 64 sequences, 128 -> 128
    d: one device, 1 sequence, 128 -> 128
    e: two devices, 16 sequences, 128 -> 128

    - Forget the batch. How many steps does each row take, and what does each step read at least?
    - A step reads 14 GB of weights at 3.35 TB/s, more than 4 ms. Multiply by output - 1.
    """
    a, b, c, d, e = (point_of(published_row(SUSPECTS[letter])) for letter in "abcde")
    answer.says(
        a=f"Many sequences, few steps: its floor is {a.floor:.2f} s, and {a.measured:.2f} s were measured.",
        b=f"Its floor is {b.floor:.1f} s, and {b.measured:.2f} s are claimed. There is no time for 2,047 steps in it.",
        c=f"Four devices read four times as fast: its floor is {c.floor:.2f} s, and {c.measured:.2f} s were measured.",
        d=f"Possible: its floor is {d.floor:.2f} s, and {d.measured:.2f} s were measured.",
        e=f"Possible: its floor is {e.floor:.2f} s, and {e.measured:.2f} s were measured.",
    )
    return f"{answer}: {b.measured:.2f} s claimed, at least {b.floor:.1f} s needed."


@number("steps", tolerance=0.02)
def steps_that_fit(answer: Number) -> str:
    """The same source has 64 sequences, 2,048 -> 2,048, in 3.3922 s. For how many decode steps at most was there time,
    if each reads the weights and nothing else?

    - The batch does not matter here: one step serves all 64 sequences.
    - deployment_of(published_row("m2267")): its .sizes.dense_bytes a step, over its .bandwidth.
    """
    row = published_row("m2267")
    deployment = deployment_of(row)
    weights, step = deployment.sizes.dense_bytes, deployment.sizes.dense_bytes / deployment.bandwidth
    answer.value = row.value / step
    answer.slip(
        row.value / (deployment.weight_bytes / deployment.bandwidth),
        "You streamed the embedding too. It is looked up: only rows of it are read.",
    )
    answer.slip(
        row.value / step / 64,
        "You read the weights once for each sequence. A step reads them once for the whole batch.",
    )
    return (
        f"A step reads {weights / 1e9:.2f} GB in at least {1e3 * step:.2f} ms: {answer} of the 2,047. The answers were "
        "cut short, or the time is another's."
    )


@number("times")
def faster_memory(answer: Number) -> str:
    """A B200 has 8 TB/s, an H100 3.35. Llama-3.1-8B in bf16, one sequence, empty cache: how many times faster is a step
    on the B200, by the two numbers?

    - A step is bytes / (fraction x bandwidth) + overhead. Only the first part gets shorter.
    - fit.fraction and fit.overhead are the two numbers; step.linear.bytes the bytes.
    """
    h100, b200 = _step_by_two_numbers("h100-sxm"), _step_by_two_numbers("b200")
    answer.value = h100 / b200
    answer.slip(
        load_accelerator("b200").bandwidth / load_accelerator("h100-sxm").bandwidth,
        "That is the ratio of the datasheets. The overhead of a step stays what it was.",
    )
    return f"H100 {1e3 * h100:.2f} ms, B200 {1e3 * b200:.2f} ms: {answer}."


@number("%")
def slope_of_the_cache(answer: Number) -> str:
    """On a B200 a step of Llama-3.1-8B grew by 0.000018 ms with each token of context, cache in bf16. At what per cent
    of 8 TB/s was the cache read?

    - One token more of context is that token's K and V more to read, in every layer.
    - deployment_of(published_row("m2815")).cache_bytes_per_token over 8 TB/s is the floor of the slope.
    """
    row = published_row("m2815")  # its value is the slope, in seconds for a token
    each, bandwidth = deployment_of(row).cache_bytes_per_token, deployment_of(row).bandwidth
    percent = 100 * each / bandwidth / row.value
    answer.value = percent
    answer.slip(percent / 2, "You counted K only, or one byte a number. K and V, two bytes each.")
    answer.slip(4 * percent, "You counted all query heads. The cache has KV heads only.")
    return f"A token has {each:,.0f} B of cache. At 8 TB/s that is {1e3 * each / bandwidth:.3g} ms: {answer}."


@number("times", tolerance=0.15)
def eight_devices(answer: Number) -> str:
    """Llama-2-7B in bf16, one sequence: on one A100, then split over eight. How many times faster was it measured to be
    on eight?

    - On one device a step took 9.5 ms, some 2 of them overhead. Only the reading shrinks to an eighth.
    - The overhead stays, and two all-reduces a layer are new: each of them waits.
    """
    one, eight = published_row("m1349").value, published_row("m1369").value  # Llama-2-7B in bf16 on so many A100
    answer.value = eight / one
    answer.slip(8, "That is what the datasheet gives: an eighth of the bytes for each device.")
    return f"{one:.1f} tokens a second on one, {eight:.1f} on eight: {answer}."
