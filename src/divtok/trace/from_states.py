"""Traces of rows whose states of p are known already: only q reads.

Knows nothing of where the states come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from divtok.divergences.divergence import Divergence
from divtok.packed.packs import build_pack
from divtok.records import Trace
from divtok.trace.batches import Row, read_rows
from divtok.trace.budget import Budget
from divtok.trace.pair import Pair, refused, traces_from_states

if TYPE_CHECKING:
    from torch import Tensor


def read_beside(
    pair: Pair,
    rows: Sequence[Row],
    states_of: Callable[[str], Tensor],
    *,
    budget: Budget | None = None,
    others: Sequence[Divergence] = (),
) -> list[Trace]:
    """What `Pair.trace_batch` gives, one trace for each row in order.

    `states_of` gives p's states [T, Dp] that predict the tokens of the row with this key.
    """
    import torch

    def read(some: Sequence[Row], workspace_bytes: int) -> list[Trace]:
        pack = build_pack([row.prompt_ids for row in some], [row.token_ids for row in some])
        with torch.inference_mode():
            states = torch.cat([states_of(row.key) for row in some])
            return traces_from_states(
                pair, some, states, pair.q.states(pack), workspace_bytes, others
            )

    return read_rows(
        rows,
        read,
        refused=[refused(pair, row) for row in rows],
        budget=budget,
        device=pair.p.device,
        switches=[pair.q.length_switch],
    )
