"""A law of spans that lessonlib does not know, defined here: whatever is priced follows it, and nothing else changes.

Each token attends to itself and to every second token before it, the first among them; the others are forgotten. The
law stands here twice, as lists of tokens and in closed form, and every price is counted again from the lists.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from helpers import assembled, device
from token_by_token import TokenByToken, assert_conserved, assert_same, random_traffic, with_cache_of

from lessonlib.base.elementwise import floor
from lessonlib.model.attention import GroupedQueryAttention, Mixer
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts
from lessonlib.model.state import GatedDeltaNet
from lessonlib.policy.batching import memory_batch
from lessonlib.policy.cache import answer_traffic, cache_by_kind, span_where_cache_passes_weights, step_parts
from lessonlib.policy.serving.memory import CountedLayers, Layers, layers_by_law
from lessonlib.policy.serving.simulator import POLICIES, simulate
from lessonlib.policy.serving.traffic import Traffic
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment, Efficiency
from lessonlib.time.roofline import pass_cost

EXACT, TIGHT = 1e-12, 1e-9


def kept(tokens):
    return [token for token in range(1, int(tokens) + 1) if token % 2]


def attended(token):
    return [other for other in range(1, int(token) + 1) if other == token or other % 2]


@dataclass(frozen=True, kw_only=True)
class EverySecondToken(Mixer):
    width: int
    heads: int
    head_dim: int

    @property
    def label(self):
        return "every second token"

    @property
    def matmul_weights(self):
        return 4 * self.width * self.heads * self.head_dim

    @property
    def cache_elements(self):
        return 2 * self.heads * self.head_dim

    @property
    def pair_flops(self):
        return 4 * self.heads * self.head_dim

    def span_sum(self, cached, new):
        return new + floor((cached + new) ** 2 / 4) - floor(cached**2 / 4)

    def read(self, cached, new):
        return (cached + 1) // 2

    def held(self, tokens):
        return (tokens + 1) // 2


class AskedGroups(GroupedQueryAttention):
    """Full or sliding attention, whose law nobody may know beforehand."""

    fills_at = None


SECOND = EverySecondToken(width=256, heads=8, head_dim=64)
FULL, SLIDING = (GroupedQueryAttention(width=256, heads=8, kv_heads=4, head_dim=64, window=w) for w in (None, 37))
DELTA = GatedDeltaNet(width=256, key_heads=4, value_heads=4, key_dim=32, value_dim=32, conv_kernel=4)
MIXERS = {"alone": [SECOND], "among others": [FULL, SECOND, DELTA, SLIDING]}


def deployed(mixers, peak=1e11, cache=10_000_000, **changes):
    """A few layers on a slow device, with memory for one sequence of `cache` tokens."""
    dense = DenseFeedForward(width=256, inner=512)
    experts = MixtureOfExperts(width=256, experts=16, experts_per_token=2, expert_inner=256)
    blocks = tuple((2, mixer, experts if i % 2 else dense) for i, mixer in enumerate(mixers))
    slow = device(bandwidth=1e9, peaks={"bf16": peak})
    deployment = Deployment(assembled("toy", 256, 100, blocks), slow, devices=2, **changes)
    return with_cache_of(deployment, deployment.sequence_bytes(float(cache)))


def part_of(deployment):
    return next(kind for kind in deployment.sizes.kinds if isinstance(kind.mixer, EverySecondToken))


def counted(deployment, new, cached):
    """(FLOPs, bytes) of a pass over `new` tokens of one sequence in the layers of this law, by its lists."""
    kind = part_of(deployment)
    pairs = sum(len(attended(cached + i)) for i in range(1, new + 1))
    return kind.pair_flops * pairs, kind.cache_bytes * (len(kept(cached)) + new)


def seconds(deployment, new, cached):
    flops, moved = counted(deployment, new, cached)
    return max(flops / deployment.peak, moved / deployment.bandwidth)


PEAKS = [1e11, 1e8]  # memory bound, compute bound


# ---- the law, a pass and a request


def test_the_closed_form_is_the_list():
    cached, new = (np.array(numbers, dtype=float) for numbers in zip(*np.ndindex(20, 12), strict=True))
    pairs = [sum(len(attended(c + i)) for i in range(1, int(n) + 1)) for c, n in zip(cached, new, strict=True)]
    assert SECOND.span_sum(cached, new).tolist() == pairs
    assert [SECOND.span_sum(c, n) for c, n in zip(cached, new, strict=True)] == pairs
    assert SECOND.read(cached, 1.0).tolist() == SECOND.held(cached).tolist() == [len(kept(c)) for c in cached]
    assert [SECOND.span(p) for p in range(1, 30)] == [len(attended(p)) for p in range(1, 30)]
    assert SECOND.fills_at is None


@pytest.mark.parametrize("peak", PEAKS)
@pytest.mark.parametrize("mixers", MIXERS)
def test_a_request_is_the_plain_loop_of_its_passes(mixers, peak):
    deployment = deployed(MIXERS[mixers], peak, prefill_chunk=17)
    kind = part_of(deployment)
    for prompt, output, cached in ((1, 1, 0), (1, 40, 0), (50, 31, 0), (60, 200, 33)):
        cost = request_cost(deployment, Request(prompt, output, cached), 3)
        chunks = [(min(17, prompt - start), start) for start in range(cached, prompt, 17)]
        steps = [(1, prompt + k) for k in range(output - 1)]
        for phase, passes in ((cost.prefill, chunks), (cost.decode, steps)):
            ends = [new + start == prompt or phase is cost.decode for new, start in passes]
            loop = [
                pass_cost(deployment, *each, batch=3, logits=int(end)) for each, end in zip(passes, ends, strict=True)
            ]
            for name in ("flops", "bytes", "seconds", "cache_read", "cache_write"):
                assert getattr(phase, name) == pytest.approx(math.fsum(getattr(one, name) for one in loop), rel=EXACT)
            if passes:
                found, by_list = phase.roofs[kind.part], [counted(deployment, *each) for each in passes]
                assert found.flops == pytest.approx(3 * sum(flops for flops, _ in by_list), rel=EXACT)
                assert found.bytes == pytest.approx(3 * sum(moved for _, moved in by_list), rel=EXACT)
                both = (max(flops / deployment.peak, moved / deployment.bandwidth) for flops, moved in by_list)
                assert found.seconds == pytest.approx(3 * sum(both), rel=EXACT)
    many = request_cost(deployment, Request([50, 60], [31, 200]), 3)
    one = request_cost(deployment, Request(60, 200), 3)
    assert (many.seconds[1], many.bytes[1]) == pytest.approx((one.seconds, one.bytes), rel=EXACT)


# ---- growth and memory


def test_a_cache_grows_by_what_is_kept():
    deployment = deployed(MIXERS["among others"])
    tokens = np.arange(200)
    found = {one.label: one.bytes for one in cache_by_kind(deployment, tokens)}
    each = part_of(deployment).cache_bytes
    assert found["every second token"].tolist() == [each * len(kept(n)) for n in tokens]
    assert sum(found.values()) == pytest.approx(deployment.sequence_bytes(tokens.astype(float)))
    assert cache_by_kind(deployment, 7)[1].bytes == each * 4


@pytest.mark.parametrize("peak", PEAKS)
def test_a_step_is_of_its_own_span_and_its_neighbours_mean(peak):
    deployment, request = deployed([SECOND], peak), Request(21, 30)
    positions = np.arange(1, 30)
    own = [seconds(deployment, 1, 20 + k) for k in positions]
    parts = step_parts(deployment, request, positions, batch=5)
    assert parts.own == pytest.approx(own, rel=EXACT)
    assert parts.neighbours == pytest.approx(np.full(29, 4 * np.mean(own)), rel=EXACT)
    together = step_parts(deployment, request, positions, batch=5, together=True)
    assert together.neighbours == pytest.approx(4 * np.array(own), rel=EXACT)


def test_an_answer_reads_what_was_kept():
    deployment = deployed([SECOND])
    read = part_of(deployment).cache_bytes
    traffic = answer_traffic(deployment, Request(21, 30), batch=4)
    assert traffic.triangle == 4 * read * sum(len(kept(21 + k)) for k in range(29))
    assert traffic.flat == 4 * read * 29 * len(kept(21))
    assert traffic.end == 4 * read * 29 * len(kept(49))


@pytest.mark.parametrize("batch", [3, 32])
def test_the_span_where_the_cache_passes_the_weights(batch):
    deployment = deployed([SECOND])
    weights = pass_cost(deployment, 1, batch=batch).linear.weights
    moved = (batch * part_of(deployment).cache_bytes * len(attended(span)) for span in range(1, 10_000))
    first = next(span for span, moves in enumerate(moved, 1) if moves > weights)
    assert span_where_cache_passes_weights(deployment, batch) == first > 2


@pytest.mark.parametrize("block", [1, 16])
@pytest.mark.parametrize("steady", [False, True])
def test_a_batch_fits_by_what_is_kept_of_whole_blocks(block, steady):
    """A reservation is of whole blocks of a sequence's tokens, and each kind of layer keeps its own of these."""
    deployment, request = deployed([SECOND], cache=5000), Request(30, 71)
    tokens = 30 + (36 if steady else 71)
    reserved = part_of(deployment).cache_bytes * len(kept(-(-tokens // block) * block))
    assert memory_batch(deployment, request, steady, block) == int(deployment.memory_free // reserved)


# ---- a server of requests that come and go


class ByTheList(TokenByToken):
    """The server that goes token by token, with the law as lists."""

    def law(self, kind, tokens):
        unknown = isinstance(kind.mixer, EverySecondToken)
        return (kind.mixer, len(kept(tokens))) if unknown else super().law(kind, tokens)

    def attention(self, kind, new, cached):
        unknown = isinstance(kind.mixer, EverySecondToken)
        return counted(self.deployment, int(new), int(cached)) if unknown else super().attention(kind, new, cached)


@pytest.mark.parametrize("mixers", MIXERS)
@pytest.mark.parametrize("prefill", POLICIES)
def test_a_request_alone_on_a_server_is_its_cost(mixers, prefill):
    deployment = deployed(MIXERS[mixers], efficiency=Efficiency(0.6, 0.8, 1e-3))
    cost = request_cost(deployment, Request(100, 900))
    run = simulate(deployment, Traffic([0.0], 100, 900, 0.5), prefill)
    assert run.finish[0] == pytest.approx(cost.undisturbed, rel=TIGHT)
    assert run.seconds["decode"] == pytest.approx(cost.decode.seconds, rel=TIGHT)
    assert run.first_answer_token[0] == pytest.approx(
        request_cost(deployment, Request(100, 451)).undisturbed, rel=TIGHT
    )
    assert_conserved(run)


@pytest.mark.parametrize("mixers", MIXERS)
@pytest.mark.parametrize("prefill", POLICIES)
@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_a_server_is_the_server_that_goes_token_by_token(mixers, prefill, seed):
    block, watermark, peak = (1, 7, 16)[seed % 3], (0.0, 0.05)[seed % 2], PEAKS[seed > 2]
    deployment = deployed(MIXERS[mixers], peak, cache=900, efficiency=Efficiency(overhead=1e-4))
    traffic = random_traffic(deployment, seed, 30, 200, load=20.0)
    largest = ByTheList(deployment, traffic, prefill, block, watermark).bytes_of(400)
    deployment = with_cache_of(deployment, 2.5 * largest)
    budget = 9 if prefill == "chunked" and seed % 2 else None
    run = simulate(deployment, traffic, prefill, block, watermark, token_budget=budget)
    assert_same(run, ByTheList(deployment, traffic, prefill, block, watermark, budget).run())
    assert_conserved(run)
    assert run.preemptions.sum() > 0
    early = simulate(deployment, traffic, prefill, block, watermark, None, budget, run.start + run.elapsed / 2)
    done = run.finish <= early.end * (1 + TIGHT)
    assert early.finish[done] == pytest.approx(run.finish[done], rel=TIGHT) and np.isnan(early.finish[~done]).all()


@pytest.mark.parametrize("prefill", POLICIES)
@pytest.mark.parametrize("window", [None, 1, 50])
def test_a_law_that_is_asked_gives_what_one_that_is_counted_gives(window, prefill):
    sizes = {"width": 256, "heads": 8, "kv_heads": 4, "head_dim": 64, "window": window}
    counted_, asked = (deployed([kind(**sizes)], cache=900) for kind in (GroupedQueryAttention, AskedGroups))
    assert [type(layers_by_law(d.sizes.kinds, 16)[0]) for d in (counted_, asked)] == [CountedLayers, Layers]
    traffic = random_traffic(counted_, 5, 40, 200, load=20.0)
    largest = TokenByToken(counted_, traffic, prefill, 7, 0.01).bytes_of(400)
    counted_, asked = (with_cache_of(deployment, 2.5 * largest) for deployment in (counted_, asked))
    one, other = (simulate(deployment, traffic, prefill, block=7) for deployment in (counted_, asked))
    for name in ("first_token", "first_answer_token", "finish", "end", "request_seconds"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=TIGHT, nan_ok=True)
    assert other.preemptions.tolist() == one.preemptions.tolist()
    assert (other.peak_cache_bytes, other.recomputed_tokens) == (one.peak_cache_bytes, one.recomputed_tokens)
