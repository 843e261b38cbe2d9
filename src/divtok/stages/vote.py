"""samples -> one answer for each problem, and how often that is right; from stored tables alone.

The samples of a generator on a benchmark vote; their answers, grades and confidences are what the
tables have. Grades are not needed to choose, only to say how often the choice is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from divtok.config.run import RunConfig
from divtok.decide.chosen import Candidate, Vote, vote_on
from divtok.decide.vote_comparison import (
    LEVEL,
    GeneratorVotes,
    compared,
    shown_votings,
    usual_estimator,
)
from divtok.decide.vote_curves import Voters
from divtok.decide.votes import Stop, Strategy, check_samples, checked_strategy, crowd_of
from divtok.errors import DataError, UsageError
from divtok.evaluate.metrics import Bools, Floats
from divtok.evaluate.votes import NO_ANSWER
from divtok.records import Verdict
from divtok.report.part import Part
from divtok.report.votes import votes_part
from divtok.score.registry import ESTIMATORS
from divtok.stages.evaluate import Graded, Results, graded, group_place
from divtok.stages.export import write_file
from divtok.stages.rows import Column
from divtok.stages.token_costs import token_cost
from divtok.stages.votes import answer_numbers, answer_texts
from divtok.store.responses import Group, Response, rows_of, stored_responses
from divtok.store.run import Run


@dataclass(frozen=True, slots=True, eq=False)
class Ballot:
    """The samples of one generator on one benchmark, and the numbers that vote: [P, N] each.

    `responses` are in order of samples; a failed one is no sample. `texts` are answers by key.
    `graded` [P] are the problems of which right answers are known.
    """

    generator: str
    responses: Sequence[Sequence[Response]]
    texts: Mapping[str, str]
    graded: Bools
    voters: Voters

    def candidate(self, response: Response, row: int, sample: int) -> Candidate:
        right = bool(self.voters.right[row, sample]) if self.graded[row] else None
        tokens = int(self.voters.tokens[row, sample]) if self.voters.in_tokens else None
        return Candidate(response.key, self.texts.get(response.key), tokens, right)


def ballots_of(run: Run, config: RunConfig) -> list[Ballot]:
    """One for each generator on each benchmark, in the order of the config."""
    responses = stored_responses(run)
    texts = answer_texts(run, config, responses)
    numbers = answer_numbers(run, config, responses, texts)
    grades, values = graded(run, ()), _confidences(run)
    lengths = _lengths(run, responses.values())
    members: dict[Group, dict[str, list[Response]]] = {}
    for response in sorted(responses.values(), key=lambda r: (r.problem_id, r.sample)):
        if not response.failed:
            problems = members.setdefault(response.group, {})
            problems.setdefault(response.problem_id, []).append(response)
    return [
        _ballot(group, list(problems.values()), texts, numbers, grades, values, lengths)
        for group, problems in sorted(members.items(), key=partial(group_place, config))
    ]


def _lengths(run: Run, responses: Iterable[Response]) -> dict[str, int]:
    """Tokens by key: the reader's where there are only texts of a response, none where not read."""
    read = dict(rows_of(run.counts, ("key", "length")))
    found = {r.key: r.length or read.get(r.key, 0) for r in responses}
    return {key: length for key, length in found.items() if length}


def _confidences(run: Run) -> dict[str, dict[str, float]]:
    """estimator -> key -> value, of those that are confidences."""
    import json

    found: dict[str, dict[str, float]] = {}
    usable: dict[tuple[str, str], bool] = {}
    for key, name, params, value in rows_of(
        run.confidences, ("key", "estimator", "params", "value")
    ):
        if (name, params) not in usable:
            known = name in ESTIMATORS and not ESTIMATORS.get(name).only_ranks(json.loads(params))
            usable[name, params] = known
        if usable[name, params] and value is not None:
            found.setdefault(name, {})[key] = value
    return found


def _ballot(
    group: Group,
    problems: Sequence[Sequence[Response]],
    texts: Mapping[str, str],
    numbers: Mapping[str, int],
    grades: Mapping[str, Graded],
    values: Mapping[str, Mapping[str, float]],
    lengths: Mapping[str, int],
) -> Ballot:
    benchmark, generator = group
    most = max(map(len, problems))

    def filled(cell: Mapping[str, float], missing: float) -> Floats:
        found = np.full((len(problems), most), missing)
        for row, samples in enumerate(problems):
            found[row, : len(samples)] = [cell.get(r.key, missing) for r in samples]
        return found

    rows = [r for samples in problems for r in samples]
    mine = {r.key for r in rows}
    right = {key: 1.0 for key in mine if key in grades and grades[key].verdict == Verdict.CORRECT}
    answer = filled({key: numbers[key] for key in mine}, NO_ANSWER).astype(np.int64)
    size = np.array([len(samples) for samples in problems], dtype=np.int64)
    there = np.arange(most) < size[:, None]
    voters = Voters(
        benchmark,
        answer,
        filled(right, 0.0) > 0,
        filled(lengths, 0.0),
        size,
        {name: filled(of, np.nan) for name, of in values.items() if mine & of.keys()},
        crowd_of(np.nonzero(there)[0], answer[there]),
        in_tokens=mine <= lengths.keys(),
    )
    known = [any(r.key in grades and not grades[r.key].missing for r in s) for s in problems]
    return Ballot(generator, problems, texts, np.array(known), voters)


