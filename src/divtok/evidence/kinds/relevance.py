"""Weights for every response token from a file of the user's, whatever made them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from divtok.config.run import RunConfig
from divtok.errors import DataError
from divtok.evidence.kind import EvidenceKind, Find, Gathering, Lacking, register
from divtok.records import Relevance
from divtok.store.columns import floats, reason, text
from divtok.store.layout import Layout
from divtok.store.responses import Response, list_lengths, stored_responses

RELEVANCE = Layout(
    "relevance",
    Relevance,
    ("key", "source"),
    (
        text("key"),
        text("source"),
        floats("weights", unit="weight"),
        *reason(),
    ),
)


class RelevanceKind(EvidenceKind[Relevance]):
    name = "relevance"
    summary = "Weights for every token, from a file."
    layout = RELEVANCE

    def refuse(self, config: RunConfig) -> Lacking | None:
        file = config.evidence.relevance
        if file is not None and Path(file).is_file():
            return None
        why = "no weights are given" if file is None else f"there is no file '{file}'"
        return Lacking(why, "evidence.relevance=FILE")

    def gather(self, work: Gathering) -> None:
        """Cheap, so it is made anew each time."""
        file = work.config.evidence.relevance
        assert file is not None  # refused before
        work.run.table(RELEVANCE).replace(read_relevance(Path(file), _lengths(work)))

    def find(self, work: Gathering) -> Find[Relevance]:
        rows = {row.key: row for row in work.run.table(RELEVANCE).read()}

        def found(response: Response) -> Relevance | None:
            return rows.get(response.key)

        return found


def _lengths(work: Gathering) -> dict[str, int]:
    """The tokens of each response; one that came as text has its tokens from its reader."""
    pairs = work.config.scored_pairs()
    responses = stored_responses(work.run)
    lengths = {response.key: response.length for response in responses.values()}
    for part in work.run.traces.columns(("key", "p", "q", "status", "jsd_bits")):
        sizes = list_lengths(part.column("jsd_bits"))
        columns = (part.column(name).to_pylist() for name in ("key", "p", "q", "status"))
        for key, p, q, status, size in zip(*columns, sizes, strict=True):
            if status == "ok" and (p, q) == pairs.get(responses[key].generator):
                lengths[key] = size
    return lengths


def read_relevance(path: Path, lengths: Mapping[str, int]) -> list[Relevance]:
    """Lines of {"key": trajectory, "weights": [one for each response token]}.

    `lengths` are the tokens of each trajectory of the run.
    """
    found: list[Relevance] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            key, weights = str(row["key"]), np.array(row["weights"], dtype=np.float32)
            if weights.ndim != 1:
                raise ValueError("weights is not a flat list of numbers")
            if not np.isfinite(weights).all() or (weights < 0).any():
                raise ValueError("a weight is negative or not a number")
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise DataError(
                f"{path}, line {number}: not a row of weights ({error}).",
                next_step='Write {"key": "...", "weights": [0.1, ...]} on each line.',
            ) from error
        if lengths.get(key) != len(weights):
            problem = (
                f"trajectory '{key}' has {lengths[key]} tokens, not {len(weights)}"
                if key in lengths
                else f"the run has no trajectory '{key}'"
            )
            raise DataError(
                f"{path}, line {number}: {problem}.",
                next_step="Use the keys of the run's table of trajectories, a weight a token.",
            )
        found.append(Relevance(key, path.name, weights))
    return found


RELEVANCE_KIND = register(RelevanceKind())
