"""Tracing a run: which pairs read, what is read again, and what is not mixed."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages_samples import (
    AUXILIARY,
    GENERATOR,
    ONE_RESPONSE,
    RIGHT_OR_WRONG,
    finish,
    no_models,
    small_config,
    write_responses,
)

from divtok.config.run import load_config
from divtok.divergences.divergence import DIVERGENCES, Divergence
from divtok.errors import ModelError, StoreError, UsageError
from divtok.records import PER_TOKEN_FIELDS, Reason, Trace
from divtok.score.registry import ESTIMATORS, Estimator
from divtok.stages import trace as tracing
from divtok.stages.choices import check_choices
from divtok.stages.score import score


def test_traces_of_other_numbers_are_not_mixed(tmp_path: Path) -> None:
    config = small_config(*ONE_RESPONSE)
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    section = config.trace.model_copy(update={"dtype": "bfloat16"})
    with pytest.raises(StoreError, match="float32 -> bfloat16"), run.lock():
        tracing.trace(run, config.model_copy(update={"trace": section}))


def test_further_pairs_are_traced_beside_the_scored_one_and_change_no_score(tmp_path: Path) -> None:
    config = small_config(*ONE_RESPONSE)
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    before = run.confidences.read()
    pairs = "[{auxiliary: divtok/tiny-1.6m}, {reader: divtok/tiny-0.9m}, {auxiliary: %s}]"
    more = small_config(*ONE_RESPONSE, f"trace.also={pairs % GENERATOR}")
    finish(run, more)
    (key,) = {t.key for t in run.trajectories.read()}
    # A generator is no auxiliary of its own.
    assert run.traces.keys() == {
        (key, GENERATOR, AUXILIARY),
        (key, GENERATOR, "divtok/tiny-1.6m"),
        (key, "divtok/tiny-0.9m", AUXILIARY),
    }
    assert run.confidences.read() == before
    counts = {(t.p, t.q): float(t.jsd_bits.sum()) for t in run.traces.read()}
    assert len(set(counts.values())) == 3


def test_one_pair_is_let_go_before_the_next_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(*ONE_RESPONSE, "trace.also=[{auxiliary: divtok/tiny-1.6m}]")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    loaded: list[weakref.ref[Any]] = []
    real = tracing.load_pair

    def watched(*arguments: Any, **options: Any) -> Any:
        gc.collect()
        assert all(weight() is None for weight in loaded)
        pair = real(*arguments, **options)
        loaded.append(weakref.ref(pair.q.head.weight))
        return pair

    monkeypatch.setattr(tracing, "load_pair", watched)
    finish(run, config)
    assert len(loaded) == 2


def test_only_the_pair_that_failed_is_traced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(*ONE_RESPONSE, "trace.also=[{auxiliary: divtok/tiny-1.6m}]")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    traces = run.traces.read()
    empty = dict.fromkeys(PER_TOKEN_FIELDS, np.empty(0, dtype=np.float32))
    failed = [
        dataclasses.replace(t, **empty, status="nonfinite", reason="NaN")
        if t.q == "divtok/tiny-1.6m"
        else t
        for t in traces
    ]
    with run.lock():
        run.traces.replace(failed)
    asked: list[str] = []
    real = tracing.load_pair
    monkeypatch.setattr(
        tracing, "load_pair", lambda p, q, **options: asked.append(q) or real(p, q, **options)
    )
    with run.lock():
        tracing.trace(run, config, retry_failed=True)
    assert asked == ["divtok/tiny-1.6m"]
    assert {t.status for t in run.traces.read()} == {"ok"}


def test_another_pair_can_be_scored_without_losing_the_first(tmp_path: Path) -> None:
    config = small_config(*ONE_RESPONSE)
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    (first,) = run.traces.read()
    finish(run, small_config(*ONE_RESPONSE, "trace.reader=divtok/tiny-0.9m"))
    assert {t.key for t in run.traces.read() if t.p == GENERATOR} == {first.key}
    scores = {c.estimator: c.value for c in run.confidences.read()}
    (second,) = [t for t in run.traces.read() if t.p == "divtok/tiny-0.9m"]
    assert scores["nsl"] == pytest.approx(np.exp(second.logprob_p.mean()))
    assert scores["nsl"] != pytest.approx(np.exp(first.logprob_p.mean()))


def test_an_auxiliary_that_cannot_be_read_can_be_put_right(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    wrong = small_config("limit=1", f"trace.auxiliary={broken}")
    run = write_responses(tmp_path / "run", wrong, RIGHT_OR_WRONG)
    with pytest.raises(ModelError, match="cannot be read"):
        finish(run, wrong)
    finish(run, small_config("limit=1"))
    assert len(run.traces.read()) == 4


def test_a_missing_auxiliary_is_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_models(monkeypatch)
    with pytest.raises(ModelError, match="no model folder '/nonexistent'"):
        check_choices(small_config("trace.auxiliary=/nonexistent"))
    with pytest.raises(UsageError, match="dtc_lim"):
        check_choices(small_config("score.estimators=['dtc_lim']"))
    check_choices(small_config())


def test_each_model_of_a_pair_is_asked_for_its_type_where_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {}

    def resolve(ref: str, dtype: str, *, device: str | None, **_: Any) -> str:
        asked[ref] = device
        return dtype

    monkeypatch.setattr("divtok.config.loading.resolve_dtype", resolve)
    config = load_config(
        None, ["generators=['divtok/tiny-0.5m']", "trace.device=cpu", "trace.q_device=cuda:1"]
    )
    tracing._pair_identity(config, "divtok/tiny-0.5m", "divtok/tiny-0.3m")
    assert asked == {"divtok/tiny-0.5m": "cpu", "divtok/tiny-0.3m": "cuda:1"}


def with_total_variation(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimator of a divergence that a trace has only if it is asked for."""

    def agreement(trace: Trace) -> float:
        return 1 - float(np.mean(trace.others["total_variation"], dtype=np.float64))

    spec = Estimator(
        "agreement", agreement, ("total_variation",), {},
        bounded=True, ranking_only=False, summary="", label="Agreement",
    )  # fmt: skip
    monkeypatch.setitem(ESTIMATORS._things, "agreement", spec)
    monkeypatch.setitem(ESTIMATORS._origins, "agreement", "a test")


