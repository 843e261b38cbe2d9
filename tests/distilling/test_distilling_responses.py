"""Responses are held out by problem, and taken up to a budget."""

from __future__ import annotations

import pytest
from distil_samples import responses

from divtok.distilling.responses import split_responses
from divtok.errors import DataError


def split(**changes: int):
    given = {"max_tokens": 10_000, "max_length": 100, "seed": 0} | changes
    return split_responses(responses("g", problems=30), **given)


def problems(rows: object) -> set[str]:
    return {row.key.split("/")[1] for row in rows}  # type: ignore[attr-defined]


def test_no_problem_is_on_both_sides() -> None:
    found = split()
    assert not problems(found.learned) & problems(found.held_out)
    assert len(found.learned) + len(found.held_out) == 60
    assert found.held_out_problems == len(problems(found.held_out)) == 3
    assert found.problems == 27
    assert found.cut == 0


def test_the_seed_decides() -> None:
    keys = [[row.key for row in split(seed=seed).learned] for seed in (0, 0, 1)]
    assert keys[0] == keys[1] != keys[2]


def test_a_budget_is_kept() -> None:
    found = split(max_tokens=200)
    assert 100 < sum(len(row.token_ids) for row in found.learned) <= 200
    assert len(found.held_out) == 1


def test_long_responses_are_cut_with_their_prompt() -> None:
    found = split(max_length=20)
    assert max(row.length for row in found.learned) == 20
    assert found.cut > 0
    rows = {row.key: row for row in responses("g", problems=30)}
    for row in found.learned:
        whole = rows[row.key]
        assert tuple(row.token_ids) == whole.token_ids[: 20 - 5]
        assert tuple(row.prompt_ids) == whole.prompt_ids


@pytest.mark.parametrize("length", [100, 5])
def test_one_problem_is_too_few(length: int) -> None:
    rows = responses("g", problems=1 if length == 100 else 9)
    with pytest.raises(DataError, match="two are the least"):
        split_responses(rows, max_tokens=1000, max_length=length, seed=0)
