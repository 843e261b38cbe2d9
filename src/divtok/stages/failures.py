"""Rows that could not be made: how many, and why, in all tables of a run."""

from __future__ import annotations

from dataclasses import dataclass

from divtok.evidence.kind import EVIDENCE
from divtok.records import reason_kind
from divtok.store.responses import rows_of, stored_responses
from divtok.store.run import Run

# What follows from a response and the models that read it: trying again would give the same.
LASTING = frozenset(
    {
        *("too_long", "no_positions", "empty", "nonfinite"),
        *("no_response", "no_base_model", "failed_elsewhere"),
    }
)


@dataclass(frozen=True, slots=True)
class Failures:
    """Why rows hold no numbers, one text for each; `again` of them may work when tried again."""

    reasons: tuple[str, ...]
    again: int

    def sentence(self) -> str:
        """How many there are, why, and what helps."""
        rows = "1 row" if len(self.reasons) == 1 else f"{len(self.reasons)} rows"
        text = f"{rows} could not be made; the first: {self.reasons[0]}."
        if not self.again:
            return f"{text} Trying again would give the same."
        which = "them" if self.again == len(self.reasons) else f"{self.again} of them"
        return f"{text} The same command with --retry-failed tries {which} again."


def failed_rows(run: Run) -> Failures:
    # A response that was imported as failed was made elsewhere: here it cannot be asked for again.
    asked = (run.manifest() or {}).get("generate") is not None
    responses = [r.reason for r in stored_responses(run).values() if r.failed]
    found = [
        *((f"response: {r}", asked and reason_kind(r) not in LASTING) for r in responses),
        *(
            (f"trace: {reason}", status not in LASTING)
            for status, reason in rows_of(run.traces, ("status", "reason"))
            if status != "ok"
        ),
        *((r, reason_kind(r) not in LASTING) for kind in EVIDENCE for r in kind.failures(run)),
    ]
    return Failures(tuple(str(r) for r, _ in found), sum(again for _, again in found))
