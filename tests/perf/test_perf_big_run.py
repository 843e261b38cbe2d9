"""The run that is made up: it is one that the verbs take, and measuring them says what it cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from divtok.store.run import Run
from perf.big_run.__main__ import main
from perf.big_run.make import BENCHMARKS, GENERATORS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("big") / "run"
    small = ["--traces", "20", "--tokens", "30", "--trace-rows", "8"]
    assert main(["make", str(folder), *small]) == 0
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_run_is_whole(made: Path) -> None:
    run = Run.open(made)
    trajectories, traces, grades = run.trajectories.read(), run.traces.read(), run.grades.read()
    assert len({t.key for t in trajectories}) == 20
    assert [t.key for t in trajectories] == [t.key for t in traces] == [g.key for g in grades]
    # Ten samples of one problem of each benchmark: there is no more for the other generator.
    assert {t.generator for t in trajectories} == {GENERATORS[0]}
    assert [t.benchmark for t in trajectories] == [b for b in BENCHMARKS for _ in range(10)]
    assert [len(t.token_ids) for t in trajectories] == [len(trace) for trace in traces]
    assert 25 < sum(map(len, traces)) / 20 < 35
    for trace in traces:
        assert ((trace.jsd_bits >= 0) & (trace.jsd_bits <= 1)).all()
        assert (trace.logprob_p <= 0).all()


def test_a_folder_with_a_run_is_left_alone(made: Path) -> None:
    before = content(made)
    with pytest.raises(SystemExit, match="holds a run already"):
        main(["make", str(made), "--traces", "20", "--tokens", "30"])
    after = content(made)
    assert before == {name: after[name] for name in before}


def test_measuring_adds_to_the_file_and_leaves_the_run(made: Path, tmp_path: Path) -> None:
    before, out = content(made), tmp_path / "found.json"
    for number in (1, 2):
        given = ["--verbs", "score", "--note", f"try {number}", "--out", str(out)]
        assert main(["measure", str(made), *given]) == 0
    assert content(made) == before
    assert list(made.parent.iterdir()) == [made]
    found = json.loads(out.read_text())
    assert set(found) == {"command", "machine", "measurements"}
    assert [m["note"] for m in found["measurements"]] == ["try 1", "try 2"]
    for measurement in found["measurements"]:
        assert_whole(measurement)


def assert_whole(found: dict[str, Any]) -> None:
    assert set(found) == {"date", "commit", "run", "note", "limit_gib", "children"}
    about = found["run"]
    assert (about["traces"], about["shards_of_traces"]) == (20, 4)
    assert 500 < about["tokens"] < 700
    assert set(about["bytes"]) == {"problems", "trajectories", "grades", "traces"}
    start, score = found["children"]
    assert (start["command"], score["command"]) == ("divtok --version", "divtok score RUN")
    for child in (start, score):
        assert child["ended"] == "exit 0"
        assert set(child) == {
            "command", "ended", "seconds", "cpu_seconds", "load_before", "peak_bytes", "read_bytes",
        }  # fmt: skip
        assert min(child["seconds"], child["peak_bytes"], child["read_bytes"]) > 0
    assert score["read_bytes"] > start["read_bytes"]


def test_a_process_beyond_the_limit_is_stopped(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    limit = ["--limit-gb", "0.001", "--verbs", "score", "--out", str(out)]
    assert main(["measure", str(made), *limit]) == 0
    children = json.loads(out.read_text())["measurements"][0]["children"]
    assert all(child["ended"].startswith("killed at ") for child in children)
