"""The numbers that notebook 09 says in its prose, each made by the library."""

from lessonlib.face.exercises.book.common import CHAT, server
from lessonlib.face.exercises.book.notebook_09 import CHAT_MEAN, _attention_intensity
from lessonlib.policy.full_server import steady_state
from lessonlib.request.request import Request

HALF_CACHED = Request(CHAT_MEAN.prompt, CHAT_MEAN.output, CHAT_MEAN.prompt // 2)


def decode(request):
    return f"{100 * (1 - steady_state(server(), request).shares['prefill']):.0f}"


def spread(cache):
    return f"{_attention_intensity('deepseek-v3', cache, devices=8):.0f}"


HELD = {
    "from 33 % decode (its two medians) to 61 % (half of the prompt cached)": lambda: (
        f"from {decode(CHAT)} % decode (its two medians) to {decode(HALF_CACHED)} % (half of the prompt cached)"
    ),
    "30 FLOP/byte, memory bound, and 60 in fp8": lambda: (
        f"{spread('bf16')} FLOP/byte, memory bound, and {spread('fp8')} in fp8"
    ),
}
