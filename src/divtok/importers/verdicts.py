"""What other tools write for right and wrong, read as verdicts; it knows no tool.

A score that is neither is undetermined with its reason, and never rounded to one of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from divtok.importers.imported import shown
from divtok.records import Reason, TheirVerdict, Verdict

# The kinds of reason of a verdict that is undetermined.
PARTIAL = "partial_score"
NO_VERDICT = "no_verdict"

_UNDETERMINED = "undetermined"

# What can hardly be the answer to a question.
_PLAIN = {
    "correct": Verdict.CORRECT,
    "right": Verdict.CORRECT,
    "true": Verdict.CORRECT,
    "incorrect": Verdict.INCORRECT,
    "wrong": Verdict.INCORRECT,
    "false": Verdict.INCORRECT,
}
# What means a verdict only where the file or the user says that there is one.
_SAID = _PLAIN | {
    "yes": Verdict.CORRECT,
    "pass": Verdict.CORRECT,
    "passed": Verdict.CORRECT,
    "no": Verdict.INCORRECT,
    "fail": Verdict.INCORRECT,
    "failed": Verdict.INCORRECT,
    "unanswered": Verdict.UNANSWERED,
    _UNDETERMINED: Verdict.UNDETERMINED,
}
# The letters of Inspect, which elsewhere may be answers.
_LETTERED = _SAID | {
    "c": Verdict.CORRECT,
    "i": Verdict.INCORRECT,
    "n": Verdict.UNANSWERED,
    "p": Verdict.UNDETERMINED,
}


def their_verdict(
    scorer: str, value: Any, extracted: str | None = None, *, letters: bool = False
) -> TheirVerdict | None:
    """The verdict that a value stands for; None where there is no value at all.

    Its key is empty until the response it is about has one. `letters` says that C, I, N and P are
    verdicts, as Inspect writes them.
    """
    if _is_missing(value):
        return None
    verdict = _read(value, _LETTERED if letters else _SAID)
    text = one_line(value)
    reason = None
    if verdict is None:
        reason = Reason(NO_VERDICT, f"'{text}' is neither right nor wrong")
    elif verdict == Verdict.UNDETERMINED and text.casefold() == _UNDETERMINED:
        reason = Reason(NO_VERDICT, f"the tool that wrote the file says '{text}'")
    elif verdict == Verdict.UNDETERMINED:
        reason = Reason(PARTIAL, f"the score {text} is between right and wrong")
    return TheirVerdict("", scorer, verdict or Verdict.UNDETERMINED, extracted, reason)


def is_verdict(value: Any) -> bool:
    """Whether what is known to be a verdict says right, wrong or a score between, or is missing."""
    return _is_missing(value) or _read(value, _SAID) is not None


def is_plain_verdict(value: Any) -> bool:
    """The same for a value that may as well be an answer: "yes" and "C" are then no verdicts."""
    return _is_missing(value) or _read(value, _PLAIN) is not None


def one_line(value: Any) -> str:
    """A value as a message shows it."""
    return shown(" ".join(str(value).split()), 40)


def _is_missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _read(value: Any, meant: Mapping[str, Verdict]) -> Verdict | None:
    if isinstance(value, str):
        word = value.strip().casefold()
        if word in meant:
            return meant[word]
        try:
            value = float(word)
        except ValueError:
            return None
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        whole = {0: Verdict.INCORRECT, 1: Verdict.CORRECT}
        return whole.get(value, Verdict.UNDETERMINED)  # type: ignore[arg-type]
    return None
