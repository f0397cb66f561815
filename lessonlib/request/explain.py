"""A cost in words: its roofs one by one, its assumptions, its equations with the numbers put in, its table.

It computes nothing of its own: it writes down the roofs that a cost is the sum of.
"""

from collections.abc import Callable
from typing import Any

from lessonlib.base.errors import printable
from lessonlib.base.text import html_table, plain_html, plain_markdown
from lessonlib.base.units import format_bytes, format_flops, format_percent, format_seconds
from lessonlib.model.precision import ATTENTION, BLOCKS, EXPERTS, MULTIPLIED_IN, UNQUANTISED
from lessonlib.time.deployment import Deployment
from lessonlib.work.layouts import SENT, TENSOR
from lessonlib.work.passes import pair_work
from lessonlib.work.sizes import LayerKind


def _mla_prefill(cost: Any, kind: LayerKind) -> str:
    """Which of its two forms MLA's prefill took."""
    if cost.refused is not None or cost.deployment.prefill_chunk is not None:
        return "the cheaper in each pass"
    cached, new = float(cost.request.cached), float(cost.request.prompt - cost.request.cached)
    if not cached:
        return "expanded here, as nothing is cached"
    pairs = kind.mixer.span_sum(cached, new)
    absorbed = pair_work(kind, kind.mixer.read(cached, new), pairs) == kind.pair_flops * pairs
    return "absorbed here" if absorbed else "expanded here, its prefix re-projected"


def _state_dtypes(deployment: Any) -> list[str]:
    """The dtypes that constant states are kept in, and who says so."""
    precision, lines = deployment.precision, {}
    for kind in deployment.sizes.kinds:
        if kind.mixer.state_elements:
            stated = kind.mixer.state_dtype
            source = "as told" if precision.state else "by the model's config" if stated else "the dtype of its numbers"
            lines[f"Constant state: {precision.of_state(stated)} ({source}), read and written whole in every pass."] = 1
    return list(lines)


def peaks_in_words(deployment: Deployment) -> str:
    """The dense peaks of a device by the dtype that its kernels multiply in: "989 TFLOP/s dense bf16"."""
    kernels: dict[str, list[str]] = {}
    for kernel, dtype in deployment.dtypes.items():
        if kernel != EXPERTS or deployment.sizes.experts:
            kernels.setdefault(dtype, []).append(kernel)
    rates = {dtype: f"{deployment.accelerator.peak(dtype) / 1e12:,.4g} TFLOP/s dense {dtype}" for dtype in kernels}
    if len(rates) == 1:
        return "".join(rates.values())
    return " and ".join(f"{rate} ({', '.join(kernels[dtype])})" for dtype, rate in rates.items())


def operands_in_words(deployment: Deployment) -> list[str]:
    """Which formats are not multiplied as they are stored, and why: a sentence for each."""
    found, precision, name = [], deployment.precision, deployment.accelerator.name
    for part in (BLOCKS, EXPERTS) if deployment.sizes.experts else (BLOCKS,):
        stored, dtype = getattr(precision, part), deployment.dtypes[part]
        own = stored if stored in UNQUANTISED else MULTIPLIED_IN.get(stored)
        if dtype == own:
            continue
        why = f"{name} has no {own} peak" if own else f"{stored} is a format of weights alone"
        why = "as `compute` says" if precision.compute is not None else why
        found.append(f"{stored} weights are multiplied in {dtype}: {why}.")
    return list(dict.fromkeys(found))


def _layout(deployment: Any) -> str:
    """How the devices share the model, and what they send."""
    devices, latency = deployment.devices, format_seconds(deployment.collective_latency)
    over = f"{(deployment.link_rate or 0) / 1e9:,.4g} GB/s one way, {latency} latency each (assumed); not overlapped"
    if deployment.layout == TENSOR:
        return (
            f"Tensor parallelism over {devices} devices: ring all-reduces over {over}. Copied on each device: KV heads "
            "beyond their number, latents, their down-projections, routers."
        )
    alone = (
        f"Data-parallel attention with expert parallelism over {devices} devices: each serves sequences of its own, "
        "the fullest ceil(batch / devices), and one prompt of a prefill pass"
    )
    if not deployment.sizes.collectives:
        return f"{alone}. No experts are routed, so each has all weights and none waits for another."
    dispatched, sent = deployment.precision.dispatched_bytes, deployment.precision.sent_bytes
    return (
        f"{alone}; it has all weights but the routed experts, which are shared out. All-to-alls over {over}; "
        f"{dispatched:g} bytes a number to the experts, {sent:g} back."
    )


