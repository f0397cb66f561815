"""Small models put together by hand for the frozen numbers: mixes that no model of the catalogue has.

With the adapter of frozen.py the only place that knows where the library keeps its parts.
"""

from lessonlib import Block, Model
from lessonlib.model.attention import GroupedQueryAttention, MultiHeadLatentAttention
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts
from lessonlib.model.state import GatedDeltaNet, KimiDeltaAttention, Mamba1, Mamba2, ShortConvolution

WIDTH = 64
DENSE = DenseFeedForward(width=WIDTH, inner=96)
PLAIN = DenseFeedForward(width=WIDTH, inner=40, gated=False, other_weights=2)
FEW = MixtureOfExperts(width=WIDTH, experts=8, experts_per_token=2, expert_inner=24, shared_inner=16, shared_gate=True)
MANY = MixtureOfExperts(
    width=WIDTH,
    experts=128,
    experts_per_token=9,
    expert_inner=300,
    gated=False,
    expert_other_weights=6,
    other_weights=128,
)
ALL = MixtureOfExperts(width=WIDTH, experts=2, experts_per_token=2, expert_inner=8)


def attends(window=None, kv_heads=2, **changes):
    return GroupedQueryAttention(width=WIDTH, heads=8, kv_heads=kv_heads, head_dim=16, window=window, **changes)


def latent(kv_rank=16, **changes):
    sizes = {"heads": 8, "nope_dim": 12, "rope_dim": 4, "value_dim": 20, "other_weights": 5}
    return MultiHeadLatentAttention(width=WIDTH, kv_rank=kv_rank, **(sizes | changes))


DELTA = GatedDeltaNet(width=WIDTH, key_heads=8, value_heads=16, key_dim=4, value_dim=32, conv_kernel=4)
KIMI = KimiDeltaAttention(width=WIDTH, heads=8, head_dim=16, conv_kernel=3)
MAMBA_2 = Mamba2(width=WIDTH, heads=8, head_dim=16, groups=2, state_size=64, conv_kernel=4, extra_weights=3)
MAMBA_1 = Mamba1(width=WIDTH, inner=128, state_size=16, step_rank=4, conv_kernel=4)
CONVOLUTION = ShortConvolution(width=WIDTH, conv_kernel=3)


def model(name, *blocks, **changes):
    built = tuple((count, Block(mixer, ffn, norm_weights=2 * WIDTH)) for count, mixer, ffn in blocks)
    return Model(**({"name": name, "width": WIDTH, "vocabulary": 1000, "blocks": built, "other_weights": 64} | changes))


ODD = {
    "odd windows": lambda: model(
        "odd windows",
        (3, attends(), DENSE),
        (2, attends(window=1), PLAIN),
        (4, attends(window=7, kv_heads=1, value_dim=24), DENSE),
        (1, attends(window=128, kv_heads=8, gate_outputs=5, other_weights=3), FEW),
        (2, attends(window=10_000, kv_heads=4), None),
        tied_embeddings=True,
    ),
    "odd states": lambda: model(
        "odd states",
        (2, DELTA, FEW),
        (1, KIMI, DENSE),
        (3, MAMBA_2, None),
        (1, MAMBA_1, PLAIN),
        (2, CONVOLUTION, MANY),
        (1, attends(window=40), DENSE),
        max_positions=5000,
    ),
    "odd latents": lambda: model(
        "odd latents",
        (2, latent(), MANY),
        (3, latent(kv_rank=512, query_rank=32), ALL),
        (1, KIMI, FEW),
        (1, attends(), DENSE),
        head_bias=1000,
        position_weights=320,
    ),
    "odd halves": lambda: model("odd halves", (2, attends(kv_heads=8), None), (5, None, MANY), (1, None, PLAIN)),
    "state alone": lambda: model("state alone", (4, MAMBA_1, None), (2, DELTA, DENSE), tied_embeddings=True),
    "window alone": lambda: model("window alone", (4, attends(window=128), FEW), max_positions=2**20),
    "latent alone": lambda: model("latent alone", (3, latent(), DENSE)),
    "no memory": lambda: model("no memory", (2, None, DENSE)),
}
