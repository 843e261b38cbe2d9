"""Traces of observed programs: MLflow and Phoenix as they wrote them, Langfuse as documented."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import pytest
from importers_samples import SAMPLES, all_rows, rows_of, write_lines

from divtok.errors import DataError
from divtok.importers import BadRow
from divtok.importers.found import found_files
from divtok.importers.importer import Line

MLFLOW = SAMPLES / "mlflow" / "traces.json"
PHOENIX = SAMPLES / "phoenix" / "spans.json"
ANNOTATIONS = SAMPLES / "phoenix" / "annotations.json"
SAID = [("2 + 3?", "Easy.\n#### 6", "gpt-x"), ("1 + 1?", "Easy.\n#### 2", "gpt-x")]


def told(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(row.question, row.response, row.generator) for row in rows]


def verdicts(rows: list[Any]) -> list[dict[str, str]]:
    return [{v.scorer: v.verdict.value for v in row.verdicts} for row in rows]


def written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_mlflow_with_feedback_and_expectations() -> None:
    rows = rows_of(MLFLOW, "mlflow")
    assert told(rows) == SAID
    assert [row.answer for row in rows] == ["5", "2"]
    assert verdicts(rows) == [
        {"correct": "incorrect", "quality": "undetermined"},
        {"correct": "correct", "quality": "undetermined"},
    ]
    assert {row.benchmark for row in rows} == {"traces"}


def test_one_trace_a_list_and_lines_say_the_same(tmp_path: Path) -> None:
    traces = json.loads(MLFLOW.read_text())["traces"]
    for path in (
        written(tmp_path / "list.json", traces),
        write_lines(tmp_path / "lines.jsonl", traces),
    ):
        assert found_files([path]).format == "mlflow"
        assert told(rows_of(path, "mlflow")) == SAID
    one = written(tmp_path / "one.json", traces[1])
    assert told(rows_of(one, "mlflow")) == SAID[1:]


def test_mlflow_that_failed_or_was_corrected(tmp_path: Path) -> None:
    first, second = json.loads(MLFLOW.read_text())["traces"]
    first["info"]["state"] = "ERROR"
    first["data"]["spans"][0]["status"]["message"] = "out of\nmemory"
    second["info"]["assessments"][0]["valid"] = False
    rows = rows_of(written(tmp_path / "a.json", [first, second]), "mlflow")
    assert [(r.finish_reason, r.reason) for r in rows] == [
        ("failed", "out of memory"),
        ("unknown", None),
    ]
    assert verdicts(rows)[1] == {"quality": "undetermined"}


def trace(given: Any, returned: Any, **more: Any) -> dict[str, Any]:
    """In the form of Langfuse's GET /api/public/traces/ID."""
    model = {"type": "GENERATION", "model": "gpt-x", "parentObservationId": "o1", "id": "o2"}
    root = {"type": "SPAN", "parentObservationId": None, "id": "o1", "level": "DEFAULT"}
    return {
        "id": "t1", "timestamp": "2026-11-18T20:00:00Z", "input": given, "output": returned,
        "observations": [root, model], "scores": [], **more,
    }  # fmt: skip


def test_langfuse_with_scores(tmp_path: Path) -> None:
    scores = [
        {"name": "match", "dataType": "BOOLEAN", "value": 1, "stringValue": "True"},
        {"name": "judge", "dataType": "CATEGORICAL", "stringValue": "wrong"},
        {"name": "quality", "dataType": "NUMERIC", "value": 0.7},
        {"name": "inner", "dataType": "NUMERIC", "value": 1, "observationId": "o2"},
    ]
    path = written(tmp_path / "trace.json", trace({"question": "1 + 1?"}, "2", scores=scores))
    assert found_files([path]).format == "langfuse"
    rows = rows_of(path, "langfuse")
    assert told(rows) == [("1 + 1?", "2", "gpt-x")]
    assert verdicts(rows) == [{"match": "correct", "judge": "incorrect", "quality": "undetermined"}]


