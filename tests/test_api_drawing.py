"""`ask_until`: the same answers as without stopping, fewer tokens."""

from __future__ import annotations

from typing import Any

import pytest

import divtok
from divtok.errors import UsageError
from divtok.trace.pair import Pair

P, Q = "divtok/tiny-1.6m", "divtok/tiny-0.3m"
EASY = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
HARD = "Ada has 7365 eggs. Ada buys 3078 eggs and gives 3 times 77 away. How many are left?"
LONGEST = 60
SAMPLES = 4


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair(P, Q, device="cpu")


@pytest.fixture(scope="module")
def whole(pair: Pair) -> dict[tuple[str, int], Any]:
    """The last event of every sample, written to its end, by all estimators."""
    names = ["dtc_lin", "dtc_weighted", "dtc_guarded", "nsl"]
    options: dict[str, Any] = {"pair": pair, "estimator": names, "max_tokens": LONGEST}
    return {
        (question, sample): list(
            divtok.stream(question, sample=sample, temperature=1.0, **options)
        )[-1]
        for question in (EASY, HARD)
        for sample in range(SAMPLES)
    }


def draw(pair: Pair, question: str, **options: Any) -> divtok.Drawn:
    usual: dict[str, Any] = {"temperature": 1.0, "max_tokens": LONGEST, "budget_tokens": 10_000}
    return divtok.ask_until(question, pair=pair, **(usual | options))


@pytest.mark.parametrize("name", ["dtc_lin", "dtc_weighted", "dtc_guarded", "nsl"])
@pytest.mark.parametrize("question", [EASY, HARD])
def test_nothing_is_stopped_that_would_be_accepted(
    pair: Pair, whole: dict[tuple[str, int], Any], question: str, name: str
) -> None:
    ends = [whole[question, sample] for sample in range(SAMPLES)]
    values = sorted(end.confidence[name] for end in ends)
    # At a value itself, and between two; rows that are written together differ by rounding.
    for above, batch in ((values[2], 1), ((values[1] + values[2]) / 2, 3)):
        found = draw(
            pair, question, estimator=name, above=above, k=9, max_draws=SAMPLES, batch=batch
        )
        assert [d.sample for d in found.draws] == list(range(SAMPLES))
        for end, drawn in zip(ends, found.draws, strict=True):
            accepted = end.confidence[name] >= above and end.ending == "stop"
            assert (drawn.outcome == "accepted") == accepted
            if drawn.outcome == "stopped":
                assert drawn.result is None
                assert drawn.tokens <= end.position + 1
            else:
                assert drawn.tokens == end.position + 1
        if name == "nsl":  # it may rise again
            assert not found.stopped


def told(found: divtok.Drawn) -> list[tuple[int, str, int, str]]:
    return [(d.sample, d.outcome, d.tokens, d.text) for d in found.draws if d.outcome != "left"]


@pytest.mark.parametrize("batch", [3, 8])
def test_the_answers_are_those_of_drawing_one_by_one(pair: Pair, batch: int) -> None:
    options: dict[str, Any] = {"estimator": "dtc_weighted", "above": 0.6, "k": 3, "seed": 1}
    one, many = draw(pair, EASY, **options), draw(pair, EASY, batch=batch, **options)
    assert one.enough
    assert told(one) == told(many)
    assert [r.value for r in one.accepted] == pytest.approx([r.value for r in many.accepted])
    assert not [d for d in one.draws if d.outcome == "left"]
    assert {str(d.reason) for d in many.draws if d.outcome == "left"} <= {
        "enough were accepted before it"
    }


def test_a_budget_ends_it(pair: Pair) -> None:
    found = draw(pair, EASY, above=0.1, k=50, budget_tokens=70, batch=2)
    assert not found.enough
    assert 70 <= found.tokens <= 71
    assert [d.reason.kind for d in found.draws if d.outcome == "left"] == ["budget"] * sum(
        d.outcome == "left" for d in found.draws
    )
    assert len(draw(pair, EASY, above=1.0, max_draws=3).draws) == 3


def test_an_answer_that_was_cut_off_is_not_accepted(pair: Pair) -> None:
    found = draw(pair, EASY, above=0.0, max_tokens=4, max_draws=2)
    assert [(d.outcome, d.reason.kind) for d in found.draws] == [("rejected", "cut_off")] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Nothing says which answers are accepted"),
        ({"above": 0.5, "temperature": 0.0}, "every answer is the same one"),
        ({"above": 0.5, "k": 0}, "k must be at least 1"),
        ({"above": 0.5, "batch": 0}, "batch must be at least 1"),
        ({"above": 0.5, "budget_tokens": 0}, "budget_tokens must be at least 1"),
    ],
)
def test_what_is_refused(pair: Pair, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        draw(pair, EASY, **options)
