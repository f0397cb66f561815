"""What published measurements reached on a class of machines: a range of Efficiency, and what it rests on."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from lessonlib.base.checks import checked, optional, text
from lessonlib.base.errors import UnknownNameError, shown
from lessonlib.facts.catalogue import load_accelerator
from lessonlib.measured.calibration import Fit, RelativeErrors, Search, finest, relative_errors, source_quantiles
from lessonlib.measured.published import memory_classes, points
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Efficiency


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
    """What two numbers, fitted on every second publisher, are off by on the others: decode, batch 1, one device."""
    search = decode_search()
    seen = search.alternate()
    return relative_errors(search.predict(search.calibrate(seen))[~seen])


@cache
def decode_fits() -> dict[tuple[str, ...], Fit]:
    """The two numbers of decode from all publishers: (), and of each engine that has numbers of its own."""
    search = decode_search()
    return search.calibrate(np.ones(len(search.points), dtype=bool), ("engine",))


@checked(engine=optional(text("'vLLM'", UnknownNameError)))
def typical_efficiency(accelerator: str | Accelerator, engine: str | None = None) -> TypicalEfficiency:
    """What published measurements reached on such a device: `.low`, `.middle`, `.high` and their `.provenance`.

    Each is an Efficiency for a Deployment. The middle is one fit for all classes of memory, which predicted unseen
    sources better than a fit for each; the range is that of the accelerator's class. `engine`, such as "vLLM": its own
    fit, where at least two publishers measured it. `measured.calibration` says how. Raises UnknownNameError.
    """
    name = accelerator.name if isinstance(accelerator, Accelerator) else accelerator
    name = load_accelerator(name).name  # refused here, with the nearest names
    known = sorted({point.engine for point in points()})
    if engine not in (None, *known):
        raise UnknownNameError(f"engine {shown(engine)} is not known; expected None or one of {', '.join(known)}.")
    memory_class = memory_classes()[name]
    search, fits, key = decode_search(), decode_fits(), () if engine is None else (engine,)
    fit = finest(fits, key)
    inside = np.array([point.memory_class == memory_class for point in search.points])
    slower = 1 / search.predict({(): fit})  # measured / predicted
    fast, slow = source_quantiles(slower[inside], search.publishers[inside], (0.1, 0.9))
    prefills = (p for p in points() if (p.phase, p.devices, p.memory_class) == ("prefill", 1, memory_class))
    busy = [p for p in prefills if sum(p.compute) > sum(p.memory)]
    mfus = source_quantiles([p.fraction for p in busy], [p.publisher for p in busy], (0.1, 0.5, 0.9))

    def scaled(factor: float, mfu: float) -> Efficiency:
        return Efficiency(mfu=min(1.0, mfu), mbu=min(1.0, fit.fraction / factor), overhead=fit.overhead * factor)

    own = f"of {engine}" if fits.get(key) is fit and key else "of all engines and memories"
    if key and key not in fits:
        own += f", as fewer than two publishers measured {engine}"
    off = unseen_decode_errors()
    return TypicalEfficiency(
        scaled(slow, mfus[0]),
        scaled(1.0, mfus[1]),
        scaled(fast, mfus[2]),
        f"Decode: two numbers fitted to {fit.rows} published rows {own}, batch 1 on one device, "
        f"{len(fit.publishers)} publishers; fitted so on half of the publishers, they are off by {off.median:.0%} in "
        f"the median on the others. Low and high: 10th and 90th percentile of the {int(inside.sum())} rows on "
        f"{memory_class}, each publisher counted once. Prefill: the same percentiles of the fraction of peak in "
        f"{len(busy)} compute-bound rows on {memory_class}, {len({p.publisher for p in busy})} publishers: a range, "
        "not a prediction. Table: data/measurements.csv.",
    )
