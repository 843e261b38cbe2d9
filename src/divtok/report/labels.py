"""The order and the names under which estimators are shown. Callers may bring their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Order matters: the baselines as in the paper's tables, then the counts, then what is built on the
# count, and the supervised reference last.
_LABELS = {
    "nsl": "NSL",
    "mean_prob": "Mean prob.",
    "entropy": "Entropy",
    "sampled_nsl": "Own NSL",
    "sampled_mean_prob": "Own mean prob.",
    "relevance": "Relevance",
    "basecal": "BaseCal",
    "basecal_proj": "BaseCal proj.",
    "uqac_attn": "UQAC attn",
    "uqac_sim": "UQAC sim",
    "uqac_mean": "UQAC mean",
    "uqac_global": "UQAC global",
    "verbalized": "Verb.",
    "verbalized_dtc": "Verb. DTC",
    "length": "Length",
    "ratio": "Ratio",
    "count": "Count",
    "dtc_lin": "DTC lin",
    "dtc_prod": "DTC prod",
    "prm": "PRM",
}


def default_labels() -> Mapping[str, str]:
    """Estimator -> label, in the order of columns; what is used where a caller brings no labels."""
    return _LABELS


def supervised() -> frozenset[str]:
    """Estimators trained with labels: shown for reference, not ranked with the others."""
    return frozenset({"prm"})


def label(estimator: str, labels: Mapping[str, str] | None = None) -> str:
    return (default_labels() if labels is None else labels).get(estimator, estimator)


def in_order(estimators: Iterable[str], labels: Mapping[str, str] | None = None) -> list[str]:
    """Known estimators in the order of `labels`, then the others alphabetically; no repeats."""
    known = default_labels() if labels is None else labels
    present = set(estimators)
    return [e for e in known if e in present] + sorted(present - set(known))
