"""Selective prediction in the report: its table, its figure and what is said in short."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from figure_checks import assert_tidy, drawn, panels
from report_samples import HOSTILE, group, printed

from divtok.evaluate.scored_group import ScoreColumn
from divtok.evaluate.selective import coverage_at_risk
from divtok.report.figures import save_figure
from divtok.report.render import to_csv, to_markdown
from divtok.report.selective import FEWEST_ACCEPTED, selective_part, selective_table
from divtok.report.terminal import rich_tables


@pytest.fixture(scope="module")
def part():
    groups = [group(), group(benchmark="other"), group(generator="second")]
    found = selective_part(groups)
    assert found is not None
    return found


def test_a_row_for_each_estimator_and_two_to_compare_with(part):
    rows = list(csv.DictReader(io.StringIO(to_csv(part.tables["selective"]))))
    assert [row["estimator"] for row in rows] == ["Length", "DTC lin", "Oracle", "No ranking"]
    one = group()
    scores = {c.estimator: np.array(c.values) for c in one.columns if c.estimator != "broken"}
    for row, name in zip(rows, ("length", "dtc_lin"), strict=False):
        known = coverage_at_risk(scores[name], one.correct(), 0.1)
        assert float(row["coverage_at_10"]) == pytest.approx(known)
    base = 1 - float(one.correct().mean())
    assert float(rows[-1]["aurc"]) == pytest.approx(base)
    assert {"aurc_low", "coverage_at_1_low", "coverage_at_5_high"} <= rows[0].keys()


def test_references_are_not_ranked_and_hindsight_is_said(part):
    text = to_markdown(part.tables["selective"])
    (oracle,) = [line for line in text.splitlines() if line.startswith("| Oracle")]
    assert "*" not in oracle
    assert "divtok decide chooses one with a promise" in text
    assert "Means over 3 groups (2 generators on 2 benchmarks)." in text


def test_the_terminal_has_one_coverage_and_room_for_it():
    table = selective_table([group()], coverages=("coverage_at_5",))
    assert [column.key for column in table.columns] == ["estimator", "aurc", "coverage_at_5"]
    shown = printed(rich_tables([table]))
    assert max(map(len, shown.splitlines())) <= 80
    assert "continued" not in shown


def test_too_few_responses_are_not_ranked():
    table = selective_table([group(20)])
    assert not any(column.better for column in table.columns)


def test_the_best_is_said_in_short(part):
    (line,) = part.short
    assert "DTC lin accepts most" in line or "Length accepts most" in line
    assert "in hindsight" in line


def test_one_figure_a_generator_and_one_panel_a_benchmark(part):
    assert [(d.kind, d.name) for d in part.figures] == [
        ("selective", "gen"),
        ("selective", "second"),
    ]
    first, second = (drawn(one.display) for one in part.figures)
    assert [len(panels(figure)) for figure in (first, second)] == [2, 1]
    assert_tidy(first)
    assert_tidy(second)


def test_curves_begin_where_enough_is_accepted_and_end_at_all(part):
    (row,) = part.figures[0].display.rows
    n = len(group().problem_id)
    for panel in row:
        lines = {line.label: line for line in panel.lines}
        assert list(lines) == ["DTC lin", "Oracle", "No ranking"]
        base = 100 * (1 - float(group().correct().mean()))
        for line in lines.values():
            assert (line.x[-1], line.y[-1]) == pytest.approx((100.0, base))
        assert lines["DTC lin"].x[0] >= 100 * FEWEST_ACCEPTED / n


def test_a_curve_has_about_a_hundred_points():
    rng = np.random.default_rng(0)
    many = replace(group(5000), columns=[ScoreColumn("nsl", rng.random(5000).tolist())])
    found = selective_part([many])
    assert found is not None
    line = found.figures[0].display.values()["rows"][0][0]["lines"][0]
    assert 95 <= len(line["x"]) <= 102


@pytest.mark.filterwarnings("ignore:Glyph")
def test_foreign_names_and_twice_the_same_do_not_break_a_figure(tmp_path):
    values = np.linspace(0, 1, 60).tolist()
    columns = [ScoreColumn(name, values) for name in HOSTILE]
    foreign = replace(group(), columns=columns, generator=HOSTILE[0], benchmark=HOSTILE[9])
    found = selective_part([foreign])
    assert found is not None
    assert_tidy(drawn(found.figures[0].display))
    save_figure(found.figures[0].display, tmp_path / "figure", formats=("png",))


def test_nothing_scored_has_no_part():
    broken = [column for column in group().columns if column.estimator == "broken"]
    assert selective_part([replace(group(), columns=broken)]) is None
