"""The explorers in words: of each view its title, controls, start, legend, sentence and numbers; of each control its range.

explorer.js computes and draws. What is in braces is put in there: a value by the name that explorer.js gives it, and
how it is printed, with how many digits: {full.batch:count}, {share:percent 2}. A value without a format is words.
"""

from typing import Any

# Where every view starts, unless it says otherwise.
DEFAULTS: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "accelerator": "h100-sxm",
    "devices": 1,
    "layout": "tensor",
    "precision": "bf16",
    "efficiency": "floor",
    "prompt": 1024,
    "output": 128,
    "cached": 0,
    "batch": 1,
}

# `unit`: in words, of one, and `units` of several where they have no s; `below`: at most one less than that setting;
# `quantum`: the finest step; a scale is logarithmic, or `even`, or begins at `zero`.
RANGES: dict[str, dict[str, Any]] = {
    "prompt": {"label": "prompt", "unit": "token", "least": 1, "most": 131_072},
    "output": {"label": "output", "unit": "token", "least": 1, "most": 65_536},
    "cached": {"label": "of it cached", "unit": "token", "least": 0, "below": "prompt", "zero": True},
    "batch": {"label": "batch", "unit": "request", "least": 1, "most": 4096},
    "devices": {"label": "devices", "unit": "device", "least": 1, "most": 256},
    "position": {"label": "output so far", "unit": "token", "least": 1, "below": "output", "even": True},
    "target": {
        "label": "latency target",
        "unit": "ms a token",
        "units": "ms a token",
        "least": 1,
        "most": 1000,
        "quantum": 0.1,
    },
    "load": {
        "label": "load",
        "unit": "% of capacity",
        "units": "% of capacity",
        "least": 5,
        "most": 200,
        "even": True,
    },
    "times": {"label": "prefill faster", "unit": "time", "least": 1, "most": 1000, "quantum": 0.1},
    "dollars": {"label": "a GPU-hour", "unit": "dollar", "least": 0.1, "most": 20, "quantum": 0.01},
}

