"""A one-page report on a learner's own model, accelerator, traffic and price: on screen, as HTML and as Markdown.

The numbers are traffic_cost.py's; this module puts them in words. Whatever comes from a file (its name, a column, a
model) is escaped where it is shown: none of it is rendered as HTML or Markdown. The figures need matplotlib, imported
when a report is made.
"""

import base64
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lessonlib.catalogue import accelerator_names, load_accelerator, typical_efficiency
from lessonlib.deployment import Deployment, Efficiency
from lessonlib.errors import InvalidInputError, require_count, require_rate, shown
from lessonlib.levers import omega, rho, ridge_tokens, roof_batch
from lessonlib.own_traffic import OwnTraffic
from lessonlib.request import Request
from lessonlib.traffic_cost import (
    TrafficCost,
    concurrency,
    fits,
    mean_slot_bytes,
    price,
    rank_levers,
    traffic_omega,
)
from lessonlib.units import format_bytes, format_percent, format_seconds

DOTS = 2500  # requests drawn as dots
MARKS = r"\`*_{}[]#!|~"  # what Markdown reads as more than a letter, wherever it stands
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;", "@": "&#64;"}  # HTML, mathematics, addresses


class Block(NamedTuple):
    """A piece of the report. `kind`: "heading", "text", "list", "table" (its first row names the columns), "figure"."""

    kind: str
    lines: Sequence[Any]


class Picture(NamedTuple):
    png: bytes
    alt: str
    caption: str


