"""Made-up trajectories and replies, and worker look-up, for the tests of grade/."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.stated import Stated, read_candidates, read_object
from divtok.records import Sampling, Statement, Trajectory

# Far more work than any test waits for, and not caught by a cap: only the time limit ends it.
ENDLESS = r"\sum_{k=1}^{10000000000} \frac{1}{k^k}"


# Equal, but not by the exact rules: a worker has to compare these.
FOR_A_WORKER = (r"[0,\infty)", r"x \ge 0")


def trajectory(key: str, text: str, protocol: str = "cot") -> Trajectory:
    return Trajectory(
        key=key,
        problem_id="p",
        benchmark="made_up",
        sample=0,
        generator="g",
        prompt_ids=(),
        token_ids=(),
        text=text,
        finish_reason="stop",
        protocol=protocol,
        sampling=Sampling(),
    )


_READERS: dict[str, Callable[[str], Stated]] = {
    "verbalized": read_object,
    "verbalized_top2": read_candidates,
    "verbalized_distribution": partial(read_candidates, skip_none=True),
}


def read_stated(text: str, protocol: str) -> Stated:
    return _READERS[protocol](text)


def check_stated(text: str, protocol: str, answer: str | None, expected: float | str) -> None:
    """`expected` is the confidence, or the reason why there is none."""
    found = read_stated(text, protocol)
    asked = PROTOCOLS.get(protocol)
    assert asked.read_confidence is not None
    assert asked.read_confidence(text) == found.statement
    if found.answer is not None:
        assert asked.find_answer(text) == found.answer
    assert (found.answer and found.answer.content) == answer
    if isinstance(expected, str):
        assert found.statement == Statement(None, expected)
    else:
        assert found.statement == Statement(expected)


def not_a_number(text: str) -> str:
    return f'the confidence "{text}" is not a number'


def candidates(*pairs: tuple[str, str]) -> str:
    """A JSON array; both halves of a pair are put in as they are."""
    parts = [f'{{"candidate": {answer}, "confidence": {stated}}}' for answer, stated in pairs]
    return "[" + ", ".join(parts) + "]"


def workers_of(parent: int) -> list[int]:
    """Process ids of the living grading workers that were started by process `parent` (Linux)."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it ended while we looked
            continue
        if b"divtok.grade.maths.worker_main" in arguments and str(parent).encode() in arguments:
            found.append(int(entry.name))
    return found


def my_workers() -> list[int]:
    return workers_of(os.getpid())
