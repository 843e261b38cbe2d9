"""confidences and grades -> evaluations, from tables alone.

No model is loaded and no token is read: counts were made when the run was scored. Of a run that was
scored before there were counts, they are made from its traces here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from divtok.config.run import RunConfig
from divtok.errors import NothingScoredError, command
from divtok.evaluate.agreement import Compared
from divtok.evaluate.base_rate import BaseRate, base_rates
from divtok.evaluate.near_theta import band_bits
from divtok.evaluate.overall import Overall, overall, prevalences
from divtok.evaluate.protocol import Protocol, evaluate_group
from divtok.evaluate.scored_group import (
    FROM_MAP,
    PRIOR_FROM,
    LeftOut,
    ScoreColumn,
    ScoredGroup,
)
from divtok.evidence.kind import EVIDENCE, ReadOn
from divtok.records import (
    GOLD_MISSING,
    VERDICT_MISSING,
    Counts,
    Evaluation,
    Scalar,
    Verdict,
    reason_kind,
)
from divtok.report.note import Note
from divtok.report.notes import Seen, notes_of
from divtok.score.facts import FACTS, Fact, count_trace, shown_facts
from divtok.score.registry import ESTIMATORS, in_order
from divtok.stages.choices import named_estimators
from divtok.stages.fits import stored_fits
from divtok.stages.how_read import kept_readings
from divtok.stages.missing import not_graded, not_scored
from divtok.stages.stored import response_of, scored_traces, trace_dtypes
from divtok.stages.verdicts import compared_verdicts
from divtok.stages.votes import answer_numbers
from divtok.store.notes import kept_notes
from divtok.store.pair_warnings import kept_pair_warnings
from divtok.store.responses import Group, Response, rows_of, stored_responses
from divtok.store.run import Run


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """What a run's tables say: the scored groups, their evaluations, and what to mind in them.

    `compared` sets the verdicts of another tool beside ours, where the config asks for both.
    """

    groups: list[ScoredGroup]
    evaluations: list[Evaluation]
    overall: list[Overall]
    notes: list[Note]
    compared: Compared | None = None
    base_rates: list[BaseRate] = field(default_factory=list[BaseRate])


class Graded(NamedTuple):
    """A grade as far as evaluation needs it."""

    verdict: Verdict
    gold_missing: bool
    verdict_missing: bool = False
    fallback: bool = False  # how its answer was found

    @property
    def missing(self) -> bool:
        """Whether there was nothing to grade by."""
        return self.gold_missing or self.verdict_missing


def protocol_of(config: RunConfig) -> Protocol:
    section = config.evaluate
    return Protocol(
        draws=section.draws, cap=section.cap, bins=section.bins, resamples=section.resamples
    )


def results_of(run: Run, config: RunConfig) -> Results:
    """Everything `evaluate` shows and the report is made of, from one reading of the tables."""
    responses = stored_responses(run)
    counts = counts_of(run, config, responses)
    answers = answer_numbers(run, config, responses)
    groups, left_out = _groups(run, config, responses, counts, answers)
    rates = base_rates(groups, protocol_of(config))
    counted = [(responses[key].generator, found) for key, found in counts.items()]
    evaluations = evaluate_groups(groups, config)
    over_all = overall(groups, protocol_of(config))
    compared = compared_verdicts(run, config) if config.grade.verdicts == "both" else None
    notes = notes_of(
        Seen(
            config.theta,
            config.fitted_theta is not None,
            counted,
            trace_dtypes(run),
            left_out,
            evaluations,
            prevalences(groups),
            run.makers(),
            kept_notes(run),
            None if compared is None else compared.groups,
            kept_pair_warnings(run),
            config.score.tokens,
            kept_readings(run),
            rates,
            fits=stored_fits(run),
        )
    )
    return Results(groups, evaluations, over_all, notes, compared, rates)


def groups_of(run: Run, config: RunConfig) -> list[ScoredGroup]:
    """Every benchmark x generator of the run, rows in order of problem and sample."""
    return groups_and_left_out(run, config)[0]


def groups_and_left_out(run: Run, config: RunConfig) -> tuple[list[ScoredGroup], list[LeftOut]]:
    """The groups, and how many rows count in none of them."""
    responses = stored_responses(run)
    return _groups(run, config, responses, counts_of(run, config, responses))


def evaluate_groups(groups: Sequence[ScoredGroup], config: RunConfig) -> list[Evaluation]:
    protocol = protocol_of(config)
    return [evaluation for group in groups for evaluation in evaluate_group(group, protocol)]


def has_gold(run: Run) -> bool:
    """Whether there is a gold answer to any of the run's problems."""
    return any(answer is not None for (answer,) in rows_of(run.problems, ("answer",)))


