"""samples -> one answer for each problem, and how often that is right; from stored tables alone.

The samples of a generator on a benchmark vote; their answers, grades and confidences are what the
tables have. Grades are not needed to choose, only to say how often the choice is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.config.run import RunConfig
from divtok.decide.vote_comparison import LEVEL, GeneratorVotes, compared, shown_votings
from divtok.decide.vote_curves import ORDERS, Voters
from divtok.decide.votes import crowd_of
from divtok.evaluate.metrics import Bools, Floats
from divtok.evaluate.votes import NO_ANSWER
from divtok.records import Verdict
from divtok.report.part import Part
from divtok.report.votes import votes_part
from divtok.score.registry import ESTIMATORS
from divtok.stages.evaluate import Graded, Results, graded
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


def ballots_of(run: Run, config: RunConfig) -> list[Ballot]:
    """One for each generator on each benchmark, in the order of the config."""
    responses = stored_responses(run)
    texts = answer_texts(run, config, responses)
    numbers = answer_numbers(run, config, responses, texts)
    grades, values = graded(run, ()), _confidences(run)
    members: dict[Group, dict[str, list[Response]]] = {}
    for response in sorted(responses.values(), key=lambda r: (r.problem_id, r.sample)):
        if not response.failed:
            problems = members.setdefault(response.group, {})
            problems.setdefault(response.problem_id, []).append(response)
    return [
        _ballot(group, list(problems.values()), texts, numbers, grades, values)
        for group, problems in members.items()
    ]


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
        filled({r.key: r.length for r in rows}, 0.0),
        size,
        {name: filled(of, np.nan) for name, of in values.items() if mine & of.keys()},
        crowd_of(np.nonzero(there)[0], answer[there]),
    )
    known = [any(r.key in grades and not grades[r.key].missing for r in s) for s in problems]
    return Ballot(generator, problems, texts, np.array(known), voters)


def compare_votes(
    ballots: Sequence[Ballot],
    config: RunConfig,
    *,
    estimators: Sequence[str] | None = None,
    level: float = LEVEL,
    samples: int | None = None,
) -> list[GeneratorVotes]:
    """One for each generator whose problems have two samples or more and a known right answer."""
    members: dict[str, list[Voters]] = {}
    for ballot in ballots:
        if ballot.graded.any() and ballot.voters.answer.shape[1] > 1:
            voters = ballot.voters.of(ballot.graded)
            members.setdefault(ballot.generator, []).append(voters.up_to(samples))
    return [
        compared(
            generator,
            voters,
            shown_votings(_in_all(voters), estimators=estimators, level=level),
            token_cost(config, generator),
        )
        for generator, voters in members.items()
    ]


def votes_part_of(run: Run, config: RunConfig, found: Results) -> Part | None:
    """What the report says of votes; nothing where every problem has one sample only."""
    if all(len(set(g.problem_id)) == len(g.problem_id) for g in found.groups):
        return None
    votes = compare_votes(ballots_of(run, config), config)
    return votes_part(votes, orders=ORDERS) if votes else None


def _in_all(voters: Sequence[Voters]) -> list[str]:
    """The estimators that every benchmark has."""
    first, *others = (v.confidence for v in voters)
    return [name for name in first if all(name in other for other in others)]