@dataclass(frozen=True, eq=False, repr=False)
class TrafficReport:
    """The report. Display it, or `save("my_report")` it as my_report.html and my_report.md.

    `alone` and `full`: TrafficCost of one request at a time and of `full.batch` of them. `left_out`: rows that the
    server cannot take, by reason. `blocks`: what is shown, as plain text.
    """

    title: str
    deployment: Deployment
    traffic: OwnTraffic
    alone: TrafficCost
    full: TrafficCost
    left_out: dict[str, int]
    blocks: tuple[Block, ...]

    def _repr_html_(self) -> str:
        return _as_html(self.title, self.blocks, 3)

    def _repr_markdown_(self) -> str:
        return _as_markdown(self.title, self.blocks, pictures=False)

    def __repr__(self) -> str:
        return f"TrafficReport: {self.title}"

    def html(self) -> str:
        """The whole page, its figures inside; it loads nothing and runs nothing."""
        style = "body{max-width:52rem;margin:2rem auto;padding:0 1rem;font-family:sans-serif;line-height:1.5;"
        style += f"color:{_INK};background:#fff}}table{{border-collapse:collapse}}th,td{{padding:2px 10px}}"
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
            f"<title>{escape(self.title)}</title><style>{style}</style></head>\n"
            f"<body><main>{_as_html(self.title, self.blocks, 1)}</main></body></html>\n"
        )

    def markdown(self) -> str:
        """The whole page as Markdown, its figures inside."""
        return _as_markdown(self.title, self.blocks, pictures=True)

    def save(self, name: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write NAME.html and NAME.md, each whole or not at all, and return their paths. Older ones are replaced."""
        if not isinstance(name, str | os.PathLike) or not os.fspath(name):
            raise InvalidInputError(
                f"save: name is {shown(name)}; expected a name without ending, such as 'my_report'."
            )
        base = Path(name)
        if not base.parent.is_dir():
            raise InvalidInputError(f"save: the folder {shown(str(base.parent))} does not exist; make it first.")
        texts = {".html": self.html(), ".md": self.markdown()}
        stem = base.name.removesuffix(".html").removesuffix(".md")
        paths = tuple(_write(base.parent / (stem + ending), text) for ending, text in texts.items())
        return paths[0], paths[1]


_INK = "#222222"


def _write(path: Path, text: str) -> Path:
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    except OSError as error:
        raise InvalidInputError(f"save: {shown(path.name)} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InvalidInputError(f"save: {shown(path.name)} cannot be written: {error.strerror}.") from error
        raise
    return path


def uploaded(widget: Any) -> bytes | None:
    """The bytes of the file chosen in an ipywidgets.FileUpload, the last one if several; None when none is."""
    return bytes(widget.value[-1]["content"]) if widget.value else None


def _in_tag(tag: str, text: str, more: str = "") -> str:
    return f"<{tag}{more}>{escape(text)}</{tag}>"


def _cell(text: str, row: int, column: int) -> str:
    """A cell of a table: a header in its first row and its first column."""
    side = "left" if not column else "right"
    if row and column:
        return _in_tag("td", text, f' style="text-align:{side}"')
    weight = "normal" if row else "bold"
    return _in_tag("th", text, f' scope="{"row" if row else "col"}" style="text-align:{side};font-weight:{weight}"')


def _as_html(title: str, blocks: Sequence[Block], level: int) -> str:
    parts = [_in_tag(f"h{level}", title)]
    for kind, lines in blocks:
        if kind == "heading":
            parts.append(_in_tag(f"h{level + 1}", lines[0]))
        elif kind == "text":
            parts += [_in_tag("p", line) for line in lines]
        elif kind == "list":
            parts.append(f"<ul>{''.join(_in_tag('li', line) for line in lines)}</ul>")
        elif kind == "table":
            rows = ["".join(_cell(cell, row, i) for i, cell in enumerate(cells)) for row, cells in enumerate(lines)]
            rows = [f"<tr>{row}</tr>" for row in rows]
            parts.append(
                f'<table style="margin:0 0 1.2em"><thead>{rows[0]}</thead><tbody>{"".join(rows[1:])}</tbody></table>'
            )
        else:
            from lessonlib.figures import figure_html

            parts += [figure_html(picture.png, picture.alt, picture.caption) for picture in lines]
    inside = "\n".join(parts)
    # The classes tell a notebook not to look for formulas between dollar signs.
    return f'<div class="tex2jax_ignore mathjax_ignore">{inside}</div>'


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line: its marks escaped, HTML, mathematics and links too."""
    line = "".join(
        "\\" + letter if letter in MARKS else ENTITIES.get(letter, letter) for letter in " ".join(text.split())
    )
    return line.replace("://", "&#58;//").replace("www.", "www&#46;")


def _as_markdown(title: str, blocks: Sequence[Block], pictures: bool) -> str:
    parts = [f"# {_plain(title)}" if pictures else f"### {_plain(title)}"]
    deeper = "##" if pictures else "####"
    for kind, lines in blocks:
        if kind == "heading":
            parts.append(f"{deeper} {_plain(lines[0])}")
        elif kind == "text":
            parts += [_plain(line) for line in lines]
        elif kind == "list":
            parts.append("\n".join(f"- {_plain(line)}" for line in lines))
        elif kind == "table":
            rule = ["---", *["---:"] * (len(lines[0]) - 1)]
            rows = [[_plain(cell) for cell in row] for row in lines]
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])))
        else:
            for png, alt, caption in lines:
                source = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
                parts.append(f"![{_plain(alt)}]({source})" if pictures else f"Figure: {_plain(alt)}")
                parts.append(_plain(caption))
    return "\n\n".join(parts) + "\n"


# ---- what is said


def _name(text: str) -> str:
    """A name from outside as one printable line of moderate length."""
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return line if len(line) <= 60 else f"{line[:57]}..."


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
    if not isinstance(deployment, Deployment) or not isinstance(traffic, OwnTraffic):
        wrong, kind = (
            (traffic, "OwnTraffic, from read_traffic")
            if isinstance(deployment, Deployment)
            else (
                deployment,
                "Deployment",
            )
        )
        raise InvalidInputError(f"traffic_report: got {shown(wrong)} where a {kind} was expected.")
    if price_per_hour is not None:
        price_per_hour = require_rate("traffic_report", "price_per_hour", price_per_hour, f"{currency} an hour")
    if not isinstance(currency, str):
        raise InvalidInputError(f"traffic_report: currency is {shown(currency)}; expected its name, such as 'USD'.")
    if deployment.memory_free <= 0:
        deployment.require_fit(1)
    request, left_out = _taken(deployment, traffic)
    limit = concurrency(deployment, request)
    if batch is not None and require_count("traffic_report", "batch", batch) > limit:
        raise InvalidInputError(
            f"traffic_report: batch is {batch:,}, but memory holds {limit:,} of these requests on average; give at "
            f"most {limit:,}, or None to take that."
        )
    alone, full = price(deployment, request, 1), price(deployment, request, limit if batch is None else int(batch))
    blocks = (
        *_verdict(deployment, request, alone, full, limit),
        *_pictures(deployment, request, alone, full),
        *_numbers(deployment, request, alone, full, limit, price_per_hour, _name(currency)),
        *_levers(deployment, request, full, limit),
        *_assumptions(deployment, traffic, full, limit, left_out),
        *_trust(deployment, request, full, price_per_hour, _name(currency)),
    )
    where = f"{deployment.devices} x " if deployment.devices > 1 else ""
    title = (
        f"{_name(traffic.name)} on {_name(deployment.model.name)}, "
        f"{where}{_name(deployment.accelerator.label or deployment.accelerator.name)}"
    )
    return TrafficReport(title, deployment, traffic, alone, full, left_out, blocks)


