"""Generating: prompts that are too long, and an engine of another package."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from stages_samples import (
    GENERATOR,
    RIGHT_OR_WRONG,
    contents,
    no_models,
    small_config,
    write_responses,
)

from divtok.config.run import RunConfig, load_config, resolve, to_yaml
from divtok.errors import ConfigError, ModelError, StoreError, UsageError
from divtok.generate.engine import ENGINES, Engine, EngineSetup, Generated, Write
from divtok.generate.engines import transformers as local
from divtok.generate.jobs import Job
from divtok.models.load import load_tokenizer
from divtok.protocols.encode import prompt_ids
from divtok.records import Verdict
from divtok.section import Section
from divtok.stages import generate as generation
from divtok.stages.evaluate import results_of
from divtok.stages.failures import failed_rows
from divtok.stages.run import run_stages
from divtok.store.run import Run

SHORT = "Ada has 12 eggs. Ada buys 30 more eggs. How many eggs does Ada have now?"


def questions(folder: Path, *texts: str) -> str:
    """A benchmark file with these questions."""
    path = folder / "sums.jsonl"
    rows = [{"id": str(i), "problem": text, "answer": "42"} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"benchmark_files.sums={path}"


def config_of(folder: Path, *overrides: str) -> RunConfig:
    long = SHORT.replace("more", "more and more " * 100)
    return load_config(
        None,
        [
            f"generators=['{GENERATOR}']",
            "benchmarks=[sums]",
            "samples=2",
            "sampling.max_length=200",
            "evaluate.resamples=20",
            questions(folder, SHORT, long, SHORT.replace("12", "13")),
            *overrides,
        ],
    )


def test_one_prompt_that_is_too_long_costs_its_own_rows_and_no_others(tmp_path: Path) -> None:
    config = config_of(tmp_path, "generate.batch_size=3")
    run = Run.create_or_open(tmp_path / "run")
    run_stages(run, config)
    rows = run.trajectories.read()
    assert [t.failed for t in sorted(rows, key=lambda t: (t.problem_id, t.sample))] == [
        *(False, False),
        *(True, True),
        *(False, False),
    ]
    failed = [t for t in rows if t.failed]
    assert all("leaves no room within max_length 200" in (t.reason or "") for t in failed)
    grades = {g.key: g for g in run.grades.read()}
    assert {grades[t.key].verdict for t in failed} == {Verdict.UNDETERMINED}
    assert len(run.traces.read()) == 4
    assert len(failed_rows(run).reasons) == 2
    assert {e.n for e in results_of(run, config).evaluations} == {4}


def test_a_prompt_that_is_too_long_is_tried_again_when_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path)
    run = Run.create_or_open(tmp_path / "run")
    engine = ENGINES.get("transformers")
    asked: list[list[str]] = []

    @contextmanager
    def counting(setup: EngineSetup) -> Generator[Write]:
        assert engine.open is not None
        with engine.open(setup) as write:

            def noted(batches: Sequence[Sequence[Job]]) -> Iterator[Sequence[Generated]]:
                asked.extend([job.problem.id for job in batch] for batch in batches)
                return write(batches)

            yield noted

    counted = Engine(
        name="transformers",
        summary="",
        weights_here=True,
        open=counting,
        own_identity=engine.identity,
    )
    monkeypatch.setitem(ENGINES._things, "transformers", counted)
    with run.lock():
        generation.generate(run, config)
        first = run.trajectories.read()
        generation.generate(run, config)
        assert len(asked) == 1
        generation.generate(run, config, retry_failed=True)
    assert len(asked) == 2
    again = run.trajectories.read()
    assert sorted(again, key=lambda t: t.key) == sorted(first, key=lambda t: t.key)


class EchoOptions(Section):
    loud: bool = False


@contextmanager
def open_echo(setup: EngineSetup) -> Generator[Write]:
    def write(batches: Sequence[Sequence[Job]]) -> Iterator[Sequence[Generated]]:
        for batch in batches:
            answer = r"\BOXED{42}" if setup.options.loud else r"\boxed{42}"
            yield [Generated(job.trajectory(f"It is {answer}.", "stop")) for job in batch]

    yield write


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an entry point of another package would register it."""
    engine = Engine(
        name="echo", summary="Says 42.", weights_here=False, options=EchoOptions, open=open_echo
    )
    monkeypatch.setitem(ENGINES._things, "echo", engine)


