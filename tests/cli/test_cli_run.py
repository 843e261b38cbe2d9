"""The verbs on the embedded family, from problems to a report."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_samples import GENERATOR, SMALL, FinishedRun
from console import Command

from divtok.cli.options import config_from
from divtok.config.run import load_config, resolve
from divtok.evaluate.fit import PAPER_GRID
from divtok.families.family import FAMILIES, get_family
from divtok.records import Verdict
from divtok.stages.stored import stored_config
from divtok.store.run import Run

METRICS = ("ece", "ece_sd", "auroc", "auroc_sd", "natural_ece", "natural_auroc", "brier", "aurc")
TABLES = ("problems", "trajectories", "grades", "traces", "counts", "confidences", "evaluations")


def refuse_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


def test_run_makes_every_table_and_the_report(finished: FinishedRun) -> None:
    run = Run.open(finished.folder)
    sizes = {table.layout.name: len(table.read()) for table in run.tables}
    assert {name: size for name, size in sizes.items() if size} == {
        "problems": 4,
        "trajectories": 8,
        "grades": 8,
        "traces": 8,
        "counts": 8,
        "confidences": 56,  # seven estimators
        "evaluations": 20,  # and three facts, on two benchmarks
    }
    keys = {t.key for t in run.trajectories.read()}
    assert {g.key for g in run.grades.read()} == keys
    assert {t.key for t in run.traces.read()} == keys
    assert {c.key for c in run.confidences.read()} == keys
    assert stored_config(run) == resolve(load_config(None, SMALL))
    report = finished.folder / "report"
    tables = {"ece", "auroc"}
    for name in tables:
        for suffix in (".csv", ".md", ".tex"):
            assert (report / "tables" / name).with_suffix(suffix).stat().st_size > 0
    assert (report / "README.md").read_text().startswith("#")
    assert any((report / "figures").glob("*.png"))
    with (report / "tables" / "all.csv").open() as stream:
        assert len(list(csv.reader(stream))) >= 1 + sizes["evaluations"]


def test_run_prints_both_tables_and_tells_its_progress_apart(finished: FinishedRun) -> None:
    said = finished.said
    assert "ECE on balanced draws (%, lower is better)" in said.out
    assert "AUROC on balanced draws (%, higher is better)" in said.out
    for stage in ("generate", "grade", "trace"):
        assert any(line.startswith(stage) and "8/8" in line for line in said.err.splitlines())
    theta = FAMILIES.get("tiny").theta
    assert f"score: 7 estimators, 56 confidences at theta {theta:g}" in said.err
    assert str(finished.folder / "report" / "README.md") in said.err


def test_grades_are_what_the_responses_say(finished: FinishedRun) -> None:
    """On arithmetic, an answer is right where its digits are those of the gold answer."""
    run = Run.open(finished.folder)
    gold = {p.id: p.answer for p in run.problems.read()}
    grades = {g.key: g for g in run.grades.read()}
    for trajectory in run.trajectories.read():
        grade = grades[trajectory.key]
        if trajectory.truncated:
            continue
        written = trajectory.text.rpartition(r"\boxed{")[2].partition("}")[0]
        assert grade.extracted == written
        right = written == gold[trajectory.problem_id]
        assert grade.verdict == (Verdict.CORRECT if right else Verdict.INCORRECT)


def test_a_second_run_finds_everything_there(
    finished: FinishedRun, tmp_path: Path, divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    first = divtok("evaluate", folder, "--json")
    monkeypatch.setenv("COLUMNS", "80")
    again = divtok("run", *SMALL, "--out", folder)
    assert again.code == 0
    for stage in ("generate", "grade", "trace"):
        assert any(
            line.startswith(stage) and line.endswith("8 of 8 are there already")
            for line in again.err.splitlines()
        )
    assert again.out == finished.said.out
    assert divtok("evaluate", folder, "--json") == first
    for name in TABLES[:4]:
        before = {path.name for path in (finished.folder / name).iterdir()}
        assert {path.name for path in (folder / name).iterdir()} == before


def test_evaluate_prints_sound_json(finished: FinishedRun, divtok: Command) -> None:
    said = divtok("evaluate", finished.folder, "--json")
    assert (said.code, said.err) == (0, "")
    rows = json.loads(said.out, parse_constant=refuse_constant)
    assert {(row["benchmark"], row["generator"]) for row in rows} == {
        ("arith-easy", GENERATOR),
        ("arith-medium", GENERATOR),
    }
    assert len({(row["benchmark"], row["estimator"]) for row in rows}) == len(rows) == 20
    for row in rows:
        assert row["n"] == 4
        assert row["n_scored"] + row["excluded"] == row["n"]
        assert sum(row["excluded_by"].values()) == row["excluded"]
        assert 4 * row["accuracy"] in (0, 1, 2, 3, 4)
        assert set(METRICS) <= set(row)
        numbers = [row[name] for name in METRICS if row[name] is not None]
        assert all(0 <= number <= 1 for number in numbers)
        if len(numbers) < len(METRICS):
            assert row["reason"]


def test_evaluate_agrees_with_the_stored_evaluations(
    finished: FinishedRun, divtok: Command
) -> None:
    rows = json.loads(divtok("evaluate", finished.folder, "--json").out)
    stored = Run.open(finished.folder).evaluations.read()
    assert [(row["benchmark"], row["estimator"], row["ece"], row["auroc"]) for row in rows] == [
        (e.benchmark, e.estimator, e.ece, e.auroc) for e in stored
    ]


def test_evaluate_prints_tables_without_json(
    finished: FinishedRun, divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = divtok("evaluate", finished.folder)
    assert (said.code, said.err) == (0, "")
    for text in ("arith-easy", "arith-medium", GENERATOR, "DTC", "lin", "prod", "Length"):
        assert text in said.out


def test_evaluate_says_how_many_tokens_lie_near_theta(
    finished: FinishedRun, divtok: Command
) -> None:
    """Counted here from the traces anew, in the band that the output names."""
    run = Run.open(finished.folder)
    rows = json.loads(divtok("evaluate", finished.folder, "--json").out)
    (found,) = rows[0]["near_theta"]
    assert all(row["near_theta"] == [found] for row in rows), "there is one generator"
    assert (found["generator"], found["theta"]) == (GENERATOR, FAMILIES.get("tiny").theta)
    low, high = found["theta"] - found["band_bits"], found["theta"] + found["band_bits"]
    bits = [trace.jsd_bits[trace.reasoning()] for trace in run.traces.read()]
    near = [int(((b >= low) & (b <= high)).sum()) for b in bits]
    assert (found["tokens"], found["near"]) == (sum(map(len, bits)), sum(near))
    assert (found["trajectories"], found["trajectories_near"]) == (8, sum(map(bool, near)))
    assert found["share"] == found["near"] / found["tokens"]
    assert found["count"] == sum(int((b > np.float32(found["theta"])).sum()) for b in bits)
    assert found["count"] == sum(row.count for row in run.counts.read()) > 0
    line = " ".join(divtok("evaluate", finished.folder).out.partition("Near theta: ")[2].split())
    assert line.startswith(f"{GENERATOR} with {FAMILIES.get('tiny').auxiliary}: ")
    assert f"{found['tokens']:,} reasoning tokens" in line
    assert f"within {found['band_bits']:g} bits of theta {found['theta']:g}" in line
    assert "Near theta: " in finished.said.out
    assert "## Tokens near theta" in (finished.folder / "report" / "README.md").read_text()


def test_a_run_is_found_by_name_and_by_folder(
    finished: FinishedRun, tmp_path: Path, divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished.folder, tmp_path / "runs" / "mine")
    monkeypatch.chdir(tmp_path)
    by_name = divtok("evaluate", "mine", "--json")
    assert by_name.code == 0
    assert divtok("evaluate", "runs/mine", "--json") == by_name
    monkeypatch.chdir(tmp_path / "runs")
    assert divtok("evaluate", "mine", "--json") == by_name


def test_score_takes_another_theta_without_a_model(
    finished: FinishedRun, tmp_path: Path, divtok: Command
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    assert divtok("score", folder, "--theta", "1").code == 0
    confidences = [c for c in Run.open(folder).confidences.read() if c.estimator == "dtc_lin"]
    assert {c.value for c in confidences} == {0.95}, "no token is above one bit"
    assert {c.params["theta"] for c in confidences} == {1.0}
    assert divtok("score", folder).code == 0
    kept = [c for c in Run.open(folder).confidences.read() if c.estimator == "dtc_lin"]
    assert {c.params["theta"] for c in kept} == {1.0}, "the run keeps the theta it was given"
    preset = str(get_family("tiny").theta)
    assert divtok("score", folder, "--theta", preset).code == 0
    before = Run.open(finished.folder).confidences.read()
    assert Run.open(folder).confidences.read() == before


def test_single_stages_make_the_same_run(
    finished: FinishedRun, tmp_path: Path, divtok: Command, benchmarks_loaded_once: None
) -> None:
    folder = tmp_path / "run"
    assert divtok("generate", *SMALL, "--out", folder).code == 0
    for verb in ("grade", "trace", "score"):
        assert divtok(verb, folder).code == 0
    whole = divtok("evaluate", finished.folder, "--json")
    assert divtok("evaluate", folder, "--json") == whole


def test_the_command_line_stands_above_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("seed: 5\nlimit: 3\nsamples: 2\nscore: {theta: 0.7}\n")
    config = config_from([str(file), "limit=4", "score.theta=0.8", "seed=7"], seed=6)
    assert (config.samples, config.limit, config.score.theta, config.seed) == (2, 4, 0.8, 6)


def test_fit_chooses_a_theta_of_the_grid(tmp_path: Path, divtok: Command) -> None:
    folder = tmp_path / "fit"
    said = divtok("fit", "tiny", "--limit", "4", "--out", folder, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out, parse_constant=refuse_constant)
    assert found["theta"] in PAPER_GRID
    assert [point["theta"] for point in found["curve"]] == list(PAPER_GRID)
    lowest = min(point["ece"] for point in found["curve"])
    chosen = next(point for point in found["curve"] if point["theta"] == found["theta"])
    assert chosen["ece"] == pytest.approx(lowest, abs=1e-12)
    counts = [point["mean_count"] for point in found["curve"]]
    assert counts == sorted(counts, reverse=True)
    smallest = FAMILIES.get("tiny").generators[0]
    assert found["n"] + found["excluded"] == 4 * smallest.samples["arith-fit"]
    run = Run.open(folder)
    assert {t.generator for t in run.trajectories.read()} == {smallest.model}
    assert {p.benchmark for p in run.problems.read()} == {"arith-fit"}
    assert any((folder / "report" / "figures").glob("*theta*"))


def test_a_fitting_run_goes_on_with_more_samples_and_problems(
    tmp_path: Path, divtok: Command
) -> None:
    folder = tmp_path / "fit"
    few = ("fit", "tiny", "--limit", "6", "--samples", "1", "--out", folder)
    assert divtok(*few).code == 0
    before = {t.key: t.token_ids for t in Run.open(folder).trajectories.read()}
    assert len(before) == 6
    said = divtok("fit", "tiny", "--limit", "8", "--samples", "3", "--out", folder)
    assert said.code == 0, said.err
    after = {t.key: t.token_ids for t in Run.open(folder).trajectories.read()}
    assert len(after) == 24
    assert {key: after[key] for key in before} == before
    words = " ".join(said.out.split())
    assert "responses, 8 problems" in words
    assert "95 % interval: 0." in words
    assert "fewer than 30, because so few are" in words
    fewer = divtok(*few)
    assert fewer.code != 0
    assert "samples: 3 -> 1" in fewer.error_line


def test_demo_shows_tokens_tables_and_what_to_look_at(tmp_path: Path, divtok: Command) -> None:
    said = divtok("demo", "--limit", "1", "--out", tmp_path / "demo")
    assert said.code == 0, said.err
    for text in (
        "ECE on balanced draws (%",
        "AUROC on balanced draws (%",
        "What to look at",
        f"theta = {FAMILIES.get('tiny').theta:g} bits",
    ):
        assert text in said.out
    assert " nan" not in said.out


def test_options_of_the_models_reach_both_stages(tmp_path: Path, divtok: Command) -> None:
    out = divtok("run", *SMALL, "--out", tmp_path / "run", "--device-map", "toaster")
    assert out.code == 2
    assert "Unknown device 'toaster'" in out.err
    out = divtok("run", *SMALL, "--out", tmp_path / "run", "--dtype", "float8")
    assert out.code == 2
    assert "generate.dtype" in out.err
    assert "trace.dtype" in out.err


def test_tracing_again_in_another_type_is_refused(finished: FinishedRun, divtok: Command) -> None:
    out = divtok("trace", finished.folder, "--dtype", "bfloat16")
    assert out.code == 1
    assert "float32 -> bfloat16" in out.err
