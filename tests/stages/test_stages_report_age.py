"""Whether a report still shows its scores and grades."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stages_samples import Row, handmade_run, small_config

from divtok.records import Confidence, Grade, Verdict
from divtok.report import write
from divtok.stages.report import report
from divtok.stages.report_age import SECTION, is_older, say_if_older
from divtok.store.run import Run

ROWS = [Row("a", values={"nsl": 0.5}, count=1), Row("b", values={"nsl": 0.7}, count=2)]


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(write, "save_figure", lambda *_, **__: [])
    run = handmade_run(tmp_path / "a run", ROWS)
    report(run, small_config())
    return run


def new_score(run: Run) -> None:
    run.confidences.append([Confidence(ROWS[0].key, "nsl", {}, 0.6)])


def new_grade(run: Run) -> None:
    run.grades.append([Grade(ROWS[0].key, "2", Verdict.INCORRECT)])


def new_trace(run: Run) -> None:
    run.traces.replace([])


def test_a_run_without_a_report_has_no_old_one(tmp_path: Path) -> None:
    assert not is_older(handmade_run(tmp_path, ROWS))


@pytest.mark.parametrize(
    ("change", "older"), [(new_score, True), (new_grade, True), (new_trace, False)]
)
@pytest.mark.parametrize("earlier", [False, True])
def test_scores_and_grades_make_a_report_old(
    reported: Run,
    change: object,
    older: bool,
    earlier: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if earlier:  # a version that wrote nothing down of what its reports were made of
        with reported.lock():
            sections = dict(reported.manifest() or {})
            del sections[SECTION]
            reported.write_manifest(sections)
    page = reported.report / "README.md"
    os.utime(page, (2e9, 2e9))
    assert not is_older(reported)
    os.utime(page, (1e9, 1e9))
    assert is_older(reported) == earlier  # by the time alone only where nothing else is known
    os.utime(page)
    with reported.lock():
        assert callable(change)
        change(reported)
    if earlier:
        for table in (reported.confidences, reported.grades):
            for shard in table.folder.glob("*.parquet"):
                changed = table is (
                    reported.grades if change is new_grade else reported.confidences
                )
                time = page.stat().st_mtime + (10 if older and changed else -10)
                os.utime(shard, (time, time))
    assert is_older(reported) == older
    say_if_older(reported)
    said = capsys.readouterr().err
    assert said == (
        f"report {page} is older than its scores or grades: divtok report '{reported.path}'\n"
        if older
        else ""
    )


def test_a_new_report_is_not_old(reported: Run) -> None:
    with reported.lock():
        new_score(reported)
    assert is_older(reported)
    report(reported, small_config())
    assert not is_older(reported)
