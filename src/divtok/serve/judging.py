"""A completion's choices as responses to a question, and an object for each, whatever happens.

Whatever goes wrong here is a reason in an object; it never harms the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divtok.api.scoring import Scoring
from divtok.decide.policy import Decision
from divtok.errors import DataError
from divtok.importers.messages import choice_outcome, conversation
from divtok.progress import say
from divtok.records import Reason
from divtok.serve.batcher import Closing, Full
from divtok.serve.limits import MOST_CHARACTERS
from divtok.serve.outcome import (
    BUSY,
    NOT_SCORED,
    TOO_LATE,
    TOO_LONG,
    decision_object,
    unscored_object,
)
from divtok.serve.scorer import Scorer
from divtok.serve.wire import ProxyOptions

NO_QUESTION = Reason("no_question", "no message is the user's, or one is not text")
NOT_TEXT = Reason("not_text", "the answer is not text alone")


def question_of(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """What a conversation asks, as an import reads it; None where it is not text."""
    try:
        return conversation(list(messages), "messages", answered=False).question
    except DataError:
        return None


def response_of(choice: Mapping[str, Any]) -> str | Reason:
    """What a choice answers, as an import reads it; or why that cannot be scored."""
    try:
        text, _, reason = choice_outcome(choice, "finish_reason", "the answer")
    except DataError:
        return NOT_TEXT
    return text if reason is None else reason


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """Scores the responses to one request of the proxy."""

    scorer: Scorer
    scoring: Scoring
    question: str | None
    options: ProxyOptions
    told: Callable[[Mapping[str, Any], str | None], None]  # for numbers and events

    async def objects(
        self, responses: Sequence[str | Reason], answer_id: str | None
    ) -> list[dict[str, Any]]:
        """An object for each response, in order."""
        reasons = [self._refused(response) for response in responses]
        rows = [
            (self.question or "", response)
            for response, reason in zip(responses, reasons, strict=True)
            if reason is None
        ]
        scored = iter(await self._scored(rows) if rows else [])
        found = [
            next(scored) if reason is None else unscored_object(self.scoring, reason)
            for reason in reasons
        ]
        return [self.decided(one, answer_id) for one in found]

    def decided(self, one: dict[str, Any], answer_id: str | None) -> dict[str, Any]:
        """With what the request's own threshold says, where it has one; and told."""
        least = self.options.min_confidence
        if least is not None:
            one = one | {"decision": decision_object(_decision(one, least, self.options.on_low))}
        self.told(one, answer_id)
        return one

    def is_low(self, one: Mapping[str, Any]) -> bool:
        """Whether an answer is not to be given as it is. What was not scored is: it is not low."""
        decision = one["decision"]
        if one["confidence"] is None or decision is None:
            return False
        return decision["action"] != "accept"

    def unscored(self, reason: Reason) -> dict[str, Any]:
        return unscored_object(self.scoring, reason)

    def _refused(self, response: str | Reason) -> Reason | None:
        if isinstance(response, Reason):
            return response
        if self.question is None:
            return NO_QUESTION
        return TOO_LONG if max(len(response), len(self.question)) > MOST_CHARACTERS else None

    async def _scored(self, rows: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        try:
            return await self.scorer.score(self.scoring, rows, tokens=self.options.tokens)
        except Full:
            reason = BUSY
        except TimeoutError:
            reason = TOO_LATE
        except Closing:
            reason = NOT_SCORED
        except Exception as error:  # noqa: BLE001 (the answer is passed on whatever it is)
            say(f"Nothing was scored: {type(error).__name__}: {error}")
            reason = NOT_SCORED
        return [unscored_object(self.scoring, reason) for _ in rows]


def _decision(one: Mapping[str, Any], least: float, on_low: str) -> Decision | None:
    """What a threshold of the request's own says, without any promise."""
    value = one["low"]
    if value is None:
        return None
    if value >= least:
        return Decision("accept", Reason("above", f"{value:.3f} is at least {least:g}"))
    reason = Reason("below", f"{value:.3f} is below {least:g}")
    kind, _, model = on_low.partition(":")
    return Decision("escalate" if kind == "escalate" else "abstain", reason, model or None)
