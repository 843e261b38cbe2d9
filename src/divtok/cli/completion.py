"""What a shell offers after a part of a name. Where that is not to be found it offers nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from divtok.registry import Registry


def runs(incomplete: str) -> list[str]:
    """Names of runs under runs/."""
    from divtok.store.run import list_runs

    try:
        names = list_runs(Path("runs"))
    except OSError:
        return []
    return _beginning(names, incomplete)


def families(incomplete: str) -> list[str]:
    from divtok.families.family import FAMILIES

    return _named(FAMILIES, incomplete)


def benchmarks(incomplete: str) -> list[str]:
    from divtok.problems.benchmark import BENCHMARKS

    return _named(BENCHMARKS, incomplete)


def formats(incomplete: str) -> list[str]:
    from divtok.importers import IMPORTERS

    return _named(IMPORTERS, incomplete)


def protocols(incomplete: str) -> list[str]:
    from divtok.protocols.protocol import PROTOCOLS

    return _named(PROTOCOLS, incomplete)


def _named(registry: Registry[Any], incomplete: str) -> list[str]:
    return _beginning(sorted(registry.names()), incomplete)


def _beginning(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
