"""Each confidence as an event of OpenTelemetry, where a program has set that up; else nothing.

The event is `gen_ai.evaluation.result` of the conventions for generative AI. It goes through the
API alone: without a provider with an exporter it is nowhere kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Emit = Callable[[Mapping[str, Any], str | None], None]


def emitter() -> Emit | None:
    """What writes one event for an object; None where OpenTelemetry is not there."""
    try:
        from opentelemetry._logs import LogRecord, get_logger
    except ImportError:
        return None
    logger = get_logger("divtok.serve")

    def emit(told: Mapping[str, Any], response_id: str | None) -> None:
        attributes: dict[str, Any] = {"gen_ai.evaluation.name": f"divtok.{told['estimator']}"}
        if told["confidence"] is not None:
            attributes["gen_ai.evaluation.score.value"] = told["confidence"]
        decision = told["decision"]
        attributes["gen_ai.evaluation.score.label"] = (
            told["status"] if decision is None else decision["action"]
        )
        if told["reason"] is not None:
            attributes["gen_ai.evaluation.explanation"] = told["reason"]
        if response_id is not None:
            attributes["gen_ai.response.id"] = response_id
        logger.emit(LogRecord(event_name="gen_ai.evaluation.result", attributes=attributes))

    return emit
