"""An accelerator as rates: dense peak FLOP/s by dtype, memory, bandwidth, link. Decimal units, as in datasheets."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

from lessonlib.base.checks import Checked, a, named, optional, physical
from lessonlib.base.errors import UnknownNameError, printable, shown


@dataclass(frozen=True, kw_only=True)
class Accelerator(Checked):
    """One device. `memory` in bytes, `bandwidth` in byte/s, `peaks` in FLOP/s by dtype, `link` in byte/s one way.

    A peak is the dense one of the dtype used, never the sparsity-doubled one. `link` None: no figure is known, and
    tensor parallelism over such devices is refused. `memory_from` says whose figure the memory is: "nvidia-smi", which
    reports 81,559 MiB for an H100 of 80 GB, or "nominal GB" where only a datasheet speaks; "" where nobody said.
    """

    name: str
    memory: float
    bandwidth: float
    peaks: Mapping[str, float]
    link: float | None = None
    memory_from: str = ""
    label: str = ""
    source: str = ""
    notes: str = ""

    rules: ClassVar = {
        "name": a(str, "'h100-sxm'"),
        **dict.fromkeys(("memory_from", "label", "source", "notes"), a(str)),
        "memory": physical("bytes"),
        "bandwidth": physical("byte/s"),
        "peaks": named(physical("FLOP/s"), "{'bf16': 989e12}"),
        "link": optional(physical("byte/s")),
    }

    @property
    def owner(self) -> str:
        return f"Accelerator {shown(self.name)}"

    def __hash__(self) -> int:
        return hash((self.name, self.memory, self.bandwidth, tuple(self.peaks.items()), self.link))

    def __reduce__(self) -> Any:  # a mapping proxy can neither be copied nor pickled, so it is made anew
        values = {name.name: getattr(self, name.name) for name in fields(self)}
        return partial(type(self), **(values | {"peaks": dict(self.peaks)})), ()

    def __repr__(self) -> str:
        peaks = ", ".join(f"{dtype} {peak / 1e12:,.4g}" for dtype, peak in self.peaks.items())
        link = "no link figure" if self.link is None else f"link {self.link / 1e9:,.4g} GB/s"
        memory_from = f" ({self.memory_from})" if self.memory_from else ""
        return printable(
            f"{self.owner}: {self.memory / 1e9:,.5g} GB{memory_from} at {self.bandwidth / 1e9:,.5g} GB/s, "
            f"dense TFLOP/s: {peaks}, {link}"
        )

    def peak(self, dtype: str) -> float:
        """Dense peak of `dtype` in FLOP/s; UnknownNameError when this device has none."""
        try:
            return self.peaks[dtype]
        except (KeyError, TypeError):
            known = ", ".join(self.peaks)
            dtype = dtype if isinstance(dtype, str) else shown(dtype)
            raise UnknownNameError(
                f"{self.owner} has no {dtype} peak; it has {known}. Choose one of these to compute in."
            ) from None

    def ridge(self, dtype: str = "bf16") -> float:
        """Ridge point P / B in FLOP/byte: below this intensity, memory bandwidth binds."""
        return self.peak(dtype) / self.bandwidth
