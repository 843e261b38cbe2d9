"""divtok show RUN KEY --steps: the steps of a response, the most suspect first."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from cli_samples import FinishedRun
from console import Command

import divtok as package
from divtok.models import load
from divtok.store.run import Run


@pytest.fixture
def run(finished: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(load, "load_model", None)
    shutil.copytree(finished.folder, tmp_path / "runs" / "mine")
    return Run.open(Path("runs/mine"))


def test_every_step_has_a_line_and_every_token_is_shown(run: Run, divtok: Command) -> None:
    row = run.trajectories.read()[0]
    said = divtok("show", "mine", row.key, "--steps")
    assert (said.code, said.err) == (0, "")
    table = said.out[said.out.index("rank") :]
    found = re.findall(r"^ *(\d+) +(\d+) +\d+\.\d{3} +\d+  ", table, flags=re.MULTILINE)
    steps = len(row.text.split("\n"))
    assert [int(rank) for rank, _ in found] == list(range(1, steps + 1))
    assert sorted(int(step) for _, step in found) == list(range(1, steps + 1))
    assert re.search(r"No step is known to be wrong|first wrong step is|not known", table)
    whole = divtok("show", "mine", row.key).out
    head = re.search(r"^\d+ divergent.* of \d+ tokens.*?(?=\n\n)", whole, re.MULTILINE | re.DOTALL)
    assert head is not None
    assert head[0] in said.out  # what the marks mean


def test_the_same_as_json_and_from_python(run: Run, divtok: Command) -> None:
    for row in run.trajectories.read():
        found = json.loads(divtok("show", "mine", row.key[:10], "--steps", "--json").out)
        assert found.keys() == {"key", "theta", "first_wrong_step", "reason", "steps"}
        assert found["key"] == row.key
        steps = sorted(found["steps"], key=lambda step: step["step"])
        assert [step["text"] for step in steps] == row.text.split("\n")
        assert [row.text[step["start"] : step["stop"]] for step in steps] == row.text.split("\n")
        tokens = [(step["first_token"], step["end_token"]) for step in steps]
        assert [start for start, _ in tokens] == [0, *(stop for _, stop in tokens[:-1])]
        scores = [step["score"] for step in found["steps"]]
        assert scores == sorted(scores, reverse=True)
        wrong = [step["step"] for step in steps if step["known_wrong"]]
        assert wrong == [found["first_wrong_step"]] * (found["first_wrong_step"] is not None)
        same = package.Run(Path("runs/mine")).suspect_steps(row.key)
        assert [step.step for step in same] == [step["step"] for step in found["steps"]]


@pytest.mark.parametrize("arguments", [["--steps"], ["--least-trusted", "3", "--steps"]])
def test_steps_are_of_a_key(run: Run, divtok: Command, arguments: list[str]) -> None:
    said = divtok("show", "mine", *arguments)
    assert said.code == 2
    assert "KEY" in said.err


def test_steps_are_of_one_response(run: Run, divtok: Command) -> None:
    problem = run.trajectories.read()[0].problem_id
    said = divtok("show", "mine", problem, "--steps")
    assert said.code == 2
    assert "2 responses are meant" in said.err
