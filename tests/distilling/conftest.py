"""Few threads, since several test processes share the machine."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch reads this when it is first imported
