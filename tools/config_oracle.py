"""Make the rows of tests/data from the model classes of transformers, on the meta device: shapes without any values.

    make oracle                                    make every row of tests/data again and compare it, byte for byte
    make oracle ARGS="--class LlamaForCausalLM"    print a row of config_oracle.json: a class at its default sizes
    make oracle ARGS="path/to/config.json"         print a row of published_style_configs.json: the sizes of a file

A config is data: no code that it names is run, nothing is downloaded. Parameters are those of the model that is built.
The elements of the cache and the FLOPs are those of a pass over 64 tokens at the real sizes, in plain ("eager")
attention: it multiplies every query with every key, and needs no value of the mask, which the meta device has not.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM, PreTrainedConfig

transformers.logging.set_verbosity_error()

DATA = Path(__file__).parent.parent / "tests" / "data"
TOKENS = 64
CACHE = "cache_elements_64_tokens"
# What more_default_configs.json leaves out of each config, at every level: no size is among them.
UNSIZED_KEYS = frozenset(
    """_name_or_path attention_dropout bos_token_id chunk_size_feed_forward dtype eos_token_id id2label
    initializer_range label2id output_attentions output_hidden_states pad_token_id problem_type return_dict
    transformers_version use_cache""".split()
)
# Keys of a config that name code, or weights packed by it. They change no size, and a model is built without them.
CODE_KEYS = frozenset({"auto_map", "quantization_config"})


@dataclass(frozen=True)
class Counts:
    """What was counted of one model; None where it is not to be had, and then `reason` says why."""

    parameters: int | None = None
    flops: int | None = None  # matrix products of one pass: 2 FLOP each multiplication and addition
    layers: tuple[int | None, ...] | None = None  # elements of keys and values by layer; None: a layer without keys
    reason: str = ""

    @property
    def cache(self) -> int | None:
        """Elements of keys and values in all layers that keep any; states are not in it."""
        return None if self.layers is None else sum(layer or 0 for layer in self.layers)


def without_keys(value, keys: frozenset[str]):
    """A JSON value without `keys`, at every level."""
    if isinstance(value, dict):
        return {key: without_keys(inner, keys) for key, inner in value.items() if key not in keys}
    return [without_keys(inner, keys) for inner in value] if isinstance(value, list) else value


def told(error: Exception) -> str:
    """One line about an error of transformers or PyTorch."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:160]}"


def config_of(config: dict) -> PreTrainedConfig:
    """The config object of a config.json, of a class that transformers itself has. ValueError: it has none."""
    sizes = without_keys(config, CODE_KEYS)
    model_type = sizes.pop("model_type", None)
    if model_type not in CONFIG_MAPPING:
        raise ValueError(f"transformers {transformers.__version__} has no class for the model_type {model_type!r}")
    return CONFIG_MAPPING[model_type](**sizes)


def one_pass(model: torch.nn.Module, tokens: int = TOKENS) -> Counts:
    """FLOPs and cache of a pass over `tokens` tokens. A class whose output has no place for a cache gives neither."""
    counter = FlopCounterMode(display=False)
    try:
        with counter, torch.no_grad():
            output = model(input_ids=torch.zeros(1, tokens, dtype=torch.long, device="meta"), use_cache=True)
    except Exception as error:  # whatever the class raises: its count is not to be had
        return Counts(reason=f"in a pass, {told(error)}")
    if not hasattr(output, "cache"):
        return Counts(reason=f"{type(output).__name__} has no place for a cache")
    layers = getattr(output.cache, "layers", None)  # None: a class without a cache, or with a state of its own kind
    if layers is not None:
        pairs = ((getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in layers)
        layers = tuple(None if keys is None else keys.numel() + values.numel() for keys, values in pairs)
    return Counts(None, counter.get_total_flops(), layers)


def count(config: PreTrainedConfig, tokens: int = TOKENS) -> Counts:
    """The counts of the model of a config; 0 tokens: its parameters alone."""
    options = {"dtype": torch.bfloat16, "attn_implementation": "eager", "trust_remote_code": False}
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, **options).eval()
    except Exception as error:  # a class that these sizes do not build
        return Counts(reason=told(error))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return replace(one_pass(model, tokens) if tokens else Counts(), parameters=parameters)


