"""Every error is one line that says what happened and what to do, with its exit code."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_samples import SMALL, FinishedRun, call
from console import Command

from divtok.generate.engines import transformers as local
from divtok.stages import trace as tracing
from divtok.store.run import Run

BROKEN = "{"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def without_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(local, "load_model", refuse)
    monkeypatch.setattr(tracing, "load_pair", refuse)


def problems_file(path: Path, *identities: str) -> None:
    rows = [{"id": i, "problem": f"{n} + 1?", "answer": n + 1} for n, i in enumerate(identities)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["lmit=3"], 2, "unknown key 'lmit'. Did you mean 'limit'?"),
        (["score.thta=0.4"], 2, "unknown key 'score.thta'. Did you mean 'theta'?"),
        (["score.theta=2"], 2, "score.theta = 2: input should be less than or equal to 1."),
        (["--limit", "0"], 2, "limit = 0: input should be greater than or equal to 1."),
        (["nope.yaml"], 2, "The config file nope.yaml cannot be read"),
        (["seed=1", "nope"], 2, "'nope' is not an override. Write dotted.key=value"),
        (["=1"], 2, "'=1' is not an override."),
        (["score..theta=1"], 2, "'score..theta=1' is not an override."),
        (["seed.x=1", "seed=[1"], 2, "Not valid YAML in 'seed=[1'"),
        (["--family", "tny"], 2, "unknown family. Did you mean 'tiny'?"),
        (["score.estimators=['dtc_lim']"], 2, "Unknown estimator 'dtc_lim'. Did you mean"),
        (["trace.divergences=['jds']"], 2, "Unknown divergence 'jds'. Did you mean 'jsd'?"),
        (["generators=['divtok/tiny-5m']"], 2, "has no generator 'divtok/tiny-5m'. Did you mean"),
        (["benchmarks=['arith-eas']"], 2, "Unknown benchmark 'arith-eas'. Did you mean"),
        (["--name", "a", "--out", "b"], 2, "Both --name and --out were given."),
        (["--name", "../x"], 2, "'../x' cannot be the name of a run"),
        (["--name", ""], 2, "'' cannot be the name of a run"),
        (["trace.auxiliary=/nonexistent"], 1, "There is no model folder '/nonexistent'."),
        (["trace.auxiliary=divtok/tiny-3m"], 1, "There is no packaged model 'divtok/tiny-3m'."),
        (
            ["benchmarks=['mine']", "benchmark_files.mine=no.jsonl", "samples=1"],
            1,
            "The file no.jsonl cannot be read (No such file or directory).",
        ),
        (
            ["benchmarks=['mine']", "benchmark_files.mine=twice.jsonl", "samples=1"],
            1,
            "twice.jsonl, line 3: the id 'a' is already that of twice.jsonl, line 1.",
        ),
        (
            ["benchmarks=['mine']", "benchmark_files.mine=one.jsonl"],
            2,
            "has no sample count for benchmark 'mine'. Give one: samples=N",
        ),
    ],
)
def test_run_refuses(
    arguments: list[str], code: int, message: str, divtok: Command, without_models: None
) -> None:
    problems_file(Path("twice.jsonl"), "a", "b", "a")
    problems_file(Path("one.jsonl"), "a")
    said = divtok("run", *arguments)
    assert message in said.error_line
    assert said.code == code


def test_all_mistakes_of_a_config_are_told_at_once(divtok: Command) -> None:
    Path("run.yaml").write_text("lmit: 3\nscore: {theta: 2, k: -1}\n")
    line = divtok("run", "run.yaml").error_line
    assert line.startswith("divtok: Config error in run.yaml: ")
    for part in ("'lmit'", "score.theta = 2", "score.k = -1"):
        assert part in line


@pytest.mark.parametrize("verb", ["grade", "trace", "score", "evaluate", "report"])
def test_verbs_name_a_run_that_is_not_there(verb: str, divtok: Command) -> None:
    said = divtok(verb, "nosuch")
    assert "The run runs/nosuch does not exist." in said.error_line
    assert said.code == 1
    assert divtok(verb, "no/such").code == 1


@pytest.mark.parametrize("theta", ["2", "-0.1", "nan", "inf"])
def test_a_theta_that_is_none(theta: str, divtok: Command, finished: FinishedRun) -> None:
    said = divtok("score", finished.folder, "--theta", theta)
    assert re.fullmatch(
        r"divtok: theta must be between 0 and 1, not \S+\. Correct its value\.", said.error_line
    )
    assert said.code == 2


def test_a_changed_seed_is_named(
    divtok: Command, finished: FinishedRun, without_models: None
) -> None:
    said = divtok("run", *SMALL, "--seed", "1", "--out", finished.folder)
    assert "cannot go on with seed: 0 -> 1" in said.error_line
    assert "make another run of it: --name NAME or --out FOLDER" in said.error_line
    assert said.code == 1


def test_a_folder_that_holds_something_else(divtok: Command) -> None:
    Path("thesis").mkdir()
    Path("thesis/chapter.txt").write_text("It was a dark night.")
    said = divtok("run", "--out", "thesis")
    assert "thesis has files in it, but it is not a run folder." in said.error_line
    assert said.code == 1


def test_an_auxiliary_with_a_broken_config(
    divtok: Command, finished: FinishedRun, benchmarks_loaded_once: None
) -> None:
    broken = Path("broken")
    broken.mkdir()
    (broken / "config.json").write_text(BROKEN)
    shutil.copytree(finished.folder, "run")
    shutil.rmtree("run/traces")
    said = divtok("run", *SMALL, "trace.auxiliary=./broken", "--out", "run")
    assert "of './broken' cannot be read" in said.error_line
    assert said.code == 1


def test_a_run_that_another_process_writes_to(divtok: Command, finished: FinishedRun) -> None:
    shutil.copytree(finished.folder, "run")
    with Run.open(Path("run")).lock():
        said = divtok("score", "run")
        assert divtok("evaluate", "run").code == 0, "reading needs no lock"
    assert said.error_line.startswith("divtok: Another process is writing to run: pid ")
    assert said.code == 1


def test_fit_refuses_an_unknown_family(divtok: Command) -> None:
    said = divtok("fit", "qwen")
    assert said.error_line == ("divtok: Unknown family 'qwen'. Did you mean 'qwen3' or 'qwen2.5'?")
    assert said.code == 2


@pytest.mark.parametrize(
    "arguments",
    [["nosuch"], ["ls", "nosuch"], ["ls"], ["run", "--nosuch"], ["run", "--limit", "many"], []],
)
def test_wrong_usage_ends_with_2(arguments: list[str], divtok: Command) -> None:
    said = divtok(*arguments)
    assert said.code == 2
    assert "Traceback" not in said.err
    assert "sage:" in said.out + said.err


def test_a_process_of_its_own_ends_the_same_way(tmp_path: Path) -> None:
    said = call("run", "lmit=3", cwd=tmp_path)
    assert said.error_line.endswith("unknown key 'lmit'. Did you mean 'limit'?")
    assert said.code == 2
    assert list(tmp_path.iterdir()) == []
