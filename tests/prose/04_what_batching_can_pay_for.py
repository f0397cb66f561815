"""The numbers in the prose of notebook 04, each made again from the library."""

from lessonlib import Deployment, Efficiency, Precision, load_accelerator, load_model, load_workload, omega
from lessonlib.face.exercises.book.common import REASONING, mixture, server
from lessonlib.policy import chi, intensities, memory_batch, steady_state
from lessonlib.policy.estimates import ridge_tokens, roof_batch

CHAT, PRODUCTION = (load_workload(name).mean for name in ("chat", "production-reasoning"))


def of_mla(cache):
    """FLOP/byte of DeepSeek-V3's decode attention where eight devices share its heads, and each holds the latent."""
    eight = Deployment(load_model("deepseek-v3"), load_accelerator("h100-sxm"), Precision("bf16", cache=cache), 8)
    return intensities(eight, 4_096, 1)["MLA"]


def roof_at(mfu, mbu):
    slower = Deployment(server().model, server().accelerator, Precision("bf16"), efficiency=Efficiency(mfu, mbu, 0))
    return roof_batch(slower, CHAT)


def share(part, batch, mixed=False):
    return steady_state(server(), CHAT, batch, mixed=mixed).shares[part]


HELD = {
    "chat 1,155 -> 211": lambda: f"chat {CHAT.prompt:,} -> {CHAT.output}",
    "35 reasoning requests fit": lambda: f"{server().largest_batch(12_928)} reasoning requests fit",
    "at 161 of 228": lambda: f"at {roof_batch(server(), PRODUCTION):.0f} of {memory_batch(server(), PRODUCTION)}",
    "its chi is 2.86": lambda: f"its chi is {chi(server(), PRODUCTION):.2f}",
    "mix memory holds 123": lambda: (
        f"mix memory holds {memory_batch(server(), load_workload('production-reasoning').mix())}"
    ),
    "Between 46 and 368": lambda: f"Between {roof_batch(server(), CHAT):.0f} and {memory_batch(server(), CHAT)}",
    "ridge of this accelerator is at 295": lambda: f"ridge of this accelerator is at {ridge_tokens(server()):.0f}",
    "Stored are 61 GB": lambda: f"Stored are {mixture().weight_bytes / 1e9:.0f} GB",
    "30 FLOP/byte, 60 with an fp8 cache": lambda: (
        f"{of_mla('bf16'):.0f} FLOP/byte, {of_mla('fp8'):.0f} with an fp8 cache"
    ),
    "roof batch, 46, they": lambda: f"roof batch, {roof_batch(server(), CHAT):.0f}, they",
    "at 64 they take a fifth": lambda: f"at 64 they take a {({5: 'fifth'})[round(1 / share('prefill', 64, True))]}",
    "0.6 of the peak and 0.8 of the bandwidth the edge lies at 34": lambda: (
        f"0.6 of the peak and 0.8 of the bandwidth the edge lies at {roof_at(0.6, 0.8):.0f}"
    ),
    "Chat 0.12, reasoning 4.1": lambda: f"Chat {omega(server(), CHAT):.2f}, reasoning {omega(server(), REASONING):.1f}",
    "At 2.00 an hour": lambda: "At 2.00 an hour",
}
