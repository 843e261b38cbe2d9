"""A run whose responses come with their traces: the stage trace finds nothing to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages_samples import AUXILIARY, GENERATOR, no_models, small_config

from divtok.config.run import RunConfig, load_config, resolve
from divtok.errors import ConfigError, StoreError
from divtok.records import PER_TOKEN_FIELDS, Trace
from divtok.stages import generate as generation
from divtok.stages import trace as tracing
from divtok.stages.grade import grade
from divtok.stages.run import run_stages
from divtok.store.run import Run
from divtok.store.table import Table
from divtok.trace.pair import load_pair

SPECULATIVE = ("generate.engine=speculative", "generate.batch_size=3")


def speculative(*overrides: str) -> RunConfig:
    return small_config(*SPECULATIVE, *overrides)


def generated(folder: Path, config: RunConfig) -> Run:
    run = Run.create_or_open(folder)
    with run.lock():
        generation.generate(run, config)
    return run


def by_key(run: Run) -> dict[str, Trace]:
    return {trace.key: trace for trace in run.traces.read()}


def same(one: Trace, other: Trace, *, within: float) -> None:
    facts = ("p", "q", "answer_start", "answer_stop", "turn_end", "status", "exact", "retokenized")
    assert [getattr(one, name) for name in facts] == [getattr(other, name) for name in facts]
    for name in PER_TOKEN_FIELDS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=within, rtol=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> Run:
    """A whole run, which reads nothing a second time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "load_pair", None)
        run = Run.create_or_open(tmp_path_factory.mktemp("run") / "run")
        run_stages(run, speculative())
    return run


def test_nothing_is_left_to_trace(whole: Run) -> None:
    trajectories, traces = whole.trajectories.read(), by_key(whole)
    assert {t.key for t in trajectories} == traces.keys()
    assert len(traces) == 8
    read = load_pair(GENERATOR, AUXILIARY, p_device="cpu", q_device="cpu")
    for trace in read.trace_batch(trajectories):
        same(traces[trace.key], trace, within=1e-4)
        difference = np.abs(traces[trace.key].jsd_bits - trace.jsd_bits)
        assert difference.max() < 1e-5
    assert any(c.value is not None for c in whole.confidences.read())
    (maker,) = whole.makers()["traces"]
    assert (maker["models"], maker["dtype"]) == (f"{GENERATOR} {AUXILIARY}", "float32")
    assert load_config(whole.path / "run.yaml") == resolve(speculative())


def test_the_manifest_says_what_the_stage_trace_would_say(whole: Run, tmp_path: Path) -> None:
    other = Run.create_or_open(tmp_path)
    with other.lock():
        tracing.check_pairs(other, small_config())
    section = f"trace {GENERATOR} {AUXILIARY}"
    ours, theirs = whole.manifest(), other.manifest()
    assert ours is not None
    assert theirs is not None
    assert ours[section] == theirs[section]


@pytest.mark.parametrize("table", ["trajectories", "traces"])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    table: str, whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Table.append
    left = [1]

    def stopping(self: Any, rows: Any) -> None:
        if self.layout.name == table and len(rows):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        append(self, rows)

    monkeypatch.setattr(Table, "append", stopping)
    with pytest.raises(KeyboardInterrupt):
        generated(tmp_path / "run", speculative())
    monkeypatch.setattr(Table, "append", append)
    run = Run.open(tmp_path / "run")
    assert 0 < len(run.trajectories.keys()) < 8
    generated(run.path, speculative())
    expected = {t.key: t for t in whole.trajectories.read()}
    assert {t.key: t for t in run.trajectories.read()} == expected
    traces = by_key(whole)
    assert by_key(run).keys() == traces.keys()
    for trace in run.traces.read():
        same(trace, traces[trace.key], within=0.0)  # batches are those of before


def test_traces_that_lack_a_divergence_are_read_and_those_asked_for_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ("limit=1", "samples=1", "benchmarks=['arith-easy']")
    asked = speculative(*one, "trace.divergences=[total_variation]")
    run = generated(tmp_path / "asked", asked)
    (trace,) = run.traces.read()
    assert [len(x) for x in trace.others.values()] == [len(trace)]
    with run.lock(), monkeypatch.context() as patch:
        grade(run, asked)
        no_models(patch)
        tracing.trace(run, asked)  # nothing to read
    run = generated(tmp_path / "later", speculative(*one))
    (before,) = run.traces.read()
    with run.lock():
        tracing.trace(run, asked)
    (after,) = run.traces.read()
    assert (len(before.others), len(after.others)) == (0, 1)
    same(before, after, within=1e-4)


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("trace.reader=divtok/tiny-0.9m", "responses read by divtok/tiny-0.9m"),
        ("trace.dtype=bfloat16", "in float32, but it is to be traced in bfloat16"),
        (f"trace.auxiliary={GENERATOR}", "cannot draft for itself"),
    ],
)
def test_what_would_not_be_the_stages_traces_is_refused(
    override: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_models(monkeypatch)
    with pytest.raises(ConfigError, match=why):
        generated(tmp_path, speculative(override))
    assert Run.open(tmp_path).manifest() is None


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("generate.speculative.k=2", "generate.speculative.k: 4 -> 2"),
        ("generate.engine=transformers", "generate.engine: speculative -> (absent)"),
        ("trace.auxiliary=divtok/tiny-0.9m", "trace.auxiliary: divtok/tiny-0.3m -> "),
    ],
)
def test_rows_drawn_otherwise_are_not_mixed(override: str, difference: str, whole: Run) -> None:
    with pytest.raises(StoreError, match="cannot go on with") as caught:
        generation.generate(whole, speculative(override))
    assert difference in caught.value.what
