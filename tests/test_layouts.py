"""Layouts of several devices, against a plain loop that hands out heads, sequences and experts one by one."""

import itertools
import math
from dataclasses import replace
from functools import cache

import pytest
from helpers import assembled, deepseek_v3, device, gqa_model, llama, qwen3_30b_a3b, refuses, server

from lessonlib.base.errors import DoesNotFitError
from lessonlib.facts.catalogue import load_model
from lessonlib.model.attention import GroupedQueryAttention, MultiHeadLatentAttention
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts
from lessonlib.model.precision import Precision
from lessonlib.model.sparse import SparseLatentAttention
from lessonlib.policy.levers import scaled
from lessonlib.policy.serving.simulator import simulate
from lessonlib.policy.serving.traffic import all_at_once
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Efficiency
from lessonlib.time.roofline import pass_cost
from lessonlib.work.layouts import other_devices

EXACT = 1e-12
W, V = 64, 96
DENSE = DenseFeedForward(width=W, inner=96)
MOE = MixtureOfExperts(width=W, experts=8, experts_per_token=3, expert_inner=16, shared_inner=24, shared_gate=True)
GQA = GroupedQueryAttention(width=W, heads=8, kv_heads=2, head_dim=16)
LATENT = {"width": W, "heads": 8, "kv_rank": 24, "nope_dim": 8, "rope_dim": 4, "value_dim": 10}
MLA = MultiHeadLatentAttention(**LATENT, query_rank=12)
SPARSE = SparseLatentAttention(**LATENT, query_rank=12, top_k=6, index_heads=3, index_dim=5)
MODEL = assembled("toy", W, V, ((2, GQA, DENSE), (3, MLA, MOE), (1, GQA, MOE)))
PEAK, BANDWIDTH, LINK = 4e10, 1e9, 1e8
MACHINE = device(bandwidth=BANDWIDTH, peaks={"bf16": PEAK}, link=LINK)


class Device:
    """What one device holds, reads and computes in a pass, by roof: [FLOPs, bytes]."""

    def __init__(self):
        self.weights = 0.0  # bytes in memory
        self.roofs = {}

    def do(self, roof, flops, moved):
        was = self.roofs.setdefault(roof, [0.0, 0.0])
        was[0] += flops
        was[1] += moved

    def matrix(self, roof, elements, tokens):
        """A matrix of bf16 that it keeps, reads and multiplies `tokens` tokens by."""
        self.weights += 2 * elements
        self.do(roof, 2 * elements * tokens, 2 * elements)

    @property
    def seconds(self):
        return sum(max(flops / PEAK, moved / BANDWIDTH) for flops, moved in self.roofs.values())


def layers_of(model):
    return [block for layers, block in model.blocks for _ in range(layers)]


def moved_and_flops(devices):
    """(FLOPs, bytes) of all devices."""
    works = [work for one in devices for work in one.roofs.values()]
    return math.fsum(flops for flops, _ in works), math.fsum(moved for _, moved in works)


def attention(one, mixer, heads, kv_heads, new, cached, sequences):
    """Attention of some heads of one layer on some sequences."""
    pairs = sequences * sum(cached + i for i in range(1, new + 1))
    if isinstance(mixer, GroupedQueryAttention):
        moved = sequences * (cached + new) * kv_heads * 2 * mixer.head_dim * 2
        one.do(mixer, heads * 4 * mixer.head_dim * pairs, moved)
        return
    key = mixer.kv_rank + mixer.rope_dim
    absorbed = heads * (2 * key + 2 * mixer.kv_rank) * pairs
    expanded = heads * (2 * (mixer.nope_dim + mixer.rope_dim) + 2 * mixer.value_dim) * pairs
    expanded += sequences * cached * heads * 2 * mixer.kv_rank * (mixer.nope_dim + mixer.value_dim)
    one.do(mixer, min(absorbed, expanded) if cached else expanded, sequences * (cached + new) * key * 2)


def projections(one, mixer, heads, kv_heads, tokens):
    if isinstance(mixer, GroupedQueryAttention):
        one.matrix("dense", W * heads * mixer.head_dim * 2 + W * kv_heads * mixer.head_dim * 2, tokens)
        return
    one.matrix("dense", W * mixer.query_rank + W * (mixer.kv_rank + mixer.rope_dim), tokens)  # down: for all heads
    one.matrix("dense", mixer.query_rank * heads * (mixer.nope_dim + mixer.rope_dim), tokens)
    one.matrix("dense", mixer.kv_rank * heads * (mixer.nope_dim + mixer.value_dim), tokens)
    one.matrix("dense", heads * mixer.value_dim * W, tokens)


