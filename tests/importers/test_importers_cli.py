"""The verb import: what it says, and what it ends on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from console import Command
from importers_samples import (
    BATCH_OUTPUT,
    BATCH_REQUESTS,
    FAILING_LOG,
    LM_EVAL,
    SHARED,
    objects,
    write_lines,
)

from divtok.stages.bad_rows import BAD_ROWS_FILE
from divtok.store.run import Run


def test_it_says_what_was_imported_and_what_comes_next(divtok: Command, tmp_path: Path) -> None:
    run = tmp_path / "my run"
    said = divtok("import", FAILING_LOG, "--format", "inspect", "--out", run)
    assert said.code == 0, said.err
    assert said.out.splitlines() == [
        "failing.eval: 10 rows, 10 trajectories",
        f"run: {run}",
        "trajectories: 10, ended by unknown (9), failed (1)",
        "problems: 5, of which 5 have a gold answer",
        "benchmarks: arith_easy (10)",
        "generators: hf/tiny-0.5m (10)",
        "verdicts of 'match': correct (6), incorrect (3)",
        f"next: divtok score '{run}' --pair P Q",
    ]
    again = divtok("import", FAILING_LOG, "--format", "inspect", "--out", run)
    assert again.code == 0
    assert again.out.splitlines()[0] == "failing.eval: is there already, nothing changed"
    assert again.out.splitlines()[1:] == said.out.splitlines()[1:]


def test_it_says_which_columns_it_took(divtok: Command, tmp_path: Path) -> None:
    said = divtok("import", LM_EVAL, "--format", "lm-eval", "--out", tmp_path / "run")
    assert "question from 'doc.question', answer from 'target', id from 'doc_id'" in said.err
    assert "20 rows, 10 trajectories, 10 there already" in said.out


def test_json(divtok: Command, tmp_path: Path) -> None:
    said = divtok(
        "import", BATCH_OUTPUT, "--requests", BATCH_REQUESTS, "--format", "openai-batch",
        "--benchmark", "arith-easy", "--generator", "tiny", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    found = json.loads(said.out)
    assert found["run"] == {
        "trajectories": 5,
        "problems": 5,
        "gold_answers": 0,
        "generators": {"tiny": 5},
        "benchmarks": {"arith-easy": 5},
        "finish_reasons": {"stop": 3, "length": 1, "failed": 1},
        "protocol": "cot",
        "verdicts": {},
    }
    assert found["files"][0]["rows"] == 5
    assert "the generator 'divtok/tiny-0.5m' is called 'tiny'" in said.err


def test_columns_problems_and_protocol_go_through(divtok: Command, tmp_path: Path) -> None:
    file = write_lines(
        tmp_path / "a.jsonl", [{"row": {"q": "Please: 1 + 1?", "r": "2"}, "n": "p1"}]
    )
    problems = write_lines(tmp_path / "p.jsonl", [{"id": "p1", "problem": "1 + 1?", "answer": "2"}])
    said = divtok(
        "import", file, "--format", "jsonl", "--column", "question=row.q", "--column",
        "response=row.r", "--column", "id=n", "--problems", problems, "--generator", "m",
        "--protocol", "verbalized", "--family", "tiny", "--out", tmp_path / "run",
    )  # fmt: skip
    assert said.code == 0, said.err
    run = Run.open(tmp_path / "run")
    (problem,), (trajectory,) = run.problems.read(), run.trajectories.read()
    assert (problem.id, problem.question, problem.answer) == ("p1", "1 + 1?", "2")
    assert (trajectory.text, trajectory.protocol) == ("2", "verbalized")
    assert "family: tiny" in (run.config_text() or "")


def test_bad_rows_stop_it_or_are_counted(divtok: Command, tmp_path: Path) -> None:
    rows = [{"question": "q", "response": "r"}, b"[]", {"question": "s", "response": "r"}]
    file = write_lines(tmp_path / "a.jsonl", rows)
    given = ("import", file, "--format", "jsonl", "--generator", "m", "--out", tmp_path / "run")
    said = divtok(*given)
    assert said.code == 1
    assert said.err.startswith(f"divtok: {file}, line 2: not a JSON object")
    assert said.out == ""
    said = divtok(*given, "--skip-bad")
    assert said.code == 0
    aside = tmp_path / "run" / BAD_ROWS_FILE
    assert said.err.splitlines()[-2:] == [
        "import: 1 of 3 rows of a.jsonl were set aside: line 2: not a JSON object",
        f"import: the reasons are in {aside}",
    ]
    assert "a.jsonl: 3 rows, 2 trajectories, 1 set aside" in said.out


def test_hostile_names_do_not_act_on_the_terminal(divtok: Command, tmp_path: Path) -> None:
    row = {
        "question": "q",
        "response": "\x1b[2J",
        "model": "\x1b]0;owned\x07",
        "benchmark": "\u202e",
    }
    file = write_lines(tmp_path / "a.jsonl", [row])
    said = divtok("import", file, "--format", "jsonl", "--out", tmp_path / "run")
    assert said.code == 0
    assert not {"\x1b", "\x07", "\u202e"} & {*said.out, *said.err}
    hostile = {"question": "q", "response": "r", "model": "\x1b[2J", "id": "\x1b[2J", "sample": 0}
    file = write_lines(tmp_path / "b.jsonl", [hostile, {**hostile, "response": "s"}])
    said = divtok("import", file, "--format", "jsonl", "--out", tmp_path / "run")
    assert (said.code, "\x1b" in said.err) == (1, False)
    assert "line 2: sample 0 of problem '\N{REPLACEMENT CHARACTER}[2J'" in said.err


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("--format", "jsonl"), "Give --name NAME or --out FOLDER"),
        (("--format", "jsonl", "--out", "x", "--name", "y"), "Give one of them"),
        (("--format", "jsonl", "--out", "x", "--column", "answr=a"), "Did you mean 'answer'"),
        (("--format", "jsonl", "--out", "x", "--generator", " "), "is empty"),
        (("--format", "openai-batch", "--out", "x"), "--requests FILE"),
        (("--format", "lm_eval", "--out", "x"), "Did you mean 'lm-eval'"),
        (("--format", "jsonl", "--out", "x", "--protocol", "cots"), "Did you mean 'cot'"),
        (("--format", "jsonl", "--name", "../x"), "path separator"),
    ],
)
def test_wrong_use(
    divtok: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    match: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = divtok("import", LM_EVAL, *arguments)
    assert said.code == 2
    assert match in said.err


def test_what_is_imported_can_be_scored(divtok: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    divtok("import", LM_EVAL, "--format", "lm-eval", "--out", run)
    pair = ("--pair", "divtok/tiny-0.5m", "divtok/tiny-0.3m")
    said = divtok("score", run, *pair, "evaluate.resamples=20", "score.estimators=dtc_prod")
    assert said.code == 0, said.err
    store = Run.open(run)
    responses = {
        (row["doc_id"], n, text, row["target"])
        for row in objects(LM_EVAL)
        for n, text in enumerate(row["resps"][0])
    }
    right = sum(f"\\boxed{{{target}}}" in text for *_, text, target in responses)
    assert {(e.n, e.accuracy) for e in store.evaluations.read()} == {(10, right / 10)}
    assert all(trace.retokenized and trace.status == "ok" for trace in store.traces.read())
    again = divtok("import", LM_EVAL, "--format", "lm-eval", "--out", run)
    assert "nothing changed" in again.out
    assert "auxiliary: divtok/tiny-0.3m" in (store.config_text() or "")


def test_a_run_of_real_responses(divtok: Command, tmp_path: Path) -> None:
    path = SHARED / "math500_greedy_3models.jsonl"
    if not path.exists():
        pytest.skip("the shared data is not here")
    said = divtok("import", path, "--format", "jsonl", "--out", tmp_path / "run")
    assert "1500 rows, 1500 trajectories" in said.out
    assert "problems: 500, of which 500 have a gold answer" in said.out
    assert "gemma2-2b (500), gemma2-9b (500), qwen2.5-math-7b (500)" in said.out
