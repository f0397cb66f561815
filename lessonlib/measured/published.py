"""Published measurements against the arithmetic: the floor of each row, from its stated conditions alone.

Nothing is fitted here. A row gives model, device, dtypes, batch and lengths; these give roofs (FLOPs over the peak,
bytes over the bandwidth), and the roofs a floor that no measurement can beat. Where one does, a condition is not what
the row says: data/below_the_floor.csv lists these with the reason.

Which peak bounds a row: that of fp8 for fp8 weights where the device has one; of int8 for quantised weights of
llama.cpp, which multiplies blocks of int8; else the 16-bit peak, on GeForce with fp16 accumulation where the engine
uses that. So a quantised prefill of llama.cpp on NVIDIA is bounded, and not predicted: its kernels for blocks of int8
reach a third to a fifth of that peak.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from lessonlib.base.checks import a, checked, choice, items, optional, wrong
from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.measurements import Measurement, load_measurements
from lessonlib.facts.tables import load_table
from lessonlib.measured.calibration import MeasuredTime
from lessonlib.model.model import Model
from lessonlib.model.precision import MULTIPLIED_IN, UNQUANTISED, Precision
from lessonlib.request.cost import decode_passes, prefill_passes
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Efficiency
from lessonlib.time.roofline import Phase
from lessonlib.work.passes import Passes, equal_passes

GGML = ("llama.cpp", "Ollama")  # head and embedding are quantised too; of gpt-oss all but the experts is q8_0
FP16_ACCUMULATE = (*GGML, "TinyChat", "ExLlamaV2")
QUANTISED_HEAD = (*GGML, "MLC-LLM", "ExLlamaV2", "gpt-fast")
SUSPECTS = {"a": "m2264", "b": "m2266", "c": "m2276", "d": "m2262", "e": "m2269"}  # Qwen2-7B in fp16 on H100
ROW = a(Measurement, "load_measurements()[0]")
MEMORY_CLASSES = ("HBM", "GDDR", "unified")
MODEL = optional(a(Model, "own_model('config.json')"))
ACCELERATOR = optional(a(Accelerator, "load_accelerator('h100-sxm')"))
MEMORY_CLASS = optional(choice(MEMORY_CLASSES))
WHOLE_REQUEST = ("request_time", "output_rate", "output_rate_per_device")


@cache
def published_row(name: str) -> Measurement:
    """The published row of that id, possible or not."""
    return next(row for row in (*load_measurements(), *load_measurements(impossible=True)) if row.id == name)


@checked(row=ROW)
def engine_of(row: Measurement) -> str:
    """The engine without its version: the first word."""
    return row.engine.partition(" ")[0]


@cache
def memory_classes() -> dict[str, str]:
    """Accelerator to its class of memory: HBM, GDDR or unified."""
    return {row["name"]: row["memory_class"] for row in load_table("accelerators")}


def memory_class_of(owner: str, accelerator: Accelerator, memory_class: str | None) -> str:
    """The class told, else that of the catalogue's accelerator of this name; InvalidInputError where neither is."""
    found = memory_class or memory_classes().get(accelerator.name)
    if found is None:
        expected = f"one of {', '.join(MEMORY_CLASSES)}, as {shown(accelerator.name)} is not in the catalogue"
        raise wrong(owner, "memory_class", memory_class, expected)
    return found


@cache
def _accumulating_in_fp16(name: str) -> Accelerator:
    """The catalogue's accelerator with its second fp16 peak, where the table has one."""
    accelerator = load_accelerator(name)
    second = next(row for row in load_table("accelerators") if row["name"] == name)["fp16_fp16_accumulate_tflops"]
    return accelerator if second is None else replace(accelerator, peaks={**accelerator.peaks, "fp16": second * 1e12})


@cache
def _published_deployment(
    model: str, accelerator: str, devices: int, engine: str, weights: str, cache_dtype: str | None
) -> Deployment:
    fast = engine in FP16_ACCUMULATE
    device = _accumulating_in_fp16(accelerator) if fast else load_accelerator(accelerator)
    return _deployment(load_model(model), device, devices, engine, weights, cache_dtype)


