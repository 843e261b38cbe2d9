"""Which trajectories to trace together: by length, under a budget. Pure arithmetic, no model."""

from __future__ import annotations

from collections.abc import Sequence

from divtok.errors import UsageError


def plan_batches(lengths: Sequence[int], *, max_tokens: int, max_rows: int) -> list[list[int]]:
    """Indices of `lengths`, in batches of at most `max_rows` rows and `max_tokens` padded tokens.

    Longest first, so that rows of one batch are of like length (little padding) and a budget that
    is too large shows at once. A row that is longer than the budget gets a batch of its own.
    """
    for name, value in (("max_tokens", max_tokens), ("max_rows", max_rows)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}.")
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batches:
            # The first row of a batch is its longest and sets the padded width.
            rows = len(batches[-1]) + 1
            if rows <= max_rows and rows * lengths[batches[-1][0]] <= max_tokens:
                batches[-1].append(index)
                continue
        batches.append([index])
    return batches
