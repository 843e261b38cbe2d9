"""Traces of Langfuse, as its interface gives them: a trace with its observations and scores.

Also pages of observations alone; of those a trace is what its root observation says. A score is a
verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from divtok.importers.columns import value_at
from divtok.importers.imported import Imported, fault
from divtok.importers.importer import Glimpse, ImportOptions, Line, Rows, Tell, each, importer
from divtok.importers.traces import COLUMNS, FILES, TraceOf, first_object, trace_lines, trace_row
from divtok.importers.verdicts import their_verdict
from divtok.records import TheirVerdict


def _is_trace(seen: Glimpse) -> bool:
    found = first_object(seen)
    return isinstance(found.get("observations"), list) or found.keys() >= {"traceId", "startTime"}


@importer("langfuse", columns=COLUMNS, files=FILES, recognise=_is_trace)
def read_langfuse(path: Path, options: ImportOptions, _: Tell) -> Rows:
    """JSON of Langfuse traces or observations."""
    columns = options.columns
    yield from each(
        _traces(trace_lines(path)),
        lambda line: [_imported(line, columns)],
        skip_bad=options.skip_bad,
    )


def _traces(lines: list[Line]) -> list[Line]:
    """Observations that come by themselves, gathered into their traces."""
    gathered: dict[str, Line] = {}
    found: list[Line] = []
    for line in lines:
        row = line.found
        if not isinstance(row, dict) or "observations" in row or "traceId" not in row:
            found.append(line)
            continue
        trace = gathered.get(str(row["traceId"]))
        if trace is None:
            trace = Line(line.where, {"id": row["traceId"], "observations": []})
            gathered[str(row["traceId"])] = trace
            found.append(trace)
        trace.row["observations"].append(row)
    return found


def _imported(line: Line, columns: Mapping[str, str]) -> Imported:
    row, said = line.row, line.row.get("observations")
    if not isinstance(said, list):
        raise fault(line.where, "not a trace of Langfuse, which has 'observations'")
    observations = [o for o in said if isinstance(o, dict)]
    tops = [o for o in observations if o.get("isRootObservation")]
    tops += [o for o in observations if not o.get("parentObservationId")]
    root = tops[0] if tops else {}
    models = [o["model"] for o in observations if o.get("type") == "GENERATION" and o.get("model")]
    returned = row.get("output") if row.get("output") is not None else root.get("output")
    error = root.get("statusMessage") or "an observation has the level ERROR"
    trace = TraceOf(
        raw=row,
        given=row.get("input") if row.get("input") is not None else root.get("input"),
        returned=returned,
        model=models[-1] if models else None,
        error=error if root.get("level") == "ERROR" and returned is None else None,
        verdicts=_verdicts(row.get("scores")),
    )
    return trace_row(trace, columns, line.where)


def _verdicts(said: Any) -> list[TheirVerdict | None]:
    """Scores of the whole trace, or where it has none, those of its observations."""
    scores = [s for s in said if isinstance(s, dict)] if isinstance(said, list) else []
    of_trace = [s for s in scores if s.get("observationId") is None]
    return [
        their_verdict(str(score.get("name") or "score"), _value(score))
        for score in of_trace or scores
    ]


def _value(score: Mapping[str, Any]) -> Any:
    text = value_at(score, "stringValue", None)
    return text if score.get("dataType") == "CATEGORICAL" else score.get("value", text)
