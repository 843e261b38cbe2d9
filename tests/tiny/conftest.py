"""Fixtures for tests of the embedded family."""

from __future__ import annotations

import os

# Several test processes share the machine; torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
