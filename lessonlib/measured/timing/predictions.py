"""A record beside lessonlib's prediction: rows of measured and predicted seconds, and a report of them as text.

A timing of this machine is predicted from its own yardsticks: they stand for bandwidth and peak, and nothing is fitted.
A server is predicted as the deployment that the caller says it runs on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.checks import a, checked, optional, wrong
from lessonlib.base.errors import InvalidInputError, LessonError, printable
from lessonlib.base.units import format_seconds
from lessonlib.facts.catalogue import load_model, model_config
from lessonlib.measured.timing.decoder import toy_model
from lessonlib.measured.timing.record import MeasuredRequest, Record, TimedPass
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.roofline import pass_cost

LEAST_FITTED = 3  # requests: a line through two says nothing
NOTHING = 1e-9  # of a TPOT: what is left of a slope of 0 after rounding


class Comparison(NamedTuple):
    """A time beside its prediction: medians in seconds, and measured / predicted in the middle and at both ends."""

    what: str
    measured: float
    predicted: float
    ratio: float
    lowest_ratio: float
    highest_ratio: float
    fitted: float = math.nan  # of a server's TPOT: what the record's own `step_fit` says
    refused: str = ""  # why there is no prediction


RECORD = a(Record, "recorded_cpu()")


class StepFit(NamedTuple):
    """A step takes `seconds` + `slope` x cached tokens of all running requests; fitted to `requests` requests.

    `miss`: how far the fit is from their TPOTs, the median of |fitted / measured - 1|.
    """

    seconds: float
    slope: float
    requests: int
    miss: float = math.nan


@checked(record=RECORD)
def this_machine(record: Record, variant: str = "") -> Deployment:
    """The timed decoder on a machine whose peak and bandwidth are the record's yardsticks: a CPU, or a GPU.

    `variant`: of an engine, which of the record's; its first by default.
    """
    device, conditions, rates, cpu = record.device, record.conditions, record.yardsticks, record.what == "cpu"
    dtype, precision = ("fp32", Precision("fp32")) if cpu else ("fp16", Precision("fp16"))
    if record.what == "engine":
        variants = conditions["variants"]
        if variant and variant not in variants:
            raise wrong("this_machine", "variant", variant, f"one of the record's: {'; '.join(variants)}")
        chosen = variants[variant or next(iter(variants))]
        config = model_config(conditions["model"]) | conditions["changed"] | chosen["changed"]
        model, one = Model.from_config(config, name=conditions["model"]), chosen["weights"]
        precision = Precision(one, head=one, embedding=one, cache="fp16", compute="fp16")
    elif cpu:
        model = toy_model(**conditions["model"])
    else:
        model, dtype = load_model(conditions["model"]), conditions["dtype"]
        precision = Precision(dtype)
    machine = Accelerator(
        name=device.get("name", "this CPU"),
        memory=float(device.get("memory") or 16e9),
        bandwidth=rates["matvec_bandwidth" if cpu else "read_bandwidth"].value,
        peaks={dtype: rates["matmul_rate"].value},
        source="measured here",
    )
    return Deployment(model, machine, precision, memory_fraction=1.0)


@checked(record=RECORD, deployment=optional(DEPLOYMENT))
def predictions(record: Record, deployment: Deployment | None = None) -> list[Comparison]:
    """Measured beside predicted, a row for each thing that was timed.

    Of a machine: a row for each pass and request, from `deployment`, by default `this_machine(record)`. Of the cache,
    the bytes that were really read: where steps read spans of whole `bucket` tokens, up to the next multiple of it.

    Of a server: TTFT and TPOT for each kind of request and concurrency, from `request_cost(deployment, request,
    batch=concurrency)`: a floor with the default Efficiency, and TTFT that of a prompt alone, without network or queue.
    Raises InvalidInputError for a server without a deployment.
    """
    if record.what == "server":
        return _of_server(record, deployment)
    machine, bucket = deployment or this_machine(record), int(record.conditions.get("bucket", 1))

    @cache
    def seconds_of(tokens: int, context: int, batch: int, variant: str = "") -> float:
        on = replace(this_machine(record, variant), efficiency=machine.efficiency) if variant else machine
        return pass_cost(on, tokens, context, batch).seconds

    def step(context: int, batch: int, variant: str = "") -> float:
        return seconds_of(1, -(-(context + 1) // bucket) * bucket - 1, batch, variant)

    def request(one: MeasuredRequest) -> float:
        if record.what in ("cpu", "engine"):
            return request_cost(machine, Request(one.prompt, one.output), one.batch).undisturbed
        # A GPU's requests may be longer than its model has positions, and its steps read whole buckets.
        steps = (step(one.prompt + k, one.batch) for k in range(one.output - 1))
        return seconds_of(one.prompt, 0, one.batch) + sum(steps)

    def timed(one: TimedPass) -> float:
        decodes = one.phase == "decode"
        return (
            step(one.context, one.batch, one.variant) if decodes else seconds_of(one.tokens, 0, one.batch, one.variant)
        )

    rows = [(label(record, one), one.seconds, timed(one)) for one in record.points]
    rows += [(f"{one.name} {one.prompt:,} -> {one.output:,}", (one.seconds,), request(one)) for one in record.requests]
    return [_compared(what, seconds, [expected] * len(seconds)) for what, seconds, expected in rows]


def _compared(what: str, measured: Sequence[float], predicted: Sequence[float], **more: Any) -> Comparison:
    ratios = [mine / floor for mine, floor in zip(measured, predicted, strict=True)]
    return Comparison(what, median(measured), median(predicted), median(ratios), min(ratios), max(ratios), **more)


def label(record: Record, point: TimedPass) -> str:
    """A few words for a timed pass; the batch and the variant are said where they vary."""
    variant = f", {point.variant}" if point.variant else ""
    if point.phase == "prefill":
        return f"prefill of {point.tokens:,}{variant}"
    return f"decode at {point.context:,}{'' if record.what == 'cpu' else f', batch {point.batch}'}{variant}"


# ---- a server


def _usable(record: Record) -> list[MeasuredRequest]:
    return [one for one in record.requests if one.output > 1 and one.seconds > one.ttft]


def _tpot(one: MeasuredRequest) -> float:
    return one.tpot or (one.seconds - one.ttft) / (one.output - 1)


def _running_context(one: MeasuredRequest) -> float:
    """Cached tokens of all running requests, on average over the steps: n_in + (n_out - 2) / 2 for each."""
    return one.batch * (one.prompt + (one.output - 2) / 2)


def step_fit(record: Record) -> StepFit | None:
    """The two numbers with the least relative squares to the TPOTs of a record; None where they cannot be a server's.

    That is where there are fewer than 3 requests; where contexts differ by less than a factor of 2, for then the two
    numbers cannot be told apart; and where a step would take no time, or less of it the more is cached.
    """
    fit = _fitted(record)
    return fit if isinstance(fit, StepFit) else None


def _fitted(record: Record) -> StepFit | str:
    """The fit, or a sentence that says why there is none."""
    ones = _usable(record)
    tpots, contexts = (np.array([of(one) for one in ones]) for of in (_tpot, _running_context))
    if len(ones) < LEAST_FITTED:
        return f"Nothing is fitted: that needs {LEAST_FITTED} requests with a TPOT, and there are {len(ones)}."
    if contexts.max() < 2 * contexts.min():
        return "Nothing is fitted: that needs contexts that differ by a factor of 2."
    (seconds, slope), *_ = np.linalg.lstsq(np.stack([1 / tpots, contexts / tpots], 1), np.ones(len(ones)), rcond=None)
    if abs(slope) * contexts.max() < NOTHING * tpots.max():
        slope = 0.0
    if not (seconds > 0 and slope >= 0):
        numbers = f"{seconds:.3g} s + {slope:.3g} s x cached tokens"
        why = "no step can take that, so something else than the cache made these requests slow or fast"
        return f"Nothing is fitted: the nearest line is {numbers}, and {why}."
    miss = np.median(np.abs((seconds + slope * contexts) / tpots - 1))
    return StepFit(float(seconds), float(slope), len(ones), float(miss))


def _of_server(record: Record, deployment: Deployment | None) -> list[Comparison]:
    if deployment is None:
        raise InvalidInputError("predictions: deployment is None; expected the Deployment that the server runs on.")
    fit = step_fit(record)
    groups: dict[str, list[MeasuredRequest]] = {}
    for one in _usable(record):
        groups.setdefault(f"{one.name}, concurrency {one.batch}", []).append(one)
    rows = []
    for name, ones in groups.items():
        refused, ttft, tpot = "", [math.nan] * len(ones), [math.nan] * len(ones)
        try:
            costs = [request_cost(deployment, Request(one.prompt, one.output), one.batch) for one in ones]
            ttft, tpot = [cost.ttft for cost in costs], [cost.tpot for cost in costs]
        except LessonError as error:
            refused = str(error)
        fitted = math.nan if fit is None else median(fit.seconds + fit.slope * _running_context(one) for one in ones)
        rows.append(_compared(f"{name}: TTFT", [one.ttft for one in ones], ttft, refused=refused))
        rows.append(_compared(f"{name}: TPOT", [_tpot(one) for one in ones], tpot, refused=refused, fitted=fitted))
    return rows


# ---- as text


@checked(record=RECORD, deployment=optional(DEPLOYMENT))
def timing_report(record: Record, deployment: Deployment | None = None) -> str:
    """The rows of `predictions` as text, and what else is to be known of them.

    Of a machine, how near decode came to the measured bandwidth, and what was left out. Of a server, the fit, the times
    between chunks, and what is to be said of its replies.
    """
    rows, conditions, server = predictions(record, deployment), record.conditions, record.what == "server"
    machine, width = deployment or this_machine(record), 34 if server else 28
    model, device = machine.model.name, machine.accelerator.name
    head = f"{device}, {model} in {machine.dtypes['blocks']}, {record.when}"
    if server:
        head = f"{conditions['model']}, {record.when}; predicted: {model} on {device}"
    lines = [head, f"{'':<{width}}{'measured':>11}{'predicted':>11}{'ratio':>7}" + f"{'fitted':>11}" * server]
    for row in rows:
        own = "" if math.isnan(row.fitted) else f"{row.fitted:>9.4g} s"
        lines += [f"{row.what:<{width}}{row.measured:>9.4g} s{row.predicted:>9.4g} s{row.ratio:>7.2f}{own}"]
    lines += _said_of_server(record, rows) if server else _said_of_machine(record, rows)
    return "\n".join(map(printable, lines))


def _said_of_machine(record: Record, rows: Sequence[Comparison]) -> list[str]:
    passes = zip(record.points, rows, strict=False)  # the rows of requests follow those of passes
    alone = [1 / row.ratio for point, row in passes if (point.phase, point.batch) == ("decode", 1)]
    reached = f"{min(alone):.0%} to {max(alone):.0%}" if alone else ""
    said = f"Decode at batch 1 reaches {reached} of the measured read bandwidth." if alone else ""
    return [*filter(None, [said, record.conditions.get("attention")]), *record.conditions.get("left_out", [])]


def _said_of_server(record: Record, rows: Sequence[Comparison]) -> list[str]:
    fit, conditions = _fitted(record), record.conditions
    lines = [f"No prediction: {words}" for words in dict.fromkeys(row.refused for row in rows) if words]
    fitted = fit if isinstance(fit, str) else ""
    if isinstance(fit, StepFit):
        step = f"{format_seconds(fit.seconds)} + {fit.slope:.3g} s x cached tokens of all running requests"
        fitted = f"Fitted to these {fit.requests} requests themselves: a step takes {step}. "
        fitted += f"It misses their TPOTs by {fit.miss:.0%}."
    lines += [fitted]
    groups: dict[str, list[Mapping[str, float]]] = {}
    for reply in conditions["replies"]:
        if reply["gaps"]:
            groups.setdefault(f"{reply['name']}, concurrency {reply['concurrency']}", []).append(reply["gaps"])
    if groups:
        said = "this is inter-token latency, except where a line below says that chunks are not tokens"
        lines += [f"Time between chunks, percentiles: {said}."]
    for name, gaps in groups.items():
        lines += [f"{name:<34}" + "".join(f"{key:>5} {median(one[key] for one in gaps):.4g} s" for key in gaps[0])]
    return [*lines, *remarks(conditions["replies"]), *filter(None, [conditions["ended"]])]


def remarks(replies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each problem and note of a server's replies once, with the number of replies that it holds for."""
    texts = [text for reply in replies for text in (reply["problem"], *reply["notes"]) if text]
    return [f"{texts.count(text)} of {len(replies)} replies: {text}" for text in dict.fromkeys(texts)]
