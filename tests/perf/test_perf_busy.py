"""Reading beside other work: what is stored, and what the page shows of it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

from perf.busy import PATH, WAYS, Repeat, Row, _busy, _used, block


def test_the_page_shows_the_best_and_the_median(tmp_path: Path) -> None:
    rows = [
        Row("tiny", way, load, tuple(Repeat(s + load, s, 0.02) for s in (3.0, 1.0, 2.5)))
        for way in ("one", "two")
        for load in (0, 4)
    ]
    path = tmp_path / "busy.json"
    machine = {"CPU": "a processor", "memory": "2 GiB", "torch": "1.0"}
    stored = {"command": "make it", "date": "2026-11-19", "machine": machine}
    path.write_text(json.dumps({**stored, "rows": [asdict(row) for row in rows]}))
    text = block(path)
    assert text.startswith("`make it` on 2026-11-19. a processor; 2 GiB. torch 1.0.")
    assert "| one | 1.00 (2.50, 3; 0.0) | 5.00 (6.50, 3; 0.0) |" in text
    assert "| busy processes beside it | 0 | 4 |" in text


def test_without_results_it_says_how_to_get_them(tmp_path: Path) -> None:
    assert "python -m perf.busy" in block(tmp_path / "none.json")


def test_the_stored_results_have_every_way() -> None:
    text = block(PATH)
    assert all(f"| {way} |" in text for way in WAYS)


def test_busy_processes_are_busy_and_go() -> None:
    with _busy(1) as beside:
        before = _used(beside[0].pid)
        deadline = time.monotonic() + 30
        while _used(beside[0].pid) < before + 0.1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert _used() >= _used(beside[0].pid)
    assert beside[0].poll() is not None
    assert not Path(f"/proc/{beside[0].pid}").exists() or os.name != "posix"
