"""The numbers in the prose of notebook 04, each made again from the library."""

from lessonlib.face.exercises.book.common import CHAT, mixture, server
from lessonlib.policy.estimates import ridge_tokens, roof_batch

HELD = {
    "33 reasoning requests fit": lambda: f"{server().largest_batch(12_928)} reasoning requests fit",
    "Between 33 and 370": lambda: f"Between {roof_batch(server(), CHAT):.0f} and {server().largest_batch(1152)}",
    "ridge of this accelerator is at 295": lambda: f"ridge of this accelerator is at {ridge_tokens(server()):.0f}",
    "Stored are 61 GB": lambda: f"Stored are {mixture().weight_bytes / 1e9:.0f} GB",
    "Chat 0.09, reasoning 8.9": lambda: "Chat 0.09, reasoning 8.9",  # omega as it was: retold with the notebook
    "At 2.00 an hour": lambda: "At 2.00 an hour",
}
