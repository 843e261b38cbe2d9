"""traces and outcomes -> the theta, rate or map that fits a run's pair, or a family's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from divtok.config.made_with import divtok_version
from divtok.config.run import RunConfig
from divtok.errors import DataError, StoreError, UsageError, command
from divtok.evaluate.fit import ThetaFit
from divtok.evaluate.fit_any import (
    AnyFit,
    fitted_estimator,
    map_of,
    rate_of,
    record_of,
    theta_of,
)
from divtok.evaluate.maps import MapKind
from divtok.evaluate.outcomes import Outcomes, by_agreement, by_grades
from divtok.families.family import Family
from divtok.progress import say
from divtok.records import Scalar, Trace, Verdict
from divtok.score.fit_file import save_fit
from divtok.score.fitted import TARGETS, What, one_of
from divtok.score.registry import Estimator
from divtok.stages.choices import named_estimators
from divtok.stages.evaluate import protocol_of
from divtok.stages.fits import fit_path
from divtok.stages.made_of import made_of
from divtok.stages.missing import check_read, not_graded
from divtok.stages.report import report
from divtok.stages.run import run_stages
from divtok.stages.stored import scored_traces
from divtok.stages.votes import answer_numbers
from divtok.store.responses import Response, rows_of, stored_responses
from divtok.store.run import Run


@dataclass(frozen=True, slots=True)
class _Rows:
    """The responses that the run's pairs read, and what each counts as."""

    responses: Sequence[Response]
    row: Mapping[str, int]  # key -> its row
    outcomes: Outcomes


def fit(
    run: Run,
    config: RunConfig,
    *,
    what: str = "theta",
    estimator: str | None = None,
    target: str = "grades",
) -> AnyFit:
    """What fits the run's responses; see `evaluate.fit`, `fit_rate` and `fit_map`. Writes nothing.

    `target` says what they are held against: their grades, or the majority of a problem's answers.
    """
    spec = fitted_estimator(what, estimator)
    one_of("target", target, TARGETS)
    check_read(run, config)
    rows = _rows(run, config, target)
    protocol = protocol_of(config)
    if what == "theta":
        params: Mapping[str, Scalar] = config.bound(spec.name)
        found, used = theta_of(
            _traces(run, config, rows), rows.outcomes,
            before=config.fitted_theta, protocol=protocol, line=params,
        )  # fmt: skip
    elif what == "rate":
        params = config.bound(spec.name)
        found, used = rate_of(
            _traces(run, config, rows), rows.outcomes, spec, params, protocol=protocol
        )  # fmt: skip
    else:
        values, params = _values(run, config, rows, spec)
        kind = cast(MapKind, what)
        found, used = map_of(kind, spec.name, values, rows.outcomes, protocol=protocol)
    by_generator = config.scored_pairs()
    there = dict.fromkeys(rows.responses[row].generator for row in used)
    pairs = list(dict.fromkeys(by_generator[name] for name in there))
    found = _noted(found, len(pairs))
    fitted = record_of(
        found,
        used,
        rows.outcomes,
        what=cast(What, what),
        estimator=spec.name,
        params=params,
        tokens=config.score.tokens,
        pairs=pairs,
        generators=list(there),
        made_of=made_of(run, (r.benchmark for r in rows.responses)),
        divtok=divtok_version(),
    )
    return replace(found, fitted=fitted)


def keep(run: Run, found: AnyFit) -> bool:
    """Keep it with the run, as fits/NAME.json; where nothing can be written, say so and go on."""
    assert found.fitted is not None
    path = fit_path(run, found.fitted)
    try:
        with run.lock():
            save_fit(found.fitted, path)
    except StoreError as error:
        say(f"fit: not kept with the run: {error.what}")
        return False
    return True


def family_overrides(
    family: Family, *, limit: int | None, samples: int | None, file: str | None
) -> Sequence[str]:
    """A config for `fit_family`: the family's smallest generator on its fitting set.

    Without `samples` each problem gets as many as the family's file says.
    """
    overrides = [
        f"family={family.name}",
        f"generators=['{family.generators[0].model}']",
        f"benchmarks=['{family.fit_benchmark}']",
        f"limit={100 if limit is None else limit}",
        "subset_seed=0",
    ]
    if samples is not None:
        overrides.append(f"samples={samples}")
    if file is not None:
        overrides.append(f"benchmark_files.{family.fit_benchmark}={file}")
    return overrides


