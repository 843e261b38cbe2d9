"""The record of a fit, its file, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from divtok.errors import DataError, UsageError
from divtok.records import Confidence, Interval, Reason
from divtok.score.fit_file import load_fit, save_fit, with_identity
from divtok.score.fitted import (
    Fitted,
    Isotonic,
    Logistic,
    applied,
    check_pair,
    check_parameters,
    stated_for,
)

MAP = Fitted(
    what="isotonic",
    estimator="dtc_weighted",
    params={"rate": 1.0},
    tokens="reasoning",
    pairs=(("p", "q"),),
    generators=("p",),
    target="grades",
    prior=0.5,
    prior_from="grades",
    responses=40,
    problems=10,
    map=Isotonic(((0.1, 0.2), (0.9, 0.6))),
    figures={"held_out": {"natural_ece": 0.04}},
    notes=("Something to mind.",),
    made_of={"run": "ab", "tables": {"traces": "cd"}},
    divtok="0.1.0",
)
RATE = replace(
    MAP, what="rate", map=None, params={"rate": 1.78}, interval=Interval(1.41, 2.0),
    target="agreement", prior_from="agreement",
)  # fmt: skip
LOGISTIC = replace(MAP, what="logistic", map=Logistic(1.5, -0.25))


@pytest.mark.parametrize("fitted", [MAP, RATE, LOGISTIC])
def test_a_file_brings_back_what_was_kept(tmp_path: Path, fitted: Fitted) -> None:
    path = tmp_path / "fits" / f"{fitted.name}.json"
    saved = save_fit(fitted, path)
    assert saved == with_identity(fitted) == load_fit(path)
    assert saved.identity is not None
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert json.loads(path.read_text())["format"] == 1


def test_names_of_files() -> None:
    assert MAP.name == "dtc_weighted-isotonic"
    assert RATE.name == "dtc_weighted-rate-agreement"


def test_a_file_that_is_not_as_it_was_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fit.json"
    save_fit(MAP, path)
    text = path.read_text()
    for wrong, words in (
        (text.replace("0.6", "0.7"), "does not match its checksum"),
        (
            text.replace('"format": 1', '"format": 2'),
            "is of format 2; this version of divtok reads 1",
        ),
        (text[:40], "cannot be read"),
        ("[1]", "no file of a fit"),
    ):
        path.write_text(wrong)
        with pytest.raises(DataError, match=words):
            load_fit(path)
    with pytest.raises(DataError, match="cannot be read"):
        load_fit(tmp_path / "none.json")


def test_a_map_goes_over_a_value_and_its_bounds_and_says_so() -> None:
    found = applied(MAP, Confidence("k", "dtc_weighted", {"rate": 1.0}, 0.5, low=0.1, high=0.9))
    assert (found.value, found.low, found.high) == pytest.approx((0.4, 0.2, 0.6))
    assert found.params == {"rate": 1.0, "map": "isotonic"}
    assert found.prior == 0.5
    named = applied(with_identity(MAP), Confidence("k", "dtc_weighted", {}, 0.5))
    assert named.params["map_of"] == with_identity(MAP).identity
    none = applied(MAP, Confidence("k", "dtc_weighted", {}, None, Reason("empty", "no text")))
    assert (none.value, none.prior, none.reason) == (None, None, "no text")
    plain = Confidence("k", "dtc_weighted", {}, 0.5)
    assert applied(RATE, plain) is plain


def test_a_single_confidence_at_another_prior() -> None:
    found = applied(MAP, Confidence("k", "dtc_weighted", {}, 0.5, low=0.1, high=0.9))
    moved = stated_for(found, 0.8)  # odds of 4 in place of 1
    expected = [4 * c / (4 * c + 1 - c) for c in (0.4, 0.2, 0.6)]
    assert [moved.value, moved.low, moved.high] == pytest.approx(expected)
    assert moved.prior == 0.8


def test_another_pair_and_other_parameters_are_refused_with_both_sides() -> None:
    check_pair(MAP, ("p", "q"))
    with pytest.raises(
        UsageError, match=r"another pair \(p p, q q\); here it is p a, q b"
    ) as caught:
        check_pair(MAP, ("a", "b"))
    assert caught.value.next_step == "Fit one for this pair with 'divtok fit'."
    with pytest.raises(UsageError, match=r"score.dtc_weighted.rate=1.78 in a run"):
        check_pair(RATE, ("a", "b"))
    check_parameters(MAP, {"rate": 1.0}, "reasoning", how="x")
    with pytest.raises(UsageError) as caught:
        check_parameters(RATE, {"rate": 1.0}, "reasoning", how="leave out the fit")
    assert str(caught.value) == (
        "The rate 1.78 of dtc_weighted was fitted, but here it is 1.0. "
        "Give no other rate, or leave out the fit"
    )
    with pytest.raises(UsageError, match=r"fitted with rate 1.0, here it is 2.0. .*or x$"):
        check_parameters(MAP, {"rate": 2.0}, "reasoning", how="x")
    with pytest.raises(UsageError, match="the tokens 'reasoning', here they are 'all'"):
        check_parameters(MAP, {"rate": 1.0}, "all", how="x")


def test_records_that_contradict_themselves() -> None:
    for wrong in ({"map": None}, {"what": "rate"}, {"what": "logistic"}, {"prior": 1.0}):
        with pytest.raises(DataError):
            replace(MAP, **wrong)
    with pytest.raises(UsageError, match="what cannot be 'mu'"):
        replace(MAP, what="mu")
