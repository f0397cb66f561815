"""The numbers that notebook 02 says in its prose, each made by the library."""

from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of, server
from lessonlib.facts.tables import load_table
from lessonlib.facts.workloads import load_workload
from lessonlib.policy.full_server import pages, steady_state
from lessonlib.request.request import Request

MEAN = load_workload("chat").mean
MEDIAN_RATIO = next(row for row in load_table("workload_shares") if row["workload"] == "chat")["ratio_median"]
PAIRED = Request(CHAT.prompt, round(CHAT.prompt * MEDIAN_RATIO))


def flops_share(request):
    cost = cost_of(request)
    return cost.decode.flops / cost.flops


def full_row(words, request):
    return f"| {words} | {100 * (1 - steady_state(server(), request).shares['prefill']):.0f} % |"


def filled(batch):
    held = server().sequence_bytes(float(pages(MEAN.prompt, MEAN.output, 1)))
    return 100 * batch * held / server().memory_free


def lengths(request):
    return f"{request.prompt:,} -> {request.output:,}"


def chat_line():
    full = steady_state(server(), MEAN)
    return (
        f"Chat alone is {100 * flops_share(CHAT):.0f} % decode in FLOPs and {100 * cost_of(CHAT).decode_share:.1f} % "
        f"in seconds. On a full server of its means, batch {full.batch}, it is "
        f"{100 * (1 - full.shares['prefill']):.0f} % decode."
    )


def reasoning_line():
    full = steady_state(server(), REASONING)
    assert round(5 * full.shares["attention"]) == 4
    return (
        f"{100 * (1 - full.shares['prefill']):.2f} % on a full server, batch {full.batch}, four fifths of it cache "
        "reads."
    )


def hundred_to_one(edge):
    rows = [row for row in load_table("workload_shares") if row["workload"] == "production-reasoning"]
    return 100 * edge(row["requests_ratio_ge_100"] for row in rows)


HELD = {
    "as 5 to 95": lambda: f"as 5 to {100 - 5}",
    "Chat alone is 12 % decode in FLOPs and 97.4 % in seconds. On a full server of its means, batch 368, it is 44 % "
    "decode.": chat_line,
    "99.89 % on a full server, batch 71, four fifths of it cache reads.": reasoning_line,
    "2 to 12 % of production requests reach it.": lambda: (
        f"{hundred_to_one(min):.0f} to {hundred_to_one(max):.0f} % of production requests reach it."
    ),
    "It fills 9 % of the cache memory.": lambda: f"It fills {filled(32):.0f} % of the cache memory.",
    "| the two medians, 1,024 -> 128 | 33 % |": lambda: full_row(f"the two medians, {lengths(CHAT)}", CHAT),
    "| the means, 1,155 -> 211 | 44 % |": lambda: full_row(f"the means, {lengths(MEAN)}", MEAN),
    "| the median prompt and the median ratio, 1,024 -> 286 | 54 % |": lambda: full_row(
        f"the median prompt and the median ratio, {lengths(PAIRED)}", PAIRED
    ),
    "| the means, half of the prompt cached | 61 % |": lambda: full_row(
        "the means, half of the prompt cached", Request(MEAN.prompt, MEAN.output, MEAN.prompt // 2)
    ),
    "prefill is 39 % of chat": lambda: (
        f"prefill is {100 * steady_state(server(), CHAT, 32).shares['prefill']:.0f} % of chat"
    ),
}
