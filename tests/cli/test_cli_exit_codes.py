"""Runs that end with rows missing: 3 where some failed, 4 where nothing could be scored."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_samples import GENERATOR, SMALL
from console import Command

from divtok.config.run import load_config
from divtok.models.load import load_tokenizer
from divtok.protocols.encode import prompt_ids, response_ids
from divtok.records import Trajectory
from divtok.report import write
from divtok.stages import generate as generation
from divtok.store.run import Run

pytestmark = pytest.mark.usefixtures("benchmarks_loaded_once")
GOOD, EMPTY = r"3 + 4 = 7, so it is \boxed{7}.", ""


def sampled(folder: Path, *texts: str) -> None:
    """A run with these responses in turn, as if its generator had written them."""
    config = load_config(None, SMALL)
    generator = config.generator_presets()[0]
    tokenizer = load_tokenizer(generator.model)
    run = Run.create_or_open(folder)
    with run.lock():
        jobs = generation.plan_jobs(config, generator, generation.prepare(run, config))
        rows: list[Trajectory] = []
        for index, job in enumerate(jobs):
            text = texts[index % len(texts)]
            row = Trajectory(
                key=job.key,
                problem_id=job.problem.id,
                benchmark=job.problem.benchmark,
                sample=job.sample,
                generator=job.generator,
                prompt_ids=prompt_ids(tokenizer, job.problem.question),
                token_ids=response_ids(tokenizer, text),
                text=text,
                finish_reason="stop",
                protocol=job.protocol,
                sampling=job.sampling,
            )
            rows.append(row)
        run.trajectories.append(rows)


def test_some_failed_rows_end_a_run_with_3(
    tmp_path: Path, divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not write_report: a module that is first imported now would keep what is put in its place.
    monkeypatch.setattr(write, "save_figure", lambda *_, **__: [])
    sampled(tmp_path, GOOD, EMPTY)
    said = divtok("run", *SMALL, "--out", tmp_path)
    assert said.code == 3
    assert said.err.splitlines()[-1] == (
        "4 rows could not be made; the first: trace: the response has no tokens. "
        "Trying again would give the same."
    )
    assert "ECE on balanced draws (%" in said.out
    assert len(Run.open(tmp_path).evaluations.read()) == 20


def test_tracing_tells_of_failed_rows_each_time(tmp_path: Path, divtok: Command) -> None:
    sampled(tmp_path, GOOD, GOOD, GOOD, EMPTY)
    for arguments in ((), ("--retry-failed",), ()):
        said = divtok("trace", tmp_path, *arguments)
        assert said.code == 3
        assert "2 rows could not be made" in said.err
    assert divtok("grade", tmp_path).code == 0
    assert divtok("score", tmp_path).code == 0
    assert divtok("evaluate", tmp_path).code == 0


def test_rows_that_were_not_read_end_scoring_with_3(tmp_path: Path, divtok: Command) -> None:
    sampled(tmp_path, GOOD)
    assert divtok("trace", tmp_path).code == 0
    run = Run.open(tmp_path)
    kept = run.traces.read()[1:]
    with run.lock():
        run.traces.replace(kept)
    advice = f"read them: divtok score {tmp_path} --family tiny"
    for _ in range(2):
        said = divtok("score", tmp_path)
        assert said.code == 3
        assert said.err.splitlines()[-1] == (
            f"score: 1 of 8 responses were not read yet, so they have no confidence; {advice}"
        )
    assert divtok("score", tmp_path, "--family", "tiny").code == 0
    assert divtok("score", tmp_path).code == 0


def test_nothing_to_score_ends_with_4(tmp_path: Path, divtok: Command) -> None:
    sampled(tmp_path, EMPTY)
    said = divtok("run", *SMALL, "--out", tmp_path)
    assert said.error_line == (
        f"divtok: Not one trajectory of {tmp_path} could be scored; the first: the response has no "
        "tokens. Look at the column 'reason' of its traces and of what was gathered."
    )
    assert said.code == 4
    assert divtok("score", tmp_path).code == 4
    again = divtok("evaluate", tmp_path, "--json")
    assert again.error_line == said.error_line
    assert said.code == 4


def test_evaluating_before_grading_says_so(tmp_path: Path, divtok: Command) -> None:
    sampled(tmp_path, GOOD)
    assert divtok("trace", tmp_path).code == 0
    assert divtok("score", tmp_path).code == 0
    said = divtok("evaluate", tmp_path)
    assert said.error_line.endswith(f"Grade it first: divtok grade {tmp_path}")
    assert said.code == 1


def test_scoring_takes_settings_of_scores_alone(tmp_path: Path, divtok: Command) -> None:
    sampled(tmp_path, GOOD)
    said = divtok("score", tmp_path, "evidence.prm=other")
    assert said.code == 2
    assert said.error_line == (
        "divtok: 'evidence.prm=other' changes more than the scores. "
        f"Change only: score. This one goes to: divtok gather {tmp_path} evidence.prm=other"
    )


def test_an_estimator_that_cannot_be_traced_for_is_refused(tmp_path: Path, divtok: Command) -> None:
    sampled(tmp_path, GOOD)
    assert divtok("trace", tmp_path).code == 0
    assert divtok("score", tmp_path, "score.estimators=['nsl','basecal_proj']").code == 0
    said = divtok("trace", tmp_path)
    assert said.code == 2
    assert "there is no projection of" in said.error_line


def test_a_prompt_that_is_too_long_ends_generating_with_3(tmp_path: Path, divtok: Command) -> None:
    questions = tmp_path / "sums.jsonl"
    questions.write_text(
        '{"id": "1", "problem": "Add 12 and 30.", "answer": "42"}\n'
        f'{{"id": "2", "problem": "{"Add 12 and 30. " * 50}", "answer": "42"}}\n'
    )
    arguments = (
        *("generate", "--out", tmp_path / "run", f"generators=['{GENERATOR}']", "samples=1"),
        *("benchmarks=['sums']", f"benchmark_files.sums={questions}", "sampling.max_length=200"),
    )
    for again in ((), ("--retry-failed",)):
        said = divtok(*arguments, *again)
        assert said.code == 3
        assert "1 row could not be made; the first: response: the prompt has " in said.err
        assert said.err.rstrip().endswith("Trying again would give the same.")
    assert [t.failed for t in Run.open(tmp_path / "run").trajectories.read()] == [False, True]
