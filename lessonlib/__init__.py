"""The arithmetic of LLM inference, as small as a lesson needs it: work, then time, then request, then policy.

    llama = load_model("llama-3.1-8b")
    h100 = load_accelerator("h100-sxm")
    server = Deployment(llama, h100, Precision("bf16"))
    cost = request_cost(server, Request(prompt=128, output=12_800), batch=1)
    cost.decode.seconds / cost.seconds

Faces (figures, widgets, exercises) are imported by name where they are used, so that this import needs NumPy alone.
"""

from lessonlib.base.errors import (
    DoesNotFitError,
    InvalidInputError,
    LessonError,
    UnknownNameError,
    UnsupportedModelError,
)
from lessonlib.base.text import markdown_table
from lessonlib.base.units import format_bytes, format_flops, format_percent, format_seconds
from lessonlib.facts.catalogue import accelerator_names, load_accelerator, load_model, model_names
from lessonlib.facts.config_file import read_config
from lessonlib.facts.workloads import load_workload, workload_names
from lessonlib.model.block import Block
from lessonlib.model.draft import DraftHead
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.policy.estimates import chi, omega, rho, ridge_tokens, roof_batch
from lessonlib.policy.full_server import steady_state
from lessonlib.request.cost import Request, RequestCost, request_cost
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Efficiency, Speculation
from lessonlib.time.roofline import pass_cost, roofline

# What `from lessonlib import *` brings: these names, and no room, of which one is called time.
__all__ = """
    Accelerator Block Deployment DoesNotFitError DraftHead Efficiency InvalidInputError LessonError Model
    Precision Request RequestCost Speculation UnknownNameError UnsupportedModelError accelerator_names chi
    format_bytes format_flops format_percent format_seconds load_accelerator load_model load_workload
    markdown_table model_names omega pass_cost read_config request_cost rho ridge_tokens roof_batch
    roofline steady_state workload_names
""".split()

__version__ = "0.2.0"

# The house: each room, and the rooms whose files it may import. Below `facts`, NumPy is all that comes from outside;
# matplotlib, ipywidgets, anywidget, Pillow and IPython stay in `face`.
ROOMS: dict[str, tuple[str, ...]] = {
    "base": (),
    "model": ("base",),
    "work": ("base", "model"),
    "time": ("base", "model", "work"),
    "request": ("base", "model", "work", "time"),
    "policy": ("base", "model", "work", "time", "request"),
    "facts": ("base", "model", "time", "request"),
    "measured": ("base", "model", "work", "time", "request", "facts"),
    "face": ("base", "model", "work", "time", "request", "policy", "facts", "measured"),
}
