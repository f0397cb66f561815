"""What published measurements reached on a class of machines: a range of Efficiency, and what it rests on."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from lessonlib.base.checks import checked, optional, text
from lessonlib.base.errors import UnknownNameError, shown
from lessonlib.facts.catalogue import load_accelerator
from lessonlib.measured.calibration import (
    Fit,
    MeasuredTime,
    RelativeErrors,
    Search,
    finest,
    predicted_seconds,
    relative_errors,
    source_quantiles,
)
from lessonlib.measured.published import MEMORY_CLASS, memory_class_of, points
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Efficiency

HELD_BACK = (
    " On the measurements that were held back, decode on unified memory reached 42% of the floor's speed in the "
    "median, not the 76% of the rows here: expect less."
)


@dataclass(frozen=True)
class TypicalEfficiency:
    """A range of Efficiency: one in ten published values is worse than `low`, one in ten better than `high`."""

    low: Efficiency
    middle: Efficiency
    high: Efficiency
    provenance: str


@cache
def decode_search() -> Search:
    """All pairs of numbers on the decode of one sequence on one device."""
    return Search([p for p in points() if p.phase == "decode" and p.batch == p.devices == 1])


@cache
def unseen_decode_errors() -> RelativeErrors:
    """What two numbers are off by on each publisher when they are fitted on the others: decode, batch 1, one device."""
    return relative_errors(decode_search().left_out())


@cache
def unseen_decode_coverage() -> float:
    """The share of a left-out publisher's rows inside the range of the others, the mean over publishers."""
    search = decode_search()
    covered = search.covered()
    return float(np.mean([covered[search.publishers == name].mean() for name in np.unique(search.publishers)]))


@cache
def decode_fits() -> dict[tuple[str, ...], Fit]:
    """The two numbers of decode from all publishers: (), and of each engine that has numbers of its own."""
    search = decode_search()
    return search.calibrate(np.ones(len(search.points), dtype=bool), ("engine",))


@checked(engine=optional(text("'vLLM'", UnknownNameError)), memory_class=MEMORY_CLASS)
def typical_efficiency(
    accelerator: str | Accelerator, engine: str | None = None, memory_class: str | None = None
) -> TypicalEfficiency:
    """What published measurements reached on such a device: `.low`, `.middle`, `.high` and their `.provenance`.

    `accelerator`: one of the catalogue, or your own with its `memory_class`, "HBM", "GDDR" or "unified". Each is an
    Efficiency for a Deployment, which predicts: it adds compute and memory time up, and bounds nothing. The middle is
    one fit for all classes of memory, which predicted unseen sources better than a fit for each; the range is that of
    the accelerator's class. `engine`, such as "vLLM": its own fit, where at least two publishers measured it.
    `measured.calibration` says how. Raises UnknownNameError, InvalidInputError for a device of your own
    without a class.
    """
    own_device = accelerator if isinstance(accelerator, Accelerator) else load_accelerator(accelerator)
    memory_class = memory_class_of("typical_efficiency", own_device, memory_class)
    known = sorted({point.engine for point in points()})
    if engine not in (None, *known):
        raise UnknownNameError(f"engine {shown(engine)} is not known; expected None or one of {', '.join(known)}.")
    search, fits, key = decode_search(), decode_fits(), () if engine is None else (engine,)
    fit = finest(fits, key)
    inside = np.array([point.memory_class == memory_class for point in search.points])
    slower = 1 / search.predict({(): fit})  # measured / predicted
    fast, slow = source_quantiles(slower[inside], search.publishers[inside], (0.1, 0.9))
    prefills = (p for p in points() if (p.phase, p.devices, p.memory_class) == ("prefill", 1, memory_class))
    busy = [p for p in prefills if sum(p.compute) > sum(p.memory)]
    mfus = source_quantiles([_reached_mfu(p, fit) for p in busy], [p.publisher for p in busy], (0.1, 0.5, 0.9))

    def scaled(factor: float, mfu: float) -> Efficiency:
        mbu, overhead = min(1.0, fit.fraction / factor), fit.overhead * factor
        return Efficiency(mfu=min(1.0, mfu), mbu=mbu, overhead=overhead, overlap=False)

    own = f"of {engine}" if fits.get(key) is fit and key else "of all engines and memories"
    if key and key not in fits:
        own += f", as fewer than two publishers measured {engine}"
    off = unseen_decode_errors()
    return TypicalEfficiency(
        scaled(slow, mfus[0]),
        scaled(1.0, mfus[1]),
        scaled(fast, mfus[2]),
        f"Decode: two numbers fitted to {fit.rows} published rows {own}, batch 1 on one device, "
        f"{len(fit.publishers)} publishers; fitted without a publisher, they are off by {off.median:.0%} in the median "
        "on its rows, and by 16% on 1,400 measurements that were held back from the table. "
        f"Low and high: 10th and 90th percentile of the {int(inside.sum())} rows on {memory_class}, each "
        f"publisher counted once; made without a publisher, such a range holds {unseen_decode_coverage():.0%} of its "
        f"rows. Prefill: the same percentiles of the fraction of peak in {len(busy)} compute-bound rows on "
        f"{memory_class}, {len({p.publisher for p in busy})} publishers: a range, not a prediction, and "
        "none for quantised weights in llama.cpp on NVIDIA, whose prefill is 3 to 5 times slower than its peak says. "
        f"Table: data/measurements.csv.{HELD_BACK if memory_class == 'unified' else ''}",
    )


def _reached_mfu(point: MeasuredTime, fit: Fit) -> float:
    """The fraction of peak in a prefill: its compute over the time that memory, link and overhead leave of it."""
    rest = point.measured - predicted_seconds(replace(point, compute=(0.0,) * len(point.compute)), _memory_of(fit))
    compute = sum(point.compute)
    return compute / max(rest, compute)


def _memory_of(fit: Fit) -> Efficiency:
    return Efficiency(mbu=fit.fraction, overhead=fit.overhead, overlap=False)
