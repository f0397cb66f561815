"""Continuous batching: requests join and leave a running batch at any step, and their caches share one memory.

Nothing is simulated token by token. Between two events (an arrival that may be admitted, a last token, a full cache)
the running set is constant. Then m steps of n sequences that hold S tokens together take, in closed form,

    m (linear layers of n tokens + all-reduces + overhead + constant states) + a (m S + n m (m + 1) / 2)

with a the seconds of attention for each token of span, under each kind's roof, which does not move with the span. A
window adds an event: a sequence that fills it stops growing. The steps before the next arrival are the root of a
quadratic, those before the cache is full a count of block boundaries; both are held to whole steps.

Admission is first come first served, when the blocks of all tokens to prefill are free and a watermark of memory stays
free. When a step finds no free block, the request admitted last gives up its cache, goes back to the front of the queue
and is prefilled again later, prompt and tokens so far (preemption by recompute). A boundary admits first and preempts
then, so a preempted request waits for a step at least: readmitted at once, the two would chase each other for ever.

Sources: Yu et al., Orca, OSDI 2022 (continuous batching); Kwon et al., 2309.06180 (blocks, preemption by recompute);
Agrawal et al., Sarathi-Serve, 2403.02310 (chunked prefill).
"""

import math
from array import array
from collections import deque
from functools import cache, lru_cache
from heapq import heappop, heappush

import numpy as np

from lessonlib.base.errors import (
    DoesNotFitError,
    InvalidInputError,
    require_choice,
    require_count,
    require_fraction,
    require_instance,
    require_rate,
    shown,
)
from lessonlib.base.units import format_bytes
from lessonlib.policy.cache import linear_step_seconds, other_step_seconds
from lessonlib.policy.serving.findings import Occupancy, Report
from lessonlib.policy.serving.traffic import Traffic
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.roofline import Phase
from lessonlib.work.passes import Passes, Work, attention_work, linear_work

POLICIES = {
    "first": "prefill first, one prompt a pass",
    "joint": "prefill first, all prompts admitted at one moment in one pass",
    "chunked": "prompts in chunks that ride on decode steps",
}
DEFAULT_BUDGET = 2048  # tokens of a pass with chunks
LARGEST_BLOCK = 65_536
COARSEST_CLOCK = 1e-3  # of the shortest step, between two numbers of the clock


