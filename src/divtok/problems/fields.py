"""Rows of a file or a dataset become problems.

Every row must be sound: a broken one stops the reading with its place, because a benchmark that
silently lost a problem is another benchmark.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from divtok.errors import DataError
from divtok.protocols.boxed import find_boxed
from divtok.records import Problem

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Fields:
    """Which fields of a row hold a problem, and where in the answer the gold answer is.

    `gold` is "whole" (all of the text), "boxed" (the last box in it), "after" (what is behind the
    last `marker`, such as "####") or "json" (the field's value, of any shape, as JSON).

    For multiple choice `options` names the field with the list of them, or several fields with one
    each, and `gold` is "letter", "index" (counted from 0) or "text" (of the right option). `wrong`
    names the fields of the wrong options instead: the right one's text is the answer, and all are
    shuffled in the same way for everybody. The question then ends with the options, from A, and the
    gold answer is a letter.

    `only` takes the rows whose fields begin with these texts, and leaves out the others.
    """

    question: str = "problem"
    answer: str = "answer"
    id: str | None = None  # left out: rows of a file have `id`, rows of a dataset are numbered
    gold: Literal["whole", "boxed", "after", "json", "letter", "index", "text"] = "whole"
    marker: str | None = None
    options: str | tuple[str, ...] | None = None
    wrong: tuple[str, ...] | None = None
    only: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if (self.gold == "after") != bool(self.marker):
            raise ValueError("'gold: after' and 'marker' go together")
        if (self.gold in ("letter", "index", "text")) != bool(self.options):
            raise ValueError("'options' go together with 'gold: letter', 'index' or 'text'")
        if self.wrong is not None and (self.gold != "whole" or not self.wrong):
            raise ValueError("'wrong' names one field or more, and goes with no 'gold'")
        if self.only is not None and not (self.only and all(self.only.values())):
            raise ValueError("'only' names fields, each with the text that it begins with")

    def takes(self, row: Mapping[str, Any], where: str) -> bool:
        """Whether the row is one of the benchmark's."""
        for name in self.only or ():
            if not isinstance(row.get(name), str):
                raise DataError(
                    f"{where}: '{name}' is missing, or no text.",
                    next_step="Check 'only' in the benchmark's file.",
                )
        return all(row[name].startswith(text) for name, text in (self.only or {}).items())

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
        gold = self._gold(row[self.answer], where)
        if self.options is None and self.wrong is None:
            return Problem(str(given), benchmark, str(question), gold)
        options = self._options(row, gold, str(given), where)
        lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
        asked = "\n".join([str(question).rstrip(), "", *lines])
        return Problem(str(given), benchmark, asked, self._letter(gold, options, where))

    def _options(
        self, row: Mapping[str, Any], gold: str | None, identity: str, where: str
    ) -> list[str]:
        """The texts of the options, in the order in which they are asked."""
        names = self.wrong or self.options or ()
        values: Any = row.get(names) if isinstance(names, str) else [row.get(n) for n in names]
        is_list = isinstance(values, list) and all(
            isinstance(v, str | int | float) and str(v).strip() for v in values
        )
        options = [str(v).strip() for v in values] if is_list else []
        if self.wrong is not None and gold is not None:
            options.append(gold.strip())
            random.Random(identity).shuffle(options)
        if not 2 <= len(options) <= len(LETTERS):
            raise DataError(
                f"{where}: the options are not 2 to {len(LETTERS)} texts.",
                next_step="Check 'options' or 'wrong' in the benchmark's file.",
            )
        for option in options:
            _check_text(option, str(names), where)
        return options

    def _letter(self, gold: str | None, options: Sequence[str], where: str) -> str | None:
        """The letter of the right option; None where it is not known."""
        if gold is None:
            return None
        known = LETTERS[: len(options)]
        if self.gold == "letter":
            letter = gold.strip().strip("().").upper()
        elif self.gold == "index":
            letter = dict(zip(map(str, range(len(options))), known, strict=True)).get(gold, "")
        else:
            fitting = [i for i, option in enumerate(options) if option == gold.strip()]
            letter = known[fitting[0]] if len(fitting) == 1 else ""
        if letter not in tuple(known):
            raise DataError(
                f"{where}: '{self.answer}' does not name one of the {len(options)} options.",
                next_step="Check 'gold' in the benchmark's file.",
            )
        return letter

    def _json(self, value: Any, where: str) -> str:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{where}: '{self.answer}' is no JSON value ({error}).", next_step="Correct it."
            ) from error
        _check_text(text, self.answer, where)
        return text

    def _gold(self, value: Any, where: str) -> str | None:
        """The gold answer as text; None where there is none, so that it is graded so."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        if self.gold == "json":
            return self._json(value, where)
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
        if self.gold not in ("boxed", "after"):
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

    Without `fields` a row has id, problem (or question) and answer. `numbered` rows need no id; a
    row keeps its number where others are left out.
    """
    problems: dict[str, Problem] = {}
    places: dict[str, str] = {}
    index = -1
    for index, (where, row) in enumerate(rows):
        if fields is not None and not fields.takes(row, where):
            continue
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
    if fields is not None and fields.only and not problems and index >= 0:
        wanted = " and ".join(f"{name} '{text}...'" for name, text in fields.only.items())
        raise DataError(
            f"None of the {index + 1:,} rows of '{benchmark}' has {wanted}.",
            next_step="Check 'only' in the benchmark's file.",
        )
    return list(problems.values())


def _check_text(text: str, name: str, where: str) -> None:
    if "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise DataError(
            f"{where}: '{name}' holds a NUL or a lone surrogate.", next_step="Remove it."
        )