def has_grades(run: Run, config: RunConfig) -> bool:
    """Whether anything can be right or wrong: by a gold answer, or by verdicts that are grades."""
    return bool(run.verdicts.keys()) if config.grade.verdicts == "theirs" else has_gold(run)


def counts_of(run: Run, config: RunConfig, responses: Mapping[str, Response]) -> dict[str, Counts]:
    """The counts of every trace that was read, at the config's theta, over the tokens it names."""
    stored, pairs = {row.key: row for row in run.counts.read()}, config.scored_pairs()

    def asked(row: Counts) -> bool:
        pair = pairs.get(response_of(run, row.key, responses).generator)
        made = (row.theta, row.counted, (row.p, row.q))
        return made == (config.theta, config.score.tokens, pair)

    if stored and all(map(asked, stored.values())):
        return stored
    dtypes = trace_dtypes(run)
    return {
        trace.key: count_trace(
            trace, theta=config.theta, band_bits=band_bits(trace.p, trace.q, dtypes)
        )
        for _, trace in scored_traces(run, config, responses)
        if trace.status == "ok"
    }


def graded(run: Run, responses: Iterable[str]) -> dict[str, Graded]:
    """The grades by key; an error where a response has none."""
    found = {
        grade.key: Graded(
            grade.verdict,
            kind == GOLD_MISSING,
            kind == VERDICT_MISSING,
            grade.fallback is not None,
        )
        for grades in run.grades.batches()
        for grade in grades
        for kind in [reason_kind(grade.reason)]
    }
    for key in responses:
        if key not in found:
            raise not_graded(run, key)
    return found


def _groups(
    run: Run,
    config: RunConfig,
    responses: Mapping[str, Response],
    counts: Mapping[str, Counts],
    answers: Mapping[str, int] | None = None,
) -> tuple[list[ScoredGroup], list[LeftOut]]:
    scores = _Scores(run, config)
    if scores.empty and not run.counts.keys():
        raise not_scored(run, config)
    grades = graded(run, responses)
    members: dict[Group, list[Response]] = {}
    for response in responses.values():
        members.setdefault(response.group, []).append(response)
    members = dict(sorted(members.items(), key=partial(group_place, config)))
    kept = {
        group: [r for r in rows if not r.failed and not grades[r.key].missing]
        for group, rows in members.items()
    }
    if not any(kept.values()):
        raise NothingScoredError(
            f"Not one row of the run {run.path} has both a response and a gold answer, so there is "
            "nothing to evaluate.",
            next_step=f"Take the verdicts of the tool they come from: "
            f"{command('grade', run.path, '--verdict', 'theirs')}"
            if run.verdicts.keys() and config.grade.verdicts != "theirs"
            else "Its confidences are in the table 'confidences'; import it with gold answers "
            "to evaluate them.",
        )
    left_out = [
        LeftOut(
            *group,
            failed=sum(r.failed for r in rows),
            gold_missing=sum(not r.failed and grades[r.key].gold_missing for r in rows),
            verdict_missing=sum(not r.failed and grades[r.key].verdict_missing for r in rows),
        )
        for group, rows in members.items()
        if len(kept[group]) < len(rows)
    ]
    facts = shown_facts(named_estimators(config))
    groups = [
        _group(sorted(rows, key=_place), grades, scores, counts, answers, facts, config)
        for rows in kept.values()
        if rows
    ]
    return groups, left_out


def group_place(config: RunConfig, item: tuple[Group, object]) -> tuple[int, int]:
    """In the order of the config, however the run has grown; what it does not name comes last."""
    (benchmark, generator), _ = item
    orders = (config.generators or (), config.benchmarks or ())
    first, second = ({name: i for i, name in enumerate(names)} for names in orders)
    return first.get(generator, len(first)), second.get(benchmark, len(second))


