"""States kept while a batch is written: each row's own, in order, wherever they have moved."""

from __future__ import annotations

import pytest
import torch

from divtok.generate import kept_states
from divtok.generate.kept_states import KeptStates

# Rows by place, step after step: 1 ends first, 3 moves into its place, and 0 is carried along.
STEPS: list[list[int | None]] = [[0, 1, 2, 3], [0, 3, 2], [None, 3, 2], [3], [3]]


def state(step: int, row: int) -> list[float]:
    return [float(step), float(row), 1.5]


@pytest.mark.parametrize("at_once", [1, 100, 10**9], ids=["each", "some", "all"])
def test_every_row_has_its_own_states_in_order(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_states, "_AT_ONCE", at_once)
    kept, place = KeptStates(), torch.empty(4, 3)
    for step, rows in enumerate(STEPS):
        # Of a recorded step all results come in one place.
        states = place[: len(rows)]
        states.copy_(torch.tensor([state(step, -9 if row is None else row) for row in rows]))
        kept.add(rows, states)
    place.fill_(torch.nan)
    for row, steps in enumerate(([0, 1], [0], [0, 1, 2], [0, 1, 2, 3, 4])):
        assert kept.of(row).tolist() == [state(step, row) for step in steps]


def test_what_waits_moves_to_host_memory_once_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in bytes: 4 rows of 3 numbers in half precision are 24 a step."""
    monkeypatch.setattr(kept_states, "_AT_ONCE", 48)
    moved: list[int] = []
    usual = torch.Tensor.cpu

    def watched(tensor: torch.Tensor) -> torch.Tensor:
        moved.append(tensor.nbytes)
        return usual(tensor)

    monkeypatch.setattr(torch.Tensor, "cpu", watched)
    kept = KeptStates()
    for _ in range(5):
        kept.add([0, None, 2, 3], torch.zeros(4, 3, dtype=torch.bfloat16))
    assert moved == [36, 36]  # two steps each, without the row that has ended
    assert [len(kept.of(row)) for row in (0, 2, 3)] == [5, 5, 5]
    assert kept.of(3).dtype == torch.bfloat16
    assert len(moved) == 2, "what is left in the end stays where it is"
