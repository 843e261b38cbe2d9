"""The stages over a run folder: what they make, what they refuse and what they do again."""

from __future__ import annotations

import dataclasses
import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages_samples import (
    AUXILIARY,
    GENERATOR,
    contents,
    rows_of,
    small_config,
    write_responses,
)

from divtok.config.run import RunConfig, load_config
from divtok.errors import DataError, ModelError, NothingScoredError, StoreError, UsageError
from divtok.generate.engines import transformers as local
from divtok.models.load import load_tokenizer
from divtok.protocols.encode import prompt_ids
from divtok.records import PER_TOKEN_FIELDS, Grade, Verdict
from divtok.score import expand_estimators
from divtok.stages import generate as generation
from divtok.stages import grade as stages
from divtok.stages import trace as tracing
from divtok.stages.choices import check_choices
from divtok.store.run import Run

RIGHT_OR_WRONG = (r"3 + 4 = 7, so the answer is \boxed{7}.", r"So we get \boxed{915}.")


def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(local, "load_model", refuse)
    monkeypatch.setattr(tracing, "load_pair", refuse)


def finish(run: Run, config: RunConfig, **options: bool) -> None:
    """All stages behind `generate`."""
    with run.lock():
        stages.grade(run, config, **options)
        tracing.trace(run, config, **options)
        stages.score(run, config)


def test_jobs_come_by_problem_then_sample_with_keys_of_their_own() -> None:
    config = small_config("seed=7", "sampling.temperature=0.5")
    generator = config.generator_presets()[0]
    problems = [p for name in config.benchmark_names() for p in generation.load_benchmark(name)[:2]]
    jobs = generation.plan_jobs(config, generator, problems)
    assert [(job.problem, job.sample) for job in jobs] == [(p, s) for p in problems for s in (0, 1)]
    assert len({job.key for job in jobs}) == len(jobs) == 8
    assert {(job.generator, job.sampling.seed, job.sampling.temperature) for job in jobs} == {
        (GENERATOR, 7, 0.5)
    }


def test_generated_trajectories_belong_to_their_problems(tmp_path: Path) -> None:
    config = small_config("limit=1", "sampling.max_length=110", "generate.batch_size=3")
    run = Run.create_or_open(tmp_path)
    with run.lock():
        generation.generate(run, config)
    tokenizer = load_tokenizer(GENERATOR)
    problems = {(p.benchmark, p.id): p for p in run.problems.read()}
    assert len(problems) == 2
    trajectories = run.trajectories.read()
    assert len(trajectories) == 4
    for trajectory in trajectories:
        question = problems[trajectory.benchmark, trajectory.problem_id].question
        assert trajectory.prompt_ids == prompt_ids(tokenizer, question)
        assert trajectory.text == tokenizer.decode(trajectory.token_ids, skip_special_tokens=True)
        assert len(trajectory.prompt_ids) + len(trajectory.token_ids) <= 110


def test_a_finished_run_needs_no_model_and_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config()
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    before = contents(run)
    assert {name: len(rows) for name, rows in before.items() if rows} == {
        "problems": 4,
        "trajectories": 8,
        "grades": 8,
        "traces": 8,
        "confidences": 8 * len(expand_estimators(["trace"])),
    }
    no_models(monkeypatch)
    capsys.readouterr()
    with run.lock():
        generation.generate(run, config)
    finish(run, config)
    assert contents(run) == before
    said = capsys.readouterr().err
    for stage in ("generate", "grade", "trace"):
        assert any(
            line.startswith(stage) and line.endswith("8 of 8 are there already")
            for line in said.splitlines()
        )


def test_rows_of_a_lost_shard_are_made_again(tmp_path: Path) -> None:
    config = small_config("trace.max_batch_rows=3")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    before = contents(run)
    for table in (run.problems, run.grades, run.traces):
        shards = sorted(table.folder.iterdir())
        shards[0].unlink()
    with run.lock():
        generation.generate(run, config)
    finish(run, config)
    after = contents(run)
    assert {name: sorted(rows) for name, rows in after.items() if name != "confidences"} == {
        name: sorted(rows) for name, rows in before.items() if name != "confidences"
    }


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("seed=1", "generate.seed: 0 -> 1"),
        ("samples=3", "generate.samples.divtok/tiny-0.5m.arith-easy: 2 -> 3"),
        (
            "sampling.temperature=0.25",
            "generate.sampling.divtok/tiny-0.5m.temperature: 1.0 -> 0.25",
        ),
        ("generate.dtype=bfloat16", 'generate.dtype.divtok/tiny-0.5m: "float32" -> "bfloat16"'),
        ("limit=1", "problems.benchmarks.arith-easy: "),
        ("generators=['divtok/tiny-0.9m']", "generate.models.divtok/tiny-0.5m: "),
    ],
)
def test_rows_made_otherwise_are_not_mixed(
    tmp_path: Path, override: str, difference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_responses(tmp_path, small_config(), RIGHT_OR_WRONG)
    no_models(monkeypatch)
    before = contents(run)
    with pytest.raises(StoreError, match="another configuration") as caught, run.lock():
        generation.generate(run, small_config(override))
    assert difference in caught.value.what
    assert contents(run) == before


ONE_RESPONSE = ("limit=1", "samples=1", "benchmarks=['arith-easy']")


def test_traces_of_other_numbers_are_not_mixed(tmp_path: Path) -> None:
    config = small_config(*ONE_RESPONSE)
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    section = config.trace.model_copy(update={"dtype": "bfloat16"})
    with pytest.raises(StoreError, match=r'"float32" -> "bfloat16"'), run.lock():
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


def test_an_attempt_that_sampled_nothing_binds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: Any, **__: Any) -> None:
        raise ModelError("The model cannot be read.")

    monkeypatch.setattr(local, "load_model", unreadable)
    run = Run.create_or_open(tmp_path)
    with pytest.raises(ModelError), run.lock():
        generation.generate(run, small_config("seed=1", "limit=3"))
    assert len(run.problems.read()) == 6
    run = write_responses(tmp_path, small_config("seed=2", "limit=1"), RIGHT_OR_WRONG)
    assert [p.id for p in run.problems.read()] == [
        generation.load_benchmark(name)[0].id for name in ("arith-easy", "arith-medium")
    ]
    manifest = run.manifest()
    assert manifest is not None
    assert manifest["generate"]["seed"] == 2


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