def _taken(deployment: Deployment, traffic: OwnTraffic) -> tuple[Request, dict[str, int]]:
    """The requests that the server can take, and how many it cannot, by reason."""
    masks = fits(deployment, traffic.request)
    wrong = np.any(list(masks.values()), axis=0)
    left_out = {reason: int(mask.sum()) for reason, mask in masks.items() if mask.any()}
    if wrong.all():
        reasons = "; ".join(f"{count:,} are {reason}" for reason, count in left_out.items())
        raise InvalidInputError(
            f"Traffic {traffic.name!r}: the server can take none of its {len(traffic):,} requests: {reasons}. Take a "
            "model with more positions, more memory, or smaller dtypes."
        )
    keep = ~wrong
    return Request(traffic.prompt[keep], traffic.output[keep], traffic.cached[keep]), left_out


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


def _at(batch: int) -> str:
    return f"{batch:,} at a time" if batch > 1 else "one at a time"


def _verdict(
    deployment: Deployment, request: Request, alone: TrafficCost, full: TrafficCost, limit: int
) -> list[Block]:
    whole = _totals(request)
    part, share, bound = _bindings(full)[0]
    full_rho, mix = rho(deployment, whole, full.batch), traffic_omega(deployment, request)
    batching = (
        "Memory is full before the linear layers turn compute bound: a larger batch cannot rescue bandwidth."
        if mix > 1
        else "Memory holds a batch large enough to make passes with prompts mixed in compute bound."
    )
    exact = f"{full.prefill.seconds / full.decode.seconds:.3g}" if full.decode.seconds else "undefined"
    lines = [
        f"On the GPU clock, {_at(full.batch)}, most time goes to {_phase(full.decode_share)}.",
        f"On the request clock, most waiting is {_phase(alone.decode_share)}, for one alone, and "
        f"{_phase(full.request_clock_decode_share)}, {_at(full.batch)}.",
        f"The largest part of the GPU clock is '{part}', {format_percent(share)}; {bound} binds it.",
        f"A prefill that took no time would save {format_percent(1 - full.decode_share)} of the GPU clock. rho "
        f"estimates prefill over decode at {full_rho:.3g}; with the cache reads, which rho leaves out, it is {exact}.",
        f"omega is {mix:.3g}. {batching}",
        f"Memory holds {limit:,} of these requests at a time, on average.",
    ]
    return [Block("heading", ["In short"]), Block("list", lines)]


