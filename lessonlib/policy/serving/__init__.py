"""Requests that come and go on one server: traffic, continuous batching event by event, what a run found."""

from lessonlib.policy.serving.findings import ServingRun
from lessonlib.policy.serving.simulator import simulate
from lessonlib.policy.serving.traffic import Traffic, all_at_once, poisson_traffic
