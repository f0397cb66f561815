"""The sections of the report, in the order in which they are read: the library's numbers, put in words."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from lessonlib.base.text import one_line
from lessonlib.base.units import format_bytes, format_percent, format_seconds
from lessonlib.face.report.page import Picture, Section
from lessonlib.facts.catalogue import accelerator_names, load_accelerator
from lessonlib.facts.measurements import published_gain
from lessonlib.facts.own_traffic import OwnTraffic
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.policy.estimates import RHO_OF_FIVE_PERCENT, chi, omega, rho, ridge_tokens, roof_batch
from lessonlib.policy.full_server import mean_slot_bytes
from lessonlib.policy.mix import TrafficCost, price
from lessonlib.policy.ranking import Ranked
from lessonlib.request.explain import peaks_in_words, speculation_in_words
from lessonlib.request.request import Request
from lessonlib.time.deployment import LATENCIES, Deployment, Efficiency

DOTS = 2500  # requests drawn as dots
MOST_NAMES = 3  # of columns or keys that are listed


@dataclass(frozen=True, eq=False)
class Found:
    """What a report speaks of: the requests, priced one at a time and `full.batch` at a time.

    `limit`: requests that memory holds on average; `hour`: the price of a device and hour in `currency`, or None.
    """

    deployment: Deployment
    traffic: OwnTraffic
    alone: TrafficCost
    full: TrafficCost
    limit: int
    ranked: list[Ranked]
    hour: float | None
    currency: str

    @cached_property
    def request(self) -> Request:
        """Every request, as arrays of lengths."""
        return self.traffic.request

    @cached_property
    def whole(self) -> Request:
        """All requests as one of as many tokens: rho and the roof batch of it are those of the whole."""
        of = self.request
        return Request(int(np.sum(of.prompt)), int(np.sum(of.output)), int(np.sum(of.cached)))

    @property
    def has_limits(self) -> bool:
        """Whether chi and omega speak of it: they are of a cache that grows, and of steps that emit one token."""
        return bool(self.deployment.cache_bytes_per_token) and self.deployment.speculation is None

    @cached_property
    def columns(self) -> dict[str, TrafficCost]:
        """The costs that stand side by side, by their headings."""
        return {"alone": self.alone} | ({_at(self.full.batch): self.full} if self.full.batch > 1 else {})

    def sections(self) -> tuple[Section, ...]:
        return (*_verdict(self), _figure(self), *_numbers(self), *_levers(self), *_trust(self), *_assumptions(self))

    def prices(self, cost: TrafficCost) -> tuple[float, float, float]:
        """Price of a thousand requests, of a million output tokens (decode alone), of a million new prompt tokens."""
        second = (self.hour or 0.0) * self.deployment.devices / 3600
        return (
            1e3 * second * cost.seconds / len(self.traffic),
            1e6 * second * cost.decode.seconds / self.whole.output,
            1e6 * second * cost.prefill.seconds / (self.whole.prompt - self.whole.cached),
        )


def _at(batch: int) -> str:
    return f"{batch:,} at a time" if batch > 1 else "one at a time"


def _times(ratio: float) -> str:
    return f"{ratio:.2f} x" if math.isfinite(ratio) else "(no time is left)"


def _phase(share: float) -> str:
    return f"decode, {format_percent(share)}" if share >= 0.5 else f"prefill, {format_percent(1 - share)}"


def _money(value: float) -> str:
    if value >= 1e9 or not value > 0:
        return f"{value:.3g}"
    return f"{value:,.{max(0 if value >= 1000 else 2, 2 - math.floor(math.log10(value)))}f}"


def _bindings(cost: TrafficCost) -> list[tuple[str, float, str]]:
    """(part, its share of the GPU clock, what binds it), the largest first."""
    rows = []
    for name, phase in (("prefill", cost.prefill), ("decode", cost.decode)):
        rows.append((f"{name}: linear layers", phase.linear.seconds, phase.linear.bound))
        rows.append((f"{name}: attention", phase.attention.seconds, phase.attention.bound))
        rows.append((f"{name}: communication", phase.communication, "link"))
        rows.append((f"{name}: overhead", phase.overhead, "overhead"))
    shares = [(name, seconds / cost.seconds, bound) for name, seconds, bound in rows if seconds > 0]
    return sorted(shares, key=lambda row: -row[1])


def _verdict(found: Found) -> list[Section]:
    alone, full = found.alone, found.full
    part, share, bound = _bindings(full)[0]
    exact = f"{full.prefill.seconds / full.decode.seconds:.3g}" if full.decode.seconds else "undefined"
    best = found.ranked[0]
    sentence = (
        f"Served {_at(full.batch)}, these requests spend {format_percent(full.decode_share)} of their GPU time on "
        f"decode; the largest part is '{part}', bound by {bound}; of the levers, '{best.name}' helps most, "
        f"{_times(best.at_limit)}."
    )
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
            f"{rho(found.deployment, found.whole, full.batch):.3g}, an estimate of prefill over decode; with the cache "
            f"reads, {exact}. A prefill that took no time would save {format_percent(1 - full.decode_share)}.",
        ),
        *_limits(found),
        ("Levers, best first", ", ".join(f"{one.name} {_times(one.at_limit)}" for one in found.ranked[:3]) + "."),
    ]
    return [Section("text", [sentence]), Section("facts", lines)]


def _limits(found: Found) -> list[tuple[str, str]]:
    """chi and omega of the mix, and what they say. A model without a growing cache has neither, nor has speculation."""
    if not found.has_limits:
        return []
    reads, full = (of(found.deployment, found.request, mix=True) for of in (chi, omega))
    part, _, bound = _bindings(found.full)[0]
    decode = found.full.decode
    attention = decode.attention.bound == "compute" or (part.endswith("attention") and bound == "compute")
    more_weights = reads <= full and decode.linear.bytes >= decode.attention.bytes
    return [
        (
            "chi",
            f"{reads:.3g}. "
            + (
                "A token's cache takes longer to read than its linear layers to compute"
                + (
                    "; of attention that computes longer than it reads, as here, chi says nothing."
                    if attention
                    else ": no batch makes a pass compute bound."
                )
                if reads > 1
                else "A token's linear layers take longer to compute than its cache to read: a large batch makes a "
                "pass mostly compute bound."
            ),
        ),
        (
            "omega",
            f"{full:.3g}. "
            + (
                "Memory is full before the linear layers turn compute bound"
                + (", and a step reads more weights than caches, for these have less of it." if more_weights else ".")
                if full > 1
                else "Memory holds a batch at which the linear layers of passes with prompts mixed in turn compute "
                + ("bound; a pass spends more time reading caches all the same." if reads > 1 else "bound.")
            ),
        ),
    ]


def _figure(found: Found) -> Section:
    from lessonlib.face.figures.style import png_bytes
    from lessonlib.face.figures.traffic_panels import traffic_panels

    request, batch = found.request, found.full.batch
    new, output = np.asarray(request.prompt) - request.cached, np.asarray(request.output)
    rows = np.arange(len(new))
    if len(rows) > DOTS:
        rows = np.linspace(0, len(rows) - 1, DOTS).round().astype(np.int64)
    under = float(np.mean(rho(found.deployment, Request(new, output), batch) < RHO_OF_FIVE_PERCENT))
    words = f"{len(rows):,} of your {len(new):,} requests" if len(rows) < len(new) else f"your {len(new):,} requests"
    said = "; ".join(
        f"{label}, prefill {format_percent(cost.prefill.seconds / cost.seconds)}, linear layers of decode "
        f"{format_percent(cost.decode.linear.seconds / cost.seconds)}, attention of decode "
        f"{format_percent(cost.decode.attention.seconds / cost.seconds)}"
        for label, cost in found.columns.items()
    )
    picture = Picture(
        png_bytes(traffic_panels(found.deployment, new[rows], output[rows], found.columns), 64),
        f"Left: prompt tokens to prefill against output tokens, both logarithmic, with {words} as dots. By rho's "
        f"estimate {format_percent(under)} of them lie above the line of batch {batch:,}. Right: bars of the GPU "
        f"clock; {said}.",
        f"By rho's estimate, {format_percent(under)} of these requests spend under 5 % of the GPU clock on prefill at "
        f"batch {batch:,}: they lie above its line.",
    )
    return Section("figure", [picture])


def _numbers(found: Found) -> list[Section]:
    return [Section("heading", ["The numbers"]), _lengths(found), _costs(found), _memory(found)]


def _lengths(found: Found) -> Section:
    request, whole, count = found.request, found.whole, len(found.traffic)
    ratio, waits = np.asarray(request.output) / request.prompt, found.full.ttft

    def row(name: str, values: Any, mean: str, form: Any) -> tuple[str, ...]:
        middle, high = np.quantile(values, (0.5, 0.95))
        return name, form(middle), mean, form(high)

    return Section(
        "table",
        [
            ("your requests", "median", "mean", "95 %"),
            row("prompt tokens", request.prompt, f"{whole.prompt / count:,.0f}", "{:,.0f}".format),
            row("output tokens", request.output, f"{whole.output / count:,.0f}", "{:,.0f}".format),
            row("output / prompt", ratio, f"{whole.output / whole.prompt:.3g} of all", "{:.3g}".format),
            row("TTFT, prefilled alone", waits, format_seconds(float(waits.mean()), 3), lambda v: format_seconds(v, 3)),
        ],
    )


def _costs(found: Found) -> Section:
    count, whole = len(found.traffic), found.whole
    priced = "" if found.hour is None else f", prices in {found.currency}"
    rows = [(f"at the floor{priced}", *found.columns)]
    for name, of in (
        ("GPU clock, a request", lambda c: format_seconds(c.seconds / count)),
        ("decode's share, GPU clock", lambda c: format_percent(c.decode_share)),
        ("decode's share, request clock", lambda c: format_percent(c.request_clock_decode_share)),
        ("decode's share, FLOPs", lambda c: format_percent(c.decode.flops / (c.decode.flops + c.prefill.flops))),
        ("a decode step", lambda c: format_seconds(c.step, 3)),
        ("TPOT, others' prefills included", lambda c: format_seconds(c.tpot, 3)),
        ("wait, from admission to the last token", lambda c: format_seconds(c.wait, 3)),
        ("output tokens a second", lambda c: f"{whole.output / c.seconds:,.0f}"),
        ("requests an hour", lambda c: f"{3600 * count / c.seconds:,.0f}"),
        ("rho", lambda c: f"{rho(found.deployment, whole, c.batch):.3g}"),
    ):
        rows.append((name, *(of(cost) for cost in found.columns.values())))
    if found.hour is not None:
        names = ("price of 1,000 requests", "of 1M output tokens, decode", "of 1M new prompt tokens, prefill")
        prices = [found.prices(cost) for cost in found.columns.values()]
        rows += [(name, *map(_money, values)) for name, values in zip(names, zip(*prices, strict=True), strict=True)]
    return Section("table", rows)


def _memory(found: Found) -> Section:
    deployment, request = found.deployment, found.request
    rows = [
        ("memory and batch", "value"),
        ("weights", format_bytes(deployment.weight_bytes)),
        ("left for the cache", format_bytes(deployment.memory_free)),
        ("a request, on average over time", format_bytes(mean_slot_bytes(deployment, request))),
        ("memory batch: requests at a time, on average", f"{found.limit:,}"),
        ("ridge, tokens in a pass", f"{ridge_tokens(deployment):,.0f}"),
        ("roof batch of the linear layers, prefill mixed in", f"{roof_batch(deployment, request, mix=True):,.0f}"),
    ]
    if found.has_limits:
        for name, of in (("chi", chi), ("omega", omega)):
            rows.append((f"{name} by your requests", f"{of(deployment, request, mix=True):.3g}"))
            rows.append((f"{name} by their mean", f"{of(deployment, found.traffic.mean):.3g}"))
    return Section("table", rows)


def _levers(found: Found) -> list[Section]:
    batch = _at(found.full.batch)
    parts = [(name, format_percent(share), bound) for name, share, bound in _bindings(found.full)]
    header = ["lever: GPU time before / after", batch, "full server"]
    rows = [[one.name, _times(one.held), _times(one.at_limit)] for one in found.ranked]
    if any(one.typical is not None for one in found.ranked):
        header += ["typical", "rank"]
        for row, one in zip(rows, found.ranked, strict=True):
            row += [_times(one.typical or 0.0), "holds" if one.holds else "moves"]
    said = [f"{one.name}: {words}." for one in found.ranked if (words := published_gain(one.name))]
    return [
        Section("heading", ["What binds, and what would help"]),
        Section("table", [(f"part of the GPU clock, {batch}", "share", "bound by"), *parts]),
        Section("table", [header, *rows]),
        Section("text", [f"Published, on other models and servers, times as fast: {' '.join(said)}"] if said else []),
    ]


def is_given(efficiency: Efficiency) -> bool:
    """Whether it is other than the floor, whatever the latencies of collectives are."""
    latencies = {name: getattr(efficiency, name) for name in LATENCIES.values()}
    return efficiency != Efficiency(**latencies)


def typical_of(deployment: Deployment) -> Efficiency | None:
    """The middle of what published measurements reached on such a device; None where the efficiency was given, or the
    device is not the catalogue's."""
    given = is_given(deployment.efficiency)
    accelerator = deployment.accelerator
    known = accelerator.name in accelerator_names() and _same_rates(accelerator, load_accelerator(accelerator.name))
    return typical_efficiency(accelerator.name).middle if known and not given else None