def check_several(ballots: Sequence[Ballot], samples: int | None = None) -> None:
    """Refuse a run without two samples of any problem, and samples that it does not have."""
    most = max((b.voters.answer.shape[1] for b in ballots), default=0)
    if most < 2:
        raise DataError(
            "No problem of the run has two samples, so there is nothing to choose among.",
            next_step="Make more of each: divtok run ... --samples 8",
        )
    check_samples(samples)
    if samples is not None and samples > most:
        raise UsageError(
            f"{samples} samples are asked for, and no problem has more than {most}.",
            next_step=f"Ask for at most {most}, or make more: divtok run ... --samples {samples}",
        )


def compare_votes(
    ballots: Sequence[Ballot],
    config: RunConfig,
    *,
    strategy: str | None = None,
    estimator: str | None = None,
    samples: int | None = None,
    level: float | None = None,
) -> list[GeneratorVotes]:
    """One for each generator whose problems have two samples or more and a known right answer.

    With a strategy or an estimator, of those beside the majority alone.
    """
    way = None if strategy is None else checked_strategy(strategy)
    _check_used(way, estimator)
    members: dict[str, list[Voters]] = {}
    for ballot in ballots:
        if ballot.graded.any() and ballot.voters.answer.shape[1] > 1:
            voters = ballot.voters.of(ballot.graded, samples)
            members.setdefault(ballot.generator, []).append(voters)
    found: list[GeneratorVotes] = []
    for generator, voters in members.items():
        there = _in_all(voters)
        if estimator is not None:
            _check_estimator(estimator, there)
        votings = [
            voting
            for voting in shown_votings(
                there,
                None if estimator is None else [estimator],
                stopping="weighted" if way in (None, "majority") else way,
                level=level or LEVEL,
            )
            if way is None or voting.strategy in ("majority", way)
        ]
        found.append(compared(generator, voters, votings, token_cost(config, generator)))
    return found


def votes_part_of(run: Run, config: RunConfig, found: Results) -> Part | None:
    """What the report says of votes; nothing where every problem has one sample only."""
    if all(len(set(g.problem_id)) == len(g.problem_id) for g in found.groups):
        return None
    votes = compare_votes(ballots_of(run, config), config)
    return votes_part(votes) if votes else None


def chosen_votes(
    ballots: Sequence[Ballot],
    *,
    strategy: Strategy | None = None,
    estimator: str | None = None,
    samples: int | None = None,
    stop: Stop = None,
) -> list[Vote]:
    """The answer that is chosen for every problem of every generator, in order of samples.

    By default votes are weighted by the usual estimator, where there are confidences.
    """
    _check_used(strategy, estimator)
    there = _in_all([ballot.voters for ballot in ballots])
    name = usual_estimator(there) if estimator is None else estimator
    way = checked_strategy(strategy or ("majority" if name is None else "weighted"))
    if way != "majority":
        _check_estimator(name, there)
    found: list[Vote] = []
    for ballot in ballots:
        problems = {
            rows[0].problem_id: [ballot.candidate(r, place, i) for i, r in enumerate(rows)]
            for place, rows in enumerate(ballot.responses)
        }
        by = None if way == "majority" else name
        votes = vote_on(problems, ballot.voters.samples(by), way, most=samples, stop=stop)
        where = {"benchmark": ballot.voters.benchmark, "generator": ballot.generator}
        found += [replace(vote, **where) for vote in votes]
    return found


COLUMNS: tuple[Column, ...] = (
    Column("benchmark", "foreign"),
    Column("generator", "foreign"),
    Column("problem_id", "foreign"),
    Column("answer", "foreign"),
    Column("confidence", "number"),
    Column("samples", "whole"),
    Column("tokens", "whole"),
    Column("correct", "truth"),
    Column("keys", "words"),
    Column("reason", "foreign"),
)


def write_votes(votes: Sequence[Vote], out: Path) -> None:
    """As CSV, JSON lines or Parquet, by the ending of the name."""
    rows = [
        {column.name: getattr(vote, column.name) for column in COLUMNS} | {"keys": list(vote.keys)}
        for vote in votes
    ]
    write_file(out, COLUMNS, [rows])


def _check_used(strategy: Strategy | None, estimator: str | None) -> None:
    if strategy == "majority" and estimator is not None:
        raise UsageError(
            f"A majority counts samples, so the confidences of '{estimator}' are not used.",
            next_step="Leave out the estimator, or choose another strategy.",
        )


def _check_estimator(name: str | None, there: Sequence[str]) -> None:
    if name not in there:
        raise UsageError(
            "There are no confidences to choose by."
            if name is None
            else f"There are no confidences of '{name}' for every response.",
            next_step=f"Those of this run: {', '.join(there)}."
            if there
            else "Take the majority, or score the run first: divtok score RUN",
        )


def _in_all(voters: Sequence[Voters]) -> list[str]:
    """The estimators that every benchmark has."""
    first, *others = (v.confidence for v in voters)
    return [name for name in first if all(name in other for other in others)]
