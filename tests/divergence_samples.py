"""A divergence that no kernel fills in, as another package might bring it."""

from __future__ import annotations

from typing import Any

import pytest

from divtok.divergences.divergence import DIVERGENCES, Divergence


def _half_the_difference(log_p: Any, log_q: Any) -> Any:
    return (log_p.exp() - log_q.exp()).abs().sum(-1) / 2


TOTAL_VARIATION = Divergence(
    "tv",
    "Total variation, 0 to 1.",
    label="TV",
    column="tv",
    unit="probability",
    of=_half_the_difference,
    highest=1.0,
    theta_unit="probability",
)


def register_for_test(monkeypatch: pytest.MonkeyPatch, *divergences: Divergence) -> None:
    """Registers them until the test is over."""
    DIVERGENCES.names()  # all are there before they are copied
    for held in ("_things", "_origins"):
        monkeypatch.setattr(DIVERGENCES, held, dict(getattr(DIVERGENCES, held)))
    for divergence in divergences:
        DIVERGENCES.add(divergence.name, divergence)