# `many`: presets put in means, as a full server has them, not medians; `plays`: the control that the button moves;
# `cases`: words for `case`, which explorer.js decides; `least_output` and `too_short`: what has no answer, and why.
VIEWS: dict[str, dict[str, Any]] = {
    "request": {
        "title": "Where the time of a request goes",
        "controls": ["prompt", "output", "cached", "batch"],
        "start": {"batch": 32},
        "legend": [
            ["prefill", "prefill"],
            ["weights", "decode: linear layers"],
            ["cache", "decode: attention"],
        ],
        "said": "{arrow}: prefill is {shares.flops:percent} of the FLOPs, {shares.alone:percent} of the time alone, "
        "{shares.full:percent} on a full server",
        "numbers": [
            ["started together: GPU clock of the batch", "{cost.seconds:seconds}"],
            ["started together: share of one", "{each:seconds}"],
            ["started together: request clock", "{cost.undisturbed:seconds}"],
            ["full server: GPU time of one", "{full.secondsPerRequest:seconds}"],
            ["full server: wait of a user", "{full.wait:seconds}"],
            ["time to first token", "{cost.ttft:seconds}"],
            ["time per output token, undisturbed", "{tpot:seconds}"],
            ["decode's linear layers", "{bound}"],
            ["decode share of GPU time", "{cost.decodeShare:percent 5}"],
            ["decode share of FLOPs", "{shares.decodeFlops:percent 4}"],
            ["memory needed", "{needed:bytes 3} of {d.memoryAvailable:bytes 3}"],
            ["largest batch, started together", "{largest:count}"],
            ["memory batch, full server", "{full.batch:count}"],
        ],
    },
    "plane": {
        "title": "Every request on one plane",
        "controls": ["prompt", "output", "cached", "batch"],
        "start": {"batch": 32},
        "legend": [
            ["boundary", "rho: prefill takes 5 %"],
            ["cache", "omega above 1: memory is full before the roof"],
        ],
        "said": "{arrow} at batch {batch:count}: rho {rho:general 3}, so prefill takes about {share:percent 2}; {case}",
        "cases": {
            "memory": "omega {omega:general 3}: memory is full before the linear layers are busy",
            "roof": "omega {omega:general 3}: the linear layers are busy before memory is full",
            "none": "there is no omega, for no cache grows",
        },
        "numbers": [
            ["rho, the estimate", "{rho:general 3}"],
            ["prefill / decode, exact", "{exact:general 3}"],
            ["prefill's share, exact", "{here.shares.prefill:percent}"],
            ["omega", "{omega:general 3}"],
            ["roof batch (estimate)", "{roof:count}"],
            ["memory batch", "{full.batch:count}"],
            ["chi", "{chi:general 3}"],
            ["cache reads on a full server", "{full.shares.attention:percent}"],
        ],
    },
    "growth": {
        "title": "A decode step along the answer",
        "controls": ["prompt", "output", "batch", "position"],
        "start": {"prompt": 128, "output": 12_800, "batch": 32, "position": 6_400},
        "plays": "position",
        "least_output": 3,
        "too_short": "The answer has fewer than two steps, so nothing grows; choose a longer output.",
        "legend": [
            ["weights", "linear layers"],
            ["cache", "the neighbours' caches"],
            ["own", "its own cache"],
            ["boundary", "all started together"],
        ],
        "said": "{model}, batch {batch:count}, token {token:count}: a step takes {here.seconds:seconds}, of which its own "
        "cache {share:percent 2}",
        "numbers": [
            ["first step, steady", "{first.seconds:seconds}"],
            ["last step, steady", "{final.seconds:seconds}"],
            ["first step, together", "{firstTogether:seconds}"],
            ["last step, together", "{finalTogether:seconds}"],
            ["this step: linear layers", "{linear:seconds}"],
            ["this step: the neighbours' caches", "{here.neighbours:seconds}"],
            ["this step: its own cache", "{here.own:seconds}"],
            ["cache of one token", "{d.cacheBytesPerToken:bytes}"],
            ["cache read so far, the batch", "{soFar.triangle:bytes}"],
            ["cache read over the answer", "{traffic.triangle:bytes}"],
            ["if it had its final size", "{traffic.end:bytes}"],
            ["cache passes weights at", "{passes}"],
        ],
    },
    "kinds": {
        "title": "What kinds of layer keep and read",
        "controls": ["prompt", "output", "batch"],
        "start": {"model": "gpt-oss-20b", "prompt": 128, "output": 12_800, "batch": 1},
        "legend": [["held", "held, all layers"], ["cache", "read in a step"]],
        "said": "{model}: at {tokens:count} tokens one sequence holds {here:bytes 3}, and a step reads {reads:bytes 3} of "
        "it",
        "numbers": [
            ["held at 1 token", "{held.1:bytes 3}"],
            ["held at 4,096 tokens", "{held.4096:bytes 3}"],
            ["held at 32,768 tokens", "{held.32768:bytes 3}"],
            ["held at 131,072 tokens", "{held.131072:bytes 3}"],
            ["read in a step at {tokens:count} tokens", "{reads:bytes 3}"],
            ["held by the batch", "{ofBatch:bytes 3}"],
            ["weights", "{d.weightBytes:bytes 3}"],
        ],
    },
    "batch": {
        "title": "What a bigger batch gives, and when it ends",
        "controls": ["prompt", "output", "cached", "batch", "target"],
        "start": {"prompt": 128, "output": 12_800, "batch": 32, "target": 20},
        "many": True,
        "least_output": 2,
        "too_short": "One output token has no time to the next one; choose a longer output.",
        "legend": [
            ["edge", "each prompt by itself"],
            ["prefill", "prompts mixed into steps"],
            ["limit", "latency target"],
        ],
        "said": "{whose}: {alone.tokensPerSecond:count} tokens/s alone, {here.tokensPerSecond:count} at batch "
        "{batch:count}; {case}",
        "cases": {
            "memory": "memory is full at {most:count}, within {target:general 4} ms a token",
            "target": "{target:general 4} ms a token end it at {most:count}, memory at {full.batch:count}",
            "none": "no batch keeps {target:general 4} ms a token",
        },
        "numbers": [
            ["memory batch", "{full.batch:count}"],
            ["roof batch (estimate)", "{roof:count}"],
            ["omega", "{omega:general 3}"],
            ["tokens/s at batch 1", "{alone.tokensPerSecond:fixed 1}"],
            ["tokens/s at this batch", "{here.tokensPerSecond:fixed 1}"],
            ["tokens/s at the memory batch", "{full.tokensPerSecond:fixed 1}"],
            ["TPOT at batch 1", "{alone.tpot:seconds}"],
            ["TPOT at this batch", "{here.tpot:seconds}"],
            ["TPOT at the memory batch", "{full.tpot:seconds}"],
            ["GPU seconds a request, memory batch", "{full.secondsPerRequest:seconds}"],
            ["largest batch within the target", "{most:count}"],
            ["tokens/s there", "{there:fixed 1}"],
        ],
    },
    "timeline": {
        "title": "A server in motion",
        "controls": ["prompt", "output", "batch", "load"],
        "start": {"prompt": 1268, "output": 1527, "batch": 24, "load": 90},
        "many": True,
        "legend": [
            ["cache", "requests being served"],
            ["prefill", "requests that wait"],
            ["edge", "time to first token"],
        ],
        "said": "{arrow}, {rate:general 3} requests a second: {offered:count} tokens/s are asked for, {served:count} "
        "served; at the end {left:count} requests wait",
        "numbers": [
            ["requests a second that it can take", "{possible:general 3}"],
            ["requests a second that arrive", "{rate:general 3}"],
            ["tokens/s asked for, second half", "{offered:fixed 1}"],
            ["tokens/s served, second half", "{served:fixed 1}"],
            ["GPU busy", "{busy:percent}"],
            ["median time to first token, first third", "{early:seconds 3}"],
            ["the same, last third", "{late:seconds 3}"],
            ["first token within 1 s", "{prompt:percent}"],
            ["waiting at the end", "{left:count}"],
            ["served at a time, at most", "{run.peakRunning:count}"],
            ["memory batch", "{full:count}"],
        ],
    },
    "prefill": {
        "title": "What a faster prefill saves",
        "controls": ["prompt", "output", "cached", "batch", "times"],
        "start": {"batch": 32, "times": 2},
        "legend": [
            ["edge", "alone"],
            ["prefill", "batch {batch:count}"],
            ["cache", "full, batch {full.batch:count}"],
        ],
        "said": "{arrow}: a prefill {times:general 4} times as fast saves {saved.alone:percent 2} alone, "
        "{saved.full:percent 2} of a full server's GPU time",
        "numbers": [
            ["prefill share, GPU clock", "{shares.here:percent}"],
            ["prefill share, request clock", "{clock:percent}"],
            ["prefill share, alone", "{shares.alone:percent}"],
            ["prefill share, full server", "{shares.full:percent}"],
            ["saved by this prefill, GPU", "{saved.here:percent}"],
            ["saved by this prefill, full server", "{saved.full:percent}"],
            ["rho, the estimate", "{rho:general 3}"],
            ["time to first token", "{cost.ttft:seconds}"],
            ["under 5 % from this output on", "{even:count} tokens"],
        ],
    },
    "levers": {
        "title": "Which lever helps whom",
        "controls": ["prompt", "output", "cached", "batch"],
        "start": {"prompt": 128, "output": 12_800, "batch": 1},
        "many": True,
        "legend": [["other", "batch {batch:count}"], ["held", "each on its own full server"]],
        "said": '{arrow}, full server: most is gained by "{best.name}", {case}',
        "cases": {
            "gain": "{best.atLimit:fixed 2} times as fast",
            "none": "for there is no decode step",
        },
        "numbers": [],
    },
    "price": {
        "title": "What an output token costs",
        "controls": ["prompt", "output", "cached", "batch", "dollars"],
        "start": {"batch": 1, "dollars": 2},
        "many": True,
        "least_output": 2,
        "too_short": "One output token comes from the prefill: there is no step to price.",
        "legend": [["edge", "one output token, in prompt tokens"]],
        "said": "{arrow}, batch {batch:count}: one output token costs as much GPU time as {worth.here:fixed 1} prompt "
        "tokens",
        "numbers": [
            ["one output token, in prompt tokens", "{worth.here:fixed 1}"],
            ["at batch 1", "{worth.alone:fixed 1}"],
            ["at the memory batch", "{worth.full:fixed 1}"],
            ["memory batch", "{full:count}"],
            ["$ a million output, here", "${million.here:fixed 2}"],
            ["$ a million output, at the memory batch", "${million.full:fixed 2}"],
            ["GPU time of one output token", "{each:seconds}"],
        ],
    },
}
