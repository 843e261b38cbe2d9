"""Names to things: no name twice, no unknown name without help, plug-ins when they are needed."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from types import SimpleNamespace
from typing import Any

import pytest

from divtok.errors import EXIT_ERROR, EXIT_USAGE, DivtokError, UsageError
from divtok.registry import Registry


class Announced:
    """Entry points by group, in the place of those installed; counts how often they are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.points: list[Any] = []
        self.reads = 0
        monkeypatch.setattr("divtok.registry.entry_points", self._entry_points)

    def _entry_points(self, *, group: str) -> Any:
        assert group == "divtok.things"
        self.reads += 1
        return self.points


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Announced:
    return Announced(monkeypatch)


@pytest.fixture
def registry(announced: Announced) -> Registry[int]:
    things: Registry[int] = Registry("thing", entry_point_group="divtok.things")
    things.add("one", 1)
    things.add("two", 2)
    return things


def test_things_are_found_by_name_in_the_order_added(registry: Registry[int]) -> None:
    assert registry.get("two") == 2
    assert registry.names() == ["one", "two"]
    assert list(registry) == [1, 2]


def test_a_name_is_given_once(registry: Registry[int]) -> None:
    with pytest.raises(UsageError, match=r"The thing 'one' is registered twice"):
        registry.add("one", 3)
    assert registry.get("one") == 1


def test_an_unknown_name_is_explained(registry: Registry[int]) -> None:
    with pytest.raises(UsageError, match=r"Unknown thing 'tow'\. Did you mean 'two'\?") as caught:
        registry.get("tow")
    assert caught.value.exit_code == EXIT_USAGE
    with pytest.raises(UsageError, match=r"Unknown thing 'zzz'\. Known: one, two\."):
        registry.get("zzz")


def test_a_known_name_needs_no_plug_in(registry: Registry[int], announced: Announced) -> None:
    announced.points = [EntryPoint("broken", "no_such_module_anywhere", "divtok.things")]
    assert registry.get("one") == 1
    assert announced.reads == 0


def test_plug_ins_are_imported_once(registry: Registry[int], announced: Announced) -> None:
    announced.points = [
        SimpleNamespace(name="three", value="x", load=lambda: registry.add("three", 3))
    ]
    assert registry.get("three") == 3
    assert registry.names() == ["one", "two", "three"]
    assert list(registry) == [1, 2, 3]
    assert announced.reads == 1


def test_a_plug_in_may_look_things_up_while_it_is_imported(
    registry: Registry[int], announced: Announced
) -> None:
    def load() -> None:
        registry.add("sum", sum(registry))

    announced.points = [SimpleNamespace(name="sum", value="x", load=load)]
    assert registry.get("sum") == 3


@pytest.mark.parametrize("value", ["no_such_module_anywhere", "json:no_such_attribute"])
def test_a_broken_plug_in_is_named_every_time(
    registry: Registry[int], announced: Announced, value: str
) -> None:
    announced.points = list(EntryPoints([EntryPoint("theirs", value, "divtok.things")]))
    for _ in range(2):
        with pytest.raises(DivtokError, match=rf"plug-in 'theirs' \({value}\)") as caught:
            registry.names()
        assert "divtok.things" in str(caught.value.next_step)
        assert caught.value.exit_code == EXIT_ERROR
    assert registry.get("one") == 1


def test_a_plug_in_that_takes_a_name_of_ours_is_refused(
    registry: Registry[int], announced: Announced
) -> None:
    announced.points = [SimpleNamespace(name="x", value="x", load=lambda: registry.add("one", 9))]
    with pytest.raises(UsageError, match="registered twice"):
        registry.names()
    assert registry.get("one") == 1
