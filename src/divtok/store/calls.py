"""What it took to get answers from a server: added up over attempts, and told to the user."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from divtok.progress import say
from divtok.records import Call, CallPurpose
from divtok.store.run import Run

N = TypeVar("N", int, float)


class Calls:
    """The calls of a run for one purpose: those before, and those that this command makes."""

    def __init__(self, run: Run, purpose: CallPurpose) -> None:
        self._run = run
        self._purpose: CallPurpose = purpose
        before = run.calls.read()
        self._earlier = {call.key: call for call in before if call.purpose == purpose}
        self._made: set[str] = set()
        # (server, model) pairs: a refusal of one request is then about that request alone.
        self.answered = frozenset((c.server, c.model) for c in before if c.reason is None)

    def keep(self, calls: Iterable[Call | None]) -> None:
        found = [call for call in calls if call is not None]
        self._made |= {call.key for call in found}
        self._run.calls.append(added_up(found, self._earlier))

    def say_what_they_took(self) -> None:
        """One line on the calls of this command, if there were any."""
        if self._made:
            say_what_calls_took(self._run, self._purpose, self._made)


def added_up(calls: Iterable[Call], earlier: Mapping[str, Call]) -> list[Call]:
    """Each call with what an earlier one for the same key took: a retry costs twice."""
    return [_sum(earlier[call.key], call) if call.key in earlier else call for call in calls]


def _sum(before: Call, now: Call) -> Call:
    failed = () if before.reason is None else (before.reason,)
    return replace(
        now,
        attempts=before.attempts + now.attempts,
        setbacks=(*before.setbacks, *failed, *now.setbacks),
        prompt_tokens=_plus(before.prompt_tokens, now.prompt_tokens),
        completion_tokens=_plus(before.completion_tokens, now.completion_tokens),
        cost=_plus(before.cost, now.cost),
        seconds=before.seconds + now.seconds,
    )


def _plus(first: N | None, second: N | None) -> N | None:
    """The sum of what is known."""
    known = [value for value in (first, second) if value is not None]
    return sum(known[1:], known[0]) if known else None


def say_what_calls_took(run: Run, purpose: CallPurpose, keys: Collection[str]) -> None:
    """Calls, tokens and cost of these answers, as far as the server counted them."""
    calls = [c for c in run.calls.read() if c.purpose == purpose and c.key in keys]
    attempts = sum(call.attempts for call in calls)
    failed = sum(call.reason is not None for call in calls)
    counted = [c for c in calls if c.prompt_tokens is not None and c.completion_tokens is not None]
    asked = sum(c.prompt_tokens or 0 for c in counted)
    written = sum(c.completion_tokens or 0 for c in counted)
    costs = [call.cost for call in calls if call.cost is not None]
    parts = [
        f"{len(calls) - failed:,} of {len(calls):,} received, in {attempts:,} calls",
        f"{asked:,} tokens read and {written:,} written" if counted else "tokens not counted",
        f"cost {sum(costs):.4f}" if costs else "",
    ]
    if counted and len(counted) < len(calls) - failed:
        parts.append(f"tokens of {len(calls) - failed - len(counted):,} answers not counted")
    title = {"response": "responses", "reply": "replies"}[purpose]
    say(f"{title}: " + "; ".join(part for part in parts if part))
