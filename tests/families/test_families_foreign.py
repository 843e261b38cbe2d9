"""Generators without weights here, and what the config says about servers and engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.config.run import RunConfig, load_config, parse_config, resolve, to_yaml
from divtok.errors import ConfigError, UsageError
from divtok.families.family import FAMILIES, get_family
from divtok.records import Sampling

READER, AUXILIARY = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"
URL = "http://127.0.0.1:8000/v1"

Load = Callable[..., RunConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a config from the text of its file, with overrides on top."""
    path = tmp_path / "run.yaml"

    def load_text(text: str, *overrides: str) -> RunConfig:
        path.write_text(text, encoding="utf-8")
        return load_config(path, overrides)

    return load_text


@pytest.mark.parametrize("family", list(FAMILIES), ids=lambda family: family.name)
def test_a_foreign_generator_keeps_nothing_of_another_models_card(family: Any) -> None:
    first = family.generators[0]
    found = family.generator("gpt-4o-mini", foreign=True)
    assert (found.model, found.foreign, found.base) == ("gpt-4o-mini", True, None)
    assert (found.sampling.top_k, found.sampling.presence_penalty) == (None, 0.0)
    assert (found.sampling.temperature, found.sampling.top_p) == (
        first.sampling.temperature,
        first.sampling.top_p,
    )
    assert found.sampling.max_length == first.sampling.max_length
    assert found.samples == first.samples
    assert first.foreign is False


def test_a_black_box_familys_own_pair_reads_a_foreign_generator() -> None:
    family = get_family("blackbox")
    assert family.pair_for(family.generator("gpt-4o-mini", foreign=True)) == (READER, AUXILIARY)
    sampling = family.generator("gpt-4o-mini", foreign=True).sampling
    assert sampling == Sampling(0.7, 0.8, None, 0.0, 16384, 0)


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("tiny", "divtok/tiny-0.5m"),
        ("qwen2.5", READER),
        ("qwen3", "Qwen/Qwen3-8B"),
        ("gemma3", "google/gemma-3-12b-it"),
    ],
)
def test_a_white_box_familys_smallest_generator_reads_a_foreign_one(name: str, reader: str) -> None:
    family = get_family(name)
    foreign = family.generator("anyone", foreign=True)
    assert family.pair_for(foreign) == (reader, family.auxiliary)


def test_a_generator_of_the_family_is_its_own_also_where_its_text_comes_from_elsewhere() -> None:
    for family in FAMILIES:
        for generator in family.generators:
            assert family.generator(generator.model, foreign=True) is generator


def test_any_name_will_do_only_where_it_is_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="has no generator 'gpt-4o-mini'"):
        get_family("blackbox").generator("gpt-4o-mini")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    # A folder of that name does not make what a server calls so a model with weights here.
    assert get_family("tiny").generator("mine", foreign=True).foreign
    assert not get_family("tiny").generator("mine").foreign


@pytest.mark.parametrize("engine", ["api", "imported"])
def test_a_config_takes_any_generator_from_engines_without_weights(engine: str) -> None:
    config = load_config(
        None, ["family=blackbox", "generators=['gpt:4.1/x']", f"generate.engine={engine}"]
    )
    (generator,) = config.generator_presets()
    assert (generator.model, generator.foreign) == ("gpt:4.1/x", True)
    assert config.pair_for(generator) == (READER, AUXILIARY)
    assert config.base_for(generator) is None
    other = load_config(
        None, ["generators=[x]", f"generate.engine={engine}", "trace.reader=r", "trace.auxiliary=s"]
    )
    assert other.pair_for(other.generator_presets()[0]) == ("r", "s")


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_engines_with_weights_take_the_familys_only(engine: str) -> None:
    config = load_config(None, ["generators=['gpt-4']", f"generate.engine={engine}"])
    with pytest.raises(UsageError, match="has no generator 'gpt-4'"):
        config.generator_presets()


def test_the_sampling_of_a_foreign_generator_can_be_given() -> None:
    config = load_config(
        None,
        ["family=blackbox", "generators=[x]", "generate.engine=api", "sampling.top_k=5", "seed=3"],
    )
    (generator,) = config.generator_presets()
    assert config.sampling_for(generator) == Sampling(0.7, 0.8, 5, 0.0, 16384, 3)