def echo_config(folder: Path, *overrides: str) -> RunConfig:
    return config_of(folder, "generate.engine=echo", "generators=[parrot]", *overrides)


@pytest.mark.usefixtures("echo")
def test_a_run_with_an_engine_of_another_package(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    config = echo_config(tmp_path)
    run_stages(run, config)
    assert {t.text for t in run.trajectories.read()} == {r"It is \boxed{42}."}
    assert {g.verdict for g in run.grades.read()} == {Verdict.CORRECT}
    assert any(c.value is not None for c in run.confidences.read())
    stored = load_config(run.path / "run.yaml")
    assert stored == resolve(config)
    with run.lock(), pytest.raises(StoreError, match="options"):
        generation.generate(run, echo_config(tmp_path, "generate.options.loud=true"))


@pytest.mark.usefixtures("echo")
def test_what_such_an_engine_cannot_do_is_refused(tmp_path: Path) -> None:
    for name, why in (("verbalized", "engine 'echo' cannot be asked"), ("sampled_nsl", "log-pr")):
        run = Run.create_or_open(tmp_path / "run")
        with pytest.raises(ConfigError, match=why):
            run_stages(run, echo_config(tmp_path, f"score.estimators={name}"))


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("generate.options.lod=true", "generate.options.lod: Extra inputs"),
        ("generate.options.loud=perhaps", "generate.options.loud: Input should be a valid bool"),
        ("generate.engine=ecco", "generate.engine = 'ecco': unknown engine. Did you mean 'echo'"),
    ],
)
def test_wrong_options_are_told_by_their_keys(tmp_path: Path, override: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        echo_config(tmp_path, override)
    assert why in str(caught.value)


@pytest.mark.parametrize("engine", ["transformers", "vllm", "api", "imported"])
def test_engines_that_ship_take_no_options_but_their_own_section(engine: str) -> None:
    with pytest.raises(ConfigError, match=f"generate.options: the engine '{engine}' takes none"):
        load_config(None, [f"generate.engine={engine}", "generate.options.x=1"])


def test_a_config_of_before_is_read_as_it_was() -> None:
    """With an engine and the sections of engines, and without `options`."""
    old = to_yaml(load_config(None, ["generate.engine=api", "generate.api.concurrency=3"]))
    assert "  options: {}\n" in old
    config = RunConfig.model_validate(
        {"generate": {"engine": "api", "api": {"concurrency": 3}, "vllm": {"tensor_parallel": 2}}}
    )
    assert (config.generate.options, config.generate.api.concurrency) == ({}, 3)
    assert not config.weights_here


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


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("seed=1", "with seed: 0 -> 1:"),
        ("samples=1", "with samples: 2 -> 1:"),
        ("sampling.temperature=0.25", "with sampling.temperature: 1 -> 0.25:"),
        ("generate.dtype=bfloat16", "with dtype: float32 -> bfloat16:"),
        ("limit=1", "with limit: 2 -> 1:"),
        ("subset_seed=3", "with subset_seed: none -> 3:"),
        ("generators=['divtok/tiny-0.9m']", "without its generator divtok/tiny-0.5m:"),
        ("benchmarks=['arith-easy']", "without its benchmark arith-medium:"),
    ],
)
def test_rows_made_otherwise_are_not_mixed(
    tmp_path: Path, override: str, difference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_responses(tmp_path, small_config(), RIGHT_OR_WRONG)
    no_models(monkeypatch)
    before = contents(run)
    with pytest.raises(StoreError, match="cannot go on") as caught, run.lock():
        generation.generate(run, small_config(override))
    assert difference in caught.value.what
    assert contents(run) == before


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


def test_an_unknown_generator_leaves_no_manifest(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path)
    with pytest.raises(UsageError, match="tiny-5m"), run.lock():
        generation.generate(run, small_config("generators=['divtok/tiny-5m']"))
    assert run.manifest() is None
