"""What other tools write for right and wrong, read as verdicts; it knows no tool.

A score that is neither is undetermined with its reason, and never rounded to one of them.
"""

from __future__ import annotations

import math
from typing import Any

from divtok.importers.imported import shown
from divtok.records import Reason, TheirVerdict, Verdict

# The kinds of reason of a verdict that is undetermined.
PARTIAL = "partial_score"
NO_VERDICT = "no_verdict"

_WORDS = {
    Verdict.CORRECT: ("correct", "c", "right", "true", "yes", "pass", "passed"),
    Verdict.INCORRECT: ("incorrect", "i", "wrong", "false", "no", "fail", "failed"),
    Verdict.UNANSWERED: ("unanswered", "n"),
    Verdict.UNDETERMINED: ("undetermined", "p"),
}
_MEANT = {word: verdict for verdict, words in _WORDS.items() for word in words}


def their_verdict(scorer: str, value: Any, extracted: str | None = None) -> TheirVerdict | None:
    """The verdict that a value stands for; None where there is no value at all.

    Its key is empty until the response it is about has one.
    """
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    verdict = _read(value)
    reason = None
    if verdict is None:
        text = shown(" ".join(str(value).split()), 40)
        reason = Reason(NO_VERDICT, f"'{text}' is neither right nor wrong")
    elif verdict == Verdict.UNDETERMINED:
        reason = Reason(PARTIAL, f"the score {shown(str(value), 40)} is between right and wrong")
    return TheirVerdict("", scorer, verdict or Verdict.UNDETERMINED, extracted, reason)


def is_verdict(value: Any) -> bool:
    """Whether a value can only mean right, wrong or a score between them, or is missing."""
    found = their_verdict("", value)
    return found is None or _read(value) is not None


def _read(value: Any) -> Verdict | None:
    if isinstance(value, str):
        word = value.strip().casefold()
        if word in _MEANT:
            return _MEANT[word]
        try:
            value = float(word)
        except ValueError:
            return None
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        whole = {0: Verdict.INCORRECT, 1: Verdict.CORRECT}
        return whole.get(value, Verdict.UNDETERMINED)  # type: ignore[arg-type]
    return None
