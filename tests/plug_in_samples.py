"""Packages of YAML files, announced as if another distribution had installed them."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import divtok.registry
from divtok.registry import Registry


def write_package(folder: Path, name: str, files: dict[str, str]) -> None:
    """A package `name` of these files, which can be imported once `folder` is on the path."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    for file, text in files.items():
        (folder / name / file).write_text(text, encoding="utf-8")


def announce(
    monkeypatch: pytest.MonkeyPatch, registry: Registry[Any], folder: Path, **points: str
) -> Registry[Any]:
    """A fresh registry of the same kind that knows these entry points and nothing installed."""
    group = registry.group

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [EntryPoint(name, value, group) for name, value in points.items()]

    monkeypatch.setattr(divtok.registry, "entry_points", entry_points)
    monkeypatch.syspath_prepend(folder)
    return Registry(
        registry.noun, group=group, home=registry._home, read_module=registry._read_module
    )