def _deployment(
    model: Model, device: Accelerator, devices: int, engine: str, weights: str, cache_dtype: str | None
) -> Deployment:
    compute: str | None = "fp16" if "fp16" in device.peaks else "bf16"
    if weights in MULTIPLIED_IN:  # in fp8 or fp4 where the device can
        compute = None
    elif engine in GGML and weights not in UNQUANTISED and "int8" in device.peaks:
        compute = "int8"
    blocks = weights
    if weights == "mxfp4":  # of gpt-oss: the experts alone
        blocks = "q8_0" if engine in GGML else "bf16"
    plain = weights if weights in UNQUANTISED else "bf16"
    head = blocks if engine in QUANTISED_HEAD else plain
    embedding = blocks if engine in GGML or engine == "MLC-LLM" else plain
    precision = Precision(
        blocks, experts=weights, head=head, embedding=embedding, cache=cache_dtype or plain, compute=compute
    )
    return Deployment(model, device, precision, devices, efficiency=Efficiency(all_reduce_latency=0.0))


@checked(row=ROW, model=MODEL, accelerator=ACCELERATOR)
def deployment_of(
    row: Measurement, *, model: Model | None = None, accelerator: Accelerator | None = None
) -> Deployment:
    """The floor's deployment of a row: no overhead, no latency, the largest peak that its engine can use.

    `model`, `accelerator`: your own, in place of the catalogue's of the row's names, and taken as they are. Raises
    InvalidInputError where the row names none and none is given.
    """
    conditions = (row.devices, engine_of(row), row.weights, row.cache)
    names = {"model": (row.model, model), "accelerator": (row.accelerator, accelerator)}
    for name, (stated, given) in names.items():
        if stated is None and given is None:
            raise wrong(row.owner, name, None, "a name of the catalogue", f"or give your own with {name}=")
    if model is None and accelerator is None:
        return _published_deployment(str(row.model), str(row.accelerator), *conditions)
    return _deployment(
        load_model(str(row.model)) if model is None else model,
        load_accelerator(str(row.accelerator)) if accelerator is None else accelerator,
        *conditions,
    )


@checked(row=ROW)
def measured_seconds(row: Measurement) -> float:
    """The time of what the row times: a decode step or several, a prefill pass, or a whole request of the batch."""
    tokens = {"prefill_rate": row.prompt_tokens}.get(row.metric, row.output_tokens) or 1
    if row.metric == "tpot":
        return row.value * _steps(row)
    if row.unit.startswith("tokens/s"):
        return row.batch * tokens / (row.value * (row.devices if row.metric == "output_rate_per_device" else 1))
    return row.value


def _steps(row: Measurement) -> int:
    """Decode steps that the row times; one where it states no length."""
    if row.metric in ("tpot", *WHOLE_REQUEST) and row.output_tokens is not None:
        return row.output_tokens - 1
    return row.output_tokens or 1 if row.metric == "decode_rate" else 1


@checked(row=ROW, model=MODEL, accelerator=ACCELERATOR, memory_class=MEMORY_CLASS)
def point_of(
    row: Measurement,
    *,
    model: Model | None = None,
    accelerator: Accelerator | None = None,
    memory_class: str | None = None,
) -> MeasuredTime:
    """A row as a time over its roofs. Raises InvalidInputError for a slope, which is not a time.

    `model`, `accelerator`: your own, as in `deployment_of`; `memory_class`, "HBM", "GDDR" or "unified": that of an
    accelerator that is not in the catalogue.
    """
    if row.metric == "itl_slope":
        raise InvalidInputError(f"Measurement {row.id!r} is a slope, which has no floor in seconds.")
    if model is None and accelerator is None and memory_class is None:
        return _published_point(row)
    deployment = deployment_of(row, model=model, accelerator=accelerator)
    return _point(row, deployment, memory_class_of(row.owner, deployment.accelerator, memory_class))


