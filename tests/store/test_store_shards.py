"""Generations of shards: replacing in parts, what counts while it is under way, and identity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from store_samples import grade, trace

from divtok import records as r
from divtok.errors import StoreError
from divtok.store import atomic, schema, shards
from divtok.store.shards import Shard, current, shard_of
from divtok.store.table import Table
from divtok.store.table_folder import TableFolder

TRACES = schema.traces()


class Crash(BaseException):
    """The process is gone: nothing of ours runs after it."""


def _free() -> None:
    """In place of a lock that is held."""


def _grades(folder: Path, *names: str) -> Table[r.Grade]:
    table = Table(folder / "grades", schema.GRADES, _free)
    for name in names:
        table.append([grade(name)])
    return table


def _keys(table: Table[r.Grade]) -> list[str]:
    return [row.key for row in table.read()]


def _parts(table: Table[Any]) -> list[str]:
    return sorted("-".join(path.name.split("-")[:3]) for path in table.folder.iterdir())


def _in_parts(*names: str) -> list[list[r.Grade]]:
    return [[grade(name) for name in part] for part in names]


@pytest.mark.parametrize(
    "shard",
    [
        Shard(1, 0, False, None, 0),
        Shard(12345, 1234567, False, 0x1234, 0xABCDEF01),
        Shard(2, 3, True, 7, 0xFFFFFFFF),
    ],
)
def test_a_name_tells_everything_about_a_shard(shard: Shard) -> None:
    assert shard_of(shard.name) == shard


@pytest.mark.parametrize(
    "name",
    [
        "copy.parquet",
        "g1-part-000000-00000000.parquet",
        "g0001-part-000000-0000000-00000000.parquet",
    ],
)
def test_other_names_are_not_a_shard_s(name: str) -> None:
    assert shard_of(name) is None


def test_a_table_is_replaced_in_parts_that_keep_their_order(tmp_path: Path) -> None:
    table = _grades(tmp_path, "a", "b")
    table.replace_with(_in_parts("cd", "", "e", "fg"))
    assert _parts(table) == ["g0002-part-000000", "g0002-rest-000001", "g0002-rest-000002"]
    assert _keys(table) == [*"cdefg"]
    assert [[row.key for row in batch] for batch in table.batches()] == [[*"cd"], ["e"], [*"fg"]]
    table.append([grade("h")])
    assert _parts(table)[-1] == "g0002-rest-000002"
    assert "g0002-part-000003" in _parts(table)
    assert _keys(table) == [*"cdefgh"]
    table.replace([grade("i")])
    assert _parts(table) == ["g0003-part-000000"]


@pytest.mark.parametrize("parts", [[], [[]], [[], []]])
def test_a_table_is_replaced_by_nothing(tmp_path: Path, parts: Sequence[Sequence[r.Grade]]) -> None:
    table = _grades(tmp_path, "a", "b")
    table.replace_with(parts)
    assert table.read() == []
    assert table.keys() == set()
    assert _parts(table) == ["g0002-part-000000"]


def test_the_parts_may_come_from_the_table_itself(tmp_path: Path) -> None:
    table = _grades(tmp_path, *"abc")
    table.replace_with([grade(row.key, "again") for row in batch] for batch in table.batches())
    assert [(row.key, row.reason) for row in table.read()] == [(name, "again") for name in "abc"]


def test_readers_see_the_old_table_until_the_new_one_is_whole(tmp_path: Path) -> None:
    table, reader = _grades(tmp_path, "a", "b"), _grades(tmp_path)
    before = reader.identity()

    def parts() -> Iterator[list[r.Grade]]:
        for part in _in_parts("c", "d", "e"):
            yield part
            assert _keys(reader) == ["a", "b"]
            assert reader.keys() == {("a",), ("b",)}
            assert reader.identity() == before

    table.replace_with(parts())
    assert _keys(reader) == ["c", "d", "e"]


def test_a_key_may_not_be_in_two_parts(tmp_path: Path) -> None:
    table = _grades(tmp_path, "a")
    with pytest.raises(StoreError, match=r"Two different rows for grades have the key \('c',\)"):
        table.replace_with(_in_parts("bc", "d", "ec"))
    assert _keys(table) == ["a"]
    assert _parts(table) == ["g0001-part-000000"]
    table.replace_with(_in_parts("bcb", "d"))  # a replay within one part
    assert _keys(table) == ["c", "b", "d"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_parts_that_fail_leave_the_old_table_and_no_file(
    tmp_path: Path, error: type[BaseException]
) -> None:
    table = _grades(tmp_path, "a")

    def parts() -> Iterator[list[r.Grade]]:
        yield from _in_parts("b", "c")
        raise error

    with pytest.raises(error):
        table.replace_with(parts())
    assert _parts(table) == ["g0001-part-000000"]
    assert _keys(table) == ["a"]


@pytest.mark.parametrize("step", ["open_new", "sync", "rename"])
@pytest.mark.parametrize("failing", range(1, 7))
def test_a_step_that_fails_leaves_the_old_table_or_the_whole_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, failing: int
) -> None:
    table = _grades(tmp_path, "a", "b")
    calls, real = 0, getattr(atomic, step)

    def flaky(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(5, "Input/output error")
        return real(*arguments)

    monkeypatch.setattr(atomic, step, flaky)
    steps = 6 if step == "sync" else 3
    if failing > steps:
        table.replace_with(_in_parts("c", "d", "e"))
    else:
        with pytest.raises(StoreError, match="Cannot write"):
            table.replace_with(_in_parts("c", "d", "e"))
    monkeypatch.undo()
    # The last sync is that of the folder, after the rename which counts.
    new = failing > steps or (step, failing) == ("sync", 6)
    assert _keys(table) == ([*"cde"] if new else [*"ab"])
    assert not any("rest" in name for name in _parts(table)) or new
    table.replace_with(_in_parts("c", "d", "e"))
    assert _keys(table) == [*"cde"]
    assert len(_parts(table)) == 3


def _leave_unfinished(table: Table[r.Grade], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process leaves that is killed before the last rename."""
    real = atomic.rename

    def dying(source: Path, target: Path) -> None:
        if "-part-000000-" in target.name:
            raise Crash
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "rename", dying)
        patch.setattr(TableFolder, "remove_unfinished", lambda *_: None)
        with pytest.raises(Crash):
            table.replace_with(_in_parts("x", "y", "z"))


