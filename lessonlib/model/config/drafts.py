"""A published EAGLE-3 head: the sizes that its config.json states, read by the same rows as a model.

The file is a Llama's of one layer, with `draft_vocab_size` for its own LM head; its embedding is the target's.
"""

from typing import Any

from lessonlib.base.errors import UnsupportedModelError, shown
from lessonlib.model.config.classes import DRAFT_KEYS, names_of
from lessonlib.model.config.families import FAMILIES
from lessonlib.model.config.keys import Keys, no_deeper, require_parsed
from lessonlib.model.config.reader import read_fields
from lessonlib.model.config.unread import keys_not_read

# Keys of such a file that change no size.
HARMLESS = ("eagle_config", "eagle_aux_hidden_state_layer_ids", "norm_before_residual", "target_model_type")


@no_deeper()
def eagle3_sizes(config: Any) -> dict[str, Any]:
    """The arguments of `DraftHead.eagle3`; UnsupportedModelError for a draft of another kind."""
    require_parsed(config)
    names, kind = names_of(config), config.get("model_type", "llama")
    if kind != "llama" or not (config.get("draft_vocab_size") or any("eagle3" in name.lower() for name in names)):
        raise UnsupportedModelError(
            f"config of model_type {shown(kind)} (architectures {shown(names)}) is not that of an EAGLE-3 head, which "
            "is a Llama's with 'draft_vocab_size'; for another draft pass a small model, or DraftHead.mtp(target)."
        )
    unread = [key for key, value in config.items() if DRAFT_KEYS.match(key) and value and key not in HARMLESS]
    unread = [key for key in unread if key not in ("draft_vocab_size", "target_hidden_size")]
    body = {key: value for key, value in config.items() if not DRAFT_KEYS.match(key)} | {"tie_word_embeddings": True}
    keys = Keys(body, "config of an EAGLE-3 head", FAMILIES["llama"], True)
    fields = read_fields(keys)
    unread += keys_not_read(keys, its_own_class=True)
    width, layers, vocabulary = fields["width"], keys.layers, config.get("draft_vocab_size")
    ((_, block), *_) = fields["blocks"]
    plain = block.mixer.other_weights == block.feedforward.other_weights == 0
    if unread or layers != 1 or not plain or config.get("target_hidden_size") not in (None, width):
        raise UnsupportedModelError(
            f"config of an EAGLE-3 head with {layers} layers, "
            f"{'no' if plain else 'some'} biases, target_hidden_size {shown(config.get('target_hidden_size'))} and "
            f"{', '.join(map(shown, unread[:4])) or 'nothing'} unread; only one layer of its target's width "
            "without biases is read."
        )
    drafts = Keys({"vocab_size": vocabulary}, keys.owner, FAMILIES["llama"], False)
    return {
        "width": width,
        "inner": block.feedforward.inner,
        "heads": block.mixer.heads,
        "kv_heads": block.mixer.kv_heads,
        "head_dim": block.mixer.head_dim,
        "vocabulary": fields["vocabulary"] if vocabulary is None else drafts.count("vocab_size"),
        "max_positions": fields["max_positions"],
    }
