"""The graders for what is not mathematics: what they decide, and what they leave undecided."""

from __future__ import annotations

import time

import pytest
from grade_samples import trajectory
from scripted_server import Request, ScriptedServer, Step, chat, ok, refuse

from divtok.config.run import load_config
from divtok.errors import ConfigError, ServerError, UsageError
from divtok.grade import grade_answer, grade_trajectories, judge_answer
from divtok.grade.grader import Case
from divtok.grade.graders.judge import JudgeSection
from divtok.grade.model_judge import prompt, read_verdict
from divtok.records import Grade, Verdict, reason_kind

RIGHT, WRONG, OPEN = Verdict.CORRECT, Verdict.INCORRECT, Verdict.UNDETERMINED


def check(grader: str, gold: str, answer: str, verdict: Verdict) -> None:
    judgement = judge_answer(gold=gold, answer=answer, grader=grader, time_limit=2.0)
    assert judgement.verdict is verdict
    assert (judgement.reason is not None) == (verdict is OPEN)


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        *(("B", answer, RIGHT) for answer in ("B", "(B)", "b", "B.", "B)", "[B]", "**B**", "(b)")),
        *(("B", answer, RIGHT) for answer in (r"\text{B}", "B. Paris", "(B) Paris", "$B$")),
        *((gold, "B", RIGHT) for gold in ("(B)", "b", "B.", "(B) Paris", "B: Paris")),
        *(("B", answer, WRONG) for answer in ("A", "(c)", "C. Paris")),
        ("(B) Paris", "paris", RIGHT),
        ("(B) Paris", "(A) Paris", WRONG),
        # Another text may be that of this option in other words, or of another one.
        ("(B) Paris", "London", OPEN),
        ("B", "Paris", OPEN),
        ("B", "A and B", OPEN),
        ("1", "B", OPEN),  # counted from nought or from one
        ("Paris", "B", OPEN),
        # Several options are no choice; what only looks like one is the text of the first.
        *(("B", answer, OPEN) for answer in ("(B) or (C)", "B) and C)", "B. C.", "B. C", "B: C")),
        *(("B", answer, OPEN) for answer in ("B) 5 or C) 6", "B) 5 or C", "B. 5 C. 6")),
        *(("B", answer, OPEN) for answer in ("B. Paris or C. Rome", "(b) or (c)", "B) 5; C) 6")),
        *(("B", answer, RIGHT) for answer in ("B) 5", "(B) A car or a bus", "B. George W. Bush")),
        *(("B", answer, RIGHT) for answer in ("(B) 10 m/s", "B) f(x, y)", "B. x or y", "B) 5 V.")),
        *(("D", answer, RIGHT) for answer in ("D) Both A and B", "(D) Both (A) and (B)")),
        *(("D", answer, RIGHT) for answer in ("D. A and B", "D. vitamins B and C", "D) (D)")),
        ("(B) 5 or C) 6", "B) 5 or C) 6", RIGHT),
    ],
)
def test_a_choice(gold: str, answer: str, verdict: Verdict) -> None:
    check("choice", gold, answer, verdict)


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        ("yes", "Yes.", RIGHT),
        ("The cat", "a  CAT!", RIGHT),
        ("well-known", "well known", RIGHT),
        ("“No”", "'no'", RIGHT),
        ("two", "2", RIGHT),
        ("1,000", "1000", RIGHT),
        ("05/01/2021", "05/01/2021.", RIGHT),
        ("a", "A", RIGHT),
        (") ]", ")  ]", RIGHT),
        (") ]", "] )", WRONG),
        ("-3", "3", WRONG),
        ("1.5", "15", WRONG),
        ("1,2", "12", WRONG),
        ("C++", "C", WRONG),
        ("valid", "invalid", WRONG),
        ("ant bee", "bee ant", WRONG),
        # An article stands before a word; any other A is a letter.
        *(("A", answer, RIGHT) for answer in ("A.", "(A)", "'a'", "the A")),
        ("Vitamin A", "the vitamin a.", RIGHT),
        ("Vitamin A", "vitamin", WRONG),
        ("hepatitis A", "hepatitis", WRONG),
        ("B", "A, B", WRONG),
        ("B", "A B", WRONG),
        ("cat", "*The* 'cat'", RIGHT),
        ("5 apples", "a 5 apples", RIGHT),
        ("the", "The.", RIGHT),
        ("5!", "5! ", RIGHT),
        ("5!", "5", WRONG),
        ("5!!", "5!", WRONG),
        ("-5", "\N{MINUS SIGN}5", RIGHT),
        ("\N{MINUS SIGN}5", "5", WRONG),
    ],
)
def test_a_text(gold: str, answer: str, verdict: Verdict) -> None:
    check("text", gold, answer, verdict)


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        (r"\d+ eggs?", "12 eggs", RIGHT),
        (r"\d+ eggs?", " 1 egg\n", RIGHT),
        (r"\d+", "12 eggs", WRONG),
        ("(?i)paris|rome", "Rome", RIGHT),
        ("paris|rome", "Rome", WRONG),
        ("(", "x", OPEN),
    ],
)
def test_a_pattern(gold: str, answer: str, verdict: Verdict) -> None:
    check("regex", gold, answer, verdict)


