"""What gpu.py runs on the device: the ceilings, the points, the requests. Needs PyTorch.

Times are the device's own events, each stage after a warm-up; every repeat is kept. All data are random numbers: zeros
would draw less power, and so run faster.
"""

import gc
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found]

from lessonlib.base.units import format_bytes
from lessonlib.facts.catalogue import load_model
from lessonlib.measured.timing import cpu
from lessonlib.measured.timing.gpu_decoder import TorchDecoder
from lessonlib.measured.timing.record import head
from lessonlib.model.model import Model

USED = 0.92  # of the memory that is free; the rest is for activations
LARGE = 2**31  # bytes that the large read takes
SIDE = 8192  # of the large matrix product
DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
Call = Callable[[], Any]
Say = Callable[[str], None]


class Plan(NamedTuple):
    """What is timed. Prefill and requests (name: prompt and output tokens) have batch 1."""

    contexts: Sequence[int]
    batches: Sequence[int]
    prompts: Sequence[int]
    requests: dict[str, tuple[int, int]]


def measured(names: Iterable[str], device: Any, plan: Plan, say: Say) -> dict[str, Any] | None:
    """A record's fields, of the first model of `names` that does not run out of memory; None where each does."""
    dtype = torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported(False) else torch.float16
    yardsticks = ceilings(device, dtype, min(LARGE, int(memory(device)[0] / 4)), SIDE)
    say(", ".join(f"{name} {stick['value']:.3g} {stick['unit']}" for name, stick in yardsticks.items()))

    def measure(name: str) -> dict[str, Any]:
        return time_model(load_model(name), device, dtype, USED * memory(device)[0], plan, say)

    found = first_that_fits(names, measure, say)
    return found and found | {"yardsticks": yardsticks, "device": about(device)}


def first_that_fits(names: Iterable[str], measure: Callable[[str], dict[str, Any]], say: Say) -> dict[str, Any] | None:
    """`measure` of the first name that does not run out of memory; those that did are told, and noted in the result."""
    too_large: list[str] = []
    for name in names:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        try:
            found = measure(name)
        except torch.OutOfMemoryError as error:
            too_large.append(f"{name} was left out, for it ran out of memory ({str(error).splitlines()[0]}).")
        else:
            found["conditions"]["left_out"][:0] = too_large
            return found
        say(too_large[-1])
    return None


def memory(device: Any) -> tuple[float, float]:
    """Bytes (free, in all)."""
    return torch.cuda.mem_get_info() if device.type == "cuda" else (torch.mps.recommended_max_memory(),) * 2


def about(device: Any) -> dict[str, Any]:
    """The device of a record."""
    if device.type != "cuda":
        return {"memory": memory(device)[1], "name": f"Apple GPU ({platform.machine()})"}
    properties = torch.cuda.get_device_properties(device)
    found = {"memory": properties.total_memory, "name": properties.name, "processors": properties.multi_processor_count}
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=driver_version,power.limit", "--format=csv,noheader", "--id=0"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.split(",")
        found |= dict(zip(("driver", "power_limit"), (word.strip() for word in told), strict=False))
    return found


def seconds_of(device: Any, calls: Sequence[Call]) -> list[float]:
    """Seconds of each call, run one after another: on a CUDA device by its own events, without waiting in between."""
    if device.type == "cuda":
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(calls) + 1)]
        events[0].record()
        for call, event in zip(calls, events[1:], strict=True):
            call()
            event.record()
        torch.cuda.synchronize()
        return [before.elapsed_time(after) / 1e3 for before, after in pairwise(events)]
    return cpu.seconds_of(calls, torch.mps.synchronize if device.type == "mps" else None)


def repeated(device: Any, call: Call, repeats: int) -> list[float]:
    """Seconds of `repeats` calls after three to warm up."""
    return seconds_of(device, [call] * (3 + repeats))[3:]


