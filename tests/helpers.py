"""What several test files need: the lesson's server, models built by hand from their sizes, and random ones.

The models here are a second entry of the books: sizes written down from the published configs, put together from parts
without the config reader. Their parameter counts are held to the published ones, and the catalogue's entries to them.
"""

import threading
import zlib
from contextlib import contextmanager
from functools import cache
from http.server import ThreadingHTTPServer

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from lessonlib.base.errors import InvalidInputError, LessonError
from lessonlib.facts.catalogue import load_accelerator
from lessonlib.model.attention import GroupedQueryAttention, MultiHeadLatentAttention
from lessonlib.model.block import Block
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts
from lessonlib.model.hybrid import SeveralMixers
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.model.recurrent import GatedLinearRecurrence, LightningAttention, MatrixLstm, Rwkv4
from lessonlib.model.state import GatedDeltaNet, KimiDeltaAttention, Mamba1, Mamba2, ShortConvolution
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Efficiency

# Of a long sweep of like values, each eighth; all of them in make test-slow. An argument for parametrize.
EVERY = [pytest.param(8, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]


def some(values, every: int, of: str) -> list:
    """Each `every`-th of the values, from a place of its own for whatever is named, so that all are met somewhere."""
    return values[zlib.crc32(of.encode()) % every :: every]


def examples(number: int) -> settings:
    """So many examples of a law in make test-slow, and the share of them that the profile in conftest.py takes."""
    return settings(max_examples=max(min(number, 5), number * settings().max_examples // 100))


def refuses(call, *named, kind=InvalidInputError) -> str:
    """Hold that `call` is refused by an error of this class that names all of `named`; its words are free.

    Every refusal is a ValueError, so that one `except` catches all, and one sentence or two. Returns the message.
    """
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert isinstance(caught.value, LessonError) and isinstance(caught.value, ValueError)
    assert len(message) < 1000 and message.endswith(".")
    for name in named:
        assert name in message, message
    return message


@cache
def llama() -> Model:
    gqa = GroupedQueryAttention(width=4096, heads=32, kv_heads=8, head_dim=128)
    blocks = ((32, gqa, DenseFeedForward(width=4096, inner=14336)),)
    return assembled("llama-3.1-8b", 4096, 128256, blocks, max_positions=131072)


@cache
def h100() -> Accelerator:
    return load_accelerator("h100-sxm")


def server(model: Model | None = None, accelerator: Accelerator | None = None, dtype="bf16", **changes) -> Deployment:
    """The lesson's server, Llama-3.1-8B in bf16 on one H100, with what a test changes."""
    precision = dtype if isinstance(dtype, Precision) else Precision(dtype)
    return Deployment(model or llama(), accelerator or h100(), precision, **changes)


def device(**changes) -> Accelerator:
    """A hypothetical accelerator with room for everything."""
    sizes = {"memory": 1e18, "bandwidth": 2e12, "peaks": {"bf16": 500e12}, "link": 400e9}
    return Accelerator(name="hypothetical", **(sizes | changes))


def gqa_model(layers=2, width=64, heads=8, kv_heads=2, head_dim=16, window=None, inner=96, vocabulary=100, **changes):
    """A small dense model whose every size can be written out by hand."""
    mixer = GroupedQueryAttention(width=width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, window=window)
    block = Block(mixer, DenseFeedForward(width=width, inner=inner), norm_weights=2 * width)
    fields = {"name": "toy", "width": width, "vocabulary": vocabulary, "blocks": ((layers, block),)}
    return Model(**(fields | {"other_weights": width} | changes))


def assembled(name, width, vocabulary, blocks, **changes) -> Model:
    """A model of blocks with two RMSNorms each and a final one."""
    built = tuple((count, Block(mixer, ffn, norm_weights=2 * width)) for count, mixer, ffn in blocks)
    return Model(name=name, width=width, vocabulary=vocabulary, blocks=built, other_weights=width, **changes)


@cache
def deepseek_v3() -> Model:
    w = 7168
    mla = MultiHeadLatentAttention(
        width=w, heads=128, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128, query_rank=1536, other_weights=2048
    )
    experts = MixtureOfExperts(width=w, experts=256, experts_per_token=8, expert_inner=2048, shared_inner=2048)
    blocks = ((3, mla, DenseFeedForward(width=w, inner=18432)), (58, mla, experts))
    return assembled("deepseek-v3", w, 129280, blocks, max_positions=163840)


@cache
def qwen3_next() -> Model:
    w = 2048
    delta = GatedDeltaNet(width=w, key_heads=16, value_heads=32, key_dim=128, value_dim=128, conv_kernel=4)
    gqa = GroupedQueryAttention(
        width=w, heads=16, kv_heads=2, head_dim=256, gate_outputs=16 * 256, other_weights=2 * 256
    )
    experts = MixtureOfExperts(
        width=w, experts=512, experts_per_token=10, expert_inner=512, shared_inner=512, shared_gate=True
    )
    blocks = ((36, delta, experts), (12, gqa, experts))
    return assembled("qwen3-next-80b-a3b", w, 151936, blocks, max_positions=262144)


@cache
def qwen3_30b_a3b() -> Model:
    w = 2048
    gqa = GroupedQueryAttention(width=w, heads=32, kv_heads=4, head_dim=128, other_weights=2 * 128)
    experts = MixtureOfExperts(width=w, experts=128, experts_per_token=8, expert_inner=768)
    return assembled("qwen3-30b-a3b", w, 151936, ((48, gqa, experts),), max_positions=40960)


@cache
def gpt_oss(layers: int, experts: int) -> Model:
    """gpt-oss: 24 layers of 32 experts (20b), or 36 of 128 (120b)."""
    w = 2880
    biases_and_sinks = 64 * 64 + 2 * 8 * 64 + w + 64
    sizes = {"width": w, "heads": 64, "kv_heads": 8, "head_dim": 64, "other_weights": biases_and_sinks}
    sliding, full = GroupedQueryAttention(**sizes, window=128), GroupedQueryAttention(**sizes)
    ffn = MixtureOfExperts(
        width=w, experts=experts, experts_per_token=4, expert_inner=w, expert_other_weights=3 * w, other_weights=experts
    )
    name = {24: "gpt-oss-20b", 36: "gpt-oss-120b"}[layers]
    blocks = ((layers // 2, sliding, ffn), (layers // 2, full, ffn))
    return assembled(name, w, 201088, blocks, max_positions=131072)


@cache
def mixtral_8x7b() -> Model:
    gqa = GroupedQueryAttention(width=4096, heads=32, kv_heads=8, head_dim=128)
    experts = MixtureOfExperts(width=4096, experts=8, experts_per_token=2, expert_inner=14336)
    return assembled("mixtral-8x7b", 4096, 32000, ((32, gqa, experts),), max_positions=32768)


@cache
def qwen25_05b() -> Model:
    """A small model with tied embeddings: its head is more than a quarter of its decode FLOPs."""
    gqa = GroupedQueryAttention(width=896, heads=14, kv_heads=2, head_dim=64, other_weights=14 * 64 + 2 * 2 * 64)
    blocks = ((24, gqa, DenseFeedForward(width=896, inner=4864)),)
    return assembled("qwen2.5-0.5b", 896, 151936, blocks, tied_embeddings=True, max_positions=32768)


BY_HAND = {
    "llama-3.1-8b": (llama, 8_030_261_248),
    "deepseek-v3": (deepseek_v3, 671_026_404_352),
    "qwen3-next-80b-a3b": (qwen3_next, 79_674_391_296),
    "qwen3-30b-a3b": (qwen3_30b_a3b, 30_532_122_624),
    "gpt-oss-20b": (lambda: gpt_oss(24, 32), 20_914_757_184),
    "gpt-oss-120b": (lambda: gpt_oss(36, 128), 116_829_156_672),
    "mixtral-8x7b": (mixtral_8x7b, 46_702_792_704),
    "qwen2.5-0.5b": (qwen25_05b, 494_032_768),
}


# Random deployments, all sizes free: GQA, MQA, MHA, MLA, windows and every constant state mixed in one model.

WIDTHS = st.sampled_from([16, 48, 256])


def grouped_query(width):
    def build(heads, kv_heads, head_dim, value_dim, window, gate):
        return GroupedQueryAttention(
            width=width,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            value_dim=value_dim,
            window=window,
            gate_outputs=gate,
            other_weights=3,
        )

    return st.builds(
        build,
        st.sampled_from([8, 64]),  # divided over up to eight devices
        st.sampled_from([1, 2, 4, 8]),
        st.sampled_from([8, 64]),
        st.sampled_from([None, 16]),
        st.sampled_from([None, None, 1, 2, 7, 40, 128, 10_000]),
        st.sampled_from([0, 5]),
    )


def latent(width):
    return st.builds(
        MultiHeadLatentAttention,
        width=st.just(width),
        heads=st.sampled_from([8, 16, 64]),
        kv_rank=st.sampled_from([16, 512]),
        nope_dim=st.sampled_from([4, 128]),
        rope_dim=st.sampled_from([2, 64]),
        value_dim=st.sampled_from([4, 128]),
        query_rank=st.sampled_from([None, 32]),
    )


def constant_state(width):
    return st.one_of(
        st.builds(
            GatedDeltaNet,
            width=st.just(width),
            key_heads=st.just(8),
            value_heads=st.sampled_from([8, 16]),
            key_dim=st.sampled_from([4, 128]),
            value_dim=st.sampled_from([4, 128]),
            conv_kernel=st.integers(1, 4),
        ),
        st.builds(
            KimiDeltaAttention,
            width=st.just(width),
            heads=st.just(8),
            head_dim=st.sampled_from([4, 128]),
            conv_kernel=st.integers(1, 4),
        ),
        st.builds(
            Mamba2,
            width=st.just(width),
            heads=st.just(8),
            head_dim=st.sampled_from([4, 64]),
            groups=st.sampled_from([1, 8]),
            state_size=st.sampled_from([4, 128]),
            conv_kernel=st.integers(1, 4),
        ),
        st.builds(
            Mamba1,
            width=st.just(width),
            inner=st.just(2 * width),
            state_size=st.sampled_from([4, 16]),
            step_rank=st.just(3),
            conv_kernel=st.integers(1, 4),
        ),
        st.builds(ShortConvolution, width=st.just(width), conv_kernel=st.integers(2, 4)),
        st.builds(LightningAttention, width=st.just(width), heads=st.just(8), head_dim=st.sampled_from([4, 128])),
        st.builds(MatrixLstm, width=st.just(width), heads=st.just(8), key_dim=st.just(4), value_dim=st.just(128)),
        st.builds(GatedLinearRecurrence, width=st.just(width), heads=st.just(8), inner=st.sampled_from([8, 320])),
        st.builds(Rwkv4, width=st.just(width), inner=st.sampled_from([8, 320])),
    )


def several(width):
    pair = st.tuples(st.one_of(grouped_query(width), latent(width)), constant_state(width))
    return st.builds(SeveralMixers, width=st.just(width), mixers=pair)


def feedforward(width):
    @st.composite
    def mixture(draw):
        experts = draw(st.sampled_from([1, 2, 8, 128]))
        return MixtureOfExperts(
            width=width,
            experts=experts,
            experts_per_token=draw(st.integers(1, min(experts, 9))),
            expert_inner=draw(st.sampled_from([8, 300])),
            shared_inner=draw(st.sampled_from([0, 24])),
            gated=draw(st.booleans()),
            shared_gate=draw(st.booleans()),
            latent=draw(st.sampled_from([None, 5])),
            expert_other_weights=draw(st.sampled_from([0, 6])),
        )

    dense = st.builds(
        DenseFeedForward,
        width=st.just(width),
        inner=st.sampled_from([8, 600]),
        gated=st.booleans(),
        other_weights=st.just(2),
    )
    return st.one_of(dense, mixture())


@st.composite
def models(draw):
    width = draw(WIDTHS)
    mixers = st.one_of(grouped_query(width), latent(width), constant_state(width), several(width))
    blocks = [(draw(st.integers(1, 5)), Block(draw(mixers), draw(feedforward(width)), norm_weights=2 * width))]
    for _ in range(draw(st.integers(0, 3))):
        mixer, ffn = draw(st.one_of(st.none(), mixers)), draw(st.one_of(st.none(), feedforward(width)))
        if mixer is not None or ffn is not None:
            borrowed = width * draw(st.integers(0, 1))
            blocks.append((draw(st.integers(1, 3)), Block(mixer, ffn, norm_weights=width, borrowed_weights=borrowed)))
    return Model(
        name="random",
        width=width,
        vocabulary=draw(st.integers(2, 5000)),
        blocks=tuple(blocks),
        tied_embeddings=draw(st.booleans()),
        other_weights=width,
    )


@st.composite
def deployments(draw, **fixed):
    """A random model on a random device; the ridge runs from 0.01 to 10,000 FLOP/byte, so that every roof binds."""
    accelerator = device(
        bandwidth=draw(st.floats(1e9, 1e13)),
        peaks={dtype: draw(st.floats(1e11, 1e13)) for dtype in ("bf16", "fp8", "fp4")},
        link=draw(st.floats(1e9, 1e12)),
    )
    precision = Precision(
        draw(st.sampled_from(["bf16", "fp8", "int4", "5.5 bits"])),
        experts=draw(st.sampled_from([None, "mxfp4", "nvfp4"])),
        cache=draw(st.sampled_from([None, "fp8"])),
        compute=draw(st.sampled_from([None, None, "bf16", "fp8"])),
    )
    choices = {
        "devices": st.sampled_from([1, 2, 8]),
        "layout": st.just("tensor"),
        "prefill_chunk": st.sampled_from([None, 1, 3, 64]),
        "efficiency": st.builds(
            Efficiency,
            mfu=st.floats(0.1, 1),
            mbu=st.floats(0.1, 1),
            overhead=st.sampled_from([0.0, 2e-3]),
            overlap=st.booleans(),
            all_reduce_latency=st.sampled_from([0.0, 1e-5]),
        ),
    }
    drawn = {name: fixed[name] if name in fixed else draw(choice) for name, choice in choices.items()}
    return Deployment(draw(models()), accelerator, precision, **drawn)


@contextmanager
def serving(handler, wrap=lambda socket: socket):
    """A server of this machine, its port free, that answers by `handler` until the block ends."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    http.socket = wrap(http.socket)
    http.handle_error = lambda *_: None  # of clients that turn away
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield http.server_port
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
