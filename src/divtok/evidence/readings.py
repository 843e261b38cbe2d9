"""The table of readings: one more model's log-probabilities, shared by three kinds of evidence."""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

import numpy as np

from divtok.evidence.kind import failed_records, of_table
from divtok.records import Reading, ReadingKind, Reason
from divtok.store.columns import choice, floats, reason, text
from divtok.store.layout import Key, Layout
from divtok.store.run import Run

READINGS = Layout(
    "readings",
    Reading,
    ("key", "model", "kind"),
    (
        text("key"),
        text("model"),
        choice("kind", get_args(ReadingKind)),
        floats("logprob", unit="nats"),
        *reason(),
    ),
)


def stored_readings(run: Run, kinds: Collection[ReadingKind]) -> set[Key]:
    """The keys of the readings of these kinds."""
    return {key for key in run.table(READINGS).keys() if key[2] in kinds}  # noqa: SIM118 (no dict)


def reading_failures(run: Run, kinds: Collection[ReadingKind]) -> list[str]:
    """Why readings of these kinds hold no numbers."""
    table = run.table(READINGS)
    return [of_table(table, row.reason) for row in failed_records(table) if row.kind in kinds]


def no_base(key: str, generator: str, kind: ReadingKind) -> Reading:
    nothing = np.empty(0, dtype=np.float32)
    reason = Reason("no_base_model", f"no base model is known for {generator}")
    return Reading(key, "", kind, nothing, reason)
