"""The head stage on the CPU: compiled loops over rows of logits, and a product made for few rows.

Needs numba; `available` says whether it is there. Works with as many threads as torch would use.
The loops themselves are in `cpu_math` (rows of logits) and `cpu_product` (hidden states times a
head); every processor runs the same ones, with vectors of its own width.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from divtok.trace.kernels.common import (
    FLOAT_BYTES,
    LEAST_BLOCK_BYTES,
    HeadMetrics,
    Work,
    multiply,
    run_chunks,
)

if TYPE_CHECKING:
    from torch import Tensor

# Logits of a chunk that stay in the cache from the product to the last sweep. Of a large vocabulary
# _ROWS positions are taken all the same, where there is room.
_CACHE_BYTES = 4_000_000
_ROWS = 64
# With fewer positions the tiles are mostly empty and torch's product is quicker.
_FEW_ROWS = 8


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
    threads = torch.get_num_threads()
    scratch = _scratch_bytes(weights, threads)
    tiled = all(_fits_tiles(weight) for weight in weights) and scratch <= workspace_bytes // 2
    # Without tiles, weights other than float32 are widened in blocks.
    weight_bytes = 0 if tiled else max(LEAST_BLOCK_BYTES, workspace_bytes // 4)
    rows = _chunk_rows(work, workspace_bytes - (scratch if tiled else weight_bytes))
    with team(threads) as members:
        return run_chunks(
            partial(row_kernel, members),
            work,
            rows=rows,
            weight_bytes=weight_bytes,
            product=partial(_tiled_product, members) if tiled else None,
        )


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
    from divtok.trace.kernels.cpu_product import GROUP

    depth = max(work.head_p.weight.shape[1], work.head_q.weight.shape[1])
    # Hidden states are held in float32, and once more where they are packed.
    row_bytes = FLOAT_BYTES * (work.head_p.width + work.head_q.width + 2 * depth)
    most = min(max(0, room) // row_bytes, max(_ROWS, _CACHE_BYTES // row_bytes))
    whole_groups = most - most % GROUP
    return max(1, whole_groups or most)


def row_kernel(
    team: Team, logits_p: Tensor, logits_q: Tensor, tokens: Tensor, width: int, out: Tensor
) -> None:
    """See RowKernel; the team takes the rows in turn."""
    from divtok.trace.kernels import cpu_math

    arrays = [x.numpy() for x in (logits_p, logits_q, tokens)]
    columns = out.numpy()
    team.run(lambda member: cpu_math.rows(*arrays, width, columns, member, team.size))


def _fits_tiles(weight: Tensor) -> bool:
    import torch

    from divtok.trace.kernels.cpu_product import STRIP

    return (
        weight.device.type == "cpu"
        and weight.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and weight.is_contiguous()
        and len(weight) >= STRIP
    )


def _scratch_bytes(weights: list[Tensor], threads: int) -> int:
    """What the tiled product holds whatever the number of positions."""
    from divtok.trace.kernels.cpu_product import GROUP, STRIP

    depth = max(weight.shape[1] for weight in weights)
    narrow = any(weight.dtype.itemsize == 2 for weight in weights)
    strips = STRIP * (GROUP + (depth if narrow else 0))
    return FLOAT_BYTES * (threads * strips + GROUP * depth)


def _tiled_product(team: Team, weight: Tensor, hidden: Tensor, logits: Tensor) -> None:
    """logits [N, V] = hidden [N, D] @ weight.T, the vocabulary shared out over the team."""
    import torch

    from divtok.trace.kernels import cpu_product
    from divtok.trace.kernels.cpu_product import STRIP

    narrow = weight.dtype != torch.float32
    if len(hidden) < _FEW_ROWS and not narrow:
        return multiply(weight, hidden, logits, weight_bytes=0)
    packed, result = _packed(hidden), logits.numpy()
    strips = torch.empty(team.size, STRIP, cpu_product.GROUP).numpy()
    share = -(-len(weight) // (STRIP * team.size)) * STRIP
    bounds = [min(member * share, len(weight)) for member in range(team.size + 1)]
    if not narrow:
        source: Any = weight.detach().numpy()
        return team.run(
            lambda m: cpu_product.multiply(
                source, packed, strips[m], result, bounds[m], bounds[m + 1]
            )
        )
    bits: Any = weight.detach().view(torch.uint16).numpy()
    wide = torch.empty(team.size, STRIP, weight.shape[1]).numpy()
    bfloat = weight.dtype == torch.bfloat16
    return team.run(
        lambda m: cpu_product.multiply_half(
            bits, packed, strips[m], result, bounds[m], bounds[m + 1], bfloat, wide[m]
        )
    )


def _packed(hidden: Tensor) -> Any:
    """[N, D] -> [groups, D, GROUP] in float32, the last group filled up with zeros."""
    import torch

    from divtok.trace.kernels.cpu_product import GROUP

    groups = -(-len(hidden) // GROUP)
    packed = torch.zeros(groups, hidden.shape[1], GROUP)
    for group in range(groups):
        part = hidden[group * GROUP : (group + 1) * GROUP]
        packed[group, :, : len(part)] = part.T
    return packed.numpy()
