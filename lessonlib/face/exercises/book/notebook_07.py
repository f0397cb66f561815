"""The exercises of notebook 07_predicted_and_published."""

from statistics import median
from typing import Any

from lessonlib.face.exercises.book.common import server
from lessonlib.face.exercises.exercises import ChoiceExercise, Exercise, NumberExercise, Slip
from lessonlib.facts.catalogue import load_accelerator
from lessonlib.measured.efficiency import decode_fits, decode_search
from lessonlib.measured.published import SUSPECTS, deployment_of, point_of, published_row


def _fractions(memory_class: str) -> list[float]:
    """Floor over measured time of the rows of one sequence on one device."""
    return [point.fraction for point in decode_search().points if point.memory_class == memory_class]


def _reached_percent(embedding: bool = False) -> float:
    """Percent of its bandwidth that an RTX A6000 reached on Llama 3 8B in fp16; `embedding`: the table streamed too."""
    point, deployment = point_of(published_row("m0280")), deployment_of(published_row("m0280"))
    table = deployment.weight_bytes - deployment.sizes.dense_bytes
    more = point.passes * table / deployment.bandwidth if embedding else 0.0
    return 100 * (point.floor + more) / point.measured


def _suspects() -> dict[str, Any]:
    points = {letter: point_of(published_row(name)) for letter, name in SUSPECTS.items()}
    floors = {f"{letter}_floor": point.floor for letter, point in points.items()}
    return floors | {letter: point.measured for letter, point in points.items()}


def _steps_that_fit(embedding: bool = False) -> float:
    """Steps of the published batch of 64 that its 3.4 s had time for, if each reads the weights and nothing else."""
    row = published_row("m2267")
    deployment = deployment_of(row)
    streamed = deployment.weight_bytes if embedding else deployment.sizes.dense_bytes
    return row.value / (streamed / deployment.bandwidth)


def _slope_percent(kappa: float = 1.0) -> float:
    """Percent of a B200's bandwidth at which the published slope reads the cache, its bytes a token times `kappa`."""
    row = published_row("m2815")
    deployment = deployment_of(row)
    return 100 * kappa * deployment.cache_bytes_per_token / deployment.bandwidth / row.value


def _step_by_two_numbers(accelerator: str) -> float:
    """Seconds of a step of Llama-3.1-8B in bf16 that reads its weights, by the two numbers from all publishers."""
    fit = decode_fits()[()]
    streamed = server().sizes.dense_bytes / load_accelerator(accelerator).bandwidth
    return streamed / fit.fraction + fit.overhead


EIGHT = {1: "m1349", 2: "m1365", 4: "m1367", 8: "m1369"}  # Llama-2-7B in bf16 on so many A100


EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        key="reached-on-an-a6000",
        notebook="07_predicted_and_published",
        question=(
            "Llama 3 8B in fp16 on an RTX A6000: 40.25 tokens a second were published. Its bandwidth is 768 GB/s. "
            "What per cent of the bandwidth was reached?"
        ),
        unit="%",
        expected=_reached_percent,
        slips=(
            Slip(
                lambda: _reached_percent(embedding=True),
                "You streamed the whole file. The input embedding is a look-up: one row a token.",
            ),
        ),
        hints=(
            "Bytes a second are bytes a step times steps a second. A step reads what `step.linear.bytes` says.",
            "point_of(row).fraction is floor over measured time; the cache, still small, is in it.",
        ),
        solution="The floor of a step is {floor:.2f} ms, the measured time {measured:.2f} ms: {answer}.",
        numbers=lambda: {
            "floor": 1e3 * point_of(published_row("m0280")).floor / point_of(published_row("m0280")).passes,
            "measured": 1e3 / published_row("m0280").value,
        },
    ),
    NumberExercise(
        key="fraction-on-hbm",
        notebook="07_predicted_and_published",
        question=(
            "Published decode steps of one sequence, on one device with HBM: what per cent of the datasheet's "
            "bandwidth do they reach in the median?"
        ),
        unit="%",
        tolerance=0.1,
        expected=lambda: 100 * median(_fractions("HBM")),
        slips=(Slip(lambda: 100.0, "That is the datasheet, or near it. Hardly anybody measures that."),),
        hints=(
            "Faster memory makes shorter steps. What else is in a step, that no memory makes shorter?",
            "Median of point.fraction over the points of decode_search() whose memory_class is HBM.",
        ),
        solution="{count} rows on HBM, median {answer}. GDDR: {gddr:.0f} %, unified: {unified:.0f} %.",
        numbers=lambda: {
            "count": len(_fractions("HBM")),
            "gddr": 100 * median(_fractions("GDDR")),
            "unified": 100 * median(_fractions("unified")),
        },
    ),
    ChoiceExercise(
        key="which-row-is-impossible",
        notebook="07_predicted_and_published",
        question="Five published rows of Qwen2-7B in fp16 on H100s, one engine. Which one cannot be true?",
        options={
            "a": "one device, 64 sequences, 128 -> 128",
            "b": "one device, 16 sequences, 2,048 -> 2,048",
            "c": "four devices, 64 sequences, 128 -> 128",
            "d": "one device, 1 sequence, 128 -> 128",
            "e": "two devices, 16 sequences, 128 -> 128",
        },
        right="b",
        because={
            "a": "Many sequences, few steps: its floor is {a_floor:.2f} s, and {a:.2f} s were measured.",
            "b": "Its floor is {b_floor:.1f} s, and {b:.2f} s are claimed. There is no time for 2,047 steps in it.",
            "c": "Four devices read four times as fast: its floor is {c_floor:.2f} s, and {c:.2f} s were measured.",
            "d": "Possible: its floor is {d_floor:.2f} s, and {d:.2f} s were measured.",
            "e": "Possible: its floor is {e_floor:.2f} s, and {e:.2f} s were measured.",
        },
        hints=(
            "Forget the batch. How many steps does each row take, and what does each step read at least?",
            "A step reads 14 GB of weights at 3.35 TB/s, more than 4 ms. Multiply by output - 1.",
        ),
        solution="{answer}: {b:.2f} s claimed, at least {b_floor:.1f} s needed.",
        numbers=_suspects,
    ),
    NumberExercise(
        key="steps-that-fit",
        notebook="07_predicted_and_published",
        question=(
            "The same source has 64 sequences, 2,048 -> 2,048, in 3.3922 s. For how many decode steps at most was "
            "there time, if each reads the weights and nothing else?"
        ),
        unit="steps",
        tolerance=0.02,
        expected=_steps_that_fit,
        slips=(
            Slip(
                lambda: _steps_that_fit(embedding=True),
                "You streamed the embedding too. It is looked up: only rows of it are read.",
            ),
            Slip(
                lambda: _steps_that_fit() / 64,
                "You read the weights once for each sequence. A step reads them once for the whole batch.",
            ),
        ),
        hints=(
            "The batch does not matter here: one step serves all 64 sequences.",
            'deployment_of(published_row("m2267")): its .sizes.dense_bytes a step, over its .bandwidth.',
        ),
        solution=(
            "A step reads {gb:.2f} GB in at least {step:.2f} ms: {answer} of the 2,047. The answers were cut "
            "short, or the time is another's."
        ),
        numbers=lambda: {
            "gb": deployment_of(published_row("m2267")).sizes.dense_bytes / 1e9,
            "step": 1e3 * published_row("m2267").value / _steps_that_fit(),
        },
    ),
    NumberExercise(
        key="faster-memory",
        notebook="07_predicted_and_published",
        question=(
            "A B200 has 8 TB/s, an H100 3.35. Llama-3.1-8B in bf16, one sequence, empty cache: how many times faster "
            "is a step on the B200, by the two numbers?"
        ),
        unit="times",
        expected=lambda: _step_by_two_numbers("h100-sxm") / _step_by_two_numbers("b200"),
        slips=(
            Slip(
                lambda: load_accelerator("b200").bandwidth / load_accelerator("h100-sxm").bandwidth,
                "That is the ratio of the datasheets. The overhead of a step stays what it was.",
            ),
        ),
        hints=(
            "A step is bytes / (fraction x bandwidth) + overhead. Only the first part gets shorter.",
            "fit.fraction and fit.overhead are the two numbers; step.linear.bytes the bytes.",
        ),
        solution="H100 {h100:.2f} ms, B200 {b200:.2f} ms: {answer}.",
        numbers=lambda: {
            "h100": 1e3 * _step_by_two_numbers("h100-sxm"),
            "b200": 1e3 * _step_by_two_numbers("b200"),
        },
    ),
    NumberExercise(
        key="slope-of-the-cache",
        notebook="07_predicted_and_published",
        question=(
            "On a B200 a step of Llama-3.1-8B grew by 0.000018 ms with each token of context, cache in bf16. At what "
            "per cent of 8 TB/s was the cache read?"
        ),
        unit="%",
        expected=_slope_percent,
        slips=(
            Slip(lambda: _slope_percent(0.5), "You counted K only, or one byte a number. K and V, two bytes each."),
            Slip(lambda: _slope_percent(4.0), "You counted all query heads. The cache has KV heads only."),
        ),
        hints=(
            "One token more of context is that token's K and V more to read, in every layer.",
            'deployment_of(published_row("m2815")).cache_bytes_per_token over 8 TB/s is the floor of the slope.',
        ),
        solution="A token has {bytes:,.0f} B of cache. At 8 TB/s that is {floor:.3g} ms: {answer}.",
        numbers=lambda: {
            "bytes": deployment_of(published_row("m2815")).cache_bytes_per_token,
            "floor": 10 * _slope_percent() * published_row("m2815").value,
        },
    ),
    NumberExercise(
        key="eight-devices",
        notebook="07_predicted_and_published",
        question=(
            "Llama-2-7B in bf16, one sequence: on one A100, then split over eight. How many times faster was it "
            "measured to be on eight?"
        ),
        unit="times",
        tolerance=0.15,
        expected=lambda: published_row(EIGHT[8]).value / published_row(EIGHT[1]).value,
        slips=(Slip(lambda: 8.0, "That is what the datasheet gives: an eighth of the bytes for each device."),),
        hints=(
            "On one device a step took 9.5 ms, some 2 of them overhead. Only the reading shrinks to an eighth.",
            "The overhead stays, and two all-reduces a layer are new: each of them waits.",
        ),
        solution="{one:.1f} tokens a second on one, {eight:.1f} on eight: {answer}.",
        numbers=lambda: {"one": published_row(EIGHT[1]).value, "eight": published_row(EIGHT[8]).value},
    ),
)