def test_the_defaults_of_the_new_sections() -> None:
    config = RunConfig()
    assert config.generate.engine == "transformers"
    api = config.generate.api
    assert (api.base_url, api.key_variable, api.token_limit_field) == (None, None, "max_tokens")
    assert (api.token_ids, api.logprobs, api.extra_body) == (False, False, {})
    assert (api.prompt_price, api.completion_price) == (None, None)
    assert (config.generate.vllm.tensor_parallel, config.generate.vllm.gpu_memory) == (1, None)
    assert (config.trace.server.top_k, config.trace.server.form) == (20, "auto")
    assert (config.servers, config.served_names, config.tokenizers) == ({}, {}, {})


@pytest.mark.parametrize("key", ["generate.api.token_ids", "generate.api.logprobs"])
@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("false", False), ("yes", True), ("off", False)],
)
def test_truth_values_where_they_belong(key: str, text: str, value: bool) -> None:
    api = load_config(None, [f"{key}={text}"]).generate.api
    assert getattr(api, key.rsplit(".", 1)[1]) is value


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("generate.api.token_ids", ["maybe", "2", "[true]", ""]),
        ("generate.api.concurrency", ["true", "no", "0", "1.5"]),
        ("generate.api.max_attempts", ["on", "0"]),
        ("generate.api.timeout_s", ["yes", "0", "-1", ".nan", ".inf"]),
        ("generate.api.deadline_s", ["true", "0"]),
        ("generate.api.base_url", ["true", "8000", "[a]"]),
        ("generate.api.key_variable", ["false", "3"]),
        ("generate.api.prompt_price", ["true", "-0.1", ".inf", ".nan"]),
        ("generate.api.completion_price", ["no", "free"]),
        ("generate.api.token_limit_field", ["max_length", "true"]),
        ("generate.api.extra_body", ["true", "3", "[1]"]),
        ("generate.api", ["true", "1"]),
        ("generate.engine", ["true", "openai", ""]),
        ("generate.vllm.tensor_parallel", ["true", "0"]),
        ("generate.vllm.gpu_memory", ["true", "0", "1.1", ".nan"]),
        ("trace.server.top_k", ["true", "0", "2.5"]),
        ("trace.server.form", ["logprobs", "true"]),
        ("trace.server.timeout_s", ["on"]),
        ("servers", ["true", "http://127.0.0.1:8000/v1", "[a]", "{a: 1}", "{a: true}", "{1: a}"]),
        ("served_names", ["{a: 1}", "x"]),
        ("tokenizers", ["{a: true}"]),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_key(key: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=rf"Config error in the overrides: {key}[. ]"):
            load_config(None, [f"{key}={value}"])


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("generate: {engin: api}", "generate.engin", "Did you mean 'engine'?"),
        ("generate: {api: {baseurl: x}}", "generate.api.baseurl", "Did you mean 'base_url'?"),
        ("generate: {api: {api_key: x}}", "generate.api.api_key", "Known: "),
        ("generate: {vllm: {gpu_mem: 1}}", "generate.vllm.gpu_mem", "Did you mean 'gpu_memory'?"),
        ("trace: {server: {topk: 5}}", "trace.server.topk", "Did you mean 'top_k'?"),
        ("trace: {servers: {a: b}}", "trace.servers", "Did you mean 'server'?"),
        ("server: {a: b}", "server", "Did you mean 'servers'"),
        ("served_name: {a: b}", "served_name", "Did you mean 'served_names'"),
        ("tokenizer: {a: b}", "tokenizer", "Did you mean 'tokenizers'"),
    ],
)
def test_an_unknown_key_is_named(load: Load, text: str, key: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert f"unknown key '{key}'. {hint}" in str(caught.value)


@pytest.mark.parametrize("section", ["servers", "served_names", "tokenizers"])
@pytest.mark.parametrize(
    "name", ["Qwen/Qwen2.5-7B-Instruct", "ollama/qwen2.5:7b", "a.b.c:d", "a model", "123", "x:1.5"]
)
def test_names_with_dots_and_colons_and_values_as_they_are(section: str, name: str) -> None:
    for value in (URL, "https://[::1]:8000/v1", "C: \\#1", "123", "true", "a=b", "null"):
        config = load_config(None, [f"{section}.{name}={value}"])
        assert getattr(config, section) == {name: value}
        again = parse_config(_tree(config), source="run.yaml")
        assert again == config


def _tree(config: RunConfig) -> dict[str, Any]:
    import yaml

    return yaml.safe_load(to_yaml(config))


def test_names_in_a_file(load: Load) -> None:
    text = f"""
servers:
  Qwen/Qwen2.5-7B-Instruct: {URL}
  ollama/qwen2.5:1.5b: http://localhost:11434/v1
tokenizers: {{"ollama/qwen2.5:1.5b": Qwen/Qwen2.5-1.5B-Instruct}}
"""
    config = load(text, "served_names.gpt-4.1=gpt-4.1-2025-04-14", f"servers.q={URL}")
    assert config.servers == {
        "Qwen/Qwen2.5-7B-Instruct": URL,
        "ollama/qwen2.5:1.5b": "http://localhost:11434/v1",
        "q": URL,
    }
    assert config.tokenizers == {"ollama/qwen2.5:1.5b": AUXILIARY}
    assert config.served_names == {"gpt-4.1": "gpt-4.1-2025-04-14"}


def test_what_goes_with_each_request_is_any_json() -> None:
    config = load_config(
        None,
        [
            "generate.api.extra_body.chat_template_kwargs.enable_thinking=false",
            "generate.api.extra_body.min_p=0.05",
            "generate.api.extra_body.seed=null",
            "generate.api.extra_body.stop=['a', \"\\n\"]",
        ],
    )
    body = {
        "chat_template_kwargs": {"enable_thinking": False},
        "min_p": 0.05,
        "seed": None,
        "stop": ["a", "\n"],
    }
    assert config.generate.api.extra_body == body
    assert json.dumps(config.generate.api.extra_body) == json.dumps(body)
    assert parse_config(_tree(config), source="run.yaml") == config


words = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
named = st.dictionaries(words, words, max_size=3)
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words
calls = {
    "key_variable": words,
    "concurrency": st.integers(1, 100),
    "max_attempts": st.integers(1, 100),
    "timeout_s": st.floats(0.001, 1e6),
    "deadline_s": st.floats(0.001, 1e6),
}
api_trees = st.fixed_dictionaries(
    {},
    optional=calls
    | {
        "base_url": words,
        "token_limit_field": st.sampled_from(["max_tokens", "max_completion_tokens"]),
        "token_ids": st.booleans(),
        "logprobs": st.booleans(),
        "extra_body": st.dictionaries(words, values, max_size=3),
        "prompt_price": st.none() | st.floats(0, 1e6),
        "completion_price": st.none() | st.floats(0, 1e6),
    },
)
trees = st.fixed_dictionaries(
    {},
    optional={
        "servers": named,
        "served_names": named,
        "tokenizers": named,
        "generate": st.fixed_dictionaries(
            {"engine": st.sampled_from(["transformers", "vllm", "api", "imported"])},
            optional={"api": api_trees},
        ),
        "trace": st.fixed_dictionaries(
            {"server": st.fixed_dictionaries({}, optional=calls | {"top_k": st.integers(1, 99)})}
        ),
    },
)


@settings(max_examples=60, deadline=None)
@given(tree=trees)
def test_what_is_right_survives_the_way_to_yaml_and_back(tree: dict[str, Any]) -> None:
    config = parse_config(tree, source="here")
    assert parse_config(_tree(config), source="run.yaml") == config


def test_an_imported_run_keeps_its_names_when_it_is_written_out() -> None:
    config = load_config(
        None,
        [
            "family=blackbox",
            "generators=[gpt-4o, 'Qwen/Qwen3-4B-Instruct-2507']",
            "benchmarks=[gsm8k]",
            "generate.engine=imported",
        ],
    )
    found = resolve(config)
    assert found.generators == ["gpt-4o", "Qwen/Qwen3-4B-Instruct-2507"]
    assert found.benchmarks == ["gsm8k"]
    assert found.score.theta == 0.70
    assert found.generate.engine == "imported"
    assert resolve(parse_config(_tree(found), source="run.yaml")) == found
    assert [g.foreign for g in found.generator_presets()] == [True, False]


def test_settings_of_a_server_come_from_its_section() -> None:
    config = load_config(
        None,
        [
            "generate.api.concurrency=3",
            "generate.api.key_variable=MY_KEY",
            "trace.server.timeout_s=5",
            "trace.server.max_attempts=2",
        ],
    )
    api = config.generate.api.settings(URL)
    assert (api.base_url, api.concurrency, api.key_variable) == (URL, 3, "MY_KEY")
    reading = config.trace.server.settings(URL)
    assert (reading.timeout_s, reading.max_attempts, reading.concurrency) == (5.0, 2, 8)


@pytest.mark.parametrize("url", ["", "ftp://x/v1", "127.0.0.1:8000", "http://u:secret@x/v1"])
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="base_url") as caught:
        RunConfig().trace.server.settings(url)
    assert "secret" not in str(caught.value)
