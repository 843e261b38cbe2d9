"""Rows that could not be made: how many, and why, in all tables of a run."""

from __future__ import annotations

from dataclasses import dataclass

from divtok.evidence.kind import EVIDENCE
from divtok.store.responses import rows_of, stored_responses
from divtok.store.run import Run


@dataclass(frozen=True, slots=True)
class Failures:
    """Why rows hold no numbers, one text for each; `again` says that trying again may help."""

    reasons: tuple[str, ...]
    again: bool


def failed_rows(run: Run) -> Failures:
    responses = [f"response: {r.reason}" for r in stored_responses(run).values() if r.failed]
    others = [
        f"trace: {reason}"
        for status, reason in rows_of(run.traces, ("status", "reason"))
        if status != "ok"
    ]
    others += [reason for kind in EVIDENCE for reason in kind.failures(run)]
    # A response that was imported as failed was made elsewhere: here it cannot be asked for again.
    asked = (run.manifest() or {}).get("generate") is not None
    return Failures((*responses, *others), again=bool(others) or (bool(responses) and asked))
