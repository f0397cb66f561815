"""A one-page report on a learner's own model, accelerator, traffic and price: on screen, as HTML and as Markdown.

`sections` puts the library's numbers in words, and `page` puts these on a page.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count as counted
from pathlib import Path
from typing import Any

from lessonlib.base.checks import between, checked, count, flag, optional
from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.base.files import place_of, write_together
from lessonlib.base.text import one_line
from lessonlib.face.report.page import Section, as_html, as_markdown, whole_page
from lessonlib.face.report.sections import Found, typical_of
from lessonlib.facts.own_traffic import TRAFFIC, OwnTraffic
from lessonlib.policy.full_server import full_batch
from lessonlib.policy.mix import TrafficCost, price
from lessonlib.policy.ranking import rank_levers
from lessonlib.time.deployment import DEPLOYMENT, Deployment

PRICES = (1e-6, 1e12)  # of a device and hour, in any currency


@dataclass(frozen=True, eq=False, repr=False)
class TrafficReport:
    """The report. Display it, or `save("my_report")` it as my_report.html, my_report.md and its figure my_report.png.

    `alone` and `full`: TrafficCost of one request at a time and of `full.batch` of them. `traffic`: what was priced,
    without the rows that the server cannot take. `sections`: what is shown, as plain text.
    """

    title: str
    deployment: Deployment
    traffic: OwnTraffic
    alone: TrafficCost
    full: TrafficCost
    sections: tuple[Section, ...] = field(default=())

    def _repr_html_(self) -> str:
        return as_html(self.title, self.sections, 3)

    def _repr_markdown_(self) -> str:
        return as_markdown(self.title, self.sections, None)

    def __repr__(self) -> str:
        return f"TrafficReport: {self.title}"

    def html(self) -> str:
        """The page as HTML, its figure inside; it loads nothing and runs nothing."""
        return whole_page(self.title, self.sections)

    def markdown(self, picture: str) -> str:
        """The page as Markdown; its figure is a file beside it, of the name `picture`."""
        return as_markdown(self.title, self.sections, picture)

    @property
    def png(self) -> bytes:
        """The figure."""
        (picture,) = next(section.lines for section in self.sections if section.kind == "figure")
        return bytes(picture.png)

    @checked(replace=flag())
    def save(self, name: str | os.PathLike[str] | None = None, replace: bool = False) -> tuple[Path, ...]:
        """Write NAME.html, NAME.md and NAME.png, all or none, and return their paths.

        The Markdown shows NAME.png, which goes where it goes: few viewers show a picture inside of Markdown. Without a
        name it is made of model, accelerator and traffic, and ends in -2, -3 where another report has it. A name of
        your own that another report has is refused with InvalidInputError, unless `replace`. The same report is the
        same files.
        """
        for base in [place_of(name)] if name is not None else self._own_names():
            files = {
                base.with_name(base.name + ".png"): self.png,
                base.with_name(base.name + ".md"): self.markdown(base.name + ".png").encode(),
                base.with_name(base.name + ".html"): self.html().encode(),
            }
            if write_together(files, replace):
                return tuple(reversed(files))
        raise InvalidInputError(
            f"save: another report, or another file, has the name {base.name!r}; choose another name, give none to "
            "have one made, or say replace=True."
        )

    def _own_names(self) -> Iterator[Path]:
        names = (self.deployment.model.name, self.deployment.accelerator.name, Path(self.traffic.name).stem)
        words = (re.sub(r"[^\w.-]+", "-", name).encode()[:70].decode(errors="ignore").strip("-.") for name in names)
        stem = "_".join(word or "own" for word in words)
        return (Path(stem if number == 1 else f"{stem}-{number}") for number in counted(1))


@checked(deployment=DEPLOYMENT, traffic=TRAFFIC, batch=optional(count()))
def traffic_report(
    deployment: Deployment,
    traffic: OwnTraffic,
    price_per_hour: float | None = None,
    currency: str = "USD",
    batch: int | None = None,
) -> TrafficReport:
    """The report on `traffic` served by `deployment`.

    `price_per_hour`: of one device, in `currency`; None: no prices. `batch`: requests under way at a time, your
    own figure; None: as many as memory holds. Rows beyond the model's positions or the memory are left out, and the
    report counts them. Raises InvalidInputError, or DoesNotFitError where the weights or not one request fit.
    """
    if price_per_hour is not None:
        price_per_hour, currency = hourly_price(price_per_hour, currency)
    traffic = traffic.taken_by(deployment)
    request, limit = traffic.request, full_batch(deployment, traffic.request)
    if batch is not None and batch > limit:
        raise InvalidInputError(
            f"traffic_report: batch is {batch:,}, but memory holds {limit:,} of these requests on average; give at "
            f"most {limit:,}, or None to take that."
        )
    alone, full = price(deployment, request, 1), price(deployment, request, limit if batch is None else batch)
    ranked = rank_levers(deployment, request, full.batch, typical_of(deployment))
    found = Found(deployment, traffic, alone, full, limit, ranked, price_per_hour, one_line(currency))
    devices = f"{deployment.devices} x " if deployment.devices > 1 else ""
    device = one_line(deployment.accelerator.label or deployment.accelerator.name)
    title = f"{one_line(traffic.name)} on {one_line(deployment.model.name)}, {devices}{device}"
    return TrafficReport(title, deployment, traffic, alone, full, found.sections())


def hourly_price(*given: Any) -> tuple[float, str]:
    """(price, currency) of a device and hour, checked: `hourly_price(2.50, "USD")`."""
    if len(given) != 2:
        said = ", ".join(map(shown, given))
        raise InvalidInputError(
            f"Price: got {said or 'nothing'}; expected two things, a number with a decimal point and the name of the "
            "currency: 2.50, 'USD'."
        )
    amount, currency = given
    if not isinstance(currency, str) or not 0 < len(currency.strip()) <= 8:
        raise InvalidInputError(
            f"Price: currency is {shown(currency)}; expected its name, of at most 8 letters, such as 'USD'."
        )
    hour = between(*PRICES, f"{one_line(currency)} for one device and hour")("Price", "price_per_hour", amount)
    return hour, currency