def test_count_and_length_are_always_scored(tmp_path: Path) -> None:
    config = small_config("limit=1", "score.estimators=['nsl']")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    assert {c.estimator for c in run.confidences.read()} == {"nsl", "count", "length"}


def test_scoring_again_puts_new_confidences_in_the_place_of_the_old(tmp_path: Path) -> None:
    config = small_config("limit=1", "score.theta=0.05")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    low = {c.key: c.value for c in run.confidences.read() if c.estimator == "count"}
    with run.lock():
        stages.score(run, small_config("limit=1", "score.theta=1"))
    high = {c.key: c.value for c in run.confidences.read() if c.estimator == "count"}
    assert low.keys() == high.keys()
    assert set(high.values()) == {0.0}, "no divergence is above one bit"
    assert min(value for value in low.values() if value is not None) < 0


def test_empty_responses_are_failed_rows_with_a_reason(tmp_path: Path) -> None:
    config = small_config("limit=1")
    run = write_responses(tmp_path, config, (RIGHT_OR_WRONG[0], ""))
    finish(run, config)
    assert stages.failed_rows(run) == ["trace: the response has no tokens"] * 2
    failed = [t for t in run.traces.read() if t.status == "empty"]
    unscored = [c for c in run.confidences.read() if c.value is None]
    assert {c.key for c in unscored} == {t.key for t in failed}
    assert {c.reason for c in unscored} == {"empty: the response has no tokens"}


def test_nothing_scored_leaves_the_old_confidences_alone(tmp_path: Path) -> None:
    config = small_config("limit=1")
    run = write_responses(tmp_path, config, ("",))
    with pytest.raises(NothingScoredError, match="Not one trajectory"):
        finish(run, config)
    assert run.confidences.read() == []


def test_retrying_redoes_the_undecided_and_the_failed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config("limit=1", "trace.max_batch_rows=3")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    grades, traces = run.grades.read(), run.traces.read()
    good = rows_of(run.traces)
    empty = {name: getattr(traces[1], name)[:0] for name in ("jsd_bits", "logprob_p")}
    with run.lock():
        run.grades.append([Grade(grades[0].key, "7", Verdict.UNDETERMINED, "timeout after 1 s")])
        run.traces.append([replace(traces[1], status="nonfinite", reason="NaN", **empty)])
    finish(run, config)
    assert run.grades.read()[-1].verdict == Verdict.UNDETERMINED
    assert len(stages.failed_rows(run)) == 1
    finish(run, config, retry_failed=True)
    assert sorted(run.grades.read(), key=lambda g: g.key) == sorted(grades, key=lambda g: g.key)
    assert sorted(rows_of(run.traces)) == sorted(good)
    assert stages.failed_rows(run) == []


def test_stages_ask_for_the_one_before(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path)
    for stage in (stages.grade, tracing.trace):
        with pytest.raises(DataError, match="no trajectories yet"), run.lock():
            stage(run, small_config())


def test_an_unknown_generator_leaves_no_manifest(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path)
    with pytest.raises(UsageError, match="tiny-5m"), run.lock():
        generation.generate(run, small_config("generators=['divtok/tiny-5m']"))
    assert run.manifest() is None


def test_the_manifest_names_what_the_rows_depend_on(tmp_path: Path) -> None:
    config = small_config("limit=1", "seed=3")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert set(manifest) == {"problems", "generate", f"trace {GENERATOR} {AUXILIARY}"}
    assert set(manifest["problems"]["benchmarks"]) == {"arith-easy", "arith-medium"}
    assert manifest["generate"]["seed"] == 3
    pair = manifest[f"trace {GENERATOR} {AUXILIARY}"]
    assert pair["dtype"] == {GENERATOR: "float32", AUXILIARY: "float32"}
    assert set(pair["models"]) == {GENERATOR, AUXILIARY}


def test_each_model_of_a_pair_is_asked_for_its_type_where_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {}

    def resolve(ref: str, dtype: str, *, device: str | None, **_: Any) -> str:
        asked[ref] = device
        return dtype

    monkeypatch.setattr("divtok.stages.common.resolve_dtype", resolve)
    config = load_config(
        None, ["generators=['divtok/tiny-0.5m']", "trace.device=cpu", "trace.q_device=cuda:1"]
    )
    tracing._pair_identity(config, "divtok/tiny-0.5m", "divtok/tiny-0.3m")
    assert asked == {"divtok/tiny-0.5m": "cpu", "divtok/tiny-0.3m": "cuda:1"}
