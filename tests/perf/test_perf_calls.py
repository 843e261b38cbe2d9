"""The measurement of one call for many rows: both ways read the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtok.store.run import Run
from perf import calls


def test_both_ways_read_the_same_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "WRITTEN", 4)
    calls.make(tmp_path, 10)
    rows = Run.open(tmp_path / "run").trajectories.read()
    assert len({row.key for row in rows}) == len({row.text for row in rows}) == 10
    assert [row.sample for row in rows] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    tokens = sum(len(row.prompt_ids) + len(row.token_ids) for row in rows)
    for way in calls.WAYS:
        found = calls.measure(tmp_path, way)
        assert found["tokens"] == tokens
        assert found["wall"] > 0
