"""The numbers in the prose of notebook 04, each made again from the library."""

from lessonlib import omega
from lessonlib.face.exercises.book.common import CHAT, REASONING, mixture, server
from lessonlib.policy.batching import memory_batch
from lessonlib.policy.estimates import ridge_tokens, roof_batch

HELD = {
    "33 reasoning requests fit": lambda: f"{memory_batch(server(), REASONING)} reasoning requests fit",
    "Between 33 and 370": lambda: f"Between {roof_batch(server(), CHAT):.0f} and {memory_batch(server(), CHAT)}",
    "ridge of this accelerator is at 295": lambda: f"ridge of this accelerator is at {ridge_tokens(server()):.0f}",
    "Stored are 61 GB": lambda: f"Stored are {mixture().weight_bytes / 1e9:.0f} GB",
    "Chat 0.09, reasoning 8.9": lambda: (
        f"Chat {omega(server(), CHAT.output):.2f}, reasoning {omega(server(), REASONING.output):.1f}"
    ),
    "At 2.00 an hour": lambda: "At 2.00 an hour",
}
