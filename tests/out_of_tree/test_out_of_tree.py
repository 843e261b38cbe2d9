"""A package outside of divtok adds a thing of every kind, through entry points alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import divtok
from divtok.store.run import Run

PACKAGE = Path(__file__).parent / "package"
ESTIMATORS = "score.estimators=[agreement,calm,dtc_lin,nsl]"
RUN = (
    *("run", "--family", "example", "--out", "run", "protocol=last_number"),
    *("generate.engine=echo", "grade.grader=digits", "generate.options.wrong_every=2"),
    *(ESTIMATORS, "score.alpha=2", "generators=[echo-1]"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What installing the package would leave in a folder of packages: code and metadata."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "divtok_example").symlink_to(PACKAGE / "divtok_example")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    metadata = folder / f"divtok_example-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    return folder


class Installed:
    """The command line with the package beside divtok, in a folder of its own."""

    def __init__(self, site: Path, folder: Path) -> None:
        self.folder = folder
        source = str(Path(divtok.__file__).parents[1])
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(site), source]),
        }

    def __call__(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "divtok", *arguments],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr


@pytest.fixture(scope="module")
def made(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """After `divtok run` with everything that the package brings."""
    cli = Installed(site, tmp_path_factory.mktemp("work"))
    cli(*RUN)
    return cli


def rows(cli: Installed, *arguments: str) -> list[dict[str, Any]]:
    return json.loads(cli(*arguments, "--json")[0])


def traces(cli: Installed) -> pl.DataFrame:
    """As any reader of Parquet sees them: in this process the package is not installed."""
    return pl.read_parquet(cli.folder / "run" / "traces" / "*.parquet")


def test_a_run_uses_all_of_them(made: Installed) -> None:
    run = Run.open(made.folder / "run")
    trajectories = run.trajectories.read()
    assert len(trajectories) == 16
    assert {t.protocol for t in trajectories} == {"last_number"}
    right = {t.key: (t.sample + len(t.problem_id)) % 2 == 1 for t in trajectories}
    assert {g.key: g.verdict == "correct" for g in run.grades.read()} == right
    values = {(e["estimator"]): e for e in rows(made, "evaluate", "run")}
    assert {"agreement", "calm", "dtc_lin", "nsl", "count", "length"} <= values.keys()
    assert values["agreement"]["params"] == {"alpha": 2}
    assert values["calm"]["params"] == {"n": 3}  # its own default, not that of dtc_lin
    assert values["agreement"]["accuracy"] == 0.5


def test_the_divergence_is_in_the_traces_and_can_be_swept(made: Installed) -> None:
    frame = traces(made)
    for tv, jsd in zip(frame["example_tv"].to_list(), frame["jsd_bits"].to_list(), strict=True):
        # JSD in bits lies between tv^2 / (2 ln 2) and tv.
        assert len(tv) == len(jsd) > 0
        assert (np.array(jsd) <= np.array(tv) + 1e-6).all()
        assert (np.array(tv) ** 2 / (2 * np.log(2)) <= np.array(jsd) + 1e-6).all()
    swept = rows(made, "sweep", "run", "--divergence", "example_tv")
    assert {row["divergence"] for row in swept} == {"example_tv"}


def test_the_confidence_is_the_estimators_own(made: Installed) -> None:
    run = Run.open(made.folder / "run")
    found = {c.key: c for c in run.confidences.read() if c.estimator == "agreement"}
    for row in traces(made).to_dicts():
        expected = (1 - np.mean(np.array(row["example_tv"], dtype=np.float64))) ** 2
        assert found[row["key"]].value == pytest.approx(expected, rel=1e-6)


def test_a_second_run_makes_nothing(made: Installed) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.folder.rglob("*.parquet")}
    _, said = made(*RUN)
    assert "nothing has changed since the run was scored" in said
    kept = ("trajectories", "grades", "traces", "norms", "confidences", "counts")
    after = {path: path.stat().st_mtime_ns for path in made.folder.rglob("*.parquet")}
    for name in kept:
        assert {p: t for p, t in after.items() if p.parent.name == name} == {
            p: t for p, t in before.items() if p.parent.name == name
        }


def test_the_report_shows_them(made: Installed) -> None:
    made("report", "run")
    table = (made.folder / "run" / "report" / "tables" / "auroc.md").read_text()
    assert "Agreement" in table
    assert "Calm" in table


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("estimators", "agreement"),
        ("evidence", "norms"),
        ("divergences", "example_tv"),
        ("protocols", "last_number"),
        ("graders", "digits"),
        ("engines", "echo"),
        ("importers", "tsv"),
        ("benchmarks", "example-sums"),
        ("families", "example"),
    ],
)
def test_ls_says_what_there_is_and_who_brought_it(made: Installed, kind: str, name: str) -> None:
    found = {row["name"]: row for row in rows(made, "ls", kind)}
    assert found[name]["from"] == "divtok-example 0.3"
    assert found[name]["summary"].endswith(".")
    assert any(row["from"] == "divtok" for row in found.values())
    assert "divtok-example 0.3" in made("ls", kind)[0]


def test_a_parameter_of_its_own_has_its_range(made: Installed) -> None:
    _, said = made("score", "run", "score.alpha=11", code=2)
    assert "alpha must be between 0 and 10, not 11" in said
    _, said = made("score", "run", "score.alpa=1", code=2)
    assert "Did you mean 'alpha'" in said
    made("score", "run", "score.agreement.alpha=3")
    assert {
        c.params["alpha"]
        for c in Run.open(made.folder / "run").confidences.read()
        if c.estimator == "agreement"
    } == {3}
    made("score", "run", "score.agreement={}")


def test_imports_in_its_format(made: Installed) -> None:
    (made.folder / "log.tsv").write_text(
        "Add 1 and 2.\t3\tOne and two make 3.\nAdd 2 and 2.\t4\tTwo and two make 5.\n"
    )
    made(
        *("import", "log.tsv", "--format", "tsv", "--out", "imported"),
        *("--generator", "someone", "--protocol", "last_number"),
    )
    made("score", "imported", "--family", "example", "grade.grader=digits", ESTIMATORS)
    grades = Run.open(made.folder / "imported").grades.read()
    assert [grade.verdict for grade in grades] == ["correct", "incorrect"]


def test_without_the_package_the_run_can_still_be_read(made: Installed) -> None:
    """In this process it is not installed: its columns and tables are passed over."""
    run = Run.open(made.folder / "run")
    assert len(run.traces.read()) == 16
    assert all(trace.others.keys() == {"total_variation"} for trace in run.traces.read())
