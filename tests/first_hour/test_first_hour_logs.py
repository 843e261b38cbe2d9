"""An engineer with logs: six files as tools leave them, each with the plain command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import first_hour_samples as samples
import pytest
from console import Command, Outcome
from first_hour_samples import QUESTIONS, environment, responses, rows

from divtok.store.run import Run

Works = Callable[..., Outcome]
LOGS: dict[str, Callable[[Path], Path]] = {
    "plain.jsonl": samples.write_jsonl,
    "chats.jsonl.gz": samples.write_packed_chats,
    "export.json": samples.write_json_array,
    "table.csv": samples.write_csv,
    "frame.parquet": samples.write_parquet,
}


def held(run: Path) -> list[tuple[str, str, str | None]]:
    """What a run holds, in the form of the logs."""
    opened = Run.open(run)
    problems = {p.id: p for p in opened.problems.read()}
    found = [(problems[t.problem_id], t.text) for t in opened.trajectories.read()]
    return [(p.question, text, p.answer) for p, text in found]


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_imported_as_it_is(name: str, tmp_path: Path, works: Works) -> None:
    works("import", LOGS[name](tmp_path / name), "--name", "mine")
    assert held(tmp_path / "runs" / "mine") == responses()


def test_a_broken_line_of_a_stream_is_reported_and_passed_over(
    tmp_path: Path, divtok: Command
) -> None:
    log = samples.write_broken_stream(tmp_path / "stream.jsonl")
    said = divtok("import", log, "--name", "mine")
    assert said.code == 3
    assert held(tmp_path / "runs" / "mine") == responses()
    assert "line 2" in said.err
    assert "2 of 6" in said.err


def test_a_log_comes_through_a_pipe(tmp_path: Path) -> None:
    log = samples.write_jsonl(tmp_path / "log.jsonl")
    done = subprocess.run(
        [sys.executable, "-m", "divtok", "import", "-", "--name", "mine"],
        input=log.read_bytes(),
        env=environment(),
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert held(tmp_path / "runs" / "mine") == responses()


def test_a_row_that_is_there_twice_is_said(tmp_path: Path, works: Works) -> None:
    log = samples.write_jsonl(tmp_path / "log.jsonl")
    log.write_text(log.read_text() + json.dumps(rows()[0]) + "\n")
    said = works("import", log, "--name", "mine")
    assert "line 5" in said.err or "row 5" in said.err


def test_an_imported_run_leads_to_its_confidences(
    tmp_path: Path, works: Works, divtok: Command
) -> None:
    works("import", samples.write_jsonl(tmp_path / "log.jsonl"), "--name", "mine")
    said = divtok("evaluate", "mine")
    assert said.code != 0
    assert "divtok score" in said.err
    assert "--family" in said.err
    divtok("score", "mine", "--pair", samples.WEAK, samples.READER, "--theta", "0.05")
    rows_back = works("export", "mine", "--format", "jsonl").out.splitlines()
    assert [json.loads(row)["question"] for row in rows_back] == [*QUESTIONS]
    assert all(json.loads(row)["dtc_lin"] is not None for row in rows_back)


def test_the_log_comes_back_with_the_confidences(
    tmp_path: Path, works: Works, divtok: Command
) -> None:
    log = samples.write_jsonl(tmp_path / "log.jsonl")
    works("import", log, "--name", "mine")
    divtok("score", "mine", "--pair", samples.WEAK, samples.READER, "--theta", "0.05")
    works("export", "mine", "--onto", log, "--out", "with.jsonl")
    found = [json.loads(line) for line in (tmp_path / "with.jsonl").read_text().splitlines()]
    assert len(found) == len(rows())
    for mine, given in zip(found, rows(), strict=True):
        assert mine.items() >= given.items()
        assert any("dtc_lin" in name for name in mine)
