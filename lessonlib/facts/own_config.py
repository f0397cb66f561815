"""A learner's own config.json made a Model under its own name; for one that is not read, the nearest that is."""

import math
from pathlib import Path
from typing import Any

from lessonlib.base.errors import InvalidInputError, LessonError, UnsupportedModelError, is_number
from lessonlib.base.files import Upload
from lessonlib.base.text import one_line
from lessonlib.facts.catalogue import load_model, model_names
from lessonlib.facts.config_file import config_file, read_config
from lessonlib.model.config.wrappers import language_part
from lessonlib.model.model import Model

WIDTHS, LAYERS = ("hidden_size", "n_embd", "d_model"), ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


def own_model(source: Any, like: str | None = None) -> Model:
    """The model of a config.json, a path or an Upload, under the name that it has in the file or outside.

    `like`: the family, for an architecture that has another's shape and a name of its own.
    """
    if isinstance(source, bytes) and not isinstance(source, Upload):
        source = Upload(source, "config.json")
    config = read_config(source)
    try:
        return Model.from_config(config, like=like, name=_model_name(config, source))
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{config_file(source)}: {error}{_nearest(config)}") from error
    except LessonError as error:
        raise type(error)(f"{config_file(source)}: {error}") from error


def _nearest(config: dict[str, Any]) -> str:
    """A sentence that names the model of the catalogue nearest in width and layers, where the config states them."""
    try:
        part, _ = language_part(config)
    except (InvalidInputError, UnsupportedModelError):
        part = config
    width, layers = (next((part[key] for key in keys if key in part), 0) for keys in (WIDTHS, LAYERS))
    if not (is_number(width) and is_number(layers) and 0 < width < 1e9 and 0 < layers < 1e6):
        return ""

    def distance(model: Model) -> float:
        return abs(math.log(model.width / width)) + abs(math.log(model.layers / layers))

    near = min(map(load_model, model_names()), key=distance)
    return f" Nearest in width and layers: load_model({near.name!r}), {near.layers} layers of width {near.width:,}."


def _model_name(config: dict[str, Any], source: Any) -> str:
    """What the config calls itself; or the file's name, its folder's where that is config.json; or its family's."""
    path = Path(source.name if isinstance(source, Upload) else source)
    called = config.get("_name_or_path")
    names = (
        called.replace("\\", "/").rstrip("/").split("/")[-1] if isinstance(called, str) else "",
        path.stem if path.stem.split(" ")[0] != "config" else path.parent.name,
        f"your {config.get('model_type')}" if isinstance(config.get("model_type"), str) else "your model",
    )
    return one_line(next(name for name in names if name.strip(" .")), 200)
