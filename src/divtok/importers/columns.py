"""Which column of a file holds what: named with --column, or found under its usual names.

A choice between columns that differ is the user's, never made here in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from divtok.errors import DataError, UsageError, did_you_mean
from divtok.importers.imported import is_whole, shown

# The fields a column can be named for, with the names under which it is found by itself.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "question": ("problem", "question", "prompt", "input", "query"),
    "response": ("response", "completion", "output", "generation", "text"),
    "answer": (
        "answer",
        "gold",
        "answer_gold",
        "gold_answer",
        "target",
        "ground_truth",
        "reference_answer",
        "expected_answer",
    ),
    "id": ("problem_id", "question_id", "id"),
    "sample": ("sample", "sample_index", "sample_idx"),
    "generator": ("model", "generator", "model_name"),
    "finish_reason": ("finish_reason", "stop_reason"),
    "benchmark": ("benchmark", "dataset"),
    # What the tool that wrote the file says of the response: several may have judged it.
    "verdict": ("verdict", "correct", "is_correct", "exact_match"),
    "extracted": ("extracted", "extracted_answer", "parsed_answer"),
    # A whole conversation, which gives the question and the response where no column does.
    "messages": ("messages", "conversation", "conversations", "request.messages"),
}
FIELDS = tuple(USUAL_NAMES)
NOT_THERE: Any = object()  # unlike None, which a file can hold

Row = Mapping[str, Any]


def parse_columns(given: Iterable[str]) -> dict[str, str]:
    """`FIELD=COLUMN` options as a mapping; an empty column says that the file has none."""
    columns: dict[str, str] = {}
    for option in given:
        field, equals, column = option.partition("=")
        if not equals:
            raise UsageError(
                f"'--column {option}' names no column.",
                next_step="Write FIELD=COLUMN, as in question=doc.problem.",
            )
        if field not in USUAL_NAMES:
            raise UsageError(
                f"'--column {option}': unknown field '{field}'.",
                next_step=did_you_mean(field, FIELDS),
            )
        if field in columns:
            raise UsageError(
                f"--column names two columns for '{field}'.", next_step="Give one of them."
            )
        columns[field] = column
    return columns


def value_at(row: Any, column: str, otherwise: Any = NOT_THERE) -> Any:
    """The value at a dotted path (a number picks from a list); `otherwise` where nothing is.

    A column whose own name has dots in it comes first.
    """
    if isinstance(row, dict) and column in row:
        return row[column]
    node = row
    for part in column.split("."):
        if isinstance(node, dict) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            node = node[int(part)]
        else:
            return otherwise
    return node


def check_named(rows: Sequence[Row], columns: Mapping[str, str], source: str) -> None:
    """Refuse a named column that not one row has."""
    for field, column in columns.items():
        if column and rows and all(value_at(row, column) is NOT_THERE for row in rows):
            known = {path for row in rows[:100] for path in _paths(row)}
            raise UsageError(
                f"'--column {field}={column}': {source} has no such column.",
                next_step=did_you_mean(column, map(shown, known)),
            )


def usual_columns(
    rows: Sequence[Row], field: str, *, taken: Iterable[str] = (), inside: str = ""
) -> list[str]:
    """The columns that a field's usual names lead to and that hold something in some row.

    Capitals and blanks in the names of columns make no difference. `taken` columns were named for
    something else; `inside` is what comes before the names.
    """
    names = [inside + name for name in USUAL_NAMES[field]]
    spellings = dict.fromkeys(name for row in rows for name in row)
    others = {usual_spelling(str(name)): name for name in spellings if name not in names}
    found = dict.fromkeys(n for name in names for n in (name, others.get(name)) if n is not None)
    return [name for name in found if name not in set(taken) and _usable(rows, name, field)]


def usual_spelling(name: str) -> str:
    """The name of a column as the table of usual names has it: "Ground Truth" is ground_truth."""
    return "_".join(name.casefold().replace("-", " ").split())


def only_column(
    rows: Sequence[Row], candidates: Sequence[str], field: str, source: str
) -> str | None:
    """The one candidate, or the first of several that are equal in every row; None of none."""
    for other in candidates[1:]:
        if any(value_at(row, candidates[0]) != value_at(row, other) for row in rows):
            choices = " or ".join(f"--column {field}={name}" for name in candidates)
            raise DataError(
                f"{source} has {len(candidates)} columns that may be the {field}, and they differ: "
                f"{', '.join(candidates)}.",
                next_step=f"Say which: {choices}.",
            )
    return candidates[0] if candidates else None


def id_column(
    rows: Sequence[Row], candidates: Sequence[str], question: str | None, source: str
) -> str | None:
    """The one candidate that names problems: it has one id for each question."""
    if question is None:
        return only_column(rows, candidates, "id", source)
    fitting: list[str] = []
    for column in candidates:
        pairs = {tuple(_hashable(value_at(row, at)) for at in (question, column)) for row in rows}
        questions = {pair[0] for pair in pairs}
        if len(pairs) == len(questions):
            fitting.append(column)
        elif column == candidates[-1] and not fitting:
            raise several_ids(len(pairs), len(questions), source, column)
    return only_column(rows, fitting, "id", source)


def several_ids(ids: int, questions: int, source: str, column: str) -> DataError:
    """The error for ids that may name rows or problems: the user has to say which."""
    return DataError(
        f"{source}: '{column}' has {ids} ids for {questions} questions, so it may name the "
        "responses instead of the problems.",
        next_step="Give --column id= to know problems by their question, or "
        f"--column id={column} if every id is a problem of its own.",
    )


def _usable(rows: Sequence[Row], column: str, field: str) -> bool:
    """Whether any row has something there; a sample has to be a number in some row."""
    values = [value_at(row, column, None) for row in rows]
    return any(is_whole(value) if field == "sample" else value is not None for value in values)


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else repr(value)


def _paths(row: Any, prefix: str = "", depth: int = 0) -> Iterator[str]:
    if not isinstance(row, dict) or depth > 3:
        return
    for name, value in row.items():
        yield prefix + str(name)
        yield from _paths(value, f"{prefix}{name}.", depth + 1)