def fit_family(
    run: Run,
    config: RunConfig,
    *,
    what: str = "theta",
    estimator: str | None = None,
    target: str = "grades",
) -> AnyFit:
    """Everything from problems to what fits, kept with the run, and the run's report."""
    fitted_estimator(what, estimator)  # refused before anything is spent
    one_of("target", target, TARGETS)
    config = run_stages(run, config)
    found = fit(run, config, what=what, estimator=estimator, target=target)
    keep(run, found)
    fits = {config.preset.name: found} if isinstance(found, ThetaFit) else None
    report(run, config, theta_fits=fits)
    return found


def _rows(run: Run, config: RunConfig, target: str) -> _Rows:
    verdicts: dict[str, str] = dict(rows_of(run.grades, ("key", "verdict")))
    there = stored_responses(run)
    if target == "grades" and not verdicts.keys() & there.keys():
        raise not_graded(run, next(iter(there)))
    pairs = config.scored_pairs()
    responses = [r for r in there.values() if r.generator in pairs]
    truth = [_right(response, verdicts.get(response.key)) for response in responses]
    problem = [json.dumps([r.benchmark, r.problem_id]) for r in responses]
    row = {response.key: number for number, response in enumerate(responses)}
    if target == "grades":
        return _Rows(responses, row, by_grades(truth, problem))
    numbers = answer_numbers(run, config, there)
    votes_of = [json.dumps([r.benchmark, r.generator, r.problem_id]) for r in responses]
    answers = np.array([numbers[r.key] for r in responses], dtype=np.int64)
    return _Rows(responses, row, by_agreement(truth, problem, votes_of, answers))


def _right(response: Response, verdict: str | None) -> bool | None:
    decided = verdict in (Verdict.CORRECT, Verdict.INCORRECT) and not response.truncated
    return verdict == Verdict.CORRECT if decided else None


def _traces(run: Run, config: RunConfig, rows: _Rows) -> Iterator[tuple[int, Trace]]:
    responses = stored_responses(run)
    for response, trace in scored_traces(run, config, responses):
        yield rows.row[response.key], trace


def _values(
    run: Run, config: RunConfig, rows: _Rows, spec: Estimator
) -> tuple[list[float | None], Mapping[str, Scalar]]:
    """The estimator's values as the run was scored, and the parameters they were made with."""
    values: list[float | None] = [None] * len(rows.responses)
    made_with: set[str] = set()
    for key, name, params, value in rows_of(
        run.confidences, ("key", "estimator", "params", "value")
    ):
        if name == spec.name and key in rows.row:
            values[rows.row[key]] = value
            made_with.add(params)
    if not made_with:
        # With those that it is scored with now: what is named takes their place.
        names = ",".join(dict.fromkeys([*named_estimators(config), spec.name]))
        again = command("score", run.path, f"score.estimators=[{names}]")
        raise DataError(
            f"The run {run.path} was not scored by '{spec.name}'.", next_step=f"Score it: {again}"
        )
    found: list[dict[str, Any]] = [json.loads(text) for text in made_with]
    if any("map" in params for params in found):
        raise UsageError(
            f"A map was applied to the confidences of '{spec.name}' in {run.path}.",
            next_step="Score the run without it, then fit: "
            f"{command('score', run.path, 'score.fitted=null')}",
        )
    if config.score.prior is not None:
        raise UsageError(
            f"The confidences in {run.path} are stated for a base rate of their own "
            f"(score.prior={config.score.prior}).",
            next_step="Score the run without it, then fit: "
            f"{command('score', run.path, 'score.prior=null')}",
        )
    return values, {name: value for name, value in found[0].items() if name != "tokens"}


def _noted(found: AnyFit, pairs: int) -> AnyFit:
    """Pairs that were taken together are said to be."""
    if pairs == 1:
        return found
    note = f"It is fitted on the responses of {pairs} pairs of models together."
    return replace(found, more_notes=(*found.more_notes, note))
