"""Single answers through the public function, algebra in the workers included."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from grade_samples import ENDLESS

from divtok.errors import UsageError
from divtok.grade import grade_answer, judge_answer
from divtok.records import Verdict


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("x^2+2x+1", "(x+1)^2"),
        (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}"),
        (r"2\sqrt{5}", r"\sqrt{20}"),
        ("4", "2+2"),
        ("x=3", "3"),
        ("3", "x = 3"),
        (r"\{1,2\}", "2, 1"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}"),
        (r"[0,\infty)", r"x \ge 0"),
        (r"\pi", "3.14159265"),
        (r"\frac{1}{4}", r"\sin^2 30^\circ"),
        (r"\sqrt{7}", "√7"),
        (r"2^{-99}", r"\frac{1}{2^{99}}"),
        (r"1 - \frac{1}{e}", r"1 - \frac{1}{\mathrm{e}}"),
        (r"\frac{1}{2}\sqrt{3}", r"\textbf{(B)}\ \frac{\sqrt{3}}{2}"),
    ],
)
def test_equal_in_value_is_correct(gold: str, answer: str) -> None:
    assert grade_answer(gold=gold, answer=answer) is Verdict.CORRECT


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("x^2+2x+1", "x^2+2x"),
        ("x^2", "y^2"),
        ("[1, 2]", "(1, 2)"),
        (r"\pm 5", "5"),
        (r"\pi", "3.14"),
        (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"),
        (r"\frac{1}{2004!}", r"\frac{1}{2006!}"),
        (r"(\frac{1}{2^{99}}, 1)", r"(\frac{1}{2^{98}}, 1)"),
        (r"\frac{x}{2^{99}}", r"\frac{x}{2^{98}}"),
        (r"10^{-8}", "0.00000002"),
        (r"1 - \frac{1}{\mathrm{e}}", r"1 + \frac{1}{\mathrm{e}}"),
        (r"(12_3, 5)", r"(12_4, 5)"),
    ],
)
def test_another_value_is_incorrect(gold: str, answer: str) -> None:
    assert grade_answer(gold=gold, answer=answer) is Verdict.INCORRECT


@pytest.mark.parametrize(
    "answer",
    [
        "5^{5^{5^{5^5}}}",
        "9^{9^9}",
        "(0, 9^{9^9})",
        r"\frac{1}{9^{9^9}}",
        r"\begin{pmatrix} 9^{9^9} \end{pmatrix}",
        "(10^{10})!",
        "3!!!!!!",
        "(" * 300 + "x" + ")" * 300,
    ],
)
def test_what_cannot_be_computed_is_undetermined(answer: str) -> None:
    started = time.monotonic()
    judgement = judge_answer(gold="5", answer=answer)
    assert judgement.verdict is Verdict.UNDETERMINED
    assert judgement.reason
    assert time.monotonic() - started < 20.0  # the limit of 5 s, and room for starting a worker


def test_a_timeout_is_undetermined_and_the_next_answer_is_graded() -> None:
    judgement = judge_answer(gold="3", answer=ENDLESS, time_limit=0.5)
    assert judgement.verdict is Verdict.UNDETERMINED
    assert judgement.reason == "timeout after 0.5 s"
    assert grade_answer(gold="2x", answer="x+x") is Verdict.CORRECT


def test_missing_gold_and_missing_answer_say_so() -> None:
    for gold in (None, "", float("nan")):
        judgement = judge_answer(gold=gold, answer="nan")
        assert (judgement.verdict, judgement.reason) == (Verdict.UNDETERMINED, "gold_missing")
    assert grade_answer(gold="5", answer=None) is Verdict.UNANSWERED
    assert grade_answer(gold="5", answer=" ") is Verdict.UNANSWERED


def test_gold_and_answer_cannot_be_swapped_by_position() -> None:
    with pytest.raises(TypeError):
        grade_answer("5", "5")  # type: ignore[misc]


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_a_wrong_time_limit_is_refused(wrong: float) -> None:
    with pytest.raises(UsageError, match="time_limit"):
        grade_answer(gold="5", answer="5", time_limit=wrong)


def test_grading_works_from_many_threads() -> None:
    verdicts: list[Verdict] = []

    def grade(number: int) -> None:
        verdicts.append(grade_answer(gold=f"{number}x+{number}", answer=f"{number}(x+1)"))

    threads = [threading.Thread(target=grade, args=(number,)) for number in range(2, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [Verdict.CORRECT] * 8


@pytest.mark.parametrize(
    "template",
    [
        "__import__('pathlib').Path('{path}').touch()",
        "f(__import__('pathlib').Path('{path}').touch())",
        r"\text{{__import__('pathlib').Path('{path}').touch()}}",
        "open('{path}','w')",
        "1+open('{path}','w').close()",
    ],
)
def test_an_answer_is_never_run_as_code(tmp_path: Path, template: str) -> None:
    trap = tmp_path / "run"
    answer = template.format(path=trap)
    assert grade_answer(gold="x+y", answer=answer) is not Verdict.CORRECT
    assert not trap.exists()


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )


def test_no_string_can_be_evaluated_in_a_worker() -> None:
    code = """
from sympy import S, parse_expr, sympify
from sympy.core.sympify import SympifyError
from divtok.grade.maths.symbolic import secure
secure()
for read in (sympify, S, parse_expr):
    try:
        read("1+1")
    except SympifyError:
        continue
    raise SystemExit(f"{read} evaluated a string")
assert sympify("12") == 12 and sympify("0.5") == 0.5
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_importing_and_exact_grading_load_no_algebra() -> None:
    code = """
import sys
from divtok.grade import grade_answer
assert grade_answer(gold="1/2", answer="0.5") == "correct"
heavy = {"sympy", "math_verify", "latex2sympy2_extended", "torch", "subprocess", "polars"}
raise SystemExit(", ".join(heavy & set(sys.modules)) or 0)
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_a_plain_script_needs_no_main_guard() -> None:
    code = 'from divtok.grade import grade_answer; print(grade_answer(gold="2x", answer="x+x"))'
    done = run_python(code)
    assert done.stdout == "correct\n", done.stderr
