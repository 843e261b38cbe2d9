"""The order and the names under which estimators are shown. Callers may bring their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from divtok.score.facts import FACTS
from divtok.score.registry import ESTIMATORS


def default_labels() -> Mapping[str, str]:
    """Estimator or fact -> label, in the order of columns; plug-ins are in it."""
    shown = sorted([*ESTIMATORS, *FACTS.values()], key=lambda found: (found.order, found.name))
    return {found.name: found.label for found in shown}


def supervised() -> frozenset[str]:
    """Estimators trained with labels: shown for reference, not ranked with the others."""
    return frozenset(spec.name for spec in ESTIMATORS if spec.supervised)


def label(estimator: str, labels: Mapping[str, str] | None = None) -> str:
    return (default_labels() if labels is None else labels).get(estimator, estimator)


def in_order(estimators: Iterable[str], labels: Mapping[str, str] | None = None) -> list[str]:
    """Known estimators in the order of `labels`, then the others alphabetically; no repeats."""
    known = default_labels() if labels is None else labels
    present = set(estimators)
    return [e for e in known if e in present] + sorted(present - set(known))
