"""Rows without numbers: how many, why, and whether trying again would help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stages_samples import Row, handmade_run, trace_of

from divtok.records import Reason
from divtok.stages.failures import Failures, failed_rows


@pytest.mark.parametrize(
    ("reasons", "again", "sentence"),
    [
        (
            ("trace: too long",),
            0,
            "1 row could not be made; the first: trace: too long. "
            "Trying again would give the same.",
        ),
        (
            ("response: no answer", "trace: too long"),
            1,
            "2 rows could not be made; the first: response: no answer. The same command with "
            "--retry-failed tries 1 of them again.",
        ),
        (
            ("response: a", "response: b"),
            2,
            "2 rows could not be made; the first: response: a. The same command with "
            "--retry-failed tries them again.",
        ),
    ],
)
def test_what_is_said_of_them(reasons: tuple[str, ...], again: int, sentence: str) -> None:
    assert Failures(reasons, again).sentence() == sentence


@pytest.mark.parametrize(
    ("status", "again"), [("too_long", 0), ("empty", 0), ("nonfinite", 0), ("failed", 1)]
)
def test_what_follows_from_the_response_is_not_tried_again(
    tmp_path: Path, status: Any, again: int
) -> None:
    rows = [Row("a"), Row("b")]
    run = handmade_run(tmp_path, rows)
    with run.lock():
        run.traces.append([trace_of(rows[1], status=status, reason=Reason(status, "so it is"))])
    assert failed_rows(run) == Failures(("trace: so it is",), again)
