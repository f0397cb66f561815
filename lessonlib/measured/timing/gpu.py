"""Time a real decoder on this machine's GPU with PyTorch.

First the ceilings: a large read, a large copy, a large matrix product. The read stands in for bandwidth and the product
for peak, and nothing is fitted. Then prefill, decode at growing contexts and batches, and a chat-shaped and a
reasoning-shaped request run to their last tokens (`--quick`: without the reasoning request).

Needs PyTorch 2.5 or newer with a CUDA, ROCm or Apple GPU; without one GpuUnavailableError says why in one sentence, and
recorded runs are what there is to show. What runs on the device is in gpu_run.py, the decoder in gpu_decoder.py.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from lessonlib.base.errors import LessonError
from lessonlib.facts.catalogue import load_model
from lessonlib.measured.timing.browser import refuse_in_browser
from lessonlib.measured.timing.record import Record, record_from

SIZES = ("llama-3.1-8b", "llama-3.2-3b", "llama-3.2-1b")
CONTEXTS = (128, 1024, 4096, 8192, 16384, 32768)
BATCHES = (1, 8, 32)
PROMPTS = (128, 1024, 8192)
REQUESTS = {"chat": (1024, 128), "reasoning": (128, 12_800)}


class GpuUnavailableError(LessonError):
    """No GPU could be timed here; the message says why, in one sentence. Show recorded runs instead."""


def time_gpu(quick: bool = False, model: str | None = None, say: Callable[[str], None] = print) -> Record:
    """Time this machine's GPU; returns the checked Record. `say` is told each stage, and each point left out.

    The model is the largest of SIZES whose weights and requests fit; or `model`, a Llama of the catalogue, and where
    that does not fit the next smaller of SIZES. `quick`: without the reasoning request. Raises GpuUnavailableError.
    """
    refuse_in_browser("time_gpu", "show recorded runs, read_records(DATA / 'timings', 'cuda')", GpuUnavailableError)
    device = gpu_device()
    from lessonlib.measured.timing import gpu_run

    smaller = [name for name in SIZES if model is None or load_model(name).parameters < load_model(model).parameters]
    requests = {name: tokens for name, tokens in REQUESTS.items() if not (quick and name == "reasoning")}
    plan = gpu_run.Plan(CONTEXTS, BATCHES, PROMPTS, requests)
    found = gpu_run.measured([model, *smaller] if model else smaller, device, plan, say)
    if found is None:
        raise GpuUnavailableError("No GPU was timed: its memory is too small for each of the models.")
    return record_from(found, "of this GPU")


def gpu_device() -> Any:
    """The torch.device to time; GpuUnavailableError without PyTorch, a GPU, or a driver that it can use."""
    try:
        import torch  # type: ignore[import-not-found]
    except ImportError:
        raise GpuUnavailableError("No GPU was timed: PyTorch is not installed.") from None
    if not hasattr(torch, "OutOfMemoryError"):
        raise GpuUnavailableError(f"No GPU was timed: PyTorch {torch.__version__} is too old; 2.5 or newer is needed.")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else ""
    said = [str(one.message) for one in warned]
    if kind:
        try:
            torch.ones(2, device=kind).sum().item()
            return torch.device(kind)
        except RuntimeError as error:  # a GPU that this build has no code for, or one that another program holds
            said = [str(error)]
    raise GpuUnavailableError(why_not(torch.__version__, torch.version.cuda or torch.version.hip, said))


def why_not(version: str, built_for: str | None, said: Sequence[str]) -> str:
    """One sentence on why PyTorch has no GPU, from what it was built for and what it said."""
    if said:
        words = " ".join(said[0].split()).partition(". ")[0].rstrip(".")
        return f"No GPU was timed: PyTorch {version} cannot use it ({words})."
    if not built_for:
        return f"No GPU was timed: PyTorch {version} is a build without CUDA or ROCm."
    return f"No GPU was timed: PyTorch {version} sees none."
