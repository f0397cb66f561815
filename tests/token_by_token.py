"""The server that goes token by token, which the simulator is held against, and what two runs must agree on."""

import math
from collections import deque
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from lessonlib.policy.serving.traffic import Traffic
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.parallel import communication_seconds
from lessonlib.work.passes import attention_work, linear_work

TIGHT = 1e-9


class TokenByToken:
    """A server that looks at every sequence before every pass. Slow, and with nothing in closed form."""

    def __init__(self, deployment, traffic, prefill, block, watermark, budget=None, most=None):
        self.deployment, self.traffic, self.prefill, self.block = deployment, traffic, prefill, block
        self.budget, self.most = budget or 2048, most or math.inf
        self.capacity = math.floor(deployment.memory_free)
        self.kept_free = math.ceil(watermark * self.capacity)
        self.first, self.answer, self.finish = (np.full(len(traffic), np.nan) for _ in range(3))
        self.preemptions = np.zeros(len(traffic), dtype=int)
        self.emitted = np.zeros(len(traffic), dtype=int)
        self.waiting, self.active = deque(), []  # active: [request, tokens to prefill, tokens held], as admitted
        self.time = traffic.arrivals[0]
        # Asked anew at each step; what they say of a number of tokens never changes.
        self.bytes_of, self.attention = cache(self.bytes_of), cache(self.attention)

    def bytes_of(self, tokens):
        laws, state = {}, 0.0
        for kind in self.deployment.sizes.kinds:
            state += kind.state_bytes
            law, held = self.law(kind, tokens)
            laws[law] = held, laws.get(law, (held, 0.0))[1] + kind.cache_bytes
        return math.ceil(state) + sum(math.ceil(k * self.block) * math.ceil(h / self.block) for h, k in laws.values())

    def law(self, kind, tokens):
        """(what names its law, for layers of one law are paged together; tokens held of `tokens`)."""
        window = getattr(kind.mixer, "window", None)
        return window, min(tokens, window or tokens)

    def attention(self, kind, new, cached):
        """(FLOPs, bytes) of a pass over `new` tokens of one sequence."""
        work = attention_work(kind, float(new), float(cached), 1.0)
        return work.flops, work.cache_read + work.cache_write + work.state

    def pass_seconds(self, chunks, decoding):
        """`chunks`: (new, cached, whether the prompt is then done). `decoding`: tokens held by each that decodes."""
        deployment, sizes = self.deployment, self.deployment.sizes
        tokens = float(sum(new for new, _, _ in chunks) + len(decoding))
        linear = linear_work(sizes, tokens, float(sum(done for _, _, done in chunks) + len(decoding)))
        works = [(work.kernel, work.flops, work.weights) for work in linear]
        for new, cached in [(new, cached) for new, cached, _ in chunks] + [(1, held) for held in decoding]:
            works += [("attention", *self.attention(kind, new, cached)) for kind in sizes.kinds]
        rates, bandwidth = deployment.peaks, deployment.bandwidth
        longer = max if deployment.efficiency.overlap else lambda *times: sum(times)
        roofs = (longer(flops / rates[kernel], moved / bandwidth) for kernel, flops, moved in works)
        link, latency = deployment.accelerator.link, deployment.efficiency.all_reduce_latency
        communication = communication_seconds(link, latency, sizes, tokens, 1.0)
        return sum(roofs) + communication + deployment.efficiency.overhead

    def emit(self, request):
        self.emitted[request] += 1
        if self.emitted[request] == 1:
            self.first[request] = self.time
        if self.emitted[request] == math.floor(self.traffic.thought_share[request] * self.traffic.output[request]) + 1:
            self.answer[request] = self.time
        if self.emitted[request] == self.traffic.output[request]:
            self.finish[request] = self.time

    def admit(self, most):
        admitted = 0
        while self.waiting and admitted < most and len(self.active) < self.most:
            tokens = self.traffic.prompt[self.waiting[0]] + self.emitted[self.waiting[0]]
            used = sum(self.bytes_of(max(total, held)) for _, total, held in self.active)
            spare = self.kept_free if self.active else 0
            if used + self.bytes_of(tokens) + spare > self.capacity:
                return
            self.active.append([self.waiting.popleft(), tokens, 0])
            admitted += 1

    def run(self):
        arrivals = deque(enumerate(self.traffic.arrivals))
        while np.isnan(self.finish).any():
            while arrivals and arrivals[0][1] <= self.time:
                self.waiting.append(arrivals.popleft()[0])
            self.admit(1 if self.prefill == "first" else math.inf)
            if not self.active:
                self.time = arrivals[0][1]
                continue
            prompts = [one for one in self.active if one[2] < one[1]]
            if prompts and self.prefill != "chunked":
                self.one_pass([(one, one[1]) for one in prompts], [])
                continue
            decoding = self.make_room()
            room = self.budget - len(decoding)
            chunks = []
            for one in self.active:
                new = min(room, one[1] - one[2])
                if one not in decoding and new > 0:
                    chunks.append((one, new))
                    room -= new
            self.one_pass(chunks, decoding)
        return self

    def make_room(self):
        while True:
            decoding = [one for one in self.active if one[2] >= one[1]]
            needed = sum(self.bytes_of(one[2] + 1 if one in decoding else one[1]) for one in self.active)
            if needed <= self.capacity:
                return decoding
            request, _, _ = self.active.pop()
            self.waiting.appendleft(request)
            self.preemptions[request] += 1

    def one_pass(self, chunks, decoding):
        size = self.deployment.prefill_chunk if self.prefill == "first" else None
        if chunks and size:
            ((one, new),) = chunks
            starts = range(0, new, size)
            self.time += sum(self.pass_seconds([(min(size, new - s), s, s + size >= new)], []) for s in starts)
        else:
            parts = [(new, one[2], one[2] + new == one[1]) for one, new in chunks]
            self.time += self.pass_seconds(parts, [one[2] for one in decoding])
        for one in decoding:
            one[2] += 1
            self.emit(one[0])
        for one, new in chunks:
            one[2] += new
            if one[2] == one[1]:
                self.emit(one[0])
        self.active = [one for one in self.active if np.isnan(self.finish[one[0]])]


