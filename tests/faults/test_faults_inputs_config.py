"""Names, configs and parameters that nobody should give: refused, and before a model is loaded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from console import Command, divtok

from divtok import api
from divtok.config.run import load_config
from divtok.errors import ConfigError, StoreError, UsageError
from divtok.generate.engines import transformers as local
from divtok.stages import trace as tracing
from divtok.store.run import Run, run_path

__all__ = ["divtok"]

NAMES = ["../x", "a/../../x", "/tmp/x", "..", ".hidden", "a\\b", "x" * 300, "ü" * 150, "nul\0l"]


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(*_: Any, **__: Any) -> None:
        pytest.fail("a model is loaded")

    monkeypatch.setattr(local, "load_model", loaded)
    monkeypatch.setattr(tracing, "load_pair", loaded)
    monkeypatch.setattr("divtok.trace.pair.load_pair", loaded)


@pytest.mark.parametrize("name", NAMES)
def test_fault_03_a_run_name_that_leads_elsewhere_is_refused(
    divtok: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_model: None, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = divtok("run", "--name", name)
    assert found.code == 2
    assert "cannot be the name of a run" in found.error_line
    assert list(tmp_path.iterdir()) == []


def test_fault_03_a_run_name_that_is_a_link_is_refused(
    divtok: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_model: None
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("elsewhere", "runs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "runs" / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="symbolic link"):
        run_path("linked")
    assert "symbolic link" in divtok("run", "--name", "linked").error_line
    assert list((tmp_path / "elsewhere").iterdir()) == []


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "a Python object": ("seed: !!python/object/apply:os.mkdir [ran]", "Not valid YAML"),
    "a Python name": ("seed: !!python/name:os.system", "Not valid YAML"),
    "an alias bomb": (BOMB, "aliases are not allowed"),
    "brackets": ("seed: " + "[" * 10_000 + "]" * 10_000, "Nested more than 32 deep"),
    "braces": ("seed: " + "{a: " * 5_000 + "}" * 5_000, "Nested more than 32 deep"),
    "dashes": ("- " * 10_000, "Nested more than 32 deep"),
    "indentation": ("".join(" " * n + "a:\n" for n in range(190)), "Nested more than 32 deep"),
    "a number in base 60": ("seed: 1" + ":59" * 6_000, "A number of over 400 signs"),
    "digits": ("seed: " + "9" * 20_000, "A number of over 400 signs"),
    "a million bytes": ("# " + "x" * 1_000_000, "is over 1000000 bytes"),
    "an unknown key": ("limt: 3", "unknown key 'limt'. Did you mean 'limit'?"),
    "an unknown key below": ("trace: {dtyp: float32}", "unknown key 'trace.dtyp'. Did you mean"),
    "a key twice": ("seed: 1\nseed: 2", "The key 'seed' is given twice"),
}


@pytest.mark.parametrize(("text", "says"), HOSTILE.values(), ids=HOSTILE)
def test_fault_04_hostile_yaml_is_refused_within_a_second(
    divtok: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_model: None,
    text: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "hostile.yaml"
    file.write_text(text, encoding="utf-8")
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert time.process_time() - began < 1
    assert says in str(caught.value)
    assert str(file) in str(caught.value)
    assert divtok("run", file, "--out", "run").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.yaml"]


@pytest.mark.parametrize("depth", [33, 900, 5_000, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_fault_04_a_deeply_nested_manifest_is_damaged(
    tmp_path: Path, depth: int, opening: str
) -> None:
    run = Run.create_or_open(tmp_path / "run")
    closing = "]" if opening == "[" else "}"
    text = '{"generate": ' + opening * depth + "1" + closing * depth + "}"
    (run.path / "manifest.json").write_text(text, encoding="utf-8")
    began = time.process_time()
    with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
        run.manifest()
    assert time.process_time() - began < 1


OUT_OF_RANGE = {
    "score.theta": (".nan", ".inf", "-.inf", "-0.1", "1.01", "yes", "1e400"),
    "score.n": (".nan", ".inf", "0", "-1", "1.5"),
    "score.a": (".nan", ".inf", "-0.1", "1.1"),
    "score.b": (".nan", ".inf", "-0.1", "1.1", "0.99"),  # above a
    "score.k": (".nan", ".inf", "-1", "0.5"),
    "score.dtc_lin.n": (".nan", ".inf", "0"),
    "score.dtc_lin.theta": (".nan", "2"),
    "sampling.temperature": (".nan", ".inf", "-1", "11"),
    "sampling.top_p": (".nan", "0", "1.1"),
    "sampling.top_k": (".nan", "0"),
}
GIVEN = [f"{key}={value}" for key, values in OUT_OF_RANGE.items() for value in values]


@pytest.mark.parametrize("override", GIVEN)
def test_fault_05_numbers_out_of_range_are_refused_before_a_model_is_loaded(
    divtok: Command, tmp_path: Path, no_model: None, override: str
) -> None:
    with pytest.raises(ConfigError):
        load_config(None, [override])
    found = divtok("run", override, "--out", tmp_path / "run")
    assert found.code == 2
    assert "Config error" in found.error_line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-0.1", "1.5"])
def test_fault_05_a_theta_on_the_command_line_is_refused_before_a_model_is_loaded(
    divtok: Command, tmp_path: Path, no_model: None, value: str
) -> None:
    Run.create_or_open(tmp_path / "run")
    for arguments in (
        ("score", tmp_path / "run", f"--theta={value}"),
        ("confidence", "--question", "q", "--response", "r", f"--theta={value}"),
    ):
        found = divtok(*arguments)
        assert found.code == 2
        assert "theta must be between 0 and 1" in found.error_line


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", "0"), ("n", ".nan"), ("a", ".inf"), ("b", "-1"), ("a", "2"), ("n", "'x'")],
)
def test_fault_05_a_parameter_on_the_command_line_is_refused_before_a_model_is_loaded(
    divtok: Command, no_model: None, name: str, value: str
) -> None:
    asked = ("--question", "q", "--response", "r", "--param", f"{name}={value}")
    found = divtok("confidence", *asked)
    assert found.code == 2
    assert f"{name} must be" in found.error_line


@pytest.mark.parametrize(
    "given",
    [
        {"theta": float("nan")},
        {"theta": float("inf")},
        {"theta": -0.5},
        {"n": 0},
        {"n": float("nan")},
        {"a": float("inf")},
        {"b": -1.0},
        {"estimator": "dtc_prod", "k": -1},
    ],
    ids=str,
)
def test_fault_05_a_parameter_from_python_is_refused_before_anything_is_read(
    given: dict[str, Any],
) -> None:
    pair: Any = object.__new__(api.Pair)  # without any of its parts, which would be an error
    with pytest.raises(UsageError, match="must be"):
        api.confidence("q", "r", pair=pair, **({"theta": 0.1} | given))
