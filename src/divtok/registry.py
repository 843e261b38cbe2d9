"""Names to things: estimators and benchmarks are looked up the same way.

A registry holds what the package brings and, on first need, what other packages announce through
an entry-point group. It knows nothing about what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from divtok.errors import DivtokError, UsageError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """A name -> thing map that refuses duplicates and explains unknown names."""

    def __init__(self, noun: str, *, entry_point_group: str) -> None:
        self._noun = noun
        self._group = entry_point_group
        self._things: dict[str, T] = {}
        self._plugins_loaded = False

    def add(self, name: str, thing: T) -> None:
        if name in self._things:
            raise UsageError(
                f"The {self._noun} '{name}' is registered twice.",
                next_step="Give one of them another name.",
            )
        self._things[name] = thing

    def get(self, name: str) -> T:
        if name not in self._things:
            self._load_plugins()
        if name not in self._things:
            raise UsageError(
                f"Unknown {self._noun} '{name}'.", next_step=did_you_mean(name, self._things)
            )
        return self._things[name]

    def names(self) -> list[str]:
        self._load_plugins()
        return list(self._things)

    def __iter__(self) -> Iterator[T]:
        self._load_plugins()
        return iter(self._things.values())

    def _load_plugins(self) -> None:
        """Import every announced module; importing it is what registers its things."""
        if self._plugins_loaded:
            return
        self._plugins_loaded = True
        for point in entry_points(group=self._group):
            try:
                point.load()
            except (ImportError, AttributeError) as error:
                self._plugins_loaded = False  # so that the next look-up does not miss it in silence
                raise DivtokError(
                    f"The plug-in '{point.name}' ({point.value}) cannot be imported: {error}.",
                    next_step=f"Repair or uninstall it; its entry-point group is {self._group}.",
                ) from error
