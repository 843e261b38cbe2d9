"""Runs whose protocols ask in words of a user's: asked so, kept, and never mixed with others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stages_samples import GENERATOR, contents

import divtok
from divtok.config.run import RunConfig, load_config
from divtok.errors import StoreError
from divtok.importers import ImportOptions
from divtok.models.load import load_tokenizer
from divtok.protocols.wording import Wording, own_wording
from divtok.stages.import_files import import_files
from divtok.stages.run import run_stages
from divtok.stages.stored import stored_config
from divtok.store.run import Run

WORDS = "Here: {question} Answer in a box."
TEXT = f"kind: cot\nuser: '{WORDS}'\nfollow_up: 'How sure, 0 to 10, in \\boxed{{}}?'\n"
HASH = Wording("m", "cot", WORDS, follow_up="How sure, 0 to 10, in \\boxed{}?").hash


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    return path


def config_of(*overrides: str) -> RunConfig:
    few = ("samples=1", "limit=2", "sampling.max_length=150", "evaluate.resamples=20")
    return load_config(
        None, [f"generators=['{GENERATOR}']", "benchmarks=[arith-easy]", *few, *overrides]
    )


def test_a_run_asks_in_the_words_and_keeps_them(tmp_path: Path, file: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    run_stages(run, config_of(f"protocol={file}", "score.estimators=[dtc_lin, verbalized]"))
    trajectories = run.trajectories.read()
    assert {t.protocol for t in trajectories} == {f"cot@{HASH}"}
    tokenizer = load_tokenizer(GENERATOR)
    questions = {p.id: p.question for p in run.problems.read()}
    for t in trajectories:
        asked = tokenizer.decode(list(t.prompt_ids))
        assert f"Here: {questions[t.problem_id]} Answer in a box." in asked
        assert "step by step" not in asked
    manifest = run.manifest() or {}
    assert manifest["generate"]["wordings"] == {"mine": HASH}
    assert len(run.confidences.read()) == 2 * len(trajectories)
    # Without the file, and from another folder: everything is in the run.
    file.unlink()
    before = contents(run)
    moved = Run.open(run.path.rename(tmp_path / "elsewhere"))
    run_stages(moved, config_of())
    assert contents(moved) == before
    assert stored_config(moved).protocols() == [f"cot@{HASH}"]


def test_other_words_by_the_same_name_are_refused(tmp_path: Path, file: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    run_stages(run, config_of(f"protocol={file}"))
    file.write_text(TEXT.replace("Answer", "Reply"))
    with pytest.raises(StoreError) as refused:
        run_stages(run, config_of(f"protocol={file}"))
    assert "the wording of protocol 'mine' has changed" in str(refused.value)
    assert HASH[:8] in str(refused.value)
    # The same words by another name are the same.
    other = file.with_name("other.yaml")
    other.write_text(TEXT)
    run_stages(run, config_of(f"protocol={other}"))
    assert {t.protocol for t in run.trajectories.read()} == {f"cot@{HASH}"}
    with pytest.raises(StoreError, match=rf"protocol: cot@{HASH} -> cot:"):
        run_stages(run, config_of("protocol=cot"))


def test_divtoks_own_words_are_written_down_and_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create_or_open(tmp_path / "run")
    run_stages(run, config_of())
    manifest = run.manifest() or {}
    assert manifest["generate"]["protocol"] == "cot"
    assert manifest["generate"]["wordings"] == {"cot": own_wording("cot").hash}
    # A run of before, which has no hashes, goes on.
    with run.lock():
        old = {name: v for name, v in manifest["generate"].items() if name != "wordings"}
        run.write_manifest({**manifest, "generate": old})
    before = contents(run)
    run_stages(run, config_of())
    assert contents(run) == before
    # Words that another version of divtok might have.
    monkeypatch.setattr("divtok.stages.continued.wording_of", lambda _: Wording("c", "cot", WORDS))
    with run.lock():
        run.write_manifest(manifest)
    with pytest.raises(StoreError, match="the wording of protocol 'cot' has changed"):
        run_stages(run, config_of("limit=3"))


def imported(run: Run, rows: Path, protocol: str | Path) -> None:
    options = ImportOptions(
        format="jsonl", generator="someone", benchmark="sums", protocol=str(protocol)
    )
    with run.lock():
        import_files(run, [rows], options, family="tiny")


def test_imported_responses_are_read_behind_the_words(tmp_path: Path, file: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    row = {"question": "What is 1 + 1?", "answer": "2", "response": r"It is \boxed{2}."}
    rows.write_text(json.dumps(row))
    run = Run.create_or_open(tmp_path / "run")
    imported(run, rows, file)
    assert [t.protocol for t in run.trajectories.read()] == [f"cot@{HASH}"]
    assert stored_config(run).protocol == "mine"
    divtok.Run(run.path).score(family="tiny")
    assert [g.extracted for g in run.grades.read()] == ["2"]
    assert all(c.value is not None for c in run.confidences.read())
    file.write_text(TEXT.replace("Answer", "Reply"))
    with pytest.raises(StoreError, match="the wording of protocol 'mine' has changed"):
        imported(run, rows, file)


def test_python_takes_a_path(tmp_path: Path, file: Path) -> None:
    run = divtok.run(
        family="tiny",
        generators=[GENERATOR],
        benchmarks=["arith-easy"],
        limit=1,
        samples=1,
        protocol=file,
        out=tmp_path / "run",
    )
    assert run.trajectories["protocol"].to_list() == [f"cot@{HASH}"]
    rows = [{"gold": "2", "response": r"It is \boxed{2}."}]
    assert [g.verdict.value for g in divtok.grade(rows, protocol=file)] == ["correct"]
