"""Reads the parsed dict of a config.json as a Model, by the rows of families/. Exact, or refused: never a guess.

Every key is read through one accessor that records it (keys.py). A key that is absent takes its family's own class
default, and is then named in `Model.defaults_used`; a structural key that is set but was not read is an error that
names it. Nothing of a config is executed.
"""

import re
from typing import Any

from lessonlib.base.checks import a, optional
from lessonlib.base.errors import UnsupportedModelError, shown
from lessonlib.model.config.classes import family_of, names_of, refuse_another_class, refuse_other_heads
from lessonlib.model.config.families import FAMILIES
from lessonlib.model.config.keys import Keys, no_deeper, require_parsed
from lessonlib.model.config.layers import read_blocks
from lessonlib.model.config.not_read import ENCODERS, IRREGULAR, WAY_ON
from lessonlib.model.config.positions import stretched
from lessonlib.model.config.stored import stored_as
from lessonlib.model.config.unread import draft_layers, keys_not_read
from lessonlib.model.config.wrappers import FLAT, language_part, with_its_tie

MOST_LAYERS = 10_000
OF_STATES = re.compile("mamba|state|conv|linear_|period|offset|factor")  # sizes, and where such layers are
LONGEST_NAME = 200


def read_config_as_model(cls: Any, config: Any, like: str | None = None, name: str | None = None) -> Any:
    """The Model of class `cls` that `config` describes; see `Model.from_config`."""
    name = optional(a(str, "'my model'"))("config", "name", name)
    with no_deeper():
        require_parsed(config)
        part, left_out = language_part(config)
        if part is not config:
            _refuse_encoder(config)
            refuse_other_heads(config, wrapper=True)
        refuse_other_heads(part, wrapper=part.get("model_type") in FLAT.values())
        part = with_its_tie(part)
        family, class_is_known = _choose_family(part, like)
        keys = Keys(part, f"config of a {family!r} model", FAMILIES[family], class_is_known)
        name = name or _own_name(part, found=None if like else family)
        fields = read_fields(keys)
        if like is not None and part.get("model_type") != family:
            _refuse_borrowed(keys)
        not_read = keys_not_read(keys, its_own_class=part.get("model_type") == family)
        left_out += draft_layers(part)
        try:
            _, stored = stored_as(config)
        except UnsupportedModelError as error:  # the model is known all the same
            stored = f"in a way that is not read: {error}"
        model = cls(name=name, family=family, left_out=left_out, keys_not_read=not_read, stored=stored, **fields)
    return model


def _refuse_encoder(config: dict[str, Any]) -> None:
    """UnsupportedModelError for an encoder, or a model that has one for its text."""
    model_type = config.get("model_type")
    if (isinstance(model_type, str) and model_type in ENCODERS) or config.get("is_encoder_decoder") not in (
        None,
        False,
    ):
        raise UnsupportedModelError(
            f"model_type {shown(model_type)} is an encoder or has one; only decoder-only models are read, and a switch "
            "such as is_decoder does not make it one."
        )


def _choose_family(config: dict[str, Any], like: str | None) -> tuple[str, bool]:
    """Name of the row, and whether the class that gives the defaults is known: by model_type, or by `like`."""
    model_type = config.get("model_type")
    named = model_type if isinstance(model_type, str) else None
    if like is not None and not (isinstance(like, str) and like in FAMILIES):
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModelError(f"like={shown(like)} is not a family that is read; known: {known}.")
    _refuse_encoder(config)
    if named in IRREGULAR:
        raise UnsupportedModelError(f"model_type {named!r} is not read: {IRREGULAR[named]}; {WAY_ON}.")
    names = names_of(config)
    if named in FAMILIES:
        if like is not None and FAMILIES[like] is not FAMILIES[named]:
            raise UnsupportedModelError(f"model_type {named!r} has a layout of its own; leave out like={like!r}.")
        refuse_another_class(names, named, told=like is not None)
        return named, True
    if like is not None:
        refuse_another_class(names, like, told=True)
        return like, True
    if model_type is None:  # then the class, and with it the default of an absent key, is not known
        for family in filter(None, map(family_of, names)):
            refuse_another_class(names, family, told=False)
            return family, False
    raise UnsupportedModelError(
        f"model_type {shown(model_type)} (architectures {shown(names)}) is not an architecture that is read: {WAY_ON}. "
        'If its makers say that it has the layout of a family that is read, name that: like="...".'
    )


def _own_name(config: dict[str, Any], found: str | None) -> str:
    """The first name that the config gives its model. `found`: the family that it names, None where `like` told it."""
    path, classes = config.get("_name_or_path"), config.get("architectures")
    folder = re.split(r"[\\/]", path.rstrip("\\/"))[-1] if isinstance(path, str) else None
    given = [config.get("model_type"), found, folder, *(classes if isinstance(classes, list) else [])]
    return next((name for name in given if isinstance(name, str) and name.strip()), "unnamed model")[:LONGEST_NAME]


def read_fields(keys: Keys) -> dict[str, Any]:
    """The fields of Model but its name and family, in the order in which their keys are checked."""
    family = keys.family
    if family.spelled:
        family.spelled(keys)
    width = keys.count(family.width)
    layers = family.layer_count(keys) if family.layer_count else keys.count(family.layers)
    if layers > MOST_LAYERS:
        raise keys.wrong(family.layers, layers, f"at most {MOST_LAYERS:,} layers")
    keys.width, keys.layers = width, layers
    blocks, vocabulary = read_blocks(keys), keys.count(family.vocabulary)
    positions = keys.optional(family.positions) if family.positions else None
    table = 0
    if family.position_rows is not None:
        if positions is None:
            raise keys.refused(str(family.positions), None, "the size of its table of positions is not stated")
        table = (positions + family.position_rows) * width
    for key, needed in family.required.items():
        if type(keys.value(key)) is not type(needed) or keys.value(key) != needed:
            raise keys.refused(key, keys.value(key), f"only {needed!r} is read for this family")
    fields: dict[str, Any] = {
        "width": width,
        "vocabulary": vocabulary,
        "blocks": blocks,
        "tied_embeddings": keys.switch(family.tied),
        "max_positions": stretched(keys, positions),
        "position_weights": table,
        "other_weights": (family.final_norm + family.embedding_norm) * family.norm * width,
        "head_bias": vocabulary if keys.switch(family.head_bias) else 0,
    }
    for name, weights in (family.beside(keys) if family.beside else {}).items():
        fields[name] = fields.get(name, 0) + weights
    return fields | {"defaults_used": tuple(keys.defaults_used)}


def _refuse_borrowed(keys: Keys) -> None:
    """UnsupportedModelError for sizes that a model of another class took from the class defaults of this family."""
    family, moe = keys.family, keys.family.experts
    sizes = [family.width, family.layers, family.heads, family.kv_heads, family.vocabulary, family.inner]
    sizes += [moe.experts, moe.top_k, moe.expert_inner, moe.shared_experts, moe.shared_inner] if moe else []
    sizes += [key for key in family.defaults if "head_dim" in key or "rank" in key]
    sizes += [key for key, value in family.defaults.items() if type(value) in (int, float) and OF_STATES.search(key)]
    names = dict.fromkeys(key.split("|")[0] for key in sizes if key)
    missing = [name for name in names if name in keys.defaults_used and family.defaults.get(name) is not None]
    if missing:
        raise UnsupportedModelError(
            f"{keys.owner}, by like=: it does not state {', '.join(missing)}. The class defaults of a "
            "family are not the sizes of another model: add these keys, under these names, to the config."
        )
