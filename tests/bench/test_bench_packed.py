"""Packed benches: what is kept of a trace, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.packed import COLUMNS, Row, read, rounded, write
from divtok.records import Trace


def make_row(rng: np.random.Generator, number: int, size: int) -> Row:
    numbers: dict[str, Any] = {
        name: (sign * rng.exponential(2.0, size)).astype(np.float32)
        for name, sign in (("logprob_p", -1), ("logprob_q", -1), ("entropy_p", 1), ("entropy_q", 1))
    }
    share = rng.random(size).astype(np.float32)
    trace = Trace(
        key=f"k{number}",
        p="generator",
        q="small",
        jsd_bits=share**4,
        kl_pq=np.zeros(size, dtype=np.float32),
        kl_qp=np.zeros(size, dtype=np.float32),
        answer_start=None if number % 2 else size - 2,
        answer_stop=None if number % 2 else size - 1,
        turn_end=size - 1,
        dropped_mass_p=0.0,
        dropped_mass_q=0.0,
        others={"total_variation": share},
        **numbers,
    )
    return Row("test", "bench", "generator", "p1", trace.key, "correct", False, 0, "none", trace)


def test_a_number_is_kept_within_what_is_said() -> None:
    values = np.geomspace(1e-6, 60, 2000).astype(np.float32)
    values = np.concatenate([values, -values, [0.0]]).astype(np.float32)
    off = np.abs(rounded(values).astype(np.float64) - values)
    assert (off <= 0.005 * np.abs(values) + 0.0005).all()
    assert rounded(np.array([0.0, 1.0, 0.5], dtype=np.float32)).tolist() == [0.0, 1.0, 0.5]


def test_rows_come_back_with_their_traces(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [make_row(rng, number, size) for number, size in enumerate((5, 40, 1))]
    write(tmp_path / "bench.parquet", rows, {"designed": False})
    found, about = read(tmp_path / "bench.parquet")
    assert about == {"designed": False}
    for row, back in zip(rows, found, strict=True):
        assert replace(back, trace=row.trace) == row
        assert (back.trace.p, back.trace.q, back.trace.key) == ("generator", "small", row.key)
        for name in ("answer_start", "answer_stop", "turn_end"):
            assert getattr(back.trace, name) == getattr(row.trace, name)
        for name in COLUMNS:
            kept, given = back.trace.per_token(name), row.trace.per_token(name)
            assert kept is not None
            assert given is not None
            assert kept.tolist() == rounded(given).astype(np.float32).tolist()


def test_what_was_not_traced_is_refused(tmp_path: Path) -> None:
    row = make_row(np.random.default_rng(0), 0, 3)
    lacking = replace(row, trace=replace(row.trace, others={}))
    with pytest.raises(ValueError, match="total_variation"):
        write(tmp_path / "bench.parquet", [lacking], {})
