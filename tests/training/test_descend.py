"""How training ends: after its steps, at a loss that is enough, or when its time is over."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import pytest
import torch

from training.train import AVERAGED, descend


def falling(steps: int, **ends: Any) -> Any:
    """The distance of one number from 3, which is 0 at first."""
    number = torch.nn.Parameter(torch.zeros(1))
    return descend(
        [number],
        iter([3.0] * steps) if not ends.get("forever") else repeat(3.0),
        lambda wanted: (number - wanted).abs().sum(),
        peak=0.1,
        steps=steps,
        label="toy",
        **{name: value for name, value in ends.items() if name != "forever"},
    )


def test_all_steps_are_made_and_the_loss_is_the_mean_of_the_last():
    done = falling(60)
    assert done.steps == 60
    assert 0 < done.loss < 3


def test_it_ends_once_the_mean_loss_is_enough():
    done = falling(400, enough=1.5)
    assert AVERAGED <= done.steps < 400
    assert done.loss <= 1.5


def test_it_ends_in_time(monkeypatch: pytest.MonkeyPatch):
    import training.train

    ticks = iter(range(10_000))
    monkeypatch.setattr(training.train.time, "monotonic", lambda: float(next(ticks)))
    done = falling(400, forever=True, most_seconds=50.0)
    assert 40 <= done.steps <= 50