@pytest.mark.parametrize("names", ["", "ab"])
def test_what_a_killed_replacement_left_never_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    for step in ("append", "replace", "clean"):
        table = _grades(tmp_path / step, *names)
        _leave_unfinished(table, monkeypatch)
        assert sum("rest" in name for name in _parts(table)) == 2
        assert _keys(table) == [*names]
        if step == "append":  # without cleaning up: its number 0 must not make them count
            table.append([grade("c")])
            assert _keys(table) == [*names, "c"]
        elif step == "replace":
            table.replace_with(_in_parts("c", "d"))
            assert _keys(table) == ["c", "d"]
        table.remove_superseded()
        assert sum("rest" in name for name in _parts(table)) == (step == "replace")


def test_the_rest_of_a_replacement_whose_first_shard_was_deleted_is_redone(tmp_path: Path) -> None:
    table = _grades(tmp_path)
    table.replace_with(_in_parts("a", "b"))
    table.append([grade("c")])
    (first,) = table.folder.glob("*-part-000000-*")
    first.unlink()
    assert _keys(table) == ["c"]
    table.append([grade("d")])
    assert _keys(table) == ["c", "d"]
    table.remove_superseded()
    assert _parts(table) == ["g0001-part-000003", "g0001-part-000002"][::-1]


def test_a_listing_that_misses_the_rest_is_not_taken_for_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing that is under way while shards are added may miss some that are older."""
    table = _grades(tmp_path)
    table.replace_with(_in_parts("a", "b", "c"))
    real = shards.all_shards
    whole = real(table.folder)
    for missed in (whole[:1], [whole[0], whole[2]]):
        listings = [missed]

        def partial(folder: Path, listings: list[list[Shard]] = listings) -> list[Shard]:
            return listings.pop() if listings else real(folder)

        monkeypatch.setattr(shards, "all_shards", partial)
        assert _keys(table) == [*"abc"]


def test_only_a_finished_generation_counts() -> None:
    old, first, rest = (
        Shard(*name, None, 0) for name in ((1, 0, False), (2, 0, False), (2, 1, True))
    )
    assert current([]) == []
    assert current([rest]) == []
    assert current([old, rest]) == [old]
    assert current([old, first, rest]) == [first, rest]
    assert current([old, first]) == [first]


def test_the_identity_changes_with_the_rows_and_with_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = _grades(tmp_path / "one"), _grades(tmp_path / "two", "x")
    found = [table.identity()]
    table.append([grade("a")])
    found.append(table.identity())
    other.replace([grade("a")])  # another generation
    assert other.identity() == found[-1]
    table.append([grade("b")])
    found.append(table.identity())
    table.append([grade("b", "again")])
    found.append(table.identity())
    table.replace([grade("b", "again"), grade("a")])
    found.append(table.identity())
    assert len(set(found)) == len(found)
    monkeypatch.setattr(Path, "open", None)
    assert table.identity() == found[-1]


def test_a_large_table_is_replaced_in_parts(tmp_path: Path) -> None:
    table = Table(tmp_path, TRACES, _free)
    table.replace_with([trace(f"{part} {i}") for i in range(20)] for part in range(30))
    assert len(table.keys()) == 600
    assert [len(batch) for batch in table.batches()] == [20] * 30
