"""What there is to choose from: the lists of `divtok ls`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from divtok.errors import UsageError, did_you_mean
from divtok.stages.kinds import Kind

if TYPE_CHECKING:
    from divtok.api.tables import Records
    from divtok.protocols.protocol import Protocol
    from divtok.registry import Registry
    from divtok.score.registry import Estimator

Row = dict[str, Any]


def estimators() -> Records[Estimator]:
    """Every estimator, those of plug-ins included, as tables order them.

    Each has a name, a summary, what it needs (columns of a trace, or evidence) and its parameters
    with their defaults.

    Example:
        >>> import divtok
        >>> linear = next(e for e in divtok.estimators() if e.name == "dtc_lin")
        >>> linear.needs, dict(linear.parameters)
        (('jsd_bits',), {'theta': None, 'n': 10, 'a': 0.95, 'b': 0.05})
    """
    from divtok.api.tables import Records
    from divtok.score.registry import ESTIMATORS, Estimator, in_order

    shown = ("name", "summary", "needs", "parameters")
    return Records(Estimator, in_order(ESTIMATORS), shown=shown)


def ls(kind: str) -> list[Row]:
    """`divtok ls KIND`: everything of one kind, plug-ins included, with name, summary and origin.

    Kinds are estimators, sets, evidence, divergences, protocols, graders, engines, importers,
    benchmarks, families and recipes; and "runs", what is in the folder runs/: for each run its
    responses, generators and benchmarks, how many responses are graded, traced and scored, and when
    it was written, or in `broken` what is wrong with the folder.

    Example:
        >>> import divtok
        >>> "tiny" in [family["name"] for family in divtok.ls("families")]
        True
    """
    if kind not in list(Kind):
        raise UsageError(f"There is no kind '{kind}'.", next_step=did_you_mean(kind, list(Kind)))
    return _rows(Kind(kind))


def _rows(kind: Kind) -> list[Row]:
    if kind is Kind.SETS:
        from divtok.score.sets import ESTIMATOR_SETS, expand_estimators

        sets = {name: [spec.name for spec in expand_estimators([name])] for name in ESTIMATOR_SETS}
        return [
            {"name": name, "summary": ", ".join(members), "estimators": members}
            for name, members in sets.items()
        ]
    if kind is Kind.RUNS:
        from divtok.stages.listed_runs import listed_runs

        return listed_runs()
    if kind is Kind.RECIPES:
        from divtok.paper.recipe import recipes

        return [
            {"name": recipe.name, "summary": recipe.heading(None), "about": recipe.about}
            for recipe in recipes().values()
        ]
    registry, more = _registry(kind)
    return [
        {"name": thing.name, "summary": thing.summary, "from": registry.origin(thing.name)}
        | more(thing)
        for thing in registry
    ]


def _about_protocol(protocol: Protocol) -> Row:
    """Its kind is what `kind` of a wording file names; its words are null where they are code."""
    words = protocol.wording
    return {
        "kind": protocol.name,
        "states_confidence": protocol.states_confidence,
        "wording": None if words is None else words.short_hash,
        "words": None
        if words is None
        else {"system": words.system, "user": words.user, "follow_up": words.follow_up},
    }


def _registry(kind: Kind) -> tuple[Registry[Any], Callable[[Any], Row]]:
    """Where the things of a kind are registered, and what is told of each beside its summary."""
    from divtok.divergences.divergence import DIVERGENCES
    from divtok.evidence.kind import EVIDENCE
    from divtok.families.family import FAMILIES
    from divtok.generate.engine import ENGINES
    from divtok.grade.grader import GRADERS
    from divtok.importers.importer import IMPORTERS
    from divtok.problems.benchmark import BENCHMARKS
    from divtok.protocols.protocol import PROTOCOLS
    from divtok.score.registry import ESTIMATORS

    def fields(*names: str) -> Callable[[Any], Row]:
        return lambda thing: {name: getattr(thing, name) for name in names}

    about_estimators = ("label", "needs", "parameters", "ranking_only", "bounded")
    known: dict[Kind, tuple[Registry[Any], Callable[[Any], Row]]] = {
        Kind.ESTIMATORS: (ESTIMATORS, fields(*about_estimators)),
        Kind.EVIDENCE: (EVIDENCE, lambda e: {"table": e.layout and e.layout.name}),
        Kind.DIVERGENCES: (DIVERGENCES, fields("label", "column", "unit", "theta_unit")),
        Kind.PROTOCOLS: (PROTOCOLS, _about_protocol),
        Kind.GRADERS: (GRADERS, fields()),
        Kind.ENGINES: (ENGINES, fields("weights_here")),
        Kind.IMPORTERS: (IMPORTERS, fields()),
        Kind.BENCHMARKS: (BENCHMARKS, lambda b: {"source": b.source.describe()}),
        Kind.FAMILIES: (FAMILIES, dataclasses.asdict),
    }
    return known[kind]
