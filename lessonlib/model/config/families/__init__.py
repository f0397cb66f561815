"""The families of published models: a paragraph a model_type, which says how it differs from Llama, and nothing else.

CONTRIBUTING.md says how to add one, with its row of the oracle.
Source: the model and configuration classes of transformers 5.24 (github.com/huggingface/transformers, Apache-2.0).
"""

from lessonlib.model.config.families import dense, experts, hybrid, inside, latent, layernorm, special, state
from lessonlib.model.config.family import Family

FAMILIES: dict[str, Family] = {
    **dense.rows, **experts.rows, **latent.rows, **layernorm.rows, **state.rows, **inside.rows,
    **hybrid.rows, **special.rows,
}  # fmt: skip
