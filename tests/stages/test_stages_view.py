"""The page of a run: which responses are on it, and what it is told of them."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages_samples import (
    ONE_RESPONSE,
    RIGHT_OR_WRONG,
    Row,
    finish,
    handmade_run,
    small_config,
    trace_of,
    write_responses,
)

import divtok
from divtok.errors import DataError, UsageError
from divtok.page.data import Packed
from divtok.records import Verdict
from divtok.score.estimators.dtc import divergent_tokens
from divtok.stages.view import Viewed, view
from divtok.store.run import Run

ROWS = [
    Row(sample=0, values={"dtc_lin": 0.68, "nsl": 0.5}, count=3),
    Row(sample=1, values={"dtc_lin": 0.6, "nsl": None}, count=3, verdict=Verdict.INCORRECT),
    Row(sample=2, values={"dtc_lin": 0.68}, count=3, truncated=True),
]


def data_of(path: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"))
    assert found is not None
    return json.loads(found[1])


def viewed(run: Run, *overrides: str, **options: Any) -> Viewed:
    return view(run, small_config(*overrides), **{"out": None, "tell": print} | options)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return handmade_run(tmp_path / "made", ROWS)


def test_a_page_has_what_the_run_knows(run: Run) -> None:
    found = viewed(run)
    assert found == Viewed(run.report / "view.html", 3, 3)
    data = data_of(found.path)
    first, second, third = data["rows"]
    assert (first["question"], first["gold"], first["answer"]) == ("Question a?", "1", "1")
    assert [row["graded"] for row in data["rows"]] == [True, True, False]
    assert [row["verdict"] for row in (second, third)] == ["incorrect", "correct"]
    assert data["run"] == {
        "title": "made",
        "theta": 0.05,
        "estimators": [{"name": "nsl", "share": True}, {"name": "dtc_lin", "share": True}],
        "estimator": "dtc_lin",
        "bins": 20,
        "total": 3,
    }
    reading = first["reading"]
    assert (reading["pair"], reading["count"]) == (["divtok/tiny-0.5m", "divtok/tiny-0.3m"], 3)
    assert reading["confidences"]["dtc_lin"]["value"] == 0.68
    bits = Packed(**reading["tokens"]["jsd"]).numbers()
    assert np.abs(bits - np.linspace(0, 0.9, 4)).max() < 2e-5
    assert second["reading"]["confidences"]["nsl"]["value"] is None
    assert second["reading"]["reason"] == "no numbers"


def test_theta_moves_only_what_is_the_line_in_the_count(run: Run) -> None:
    lines = [row["reading"]["line"] for row in data_of(viewed(run).path)["rows"]]
    # 0.95 - 0.09 * 3 is 0.68; 0.6 is something else, as under a map.
    assert lines == [{"n": 10.0, "a": 0.95, "b": 0.05}, None, {"n": 10.0, "a": 0.95, "b": 0.05}]


def test_an_estimator_may_be_named_and_a_limit_given(run: Run, tmp_path: Path) -> None:
    found = viewed(run, out=tmp_path / "new" / "page.html", limit=2, estimator="nsl")
    assert found == Viewed(tmp_path / "new" / "page.html", 2, 3)
    data = data_of(found.path)
    assert len(data["rows"]) == 2
    assert (data["run"]["estimator"], data["run"]["total"]) == ("nsl", 3)


def test_what_cannot_be_shown_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        viewed(run, out=tmp_path)
    with pytest.raises(UsageError, match="limit of 1 or more"):
        viewed(run, limit=0)
    with pytest.raises(UsageError, match="no confidences of 'no'"):
        viewed(run, estimator="no")
    with pytest.raises(DataError, match="has no responses"):
        viewed(handmade_run(tmp_path / "empty", []))


def test_a_response_that_was_not_read_has_its_text_and_the_reason(tmp_path: Path) -> None:
    config = small_config(*ONE_RESPONSE)
    run = write_responses(tmp_path / "new", config, ["It is \\boxed{1}."])
    [row] = data_of(view(run, config, out=None, tell=print).path)["rows"]
    assert (row["response"], row["reading"]["tokens"]) == ("It is \\boxed{1}.", None)
    assert (row["reading"]["reason"], row["verdict"]) == ("not read yet", None)
    empty = Row(tokens=0)
    run = handmade_run(tmp_path / "empty", [empty])
    with run.lock():
        run.traces.replace([trace_of(empty, status="empty", reason="no tokens")])
    [row] = data_of(viewed(run).path)["rows"]
    assert (row["reading"]["tokens"], row["reading"]["count"]) == (None, None)


def test_where_no_tokenizer_is_at_hand_there_are_divergences_and_the_text(tmp_path: Path) -> None:
    stranger = Row(generator="far/away", values={"nsl": 0.5})
    overrides = ("generators=['far/away']", "trace.auxiliary=divtok/tiny-0.3m", "score.theta=0.05")
    run = handmade_run(tmp_path, [stranger], config=small_config(*overrides))
    told: list[str] = []
    found = viewed(run, *overrides, tell=told.append)
    [row] = data_of(found.path)["rows"]
    assert (row["reading"]["tokens"]["text"], row["response"]) == (None, r"\boxed{1}")
    assert [line.startswith("The page has no texts of tokens: ") for line in told] == [True]


def test_another_run_is_put_beside(run: Run, tmp_path: Path) -> None:
    fewer = [dataclasses.replace(row, values={"nsl": 0.9}) for row in ROWS[:2]]
    other = handmade_run(tmp_path / "other", fewer)
    data = data_of(viewed(run, against=other).path)
    assert data["against"]["title"] == "other"
    assert data["against"]["estimator"] == "nsl"
    values = [row["other"] and row["other"]["confidences"]["nsl"]["value"] for row in data["rows"]]
    assert values == [0.9, 0.9, None]
    stranger = handmade_run(tmp_path / "stranger", [Row(problem="b")])
    with pytest.raises(DataError, match="no response in common"):
        viewed(run, against=stranger)


def test_a_run_of_real_models_is_marked_as_it_was_counted(tmp_path: Path) -> None:
    config = small_config("samples=4", "benchmarks=['arith-easy']")
    run = write_responses(tmp_path / "real", config, RIGHT_OR_WRONG)
    finish(run, config)
    path = divtok.Run(run.path).view(tmp_path / "page.html")
    data = data_of(path)
    traces = run.traces.lookup()
    counts = {row.key: row.count for row in run.counts.read()}
    assert sum(counts.values()) > 0
    for row in data["rows"]:
        tokens = row["reading"]["tokens"]
        trace = traces[(row["key"], *row["reading"]["pair"])]
        shown = Packed(**tokens["jsd"]).numbers() > data["run"]["theta"]
        marks = divergent_tokens(trace, theta=0.05)
        assert (shown & trace.reasoning() == marks).all()
        assert row["reading"]["count"] == counts[row["key"]] == marks.sum()
        assert row["reading"]["line"] == {"n": 10.0, "a": 0.95, "b": 0.05}
        assert "".join(tokens["text"]).startswith(RIGHT_OR_WRONG[row["sample"] % 2])
        start, stop = tokens["answer"]
        assert "".join(tokens["text"][start:stop]).strip() in ("7", "915")
