"""Responses from lm-eval's `samples_TASK_DATE.jsonl`, as written with --log_samples.

Each line is one problem under one filter, with the responses of all repeats; a task with several
filters has the same responses once for each. How a response ended is not in the file, and the model
is named in the results file beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from divtok.compressed import plain_name
from divtok.errors import DataError
from divtok.importers.columns import NOT_THERE, check_named, only_column, usual_columns, value_at
from divtok.importers.imported import (
    Imported,
    checked_name,
    checked_text,
    fault,
    gold_answer,
    shown,
)
from divtok.importers.importer import (
    Glimpse,
    ImportOptions,
    Line,
    NothingToReadError,
    Rows,
    Tell,
    each,
    good_rows,
    importer,
    json_lines,
    object_in,
)
from divtok.importers.verdicts import their_verdict
from divtok.json_lines import LARGEST_FILE, read_bytes
from divtok.records import TheirVerdict

_FILE_NAME = re.compile(
    r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(\.\d+)?)\.jsonl"
)
_PROMPT = "arguments.gen_args_0.arg_0"


def _is_log(seen: Glimpse) -> bool:
    return isinstance(seen.first, dict) and seen.first.keys() >= {"doc", "resps", "arguments"}


@importer(
    "lm-eval",
    columns=("question", "answer", "id"),
    files=("samples_*.jsonl",),
    recognise=_is_log,
)
def read_lm_eval(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """samples_*.jsonl of lm-eval, written with --log_samples."""
    columns, lines = options.columns, json_lines(path)
    rows = good_rows(lines)
    check_named(rows, columns, str(path))
    named = _FILE_NAME.fullmatch(plain_name(path))
    task = named["task"] if named else None
    generator = _model_name(path, named["date"]) if named else None
    places = {
        "question": columns.get("question", _question_column(rows, str(path))),
        "answer": columns.get("answer", "target"),
        "id": columns.get("id", "doc_id"),
    }
    _check_generated(rows, str(path))
    told = ", ".join(f"{field} from '{column}'" for field, column in places.items() if column)
    tell(f"{path}: {told}")
    if any(len(responses) > 1 for row in rows for responses in _requests(row)[:1]):
        tell(f"{path}: repeated responses have no verdict of their own, so none is taken for them")
    yield from each(
        lines, lambda line: _imported(line, places, task, generator), skip_bad=options.skip_bad
    )


def _check_generated(rows: Sequence[dict[str, Any]], source: str) -> None:
    """Refuse a log of a task that compares log-likelihoods: nobody wrote anything in it."""
    if rows and all(_is_loglikelihood(row) for row in rows):
        raise NothingToReadError(
            f"{source} is of a multiple-choice or log-likelihood task: it holds log-likelihoods of "
            "given texts and no generated response, so there is nothing to read.",
            next_step="Choose the file of a generate_until task, or run the generative variant of "
            "the task.",
        )


def _is_loglikelihood(row: dict[str, Any]) -> bool:
    requests = _requests(row)
    return bool(requests) and all(
        response and isinstance(response[0], list) for response in requests
    )


def _requests(row: dict[str, Any]) -> list[list[Any]]:
    """The responses of each request of a row, as far as they are lists."""
    requests = row.get("resps")
    return [r for r in requests if isinstance(r, list)] if isinstance(requests, list) else []


def _question_column(rows: Sequence[dict[str, Any]], source: str) -> str:
    """Where the question is in the task's own document, or else the prompt of the request."""
    found = only_column(rows, usual_columns(rows, "question", inside="doc."), "question", source)
    return found or _PROMPT


def _imported(
    line: Line, columns: Mapping[str, str], task: str | None, generator: str | None
) -> Iterator[Imported]:
    row, where = line.row, line.where
    values = {f: value_at(row, column, None) if column else None for f, column in columns.items()}
    at = columns["question"]
    if at.startswith("doc.") and value_at(row, at) is NOT_THERE:
        values["question"] = value_at(row, _PROMPT, None)

    def name(field: str) -> str | None:
        """None where the user says that there is none."""
        return checked_name(values[field], columns[field], where) if columns[field] else None

    responses = _responses(line)
    for sample, response in enumerate(responses):
        yield Imported(
            where=where,
            response=checked_text(response, "resps", where),
            question=name("question"),
            answer=gold_answer(values["answer"], where),
            problem_id=name("id"),
            benchmark=task,
            generator=generator,
            # Without ids, one question may be in several lines, and then each is a sample.
            sample=sample if columns["id"] else None,
            # Of several repeats the filter made one result, and the metric is about that.
            verdicts=_verdicts(row, where) if len(responses) == 1 else (),
        )


def _verdicts(row: dict[str, Any], where: str) -> tuple[TheirVerdict, ...]:
    """The metrics of the row's filter, named "metric,filter" as in lm-eval's results."""
    filtered = row.get("filtered_resps")
    answer = filtered[0] if isinstance(filtered, list) and filtered else None
    extracted = checked_text(answer, "filtered_resps", where) if isinstance(answer, str) else None
    metrics = row.get("metrics")
    names = [m for m in metrics if isinstance(m, str)] if isinstance(metrics, list) else []
    found = (
        their_verdict(f"{name},{row.get('filter', 'none')}", row.get(name), extracted)
        for name in names
        if isinstance(row.get(name), bool | int | float)
    )
    return tuple(verdict for verdict in found if verdict is not None)


def _responses(line: Line) -> list[Any]:
    """The texts of all repeats of the line's one request."""
    requests = line.row.get("resps")
    if not isinstance(requests, list) or len(requests) != 1 or not isinstance(requests[0], list):
        count = len(requests) if isinstance(requests, list) else "no"
        raise fault(
            line.where,
            f"'resps' has {count} requests where one with its repeats is expected",
            "Only generate_until tasks hold responses; choose such a task's file.",
        )
    if not requests[0]:
        raise fault(line.where, "'resps' has no responses")
    return requests[0]


def _model_name(path: Path, date: str) -> str | None:
    """The model of the results file with the same date; None where there is no such file."""
    beside = sorted(file for file in path.parent.glob("*.json") if file.stem.endswith(f"_{date}"))
    names: dict[str, Path] = {}
    for file in beside:
        data = read_bytes(file, next_step="Take it away and name the model with --generator NAME.")
        name = object_in(data, str(file), largest=LARGEST_FILE).get("model_name")
        if isinstance(name, str) and name.strip():
            names[checked_text(name, "model_name", str(file))] = file
    if len(names) > 1:
        raise DataError(
            f"The results files beside {path} name several models: {shown(', '.join(names))}.",
            next_step="Name the one of this file with --generator NAME.",
        )
    return next(iter(names), None)
