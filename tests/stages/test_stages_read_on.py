"""A reward model reads on past its trained context; tables say of how many rows, or refuse them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prm_samples import save_prm
from stages_samples import write_responses

from divtok.config.run import RunConfig, load_config, to_yaml
from divtok.evidence.kinds.rewards import REWARDS
from divtok.evidence.prm import step_layout
from divtok.records import Evaluation, Reason
from divtok.report.metric_table import METRICS, metric_table
from divtok.report.overview_table import overview_table
from divtok.stages.evaluate import results_of
from divtok.stages.failures import failed_rows
from divtok.stages.gather import gather
from divtok.stages.grade import grade
from divtok.stages.report import report
from divtok.stages.score import score
from divtok.store.run import Run

TRAINED = 512
SHORT = "It is \\boxed{3}."
LONG = "Half of 84 is 42.\n" * 125 + SHORT  # about 1,500 tokens
SAID = "PRM: 2 of 6 scored responses are longer than the 512 tokens it was trained on; it read on."


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_prm(tmp_path_factory.mktemp("prm"), length=TRAINED).folder)


def config_of(prm: str, *overrides: str) -> RunConfig:
    given = (
        *("generators=['divtok/tiny-0.5m']", "benchmarks=['arith-easy']", "limit=2", "samples=3"),
        *("score.estimators=['prm']", f"evidence.prm={prm}", "evaluate.resamples=20"),
    )
    return load_config(None, [*given, *overrides])


def a_run(folder: Path, config: RunConfig) -> Run:
    """Six responses, of which every third is long."""
    run = write_responses(folder, config, (SHORT, SHORT, LONG))
    with run.lock():
        grade(run, config)
    gathered(run, config)
    return run


def gathered(run: Run, config: RunConfig, *, retry_failed: bool = False) -> None:
    with run.lock():
        gather(run, config, retry_failed=retry_failed)
        run.write_config(to_yaml(config))
        score(run, config)


def evaluated(run: Run, config: RunConfig) -> Evaluation:
    (found,) = [e for e in results_of(run, config).evaluations if e.estimator == "prm"]
    return found


def values(run: Run) -> list[float | None]:
    found = {c.key: c.value for c in run.confidences.read()}
    return [found[t.key] for t in run.trajectories.read()]


def test_every_table_says_how_many_rows_were_beyond(tmp_path: Path, prm: str) -> None:
    config = config_of(prm)
    run = a_run(tmp_path / "run", config)
    rows = run.table(REWARDS).read()
    assert {row.trained_length for row in rows} == {TRAINED}
    long = [row for row in rows if row.beyond]
    assert len(long) == 2
    assert all((row.length or 0) > 1_500 and len(row.rewards) == 126 for row in long)
    assert None not in values(run)

    found = results_of(run, config)
    (evaluation,) = [e for e in found.evaluations if e.estimator == "prm"]
    assert (evaluation.beyond, evaluation.n_scored, evaluation.trained_length) == (2, 6, TRAINED)
    tables = [metric_table(found.evaluations, metric) for metric in METRICS]
    tables.append(overview_table(found.evaluations, found.overall))
    assert all(SAID in table.shared for table in tables)
    (note,) = [note for note in found.notes if note.key == "read_on"]
    assert note.value(evaluation) == {"beyond": 2, "of": 6, "trained_length": TRAINED}
    others = [e for e in found.evaluations if e.estimator != "prm"]
    assert [note.value(e) for e in others] == [None] * len(others)
    assert len(note.lines) == 1
    assert note.in_short == ()  # the tables say it

    report(run, config)
    for name in ("overview.md", "ece.md", "auroc.tex"):
        assert "2 of 6 scored responses" in (run.report / "tables" / name).read_text()
    page = (run.report / "README.md").read_text()
    assert "## Longer than what a model was trained to read" in page
    assert [(e.beyond, e.trained_length) for e in run.evaluations.read() if e.estimator == "prm"]


def test_nothing_is_said_where_no_row_is_longer(tmp_path: Path, prm: str) -> None:
    config = config_of(prm)
    run = write_responses(tmp_path / "run", config, (SHORT,))
    with run.lock():
        grade(run, config)
    gathered(run, config)
    found = results_of(run, config)
    evaluation = evaluated(run, config)
    assert (evaluation.beyond, evaluation.trained_length) == (0, TRAINED)
    assert not any("read on" in text for text in metric_table(found.evaluations, "ece").shared)
    assert [note.lines for note in found.notes if note.key == "read_on"] == [()]


@pytest.mark.parametrize("limit", ["trained", "600"])
def test_max_length_refuses_longer_rows_with_the_reason(
    tmp_path: Path, prm: str, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refusing, reading = config_of(prm, f"prm.max_length={limit}"), config_of(prm)
    run = a_run(tmp_path / "run", refusing)
    refused = [row for row in run.table(REWARDS).read() if row.reason is not None]
    assert len(refused) == 2
    assert all(f"tokens; prm.max_length={limit}" in str(row.reason) for row in refused)
    assert [value is None for value in values(run)] == [False, False, True] * 2
    assert (evaluated(run, refusing).beyond, evaluated(run, refusing).n_scored) == (0, 4)
    failures = failed_rows(run)
    assert (len(failures.reasons), failures.again) == (2, 0)

    # Allowed later, they are rows to try again, which is said; nothing is read before it is asked.
    capsys.readouterr()
    gathered(run, reading)
    assert "2 responses were refused as too long, which is read now" in capsys.readouterr().err
    assert values(run).count(None) == 2
    failures = failed_rows(run)
    assert failures.again == 2
    assert failures.reasons[0].endswith(", which it may be now")
    gathered(run, reading, retry_failed=True)
    assert None not in values(run)
    assert evaluated(run, reading).beyond == 2
    assert failed_rows(run).reasons == ()


def test_max_length_holds_for_rows_that_are_there_and_lets_them_come_back(
    tmp_path: Path, prm: str
) -> None:
    config = config_of(prm)
    run = a_run(tmp_path / "run", config)
    before, stored = values(run), run.table(REWARDS).keys()
    for limit, beyond in (("trained", 0), ("600", 0), ("5000", 2)):
        gathered(run, config_of(prm, f"prm.max_length={limit}"))
        found = values(run)
        assert [v is None for v in found] == [not beyond and i % 3 == 2 for i in range(6)]
        kept = [(a, b) for a, b in zip(found, before, strict=True) if a is not None]
        assert all(a == b for a, b in kept)
    reasons = [c.reason for c in run.confidences.read() if c.value is None]
    assert reasons == []
    gathered(run, config)
    assert values(run) == before
    assert run.table(REWARDS).keys() == stored


def test_rows_of_earlier_versions_keep_their_figures_and_refusals_are_tried_again(
    tmp_path: Path, prm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(prm)
    run = a_run(tmp_path / "run", config)
    good = values(run)
    table = run.table(REWARDS)
    first = next(row for row in table.read() if not row.beyond)
    nothing: Any = np.empty(0, dtype=np.float32)
    why = Reason("too_long", f"question 9 + response 1,501 = 1,510 tokens, {prm} reads 512")
    with run.lock():
        table.append(
            [
                replace(row, length=None, trained_length=None)
                if not row.beyond
                else replace(row, length=None, trained_length=None, rewards=nothing, reason=why)
                for row in table.read()
            ]
        )
    gathered(run, config)
    assert "2 responses were refused as too long" in capsys.readouterr().err
    assert values(run) == [None if i % 3 == 2 else value for i, value in enumerate(good)]
    found = evaluated(run, config)
    assert (found.beyond, found.trained_length) == (None, None)
    assert failed_rows(run).again == 2
    gathered(run, config_of(prm, "prm.max_length=trained"))
    assert failed_rows(run).again == 0
    assert values(run).count(None) == 2
    with run.lock():
        table.append([first])
    gathered(run, config_of(prm, "prm.max_length=600"))
    said = [c.reason for c in run.confidences.read() if c.reason is not None]
    assert sum("kept no length" in reason for reason in said) == 3
    gathered(run, config, retry_failed=True)
    assert values(run) == pytest.approx(good)
    assert evaluated(run, config).beyond == 2


def test_the_length_is_that_of_question_and_response(tmp_path: Path, prm: str) -> None:
    from trace_samples import byte_level_tokenizer

    config = config_of(prm)
    run = a_run(tmp_path / "run", config)
    questions = {(p.benchmark, p.id): p.question for p in run.problems.read()}
    lengths = {row.key: row.length for row in run.table(REWARDS).read()}
    for t in run.trajectories.read():
        layout = step_layout(byte_level_tokenizer(), questions[t.benchmark, t.problem_id], t.text)
        assert lengths[t.key] == len(layout.prompt_ids) + len(layout.token_ids)


def test_the_command_shows_it_in_table_and_json(
    tmp_path: Path, prm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from divtok.cli.evaluate import evaluate

    run = a_run(tmp_path / "run", config_of(prm))
    capsys.readouterr()
    evaluate(str(run.path))
    assert SAID in " ".join(capsys.readouterr().out.split())
    evaluate(str(run.path), as_json=True)
    rows = json.loads(capsys.readouterr().out)
    (row,) = [row for row in rows if row["estimator"] == "prm"]
    assert row["read_on"] == {"beyond": 2, "of": 6, "trained_length": TRAINED}