def count_file(config: dict, tokens: int = TOKENS) -> Counts:
    """The counts of the model of a config.json."""
    try:
        return count(config_of(config), tokens)
    except Exception as error:  # no class for it, or a class that refuses its values
        return Counts(reason=told(error))


# --- a row of each file: what a row says without counting, with new counts ---


def default_row(old: dict, sized_keys_only: bool = False) -> tuple[dict, Counts]:
    """A row of config_oracle.json; with `sized_keys_only`, of more_default_configs.json."""
    default = {"model_type": old["config"]["model_type"]}
    config = config_of(default)
    counts, name = count(config), MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].__name__
    names, parameters = {"architectures": [name]}, {"architecture": name, "parameters": counts.parameters}
    if sized_keys_only:  # as they are before the class changes them
        keys = without_keys(json.loads(config_of(default).to_json_string(use_diff=False)), UNSIZED_KEYS) | names
        return parameters | {CACHE: counts.cache, "config": dict(sorted(keys.items()))}, counts
    whole = None if None in (counts.layers or ()) else counts.cache  # this file gives no part of a cache
    row = {"config_class": type(config).__name__} | parameters | {"config": config.to_dict() | names}
    return row | {"flops_64_tokens": counts.flops, CACHE: whole}, counts


def published_row(old: dict) -> tuple[dict, Counts]:
    counts = count_file(old["config"])
    row = {"name": old["name"], "parameters": counts.parameters, CACHE: counts.cache}
    return row | {"config": old["config"]}, counts


def varied_row(old: dict) -> tuple[dict, Counts]:
    counts = count_file(old["config"])
    row = {"name": old["name"], "parameters": counts.parameters, CACHE: counts.cache, "flops_64_tokens": counts.flops}
    return row | {"config": old["config"]}, counts


def released_row(old: dict) -> tuple[dict, Counts]:
    counts = count_file(old["config"], tokens=0)
    return old | {"parameters": counts.parameters}, counts


def tied_row(old: dict) -> tuple[dict, Counts]:
    """A class at its default sizes, by what its file says of tied embeddings: nothing, true, or false."""
    flags = {"absent": {}, "true": {"tie_word_embeddings": True}, "false": {"tie_word_embeddings": False}}
    counts = {name: count_file(old["config"] | flag, tokens=0) for name, flag in flags.items()}
    return old | {"parameters": {name: found.parameters for name, found in counts.items()}}, counts["absent"]


ROWS = {
    "config_oracle": default_row,
    "more_default_configs": partial(default_row, sized_keys_only=True),
    "published_style_configs": published_row,
    "small_configs": published_row,
    "tied_embeddings": tied_row,
    "configs_without_a_key": released_row,
    "released_configs": released_row,
    "varied_configs": varied_row,
}
line = json.JSONEncoder(separators=(",", ":")).encode  # a row as it stands in its file


# --- every row again ---


def compare(file: str, stored: str) -> tuple[str, str]:
    """A stored line made again: "same", "filled" (numbers for its nulls), "different" or "not made", and what of it."""
    old = json.loads(stored)
    names = (old.get(key) for key in ("config_class", "architecture", "name", "hub_id"))
    title = f"{file}: {next(filter(None, names), old['config']['model_type'])}"
    try:
        row, counts = ROWS[file](old)
    except Exception as error:  # a class that this transformers does not have
        return "not made", f"{title}: {told(error)}"
    if line(row) == stored:
        return "same", f"{title}: {counts.reason}" if counts.reason else ""
    if counts.parameters is None:
        return "not made", f"{title}: {counts.reason}"
    row = json.loads(line(row))
    was, now = ({**other, **{f"config.{key}": other["config"][key] for key in other["config"]}} for other in (old, row))
    changed = [key for key in was | now if key != "config" and was.get(key) != now.get(key)]
    what = "; ".join(f"{key} {was.get(key)} in the file, {now.get(key)} made" for key in changed)
    kind = "filled" if changed and all(key in was and was[key] is None for key in changed) else "different"
    return kind, f"{title}: {what or 'the order of the keys'}"


