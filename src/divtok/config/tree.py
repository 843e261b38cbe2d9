"""A config before it has a meaning: a tree, with dotted overrides on top.

Knows names and values, not which of them there are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, cast

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


def override_texts(values: Mapping[str, Any]) -> Iterator[str]:
    """`dotted.key=value` for values as Python has them; a mapping overrides key by key.

    A section of names that is None has no names, as by default.
    """
    for key, value in values.items():
        # Names of models may hold dots.
        if isinstance(value, Mapping) and value and key != "own_sampling":
            below: Mapping[str, Any] = {f"{key}.{name}": each for name, each in value.items()}
            yield from override_texts(below)
        elif key in _NAMED and value is None:
            yield f"{key}={{}}"
        elif key.partition(".")[0] in _NAMED:
            if value is None:
                raise ConfigError(f"{key} is None.", next_step="Leave this name out, or set it.")
            yield f"{key}={value}"
        else:
            # JSON is YAML, and no text in it is taken for a number.
            yield f"{key}={json.dumps(value, ensure_ascii=False, default=partial(_plain, key))}"


def _plain(key: str, value: Any) -> Any:
    """A path as text; numbers and arrays of numpy as those of Python."""
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ConfigError(
        f"{key} is of type {type(value).__name__}, which no config holds.",
        next_step="Give a number, a text, or a list or mapping of them.",
    )
