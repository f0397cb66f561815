"""The explorers in words: of each view its title, controls, start, legend, sentence, numbers, and what its plots show.

explorer.js computes and draws. What is in braces is put in there: a value by the name that explorer.js gives it, and
how it is printed, with how many digits: {full.batch:count}, {share:percent 2}. A value without a format is words.

A mark of a plot says what to `draw`, by a method of explorer.js's plot, `of` which values, with which `look`, a class
of explorer.css. An axis goes `from` a number or a value `to` another.
"""

from typing import Any

from lessonlib.facts.workloads import Workload, load_workload, workload_names


def _known(workload: Workload) -> list[dict[str, Any]]:
    """Marks of one of the lesson's own requests on the plane: a dot, and its name beside it."""
    request, name = workload.request, workload.label.split(", ")[-1]
    place = [int(request.prompt - request.cached), int(request.output)]
    side = {"beside": -9, "look": "quiet halo end"} if request.cached else {"beside": 9, "look": "quiet halo "}
    return [
        {"draw": "dot", "of": place, "look": "other-dot", "size": 4},
        {"draw": "label", "of": [*place, 4], "said": name} | side,
    ]


ON_RHO = "rho = 0.053 at batch {batch:count}"
LOOKS_OF_PARTS = ["prefill", "weights", "cache", "other"]  # of a bar: prefill, linear layers, attention, waits

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
        "said": "{lengths}: prefill is {shares.flops:percent} of the FLOPs, {shares.seconds:percent} of the time "
        "alone, {full.shares.prefill:percent} on a full server",
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
            ["decode share of FLOPs", "{decodeFlops:percent 4}"],
            ["memory needed", "{needed:bytes 3} of {d.memoryAvailable:bytes 3}"],
            ["largest batch, started together", "{largest:count}"],
            ["memory batch, full server", "{full.batch:count}"],
        ],
        "height": 240,
        "bars": [
            {"said": "FLOPs of one", "amount": "{alone.flops:flops}", "looks": LOOKS_OF_PARTS}
            | {"parts": ["alone.prefill.flops", "alone.linear.flops", "alone.attention.flops"]},
            {"said": "seconds, alone", "amount": "{alone.seconds:seconds}", "looks": LOOKS_OF_PARTS}
            | {"parts": ["alone.prefill.seconds", "alone.linear.seconds", "alone.attention.seconds", "alone.waits"]},
            {"said": "batch {here.batch:count}", "amount": "{here.secondsPerRequest:seconds} each"}
            | {"parts": ["here.parts.prefill", "here.parts.linear", "here.parts.attention"], "looks": LOOKS_OF_PARTS},
            {"said": "full, batch {full.batch:count}", "amount": "{full.secondsPerRequest:seconds} each"}
            | {"parts": ["full.parts.prefill", "full.parts.linear", "full.parts.attention"], "looks": LOOKS_OF_PARTS},
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
        "said": "{lengths} at batch {batch:count}: rho {rho:general 3}, so prefill takes about {share:percent 2}; "
        "{case}",
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
        "height": 394,
        "plots": [
            {
                "bottom": 350,
                "x": {"said": "new prompt tokens", "from": 1, "to": 10**5.3, "log": True},
                "y": {"said": "output tokens", "from": 1, "to": 1e5, "log": True},
                "marks": [
                    {"draw": "area", "of": ["edge", "top"], "look": "cache faint"},
                    {"draw": "frame"},
                    {"draw": "line", "of": ["edge"], "look": "cache dashed"},
                    {"draw": "label", "of": ["edge.0.0", "edge.0.1", -6], "said": "omega = 1", "look": "ink-cache"}
                    | {"beside": 6},
                    {"draw": "line", "of": ["lineOfRho"], "look": "edge dashed"},
                    {"draw": "slanted", "of": ["wordsOnRho.0", "wordsOnRho.1"], "said": ON_RHO},
                    *(mark for name in workload_names() for mark in _known(load_workload(name))),
                    {"draw": "dot", "of": ["fresh", "r.output"]},
                    {"draw": "label", "of": ["fresh", "r.output", "below"], "said": "your request", "room": 44}
                    | {"look": "bold halo middle"},
                ],
            }
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
        "said": "{model}, batch {batch:count}, token {token:count}: a step takes {here.seconds:seconds}, of which its "
        "own cache {share:percent 2}",
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
        "height": 314,
        "plots": [
            {
                "bottom": 270,
                "x": {"said": "output tokens so far", "from": 0, "to": "r.output"},
                "y": {"said": "ms a step", "from": 0, "to": "top"},
                "marks": [
                    {"draw": "frame"},
                    {"draw": "area", "of": ["edges.ground", "edges.layers"], "look": "weights"},
                    {"draw": "area", "of": ["edges.layers", "edges.neighbours"], "look": "cache"},
                    {"draw": "area", "of": ["edges.neighbours", "edges.whole"], "look": "own"},
                    {"draw": "area", "of": ["later.ground", "later.whole"], "look": "veil"},
                    {"draw": "line", "of": ["edges.together"], "look": "edge dashed"},
                    {"draw": "level", "of": ["reading"], "said": "all of memory read once: {reading:general 3} ms"},
                    {"draw": "upright", "of": ["now"], "look": "now"},
                    {"draw": "dot", "of": ["now", "hereMs"]},
                ],
            }
        ],
    },
    "kinds": {
        "title": "What kinds of layer keep and read",
        "controls": ["prompt", "output", "batch"],
        "start": {"model": "gpt-oss-20b", "prompt": 128, "output": 12_800, "batch": 1},
        "legend": [["held", "held, all layers"], ["cache", "read in a step"]],
        "said": "{model}: at {tokens:count} tokens one sequence holds {here:bytes 3}, and a step reads {reads:bytes 3} "
        "of it",
        "numbers": [
            ["held at 1 token", "{held.1:bytes 3}"],
            ["held at 4,096 tokens", "{held.4096:bytes 3}"],
            ["held at 32,768 tokens", "{held.32768:bytes 3}"],
            ["held at 131,072 tokens", "{held.131072:bytes 3}"],
            ["read in a step at {tokens:count} tokens", "{reads:bytes 3}"],
            ["held by the batch", "{ofBatch:bytes 3}"],
            ["weights", "{d.weightBytes:bytes 3}"],
        ],
        "height": 354,
        "plots": [
            {
                "left": 62,
                "bottom": 310,
                "x": {"said": "tokens of the sequence", "from": 1, "to": 1e6, "log": True},
                "y": {"said": "bytes of one sequence", "from": 1e3, "to": 1e12, "log": True, "show": "bytes 1"},
                "marks": [
                    {"draw": "frame"},
                    {"draw": "lines", "of": ["curves"]},
                    {"draw": "line", "of": ["whole"], "look": "held"},
                    {"draw": "line", "of": ["reading"], "look": "cache dashed"},
                    {"draw": "mark", "of": ["tokens"], "said": "{tokens:count} tokens"},
                    {"draw": "dot", "of": ["tokens", "here"]},
                ],
            }
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
        "height": 420,
        "plots": [
            {
                "bottom": 196,
                "x": {"said": "", "from": 1, "to": 1e4, "log": True},
                "y": {"said": "output tokens a second", "from": 1, "to": 1e5, "log": True},
                "marks": [
                    {"draw": "frame"},
                    {"draw": "line", "of": ["mixed"], "look": "prefill dashed"},
                    {"draw": "line", "of": ["rates"], "look": "edge"},
                    {"draw": "mark", "of": ["full.batch"], "said": "memory is full: {full.batch:count}", "row": 9.4},
                    {"draw": "mark", "of": ["roof"], "said": "roof of the linear layers: {roof:count}", "row": 8.3},
                    {"draw": "dot", "of": ["batch", "here.tokensPerSecond"]},
                ],
            },
            {
                "top": 246,
                "bottom": 376,
                "x": {"said": "batch size", "from": 1, "to": 1e4, "log": True},
                "y": {"said": "ms a token", "from": 1, "to": 1e3, "log": True},
                "marks": [
                    {"draw": "frame"},
                    {"draw": "line", "of": ["waits"], "look": "edge"},
                    {"draw": "mark", "of": ["full.batch"]},
                    {"draw": "level", "of": ["target"], "said": "target: {target:general 4} ms"},
                    {"draw": "drop", "of": ["kept.0", "kept.1"], "look": "limit"},
                    {"draw": "dot", "of": ["batch", "hereMs"]},
                ],
            },
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
        "said": "{lengths}, {rate:general 3} requests a second: {offered:count} tokens/s are asked for, {served:count} "
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
        "height": 420,
        "plots": [
            {
                "bottom": 206,
                "x": {"said": "", "from": 0, "to": "watched"},
                "y": {"said": "requests", "from": 0, "to": "room"},
                "marks": [
                    {"draw": "area", "of": ["levels.0", "levels.1"], "look": "cache"},
                    {"draw": "area", "of": ["levels.1", "levels.2"], "look": "prefill"},
                    {"draw": "frame"},
                    {"draw": "level", "of": ["most"], "said": "at most {most:count} at a time", "look": "end halo"},
                ],
            },
            {
                "top": 256,
                "bottom": 376,
                "x": {"said": "seconds", "from": 0, "to": "watched"},
                "y": {"said": "seconds to the first token", "from": 0.01, "to": 1000, "log": True, "show": "general 3"},
                "marks": [{"draw": "frame"}, {"draw": "dots", "of": ["firsts"], "look": "dots"}],
            },
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
        "said": "{lengths}: a prefill {times:general 4} times as fast saves {saved.alone:percent 2} alone, "
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
        "height": 314,
        "plots": [
            {
                "bottom": 270,
                "x": {"said": "prefill this many times as fast", "from": 1, "to": 1000, "log": True},
                "y": {"said": "% of time saved", "from": 0, "to": 100},
                "marks": [
                    {"draw": "frame"},
                    {"draw": "upright", "of": ["times"], "look": "now"},
                    {"draw": "line", "of": ["curves.alone"], "look": "edge"},
                    {"draw": "dot", "of": ["times", "ends.alone"], "look": "small", "size": 4},
                    {"draw": "line", "of": ["curves.here"], "look": "prefill"},
                    {"draw": "dot", "of": ["times", "ends.here"], "look": "small", "size": 4},
                    {"draw": "line", "of": ["curves.full"], "look": "cache"},
                    {"draw": "dot", "of": ["times", "ends.full"], "look": "small", "size": 4},
                ],
            }
        ],
    },
    "levers": {
        "title": "Which lever helps whom",
        "controls": ["prompt", "output", "cached", "batch"],
        "start": {"prompt": 128, "output": 12_800, "batch": 1},
        "many": True,
        "legend": [["other", "batch {batch:count}"], ["held", "each on its own full server"]],
        "said": '{lengths}, full server: most is gained by "{best.name}", {case}',
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
        "said": "{lengths}, batch {batch:count}: one output token costs as much GPU time as {worth.here:fixed 1} "
        "prompt tokens",
        "numbers": [
            ["one output token, in prompt tokens", "{worth.here:fixed 1}"],
            ["at batch 1", "{worth.alone:fixed 1}"],
            ["at the memory batch", "{worth.full:fixed 1}"],
            ["memory batch", "{full:count}"],
            ["$ a million output, here", "${million.here:fixed 2}"],
            ["$ a million output, at the memory batch", "${million.full:fixed 2}"],
            ["GPU time of one output token", "{each:seconds}"],
        ],
        "height": 334,
        "plots": [
            {
                "bottom": 290,
                "x": {"said": "batch size", "from": 1, "to": 1e4, "log": True},
                "y": {"said": "price, in prompt tokens", "from": 1, "to": 1e4, "log": True},
                "marks": [
                    {"draw": "frame"},
                    {"draw": "line", "of": ["prices"], "look": "edge"},
                    {"draw": "mark", "of": ["full"], "said": "memory is full: {full:count}"},
                    {"draw": "dot", "of": ["batch", "worth.here"]},
                    {"draw": "level", "of": [1], "said": "a prompt token", "look": "quiet end"},
                ],
            }
        ],
    },
}
