"""Fits from Python and the command line: the same numbers, the same refusals."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from console import Command
from console import divtok as divtok  # a fixture

os.environ.setdefault("OMP_NUM_THREADS", "1")

import divtok as package
from divtok.errors import DataError, DivtokError, UsageError
from divtok.evaluate.fit_map import MapFit
from divtok.evaluate.fit_rate import RateFit
from divtok.score.fit_file import save_fit

QUESTION = "Ada has 12 eggs. Ada buys 30 more eggs. How many eggs does Ada have now?"
TEXTS = [f"12 plus 30 is {n}. The answer is \\boxed{{{n}}}." for n in (42, 42, 41, 52, 42, 7)]
RIGHT = [True, True, False, False, True, False]
PROBLEMS = ["a", "a", "a", "b", "b", "b"]


@functools.cache
def found() -> package.Confidences:
    pair = package.load_pair("tiny")
    rows = [(QUESTION, text) for text in TEXTS]
    estimators = ["dtc_weighted", "dtc_lin"]
    return package.confidences(rows, pair=pair, estimator=estimators, progress=False)


@functools.cache
def map_fit() -> MapFit:
    return package.fit(found(), RIGHT, PROBLEMS, what="isotonic")


def test_each_thing_is_fitted_on_rows() -> None:
    fitted = map_fit()
    assert (fitted.estimator, fitted.n, fitted.problems, fitted.prior) == (
        "dtc_weighted",
        6,
        2,
        0.5,
    )
    rate = package.fit(found(), RIGHT, PROBLEMS, what="rate", resamples=20)
    assert isinstance(rate, RateFit)
    theta = package.fit(found(), RIGHT, PROBLEMS, resamples=20)
    assert theta.fitted is not None
    assert theta.fitted.params == {"theta": theta.theta, "n": 10, "a": 0.95, "b": 0.05}
    linear = package.fit(found(), RIGHT, PROBLEMS, what="isotonic", estimator="dtc_lin")
    assert linear.fitted is not None
    assert linear.fitted.params["theta"] == found().theta


def test_agreement_takes_answers_and_no_grade() -> None:
    answers = ["42", "42", "41", "52", "42", None]
    alone = package.fit(
        found(), None, PROBLEMS, what="isotonic", target="agreement", answers=answers
    )
    graded = package.fit(
        found(), RIGHT, PROBLEMS, what="isotonic", target="agreement", answers=answers
    )
    assert (alone.map, alone.n, alone.excluded) == (graded.map, 5, 1)
    assert alone.figures.reason is not None
    assert graded.figures.in_sample is not None
    for given, words in (
        ({}, "Nothing says which rows are right"),
        ({"target": "agreement"}, "which rows give the same answer"),
        ({"correct": RIGHT, "answers": answers}, "for the target 'agreement'"),
    ):
        with pytest.raises(UsageError, match=words):
            package.fit(found(), problem_ids=PROBLEMS, what="isotonic", **given)  # type: ignore[call-overload]
    for wrong, name in ((["42"], "list"), ({"a": 1}, "dict")):
        with pytest.raises(
            UsageError, match=f"answer of row 1 is a {name}.* as a text or a number"
        ):
            package.fit(
                found(), None, PROBLEMS, what="isotonic", target="agreement",
                answers=["42", wrong, *answers[2:]],  # type: ignore[list-item]
            )  # fmt: skip
    with pytest.raises(UsageError, match="which rows are samples of one problem"):
        package.fit(found(), what="isotonic", target="agreement", answers=answers)
    with pytest.raises(DataError, match=r"one sample only.*several samples of each problem"):
        package.fit(found(), None, "abcdef", what="isotonic", target="agreement", answers=answers)
    with pytest.raises(DataError, match="There are 1 answers but 6 rows"):
        package.fit(found(), None, PROBLEMS, what="isotonic", target="agreement", answers=["42"])


@pytest.mark.parametrize("prior", [None, 0.8])
def test_a_fit_gives_the_same_through_both_doors(
    tmp_path: Path, divtok: Command, prior: float | None
) -> None:
    fitted = map_fit().fitted
    assert fitted is not None
    save_fit(fitted, tmp_path / "fit.json")
    plain = found().values[0]
    assert plain is not None
    given = {"estimator": "dtc_weighted", "prior": prior}
    known = package.confidence(
        QUESTION, TEXTS[0], pair=found().scoring.pair, fitted=fitted, **given
    )
    of_file = package.confidence(
        QUESTION, TEXTS[0], pair=found().scoring.pair, fitted=tmp_path / "fit.json", **given
    )
    said = divtok(
        *("confidence", "--family", "tiny", "--question", QUESTION, "--response", TEXTS[0]),
        *("--estimator", "dtc_weighted", "--fitted", tmp_path / "fit.json", "--json"),
        *(() if prior is None else ("--prior", str(prior))),
    )
    assert said.code == 0, said.err
    answer = json.loads(said.out)
    assert answer["confidence"] == known.value == of_file.value
    assert answer["params"] == known.params
    assert answer["prior"] == known.prior == (prior or 0.5)
    mapped = float(map_fit().map(plain))
    odds = mapped / (1 - mapped) * (1 if prior is None else 4)
    assert known.value == pytest.approx(odds / (1 + odds), abs=1e-4)
    (many,) = package.confidences(
        [(QUESTION, TEXTS[0])], pair=found().scoring.pair, fitted=fitted, progress=False, **given
    )
    assert many is not None
    assert (many.value, many.prior) == (known.value, known.prior)


def test_a_fitted_rate_is_the_parameter(tmp_path: Path, divtok: Command) -> None:
    rate = package.fit(found(), RIGHT, PROBLEMS, what="rate", resamples=20)
    assert rate.fitted is not None
    pair = found().scoring.pair
    ours = package.confidence(
        QUESTION, TEXTS[2], pair=pair, estimator="dtc_weighted", fitted=rate.fitted
    )
    by_hand = package.confidence(
        QUESTION, TEXTS[2], pair=pair, estimator="dtc_weighted", rate=rate.rate
    )
    assert (ours.value, ours.params, ours.prior) == (by_hand.value, by_hand.params, None)


def test_a_fitted_rate_is_that_of_its_own_estimator() -> None:
    both = package.confidences(
        [(QUESTION, text) for text in TEXTS],
        pair=found().scoring.pair,
        estimator=["dtc_weighted", "dtc_guarded"],
        progress=False,
        guard=3.0,
    )
    right, problems = RIGHT[: len(both)], PROBLEMS[: len(both)]
    weighted = package.fit(both, right, problems, what="rate", resamples=20)
    guarded = package.fit(both, right, problems, what="rate", estimator="dtc_guarded", resamples=20)
    assert weighted.fitted is not None
    assert guarded.fitted is not None
    assert weighted.fitted.params == {"rate": weighted.rate}
    assert guarded.fitted.params == {"rate": guarded.rate, "guard": 3.0}
    again = package.confidences(
        [(QUESTION, TEXTS[0])],
        pair=found().scoring.pair,
        estimator=["dtc_weighted", "dtc_guarded"],
        fitted=replace(guarded.fitted, params={"rate": 2.0, "guard": 3.0}),
        progress=False,
        guard=3.0,
    )
    assert dict(again["dtc_guarded"].params) == {"rate": 2.0, "guard": 3.0}
    assert dict(again["dtc_weighted"].params) == {"rate": 1.0}


def test_a_confidence_takes_one_fit(tmp_path: Path, divtok: Command) -> None:
    fitted = map_fit().fitted
    assert fitted is not None
    path = tmp_path / "fit.json"
    save_fit(fitted, path)
    several: Any = [path, path]
    with pytest.raises(UsageError, match="takes one fit") as caught:
        package.confidence(QUESTION, TEXTS[0], pair=found().scoring.pair, fitted=several)
    said = divtok(
        *("confidence", "--family", "tiny", "--question", QUESTION, "--response", TEXTS[0]),
        *("--estimator", "dtc_weighted", "--fitted", path, "--fitted", path),
    )
    assert said.error_line == f"divtok: {caught.value}"


def test_what_is_printed_tells_of_map_and_prior(tmp_path: Path, divtok: Command) -> None:
    fitted = map_fit().fitted
    assert fitted is not None
    save_fit(fitted, tmp_path / "fit.json")
    said = divtok(
        *("confidence", "--family", "tiny", "--question", QUESTION, "--response", TEXTS[0]),
        *("--estimator", "dtc_weighted", "--fitted", tmp_path / "fit.json", "--prior", "0.3"),
    )
    words = " (isotonic map, stated for 30 % right)"
    assert f" dtc_weighted{words}: " in said.out
    result = package.confidence(
        *(QUESTION, TEXTS[0]),
        pair=found().scoring.pair, estimator="dtc_weighted", fitted=fitted, prior=0.3,
    )  # fmt: skip
    assert f"dtc_weighted {result.value:.3f}{words}, " in repr(result)
    assert words in result._repr_html_()
    plain = package.confidence(QUESTION, TEXTS[0], pair=found().scoring.pair)
    assert f"dtc_lin {plain.value:.3f}, " in repr(plain)


@pytest.mark.parametrize(
    ("given", "arguments", "words"),
    [
        ({"estimator": "nsl"}, ("--estimator", "nsl"), "the confidence is asked of nsl"),
        (
            {"estimator": "dtc_weighted", "rate": 2.0},
            ("--estimator", "dtc_weighted", "--param", "rate=2.0"),
            "was fitted with rate 1.0, here it is 2.0",
        ),
        (
            {"estimator": "dtc_weighted", "tokens": "all"},
            ("--estimator", "dtc_weighted", "--counted", "all"),
            "the tokens 'reasoning', here they are 'all'",
        ),
    ],
)
def test_both_doors_refuse_in_the_same_words(
    tmp_path: Path,
    divtok: Command,
    given: dict[str, object],
    arguments: tuple[str, ...],
    words: str,
) -> None:
    fitted = map_fit().fitted
    assert fitted is not None
    save_fit(fitted, tmp_path / "fit.json")
    path, pair = tmp_path / "fit.json", found().scoring.pair
    with pytest.raises(DivtokError, match=words) as caught:
        package.confidence(QUESTION, TEXTS[0], pair=pair, fitted=path, **given)  # type: ignore[arg-type]
    said = divtok(
        *("confidence", "--family", "tiny", "--question", QUESTION, "--response", TEXTS[0]),
        *(*arguments, "--fitted", path),
    )
    assert said.error_line == f"divtok: {caught.value}"


def test_another_pair_is_refused_before_a_model_is_loaded(tmp_path: Path, divtok: Command) -> None:
    fitted = map_fit().fitted
    assert fitted is not None
    save_fit(fitted, tmp_path / "fit.json")
    said = divtok(
        *("confidence", "--pair", "no-such", "model", "--theta", "0.5", "--question", "Q"),
        *("--response", "R", "--estimator", "dtc_weighted", "--fitted", tmp_path / "fit.json"),
    )
    assert "another pair (p divtok/tiny-0.5m, q divtok/tiny-0.3m); here it is p no-such" in said.err
