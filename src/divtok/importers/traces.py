"""Traces of observed programs: what went in, what came out, and what was said of it.

One reading for the exports of all tools. A row is a trace: the question is what its root was given,
the response what it returned, whatever happened in between. Knows no tool.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from divtok.compressed import plain_name
from divtok.errors import DataError
from divtok.importers.columns import USUAL_NAMES, value_at
from divtok.importers.imported import Imported, checked_name, checked_text, fault, gold_answer
from divtok.importers.importer import NEXT_STEP, Glimpse, Line, json_lines, line_at, object_in
from divtok.importers.json_rows import holds_lines
from divtok.importers.messages import (
    Outcome,
    choice_outcome,
    failed,
    last_user_message,
    responses_outcome,
)
from divtok.json_lines import LARGEST_FILE, read_bytes
from divtok.records import TheirVerdict

COLUMNS = ("question", "response", "answer", "id")
FILES = ("*.json", "*.jsonl")
# Where pages of an interface and outputs of a command have their list.
_LISTS = ("traces", "data", "spans")


@dataclass(frozen=True, slots=True)
class TraceOf:
    """What a tool's trace says, in one form; `raw` is where --column looks."""

    raw: Mapping[str, Any]
    given: Any
    returned: Any
    model: str | None = None
    error: str | None = None
    answer: Any = None
    verdicts: Sequence[TheirVerdict | None] = field(default_factory=list[TheirVerdict | None])


def trace_lines(path: Path) -> list[Line]:
    """The objects of a file: one a line, or a JSON text that is one, a list, or a page of them."""
    if plain_name(path).endswith((".jsonl", ".ndjson")) or holds_lines(path):
        return json_lines(path)
    data = read_bytes(path, next_step="Export fewer traces at a time, or as JSONL.")
    data = data.removeprefix(codecs.BOM_UTF8)
    if data.lstrip()[:1] == b"[":
        data = b'{"data": ' + data + b"}"
    found = object_in(data, str(path), largest=LARGEST_FILE)
    items = listed(found)
    if not items:
        raise DataError(f"The file {path} has no traces.", next_step="Check the path.")
    return [line_at(f"{path}, item {n}", _object, item) for n, item in enumerate(items, start=1)]


def listed(found: Any) -> list[Any]:
    """The objects in a JSON value: its items, those of a page, or itself."""
    if isinstance(found, dict):
        inside = (found[key] for key in _LISTS if isinstance(found.get(key), list))
        return next(inside, [found])
    return found if isinstance(found, list) else []


def first_object(seen: Glimpse) -> dict[str, Any]:
    """The first of the objects that a file begins with; empty where there is none."""
    items = listed(seen.first)
    return items[0] if items and isinstance(items[0], dict) else {}


def decoded(value: Any) -> Any:
    """What a JSON text says; a value that is none stays as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def trace_row(trace: TraceOf, columns: Mapping[str, str], where: str) -> Imported:
    """The row of a trace, its parts taken from where the columns say."""

    def part(name: str, usual: Any) -> Any:
        if name not in columns:
            return usual
        return value_at(trace.raw, columns[name], None) if columns[name] else None

    identity = part("id", None)
    response, finish_reason, reason = _outcome(trace, part("response", trace.returned), where)
    return Imported(
        where=where,
        response=response,
        finish_reason=finish_reason,
        reason=reason,
        question=None
        if columns.get("question") == ""
        else _question(part("question", trace.given), where),
        answer=gold_answer(part("answer", trace.answer), where),
        problem_id=None if identity is None else checked_name(identity, "id", where),
        generator=None if trace.model is None else checked_name(trace.model, "model", where),
        verdicts=tuple(verdict for verdict in trace.verdicts if verdict is not None),
    )


def _question(value: Any, where: str) -> str:
    if isinstance(value, dict):
        value = value.get("messages") or _text_in(value, "question")
    text = last_user_message(value, where)
    if text is None:
        raise fault(where, "what went in is no text", "Name it with --column question=PATH.")
    return checked_name(text, "question", where)


def _outcome(trace: TraceOf, value: Any, where: str) -> Outcome:
    if trace.error is not None:
        return failed(trace.error, "the program ended in an error")
    if value is None:
        return failed(None, "nothing came out")
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        value = value["messages"]
    if isinstance(value, list):
        said = [m for m in value if isinstance(m, dict) and m.get("role") == "assistant"]
        value = said[-1] if said else None
    if isinstance(value, dict):
        choices = value.get("choices")
        if isinstance(choices, list) and len(choices) > 1:
            name_one = "Name one with --column response=PATH, or set such rows aside: --skip-bad."
            raise fault(where, f"what came out has {len(choices)} choices", name_one)
        if isinstance(choices, list) and choices:
            return choice_outcome(choices[0], "finish_reason", where)
        if isinstance(value.get("output"), list):
            return responses_outcome(value, where)
        if "role" in value:
            return choice_outcome({"message": value}, "finish_reason", where)
        value = _text_in(value, "response")
    if not isinstance(value, str):
        raise fault(where, "what came out is no text", "Name it with --column response=PATH.")
    return checked_text(value, "response", where), "unknown", None


def _text_in(found: Mapping[str, Any], field_name: str) -> Any:
    """The one value under the field's usual names, or else the only one there is."""
    usual = [found[name] for name in USUAL_NAMES[field_name] if name in found]
    values = usual or list(found.values())
    return values[0] if len(values) == 1 else None


def _object(item: Any, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise fault(where, "not a JSON object", NEXT_STEP)
    return item
