"""Names to things: no name twice, no unknown name without help, plug-ins when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType, SimpleNamespace
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


def plug_in(name: str, load: Callable[[], Any], attr: str = "") -> SimpleNamespace:
    """What an installed package announces."""
    dist = SimpleNamespace(name="theirs", version="1.2")
    return SimpleNamespace(name=name, value="x", attr=attr, dist=dist, load=load)


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Announced:
    return Announced(monkeypatch)


@pytest.fixture
def registry(announced: Announced) -> Registry[int]:
    things: Registry[int] = Registry("thing", group="divtok.things")
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
    announced.points = [plug_in("three", lambda: registry.add("three", 3))]
    assert registry.get("three") == 3
    assert registry.names() == ["one", "two", "three"]
    assert list(registry) == [1, 2, 3]
    assert announced.reads == 1


def test_a_plug_in_may_look_things_up_while_it_is_imported(
    registry: Registry[int], announced: Announced
) -> None:
    def load() -> None:
        registry.add("sum", sum(registry))

    announced.points = [plug_in("sum", load)]
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
    announced.points = [plug_in("x", lambda: registry.add("one", 9))]
    with pytest.raises(UsageError, match="registered twice"):
        registry.names()
    assert registry.get("one") == 1


def test_an_entry_point_may_be_the_thing_itself(
    registry: Registry[int], announced: Announced
) -> None:
    loaded: list[str] = []

    def load(name: str, value: int) -> int:
        loaded.append(name)
        return value

    announced.points = [
        plug_in("three", lambda: load("three", 3), "THREE"),
        plug_in("four", lambda: load("four", 4), "FOUR"),
    ]
    assert registry.get("four") == 4
    assert loaded == ["four"]  # the other one is not imported for it
    assert registry.names() == ["one", "two", "four", "three"]


def test_it_is_known_who_registered_a_thing(
    registry: Registry[int], announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: Registry[int] = Registry("other", group="divtok.things")

    def load() -> None:
        registry.add("three", 3)
        others.add("of three", 30)

    announced.points = [plug_in("three", load)]
    assert registry.origin("three") == "theirs 1.2"
    assert registry.origin("one") == "divtok"
    announced.points = []
    assert others.origin("of three") == "theirs 1.2"
    with pytest.raises(UsageError, match=r"twice, by theirs 1\.2 and by divtok\."):
        registry.add("three", 3)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a file for each thing; `loud_one` cannot be imported."""
    folder = tmp_path / "home_of_things"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, value in (("five", 5), ("six_a", 6)):
        (folder / f"{name}.py").write_text(
            f"from things_registry import THINGS\nTHINGS.add({name.replace('_', '-')!r}, {value})\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    return folder.name


def test_what_ships_lies_in_a_package_with_one_file_a_thing(
    home: str, announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    things: Registry[int] = Registry("thing", group="divtok.things", home=home)
    module = ModuleType("things_registry")
    module.THINGS = things  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "things_registry", module)
    assert things.get("six-a") == 6
    assert f"{home}.six_a" in sys.modules
    assert f"{home}.five" not in sys.modules  # imported only when it may hold what is asked for
    assert things.names() == ["six-a", "five"]
    assert things.origin("five") == "divtok"


def test_a_package_of_data_files_is_read(
    home: str, announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(module: ModuleType) -> Iterable[tuple[str, int]]:
        return [(f"of {module.__name__}", 7)]

    things: Registry[int] = Registry("thing", group="divtok.things", home=home, read_module=read)
    assert things.names() == [f"of {home}"]
    announced.points = []


def test_what_ships_is_divtoks_also_where_a_plug_in_asks_first(
    home: str, announced: Announced
) -> None:
    def read(module: ModuleType) -> Iterable[tuple[str, int]]:
        return [("seven", 7)]

    things: Registry[int] = Registry("thing", group="divtok.things", home=home, read_module=read)
    others: Registry[int] = Registry("other", group="divtok.things")
    announced.points = [plug_in("x", lambda: others.add("x", things.get("seven")))]
    assert others.get("x") == 7
    assert (others.origin("x"), things.origin("seven")) == ("theirs 1.2", "divtok")


def test_a_plug_in_whose_files_are_wrong_is_not_forgotten(announced: Announced) -> None:
    def read(module: ModuleType) -> Iterable[tuple[str, int]]:
        raise UsageError("There is an error in their file.")

    things: Registry[int] = Registry("thing", group="divtok.things", read_module=read)
    things.add("one", 1)
    announced.points = [plug_in("two", lambda: ModuleType("theirs"))]
    assert "one" in things
    assert announced.reads == 0  # no plug-in is looked for where the name is known
    for _ in range(2):
        with pytest.raises(UsageError, match="an error in their file"):
            assert "two" not in things


def test_no_two_things_share_what_must_be_distinct(announced: Announced) -> None:
    parity: Registry[int] = Registry(
        "number", group="divtok.things", distinct=lambda number: f"remainder {number % 3}"
    )
    parity.add("one", 1)
    parity.add("two", 2)
    with pytest.raises(UsageError, match=r"'one' and 'four' \(divtok\) have one remainder 1\."):
        parity.add("four", 4)
    assert parity.names() == ["one", "two"]