def _trust(found: Found) -> list[Section]:
    deployment, accelerator, batch = found.deployment, found.deployment.accelerator, found.full.batch
    places = [one.holds for one in found.ranked if one.holds is not None]
    floor = "Ratios and rankings move with the efficiency too: what is left out does not cancel."
    if places:
        floor = f"Of {len(places)} levers {sum(places)} keep their place between the floor and typical efficiency."
    heading, table = Section("heading", ["How far to trust it"]), []
    known = accelerator.name in accelerator_names() and _same_rates(accelerator, load_accelerator(accelerator.name))
    if is_given(deployment.efficiency):
        lines = [f"The times use the efficiency that you gave, as stated above. {floor}"]
    elif not known:
        lines = [
            "The times are a floor: real engines are slower. The rates of this accelerator are your own, so no "
            f"published range is given here; give Efficiency(mfu, mbu, overhead) if you know yours. {floor}"
        ]
    else:
        typical = typical_efficiency(accelerator.name)
        table = [Section("table", _at_efficiencies(found, typical))]
        guess = " For your batch and devices that is a guess." if batch > 1 or deployment.devices > 1 else ""
        lines = [
            "No engine beats the floor on these devices in this layout. Eight in ten published values, of one "
            f"sequence on one device, lie between low and high.{guess} {floor}",
            typical.provenance,
        ]
    return [heading, *table, Section("text", lines)]


