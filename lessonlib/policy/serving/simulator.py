"""Continuous batching: requests join and leave a running batch at any step, and their caches share one memory.

Nothing is simulated token by token. Between two events (an arrival that may be admitted, a last token, a full cache, a
sequence that fills a window) the running set is constant: the clock says what m steps take, the memory how many fit.

Sources: Yu et al., Orca, OSDI 2022 (continuous batching); Agrawal et al., Sarathi-Serve, 2403.02310 (chunked prefill).
"""

import math
from heapq import heappop, heappush

import numpy as np

from lessonlib.base.checks import a, checked, choice, count, fraction, optional, rate, wrong
from lessonlib.policy.serving.admission import Admission
from lessonlib.policy.serving.clock import Clock, require_fine_clock
from lessonlib.policy.serving.findings import Occupancy, ServingRun
from lessonlib.policy.serving.memory import Memory, require_each_fits
from lessonlib.policy.serving.traffic import Traffic
from lessonlib.time.deployment import Deployment

POLICIES = {
    "first": "prefill first, one prompt a pass",
    "joint": "prefill first, all prompts admitted at one moment in one pass",
    "chunked": "prompts in chunks that ride on decode steps",
}
DEFAULT_BUDGET = 2048  # tokens of a pass with chunks
LARGEST_BLOCK = 65_536


class _Server:
    """A server between two events, what each kind of event does to it, and what its requests have got so far."""

    def __init__(self, deployment: Deployment, traffic: Traffic, block: int, watermark: float, max_batch: float):
        self.memory = Memory(deployment, block, watermark)
        self.clock = Clock(deployment, self.memory.layers, float(traffic.arrivals[0]))
        self.admission = Admission(traffic, self.memory, self.clock, max_batch)
        self.prompt, self.output = traffic.prompt.tolist(), traffic.output.tolist()
        self.answer_starts = traffic.answer_starts.tolist()
        self.first_token, self.answer, self.finish = ([math.nan] * len(traffic) for _ in range(3))
        self.answer_step = [0] * len(traffic)  # after which the answer's first token is there; 0 where `answer` knows
        self.finished = self.output_tokens = self.recomputed_tokens = 0
        self.last_token = len(self.memory.layers)  # in `due`; below it are layers that fill, above it no more is done
        self.due: list[tuple[int, int, int, int]] = []  # (step, what, number of the join, request)

    def join(self, i: int) -> None:
        """The prefill of request i is done: it has one token more, and decodes if it wants others."""
        admission, step = self.admission, self.clock.step
        tokens, starts = admission.tokens[i], self.answer_starts[i]
        emitted = tokens - self.prompt[i] + 1
        left = self.output[i] - emitted
        self.output_tokens += 1
        if emitted == 1:
            self.first_token[i] = self.clock.time
        if emitted == starts:
            self.answer[i] = self.clock.time
        elif emitted < starts <= self.output[i]:
            self.answer_step[i] = step + starts - emitted
        if not left:
            self.end(i)
            return
        filling, join = admission.decode(i)
        for index in filling:
            fills = int(self.memory.layers[index].fills_at) - tokens
            if fills <= left:
                heappush(self.due, (step + fills, index, join, i))
        heappush(self.due, (step + left, self.last_token, join, i))
        if self.clock.asked and self.answer_step[i] > step:  # no closed form says when within an event it is there
            heappush(self.due, (self.answer_step[i], self.last_token + 1, join, i))

    def end(self, i: int) -> None:
        """Request i has its last token."""
        self.admission.leave(i)
        self.finish[i] = self.clock.time
        self.finished += 1

    def preempt(self) -> None:
        i = self.admission.preempt()
        if self.answer_step[i] > self.clock.step:
            self.answer_step[i] = 0

    def advance(self, seconds: float, phase: str, rate: float = 0.0, growth: float = 0.0, again: float = 0.0) -> None:
        """Let time pass: every event does, and ends here.

        `rate`, `growth`: the pace of a decode. `again`: seconds of it that prefill what was prefilled before.
        """
        clock, memory, admission = self.clock, self.memory, self.admission
        holding, waiting, taken = admission.holding, len(admission.queue), memory.capacity - memory.free
        clock.log.extend((clock.time, clock.step, holding, waiting, taken, rate, growth))
        clock.request_seconds += (holding + waiting) * seconds
        clock.phases[phase] += seconds - again
        if again:
            clock.phases["recompute"] += again
        clock.time += seconds

    def idle(self, until: float) -> None:
        self.advance(until - self.clock.time, "idle")
        self.clock.time = until  # a rounding may not put it before the arrival

    def prompt_pass(self, budget: float, decoding: int) -> None:
        """One pass of `decoding` tokens, one a sequence, and prompt tokens up to `budget` in all.

        One roof for the linear layers of all of them, weights read once; attention is each sequence's own.
        """
        clock = self.clock
        chunks, done, again = self.admission.prefill(budget - decoding)
        prompt_tokens, seconds = 0, 0.0
        for new, cached in chunks:
            prompt_tokens += new
            seconds += clock.chunk_seconds(new, cached)
        seconds += clock.linear_seconds(prompt_tokens + decoding, len(done) + decoding)
        self.recomputed_tokens += again
        if decoding:
            seconds += clock.attention().seconds(1) + decoding * clock.state_seconds
            self.advance(seconds, "mixed", rate=seconds)
            self.steps_done(1, self.memory.new_bytes(1, clock.step))
        else:
            self.advance(seconds, "prefill", again=seconds * (again / prompt_tokens))
        for i in done:
            self.join(i)

    def decode(self, until: float) -> None:
        """Steps up to the first event: a full window, a last token, a full cache, or a step that ends after `until`."""
        clock, running, due = self.clock, self.admission.running, self.due
        pace = clock.attention(clock.shared_seconds(len(running)))
        while running.get(due[0][3]) != due[0][2]:  # preempted since
            heappop(due)
        most = due[0][0] - clock.step
        seconds = pace.seconds(most)
        wanted = pace.steps_until(until - clock.time, most) if clock.time + seconds > until else most
        steps, taken = self.memory.steps_that_fit(wanted, clock.step)
        if steps < most:
            seconds = pace.seconds(steps)
        self.advance(seconds, "decode", *((seconds / steps, 0.0) if clock.asked else pace[1:]))
        self.steps_done(steps, taken)

    def steps_done(self, steps: int, taken: int) -> None:
        """Count the steps; then windows that they filled, then requests that have their last token."""
        admission, due = self.admission, self.due
        self.memory.take(taken)
        self.output_tokens += steps * len(admission.running)
        self.clock.step += steps
        while due and due[0][0] <= self.clock.step:
            _, what, join, i = heappop(due)
            if admission.running.get(i) != join:
                continue
            if what < self.last_token:
                self.memory.layers[what].fill(admission.offset[i])
            elif what == self.last_token:
                self.end(i)


