"""Lengths of p's hidden states before each response token, from the pass that makes the traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from divtok.evidence.kind import EvidenceKind, Find, Gathering, Riding
from divtok.families.family import Generator
from divtok.records import FloatArray, Trace
from divtok.store.columns import floats, reason, text
from divtok.store.layout import Layout
from divtok.store.responses import Response
from divtok.trace.listener import Passage, unread_reason


@dataclass(frozen=True, slots=True, eq=False)
class Norms:
    """Lengths [T]. Where `reason` is set the array is empty."""

    key: str
    model: str
    values: FloatArray
    reason: str | None = None


NORMS = Layout(
    "norms",
    Norms,
    ("key", "model"),
    (text("key"), text("model"), floats("values", unit="length"), *reason()),
)


class NormsListener:
    whole = False

    def sink(self, pack: Any) -> None:
        return None

    def hear(self, passage: Passage, sink: Any) -> list[Norms]:
        lengths = passage.states.float().norm(dim=-1).cpu().numpy()
        cuts = np.cumsum([len(row.token_ids) for row in passage.rows])[:-1]
        return [
            Norms(row.key, passage.reader.name, part.copy())
            for row, part in zip(passage.rows, np.split(lengths, cuts), strict=True)
        ]

    def unread(self, trace: Trace, model: str) -> Norms:
        return Norms(trace.key, model, np.empty(0, dtype=np.float32), unread_reason(trace))


class NormsKind(EvidenceKind[Norms]):
    name = "norms"
    summary = "Lengths of p's hidden states."
    layout = NORMS

    def ride(self, work: Gathering, generator: Generator) -> Riding:
        p, _ = work.config.pair_for(generator)
        return Riding(work.run.table(NORMS), lambda key: (key, p), NormsListener)

    def find(self, work: Gathering) -> Find[Norms]:
        rows, pairs = work.run.table(NORMS).lookup(), work.config.scored_pairs()

        def found(response: Response) -> Norms | None:
            return rows.get((response.key, pairs[response.generator][0]))

        return found


NORMS_KIND = NormsKind()
