"""A deployment: what it takes for granted, what fits, and how it is copied, compared and shown."""

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from helpers import deepseek_v3, device, gpt_oss, gqa_model, h100, llama, qwen3_next, server

from lessonlib.base.errors import DoesNotFitError, InvalidInputError
from lessonlib.model.precision import Precision
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Efficiency, Speculation


def test_the_defaults_are_bf16_on_one_device_at_full_speed():
    plain = Deployment(llama(), h100())
    assert plain == server()
    assert (plain.devices, plain.memory_fraction, plain.prefill_chunk, plain.speculation) == (1, 0.9, None, None)
    assert str(plain.precision) == "bf16 for all parts"
    assert plain.efficiency == Efficiency(mfu=1, mbu=1, overhead=0, all_reduce_latency=10e-6)


def test_nothing_of_it_can_be_changed_in_place():
    for owner, name in (
        (server(), "devices"),
        (h100(), "bandwidth"),
        (llama(), "width"),
        (Efficiency(), "mfu"),
        (Precision(), "cache"),
        (Request(1, 1), "prompt"),
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(owner, name, 2)
    with pytest.raises(TypeError):
        h100().peaks["bf16"] = 1e18


def test_equal_sizes_are_equal_and_hash_alike():
    for make in (server, lambda: device(), gqa_model, Efficiency, lambda: Precision("int4")):
        assert make() == make() and hash(make()) == hash(make())
    assert server() != server(devices=2)
    assert device(link=1e9) != device(link=2e9)


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_cost_the_same(clone):
    original = server(gpt_oss(24, 32), devices=2, speculation=Speculation(2, 0.5, gqa_model()))
    copied = clone(original)
    assert copied == original
    request = Request(100, 50)
    assert request_cost(copied, request, 3).seconds == request_cost(original, request, 3).seconds


def test_a_change_is_a_new_deployment_with_its_own_numbers():
    half = replace(server(), precision=Precision("fp8"))
    assert half.weight_bytes < 0.6 * server().weight_bytes
    assert replace(server(), devices=2).bandwidth == 2 * server().bandwidth
    assert replace(server(), efficiency=Efficiency(mfu=0.5, mbu=0.25)).peak == server().peak / 2


def test_free_memory_is_negative_where_the_weights_alone_do_not_fit():
    small = server(accelerator=device(memory=16e9))
    assert small.memory_free < 0 and small.largest_batch(10) == 0
    with pytest.raises(DoesNotFitError):
        small.require_fit(1)


def test_what_fits_exactly_fits():
    needed = server().memory_needed(1000.0, 3)
    just = server(accelerator=device(memory=needed), memory_fraction=1)
    assert just.memory_available == needed
    assert just.require_fit(1000, 3) is None and just.largest_batch(1000) == 3
    short = server(accelerator=device(memory=math.nextafter(needed, 0)), memory_fraction=1)
    assert short.largest_batch(1000) == 2
    with pytest.raises(DoesNotFitError):
        short.require_fit(1000, 3)


def test_the_largest_batch_takes_whole_tokens():
    for wrong in (0, -1, 1.5, math.nan, "100", True):
        with pytest.raises(InvalidInputError, match="largest_batch: tokens is"):
            server().largest_batch(wrong)


def test_the_largest_batch_costs_and_one_more_does_not_fit():
    tokens = (1024, 128)
    most = server().largest_batch(sum(tokens))
    assert request_cost(server(), Request(*tokens), most).seconds > 0
    with pytest.raises(DoesNotFitError, match=f"batch={most}"):
        request_cost(server(), Request(*tokens), most + 1)


def test_without_a_link_figure_no_number_of_devices_is_advised():
    alone = Accelerator(name="alone", memory=40e9, bandwidth=1e12, peaks={"bf16": 1e14})
    with pytest.raises(DoesNotFitError) as caught:
        server(accelerator=alone).require_fit(20_000, 16)
    assert caught.value.remedies and not any("devices" in remedy for remedy in caught.value.remedies)


def test_more_devices_hold_more_sequences():
    batches = [server(devices=devices).largest_batch(1152) for devices in (1, 2, 4, 8, 16)]
    assert batches == sorted(batches) and batches[1] > 2 * batches[0]
    assert batches[4] < 1.1 * batches[3]  # beyond eight KV heads, each device holds a copy


def test_the_latent_on_every_device_limits_what_more_devices_hold():
    eight, sixteen = (server(deepseek_v3(), device(memory=192e9), devices=devices) for devices in (8, 16))
    per_sequence = [each.sequence_bytes(4000.0) for each in (eight, sixteen)]
    assert per_sequence[1] == 2 * per_sequence[0]


def test_constant_state_is_memory_too():
    deployment = server(qwen3_next(), device())
    assert deployment.sequence_bytes(0.0) == qwen3_next().state_bytes()
    assert deployment.sequence_bytes(100.0) == qwen3_next().state_bytes() + 100 * 24_576


def test_the_peak_and_bandwidth_are_of_all_devices_times_their_efficiency():
    deployment = server(devices=4, efficiency=Efficiency(mfu=0.5, mbu=0.8))
    assert deployment.peak == 4 * 0.5 * 989e12
    assert deployment.bandwidth == pytest.approx(4 * 0.8 * 3.35e12, rel=1e-15)


def test_each_says_what_it_is():
    assert "llama-3.1-8b" in repr(server(devices=2)) and "2 x 'h100-sxm'" in repr(server(devices=2))
    assert "8,030,261,248 parameters" in repr(llama()) and "32 x GQA" in repr(llama())
    assert "85.521 GB (nvidia-smi) at 3,350 GB/s" in repr(h100()) and "bf16 989" in repr(h100())
    assert "no link figure" in repr(device(link=None))
    assert str(Precision("int4")) == "int4: blocks, experts; bf16: head, embedding, other, cache"
