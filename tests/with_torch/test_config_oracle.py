"""tools/config_oracle.py makes rows of tests/data again: one of each kind here, all of them by `make oracle`."""

import json

import pytest

config_oracle = pytest.importorskip("config_oracle", reason="transformers is not installed", exc_type=ImportError)


def stored(file, key, name):
    """The line of the row whose `key` is `name`."""
    text = (config_oracle.DATA / f"{file}.json").read_text(encoding="utf-8")
    return next(line for line in text.replace("},\n", "}\n").splitlines() if f'"{key}":"{name}"' in line)


@pytest.mark.parametrize(
    ("file", "key", "name"),
    [
        ("config_oracle", "config_class", "NanoChatConfig"),  # dense
        ("config_oracle", "config_class", "OlmoeConfig"),  # experts
        ("config_oracle", "config_class", "MiniCPM3Config"),  # multi-head latent attention
        ("config_oracle", "config_class", "NemotronHConfig"),  # Mamba-2 and attention, and layers without a cache
        ("config_oracle", "config_class", "Qwen3_5Config"),  # gated delta rules; the language model of a wrapper
        ("more_default_configs", "architecture", "NemotronForCausalLM"),  # its own defaults do not build it
        ("more_default_configs", "architecture", "BloomForCausalLM"),
        ("published_style_configs", "name", "LiquidAI/LFM2-1.2B"),  # short convolutions beside attention
        ("released_configs", "hub_id", "XiaomiMiMo/MiMo-7B-Base"),  # no class in transformers: null
    ],
)
def test_a_row_is_made_byte_for_byte(file, key, name):
    kind, what = config_oracle.compare(file, stored(file, key, name))
    assert kind == "same", what


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"parameters": 16156545}, "different", "parameters 16156545 in the file, 16156544 made"),
        ({"cache_elements_64_tokens": None}, "filled", "cache_elements_64_tokens None in the file, 16384 made"),
        ({"config": {"model_type": "bloom", "n_layer": 3}}, "different", "config.n_layer 3 in the file, 2 made"),
        ({"config": {"model_type": "brand_new"}}, "not made", "no class for the model_type 'brand_new'"),
    ],
)
def test_a_row_that_differs_is_told_with_its_numbers(changes, kind, said):
    old = json.loads(stored("more_default_configs", "architecture", "BloomForCausalLM"))
    found, what = config_oracle.compare("more_default_configs", config_oracle.line(old | changes))
    assert (found, what.split(":")[0]) == (kind, "more_default_configs")
    assert said in what


@pytest.mark.parametrize(("changes", "status"), [({}, 0), ({"parameters": 1}, 1)])
def test_the_exit_status_says_whether_all_came_out(monkeypatch, tmp_path, capsys, changes, status):
    row = json.loads(stored("more_default_configs", "architecture", "BloomForCausalLM")) | changes
    (tmp_path / "more_default_configs.json").write_text(f"[\n{config_oracle.line(row)}\n]\n", encoding="utf-8")
    monkeypatch.setattr(config_oracle, "DATA", tmp_path)
    monkeypatch.setattr(config_oracle, "ROWS", {"more_default_configs": config_oracle.ROWS["more_default_configs"]})
    assert config_oracle.main([]) == status
    summary = capsys.readouterr().out.splitlines()[-1]
    assert summary == f"{1 - status} rows byte for byte, 0 that fill a null, {status} differ, 0 cannot be made"


def test_a_new_row_of_a_class_is_the_line_of_the_file(capsys):
    for name in ("GPT2Config", "GPT2LMHeadModel"):
        assert config_oracle.main(["--class", name]) == 0
        printed = capsys.readouterr()
        assert printed.out == stored("config_oracle", "config_class", "GPT2Config") + "\n"
        assert "128 tokens: FLOPs 32,228,179,968; elements of the cache by layer: 12 x 196,608" in printed.err
    for name in ("NoSuchClass", "T5Model", "torch"):
        with pytest.raises(SystemExit, match=f"{name} is no causal language model of transformers"):
            config_oracle.main(["--class", name])


def test_a_class_that_its_own_defaults_do_not_build_gets_the_row_that_holds_them(capsys):
    assert config_oracle.main(["--class", "NemotronForCausalLM"]) == 0
    printed = capsys.readouterr()
    assert printed.out == stored("more_default_configs", "architecture", "NemotronForCausalLM") + "\n"
    assert "Its own defaults do not build it" in printed.err


def test_a_new_row_of_a_file_runs_nothing_that_the_file_names(capsys, tmp_path):
    config = json.loads(stored("published_style_configs", "name", "Qwen/Qwen2-0.5B"))["config"]
    evil = {"auto_map": {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}, "trust_remote_code": True}
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\nEvil = None\n", encoding="utf-8")
    path = tmp_path / "Qwen--Qwen2-0.5B.json"
    path.write_text(json.dumps(config | evil), encoding="utf-8")
    assert config_oracle.main([str(path)]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row == json.loads(stored("published_style_configs", "name", "Qwen/Qwen2-0.5B")) | {"config": config | evil}
    assert not (tmp_path / "run").exists()
    path.write_text(json.dumps(config | {"model_type": "brand_new"}), encoding="utf-8")
    with pytest.raises(SystemExit, match="no class for the model_type 'brand_new'"):
        config_oracle.main([str(path)])
