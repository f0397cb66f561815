"""Rules for what most questions are asked of: a deployment, a request, a batch."""

from lessonlib.base.checks import REFUSED, Rule, a, count
from lessonlib.base.errors import MOST_TOKENS
from lessonlib.request.cost import Request
from lessonlib.time.deployment import Deployment

DEPLOYMENT = a(Deployment, "Deployment(model, accelerator)")
REQUEST = a(Request, "Request(prompt=128, output=12_800)")
ONE_REQUEST = Rule(
    f"{REQUEST.expected}, of plain numbers",
    lambda value: value if isinstance(value, Request) and not value.is_array else REFUSED,
    bad=(*REQUEST.bad, Request([1, 2], 3), Request(1, [2])),
    kind=Request,
)
BATCH = count(1, MOST_TOKENS)
