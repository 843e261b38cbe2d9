"""What a client is told of one response: one object, the same on every route."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

from divtok.api.result import Result
from divtok.api.scoring import Scored, Scoring
from divtok.decide.policy import Decision
from divtok.records import Reason, reason_kind

VERSION = 1
# What a reason of this kind says may name files of this machine: its text goes to the log alone.
_PRIVATE = {
    "failed": "the models gave no numbers for it",
    "prompt": "the chat template of the models refuses this question",
}
_PATH = re.compile(r"^(?:[A-Za-z]:)?[\\/~.]|[\\]|\.gguf$")

NOT_SCORED = Reason("failed", "it could not be scored")
TOO_LATE = Reason("deadline", "it was not scored in time")
BUSY = Reason("busy", "too many responses were waiting")
TOO_LONG = Reason("too_long", "the text is longer than this server reads")


def shown_model(name: str) -> str:
    """The name of a model; of one that is a folder or a file, only its own and not where it is."""
    return re.split(r"[\\/]", name.rstrip("\\/"))[-1] if _PATH.search(name) else name


def scored_object(scoring: Scoring, scored: Scored, *, tokens: bool) -> dict[str, Any]:
    """What was found of a response by the first estimator."""
    found, counts = scored.confidences[0], scored.counts
    if found.value is None or counts is None:
        return unscored_object(scoring, _reason(scoring, scored))
    told = _common(scoring) | {
        "confidence": found.value,
        "low": found.value if found.low is None else found.low,
        "high": found.value if found.high is None else found.high,
        "count": counts.count,
        "reasoning_tokens": counts.reasoning,
        "exact": scored.trace is None or scored.trace.exact,
        "prior": _prior(scoring, found.prior),
        "status": "ok",
        "decision": decision_object(scoring.decision(scored)),
    }
    if tokens:
        result = scoring.result(scored)
        assert result is not None  # it has a value
        told |= _each_token(result)
    return told


def result_object(scoring: Scoring, result: Result, *, tokens: bool) -> dict[str, Any]:
    """The same of a response that was followed while it came."""
    counted = int(result.trace.reasoning().sum())
    low, high = result.bounds or (result.value, result.value)
    told = _common(scoring) | {
        "confidence": result.value,
        "low": low,
        "high": high,
        "count": result.count,
        "reasoning_tokens": counted,
        "exact": result.trace.exact,
        "prior": _prior(scoring, result.prior),
        "status": "ok",
        "decision": decision_object(result.decision),
    }
    return told | (_each_token(result) if tokens else {})


def unscored_object(scoring: Scoring, reason: Reason) -> dict[str, Any]:
    """Nothing is known of the response, and why. A policy never accepts such a one."""
    decision = scoring.decision(scoring.unscored(None, reason))
    kind = reason.kind
    return _common(scoring) | {
        "status": kind,
        "reason": _PRIVATE.get(kind, str(reason)),
        "decision": decision_object(decision),
    }


def _each_token(result: Result) -> dict[str, Any]:
    """The tokens, and with what their count became a confidence."""
    return {"parameters": dict(result.params), "tokens": tokens_object(result)}


def tokens_object(result: Result) -> dict[str, Any]:
    """Each token's text, place and marks, in lists of one length; spans are of tokens."""
    texts, trace = [token.text for token in result.tokens], result.trace
    start, stop = trace.answer_start, trace.answer_stop
    return {
        "text": texts,
        "text_offset": [0, *accumulate(map(len, texts))][: len(texts)],
        "jsd_bits": [token.jsd_bits for token in result.tokens],
        "divergent": [token.divergent for token in result.tokens],
        "unexpected": [token.unexpected for token in result.tokens],
        "counted": [0, trace.turn_end],
        "answer": None if start is None or stop is None else [start, stop],
    }


def decision_object(decision: Decision | None) -> dict[str, Any] | None:
    if decision is None:
        return None
    return {"action": decision.action, "to": decision.to, "reason": str(decision.reason)}


def _common(scoring: Scoring) -> dict[str, Any]:
    """All fields, in their order, without what is not known yet."""
    return {
        "version": VERSION,
        "confidence": None,
        "low": None,
        "high": None,
        "source": "measured",
        "estimator": scoring.chosen[0][0].name,
        "theta": scoring.theta,
        "count": None,
        "reasoning_tokens": None,
        "pair": [shown_model(scoring.pair.p.name), shown_model(scoring.pair.q.name)],
        "exact": True,
        "prior": None,
        "status": "failed",
        "reason": None,
        "decision": None,
    }


def _prior(scoring: Scoring, prior: float | None) -> dict[str, Any] | None:
    if prior is None:
        return None
    return {"value": prior, "from": "fit" if scoring.prior is None else "request"}


def _reason(scoring: Scoring, scored: Scored) -> Reason:
    reason, trace = scored.confidences[0].reason, scored.trace
    kind = reason_kind(reason)
    if kind is None:
        kind = "failed" if trace is None or trace.status == "ok" else trace.status
    return Reason(kind, str(reason))
