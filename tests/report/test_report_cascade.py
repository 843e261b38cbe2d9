"""The table, the advice and the figure of a cascade."""

from __future__ import annotations

import numpy as np
import pytest
from figure_checks import assert_tidy, drawn
from report_samples import HOSTILE, printed

from divtok.decide.cascade import Cascade, Marked, curve, oracle
from divtok.decide.cost import TokenCost
from divtok.decide.deferral import Answers, choices
from divtok.json_text import json_text
from divtok.report.cascade import (
    advice,
    cascade_part,
    cascade_table,
    marked_line,
)
from divtok.report.cascade_figure import CascadeDisplay
from divtok.report.terminal import rich_table

TENTHS = np.arange(10) / 10


def cascade(*, right=5, theirs=9, large=10.0, read=0.0, values=TENTHS, names=("s", "l"), **more):
    """Ten problems of a token each: the smaller is right in the last, the larger in the last."""
    problems = [("bench", str(i)) for i in range(10)]
    tokens = np.ones(10)
    made = [Answers(problems, np.arange(10) >= 10 - n, tokens) for n in (right, theirs)]
    unit = more.pop("unit", "parameters")
    costs = TokenCost(1.0, read, unit), TokenCost(large, 0.0, unit)
    both = choices(*made, costs, resamples=20)
    within = more.get("within", 0.0)
    curves = {
        "dtc_lin": curve(both, values, read, within=within),
        "length": curve(both, np.zeros(10), 0.0, within=within),
    }
    return Cascade(*names, both, curves, oracle(both), **more)


def test_the_advice_is_the_threshold_what_it_gives_and_what_it_costs() -> None:
    # The five wrong ones have the lowest values: deferring them gives 90 % for 1 + 5 of 10.
    assert advice(cascade()) == (
        "Send to l what DTC lin puts below 0.5, 50 % of the answers: 90.0 % are right then, "
        "90.0 % right by l alone, for 60 % of its cost."
    )
    assert advice(cascade(read=2.0)).endswith("for 80 % of its cost, 20 % for reading.")
    assert "below 0.4, 40 % of the answers: 80.0 %" in advice(cascade(within=0.1))


def test_the_advice_is_one_model_where_a_cascade_saves_nothing() -> None:
    assert advice(cascade(read=6.0)) == (
        "Take l alone (90.0 % right): no estimator is as accurate for less. DTC lin takes 120 % of "
        "its cost; were reading free, 60 %."
    )
    assert advice(cascade(theirs=5)) == "Take s alone: 50.0 % right, and l 50.0 % right."
    backwards = advice(cascade(values=-TENTHS, theirs=10))
    assert backwards.startswith("Take l alone (100.0 % right): with every estimator it takes")


def test_the_table_has_a_row_an_estimator_and_says_what_was_left_out() -> None:
    table = cascade_table(cascade(read=2.0, ungraded=3))
    assert [row.cells[0] for row in table.rows] == ["Length", "DTC lin"]
    cells = dict(zip([c.key for c in table.columns], table.rows[1].cells, strict=True))
    assert cells["cost_at_larger"].value == pytest.approx(0.8)
    assert (cells["deferred"], cells["threshold"]) == (pytest.approx(0.5), "0.5")
    assert cells["read"] == pytest.approx(0.2)
    assert table.rows[0].cells[3:6] == (None, None, None)  # it takes deferring everything
    assert "s 50.0 % right for 10 % of the larger's cost, l 90.0 % right." in table.caption
    assert "3 responses that failed or have no grade are left out" in table.caption
    assert "Share of oracle" in table.caption
    assert "80.0" in printed(rich_table(table))


def test_prices_and_unknown_sizes_are_told() -> None:
    assert "l 90.0 % right for 1e+04 a thousand" in cascade_table(cascade(unit="price")).caption
    assert "a model's size is not known" in cascade_table(cascade(unit="tokens")).caption


def test_a_policy_is_told_and_drawn() -> None:
    found = cascade(marked=Marked("dtc_lin", 0.25, 3, "at most 10 % wrong"))
    assert marked_line(found) == (
        "The policy (at most 10 % wrong) sends 30 % of the answers on: 70.0 % are right then, for "
        "40 % of the larger's cost."
    )
    assert marked_line(cascade()) is None
    figure = drawn(CascadeDisplay.of(found))
    assert "policy" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_figure_draws_what_its_values_say() -> None:
    found = cascade(read=2.0)
    display = CascadeDisplay.of(found)
    values = display.values()
    json_text(values)  # an error where a number is none
    (lin,) = [c for c in values["curves"] if c["estimator"] == "dtc_lin"]
    assert lin["threshold"] == [*TENTHS.tolist(), None]
    assert lin["cost"] == pytest.approx(list(range(3, 14)))
    figure = drawn(display)
    assert_tidy(figure)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert lines["DTC lin"].get_xdata() == pytest.approx(10 * np.arange(3, 14))
    assert lines["either at random"].get_xdata() == pytest.approx([10, 100])
    assert lines["oracle"].get_ydata() == pytest.approx([50, 90])  # one kind of response, all alike
    assert lines["l alone"].get_xdata() == [pytest.approx(100)]


def test_the_best_curve_of_each_cost_of_reading_is_drawn() -> None:
    found = cascade(read=2.0)
    assert CascadeDisplay.of(found).shown == ("length", "dtc_lin")
    assert CascadeDisplay.of(found, ["dtc_lin"]).shown == ("dtc_lin",)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_drawn_as_text(name: str) -> None:
    part = cascade_part(cascade(names=(name, "l")))
    assert_tidy(drawn(part.figures[0].display))
    assert len(part.short) <= 2
