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

from divtok.errors import DataError
from divtok.importers.columns import NOT_THERE, check_named, only_column, usual_columns, value_at
from divtok.importers.imported import (
    Imported,
    checked_name,
    checked_text,
    gold_answer,
    shown,
)
from divtok.importers.importer import ImportOptions, Rows, Tell, importer
from divtok.importers.lines import NEXT_STEP, Line, each, json_lines
from divtok.json_lines import json_object, read_bytes

_FILE_NAME = re.compile(
    r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(\.\d+)?)\.jsonl"
)
_PROMPT = "arguments.gen_args_0.arg_0"


@importer("lm-eval", columns=("question", "answer", "id"))
def read_lm_eval(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """samples_*.jsonl of lm-eval, written with --log_samples."""
    columns, lines = options.columns, json_lines(path)
    rows = [line.row for line in lines if line.fault is None]
    check_named(rows, columns, str(path))
    named = _FILE_NAME.fullmatch(path.name)
    task = named["task"] if named else None
    generator = _model_name(path, named["date"]) if named else None
    places = {
        "question": columns.get("question", _question_column(rows, str(path))),
        "answer": columns.get("answer", "target"),
        "id": columns.get("id", "doc_id"),
    }
    told = ", ".join(f"{field} from '{column}'" for field, column in places.items() if column)
    tell(f"{path}: {told}")

    def parse(line: Line) -> Iterator[Imported]:
        return _imported(line, places, task, generator)

    yield from each(lines, parse, skip_bad=options.skip_bad)


def _question_column(rows: Sequence[dict[str, Any]], source: str) -> str:
    """Where the question is in the task's own document, or else the prompt of the request."""
    found = only_column(rows, usual_columns(rows, "question", inside="doc."), "question", source)
    return found or _PROMPT


def _imported(
    line: Line, columns: Mapping[str, str], task: str | None, generator: str | None
) -> Iterator[Imported]:
    where = line.where
    values = {
        field: value_at(line.row, column) if column else None for field, column in columns.items()
    }
    question = values["question"]
    if question is NOT_THERE and columns["question"].startswith("doc."):
        question = value_at(line.row, _PROMPT)
    answer, identity = values["answer"], values["id"]
    for sample, response in enumerate(_responses(line)):
        yield Imported(
            where=where,
            response=checked_text(response, "resps", where),
            question=_name(question, columns["question"], where),
            answer=gold_answer(_there(answer), where),
            problem_id=_name(identity, columns["id"], where),
            benchmark=task,
            generator=generator,
            # Without ids, one question may be in several lines, and then each is a sample.
            sample=sample if columns["id"] else None,
        )


def _responses(line: Line) -> list[Any]:
    """The texts of all repeats of the line's one request."""
    requests = line.row.get("resps")
    if not isinstance(requests, list) or len(requests) != 1 or not isinstance(requests[0], list):
        count = len(requests) if isinstance(requests, list) else "no"
        raise DataError(
            f"{line.where}: 'resps' has {count} requests where one with its repeats is expected.",
            next_step="Only generate_until tasks hold responses; choose such a task's file.",
        )
    if not requests[0]:
        raise DataError(
            f"{line.where}: 'resps' has no responses.",
            next_step="Correct it, or set such rows aside with --skip-bad.",
        )
    return requests[0]


def _model_name(path: Path, date: str) -> str | None:
    """The model of the results file with the same date; None where there is no such file."""
    beside = sorted(file for file in path.parent.glob("*.json") if file.stem.endswith(f"_{date}"))
    names: dict[str, Path] = {}
    for file in beside:
        name = json_object(read_bytes(file), str(file), next_step=NEXT_STEP).get("model_name")
        if isinstance(name, str) and name.strip():
            names[checked_text(name, "model_name", str(file))] = file
    if len(names) > 1:
        raise DataError(
            f"The results files beside {path} name several models: {shown(', '.join(names))}.",
            next_step="Name the one of this file with --generator NAME.",
        )
    return next(iter(names), None)


def _name(value: Any, column: str, where: str) -> str | None:
    """What a column holds; None where the user says that there is none."""
    return checked_name(_there(value), column, where) if column else None


def _there(value: Any) -> Any:
    return None if value is NOT_THERE else value
