"""What a report says of accepted answers: sentences, the table, the picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from report_samples import group

from divtok.decide.offer import answers_of, offer_of
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.report.decisions import decisions_part, floor_line, offer_lines
from divtok.report.panels import PanelsDisplay


def rows(n: int = 200, *, generator: str = "gen", samples: int = 1) -> ScoredGroup:
    """Of every five, four right at 0.9 and one wrong at 0.2; another estimator tells nothing."""
    wrong = [i % 5 == 4 for i in range(n)]
    return ScoredGroup(
        benchmark="bench",
        generator=generator,
        problem_id=[str(i // samples) for i in range(n)],
        verdict=["incorrect" if bad else "correct" for bad in wrong],
        truncated=[False] * n,
        length=[1] * n,
        count=[None] * n,
        columns=[
            ScoreColumn("dtc_lin", [0.2 if bad else 0.9 for bad in wrong]),
            ScoreColumn("nsl", [0.5] * n),
            ScoreColumn("broken", [None] * n),
            ScoreColumn("length", [-1.0] * n, ranking_only=True),
        ],
    )


def offer(given: ScoredGroup, risk: float = 0.05, estimator: str = "dtc_lin"):
    return offer_of(answers_of([given], estimator), estimator, risk=risk)


def test_the_floor_in_words():
    assert floor_line(offer(rows())) == (
        "20 % of 200 responses are wrong: to have at most 5 % wrong among those that are "
        "accepted, any rule must withhold 15.8 % or more."
    )
    assert floor_line(offer(rows(), 0.2)) == "20 % of 200 responses are wrong: within 20 % as "\
        "they are."  # fmt: skip
    undecided = replace(rows(), verdict=["undetermined"] * 50 + list(rows().verdict)[50:])
    assert "of 150 responses are wrong (50 that were not decided are left out)" in floor_line(
        offer(undecided)
    )


def test_a_promise_in_words():
    assert offer_lines(offer(rows())) == [
        "dtc_lin: accept from 0.9 on, and at most 5 % of the accepted answers are wrong, with "
        "chance 90 %.",
        "That accepts 80 % of the responses; here 0 % of those are wrong (tested on one response "
        "to each of 200 problems).",
    ]
    bets = offer_lines(offer(rows(1600, samples=4), 0.2))
    assert bets[1].endswith("(tested on 1,600 responses to 400 problems).")


def test_no_promise_in_words():
    first, best = offer_lines(offer(rows(30)))
    assert first == "dtc_lin: 5 % cannot be promised: it takes 45 problems, and there are 30."
    # 24 of 30 look alike and are right: 0.1 ** (1 / 24) = 0.9085
    assert best.startswith("The best that can: from 0.9 on, at most 9.1 % are wrong")


def test_the_table_has_a_row_for_each_generator_and_risk():
    part = decisions_part([rows(), rows(generator="other")])
    assert part is not None
    table = part.tables["decisions"]
    assert [c.key for c in table.columns][:3] == ["generator", "risk", "most"]
    names = [c.key for c in table.columns][3:]
    assert set(names) == {"dtc_lin", "nsl", "broken"}  # what only ranks is left out
    keys = [c.key for c in table.columns]
    cells = [dict(zip(keys, row.cells, strict=True)) for row in table.rows]
    assert [(c["generator"], c["risk"]) for c in cells] == [
        (g, risk) for g in ("gen", "other") for risk in (0.01, 0.05, 0.1)
    ]
    assert cells[1]["most"] == pytest.approx(0.8 / 0.95)
    assert (cells[1]["dtc_lin"], cells[1]["nsl"], cells[1]["broken"]) == (0.8, None, None)
    assert cells[0]["dtc_lin"] is None  # 1 % takes 230 problems


def test_the_picture_is_of_the_estimator_that_accepts_most():
    part = decisions_part([rows()])
    assert part is not None
    (drawn,) = part.figures
    assert isinstance(drawn.display, PanelsDisplay)
    ((panel,),) = drawn.display.rows
    assert panel.mark == 80
    measured, highest, asked = panel.lines
    assert measured.y[-1] == pytest.approx(20)
    assert (np.array(highest.y) > np.array(measured.y)).all()
    assert set(asked.y) == {5}


def test_the_sentence_says_that_the_best_was_chosen_afterwards():
    part = decisions_part([rows(), rows(20, generator="other")])
    assert part is not None
    first, second = part.short
    assert first.startswith("Of gen's answers ")
    assert "accepts most, 80 %: had it been chosen beforehand, at most 5 % of them are" in first
    assert second == (
        "Of other's answers none can be accepted with a promise of at most 5 % wrong."
    )


def test_a_usual_group_and_one_without_confidences():
    part = decisions_part([group(n=400)])
    assert part is not None
    assert "decisions" in part.tables
    none = replace(rows(20), columns=[ScoreColumn("dtc_lin", [None] * 20)])
    assert decisions_part([none]) is None
    undecided = replace(rows(20), verdict=["undetermined"] * 20)
    assert decisions_part([undecided]) is None
    assert not np.isnan(rows().columns[0].array()).any()
