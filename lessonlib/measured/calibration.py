"""Calibration: two numbers between the floor and a real machine, and how far a prediction from them may be trusted.

    seconds = sum over roofs of (compute / mfu + memory / mbu) + communication + passes x overhead

`compute` and `memory` are a roof's seconds at the full peak and at the full bandwidth, as in roofline.py. A prediction
adds them up; a bound takes the longer of the two: the floor has mfu = mbu = 1 and no overhead. Decode is fitted by mbu
and overhead, prefill by mfu and overhead. The fit is a search: of all pairs, that with the least mean
|ln(predicted / measured)|, taken in each source and then over the sources. So each source counts once, however many
rows it has, and one wild row does not steer (no squares). A fit is judged on sources that it has not seen, by
|predicted / measured - 1|.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lessonlib.base.checks import Checked, a, checked, choice, flag, fraction, items, numbers, rate, wrong
from lessonlib.base.errors import shown
from lessonlib.time.deployment import Efficiency

FRACTIONS = np.arange(20, 101) / 100
OVERHEADS = np.concatenate(([0.0], np.geomspace(1e-4, 2e-2, 47)))  # seconds a pass, each 12 % above the last
LADDER = {
    "two numbers": (),
    "two by memory": ("memory_class",),
    "two by memory and engine": ("memory_class", "engine"),
}


@dataclass(frozen=True, kw_only=True)
class MeasuredTime(Checked):
    """A measured time, and the roofs beneath it, of one pass or several.

    `compute`, `memory`: seconds of each roof, all its passes together. `communication`: seconds of all-reduces on the
    link, `all_reduces` their number. `phase`: "prefill", "decode" (at least 90 % of the floor is), or "request".
    """

    id: str
    source: str
    memory_class: str
    engine: str
    accelerator: str
    batch: int
    devices: int
    phase: str
    measured: float
    compute: tuple[float, ...]
    memory: tuple[float, ...]
    communication: float = 0.0
    all_reduces: float = 0.0
    passes: float = 1.0

    rules: ClassVar = {
        "measured": rate("seconds"),
        **dict.fromkeys(("compute", "memory"), items(rate("seconds", zero=True), least=1)),
        **dict.fromkeys(("communication", "all_reduces", "passes"), rate("seconds, or a count", zero=True)),
    }

    @property
    def owner(self) -> str:
        return f"MeasuredTime {shown(self.id)}"

    def complete(self) -> None:
        if len(self.compute) != len(self.memory):
            raise wrong(self.owner, "memory", self.memory, f"one for each of {len(self.compute)} compute")

    @property
    def publisher(self) -> str:
        """Who published it: the first word of the source's key. Two documents of one publisher are one source."""
        return self.source.partition("-")[0]

    @property
    def floor(self) -> float:
        """Seconds at the full peak and bandwidth, without overhead and without latency."""
        return predicted_seconds(self, Efficiency(all_reduce_latency=0.0))

    @property
    def fraction(self) -> float:
        """Floor over measured time: the fraction of the machine that was reached. Above 1, something is wrong."""
        return self.floor / self.measured


class Fit(NamedTuple):
    """The two numbers, and what they rest on."""

    fraction: float  # of bandwidth in decode, of peak in prefill
    overhead: float  # seconds of each pass
    rows: int
    publishers: tuple[str, ...]


class RelativeErrors(NamedTuple):
    """Median and 90th percentile of |predicted / measured - 1|, and over how many rows."""

    median: float
    p90: float
    rows: int


@checked(point=a(MeasuredTime), efficiency=a(Efficiency))
def predicted_seconds(point: MeasuredTime, efficiency: Efficiency) -> float:
    """The seconds of a point at an efficiency: the sum of both times of a roof, or their maximum where they overlap."""
    join = max if efficiency.overlap else _sum
    roofs = zip(point.compute, point.memory, strict=True)
    busy = sum(join(compute / efficiency.mfu, memory / efficiency.mbu) for compute, memory in roofs)
    latency = point.all_reduces * efficiency.all_reduce_latency
    return busy + point.communication + latency + point.passes * efficiency.overhead


def _sum(compute: float, memory: float) -> float:
    return compute + memory


@checked(ratios=numbers(-math.inf, math.inf, holes=True))
def relative_errors(ratios: Any) -> RelativeErrors:
    """Of an array of predicted / measured."""
    off = np.abs(ratios - 1)
    if not off.size:
        raise wrong("relative_errors", "ratios", [], "at least one predicted / measured")
    return RelativeErrors(float(np.median(off)), float(np.quantile(off, 0.9)), int(off.size))


def source_quantiles(values: Any, publishers: Any, levels: Sequence[float]) -> list[float]:
    """Quantiles in which each publisher has the same weight, however many values are its own."""
    values, publishers = np.asarray(values, dtype=float), np.asarray(publishers)
    order = np.argsort(values)
    names, which, counts = np.unique(publishers, return_inverse=True, return_counts=True)
    weight = (1 / counts[which] / len(names))[order]
    return [float(value) for value in np.interp(levels, np.cumsum(weight) - weight / 2, values[order])]


