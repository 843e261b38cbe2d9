"""The verb ls: what there is to choose from, and who brought it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from divtok.cli.options import JsonOption
from divtok.registry import OWN, Registry

Rows = list[dict[str, Any]]


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
    rows = _LISTS[kind]()
    if as_json:
        print(json.dumps(rows, indent=2, allow_nan=False))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        whose = "" if row.get("from", OWN) == OWN else f" [{row['from']}]"
        print(f"{row['name']:<{width}}  {row['summary']}{whose}")


def _registered(
    registry: Registry[Any], more: Callable[[Any], dict[str, Any]] = lambda _: {}
) -> Rows:
    """A row for everything in a registry: its name, summary and origin, and `more` of it."""
    return [
        {"name": thing.name, "summary": thing.summary, "from": registry.origin(thing.name)}
        | more(thing)
        for thing in registry
    ]


def _estimators() -> Rows:
    from divtok.score.registry import ESTIMATORS, Estimator

    def more(spec: Estimator) -> dict[str, Any]:
        return {
            "label": spec.label,
            "needs": list(spec.needs),
            "parameters": dict(spec.parameters),
            "ranking_only": spec.ranking_only,
            "bounded": spec.bounded,
        }

    return _registered(ESTIMATORS, more)


def _sets() -> Rows:
    from divtok.score.sets import ESTIMATOR_SETS, expand_estimators

    found = {name: [spec.name for spec in expand_estimators([name])] for name in ESTIMATOR_SETS}
    return [
        {"name": name, "summary": ", ".join(members), "estimators": members}
        for name, members in found.items()
    ]


def _evidence() -> Rows:
    from divtok.evidence.kind import EVIDENCE

    return _registered(
        EVIDENCE, lambda kind: {"table": None if kind.layout is None else kind.layout.name}
    )


def _divergences() -> Rows:
    from divtok.divergences.divergence import DIVERGENCES, Divergence

    def more(divergence: Divergence) -> dict[str, Any]:
        return {
            "label": divergence.label,
            "column": divergence.column,
            "unit": divergence.unit,
            "theta_unit": divergence.theta_unit,
        }

    return _registered(DIVERGENCES, more)


def _protocols() -> Rows:
    from divtok.protocols.protocol import PROTOCOLS

    return _registered(PROTOCOLS, lambda p: {"states_confidence": p.states_confidence})


def _graders() -> Rows:
    from divtok.grade.grader import GRADERS

    return _registered(GRADERS)


def _engines() -> Rows:
    from divtok.generate.engine import ENGINES

    return _registered(ENGINES, lambda engine: {"weights_here": engine.weights_here})


def _importers() -> Rows:
    from divtok.importers.importer import IMPORTERS

    return _registered(IMPORTERS)


def _benchmarks() -> Rows:
    from divtok.problems.benchmark import BENCHMARKS

    return _registered(BENCHMARKS, lambda b: {"source": b.source.describe()})


def _families() -> Rows:
    from divtok.families.family import FAMILIES

    return _registered(FAMILIES, dataclasses.asdict)


def _recipes() -> Rows:
    from divtok.paper.recipe import recipes

    return [
        {"name": recipe.name, "summary": recipe.heading(None), "about": recipe.about}
        for recipe in recipes().values()
    ]


_LISTS: dict[Kind, Callable[[], Rows]] = {
    Kind.ESTIMATORS: _estimators,
    Kind.SETS: _sets,
    Kind.EVIDENCE: _evidence,
    Kind.DIVERGENCES: _divergences,
    Kind.PROTOCOLS: _protocols,
    Kind.GRADERS: _graders,
    Kind.ENGINES: _engines,
    Kind.IMPORTERS: _importers,
    Kind.BENCHMARKS: _benchmarks,
    Kind.FAMILIES: _families,
    Kind.RECIPES: _recipes,
}
