"""A config before it has a meaning: a tree from strict YAML, with dotted overrides on top.

Knows names and values, not which of them there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from divtok.errors import ConfigError

MAX_CONFIG_BYTES = 1_000_000
# Sections whose keys are names of benchmarks or models.
_NAMED = (
    *("benchmark_files", "revisions", "bases", "projections"),
    *("servers", "served_names", "tokenizers"),
)


def read_tree(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"The config file {path} cannot be read ({error.strerror}).",
            next_step="Check the path.",
        ) from error
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigError(f"The config file {path} is over {MAX_CONFIG_BYTES} bytes.")
    return load_tree(text, source=f"the config file {path}")


def load_tree(text: str | bytes, *, source: str) -> dict[str, Any]:
    """The mapping a YAML text holds; empty for an empty text."""
    tree = _parse_yaml(text, source)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"What stands in {source} is not a mapping of keys to values.")
    return tree


def _parse_yaml(text: str | bytes, source: str) -> Any:
    """Safe YAML without aliases: nothing in a run config needs them, and bombs are made of them."""
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.AliasToken):
                raise ConfigError(f"YAML aliases are not allowed in {source}.")
        _check_keys(yaml.compose(text, Loader=yaml.SafeLoader), source)
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Beside its own errors, PyYAML lets through those of a date or number that is none.
        cause = " ".join(str(error).split())
        raise ConfigError(f"Not valid YAML in {source}: {cause}.") from error


def _check_keys(node: yaml.Node | None, source: str) -> None:
    """Refuse a key that stands twice: YAML would drop the first in silence."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            line = key.start_mark.line + 1
            raise ConfigError(f"The key '{key.value}' stands twice in {source}, line {line}.")
        seen.add(str(key.value))
        _check_keys(value, source)


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
    node[leaf] = value if named else _parse_yaml(value, f"'{override}'")


def override_tree(tree: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of the tree with `dotted.key=value` overrides on top."""
    changed = deepcopy(dict(tree))
    for override in overrides:
        _apply_override(changed, override)
    return changed
