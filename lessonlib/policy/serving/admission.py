"""Admission: who waits, who holds memory, and who gives it up again.

First come first served, when the blocks of all tokens to prefill are free and a watermark of memory stays free. When a
step finds no free block, the request admitted last gives up its cache, goes back to the front of the queue and is
prefilled again later, prompt and tokens so far (preemption by recompute). A boundary admits first and preempts then, so
a preempted request waits for a step at least: readmitted at once, the two would chase each other for ever.

Source: Kwon et al., 2309.06180 (preemption by recompute).
"""

import math
from collections import deque

from lessonlib.policy.serving.clock import Clock
from lessonlib.policy.serving.memory import Memory
from lessonlib.policy.serving.traffic import Traffic


class Admission:
    """The requests of a run between arrival and last token. Each waits, or is in prefill, or decodes."""

    def __init__(self, traffic: Traffic, memory: Memory, clock: Clock, max_batch: float):
        self.memory, self.clock, self.max_batch = memory, clock, max_batch
        self.arrivals = [*traffic.arrivals.tolist(), math.inf]
        self.arrived, self.next_arrival = 0, self.arrivals[0]  # seconds, infinite when all have arrived
        self.tokens = traffic.prompt.tolist()  # of each request, to prefill at its next admission
        self.cached = traffic.cached.tolist()  # of these, what a prefix cache holds: memory is taken, nothing computed
        self.admitted = [math.nan] * len(traffic)  # seconds, when each first gets memory
        self.preemptions = [0] * len(traffic)
        self.offset = [0] * len(traffic)  # of each that decodes: tokens held less steps of the server
        self.queue: deque[int] = deque()
        self.prefilling: dict[int, int] = {}  # request: its tokens prefilled so far; in order of admission
        self.running: dict[int, int] = {}  # request that decodes: the number of its join; in order of admission
        self.holding = self.peak_holding = 0  # requests that hold memory: in prefill or decoding
        self.joins = 0

    def arrive(self) -> None:
        """Let those wait that have arrived by now."""
        clock = self.clock
        while self.next_arrival <= clock.time:
            clock.request_seconds += clock.time - self.next_arrival
            self.queue.append(self.arrived)
            self.arrived += 1
            self.next_arrival = self.arrivals[self.arrived]

    def admit(self, most: float) -> None:
        """Give memory to up to `most` requests of the queue. An empty server keeps no watermark."""
        memory = self.memory
        while self.queue and most > 0 and self.holding < self.max_batch:
            needed = memory.bytes_of(self.tokens[self.queue[0]])
            if needed > memory.free - (memory.watermark if self.holding else 0):
                break
            memory.take(needed)
            i = self.queue.popleft()
            self.prefilling[i] = self.cached[i]
            if not self.preemptions[i]:
                self.admitted[i] = self.clock.time
            self.holding += 1
            most -= 1
        if self.holding > self.peak_holding:
            self.peak_holding = self.holding

    def prefill(self, room: float) -> tuple[list[tuple[int, int]], list[int], int]:
        """Prompt tokens for one pass, at most `room`, in order of admission.

        (new, cached) tokens of each request; requests whose prompt is then done; tokens that are prefilled again.
        """
        chunks, done, again = [], [], 0
        for i, cached in self.prefilling.items():
            new = int(min(room, self.tokens[i] - cached))
            if not new:
                break
            room -= new
            chunks.append((new, cached))
            again += new * (self.preemptions[i] > 0)
            self.prefilling[i] = cached + new
            if cached + new == self.tokens[i]:
                done.append(i)
        return chunks, done, again

    def decode(self, i: int) -> tuple[list[int], int]:
        """Request i decodes from the next step on; the layers that it may fill, and the number of this join."""
        step = self.clock.step
        del self.prefilling[i]
        self.joins += 1
        self.running[i] = self.joins
        self.offset[i] = offset = self.tokens[i] - step
        filling = [index for index, layers in enumerate(self.memory.layers) if layers.join(offset, step)]
        return filling, self.joins

    def leave(self, i: int) -> int:
        """Request i, in prefill or decoding, gives up its memory; the tokens that it has room for."""
        tokens, step, offset = self.tokens[i], self.clock.step, self.offset[i]
        if self.prefilling.pop(i, None) is None:
            del self.running[i]
            tokens = offset + step
            for layers in self.memory.layers:
                layers.leave(offset, step)
        self.memory.free += self.memory.bytes_of(tokens)
        self.holding -= 1
        return tokens

    def preempt(self) -> int:
        """The request that was admitted last gives up its memory, and will be prefilled again; which it is."""
        in_prefill = bool(self.prefilling)  # admitted after all that decode
        i = next(reversed(self.prefilling or self.running))
        self.tokens[i] = self.leave(i) + (not in_prefill)  # of one that decodes the last token is not yet in the cache
        self.queue.appendleft(i)
        self.preemptions[i] += 1
        return i
