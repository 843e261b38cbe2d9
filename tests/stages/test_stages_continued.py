"""What cannot join a run: said in the words of the config, all at once, and before any loading."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from stages_samples import (
    GENERATOR,
    RIGHT_OR_WRONG,
    contents,
    finish,
    no_models,
    small_config,
    write_responses,
)

from divtok.config.run import load_config
from divtok.errors import StoreError
from divtok.stages import generate as generation
from divtok.stages.continued import check_joins, continued
from divtok.stages.run import run_stages
from divtok.store.run import Run

OTHER = "divtok/tiny-0.9m"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return write_responses(tmp_path / "run", small_config(), RIGHT_OR_WRONG)


def refused(run: Run, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> str:
    """What is said of a command with these words on that run; nothing is loaded or changed."""

    def no_benchmark(*_: object, **__: object) -> None:
        raise AssertionError("a benchmark was loaded")

    no_models(monkeypatch)
    monkeypatch.setattr(generation, "load_benchmark", no_benchmark)
    before, manifest, text = contents(run), run.manifest(), run.config_text()
    with pytest.raises(StoreError) as caught:
        run_stages(run, load_config(None, list(overrides)))
    assert (contents(run), run.manifest(), run.config_text()) == (before, manifest, text)
    said = str(caught.value)
    assert "--name NAME or --out FOLDER" in said
    assert not re.search(r"[0-9a-f]{12}", said.replace(str(run.path), "")), said
    return said


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["limit=1"], "with limit: 2 -> 1: its"),
        (["samples=1"], "with samples: 2 -> 1: its"),
        (["seed=1"], "with seed: 0 -> 1: its"),
        (["subset_seed=4"], "with subset_seed: none -> 4: its"),
        (["sampling.temperature=0.5"], "with sampling.temperature: 1 -> 0.5: its"),
        (["sampling.top_p=0.9"], "with sampling.top_p: 1 -> 0.9: its"),
        (["generate.dtype=bfloat16"], "with dtype: float32 -> bfloat16: its"),
        (["protocol=verbalized"], "with protocol: cot -> verbalized: its"),
        (
            ["benchmark_protocols.arith-easy=verbalized"],
            "with protocol: cot -> verbalized of arith-easy: its",
        ),
        (
            ["limit=1", "seed=1", "sampling.temperature=0.5"],
            "with limit: 2 -> 1; sampling.temperature: 1 -> 0.5; seed: 0 -> 1: its",
        ),
        # What joins is no reason, what stands beside it is.
        ([f"generators=['{OTHER}']", "samples=3", "seed=1"], "with seed: 0 -> 1: its"),
    ],
)
def test_what_cannot_join(
    overrides: list[str], words: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert words in refused(run, monkeypatch, *overrides)


def test_another_limit_of_a_run_with_all_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sums.jsonl"
    rows = [{"id": str(i), "problem": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = ("benchmarks=['sums']", f"benchmark_files.sums={path}", "limit=null")
    run = write_responses(tmp_path / "run", small_config(*own), RIGHT_OR_WRONG)
    assert "with limit: all -> 2: its" in refused(run, monkeypatch, "limit=2")


def test_a_family_that_does_not_know_the_generators(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(run, monkeypatch, "family=qwen2.5")
    assert "cannot go on with family: tiny -> qwen2.5, which has other generators" in said


def test_other_weights_under_a_name_are_said_without_a_digest(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = run.manifest()
    assert stored is not None
    stored["generate"]["models"][GENERATOR] = "sha256:" + "0" * 32
    with run.lock():
        run.write_manifest(stored)
    said = refused(run, monkeypatch, "samples=3")
    assert "with other files of its generators: its" in said


def test_responses_of_unknown_or_other_origin_stay_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = run.manifest()
    assert stored is not None
    without = {name: section for name, section in stored.items() if name != "generate"}
    with run.lock():
        run.write_manifest(without)
    assert "are of unknown origin" in refused(run, monkeypatch, "samples=3")
    with run.lock():
        run.write_manifest({**without, "imported": {}})
    assert "were imported" in refused(run, monkeypatch, "samples=3")


def test_problems_that_changed_on_the_disk_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sums.jsonl"

    def write(*answers: str) -> None:
        rows = [{"id": str(i), "problem": "1 + 1?", "answer": a} for i, a in enumerate(answers)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    own = ("benchmarks=['sums']", f"benchmark_files.sums={path}", "limit=null")
    write("2", "3")
    run = write_responses(tmp_path / "run", small_config(*own), RIGHT_OR_WRONG)
    write("2", "4")
    no_models(monkeypatch)
    # Reads the file anew, which other tests read once.
    monkeypatch.setattr(generation, "load_benchmark", generation.load_benchmark.__wrapped__)
    with run.lock(), pytest.raises(StoreError, match=r"1 of those it has of sums .* first is 1"):
        generation.generate(run, small_config(*own))


def test_an_empty_run_joins_anything(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path)
    check_joins(run, small_config("seed=5"))
    assert continued(run, small_config("seed=5")) == small_config("seed=5")


@pytest.mark.parametrize(
    "more",
    [
        ("limit=3",),
        ("limit=null",),
        ("samples=3",),
        (f"generators=['{OTHER}']",),
        ("benchmarks=['arith-hard']",),
        ("score.theta=0.3", "score.n=8"),
        ("trace.max_batch_rows=2",),
        ("evaluate.resamples=50",),
    ],
)
def test_what_can_join(more: tuple[str, ...], run: Run) -> None:
    check_joins(run, continued(run, load_config(None, list(more))))


def test_another_pair_is_said(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    finish(run, small_config())
    capsys.readouterr()
    continued(run, load_config(None, ["trace.auxiliary=divtok/tiny-0.9m"]))
    said = capsys.readouterr().err
    assert (
        f"the pair that reads {GENERATOR}: {GENERATOR} with divtok/tiny-0.3m -> {GENERATOR} with "
        "divtok/tiny-0.9m; confidences are made anew" in said
    )
