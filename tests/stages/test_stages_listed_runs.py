"""The runs of a folder, whole ones and others."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from stages_samples import AUXILIARY, GENERATOR, Row, handmade_run, trace_of

from divtok.stages.listed_runs import listed_runs


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert listed_runs(tmp_path / "runs") == []


def test_what_is_in_a_run(tmp_path: Path) -> None:
    rows = [
        Row(sample=0, values={"nsl": 0.5, "dtc_lin": 0.5}),
        Row(sample=1, verdict=None, values={"nsl": None}),
        Row(benchmark="other", values={"nsl": 0.5}),
    ]
    run = handmade_run(tmp_path / "mine", rows)
    with run.lock():  # another pair has read one of them
        run.traces.append([trace_of(rows[0], q="divtok/tiny-0.9m")])
    when = datetime.datetime(2026, 1, 2, 3, 4).astimezone()
    for path in [run.path, *run.path.rglob("*")]:
        os.utime(path, (when.timestamp(), when.timestamp()))
    assert listed_runs(tmp_path) == [
        {
            "name": "mine",
            "path": str(tmp_path / "mine"),
            "summary": f"3 responses; traced; 2 graded; 2 scored; {GENERATOR} on bench, other; "
            "2026-01-02 03:04",
            "responses": 3,
            "generators": [GENERATOR],
            "benchmarks": ["bench", "other"],
            "graded": 2,
            "traced": 3,
            "scored": 2,
            "written": when.isoformat(timespec="minutes"),
            "broken": None,
        }
    ]
    assert AUXILIARY not in listed_runs(tmp_path)[0]["summary"]


def test_broken_folders_are_named_and_hide_no_other(tmp_path: Path) -> None:
    for name in ("a", "d"):
        handmade_run(tmp_path / name, [Row()])
    changed = tmp_path / "a" / "run.yaml"
    changed.write_text(changed.read_text() + "x: 1\n")
    lost = handmade_run(tmp_path / "b", [Row()])
    for shard in lost.grades.folder.glob("*.parquet"):
        shard.unlink()
    (tmp_path / "c").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "file").write_text("")
    found = listed_runs(tmp_path)
    assert [run["name"] for run in found] == ["a", "b", "c", "d"]
    assert [run["responses"] for run in found] == [None, None, None, 1]
    assert "is not as it was written" in found[0]["broken"]
    assert "is gone" in found[1]["broken"]
    assert found[2]["summary"] == "broken: It is no run folder."
    assert found[3]["broken"] is None


def test_an_empty_run_and_many_names(tmp_path: Path) -> None:
    handmade_run(tmp_path / "empty", [])
    handmade_run(tmp_path / "many", [Row(benchmark=name) for name in "abcde"])
    empty, many = listed_runs(tmp_path)
    assert empty["summary"].startswith("no responses yet; ")
    assert "on a, b, c and 2 more; " in many["summary"]
