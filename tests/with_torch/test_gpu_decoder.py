"""The decoder that is timed on a GPU, here on PyTorch's CPU at toy size: it is right, and does what is counted."""

import numpy as np
import pytest
import torch

from lessonlib import (
    Accelerator,
    Deployment,
    InvalidInputError,
    Precision,
    Request,
    load_model,
    pass_cost,
    request_cost,
)
from lessonlib.measured.timing.decoder import Counts, NumpyDecoder, toy_model
from lessonlib.measured.timing.gpu_decoder import TorchDecoder, takes_true_length
from lessonlib.model.attention import GroupedQueryAttention
from lessonlib.model.block import Block
from lessonlib.model.feedforward import DenseFeedForward
from lessonlib.model.model import Model

VOCABULARY = 50
IDS = torch.randint(VOCABULARY, (2, 150), generator=torch.Generator().manual_seed(1))


def toy(kv_heads=2, tied=False, **changes):
    mixer = GroupedQueryAttention(width=64, heads=4, kv_heads=kv_heads, head_dim=16, **changes)
    block = Block(mixer, DenseFeedForward(width=64, inner=96), norm_weights=2 * 64)
    sizes = {"width": 64, "vocabulary": VOCABULARY, "other_weights": 64, "tied_embeddings": tied}
    return Model(name="toy", blocks=((2, block),), **sizes)


def decoder(model=None, batch=2, room=150, bucket=32, seed=0, **options):
    torch.manual_seed(seed)
    made = TorchDecoder(model or toy(), "cpu", torch.float32, bucket=bucket, **options)
    made.allocate(batch, room)
    return made


def feed(made, ids):
    """Decode the given tokens, instead of those that the decoder would choose; the logits after each."""
    logits = []
    for token in ids.T:
        made.history[:, made.cached] = token
        made.step()
        logits.append(made.logits.clone())
    return logits


def logits_of(made, ids):
    made.prefill(ids)
    return made.logits.clone()


# ---- it is right


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_cached_decode_is_the_full_pass(kv_heads):
    made = decoder(toy(kv_heads))
    made.prefill(IDS[:, :60])
    stepped = feed(made, IDS[:, 60:])
    for length in (61, 64, 65, 96, 97, 150):  # on, before and after the edges of buckets
        expected = logits_of(made, IDS[:, :length])
        assert (stepped[length - 61] - expected).abs().max() < 1e-4
        assert expected.abs().max() > 0.1  # logits that could differ


@pytest.mark.parametrize("bucket", [1, 7, 32, 150, 256])
def test_attention_over_a_bucket_is_exact_attention(bucket):
    exact, rounded = decoder(bucket=1), decoder(bucket=bucket)
    for made in (exact, rounded):
        made.cache.normal_(std=50)  # what lies beyond the length must not be seen
        made.prefill(IDS[:, :40])
    for mine, other in zip(feed(exact, IDS[:, 40:80]), feed(rounded, IDS[:, 40:80]), strict=True):
        assert (mine - other).abs().max() < 1e-5


def test_it_is_the_decoder_that_numpy_runs():
    sizes = {"layers": 2, "width": 64, "heads": 4, "inner": 96, "vocabulary": VOCABULARY}
    plain, made = NumpyDecoder(toy_model(**sizes), room=150), decoder(toy_model(**sizes), batch=1)
    made.head.copy_(torch.from_numpy(plain.head.T.copy()))
    made.embedding.copy_(torch.from_numpy(plain.embedding))
    for mine, other in zip(made.layers, plain.layers, strict=True):
        for name in ("qkv", "out", "gate_up", "down"):
            mine[name].copy_(torch.from_numpy(other[name].T.copy()))
    assert np.abs(plain.forward(IDS[0, :100].numpy()) - logits_of(made, IDS[:1, :100])[0].numpy()).max() < 1e-4
    for token, logits in zip(IDS[0, 100:], feed(made, IDS[:1, 100:]), strict=True):
        assert np.abs(plain.forward(token[None].numpy()) - logits[0].numpy()).max() < 1e-4


def test_heads_share_the_kv_head_of_their_group():
    shared, own = decoder(toy(kv_heads=2)), decoder(toy(kv_heads=4))
    own.head.copy_(shared.head)
    own.embedding.copy_(shared.embedding)
    for mine, other in zip(own.layers, shared.layers, strict=True):
        for name in ("out", "gate_up", "down"):
            mine[name].copy_(other[name])
        queries, keys, values = other["qkv"].split((64, 32, 32))
        each = [part.view(2, 16, 64).repeat_interleave(2, dim=0).reshape(64, 64) for part in (keys, values)]
        mine["qkv"].copy_(torch.cat((queries, *each)))
    assert torch.allclose(logits_of(shared, IDS[:, :50]), logits_of(own, IDS[:, :50]), atol=1e-4)
    for mine, other in zip(feed(shared, IDS[:, 50:70]), feed(own, IDS[:, 50:70]), strict=True):
        assert torch.allclose(mine, other, atol=1e-4)


def test_sequences_of_a_batch_do_not_see_each_other():
    both, alone = decoder(batch=2), decoder(batch=1)
    both.prefill(IDS[:, :50])
    alone.prefill(IDS[1:, :50])
    for mine, other in zip(feed(both, IDS[:, 50:60]), feed(alone, IDS[1:, 50:60]), strict=True):
        assert torch.allclose(mine[1], other[0], atol=1e-5)


