"""Changed copies: one change, in one step, never in the line of the answer."""

from __future__ import annotations

import random

import pytest

from bench.change import change_digit, change_operator, changes

TEXT = "Ada has 12 + 30 = 42.\nThen 42 minus 2 is 40 for Ben.\nThe answer is \\boxed{40}."
NAMES = ("Ada", "Ben", "Cleo")


@pytest.mark.parametrize("seed", range(30))
def test_one_change_and_nothing_else(seed: int) -> None:
    for name, change in changes(NAMES).items():
        copy = change(TEXT, random.Random(seed))
        assert copy is not None
        assert copy != TEXT
        assert copy.rsplit("\n", 1)[1] == TEXT.rsplit("\n", 1)[1]
        assert sum(a != b for a, b in zip(copy.split(), TEXT.split(), strict=True)) == 1, name


def test_a_number_does_not_begin_with_0_by_a_change() -> None:
    made = {change_digit("5 = 5\nend", random.Random(seed)) for seed in range(200)}
    assert made == {f"{d} = 5\nend" for d in "12346789"} | {f"5 = {d}\nend" for d in "12346789"}


def test_operators_change_to_another() -> None:
    assert change_operator("1 * 2\nend", random.Random(0)) == "1 + 2\nend"
    assert change_operator("1 minus 2\nend", random.Random(0)) == "1 plus 2\nend"


def test_where_there_is_nothing_to_change_there_is_no_copy() -> None:
    for change in changes(NAMES).values():
        assert change("nothing here\n12 + 3 for Ada", random.Random(0)) is None
        assert change("12 + 3 for Ada", random.Random(0)) is None


def test_without_names_there_is_no_change_of_a_name() -> None:
    assert list(changes(())) == ["digit", "operator"]
