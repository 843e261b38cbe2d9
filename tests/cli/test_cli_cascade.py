"""The verb cascade, and the same from Python, from two small runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_samples import FinishedRun
from console import Command

import divtok as package
from divtok.cli.cascade import OPTIMISTIC
from divtok.errors import EXIT_OK, EXIT_USAGE, UsageError

GENERATOR = "divtok/tiny-0.5m"


@pytest.fixture
def runs(finished: FinishedRun, tmp_path: Path) -> tuple[Path, Path]:
    """The same responses twice, as those of a small generator and of a larger one."""
    return finished.folder, Path(shutil.copytree(finished.folder, tmp_path / "larger"))


def test_the_verb_prints_the_table_and_what_to_do_and_writes_the_figure(
    divtok: Command, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    said = divtok("cascade", *runs, "--out", tmp_path / "out", "--estimator", "dtc_lin")
    assert said.code == EXIT_OK
    assert f"{GENERATOR} first, then {GENERATOR}" in said.out
    words = " ".join(said.out.split())
    assert " ".join(OPTIMISTIC.split()) in words
    assert f"Take {GENERATOR} alone:" in words  # the other one is no better
    assert "NSL" not in said.out
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    stem = "divtok-tiny-0.5m-to-divtok-tiny-0.5m"
    assert names == [f"{stem}.json", f"{stem}.png", f"{stem}.svg"]
    assert f"{stem}.png" in said.err


def test_json_has_every_curve_and_python_gives_the_same(
    divtok: Command, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    said = divtok("cascade", *runs, "--json", "--prices", 1, 9, "--out", tmp_path / "out")
    told = json.loads(said.out)
    found = package.cascade(runs[0], package.Run(runs[1]), prices=(1, 9))
    assert told["unit"] == "price"
    assert told["larger"]["cost"] == found.larger.cost
    assert [c["estimator"] for c in told["curves"]] == list(found.curves)
    for curve in told["curves"]:
        mine = found.curves[curve["estimator"]]
        assert curve["threshold"][-1] is None
        assert curve["accuracy"] == mine.accuracy.tolist()
        assert curve["cost_at_larger"]["value"] == mine.cost_at_larger.value
    assert told["advice"] == found.advice
    assert told["problems"]["both"] == 4  # two of either benchmark
    frame = found.to_polars()
    assert frame["estimator"].to_list() == list(found.curves)
    assert found.advice in repr(found).replace("\n", " ")


def test_python_draws_on_given_axes(runs: tuple[Path, Path]) -> None:
    from matplotlib.figure import Figure

    found = package.cascade(str(runs[0]), runs[1], estimators=["dtc_lin", "length"])
    ax = Figure().subplots()
    found.plot(ax, ["dtc_lin"])
    labels = [line.get_label() for line in ax.lines]
    assert "DTC lin" in labels
    assert "Length" not in labels
    assert found.figure().axes[0].get_ylabel() == "accuracy (%)"


def test_prices_of_reading_alone_are_refused(divtok: Command, runs: tuple[Path, Path]) -> None:
    assert divtok("cascade", *runs, "--read-price", 1).code == EXIT_USAGE
    with pytest.raises(UsageError):
        package.cascade(*runs, read_price=1.0)
