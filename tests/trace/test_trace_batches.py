"""Rows of trajectories: the final answer is looked for once, wherever it was found before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trace_samples import bigram_reader, trajectory

from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.extract import find_answer
from divtok.trace import batches
from divtok.trace.batches import UNKNOWN, Row, row_of
from divtok.trace.pair import Pair

TEXT = r"so \boxed{7}"
LETTERS = r"so \b{xed7}"
KNOWN = AnswerSpan(10, 11, "7")
STATED = '{"final_answer": "42", "confidence": 0.9}'


def row(text: str | None = TEXT, **changes: Any) -> Row:
    return Row("k", np.array([0]), np.array([1]), text, **changes)


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts in which an answer was looked for."""
    texts: list[str] = []

    def spy(text: str, protocol: str = "cot") -> AnswerSpan | None:
        texts.append(text)
        return find_answer(text, protocol)

    monkeypatch.setattr(batches, "find_answer", spy)
    return texts


@pytest.fixture
def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        pytest.fail("the answer was known, but it was looked for")

    monkeypatch.setattr(batches, "find_answer", fail)


@pytest.mark.usefixtures("no_search")
def test_a_known_answer_is_not_looked_for() -> None:
    elsewhere = AnswerSpan(0, 2, "so")  # not what looking for it would find
    assert row(answer=elsewhere).find_answer(TEXT) is elsewhere


@pytest.mark.usefixtures("no_search")
def test_nor_is_one_that_is_known_to_be_missing() -> None:
    assert row(answer=None).find_answer(TEXT) is None


def test_an_unknown_answer_is_looked_for_under_its_protocol(searched: list[str]) -> None:
    assert row().answer is UNKNOWN
    assert row().find_answer(TEXT) == KNOWN
    stated = row(STATED, protocol="verbalized").find_answer(STATED)
    assert stated is not None
    assert stated.content == "42"
    assert row(STATED).find_answer(STATED) is None  # without a box
    assert searched == [TEXT, STATED, STATED]


@pytest.mark.parametrize("answer", [KNOWN, None])
def test_places_in_one_text_are_not_those_in_another(
    searched: list[str], answer: AnswerSpan | None
) -> None:
    other = f"  {TEXT}"
    found = row(answer=answer).find_answer(other)
    assert found == AnswerSpan(12, 13, "7")
    assert row(None, answer=answer).find_answer(TEXT) == KNOWN
    assert searched == [other, TEXT]


def test_rows_of_trajectories_take_the_answers_that_are_known() -> None:
    one = trajectory("a", [0], [1, 2], TEXT)
    assert row_of(one).answer is UNKNOWN
    assert row_of(one, answers={}).answer is UNKNOWN
    assert row_of(one, answers={"b": KNOWN}).answer is UNKNOWN
    assert row_of(one, answers={"a": KNOWN}).answer is KNOWN
    assert row_of(one, answers={"a": None}).answer is None
    behind = row_of(one, [3, 4], answers={"a": KNOWN})
    assert (behind.prompt_ids.tolist(), behind.text, behind.answer) == ([3, 4], TEXT, KNOWN)


def spelled(text: str) -> list[int]:
    """Ids in the alphabet of `pair`."""
    return [LETTERS.index(letter) for letter in text]


@pytest.fixture
def pair() -> Pair:
    table = np.zeros((len(LETTERS), len(LETTERS)))
    return Pair(bigram_reader("P", table, LETTERS), bigram_reader("Q", table, LETTERS))


ROWS = [trajectory(key, [0], spelled(TEXT), TEXT) for key in ("a", "b")]


@pytest.mark.usefixtures("no_search")
def test_a_pair_uses_the_answers_that_it_is_given(pair: Pair) -> None:
    reads = pair.read_batch(ROWS, answers={"a": KNOWN, "b": None})
    spans = [(read.trace.answer_start, read.trace.answer_stop) for read in reads]
    assert spans == [(10, 11), (None, None)]  # a token is a letter


def test_a_pair_looks_for_those_that_it_is_not_given(pair: Pair, searched: list[str]) -> None:
    reads = pair.read_batch(ROWS, answers={"a": KNOWN})
    assert searched == [TEXT]
    assert [read.trace.answer_start for read in reads] == [10, 10]
    assert [trace.answer_start for trace in pair.trace_batch(ROWS)] == [10, 10]
    assert searched == [TEXT] * 3
