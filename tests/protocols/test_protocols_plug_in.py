"""A protocol of another package: asked, read and graded like divtok's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from grade_samples import trajectory

from divtok.grade import grade_trajectories
from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.extract import extract_answer
from divtok.protocols.prompts import messages_for
from divtok.protocols.protocol import Message, Protocol
from divtok.registry import Registry

MARK = "Answer: "


def ask(question: str) -> list[Message]:
    return [{"role": "user", "content": f"{question} End with '{MARK}' and one letter."}]


def find(text: str) -> AnswerSpan | None:
    start = text.rfind(MARK) + len(MARK)
    return AnswerSpan(start, start + 1, text[start]) if MARK in text and text[start:] else None


LETTER = Protocol("letter", "One letter.", messages=ask, find_answer=find, no_answer="no letter")


def test_a_protocol_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    protocols: Registry[Protocol] = Registry("protocol", group="divtok.protocols")
    for module in ("protocols.extract", "protocols.prompts", "grade.trajectories"):
        monkeypatch.setattr(f"divtok.{module}.PROTOCOLS", protocols)
    dist = SimpleNamespace(name="theirs", version="1.0")
    point = SimpleNamespace(
        name="letter", value="theirs:LETTER", attr="LETTER", dist=dist, load=lambda: LETTER
    )
    monkeypatch.setattr("divtok.registry.entry_points", lambda *, group: [point])
    assert messages_for("Why?", protocol="letter")[0]["content"].startswith("Why? End with")
    assert extract_answer("So. Answer: B", "letter") == "B"
    assert not protocols.get("letter").states_confidence
    pairs = [(trajectory(text, text, "letter"), "B") for text in ("Answer: B", "Answer: C", "B")]
    first, second, third = grade_trajectories(pairs)
    assert (first.verdict, first.answer_start, first.answer_stop) == ("correct", 8, 9)
    assert second.verdict == "incorrect"
    assert (third.verdict, third.reason) == ("unanswered", "no letter")
