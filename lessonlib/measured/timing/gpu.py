"""Time a real decoder on this machine's GPU with PyTorch, and put lessonlib's prediction beside it.

    python -m lessonlib.measured.timing gpu [--quick] [--model NAME]      writes a record into data/timings/

First the ceilings: a large read, a large copy, a large matrix product. The read stands in for bandwidth and the product
for peak, and nothing is fitted. Then prefill, decode at growing contexts and batches, and a chat-shaped and a
reasoning-shaped request run to their last tokens (`--quick`: without the reasoning request).

Needs PyTorch 2.5 or newer with a CUDA, ROCm or Apple GPU; without one GpuUnavailableError says why in one sentence, and
recorded runs are what there is to show. What runs on the device is in gpu_run.py, the decoder in gpu_decoder.py.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from statistics import median
from typing import Any

from lessonlib.base.errors import LessonError
from lessonlib.facts.catalogue import load_model
from lessonlib.measured.timing.record import Record, record_from
from lessonlib.model.precision import Precision
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

SIZES = ("llama-3.1-8b", "llama-3.2-3b", "llama-3.2-1b")
CONTEXTS = (128, 1024, 4096, 8192, 16384, 32768)
BATCHES = (1, 8, 32)
PROMPTS = (128, 1024, 8192)
REQUESTS = {"chat": (1024, 128), "reasoning": (128, 12_800)}


class GpuUnavailableError(LessonError):
    """No GPU could be timed here; the message says why, in one sentence. Show recorded runs instead."""


def time_gpu(quick: bool = False, model: str | None = None, say: Callable[[str], None] = print) -> Record:
    """Time this machine's GPU; returns the checked Record. `say` is told each stage, and each point left out.

    The model is the largest of SIZES whose weights and requests fit; or `model`, a Llama of the catalogue, and where
    that does not fit the next smaller of SIZES. `quick`: without the reasoning request. Raises GpuUnavailableError.
    """
    device = gpu_device()
    from lessonlib.measured.timing import gpu_run

    smaller = [name for name in SIZES if model is None or load_model(name).parameters < load_model(model).parameters]
    requests = {name: tokens for name, tokens in REQUESTS.items() if not (quick and name == "reasoning")}
    plan = gpu_run.Plan(CONTEXTS, BATCHES, PROMPTS, requests)
    found = gpu_run.measured([model, *smaller] if model else smaller, device, plan, say)
    if found is None:
        raise GpuUnavailableError("No GPU was timed: its memory is too small for each of the models.")
    return record_from(found, "of this GPU")


def gpu_device() -> Any:
    """The torch.device to time; GpuUnavailableError without PyTorch, a GPU, or a driver that it can use."""
    try:
        import torch  # type: ignore[import-not-found]
    except ImportError:
        raise GpuUnavailableError("No GPU was timed: PyTorch is not installed.") from None
    if not hasattr(torch, "OutOfMemoryError"):
        raise GpuUnavailableError(f"No GPU was timed: PyTorch {torch.__version__} is too old; 2.5 or newer is needed.")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else ""
    said = [str(one.message) for one in warned]
    if kind:
        try:
            torch.ones(2, device=kind).sum().item()
            return torch.device(kind)
        except RuntimeError as error:  # a GPU that this build has no code for, or one that another program holds
            said = [str(error)]
    raise GpuUnavailableError(why_not(torch.__version__, torch.version.cuda or torch.version.hip, said))


def why_not(version: str, built_for: str | None, said: Sequence[str]) -> str:
    """One sentence on why PyTorch has no GPU, from what it was built for and what it said."""
    if said:
        words = " ".join(said[0].split()).partition(". ")[0].rstrip(".")
        return f"No GPU was timed: PyTorch {version} cannot use it ({words})."
    if not built_for:
        return f"No GPU was timed: PyTorch {version} is a build without CUDA or ROCm."
    return f"No GPU was timed: PyTorch {version} sees none."


def this_gpu(record: Record) -> Deployment:
    """The timed model on a device whose peak and bandwidth are the record's ceilings."""
    dtype = record.conditions["dtype"]
    device = Accelerator(
        name=str(record.device["name"]),
        memory=float(record.device["memory"]),
        bandwidth=record.yardsticks["read_bandwidth"].value,
        peaks={dtype: record.yardsticks["matmul_rate"].value},
        source="measured here",
    )
    return Deployment(load_model(record.conditions["model"]), device, Precision(dtype), memory_fraction=1.0)


def gpu_predictions(record: Record, deployment: Deployment | None = None) -> list[dict[str, Any]]:
    """Measured beside predicted, a row for each point and request: what, seconds, and measured / predicted.

    Of the cache, the bytes that were really read: where a record's steps read spans of `bucket` tokens, up to the next
    multiple of it. `deployment`: by default `this_gpu(record)`.
    """
    machine, bucket = deployment or this_gpu(record), int(record.conditions["bucket"])

    @cache
    def seconds_of(tokens: int, context: int, batch: int) -> float:
        return pass_cost(machine, tokens, context, batch).seconds

    def step(context: int, batch: int) -> float:
        return seconds_of(1, -(-(context + 1) // bucket) * bucket - 1, batch)

    def row(what: str, seconds: Sequence[float], expected: float) -> dict[str, Any]:
        low, middle, high = (value / expected for value in (min(seconds), median(seconds), max(seconds)))
        ratios = {"ratio": middle, "lowest_ratio": low, "highest_ratio": high}
        return {"what": what, "measured": median(seconds), "predicted": expected, **ratios}

    rows = []
    for point in record.points:
        if point.phase == "prefill":
            rows.append(row(f"prefill of {point.tokens:,}", point.seconds, seconds_of(point.tokens, 0, point.batch)))
        else:
            what = f"decode at {point.context:,}, batch {point.batch}"
            rows.append(row(what, point.seconds, step(point.context, point.batch)))
    for one in record.requests:
        steps = sum(step(one.prompt + k, one.batch) for k in range(one.output - 1))
        what = f"{one.name} {one.prompt:,} -> {one.output:,}"
        rows.append(row(what, [one.seconds], seconds_of(one.prompt, 0, one.batch) + steps))
    return rows


def gpu_report(record: Record) -> str:
    """The rows of `gpu_predictions` as text, how near decode came to the measured bandwidth, and what was left out."""
    rows, conditions = gpu_predictions(record), record.conditions
    lines = [f"{record.device['name']}, {conditions['model']} in {conditions['dtype']}, {record.when}"]
    lines += [f"{'':<28}{'measured':>11}{'predicted':>11}{'ratio':>7}"]
    for row in rows:
        lines += [f"{row['what']:<28}{row['measured']:>9.4g} s{row['predicted']:>9.4g} s{row['ratio']:>7.2f}"]
    alone = [row["ratio"] for row in rows if row["what"].startswith("decode") and row["what"].endswith("batch 1")]
    if alone:
        reached = f"{1 / max(alone):.0%} to {1 / min(alone):.0%}"
        lines += [f"Decode at batch 1 reaches {reached} of the measured read bandwidth."]
    return "\n".join([*lines, conditions["attention"], *conditions["left_out"]])
