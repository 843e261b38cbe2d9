"""Tables as values, and their Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from report_samples import HOSTILE, evaluation

from divtok.errors import DataError
from divtok.evaluate.protocol import RANKING_ONLY, Protocol
from divtok.report.evaluation_tables import long_table, metric_table
from divtok.report.render import to_csv, to_latex, to_markdown
from divtok.report.tables import ReportColumn, ReportRow, ReportTable, rank_marks


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
    assert "Mean over fewer rows: DTC lin 1 of 3." in table.caption
    assert table.rows[3].is_mean


def test_caption_tells_how_it_was_made():
    table = metric_table([evaluation()], "ece")
    assert "balanced draws, paper protocol: 5 draws, at most 500 per class; 20 bins" in (
        table.caption
    )
    other = metric_table([evaluation()], "auroc", protocol=Protocol(draws=2, cap=50))
    assert "balanced draws, 2 draws, at most 50 per class;" in other.caption
    assert "paper" not in other.caption
    assert "bins" not in other.caption


def test_estimators_stand_in_the_callers_order_then_alphabetically():
    found = [evaluation(e) for e in ("zebra", "dtc_lin", "apple", "nsl")]
    keys = [c.key for c in metric_table(found, "ece").columns]
    assert keys == ["generator", "accuracy", "nsl", "dtc_lin", "apple", "zebra"]
    table = metric_table(found, "ece", labels={"apple": "Apple!", "nsl": "N"})
    assert [c.label for c in table.columns[2:]] == ["Apple!", "N", "dtc_lin", "zebra"]


@pytest.mark.parametrize(("metric", "best", "second"), [("ece", "a", "b"), ("auroc", "c", "b")])
def test_best_and_second_follow_the_direction(metric, best, second):
    found = [evaluation(e, **{metric: v}) for e, v in (("a", 0.1), ("b", 0.2), ("c", 0.3))]
    table = metric_table(found, metric)
    marks = dict(zip([c.key for c in table.columns], rank_marks(table, table.rows[0]), strict=True))
    assert marks == {"generator": 0, "accuracy": 0, "a": 0, "b": 0, "c": 0} | {best: 1, second: 2}


def test_equal_looking_figures_share_a_mark_and_missing_ones_have_none():
    values = (("a", 0.12341), ("b", 0.12339), ("c", 0.2), ("d", None))
    table = metric_table([evaluation(e, ece=v) for e, v in values], "ece")
    assert rank_marks(table, table.rows[0])[2:] == (1, 1, 2, 0)


def test_supervised_estimators_are_shown_but_not_ranked():
    found = [evaluation("prm", ece=0.01), evaluation("a", ece=0.1), evaluation("b", ece=0.2)]
    table = metric_table(found, "ece")
    marks = dict(zip([c.key for c in table.columns], rank_marks(table, table.rows[0]), strict=True))
    assert (marks["prm"], marks["a"], marks["b"]) == (0, 1, 2)
    assert "not ranked" in table.caption


def test_params_name_a_column_only_where_needed():
    per_family = [
        evaluation("dtc_lin", generator="x", params={"theta": 0.5}),
        evaluation("dtc_lin", generator="y", params={"theta": 0.6}),
    ]
    assert [c.key for c in metric_table(per_family, "ece").columns[2:]] == ["dtc_lin"]
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
    assert lines[2] == "| Benchmark | Generator | Acc | a | b |"
    assert lines[3] == "| :-- | :-- | --: | --: | --: |"
    assert lines[4] == "| bench | gen | 50.0 | 10.0 | — |"


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
        assert line.replace("\\|", "").count("|") == 5
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
    assert r"\begin{tabular}{lrrr}" in lines
    assert r"\multicolumn{4}{c}{\textit{bench}} \\" in lines
    assert r"g\_1 & 50.0 & \textbf{10.0} & \underline{20.0} \\" in lines
    assert r"g\_2 & 50.0 & --- & --- \\" in lines
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
    assert (row["n"], row["clipped"], row["ece_sd"]) == ("10", "0", "0.01")


def test_the_caption_counts_what_is_left_out_and_clipped():
    first = evaluation("nsl", n=10, excluded=1, excluded_by={"unanswered": 1, "unscored": 0})
    reasons = {"unanswered": 1, "unscored": 2}
    second = evaluation("entropy", n=10, excluded=3, excluded_by=reasons, clipped=3)
    caption = metric_table([first, second], "ece").caption
    assert "Left out: 3 of 10 responses (unanswered 1, unscored 2)." in caption
    assert "Clipped to [0, 1] for ECE: entropy 3." in caption


def test_the_caption_says_why_a_figure_is_not_defined():
    one_class = evaluation("nsl", ece=None, reason="every scored response is correct")
    ranking = evaluation("length", ece=None, reason=RANKING_ONLY)
    caption = metric_table([one_class, ranking], "ece").caption
    assert caption.count("Not defined: ") == 1
    assert "Not defined: every scored response is correct." in caption
