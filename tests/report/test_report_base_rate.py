"""The table and the note of confidences stated for the estimated base rate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_samples import evaluation

from divtok.evaluate.base_rate import BaseRate, Restated
from divtok.evaluate.overall import Prevalence
from divtok.evaluate.votes import Agreement
from divtok.records import Interval, Reason
from divtok.report.base_rate import base_rate_note, base_rate_table
from divtok.report.overview_table import overview_table
from divtok.report.prevalence_notes import prevalence_note
from divtok.report.render import to_csv, to_markdown
from divtok.report.write import write_report

AGREED = Agreement(0.72, Interval(0.68, 0.76), problems=200, samples=800, answered=798)
GROUP = BaseRate(
    "bench",
    "gen",
    AGREED,
    accuracy=0.7,
    share_right=0.702,
    restated=(
        Restated("dtc_lin", 798, 0.209, 0.073, 1.1),
        Restated("stated", 798, 0.3, None, None, Reason("prior_not_reached", "no shift")),
    ),
)
ONE_SAMPLE = Agreement(
    None, None, 0, 0, 0, 200, Reason("too_few_samples", "fewer than 2 samples of every problem")
)
ALONE = replace(
    GROUP,
    benchmark="other",
    agreement=ONE_SAMPLE,
    restated=(Restated("dtc_lin", 200, 0.1, None, None, ONE_SAMPLE.reason),),
)


def test_two_rows_for_each_group_and_two_means() -> None:
    table = base_rate_table([GROUP, ALONE])
    lines = to_markdown(table).splitlines()
    assert lines[4:8] == [
        "| bench | gen | 70.0 | 72.0 [68.0, 76.0] | as it is | **20.9** | *30.0* |",
        "| bench | gen | 70.0 | 72.0 [68.0, 76.0] | shifted | 7.3 | — |",
        "| other | gen | 70.0 | — | as it is | 10.0 | — |",
        "| other | gen | 70.0 | — | shifted | — | — |",
    ]
    assert lines[8] == "|  | Mean | — | — | as it is | 20.9 | — |"
    assert lines[9] == "|  | Mean | — | — | shifted | 7.3 | — |"
    caption = table.whole_caption
    assert "DTC lin 1 of 2" in caption
    assert "Not shifted: no shift (stated, gen on bench)." in caption
    assert "Not shifted: fewer than 2 samples of every problem (gen on other)." in caption
    assert to_csv(table).splitlines()[1] == "bench,gen,0.7,0.72,0.68,0.76,as it is,0.209,0.3"


def test_the_note_says_estimate_truth_and_both_eces() -> None:
    (line,) = base_rate_note([GROUP]).lines
    assert line == (
        "gen: its samples agree as if it were right 72 % of the time (by the grades 70 %) on "
        "bench. Natural ECE in %, as it is -> shifted: dtc_lin 20.9 -> 7.3."
    )


def test_the_note_says_why_there_is_nothing() -> None:
    (line,) = base_rate_note([ALONE]).lines
    assert line == (
        "gen: its samples do not tell how often it is right: fewer than 2 samples of every problem."
    )
    only = replace(GROUP, restated=GROUP.restated[1:])
    assert base_rate_note([only]).lines[0].endswith("No confidence was shifted: no shift.")


def test_two_samples_of_a_problem_are_said_to_be_few() -> None:
    few = replace(GROUP, agreement=replace(AGREED, samples=400, answered=400))
    assert "Fewer than 3 samples make it too low." in base_rate_note([few]).lines[0]


def test_the_json_has_the_estimate_beside_each_evaluation() -> None:
    value = base_rate_note([GROUP, ALONE]).value
    found = value(evaluation("dtc_lin"))
    assert found["estimated_accuracy"] == 0.72
    assert found["interval"] == {"low": 0.68, "high": 0.76}
    assert found["estimated_share_right"] == pytest.approx(0.72 * 800 / 798)
    assert (found["natural_ece_shifted"], found["shift"], found["reason"]) == (0.073, 1.1, None)
    assert value(evaluation("stated"))["reason"] == "no shift"
    assert value(evaluation("count"))["natural_ece_shifted"] is None
    assert value(evaluation("dtc_lin", benchmark="other"))["reason"] == ONE_SAMPLE.reason
    assert value(evaluation("dtc_lin", benchmark="none")) is None


def test_the_overview_has_the_mean_only_where_it_is_known() -> None:
    found = overview_table([evaluation("dtc_lin")], [], base_rates=[GROUP])
    assert [c.label for c in found.columns][3] == "shifted ECE"
    assert found.rows[0].cells[3] == 0.073
    plain = overview_table([evaluation("dtc_lin")], [])
    assert "shifted ECE" not in [c.label for c in plain.columns]


def test_the_report_has_the_table(tmp_path) -> None:
    report = write_report(tmp_path, evaluations=[evaluation("dtc_lin")], base_rates=[GROUP])
    assert (tmp_path / "tables" / "base-rate.csv").is_file()
    page = (tmp_path / "README.md").read_text()
    assert "`tables/base-rate.*`" in page
    assert report.files
    without = tmp_path / "without"
    write_report(without, evaluations=[evaluation("dtc_lin")])
    assert not (without / "tables" / "base-rate.csv").exists()
    assert "base-rate" not in (without / "README.md").read_text()


def prevalence(right: float, **changes: object) -> Prevalence:
    ends = Interval(right - 0.03, right + 0.03)
    says = {"dtc_lin": 0.5, "dtc_prod": 0.4, "nsl": 0.8}
    plain = Prevalence("gen", 800, right, ends, says, right, ends)
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("found", "end"),
    [
        (
            prevalence(0.77),
            "dtc_lin and dtc_prod, and theta, were set for 50 % right answers; score.prior states "
            "confidences for another share.",
        ),
        (prevalence(0.51), "dtc_prod 40 %, nsl 80 %."),
        (
            prevalence(0.77, priors={"dtc_lin": 0.6, "dtc_prod": 0.6, "nsl": 0.6}),
            "dtc_lin, dtc_prod and nsl are stated for 60 % right answers (score.prior).",
        ),
        (
            prevalence(0.77, priors={"dtc_lin": 0.78, "dtc_prod": 0.78, "nsl": 0.78}),
            "dtc_prod 40 %, nsl 80 %.",
        ),
    ],
)
def test_a_line_says_what_numbers_were_set_for_where_that_is_not_so(found, end) -> None:
    (line,) = prevalence_note([found]).lines
    assert line.endswith(end)
    assert line.count("right answers") <= 1
