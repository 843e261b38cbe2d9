"""The probe: a gap that rounding explains passes, one that a mistake makes does not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from divtok.packed.probe import Whole, allowed_gap, gap, make_probe


def logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_gap_is_relative_to_how_far_logits_vary() -> None:
    theirs = logits(6, 5000) * 7 + 100  # an offset of all logits means nothing
    assert gap(theirs, theirs) == 0
    assert gap(theirs + 0.7 * logits(6, 5000, seed=1), theirs) == pytest.approx(0.1, rel=0.05)


def test_the_worst_position_counts() -> None:
    theirs = logits(100, 500)
    ours = theirs.clone()
    ours[-1] = logits(500, seed=1)
    assert gap(ours, theirs) > 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_and_what_is_none_are_infinitely_apart(value: float) -> None:
    theirs = logits(3, 50)
    ours = theirs.clone()
    ours[1, 7] = value
    assert gap(ours, theirs) == math.inf
    assert gap(ours, ours) == 0
    assert gap(theirs[:, :49], theirs) == math.inf


def test_what_is_allowed_follows_the_dtype_and_the_depth() -> None:
    assert allowed_gap(torch.float32, 28) == 1e-4
    # The largest gaps measured at 28 to 36 layers are 0.062 and 0.0077; mistakes begin at 0.36.
    assert 0.062 * 1.5 < allowed_gap(torch.bfloat16, 28) < 0.36 / 2
    assert 0.0077 * 1.5 < allowed_gap(torch.float16, 28) < 0.36 / 2
    assert allowed_gap(torch.bfloat16, 112) == pytest.approx(2 * allowed_gap(torch.bfloat16, 28))


def test_the_probe_has_a_shared_prompt_a_start_and_a_stranger() -> None:
    probe = make_probe(320)
    whole, start, other = probe.rows
    assert whole[: len(start)] == start
    assert other == whole[::-1]
    # The second lane looks back at the first one's prompt, the third at nobody's.
    assert [lane.owned > 0 for lane in probe.pack.lanes] == [False, True, False]
    assert all(max(row) < 320 for row in probe.rows)
    assert max(make_probe(5).rows[0]) < 5


def test_a_model_that_reads_ahead_contradicts_itself() -> None:
    whole, other = logits(40, 60), logits(40, 60, seed=1)
    allowed = 0.1
    assert not Whole([whole, whole[:37].clone(), other], allowed).reads_ahead
    assert Whole([whole, whole[:37] + 0.5 * other[:37], other], allowed).reads_ahead


def test_any_part_of_the_rows_can_be_compared() -> None:
    rows = [logits(40, 60, seed=seed) for seed in range(3)]
    found = Whole(rows, 0.1)
    parts: list[Any] = [row[31:37] for row in rows]
    assert found.agrees(parts, slice(31, 37))
    assert not found.agrees(parts, slice(30, 36))
    assert not found.agrees(parts)
