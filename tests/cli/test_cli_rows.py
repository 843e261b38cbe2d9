"""The verbs export, show and ls runs: what is printed, where it goes, what is refused."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from cli_samples import FinishedRun, command, environment
from console import Command

from divtok.models import load
from divtok.records import Grade, Verdict
from divtok.store.run import Run


@pytest.fixture
def run(finished: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A copy of the finished run, at runs/mine of the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    shutil.copytree(finished.folder, tmp_path / "runs" / "mine")
    return Run.open(Path("runs/mine"))


def test_no_model_is_loaded(run: Run, divtok: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "load_model", None)
    key = run.trajectories.read()[0].key
    for arguments in (("export", "mine"), ("show", "mine", key), ("ls", "runs")):
        assert divtok(*arguments).code == 0


def test_a_file_has_what_a_pipe_has_byte_for_byte(run: Run, divtok: Command) -> None:
    for kind in ("csv", "jsonl"):
        said = divtok("export", "mine", "--format", kind, "--out", f"x.{kind}")
        assert (said.code, said.out) == (0, "")
        assert said.err == f"export: 8 responses in x.{kind}\n"
        piped = subprocess.run(
            command("export", "mine", "--format", kind), env=environment(), capture_output=True
        )
        assert piped.stdout == Path(f"x.{kind}").read_bytes()


def test_the_three_formats_hold_the_same(run: Run, divtok: Command) -> None:
    for kind in ("csv", "jsonl", "parquet"):
        assert divtok("export", "mine", "--out", f"x.{kind}").code == 0
    frame = pl.read_parquet("x.parquet")
    lines = [json.loads(line) for line in Path("x.jsonl").read_text().splitlines()]
    assert frame.to_dicts() == lines
    with Path("x.csv").open(newline="") as file:
        table = list(csv.DictReader(file, strict=True))
    for row, line in zip(table, lines, strict=True):
        assert row["response"] == line["response"]
        assert float(row["dtc_prod"]) == line["dtc_prod"]
        assert json.loads(row["suspect_tokens"]) == line["suspect_tokens"]
    stored = {(c.key, c.estimator): c.value for c in run.confidences.read()}
    counts = {c.key: c.count for c in run.counts.read()}
    for line in lines:
        assert line["nsl"] == stored[line["key"], "nsl"]
        assert line["count"] == counts[line["key"]] == len(line["suspect_tokens"])


def test_the_divergent_tokens_may_be_left_out(run: Run, divtok: Command) -> None:
    (header,) = divtok("export", "mine", "--no-tokens").out.splitlines()[:1]
    assert header.endswith(",count,tokens,theta,reason")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--format", "parquet"),
        ("--format", "csv", "--out", "x.jsonl"),
        ("--onto", "x.jsonl", "--format", "csv"),
        ("--format", "xlsx"),
    ],
)
def test_options_that_do_not_go_together(
    run: Run, divtok: Command, arguments: tuple[str, ...]
) -> None:
    said = divtok("export", "mine", *arguments)
    assert (said.code, said.out) == (2, "")


def test_a_response_is_shown_with_all_that_is_known(run: Run, divtok: Command) -> None:
    row = max(run.counts.read(), key=lambda row: row.count)
    said = divtok("show", "mine", row.key[:8])
    assert (said.code, said.err) == (0, "")
    problems = {p.id: p for p in run.problems.read()}
    trajectory = run.trajectories.lookup()[(row.key,)]
    plain = " ".join(said.out.split())
    assert problems[trajectory.problem_id].question in plain
    for confidence in run.confidences.read():
        if confidence.key == row.key:
            assert f"{confidence.estimator} {confidence.value:.3f}" in plain
    assert f"count {row.count} at theta 0.05" in plain
    assert said.out.count("[") == row.count
    # Without the marks it is the response, wrapped.
    text = said.out.partition("bits)\n\n")[2].replace("[", "").replace("]", "").replace("↵", "")
    shown = "".join(text.replace("<|im_end|>", "").split())
    assert shown == "".join(trajectory.text.split())


def test_a_problem_with_several_responses_is_a_list(run: Run, divtok: Command) -> None:
    name = run.problems.read()[0].id
    keys = [t.key for t in run.trajectories.read() if t.problem_id == name]
    lines = divtok("show", "mine", name).out.splitlines()
    assert lines[0].split() == ["key", "dtc_lin", "verdict", "count", "question"]
    assert [line[:12] for line in lines[1:]] == [key[:12] for key in keys]


def test_lists_fit_the_screen_and_are_data_with_json(run: Run, divtok: Command) -> None:
    said = divtok("show", "mine", "--least-trusted", "3")
    lines = said.out.splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80
    rows = json.loads(divtok("show", "mine", "--least-trusted", "3", "--json").out)
    assert [row["key"][:12] for row in rows] == [line[:12] for line in lines[1:]]
    values = sorted(c.value for c in run.confidences.read() if c.estimator == "dtc_lin")
    assert [row["dtc_lin"] for row in rows] == values[:3]


def test_one_thing_is_shown_at_a_time(run: Run, divtok: Command) -> None:
    for arguments in ((), ("abcd", "--least-trusted", "3")):
        said = divtok("show", "mine", *arguments)
        assert said.code == 2
        assert "divtok show mine --least-trusted 20" in said.err


def test_an_ungraded_response_is_shown(run: Run, divtok: Command) -> None:
    key = run.trajectories.read()[0].key
    with run.lock():
        run.grades.replace([grade for grade in run.grades.read() if grade.key != key])
    said = divtok("show", "mine", key)
    assert said.code == 0
    assert "- (not graded yet)" in said.out


def test_a_hostile_run_does_not_act_on_the_terminal(run: Run, divtok: Command) -> None:
    key = run.trajectories.read()[0].key
    with run.lock():
        run.grades.append([Grade(key, "\x1b[31m=1", Verdict.INCORRECT, "\x1b]0;x\x07")])
    for arguments in (("show", "mine", key), ("show", "mine", "--confidently-wrong", "9")):
        said = divtok(*arguments)
        assert said.code == 0
        assert "\x1b" not in said.out
    rows = csv.DictReader(io.StringIO(divtok("export", "mine").out, newline=""))
    found = {row["key"]: row for row in rows}[key]
    assert found["answer"] == "\x1b[31m=1", "data stays as it is, in a pipe"


def test_runs_are_listed_and_none_is_no_error(run: Run, divtok: Command) -> None:
    lines = divtok("ls", "runs").out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("mine  8 responses; graded, traced, scored; divtok/tiny-0.5m on ")
    (listed,) = json.loads(divtok("ls", "runs", "--json").out)
    assert (listed["name"], listed["responses"], listed["broken"]) == ("mine", 8, None)
    shutil.rmtree("runs")
    said = divtok("ls", "runs")
    assert said.code == 0
    assert "divtok demo" in said.out
    assert json.loads(divtok("ls", "runs", "--json").out) == []
