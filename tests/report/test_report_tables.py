"""Tables as values, and their Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from report_samples import HOSTILE, evaluation

from divtok.errors import DataError
from divtok.evaluate.overall import Overall
from divtok.evaluate.protocol import RANKING_ONLY, Protocol
from divtok.records import Interval
from divtok.report.long_table import long_table
from divtok.report.metric_table import metric_table
from divtok.report.overview_table import overview_table
from divtok.report.render import to_csv, to_latex, to_markdown
from divtok.report.tables import Bounded, ReportColumn, ReportRow, ReportTable, rank_marks


def cells(table, row=0):
    return dict(zip([c.key for c in table.columns], table.rows[row].cells, strict=True))


def test_paper_layout_puts_generators_within_benchmarks_and_a_mean_last():
    table = metric_table(
        [
            evaluation("nsl", benchmark="A", generator="small", ece=0.4, accuracy=0.2),
            evaluation("nsl", benchmark="B", generator="small", ece=0.3, accuracy=0.6),
            evaluation("nsl", benchmark="A", generator="large", ece=0.2, accuracy=0.4),
            evaluation("dtc_lin", benchmark="A", generator="large", ece=0.1, accuracy=0.4),
        ],
        "ece",
    )
    assert [(r.section, r.cells[0]) for r in table.rows] == [
        ("A", "small"),
        ("A", "large"),
        ("B", "small"),
        (None, "Mean"),
    ]
    mean = cells(table, 3)
    assert mean["accuracy"] == pytest.approx(0.4)
    assert mean["nsl"] == pytest.approx(0.3)
    assert mean["dtc_lin"] == pytest.approx(0.1)
    assert "Mean over fewer rows: DTC lin 1 of 3." in table.whole_caption
    assert table.rows[3].is_mean


def test_caption_tells_how_it_was_made():
    table = metric_table([evaluation()], "ece")
    assert "balanced draws, paper protocol: 5 draws, at most 500 per class; 20 bins" in (
        table.whole_caption
    )
    other = metric_table([evaluation()], "auroc", protocol=Protocol(draws=2, cap=50))
    assert "balanced draws, 2 draws, at most 50 per class;" in other.whole_caption
    assert "paper" not in other.whole_caption


def test_estimators_stand_in_the_callers_order_then_alphabetically():
    found = [evaluation(e) for e in ("zebra", "dtc_lin", "apple", "nsl")]
    keys = [c.key for c in metric_table(found, "ece").columns]
    assert keys == ["generator", "accuracy", "n", "nsl", "dtc_lin", "apple", "zebra"]
    table = metric_table(found, "ece", labels={"apple": "Apple!", "nsl": "N"})
    assert [c.label for c in table.columns[3:]] == ["Apple!", "N", "dtc_lin", "zebra"]


@pytest.mark.parametrize(("metric", "best", "second"), [("ece", "a", "b"), ("auroc", "c", "b")])
def test_best_and_second_follow_the_direction(metric, best, second):
    found = [evaluation(e, **{metric: v}) for e, v in (("a", 0.1), ("b", 0.2), ("c", 0.3))]
    table = metric_table(found, metric)
    marks = dict(zip([c.key for c in table.columns], rank_marks(table, table.rows[0]), strict=True))
    none = dict.fromkeys(("generator", "accuracy", "n", "a", "b", "c"), 0)
    assert marks == none | {best: 1, second: 2}


def test_equal_looking_figures_share_a_mark_and_missing_ones_have_none():
    values = (("a", 0.12341), ("b", 0.12339), ("c", 0.2), ("d", None))
    table = metric_table([evaluation(e, ece=v) for e, v in values], "ece")
    assert rank_marks(table, table.rows[0])[3:] == (1, 1, 2, 0)


def test_supervised_estimators_are_shown_but_not_ranked():
    found = [evaluation("prm", ece=0.01), evaluation("a", ece=0.1), evaluation("b", ece=0.2)]
    table = metric_table(found, "ece")
    marks = dict(zip([c.key for c in table.columns], rank_marks(table, table.rows[0]), strict=True))
    assert (marks["prm"], marks["a"], marks["b"]) == (0, 1, 2)
    assert "not ranked" in table.whole_caption


def test_params_name_a_column_only_where_needed():
    per_family = [
        evaluation("dtc_lin", generator="x", params={"theta": 0.5}),
        evaluation("dtc_lin", generator="y", params={"theta": 0.6}),
    ]
    assert [c.key for c in metric_table(per_family, "ece").columns[3:]] == ["dtc_lin"]
    sweep = [evaluation("dtc_lin", params={"theta": t}, ece=t) for t in (0.5, 0.6)]
    table = metric_table(sweep, "ece")
    assert cells(table)["dtc_lin (theta=0.5)"] == 0.5
    assert cells(table)["dtc_lin (theta=0.6)"] == 0.6


def test_the_same_evaluation_twice_or_two_accuracies_are_refused():
    with pytest.raises(DataError, match="twice"):
        metric_table([evaluation(), evaluation()], "ece")
    with pytest.raises(DataError, match="accuracy"):
        metric_table([evaluation("a"), evaluation("b", accuracy=0.6)], "ece")


def test_rows_must_fit_the_columns():
    with pytest.raises(DataError, match="Row 0"):
        ReportTable("t", (ReportColumn("a", "A"),), (ReportRow(()),), "c")


def test_markdown_by_hand():
    table = metric_table([evaluation("a", ece=0.1), evaluation("b", ece=None)], "ece")
    lines = to_markdown(table).splitlines()
    assert lines[2] == "| Benchmark | Generator | Acc | n | a | b |"
    assert lines[3] == "| :-- | :-- | --: | --: | --: | --: |"
    assert lines[4] == "| bench | gen | 50.0 | 40 | 10.0 | — |"


def test_markdown_marks_best_and_second():
    table = metric_table([evaluation("a", ece=0.1), evaluation("b", ece=0.2)], "ece")
    assert "| **10.0** | *20.0* |" in to_markdown(table)


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_cells_hold_any_text(text):
    table = metric_table([evaluation(text, generator=text, benchmark=text)], "ece")
    out = to_markdown(table)
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert len(lines) == 3
    for line in lines:
        assert line.replace("\\|", "").count("|") == 6
    assert "<" not in out
    assert "\x1b" not in out
    assert out.encode("utf-8")


def test_latex_by_hand():
    found = [
        evaluation("a", ece=0.1, generator="g_1"),
        evaluation("b", ece=0.2, generator="g_1"),
        evaluation("a", ece=None, generator="g_2"),
    ]
    lines = [line.strip() for line in to_latex(metric_table(found, "ece")).splitlines()]
    assert r"\begin{tabular}{lrrrr}" in lines
    assert r"\multicolumn{5}{c}{\textit{bench}} \\" in lines
    assert r"g\_1 & 50.0 & 40 & \textbf{10.0} & \underline{20.0} \\" in lines
    assert r"g\_2 & 50.0 & 40 & --- & --- \\" in lines
    assert [lines.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 3, 1]


@pytest.mark.parametrize("text", HOSTILE)
def test_latex_escapes_every_special_sign(text):
    out = to_latex(ReportTable("t", (ReportColumn("a", "A"),), (ReportRow((text,)),), "c"))
    body = out.split("\\midrule\n")[1].split("\\bottomrule")[0].strip()
    for command in (r"\textbackslash{}", r"\textasciicircum{}", r"\textasciitilde{}"):
        body = body.replace(command, "")
    body = body.replace(r"\textless{}", "").replace(r"\textgreater{}", "").removesuffix(r" \\")
    for sign in "{}$&#%_":
        body = body.replace("\\" + sign, "")
    assert not set(body) & set("\\{}$&#%_^~<>\n\x1b")


def test_csv_has_full_precision_empty_cells_and_no_mean():
    found = [
        evaluation("a", ece=1 / 3, generator="x"),
        evaluation("a", ece=np.float64(0.1), generator="y"),
        evaluation("b", ece=None, generator="y"),
    ]
    rows = list(csv.DictReader(io.StringIO(to_csv(metric_table(found, "ece")))))
    assert [r["generator"] for r in rows] == ["x", "y"]
    assert float(rows[0]["a"]) == 1 / 3
    assert rows[1]["a"] == "0.1"
    assert rows[1]["b"] == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", '=a,"b"\n'])
def test_csv_text_that_looks_like_a_formula_is_quoted(text):
    table = ReportTable(
        "t",
        (ReportColumn("a", "A"), ReportColumn("b", "B", "percent")),
        (ReportRow((text, -0.5)),),
        "c",
    )
    rows = list(csv.reader(io.StringIO(to_csv(table), newline="")))
    assert rows[1] == ["'" + text, "-0.5"]


def test_csv_text_cannot_break_a_row():
    table = ReportTable(
        "t",
        (ReportColumn("a", "A"), ReportColumn("b", "B")),
        (ReportRow(("x\r=1", 'y"\n,z')),),
        "c",
    )
    rows = list(csv.reader(io.StringIO(to_csv(table), newline="")))
    assert rows[1] == ["x␍=1", 'y"\n,z']


@pytest.mark.parametrize("render", [to_csv, to_markdown, to_latex])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_table_never_prints_nan(render, bad):
    with pytest.raises(DataError, match="'A'"):
        render(ReportTable("t", (ReportColumn("a", "A", "percent"),), (ReportRow((bad,)),), "c"))


def test_long_table_holds_everything():
    found = evaluation(
        "dtc_lin", params={"theta": 0.5, "n": 10}, auroc=None, auroc_sd=None, reason="why"
    )
    row = next(csv.DictReader(io.StringIO(to_csv(long_table([found])))))
    assert json.loads(row["params"]) == {"theta": 0.5, "n": 10}
    assert (row["auroc"], row["natural_auroc_low"], row["reason"]) == ("", "", "why")
    assert (row["natural_ece_low"], row["natural_ece_high"]) == ("0.1", "0.3")
    assert (row["excluded"], row["excluded_unanswered"], row["excluded_unscored"]) == (
        "2",
        "1",
        "0",
    )
    assert (row["n"], row["clipped"], row["ece_sd"]) == ("82", "0", "0.01")


def test_the_caption_counts_what_is_left_out_and_clipped():
    first = evaluation("nsl", n=10, excluded=1, excluded_by={"unanswered": 1, "unscored": 0})
    reasons = {"unanswered": 1, "unscored": 2}
    second = evaluation("entropy", n=10, excluded=3, excluded_by=reasons, clipped=3)
    caption = metric_table([first, second], "ece").whole_caption
    assert "Left out: 3 of 10 responses (unanswered 1, unscored 2)." in caption
    assert "Clipped to [0, 1] for ECE: entropy 3." in caption


def test_the_caption_says_why_a_figure_is_not_defined():
    one_class = evaluation("nsl", ece=None, reason="every scored response is correct")
    ranking = evaluation("length", ece=None, reason=RANKING_ONLY)
    caption = metric_table([one_class, ranking], "ece").whole_caption
    assert caption.count("Not defined: ") == 1
    assert "Not defined: every scored response is correct." in caption


def test_natural_figures_have_their_intervals():
    found = evaluation("nsl", natural_ece=0.2, natural_ece_interval=Interval(0.1, 0.3))
    table = metric_table([found], "natural_ece")
    assert "| bench | gen | 50.0 | 80 | 20.0 [10.0, 30.0] |" in to_markdown(table)
    row = next(csv.DictReader(io.StringIO(to_csv(table))))
    assert (row["nsl"], row["nsl_low"], row["nsl_high"]) == ("0.2", "0.1", "0.3")
    brier = metric_table([evaluation("nsl", brier=0.25)], "brier")
    assert "| 80 | 0.250 |" in to_markdown(brier)
    row = next(csv.DictReader(io.StringIO(to_csv(brier))))
    assert (row["nsl"], row["nsl_low"], row["nsl_high"]) == ("0.25", "", "")


def test_the_mean_row_takes_its_interval_from_all_groups_together():
    found = [evaluation("nsl", generator=g, natural_ece=e) for g, e in (("x", 0.1), ("y", 0.3))]
    whole = Overall("nsl", 2, 160, 0.8, 0.5, 0.2, Interval(0.15, 0.26), 0.2, None)
    table = metric_table(found, "natural_ece", overall=[whole])
    assert cells(table, 2)["nsl"] == Bounded(0.2, Interval(0.15, 0.26))


@pytest.mark.parametrize(
    ("metric", "size", "few"),
    [("ece", 29, True), ("ece", 30, False), ("brier", 59, True), ("brier", 60, False)],
)
def test_rows_of_few_responses_are_marked_and_not_ranked(metric, size, few):
    sizes = {"n_balanced": size} if metric == "ece" else {"n_scored": size}
    found = [evaluation("a", ece=0.1, brier=0.1, **sizes), evaluation("b", **sizes)]
    table = metric_table(found, metric)
    assert table.rows[0].few == few
    assert (f"| {size}! |" in to_markdown(table)) == few
    assert (rank_marks(table, table.rows[0])[3] == 0) == few
    assert ("too few responses for a result" in table.whole_caption) == few


def test_what_only_ranks_has_no_column_in_a_table_of_errors():
    found = [evaluation("nsl"), evaluation("length", ece=None, reason=RANKING_ONLY)]
    assert "length" not in [c.key for c in metric_table(found, "ece").columns]
    assert "length" in [c.key for c in metric_table(found, "auroc").columns]


def test_an_accuracy_that_is_not_known_is_a_dash():
    found = evaluation("nsl", accuracy=None, reason="no accuracy: no answer was found in 9 of 10")
    table = metric_table([found], "ece")
    assert "| bench | gen | — | 40 |" in to_markdown(table)
    assert "Not defined: no accuracy: no answer was found in 9 of 10." in table.whole_caption


def test_the_overview_ranks_estimators_within_a_metric():
    found = [
        evaluation("nsl", natural_ece=0.1, brier=0.3, ece=0.3, auroc=0.6),
        evaluation("dtc_lin", natural_ece=0.2, brier=0.2, ece=0.1, auroc=0.8),
        evaluation("length", natural_ece=None, brier=None, ece=None, reason=RANKING_ONLY),
    ]
    whole = [
        Overall("nsl", 1, 80, 0.8, 0.5, 0.1, Interval(0.0, 0.2), 0.3, Interval(0.2, 0.4)),
        Overall("dtc_lin", 1, 80, 0.5, 0.5, 0.2, None, 0.2, Interval(0.1, 0.3)),
    ]
    table = overview_table(found, whole)
    rows = {row.cells[0]: row for row in table.rows}
    assert rows["NSL"].cells[1:4] == (
        0.8,
        Bounded(0.1, Interval(0.0, 0.2)),
        Bounded(0.3, Interval(0.2, 0.4)),
    )
    assert rows["Length"].cells[1:5] == (None, None, None, None)
    assert rank_marks(table, rows["NSL"])[2:] == (1, 2, 2, 0)
    assert rank_marks(table, rows["DTC lin"])[2:] == (2, 1, 1, 1)
    assert rank_marks(table, rows["Length"])[2:] == (0, 0, 0, 2)
    assert table.caption == "82 responses, 50.0 % right: what 'Says' should be."


def test_an_overview_of_few_responses_ranks_nothing():
    found = [evaluation(e, n_scored=16, n_balanced=5) for e in ("nsl", "dtc_lin")]
    whole = [Overall(e, 1, 16, 0.8, 0.5, 0.1, None, 0.3, None) for e in ("nsl", "dtc_lin")]
    table = overview_table(found, whole)
    assert {mark for row in table.rows for mark in rank_marks(table, row)} == {0}
    assert "16 scored responses are fewer than 60" in table.caption
    assert "5 of each class are fewer than 30" in table.caption
