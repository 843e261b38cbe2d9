"""Flash attention in plain torch, for machines without a GPU: what the GPU's operation computes."""

from __future__ import annotations

from typing import Any

import torch


def plain_flash(
    query: Any,
    key: Any,
    value: Any,
    starts: tuple[Any, Any],
    longest: tuple[int, int],
    *,
    scaling: float,
    window: int | None,
    used: Any = None,
) -> Any:
    """One sequence after another, each score by the definition; as strict as the real one."""
    assert {x.dtype for x in starts} == {torch.int32}
    assert used is None or used.dtype == torch.int32
    output = torch.full_like(query, float("nan"))
    for number in range(len(starts[0]) - 1):
        q_from, q_to = (int(x) for x in starts[0][number : number + 2])
        k_from, k_to = (int(x) for x in starts[1][number : number + 2])
        if used is not None:
            assert 0 < int(used[number]) <= k_to - k_from
            k_to = k_from + int(used[number])
        count, keys = q_to - q_from, k_to - k_from
        assert count <= longest[0]
        assert keys <= longest[1]
        shared = query.shape[1] // key.shape[1]
        k, v = (x[k_from:k_to].repeat_interleave(shared, dim=1) for x in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query[q_from:q_to], k) * scaling
        # The last query stands at the last key.
        behind = (torch.arange(count) + keys - count)[:, None] - torch.arange(keys)
        hidden = behind < 0
        if window is not None:
            hidden |= behind >= window
        weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
        output[q_from:q_to] = torch.einsum("hqk,khd->qhd", weights, v)
    return output
