"""The kinds of things that `divtok ls` lists: all that the command line needs of them to start."""

from __future__ import annotations

from enum import StrEnum


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
    RUNS = "runs"
