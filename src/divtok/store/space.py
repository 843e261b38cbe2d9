"""How much room rows take on the disk, and whether there is as much."""

from __future__ import annotations

import shutil
from pathlib import Path

from divtok.errors import StoreError

# Measured on stored tables: a trace is 7 float32 numbers a token, which hardly compress; ids and
# text of real responses took 1 to 2 bytes a token; other rows 25 to 125 bytes each.
TRACE_BYTES_PER_TOKEN = 28
READING_BYTES_PER_TOKEN = 4
TRAJECTORY_BYTES_PER_TOKEN = 2
ROW_BYTES = 200


def require_space(path: Path, needed: int) -> None:
    """Raise a `StoreError` where fewer than `needed` bytes are free on the disk of `path`."""
    folder = path.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StoreError(
            f"About {_gigabytes(needed)} are needed at {path}, but only {_gigabytes(free)} "
            "are free.",
            next_step="Free some space, or put the run on another disk with --out.",
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
