"""One strict config: what is wrong is named, all at once, and what is right survives."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.config.run import RunConfig, load_config, parse_config, to_yaml
from divtok.errors import EXIT_USAGE, ConfigError, UsageError
from divtok.families.family import get_family
from divtok.records import Sampling
from divtok.strict_yaml import MAX_YAML_BYTES

Load = Callable[..., RunConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a config from the text of its file, with overrides on top."""
    path = tmp_path / "run.yaml"

    def load_text(text: str | bytes, *overrides: str) -> RunConfig:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(path, overrides)

    return load_text


def test_nothing_given_is_the_tiny_family_with_the_papers_values() -> None:
    config = load_config(None)
    assert config == RunConfig()
    assert config.preset is get_family("tiny")
    theta = get_family("tiny").theta
    assert config.parameters_of("dtc_lin") == {"theta": theta}
    assert config.bound("dtc_lin") == {"theta": theta, "n": 10, "a": 0.95, "b": 0.05}
    assert config.bound("dtc_prod") == {"theta": theta, "k": 4}
    assert config.bound("nsl") == {}
    evaluate = config.evaluate
    assert (evaluate.draws, evaluate.cap, evaluate.bins) == (5, 500, 20)


@pytest.mark.parametrize("text", ["", "# a comment\n", "---\n"])
def test_an_empty_file_is_an_empty_config(load: Load, text: str) -> None:
    assert load(text) == RunConfig()


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("famly: tiny", "famly", "Did you mean 'family'?"),
        ("scores: {theta: 0.5}", "scores", "Did you mean 'score'?"),
        ("score: {thta: 0.5}", "score.thta", "Did you mean 'theta'?"),
        ("sampling: {temprature: 1}", "sampling.temprature", "Did you mean 'temperature'?"),
        ("generate: {batchsize: 1}", "generate.batchsize", "Did you mean 'batch_size'?"),
        ("grade: {worker: 1}", "grade.worker", "Did you mean 'workers' or 'scorer'?"),
        ("trace: {auxilary: x}", "trace.auxilary", "Did you mean 'auxiliary'?"),
        ("evaluate: {draw: 1}", "evaluate.draw", "Did you mean 'draws'?"),
        ("evaluate: {zzz: 1}", "evaluate.zzz", "Known: bins, cap, draws, resamples."),
    ],
)
def test_an_unknown_key_is_named_at_every_level(load: Load, text: str, key: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert f"unknown key '{key}'. {hint}" in str(caught.value)
    assert caught.value.exit_code == EXIT_USAGE


def test_all_errors_are_in_one_message(load: Load) -> None:
    text = """
        family: qwen9
        famly: tiny
        samples: 0
        sampling: {top_p: 3, temprature: 1}
        score: {a: 0.2, b: 0.4}
        evaluate: {draws: none}
    """
    with pytest.raises(ConfigError) as caught:
        load(text)
    message = str(caught.value)
    assert "run.yaml" in message
    for part in (
        "family = 'qwen9': unknown family. Did you mean",
        "unknown key 'famly'",
        "samples = 0: ",
        "sampling.top_p = 3: ",
        "unknown key 'sampling.temprature'",
        "b (0.4) is above a (0.2)",
        "evaluate.draws = 'none': ",
    ):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("score.theta", ["2", "-0.1", ".nan", ".inf", "much", "[0.5]", "true"]),
        ("score.n", ["0", "-1", "2.5", ".nan", "true"]),
        ("score.a", ["1.1", ".nan"]),
        ("score.b", ["-0.1", ".nan"]),
        ("score.k", ["-1", ".inf", "0.5"]),
        ("sampling.temperature", ["-1", ".nan", ".inf", "11", "yes"]),
        ("sampling.top_p", ["0", "1.01", ".nan"]),
        ("sampling.top_k", ["0", "1.5"]),
        ("sampling.presence_penalty", ["2.1", "-2.1", ".nan"]),
        ("sampling.max_length", ["0", "-5"]),
        ("samples", ["0", "on"]),
        ("limit", ["0", "1.5", "no"]),
        ("seed", ["-1", "x", "1.5", "true", ""]),
        ("protocol", ["coot"]),
        ("generate.dtype", ["fp16", "float64"]),
        ("generate.batch_size", ["0"]),
        ("grade.time_limit", ["0", "601", ".nan"]),
        ("trace.dtype", ["int8"]),
        ("evaluate.bins", ["0"]),
        ("family", ["tinny", "5", "[tiny]"]),
        ("benchmarks", ["[]", "math500", "[1]"]),
        ("generators", ["[]"]),
        ("score.estimators", ["[]", "{a: 1}", "3"]),
        ("benchmark_files", ["x.jsonl", "{a: 1}", "{1: a}"]),
        ("score", ["1", "[1]", ""]),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_key(key: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(
            ConfigError, match=rf"Config error in the overrides: {key}[. ]"
        ) as error:
            load_config(None, [f"{key}={value}"])
        assert error.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    "override",
    [
        "score.theta=0",
        "score.theta=1",
        "score.theta=1e-1",
        "sampling.temperature=0",
        "sampling.top_p=1",
        "score.k=0",
        "score.n=1",
        "samples=null",
        "limit=",
    ],
)
def test_the_ends_of_a_range_are_in_it(override: str) -> None:
    load_config(None, [override])


def test_b_above_a_is_refused_and_equal_is_not() -> None:
    with pytest.raises(ConfigError, match=r"b \(0\.5\) is above a \(0\.4\), so more divergence"):
        load_config(None, ["score.a=0.4", "score.b=0.5"])
    with pytest.raises(ConfigError, match=r"b \(0\.05\) is above a \(0\.0\)"):
        load_config(None, ["score.a=0"])
    assert load_config(None, ["score.a=0.5", "score.b=0.5"]).score.b == 0.5


def test_overrides_stand_over_the_file_and_later_ones_over_earlier(load: Load) -> None:
    text = "seed: 1\nscore: {theta: 0.2, n: 5}\n"
    config = load(text, "score.theta=0.4", "seed=2", "seed=3", "sampling.top_k=7")
    assert (config.seed, config.score.theta, config.score.n) == (3, 0.4, 5)
    assert config.sampling.top_k == 7


def test_an_override_can_be_a_list_or_a_section() -> None:
    config = load_config(None, ["benchmarks=[aime24, amc23]", "score={theta: 0.3}"])
    assert config.benchmark_names() == ["aime24", "amc23"]
    assert config.theta == 0.3


def test_names_below_benchmark_files_and_revisions_may_have_dots() -> None:
    config = load_config(
        None,
        [
            "benchmark_files.my.set.v1=data/my.set.jsonl",
            "benchmark_files.math500=a=b.jsonl",
            "revisions.Qwen/Qwen2.5-7B-Instruct=abc123",
        ],
    )
    assert config.benchmark_files == {"my.set.v1": "data/my.set.jsonl", "math500": "a=b.jsonl"}
    assert config.revisions == {"Qwen/Qwen2.5-7B-Instruct": "abc123"}


@pytest.mark.parametrize("value", ["0123456", "12345", "data/a #1.jsonl", "on", "~", "C:\\x", "[a"])
def test_a_path_or_revision_is_taken_as_it_is_written(value: str) -> None:
    overrides = [f"benchmark_files.x={value}", f"revisions.y={value}"]
    config = load_config(None, overrides)
    assert (config.benchmark_files, config.revisions) == ({"x": value}, {"y": value})


@pytest.mark.parametrize(
    "override", ["seed", "=1", "", "score..theta=1", ".seed=1", "seed.=1", "benchmark_files.=x"]
)
def test_what_is_no_override_is_refused(override: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is not an override\. Write dotted\.key=value"
    ) as caught:
        load_config(None, [override])
    assert caught.value.what.startswith(f"'{override}' ")


def test_an_override_below_a_value_is_refused(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"'seed\.x=1': 'seed' is a value, not a section"):
        load("seed: 1", "seed.x=1")


def test_an_override_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Not valid YAML in 'seed=\[\['"):
        load_config(None, ["seed=[["])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: !!python/object/apply:os.getcwd []", "Not valid YAML"),
        ("seed: !!python/name:os.getcwd", "Not valid YAML"),
        ("seed: !mine 1", "Not valid YAML"),
        ("a: &x [1, 1]\nb: *x", "YAML aliases are not allowed"),
        ("seed: [", "Not valid YAML"),
        ("seed: 1\n---\nseed: 2", "Not valid YAML"),
        (b"seed: \xff", "Not valid YAML"),
        (b"seed: 1\x00", "Not valid YAML"),
        ("seed: 2024-13-45", "Not valid YAML"),
        ("seed: " + "9" * 5000, "A number of over 400 signs"),
        ("[" * 600, "Nested more than 32 deep"),
        ("- seed", "not a mapping of keys to values"),
        ("seed", "not a mapping of keys to values"),
        ("3", "not a mapping of keys to values"),
        ("1: 2", "keys should be strings"),
        ("seed: 1\nlimit: 2\nseed: 3", "The key 'seed' is given twice in"),
        ("score:\n  n: 3\n  n: 4", "The key 'n' is given twice in"),
        ("trace:\n  also: [{reader: a, reader: b}]", "The key 'reader' is given twice in"),
        ("# " + "x" * MAX_YAML_BYTES, "is over 1000000 bytes"),
    ],
)
def test_a_file_that_is_no_config_is_named(load: Load, text: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert message in str(caught.value)
    assert "run.yaml" in str(caught.value)
    assert caught.value.exit_code == EXIT_USAGE


def test_an_alias_bomb_is_refused_at_once(load: Load) -> None:
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 30)]
    with pytest.raises(ConfigError, match="aliases are not allowed"):
        load("\n".join(["l0: &l0 [x]", *levels]))


