"""The verb ls: what there is to choose from."""

from __future__ import annotations

import dataclasses
import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from divtok.cli.options import JsonOption


class Kind(StrEnum):
    ESTIMATORS = "estimators"
    SETS = "sets"
    FAMILIES = "families"
    BENCHMARKS = "benchmarks"
    RECIPES = "recipes"


def ls(
    kind: Annotated[Kind, typer.Argument(help="What to list.")], as_json: JsonOption = False
) -> None:
    """List the estimators, sets of them, families, benchmarks or recipes, plug-ins included."""
    rows = {
        Kind.ESTIMATORS: _estimators,
        Kind.SETS: _sets,
        Kind.FAMILIES: _families,
        Kind.BENCHMARKS: _benchmarks,
        Kind.RECIPES: _recipes,
    }[kind]()
    if as_json:
        print(json.dumps(rows, indent=2, allow_nan=False))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        print(f"{row['name']:<{width}}  {row['summary']}")


def _estimators() -> list[dict[str, Any]]:
    from divtok.score import ESTIMATORS

    return [
        {
            "name": spec.name,
            "summary": spec.summary,
            "needs": list(spec.needs),
            "parameters": dict(spec.parameters),
            "ranking_only": spec.ranking_only,
            "bounded": spec.bounded,
        }
        for spec in ESTIMATORS
    ]


def _sets() -> list[dict[str, Any]]:
    from divtok.score import ESTIMATOR_SETS, expand_estimators

    found = {name: [spec.name for spec in expand_estimators([name])] for name in ESTIMATOR_SETS}
    return [
        {"name": name, "summary": ", ".join(members), "estimators": members}
        for name, members in found.items()
    ]


def _families() -> list[dict[str, Any]]:
    from divtok.families.family import FAMILIES

    return [dataclasses.asdict(family) for family in FAMILIES]


def _benchmarks() -> list[dict[str, Any]]:
    from divtok.problems.benchmark import BENCHMARKS

    return [
        {"name": b.name, "summary": b.summary, "source": b.source.describe()} for b in BENCHMARKS
    ]


def _recipes() -> list[dict[str, Any]]:
    from divtok.paper.recipe import recipes

    return [
        {"name": recipe.name, "summary": recipe.heading(None), "about": recipe.about}
        for recipe in recipes().values()
    ]
