"""Somebody in a notebook: the cells of an afternoon, and what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from first_hour_samples import READER, WEAK, rows

import divtok

QUESTION = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
RESPONSE = "421 + 130 = 551.\nThe answer is \\boxed{551}."


@pytest.fixture(scope="module")
def pair() -> Any:
    return divtok.load_pair(WEAK, READER)


def fits(text: str) -> bool:
    return len(text.splitlines()) <= 25 and max(map(len, text.splitlines())) <= 100


def test_what_is_printed_fits_on_a_screen(pair: Any) -> None:
    result = divtok.confidence(QUESTION, RESPONSE, pair=pair, theta=0.05)
    assert fits(str(result))
    assert fits(str(result.trace))
    assert fits(str(result.tokens))


def test_a_pair_says_who_it_is(pair: Any) -> None:
    assert fits(str(pair))
    assert WEAK in str(pair)
    assert READER in str(pair)


def test_the_tokens_are_coloured(pair: Any) -> None:
    tokens: Any = divtok.confidence(QUESTION, RESPONSE, pair=pair, theta=0.05).tokens
    page = tokens._repr_html_()
    assert "background" in page or "style" in page
    assert re.sub(r"<[^>]+>", "", page).count("551") >= 1
    assert tokens[0].text in RESPONSE


def test_two_estimators_of_one_response_read_it_once(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    plain = type(pair).read_rows

    def counted(self: Any, rows: Any, **how: Any) -> Any:
        read.append(len(rows))
        return plain(self, rows, **how)

    monkeypatch.setattr(type(pair), "read_rows", counted)
    question = "A question of this test alone: what is 3 + 4?"
    linear = divtok.confidence(question, RESPONSE, pair=pair, estimator="dtc_lin", theta=0.05)
    product = divtok.confidence(question, RESPONSE, pair=pair, estimator="dtc_prod", theta=0.05)
    assert linear.count == product.count
    assert sum(read) == 1


def test_a_run_gives_its_rows_as_a_frame(first: Path) -> None:
    frame = divtok.Run("first").rows()
    assert len(frame) == 64
    assert {"question", "response", "verdict", "dtc_lin", "count"} <= set(frame.columns)


def test_a_run_grows_from_python(first: Path) -> None:
    run = divtok.run(family="tiny", limit=9, name="first")
    assert len(run.problems) == 18


def test_evaluations_hold_the_natural_figures(first: Path) -> None:
    frame = divtok.Run("first").evaluate().to_polars()
    assert {"mean_confidence", "brier", "brier_interval", "natural_ece"} <= set(frame.columns)


def test_the_runs_are_listed(first: Path) -> None:
    assert [run["name"] for run in divtok.ls("runs")] == ["first"]


def test_many_rows_in_one_call(pair: Any) -> None:
    found = divtok.confidences(
        [(row["question"], row["response"]) for row in rows()], pair=pair, theta=0.05
    )
    assert len(found.values) == 4
    assert fits(str(found))
