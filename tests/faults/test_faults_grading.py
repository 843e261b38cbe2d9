"""Answers that try to crash, stall or take over the grader, or that it could misjudge."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import chain, islice
from pathlib import Path

import pytest
from answer_samples import blow_ups, fuzzed_answers
from grade_samples import ENDLESS, my_workers, trajectory
from scorecard import measure, tries

from divtok.evaluate.protocol import Protocol, evaluate_group
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.grade import GRADERS, grade_answer, grade_trajectories, judge_answer
from divtok.grade.answers import start_judging
from divtok.grade.judgement import Judgement
from divtok.records import Verdict, reason_kind

TIME_LIMIT = 1.0
AT_ONCE = 64


def test_fault_32_what_cannot_be_computed_is_undetermined_in_time() -> None:
    for answer in ("5^{5^{5^{5^5}}}", "9^{9^9}", "(" * 300 + "1" + ")" * 300, ENDLESS):
        begin = time.monotonic()
        judgement = judge_answer(gold="7", answer=answer, time_limit=TIME_LIMIT)
        assert judgement.verdict is Verdict.UNDETERMINED, answer
        assert judgement.reason
        assert time.monotonic() - begin < TIME_LIMIT + 30  # and the start of a worker


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("3", r"7 \bmod 4"),
        ("3", r"7 \pmod{4}"),
        ("3", "7 mod 4"),
        ("35", r"\sum_{1 \le i < j \le 4} ij"),
        ("12", r"\sum_{d \mid 6} d"),
        ("4", r"\sum_{i=0}^{\infty} \sum_{j=0}^{\infty} 2^{-i-j}"),
        ("20", "C_6^3"),
        ("2", "sqrt{4}"),
        (r"\frac{1}{4}", r"\iint_{[0,1]^2} xy \, dA"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{smallmatrix} 1 \\ 2 \end{smallmatrix}"),
        (r"\frac{1}{3}", r"0.\overline{3}"),
        (r"\frac{1}{3}", r"0.333\ldots"),
        ("55", r"1 + 2 + \cdots + 10"),
        ("10", "C(5, 2)"),
        ("15", "5!!"),
        ("16", "2⁴"),
    ],
)
def test_fault_32_notation_that_cannot_be_read_is_never_incorrect(gold: str, answer: str) -> None:
    for one, other in ((gold, answer), (answer, gold)):
        judgement = judge_answer(gold=one, answer=other)
        assert (judgement.verdict, reason_kind(judgement.reason)) == (
            Verdict.UNDETERMINED,
            "unread",
        )


def test_fault_33_many_threads_share_workers_that_can_be_killed() -> None:
    found: dict[int, Judgement] = {}

    def judge(number: int) -> None:
        answer = ENDLESS if number % 3 == 0 else f"{number}(x+1)"
        found[number] = judge_answer(
            gold=f"{number}x+{number}", answer=answer, time_limit=TIME_LIMIT
        )

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n].verdict for n in (1, 2, 4, 5)] == [Verdict.CORRECT] * 4
    assert [found[n].reason for n in (0, 3)] == ["timeout after 1 s"] * 2


def test_fault_34_no_answer_is_run_as_code(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for answer in (
        f"__import__('pathlib').Path('{trap}').touch()",
        rf"\text{{open('{trap}','w')}}",
        f"f(open('{trap}','w'))+x",
    ):
        for gold, given in (("x+y", answer), (answer, "x+y")):
            assert grade_answer(gold=gold, answer=given) is not Verdict.CORRECT
    assert not trap.exists()


def test_fault_35_caps_come_before_any_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(*_: object) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr("divtok.grade.maths.workers.WorkerPool.submit", parsed)
    monkeypatch.setattr("divtok.grade.maths.equivalence.read_number", parsed)
    for answer in ("x" * 20_001, "1" * 1_001, "(" * 33 + "x" + ")" * 33):
        judgement = judge_answer(gold="x+1", answer=answer)
        assert judgement.verdict is Verdict.UNDETERMINED
        assert reason_kind(judgement.reason) in ("too_long", "too_complex")


def test_fault_36_the_last_balanced_box_counts_and_none_is_counted() -> None:
    texts = {
        "none": "It is 7.",
        "several": r"\boxed{3}, no: \boxed{7}",
        "unbalanced": r"\boxed{7} and \boxed{3",
        "blank": r"\boxed{7}, in the form \boxed{ }",
        "never closed": r"\boxed{7",
    }
    pairs = [(trajectory(name, text), "7") for name, text in texts.items()]
    grades = list(grade_trajectories(pairs))
    assert [grade.verdict for grade in grades] == [
        Verdict.UNANSWERED, Verdict.CORRECT, Verdict.CORRECT, Verdict.CORRECT, Verdict.UNANSWERED,
    ]  # fmt: skip
    assert grades[0].reason
    [evaluation] = evaluate_group(
        ScoredGroup(
            benchmark="b",
            generator="g",
            problem_id=list(texts),
            verdict=[grade.verdict for grade in grades],
            truncated=[False] * 5,
            length=[1] * 5,
            count=[0] * 5,
            columns=[ScoreColumn("nsl", [0.5] * 5)],
        ),
        Protocol(draws=2, resamples=2),
    )
    assert (evaluation.n, evaluation.excluded_by["unanswered"]) == (5, 2)


def test_fault_37_gold_and_answer_go_by_name() -> None:
    for judge in (grade_answer, judge_answer):
        with pytest.raises(TypeError):
            judge("7", "7")  # type: ignore[misc]


def test_fuzzed_answers_and_blow_ups(tmp_path: Path) -> None:
    trap, before = tmp_path / "trap", set(my_workers())
    with measure(
        "grader",
        "fuzzed answers and blow-ups through the grader",
        "0 crashes, hangs or code run; time-outs reported; 0 orphan processes",
    ) as figures:
        answers = tries(short=300, full=50_000)
        blown = blow_ups(tries(short=10, full=200))
        cases = chain(fuzzed_answers(answers, trap), (("7", answer) for answer in blown))
        kinds: Counter[str] = Counter()
        verdicts: Counter[Verdict] = Counter()
        with GRADERS.get("maths").open(2) as compare:
            while chunk := list(islice(cases, AT_ONCE)):
                judgings = [
                    start_judging(compare, gold, answer, "nothing", TIME_LIMIT)
                    for gold, answer in chunk
                ]
                for judging in judgings:
                    # A crash is what this raises; a hang raises TimeoutError.
                    found = judging if isinstance(judging, Judgement) else judging.result(300)
                    verdicts[found.verdict] += 1
                    kinds[reason_kind(found.reason) or ""] += 1
                    assert found.reason or found.verdict in (Verdict.CORRECT, Verdict.INCORRECT)
        orphans = set(my_workers()) - before
        figures |= {"answers": answers, "blow-ups": len(blown), "crashes": 0, "hangs": 0}
        figures |= {
            "undetermined": verdicts[Verdict.UNDETERMINED],
            "time-outs": kinds["time_limit"],
            "workers lost": kinds["worker_died"] + kinds["comparison_failed"],
            "code run": int(trap.exists()),
            "orphan processes": len(orphans),
        }
        assert verdicts.total() == answers + len(blown)
        assert verdicts[Verdict.CORRECT] > answers // 20
        assert verdicts[Verdict.INCORRECT] > answers // 20
        assert not trap.exists()
        assert not orphans
