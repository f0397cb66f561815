"""The numbers in the prose of notebook 07, each taken from what the timing runs."""

from lessonlib.measured.timing.cpu import CONTEXTS, PROMPTS, REQUESTS


def shape(name):
    prompt, output = REQUESTS[name]
    return f"{prompt} → {output}"


HELD = {
    "8,000 tokens in the cache": lambda: f"{CONTEXTS[-1]:,} tokens in the cache",
    "a prompt of 512 in one pass": lambda: f"a prompt of {PROMPTS[-1]} in one pass",
    "a context of 64": lambda: f"a context of {CONTEXTS[0]}",
    "chat-shaped request, 256 → 32": lambda: f"chat-shaped request, {shape('chat')}",
    "reasoning-shaped one, 16 → 320": lambda: f"reasoning-shaped one, {shape('reasoning')}",
}
