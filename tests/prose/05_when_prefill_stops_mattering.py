"""The numbers that notebook 05 says in its prose, each made by the library."""

from dataclasses import replace

from lessonlib import Deployment, Efficiency, Request, load_accelerator, load_model, load_workload, steady_state
from lessonlib.face.exercises.book.common import REASONING, server
from lessonlib.face.exercises.book.notebook_05 import full
from lessonlib.measured import typical_efficiency
from lessonlib.policy.estimates import ridge_tokens
from lessonlib.policy.levers import prefix_reload
from lessonlib.policy.sensitivity import break_even_output

TYPICAL = typical_efficiency("h100-sxm")
LOSSES = Efficiency(mfu=0.6, mbu=0.8)  # of two columns of a table
KNIFE = 40  # a batch of chat, of a table
MIDDLING = ("production-reasoning", "agent-step")
CARD = 50e9  # byte/s of a network card, an example


def even_rate(name: str) -> float:
    """byte/s at which fetching the cache of 1,000 tokens takes as long as computing it."""
    machine = Deployment(load_model(name), load_accelerator("h100-sxm"))
    return prefix_reload(machine, Request(1_100, 100, cached=1_000), 7e9).even_rate


HELD = {
    "(Llama-2-7B) it is 49 GB/s": lambda: f"(Llama-2-7B) it is {even_rate('llama-2-7b') / 1e9:.0f} GB/s",
    "under the ridge of 295": lambda: f"under the ridge of {ridge_tokens(server()):.0f}",
    "reach 0.6 of the peak and 0.8 of the bandwidth": lambda: (
        f"reach {LOSSES.mfu} of the peak and {LOSSES.mbu} of the bandwidth"
    ),
    "0.1 % of a full reasoning server, 56 % of a full chat server": lambda: (
        f"{100 * full('reasoning').shares['prefill']:.1f} % of a full reasoning server, "
        f"{100 * full('chat').shares['prefill']:.0f} % of a full chat server"
    ),
    "20 or 21 output tokens": lambda: (
        " or ".join(str(found) for found in sorted({break_even_output(server(), prompt) for prompt in range(1, 296)}))
        + " output tokens"
    ),
    "At batch 40 prompts ride nearly free at the floor, but not at these efficiencies": lambda: (
        f"At batch {KNIFE} prompts ride nearly free at the floor, "
        f"{'but not' if mixed_share(Efficiency()) < 0.02 < mixed_share(LOSSES) else 'and also'} at these efficiencies"
    ),
    "doubles chat at best. Production R1 and the agent gain about an eighth": lambda: (
        f"{'doubles' if 2 < gained('chat') < 2.5 else 'speeds up'} chat at best. Production R1 and the agent gain "
        f"about {'an eighth' if max(abs(gained(name) - 1 - 1 / 8) for name in MIDDLING) < 0.005 else 'less'}"
    ),
    "a network card of 50 GB/s": lambda: f"a network card of {CARD / 1e9:.0f} GB/s",
    "stays below 0.2 % in every column": lambda: (
        f"stays below {0.2 if most_of_reasoning() < 0.002 else most_of_reasoning()} % in every column"
    ),
}


def gained(name: str) -> float:
    """How many times as fast a full server of a workload is when its prefill takes no time."""
    return 1 / (1 - full(name).shares["prefill"])


def most_of_reasoning() -> float:
    """The largest share of prefill on a full reasoning server, at the floor and at typical efficiencies."""
    machines = [
        replace(server(), efficiency=each) for each in (Efficiency(), TYPICAL.low, TYPICAL.middle, TYPICAL.high)
    ]
    return max(steady_state(machine, REASONING).shares["prefill"] for machine in machines)


def mixed_share(efficiency: Efficiency) -> float:
    """The share of prefill in chat's GPU time at KNIFE, its prompts mixed into decode steps."""
    machine = replace(server(), efficiency=efficiency)
    return steady_state(machine, load_workload("chat").mean, KNIFE, mixed=True).shares["prefill"]