def _pictures(deployment: Deployment, request: Request, alone: TrafficCost, full: TrafficCost) -> list[Block]:
    from lessonlib.figures import PLANE, plane, png_bytes, time_shares

    new, output = np.asarray(request.prompt) - request.cached, np.asarray(request.output)
    rows = np.arange(len(new))
    if len(rows) > DOTS:
        rows = np.linspace(0, len(rows) - 1, DOTS).round().astype(np.int64)
    inside = (new >= PLANE[0][0]) & (new <= PLANE[0][1]) & (output >= PLANE[1][0]) & (output <= PLANE[1][1])
    batches = (1, full.batch) if full.batch > 1 else (1,)
    drawn = plane(deployment, (), batches, cloud=(new[rows], output[rows]))
    outside = int((~inside).sum())
    under = float(np.mean(rho(deployment, Request(new, output), full.batch) < 0.05 / 0.95))
    words = f"{len(rows):,} of your {len(new):,} requests" if len(rows) < len(new) else f"your {len(new):,} requests"
    beyond = f" {outside:,} lie outside of the picture." if outside else ""
    plane_picture = Picture(
        png_bytes(drawn, 64),
        f"Prompt tokens to prefill against output tokens, both logarithmic, with {words} as dots. By rho's estimate "
        f"{format_percent(under)} of them lie above the line of batch {full.batch:,}.",
        f"A dot is a request. Above the line of its batch, prefill takes under 5 % of the GPU clock; shaded, omega is "
        f"above 1.{beyond}",
    )
    costs = {"alone": alone} | ({_at(full.batch): full} if full.batch > 1 else {})
    said = "; ".join(
        f"{label}: prefill {format_percent(cost.prefill.seconds / cost.seconds)}, linear layers of decode "
        f"{format_percent(cost.decode.linear.seconds / cost.seconds)}, attention of decode "
        f"{format_percent(cost.decode.attention.seconds / cost.seconds)}"
        for label, cost in costs.items()
    )
    title = f"Of the GPU clock, {_at(full.batch)}, decode takes {format_percent(full.decode_share)}"
    caption = f"GPU time of all {len(new):,} requests at the floor; what is left of a bar is all-reduces and overhead."
    bars = Picture(png_bytes(time_shares(costs, title), 64), f"Bars of the GPU clock. {said}.", caption)
    return [Block("figure", [plane_picture, bars])]


def _money(value: float, currency: str) -> str:
    digits = max(2, 2 - math.floor(math.log10(value))) if value > 0 else 2
    return f"{value:,.{digits}f} {currency}"


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
            f"{whole.output / whole.prompt:.3g} (of all tokens)",
            f"{np.quantile(ratio, 0.95):.3g}",
        ),
        ("TTFT, prefilled alone", *(format_seconds(v, 3) for v in (waits[0], float(full.ttft.mean()), waits[1]))),
    ]
    columns = [("alone", alone)] + ([(_at(full.batch), full)] if full.batch > 1 else [])
    rows = [("at the floor", *(label for label, _ in columns))]
    for name, of in (
        ("GPU clock, a request", lambda c: format_seconds(c.seconds / count)),
        ("decode's share of the GPU clock", lambda c: format_percent(c.decode_share)),
        ("decode's share of the request clock", lambda c: format_percent(c.request_clock_decode_share)),
        ("decode's share of the FLOPs", lambda c: format_percent(c.decode.flops / (c.decode.flops + c.prefill.flops))),
        ("TPOT", lambda c: format_seconds(c.tpot, 3)),
        ("TPOT, with stops for others' prefills", lambda c: format_seconds(c.tpot_with_stops, 3)),
        ("output tokens a second, whole server", lambda c: f"{whole.output / c.seconds:,.0f}"),
        ("requests an hour, whole server", lambda c: f"{3600 * count / c.seconds:,.0f}"),
        ("rho", lambda c: f"{rho(deployment, whole, c.batch):.3g}"),
    ):
        rows.append((name, *(of(cost) for _, cost in columns)))
    if hour is not None:
        prices = [_prices(deployment, request, cost, hour) for _, cost in columns]
        for i, name in enumerate(
            ("1,000 requests", "a million output tokens, decode", "a million prompt tokens, prefill")
        ):
            rows.append((name, *(_money(values[i], currency) for values in prices)))
    parts = [
        ("part of the GPU clock", "share", "bound by"),
        *((name, format_percent(share), bound) for name, share, bound in _bindings(full)),
    ]
    memory = [
        ("memory and batch", "value"),
        ("weights", format_bytes(deployment.weight_bytes)),
        ("left for the cache", format_bytes(deployment.memory_free)),
        ("a slot, on average over time", format_bytes(mean_slot_bytes(deployment, request))),
        ("requests at a time, reserved to their end", f"{limit:,}"),
        ("requests at a time, paged, at their mean", f"{concurrency(deployment, request, paged=True):,}"),
        ("ridge, tokens in a pass", f"{ridge_tokens(deployment):,.0f}"),
        ("roof batch, prefill mixed in", f"{roof_batch(deployment, whole):,.0f}"),
        ("omega of your mix", f"{traffic_omega(deployment, request):.3g}"),
    ]
    if deployment.cache_bytes_per_token:
        memory.append((f"omega of your mean output, {mean:,} tokens", f"{omega(deployment, mean):.3g}"))
    return [
        Block("heading", ["The numbers"]),
        Block("table", traffic),
        Block("table", rows),
        Block("text", [f"What binds, {_at(full.batch)}:"]),
        Block("table", parts),
        Block("table", memory),
        Block(
            "text",
            ["A slot holds a request as long as it decodes, so long answers weigh more in the mix than in the mean."],
        ),
    ]


