"""Graders by name, those of other packages among them, and what is the same for all of them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from grade_samples import trajectory

from divtok.errors import UsageError
from divtok.grade import GRADERS, grade_answer, grade_trajectories, judge_answer
from divtok.grade.judgement import no_response
from divtok.records import GOLD_MISSING, Reason, Verdict, reason_kind
from divtok.registry import Registry

PLUG_IN = """
from divtok.grade import CORRECT, INCORRECT, Judgement, undetermined
from divtok.grade.grader import grader

@grader("same_start")
def same_start(gold: str, answer: str) -> Judgement:
    \"\"\"Begins with the gold answer.\"\"\"
    if "?" in answer:
        return undetermined("a_question", "the answer is a question")
    return CORRECT if answer.startswith(gold) else INCORRECT
"""


def test_the_graders_there_are() -> None:
    assert {"exact", "maths"} <= set(GRADERS.names())
    assert [grader.name for grader in GRADERS] == GRADERS.names()
    assert all(grader.summary.endswith(".") for grader in GRADERS)


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        ("Paris", " paris ", Verdict.CORRECT),
        ("New York", "new\n york", Verdict.CORRECT),
        ("STRASSE", "stra\u00dfe", Verdict.CORRECT),
        ("Paris", "Pari s", Verdict.INCORRECT),
        ("1/2", "0.5", Verdict.INCORRECT),
        ("5", None, Verdict.UNANSWERED),
        ("5", " ", Verdict.UNANSWERED),
        (None, "5", Verdict.UNDETERMINED),
    ],
)
def test_exact_text(gold: str | None, answer: str | None, verdict: Verdict) -> None:
    assert grade_answer(gold=gold, answer=answer, grader="exact") is verdict


def test_a_stream_is_graded_by_the_grader_that_is_named() -> None:
    pairs = [(trajectory("a", r"\boxed{0.5}"), "1/2"), (trajectory("b", r"\boxed{Yes}"), "yes")]
    exact = [grade.verdict for grade in grade_trajectories(pairs, grader="exact")]
    assert exact == [Verdict.INCORRECT, Verdict.CORRECT]
    (first, _) = grade_trajectories(pairs)
    assert first.verdict is Verdict.CORRECT


def test_an_unknown_grader_is_refused_before_anything_is_read() -> None:
    with pytest.raises(UsageError, match=r"Unknown grader 'math'\. Did you mean .*'maths'"):
        grade_trajectories([], grader="math")
    with pytest.raises(UsageError, match="Unknown grader"):
        grade_answer(gold="1", answer="1", grader="math")


def test_a_grader_of_another_package_is_one_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graders: Registry[Any] = Registry("grader", group="divtok.graders", home="divtok.grade.graders")
    for module in ("grader", "answers", "trajectories"):
        monkeypatch.setattr(import_module(f"divtok.grade.{module}"), "GRADERS", graders)
    (tmp_path / "their_graders.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path)
    point = SimpleNamespace(
        name="same_start",
        value="their_graders",
        attr="",
        dist=SimpleNamespace(name="theirs", version="1.0"),
        load=lambda: import_module("their_graders"),
    )
    monkeypatch.setattr("divtok.registry.entry_points", lambda *, group: [point])
    pairs = [
        (trajectory("a", r"\boxed{yes, it is}"), "yes"),
        (trajectory("b", r"\boxed{no}"), "yes"),
        (trajectory("c", r"\boxed{yes?}"), "yes"),
        (trajectory("d", "yes"), "yes"),
        (trajectory("e", r"\boxed{yes}"), None),
    ]
    grades = list(grade_trajectories(pairs, grader="same_start"))
    assert [grade.verdict for grade in grades] == [
        "correct", "incorrect", "undetermined", "unanswered", "undetermined",
    ]  # fmt: skip
    assert [reason_kind(grade.reason) for grade in grades] == [
        None, None, "a_question", "no_answer", GOLD_MISSING,
    ]  # fmt: skip
    assert graders.get("same_start").summary == "Begins with the gold answer."
    assert graders.origin("same_start") == "theirs 1.0"
    assert judge_answer(gold="a", answer="ab", grader="same_start").verdict is Verdict.CORRECT


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason("time_limit", "no response: in time"), "time_limit"),
        (no_response("gone"), "no_response"),
        ("no response: gone", None),  # a text without a kind
        (None, None),
    ],
)
def test_the_kind_of_a_reason(reason: str | None, kind: str | None) -> None:
    assert reason_kind(reason) == kind
