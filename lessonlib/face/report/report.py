"""A one-page report on a learner's own model, accelerator, traffic and price: on screen, as HTML and as Markdown.

The numbers are traffic_cost.py's; this module puts them in words, and report_page.py puts these on a page. The figure
needs matplotlib, imported when a report is made.
"""

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lessonlib.base.errors import InvalidInputError, require_count, require_rate, shown
from lessonlib.base.files import place_of, write_together
from lessonlib.base.units import format_bytes, format_percent, format_seconds
from lessonlib.face.report.page import Block, Picture, as_html, as_markdown, whole_page
from lessonlib.facts.catalogue import accelerator_names, load_accelerator
from lessonlib.facts.own_traffic import OwnTraffic
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.policy.levers import RHO_OF_FIVE_PERCENT, omega, rho, ridge_tokens, roof_batch
from lessonlib.policy.mix import (
    Ranked,
    TrafficCost,
    concurrency,
    mean_slot_bytes,
    price,
    rank_levers,
    traffic_omega,
)
from lessonlib.request.cost import Request
from lessonlib.time.deployment import Deployment, Efficiency

DOTS = 2500  # requests drawn as dots
PRICES = (1e-6, 1e12)  # of a device and hour, in any currency
MOST_NAMES = 3  # of columns or keys that are listed