def assumptions(cost: Any) -> tuple[str, ...]:
    """What the numbers take for granted, a sentence each."""
    deployment, efficiency, accelerator = cost.deployment, cost.deployment.efficiency, cost.deployment.accelerator
    overlap = "Roofline floor: compute and memory traffic of one kernel overlap fully"
    if not efficiency.overlap:
        overlap = "A prediction, not a floor: compute and memory time of one kernel are added up"
    memory_from = f" ({accelerator.memory_from})" if accelerator.memory_from else ""
    lines = [
        f"{overlap}, kernels run one after another; MFU {efficiency.mfu:g} of {peaks_in_words(deployment)}, "
        f"MBU {efficiency.mbu:g} of {accelerator.bandwidth / 1e9:,.5g} GB/s.",
        f"Overhead of a pass: {format_seconds(efficiency.overhead)}.",
        f"Precision: {deployment.precision}.",
        *operands_in_words(deployment),
        f"Memory: {deployment.memory_fraction:.0%} of {deployment.devices} x {format_bytes(accelerator.memory)}"
        f"{memory_from}, reserved for prompt + output tokens.",
        "Left out: unfused activations, dequantisation, embedding look-ups, norms, softmax, sampling.",
    ]
    if deployment.devices > 1:
        lines.append(_layout(deployment))
    if deployment.model.expert_kinds:
        lines.append("Mixture of experts: uniform routing; a pass reads the expected number of distinct experts.")
    lines += _state_dtypes(deployment)
    lines += dict.fromkeys(kind.mixer.note for kind in deployment.sizes.kinds if kind.mixer.note)
    for kind in deployment.sizes.kinds:
        if kind.expand_flops:
            lines.append(
                "MLA: absorbed in decode, expanded for a prompt with nothing cached, on a cached prefix the cheaper; "
                f"prefill {_mla_prefill(cost, kind)}."
            )
    if deployment.prefill_chunk is not None:
        lines.append(f"Prefill in chunks of {deployment.prefill_chunk:,} tokens, each of which streams all weights.")
    lines += speculation_in_words(deployment)
    return tuple(map(printable, lines))


def speculation_in_words(deployment: Deployment) -> tuple[str, ...]:
    """What drafts, and how much of it is accepted; nothing without speculation."""
    if (speculation := deployment.speculation) is None:
        return ()
    draft = "free drafts, a limit that no draft reaches"
    if speculation.drafter is not None:
        draft = f"draft {speculation.drafter.name}, whose own prefill is in the prefill"
    return (
        f"Speculation: {speculation.draft_tokens} drafted tokens, acceptance {speculation.acceptance:g}, {draft}; "
        "each round at the answer's mean context.",
    )


def _rows(cost: Any) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for roof in cost.roofs():
        work = (format_flops(roof.flops), format_bytes(roof.bytes), format_seconds(roof.seconds))
        rows.append((f"{roof.phase}: {roof.part}", *work, roof.bound))
    for name, phase in (("prefill", cost.prefill), ("decode", cost.decode)):
        if phase.communication:
            sent = SENT[cost.deployment.layout]
            rows.append((f"{name}: {sent}", "", "", format_seconds(phase.communication), "link"))
        if phase.overhead:
            rows.append((f"{name}: overhead", "", "", format_seconds(phase.overhead), "overhead"))
    for name, total in (("prefill", cost.prefill), ("decode", cost.decode), ("all", cost)):
        share = f"{format_percent(total.seconds / cost.seconds, 5)} of time"
        rows.append((name, format_flops(total.flops), format_bytes(total.bytes), format_seconds(total.seconds), share))
    return rows


def _title(cost: Any, said: Callable[[str], str] = str) -> str:
    """One line; `said` makes the names, which may come from a file, fit for where it stands."""
    request, deployment = cost.request, cost.deployment
    cached = f" ({request.cached:,} cached)" if request.cached else ""
    devices = f"{deployment.devices} x " if deployment.devices > 1 else ""
    machine = f"{devices}{said(deployment.accelerator.name)}{deployment.layout_in_words}"
    return (
        f"{said(deployment.model.name)} on {machine}, batch {cost.batch:,}: "
        f"{request.prompt:,}{cached} -> {request.output:,} tokens"
    )


def _clocks(cost: Any) -> str:
    share = f" for all {cost.batch:,}, {format_seconds(cost.seconds / cost.batch)} each" if cost.batch > 1 else ""
    return (
        f"GPU clock {format_seconds(cost.seconds)}{share}; "
        f"request clock {format_seconds(cost.undisturbed)}: TTFT {format_seconds(cost.ttft)}, "
        f"TPOT {format_seconds(cost.tpot)}"
    )


