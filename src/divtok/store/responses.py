"""Trajectories without their tokens and texts: what evaluation and scoring need of each response.

A long run's tokens take gigabytes as Python objects; these take a few hundred bytes a response.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from divtok.records import FinishReason, Reason
from divtok.store.columns import reason_of
from divtok.store.run import Run
from divtok.store.table import Table

Group = tuple[str, str]  # benchmark, generator

_COLUMNS = (
    *("key", "problem_id", "benchmark", "sample", "generator", "finish_reason"),
    *("protocol", "reason", "reason_kind"),
)


class Response(NamedTuple):
    """One trajectory's names, and how it ended. `length` counts its own tokens, not a reader's."""

    key: str
    problem_id: str
    benchmark: str
    sample: int
    generator: str
    finish_reason: FinishReason
    protocol: str
    reason: Reason | None
    length: int

    @property
    def group(self) -> Group:
        return self.benchmark, self.generator

    @property
    def failed(self) -> bool:
        return self.finish_reason == "failed"

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"


def stored_responses(run: Run) -> dict[str, Response]:
    """By key, in the order of the table."""
    found: dict[str, Response] = {}
    for part in run.trajectories.columns((*_COLUMNS, "token_ids")):
        lengths = list_lengths(part.column("token_ids"))
        columns = {name: part.column(name).to_pylist() for name in _COLUMNS}
        reasons = map(reason_of, columns.pop("reason"), columns.pop("reason_kind"))
        rows = zip(*columns.values(), reasons, lengths, strict=True)
        found |= {row.key: row for row in map(Response._make, rows)}
    return found


def list_lengths(column: Any) -> list[int]:
    """How many elements each row of a list column has, without a Python object for any of them."""
    import pyarrow.compute as pc

    return pc.list_value_length(column).to_pylist()  # pyright: ignore[reportAttributeAccessIssue]


def rows_of(table: Table[Any], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """A tuple of these columns for each row, shard by shard."""
    for part in table.columns(names):
        yield from zip(*(part.column(name).to_pylist() for name in names), strict=True)
