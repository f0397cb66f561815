"""Precision by part: how many bits a weight, a cached number and an operand have, and the dtype that each kernel takes.

Bits include the scales that a format stores beside its numbers: mxfp4 has one 8-bit scale for 32 weights (4.25), nvfp4
one for 16 (4.5), q8_0 one fp16 for 32 (8.5); int4 is counted with an fp16 scale for 64 (4.25). q4_k_m is a mixture,
4.85 on average over a Llama. A format without a name here goes by its bits: "5.5 bits". Sources: OCP Microscaling
Formats 1.0; the block layouts of GGUF.

fp8 and nvfp4 name weights and activations (W8A8, W4A4): their kernels multiply in fp8 and fp4 where the device can. All
other formats are of weights alone, which are widened to 16 bits before they are multiplied.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from lessonlib.base.checks import REFUSED, Checked, Rule, between, checked, optional, text, wrong
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
MULTIPLIED_IN = {"fp8": "fp8", "nvfp4": "fp4"}  # formats of weights and activations, and the dtype of their products
OTHER_16_BITS = {"bf16": "fp16", "fp16": "bf16"}

BLOCKS, EXPERTS, HEAD, ATTENTION = KERNELS = ("blocks", "experts", "head", "attention")

PARTS = ("experts", "head", "embedding", "other", "cache", "index", "state", "dispatch")
SOME_BITS = between(0.1, 64, "bits")


def _dtype(value: Any) -> Any:
    """A dtype by name, or by its bits: "4.25 bits"."""
    if not isinstance(value, str) or value in BITS:
        return value if isinstance(value, str) else REFUSED
    number = value.removesuffix(" bits")
    try:
        return REFUSED if number == value or SOME_BITS.turn(float(number)) is REFUSED else value
    except ValueError:
        return REFUSED


DTYPE = Rule(f"a dtype, one of {', '.join(BITS)}, or such as '4.25 bits'", _dtype, error=UnknownNameError)


@checked(dtype=DTYPE)
def bytes_of(dtype: str) -> float:
    """Bytes of one number of `dtype`, its share of the scales included; UnknownNameError for another name."""
    return (BITS[dtype] if dtype in BITS else float(dtype.removesuffix(" bits"))) / 8


@dataclass(frozen=True)
class Precision(Checked):
    """A dtype for each part. `Precision("int4")` quantises blocks and experts and leaves the rest in bf16.

    `blocks`: matrices of mixers, dense feed-forwards and shared experts. `experts`: routed experts, by default as
    blocks. `head`, `embedding`, `other` (norms, biases, routers), `cache`: by default the dtype of the blocks when that
    is fp32, fp16 or bf16, otherwise bf16. A tied embedding has the head's. `compute`: the dtype that every kernel
    multiplies in; None, the default, gives each its own (`operand`). `bits`: of a weight of blocks and experts in a
    format without a name; `Precision(bits=4.25)` is `Precision("4.25 bits")`. `index`: the keys of an indexer of
    sparse attention, by default as the cache. `state`: constant state, by default what the model's config says, or else
    the dtype that the model computes in. `dispatch`: what an all-to-all sends to the experts, by default as all that
    devices send, 2 bytes a number.
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
    dispatch: str | None = None
    bits: float | None = None

    rules: ClassVar = {
        "blocks": DTYPE,
        **dict.fromkeys(PARTS, optional(DTYPE)),
        "compute": optional(text("'bf16'")),  # fp4 is a dtype to compute in, not one to store: stored fp4 has scales
        "bits": optional(SOME_BITS),
    }

    def complete(self) -> None:
        put = object.__setattr__
        if self.bits is not None and self.blocks not in UNQUANTISED:
            raise wrong(self.owner, "bits", self.bits, f"no bits beside a format with a name, {self.blocks}")
        plain = self.blocks if self.blocks in UNQUANTISED else "bf16"
        if self.bits is not None:
            put(self, "blocks", f"{self.bits!r} bits".replace(".0 ", " "))
            put(self, "bits", None)  # they are the dtype's name now, so that another precision may be made of this one
        for part in ("experts", "head", "embedding", "other", "cache"):
            if getattr(self, part) is None:
                put(self, part, self.blocks if part == "experts" else plain)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The precision in which a released file is stored, by its config.json: fp8, mxfp4, gptq, awq and the like.

        `config`: the parsed dict. 4 bits of gptq, awq and bitsandbytes are counted as int4. Raises
        UnsupportedModelError for a method that is not known, InvalidInputError for a value that cannot be meant.
        """
        from lessonlib.model.config.stored import stored_as

        stored, _ = stored_as(config)
        return cls(**stored)

    def of_state(self, stated: str | None) -> str:
        """The dtype of a constant state: the one told here, else `stated` by the model's config, else as computed."""
        return self.state or stated or (self.compute if self.compute in UNQUANTISED else self.plain)

    def bytes_of(self, part: str) -> float:
        """Bytes of one number of that part, its share of the scales included. An indexer's: as the cache."""
        return bytes_of(getattr(self, part) or str(self.cache))

    @property
    def plain(self) -> str:
        """The dtype of what is not quantised, and of operands unless `compute` says another."""
        if self.blocks in UNQUANTISED:
            return self.blocks
        return "fp16" if self.other == "fp16" else "bf16"

    def operand(self, kernel: str, peaks: Collection[str]) -> str:
        """The dtype that a kernel of KERNELS multiplies in, on a device with these `peaks`.

        `compute` where it is told. Otherwise blocks and experts in the dtype that their format names for weights and
        activations, if the device has its peak; all else in 16 bits, bf16 or fp16 as the device has it, or in fp32.
        """
        if self.compute is not None:
            return self.compute
        stored = getattr(self, kernel, "")
        faster = MULTIPLIED_IN.get(stored) if kernel in (BLOCKS, EXPERTS) else None
        if faster in peaks:
            return str(faster)
        plain = stored if kernel in (BLOCKS, EXPERTS) and stored in UNQUANTISED else self.plain
        other = OTHER_16_BITS.get(plain)
        return other if other is not None and other in peaks and plain not in peaks else plain

    @property
    def compute_bytes(self) -> float:
        """Bytes of one operand outside the quantised kernels: what a convolution keeps."""
        return {"fp4": 0.5}.get(self.compute or "") or bytes_of(self.compute or self.plain)

    @property
    def sent_bytes(self) -> float:
        """Bytes of a number that an all-reduce or an all-to-all sends: 2, and 4 where all is fp32."""
        return 4.0 if self.plain == "fp32" else 2.0

    @property
    def dispatched_bytes(self) -> float:
        """Bytes of a number that an all-to-all sends to the experts; `sent_bytes` come back."""
        return self.sent_bytes if self.dispatch is None else bytes_of(self.dispatch)

    def __str__(self) -> str:
        """The parts in words, equal ones together."""
        dtypes: dict[str, list[str]] = {}
        for part in fields(self):
            if (dtype := getattr(self, part.name)) is not None:
                dtypes.setdefault(dtype, []).append(part.name)
        if len(dtypes) == 1:
            return f"{self.blocks} for all parts"
        return "; ".join(f"{dtype}: {', '.join(parts)}" for dtype, parts in dtypes.items())
