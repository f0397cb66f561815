"""One request, or many alike: its cost in closed form, and that cost in words."""

from lessonlib.request.cost import RequestCost, request_cost
from lessonlib.request.lengths import LengthQuantiles
from lessonlib.request.request import Request
