"""Estimators by name, one or several, and names that stand for several of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from divtok.errors import UsageError, did_you_mean
from divtok.score.facts import FACTS
from divtok.score.registry import ESTIMATORS, Estimator, in_order


def other_papers() -> list[str]:
    """Baselines of other papers that a trace is enough for."""
    return ["cmp", "cme", "deepconf_group", "deepconf_tail", "self_certainty_reverse"]


def not_in_paper() -> list[str]:
    """What the paper's tables have none of: our own weighted likelihoods, and other papers'."""
    return ["dtc_weighted", "dtc_guarded", *other_papers()]


def _trace_alone() -> list[str]:
    """All but other papers', with which every run's tables would be twice as wide."""
    left_out = set(other_papers())
    alone = [spec.name for spec in in_order(ESTIMATORS) if not spec.evidence]
    return [name for name in alone if name not in left_out]


def _verbalized() -> list[str]:
    return [*_trace_alone(), "verbalized", "verbalized_dtc"]


def _whitebox() -> list[str]:
    """The columns of the paper's white-box tables, its supervised reference, and what it lacks."""
    return [
        "nsl", "mean_prob", "entropy", "basecal", "uqac_attn", "uqac_mean", "verbalized",
        "dtc_prod", "dtc_lin", "prm", *not_in_paper(),
    ]  # fmt: skip


def _blackbox() -> list[str]:
    """The rows of the paper's black-box tables for responses that state no confidence, likewise."""
    return ["dtc_lin", "dtc_prod", "prm", *not_in_paper()]


def _pilot() -> list[str]:
    """What the paper's pilot study of UQAC compares."""
    return ["mean_prob", "uqac_attn", "uqac_sim", "uqac_mean", "uqac_global"]


# Plug-ins may add to the first, so each is looked up when it is asked for.
ESTIMATOR_SETS: dict[str, Callable[[], list[str]]] = {
    "trace": _trace_alone,
    "verbalized_protocol": _verbalized,
    "whitebox": _whitebox,
    "blackbox": _blackbox,
    "not_in_paper": not_in_paper,
    "pilot": _pilot,
}


def one_estimator(name: str) -> Estimator:
    """The estimator of this name; a fact is refused with where it is found instead."""
    if name in FACTS:
        raise UsageError(
            f"'{name}' is not an estimator but a fact of every trace: it ranks responses and is "
            "not a confidence.",
            next_step="Use an estimator, see 'divtok ls estimators'; count and length are shown "
            "beside any confidence.",
        )
    return ESTIMATORS.get(name)


def expand_estimators(names: Sequence[str]) -> list[Estimator]:
    """The estimators of these names and sets, each once; an unknown name is refused."""
    found: dict[str, Estimator] = {}
    for name in names:
        if name in FACTS:
            continue  # no estimators, though lists may name them
        for member in ESTIMATOR_SETS[name]() if name in ESTIMATOR_SETS else [name]:
            if member not in ESTIMATORS:
                known = [*ESTIMATORS.names(), *ESTIMATOR_SETS]
                raise UsageError(
                    f"Unknown estimator '{member}'.", next_step=did_you_mean(member, known)
                )
            found[member] = ESTIMATORS.get(member)
    return list(found.values())