def compare_all() -> int:
    """Print how the rows of tests/data come out. 0: each number and key that they state comes out again."""
    stored = [
        (file, row.removesuffix(","))
        for file in ROWS
        for row in (DATA / f"{file}.json").read_text(encoding="utf-8").splitlines()[1:-1]
    ]
    results: dict[str, list[str]] = {"same": [], "filled": [], "different": [], "not made": []}
    with ProcessPoolExecutor(initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for done, (kind, what) in enumerate(pool.map(compare, *zip(*stored, strict=True)), start=1):
            results[kind].append(what)
            print(f"\r{done} of {len(stored)} rows", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for heading, kind in (
        ("Byte for byte, with a null because the class does not give the number:", "same"),
        ("The same but for a null of the file, where the class gives a number:", "filled"),
        ("Different:", "different"),
        ("Cannot be made:", "not made"),
    ):
        if any(results[kind]):
            print(heading, *(f"  {what}" for what in results[kind] if what), sep="\n")
    same, filled, different, missing = (len(rows) for rows in results.values())
    print(f"{same} rows byte for byte, {filled} that fill a null, {different} differ, {missing} cannot be made")
    return 1 if different or missing else 0


# --- a new row ---


def class_config(name: str) -> dict:
    """The config of a causal language model of transformers, or of its config's class, that leaves out every size."""
    found = getattr(transformers, name, None)
    config = getattr(found, "config_class", found)
    if config not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise SystemExit(
            f"{name} is no causal language model of transformers {transformers.__version__}: give the name of its "
            "class or of its config's class, such as LlamaForCausalLM or LlamaConfig"
        )
    return {"model_type": config.model_type}


def print_new(file: str, old: dict) -> None:
    """Print a new row; to stderr, what a row does not hold: the cache by layer, and the same at twice the tokens."""
    row, counts = ROWS[file](old)
    if counts.parameters is None:
        if "name" in old:
            raise SystemExit(f"The model cannot be built: {counts.reason}")
        print(line(ROWS["more_default_configs"](old)[0]))
        print(f"Its own defaults do not build it ({counts.reason}): this is its row of", file=sys.stderr)
        print("more_default_configs.json. A config.json whose sizes build it gives a row with counts.", file=sys.stderr)
        return
    print(line(row))
    for tokens, found in ((TOKENS, counts), (2 * TOKENS, count_file(old["config"], 2 * TOKENS))):
        alike = ((size, len(list(group))) for size, group in groupby(found.layers or ()))
        layers = ", ".join(f"{number} x {'no keys' if size is None else f'{size:,}'}" for size, number in alike)
        flops = "none" if found.flops is None else f"{found.flops:,}"
        about = found.reason or f"FLOPs {flops}; elements of the cache by layer: {layers or 'no cache'}"
        print(f"{tokens} tokens: {about}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the rows of tests/data from the classes of transformers.")
    new = parser.add_mutually_exclusive_group()
    new.add_argument("--class", dest="named", metavar="NAME", help="print a row of this class at its default sizes")
    new.add_argument("file", nargs="?", type=Path, help="print a row of this config.json")
    options = parser.parse_args(arguments)
    if options.named:
        print_new("config_oracle", {"config": class_config(options.named)})
    elif options.file:
        config = json.loads(options.file.read_text(encoding="utf-8"))
        name = config.get("_name_or_path") or options.file.stem.replace("--", "/")
        print_new("published_style_configs", {"name": name, "config": config})
    else:
        return compare_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
