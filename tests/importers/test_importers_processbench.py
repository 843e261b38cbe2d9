"""Files of ProcessBench: responses in steps, of which the first wrong one is labelled."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from importers_samples import all_rows, rows_of, write_lines

from divtok.errors import DataError
from divtok.importers import (
    BadRow,
    Before,
    Imported,
    ImportOptions,
    found_files,
    read_rows,
    to_records,
)
from divtok.records import StepLabels
from divtok.stages.first_wrong import StepTruth
from divtok.stages.import_files import import_files
from divtok.store.run import Run

STEPS = ["We add\nboth.", "2 + 3 = 6.", "So it is 6."]
TEXT = "We add\nboth.\n\n2 + 3 = 6.\n\nSo it is 6."


def row(**changes: Any) -> dict[str, Any]:
    given = {"id": "sums-0", "generator": "some-model", "problem": "2 + 3?", "steps": STEPS}
    return {**given, "final_answer_correct": False, "label": 1, **changes}


@pytest.fixture(params=["a.json", "a.jsonl"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    rows = [row(), row(id="sums-1", problem="1 + 1?", final_answer_correct=True, label=-1)]
    file = tmp_path / request.param
    if file.suffix == ".json":
        file.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        return file
    return write_lines(file, rows)


def test_a_response_is_its_steps_with_what_was_said_of_them(path: Path) -> None:
    assert found_files([path]).format == "processbench"
    wrong, right = rows_of(path, "processbench")
    assert (wrong.response, wrong.question, wrong.problem_id) == (TEXT, "2 + 3?", "sums-0")
    assert (wrong.generator, wrong.benchmark, wrong.answer) == ("some-model", "a", None)
    assert [(v.scorer, v.verdict.value) for r in (wrong, right) for v in r.verdicts] == [
        ("final_answer_correct", "incorrect"),
        ("final_answer_correct", "correct"),
    ]
    starts, stops = (0, 14, 26), (12, 24, 37)
    assert wrong.labels == StepLabels("", 1, starts, stops)
    assert [TEXT[a:b] for a, b in zip(starts, stops, strict=True)] == STEPS
    assert right.labels == StepLabels("", -1, starts, stops)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"label": 3}, "'label' is not a whole number from -1 to 2, for there are 3 steps"),
        ({"label": -2}, "'label' is not a whole number from -1 to 2"),
        ({"label": None}, "'label' is not a whole number"),
        ({"label": True}, "'label' is not a whole number"),
        ({"label": "1"}, "'label' is not a whole number"),
        ({"steps": "2 + 3 = 6."}, "'steps' is not a list"),
        ({"steps": None}, "'steps' is missing"),
        ({"steps": []}, "'steps' is empty"),
        ({"steps": ["a", " "], "label": 0}, r"'steps\[1\]' is empty"),
        ({"steps": ["a", None], "label": 0}, r"'steps\[1\]' is missing"),
        ({"problem": ""}, "'problem' is empty"),
        ({"final_answer_correct": "maybe"}, "'final_answer_correct' is neither true nor false"),
    ],
)
def test_a_row_that_breaks_a_rule(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.jsonl", [row(**changes), row(id="sums-1", problem="1 + 1?")])
    with pytest.raises(DataError, match=rf"a\.jsonl, line 1: {why}"):
        all_rows(file, "processbench")
    bad, good = all_rows(file, "processbench", skip_bad=True)
    assert isinstance(bad, BadRow)
    assert isinstance(good, Imported)


def test_problems_with_several_ids_are_known_by_their_question(tmp_path: Path) -> None:
    rows = [row(), row(id="sums-1", generator="another")]
    file = write_lines(tmp_path / "a.jsonl", rows)
    found, notes = read_rows(file, ImportOptions(format="processbench"))
    assert [r.problem_id for r in found if isinstance(r, Imported)] == [None, None]
    assert any("problems are known by their question" in note for note in notes)
    named = rows_of(file, "processbench", columns={"id": "id"})
    assert [r.problem_id for r in named] == ["sums-0", "sums-1"]


def brought(folder: Path, *files: Path) -> Run:
    run = Run.create_or_open(folder)
    with run.lock():
        import_files(run, files, ImportOptions())
    return run


def test_labels_are_kept_by_the_key_of_their_response(path: Path, tmp_path: Path) -> None:
    run = brought(tmp_path / "run", path)
    keys = [t.key for t in run.trajectories.read()]
    assert [(s.key, s.first_wrong) for s in run.step_labels.read()] == [(keys[0], 1), (keys[1], -1)]
    truth = StepTruth(run)
    steps = truth.steps(keys[0], TEXT)
    assert steps == [(0, 12), (14, 24), (26, 37)], "not its lines"
    assert truth.first_wrong(keys[0], ("a", "sums-0"), TEXT, steps).step == 1
    right = truth.first_wrong(keys[1], ("a", "sums-1"), TEXT, steps)
    assert (right.step, right.reason) == (None, None)
    before = run.step_labels.read()
    assert brought(tmp_path / "run", path).step_labels.read() == before, "again changes nothing"


def test_the_same_response_with_other_labels_is_refused() -> None:
    one = Imported("a, line 1", "x", question="?", generator="g", benchmark="b", sample=0)
    labelled = replace(one, labels=StepLabels("", 0, (0,), (1,)))
    again = replace(labelled, where="a, line 2")
    found = to_records([one, labelled, again])
    assert (len(found.trajectories), found.repeated, len(found.labels)) == (1, 2, 1)
    other = replace(again, labels=StepLabels("", -1, (0,), (1,)))
    with pytest.raises(DataError, match=r"a, line 2: .*other labels of its steps"):
        to_records([labelled, other])
    before = Before([(p, "a") for p in found.problems], [(t, "a") for t in found.trajectories])
    with pytest.raises(DataError, match="other labels"):
        to_records([other], before=replace(before, labels=found.labels))
    assert not to_records([again], before=replace(before, labels=found.labels)).labels


def test_labels_of_a_file_that_was_not_finished_go(tmp_path: Path, path: Path) -> None:
    run = brought(tmp_path / "run", path)
    with run.lock():
        run.step_labels.append([StepLabels("left over", 0, (0,), (1,))])
    again = brought(tmp_path / "run", path)
    assert "left over" not in [s.key for s in again.step_labels.read()]