HEADER = ("part", "FLOPs", "bytes", "seconds", "bound by")


def text_table(cost: Any) -> str:
    if cost.refused is not None:
        computed = int((cost.refused == 0).sum())
        return f"RequestCost of {cost.refused.size:,} requests, shape {cost.refused.shape}; {computed:,} computed"
    rows = [HEADER, *_rows(cost)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = []
    for part, *numbers, bound in rows:
        cells = (number.rjust(width) for number, width in zip(numbers, widths[1:4], strict=True))
        lines.append("  ".join([part.ljust(widths[0]), *cells, bound]).rstrip())
    return "\n".join([printable(_title(cost)), *lines, _clocks(cost), *cost.assumptions()])


def html_view(cost: Any) -> str:
    if cost.refused is not None:
        return f"<p>{plain_html(text_table(cost))}</p>"
    notes = "".join(f"<li>{plain_html(line)}</li>" for line in cost.assumptions())
    return (
        f"{html_table(_rows(cost), 'lrrrl', header=HEADER, caption=_title(cost), named=False)}"
        f"<p>{plain_html(_clocks(cost))}</p><details><summary>Assumptions</summary><ul>{notes}</ul></details>"
    )


def equations(cost: Any) -> str:
    """The equations with this request's numbers put in, as Markdown."""
    found = cost.roofs()
    deployment, request = cost.deployment, cost.request
    model, sizes = deployment.model, deployment.sizes
    new, steps = request.prompt - request.cached, request.output - 1
    linear = [roof for roof in cost.prefill.roofs.values() if roof.kernel != ATTENTION]
    prefill_flops = sum(roof.flops for roof in linear if not roof.part.startswith("drafting"))
    bandwidth = f"{deployment.bandwidth / 1e9:,.5g} GB/s"
    how = "max" if deployment.efficiency.overlap else "sum"
    lines = [
        f"**{_title(cost, plain_markdown)}**",
        "",
        f"- P_block = {model.block_matmul_weights:,}; LM head V w = {model.vocabulary:,} x {model.width:,} = "
        f"{model.head_weights:,}",
        f"- weights without routed experts: {format_bytes(sizes.dense_bytes)} a pass; routed experts in all: "
        f"{format_bytes(sum(e.bytes for e in sizes.experts))}",
        f"- linear FLOPs of the prefill: 2 x {cost.batch:,} x {new:,} x P_block + 2 x {cost.batch:,} x V w = "
        f"{format_flops(prefill_flops, 6)}",
    ]
    if deployment.speculation is None:
        lines.append(
            f"- linear FLOPs of {steps:,} steps: {steps:,} x 2 x {cost.batch:,} x (P_block + V w) = "
            f"{format_flops(cost.decode.linear.flops, 6)}"
        )
    for kind in sizes.kinds:
        if kind.cache_bytes:
            pair = f"{kind.pair_flops:,.0f} FLOP a pair"
            if kind.expand_flops:
                pair += f" absorbed, {kind.fresh_pair_flops:,.0f} expanded"
            pairs = f"{kind.mixer.span_sum(request.cached, new):,.0f} in the prefill"
            if deployment.speculation is None:
                pairs += f", {kind.mixer.span_sum(request.prompt, steps):,.0f} in decode"
            lines.append(
                f"- {kind.layers} x {kind.label}: {pair}, {kind.cache_bytes:,.0f} B of cache a token over these "
                f"layers; pairs of a sequence, the sum of its spans: {pairs}"
            )
        else:
            lines.append(f"- {kind.layers} x {kind.label}: {kind.state_bytes:,.0f} B of constant state a sequence")
    for roof in found:
        by_pass = "sum over its passes of " if roof.bound == "both" and deployment.efficiency.overlap else ""
        peak = f"{deployment.peaks[roof.kernel] / 1e12:,.5g} TFLOP/s"
        lines.append(
            f"- {roof.phase}, {roof.part}: {by_pass}{how}({format_flops(roof.flops, 6)} / {peak}, "
            f"{format_bytes(roof.bytes, 6)} / {bandwidth}) = {by_pass}{how}({format_seconds(roof.compute_seconds, 6)}, "
            f"{format_seconds(roof.memory_seconds, 6)}) -> {format_seconds(roof.seconds, 6)} ({roof.bound})"
        )
    lines.append(
        f"- T = T_prefill + T_decode = {format_seconds(cost.prefill.seconds, 6)} + "
        f"{format_seconds(cost.decode.seconds, 6)} = {format_seconds(cost.seconds, 6)}"
    )
    return "\n".join(lines)