def ceilings(device: Any, dtype: Any, size: int, side: int) -> dict[str, dict[str, Any]]:
    """The yardsticks: a read of `size` bytes, a copy within them, the product of two matrices of `side`."""
    cells = torch.randn(2, size // 8, device=device)
    first, second = torch.randn(2, side, side, device=device).to(dtype)
    work: dict[str, tuple[Call, float, str]] = {
        "read_bandwidth": (cells.sum, cells.nbytes, "byte/s"),
        "copy_bandwidth": (lambda: cells[0].copy_(cells[1]), cells.nbytes, "byte/s"),
        "matmul_rate": (lambda: first @ second, 2 * side**3, "FLOP/s"),
    }
    rates = {name: [amount / took for took in repeated(device, call, 15)] for name, (call, amount, _) in work.items()}
    return {name: {"value": median(rates[name]), "unit": work[name][2], "repeats": rates[name]} for name in work}


def time_model(model: Model, device: Any, dtype: Any, limit: float, plan: Plan, say: Say) -> dict[str, Any]:
    """All of a record but its yardsticks and device, of a decoder that may take `limit` bytes.

    Points that do not fit are left out, and said. Raises torch.OutOfMemoryError where weights or requests do not fit.
    """
    decoder = TorchDecoder(model, device, dtype, limit)
    points: list[dict[str, Any]] = []
    requests: list[dict[str, Any]] = []
    left_out: list[str] = []
    needed = max([*plan.prompts, *(prompt + output - 1 for prompt, output in plan.requests.values())])

    def point(phase: str, context: int, tokens: int, batch: int, call: Call) -> None:
        took = repeated(device, call, 15)
        points.append({"phase": phase, "context": context, "tokens": tokens, "batch": batch, "seconds": took})
        say(f"{phase} of {tokens:,} on {context:,}, batch {batch}: {median(took) * 1e3:.3f} ms")

    for batch in plan.batches:
        fitting = [context for context in plan.contexts if decoder.fits(batch, context + 1)]
        for context in sorted(set(plan.contexts) - set(fitting)):
            size, weights = (format_bytes(decoder.bytes_needed(tokens)) for tokens in (batch * context, 0))
            left_out.append(f"decode at {context:,}, batch {batch} was left out: it needs {size}, weights {weights}.")
            say(left_out[-1])
        if fitting or batch == 1:
            decoder.allocate(batch, max([context + 1 for context in fitting] + [needed] * (batch == 1)))
        for prompt in plan.prompts if batch == 1 else ():
            ids = torch.randint(model.vocabulary, (1, prompt), device=device)
            decoder.capture(prompts=[prompt])
            point("prefill", 0, prompt, 1, partial(decoder.prefill, ids))
        decoder.capture(fitting)
        for context in fitting:
            decoder.go_to(context)
            point("decode", context, 1, batch, decoder.replay)
        for name, (prompt, output) in plan.requests.items() if batch == 1 else ():
            requests.append({"name": name, "batch": 1} | time_request(decoder, prompt, output))
            say(f"{name} request, {prompt:,} -> {output:,}: {requests[-1]['seconds']:.3f} s")
    attention = "Decode attention took the true length: a step reads what is cached, no more."
    if not decoder.true_length:
        more = format_bytes(model.cache_bytes(decoder.bucket - 1, dtype.itemsize) / 2)
        attention = f"Decode attention read spans of whole {decoder.bucket} tokens: on average {more} more in a step."
    conditions = {"model": model.name, "dtype": DTYPES[dtype], "weights_bytes": decoder.bytes_needed(0)}
    conditions |= {"bucket": decoder.bucket, "attention": attention, "graphs": device.type == "cuda"}
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "rocm": torch.version.hip}
    found = {"conditions": conditions | {"left_out": left_out}, "points": points, "requests": requests}
    return head(device.type, **versions) | found


def time_request(decoder: TorchDecoder, prompt: int, output: int) -> dict[str, Any]:
    """One request from its prompt to its last token: its tokens, time to first token and seconds in all."""
    ids = torch.randint(decoder.model.vocabulary, (decoder.batch, prompt), device=decoder.device)
    decoder.capture(range(prompt, prompt + output - 1), [prompt])

    def decode() -> None:
        for _ in range(output - 1):
            decoder.step()

    first, rest = seconds_of(decoder.device, [lambda: decoder.prefill(ids), decode])
    return {"prompt": prompt, "output": output, "ttft": first, "seconds": first + rest}