def test_a_pattern_that_takes_for_ever_is_stopped() -> None:
    started = time.monotonic()
    judgement = judge_answer(gold="(a+)+b", answer="a" * 60, grader="regex", time_limit=1.0)
    assert (judgement.verdict, reason_kind(judgement.reason)) == (OPEN, "time_limit")
    assert time.monotonic() - started < 30.0
    assert grade_answer(gold="(a+)+b", answer="aab", grader="regex") is RIGHT


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        ('{"a": 1, "b": [1.0, null]}', '{"b":[1e0,null],"a":1.00}', RIGHT),
        ('"x"', ' "x" ', RIGHT),
        ("[1, 2]", "[2, 1]", WRONG),
        ("[1]", "[1, 1]", WRONG),
        ("1", "true", WRONG),
        ("[0]", "[false]", WRONG),
        ('{"a": 1}', '{"a": 1, "b": null}', WRONG),
        ("0.1", "0.10000000000000001", WRONG),
        ("1e400", "1e401", WRONG),
        ('{"a": 1}', "{'a': 1}", OPEN),
        ('{"a": 1}', '{"a": 1, "a": 1}', OPEN),
        ("NaN", "NaN", OPEN),
        ("Paris", '"Paris"', OPEN),
        ("[" * 100_000, "1", OPEN),
    ],
)
def test_json(gold: str, answer: str, verdict: Verdict) -> None:
    check("json", gold, answer, verdict)


@pytest.mark.parametrize(
    ("grader", "gold", "answer", "kind"),
    [
        ("choice", "1", "A", "gold_unread"),
        ("choice", "A", "1", "answer_unread"),
        ("choice", "A", "A) or B)", "several_options"),
        ("regex", "(", "A", "gold_unread"),
        ("json", "x", "1", "gold_unread"),
        ("json", "1", "x", "answer_unread"),
    ],
)
def test_what_cannot_be_read_is_named(grader: str, gold: str, answer: str, kind: str) -> None:
    assert reason_kind(judge_answer(gold=gold, answer=answer, grader=grader).reason) == kind


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("yes", RIGHT),
        ("They say the same.\n\n**Yes**.", RIGHT),
        ("Same: no\n", WRONG),
        ("No", WRONG),
        ("yes and no", OPEN),
        ("yes\nThat is my answer.", OPEN),
        ("", OPEN),
    ],
)
def test_a_judge_is_read_where_it_is_clear(reply: str, verdict: Verdict) -> None:
    assert read_verdict(reply).verdict is verdict


def test_a_judge_sees_question_gold_and_answer_and_no_place_is_filled_twice() -> None:
    asked = prompt(Case("18 {answer}", "{gold} eighteen", question="How many {gold}?"))
    assert "Question:\nHow many {gold}?\n" in asked
    assert "Correct answer:\n18 {answer}\n" in asked
    assert "Given answer:\n{gold} eighteen\n" in asked
    assert "(not known)" in prompt(Case("18", "eighteen"))


def judged(server: ScriptedServer, *answers: str, **options: object) -> list[Grade]:
    pairs = [(trajectory(a, f"Answer: {a}", "text"), "eighteen") for a in answers]
    section = JudgeSection.model_validate(
        {"base_url": server.base_url, "model": "m", "first_wait_s": 0.01, **options}
    )
    return list(
        grade_trajectories(
            pairs, grader="judge", options={"judge": section}, questions={("made_up", "p"): "Q?"}
        )
    )


def test_a_model_judges() -> None:
    def script(name: str, number: int, request: Request) -> Step:
        if "broken" in name and number == 1:
            return refuse(503)
        return ok(chat("They are the same.\nyes" if "18" in name else "no"))

    with ScriptedServer(script) as server:
        grades = judged(server, "18", "17", "18 broken")
        bodies = [request.body for request in server.requests]
    assert [grade.verdict for grade in grades] == [RIGHT, WRONG, RIGHT]
    assert {(b["model"], b["temperature"], b["max_tokens"]) for b in bodies} == {("m", 0.0, 1024)}
    assert all("Question:\nQ?\n" in b["messages"][0]["content"] for b in bodies)


def test_a_call_that_fails_or_says_nothing_clear_decides_nothing() -> None:
    def script(name: str, number: int, request: Request) -> Step:
        if "late" in name:
            return refuse(503)
        return ok(chat("yes" if "18" in name else "Who knows?"))

    with ScriptedServer(script) as server:
        grades = judged(server, "18", "17", "late", max_attempts=2)
    assert [grade.verdict for grade in grades] == [RIGHT, OPEN, OPEN]
    kinds = [reason_kind(grade.reason) for grade in grades]
    assert kinds == [None, "judge_unclear", "judge_failed"]


def test_a_judge_that_refuses_to_work_ends_the_grading() -> None:
    with (
        ScriptedServer(lambda *_: refuse(401, "no key")) as server,
        pytest.raises(ServerError, match="401"),
    ):
        judged(server, "18", "17")


def test_a_judge_has_to_be_named() -> None:
    with pytest.raises(UsageError, match=r"'judge' needs to be told more.*grade\.judge"):
        judge_answer(gold="1", answer="1", grader="judge")
    config = load_config(None, ["grade.grader=judge", "grade.judge.base_url=http://127.0.0.1:1/v1"])
    with pytest.raises(ConfigError, match=r"no model.*grade\.judge\.model"):
        config.grade.judge.server()