def _levers(deployment: Deployment, request: Request, full: TrafficCost, limit: int) -> list[Block]:
    ranked = rank_levers(deployment, request, full.batch)
    rows = [("lever", f"{_at(full.batch)}", "each at its own memory limit")]
    rows += [(one.name, f"{one.held:.2f} x", f"{one.at_limit:.2f} x") for one in ranked]
    return [
        Block("heading", ["What would help"]),
        Block("text", ["GPU seconds of all requests before over after. Quality and effort are not asked."]),
        Block("table", rows),
    ]


def _assumptions(
    deployment: Deployment, traffic: OwnTraffic, full: TrafficCost, limit: int, left_out: dict[str, int]
) -> list[Block]:
    kept = len(traffic) - sum(left_out.values())
    efficiency = deployment.efficiency
    compute = str(deployment.precision.compute)
    lines = [f"Left out: {count:,} of {len(traffic):,} rows, {reason}." for reason, count in left_out.items()]
    lines += [f"Column of {kind} tokens: {_name(title)}." for kind, title in traffic.columns.items()]
    lines += [
        f"Column {_name(title)} was not read: every prompt is taken as uncached, unless cached_column names it."
        for title in traffic.unread
    ]
    lines += [
        f"{kept:,} requests, each with its own lengths; none is drawn. Order and times of arrival are not used: "
        f"the server always has {full.batch:,} under way, and no queue.",
        f"Rates: {deployment.accelerator.peak(compute) / 1e12:,.4g} TFLOP/s dense {compute}, "
        f"{deployment.accelerator.bandwidth / 1e9:,.5g} GB/s, {format_bytes(deployment.accelerator.memory)} a device, "
        f"of which {deployment.memory_fraction:.0%} are for weights and cache.",
        f"Efficiency: MFU {efficiency.mfu:g}, MBU {efficiency.mbu:g}, overhead "
        f"{format_seconds(efficiency.overhead)} a pass.",
        f"Precision: {deployment.precision}.",
        "A prompt is prefilled alone, between steps. Engines that mix prefill into steps hide part of it while the "
        "batch is below the roof batch.",
        "Memory is reserved for prompt + output tokens of each request, as long as it decodes.",
        "Not counted: activations, dequantisation, sampling, idle time, retries.",
    ]
    if deployment.model.expert_kinds:
        lines.append("Experts are drawn uniformly; a pass reads the expected number of distinct ones.")
    if deployment.model.defaults_used:
        keys = ", ".join(_name(key) for key in deployment.model.defaults_used)
        lines.append(f"Absent from the config, and taken from the default of its class: {keys}.")
    return [Block("heading", ["What is assumed"]), Block("list", lines)]


def _trust(
    deployment: Deployment, request: Request, full: TrafficCost, hour: float | None, currency: str
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
    rows = [["at this efficiency", "TPOT, alone", f"TPOT, {_at(full.batch)}", "output tokens a second"]]
    if hour is not None:
        rows[0].append("1,000 requests")
    for name, efficiency in (
        ("floor", deployment.efficiency),
        ("published, high", typical.high),
        ("published, middle", typical.middle),
        ("published, low", typical.low),
    ):
        server = replace(deployment, efficiency=efficiency)
        one, many = price(server, request, 1), price(server, request, full.batch)
        rate = float(np.sum(request.output)) / many.seconds
        row = [name, format_seconds(one.tpot, 3), format_seconds(many.tpot, 3), f"{rate:,.0f}"]
        rows.append(row if hour is None else [*row, _money(_prices(server, request, many, hour)[0], currency)])
    lines = [
        f"The floor is what no engine beats. Between low and high lie eight in ten published values. {floor}",
        typical.provenance,
    ]
    if full.batch > 1 or deployment.devices > 1:
        lines.append("They were fitted to one sequence on one device. For your batch and devices that is a guess.")
    return [heading, Block("table", rows), Block("text", lines)]


def _same_rates(one: Any, other: Any) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("memory", "bandwidth", "peaks"))
