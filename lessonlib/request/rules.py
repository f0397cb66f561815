"""Rules for what most questions are asked of: a deployment, a request, a batch."""

from dataclasses import replace

from lessonlib.base.checks import REFUSED, a, count
from lessonlib.base.errors import MOST_TOKENS
from lessonlib.request.cost import Request
from lessonlib.time.deployment import Deployment

DEPLOYMENT = a(Deployment, "Deployment(model, accelerator)")
REQUEST = a(Request, "Request(prompt=128, output=12_800)")
ONE_REQUEST = replace(
    REQUEST,
    turn=lambda value: value if isinstance(value, Request) and not value.is_array else REFUSED,
    examples=lambda: ((Request(128, 12_800),), (*REQUEST.bad, Request([1, 2], 3), Request(1, [2]))),
    remedy="give one request, of plain numbers",
)
BATCH = count(1, MOST_TOKENS)
