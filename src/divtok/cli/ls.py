"""The verb ls: what there is to choose from, and who brought it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from divtok.cli.options import JsonOption
from divtok.cli.printing import print_json
from divtok.registry import OWN, Registry
from divtok.screen import put

Row = dict[str, Any]


class Kind(StrEnum):
    ESTIMATORS = "estimators"
    SETS = "sets"
    EVIDENCE = "evidence"
    DIVERGENCES = "divergences"
    PROTOCOLS = "protocols"
    GRADERS = "graders"
    ENGINES = "engines"
    IMPORTERS = "importers"
    BENCHMARKS = "benchmarks"
    FAMILIES = "families"
    RECIPES = "recipes"


def ls(
    kind: Annotated[Kind, typer.Argument(help="What to list.")], as_json: JsonOption = False
) -> None:
    """List what there is of one kind, plug-ins included, and who brought it."""
    rows = _rows(kind)
    if as_json:
        print_json(rows)
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        whose = "" if row.get("from", OWN) == OWN else f" [{row['from']}]"
        put(f"{row['name']:<{width}}  {row['summary']}{whose}")


def _rows(kind: Kind) -> list[Row]:
    if kind is Kind.SETS:
        from divtok.score.sets import ESTIMATOR_SETS, expand_estimators

        sets = {name: [spec.name for spec in expand_estimators([name])] for name in ESTIMATOR_SETS}
        return [
            {"name": name, "summary": ", ".join(members), "estimators": members}
            for name, members in sets.items()
        ]
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
        Kind.PROTOCOLS: (PROTOCOLS, fields("states_confidence")),
        Kind.GRADERS: (GRADERS, fields()),
        Kind.ENGINES: (ENGINES, fields("weights_here")),
        Kind.IMPORTERS: (IMPORTERS, fields()),
        Kind.BENCHMARKS: (BENCHMARKS, lambda b: {"source": b.source.describe()}),
        Kind.FAMILIES: (FAMILIES, dataclasses.asdict),
    }
    return known[kind]
