"""The verb sweep on a small run of the tiny family."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_samples import FinishedRun, environment
from console import Command

from divtok.cli.sweep import OPTIMISTIC
from divtok.errors import EXIT_ERROR, EXIT_NOTHING, EXIT_OK, EXIT_USAGE
from divtok.evaluate.sweep.rates import RATES
from divtok.records import Grade, Verdict
from divtok.stages.stored import stored_config
from divtok.store.run import Run

# The divergences that every trace has, with the thetas they are swept over, in bits.
JSD_GRID = [k / 100 for k in range(1, 100)]
KL_GRID = [k / 50 for k in range(1, 301)]

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = sys.modules["matplotlib"] = None
from divtok.cli import main
main()
"""


@pytest.fixture
def folder(finished: FinishedRun, tmp_path: Path) -> Path:
    """A copy of the finished run in which either benchmark has right and wrong responses."""
    copied = tmp_path / "copied"
    shutil.copytree(finished.folder, copied)
    run = Run.open(copied)
    with run.lock():
        keys = [t.key for t in sorted(run.trajectories.read(), key=lambda t: (t.benchmark, t.key))]
        verdicts = (Verdict.CORRECT, Verdict.INCORRECT)
        run.grades.append([Grade(key, "1", verdicts[i % 2]) for i, key in enumerate(keys)])
    return copied


def rows_of(text: str) -> list[dict[str, Any]]:
    return json.loads(text)


def of_thetas(text: str) -> list[dict[str, Any]]:
    """The rows of what has a theta."""
    return [row for row in rows_of(text) if row["estimator"] != "dtc_weighted"]


def grid_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "report" / "tables" / "sweep.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_figures_at_the_runs_theta_are_those_that_evaluate_prints(
    folder: Path, divtok: Command
) -> None:
    swept = divtok("sweep", folder, "--json")
    assert swept.code == EXIT_OK
    evaluated = {
        (row["benchmark"], row["estimator"]): row
        for row in rows_of(divtok("evaluate", folder, "--json").out)
    }
    rows = [row for row in of_thetas(swept.out) if row["benchmark"] is not None]
    assert len(rows) == 4
    theta = stored_config(Run.open(folder)).theta
    for row in rows:
        expected = evaluated[row["benchmark"], row["estimator"]]
        assert row["n_balanced"] == expected["n_balanced"] > 0
        own = row["at_run_theta"]
        assert own["theta"] == theta == expected["params"]["theta"]
        assert own["ece"] == pytest.approx(expected["ece"], abs=1e-12)
        assert own["auroc"] == pytest.approx(expected["auroc"], abs=1e-12)
        assert row["best"]["ece"] <= own["ece"] + 1e-12


def test_the_mean_over_benchmarks_comes_last(folder: Path, divtok: Command) -> None:
    rows = of_thetas(divtok("sweep", folder, "--json").out)
    assert [(row["benchmark"], row["estimator"]) for row in rows] == [
        ("arith-easy", "dtc_lin"),
        ("arith-easy", "dtc_prod"),
        ("arith-medium", "dtc_lin"),
        ("arith-medium", "dtc_prod"),
        (None, "dtc_lin"),
        (None, "dtc_prod"),
    ]
    for easy, medium, mean in zip(rows[:2], rows[2:4], rows[4:], strict=True):
        for name in ("ece", "auroc"):
            both = [row["at_run_theta"][name] for row in (easy, medium)]
            assert mean["at_run_theta"][name] == pytest.approx(sum(both) / 2, abs=1e-12)


def test_rates_come_beside_the_one_in_use(folder: Path, divtok: Command) -> None:
    evaluated = {
        (row["benchmark"], row["estimator"]): row
        for row in rows_of(divtok("evaluate", folder, "--json").out)
    }
    rows = rows_of(divtok("sweep", folder, "--json").out)
    rates = [row for row in rows if row["estimator"] == "dtc_weighted"]
    for benchmark in ("arith-easy", "arith-medium"):
        found = [row for row in rates if row["benchmark"] == benchmark]
        assert found[0]["value"] == 1.0  # the one in use
        for name in ("ece", "auroc"):
            expected = evaluated[benchmark, "dtc_weighted"][name]
            assert found[0]["best"][name] == pytest.approx(expected, abs=1e-12)
        assert found[-1]["lowest"]
        grid = [row for row in grid_of(folder) if row["benchmark"] == benchmark]
        lowest = min(float(row["ece"]) for row in grid if row["estimator"] == "dtc_weighted")
        assert found[-1]["best"]["ece"] == lowest
    said = divtok("sweep", folder).out
    assert "(lowest)" in said
    assert "dtc_weighted takes no theta" in said


