"""The class that a config names under `architectures`, held against its family: drafts and other heads by name.

A class is not the family's own where it adds a head for scores, has no head at all, drafts for another model, or is the
class of another layout. Each changes the count, so each is refused, with what to do.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from lessonlib.base.errors import InvalidInputError, UnsupportedModelError, shown
from lessonlib.base.text import one_line
from lessonlib.model.config.families import FAMILIES
from lessonlib.model.config.family import Family

CAUSAL = re.compile(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration|CausalLM)$")
DRAFT = re.compile(r"eagle(?!.*vl)|medusa|speculator|draft|nextn|mtp($|model|for|head)|hydra|dflash", re.IGNORECASE)
DRAFT_KEYS = re.compile(
    r"^(draft_vocab_size|eagle_.*|medusa_.*|target_hidden_size|speculators?_.*|norm_before_residual|dflash_.*"
    r"|num_aux_hidden_states|target_model_type|draft_.*)$"
)
# Classes that are called otherwise than their model_type: an old name, words in another order, or another's class.
OTHERWISE = {
    "hunyuan_v1_dense": "hunyuandensev1", "hunyuan_v1_moe": "hunyuanmoev1", "emu3_text_model": "emu3", "falcon": "rw",
    "internlm3": "llama", "exaone": "llama", "iquestcoder": "llama", "sarvam_moe": "glm4moe",
    "sarvam_mla": "deepseekv3", "mllama_text_model": "mllama",
}  # fmt: skip


def names_of(config: dict[str, Any]) -> list[str]:
    """The classes that a config names; InvalidInputError where they are not names."""
    names = config.get("architectures")
    names = [names] if isinstance(names, str) else names
    if names is None:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"config: 'architectures' is {shown(names)}; expected a list of names of classes.")
    return names


def plain(name: str) -> str:
    """A class or a model_type without its ending, its case and its signs, so that both compare."""
    return re.sub(r"[\W_]|(?<=.)_?text$", "", CAUSAL.sub("", name).lower())


def family_of(name: str) -> str | None:
    """The family whose class this is, None where no row has it."""
    return _families().get(plain(name)) if CAUSAL.search(name) else None


@cache
def _families() -> dict[str, str]:
    """Each plain name of a class and its family: the first row of that name, else the first that is called so."""
    otherwise = {name: family for family, name in reversed(OTHERWISE.items())}
    return otherwise | {plain(family): family for family in reversed(FAMILIES)}


def refuse_other_heads(config: dict[str, Any], wrapper: bool = False) -> None:
    """UnsupportedModelError for a draft, and for a class without an LM head or with another head than that."""
    names, kind = names_of(config), config.get("model_type")
    betrayed = [key for key, value in config.items() if DRAFT_KEYS.match(key) and value not in (None, False)]
    drafts = [name for name in [*names, kind] if isinstance(name, str) and DRAFT.search(name)]
    if drafts or betrayed:
        signs = ", ".join(one_line(name, 80) for name in [*drafts, *betrayed][:4])
        raise UnsupportedModelError(
            f"config is that of a draft head ({signs}), which proposes tokens for a target model and shares "
            "its embedding: read the target's config.json as the model. DraftHead.from_config(config) "
            "reads an EAGLE-3 head, for Speculation(draft=...)."
        )
    for name in names:
        if CAUSAL.search(name) or (wrapper and re.search(r"(Chat|Omni)Model$", name)):
            continue
        if re.search(r"For[A-Z]\w*$|(Reward|Score|Classifier|Embedding|Retriev)", name):
            raise UnsupportedModelError(
                f"config: architectures names {shown(name)}, which has another head than the one that writes text; "
                "only language models with an LM head are read."
            )
        if re.search(r"Model$", name):
            raise UnsupportedModelError(
                f"config: architectures names {shown(name)}, which has no LM head and writes no text; for the "
                f"language model of the same sizes give 'architectures' [{shown(name[:-5] + 'ForCausalLM')}]."
            )


def refuse_another_class(names: Iterable[str], family: str, told: bool) -> None:
    """UnsupportedModelError where a class is not the family's. `told`: by like=, so a class without a row is taken."""
    for name in names:
        other = family_of(name)
        same = other is not None and _layout(FAMILIES[other]) == _layout(FAMILIES[family])
        if same or plain(name) in (plain(family), OTHERWISE.get(family)) or (told and other is None):
            continue
        raise UnsupportedModelError(
            f"config: architectures names {shown(name)}, which is not the class of model_type {family!r}"
            f"{f' but of {other!r}' if other else ''}, so its layout is not known: correct the one that is wrong"
            f"{'' if other else f', or say like={family!r} if its layout is that'}."
        )


def _layout(row: Family) -> Family:
    return row.but(ignored={}, required={})
