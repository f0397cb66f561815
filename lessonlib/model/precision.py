"""Precision by part: how many bits a weight, a cached number and an operand have.

Bits include the scales that a format stores beside its numbers: mxfp4 has one 8-bit scale for 32 weights (4.25), nvfp4
one for 16 (4.5), q8_0 one fp16 for 32 (8.5); int4 is counted with an fp16 scale for 64 (4.25). q4_k_m is a mixture,
4.85 on average over a Llama. Sources: OCP Microscaling Formats 1.0; the block layouts of GGUF.
"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar

from lessonlib.base.checks import Checked, checked, choice, optional, text
from lessonlib.base.errors import UnknownNameError

BITS: dict[str, float] = {
    "fp32": 32,
    "fp16": 16,
    "bf16": 16,
    "fp8": 8,
    "int8": 8,
    "q8_0": 8.5,
    "q6_k": 6.5625,
    "q4_k_m": 4.85,
    "q4_0": 4.5,
    "nvfp4": 4.5,
    "mxfp4": 4.25,
    "int4": 4.25,
}

UNQUANTISED = ("fp32", "fp16", "bf16")
DTYPE = replace(choice(BITS, UnknownNameError), expected=f"a dtype, one of {', '.join(BITS)}")


@checked(dtype=DTYPE)
def bytes_of(dtype: str) -> float:
    """Bytes of one number of `dtype`, its share of the scales included; UnknownNameError for another name."""
    return BITS[dtype] / 8


@dataclass(frozen=True)
class Precision(Checked):
    """A dtype for each part. `Precision("int4")` quantises blocks and experts and leaves the rest in bf16.

    `blocks`: matrices of mixers, dense feed-forwards and shared experts. `experts`: routed experts, by default as
    blocks. `head`, `embedding`, `other` (norms, biases, routers), `cache`, `compute` (the operands, so the peak): by
    default the dtype of the blocks when that is fp32, fp16 or bf16, otherwise bf16. A tied embedding has the head's.
    `index`: the keys of an indexer of sparse attention, by default as the cache. `state`: constant state, by default
    what the model's config says, or else the dtype of `compute` (bf16 where that is quantised).
    """

    blocks: str = "bf16"
    experts: str | None = None
    head: str | None = None
    embedding: str | None = None
    other: str | None = None
    cache: str | None = None
    compute: str | None = None
    index: str | None = None
    state: str | None = None

    rules: ClassVar = {
        "blocks": DTYPE,
        **dict.fromkeys(("experts", "head", "embedding", "other", "cache", "index", "state"), optional(DTYPE)),
        "compute": optional(text("'bf16'")),  # fp4 is a dtype to compute in, not one to store: stored fp4 has scales
    }

    def complete(self) -> None:
        plain = self.blocks if self.blocks in UNQUANTISED else "bf16"
        for part in fields(self)[:-2]:
            if getattr(self, part.name) is None:
                object.__setattr__(self, part.name, self.blocks if part.name == "experts" else plain)

    def of_state(self, stated: str | None) -> str:
        """The dtype of a constant state: the one told here, else `stated` by the model's config, else as computed."""
        return self.state or stated or (self.compute if self.compute in UNQUANTISED else None) or "bf16"

    def bytes_of(self, part: str) -> float:
        """Bytes of one number of that part, its share of the scales included. An indexer's: as the cache."""
        return bytes_of(getattr(self, part) or str(self.cache))

    @property
    def compute_bytes(self) -> float:
        """Bytes of one operand: what an all-reduce sends and a convolution keeps."""
        return {"fp4": 0.5}.get(str(self.compute)) or bytes_of(str(self.compute))

    def __str__(self) -> str:
        """The parts in words, equal ones together."""
        dtypes: dict[str, list[str]] = {}
        for part in fields(self):
            if (dtype := getattr(self, part.name)) is not None:
                dtypes.setdefault(dtype, []).append(part.name)
        if len(dtypes) == 1:
            return f"{self.blocks} for all parts"
        return "; ".join(f"{dtype}: {', '.join(parts)}" for dtype, parts in dtypes.items())