USER = {"role": "user", "content": "1 + 1?"}
ANSWER = {"role": "assistant", "content": "2"}


@pytest.mark.parametrize(
    ("given", "returned"),
    [
        ("1 + 1?", "2"),
        ([{"role": "system", "content": "Brief."}, USER], ANSWER),
        ({"messages": [USER], "temperature": 0}, {"messages": [USER, ANSWER]}),
        ({"messages": [USER]}, {"choices": [{"message": ANSWER}]}),
        ({"input": "1 + 1?", "user": "u"}, {"output": "2", "seconds": 3}),
        ({"anything": "1 + 1?"}, {"result": "2"}),
        ({"prompt": "1 + 1?"}, {
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "2"}]}]
        }),
    ],
)  # fmt: skip
def test_what_goes_in_and_comes_out(tmp_path: Path, given: Any, returned: Any) -> None:
    path = written(tmp_path / "a.json", {"data": [trace(given, returned)], "meta": {}})
    assert told(rows_of(path, "langfuse")) == [("1 + 1?", "2", "gpt-x")]


def test_columns_reach_into_a_trace(tmp_path: Path) -> None:
    metadata = {"q": "1 + 1?", "a": "two", "gold": 2, "n": 7}
    path = written(tmp_path / "a.json", trace([1], {"x": 1, "y": 2}, metadata=metadata))
    with pytest.raises(DataError, match=r"item 1: what came out is no text.*--column response="):
        all_rows(path, "langfuse")
    columns = {
        name: f"metadata.{at}"
        for name, at in {"question": "q", "response": "a", "answer": "gold", "id": "n"}.items()
    }
    (row,) = rows_of(path, "langfuse", columns=columns)
    assert (row.question, row.response, row.answer, row.problem_id) == ("1 + 1?", "two", "2", "7")


def test_observations_alone_make_traces(tmp_path: Path) -> None:
    observations = [
        {"traceId": "t1", "startTime": "x", "type": "GENERATION", "model": "gpt-x",
         "parentObservationId": "r", "input": "inner", "output": "inner"},
        {"traceId": "t1", "startTime": "x", "type": "SPAN", "parentObservationId": None,
         "input": "1 + 1?", "output": "2"},
        {"traceId": "t2", "startTime": "x", "type": "GENERATION", "model": "gpt-x",
         "parentObservationId": None, "input": "2 + 2?", "level": "ERROR", "statusMessage": "no"},
    ]  # fmt: skip
    path = written(tmp_path / "page.json", {"data": observations, "meta": {"cursor": None}})
    assert found_files([path]).format == "langfuse"
    rows = rows_of(path, "langfuse")
    assert told(rows) == [("1 + 1?", "2", "gpt-x"), ("2 + 2?", "", "gpt-x")]
    assert (rows[1].finish_reason, rows[1].reason) == ("failed", "no")


def test_text_that_is_json_stays_text(tmp_path: Path) -> None:
    said = '{"final_answer": "2", "confidence": 0.9}'
    path = written(tmp_path / "a.json", trace("[1, 2]: how many?", said))
    assert told(rows_of(path, "langfuse")) == [("[1, 2]: how many?", said, "gpt-x")]
    span = json.loads(PHOENIX.read_text())["data"][0]
    span["attributes"] |= {"output.value": said, "llm.model_name": "m"}
    assert rows_of(written(tmp_path / "b.json", [span]), "phoenix")[0].response == said
    span["attributes"] |= {"output.value": '{"text": "2"}', "output.mime_type": "application/json"}
    assert rows_of(written(tmp_path / "c.json", [span]), "phoenix")[0].response == "2"


def test_phoenix_as_its_interface_wrote_it() -> None:
    assert told(rows_of(PHOENIX, "phoenix")) == SAID


