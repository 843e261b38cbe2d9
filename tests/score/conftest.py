"""The embedded family's distributions over a few responses, read once."""

from __future__ import annotations

import pytest
from certainty_samples import Known, known_distributions


@pytest.fixture(scope="session")
def known() -> Known:
    return known_distributions()
