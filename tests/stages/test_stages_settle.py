"""How generators of no family are sampled: as their files say, and as the run was begun."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from any_pair_samples import llamas, write_settings

from divtok.config.run import RunConfig, load_config, resolve, to_yaml
from divtok.errors import ConfigError, ModelError
from divtok.stages.settle import settled
from divtok.store.run import Run

__all__ = ["llamas"]


def config_for(p: Path | str, q: Path | str, *overrides: str) -> RunConfig:
    given = [f"generators=['{p}']", f"trace.auxiliary='{q}'", "benchmarks=[arith-easy]"]
    return load_config(None, [*given, *overrides])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (0.6, 0.95, None)),
        ({"eos_token_id": 2}, (0.6, 0.95, None)),
        ({"do_sample": False, "temperature": 0.7}, (0.6, 0.95, None)),
        ({"temperature": 0, "top_p": 0.5}, (0.6, 0.95, None)),
        ({"temperature": 0.7, "top_p": 0.8, "top_k": 20}, (0.7, 0.8, 20)),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, (0.6, 0.9, None)),
        ({"do_sample": True, "top_k": 64, "top_p": 0.95}, (1.0, 0.95, 64)),
        ({"do_sample": True}, (1.0, 1.0, None)),
        ({"top_k": 0, "temperature": 0.3}, (0.3, 1.0, None)),
    ],
)
def test_what_a_file_says_is_taken(
    tmp_path: Path,
    llamas: tuple[Path, Path],
    settings: Mapping[str, Any],
    expected: tuple[float, float, int | None],
) -> None:
    q, p = llamas  # the second one's file may be written to
    write_settings(p, **settings)
    config = settled(Run.create_or_open(tmp_path / "run"), config_for(p, q))
    sampling = config.sampling_for(config.generator_presets()[0])
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == expected
    assert sampling.max_length == 160


def test_a_run_keeps_what_it_began_with(tmp_path: Path, llamas: tuple[Path, Path]) -> None:
    q, p = llamas
    write_settings(p, temperature=0.7)
    run = Run.create_or_open(tmp_path / "run")
    with run.lock():
        run.write_config(to_yaml(settled(run, config_for(p, q, "samples=3"))))
    write_settings(p, temperature=0.2)
    again = settled(run, config_for(p, q))
    assert again.own_sampling[str(p)].temperature == 0.7
    assert again.samples == 3
    # What is given goes before it.
    given = settled(run, config_for(p, q, "sampling.temperature=1.5"))
    assert given.sampling_for(given.generator_presets()[0]).temperature == 1.5


def test_a_run_keeps_the_theta_it_was_scored_with(
    tmp_path: Path, llamas: tuple[Path, Path]
) -> None:
    q, p = llamas
    run = Run.create_or_open(tmp_path / "run")
    first = settled(run, config_for(p, q))
    assert first.fitted_theta is None
    scored = first.score.model_copy(update={"theta": 0.3, "without_theta": False})
    with run.lock():
        run.write_config(to_yaml(first.model_copy(update={"score": scored})))
    assert settled(run, config_for(p, q)).fitted_theta == 0.3
    assert settled(run, config_for(p, q, "score.theta=0.4")).fitted_theta == 0.4
    assert settled(run, config_for(q, p)).fitted_theta is None  # another pair


def test_wrong_values_in_a_file_are_named(tmp_path: Path, llamas: tuple[Path, Path]) -> None:
    q, p = llamas
    run = Run.create_or_open(tmp_path / "run")
    write_settings(p, temperature=0.7, top_p=3)
    with pytest.raises(ConfigError, match=r"generation_config\.json of .* top_p = 3"):
        settled(run, config_for(p, q))
    (p / "generation_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"generation_config\.json of .* cannot be read"):
        settled(run, config_for(p, q))


def test_a_generator_behind_a_server_has_no_file(tmp_path: Path) -> None:
    overrides = ("generate.engine=api", "trace.reader=divtok/tiny-0.9m")
    config = config_for("gpt", "divtok/tiny-0.5m", *overrides)
    found = settled(Run.create_or_open(tmp_path / "run"), config).own_sampling["gpt"]
    assert (found.temperature, found.top_p, found.max_length) == (0.6, 0.95, 8192)


def test_what_is_settled_with_a_family_is_the_familys(tmp_path: Path) -> None:
    config = load_config(None, [])
    assert settled(Run.create_or_open(tmp_path / "run"), config) is config


def test_theta_without_a_family() -> None:
    known = config_for("divtok/tiny-0.9m", "divtok/tiny-0.3m")
    assert (known.family, known.fitted_theta, known.theta) == (None, 0.05, 0.05)
    unknown = config_for("divtok/tiny-0.9m", "divtok/tiny-0.5m")
    assert (unknown.fitted_theta, unknown.theta) == (None, 0.5)
    assert unknown.parameters_of("dtc_lin") == {}
    written = resolve(unknown)
    assert written.score.without_theta
    assert resolve(written) == written
    given = config_for("divtok/tiny-0.9m", "divtok/tiny-0.5m", "score.theta=0.3")
    assert (given.fitted_theta, resolve(given).score.without_theta) == (0.3, False)
    own = config_for("divtok/tiny-0.9m", "divtok/tiny-0.5m", "score.dtc_lin.theta=0.3")
    assert (own.fitted_theta, own.parameters_of("dtc_lin")) == (None, {"theta": 0.3})
