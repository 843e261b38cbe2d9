"""Tables in the terminal."""

from __future__ import annotations

import pytest
from report_samples import evaluation, printed

from divtok.records import Interval
from divtok.report.metric_table import metric_table
from divtok.report.terminal import rich_table, rich_tables


def test_rich_table_shows_marks_sections_and_hostile_names():
    found = [
        evaluation("a", ece=0.1, generator="[red]g[/red]\x1b[0m"),
        evaluation("b", ece=0.2, generator="[red]g[/red]\x1b[0m"),
    ]
    table = rich_tables([metric_table(found, "ece")])
    plain = printed(table, width=120)
    assert "[red]g[/red]␛[0m" in plain
    assert "\x1b" not in plain
    assert "paper protocol" in plain
    assert "10.0* 20.0'" in plain
    coloured = printed(table, colour=True, width=120)
    assert "\x1b[1m10.0" in coloured
    assert "\x1b[4m20.0" in coloured


@pytest.mark.parametrize("width", [24, 60, 80, 200])
def test_a_wide_table_is_cut_into_parts_and_no_figure_is_shortened(width):
    names = [f"estimator_{letter}" for letter in "abcdefghijkl"]
    found = [evaluation(name, ece=0.1 + i / 100) for i, name in enumerate(names)]
    text = printed(rich_table(metric_table(found, "ece"), width=width), width=width)
    table = text.split("Expected calibration error")[0]
    assert "…" not in table
    for i, name in enumerate(names):
        assert name in table
        assert f"{10 + i}.0" in table
    assert table.count("continued") == (0 if width == 200 else table.count("Generator") - 1)
    assert max(map(len, table.splitlines())) <= max(width, 40)


@pytest.mark.parametrize("width", range(40, 90))
def test_a_long_section_name_counts_where_columns_are_cut(width):
    found = [
        evaluation(name, benchmark="a_benchmark_with_a_name", generator="g")
        for name in ("nsl", "mean_prob", "entropy", "dtc_lin", "dtc_prod")
    ]
    text = printed(rich_table(metric_table(found, "ece"), width=width), width=width)
    assert "…" not in text


def test_tables_beside_each_other_say_once_what_they_share():
    found = [evaluation("a", ece=0.1), evaluation("b", ece=0.2)]
    text = printed(rich_tables([metric_table(found, m) for m in ("ece", "auroc")]), width=120)
    whole = " ".join(text.split())
    assert whole.count("paper protocol") == 1
    assert whole.count("Left out: 2 of 82 responses") == 1
    assert whole.count("Best of a row *, second '.") == 1
    assert whole.count("Area under the ROC curve") == 1


def test_figures_stay_below_each_other_whatever_marks_they_have():
    found = [
        evaluation(name, generator=g, ece=value)
        for g, values in (("x", (0.1, 0.2)), ("y", (0.3, 0.05)))
        for name, value in zip("ab", values, strict=True)
    ]
    lines = printed(rich_table(metric_table(found, "ece")), width=120).splitlines()
    x, y = (next(line for line in lines if line.startswith(name)) for name in "xy")
    assert x.index("10.0*") == y.index("30.0'")
    assert x.index("20.0'") + 1 == y.index("5.0*")


def test_intervals_are_shown_where_there_is_room():
    interval = Interval(0.1, 0.3)
    found = [evaluation(name, natural_ece_interval=interval) for name in ("nsl", "entropy")]
    table = metric_table(found, "natural_ece")
    assert "20.0 [10.0, 30.0]" in printed(rich_table(table, width=100), width=100)
    assert "[10.0" not in printed(rich_table(table, width=50), width=50)
