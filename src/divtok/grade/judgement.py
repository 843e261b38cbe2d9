"""What comparing an answer with the gold answer came to, and why."""

from __future__ import annotations

from dataclasses import dataclass

from divtok.records import GOLD_MISSING, Reason, Verdict

NO_RESPONSE = "no_response"  # a kind of reason, like GOLD_MISSING

# Runs that stored no kinds of reasons have these texts, or texts that begin with them.
_OLDER_TEXTS = {"no response: ": NO_RESPONSE, "gold_missing": GOLD_MISSING}


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


def reason_kind(reason: str | None) -> str | None:
    """The kind of a grade's reason, also where a run stored the text alone."""
    if isinstance(reason, Reason) and reason.kind:
        return reason.kind
    found = (kind for text, kind in _OLDER_TEXTS.items() if (reason or "").startswith(text))
    return next(found, None)
