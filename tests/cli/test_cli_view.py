"""The verb view: where the page is, what is said of it, what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_samples import FinishedRun
from console import Command

from divtok.models import load
from divtok.store.run import Run


@pytest.fixture
def run(finished: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A copy of the finished run, at runs/mine of the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished.folder, tmp_path / "runs" / "mine")
    return Run.open(Path("runs/mine"))


def test_a_page_is_written_without_a_model(
    run: Run, divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "load_model", None)
    said = divtok("view", "mine")
    path = run.report / "view.html"
    assert (said.code, said.out, said.err) == (0, f"{path}\n", "view: 8 responses\n")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_page_of_some_responses_says_so(run: Run, divtok: Command) -> None:
    said = divtok("view", "mine", "--limit", "3", "--out", "page.html")
    assert (said.code, said.out) == (0, "page.html\n")
    assert said.err == "view: 3 responses of 8; --limit N takes more\n"
    assert Path("page.html").exists()


def test_two_runs_go_on_one_page(run: Run, divtok: Command) -> None:
    shutil.copytree("runs/mine", "runs/other")
    assert divtok("score", "other", "score.theta=0.5").code == 0
    said = divtok("view", "mine", "--against", "other")
    assert said.code == 0
    page = (run.report / "view.html").read_text(encoding="utf-8")
    assert '"title": "other"' in page


def test_what_is_not_there_is_refused(run: Run, divtok: Command) -> None:
    assert "runs/none does not exist" in divtok("view", "mine", "--against", "none").error_line
    said = divtok("view", "mine", "--estimator", "dtc_lim")
    assert "The run has no confidences of 'dtc_lim'." in said.error_line