def test_the_whole_grid_is_written(folder: Path, divtok: Command) -> None:
    chosen = [part for name in ("jsd", "kl_pq", "kl_qp") for part in ("--divergence", name)]
    said = divtok("sweep", folder, *chosen, "--n", "5", "--n", "12", "--n", "5", "--k", "0")
    assert said.code == EXIT_OK
    assert str(folder / "report" / "tables" / "sweep.csv") in said.err
    grid = grid_of(folder)
    theta = stored_config(Run.open(folder)).theta
    thetas = {"jsd": sorted({*JSD_GRID, theta}), "kl_pq": KL_GRID, "kl_qp": KL_GRID}
    for benchmark in ("arith-easy", "arith-medium"):
        for divergence, expected in thetas.items():
            for estimator, value in (("dtc_lin", "5"), ("dtc_lin", "12"), ("dtc_prod", "0")):
                wanted = (benchmark, divergence, estimator, value)
                names = ("benchmark", "divergence", "estimator", "value")
                found = [row for row in grid if tuple(row[name] for name in names) == wanted]
                assert [float(row["theta"]) for row in found] == expected
                assert all(0 <= float(row["ece"]) <= 1 for row in found)
    rates = [row for row in grid if row["estimator"] == "dtc_weighted"]
    assert len(grid) - len(rates) == 2 * 3 * sum(map(len, thetas.values()))
    for benchmark in ("arith-easy", "arith-medium"):
        found = [row for row in rates if row["benchmark"] == benchmark]
        assert [float(row["value"]) for row in found] == list(RATES)
        assert {(row["divergence"], row["theta"]) for row in found} == {("jsd", "")}


def test_the_best_theta_is_the_lowest_of_the_grid(folder: Path, divtok: Command) -> None:
    rows = rows_of(divtok("sweep", folder, "--json", "--divergence", "kl_qp", "--n", "3").out)
    grid = grid_of(folder)
    for row in rows:
        assert row["at_run_theta"] is None  # a threshold of JSD says nothing about a KL
        if row["benchmark"] is None:
            continue
        names = ("benchmark", "estimator")
        mine = [point for point in grid if all(point[name] == row[name] for name in names)]
        assert {point["value"] for point in mine} == {str(row["value"])}
        assert row["best"]["ece"] == pytest.approx(min(float(point["ece"]) for point in mine))
        assert row["best"]["theta"] in [float(point["theta"]) for point in mine]


def test_the_tables_name_the_pair_and_warn_once(folder: Path, divtok: Command) -> None:
    said = divtok("sweep", folder, "--divergence", "jsd", "--divergence", "kl_pq")
    generator = "divtok/tiny-0.5m"
    for divergence in ("jsd", "kl_pq"):
        title = f"{generator} read by {generator} / divtok/tiny-0.3m: {divergence}"
        assert title in " ".join(said.out.split())
    assert "dtc_lin n=10" in said.out
    assert "dtc_prod k=4" in said.out
    assert " ".join(said.out.split()).count(OPTIMISTIC) == 1
    assert "divtok fit" in OPTIMISTIC


def test_json_is_alone_on_standard_output(folder: Path, divtok: Command) -> None:
    said = divtok("sweep", folder, "--json")
    assert json.loads(said.out)
    assert OPTIMISTIC in said.err


def test_a_group_of_one_class_has_a_reason_instead_of_figures(
    folder: Path, divtok: Command
) -> None:
    run = Run.open(folder)
    with run.lock():
        run.grades.append([Grade(t.key, "1", Verdict.CORRECT) for t in run.trajectories.read()])
    rows = rows_of(divtok("sweep", folder, "--json").out)
    for row in rows:
        assert (row["best"], row["at_run_theta"], row["n_balanced"]) == (None, None, 0)
        assert row["reason"] == "needs both correct and incorrect responses"
    assert {point["ece"] for point in grid_of(folder)} == {""}
    said = divtok("sweep", folder)
    assert said.code == EXIT_OK
    assert "arith-easy, dtc_lin n=10: no figures, needs both" in said.out


def test_a_run_without_traces_has_nothing_to_sweep(folder: Path, divtok: Command) -> None:
    run = Run.open(folder)
    with run.lock():
        run.traces.replace([])
    said = divtok("sweep", folder)
    assert said.code == EXIT_NOTHING
    assert said.error_line.endswith(
        f"were not read yet. Read them: divtok score {folder} --family tiny"
    )


def test_another_writer_is_not_disturbed(folder: Path, divtok: Command) -> None:
    with Run.open(folder).lock():
        said = divtok("sweep", folder)
    assert said.code == EXIT_ERROR
    assert not (folder / "report" / "tables" / "sweep.csv").exists()


@pytest.mark.parametrize("wrong", [("--n", "0"), ("--k", "-1"), ("--divergence", "kl")])
def test_wrong_options_are_usage_errors(
    wrong: tuple[str, str], finished: FinishedRun, divtok: Command
) -> None:
    assert divtok("sweep", finished.folder, *wrong).code == EXIT_USAGE


def test_no_model_library_is_needed(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "sweep", str(folder), "--json"],
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(of_thetas(done.stdout)) == 6
