"""Confidences as events of OpenTelemetry, through its own interface."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from divtok.serve.telemetry import emitter

pytest.importorskip("opentelemetry._logs")

TOLD = {
    "estimator": "dtc_lin",
    "confidence": 0.86,
    "status": "ok",
    "reason": None,
    "decision": None,
}


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    class Logger:
        def emit(self, record: Any) -> None:
            found.append(record)

    monkeypatch.setattr("opentelemetry._logs.get_logger", lambda name: Logger())
    return found


def test_a_confidence_is_an_event(records: list[Any]):
    emit = emitter()
    assert emit is not None
    emit(TOLD, "chatcmpl-1")
    emit(TOLD | {"confidence": None, "status": "empty", "reason": "there is no text in it"}, None)
    emit(TOLD | {"decision": {"action": "accept", "to": None, "reason": "x"}}, None)
    assert {record.event_name for record in records} == {"gen_ai.evaluation.result"}
    assert records[0].attributes == {
        "gen_ai.evaluation.name": "divtok.dtc_lin",
        "gen_ai.evaluation.score.value": 0.86,
        "gen_ai.evaluation.score.label": "ok",
        "gen_ai.response.id": "chatcmpl-1",
    }
    assert records[1].attributes == {
        "gen_ai.evaluation.name": "divtok.dtc_lin",
        "gen_ai.evaluation.score.label": "empty",
        "gen_ai.evaluation.explanation": "there is no text in it",
    }
    assert records[2].attributes["gen_ai.evaluation.score.label"] == "accept"


def test_without_a_provider_nothing_happens():
    emit = emitter()
    assert emit is not None
    emit(TOLD, None)


def test_without_opentelemetry_there_are_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry._logs", None)
    assert emitter() is None