def test_a_divergence_that_was_not_traced_is_said_and_traced_for_the_rows_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_total_variation(monkeypatch)
    # Each row in a batch of its own: where one of a batch lacks something all of it is made anew.
    config = small_config("score.estimators=['nsl']", "trace.max_batch_rows=1")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    traces = {t.key: replace(t, others={}) for t in run.traces.read()}
    with run.lock():
        run.traces.replace(list(traces.values()))  # as a version that did not know it left them
    asked = small_config("score.estimators=['nsl','agreement']", "trace.max_batch_rows=1")
    with run.lock():
        score(run, asked)
    found = {(c.key, c.estimator): c for c in run.confidences.read()}
    for key in traces:
        lacking = found[key, "agreement"]
        assert (lacking.value, lacking.reason) == (None, "total_variation: not traced")
        assert isinstance(lacking.reason, Reason)
        assert lacking.reason.kind == "not_traced"
        assert found[key, "nsl"].value is not None
    assert "no value at all for agreement (total_variation: not traced)" in capsys.readouterr().err

    # Two rows have it already, and one could not be read.
    had, failed = list(traces)[1:3], list(traces)[5]
    marked = [
        replace(traces[k], others={"total_variation": np.full(len(traces[k]), 0.25, np.float32)})
        for k in had
    ]
    none = dict.fromkeys(PER_TOKEN_FIELDS, np.empty(0, np.float32))
    lost = replace(traces[failed], **none, status="nonfinite", reason="NaN")
    written: list[str] = []
    with run.lock():
        run.traces.append([*marked, lost])
        append = run.traces.append
        monkeypatch.setattr(
            run.traces, "append", lambda rows: written.extend(t.key for t in rows) or append(rows)
        )
        tracing.trace(run, asked)
    assert sorted(written) == sorted(set(traces) - {*had, failed})
    again = {t.key: t for t in run.traces.read()}
    for key, trace in again.items():
        if key in had:
            assert set(trace.others["total_variation"].tolist()) == {0.25}
        elif key == failed:
            assert trace.status == "nonfinite"
        else:
            for name in PER_TOKEN_FIELDS:
                before, after = getattr(traces[key], name), getattr(trace, name)
                np.testing.assert_allclose(after, before, atol=1e-5)
            # The Jensen-Shannon divergence in bits is never above it.
            distance = trace.others["total_variation"]
            assert len(distance) == len(trace)
            assert ((trace.jsd_bits <= distance + 1e-6) & (distance <= 1)).all()
            assert distance.max() > 0
    no_models(monkeypatch)
    with run.lock():
        tracing.trace(run, asked)
        score(run, asked)
    values = {c.key: c.value for c in run.confidences.read() if c.estimator == "agreement"}
    assert [values[key] for key in had] == [0.75, 0.75]
    assert [key for key, value in values.items() if value is None] == [failed]


def test_a_further_divergence_may_be_asked_for_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another package, which no kernel knows: the largest difference of any token."""
    largest = Divergence(
        "largest", "", label="", column="largest", unit="probability", highest=1.0,
        of=lambda log_p, log_q: (log_p.exp() - log_q.exp()).abs().amax(dim=-1),
    )  # fmt: skip
    monkeypatch.setitem(DIVERGENCES._things, "largest", largest)
    config = small_config(*ONE_RESPONSE)
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    (before,) = run.traces.read()
    assert "largest" not in before.others
    asked = small_config(*ONE_RESPONSE, "trace.divergences=['largest']")
    with run.lock():
        tracing.trace(run, asked)
        (trace,) = run.traces.read()
        found, whole = trace.others["largest"], trace.others["total_variation"]
        assert ((found > 0) & (found <= whole + 1e-6)).all()
        np.testing.assert_allclose(trace.jsd_bits, before.jsd_bits, atol=1e-5)
        no_models(monkeypatch)
        tracing.trace(run, asked)
        tracing.trace(run, config)  # what is more than is asked for does no harm
