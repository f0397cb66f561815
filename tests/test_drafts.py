"""Drafts: what a draft model, an MTP head and an EAGLE-3 head store, read and compute, against plain loops."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import deepseek_v3, device, gqa_model, h100, llama, qwen3_next, refuses, server

from lessonlib.facts.catalogue import load_model
from lessonlib.model.draft import FREE_DRAFTS, DraftHead
from lessonlib.model.model import Model
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request, fits
from lessonlib.time.deployment import Efficiency, Speculation
from lessonlib.time.roofline import pass_cost

EXACT = 1e-12
EAGLE = DraftHead.eagle3(width=4096, inner=14336, heads=32, kv_heads=8, head_dim=128)
ROOMY = replace(h100(), memory=1e15)


def test_an_eagle_3_head_of_llama_matrix_by_matrix():
    h, key_value = 4096, 1024
    matrices = [(3 * h, h), (2 * h, h), (2 * h, key_value), (2 * h, key_value), (h, h)]  # fc, q, k, v, o
    matrices += [(h, 14336)] * 3 + [(h, 32_000)]
    assert EAGLE.parameters == sum(rows * columns for rows, columns in matrices) + 4 * h == 424_689_664
    deployment = server(speculation=Speculation(3, 0.6, EAGLE))
    assert deployment.weight_bytes - server().weight_bytes == 2 * 424_689_664  # the embedding is the target's
    assert deployment.sequence_bytes(100.0) - server().sequence_bytes(100.0) == 100 * 2 * key_value * 2
    sizes = deployment.draft_sizes
    assert sizes.token_flops + sizes.logit_flops == sum(2 * rows * columns for rows, columns in matrices)
    assert sizes.dense_bytes == 2 * 424_689_664


def test_the_mtp_head_of_deepseek_v3_is_one_more_block_and_a_projection():
    """Its repository says 11.5 billion weights of its own, beside the shared embedding and head."""
    model, w = deepseek_v3(), 7168
    head = DraftHead.mtp(model)
    _, block = model.blocks[-1]
    assert head.parameters == block.parameters + 2 * w * w + 3 * w
    assert head.parameters == pytest.approx(11.5e9, rel=0.01)
    plain = server(model, device())
    deployment = replace(plain, speculation=Speculation(1, 0.8, head))
    assert deployment.weight_bytes - plain.weight_bytes == 2 * head.parameters
    assert deployment.sequence_bytes(10.0) - plain.sequence_bytes(10.0) == 10 * 576 * 2
    assert deployment.draft_sizes.head_bytes == 2 * model.head_weights  # read in each draft pass, stored once
    active = block.mixer.matmul_weights + block.feedforward.matmul_weights + 2 * w * w
    sizes = deployment.draft_sizes
    assert sizes.token_flops + sizes.expert_flops == 2 * active and sizes.logit_flops == 2 * model.head_weights


def test_the_mtp_head_of_a_model_whose_layers_are_of_one_part_has_one_of_each():
    """Nemotron 3: mtp_layers_block_type is attention and moe."""
    nano = load_model("nemotron-3-nano-30b-a3b")
    (_, attention), (_, experts) = DraftHead.mtp(nano).body.blocks
    assert attention.mixer.cache_elements and attention.feedforward is None
    assert experts.mixer is None and experts.feedforward.experts == 128
    mamba = Model.from_config({"model_type": "mamba2"})
    assert DraftHead.mtp(mamba).body.blocks == ((1, mamba.blocks[-1][1]),)
    ((_, block),) = DraftHead.mtp(Model.from_config({"model_type": "zamba2"})).body.blocks
    assert block.borrowed_weights == 0


def test_the_mtp_head_takes_the_kind_of_the_last_block():
    model = qwen3_next()
    assert DraftHead.mtp(model).body.blocks == ((1, model.blocks[-1][1]),)
    assert DraftHead.mtp(model).max_positions == model.max_positions


def plain_draft_pass(draft, new, cached, batch, logits):
    """(FLOPs, bytes, seconds) of a pass of the EAGLE head in bf16, roof by roof."""
    h, key_value, head = 4096, 1024, 4096 * 32_000
    body = draft.parameters - head
    attention = [0.0, batch * 2 * 2 * key_value * (cached + new)]
    attention[0] = sum(batch * 4 * h * (cached + i) for i in range(1, new + 1))
    works = [(2 * batch * new * (body - 4 * h), 2 * body), (2 * head * batch * logits, 2 * head), attention]
    seconds = sum(max(flops / 989e12, moved / 3.35e12) for flops, moved in works)
    return sum(flops for flops, _ in works), sum(moved for _, moved in works), seconds


@pytest.mark.parametrize("prompt, output, cached, batch", [(1000, 200, 0, 1), (700, 2, 300, 4), (50, 1, 0, 2)])
@pytest.mark.parametrize("chunk", [None, 256])
def test_a_draft_prefills_the_prompt_and_drafts_each_round(prompt, output, cached, batch, chunk):
    deployment = server(speculation=Speculation(3, 0.6, EAGLE), prefill_chunk=chunk)
    alone = server(prefill_chunk=chunk)
    cost, target = (request_cost(one, Request(prompt, output, cached), batch) for one in (deployment, alone))
    starts = range(cached, prompt, chunk or prompt)
    ends = [min(start + (chunk or prompt), prompt) for start in starts]
    passes = [
        plain_draft_pass(EAGLE, end - start, start, batch, int(end == prompt))
        for start, end in zip(starts, ends, strict=True)
    ]
    drafted = [math.fsum(column) for column in zip(*passes, strict=True)]
    of = ("flops", "bytes", "seconds")
    expected = [getattr(target.prefill, name) + more for name, more in zip(of, drafted, strict=True)]
    assert [getattr(cost.prefill, name) for name in of] == pytest.approx(expected, rel=EXACT)
    assert cost.prefill.passes == 2 * len(passes)
    context, rounds = prompt + (output - 2) / 2, (output - 1) / (1 + 0.6 + 0.6**2 + 0.6**3)
    if context == int(context):
        verify = pass_cost(alone, 4, int(context), batch, logits=4)
        one = plain_draft_pass(EAGLE, 1, int(context), batch, 1)
        expected = [rounds * (getattr(verify, name) + 3 * more) for name, more in zip(of, one, strict=True)]
        assert [getattr(cost.decode, name) for name in of] == pytest.approx(expected, rel=EXACT)
    both = request_cost(deployment, Request(np.array([prompt, 90]), output, cached * np.array([1, 0])), batch)
    assert both.seconds[0] == pytest.approx(cost.seconds, rel=EXACT)


def test_a_draft_model_prefills_as_it_would_alone():
    draft = gqa_model()
    efficiency = Efficiency(0.5, 0.8, 1e-3)
    drafted = server(accelerator=ROOMY, speculation=Speculation(4, 0.7, draft), efficiency=efficiency, devices=2)
    plain, small = (server(model, ROOMY, efficiency=efficiency, devices=2) for model in (llama(), draft))
    found, target, own = (request_cost(one, Request(300, 1), 3).prefill for one in (drafted, plain, small))
    for name in ("flops", "bytes", "seconds", "communication", "overhead", "passes", "cache_write"):
        assert getattr(found, name) == pytest.approx(getattr(target, name) + getattr(own, name), rel=EXACT)


def test_free_drafts_are_a_limit_that_has_to_be_named():
    free = request_cost(server(speculation=Speculation(3, 0.6, FREE_DRAFTS)), Request(1000, 200))
    assert free.prefill.seconds == request_cost(server(), Request(1000, 200)).prefill.seconds
    assert any("free drafts, a limit that no draft reaches" in line for line in free.assumptions())
    drafted = request_cost(server(speculation=Speculation(3, 0.6, EAGLE)), Request(1000, 200))
    assert drafted.decode.seconds > free.decode.seconds and drafted.prefill.seconds > free.prefill.seconds
    assert any("draft EAGLE-3 head" in line for line in drafted.assumptions())
    for wrong in (None, "none", "Free", 4, llama):
        refuses(lambda w=wrong: Speculation(3, 0.6, w), "Speculation: draft", "'free'")
    refuses(lambda: Speculation(3, 0.6), "Speculation: draft is None", "DraftHead.mtp")


def test_positions_of_a_draft_are_refused_in_its_name():
    short = DraftHead.eagle3(4096, 14336, 32, 8, 128, max_positions=2048, name="eagle-llama")
    deployment = server(speculation=Speculation(3, 0.6, short))
    assert (deployment.max_positions, deployment.limited_by) == (2048, "its draft eagle-llama")
    message = refuses(lambda: request_cost(deployment, Request(2000, 100)), "its draft eagle-llama", "2,048 positions")
    assert "llama-3.1-8b" not in message
    many = request_cost(deployment, Request([2000, 1000], 100))
    assert many.refused.tolist() == [5, 0] and "draft" in many.why_refused(0)
    assert "beyond its draft eagle-llama's positions of 2,048" in fits(deployment, Request([2000, 1000], 100))
    wide = server(speculation=Speculation(3, 0.6, EAGLE))
    assert (wide.max_positions, wide.limited_by) == (131_072, "llama-3.1-8b")
    refuses(lambda: request_cost(wide, Request(131_000, 100)), "llama-3.1-8b has 131,072 positions")


def test_a_head_that_does_not_read_its_target_is_refused():
    other = DraftHead.eagle3(2048, 8192, 16, 8, 128)
    refuses(lambda: server(speculation=Speculation(3, 0.6, other)), "EAGLE-3 head", "width", "2048", "4,096")
    refuses(lambda: server(speculation=Speculation(1, 0.6, DraftHead.mtp(gqa_model()))), "MTP head of toy", "width")
    cut = DraftHead.mtp(replace(llama(), vocabulary=32_000))
    refuses(lambda: server(speculation=Speculation(1, 0.6, cut)), "MTP head", "vocabulary")
    refuses(lambda: DraftHead.mtp("deepseek-v3"), "DraftHead.mtp: target")
    refuses(lambda: DraftHead.eagle3(4096, 14336, 32, 5, 128), "heads")
    refuses(lambda: DraftHead(body=llama(), projection=-1), "projection")
