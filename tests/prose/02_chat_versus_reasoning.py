"""The numbers that notebook 02 says in its prose, each made by the library."""

from lessonlib.face.exercises.book.common import CHAT, REASONING, server
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.tables import load_table
from lessonlib.facts.workloads import load_workload
from lessonlib.measured import typical_efficiency
from lessonlib.policy.estimates import chi, omega
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment

MEAN = load_workload("chat").mean
PRODUCTION = load_workload("production-reasoning")
MEDIAN_RATIO = next(row for row in load_table("workload_shares") if row["workload"] == "chat")["ratio_median"]


def prefill(request):
    return 100 * steady_state(server(), request).shares["prefill"]


def lengths(request):
    return f"{request.prompt:,} -> {request.output:,}"


def chat_line():
    stand_in = (CHAT, MEAN, Request(CHAT.prompt, round(CHAT.prompt * MEDIAN_RATIO)))
    shares = [prefill(request) for request in (*stand_in, Request(MEAN.prompt, MEAN.output, MEAN.prompt // 2))]
    return f"{min(shares):.0f} to {max(shares):.0f} % of it, by what stands for chat; of its means {shares[1]:.0f} %"


def reasoning_line():
    full = steady_state(server(), REASONING)
    reads = 100 * full.shares["attention"]
    return f"prefill is {prefill(REASONING):.2f} % of a full server, and cache reads are {reads:.0f} %"


def survives():
    typical = typical_efficiency("h100-sxm")
    shares = []
    for efficiency in (typical.high, typical.middle, typical.low):
        slower = Deployment(server().model, server().accelerator, efficiency=efficiency)
        shares.append(steady_state(slower, REASONING).shares)
        assert steady_state(slower, MEAN).shares["prefill"] > 0.5 and max(shares[-1], key=shares[-1].get) == "attention"
    most = max(100 * share["prefill"] for share in shares)
    return f"stays below {next(bound / 10 for bound in range(1, 100) if bound / 10 > most):.1f} %"


def wait_is_not_cost():
    chat, agent = (steady_state(server(), load_workload(name).mean) for name in ("chat", "agent-step"))
    assert abs(agent.seconds_per_request / chat.seconds_per_request / 100 - 1) < 0.05 and agent.wait < chat.wait
    return f"only {('no', 'one', 'two', 'three')[agent.batch]} share that server"


def hundred_to_one(edge):
    rows = [row for row in load_table("workload_shares") if row["workload"] == "production-reasoning"]
    return 100 * edge(row["requests_ratio_ge_100"] for row in rows)


def caches_over_weights():
    of_a_pass, ratio = server().sizes.dense_bytes, chi(server(), REASONING) / omega(server(), REASONING)
    assert abs(server().memory_free / of_a_pass / ratio - 1) < 1e-3
    return f"the memory left for caches over the weights of a pass, here {ratio:.1f}"


def nearly_filled():
    """A full reasoning server of Qwen3-32B on the GPU of the lesson."""
    machine = Deployment(load_model("qwen3-32b"), load_accelerator("h100-sxm"))
    reads, batch = 100 * steady_state(machine, REASONING).shares["linear"], memory_batch(machine, REASONING)
    numbers = f"Its chi is {chi(machine, REASONING):.1f}, its omega {omega(machine, REASONING):.0f}"
    return f"holds {batch} reasoning requests, and reads weights for {reads:.0f} % of the time. {numbers}"


HELD = {
    "the memory left for caches over the weights of a pass, here 4.1": caches_over_weights,
    "holds 6 reasoning requests, and reads weights for 86 % of the time. Its chi is 7.8, its omega 44": nearly_filled,
    "Prefill under 5 % of the GPU clock means prefill to decode as 5 to 95": lambda: (
        f"Prefill under 5 % of the GPU clock means prefill to decode as 5 to {100 - 5}"
    ),
    "39 to 67 % of it, by what stands for chat; of its means 56 %": chat_line,
    "prefill is 0.11 % of a full server, and cache reads are 80 %": reasoning_line,
    "only three share that server": wait_is_not_cost,
    "stays below 0.2 %": survives,
    "2 to 12 % of production requests reach it.": lambda: (
        f"{hundred_to_one(min):.0f} to {hundred_to_one(max):.0f} % of production requests reach it."
    ),
    "208 -> 792 by its medians, 1,268 -> 1,527 by its means": lambda: (
        f"{lengths(PRODUCTION.request)} by its medians, {lengths(PRODUCTION.mean)} by its means"
    ),
    "prefill is 67 % of chat": lambda: f"prefill is {prefill(CHAT):.0f} % of chat",
}