class Search:
    """Every pair of fraction and overhead, tried on every point once; then any choice of sources is fitted at once.

    `part`: "mbu" to fit decode, "mfu" to fit prefill, whose memory roofs then take `mbu` (a fit of decode). `overlap`:
    as in an Efficiency; True is to compare with.
    """

    @checked(
        points=items(a(MeasuredTime, "published.points()[0]"), least=1),
        part=choice(("mbu", "mfu")),
        mbu=fraction(),
        overlap=flag(),
    )
    def __init__(self, points: Sequence[MeasuredTime], part: str = "mbu", mbu: float = 1.0, overlap: bool = False):
        self.points = points
        self.publishers = np.array([point.publisher for point in self.points])
        compute_divisor, memory_divisor = (FRACTIONS, mbu) if part == "mfu" else (1.0, FRACTIONS)
        rows = []
        for point in self.points:
            compute, memory = np.array(point.compute)[:, None], np.array(point.memory)[:, None]
            join = np.maximum if overlap else np.add
            busy = join(compute / compute_divisor, memory / memory_divisor).sum(axis=0)
            rest = point.communication + point.all_reduces * Efficiency().all_reduce_latency
            rows.append((busy[:, None] + rest + point.passes * OVERHEADS) / point.measured)
        self.ratios = np.array(rows)  # predicted / measured: point, fraction, overhead
        self.logs = np.abs(np.log(self.ratios))
        self.floors = np.array([point.fraction for point in self.points])

    def _mask(self, seen: Any) -> Any:
        """One True or False a point. Numbers may be meant to name points, so they are refused."""
        mask = np.asarray(seen)
        if mask.dtype != bool or mask.shape != (len(self.points),):
            raise wrong("Search", "seen", seen, f"True or False for each of {len(self.points):,} points")
        return mask

    def fit(self, seen: Any, constant: bool = False) -> Fit:
        """The best pair on the points where the mask `seen` is true; `constant`: the best without overhead."""
        seen = self._mask(seen)
        publishers, counts = np.unique(self.publishers[seen], return_counts=True)
        if not publishers.size:
            raise wrong("Search", "seen", seen, "at least one point that is seen")
        weights = 1 / counts[np.searchsorted(publishers, self.publishers[seen])]
        loss = np.tensordot(weights, self.logs[seen, :, :1] if constant else self.logs[seen], 1)
        fraction, overhead = np.unravel_index(np.argmin(loss), loss.shape)
        found = float(FRACTIONS[fraction]), float(OVERHEADS[overhead])
        return Fit(*found, int(seen.sum()), tuple(str(name) for name in publishers))

    def calibrate(self, seen: Any, by: Sequence[str] = (), least: int = 2) -> dict[tuple[str, ...], Fit]:
        """Fits by the named conditions, fields of a point: the key () is of all seen points, then finer and finer.

        A condition gets numbers of its own where at least `least` publishers measured it: fewer may be one's own quirk.
        """
        seen = self._mask(seen)
        fits: dict[tuple[str, ...], Fit] = {(): self.fit(seen)}
        for depth in range(1, len(by) + 1):
            keys = [tuple(getattr(point, name) for name in by[:depth]) for point in self.points]
            for key in dict.fromkeys(keys):
                mask = seen & np.array([other == key for other in keys])
                if len(set(self.publishers[mask])) >= least:
                    fits[key] = self.fit(mask)
        return fits

    def predict(self, fits: Mapping[tuple[str, ...], Fit], by: Sequence[str] = ()) -> Any:
        """Predicted / measured of every point, each by the finest fit that there is for it."""
        best = [finest(fits, tuple(getattr(point, name) for name in by)) for point in self.points]
        fractions = np.searchsorted(FRACTIONS, [fit.fraction for fit in best])
        overheads = np.searchsorted(OVERHEADS, [fit.overhead for fit in best])
        return self.ratios[np.arange(len(best)), fractions, overheads]

    def judged(self, seen: Any) -> dict[str, Any]:
        """Predicted / measured of every point, fitted on `seen`: by the floor, one constant, and up the LADDER."""
        found = {"the floor": self.floors}
        found["one constant"] = self.predict({(): self.fit(seen, constant=True)})
        return found | {name: self.predict(self.calibrate(seen, by), by) for name, by in LADDER.items()}

    def left_out(self) -> Any:
        """Predicted / measured of every point, each by two numbers fitted without any row of its publisher."""
        found = np.empty(len(self.points))
        for publisher in np.unique(self.publishers):
            mine = self.publishers == publisher
            found[mine] = self.predict({(): self.fit(~mine)})[mine]
        return found

    def covered(self, by: str = "memory_class") -> Any:
        """Of every point, whether the range of the other publishers holds it: True or False.

        The range is made as for a reader's own device: 10th to 90th percentile of measured / predicted, each publisher
        once, of the rows with the same `by`; of all rows where no other publisher has such.
        """
        found, groups = np.zeros(len(self.points), dtype=bool), np.array([getattr(p, by) for p in self.points])
        for publisher in np.unique(self.publishers):
            mine = self.publishers == publisher
            slower = 1 / self.predict({(): self.fit(~mine)})
            for group in np.unique(groups[mine]):
                others = ~mine & (groups == group)
                others = others if others.any() else ~mine
                fast, slow = source_quantiles(slower[others], self.publishers[others], (0.1, 0.9))
                here = mine & (groups == group)
                found[here] = (fast <= slower[here]) & (slower[here] <= slow)
        return found

    def alternate(self) -> Any:
        """The stated split, a mask: publishers in alphabetical order, every second one from the first on is seen."""
        return np.isin(self.publishers, np.unique(self.publishers)[::2])

    def halves(self) -> Iterator[Any]:
        """Every way to see half of the publishers (the smaller half, if they are odd), as masks."""
        publishers = np.unique(self.publishers)
        for seen in combinations(publishers, len(publishers) // 2):
            yield np.isin(self.publishers, seen)


def finest(fits: Mapping[tuple[str, ...], Fit], key: tuple[str, ...]) -> Fit:
    """The fit of the longest beginning of `key` that has one: (class, engine), else (class,), else all."""
    while key not in fits:
        if not key:
            raise wrong("finest", "fits", fits, "one for (), all points", "Search.calibrate makes one")
        key = key[:-1]
    return fits[key]
