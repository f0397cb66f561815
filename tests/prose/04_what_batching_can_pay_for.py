"""The numbers in the prose of notebook 04, each made again from the library."""

from lessonlib import Deployment, Precision, Request, load_accelerator, load_model, load_workload, pass_cost
from lessonlib.face.exercises.book.common import mixture, server
from lessonlib.face.exercises.book.notebook_04 import MEAN_CACHE, even_span
from lessonlib.facts import load_lengths
from lessonlib.policy import at_latency, intensities, memory_batch, poisson_traffic, simulate, steady_state
from lessonlib.policy.estimates import ridge_tokens, roof_batch

CHAT, PRODUCTION = (load_workload(name).mean for name in ("chat", "production-reasoning"))
THOUGHT = Request(128, 10_000)
A_NODE = 14_800  # output tokens a second of eight H800s, as published


def of_mla(devices):
    """FLOP/byte of DeepSeek-R1's decode attention, where `devices` share its heads and each holds the latent."""
    machine = Deployment(load_model("deepseek-r1"), load_accelerator("h800-sxm"), Precision("bf16"), devices)
    return intensities(machine, MEAN_CACHE, 1)["MLA"]


def kept(of, tpot=0.02):
    """The share of a full chat server's tokens, or batch, that a target leaves."""
    found, full = at_latency(server(), CHAT, tpot).state, steady_state(server(), CHAT)
    return getattr(found, of) / getattr(full, of)


def at(batch):
    """Tokens a second of chat, prompts mixed in, in hundreds."""
    state = steady_state(server(), CHAT, batch and round(batch), mixed=True)
    return 100 * round(state.tokens_per_second / 100)


def first_arrivals() -> str:
    """Whether most of the first 2,000 of four requests a second get their first token at once."""
    lengths = [load_lengths("production-reasoning", of) for of in ("prompt", "output")]
    (middle,) = simulate(server(), poisson_traffic(2_000, 4, *lengths, seed=1)).percentiles("ttft", (50,))
    return f"{'Most' if middle < 0.1 else 'Few'} of the first 2,000 still find free memory"


def spread(count, link=None, cache="bf16"):
    """Tokens a second of each of `count` H800s in the expert layout, memory full."""
    precision = Precision("fp8", cache=cache)
    machine = Deployment(load_model("deepseek-r1"), load_accelerator("h800-sxm"), precision, count, "expert", link=link)
    batch = machine.largest_batch(MEAN_CACHE)
    return batch / pass_cost(machine, 1, MEAN_CACHE - 1, batch).seconds / count


def sixteen():
    reached = spread(16, 50e9, "fp8")
    assert spread(16, 50e9) < A_NODE / 8 < min(reached, spread(16))
    return f"except with an fp8 cache ({reached:,.0f}) or in one domain"


def slowest_link():
    """The slowest whole GB/s at which some number of nodes reaches the published rate, caches in bf16."""
    counts = range(16, 321, 16)
    (link,) = [n for n in range(25, 50) if max(spread(c, n * 1e9) for c in counts) >= A_NODE / 8][:1]
    return f"No count reaches it under about {link} GB/s"


HELD = {
    "except with an fp8 cache (2,110) or in one domain": sixteen,
    "No count reaches it under about 34 GB/s": slowest_link,
    "Most of the first 2,000 still find free memory": first_arrivals,
    "Past 388 tokens": lambda: f"Past {even_span(server()):.0f} tokens",
    "at 161 of 228": lambda: f"at {roof_batch(server(), PRODUCTION):.0f} of {memory_batch(server(), PRODUCTION)}",
    "take 71 % of": lambda: f"take {100 * steady_state(server(), PRODUCTION).shares['attention']:.0f} % of",
    "from 6,700 to 7,000 tokens/s": lambda: f"from {at(roof_batch(server(), CHAT)):,} to {at(None):,} tokens/s",
    "gives up two thirds of its batch, but 13 % of": lambda: (
        f"gives up {({2: 'two thirds'})[round(3 * (1 - kept('batch')))]} of its batch, "
        f"but {100 * (1 - kept('tokens_per_second')):.0f} % of"
    ),
    "only 94 requests keep 20 ms, not 169": lambda: (
        f"only {at_latency(server(), load_workload('production-reasoning').mix(), 0.02).batch} requests keep 20 ms, "
        f"not {at_latency(server(), PRODUCTION, 0.02).batch}"
    ),
    "stores 61 GB": lambda: f"stores {mixture().weight_bytes / 1e9:.0f} GB",
    "caches of 4,989 tokens": lambda: f"caches of {MEAN_CACHE:,} tokens",
    "450 GB/s one way (H800s: 200 GB/s)": lambda: "{:.0f} GB/s one way (H800s: {:.0f} GB/s)".format(
        *(load_accelerator(name).link / 1e9 for name in ("h200-sxm", "h800-sxm"))
    ),
    "at 50 GB/s between": lambda: "at 50 GB/s between",
    "on 144 H800s": lambda: "on 144 H800s",
    "published 14,800 output tokens/s for a node of 8: 1,850 a GPU": lambda: (
        f"published {A_NODE:,} output tokens/s for a node of 8: {A_NODE / 8:,.0f} a GPU"
    ),
    "242 FLOP/byte": lambda: f"{of_mla(1):.0f} FLOP/byte",
    "ridge of 295": lambda: f"ridge of {ridge_tokens(server()):.0f}",
    "over 8 it is 30": lambda: f"over 8 it is {of_mla(8):.0f}",
    "and then 15 ms a token": lambda: "and then 15 ms a token",
    "over 10,000 tokens of thought takes 0.17 s, and writing them had cost 2.5 s": lambda: (
        f"over {THOUGHT.output:,} tokens of thought takes {pass_cost(server(), new=10_128).seconds:.2f} s, "
        f"and writing them had cost {steady_state(server(), THOUGHT).seconds_per_request:.1f} s"
    ),
}
