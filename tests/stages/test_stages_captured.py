"""A run whose generator captures: switched on and off as one likes, with the stage's traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages_samples import AUXILIARY, GENERATOR, ONE_RESPONSE, no_models, small_config
from test_stages_speculative import by_key, generated, same

from divtok.config.run import RunConfig, load_config, resolve
from divtok.errors import ConfigError
from divtok.generate.captured import CapturingPair
from divtok.stages import trace as tracing
from divtok.stages.grade import grade
from divtok.stages.run import run_stages
from divtok.store.run import Run
from divtok.store.table import Table

CAPTURE = "generate.transformers.capture=true"


def config_of(*overrides: str) -> RunConfig:
    return small_config("generate.batch_size=3", *overrides)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> Run:
    """A whole run, which reads nothing with both models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "load_pair", refuse)
        run = Run.create_or_open(tmp_path_factory.mktemp("run") / "run")
        run_stages(run, config_of(CAPTURE))
    return run


@pytest.fixture(scope="module")
def apart(tmp_path_factory: Any) -> Run:
    """The same without capture: written first, and then read."""
    run = generated(tmp_path_factory.mktemp("run") / "apart", config_of())
    with run.lock():
        grade(run, config_of())
        tracing.trace(run, config_of())
    return run


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("a pair was loaded to trace with")


def test_a_run_is_the_same_with_and_without(whole: Run, apart: Run) -> None:
    ours, theirs = ({t.key: t for t in run.trajectories.read()} for run in (whole, apart))
    assert ours == theirs
    assert len(ours) == 8
    captured, read = by_key(whole), by_key(apart)
    assert captured.keys() == read.keys() == ours.keys()
    for key, trace in captured.items():
        same(trace, read[key], within=1e-4)
        assert np.abs(trace.jsd_bits - read[key].jsd_bits).max() < 1e-5
    ours, theirs = whole.manifest(), apart.manifest()
    assert ours is not None
    assert theirs is not None
    for section in ("generate", f"trace {GENERATOR} {AUXILIARY}"):
        assert ours[section] == theirs[section]
    assert any(c.value is not None for c in whole.confidences.read())
    (maker,) = whole.makers()["traces"]
    assert (maker["models"], maker["dtype"]) == (f"{GENERATOR} {AUXILIARY}", "float32")
    assert load_config(whole.path / "run.yaml") == resolve(config_of(CAPTURE))


@pytest.mark.parametrize("first", [True, False], ids=["on, then off", "off, then on"])
def test_a_run_goes_on_with_it_switched(
    first: bool, apart: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was captured stays, and what was not is read by the stage trace, that alone."""
    part = config_of(f"generate.transformers.capture={first}", "benchmarks=['arith-easy']")
    rest = config_of(f"generate.transformers.capture={not first}")
    run = generated(tmp_path / "run", part)
    assert len(run.traces.keys()) == (4 if first else 0)
    run = generated(run.path, rest)
    assert {t.key: t for t in run.trajectories.read()} == {
        t.key: t for t in apart.trajectories.read()
    }
    captured = by_key(run)
    assert len(captured) == 4
    with run.lock():
        grade(run, rest)
        tracing.trace(run, rest)
    after, read = by_key(run), by_key(apart)
    for key, trace in captured.items():
        same(after[key], trace, within=0.0)
    for key, trace in after.items():
        same(trace, read[key], within=1e-4)
    assert len(after) == 8


@pytest.mark.parametrize("table", ["trajectories", "traces"])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    table: str, whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, left = Table.append, [1]

    def stopping(self: Any, rows: Any) -> None:
        if self.layout.name == table and len(rows):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        append(self, rows)

    monkeypatch.setattr(Table, "append", stopping)
    with pytest.raises(KeyboardInterrupt):
        generated(tmp_path / "run", config_of(CAPTURE))
    monkeypatch.setattr(Table, "append", append)
    run = Run.open(tmp_path / "run")
    assert 0 < len(run.trajectories.keys()) < 8
    generated(run.path, config_of(CAPTURE))
    expected, traces = {t.key: t for t in whole.trajectories.read()}, by_key(whole)
    assert {t.key: t for t in run.trajectories.read()} == expected
    assert by_key(run).keys() == traces.keys()
    for trace in run.traces.read():
        same(trace, traces[trace.key], within=0.0)  # batches are those of before


def test_divergences_that_are_asked_for_are_captured_and_the_budget_is_that_of_tracing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = config_of(
        CAPTURE,
        *ONE_RESPONSE,
        "trace.divergences=[total_variation]",
        "trace.max_batch_tokens=321",
        "trace.workspace_mb=7",
    )
    budgets: list[tuple[int, int | None]] = []
    write = CapturingPair.generate_batch

    def watched(pair: CapturingPair, jobs: Any) -> Any:
        budgets.append((pair.budget.tokens, pair.budget.workspace_bytes))
        return write(pair, jobs)

    monkeypatch.setattr(CapturingPair, "generate_batch", watched)
    run = generated(tmp_path / "asked", asked)
    (trace,) = run.traces.read()
    assert [len(x) for x in trace.others.values()] == [len(trace)]
    assert budgets == [(321, 7_000_000)]
    with run.lock():
        grade(run, asked)
        no_models(monkeypatch)
        tracing.trace(run, asked)  # nothing to read


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("trace.reader=divtok/tiny-0.9m", "responses read by divtok/tiny-0.9m"),
        ("trace.dtype=bfloat16", "in float32, but it is to be traced in bfloat16"),
    ],
)
def test_what_would_not_be_the_stages_traces_is_refused(
    override: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_models(monkeypatch)
    with pytest.raises(ConfigError, match=why):
        generated(tmp_path, config_of(CAPTURE, override))
    assert Run.open(tmp_path).manifest() is None


def test_another_engine_takes_nothing_of_it() -> None:
    config = config_of(CAPTURE, "generate.engine=vllm")
    assert not config.generate.gives_traces
    assert config_of(CAPTURE).generate.gives_traces
    assert config_of("generate.engine=speculative").generate.gives_traces
