"""Warnings about the pairs of a run: told before anything is spent, and kept when it is scored."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from divtok.config.run import RunConfig
from divtok.models.weights import vocabulary_width, weights_folder
from divtok.progress import say
from divtok.records import PairWarning
from divtok.store.pair_warnings import keep_pair_warnings, kept_pair_warnings
from divtok.store.run import Run
from divtok.trace.pair_warnings import (
    NO_DIVERGENCE,
    Tally,
    warnings_by_files,
    warnings_by_traces,
)

Pair = tuple[str, str]


def known_before(config: RunConfig) -> list[PairWarning]:
    """What the models' files tell of the pairs that are scored; servers show none."""
    return [
        warning
        for (p, q), generators in _readers(config).items()
        if p not in config.servers
        for warning in warnings_by_files(
            p,
            q,
            p_revision=config.revisions.get(p),
            q_revision=config.revisions.get(q),
            p_writes=p in generators,
        )
    ]


def say_warnings(warnings: Collection[PairWarning]) -> None:
    for warning in warnings:
        say(f"warning: {warning.text}")


def tallies_of(config: RunConfig) -> dict[Pair, Tally]:
    """An empty tally for each scored pair."""
    return {(p, q): Tally(_shared_width(config, p, q)) for p, q in _readers(config)}


def keep_warnings(run: Run, config: RunConfig, tallies: Mapping[Pair, Tally]) -> list[PairWarning]:
    """Keep all that is known of the scored pairs, and give it. Needs the lock.

    Where models are not on this machine any more, what was known of them stays.
    """
    found = known_before(config)
    same = {(w.p, w.q) for w in found}
    for pair, tally in tallies.items():
        # The same weights agree on every token: that is said already.
        of_traces = warnings_by_traces(*pair, tally)
        found += [w for w in of_traces if w.kind != NO_DIVERGENCE or pair not in same]
    told = {(w.p, w.q, w.kind) for w in found}
    found += [
        kept
        for kept in kept_pair_warnings(run)
        if (kept.p, kept.q) in tallies
        and kept.kind != NO_DIVERGENCE  # traces always tell that
        and (kept.p, kept.q, kept.kind) not in told
        and not _both_here(config, kept.p, kept.q)
    ]
    keep_pair_warnings(run, found)
    return found


def _readers(config: RunConfig) -> dict[Pair, list[str]]:
    """Each scored pair with the generators whose responses it reads."""
    found: dict[Pair, list[str]] = {}
    for generator, pair in config.scored_pairs().items():
        found.setdefault(pair, []).append(generator)
    return found


def _shared_width(config: RunConfig, p: str, q: str) -> int | None:
    if p in config.servers:
        return None  # a model of that name here need not be the server's
    widths = [vocabulary_width(ref, config.revisions.get(ref)) for ref in (p, q)]
    known = [width for width in widths if width is not None]
    return min(known) if len(known) == len(widths) else None


def _both_here(config: RunConfig, p: str, q: str) -> bool:
    return all(weights_folder(ref, config.revisions.get(ref)) is not None for ref in (p, q))
