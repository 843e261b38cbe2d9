"""Strict YAML: no aliases, no key twice, caps on size, depth and digits, and records whose wrong
keys and values are named.

Every file that people write is read here: run configs, recipes, families and benchmarks. Knows
nothing of what they mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import yaml

from divtok.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import ErrorDetails

MAX_YAML_BYTES = 1_000_000
# Configs are four deep. PyYAML takes minutes for some thousand levels, which fit into a few kB.
MAX_YAML_DEPTH = 32
# 60-based numbers such as 1:30:00, too, which PyYAML would multiply out at any length.
MAX_NUMBER_SIGNS = 400
# Types of custom pydantic errors: the value may be a secret, or the message names the key itself.
WITHOUT_VALUE = "without_value"
AS_SAID = "as_said"

T = TypeVar("T")


def yaml_files(module: ModuleType) -> list[Path]:
    """The YAML files of a package, by name; none where it is a plain module."""
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    found = (file for folder in folders for file in folder.iterdir())
    return sorted(file for file in found if file.suffix in (".yaml", ".yml"))


def read_file(kind: type[T], path: Path, *, noun: str) -> T:
    """The record of a file; its name is the file's unless it gives one."""
    tree = {"name": path.stem, **read_tree(path, noun=noun)}
    return read_record(kind, tree, source=f"the {noun} {path}")


def read_tree(path: Path, *, noun: str) -> dict[str, Any]:
    """The mapping that a file holds; `noun` says in errors what kind of file it is."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"The {noun} {path} cannot be read ({error.strerror}).",
            next_step="Check the path.",
        ) from error
    return load_tree(text, source=f"the {noun} {path}")


def load_tree(text: str | bytes, *, source: str) -> dict[str, Any]:
    """The mapping a YAML text holds; empty for an empty text."""
    if len(text) > MAX_YAML_BYTES:
        raise ConfigError(f"The text of {source} is over {MAX_YAML_BYTES} bytes.")
    tree = parse_yaml(text, source=source)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"The content of {source} is not a mapping of keys to values.")
    return tree


def parse_yaml(text: str | bytes, *, source: str) -> Any:
    try:
        loader = _Loader(text)
        loader.source = source
        return loader.get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Beside its own errors, PyYAML lets through those of an impossible date or number.
        cause = " ".join(str(error).split())
        raise ConfigError(f"Not valid YAML in {source}: {cause}.") from error


class _Loader(yaml.SafeLoader):
    source = ""
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """No aliases: nothing that people write here needs them, and bombs are made of them."""
        if self.check_event(yaml.AliasEvent):
            raise ConfigError(f"YAML aliases are not allowed in {self.source}.")
        if self.depth >= MAX_YAML_DEPTH:
            raise ConfigError(f"Nested more than {MAX_YAML_DEPTH} deep in {self.source}.")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        if len(node.value) > MAX_NUMBER_SIGNS and node.tag.endswith((":int", ":float")):
            line = node.start_mark.line + 1
            raise ConfigError(
                f"A number of over {MAX_NUMBER_SIGNS} signs in {self.source}, line {line}."
            )
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """No key twice: YAML would drop the first one in silence."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                line = key.start_mark.line + 1
                raise ConfigError(
                    f"The key '{key.value}' is given twice in {self.source}, line {line}."
                )
            seen.add(str(key.value))
        return node


def read_record(kind: type[T], tree: Mapping[str, Any], *, source: str) -> T:
    """A frozen dataclass from a tree: every type as declared, no other key, nothing missing."""
    from pydantic import ValidationError

    try:
        # As JSON, where strict typing still reads a list as a tuple.
        return _adapter(kind).validate_json(json.dumps([tree], default=str))[0]
    except ValidationError as error:
        raise invalid(error, kind, source=source, skip=1) from error


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    # Inside a tuple, since a dataclass alone would have to carry these settings itself.
    inside: Any = GenericAlias(tuple, (kind,))
    return TypeAdapter(inside, config=ConfigDict(extra="forbid", strict=True))


def invalid(error: ValidationError, kind: type, *, source: str, skip: int = 0) -> ConfigError:
    """All validation errors of a tree at once; `skip` drops the first parts of their paths."""
    problems = " ".join(_describe(item, kind, skip) for item in error.errors())
    return ConfigError(f"Config error in {source}: {problems}")


def _describe(item: ErrorDetails, kind: type, skip: int) -> str:
    """One validation error as a phrase that names the key."""
    path = [str(part) for part in item["loc"][skip:]]
    key = ".".join(path)
    if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown key '{key}'. {did_you_mean(path[-1], _keys_at(kind, path[:-1]))}"
    if item["type"] == AS_SAID:
        return item["msg"]
    if item["type"] == "missing":
        return f"'{key}' is missing."
    message = item["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    end = "" if message[-1] in ".?" else "."
    if item["type"] in (WITHOUT_VALUE, "value_error"):
        return f"{key}: {message}{end}".removeprefix(": ")
    shown = repr(item["input"])
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return f"{key} = {shown}: {message}{end}"


def _keys_at(kind: Any, path: list[str]) -> list[str]:
    for part in path:
        if part.isdigit():
            continue  # the place in a list, whose items the last step has found
        annotation = get_type_hints(kind).get(part)
        if annotation is None:
            continue  # a name of a mapping, whose values the last step has found
        kind = next((k for k in (annotation, *get_args(annotation)) if _keys(k)), kind)
    return _keys(kind)


def _keys(kind: Any) -> list[str]:
    """The keys of a pydantic model or a dataclass; none of any other type."""
    return list(getattr(kind, "model_fields", getattr(kind, "__dataclass_fields__", ())))