@checked(
    deployment=a(Deployment, "Deployment(model, accelerator)"),
    traffic=a(Traffic, "all_at_once(8, prompt=1024, output=128)"),
    prefill=choice(POLICIES),
    block=count(1, LARGEST_BLOCK),
    watermark=fraction(zero=True),
    max_batch=optional(count()),
    token_budget=optional(count()),
    horizon=optional(rate("seconds", zero=True)),
    most_events=count(),
)
def simulate(
    deployment: Deployment,
    traffic: Traffic,
    prefill: str = "first",
    block: int = 16,
    watermark: float = 0.01,
    max_batch: int | None = None,
    token_budget: int | None = None,
    horizon: float | None = None,
    most_events: int = 5_000_000,
) -> ServingRun:
    """Serve `traffic` with continuous batching and paged memory, from its first arrival until every request is done.

    `prefill`: "first", an admitted prompt is prefilled in a pass of its own while decoding waits; "joint", so are all
    prompts admitted at one moment, in one pass; "chunked", prompt tokens ride on decode steps, `token_budget` tokens a
    pass (by default the deployment's prefill_chunk, or 2,048), decode tokens before prompt tokens. `block`: tokens of a
    block. `watermark`: the share of memory that an admission leaves free. `max_batch`: the most requests that
    hold memory at a time. `horizon`: the time, on the clock of arrivals, from which on no pass begins. `most_events`
    ends a run that would be too long; `ServingRun.ended` says what ended it.

    A request alone takes `request_cost(...).undisturbed`. The run says whether its rate is past capacity, where
    percentiles say nothing of the rate. Raises InvalidInputError for impossible values, and DoesNotFitError for the
    first request that does not fit even alone.
    """
    start, end = float(traffic.arrivals[0]), math.inf if horizon is None else horizon
    if deployment.sizes.replicas > 1:
        remedy = "a queue before several devices is not modelled: take 'tensor', or policy.steady_state"
        raise wrong("simulate", "layout", deployment.layout, "'tensor'", remedy)
    if deployment.speculation is not None:
        raise wrong("simulate", "speculation", deployment.speculation, "None", "a step here emits one token")
    if prefill == "joint" and deployment.prefill_chunk is not None:
        remedy = "joint prefill takes whole prompts: take a deployment with prefill_chunk=None"
        raise wrong("simulate", "prefill", prefill, "first or chunked", remedy)
    if token_budget is not None and prefill != "chunked":
        raise wrong("simulate", "token_budget", token_budget, "None", "only prefill='chunked' has one")
    if end <= start:
        raise wrong("simulate", "horizon", horizon, f"it after the first arrival, {start:,} s")
    budget = token_budget or deployment.prefill_chunk or DEFAULT_BUDGET
    most = math.inf if max_batch is None else max_batch
    server = _Server(deployment, traffic, block, watermark, most)
    memory, clock, admission = server.memory, server.clock, server.admission
    require_each_fits(deployment, traffic, memory)
    require_fine_clock(traffic, clock.shared_seconds(1))
    events, requests = 0, len(traffic)
    while server.finished < requests and clock.time < end and events < most_events:
        events += 1
        if admission.next_arrival <= clock.time:
            admission.arrive()
        if admission.queue:
            admission.admit(math.inf if prefill != "first" else 1 - len(admission.prefilling))
        if not admission.holding:
            server.idle(min(admission.next_arrival, end))
        elif admission.prefilling and prefill != "chunked":
            server.prompt_pass(deployment.prefill_chunk or math.inf, 0)
        else:
            while memory.lacks_a_step(admission.holding, clock.step):
                server.preempt()
            decoding = len(admission.running)
            if admission.prefilling and decoding < budget:
                server.prompt_pass(budget, decoding)
            else:
                may_admit = not admission.queue and admission.holding < most
                server.decode(min(admission.next_arrival, end) if may_admit else end)
    admission.arrive()
    if server.finished == requests:
        ended = "every request finished"
    else:
        ended = "the horizon was reached" if clock.time >= end else f"most_events = {most_events:,} was reached"
    return _run_of(server, deployment, traffic, POLICIES[prefill], events, ended)


