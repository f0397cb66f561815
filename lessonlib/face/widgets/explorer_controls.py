"""The controls of the explorers: where they start, how far they go, and the panel that they stand in, as HTML."""

from html import escape
from typing import Any

from lessonlib.work.layouts import LAYOUTS

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

# In the order of the panel. `unit`: in words, of one, and `units` of several where they have no s; `below`: at most one
# less than that setting; `quantum`: the finest step; a scale is logarithmic, or `even`, or begins at `zero`.
RANGES: dict[str, dict[str, Any]] = {
    "prompt": {"label": "prompt", "unit": "token", "least": 1, "most": 131_072},
    "output": {"label": "output", "unit": "token", "least": 1, "most": 65_536},
    "cached": {"label": "of it cached", "unit": "token", "least": 0, "below": "prompt", "zero": True},
    "batch": {"label": "batch", "unit": "request", "least": 1, "most": 4096},
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
    "devices": {"label": "devices", "unit": "device", "least": 1, "most": 256},
}

OWN_KEYS = 'data-lm-suppress-shortcuts="true"'  # keys that JupyterLab would take for commands of its own


def _button(words: str, does: str, of: str = "") -> str:
    return f'<button type="button" data-does="{does}" data-of="{of}" {OWN_KEYS}>{escape(words)}</button>'


def _range(key: str, range_: dict[str, Any]) -> str:
    label, units = escape(range_["label"]), escape(range_.get("units", f"{range_['unit']}s"))
    most = f'max="{range_["most"]}"' if "most" in range_ else ""
    return (
        f'<div class="range" data-of="{key}"><label for="$ID-{key}">{label}</label>'
        f'<input type="range" id="$ID-{key}" data-key="{key}" min="0" max="1" step="any" {OWN_KEYS}>'
        f'<input type="number" data-key="{key}" min="{range_["least"]}" {most} step="any" {OWN_KEYS} '
        f'aria-label="{label}, {units}"><span class="unit">{units}</span></div>'
    )


def _menu(key: str, choices: dict[str, str]) -> str:
    options = "".join(f'<option value="{escape(value)}">{escape(words)}</option>' for value, words in choices.items())
    select = f'<select id="$ID-{key}" data-key="{key}" {OWN_KEYS}>{options}</select>'
    return f'<div class="menu"><label for="$ID-{key}">{key}</label>{select}</div>'


def panel_html(data: dict[str, Any]) -> str:
    """The panel of every view, with all controls; explorer.js puts in what is in $, and takes out what a view has not.

    data-key is the setting of a control, data-does what a button does, data-of with what.
    """

    def labelled(rows: list[dict[str, Any]]) -> dict[str, str]:
        return {row["name"]: row.get("label", row["name"]) for row in rows}

    menus = {
        "model": labelled(data["models"]),
        "accelerator": labelled(data["accelerators"]),
        "precision": {name: name for name in data["precisions"]},
        "efficiency": {name: name for name in (*data["efficiencies"], "high", "typical", "low")},
        "layout": LAYOUTS,
    }
    return f"""<section class="lesson-explore" aria-label="$TITLE">
<p class="title">$TITLE</p>
<div class="presets" role="group" aria-label="Workloads to begin with">Take the $MEANS of
{"".join(_button(word, "preset", word) for word in data["presets"])}</div>
<div class="ranges">{"".join(_range(key, each) for key, each in RANGES.items())}</div>
<div class="menus">{"".join(_menu(key, choices) for key, choices in menus.items())}</div>
<p class="said" role="status" aria-live="polite"></p>
<ul class="legend"></ul>
<div class="pictures"></div>
<div class="ways" role="group" aria-label="What would fit"></div>
<div class="buttons">{_button("Play along the answer", "play")}{_button("Reset", "reset")}
{_button("Keep beside", "keep")}{_button("Copy numbers as CSV", "csv")}
{_button("Copy link", "link")}</div>
<p class="told" role="status"></p>
<div class="numbers"></div>
</section>"""


def ways_out(data: dict[str, Any]) -> dict[str, Any]:
    """What explorer.js offers where a setting is refused, [words, change] each, the nearest first: of each kind one."""

    def grouped(devices: int, layout: str) -> list[Any]:
        several = f"{devices} devices, {LAYOUTS[layout]}" if devices > 1 else "1 device"
        return [several, {"devices": devices, "layout": layout}]

    counts, chat = [2**power for power in range(8)], data["presets"]["chat"]
    by_size = sorted(data["accelerators"], key=lambda one: one["memory"])
    request = {key: chat[key] for key in ("prompt", "output", "cached")}
    return {
        "devices": {
            layout: [grouped(count, each) for count in counts for each in sorted(LAYOUTS, key=layout.__ne__)]
            for layout in LAYOUTS
        },
        "precision": [[f"precision {name}", {"precision": name}] for name in data["precisions"]],
        "accelerator": [[one["label"], {"accelerator": one["name"]}] for one in by_size],
        "target": [["latency target 1,000 ms", {"target": 1000}]],
        "smaller": [["batch 1", {"batch": 1}], ["batch 1, a chat request", {"batch": 1} | request]],
    }
