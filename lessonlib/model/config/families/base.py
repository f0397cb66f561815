"""The base rows: Llama's layout, from which every other row says how it differs.

q, k, v, o; a gated feed-forward of three matrices; two RMSNorms a block and a final one; an untied head.
"""

from lessonlib.model.config.family import Family
from lessonlib.model.config.mixers import attention
from lessonlib.model.config.rules import cycle, stated_inner

UNBIASED = Family(mixers={"F": attention, "S": attention}, kinds=cycle, dense_inner=stated_inner)
BIASED = UNBIASED.but(qkv_bias="attention_bias", out_bias="attention_bias")