def _at_efficiencies(found: Found, typical: Any) -> list[list[str]]:
    """The rows of a table: times and prices at the floor, and at each efficiency that is typical."""
    header = ["efficiency", "TPOT, alone", f"TPOT, {_at(found.full.batch)}", "output tokens a second"]
    rows = [header if found.hour is None else [*header, f"1,000 requests, {found.currency}"]]
    for name in ("floor", "high", "middle", "low"):
        efficiency = found.deployment.efficiency if name == "floor" else getattr(typical, name)
        server = replace(found.deployment, efficiency=efficiency)
        one, many = (price(server, found.request, batch) for batch in (1, found.full.batch))
        rate = f"{found.whole.output / many.seconds:,.0f}"
        row = [name, format_seconds(one.tpot, 3), format_seconds(many.tpot, 3), rate]
        rows.append(row if found.hour is None else [*row, _money(found.prices(many)[0])])
    return rows


def _same_rates(one: Any, other: Any) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("memory", "bandwidth", "peaks"))


def _listed(names: Any) -> str:
    """Names from outside, the first few of them."""
    some = [one_line(name, 24) for name in names]
    return ", ".join(some[:MOST_NAMES]) + (f" and {len(some) - MOST_NAMES} more" if len(some) > MOST_NAMES else "")


