"""Which responses of a run give the same answer to a problem, as numbers: no gold answer is used.

Two answers are the same where their texts are, or where the grader of the benchmark calls them
equal. A response that was cut off or has failed gives none, and neither does one in which no answer
was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from divtok.config.run import RunConfig
from divtok.evaluate.metrics import Ints
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.votes import NO_ANSWER
from divtok.grade.same_answers import SameAnswers
from divtok.protocols.extract import find_answer_by
from divtok.protocols.protocol import PROTOCOLS
from divtok.records import Verdict
from divtok.store.responses import Response, rows_of
from divtok.store.run import Run


@dataclass(frozen=True, slots=True)
class Votes:
    """Problems and answers of responses as numbers, [N] each; -1 where there is no answer."""

    keys: tuple[str, ...]
    problem: Ints
    answer: Ints


def votes_of(responses: Iterable[Response], numbers: Mapping[str, int]) -> Votes:
    """The votes of these responses of one group, as `answer_numbers` has them."""
    rows = list(responses)
    return Votes(
        keys=tuple(r.key for r in rows),
        problem=problem_numbers([r.problem_id for r in rows]),
        answer=np.array([numbers[r.key] for r in rows], dtype=np.int64),
    )


def answer_numbers(
    run: Run,
    config: RunConfig,
    responses: Mapping[str, Response],
    texts: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """The number of each response's answer, by key: equal within a problem where answers are.

    `responses` are those of the run by key, and `texts` their answers where they are at hand. An
    answer takes the number of the first one before it, in order of samples, that it is equal to.
    Answers of different problems or generators are never compared.
    """
    answers = answer_texts(run, config, responses) if texts is None else texts
    problems: dict[tuple[str, str, str], list[Response]] = {}
    for response in sorted(responses.values(), key=lambda r: r.sample):
        where = (response.benchmark, response.generator, response.problem_id)
        problems.setdefault(where, []).append(response)
    found: dict[str, int] = {}
    with ExitStack() as stack:
        same = SameAnswers(stack, config.grade.workers, config.grade.time_limit)
        for (benchmark, _, _), rows in problems.items():
            texts_of = [answers.get(response.key) for response in rows]
            numbers = same.numbers(config.grader_for(benchmark), texts_of)
            for response, number in zip(rows, numbers, strict=True):
                found[response.key] = NO_ANSWER if number is None else number
    return found


def answer_texts(run: Run, config: RunConfig, responses: Mapping[str, Response]) -> dict[str, str]:
    """The text of each response's answer: as the grades have it, otherwise from the response."""
    voting = {key for key, r in responses.items() if not r.failed and not r.truncated}
    found: dict[str, str] = {}
    without: set[str] = set()
    for key, extracted, verdict in rows_of(run.grades, ("key", "extracted", "verdict")):
        if key in voting and extracted is not None:
            found[key] = extracted
        elif verdict == Verdict.UNANSWERED:
            without.add(key)
    found.update(_read(run, config, responses, voting - found.keys() - without))
    return {key: text for key, text in found.items() if text.strip()}


def _read(
    run: Run, config: RunConfig, responses: Mapping[str, Response], keys: set[str]
) -> Iterator[tuple[str, str]]:
    """The answers of responses that have no grade, or one of another tool that names no answer."""
    if not keys:
        return
    for key, text in rows_of(run.trajectories, ("key", "text")):
        if key in keys:
            protocol = PROTOCOLS.get(responses[key].protocol)
            span, _ = find_answer_by(text, protocol, config.grade.extract)
            if span is not None:
                yield key, span.content