def tensor_parallel(model, number, new, cached, batch, logits):
    devices = [Device() for _ in range(number)]
    tokens, touched = batch * new, {}
    for index, one in enumerate(devices):
        for block in layers_of(model):
            mixer, ffn = block.mixer, block.feedforward
            mine = range(index * mixer.heads // number, (index + 1) * mixer.heads // number)
            group = mixer.heads // mixer.kv_heads if isinstance(mixer, GroupedQueryAttention) else 1
            kv_heads = len({head // group for head in mine})
            projections(one, mixer, len(mine), kv_heads, tokens)
            attention(one, mixer, len(mine), kv_heads, new, cached, batch)
            if ffn.experts:
                one.matrix("dense", ffn.router_weights, tokens)
                one.matrix("dense", 3 * W * ffn.shared_inner / number, tokens)
                routed_experts(one, ffn, ffn.experts, 1 / number, tokens, touched)
            else:
                one.matrix("dense", 3 * W * ffn.inner / number, tokens)
            norms(one, 2 * W / number)
        norms(one, W / number)
        one.matrix("head", V * W / number, batch * logits)
        one.weights += 2 * V * W / number  # the embedding, looked up
    return devices


def norms(one, elements):
    one.weights += 2 * elements
    one.do("dense", 0.0, 2 * elements)


def routed_experts(one, ffn, held, share, tokens, touched):
    """`held` of the experts of one layer, or a share of each. A token picks each with the chance k / E."""
    chance = ffn.experts_per_token / ffn.experts
    for _ in range(held):
        elements = 3 * W * ffn.expert_inner * share
        one.weights += 2 * elements
        one.do("experts", 2 * elements * tokens * chance, 2 * elements * (1 - (1 - chance) ** tokens))


def expert_parallel(model, number, new, cached, batch, logits):
    devices = [Device() for _ in range(number)]
    sequences = [0] * number
    for sequence in range(batch):  # handed out one by one
        sequences[sequence % number] += 1
    for one, mine in zip(devices, sequences, strict=True):
        for block in layers_of(model):
            mixer, ffn = block.mixer, block.feedforward
            projections(one, mixer, mixer.heads, getattr(mixer, "kv_heads", 1), mine * new)
            attention(one, mixer, mixer.heads, getattr(mixer, "kv_heads", 1), new, cached, mine)
            if ffn.experts:
                one.matrix("dense", ffn.router_weights + 3 * W * ffn.shared_inner, mine * new)
            else:
                one.matrix("dense", 3 * W * ffn.inner, mine * new)
            norms(one, 2 * W)
        norms(one, W)
        one.matrix("head", V * W, mine * logits)
        one.weights += 2 * V * W
    for block in layers_of(model):
        for expert in range(block.feedforward.experts):  # handed out one by one
            routed_experts(devices[expert % number], block.feedforward, 1, 1, batch * new, {})
    return devices, max(sequences)


PASSES = [(1, 40, 5), (1, 7, 1), (1, 0, 16), (30, 0, 3), (9, 20, 4), (200, 0, 8)]


@pytest.mark.parametrize("number", [1, 2, 4, 8])
@pytest.mark.parametrize("new, cached, batch", PASSES)
def test_a_pass_in_tensor_parallel_is_what_its_devices_do(number, new, cached, batch):
    deployment = server(MODEL, MACHINE, devices=number)
    devices = tensor_parallel(MODEL, number, new, cached, batch, 1)
    found = pass_cost(deployment, new, cached, batch)
    flops, moved = moved_and_flops(devices)
    assert (found.flops, found.bytes) == pytest.approx((flops, moved), rel=EXACT)
    assert deployment.weight_bytes == pytest.approx(sum(one.weights for one in devices), rel=EXACT)
    assert found.seconds - found.communication == pytest.approx(max(one.seconds for one in devices), rel=EXACT)
    each = number // 2 if number > 2 else 1  # devices that have the same KV head
    kept = sum(2 * 16 * 2 * 2 * each if block.mixer is GQA else 28 * 2 * number for block in layers_of(MODEL))
    assert deployment.cache_bytes_per_token == kept


@pytest.mark.parametrize("number", [2, 4, 8])
@pytest.mark.parametrize("new, cached, batch", PASSES)
def test_a_pass_in_expert_parallel_is_what_its_devices_do(number, new, cached, batch):
    deployment = server(MODEL, MACHINE, devices=number, layout="expert")
    devices, most = expert_parallel(MODEL, number, new, cached, batch, 1)
    found = pass_cost(deployment, new, cached, batch)
    flops, moved = moved_and_flops(devices)
    assert (found.flops, found.bytes) == pytest.approx((flops, moved), rel=EXACT)
    assert deployment.weight_bytes == pytest.approx(sum(one.weights for one in devices), rel=EXACT)
    assert found.seconds - found.communication == pytest.approx(max(one.seconds for one in devices), rel=EXACT)
    sent = 0.0
    for block in layers_of(MODEL):
        if block.feedforward.experts:  # dispatch and combine
            sent += 2 * (5e-6 + most * new * others(number, 8, 3) * W * 2 / LINK)
    assert found.communication == pytest.approx(sent, rel=EXACT)
    assert deployment.memory_needed(50.0, batch) == deployment.weight_bytes + number * most * server(
        MODEL
    ).sequence_bytes(50.0)


@cache
def others(number, experts, picked):
    """Devices beside a token's own that hold one of its experts, on average over all choices of experts."""
    total = choices = 0
    for chosen in itertools.combinations(range(experts), picked):
        total += sum(any(expert % number == one for expert in chosen) for one in range(1, number))
        choices += 1
    return total / choices


@pytest.mark.parametrize("number, experts, picked", [(2, 8, 1), (2, 8, 3), (4, 8, 3), (8, 8, 3), (3, 9, 2), (4, 8, 8)])
def test_the_other_devices_that_a_token_is_sent_to(number, experts, picked):
    assert other_devices(number, experts, picked) == pytest.approx(others(number, experts, picked), rel=EXACT)


def test_experts_that_the_devices_do_not_divide():
    """On 3 devices 8 experts lie as 3, 3 and 2: memory is that of the fullest, traffic the mean."""
    deployment, alone = (server(MODEL, MACHINE, devices=n, layout="expert") for n in (3, 1))
    one = 2 * 3 * W * 16
    (resident,) = {sum(4 * math.ceil(8 / 3) * one for _ in range(3))}
    routed = 4 * 8 * one
    assert deployment.weight_bytes == 3 * (alone.weight_bytes - routed) + resident
    read = [pass_cost(each, 1, batch=6).roofs["routed experts"].bytes for each in (deployment, alone)]
    assert read[0] == pytest.approx(read[1], rel=EXACT)


@pytest.mark.parametrize("mixer", [MLA, SPARSE])
def test_what_heads_share_is_copied(mixer):
    """Memory and bytes that are read: the latent and its down-projections, and all of an indexer."""
    model = assembled("toy", W, V, ((2, mixer, DENSE),))
    alone, four = (server(model, MACHINE, devices=n) for n in (1, 4))
    copied = 2 * (W * 12 + W * 28)
    kept = 28
    if mixer is SPARSE:
        copied += 2 * (12 * 3 * 5 + W * 5 + W * 3)
        kept += 5
    assert four.weight_bytes == alone.weight_bytes + 3 * 2 * copied
    one, other = (pass_cost(each, 1, 30, batch=2) for each in (alone, four))
    assert other.linear.weights == one.linear.weights + 3 * 2 * copied
    assert other.linear.flops == one.linear.flops + 2 * 2 * 3 * copied
    assert four.cache_bytes_per_token == 4 * alone.cache_bytes_per_token == 4 * 2 * kept * 2


# ---- requests


@pytest.mark.parametrize("batch", [1, 3, 4, 9])
@pytest.mark.parametrize("chunk", [None, 7])
def test_a_prefill_pass_has_one_prompt_a_device(batch, chunk):
    deployment = server(MODEL, MACHINE, devices=4, layout="expert", prefill_chunk=chunk)
    cost = request_cost(deployment, Request(20, 11), batch)
    size = chunk or 20
    starts = range(0, 20, size)
    waves = [min(4, batch - start) for start in range(0, batch, 4)]
    passes = [
        pass_cost(deployment, min(size, 20 - start), start, wave, int(start + size >= 20))
        for wave in waves
        for start in starts
    ]
    steps = [pass_cost(deployment, 1, 20 + k, batch) for k in range(10)]
    for phase, loop in ((cost.prefill, passes), (cost.decode, steps)):
        for name in ("seconds", "communication", "flops", "bytes", "passes"):
            assert getattr(phase, name) == pytest.approx(math.fsum(getattr(one, name) for one in loop), rel=EXACT)
    many = request_cost(deployment, Request([20, 5], 11), [batch, 2])
    assert many.seconds[0] == pytest.approx(cost.seconds, rel=EXACT)
    assert many.flops[0] == pytest.approx(cost.flops, rel=EXACT)


def test_work_of_a_batch_does_not_depend_on_how_full_the_devices_are():
    """FLOPs and cache of five sequences are those of five, though the device that has two makes the others wait."""
    deployment, alone = server(MODEL, MACHINE, devices=4, layout="expert"), server(MODEL, MACHINE)
    found, one = (pass_cost(each, 1, 30, batch=5) for each in (deployment, alone))
    assert found.flops == pytest.approx(one.flops, rel=EXACT)
    assert found.cache_read == pytest.approx(one.cache_read, rel=EXACT)
    full = pass_cost(deployment, 1, 30, batch=8)
    assert found.attention.seconds == pytest.approx(full.attention.seconds, rel=EXACT)


@pytest.mark.parametrize("model", [MODEL, qwen3_30b_a3b()])
def test_one_device_is_the_same_in_both_layouts(model):
    both = [server(model, MACHINE, layout=layout) for layout in ("tensor", "expert")]
    costs = [request_cost(each, Request(50, 20), 3) for each in both]
    assert costs[0].seconds == costs[1].seconds and both[0].weight_bytes == both[1].weight_bytes
    assert costs[0].prefill.communication == costs[1].decode.communication == 0


def test_a_model_without_experts_is_served_by_replicas():
    deployment = server(devices=4, layout="expert")
    assert deployment.weight_bytes == 4 * server().weight_bytes
    assert pass_cost(deployment, 1, 1000, batch=8).seconds == pytest.approx(pass_cost(server(), 1, 1000, 2).seconds)
    assert deployment.largest_batch(2000) == 4 * server().largest_batch(2000)
    words = " ".join(request_cost(deployment, Request(10, 10)).assumptions())
    assert "No experts are routed" in words and "all-to-all" not in words.lower()


# ---- memory


@pytest.mark.parametrize("number", [2, 3, 4, 8])
def test_a_batch_fits_if_the_fullest_device_holds_its_share(number):
    small = replace(MACHINE, memory=6e5)
    deployment = server(MODEL, small, devices=number, layout="expert")
    devices, _ = expert_parallel(MODEL, number, 1, 0, 1, 1)
    fullest = 0.9 * 6e5 - max(one.weights for one in devices)
    each = server(MODEL).sequence_bytes(50.0)
    assert deployment.largest_batch(50) == number * int(fullest // each) > 0
    most = deployment.largest_batch(50)
    deployment.require_fit(50, most)
    with pytest.raises(DoesNotFitError, match=rf"data-parallel attention.*batch={most}"):
        deployment.require_fit(50, most + 1)


def test_a_remedy_of_more_devices_keeps_the_layout():
    small = replace(MACHINE, memory=3.5e5)
    deployment = server(MODEL, small, devices=2, layout="expert", dtype=Precision("bf16"))
    with pytest.raises(DoesNotFitError) as caught:
        deployment.require_fit(40, 40)
    more = [remedy for remedy in caught.value.remedies if "devices" in remedy]
    for remedy in more:
        number = int(remedy.split("=")[1].split()[0])
        assert replace(deployment, devices=number).largest_batch(40) >= 1


# ---- golden values: DeepSeek-R1 in fp8, a mean cache of 4,989 tokens


@cache
def h800():
    """As an H100 SXM but for its link: 400 GB/s of NVLink, 200 one way."""
    peaks = {"bf16": 989e12, "fp8": 1979e12}
    return Accelerator(name="h800", memory=85.52e9, bandwidth=3.35e12, peaks=peaks, link=200e9)


def per_device(number, link=None, layout="expert", **precision):
    """Output tokens a second and device, at the largest batch that memory holds."""
    fp8 = Precision("fp8", **precision)
    deployment = Deployment(load_model("deepseek-r1"), h800(), fp8, devices=number, layout=layout, link=link)
    batch = deployment.largest_batch(4989)
    return batch / pass_cost(deployment, 1, 4988, batch).seconds / number


NODES, PUBLISHED = 50e9, 1850


@pytest.mark.parametrize("number", [32, 64, 96, 128, 144])
def test_expert_parallelism_over_many_nodes_is_above_what_its_maker_published(number):
    found = per_device(number, NODES)
    assert 0.97 * 2250 < found < 1.03 * 2400 and found > PUBLISHED
    assert per_device(number, 33e9) < PUBLISHED  # under about 34 GB/s none is


def test_sixteen_devices_need_an_fp8_cache_or_one_domain():
    assert per_device(16, NODES) < PUBLISHED
    assert per_device(16, NODES, cache="fp8") > PUBLISHED
    assert per_device(16) == pytest.approx(1935, rel=0.03) and per_device(16) > PUBLISHED
    assert per_device(64, 35e9) > PUBLISHED


@pytest.mark.parametrize("link", [None, NODES])
def test_tensor_parallelism_is_far_below(link):
    found = [per_device(number, link, "tensor") for number in (16, 32, 64, 128)]
    assert found == sorted(found, reverse=True)
    assert found[-1] > 0.97 * 40 and found[0] < 1.03 * 270


def test_a_dispatch_in_one_byte_sends_three_quarters():
    model = load_model("deepseek-r1")
    both = [Deployment(model, h800(), Precision("fp8", dispatch=dtype), 32, "expert", NODES) for dtype in (None, "fp8")]
    whole, less = (each.sizes.collective_bytes for each in both)
    assert less == pytest.approx(0.75 * whole, rel=EXACT)
    assert whole == pytest.approx(58 * 2 * 2 * 7168 * 31 * (1 - math.comb(248, 8) / math.comb(256, 8)), rel=1e-9)
    words = " ".join(request_cost(both[1], Request(10, 10)).assumptions())
    assert "1 bytes a number to the experts, 2 back" in words


# ---- what is said, and what is refused


def test_every_output_says_its_layout():
    for layout, words, sent in (
        ("tensor", "tensor parallelism", "all-reduces"),
        ("expert", "data-parallel attention with expert parallelism", "all-to-alls"),
    ):
        deployment = server(qwen3_30b_a3b(), devices=4, layout=layout, link=123e9)
        cost = request_cost(deployment, Request(10, 10), 2)
        assert f"({words})" in repr(deployment) and f"({words})" in repr(cost).split("\n")[0]
        assert f"({words})" in cost._repr_html_() and f"({words})" in cost.equations()
        said = " ".join(cost.assumptions())
        assert words in said.lower() and "123 GB/s one way" in said
        assert f"decode: {sent}" in repr(cost)
    alone = request_cost(server(), Request(10, 10))
    assert "parallel" not in repr(alone) and "parallel" not in repr(server())


def test_the_link_is_the_callers_or_the_accelerators():
    unlinked = replace(MACHINE, link=None)
    for layout in ("tensor", "expert"):
        refuses(lambda layout=layout: server(MODEL, unlinked, devices=2, layout=layout), "link", "2", "hypothetical")
        given, own = server(MODEL, unlinked, devices=2, layout=layout, link=LINK), server(MODEL, MACHINE, devices=2)
        assert given.link_rate == own.link_rate == LINK
        faster = scaled(given, "link", 2.0)
        assert faster.link_rate == 2 * LINK
        slow, fast = (pass_cost(each, 1, batch=4).communication for each in (given, faster))
        latencies = given.sizes.collectives * given.collective_latency
        assert slow - latencies == pytest.approx(2 * (fast - latencies), rel=EXACT)
    server(MODEL, unlinked, layout="expert")


def test_a_stated_latency():
    quick = Efficiency(all_reduce_latency=0.0, all_to_all_latency=1e-3)
    deployment = server(MODEL, MACHINE, devices=2, layout="expert", efficiency=quick)
    default = server(MODEL, MACHINE, devices=2, layout="expert")
    extra = pass_cost(deployment, 1).communication - pass_cost(default, 1).communication
    assert extra == pytest.approx(2 * 4 * (1e-3 - 5e-6), rel=1e-9)


def test_what_cannot_be_meant_is_refused():
    refuses(lambda: server(MODEL, MACHINE, devices=2, layout="pipeline"), "layout", "pipeline", "tensor", "expert")
    refuses(lambda: server(MODEL, MACHINE, devices=2, link=0), "link", "0")
    refuses(lambda: server(MODEL, MACHINE, devices=2, link="fast"), "link", "fast")
    expert = server(MODEL, MACHINE, devices=2, layout="expert")
    refuses(lambda: simulate(expert, all_at_once(2, prompt=9, output=9)), "layout", "expert", "tensor")
    server(MODEL, MACHINE, devices=3, layout="expert")  # heads are not divided
    assert server(gqa_model(), MACHINE, devices=3, layout="expert").devices == 3


def test_a_layout_of_many_devices_prices_a_request_of_deepseek_v3():
    """Alone, one device has the sequence and the others wait; its weights are read at one device's bandwidth."""
    tensor, expert = (
        server(deepseek_v3(), device(), devices=8, layout=name, dtype="fp8") for name in ("tensor", "expert")
    )
    assert pass_cost(expert, 1, 1000).seconds > 2 * pass_cost(tensor, 1, 1000).seconds
    busy = pass_cost(expert, 1, 1000, 2048).seconds, pass_cost(tensor, 1, 1000, 2048).seconds
    assert busy[0] < busy[1]
    assert pass_cost(server(llama(), device(), devices=2, layout="expert"), 1, 10).communication == 0