def test_phoenix_with_annotations(tmp_path: Path) -> None:
    """As its command line puts them: traces with spans, and annotations in the spans."""
    spans = json.loads(PHOENIX.read_text())["data"]
    said = {a["span_id"]: a for a in json.loads(ANNOTATIONS.read_text())["data"]}
    traces: dict[str, list[Any]] = {}
    for span in spans:
        found = said.get(span["context"]["span_id"])
        traces.setdefault(span["context"]["trace_id"], []).append(
            {**span, "annotations": [] if found is None else [found]}
        )
    exported = [{"traceId": name, "spans": inside} for name, inside in traces.items()]
    path = written(tmp_path / "traces.json", exported)
    assert found_files([path]).format == "phoenix"
    rows = rows_of(path, "phoenix")
    assert told(rows) == SAID
    assert verdicts(rows) == [{"match": "incorrect"}, {"match": "correct"}]
    files = [written(tmp_path / f"{n}.json", trace) for n, trace in enumerate(exported)]
    assert [told(rows_of(file, "phoenix"))[0] for file in files] == SAID


def test_spans_whose_parents_are_elsewhere_are_rows(tmp_path: Path) -> None:
    spans = [s for s in json.loads(PHOENIX.read_text())["data"] if s["span_kind"] == "LLM"]
    spans[0]["status_code"] = "ERROR"
    rows = rows_of(written(tmp_path / "a.json", spans), "phoenix")
    assert told(rows) == [("2 + 3?", "", "gpt-x"), ("1 + 1?", "#### 2", "gpt-x")]
    assert rows[0].reason == "the span ended in an error"


@pytest.mark.parametrize(
    ("file_format", "found", "why"),
    [
        ("mlflow", {"info": {}}, "not a trace of MLflow"),
        ("mlflow", {"info": {}, "data": {"spans": []}}, "has no root span"),
        ("langfuse", {"id": 1}, "not a trace of Langfuse"),
        ("phoenix", {"context": {}}, "not a span of Phoenix"),
        ("langfuse", trace(None, "2"), "what went in is no text"),
    ],
)
def test_another_object_is_named_or_set_aside(
    tmp_path: Path, file_format: str, found: Any, why: str
) -> None:
    path = written(tmp_path / "a.json", [found])
    with pytest.raises(DataError, match=f"item 1: .*{why}"):
        all_rows(path, file_format)
    (row,) = all_rows(path, file_format, skip_bad=True)
    assert isinstance(row, BadRow)


def test_several_choices_are_never_dropped_in_silence(tmp_path: Path) -> None:
    choices = [{"message": ANSWER}, {"message": {**ANSWER, "content": "3"}}]
    path = written(tmp_path / "a.json", trace("1 + 1?", {"choices": choices}))
    with pytest.raises(DataError, match=r"item 1: what came out has 2 choices.*--column response="):
        all_rows(path, "langfuse")
    (row,) = all_rows(path, "langfuse", skip_bad=True)
    assert isinstance(row, BadRow)
    columns = {"response": "output.choices.1.message"}
    assert [row.response for row in rows_of(path, "langfuse", columns=columns)] == ["3"]


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_may_begin_with_a_byte_order_mark(tmp_path: Path, indent: int | None) -> None:
    traces = json.loads(MLFLOW.read_text())["traces"]
    path = tmp_path / "list.json"
    path.write_bytes(codecs.BOM_UTF8 + json.dumps(traces, indent=indent).encode())
    assert found_files([path]).format == "mlflow"
    assert told(rows_of(path, "mlflow")) == SAID


def test_spans_of_phoenix_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(*_: Any) -> bool:
        raise AssertionError("this takes quadratic time")

    monkeypatch.setattr(Line, "__eq__", compare)
    assert told(rows_of(PHOENIX, "phoenix")) == SAID


def test_no_traces_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no traces"):
        all_rows(written(tmp_path / "a.json", []), "mlflow")
    with pytest.raises(DataError, match="not a JSON object"):
        all_rows(written(tmp_path / "b.json", [1]), "mlflow")
