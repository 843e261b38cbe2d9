"""Names to things: every kind of thing that can be added is looked up in the same way.

A kind (estimators, graders, engines, ...) has one registry. What ships with divtok lies in the
registry's home, a package with one file a thing; other packages announce theirs in an entry-point
group. Both are imported when they are first asked for, and importing is what registers:

    [project.entry-points."divtok.estimators"]
    worst_token = "my_package.estimators"         # a module: importing it registers its estimators
    [project.entry-points."divtok.engines"]
    echo = "my_package.echo:ENGINE"               # or the thing itself, under its own name

It knows nothing about what it holds.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Generic, TypeVar

from divtok.errors import DivtokError, UsageError, did_you_mean

T = TypeVar("T")

OWN = "divtok"

# Who is registering now: one for all registries, since one plug-in may add things of many kinds.
_registering = [OWN]


class Registry(Generic[T]):
    """A name -> thing map that refuses duplicates, explains unknown names and imports late.

    `read_module` makes things of a module that registers none by itself, such as a package of YAML
    files. `distinct` names what else no two things may share.
    """

    def __init__(
        self,
        noun: str,
        *,
        group: str,
        home: str | None = None,
        read_module: Callable[[ModuleType], Iterable[tuple[str, T]]] | None = None,
        distinct: Callable[[T], str] | None = None,
    ) -> None:
        self.noun = noun
        self.group = group
        self._home = home
        self._read_module = read_module
        self._distinct = distinct
        self._things: dict[str, T] = {}
        self._origins: dict[str, str] = {}
        self._home_left: list[str] | None = None  # modules that are not imported yet
        self._points_left: list[EntryPoint] | None = None

    def add(self, name: str, thing: T) -> None:
        if name in self._things:
            raise UsageError(
                f"The {self.noun} '{name}' is registered twice, by {self._origins[name]} and by "
                f"{_registering[-1]}.",
                next_step="Give one of them another name, or uninstall it.",
            )
        for other, there in self._things.items():
            if self._distinct is not None and self._distinct(there) == self._distinct(thing):
                raise UsageError(
                    f"The {self.noun}s '{other}' and '{name}' ({_registering[-1]}) have one "
                    f"{self._distinct(thing)}.",
                    next_step="Give one of them another.",
                )
        self._things[name] = thing
        self._origins[name] = _registering[-1]

    def get(self, name: str) -> T:
        """The thing of this name; imports no more than what may hold it."""
        if name not in self:
            raise UsageError(
                f"Unknown {self.noun} '{name}'.", next_step=did_you_mean(name, self._things)
            )
        return self._things[name]

    def names(self) -> list[str]:
        self._load_all()
        return list(self._things)

    def origin(self, name: str) -> str:
        """Who registered it: divtok, or another package and its version."""
        self.get(name)
        return self._origins[name]

    def __contains__(self, name: str) -> bool:
        if name not in self._things:
            self._import_home([m for m in self._waiting_modules() if m == name.replace("-", "_")])
        if name not in self._things:
            self._load([p for p in self._waiting_points() if p.name == name])
        if name not in self._things:
            self._load_all()
        return name in self._things

    def __iter__(self) -> Iterator[T]:
        self._load_all()
        return iter(list(self._things.values()))

    def _load_all(self) -> None:
        self._import_home(list(self._waiting_modules()))
        self._load(list(self._waiting_points()))

    def _waiting_modules(self) -> list[str]:
        if self._home_left is None:
            home = None if self._home is None else import_module(self._home)
            if home is not None and self._read_module is not None:
                with _from(OWN):  # a plug-in may be what asks first
                    self._add_all(self._read_module(home))
                self._home_left = []
                return []
            paths = [] if home is None else home.__path__
            self._home_left = sorted(module.name for module in pkgutil.iter_modules(paths))
        return self._home_left

    def _import_home(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._waiting_modules():
                self._waiting_modules().remove(name)
                with _from(OWN):
                    import_module(f"{self._home}.{name}")

    def _waiting_points(self) -> list[EntryPoint]:
        if self._points_left is None:
            self._points_left = list(entry_points(group=self.group))
        return self._points_left

    def _load(self, points: Iterable[EntryPoint]) -> None:
        for point in points:
            self._waiting_points().remove(point)
            try:
                with _from(_package_of(point)):
                    thing = point.load()
                    if point.attr:
                        self._add_all([(point.name, thing)])
                    elif self._read_module is not None:
                        self._add_all(self._read_module(thing))
            except (DivtokError, ImportError, AttributeError) as error:
                self._waiting_points().append(point)  # the next look-up must not miss it in silence
                if isinstance(error, DivtokError):
                    raise
                raise DivtokError(
                    f"The plug-in '{point.name}' ({point.value}) cannot be imported: {error}.",
                    next_step=f"Repair or uninstall it; its entry-point group is {self.group}.",
                ) from error

    def _add_all(self, things: Iterable[tuple[str, T]]) -> None:
        for name, thing in things:
            self.add(name, thing)


def _package_of(point: EntryPoint) -> str:
    dist = point.dist
    return "a plug-in" if dist is None else f"{dist.name} {dist.version}"


@contextmanager
def _from(origin: str) -> Generator[None]:
    _registering.append(origin)
    try:
        yield
    finally:
        _registering.pop()
