"""The steps of a text, and which tokens each of them is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtok.trace.steps import step_bounds, steps_of


def told(text: str) -> list[str]:
    return [text[start:stop] for start, stop in steps_of(text)]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("1 + 1 = 2.\nSo it is 2.", ["1 + 1 = 2.", "So it is 2."]),
        ("  a b \n\n \t\n c\n", ["a b", "c"]),
        ("We add. 1.5 + 1 = 2.5! Is it? So 2.5", ["We add.", "1.5 + 1 = 2.5!", "Is it?", "So 2.5"]),
        ("One. Two.\nThree. Four.", ["One. Two.", "Three. Four."]),
        ("alone", ["alone"]),
        ("\n \n", []),
        ("", []),
    ],
)
def test_lines_are_steps_and_sentences_of_a_single_line(text: str, steps: list[str]) -> None:
    assert told(text) == steps


@given(st.text(alphabet="ab .!?\n1"))
def test_steps_leave_out_nothing_but_white_space(text: str) -> None:
    spans = steps_of(text)
    assert sum(len(text[a:b].split()) for a, b in spans) == len(text.split())
    assert all(a < b for a, b in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


@pytest.mark.parametrize(
    ("tokens", "bounds"),
    [
        (["ab", ".\n", "cd", "."], [0, 2, 4]),  # what is between is the first one's
        (["ab.", "\n", "cd."], [0, 2, 3]),
        (["ab", ".\nc", "d."], [0, 1, 3]),  # a token that reaches into a step is its
        (["ab.\ncd."], [0, 0, 1]),  # one that is all of both is the last one's
        (["<s>", "ab", ".\n", "cd", ".", "</s>"], [0, 3, 6]),
        (["ab.", "\n", "", "cd."], [0, 3, 4]),  # of a character that the next one completes
    ],
)
def test_every_token_is_in_one_step(tokens: list[str], bounds: list[int]) -> None:
    text = "ab.\ncd."
    found = step_bounds(text, steps_of(text), tokens)
    assert found is not None
    assert found.tolist() == bounds


def test_a_text_without_a_word_has_no_steps() -> None:
    found = step_bounds(" \n", steps_of(" \n"), [" ", "\n"])
    assert found is not None
    assert found.tolist() == [0]


def test_tokens_of_another_text_have_no_steps() -> None:
    assert step_bounds("ab.\ncd.", [(0, 3), (4, 7)], ["ab", ".\n", "ce", "."]) is None
