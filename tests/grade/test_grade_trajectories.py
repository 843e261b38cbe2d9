"""Streams of trajectories, and the life of the worker processes behind them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice

import pytest
from grade_samples import ENDLESS, FOR_A_WORKER, my_workers, trajectory, workers_of

from divtok.errors import UsageError
from divtok.grade import grade_trajectories
from divtok.grade.grader import Case
from divtok.grade.judgement import NO_RESPONSE
from divtok.grade.maths.workers import MEMORY_BYTES, WorkerPool
from divtok.grade.trajectories import READ_AHEAD
from divtok.records import GOLD_MISSING, Grade, Reason, Trajectory, Verdict

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def has_memory_limit(pid: int) -> bool:
    return resource.prlimit(pid, resource.RLIMIT_AS)[0] == MEMORY_BYTES


def told(grade: Grade) -> tuple[str, str | None, Verdict, str | None]:
    """What a grade says, but for the place of the answer."""
    return grade.key, grade.extracted, grade.verdict, grade.reason


def test_every_trajectory_gets_its_grade_in_order() -> None:
    pairs = [
        (trajectory("slow", rf"\boxed{{{ENDLESS}}}"), "3"),
        (trajectory("hard", r"\boxed{x+x}"), "2x"),
        (trajectory("easy", r"first \boxed{1}, then \boxed{07}"), "7"),
        (trajectory("wrong", r"\boxed{8}"), "7"),
        (trajectory("none", "no box here"), "7"),
        (trajectory("gold", r"\boxed{8}"), None),
        (trajectory("huge", r"\boxed{9^{9^9}}"), "7"),
    ]
    grades = list(grade_trajectories(pairs, workers=2, time_limit=4.0))
    assert [told(grade) for grade in grades] == [
        ("slow", ENDLESS, Verdict.UNDETERMINED, "timeout after 4 s"),
        ("hard", "x+x", Verdict.CORRECT, None),
        ("easy", "07", Verdict.CORRECT, None),
        ("wrong", "8", Verdict.INCORRECT, None),
        ("none", None, Verdict.UNANSWERED, r"no \boxed{} found"),
        ("gold", "8", Verdict.UNDETERMINED, "gold_missing"),
        ("huge", "9^{9^9}", Verdict.UNDETERMINED, "answer holds a number too large to compute"),
    ]
    kinds = [g.reason.kind for g in grades if isinstance(g.reason, Reason)]
    assert kinds == ["time_limit", "no_answer", GOLD_MISSING, "too_complex"]


def test_a_grade_says_where_the_answer_is() -> None:
    stated = r'{"final_answer": " \\frac{1}{2} ", "confidence": 0.9}'
    rows = [
        trajectory("box", r"first \boxed{1}, then \boxed{ 07 }"),
        trajectory("json", stated, "verbalized"),
        trajectory("none", "07"),
    ]
    box, json_, none = grade_trajectories([(row, "7") for row in rows])
    assert rows[0].text[box.answer_start : box.answer_stop] == "07"
    # As written, with the escapes that `extracted` is free of.
    assert rows[1].text[json_.answer_start : json_.answer_stop] == r"\\frac{1}{2}"
    assert json_.extracted == r"\frac{1}{2}"
    assert (none.answer_start, none.answer_stop) == (None, None)


def test_a_failed_response_is_not_the_generator_s_fault() -> None:
    row = replace(trajectory("k", ""), finish_reason="failed", reason="gone")
    for grader in ("maths", "exact"):
        (grade,) = grade_trajectories([(row, "7")], grader=grader)
        assert grade == Grade("k", None, Verdict.UNDETERMINED, "no response: gone")
        assert isinstance(grade.reason, Reason)
        assert grade.reason.kind == NO_RESPONSE


def test_the_protocol_of_a_trajectory_says_where_its_answer_is() -> None:
    stated = '{"final_answer": "7", "confidence": 0.9}'
    both = '[{"candidate": "8", "confidence": 0.3}, {"candidate": "7", "confidence": 0.7}]'
    unsure = both.replace("0.3", '"?"')
    escaped = r'{"final_answer": "\frac{14}{2}", "confidence": "high"}'
    pairs = [
        (trajectory("box", stated), "7"),
        (trajectory("object", rf"\boxed{{8}} {stated}", "verbalized"), "7"),
        (trajectory("latex", escaped, "verbalized"), "7"),
        (trajectory("top2", both, "verbalized_top2"), "7"),
        (trajectory("wrong", both, "verbalized_distribution"), "8"),
        (trajectory("instead", rf"\boxed{{7}} {unsure}", "verbalized_top2"), "7"),
        (trajectory("nothing", "7", "verbalized"), "7"),
        (trajectory("no winner", unsure, "verbalized_top2"), "7"),
        (trajectory("empty", "", "verbalized_distribution"), "7"),
    ]
    no_candidate = r"no likeliest JSON candidate and no \boxed{} found"
    assert [told(grade) for grade in grade_trajectories(pairs)] == [
        ("box", None, Verdict.UNANSWERED, r"no \boxed{} found"),
        ("object", "7", Verdict.CORRECT, None),
        ("latex", r"\frac{14}{2}", Verdict.CORRECT, None),
        ("top2", "7", Verdict.CORRECT, None),
        ("wrong", "7", Verdict.INCORRECT, None),
        ("instead", "7", Verdict.CORRECT, None),
        ("nothing", None, Verdict.UNANSWERED, r"no JSON final_answer and no \boxed{} found"),
        ("no winner", None, Verdict.UNANSWERED, no_candidate),
        ("empty", None, Verdict.UNANSWERED, no_candidate),
    ]


def test_a_trajectory_of_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(UsageError, match="Unknown protocol 'boxed'"):
        list(grade_trajectories([(trajectory("k", "", "boxed"), "7")]))


def test_grading_is_lazy_and_reads_a_bounded_number_ahead() -> None:
    taken = 0

    def endless() -> Iterator[tuple[Trajectory, str]]:
        nonlocal taken
        for number in count():
            taken += 1
            yield trajectory(str(number), rf"\boxed{{x+{number}}}"), f"{number}+x"

    grades = grade_trajectories(endless(), workers=1)
    assert taken == 0
    first = list(islice(grades, 3))
    assert [grade.key for grade in first] == ["0", "1", "2"]
    assert {grade.verdict for grade in first} == {Verdict.CORRECT}
    assert taken <= READ_AHEAD + 4


def test_thousands_of_plain_answers_need_no_worker() -> None:
    pairs = ((trajectory(str(n), rf"so \boxed{{{n:,}}}"), str(n - n % 2)) for n in range(5000))
    started = time.monotonic()
    grades = list(grade_trajectories(pairs))
    assert time.monotonic() - started < 10.0  # a round trip to a worker each would take far longer
    assert [g.verdict for g in grades[:2]] == [Verdict.CORRECT, Verdict.INCORRECT]
    assert sum(g.verdict is Verdict.CORRECT for g in grades) == 2500


@pytest.mark.parametrize("options", [{"workers": 0}, {"time_limit": 0.0}])
def test_wrong_options_are_refused_before_anything_is_read(options: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        grade_trajectories([], **options)


@linux_only
def test_an_abandoned_iteration_leaves_no_worker() -> None:
    before = set(my_workers())
    pairs = [
        (trajectory(str(n), rf"\boxed{{{FOR_A_WORKER[1]}}}"), FOR_A_WORKER[0]) for n in range(50)
    ]
    grades = grade_trajectories(iter(pairs), workers=2)
    next(grades)
    assert set(my_workers()) - before
    grades.close()  # type: ignore[attr-defined]
    assert set(my_workers()) <= before


@linux_only
def test_a_worker_that_dies_is_replaced_and_its_answer_tried_again() -> None:
    before = set(my_workers())
    with WorkerPool(workers=1) as pool:
        assert pool.submit(Case(*FOR_A_WORKER, 20)).result().verdict == "correct"
        [worker] = set(my_workers()) - before
        os.kill(worker, signal.SIGKILL)
        assert pool.submit(Case(*FOR_A_WORKER, 20)).result().verdict == "correct"
        assert worker not in my_workers()


@linux_only
def test_an_answer_that_kills_two_workers_is_undetermined() -> None:
    before = set(my_workers())
    with WorkerPool(workers=1) as pool:
        future = pool.submit(Case("3", ENDLESS, 60))
        killed: set[int] = set()
        while len(killed) < 2:
            for worker in set(my_workers()) - before - killed:
                # Its memory limit is set last: before that it is starting, and not yet at work.
                assert wait_for(lambda pid=worker: has_memory_limit(pid), 30)
                time.sleep(0.3)
                os.kill(worker, signal.SIGKILL)
                killed.add(worker)
        judgement = future.result(timeout=20)
        assert judgement.verdict is Verdict.UNDETERMINED
        assert judgement.reason == "the grading worker died"


@linux_only
def test_closing_a_pool_ends_busy_workers_at_once() -> None:
    before = set(my_workers())
    pool = WorkerPool(workers=2)
    for _ in range(4):
        pool.submit(Case("3", ENDLESS, 60))
    assert wait_for(lambda: len(set(my_workers()) - before) == 2, 10)
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 10
    assert set(my_workers()) <= before


@linux_only
@pytest.mark.parametrize("ending", ["killed", "returns"])
def test_no_worker_outlives_its_parent(ending: str) -> None:
    code = f"""
