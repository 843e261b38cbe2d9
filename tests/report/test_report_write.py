"""The report folder."""

from __future__ import annotations

import json
import re

import pytest
from report_samples import HOSTILE, evaluation, group, theta_fit

from divtok.errors import NothingScoredError
from divtok.evaluate.protocol import Protocol, evaluate_group
from divtok.report.write import write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    protocol = Protocol(resamples=20)
    scored = group()
    return write_report(
        folder,
        evaluations=evaluate_group(scored, protocol),
        groups=[scored],
        theta_fits={"gen": theta_fit()},
        protocol=protocol,
        title="A title",
    )


def test_every_file_is_there_and_nothing_else(report):
    there = {p.relative_to(report.folder) for p in report.folder.rglob("*") if p.is_file()}
    assert there == set(report.files)
    names = {str(p) for p in there}
    assert {f"tables/{t}.{s}" for t in ("ece", "auroc") for s in ("md", "tex", "csv")} <= names
    assert {"README.md", "tables/all.csv", "figures/theta-gen.png"} <= names
    assert {f"figures/reliability-gen-on-bench.{s}" for s in ("png", "svg", "json")} <= names
    assert {f"figures/count-gen-on-bench.{s}" for s in ("png", "svg", "json")} <= names


def test_the_page_points_only_at_files_that_exist(report):
    page = (report.folder / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", page) + re.findall(r"`([\w/.-]+/[\w.-]+\.csv)`", page)
    assert len(targets) >= 4
    for target in targets:
        assert (report.folder / target).exists(), target


def test_the_page_speaks_plainly(report):
    page = (report.folder / "README.md").read_text()
    assert page.startswith("# A title\n")
    assert "60 responses of gen on bench" in page
    assert "At equal length the count has an AUROC of" in page
    assert (
        "- Theta fitted for gen: 0.5, on 100 responses (3 left out), 95 % interval 0.4 to 0.6.\n"
        in page
    )
    assert "Further unscored: broken 60." in page
    assert "1 of 3 evaluations have no balanced figures" in page


def test_no_nan_anywhere(report):
    for path in report.files:
        if path.suffix in (".csv", ".json", ".md", ".tex"):
            text = (report.folder / path).read_text()
            assert not re.search(r"\bnan\b|\binf(inity)?\b", text, re.IGNORECASE), path
        if path.suffix == ".json":
            json.loads((report.folder / path).read_text())


def test_best_is_named_only_among_estimators_with_every_figure(tmp_path):
    found = [
        evaluation("a", generator="x", ece=0.2),
        evaluation("a", generator="y", ece=0.4),
        evaluation("b", generator="x", ece=0.1),
        evaluation("b", generator="y", ece=None),
    ]
    write_report(tmp_path, evaluations=found)
    assert "Lowest mean ECE on balanced draws: a, 30.0 %." in (tmp_path / "README.md").read_text()


@pytest.mark.filterwarnings("ignore:Glyph")
def test_hostile_names_stay_inside_the_folder_and_inert(tmp_path):
    groups = [group(12, benchmark=text, generator=text) for text in HOSTILE[:2]]
    groups += [group(12, benchmark="../x", generator="g"), group(12, benchmark="x", generator="g")]
    protocol = Protocol(resamples=5)
    found = [e for g in groups for e in evaluate_group(g, protocol)]
    inside = tmp_path / "inside"
    report = write_report(inside, evaluations=found, groups=groups, formats=("svg",))
    assert {p.name for p in tmp_path.iterdir()} == {"inside"}
    assert len(set(report.files)) == len(report.files)
    stems = [p.stem for p in report.files if p.suffix == ".json"]
    assert "count-g-on-x" in stems
    page = (inside / "README.md").read_text()
    assert "<script" not in page
    assert "<img" not in page


def test_writing_again_replaces(tmp_path):
    write_report(tmp_path, evaluations=[evaluation(ece=0.1)])
    first = (tmp_path / "tables/ece.csv").read_text()
    write_report(tmp_path, evaluations=[evaluation(ece=0.2)])
    second = (tmp_path / "tables/ece.csv").read_text()
    assert (first.count("0.1"), second.count("0.2")) == (1, 1)
    assert not list(tmp_path.rglob(".*"))


def test_an_empty_report_is_refused(tmp_path):
    with pytest.raises(NothingScoredError, match="no evaluation"):
        write_report(tmp_path, evaluations=[])
