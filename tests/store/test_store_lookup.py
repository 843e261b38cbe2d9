"""Single rows by key: the last one counts, few shards are read, and little is kept."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from store_samples import exact, grade, trace

from divtok import records as r
from divtok.errors import StoreError
from divtok.store import lookup, rows, schema
from divtok.store.table import Table


def _free() -> None:
    """In place of a lock that is held."""


@pytest.fixture
def table(tmp_path: Path) -> Table[r.Trace]:
    table = Table(tmp_path / "traces", schema.traces(), _free)
    for part in range(6):
        table.append([trace(f"{part} {i}", length=part + 1) for i in range(5)])
    table.append([trace("0 1", length=9)])
    return table


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the shards that are read whole."""
    found: list[int] = []
    real = rows.load

    def watched(folder: Path, shard: Any, layout: Any, columns: Any = None, **options: Any) -> Any:
        if columns is None:
            found.append(shard.number)
        return real(folder, shard, layout, columns, **options)

    monkeypatch.setattr(rows, "load", watched)
    return found


def test_every_row_is_found_and_its_last_one_counts(
    table: Table[r.Trace], loads: list[int]
) -> None:
    stored = {(t.key, t.p, t.q): t for t in table.read()}
    loads.clear()
    found = table.lookup()
    keys = list(stored)
    random.Random(0).shuffle(keys)
    for key in keys:
        assert exact(found[key]) == exact(stored[key])
    assert len(found["0 1", "large", "small"]) == 9
    assert sorted(loads) == list(range(7))  # each shard once, whatever the order
    assert found.get(("0 1", "large", "other")) is None
    with pytest.raises(StoreError, match=r"traces has no row \('x', 'y', 'z'\)"):
        found["x", "y", "z"]


def test_nothing_is_read_before_the_first_question(
    table: Table[r.Trace], loads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", None)
        found = table.lookup()
    assert found.get(("3 0", "large", "small")) is not None
    assert loads == [3]


def test_shards_are_given_back_where_they_are_too_large(
    table: Table[r.Trace], loads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "HELD_BYTES", 1)
    found = table.lookup()
    for name in ("1 0", "1 1", "2 0", "1 0"):
        assert found[name, "large", "small"].key == name
    assert loads == [1, 2, 1]


def test_keys_with_one_hash_are_told_apart(
    table: Table[r.Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "hash", lambda _: 7, raising=False)
    found = table.lookup()
    assert found["2 3", "large", "small"].key == "2 3"
    assert len(found["0 1", "large", "small"]) == 9
    assert found.get(("x", "large", "small")) is None


def test_a_key_need_not_have_the_order_of_the_columns(tmp_path: Path) -> None:
    table = Table(tmp_path / "problems", schema.PROBLEMS, _free)
    problem = r.Problem(id="7", benchmark="sums", question="3 + 4?", answer="7")
    table.append([problem])
    assert table.lookup()["sums", "7"] == problem
    assert table.lookup().get(("7", "sums")) is None


def test_a_table_without_rows_has_none(tmp_path: Path) -> None:
    table = Table(tmp_path / "grades", schema.GRADES, _free)
    assert table.lookup().get(("a",)) is None
    table.replace([])
    assert table.lookup().get(("a",)) is None


def test_a_table_that_is_replaced_meanwhile_is_an_error(tmp_path: Path) -> None:
    table = Table(tmp_path / "grades", schema.GRADES, _free)
    table.append([grade("a")])
    table.append([grade("b")])
    found = table.lookup()
    assert found["a",] == grade("a")
    table.replace([grade("c")])
    with pytest.raises(StoreError, match="was replaced while it was read"):
        found.get(("b",))


def test_a_key_need_not_be_in_the_order_of_the_columns(tmp_path: Path) -> None:
    """Of problems the id comes first, and the benchmark is first in the key."""
    table = Table(tmp_path / "problems", schema.PROBLEMS, _free)
    table.append([r.Problem("1", "easy", "1 + 1?", "2"), r.Problem("easy", "1", "No?", None)])
    assert table.lookup()["easy", "1"].question == "1 + 1?"
    assert table.lookup()["1", "easy"].question == "No?"