def _assumptions(found: Found) -> list[Section]:
    deployment, traffic, count = found.deployment, found.traffic, len(found.traffic)
    efficiency = deployment.efficiency
    rows = count + sum(traffic.left_out.values())
    lines = [f"Left out: {some:,} of {rows:,} rows, {reason}." for reason, some in traffic.left_out.items()]
    if traffic.columns:
        read = ", ".join(f"{kind} tokens from {one_line(title, 24)}" for kind, title in traffic.columns.items())
        lines.append(f"Read: {read}.")
    lines += [one_line(note, 300) for note in traffic.notes]
    if traffic.unread:
        taken = " Every prompt is taken as uncached, unless cached_column says more."
        lines.append(f"Not read: {_listed(traffic.unread)}.{'' if 'cached' in traffic.columns else taken}")
    lines += [
        f"{count:,} requests, each with its own lengths, none drawn. Times of arrival are not used: "
        f"{found.full.batch:,} are always under way, none queues. Memory is handed out in pages as answers grow, and "
        "is full on average; long answers are under way longer, and weigh more in the mix than in the mean.",
        f"{peaks_in_words(deployment)}, "
        f"{deployment.accelerator.bandwidth / 1e9:,.5g} GB/s; {deployment.memory_fraction:.0%} of "
        f"{format_bytes(deployment.accelerator.memory)} a device for weights and cache. {deployment.precision}. "
        f"MFU {efficiency.mfu:g}, MBU {efficiency.mbu:g}, overhead {format_seconds(efficiency.overhead)} a pass.",
        "Prompts are prefilled alone, between steps. Mixed into steps, a part of that is hidden while the batch is "
        "below the roof batch.",
        "Not counted: activations, dequantisation, sampling, idle time, retries. Levers: quality and effort are not "
        "asked.",
    ]
    lines += speculation_in_words(deployment)
    if deployment.speculation is not None:
        lines.append("rho and the roof batch are of steps without drafts; chi and omega, which are too, are left out.")
    if deployment.model.expert_kinds:
        lines.append("Experts are drawn uniformly; a pass reads the expected number of distinct ones.")
    if deployment.model.defaults_used:
        lines.append(f"Absent from the config, default of its class: {_listed(deployment.model.defaults_used)}.")
    lines += str(deployment.model).splitlines()[1:]  # what its config holds and the model does not
    return [Section("heading", ["What is assumed"]), Section("list", lines)]
