"""The exercises of notebook 08_predicted_and_published."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from lessonlib.face.exercises.book.common import INT4, REASONING, server
from lessonlib.face.exercises.exercises import Choice, Number, choice, number, predict
from lessonlib.facts.catalogue import load_accelerator
from lessonlib.facts.workloads import load_workload
from lessonlib.measured.calibration import relative_errors
from lessonlib.measured.efficiency import decode_fits, decode_search, typical_efficiency
from lessonlib.measured.published import SUSPECTS, deployment_of, point_of, published_row
from lessonlib.policy.full_server import memory_batch
from lessonlib.policy.levers import quantised
from lessonlib.request.cost import request_cost
from lessonlib.time.deployment import Efficiency


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

    - Bytes a second are bytes a step times steps a second. The cell above prints the bytes of a step in the middle.
    - In code it is point_of(a6000).fraction: floor over measured time. The cache, still small, is in it.
    """
    row = published_row("m0280")
    point, deployment = point_of(row), deployment_of(row)
    table = point.passes * (deployment.weight_bytes - deployment.sizes.dense_bytes) / deployment.bandwidth
    answer.value = 100 * point.floor / point.measured
    answer.slip(
        100 * (point.floor + table) / point.measured,
        "You streamed the whole file. The input embedding is only looked up: one row for each token.",
    )
    floor = 1e3 * point.floor / point.passes
    return f"The floor of a step is {floor:.2f} ms, and the measured time {1e3 / row.value:.2f} ms: {answer}."


@predict("%")
def fraction_on_hbm(answer: Number) -> str:
    """In published measurements, what per cent of the datasheet's bandwidth does decode of one sequence, on one device
    with HBM, reach in the median?

    - Faster memory makes shorter steps. What else is in a step that no memory makes shorter?
    - The RTX A6000 above, whose steps are longer, reached about four fifths. Expect less here.
    - In code it is the median of point.fraction over the points of decode_search() whose memory_class is HBM.
    """
    hbm, gddr, unified = (100 * median(_fractions(name)) for name in ("HBM", "GDDR", "unified"))
    answer.value = hbm
    answer.slip(100, "That is the datasheet itself. Nobody measures that.")
    return (
        f"The {len(_fractions('HBM'))} rows on HBM reach {answer} in the median, GDDR {gddr:.0f} % and unified memory "
        f"{unified:.0f} %."
    )


