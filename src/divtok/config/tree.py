"""A config before it has a meaning: a tree, with dotted overrides on top.

Knows names and values, not which of them there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from divtok.errors import ConfigError
from divtok.strict_yaml import parse_yaml

# Sections whose keys are names of benchmarks or models.
_NAMED = (
    *("benchmark_files", "benchmark_protocols", "benchmark_graders"),
    *("revisions", "bases", "projections"),
    *("servers", "served_names", "tokenizers"),
)


def _apply_override(tree: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not all(key.split(".")):
        raise ConfigError(
            f"'{override}' is not an override.", next_step="Write dotted.key=value, as in seed=1."
        )
    *parents, leaf = key.split(".")
    named = bool(parents) and parents[0] in _NAMED
    if named:
        # Below these stand names, which may contain dots themselves, and their text as it is: a
        # path may hold a '#', and a revision may be all digits.
        parents, leaf = [parents[0]], key.removeprefix(parents[0] + ".")
    node = tree
    for parent in parents:
        node = node.setdefault(parent, {})
        if not isinstance(node, dict):
            raise ConfigError(f"'{override}': '{parent}' is a value, not a section.")
    node[leaf] = value if named else parse_yaml(value, source=f"'{override}'")


def override_tree(tree: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of the tree with `dotted.key=value` overrides on top."""
    changed = deepcopy(dict(tree))
    for override in overrides:
        _apply_override(changed, override)
    return changed
