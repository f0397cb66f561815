"""The arithmetic of LLM inference, as small as a lesson needs it: work, then time, then request, then policy.

    llama = load_model("llama-3.1-8b")
    h100 = load_accelerator("h100-sxm")
    server = Deployment(llama, h100, Precision("bf16"))
    cost = request_cost(server, Request(prompt=128, output=12_800), batch=1)
    cost.decode.seconds / cost.seconds

Faces (figures, widgets, exercises) are imported by name where they are used, so that this import needs NumPy alone.
"""

from lessonlib.accelerator import Accelerator
from lessonlib.catalogue import (
    accelerator_names,
    load_accelerator,
    load_model,
    load_workload,
    model_names,
    read_config,
    workload_names,
)
from lessonlib.deployment import Deployment, Efficiency, Speculation
from lessonlib.errors import (
    DoesNotFitError,
    InvalidInputError,
    LessonError,
    UnknownNameError,
    UnsupportedModelError,
)
from lessonlib.levers import omega, rho, ridge_tokens, roof_batch
from lessonlib.model import Block, Model
from lessonlib.precision import Precision
from lessonlib.request import Request, RequestCost, request_cost
from lessonlib.roofline import pass_cost, roofline

__version__ = "0.1.0"

__all__ = [
    "Accelerator",
    "Block",
    "Deployment",
    "DoesNotFitError",
    "Efficiency",
    "InvalidInputError",
    "LessonError",
    "Model",
    "Precision",
    "Request",
    "RequestCost",
    "Speculation",
    "UnknownNameError",
    "UnsupportedModelError",
    "accelerator_names",
    "load_accelerator",
    "load_model",
    "load_workload",
    "model_names",
    "omega",
    "pass_cost",
    "read_config",
    "request_cost",
    "rho",
    "ridge_tokens",
    "roof_batch",
    "roofline",
    "workload_names",
]
