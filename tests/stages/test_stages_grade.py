"""The grader a config names: one for all grades of a run, also of a run that names none."""

from __future__ import annotations

from pathlib import Path

import pytest
from stages_samples import Row, handmade_run, small_config

from divtok.errors import ConfigError, StoreError
from divtok.records import Verdict
from divtok.stages.grade import grade
from divtok.store.run import Run, check_or_write_manifest


def ungraded_run(folder: Path) -> Run:
    run = handmade_run(folder, [Row("a")])
    with run.lock():
        run.grades.replace([])
        run.write_manifest({"generate": {}})
    return run


def test_the_usual_grader_is_not_written_down(tmp_path: Path) -> None:
    run = ungraded_run(tmp_path)
    with run.lock():
        grade(run, small_config())
        assert run.manifest() == {"generate": {}}
        with pytest.raises(StoreError, match=r"grade\.grader: maths -> exact"):
            grade(run, small_config("grade.grader=exact"))
        grade(run, small_config())


def test_another_grader_is(tmp_path: Path) -> None:
    run = ungraded_run(tmp_path)
    with run.lock():
        grade(run, small_config("grade.grader=exact"))
        assert run.manifest() == {"generate": {}, "grade": {"grader": "exact"}}
        grade(run, small_config("grade.grader=exact"))
        with pytest.raises(StoreError, match=r"grade\.grader: exact -> maths"):
            grade(run, small_config())
    (found,) = run.grades.read()
    assert found.verdict in set(Verdict)


def test_an_attempt_that_graded_nothing_leaves_the_choice_open(tmp_path: Path) -> None:
    run = ungraded_run(tmp_path)
    with run.lock():
        check_or_write_manifest(run, {"grader": "exact"}, section="grade")
        grade(run, small_config())
    assert len(run.grades.read()) == 1


def test_an_unknown_grader_or_protocol_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"grade.grader = 'math': unknown grader\. .*'maths'"):
        small_config("grade.grader=math")
    with pytest.raises(ConfigError, match=r"protocol = 'cots': unknown protocol\. .*'cot'"):
        small_config("protocol=cots")
