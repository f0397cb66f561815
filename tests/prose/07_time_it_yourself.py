"""The numbers in the prose of notebook 07, each taken from what the timing runs."""

from lessonlib import load_model
from lessonlib.measured.timing.cpu import CONTEXTS, PROMPTS, REQUESTS
from lessonlib.measured.timing.engine import NARROW, VARIANTS


def shape(name):
    prompt, output = REQUESTS[name]
    return f"{prompt} → {output}"


def narrow():
    """How wide the narrow feed-forward of the timed engine is, beside that of its model."""
    (inner,) = {block.feedforward.inner for _, block in load_model("qwen2.5-0.5b").blocks}
    return {4: "a quarter"}[inner / VARIANTS[NARROW]["changed"]["intermediate_size"]]


def heads():
    (mixer,) = {block.mixer for _, block in load_model("qwen2.5-0.5b").blocks}
    return {7: "seven"}[mixer.heads / mixer.kv_heads]


HELD = {
    "8,000 tokens in the cache": lambda: f"{CONTEXTS[-1]:,} tokens in the cache",
    "a prompt of 512 in one pass": lambda: f"a prompt of {PROMPTS[-1]} in one pass",
    "a context of 64": lambda: f"a context of {CONTEXTS[0]}",
    "chat-shaped request, 256 → 32": lambda: f"chat-shaped request, {shape('chat')}",
    "reasoning-shaped one, 16 → 320": lambda: f"reasoning-shaped one, {shape('reasoning')}",
    "with a feed-forward of a quarter of its width": lambda: f"with a feed-forward of {narrow()} of its width",
    "seven query heads share each KV head": lambda: f"{heads()} query heads share each KV head",
}
