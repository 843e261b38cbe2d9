"""The table, the figure and the sentences on where mistakes are."""

from __future__ import annotations

import numpy as np
import pytest

from divtok.evaluate.mistakes import CHANCE, Mistake, Mistakes, earliness_of, markings_of
from divtok.report.mistakes import mistakes_part
from divtok.report.panels import PanelsDisplay
from divtok.report.render import RENDERERS
from divtok.report.tables import Bounded
from divtok.score.suspicion import LEAST_LIKELY_STEP

RIGHT, OFF, NONE = [0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [-np.inf] * 3


def mistakes(generator: str = "gen", *, known: int = 20, right: int = 10) -> Mistakes:
    """Step 2 of 3 is wrong: found always, by every second likelihood and every fourth token."""
    found = [
        Mistake(
            str(i),
            1,
            {
                "first_divergent": np.array([RIGHT, OFF, OFF, NONE][i % 4]),
                "guarded": np.array(RIGHT),
                LEAST_LIKELY_STEP: np.array([RIGHT, OFF][i % 2]),
            },
            after=4,
            left=0.5,
        )
        for i in range(known)
    ]
    return Mistakes(
        generator,
        known,
        {"unread_step": 2},
        tuple(markings_of(found, (CHANCE, LEAST_LIKELY_STEP))),
        earliness_of(found),
        *(right, 9, right, 1),
    )


def test_the_table_has_a_row_for_each_way() -> None:
    table = mistakes_part([mistakes()], theta=0.25).tables["mistakes"]
    keys = [column.key for column in table.columns]
    rows = [dict(zip(keys, row.cells, strict=True)) for row in table.rows]
    assert [row["marking"] for row in rows] == [
        "first divergent token",
        "largest guarded surprise",
        "least likely step",
        "chance",
        "first step",
        "last step",
    ]
    divergent, guarded, likely, *_ = rows
    assert isinstance(divergent["precision"], Bounded)
    assert divergent["precision"].value == pytest.approx(1 / 3)
    assert (divergent["marked"], divergent["alarms"]) == (3 / 4, 9 / 10)
    assert (guarded["marked"], guarded["alarms"]) == (1, 1)
    assert isinstance(guarded["over_likelihood"], Bounded)
    assert guarded["over_likelihood"].value == 1 / 2
    assert likely["over_likelihood"] is None
    for render in RENDERERS.values():
        assert render(table)


def test_what_is_known_is_said() -> None:
    caption = mistakes_part([mistakes()], theta=0.25).tables["mistakes"].whole_caption
    assert "known of 20 of 22 wrong responses (else: 2 unread_step)" in caption
    assert "1 of 10 right ones have a wrong step" in caption
    assert "half of them within 4 tokens and with more than 50 %" in caption
    assert "above 0.25 bits" in caption


def test_two_sentences_in_short() -> None:
    assert mistakes_part([mistakes()], theta=0.25).short == (
        "The step with the largest guarded surprise is the first wrong one of 100 % of the wrong "
        "responses; the least likely step of 50 %, a step by chance of 33 %.",
        "The step with the first divergent token is it in 33 %, and 90 % of right responses have a "
        "divergent token as well.",
    )
    several = mistakes_part([mistakes("a"), mistakes("b", right=0)], theta=0.25).short
    assert "(mean over generators)" in several[0]
    assert len(mistakes_part([mistakes(right=0)], theta=0.25).short) == 1


def test_the_figure_has_a_panel_for_each_generator() -> None:
    (drawn,) = mistakes_part([mistakes("a"), mistakes("b", known=4)], theta=0.25).figures
    assert isinstance(drawn.display, PanelsDisplay)
    ((many, few),) = drawn.display.rows
    assert [line.label for line in many.lines] == [
        "first divergent token",
        "largest guarded surprise",
        "least likely step",
        "chance",
    ]
    assert [(line.x, line.y[0]) for line in many.lines[1:3]] == [((3.0,), 100.0), ((3.0,), 50.0)]
    assert many.lines[3].low is None
    assert few.lines == (), "four responses are too few"
    assert drawn.display.figure() is not None
