"""Rows of a file or a dataset become problems.

Every row must be sound: a broken one stops the reading with its place, because a benchmark that
silently lost a problem is another benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from divtok.errors import DataError
from divtok.protocols.boxed import find_boxed
from divtok.records import Problem


@dataclass(frozen=True, slots=True)
class Fields:
    """Which fields of a row hold a problem, and where in the answer the gold answer is.

    `gold` is "whole" (all of the text), "boxed" (the last box in it) or "after" (what is behind the
    last `marker`, such as "####").
    """

    question: str = "problem"
    answer: str = "answer"
    id: str | None = None  # left out: rows of a file have `id`, rows of a dataset are numbered
    gold: Literal["whole", "boxed", "after"] = "whole"
    marker: str | None = None

    def __post_init__(self) -> None:
        if (self.gold == "after") != bool(self.marker):
            raise ValueError("'gold: after' and 'marker' go together")

    def problem(
        self, row: Mapping[str, Any], benchmark: str, where: str, *, identity: str | None = None
    ) -> Problem:
        """A checked problem; `where` names the row in errors, `identity` is its id by default."""
        given = row.get(self.id or "id") if self.id or identity is None else identity
        question = row.get(self.question)
        for name, value in ((self.id or "id", given), (self.question, question)):
            is_text = isinstance(value, str | int) and not isinstance(value, bool)
            if not is_text or not str(value).strip():
                raise DataError(
                    f"{where}: '{name}' is missing or empty.",
                    next_step="Every row needs id, problem and answer.",
                )
            _check_text(str(value), name, where)
        if self.answer not in row:
            raise DataError(
                f"{where}: '{self.answer}' is missing.",
                next_step="Write null where the gold answer is not known.",
            )
        return Problem(str(given), benchmark, str(question), self._gold(row[self.answer], where))

    def _gold(self, value: Any, where: str) -> str | None:
        """The gold answer as text; None where there is none, so that it is graded so."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        infinite = isinstance(value, float) and math.isinf(value)
        if infinite or isinstance(value, bool) or not isinstance(value, str | int | float):
            raise DataError(
                f"{where}: '{self.answer}' is neither text nor a finite number.",
                next_step="Write it as text.",
            )
        text = str(value)
        _check_text(text, self.answer, where)
        return self._within(text, where) if text.strip() else None

    def _within(self, text: str, where: str) -> str:
        if self.gold == "whole":
            return text
        if self.gold == "boxed":
            box = find_boxed(text)
            found, sought = "" if box is None else box.content, r"\boxed{...}"
        else:
            sought = self.marker or ""
            found = text.rpartition(sought)[2].strip() if sought in text else ""
        if not found:
            raise DataError(
                f"{where}: '{self.answer}' has no gold answer: no '{sought}' with text in it.",
                next_step="Check 'gold' in the benchmark's file.",
            )
        return found


def problems_of(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    benchmark: str,
    fields: Fields | None = None,
    *,
    numbered: bool = False,
) -> list[Problem]:
    """The problems of rows, each with its place, in order; no id twice.

    Without `fields` a row has id, problem (or question) and answer. `numbered` rows need no id.
    """
    problems: dict[str, Problem] = {}
    places: dict[str, str] = {}
    for index, (where, row) in enumerate(rows):
        plain = Fields("question" if "question" in row and "problem" not in row else "problem")
        identity = f"{benchmark}-{index:04d}" if numbered else None
        problem = (fields or plain).problem(row, benchmark, where, identity=identity)
        if problem.id in problems:
            raise DataError(
                f"{where}: the id '{problem.id}' is already that of {places[problem.id]}.",
                next_step="Give every problem its own id.",
            )
        problems[problem.id] = problem
        places[problem.id] = where
    return list(problems.values())


def _check_text(text: str, name: str, where: str) -> None:
    if "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise DataError(
            f"{where}: '{name}' holds a NUL or a lone surrogate.", next_step="Remove it."
        )