def test_a_key_given_twice_is_named_with_its_line(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"'seed' is given twice in .*run\.yaml, line 3"):
        load("seed: 1\nlimit: 2\nseed: 3")


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml cannot be read \(No such file") as caught:
        load_config(tmp_path / "absent.yaml")
    assert caught.value.exit_code == EXIT_USAGE
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        load_config(tmp_path)


def test_parse_config_names_its_source() -> None:
    with pytest.raises(ConfigError, match=r"^Config error in the request: seed = -1"):
        parse_config({"seed": -1}, source="the request")


def test_sampling_is_the_generators_with_the_overrides_and_the_seed() -> None:
    config = load_config(
        None, ["family=blackbox", "seed=5", "sampling.temperature=0", "sampling.max_length=100"]
    )
    instruct, _, deepseek = config.generator_presets()
    assert config.sampling_for(instruct) == Sampling(0.0, 0.8, 20, 1.0, 100, 5)
    assert config.sampling_for(deepseek) == Sampling(0.0, 0.95, None, 0.0, 100, 5)
    plain = load_config(None, ["family=blackbox"])
    assert plain.sampling_for(instruct) == Sampling(0.7, 0.8, 20, 1.0, 16384, 0)


def test_samples_are_the_generators_unless_given() -> None:
    config = load_config(None, ["family=qwen2.5"])
    (generator, *_) = config.generator_presets()
    assert config.samples_for(generator, "math500") == 8
    assert config.samples_for(generator, "amc23") == 64
    assert load_config(None, ["samples=3"]).samples_for(generator, "anything") == 3


def test_a_benchmark_without_a_sample_count_needs_one() -> None:
    config = load_config(None, ["family=qwen2.5"])
    (generator, *_) = config.generator_presets()
    with pytest.raises(ConfigError, match=r"'qwen2\.5' .* benchmark 'mine'.*samples=N") as caught:
        config.samples_for(generator, "mine")
    assert caught.value.exit_code == EXIT_USAGE


def test_generators_are_the_familys_or_those_named() -> None:
    models = [g.model for g in load_config(None, ["family=qwen3"]).generator_presets()]
    assert models == ["Qwen/Qwen3-8B", "Qwen/Qwen3-14B", "Qwen/Qwen3-32B"]
    one = load_config(None, ["family=qwen3", "generators=[Qwen/Qwen3-14B]"])
    assert [g.model for g in one.generator_presets()] == ["Qwen/Qwen3-14B"]
    wrong = load_config(None, ["family=qwen3", "generators=[Qwen/Qwen3-15B]"])
    with pytest.raises(UsageError, match=r"no generator 'Qwen/Qwen3-15B'\. Did you mean"):
        wrong.generator_presets()


def test_the_pair_is_the_familys_unless_named() -> None:
    white, black = (load_config(None, [f"family={name}"]) for name in ("gemma3", "blackbox"))
    generator = white.generator_presets()[0]
    assert white.pair_for(generator) == ("google/gemma-3-12b-it", "google/gemma-3-4b-it")
    assert black.pair_for(black.generator_presets()[0]) == (
        "Qwen/Qwen2.5-7B-Instruct",
        "Qwen/Qwen2.5-1.5B-Instruct",
    )
    named = load_config(None, ["family=gemma3", "trace.reader=r", "trace.auxiliary=q"])
    assert named.pair_for(generator) == ("r", "q")


def test_theta_is_the_familys_unless_given() -> None:
    assert load_config(None, ["family=gemma3"]).theta == 0.85
    given = load_config(None, ["family=gemma3", "score.theta=0"])
    assert given.theta == 0.0
    assert given.parameters_of("dtc_lin") == {"theta": 0.0}


def test_benchmarks_are_the_familys_unless_named() -> None:
    names = ["math500", "amc23", "aime24", "aime25"]
    assert load_config(None, ["family=gemma3"]).benchmark_names() == names
    assert load_config(None, ["benchmarks=[mine]"]).benchmark_names() == ["mine"]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
FRACTIONS = st.floats(0, 1, allow_nan=False)
TREES = st.fixed_dictionaries(
    {},
    optional={
        "family": st.sampled_from(["tiny", "qwen2.5", "blackbox"]),
        "generators": st.lists(NAMES, min_size=1, max_size=3),
        "benchmarks": st.lists(NAMES, min_size=1, max_size=3),
        "benchmark_files": st.dictionaries(NAMES, NAMES, max_size=3),
        "revisions": st.dictionaries(NAMES, NAMES, max_size=3),
        "seed": st.integers(0, 2**63 - 1),
        "limit": st.none() | st.integers(1, 10**6),
        "sampling": st.fixed_dictionaries(
            {}, optional={"temperature": st.floats(0, 10), "top_p": st.floats(1e-9, 1)}
        ),
        "score": st.fixed_dictionaries({}, optional={"theta": FRACTIONS, "n": st.integers(1)}),
        "trace": st.fixed_dictionaries({}, optional={"reader": NAMES, "device": NAMES}),
    },
)


@given(tree=TREES)
@settings(max_examples=60, deadline=None)
def test_a_config_survives_its_own_yaml(tmp_path_factory: Any, tree: dict[str, Any]) -> None:
    config = parse_config(tree, source="the test")
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    assert load_config(path) == config


def test_the_yaml_writes_out_every_value() -> None:
    text = to_yaml(load_config(None))
    for section, name in (("grade", "workers"), ("evaluate", "bins"), ("trace", "max_batch_rows")):
        assert re.search(rf"^{section}:\n(  .*\n)*  {name}: \d+$", text, re.MULTILINE)
    # What is left to each estimator stays so, in a stored run, too.
    assert re.search(r"^score:\n(  .*\n)*  n: null\n  a: null\n  b: null\n  k: null\n", text, re.M)


def test_one_estimator_or_set_needs_no_list() -> None:
    assert load_config(None, ["score.estimators=whitebox"]).score.estimators == ["whitebox"]


def test_names_of_models_may_hold_dots_in_overrides() -> None:
    config = load_config(None, ["bases.divtok/tiny-0.5m=/models/base", "projections.a.b=c.d"])
    assert config.bases == {"divtok/tiny-0.5m": "/models/base"}
    assert config.projections == {"a.b": "c.d"}
    assert config.base_for(config.generator_presets()[0]) == "/models/base"


def test_an_unknown_key_of_a_further_pair_is_named() -> None:
    with pytest.raises(ConfigError, match=r"trace\.also\.0\.auxiliry.*auxiliary"):
        load_config(None, ["trace.also=[{auxiliry: x}]"])


@pytest.mark.parametrize(
    ("value", "kept"), [("trained", "trained"), ("8000", 8000), ("null", None)]
)
def test_the_reward_model_reads_any_length_or_up_to_one(value: str, kept: object) -> None:
    assert load_config(None).prm.max_length is None
    assert load_config(None, [f"prm.max_length={value}"]).prm.max_length == kept


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "true", "traned"])
def test_another_length_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"prm\.max_length"):
        load_config(None, [f"prm.max_length={value}"])