class _Scores:
    """The values of a run's confidences, without a record for each."""

    def __init__(self, run: Run, config: RunConfig) -> None:
        self.values: dict[str, dict[str, float | None]] = {}  # estimator -> key -> value
        self._params: dict[str, dict[str, str]] = {}  # the JSON of the parameters, alike
        shared: dict[str, str] = {}  # equal texts once
        self.empty = True
        self._priors: dict[str, dict[str, float]] = {}
        self._lows: dict[str, dict[str, float]] = {}
        columns = ("key", "estimator", "params", "value", "low", "prior")
        for key, name, params, value, low, prior in rows_of(run.confidences, columns):
            self.empty = False
            if name not in FACTS:  # earlier versions scored them as estimators
                self.values.setdefault(name, {})[key] = value
                self._params.setdefault(name, {})[key] = shared.setdefault(params, params)
                if low is not None:
                    self._lows.setdefault(name, {})[key] = low
                if prior is not None:
                    self._priors.setdefault(name, {})[key] = prior
        self._read_on = {name: _read_on(run, config, name) for name in self.values}
        self._asked = config.score.prior
        self._map_priors = {fit.get("identity"): fit.get("prior") for fit in stored_fits(run)}

    def columns(self, rows: Sequence[Response]) -> Iterator[ScoreColumn]:
        """One for each estimator, in the order of tables."""
        import json

        for spec in in_order(ESTIMATORS.get(name) for name in self.values):
            values, params = self.values[spec.name], self._params[spec.name]
            # Learned parameters differ from group to group.
            found: Any = next((params[r.key] for r in rows if r.key in params), "{}")
            params_of: dict[str, Any] = json.loads(found)
            on, priors = self._read_on[spec.name], self._priors.get(spec.name, {})
            prior = next((priors[r.key] for r in rows if r.key in priors), None)
            lows = self._lows.get(spec.name)
            yield ScoreColumn(
                estimator=spec.name,
                values=[values.get(r.key) for r in rows],
                params=params_of | self._stated(params_of, prior),
                ranking_only=spec.only_ranks(params_of),
                beyond=None if on is None else [r.key in on.beyond for r in rows],
                trained_length=None if on is None else on.trained_length,
                prior=prior,
                low=None if lows is None else [lows.get(r.key) for r in rows],
            )

    def _stated(self, params: Mapping[str, Any], prior: float | None) -> dict[str, Scalar]:
        """The share that values are stated for, and whose it is.

        A map has one of its own, which stays where `score.prior` is not set or not reached.
        """
        if prior is None:
            return {}
        of_map = self._map_priors.get(params.get("map_of"))
        own = self._asked is None or (of_map == prior and self._asked != prior)
        return {"prior": prior, PRIOR_FROM: FROM_MAP if "map" in params and own else "score.prior"}


def _read_on(run: Run, config: RunConfig, estimator: str) -> ReadOn | None:
    """Which responses are longer than the model behind an estimator was trained to read."""
    for kind in ESTIMATORS.get(estimator).evidence:
        found = EVIDENCE.get(kind).read_on(run, config) if kind in EVIDENCE else None
        if found is not None:
            return found
    return None


def _place(response: Response) -> tuple[str, int]:
    return response.problem_id, response.sample


def _group(
    rows: list[Response],
    grades: Mapping[str, Graded],
    scores: _Scores,
    counts: Mapping[str, Counts],
    answers: Mapping[str, int] | None,
    facts: Sequence[Fact],
    config: RunConfig,
) -> ScoredGroup:
    counted = [counts.get(r.key) for r in rows]
    released = config.grade.extract == "released" and config.grade.verdicts != "theirs"
    return ScoredGroup(
        benchmark=rows[0].benchmark,
        generator=rows[0].generator,
        problem_id=[r.problem_id for r in rows],
        verdict=[grades[r.key].verdict for r in rows],
        truncated=[r.truncated for r in rows],
        # In the reader's tokens; the generator's where it was not read.
        length=[r.length if c is None else c.length for r, c in zip(rows, counted, strict=True)],
        count=[None if c is None else c.count for c in counted],
        columns=[*scores.columns(rows), *(_fact(fact, counted, config) for fact in facts)],
        pair=config.scored_pairs().get(rows[0].generator),
        theta=config.theta,
        counted=config.score.tokens,
        fallback=[grades[r.key].fallback for r in rows] if released else None,
        answer=None if answers is None else [answers[r.key] for r in rows],
        key=[r.key for r in rows],
    )


def _fact(fact: Fact, counted: Sequence[Counts | None], config: RunConfig) -> ScoreColumn:
    params: dict[str, Scalar] = {"theta": config.theta} if fact.uses_theta else {}
    if fact.uses_theta and config.score.tokens != "reasoning":
        params["tokens"] = config.score.tokens
    values = [None if c is None else fact.rank(c) for c in counted]
    return ScoreColumn(fact.name, values, params, ranking_only=True)