@choice("b")
def which_row_is_impossible(answer: Choice) -> str:
    """Five published rows are of Qwen2-7B in fp16 on H100s, with one engine. Which one cannot be true?

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
        c=f"Four devices read four times as fast. Its floor is {c.floor:.2f} s, and {c.measured:.2f} s were measured.",
        d=f"It is possible. Its floor is {d.floor:.2f} s, and {d.measured:.2f} s were measured.",
        e=f"It is possible. Its floor is {e.floor:.2f} s, and {e.measured:.2f} s were measured.",
    )
    return f"{answer}. It claims {b.measured:.2f} s, and needs {b.floor:.1f} s at least."


@number("times")
def faster_memory(answer: Number) -> str:
    """A B200 reads 7.7 TB/s, an H100 3.35. Llama-3.1-8B in bf16 decodes one sequence with an empty cache. By the two
    numbers, how many times as fast is a step on the B200?

    - A step is bytes / (fraction x bandwidth) + overhead. Only the first part gets shorter.
    - The two numbers are in the row "all" of the table, and a step reads 15.01 GB of weights.
    """
    h100, b200 = _step_by_two_numbers("h100-sxm"), _step_by_two_numbers("b200")
    answer.value = h100 / b200
    answer.slip(
        load_accelerator("b200").bandwidth / load_accelerator("h100-sxm").bandwidth,
        "That is the ratio of the datasheets. The overhead of a step stays what it was.",
    )
    return f"A step takes {1e3 * h100:.2f} ms on an H100 and {1e3 * b200:.2f} ms on a B200: {answer} as fast."


@number("%")
def slope_of_the_cache(answer: Number) -> str:
    """On a B200 (7.7 TB/s) a step of Llama-3.1-8B grew by 18 ns with each token of context, whose cache is in bf16. At
    what per cent of the bandwidth was the cache read?

    - One token more of context is that token's K and V more to read, in every layer.
    - The floor of the slope is deployment_of(published_row("m2815")).cache_bytes_per_token over 7.7 TB/s.
    """
    row = published_row("m2815")  # its value is the slope, in seconds for a token
    each, bandwidth = deployment_of(row).cache_bytes_per_token, deployment_of(row).bandwidth
    percent = 100 * each / bandwidth / row.value
    answer.value = percent
    answer.slip(percent / 2, "You counted K without V, or one byte a number. In bf16 a number has two.")
    answer.slip(4 * percent, "You counted all query heads. The cache has the KV heads only.")
    return (
        f"A token has {each:,.0f} B of cache. At {bandwidth / 1e12:.1f} TB/s they take {1e9 * each / bandwidth:.2f} "
        f"ns, which is {answer} of {1e9 * row.value:.0f} ns."
    )


@predict("ms")
def eight_devices(answer: Number) -> str:
    """Llama-2-7B in bf16 decodes one sequence. On one A100 a step was measured to take 9.5 ms. How many milliseconds
    did it take, split over eight?

    - Some 2 ms of the 9.5 are overhead. Only the reading shrinks to an eighth.
    - The overhead stays, and each layer now waits for two all-reduces.
    """
    one, eight = (1e3 / published_row(name).value for name in ("m1349", "m1369"))  # Llama-2-7B in bf16 on so many A100
    answer.value = eight
    answer.slip(one / 8, "That is what the datasheets say: an eighth of the bytes for each device.")
    return f"It took {answer}, {one / eight:.1f} times as fast: the overhead stays, and all-reduces come on top."


@predict("%", tolerance=0.3)
def unseen_publishers(answer: Number) -> str:
    """The two numbers are fitted on half of the publishers. By what per cent are they off in the median on the half
    that they have not seen?

    - They were off by 6.6 % on what they were fitted to. Other publishers have other engines.
    - The error on the unseen half is larger, but less than twice as large.
    """
    search = decode_search()
    seen = search.alternate()
    ratios = search.judged(seen)["two numbers"]
    fitted, unseen = (100 * relative_errors(ratios[half]).median for half in (seen, ~seen))
    answer.value = unseen
    answer.slip(fitted, "That is the error on what they were fitted to. What was not seen is harder.")
    return f"The two numbers are off by {fitted:.1f} % on the publishers that they saw, and by {answer} on the others."


@predict("s")
def reasoning_on_an_a100(answer: Number) -> str:
    """By the two numbers, how many seconds does the reasoning request (128 -> 12,800) take, alone on one A100?

    - The reading of all steps takes 99.6 s at the full bandwidth. Divide it by the fraction.
    - Add the overhead of 12,799 steps.
    """
    floor = replace(server(), accelerator=load_accelerator("a100-sxm-80gb"))
    typical = typical_efficiency("a100-sxm-80gb").middle
    answer.value = request_cost(replace(floor, efficiency=typical), REASONING).undisturbed
    least = request_cost(floor, REASONING).undisturbed
    answer.slip(least, "That is the floor: the full bandwidth, and no overhead.")
    answer.slip(least / typical.mbu, "You forgot the overhead, which every step has.")
    return (
        f"{least:.1f} s of reading at {typical.mbu:.2f} of the bandwidth are {least / typical.mbu:.0f} s, and the "
        f"steps have {(REASONING.output - 1) * typical.overhead:.0f} s of overhead; with the computing it is {answer}."
    )


def _turns(efficiency: Efficiency) -> Iterator[int]:
    """The batches of chat's mean requests at which W8A8 is faster than int4 weights."""
    machine, chat, w8a8 = replace(server(), efficiency=efficiency), load_workload("chat").mean, quantised(blocks="fp8")
    batches = range(1, memory_batch(machine, chat) + 1)
    return (b for b in batches if w8a8.speedup(machine, chat, b) > INT4.speedup(machine, chat, b))


@predict("requests", tolerance=0.3)
def levers_change_places(answer: Number) -> str:
    """At the floor W8A8 gains more than int4 weights do on a chat server from a batch of 26 on. From which batch on
    does it at the middle of the typical range?

    - A typical server reaches about 0.8 of the bandwidth, and less than half of the peak.
    - So computing becomes the longer part from a smaller batch on, and W8A8 is the lever that halves it.
    """
    typical = typical_efficiency("h100-sxm").middle
    floor, answer.value = next(_turns(Efficiency())), float(next(_turns(typical)))
    answer.slip(floor, "That is the batch at the floor. Real servers lose more of the FLOP/s than of the bandwidth.")
    return (
        f"They change places not at {floor} but at {answer}: a typical server reaches {typical.mfu:.2f} of the peak "
        f"and {typical.mbu:.2f} of the bandwidth, so FLOPs count sooner."
    )
