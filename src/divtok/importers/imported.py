"""What every reader yields, and the checks that hold for a value of any format; it knows none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from divtok.errors import DataError
from divtok.records import FinishReason, Reason, StepLabels, TheirVerdict

LARGEST_SAMPLE = 2**31 - 1
LONGEST_REASON = 300
# Responses that one request may have asked for: a failed request stands for that many rows.
MOST_CHOICES = 256
# Below it a float that is whole is the number that was written.
_LARGEST_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Imported:
    """One response as a file has it. None is what the file does not say.

    A response that failed is a row, too: its finish reason is "failed", its response is
    empty and `reason` says what happened. `verdicts` are those of the tool that wrote the file, its
    main one first; their keys are empty, and so is that of the `labels` of its steps.
    """

    where: str  # "FILE, line N" or "FILE, member M"
    response: str
    finish_reason: FinishReason = "unknown"
    reason: str | None = None
    question: str | None = None
    answer: str | None = None  # the gold answer
    problem_id: str | None = None
    benchmark: str | None = None
    generator: str | None = None
    sample: int | None = None
    verdicts: tuple[TheirVerdict, ...] = ()
    labels: StepLabels | None = None


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that breaks a rule, set aside with the reason.

    One that is `unreadable` could not be told to be a row at all, as a line that was cut off.
    """

    where: str
    why: str
    unreadable: bool = False


def fault(
    where: str,
    what: str,
    next_step: str = "Correct it, or set such rows aside with --skip-bad.",
) -> DataError:
    """The error for a value that breaks a rule."""
    return DataError(f"{where}: {what}.", next_step=next_step)


def checked_text(value: Any, name: str, where: str) -> str:
    """A text that can be stored and encoded; it may be empty."""
    if not isinstance(value, str):
        raise fault(where, f"'{name}' is {'missing' if value is None else 'not text'}")
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        remove = "Remove it, or set such rows aside with --skip-bad."
        raise fault(where, f"'{name}' holds a NUL or a lone surrogate", remove)
    return value


def checked_name(value: Any, name: str, where: str) -> str:
    """A text or whole number that names something, so it is never empty."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text = checked_text(value, name, where)
    if not text.strip():
        raise fault(where, f"'{name}' is empty")
    return text


def gold_answer(value: Any, where: str) -> str | None:
    """The gold answer as text; None where there is none, never the text "nan".

    Columns with a type write whole numbers as 3.0 or 3.00: the answer is 3.
    """
    if value is None or (isinstance(value, float | Decimal) and math.isnan(value)):
        return None
    if isinstance(value, Decimal) and value.is_finite():
        text = f"{value:f}"
        value = text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_EXACT:
        value = int(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole or (isinstance(value, float) and math.isfinite(value)):
        value = str(value)
    if not isinstance(value, str):
        raise fault(
            where,
            "the gold answer is neither text nor a finite number",
            "Name another column (--column answer=COLUMN), or none (--column answer=).",
        )
    return checked_text(value, "answer", where) if value.strip() else None


def unknown_generator(where: str) -> DataError:
    what = "the file does not say which model wrote the response"
    return fault(where, what, "Name it with --generator NAME.")


def sample_number(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if not is_whole(value) or int(value) > LARGEST_SAMPLE:
        raise fault(
            where,
            f"'sample' is not a whole number from 0 to {LARGEST_SAMPLE}",
            "Name another column (--column sample=COLUMN), or none (--column sample=), and samples "
            "are counted in order of appearance.",
        )
    return int(value)


def choice_count(value: Any, name: str, where: str) -> int:
    """How many responses were asked for: 1 where nothing is said."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return 1
    if value > MOST_CHOICES:
        raise fault(
            where,
            f"'{name}' is above {MOST_CHOICES}",
            f"Correct it: no more than {MOST_CHOICES} responses to one request are read.",
        )
    return value


def is_whole(value: Any) -> bool:
    """A whole number from 0 on, or its plain digits."""
    if isinstance(value, str):
        return value.isascii() and value.isdigit() and len(value) <= 10
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def failure_reason(text: Any, otherwise: str) -> Reason:
    """Why there is no response, on one line and in printable characters."""
    plain = " ".join(text.split()) if isinstance(text, str) else ""
    return Reason("failed_elsewhere", shown(plain, LONGEST_REASON) or otherwise)


def shown(text: str, longest: int = 80) -> str:
    """A file's own text, safe to show in a message: nothing in it acts on a terminal."""
    printable = "".join(c if c.isprintable() else "\ufffd" for c in text[:longest])
    return printable if len(text) <= longest else printable + "..."
