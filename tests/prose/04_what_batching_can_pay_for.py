"""The numbers in the prose of notebook 04, each made again from the library."""

from lessonlib import Deployment, Precision, load_accelerator, load_model, omega
from lessonlib.face.exercises.book.common import CHAT, REASONING, mixture, server
from lessonlib.policy import intensities, memory_batch
from lessonlib.policy.estimates import ridge_tokens, roof_batch


def of_mla(cache):
    """FLOP/byte of DeepSeek-V3's decode attention on one device with all heads; an eighth of them reads the same."""
    h100 = load_accelerator("h100-sxm")
    return intensities(Deployment(load_model("deepseek-v3"), h100, Precision("bf16", cache=cache)), 4_096, 1)["MLA"]


HELD = {
    "35 reasoning requests fit": lambda: f"{server().largest_batch(12_928)} reasoning requests fit",
    "Between 33 and 427": lambda: f"Between {roof_batch(server(), CHAT):.0f} and {memory_batch(server(), CHAT)}",
    "ridge of this accelerator is at 295": lambda: f"ridge of this accelerator is at {ridge_tokens(server()):.0f}",
    "Stored are 61 GB": lambda: f"Stored are {mixture().weight_bytes / 1e9:.0f} GB",
    "30 FLOP/byte, 60 with an fp8 cache": lambda: (
        f"{of_mla('bf16') / 8:.0f} FLOP/byte, {of_mla('fp8') / 8:.0f} with an fp8 cache"
    ),
    "Chat 0.08, reasoning 4.1": lambda: f"Chat {omega(server(), CHAT):.2f}, reasoning {omega(server(), REASONING):.1f}",
    "At 2.00 an hour": lambda: "At 2.00 an hour",
}