def _run_of(
    server: _Server, deployment: Deployment, traffic: Traffic, policy: str, events: int, ended: str
) -> ServingRun:
    memory, clock, admission = server.memory, server.clock, server.admission
    server.idle(server.clock.time)  # the last row of the log
    time, step, *occupancy, rate, growth = np.frombuffer(clock.log).reshape(-1, 7).T
    answer, at = np.array(server.answer), np.array(server.answer_step)
    late = np.isnan(answer) & (at > 0) & (at <= clock.step)
    row = np.searchsorted(step, at[late]) - 1  # the event that this step was part of
    k = at[late] - step[row]
    answer[late] = time[row] + k * (rate[row] + growth[row] * (k + 1) / 2)
    return ServingRun(
        deployment=deployment,
        traffic=traffic,
        policy=policy,
        block=memory.block,
        max_batch=admission.max_batch,
        admitted=np.array(admission.admitted),
        first_token=np.array(server.first_token),
        first_answer_token=answer,
        finish=np.array(server.finish),
        preemptions=np.array(admission.preemptions),
        seconds=clock.phases,
        occupancy=Occupancy(time, *occupancy),
        start=float(traffic.arrivals[0]),
        end=clock.time,
        ended=ended,
        events=events,
        output_tokens=server.output_tokens,
        recomputed_tokens=server.recomputed_tokens,
        request_seconds=clock.request_seconds,
        peak_running=admission.peak_holding,
        peak_cache_bytes=memory.peak_used,
        cache_bytes_available=memory.capacity,
    )
