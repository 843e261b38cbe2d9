"""Verdicts of the tools that wrote the files: read, kept, taken as grades, set beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from console import Command
from importers_samples import (
    FAILING_LOG,
    HF_LOG,
    LM_EVAL,
    SAMPLES,
    log_samples,
    objects,
    rows_of,
    write_lines,
)

from divtok.errors import DataError, NothingScoredError, UsageError
from divtok.importers import Imported, ImportOptions, read_rows
from divtok.importers.verdicts import is_plain_verdict, is_verdict, their_verdict
from divtok.records import TheirVerdict, Verdict, reason_kind
from divtok.stages.grade import grade
from divtok.stages.import_files import import_files
from divtok.stages.stored import stored_config
from divtok.store.run import Run

TASKS = SAMPLES / "lm-eval-tasks"
HASHES = next(TASKS.glob("samples_sums_hashes_*.jsonl"))
LETTERS = next(TASKS.glob("samples_sums_letters_*.jsonl"))
BOTH_FILTERS = ["exact_match,strict-match", "exact_match,flexible-extract"]


def brought(folder: Path, *files: Path, grading: tuple[str, ...] = (), **options: Any) -> Run:
    run = Run.create_or_open(folder)
    with run.lock():
        import_files(run, files, ImportOptions(**options), grading=grading)
    return run


def graded(run: Run, *overrides: str) -> list[Any]:
    with run.lock():
        grade(run, stored_config(run, overrides))
    return run.grades.read()


@pytest.mark.parametrize(
    ("value", "verdict", "kind"),
    [
        (True, "correct", None),
        (0, "incorrect", None),
        (1.0, "correct", None),
        ("0", "incorrect", None),
        ("yes", "correct", None),
        (" Incorrect ", "incorrect", None),
        ("unanswered", "unanswered", None),
        ("C", "undetermined", "no_verdict"),
        (0.5, "undetermined", "partial_score"),
        ("0.25", "undetermined", "partial_score"),
        (4, "undetermined", "no_verdict"),
        (-1.0, "undetermined", "no_verdict"),
        ("the answer", "undetermined", "no_verdict"),
        ([1, 0], "undetermined", "no_verdict"),
    ],
)
def test_what_a_score_means(value: Any, verdict: str, kind: str | None) -> None:
    found = their_verdict("s", value, "7")
    assert found is not None
    assert (found.verdict.value, found.extracted, found.scorer) == (verdict, "7", "s")
    assert reason_kind(found.reason) == kind
    assert is_verdict(value) == (kind != "no_verdict")


@pytest.mark.parametrize(
    ("value", "verdict", "kind"),
    [
        ("C", "correct", None),
        ("I", "incorrect", None),
        ("N", "unanswered", None),
        ("P", "undetermined", "partial_score"),
    ],
)
def test_letters_are_verdicts_where_the_importer_says_so(
    value: str, verdict: str, kind: str | None
) -> None:
    found = their_verdict("s", value, letters=True)
    assert found is not None
    assert (found.verdict.value, reason_kind(found.reason)) == (verdict, kind)
    assert not is_verdict(value)


def test_a_tool_that_is_undetermined_itself_is_quoted() -> None:
    found = their_verdict("s", "Undetermined")
    assert found is not None
    assert found.verdict == Verdict.UNDETERMINED
    assert str(found.reason) == "the tool that wrote the file says 'Undetermined'"
    assert reason_kind(found.reason) == "no_verdict"


@pytest.mark.parametrize("value", [None, float("nan"), ""])
def test_no_score_is_no_verdict(value: Any) -> None:
    assert their_verdict("s", value) is None
    assert is_verdict(value)
    assert is_plain_verdict(value)


def test_metrics_of_lm_eval_are_named_as_in_its_results() -> None:
    rows, written = rows_of(HASHES, "lm-eval"), objects(HASHES)
    assert len(rows) == 8
    for row, said in zip(rows, written, strict=True):
        (verdict,) = row.verdicts
        assert verdict.scorer == f"exact_match,{said['filter']}"
        assert (verdict.verdict == Verdict.CORRECT) == (said["exact_match"] == 1.0)
        assert verdict.extracted == said["filtered_resps"][0]
    results = json.loads(next(TASKS.glob("results_*.json")).read_text())["results"]
    assert set(BOTH_FILTERS) <= results["sums_hashes"].keys()


def test_of_repeats_lm_eval_has_no_verdict_on_each() -> None:
    assert {row.verdicts for row in rows_of(LM_EVAL, "lm-eval")} == {()}


def test_scores_of_inspect_keep_their_scorers_name() -> None:
    meant = {"C": "correct", "I": "incorrect"}
    for row, sample in zip(rows_of(HF_LOG, "inspect"), log_samples(HF_LOG), strict=True):
        score = sample["scores"]["match"]
        (verdict,) = row.verdicts
        assert (verdict.scorer, verdict.verdict.value) == ("match", meant[score["value"]])
        assert verdict.extracted == score["answer"]
    tools = rows_of(SAMPLES / "inspect" / "tools.eval", "inspect")
    assert [[v.scorer for v in row.verdicts] for row in tools] == [["match", "effort"]] * 3
    assert {reason_kind(row.verdicts[1].reason) for row in tools} == {"partial_score"}


def table(tmp_path: Path, **columns: list[Any]) -> Path:
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    same = {"question": "q", "response": "#### 1", "model": "m"}
    return write_lines(tmp_path / "a.jsonl", [{**same, "id": n, **r} for n, r in enumerate(rows)])


def said_by(rows: list[Imported]) -> list[dict[str, str]]:
    return [{v.scorer: v.verdict.value for v in row.verdicts} for row in rows]


def test_every_column_with_verdicts_is_a_scorer(tmp_path: Path) -> None:
    path = table(tmp_path, correct=[True, None], exact_match=[0, 0.5], extracted=["1", 2])
    rows = rows_of(path, "jsonl", columns={"id": ""})
    assert said_by(rows) == [
        {"correct": "correct", "exact_match": "incorrect"},
        {"exact_match": "undetermined"},
    ]
    assert [[v.extracted for v in row.verdicts] for row in rows] == [["1", "1"], ["2"]]
    rows = rows_of(path, "jsonl", columns={"id": "", "verdict": "exact_match"})
    assert said_by(rows) == [{"exact_match": "incorrect"}, {"exact_match": "undetermined"}]
    assert said_by(rows_of(path, "jsonl", columns={"id": "", "verdict": ""})) == [{}, {}]


def test_a_column_of_correct_answers_is_no_verdict(tmp_path: Path) -> None:
    path = table(tmp_path, correct=["B", "C"])
    assert said_by(rows_of(path, "jsonl", columns={"id": ""})) == [{}, {}]
    named = rows_of(path, "jsonl", columns={"id": "", "verdict": "correct"})
    assert said_by(named)[0] == {"correct": "undetermined"}


@pytest.mark.parametrize(
    "values",
    [["yes", "no"], ["no", "no"], ["C", "I"], ["pass", "fail"], [True, "error"], ["N", True], [2]],
)
def test_what_may_be_answers_is_told_and_not_taken(tmp_path: Path, values: list[Any]) -> None:
    path = table(tmp_path, correct=values)
    rows, notes = read_rows(path, ImportOptions("jsonl", columns={"id": ""}))
    assert [row.verdicts for row in rows if isinstance(row, Imported)] == [()] * len(values)
    shown = next(value for value in values if value is not True)
    assert notes[1:] == [
        f"{path}: 'correct' may hold something else than verdicts ('{shown}'), so it is not taken "
        "for them; --column verdict=correct takes it"
    ]
    for column in ("correct", ""):
        columns = {"id": "", "verdict": column}
        _, notes = read_rows(path, ImportOptions("jsonl", columns=columns))
        assert len(notes) == 1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([True, False, None], ["correct", "incorrect", None]),
        ([1, 0, 0.5], ["correct", "incorrect", "undetermined"]),
        (["1", "0.0", ""], ["correct", "incorrect", None]),
        (["True", "false", "TRUE"], ["correct", "incorrect", "correct"]),
        (["correct", "Incorrect", "right", "wrong"], ["correct", "incorrect"] * 2),
    ],
)
def test_what_can_hardly_be_answers_is_taken(
    tmp_path: Path, values: list[Any], said: list[str | None]
) -> None:
    path = table(tmp_path, correct=values)
    rows, notes = read_rows(path, ImportOptions("jsonl", columns={"id": ""}))
    found = said_by([row for row in rows if isinstance(row, Imported)])
    assert [verdicts.get("correct") for verdicts in found] == said
    assert len(notes) == 1


def test_a_named_column_keeps_what_is_no_verdict(tmp_path: Path) -> None:
    path = table(tmp_path, correct=["yes", "fail", "error"])
    rows = rows_of(path, "jsonl", columns={"id": "", "verdict": "correct"})
    assert [row.verdicts[0].verdict.value for row in rows] == [
        "correct",
        "incorrect",
        "undetermined",
    ]
    assert str(rows[2].verdicts[0].reason) == "'error' is neither right nor wrong"


def test_the_same_verdict_with_another_extracted_answer_is_no_contradiction(
    tmp_path: Path,
) -> None:
    same = {"question": "q", "response": "1", "model": "m", "sample": 0, "correct": True}
    first = write_lines(tmp_path / "a.jsonl", [{**same, "extracted": "1"}])
    second = write_lines(tmp_path / "b.jsonl", [{**same, "extracted": "1.0"}])
    run = brought(tmp_path / "run", first, second, benchmark="b")
    assert [(v.verdict.value, v.extracted) for v in run.verdicts.read()] == [("correct", "1")]


def test_verdicts_are_a_table_and_old_ones_stay(tmp_path: Path) -> None:
    run = brought(tmp_path / "run", HASHES)
    assert len(run.verdicts.read()) == 8
    keys = {t.key: t.problem_id for t in run.trajectories.read()}
    strict = {keys[v.key]: v for v in run.verdicts.read() if v.scorer == BOTH_FILTERS[0]}
    assert [strict[n].verdict.value for n in "0123"] == ["correct", *["incorrect"] * 3]
    assert [strict[n].extracted for n in "0123"] == ["18", "41", "30.0", "[invalid]"]
    before = run.verdicts.read()
    brought(tmp_path / "run", HASHES)
    assert run.verdicts.read() == before


def test_a_log_that_was_scored_anew_is_a_contradiction(tmp_path: Path) -> None:
    first = write_lines(
        tmp_path / "a.jsonl",
        [{"question": "q", "response": "1", "model": "m", "sample": 0, "correct": True}],
    )
    again = {"question": "q", "response": "1", "model": "m", "sample": 0, "correct": False}
    second = write_lines(tmp_path / "b.jsonl", [again])
    brought(tmp_path / "run", first, benchmark="b")
    with pytest.raises(DataError, match=r"'correct' calls the response incorrect, and called"):
        brought(tmp_path / "run", second, benchmark="b")
    write_lines(second, [{**again, "correct": True}])
    run = brought(tmp_path / "run", second, benchmark="b")
    assert [v.verdict.value for v in run.verdicts.read()] == ["correct"]


def test_what_a_killed_import_left_of_verdicts_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(_: Any) -> None:
        raise Killed

    run = Run.create_or_open(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(run.trajectories, "append", kill)
        with pytest.raises(Killed), run.lock():
            import_files(run, [LETTERS], ImportOptions())
    assert run.verdicts.keys()
    path = table(tmp_path, correct=[True])
    brought(tmp_path / "run", path)
    assert [v.scorer for v in run.verdicts.read()] == ["correct"]


def test_theirs_are_the_grades_and_need_no_gold_answer(tmp_path: Path) -> None:
    path = table(tmp_path, question=["p", "q", "r"], correct=[True, False, None])
    run = brought(tmp_path / "run", path, grading=("grade.verdicts=theirs",))
    grades = graded(run)
    assert [g.verdict.value for g in grades] == ["correct", "incorrect", "undetermined"]
    assert [reason_kind(g.reason) for g in grades] == ["theirs", "theirs", "verdict_missing"]


def test_grades_of_the_two_never_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = brought(tmp_path / "run", HASHES)
    ours = graded(run)
    assert [g.extracted for g in ours] == ["18", "41", "30.0", None]
    theirs = graded(run, "grade.verdicts=theirs")
    assert [g.extracted for g in theirs] == ["18", "41", "30.0", "[invalid]"]
    err = capsys.readouterr().err
    assert f"'{BOTH_FILTERS[0]}'; also there, for --scorer: '{BOTH_FILTERS[1]}'" in err
    flexible = ("grade.verdicts=theirs", f"grade.scorer='{BOTH_FILTERS[1]}'")
    assert [g.extracted for g in graded(run, *flexible)] == ["18", "41", "30.0", "5"]
    assert graded(run) == ours


def test_an_unknown_scorer_and_a_log_without_verdicts_are_refused(tmp_path: Path) -> None:
    run = brought(tmp_path / "run", LETTERS)
    with pytest.raises(UsageError, match="Did you mean 'exact_match,get-letter'"):
        graded(run, "grade.verdicts=theirs", "grade.scorer='exact_match,get-leter'")
    run = brought(tmp_path / "other", table(tmp_path, answer=[1]))
    with pytest.raises(NothingScoredError, match="came without verdicts"):
        graded(run, "grade.verdicts=both")


PAIR = ("--pair", "divtok/tiny-0.5m", "divtok/tiny-0.3m", "evaluate.resamples=20")


def test_both_are_compared_in_the_report(divtok: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    said = divtok("import", HASHES, "--out", run, "--verdict", "both")
    assert said.code == 0, said.err
    assert "taken for lm-eval" in said.err
    said = divtok("score", run, *PAIR, "score.estimators=dtc_prod")
    assert said.code == 0, said.err
    counts = "ours and theirs agree on 3 and disagree on 1; 0 are decided only by ours, 0 only by"
    assert counts in said.err
    rows = json.loads((run / "report" / "tables" / "disagreements.json").read_text())
    # lm-eval compares texts, so that 30.0 is not 30.
    names = ("problem_id", "gold", "ours_extracted", "ours", "theirs_extracted", "theirs")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("2", "30", "30.0", "correct", "30.0", "incorrect")
    ]
    assert "30.0,correct" in (run / "report" / "tables" / "disagreements.csv").read_text()
    assert "Verdicts of the other tool" in (run / "report" / "README.md").read_text()
    divtok("grade", run, "--verdict", "ours")
    assert divtok("report", run).code == 0
    assert not list((run / "report" / "tables").glob("disagreements.*"))
    divtok("grade", run, "--verdict", "both")
    (found,) = {
        json.dumps(e["verdicts"]) for e in json.loads(divtok("evaluate", run, "--json").out)
    }
    assert json.loads(found) == {
        "agree": 3, "disagree": 1, "only_ours": 0, "only_theirs": 0, "neither": 0
    }  # fmt: skip


def test_a_log_with_verdicts_alone_can_be_evaluated(divtok: Command, tmp_path: Path) -> None:
    rows = [
        {"question": f"{n} + 1?", "response": f"It is {n + 1}.", "model": "m", "correct": n % 2}
        for n in range(6)
    ]
    path, run = write_lines(tmp_path / "a.jsonl", rows), tmp_path / "run"
    said = divtok("import", path, "--out", run)
    assert "verdicts of 'correct': incorrect (3), correct (3)" in said.out
    assert "no gold answers: --verdict theirs takes these verdicts as grades" in said.out
    said = divtok("score", run, *PAIR)
    assert f"divtok grade {run} --verdict theirs" in said.err
    said = divtok("score", run, *PAIR, "--verdict", "theirs")
    assert said.code == 0, said.err
    assert {(e.n, e.accuracy) for e in Run.open(run).evaluations.read()} == {(6, 0.5)}
    said = divtok("score", run, "--verdict", "ours")
    assert (said.code, f"divtok grade {run}" in said.err) == (2, True)
    assert divtok("grade", run, "--verdict", "ours").code == 0
    said = divtok("evaluate", run)
    assert (said.code, "--verdict theirs" in said.err) == (4, True)


def test_a_row_without_their_verdict_counts_in_no_figure(divtok: Command, tmp_path: Path) -> None:
    rows = [
        {"question": f"{n} + 1?", "response": "2", "model": "m", "correct": [True, False, None][n]}
        for n in range(3)
    ]
    run = tmp_path / "run"
    divtok("import", write_lines(tmp_path / "a.jsonl", rows), "--out", run, "--verdict", "theirs")
    said = divtok("score", run, *PAIR)
    assert "1 without a verdict of the other tool, not counted in any figure" in " ".join(
        said.out.split()
    )
    assert {(e.n, e.accuracy) for e in Run.open(run).evaluations.read()} == {(2, 0.5)}


def test_a_failed_response_has_no_verdict(tmp_path: Path) -> None:
    run = brought(tmp_path / "run", FAILING_LOG, grading=("grade.verdicts=theirs",))
    kinds = [reason_kind(g.reason) for g in graded(run)]
    assert (kinds.count("no_response"), kinds.count("theirs")) == (1, 9)


def test_the_records_are_what_is_stored(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    verdicts = [
        TheirVerdict("k", "s", Verdict.CORRECT, "7"),
        TheirVerdict("k", "t", Verdict.UNDETERMINED, None, "why"),
    ]
    with run.lock():
        run.verdicts.replace(verdicts)
    assert run.verdicts.read() == verdicts