import threading
from divtok.grade import grade_answer
grade_answer(gold={FOR_A_WORKER[0]!r}, answer={FOR_A_WORKER[1]!r})
threading.Thread(
    target=grade_answer,
    kwargs=dict(gold="3", answer={ENDLESS!r}, time_limit=2.0),
    daemon=True,
).start()
print("working", flush=True)
if {ending == "killed"}:
    threading.Event().wait()
"""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "working\n"
        if ending == "killed":
            assert workers_of(parent.pid)
            time.sleep(0.3)
            parent.kill()
        parent.wait(timeout=30)
    assert wait_for(lambda: not workers_of(parent.pid), 10)


def test_a_worker_ends_itself_when_nobody_else_does() -> None:
    # One power of an integer, during which no other thread of Python gets its turn.
    code = """
from divtok.grade.maths import symbolic, worker_main
symbolic.compare = lambda gold, answer: 10 ** 10**9
worker_main.main()
"""
    request = json.dumps({"gold": "1", "answer": "1", "time_limit": 0.1})
    with subprocess.Popen(
        [sys.executable, "-c", code, str(os.getpid()), str(MEMORY_BYTES)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as worker:
        assert worker.stdin is not None
        worker.stdin.write(request + "\n")
        worker.stdin.flush()
        try:
            assert worker.wait(timeout=30) == 1
        finally:
            worker.kill()


def test_a_grade_says_by_which_fallback_its_answer_was_found() -> None:
    pairs = [
        (trajectory("box", r"1 and \boxed{7}"), "7"),
        (trajectory("open", r"so \boxed{7"), "7"),
        (trajectory("said", "The answer is 7."), "8"),
        (trajectory("last", "3 and 4 are 7"), "7"),
        (trajectory("none", "no idea"), "7"),
        (trajectory("other", "3 and 4 are 7", "sentence"), "7"),
    ]
    grades = list(grade_trajectories(pairs, workers=1, extract="released"))
    assert [(g.key, g.extracted, g.verdict, g.fallback) for g in grades] == [
        ("box", "7", Verdict.CORRECT, None),
        ("open", "7", Verdict.CORRECT, "unclosed_box"),
        ("said", "7", Verdict.INCORRECT, "phrase"),
        ("last", "7", Verdict.CORRECT, "last_number"),
        ("none", None, Verdict.UNANSWERED, None),
        ("other", None, Verdict.UNANSWERED, None),
    ]
    assert [(g.answer_start, g.answer_stop) for g in grades[2:4]] == [(14, 15), (12, 13)]
    assert grades[4].reason == r'no \boxed{}, no "the answer is ..." and no number found'
    assert [g.fallback for g in grade_trajectories(pairs, workers=1)] == [None] * 6
