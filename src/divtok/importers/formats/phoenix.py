"""Spans of Arize Phoenix, as its interface and its command line (`px`) write them.

A trace is what its root span was given and returned, by the names of OpenInference. Spans whose
parent is not in the file are roots. An annotation of a root is a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from divtok.importers.columns import value_at
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
from divtok.importers.verdicts import is_verdict, their_verdict
from divtok.records import TheirVerdict


def _is_span(seen: Glimpse) -> bool:
    found = first_object(seen)
    spans = found.get("spans")
    span = spans[0] if isinstance(spans, list) and spans else found
    return isinstance(span, dict) and span.keys() >= {"context", "attributes", "span_kind"}


@importer("phoenix", columns=COLUMNS, files=FILES, recognise=_is_span)
def read_phoenix(path: Path, options: ImportOptions, _: Tell) -> Rows:
    """JSON of Phoenix spans or traces."""
    lines = [span for line in trace_lines(path) for span in _spans(line)]
    good = [line for line in lines if isinstance(line.found, dict)]
    by_trace: dict[str, list[dict[str, Any]]] = {}
    for line in good:
        by_trace.setdefault(str(value_at(line.row, "context.trace_id")), []).append(line.row)
    known = {str(value_at(line.row, "context.span_id")) for line in good}
    roots = [
        line
        for line in lines
        if not isinstance(line.found, dict) or str(line.found.get("parent_id")) not in known
    ]

    def parse(line: Line) -> Iterator[Imported]:
        trace = by_trace.get(str(value_at(line.row, "context.trace_id")), [])
        yield _imported(line, trace, options.columns)

    yield from each(roots, parse, skip_bad=options.skip_bad)


def _spans(line: Line) -> Iterator[Line]:
    """The spans of a trace; a span is itself."""
    spans = line.found.get("spans") if isinstance(line.found, dict) else None
    if not isinstance(spans, list):
        yield line
        return
    annotations = line.row.get("annotations")
    for span in spans:
        if isinstance(span, dict):
            own = span.get("annotations")
            yield Line(line.where, {**span, "annotations": [*(own or []), *(annotations or [])]})


def _imported(line: Line, trace: list[dict[str, Any]], columns: Mapping[str, str]) -> Imported:
    row, attributes = line.row, line.row.get("attributes")
    if not isinstance(attributes, dict):
        raise fault(line.where, "not a span of Phoenix, which has 'attributes'")
    error = row.get("status_message") or "the span ended in an error"
    found = TraceOf(
        raw=row,
        given=_value(attributes, "input"),
        returned=_value(attributes, "output"),
        model=next(_models([row, *trace]), None),
        error=error if row.get("status_code") == "ERROR" else None,
        verdicts=list(_verdicts(row.get("annotations"))),
    )
    return trace_row(found, columns, line.where)


def _value(attributes: Mapping[str, Any], way: str) -> Any:
    """What went in or came out: text, unless the span says that it is JSON."""
    value = value_at(attributes, f"{way}.value", None)
    is_json = value_at(attributes, f"{way}.mime_type", None) == "application/json"
    return decoded(value) if is_json else value


def _models(spans: list[dict[str, Any]]) -> Iterator[str]:
    for span in spans:
        name = value_at(span.get("attributes"), "llm.model_name", None)
        if isinstance(name, str) and name.strip():
            yield name


def _verdicts(annotations: Any) -> Iterator[TheirVerdict | None]:
    """What each annotation says: its label where that is right or wrong, or else its score."""
    for annotation in annotations if isinstance(annotations, list) else ():
        label, score = (value_at(annotation, f"result.{name}", None) for name in ("label", "score"))
        value = label if label is not None and (is_verdict(label) or score is None) else score
        yield their_verdict(str(value_at(annotation, "name", "annotation")), value)
