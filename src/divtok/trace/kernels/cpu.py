"""The head stage on the CPU: compiled loops over rows of logits, shared out over threads.

Needs numba; `available` says whether it is there. Works with as many threads as torch would use.
The loops themselves are in `cpu_math`; they are the same for every processor.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from divtok.trace.kernels.common import (
    FLOAT_BYTES,
    LEAST_BLOCK_BYTES,
    HeadMetrics,
    Work,
    run_chunks,
)

if TYPE_CHECKING:
    from torch import Tensor

# Positions whose product is as quick as that of many more, where there is room for their logits.
# A small vocabulary takes as many as stay in the cache from the product to the last sweep.
_ROWS = 160
_CACHE_BYTES = 4_000_000
# Shares of the workspace for what a block of a product holds: of half-precision weights a copy.
_WIDE_SHARE, _HALF_SHARE = 96, 8


@cache
def available() -> bool:
    """Whether numba is there, and made for the numpy that is there."""
    try:
        import numba  # noqa: F401 # pyright: ignore[reportUnusedImport]
    except ImportError:
        return False
    return True


def metrics(work: Work, workspace_bytes: int) -> HeadMetrics:
    import torch

    weights = [work.head_p.weight, work.head_q.weight]
    wide = all(weight.dtype == torch.float32 for weight in weights)
    share = _WIDE_SHARE if wide else _HALF_SHARE
    weight_bytes = max(LEAST_BLOCK_BYTES, workspace_bytes // share)
    rows = _chunk_rows(work, workspace_bytes - weight_bytes)
    with team(torch.get_num_threads()) as members:
        return run_chunks(partial(row_kernel, members), work, rows=rows, weight_bytes=weight_bytes)


@dataclass(frozen=True, slots=True)
class Team:
    """Threads that share one piece of work. The compiled loops let go of the GIL."""

    size: int
    pool: ThreadPoolExecutor | None

    def run(self, function: Callable[[int], None]) -> None:
        """function(0) to function(size - 1), at the same time."""
        if self.pool is None:
            return function(0)
        for result in [self.pool.submit(function, member) for member in range(self.size)]:
            result.result()
        return None


@contextmanager
def team(size: int) -> Generator[Team]:
    """A team that goes home at the end."""
    if size == 1:
        yield Team(1, None)
        return
    with ThreadPoolExecutor(size) as pool:
        yield Team(size, pool)


def _chunk_rows(work: Work, room: int) -> int:
    widened = [0 if h.dtype.itemsize == 4 else h.shape[1] for h in (work.hidden_p, work.hidden_q)]
    row_bytes = FLOAT_BYTES * (work.head_p.width + work.head_q.width + max(widened))
    most = max(1, min(room // row_bytes, max(_ROWS, _CACHE_BYTES // row_bytes)))
    # Even chunks: a last one of a few rows would read all weights for little.
    chunks = max(1, -(-len(work.tokens) // most))
    return -(-len(work.tokens) // chunks)


def row_kernel(
    team: Team, logits_p: Tensor, logits_q: Tensor, tokens: Tensor, width: int, out: Tensor
) -> None:
    """See RowKernel; the team takes the rows in turn."""
    from divtok.trace.kernels import cpu_math

    arrays = [x.numpy() for x in (logits_p, logits_q, tokens)]
    columns = out.numpy()
    team.run(lambda member: cpu_math.rows(*arrays, width, columns, member, team.size))