class _Layers:
    """All layers with one window, over the sequences that decode.

    `seconds`: attention for each token of span. A sequence that holds h tokens after G steps of the server keeps its
    offset h - G; `offsets` is their sum over the `growing` sequences, the `full` ones hold a whole window.
    `boundaries[r]`: growing sequences that take a new block in step G + 1 when G mod block is r.
    """

    __slots__ = ("block", "block_bytes", "boundaries", "full", "growing", "offsets", "seconds", "window")

    def __init__(self, window: int | None, seconds: float, token_bytes: float, block: int):
        self.window: float = math.inf if window is None else window
        self.seconds = seconds
        self.block = block
        self.block_bytes = math.ceil(token_bytes * block)
        self.growing = self.offsets = self.full = 0
        self.boundaries = [0] * block

    def held_bytes(self, tokens: int) -> int:
        """Bytes of the blocks of a sequence that has `tokens` tokens."""
        held = tokens if tokens < self.window else int(self.window)
        return self.block_bytes * -(-held // self.block)

    def grow(self, offset: int, sign: int) -> None:
        """Count a growing sequence in (1) or out (-1)."""
        self.growing += sign
        self.offsets += sign * offset
        self.boundaries[-offset % self.block] += sign

    def join(self, offset: int, step: int) -> bool:
        """Take in a sequence; whether it still grows."""
        grows = offset + step < self.window
        if grows:
            self.grow(offset, 1)
        else:
            self.full += 1
        return grows

    def leave(self, offset: int, step: int) -> None:
        if offset + step < self.window:
            self.grow(offset, -1)
        else:
            self.full -= 1

    def fill(self, offset: int) -> None:
        """A growing sequence has reached the window."""
        self.grow(offset, -1)
        self.full += 1

    def new_bytes(self, steps: int, step: int) -> int:
        """Bytes of the blocks that `steps` steps after `step` take: one a sequence in every `block` steps."""
        whole, rest = divmod(steps, self.block)
        first = step % self.block
        last = first + rest
        crossed = sum(self.boundaries[first:last])
        if last > self.block:
            crossed += sum(self.boundaries[: last - self.block])
        return self.block_bytes * (whole * self.growing + crossed)


def steps_until(seconds: float, rate: float, growth: float) -> int:
    """The first m >= 1 with m rate + growth m (m + 1) / 2 >= seconds: the root, then held to whole steps."""
    half = rate + growth / 2
    m = max(1, math.ceil(2 * seconds / (half + math.sqrt(half * half + 2 * growth * seconds))))
    while m > 1 and (m - 1) * (rate + growth * m / 2) >= seconds:
        m -= 1
    while m * (rate + growth * (m + 1) / 2) < seconds:
        m += 1
    return m


class _Server:
    """A server between two events, and what each kind of event does to it."""

    def __init__(self, deployment: Deployment, traffic: Traffic, block: int, watermark: float, largest_batch: float):
        self.deployment = deployment
        self.capacity = self.free = math.floor(deployment.memory_free)  # bytes
        self.watermark = math.ceil(watermark * self.capacity)
        self.largest_batch = largest_batch
        self.layers, self.state_bytes, self.state_seconds = _layers(deployment, block)
        self.most_new_bytes = sum(layers.block_bytes for layers in self.layers)  # of one sequence in one step
        count = len(traffic)
        self.arrivals = [*traffic.arrivals.tolist(), math.inf]
        self.prompt, self.output = traffic.prompt.tolist(), traffic.output.tolist()
        self.answer_starts = traffic.answer_starts.tolist()
        self.tokens = list(self.prompt)  # to prefill at the next admission
        self.offset = [0] * count
        self.first_token, self.answer, self.finish = ([math.nan] * count for _ in range(3))
        self.answer_step = [0] * count  # after which step the answer's first token is there; 0 where `answer` knows
        self.preemptions = [0] * count
        self.time = self.arrivals[0]
        self.step = 0  # decode steps so far
        self.arrived = 0
        self.finished = 0
        self.holding = 0  # requests that hold memory: in prefill or decoding
        self.queue: deque[int] = deque()
        self.prefilling: dict[int, int] = {}  # request: its tokens prefilled so far; in order of admission
        self.running: dict[int, int] = {}  # request that decodes: the number of its join; in order of admission
        self.joins = 0
        self.due: list[
            tuple[int, int, int, int]
        ] = []  # (step, index of layers that fill or their count, join, request)
        self.phases = dict.fromkeys(("prefill", "recompute", "decode", "mixed", "idle"), 0.0)
        self.request_seconds = 0.0
        self.output_tokens = self.recomputed_tokens = self.peak_holding = self.peak_used = 0
        self.log = array("d")  # for each event: time, step, rate, growth, holding, waiting, bytes taken
        self.shared_seconds = cache(self._shared_seconds)
        self.chunk_seconds = lru_cache(2**16)(self._chunk_seconds)

    # Seconds.

    def _chunk_seconds(self, new: int, cached: int) -> float:
        """Attention of `new` prompt tokens of one sequence."""
        works = [attention_work(kind, float(new), float(cached), 1.0) for kind in self.deployment.sizes.kinds]
        return float(self.seconds_of(works))

    def seconds_of(self, works: list[Work], tokens: float = 0.0, passes: float = 0.0) -> float:
        return Phase(self.deployment, [Passes(self.deployment.sizes, works, tokens, passes)]).seconds

    def _shared_seconds(self, n: int) -> float:
        """Of a decode step of n sequences, all that does not depend on their spans."""
        seconds = linear_step_seconds(self.deployment, n) + other_step_seconds(self.deployment, n)
        return seconds + n * self.state_seconds

    def attention(self) -> tuple[float, float]:
        """(rate, growth): decode attention of the j-th step from now takes rate + growth j seconds."""
        rate = growth = 0.0
        for layers in self.layers:
            span: float = layers.offsets + layers.growing * self.step
            if layers.full:
                span += layers.full * layers.window
            rate += layers.seconds * span
            growth += layers.seconds * layers.growing
        return rate, growth

    # Memory.

    def bytes_of(self, tokens: int) -> int:
        """Of one sequence that has `tokens` tokens."""
        total = self.state_bytes
        for layers in self.layers:
            total += layers.held_bytes(tokens)
        return total

    def new_bytes(self, steps: int) -> int:
        total = 0
        for layers in self.layers:
            total += layers.new_bytes(steps, self.step)
        return total

    def take(self, taken: int) -> None:
        self.free -= taken
        if self.capacity - self.free > self.peak_used:
            self.peak_used = self.capacity - self.free

    # Requests.

    def arrive(self) -> None:
        while self.arrivals[self.arrived] <= self.time:
            self.request_seconds += self.time - self.arrivals[self.arrived]
            self.queue.append(self.arrived)
            self.arrived += 1

    def admit(self, most: float) -> None:
        """Give memory to up to `most` requests of the queue. An empty server keeps no watermark."""
        while self.queue and most > 0 and self.holding < self.largest_batch:
            needed = self.bytes_of(self.tokens[self.queue[0]])
            if needed > self.free - (self.watermark if self.holding else 0):
                break
            self.take(needed)
            self.prefilling[self.queue.popleft()] = 0
            self.holding += 1
            most -= 1
        self.peak_holding = max(self.peak_holding, self.holding)

    def join(self, i: int) -> None:
        """The prefill of request i is done: it has one token more, and decodes if it wants others."""
        tokens, starts, step = self.tokens[i], self.answer_starts[i], self.step
        emitted = tokens - self.prompt[i] + 1
        left = self.output[i] - emitted
        self.output_tokens += 1
        if emitted == 1:
            self.first_token[i] = self.time
        if emitted == starts:
            self.answer[i] = self.time
        elif emitted < starts <= self.output[i]:
            self.answer_step[i] = step + starts - emitted
        if not left:
            self.leave(i, tokens)
            return
        self.joins += 1
        self.running[i] = self.joins
        self.offset[i] = offset = tokens - step
        for index, layers in enumerate(self.layers):
            if layers.join(offset, step) and layers.window - tokens <= left:
                heappush(self.due, (int(layers.window) - offset, index, self.joins, i))
        heappush(self.due, (step + left, len(self.layers), self.joins, i))

    def leave(self, i: int, tokens: int) -> None:
        self.finish[i] = self.time
        self.free += self.bytes_of(tokens)
        self.holding -= 1
        self.finished += 1

    def stop_decoding(self, i: int) -> int:
        """Take request i, no longer in `running`, out of all layers; how many tokens it holds."""
        for layers in self.layers:
            layers.leave(self.offset[i], self.step)
        return self.offset[i] + self.step

    def preempt(self) -> None:
        """The request that was admitted last gives up its memory, and will be prefilled again."""
        if self.prefilling:  # admitted after all that decode
            i, _ = self.prefilling.popitem()
            self.free += self.bytes_of(self.tokens[i])
        else:
            i, _ = self.running.popitem()
            held = self.stop_decoding(i)
            self.free += self.bytes_of(held)
            self.tokens[i] = held + 1  # its last token was not yet in the cache
            if self.answer_step[i] > self.step:
                self.answer_step[i] = 0
        self.queue.appendleft(i)
        self.holding -= 1
        self.preemptions[i] += 1

    # Events. Each lets time pass.

    def advance(self, seconds: float, phase: str, again: float = 0.0, rate: float = 0.0, growth: float = 0.0) -> None:
        """`again`: seconds of them for what was prefilled before. Step j of a decode takes rate + growth j."""
        waiting = len(self.queue)
        used = self.capacity - self.free
        self.log.extend((self.time, self.step, rate, growth, self.holding, waiting, used))
        self.request_seconds += (waiting + self.holding) * seconds
        self.phases[phase] += seconds - again
        self.phases["recompute"] += again
        self.time += seconds

    def idle(self, until: float) -> None:
        self.advance(until - self.time, "idle")
        self.time = until  # a rounding may not put it before the arrival

    def prompt_pass(self, budget: float, decoding: int) -> None:
        """One pass of `decoding` tokens, one a sequence, and prompt tokens up to `budget` in all.

        One roof for the linear layers of all of them, weights read once; attention is each sequence's own.
        """
        room = budget - decoding
        prompt_tokens = lost = 0
        seconds = 0.0
        done = []
        for i, cached in self.prefilling.items():
            new = int(min(room, self.tokens[i] - cached))
            if not new:
                break
            seconds += self.chunk_seconds(new, cached)
            room -= new
            prompt_tokens += new
            lost += new * (self.preemptions[i] > 0)
            self.prefilling[i] = cached + new
            if cached + new == self.tokens[i]:
                done.append(i)
        self.recomputed_tokens += lost
        tokens = float(prompt_tokens + decoding)
        seconds += self.seconds_of(
            [linear_work(self.deployment.sizes, tokens, float(len(done) + decoding))], tokens, 1.0
        )
        if decoding:
            seconds += sum(self.attention()) + decoding * self.state_seconds
            self.advance(seconds, "mixed", rate=seconds)
            self.steps_done(1, self.new_bytes(1))
        else:
            self.advance(seconds, "prefill", seconds * (lost / prompt_tokens))
        for i in done:
            del self.prefilling[i]
            self.join(i)

    def decode(self, until: float) -> None:
        """Steps up to the first event: a full window, a last token, a full cache, or a step that ends after `until`."""
        rate, growth = self.attention()
        rate += self.shared_seconds(len(self.running))
        due = self.due
        while self.running.get(due[0][3]) != due[0][2]:  # preempted since
            heappop(due)
        steps = due[0][0] - self.step
        if self.time + steps * (rate + growth * (steps + 1) / 2) > until:
            steps = min(steps, steps_until(until - self.time, rate, growth))
        taken = self.new_bytes(steps)
        if taken > self.free:
            low, high = 1, steps  # one step fits, all do not
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self.new_bytes(middle) <= self.free else (low, middle)
            steps, taken = low, self.new_bytes(low)
        self.advance(steps * (rate + growth * (steps + 1) / 2), "decode", rate=rate, growth=growth)
        self.steps_done(steps, taken)

    def steps_done(self, steps: int, taken: int) -> None:
        """Count the steps; then windows that they filled, then requests that have their last token."""
        self.take(taken)
        self.output_tokens += steps * len(self.running)
        self.step += steps
        due = self.due
        while due and due[0][0] <= self.step:
            _, index, join, i = heappop(due)
            if self.running.get(i) != join:
                continue
            if index < len(self.layers):
                self.layers[index].fill(self.offset[i])
            else:
                del self.running[i]
                self.leave(i, self.stop_decoding(i))


def _layers(deployment: Deployment, block: int) -> tuple[list[_Layers], int, float]:
    """The kinds of layer by window; bytes of one sequence's constant state, and the seconds it adds to a step."""
    by_window: dict[int | None, tuple[float, float]] = {}
    state_bytes = state_seconds = 0.0
    for kind in deployment.sizes.kinds:
        seconds = Phase(deployment, [Passes(deployment.sizes, [attention_work(kind, 1.0, 0.0, 1.0)], 0.0, 0.0)]).seconds
        if not kind.cache_bytes:
            state_bytes += kind.state_bytes
            state_seconds += seconds
        else:
            window = getattr(kind.mixer, "window", None)
            seconds = max(kind.pair_flops / deployment.peak, kind.cache_bytes / deployment.bandwidth)
            before, cache_bytes = by_window.get(window, (0.0, 0.0))
            by_window[window] = (before + seconds, cache_bytes + kind.cache_bytes)
    layers = [_Layers(window, *numbers, block) for window, numbers in by_window.items()]
    return layers, math.ceil(state_bytes), state_seconds


def _require_each_fits(deployment: Deployment, traffic: Traffic, server: _Server) -> None:
    """Every request by itself: within the model's positions, and within memory at its last step."""
    held = traffic.prompt + traffic.output - 1
    limit = deployment.model.max_positions
    if limit is not None and held.max() >= limit:
        i = int(np.argmax(held >= limit))
        raise InvalidInputError(
            f"simulate: request {i} has prompt {traffic.prompt[i]:,} + output {traffic.output[i]:,} = {held[i] + 1:,} "
            f"tokens, but {deployment.model.name} has {limit:,} positions; shorten it or leave it out."
        )
    needed = np.full(len(traffic), float(server.state_bytes))
    for layers in server.layers:
        needed += float(layers.block_bytes) * np.ceil(np.minimum(held, layers.window) / layers.block)
    if needed.max() > server.capacity:
        i = int(np.argmax(needed > server.capacity))
        try:
            deployment.require_fit(int(held[i]))
        except DoesNotFitError as error:
            raise DoesNotFitError(
                f"simulate: request {i} by itself: {error}", error.needed, error.available, error.remedies
            ) from None
        raise DoesNotFitError(
            f"simulate: request {i} takes {format_bytes(needed[i])} in blocks for its {held[i]:,} tokens, but the "
            f"cache has {format_bytes(server.capacity)}; take a smaller block, shorten it or leave it out.",
            needed=deployment.weight_bytes + float(needed[i]),
            available=deployment.memory_available,
        )


def _require_fine_clock(traffic: Traffic, step: float) -> None:
    """A float64 has some 16 digits: on a clock that reads 1.7e18 a step of 5 ms is lost, and so is the latency."""
    last = float(traffic.arrivals[-1])
    if np.spacing(last) > COARSEST_CLOCK * step:
        raise InvalidInputError(
            f"simulate: the last request arrives at {last:,.10g} s, where numbers are {np.spacing(last):.2g} s apart, "
            f"too coarse for a step of {step:.2g} s; give seconds, and subtract the first arrival from all."
        )


def simulate(
    deployment: Deployment,
    traffic: Traffic,
    prefill: str = "first",
    block: int = 16,
    watermark: float = 0.01,
    largest_batch: int | None = None,
    token_budget: int | None = None,
    horizon: float | None = None,
    most_events: int = 5_000_000,
) -> Report:
    """Serve `traffic` with continuous batching and paged memory, from its first arrival until every request is done.

    `prefill`: "first", an admitted prompt is prefilled in a pass of its own while decoding waits; "joint", so are all
    prompts admitted at one moment, in one pass; "chunked", prompt tokens ride on decode steps, `token_budget` tokens a
    pass (by default the deployment's prefill_chunk, or 2,048), decode tokens before prompt tokens. `block`: tokens of a
    block. `watermark`: the share of memory that an admission leaves free. `largest_batch`: requests that hold memory at
    a time, at most. `horizon`: on the clock of arrivals, when no pass begins any more. `most_events` ends a run that
    would be too long; `report.ended` says what ended it.

    A request alone takes `request_cost(...).elapsed`. Raises InvalidInputError for what cannot be meant, and
    DoesNotFitError for the first request that does not fit even alone.
    """
    DEPLOYMENT("simulate", "deployment", deployment)
    require_instance("simulate", "traffic", traffic, Traffic, "all_at_once(8, prompt=1024, output=128)")
    if deployment.speculation is not None:
        raise InvalidInputError("simulate: the deployment has speculation; expected None, as a step here is one token.")
    require_choice("simulate", "prefill", prefill, POLICIES)
    if prefill == "joint" and deployment.prefill_chunk is not None:
        raise InvalidInputError("simulate: joint prefill takes whole prompts; take prefill_chunk=None, or 'chunked'.")
    if token_budget is not None and prefill != "chunked":
        raise InvalidInputError(f"simulate: token_budget is {shown(token_budget)}, but only prefill='chunked' has one.")
    block = require_count("simulate", "block", block)
    if block > LARGEST_BLOCK:
        raise InvalidInputError(f"simulate: block is {block:,}; expected at most {LARGEST_BLOCK:,} tokens.")
    watermark = require_fraction("simulate", "watermark", watermark, zero=True)
    most = math.inf if largest_batch is None else require_count("simulate", "largest_batch", largest_batch)
    default = deployment.prefill_chunk or DEFAULT_BUDGET
    budget = require_count("simulate", "token_budget", default if token_budget is None else token_budget)
    start = float(traffic.arrivals[0])
    end = math.inf if horizon is None else require_rate("simulate", "horizon", horizon, "seconds", zero=True)
    if end <= start:
        raise InvalidInputError(f"simulate: horizon is {end:,} s; expected it after the first arrival, {start:,} s.")
    most_events = require_count("simulate", "most_events", most_events)
    server = _Server(deployment, traffic, block, watermark, most)
    _require_each_fits(deployment, traffic, server)
    _require_fine_clock(traffic, server.shared_seconds(1))
    events, count = 0, len(traffic)
    while server.finished < count and server.time < end and events < most_events:
        events += 1
        server.arrive()
        if server.queue:
            server.admit(math.inf if prefill != "first" else 1 - len(server.prefilling))
        if not server.holding:
            server.idle(min(server.arrivals[server.arrived], end))
        elif server.prefilling and prefill != "chunked":
            server.prompt_pass(deployment.prefill_chunk or math.inf, 0)
        else:
            while server.free < server.holding * server.most_new_bytes and server.new_bytes(1) > server.free:
                server.preempt()
            decoding = len(server.running)
            if server.prefilling and decoding < budget:
                server.prompt_pass(budget, decoding)
            else:
                may_admit = not server.queue and server.holding < most
                server.decode(min(server.arrivals[server.arrived], end) if may_admit else end)
    server.arrive()
    if server.finished == count:
        ended = "every request finished"
    else:
        ended = "the horizon was reached" if server.time >= end else f"most_events = {most_events:,} was reached"
    return _report(deployment, traffic, prefill, server, events, ended)


def _report(deployment: Deployment, traffic: Traffic, prefill: str, server: _Server, events: int, ended: str) -> Report:
    used = server.capacity - server.free
    server.log.extend((server.time, server.step, 0.0, 0.0, server.holding, len(server.queue), used))
    time, step, rate, growth, *occupancy = np.frombuffer(server.log).reshape(-1, 7).T
    answer, at = np.array(server.answer), np.array(server.answer_step)
    late = np.isnan(answer) & (at > 0) & (at <= server.step)
    row = np.searchsorted(step, at[late]) - 1  # the event that this step was part of
    k = at[late] - step[row]
    answer[late] = time[row] + k * (rate[row] + growth[row] * (k + 1) / 2)
    return Report(
        deployment=deployment,
        traffic=traffic,
        policy=POLICIES[prefill],
        first_token=np.array(server.first_token),
        first_answer_token=answer,
        finish=np.array(server.finish),
        preemptions=np.array(server.preemptions),
        seconds=server.phases,
        occupancy=Occupancy(time, *occupancy),
        start=float(traffic.arrivals[0]),
        end=server.time,
        ended=ended,
        events=events,
        output_tokens=server.output_tokens,
        recomputed_tokens=server.recomputed_tokens,
        request_seconds=server.request_seconds,
        peak_running=server.peak_holding,
        peak_cache_bytes=server.peak_used,
        cache_bytes_available=server.capacity,
    )