@dataclass(frozen=True, eq=False, repr=False)
class TrafficReport:
    """The report. Display it, or `save("my_report")` it as my_report.html, my_report.md and its figure my_report.png.

    `alone` and `full`: TrafficCost of one request at a time and of `full.batch` of them. `traffic`: what was priced,
    without the rows that the server cannot take. `blocks`: what is shown, as plain text.
    """

    title: str
    deployment: Deployment
    traffic: OwnTraffic
    alone: TrafficCost
    full: TrafficCost
    blocks: tuple[Block, ...] = field(default=())

    def _repr_html_(self) -> str:
        return as_html(self.title, self.blocks, 3)

    def _repr_markdown_(self) -> str:
        return as_markdown(self.title, self.blocks, None)

    def __repr__(self) -> str:
        return f"TrafficReport: {self.title}"

    def html(self) -> str:
        """The page as HTML, its figure inside; it loads nothing and runs nothing."""
        return whole_page(self.title, self.blocks)

    def markdown(self, picture: str) -> str:
        """The page as Markdown; its figure is a file beside it, of the name `picture`."""
        return as_markdown(self.title, self.blocks, picture)

    @property
    def png(self) -> bytes:
        """The figure."""
        (picture,) = next(block.lines for block in self.blocks if block.kind == "figure")
        return bytes(picture.png)

    def save(self, name: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Write NAME.html, NAME.md and NAME.png and return their paths. Older ones are replaced, all or none.

        The Markdown shows NAME.png, which goes where it goes: few viewers show a picture inside of Markdown.
        """
        base = place_of(name)
        files = {
            base.with_name(base.name + ".png"): self.png,
            base.with_name(base.name + ".md"): self.markdown(base.name + ".png").encode(),
            base.with_name(base.name + ".html"): self.html().encode(),
        }
        write_together(files)
        return tuple(reversed(files))


def _name(text: str, most: int = 40) -> str:
    """A name from outside as one printable line of moderate length."""
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 3]}..."


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
    for given, kind, where in ((deployment, Deployment, ""), (traffic, OwnTraffic, ", from read_traffic")):
        if not isinstance(given, kind):
            raise InvalidInputError(f"traffic_report: got {shown(given)} where a {kind.__name__}{where} was expected.")
    if price_per_hour is not None:
        price_per_hour, currency = hourly_price(price_per_hour, currency)
    traffic = traffic.taken_by(deployment)
    request, limit = traffic.request, concurrency(deployment, traffic.request)
    if batch is not None and require_count("traffic_report", "batch", batch) > limit:
        raise InvalidInputError(
            f"traffic_report: batch is {batch:,}, but memory holds {limit:,} of these requests on average; give at "
            f"most {limit:,}, or None to take that."
        )
    alone, full = price(deployment, request, 1), price(deployment, request, limit if batch is None else int(batch))
    ranked = rank_levers(deployment, request, full.batch)
    blocks = (
        *_verdict(deployment, request, alone, full, limit, ranked),
        *_pictures(deployment, request, alone, full),
        *_numbers(deployment, request, alone, full, limit, price_per_hour, _name(currency)),
        *_levers(full, ranked),
        *_trust(deployment, request, alone, full, price_per_hour, _name(currency)),
        *_assumptions(deployment, traffic, full),
    )
    where = f"{deployment.devices} x " if deployment.devices > 1 else ""
    title = (
        f"{_name(traffic.name)} on {_name(deployment.model.name)}, "
        f"{where}{_name(deployment.accelerator.label or deployment.accelerator.name)}"
    )
    return TrafficReport(title, deployment, traffic, alone, full, blocks)


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
    hour = require_rate("Price", "price_per_hour", amount, f"{_name(currency)} for one device and hour")
    if not PRICES[0] <= hour <= PRICES[1]:
        raise InvalidInputError(
            f"Price: price_per_hour is {hour:g} {_name(currency)}; expected from {PRICES[0]:g} to {PRICES[1]:g}."
        )
    return hour, currency


def _totals(request: Request) -> Request:
    """All requests as one of as many tokens: rho and the roof batch of it are those of the whole."""
    return Request(int(np.sum(request.prompt)), int(np.sum(request.output)), int(np.sum(request.cached)))


def _phase(share: float) -> str:
    return f"decode, {format_percent(share)}" if share >= 0.5 else f"prefill, {format_percent(1 - share)}"


def _bindings(cost: TrafficCost) -> list[tuple[str, float, str]]:
    """(part, its share of the GPU clock, what binds it), the largest first."""
    rows = []
    for name, phase in (("prefill", cost.prefill), ("decode", cost.decode)):
        rows.append((f"{name}: linear layers", phase.linear.seconds, phase.linear.bound))
        rows.append((f"{name}: attention", phase.attention.seconds, phase.attention.bound))
        rows.append((f"{name}: all-reduces", phase.communication, "link"))
        rows.append((f"{name}: overhead", phase.overhead, "overhead"))
    shares = [(name, seconds / cost.seconds, bound) for name, seconds, bound in rows if seconds > 0]
    return sorted(shares, key=lambda row: -row[1])


def _times(ratio: float) -> str:
    return f"{ratio:.2f} x" if math.isfinite(ratio) else "(no time is left)"


def _at(batch: int) -> str:
    return f"{batch:,} at a time" if batch > 1 else "one at a time"


def _verdict(
    deployment: Deployment,
    request: Request,
    alone: TrafficCost,
    full: TrafficCost,
    limit: int,
    ranked: list[Ranked],
) -> list[Block]:
    part, share, bound = _bindings(full)[0]
    mix = traffic_omega(deployment, request)
    batching = (
        "Memory is full before the linear layers turn compute bound: a larger batch cannot rescue bandwidth."
        if mix > 1
        else "Memory holds a batch large enough to make passes with prompts mixed in compute bound."
    )
    exact = f"{full.prefill.seconds / full.decode.seconds:.3g}" if full.decode.seconds else "undefined"
    best = ", ".join(f"{one.name} {_times(one.at_limit)}" for one in ranked[:3])
    lines = [
        ("Phase, by the GPU clock", f"{_phase(full.decode_share)}, {_at(full.batch)}."),
        (
            "Phase, by the request clock",
            f"{_phase(alone.request_clock_decode_share)}, for one alone; "
            f"{_phase(full.request_clock_decode_share)}, {_at(full.batch)}.",
        ),
        ("What binds", f"{bound}, in '{part}', the largest part of the GPU clock: {format_percent(share)}."),
        (
            "rho",
            f"{rho(deployment, _totals(request), full.batch):.3g}, an estimate of prefill over decode; with the cache "
            f"reads, {exact}. A prefill that took no time would save {format_percent(1 - full.decode_share)}.",
        ),
        ("omega", f"{mix:.3g}. {batching}"),
        ("Concurrency", f"memory holds {limit:,} of these requests at a time, on average."),
        ("Levers, best first", f"{best}."),
    ]
    return [Block("facts", lines)]


def _pictures(deployment: Deployment, request: Request, alone: TrafficCost, full: TrafficCost) -> list[Block]:
    from lessonlib.face.figures.figures import png_bytes
    from lessonlib.face.figures.traffic_panels import traffic_panels

    new, output = np.asarray(request.prompt) - request.cached, np.asarray(request.output)
    rows = np.arange(len(new))
    if len(rows) > DOTS:
        rows = np.linspace(0, len(rows) - 1, DOTS).round().astype(np.int64)
    under = float(np.mean(rho(deployment, Request(new, output), full.batch) < RHO_OF_FIVE_PERCENT))
    words = f"{len(rows):,} of your {len(new):,} requests" if len(rows) < len(new) else f"your {len(new):,} requests"
    costs = {"alone": alone} | ({_at(full.batch): full} if full.batch > 1 else {})
    said = "; ".join(
        f"{label}, prefill {format_percent(cost.prefill.seconds / cost.seconds)}, linear layers of decode "
        f"{format_percent(cost.decode.linear.seconds / cost.seconds)}, attention of decode "
        f"{format_percent(cost.decode.attention.seconds / cost.seconds)}"
        for label, cost in costs.items()
    )
    picture = Picture(
        png_bytes(traffic_panels(deployment, new[rows], output[rows], costs), 64),
        f"Left: prompt tokens to prefill against output tokens, both logarithmic, with {words} as dots. By rho's "
        f"estimate {format_percent(under)} of them lie above the line of batch {full.batch:,}. Right: bars of the GPU "
        f"clock; {said}.",
        "Above the line of a batch, by rho's estimate, prefill takes under 5 % of the GPU clock: "
        f"{format_percent(under)} of them at batch {full.batch:,}.",
    )
    return [Block("figure", [picture])]


def _money(value: float) -> str:
    if value >= 1e9 or not value > 0:
        return f"{value:.3g}"
    return f"{value:,.{max(0 if value >= 1000 else 2, 2 - math.floor(math.log10(value)))}f}"


def _prices(deployment: Deployment, request: Request, cost: TrafficCost, hour: float) -> tuple[float, float, float]:
    """Price of a thousand requests, of a million output tokens (decode alone), of a million new prompt tokens."""
    second = hour * deployment.devices / 3600
    whole = _totals(request)
    count = len(np.atleast_1d(request.prompt))
    return (
        1e3 * second * cost.seconds / count,
        1e6 * second * cost.decode.seconds / whole.output,
        1e6 * second * cost.prefill.seconds / (whole.prompt - whole.cached),
    )


def _numbers(
    deployment: Deployment,
    request: Request,
    alone: TrafficCost,
    full: TrafficCost,
    limit: int,
    hour: float | None,
    currency: str,
) -> list[Block]:
    count, whole = len(np.atleast_1d(request.prompt)), _totals(request)
    ratio = np.asarray(request.output) / request.prompt
    at = (0.5, 0.95)
    prompts, outputs, waits = (np.quantile(v, at) for v in (request.prompt, request.output, full.ttft))
    mean = max(1, round(whole.output / count))
    traffic = [
        ("your requests", "median", "mean", "95 %"),
        ("prompt tokens", f"{prompts[0]:,.0f}", f"{whole.prompt / count:,.0f}", f"{prompts[1]:,.0f}"),
        ("output tokens", f"{outputs[0]:,.0f}", f"{whole.output / count:,.0f}", f"{outputs[1]:,.0f}"),
        (
            "output / prompt",
            f"{np.median(ratio):.3g}",
            f"{whole.output / whole.prompt:.3g} of all",
            f"{np.quantile(ratio, 0.95):.3g}",
        ),
        ("TTFT, prefilled alone", *(format_seconds(v, 3) for v in (waits[0], float(full.ttft.mean()), waits[1]))),
    ]
    columns = [("alone", alone)] + ([(_at(full.batch), full)] if full.batch > 1 else [])
    priced = "" if hour is None else f", prices in {currency}"
    rows = [(f"at the floor{priced}", *(label for label, _ in columns))]
    for name, of in (
        ("GPU clock, a request", lambda c: format_seconds(c.seconds / count)),
        ("decode's share, GPU clock", lambda c: format_percent(c.decode_share)),
        ("decode's share, request clock", lambda c: format_percent(c.request_clock_decode_share)),
        ("decode's share, FLOPs", lambda c: format_percent(c.decode.flops / (c.decode.flops + c.prefill.flops))),
        ("TPOT", lambda c: format_seconds(c.tpot, 3)),
        ("TPOT, with stops for others' prefills", lambda c: format_seconds(c.tpot_with_stops, 3)),
        ("output tokens a second", lambda c: f"{whole.output / c.seconds:,.0f}"),
        ("requests an hour", lambda c: f"{3600 * count / c.seconds:,.0f}"),
        ("rho", lambda c: f"{rho(deployment, whole, c.batch):.3g}"),
    ):
        rows.append((name, *(of(cost) for _, cost in columns)))
    if hour is not None:
        prices = [_prices(deployment, request, cost, hour) for _, cost in columns]
        for i, name in enumerate(
            ("price of 1,000 requests", "of 1M output tokens, decode", "of 1M new prompt tokens, prefill")
        ):
            rows.append((name, *(_money(values[i]) for values in prices)))
    memory = [
        ("memory and batch", "value"),
        ("weights", format_bytes(deployment.weight_bytes)),
        ("left for the cache", format_bytes(deployment.memory_free)),
        ("a request, on average over time", format_bytes(mean_slot_bytes(deployment, request))),
        ("requests at a time, reserved to their end", f"{limit:,}"),
        ("requests at a time, paged, at their mean", f"{concurrency(deployment, request, paged=True):,}"),
        ("ridge, tokens in a pass", f"{ridge_tokens(deployment):,.0f}"),
        ("roof batch, prefill mixed in", f"{roof_batch(deployment, whole):,.0f}"),
        ("omega of your mix", f"{traffic_omega(deployment, request):.3g}"),
    ]
    if deployment.cache_bytes_per_token:
        memory.append((f"omega of your mean output, {mean:,} tokens", f"{omega(deployment, mean):.3g}"))
    return [Block("heading", ["The numbers"]), *(Block("table", rows) for rows in (traffic, rows, memory))]


def _levers(full: TrafficCost, ranked: list[Ranked]) -> list[Block]:
    rows = [("lever: GPU time before / after", _at(full.batch), "at its own limit")]
    rows += [(one.name, _times(one.held), _times(one.at_limit)) for one in ranked]
    parts = [
        (f"part of the GPU clock, {_at(full.batch)}", "share", "bound by"),
        *((name, format_percent(share), bound) for name, share, bound in _bindings(full)),
    ]
    return [Block("heading", ["What binds, and what would help"]), Block("table", parts), Block("table", rows)]


def _listed(names: Any) -> str:
    """Names from outside, the first few of them."""
    some = [_name(name, 24) for name in names]
    return ", ".join(some[:MOST_NAMES]) + (f" and {len(some) - MOST_NAMES} more" if len(some) > MOST_NAMES else "")


def _assumptions(deployment: Deployment, traffic: OwnTraffic, full: TrafficCost) -> list[Block]:
    count, efficiency = len(traffic), deployment.efficiency
    compute = str(deployment.precision.compute)
    whole = count + sum(traffic.left_out.values())
    lines = [f"Left out: {some:,} of {whole:,} rows, {reason}." for reason, some in traffic.left_out.items()]
    if traffic.columns:
        read = ", ".join(f"{kind} tokens from {_name(title, 24)}" for kind, title in traffic.columns.items())
        lines.append(f"Read: {read}.")
    if traffic.unread:
        lines.append(
            f"Not read: {_listed(traffic.unread)}. Every prompt is taken as uncached, unless cached_column says more."
        )
    lines += [
        f"{count:,} requests, each with its own lengths, none drawn. Times of arrival are not used: {full.batch:,} are "
        "always under way, none queues. Memory is reserved for prompt + output tokens, as long as a request decodes, "
        "so long answers weigh more in the mix than in the mean.",
        f"{deployment.accelerator.peak(compute) / 1e12:,.4g} TFLOP/s dense {compute}, "
        f"{deployment.accelerator.bandwidth / 1e9:,.5g} GB/s; {deployment.memory_fraction:.0%} of "
        f"{format_bytes(deployment.accelerator.memory)} a device for weights and cache. {deployment.precision}. "
        f"MFU {efficiency.mfu:g}, MBU {efficiency.mbu:g}, overhead {format_seconds(efficiency.overhead)} a pass.",
        "Prompts are prefilled alone, between steps. Mixed into steps, a part of that is hidden while the batch is "
        "below the roof batch.",
        "Not counted: activations, dequantisation, sampling, idle time, retries. Levers: quality and effort are not "
        "asked.",
    ]
    if deployment.model.expert_kinds:
        lines.append("Experts are drawn uniformly; a pass reads the expected number of distinct ones.")
    if deployment.model.defaults_used:
        lines.append(f"Absent from the config, default of its class: {_listed(deployment.model.defaults_used)}.")
    return [Block("heading", ["What is assumed"]), Block("list", lines)]


def _trust(
    deployment: Deployment,
    request: Request,
    alone: TrafficCost,
    full: TrafficCost,
    hour: float | None,
    currency: str,
) -> list[Block]:
    heading = Block("heading", ["How far to trust it"])
    floor = "Ratios and rankings are surer than seconds: most of what is left out cancels in a ratio."
    if deployment.efficiency != Efficiency(all_reduce_latency=deployment.efficiency.all_reduce_latency):
        return [heading, Block("text", [f"The times use the efficiency that you gave, as stated above. {floor}"])]
    accelerator = deployment.accelerator
    known = accelerator.name in accelerator_names()
    if not known or not _same_rates(accelerator, load_accelerator(accelerator.name)):
        lines = [
            "The times are a floor: real engines are slower. The rates of this accelerator are your own, so no "
            f"published range is given here; give Efficiency(mfu, mbu, overhead) if you know yours. {floor}"
        ]
        return [heading, Block("text", lines)]
    typical = typical_efficiency(accelerator.name)
    rows = [["efficiency", "TPOT, alone", f"TPOT, {_at(full.batch)}", "output tokens a second"]]
    if hour is not None:
        rows[0].append(f"1,000 requests, {currency}")
    for name, efficiency in (
        ("floor", deployment.efficiency),
        ("high", typical.high),
        ("middle", typical.middle),
        ("low", typical.low),
    ):
        server = replace(deployment, efficiency=efficiency)
        floors = efficiency is deployment.efficiency
        one, many = (alone, full) if floors else (price(server, request, b) for b in (1, full.batch))
        rate = float(np.sum(request.output)) / many.seconds
        row = [name, format_seconds(one.tpot, 3), format_seconds(many.tpot, 3), f"{rate:,.0f}"]
        rows.append(row if hour is None else [*row, _money(_prices(server, request, many, hour)[0])])
    guess = " For your batch and devices that is a guess." if full.batch > 1 or deployment.devices > 1 else ""
    lines = [
        f"The floor is what no engine beats. Eight in ten published values, of one sequence on one device, lie between "
        f"low and high.{guess} {floor}",
        typical.provenance,
    ]
    return [heading, Block("table", rows), Block("text", lines)]


def _same_rates(one: Any, other: Any) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("memory", "bandwidth", "peaks"))
