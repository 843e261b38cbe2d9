"""What a model attends to, row by row: the reduced attention that UQAC's chain is built from.

All heads x T x T would be 105 GB for a 7B model at 8,192 tokens. A chain looks at a few dozen rows
of it, and which ones is known only after the pass. So the pass keeps each layer's queries and keys,
which grow with T alone, and the rows asked for are made from them layer by layer, with a running
choice of the heads that are surest of where to look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from divtok.evidence.uqac.backtrack import Rows
from divtok.packed.packs import Indices, Pack

if TYPE_CHECKING:
    from torch import Tensor

HEADS_KEPT = 16
ROWS_AT_ONCE = 16
# Attention to the columns 1, 2, ... 10 before a token is scaled by these: nearness alone earns it.
NEARNESS = (
    0.16644488, 0.20938152, 0.32959151, 0.46061748, 0.59304059,
    0.67549127, 0.73914525, 0.81274293, 0.87378443, 0.93925344,
)  # fmt: skip
_EPSILON = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    queries: Tensor  # [H, Q, D], of the rows that predict response tokens
    keys: Tensor  # [G, N, D], of all rows
    scaling: float
    window: int | None


class AttentionLog:
    """Queries and keys of one pass over a pack, layer after layer. Filled by the trunk."""

    def __init__(self, pack: Pack) -> None:
        self._asked = np.unique(pack.predicts)  # the rows a chain may ask for
        self._layers: list[_Layer] = []

    def add(self, query: Tensor, key: Tensor, *, scaling: float | None, window: int | None) -> None:
        """Query [H, N, D] and key [G, N, D] as they enter the product, rotated."""
        import torch

        asked = query.index_select(1, torch.from_numpy(self._asked).to(query.device))
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        # A copy: the key may be a view of something larger that would be kept with it.
        self._layers.append(_Layer(asked, key.clone(), scale, window))

    def rows(self, lane: Indices, positions: Sequence[int]) -> Rows:
        """Reduced attention of a lane's tokens over its columns, [R, L].

        `lane` are the rows of the pack that the lane reads, in order; `positions` count in it. An
        answer may be long, so only some are made at once.
        """
        parts = [
            self._rows(lane, positions[start : start + ROWS_AT_ONCE])
            for start in range(0, len(positions), ROWS_AT_ONCE)
        ]
        return np.concatenate(parts)

    def _rows(self, lane: Indices, positions: Sequence[int]) -> Rows:
        import torch

        places = torch.from_numpy(np.searchsorted(self._asked, lane[list(positions)]))
        behind = torch.tensor(list(positions))[:, None] - torch.arange(len(lane))  # [R, L]
        factor = nearness(behind)
        best: tuple[Tensor, Tensor] | None = None
        for layer in self._layers:
            device = layer.queries.device
            behind, factor = behind.to(device), factor.to(device)
            queries = layer.queries.index_select(1, places.to(device))
            weights = _weights(queries, _columns(layer.keys, lane), behind, layer)
            best = _surest(best, *normalised(weights, factor))
        assert best is not None  # a trunk has layers
        return best[1].amax(dim=0).cpu().numpy()


def nearness(behind: Tensor) -> Tensor:
    """What attention is scaled by, [R, L], for columns so many places behind the token.

    The token itself and the first column count for nothing, the nearest columns for less.
    """
    import torch

    scale = torch.ones(len(NEARNESS) + 2)
    scale[: len(NEARNESS) + 1] = torch.tensor((0.0, *NEARNESS))
    factor = scale[behind.clamp(0, len(NEARNESS) + 1)]
    factor[:, 0] = 0.0
    return factor


def normalised(weights: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """Attention [H, R, L] scaled by `factor` [R, L] -> entropies [H, R] and rows [H, R, L].

    Each row sums to one again. One that is left with nothing stays zero, and is as sure as can be.
    """
    rows = weights * factor
    rows /= rows.sum(dim=-1, keepdim=True) + _EPSILON
    entropy = -(rows * (rows + _EPSILON).log()).sum(dim=-1)
    return entropy, rows


def _columns(keys: Tensor, lane: Indices) -> Tensor:
    """The keys [G, L, D] of a lane; without a copy where its rows lie side by side."""
    import torch

    start, stop = int(lane[0]), int(lane[-1]) + 1
    if stop - start == len(lane):
        return keys[:, start:stop]
    return keys.index_select(1, torch.from_numpy(lane).to(keys.device))


def _weights(queries: Tensor, keys: Tensor, behind: Tensor, layer: _Layer) -> Tensor:
    """Causal attention [H, R, L] in float32 from queries [H, R, D] and keys [G, L, D]."""
    heads, groups = queries.shape[0], keys.shape[0]
    shared = queries.float().unflatten(0, (groups, heads // groups)).flatten(1, 2)
    scores = shared @ keys.float().transpose(1, 2) * layer.scaling
    scores = scores.unflatten(1, (heads // groups, queries.shape[1])).flatten(0, 1)
    hidden = behind < 0
    if layer.window is not None:
        hidden |= behind >= layer.window
    return scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)


def _surest(
    best: tuple[Tensor, Tensor] | None, entropy: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor]:
    """For every row the heads of lowest entropy so far, earlier ones first among equals."""
    import torch

    if best is not None:
        entropy = torch.cat([best[0].to(entropy.device), entropy])
        rows = torch.cat([best[1].to(rows.device), rows])
    order = entropy.sort(dim=0, stable=True).indices[:HEADS_KEPT]
    chosen = order[..., None].expand(-1, -1, rows.shape[-1])
    return entropy.gather(0, order), rows.gather(0, chosen)
