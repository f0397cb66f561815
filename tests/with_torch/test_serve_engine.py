"""A real engine behind the socket: transformers' own server with a toy model of random weights, all of it offline.

Each token is one printable character, so that chunks and tokens are the same, and no token ends a text.
requirements.txt installs it for `make test-torch`; where it is not there, these tests are skipped and say so.
"""

import importlib.util
import json
import os
import socket
import string
import subprocess
import sys
import time
import urllib.request

import pytest
import torch

from lessonlib import Accelerator, Deployment, Model, Precision, Request, request_cost
from lessonlib.measured.timing.predictions import predictions, timing_report
from lessonlib.measured.timing.record import read_record, write_record
from lessonlib.measured.timing.server import ServerTimingError, time_server

NEEDED = ("transformers", "fastapi", "uvicorn", "openai")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"no real engine: {', '.join(MISSING)} not installed")
SHAPES = {"chat": (40, 8), "reasoning": (4, 96)}
CHARACTERS = sorted(set(string.printable) - set("\t\n\r\x0b\x0c "))
PATIENCE = 120  # seconds for the engine to import and load


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("toy")
    letters = {letter: number for number, letter in enumerate(CHARACTERS)}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    made.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    made.save_pretrained(path)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(letters),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
        dtype="float32",
    )
    LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def url(folder, tmp_path_factory):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HOME": str(tmp_path_factory.mktemp("home"))}
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
    command += ["--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    log = tmp_path_factory.mktemp("log") / "serve.txt"
    with log.open("w") as file:
        engine = subprocess.Popen(command, env=os.environ | offline, stdout=file, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers(f"http://127.0.0.1:{port}/health"):
            if engine.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the engine did not start (code {engine.poll()}): {log.read_text()[-800:]}")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        engine.terminate()
        try:
            engine.wait(20)
        except subprocess.TimeoutExpired:
            engine.kill()
            engine.wait()


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def record(url, folder):
    return time_server(url, str(folder), concurrency=(1, 2), requests=SHAPES, extra={"temperature": 0}, say=print)


def test_every_reply_is_whole_and_counted_by_the_engine(record, tmp_path):
    assert record.conditions["ended"] == ""
    replies = record.conditions["replies"]
    assert [reply["problem"] for reply in replies] == [""] * 6
    assert [(reply["output"], reply["finish"]) for reply in replies] == [
        (SHAPES[reply["name"]][1], "length") for reply in replies
    ]
    # A token is a character; the template adds none.
    assert all(reply["prompt"] > (100 if reply["name"] == "chat" else 20) for reply in replies)
    assert all(0 < reply["ttft"] < reply["last"] for reply in replies)
    assert read_record(write_record(record, tmp_path)) == record


def test_the_times_of_a_real_engine_stand_beside_a_prediction(record, folder):
    model = Model.from_config(json.loads((folder / "config.json").read_text()))
    device = Accelerator(name="some CPU", memory=8e9, bandwidth=2e10, peaks={"fp32": 1e11})
    deployment = Deployment(model, device, Precision("fp32"))
    rows = {row.what: row for row in predictions(record, deployment)}
    one = next(one for one in record.requests if (one.name, one.batch) == ("reasoning", 1))
    row = rows["reasoning, concurrency 1: TPOT"]
    assert row.predicted == request_cost(deployment, Request(one.prompt, one.output)).tpot
    assert row.ratio > 1  # a toy's step is the engine's own work, hardly any of it reading weights
    assert "reasoning, concurrency 1: TPOT" in timing_report(record, deployment)


def test_a_model_that_the_engine_does_not_serve_is_one_line(url):
    with pytest.raises(ServerTimingError, match='the server answered 400: "Server is pinned to'):
        time_server(url, "another model", requests=SHAPES)
