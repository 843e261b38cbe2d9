"""How the threads of a model on a CPU wait for each other: asleep.

By themselves they keep their cores busy while they wait. Beside other work that is ruin: a thread
that waits takes the core which the one it waits for needs, at every single operation. The number of
threads stays as it is, since numbers depend on it in their last digits, and what a user has set
stays set. docs/performance.md has what it is worth ("Beside other work").
"""

from __future__ import annotations

import os
import sys

# OpenMP's own name for it, which all its libraries understand, and those of GNU, LLVM and Intel.
POLICY = "OMP_WAIT_POLICY"
SETTINGS = (POLICY, "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")


def wait_asleep() -> None:
    """Has to come before torch is loaded, which reads it once; later it would change nothing."""
    if "torch" not in sys.modules and not any(name in os.environ for name in SETTINGS):
        os.environ[POLICY] = "passive"
