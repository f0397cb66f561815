"""The numbers that notebook 09 says in its prose, each made by the library."""

from lessonlib.face.exercises.book.common import CHAT, server
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.workloads import load_workload
from lessonlib.model.precision import Precision
from lessonlib.policy.batching import intensities
from lessonlib.policy.full_server import steady_state
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment

CHAT_MEAN = load_workload("chat").mean
HALF_CACHED = Request(CHAT_MEAN.prompt, CHAT_MEAN.output, CHAT_MEAN.prompt // 2)


def decode(request):
    return f"{100 * (1 - steady_state(server(), request).shares['prefill']):.0f}"


def spread(cache):
    """FLOP/byte of MLA's decode attention on each of eight devices."""
    precision = Precision("bf16", cache=cache)
    deployment = Deployment(load_model("deepseek-v3"), load_accelerator("h100-sxm"), precision, devices=8)
    return f"{intensities(deployment, 8_000, 1)['MLA']:.0f}"


HELD = {
    "from 33 % decode (its two medians) to 61 % (half of the prompt cached)": lambda: (
        f"from {decode(CHAT)} % decode (its two medians) to {decode(HALF_CACHED)} % (half of the prompt cached)"
    ),
    "30 FLOP/byte, memory bound, and 60 in fp8": lambda: (
        f"{spread('bf16')} FLOP/byte, memory bound, and {spread('fp8')} in fp8"
    ),
}
