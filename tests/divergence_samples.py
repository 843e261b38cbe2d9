"""A divergence that no kernel fills in, as another package might bring it."""

from __future__ import annotations

from typing import Any

import pytest

from divtok.divergences.divergence import DIVERGENCES, Divergence


def _half_the_squares(log_p: Any, log_q: Any) -> Any:
    """1 - sum sqrt(p q), as a sum of terms that are 0 where both agree."""
    return ((log_p / 2).exp() - (log_q / 2).exp()).square().sum(-1) / 2


HELLINGER = Divergence(
    "hellinger",
    "Squared Hellinger distance, 0 to 1.",
    label="Hellinger",
    column="hellinger",
    unit="fraction",
    of=_half_the_squares,
    highest=1.0,
    theta_unit="fraction",
)


def register_for_test(monkeypatch: pytest.MonkeyPatch, *divergences: Divergence) -> None:
    """Registers them until the test is over."""
    DIVERGENCES.names()  # all are there before they are copied
    for held in ("_things", "_origins"):
        monkeypatch.setattr(DIVERGENCES, held, dict(getattr(DIVERGENCES, held)))
    for divergence in divergences:
        DIVERGENCES.add(divergence.name, divergence)
