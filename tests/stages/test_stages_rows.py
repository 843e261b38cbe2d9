"""The rows of a run: every response with what is known of it, whatever is missing."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages_samples import (
    AUXILIARY,
    GENERATOR,
    Row,
    handmade_run,
    no_models,
    small_config,
    trace_of,
    write_responses,
)

from divtok.errors import ModelError
from divtok.models.load import load_tokenizer
from divtok.records import Confidence, Counts, Verdict
from divtok.stages import suspects
from divtok.stages.facts import column_of
from divtok.stages.rows import RunRows, arrow_table
from divtok.store.run import Run

Said = list[str]


def rows_of(run: Run, said: Said | None = None, **options: Any) -> list[dict[str, Any]]:
    rows = RunRows(run, small_config(), tell=(said if said is not None else []).append, **options)
    return [row for batch in rows.batches() for row in batch]


def test_a_row_has_all_that_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_models(monkeypatch)
    row = Row(values={"dtc_lin": 0.68, "nsl": 0.5}, count=3)
    run = handmade_run(tmp_path, [row])
    texts = [load_tokenizer(GENERATOR).decode([token]) for token in (1, 2, 3)]
    assert rows_of(run) == [
        {
            "key": row.key,
            "benchmark": "bench",
            "problem_id": "a",
            "sample": 0,
            "generator": GENERATOR,
            "question": "Question a?",
            "response": r"\boxed{1}",
            "finish_reason": "stop",
            "gold": "1",
            "answer": "1",
            "verdict": "correct",
            "verdict_reason": None,
            "nsl": 0.5,
            "dtc_lin": 0.68,
            "count": 3,
            "tokens": 4,
            "theta": 0.05,
            "unexpected_count": 0,
            "suspect_tokens": [
                {"position": 1, "text": texts[0], "jsd_bits": 0.3},
                {"position": 2, "text": texts[1], "jsd_bits": 0.6},
                {"position": 3, "text": texts[2], "jsd_bits": 0.9},
            ],
            "reason": None,
        }
    ]


def test_without_tokens_no_trace_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = handmade_run(tmp_path, [Row(values={"dtc_lin": 0.68}, count=3)])
    monkeypatch.setattr(suspects, "scored_traces", None)
    (row,) = rows_of(run, tokens=False)
    assert "suspect_tokens" not in row
    assert (row["dtc_lin"], row["count"]) == (0.68, 3)


def test_unexpected_tokens_are_counted_where_a_trace_tells(tmp_path: Path) -> None:
    unlikely = np.array([-9.0, -9.0, 0.0, -0.5], dtype=np.float32)
    certain = np.zeros(4, dtype=np.float32)
    columns = {"logprob_p": unlikely, "logprob_q": unlikely}
    columns |= {"entropy_p": certain, "entropy_q": certain}
    bits = np.full(4, 0.1, dtype=np.float32)
    bounds = {"exact": False, "jsd_low_bits": bits, "jsd_high_bits": bits}
    rows = [Row(sample=i) for i in range(3)]
    run = handmade_run(tmp_path, rows)
    with run.lock():
        run.traces.replace([trace_of(rows[0], **columns), trace_of(rows[1], **bounds)])
    assert [row["unexpected_count"] for row in rows_of(run)] == [2, None, None]


def test_what_is_missing_is_none_with_a_reason(tmp_path: Path) -> None:
    rows = [
        Row(sample=0, values={"dtc_lin": None, "nsl": 0.5}, count=3),
        Row(sample=1, verdict=None),
        Row(sample=2, verdict=Verdict.UNANSWERED, values={"dtc_lin": 0.95, "nsl": 0.4}, count=0),
    ]
    run = handmade_run(tmp_path, rows)
    found = rows_of(run)
    assert [row["dtc_lin"] for row in found] == [None, None, 0.95]
    assert [row["reason"] for row in found] == ["no numbers", "not scored yet", None]
    assert [row["verdict"] for row in found] == ["correct", None, "unanswered"]
    assert [row["verdict_reason"] for row in found] == [None, "not graded yet", None]


def test_a_run_that_was_only_generated_has_rows(tmp_path: Path) -> None:
    run = write_responses(tmp_path, small_config(), ["It is \\boxed{1}."])
    found = rows_of(run)
    assert len(found) == 8
    for row in found:
        assert row["response"] == "It is \\boxed{1}."
        assert (row["count"], row["suspect_tokens"], row["theta"]) == (None, None, None)
        assert row["reason"] == "not read yet"


def test_a_run_that_was_read_and_not_scored_is_counted_here(tmp_path: Path) -> None:
    run = handmade_run(tmp_path, [Row(tokens=5)])
    for tokens in (True, False):
        (row,) = rows_of(run, tokens=tokens)
        # 0, 0.225, 0.45, 0.675 and 0.9 bits at theta 0.05
        assert (row["count"], row["tokens"], row["theta"]) == (4, 5, 0.05)
        assert row["reason"] == "not scored yet"


def test_the_theta_is_that_of_the_counts(tmp_path: Path) -> None:
    row = Row()
    run = handmade_run(tmp_path, [row])
    with run.lock():
        run.counts.append(
            [Counts(row.key, GENERATOR, AUXILIARY, 0.5, 2, None, None, 4, 4, 0.0, 0, 0)]
        )
    (found,) = rows_of(run)
    assert (found["theta"], found["count"]) == (0.5, 2)
    assert [token["position"] for token in found["suspect_tokens"]] == [2, 3]


def test_bounds_of_traces_that_are_not_exact_have_columns(tmp_path: Path) -> None:
    row, exact = Row(sample=0), Row(sample=1, values={"dtc_lin": 0.77}, count=2)
    run = handmade_run(tmp_path, [row, exact])
    low = np.array([0, 0.01, 0.3, 0.8], np.float32)
    high = np.array([0.1, 0.59, 0.9, 1.0], np.float32)
    with run.lock():
        run.traces.append([trace_of(row, exact=False, jsd_low_bits=low, jsd_high_bits=high)])
        run.confidences.append(
            [Confidence(row.key, "dtc_lin", {}, 0.68, None, low=0.59, high=0.77)]
        )
        run.counts.append([Counts(row.key, GENERATOR, AUXILIARY, 0.05, 3, 2, 4, 4, 4, 0.0, 0, 0)])
    first, second = rows_of(run)
    names = ("dtc_lin", "dtc_lin_low", "dtc_lin_high", "count", "count_low", "count_high")
    assert [first[name] for name in names] == [0.68, 0.59, 0.77, 3, 2, 4]
    assert [second[name] for name in names] == [0.77, None, None, 2, None, None]


def test_rows_are_in_the_order_of_writing_over_shards_and_the_last_of_a_key_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from divtok.stages import rows

    monkeypatch.setattr(rows, "ROWS_AT_ONCE", 2)
    given = [Row(problem=name, values={"dtc_lin": 0.5}) for name in "cab"]
    run = handmade_run(tmp_path, given)
    more = dataclasses.replace(run.trajectories.read()[0], key="zz", sample=9, text="new")
    with run.lock():
        run.trajectories.append([more])
        run.trajectories.append([dataclasses.replace(more, text="newer")])
    found = rows_of(run)
    assert [row["key"] for row in found] == [*(row.key for row in given), "zz"]
    assert found[-1]["response"] == "newer"
    assert found[-1]["dtc_lin"] is None
    assert found[-1]["reason"] == "not read yet"


def test_without_a_tokenizer_there_are_positions_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ModelError("There is no connection.")

    monkeypatch.setattr(suspects, "reader_tokenizer", refuse)
    said: Said = []
    found = rows_of(handmade_run(tmp_path, [Row(sample=i) for i in range(3)]), said)
    tokens = [(t["position"], t["text"]) for t in found[2]["suspect_tokens"]]
    assert tokens == [(1, None), (2, None), (3, None)]
    assert said == ["Divergent tokens have positions and no texts: There is no connection."]


def test_no_hub_is_asked_for_a_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a hub was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    name = "someone/some-model"
    row = Row(generator=name)
    said: Said = []
    given = (f"generators=['{name}']", f"trace.auxiliary={AUXILIARY}", "score.theta=0.05")
    config = small_config(*given)
    run = handmade_run(tmp_path, [row], config=config)
    (found,) = [r for batch in RunRows(run, config, tell=said.append).batches() for r in batch]
    assert [token["position"] for token in found["suspect_tokens"]] == [1, 2, 3]
    assert said == [
        f"Divergent tokens have positions and no texts: The tokenizer of '{name}' is not on this "
        f"machine. Fetch it: hf download {name} --include 'tokenizer*' config.json"
    ]


def test_tokens_that_are_not_those_that_were_read_have_no_texts(tmp_path: Path) -> None:
    row = Row()
    run = handmade_run(tmp_path, [row])
    with run.lock():
        run.traces.append([trace_of(row, retokenized=True)])  # the text has more tokens than 4
    said: Said = []
    (found,) = rows_of(run, said)
    assert [token["text"] for token in found["suspect_tokens"]] == [None, None, None]
    assert len(said) == 1


def test_an_estimator_called_like_a_column_has_one_of_another_name(tmp_path: Path) -> None:
    assert column_of("answer") == "confidence_answer"
    assert column_of("dtc_lin") == "dtc_lin"
    run = handmade_run(tmp_path, [Row(values={"answer": 0.25}, count=0)])
    (row,) = rows_of(run)
    assert (row["answer"], row["confidence_answer"]) == ("1", 0.25)


def test_a_frame_has_the_types_of_the_columns_even_without_values(tmp_path: Path) -> None:
    import polars as pl

    run = handmade_run(tmp_path, [Row(verdict=None, values={"dtc_lin": None})])
    frame = RunRows(run, small_config(), tell=print).frame()
    assert frame.schema["dtc_lin"] == pl.Float64
    assert frame.schema["count"] == pl.Int64
    assert frame.schema["answer"] == pl.String
    token = frame["suspect_tokens"].to_list()[0][0]
    assert list(token) == ["position", "text", "jsd_bits"]


def test_a_table_of_no_rows_has_the_columns(tmp_path: Path) -> None:
    rows = RunRows(handmade_run(tmp_path, [Row()]), small_config(), tell=print)
    assert arrow_table(rows.columns, []).column_names == [c.name for c in rows.columns]
