"""What the comparison of an answer with the gold answer came to, and why."""

from __future__ import annotations

from dataclasses import dataclass

from divtok.records import Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict; `reason` is set whenever the verdict is neither correct nor plainly incorrect."""

    verdict: Verdict
    reason: str | None = None


CORRECT = Judgement(Verdict.CORRECT)
INCORRECT = Judgement(Verdict.INCORRECT)


def undetermined(reason: str) -> Judgement:
    return Judgement(Verdict.UNDETERMINED, reason)
