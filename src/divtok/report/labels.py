"""The order and the names under which estimators are shown. Callers may bring their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

# Order matters: the baselines as in the paper's tables, then the counts, then what is built on the
# count, and the supervised reference last.
DEFAULT_LABELS: Mapping[str, str] = MappingProxyType(
    {
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
)
# Trained with labels: shown for reference, not ranked with the rest.
SUPERVISED = frozenset({"prm"})


def label(estimator: str, labels: Mapping[str, str] = DEFAULT_LABELS) -> str:
    return labels.get(estimator, estimator)


def in_order(estimators: Iterable[str], labels: Mapping[str, str] = DEFAULT_LABELS) -> list[str]:
    """Known estimators in the order of `labels`, then the rest alphabetically; no repeats."""
    present = set(estimators)
    return [e for e in labels if e in present] + sorted(present - set(labels))
