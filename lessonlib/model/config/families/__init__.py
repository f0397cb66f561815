"""The families of published models: a paragraph a model_type, which says how it differs from Llama, and nothing else.

To add a family, with its row of the oracle:
1. Read its class in transformers (modeling and configuration file): how does it differ from Llama, or from a row here?
2. Add the paragraph to the file of its kind: its names, the nearest layout `.but(...)`, the class's defaults by name.
3. Only where no field of Family says it: a rule, as a lambda in the row or as a function in rules.py or mixers.py.
4. `make oracle` (tools/config_oracle.py) counts the class on the meta device; its row goes into tests/data.
5. `pytest tests/test_families.py`: the count is exact, each default is read, no key can be lost without a word.

Source: the model and configuration classes of transformers 5.24 (github.com/huggingface/transformers, Apache-2.0).
"""

from lessonlib.model.config.families import dense, experts, latent, layernorm, state
from lessonlib.model.config.family import Family

FAMILIES: dict[str, Family] = {**dense.rows, **experts.rows, **latent.rows, **layernorm.rows, **state.rows}
