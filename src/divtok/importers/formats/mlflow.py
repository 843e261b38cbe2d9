"""Traces of MLflow, as `Trace.to_json` and `mlflow traces search --output json` write them.

Feedback is a verdict, and the expectation of a response is the gold answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from divtok.importers.columns import USUAL_NAMES, value_at
from divtok.importers.imported import Imported, fault
from divtok.importers.importer import Glimpse, ImportOptions, Line, Rows, Tell, each, importer
from divtok.importers.traces import (
    COLUMNS,
    FILES,
    TraceOf,
    decoded,
    first_object,
    trace_lines,
    trace_row,
)
from divtok.importers.verdicts import their_verdict

_EXPECTED = ("expected_response", *USUAL_NAMES["answer"])


def _is_trace(seen: Glimpse) -> bool:
    found = first_object(seen)
    return isinstance(found.get("info"), dict) and isinstance(value_at(found, "data.spans"), list)


@importer("mlflow", columns=COLUMNS, files=FILES, recognise=_is_trace)
def read_mlflow(path: Path, options: ImportOptions, _: Tell) -> Rows:
    """JSON of MLflow traces."""
    columns = options.columns
    yield from each(
        trace_lines(path), lambda line: [_imported(line, columns)], skip_bad=options.skip_bad
    )


def _imported(line: Line, columns: Mapping[str, str]) -> Imported:
    info, spans = line.row.get("info"), value_at(line.row, "data.spans")
    if not isinstance(info, dict) or not isinstance(spans, list):
        raise fault(line.where, "not a trace of MLflow, which has 'info' and 'data.spans'")
    spans = [span for span in spans if isinstance(span, dict)]
    root = next((s for s in spans if not (s.get("parent_span_id") or s.get("parent_id"))), None)
    if root is None:
        raise fault(line.where, "the trace has no root span")
    said = info.get("assessments")
    assessments = [a for a in said if isinstance(a, dict)] if isinstance(said, list) else []
    status = value_at(root, "status.message", None) or value_at(root, "status_message", None)
    ended = info.get("state", info.get("status"))
    trace = TraceOf(
        raw=line.row,
        given=_attribute(root, "mlflow.spanInputs"),
        returned=_attribute(root, "mlflow.spanOutputs"),
        model=next(_models(spans), None),
        error=(status or "the trace ended in an error") if ended == "ERROR" else None,
        answer=next(_expected(assessments), None),
        verdicts=[
            their_verdict(str(_name(a)), a["feedback"].get("value"))
            for a in assessments
            # One that was corrected later is no longer valid.
            if isinstance(a.get("feedback"), dict) and a.get("valid", True)
        ],
    )
    return trace_row(trace, columns, line.where)


def _attribute(span: Mapping[str, Any], name: str) -> Any:
    attributes = span.get("attributes")
    return decoded(attributes.get(name)) if isinstance(attributes, dict) else None


def _models(spans: list[dict[str, Any]]) -> Iterator[str]:
    """The models that the spans name, in order."""
    for span in spans:
        given = _attribute(span, "mlflow.spanInputs")
        asked = given.get("model") if isinstance(given, dict) else None
        for name in (_attribute(span, "mlflow.llm.model"), asked):
            if isinstance(name, str) and name.strip():
                yield name


def _name(assessment: Mapping[str, Any]) -> Any:
    return assessment.get("assessment_name") or assessment.get("name") or "feedback"


def _expected(assessments: list[dict[str, Any]]) -> Iterator[Any]:
    for assessment in assessments:
        if isinstance(assessment.get("expectation"), dict) and _name(assessment) in _EXPECTED:
            yield assessment["expectation"].get("value")
