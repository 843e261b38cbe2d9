"""Stored confidences stated for a base rate: their mean, their bounds, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from console import Command
from console import divtok as divtok  # a fixture
from stages_samples import Row, handmade_run, small_config, trace_of

from divtok.config.run import RunConfig
from divtok.errors import ConfigError
from divtok.records import Confidence, Grade, Verdict
from divtok.score.registry import ESTIMATORS
from divtok.stages.evaluate import results_of
from divtok.stages.fit import fit, keep
from divtok.stages.prior import state_for_prior
from divtok.stages.rescore import rescore
from divtok.stages.score import score
from divtok.stages.stored import stored_config
from divtok.store.run import Run

VALUES = (0.9, 0.8, 0.6, 0.3)
ROWS = [Row(sample=i, values={"dtc_lin": v}) for i, v in enumerate(VALUES)]


def made(folder: Path, rows: Sequence[Row] = ROWS, answers: Sequence[str] | None = None) -> Run:
    run = handmade_run(folder, rows)
    if answers is not None:
        with run.lock():
            run.grades.replace(
                [
                    Grade(r.key, a, r.verdict or Verdict.CORRECT)
                    for r, a in zip(rows, answers, strict=True)
                ]
            )
    return run


def stated(run: Run, prior: object) -> list[Confidence]:
    from divtok.store.responses import stored_responses

    with run.lock():
        chosen = [ESTIMATORS.get("dtc_lin")]
        config = small_config(f"score.prior={prior}")
        state_for_prior(run, config, chosen, stored_responses(run))
    return run.confidences.read()


def values(found: Sequence[Confidence]) -> list[float]:
    return [one.value for one in found if one.value is not None]


def test_the_mean_is_the_share_that_was_given(tmp_path: Path) -> None:
    found = stated(made(tmp_path / "run"), 0.8)
    assert np.mean(values(found)) == pytest.approx(0.8, abs=1e-9)
    assert [one.prior for one in found] == [0.8] * 4
    assert np.argsort(values(found)).tolist() == np.argsort(VALUES).tolist()


def test_the_mean_is_what_agreement_suggests_of_the_answered_ones(tmp_path: Path) -> None:
    """Three of four agree: a share of the root of 3 / 6; grades are not looked at."""
    rows = [replace(row, verdict=Verdict.INCORRECT) for row in ROWS]
    found = stated(made(tmp_path / "run", rows, ["7", "7.0", "7", "8"]), "agreement")
    assert np.mean(values(found)) == pytest.approx(np.sqrt(0.5), abs=1e-9)
    assert found[0].prior == pytest.approx(np.sqrt(0.5))


def test_each_generator_and_benchmark_is_shifted_by_itself(tmp_path: Path) -> None:
    rows = [*ROWS, *(replace(r, benchmark="hard", values={"dtc_lin": 0.2}) for r in ROWS)]
    found = stated(made(tmp_path / "run", rows), 0.6)
    assert np.mean(values(found)[:4]) == pytest.approx(0.6, abs=1e-9)
    assert values(found)[4:] == pytest.approx([0.6] * 4)


def test_a_response_that_was_cut_off_is_shifted_but_does_not_count(tmp_path: Path) -> None:
    cut = Row(sample=4, truncated=True, values={"dtc_lin": 0.05})
    found = stated(made(tmp_path / "run", [*ROWS, cut]), 0.8)
    assert np.mean(values(found)[:4]) == pytest.approx(0.8, abs=1e-9)
    assert found[4].prior == 0.8
    assert values(found)[4] > 0.05


def test_bounds_are_shifted_with_the_value(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    with run.lock():
        run.confidences.replace(
            [replace(c, low=c.value, high=0.95) for c in run.confidences.read()]
        )
    for one in stated(run, 0.9):
        assert one.low == one.value
        assert one.high is not None
        assert one.value is not None
        assert one.value < one.high < 1


def test_without_a_prior_nothing_is_written(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    before = run.confidences.identity()
    assert [c.prior for c in stated(run, "null")] == [None] * 4
    assert run.confidences.identity() == before


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([Row(problem=str(i), values={"dtc_lin": v}) for i, v in enumerate(VALUES)], "fewer than"),
        (ROWS, "no shift gives a mean of 1"),  # all answers agree
    ],
)
def test_what_cannot_be_shifted_stays_and_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[Row], why: str
) -> None:
    found = stated(made(tmp_path / "run", rows), "agreement")
    assert values(found) == list(VALUES)
    assert [one.prior for one in found] == [None] * 4
    assert f"not shifted: {why}" in capsys.readouterr().err


def scored(folder: Path, *overrides: str) -> tuple[Run, RunConfig]:
    config = small_config("score.estimators=[dtc_lin,nsl]", "score.theta=0.5", *overrides)
    run = handmade_run(folder, ROWS, config=config)
    with run.lock():
        run.traces.replace([trace_of(replace(r, tokens=4 + 3 * r.sample)) for r in ROWS])
        score(run, config)
    return run, config


def test_scoring_states_what_it_scores_and_only_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, config = scored(tmp_path / "run", "score.prior=0.7")
    for name in ("dtc_lin", "nsl"):
        of = [c for c in run.confidences.read() if c.estimator == name]
        assert np.mean(values(of)) == pytest.approx(0.7, abs=1e-9)
    before = run.confidences.identity()
    capsys.readouterr()
    with run.lock():
        score(run, config)
    assert "nothing has changed" in capsys.readouterr().err
    assert run.confidences.identity() == before


def test_evaluations_name_the_prior_and_compare_prevalence_with_it(tmp_path: Path) -> None:
    run, config = scored(tmp_path / "run", "score.prior=0.2")
    found = results_of(run, config)
    assert [e.params["prior"] for e in found.evaluations[:2]] == [0.2, 0.2]
    assert found.evaluations[0].mean_confidence == pytest.approx(0.2, abs=1e-9)
    lines = [line for note in found.notes if note.key == "overconfidence" for line in note.lines]
    assert lines[0].endswith("nsl and dtc_lin are stated for 20 % right answers (score.prior).")


def test_show_and_export_have_the_prior(tmp_path: Path, divtok: Command) -> None:
    run, _ = scored(tmp_path / "run", "score.prior=0.7")
    assert "(stated for 70.0 % right answers)" in divtok("show", run.path, ROWS[0].key).out
    exported = divtok("export", run.path, "--format", "jsonl").out
    assert json.loads(exported.splitlines()[0])["dtc_lin_prior"] == 0.7


def test_the_command_line_states_a_run_and_takes_it_back(tmp_path: Path, divtok: Command) -> None:
    run, _ = scored(tmp_path / "run")
    before = [(c.key, c.estimator, c.value) for c in run.confidences.read()]
    assert "stated for 70.0 %" in divtok("score", run.path, "score.prior=0.7").err
    assert "stated for 70.0 % right answers" in divtok("evaluate", run.path).out
    divtok("score", run.path, "score.prior=null")
    assert [(c.key, c.estimator, c.value) for c in Run(run.path).confidences.read()] == before


def test_a_prior_is_a_share_or_agreement() -> None:
    for wrong in ("0", "1", "true", "votes", "-0.2"):
        with pytest.raises(ConfigError, match=r"share between 0 and 1|true or false"):
            small_config(f"score.prior={wrong}")
    assert small_config().score.prior is None
    assert small_config("score.prior=agreement").score.prior == "agreement"


def scored_run(folder: Path) -> Run:
    """Two of the four responses are right, and all give one answer."""
    config = small_config("score.estimators=[deepconf_tail,nsl]", "evaluate.resamples=20")
    run = handmade_run(folder, ROWS, config=config)
    with run.lock():
        run.traces.replace([trace_of(replace(r, tokens=4 + 3 * r.sample)) for r in ROWS])
        verdicts = (Verdict.CORRECT, Verdict.INCORRECT) * 2
        run.grades.replace([Grade(r.key, "7", v) for r, v in zip(ROWS, verdicts, strict=True)])
        score(run, config)
    return run


def test_what_only_ranks_is_shifted_where_a_map_made_probabilities_of_it(tmp_path: Path) -> None:
    run = scored_run(tmp_path / "run")
    rescore(run, ["score.prior=0.8"])
    plain = {c.estimator: c.prior for c in run.confidences.read()}
    assert plain == {"deepconf_tail": None, "nsl": 0.8}
    rescore(run, ["score.prior=null"])
    keep(run, fit(run, stored_config(run), what="isotonic", estimator="deepconf_tail"))
    rescore(run, ["score.prior=0.8"], fitted=[str(run.path)])
    found = [c for c in run.confidences.read() if c.estimator == "deepconf_tail"]
    assert np.mean(values(found)) == pytest.approx(0.8, abs=1e-9)
    assert [c.prior for c in found] == [0.8] * 4
    said = {e.estimator: e for e in results_of(run, stored_config(run)).evaluations}
    assert said["deepconf_tail"].mean_confidence == pytest.approx(0.8, abs=1e-9)


def test_it_is_said_whose_share_a_mapped_confidence_is_stated_for(tmp_path: Path) -> None:
    run = scored_run(tmp_path / "run")
    keep(run, fit(run, stored_config(run), what="isotonic", estimator="nsl"))
    rescore(run, fitted=[str(run.path)])
    assert said_of(run, "nsl") == (0.5, "map")
    lines = [x for n in results_of(run, stored_config(run)).notes for x in n.lines]
    assert not any("(score.prior)" in line for line in lines)
    rescore(run, ["score.prior=0.8"], fitted=[str(run.path)])
    assert said_of(run, "nsl") == (0.8, "score.prior")
    rescore(run, ["score.prior=agreement"], fitted=[str(run.path)])  # all agree: out of reach
    assert said_of(run, "nsl") == (0.5, "map")


def said_of(run: Run, estimator: str) -> tuple[object, object]:
    found = {e.estimator: e.params for e in results_of(run, stored_config(run)).evaluations}
    return found[estimator]["prior"], found[estimator]["prior_from"]
