"""What it took to get answers from a server: added up over attempts, and told to the user."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from divtok.progress import say
from divtok.records import Call, CallPurpose
from divtok.store.run import Run


class Calls:
    """The calls of a run for one purpose: those before, and those that this command makes."""

    def __init__(self, run: Run, purpose: CallPurpose) -> None:
        self._run = run
        before = run.calls.read()
        self._earlier = {call.key: call for call in before if call.purpose == purpose}
        self._made: dict[str, Call] = {}
        self._title = {"response": "responses", "reply": "replies"}[purpose]
        # (server, model) pairs: a refusal of one request is then about that request alone.
        self.answered = frozenset((c.server, c.model) for c in before if c.reason is None)

    def keep(self, calls: Iterable[Call | None]) -> None:
        made = {c.key: _added(self._earlier.get(c.key), c) for c in calls if c is not None}
        self._made |= made
        self._run.calls.append(list(made.values()))

    def say_what_they_took(self) -> None:
        """One line on the calls of this command, if there were any, as far as they are counted."""
        calls = self._made.values()
        if not calls:
            return
        received = sum(call.reason is None for call in calls)
        pairs = [(call.prompt_tokens, call.completion_tokens) for call in calls]
        counted = [(read, written) for read, written in pairs if None not in (read, written)]
        tokens = "tokens not counted"
        if counted:
            read, written = (sum(filter(None, column)) for column in zip(*counted, strict=True))
            tokens = f"{read:,} tokens read and {written:,} written"
        attempts = sum(call.attempts for call in calls)
        parts = [f"{received:,} of {len(calls):,} received, in {attempts:,} calls", tokens]
        costs = [call.cost for call in calls if call.cost is not None]
        if costs:
            parts.append(f"cost {sum(costs):.4f}")
        if 0 < len(counted) < received:
            parts.append(f"tokens of {received - len(counted):,} answers not counted")
        say(f"{self._title}: " + "; ".join(parts))


def _added(before: Call | None, now: Call) -> Call:
    """A call with what an earlier one for the same key took: a retry costs twice."""
    if before is None:
        return now

    def total(field: str) -> Any:
        """The sum of what is known."""
        known = [n for call in (before, now) if (n := getattr(call, field)) is not None]
        return sum(known) if known else None

    fields = ("attempts", "prompt_tokens", "completion_tokens", "cost", "seconds")
    failed = () if before.reason is None else (before.reason,)
    setbacks = (*before.setbacks, *failed, *now.setbacks)
    return replace(now, setbacks=setbacks, **{field: total(field) for field in fields})
