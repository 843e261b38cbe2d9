"""Responses whose steps were judged one by one, as in the files of ProcessBench.

Each row is a response in steps, with whether its final answer is right and which step is the first
wrong one. The response is the steps with a blank line between them; what was said of them is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from divtok.importers.columns import check_named, value_at
from divtok.importers.imported import Imported, checked_name, fault
from divtok.importers.importer import (
    Glimpse,
    ImportOptions,
    Line,
    Rows,
    Tell,
    each,
    good_rows,
    importer,
)
from divtok.importers.json_rows import json_rows
from divtok.importers.verdicts import their_verdict
from divtok.records import StepLabels

_BETWEEN = "\n\n"
_VERDICT = "final_answer_correct"


def _is_judged_steps(seen: Glimpse) -> bool:
    first = seen.first[0] if isinstance(seen.first, list) and seen.first else seen.first
    return isinstance(first, dict) and first.keys() >= {"problem", "steps", "label"}


@importer(
    "processbench",
    columns=("id",),
    files=("*.jsonl", "*.ndjson", "*.json"),
    recognise=_is_judged_steps,
)
def read_processbench(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """Responses in steps with the first wrong one, as JSON or JSONL of ProcessBench."""
    lines = json_rows(path)
    rows = good_rows(lines)
    check_named(rows, options.columns, str(path))
    named = _id_column(rows, options, str(path), tell)
    wrong = sum(row.get("label") not in (None, -1) for row in rows)
    tell(f"{path}: a step is labelled wrong in {wrong} of {len(rows)} responses")
    yield from each(lines, lambda line: _imported(line, named), skip_bad=options.skip_bad)


def _id_column(
    rows: Sequence[dict[str, Any]], options: ImportOptions, source: str, tell: Tell
) -> str:
    """The column with the ids of problems; "" where problems are known by their question.

    Ids that the file has are those of rows: where a problem comes again they do not tell problems.
    """
    if "id" in options.columns:
        return options.columns["id"]
    pairs = {(str(row.get("problem")), str(row.get("id"))) for row in rows}
    if len(pairs) == len({question for question, _ in pairs}):
        return "id"
    tell(f"{source}: problems are known by their question, for some have several ids")
    return ""


def _imported(line: Line, named: str) -> Iterator[Imported]:
    row, where = line.row, line.where
    steps = _steps(row.get("steps"), where)
    verdict = row.get(_VERDICT)
    if verdict is not None and not isinstance(verdict, bool):
        raise fault(where, f"'{_VERDICT}' is neither true nor false")
    said = their_verdict(_VERDICT, verdict)
    identity = value_at(row, named, None) if named else None
    generator = row.get("generator")
    yield Imported(
        where,
        _BETWEEN.join(steps),
        question=checked_name(row.get("problem"), "problem", where),
        problem_id=None if identity is None else checked_name(identity, named, where),
        generator=None if generator is None else checked_name(generator, "generator", where),
        verdicts=() if said is None else (said,),
        labels=_labels(steps, row.get("label"), where),
    )


def _steps(given: Any, where: str) -> list[str]:
    if not isinstance(given, list):
        raise fault(where, f"'steps' is {'missing' if given is None else 'not a list'}")
    if not given:
        raise fault(where, "'steps' is empty")
    return [checked_name(step, f"steps[{place}]", where) for place, step in enumerate(given)]


def _labels(steps: Sequence[str], label: Any, where: str) -> StepLabels:
    """Its key is empty until the response has one."""
    whole = isinstance(label, int) and not isinstance(label, bool)
    if not whole or not -1 <= label < len(steps):
        what = f"'label' is not a whole number from -1 to {len(steps) - 1}"
        raise fault(where, f"{what}, for there are {len(steps)} steps")
    starts = list(accumulate((len(step) + len(_BETWEEN) for step in steps[:-1]), initial=0))
    stops = (start + len(step) for start, step in zip(starts, steps, strict=True))
    return StepLabels("", label, tuple(starts), tuple(stops))