def with_cache_of(deployment, cache_bytes):
    """The same deployment with memory for its weights and `cache_bytes`, a hair for rounding apart."""
    needed = (deployment.weight_bytes + cache_bytes + 0.5) / deployment.memory_fraction / deployment.devices
    return replace(deployment, accelerator=replace(deployment.accelerator, memory=needed))


def random_traffic(deployment, seed, count, longest, load):
    """Arrivals as dense as a request is long, divided by `load`; a few of them at the same moment."""
    random = np.random.default_rng(seed)
    prompt, output = random.integers(1, longest, count), random.integers(1, longest, count)
    alone = request_cost(replace(deployment, prefill_chunk=None), Request(longest, longest)).undisturbed
    gaps = random.exponential(alone / load, count) * (random.random(count) > 0.2)
    return Traffic(np.cumsum(gaps), prompt, output, random.choice([0.0, 0.5, 0.9, 1.0], count))


def assert_same(report, reference):
    assert report.first_token == pytest.approx(reference.first, rel=TIGHT)
    assert report.finish == pytest.approx(reference.finish, rel=TIGHT)
    assert report.first_answer_token == pytest.approx(reference.answer, rel=TIGHT, nan_ok=True)
    assert report.preemptions.tolist() == reference.preemptions.tolist()
    assert report.end == pytest.approx(reference.time, rel=TIGHT)


def assert_conserved(report):
    """Of a run from empty to empty: every token, byte and second is there, and Little's law is an identity."""
    assert report.ended == "every request finished" and report.finished == len(report.traffic)
    assert report.output_tokens == report.traffic.output.sum()
    assert math.fsum(report.seconds.values()) == pytest.approx(report.elapsed, rel=TIGHT)
    assert all(seconds >= 0 for seconds in report.seconds.values()) and 0 < report.utilisation <= 1
    assert report.request_seconds == pytest.approx(report.latency.sum(), rel=TIGHT)
    arrival_rate = len(report.traffic) / report.elapsed
    assert report.mean_in_system == pytest.approx(arrival_rate * report.latency.mean(), rel=TIGHT)
    occupancy = report.occupancy
    assert occupancy.cache_bytes[-1] == occupancy.running[-1] == occupancy.waiting[-1] == 0
    assert occupancy.cache_bytes.min() >= 0 and occupancy.running.max() == report.peak_running
    assert occupancy.cache_bytes.max() <= report.peak_cache_bytes <= report.cache_bytes_available
    assert len(occupancy.time) == report.events + 1 and np.all(np.diff(occupancy.time) >= 0)
    assert (occupancy.time[0], occupancy.time[-1]) == (report.start, report.end)
    assert np.all(report.ttft > 0) and np.all(report.finish >= report.first_token)