def test_it_takes_the_largest_logit_and_goes_on_from_there():
    made = decoder()
    made.prefill(IDS[:, :40])
    for _ in range(20):
        assert torch.equal(made.history[:, made.cached], made.logits.argmax(dim=1))
        made.step()


# ---- its cache


def test_the_cache_is_never_overrun():
    made = decoder(room=40, bucket=8)
    with pytest.raises(InvalidInputError, match="41 tokens on 0 cached ones"):
        made.prefill(IDS[:, :41])
    made.prefill(IDS[:, :39])
    before = made.cache.clone()
    made.step()
    changed = (made.cache != before).any(dim=(0, 1, 2, 4, 5)).nonzero().flatten().tolist()
    assert changed == [39]  # the one slot, and no other
    with pytest.raises(InvalidInputError, match="1 tokens on 40 cached ones"):
        made.step()
    assert made.cached == 40 and made.cache.shape[3] == 40


def test_a_replayed_step_stays_where_it_is():
    made = decoder()
    made.go_to(100)
    before = made.cache.clone()
    for _ in range(3):
        made.replay()
    assert made.cached == int(made.position) == 100
    changed = (made.cache != before).any(dim=(0, 1, 2, 4, 5)).nonzero().flatten().tolist()
    assert changed == [100]


# ---- what it counts


def deployment(model):
    machine = Accelerator(name="toy", memory=1e12, bandwidth=1e10, peaks={"fp32": 1e11})
    return Deployment(model, machine, Precision("fp32"))


def same(found, expected):
    assert found.linear_flops == expected.linear.flops and found.weight_bytes == expected.linear.bytes
    assert found.attention_flops == expected.attention.flops
    assert (found.cache_read, found.cache_write) == (expected.cache_read, expected.cache_write)


@pytest.mark.parametrize("model", [toy(), toy(kv_heads=1, tied=True)], ids=["grouped", "tied"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_pass_counts_what_lessonlib_counts(model, batch):
    made = decoder(model, batch=batch, bucket=1)
    made.prefill(IDS[:batch, :37])
    same(made.counts, pass_cost(deployment(model), 37, 0, batch))
    made.counts = Counts()
    made.step()
    same(made.counts, pass_cost(deployment(model), 1, 37, batch))


def test_a_step_over_a_bucket_counts_the_whole_bucket():
    made = decoder(bucket=32)
    for context, read in ((0, 31), (31, 31), (32, 63), (100, 127)):
        made.go_to(context)
        made.counts = Counts()
        made.replay()
        same(made.counts, pass_cost(deployment(made.model), 1, read, 2))


def test_a_request_counts_what_lessonlib_counts():
    made = decoder(bucket=1)
    made.prefill(IDS[:, :50])
    made.counts = Counts()
    for _ in range(80):
        made.step()
    same(made.counts, request_cost(deployment(made.model), Request(50, 81), 2).decode)


@pytest.mark.parametrize("tied", [False, True])
def test_its_weights_are_the_models(tied):
    made = decoder(toy(tied=tied))
    held = {id(part): part.numel() for layer in made.layers for part in layer.values()}
    held |= {id(part): part.numel() for part in (made.head, made.embedding, made.final_gain)}
    assert sum(held.values()) == made.model.parameters
    assert made.bytes_needed(0) == 4 * made.model.parameters


def test_its_memory_is_counted_and_kept_to():
    model = toy()
    limit = decoder(model).bytes_needed(2 * 64)
    made = decoder(model, room=64, memory=limit)
    assert made.cache.nbytes + made.bytes_needed(0) == limit
    assert made.fits(2, 64) and not made.fits(2, 65)
    with pytest.raises(torch.OutOfMemoryError, match=r"toy: weights and 192 cached tokens need .* of "):
        made.allocate(2, 65)
    with pytest.raises(torch.OutOfMemoryError, match="weights and 0 cached tokens"):
        decoder(model, memory=1000)


# ---- what it does not take, and what only a GPU runs


@pytest.mark.parametrize("name", ["gemma-2-9b", "mixtral-8x7b", "deepseek-v3", "qwen2.5-7b", "gpt2"])
def test_other_models_are_refused(name):
    with pytest.raises(InvalidInputError, match="of the catalogue"):
        TorchDecoder(load_model(name), "meta", torch.bfloat16)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.2-3b", "llama-3.2-1b"])
def test_the_kernel_of_true_length_takes_the_shapes_of_a_real_model(name):
    made = TorchDecoder(load_model(name), "meta", torch.bfloat16)  # shapes only: no memory, no arithmetic
    made.true_length, made.bucket = True, 1
    made.allocate(8, 1000)
    made.cached = 500
    made.replay()
    assert made.logits.shape == (8, 128256)
    machine = Accelerator(name="toy", memory=1e12, bandwidth=1e12, peaks={"bf16": 1e15})
    same(made.counts, pass_cost(Deployment(made.model, machine, Precision("bf16")), 1, 500, 8))


def test_no_kernel_of_true_length_is_claimed_off_a_gpu():
    assert not takes_true_length(toy().blocks[0][1].mixer, "cpu", torch.float32)


def test_one_graph_serves_all_lengths_or_one_each_bucket():
    made = decoder(bucket=32)
    assert [made._keys(length) for length in (1, 32, 33, 150)] == [32, 32, 64, 160]
    made.true_length = True
    assert len({made._keys(length) for length in (1, 32, 33, 150)}) == 1
