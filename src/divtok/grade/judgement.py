"""What comparing an answer with the gold answer came to, and why."""

from __future__ import annotations

from dataclasses import dataclass

from divtok.records import Reason, Verdict

NO_RESPONSE = "no_response"  # a kind of reason, like GOLD_MISSING


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict; `reason` is set whenever the verdict is neither correct nor plainly incorrect."""

    verdict: Verdict
    reason: Reason | None = None


CORRECT = Judgement(Verdict.CORRECT)
INCORRECT = Judgement(Verdict.INCORRECT)


def undetermined(kind: str, why: str) -> Judgement:
    return Judgement(Verdict.UNDETERMINED, Reason(kind, why))


def unanswered(why: str) -> Judgement:
    return Judgement(Verdict.UNANSWERED, Reason("no_answer", why))


def no_response(why: str | None) -> Reason:
    """The reason of everything that a failed trajectory lacks."""
    return Reason(NO_RESPONSE, f"no response: {why}")