@cache
def _published_point(row: Measurement) -> MeasuredTime:
    deployment = deployment_of(row)
    return _point(row, deployment, memory_classes()[deployment.accelerator.name])


def _point(row: Measurement, deployment: Deployment, memory_class: str) -> MeasuredTime:
    runs = _passes(row, deployment)
    scale = 1.0 if row.weight_bytes is None else row.weight_bytes / deployment.weight_bytes  # the file really read
    works = [work for run in runs for work in run.works]
    compute = [work.times * work.flops / deployment.peaks[work.kernel] for work in works]
    moved = [scale * work.weights + work.cache_read + work.cache_write + work.state for work in works]
    memory = [work.times * bytes / deployment.bandwidth for work, bytes in zip(works, moved, strict=True)]
    decode_share = 1.0
    if row.metric in ("prefill_rate", "ttft"):
        decode_share = 0.0
    elif row.metric in WHOLE_REQUEST:
        roofs = [max(pair) for pair in zip(compute, memory, strict=True)]
        decode_share = sum(roofs[len(runs[0].works) :]) / sum(roofs)  # the prefill is the first pass
    done = Phase(deployment, runs)
    return MeasuredTime(
        id=row.id,
        source=row.source,
        memory_class=memory_class,
        engine=engine_of(row),
        accelerator=deployment.accelerator.name,
        batch=row.batch,
        devices=row.devices,
        phase="prefill" if not decode_share else "decode" if decode_share >= 0.9 else "request",
        measured=measured_seconds(row),
        compute=tuple(compute),
        memory=tuple(memory),
        communication=float(done.communication),
        all_reduces=float(done.passes * deployment.sizes.collectives),
        passes=float(done.passes),
    )


def _passes(row: Measurement, deployment: Deployment) -> list[Passes]:
    """The passes that the row times, as request/cost.py counts them."""
    batch, prompt, context = float(row.batch), float(row.prompt_tokens or 0), float(row.context_tokens or 0)
    output = _steps(row) + 1.0  # the first token is the prefill's
    if row.metric in ("prefill_rate", "ttft"):
        return [equal_passes(deployment.sizes, prompt, context, batch, 1.0)]
    if row.metric in WHOLE_REQUEST:
        prefill = prefill_passes(deployment, prompt, 0.0, batch)
        return [*prefill, *decode_passes(deployment, prompt, output, batch)]
    return list(decode_passes(deployment, context, output, batch))


@cache
def points() -> tuple[MeasuredTime, ...]:
    """Every row of data/measurements.csv that is a time, as a point, in the order of the table."""
    return tuple(point_of(row) for row in load_measurements() if row.metric != "itl_slope")


@checked(points=items(a(MeasuredTime, "published.points()[0]")))
def by_memory(points: Iterable[MeasuredTime]) -> dict[str, list[MeasuredTime]]:
    """The points of each class of memory."""
    return {name: [p for p in points if p.memory_class == name] for name in MEMORY_CLASSES}


@checked(points=items(a(MeasuredTime, "published.points()[0]")))
def by_condition(points: Iterable[MeasuredTime]) -> dict[str, list[MeasuredTime]]:
    """The points but for prefills, by load and devices in words: "batches, one device"; in the order of the points."""
    found: dict[str, list[MeasuredTime]] = {}
    for point in points:
        load = "one sequence" if point.batch == 1 else "batches"
        load = "a server under load" if point.publisher == "inferencex" and point.batch > 1 else load
        if point.phase != "prefill":
            devices = "one device" if point.devices == 1 else "several devices"
            found.setdefault(f"{load}, {devices}", []).append(point)
    return found


def by_source() -> dict[str, list[Measurement]]:
    """The rows of data/measurements.csv by source, in alphabetical order."""
    found: dict[str, list[Measurement]] = {}
    for row in sorted(load_measurements(), key=lambda row: row.source):
        found.setdefault(row.source, []).append(row)
    return found


def below_the_floor() -> dict[str, str]:
    """Rows that beat their floor, and why: id to reason. A test holds the list to be exactly these."""
    return {row["id"]: row["reason"] for row in load_table("below_the_floor")}
