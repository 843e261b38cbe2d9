"""The verb vote on a small run of the tiny family."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from cli_samples import FinishedRun
from console import Command

from divtok.errors import EXIT_ERROR, EXIT_OK, EXIT_USAGE
from divtok.store.run import Run


def test_it_prints_both_tables_and_what_they_say(finished: FinishedRun, divtok: Command) -> None:
    said = divtok("vote", finished.folder)
    assert said.code == EXIT_OK, said.err
    assert "Answers chosen among so many samples" in said.out
    assert "Votes of so many samples against a majority" in said.out
    assert "weighted by DTC weighted" in said.out
    assert "How often samples are right is not known" in said.out  # two problems each


def test_json_has_every_number_of_samples(finished: FinishedRun, divtok: Command) -> None:
    said = divtok("vote", finished.folder, "--json", "--estimator", "nsl")
    (found,) = json.loads(said.out)
    ways = [(row["voting"]["strategy"], row["voting"]["stop"]) for row in found["rows"]]
    assert ways[:3] == [("majority", None), ("majority", "settled"), ("majority", 0.95)]
    assert {row["voting"]["estimator"] for row in found["rows"]} == {None, "nsl"}
    assert [point["samples"] for point in found["rows"][0]["points"]] == [1, 2]


def test_chosen_answers_go_to_a_file(
    finished: FinishedRun, divtok: Command, tmp_path: Path
) -> None:
    out = tmp_path / "votes.csv"
    said = divtok("vote", finished.folder, "--out", out, "--strategy", "best")
    assert said.code == EXIT_OK, said.err
    assert f"vote: 4 answers in {out}" in said.err
    run = Run.open(finished.folder)
    answers = {grade.key: grade.extracted for grade in run.grades.read()}
    values = {c.key: c.value for c in run.confidences.read() if c.estimator == "dtc_weighted"}
    with out.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 4
    for row in rows:
        keys = json.loads(row["keys"]) if row["keys"] else []
        assert all(answers[key] == row["answer"] for key in keys)
        if keys:
            assert float(row["confidence"]) == max(values[key] or -1 for key in keys)


def test_what_cannot_be_is_refused(finished: FinishedRun, divtok: Command) -> None:
    for wrong in (
        ("--samples", "3"),
        ("--estimator", "mine"),
        ("--stop", "soon"),
        ("--stop", "2"),
        ("--stop", "nan"),
        ("--strategy", "mode"),
    ):
        assert divtok("vote", finished.folder, *wrong).code == EXIT_USAGE, wrong
    out = finished.folder / "no.csv"
    assert divtok("vote", finished.folder, "--out", out, "--stop", "2").code == EXIT_USAGE
    assert not out.exists()


def test_one_sample_each_is_refused_and_an_ungraded_run_says_what_to_do(
    divtok: Command, tmp_path: Path
) -> None:
    line = {"problem": "1+1?", "response": "It is \\boxed{2}.", "answer": "2", "model": "m"}
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps(line) + "\n")
    assert divtok("import", log, "--out", tmp_path / "one").code == EXIT_OK
    assert divtok("vote", tmp_path / "one").code == EXIT_ERROR
    log.write_text("".join(json.dumps(line | {"response": t}) + "\n" for t in ("\\boxed{2}", "?")))
    assert divtok("import", log, "--out", tmp_path / "two").code == EXIT_OK
    said = divtok("vote", tmp_path / "two")
    assert said.code == EXIT_OK
    assert "Nothing is graded" in said.out
    assert "divtok grade" in said.out


@pytest.mark.parametrize("name", ["votes.md", "votes-against-majority.csv"])
def test_the_report_of_a_run_has_the_tables(finished: FinishedRun, name: str) -> None:
    assert (finished.folder / "report" / "tables" / name).exists()


def test_no_model_is_loaded(
    finished: FinishedRun, divtok: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from divtok.models import load

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(load, "load_model", refuse)
    copied = tmp_path / "copied"
    shutil.copytree(finished.folder, copied)
    assert divtok("vote", copied).code == EXIT_OK
