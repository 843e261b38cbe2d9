"""traces and evidence -> confidences and counts, shard by shard.

A run's traces may be far larger than memory, so no more than a shard of them is held. Where neither
the tables nor the config have changed since the last time, nothing is read and nothing is done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from divtok.config.made_with import divtok_version, libraries
from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.errors import command
from divtok.evaluate.how_read import ReadRow
from divtok.evaluate.near_theta import band_bits
from divtok.evidence.kind import EVIDENCE, Gathering
from divtok.progress import say
from divtok.records import Confidence, Counts, PairWarning, Reason, Scalar, Trace
from divtok.score.facts import count_trace
from divtok.score.fitted import Fitted, applied
from divtok.score.registry import ESTIMATORS, Estimator, bind_parameters
from divtok.score.scoring import NOT_GATHERED, named_parameters, score_evidence
from divtok.stages.choices import chosen_estimators, left_out_estimators, needed_evidence
from divtok.stages.fits import FITS, SECTION, Maps, maps_for, named_fits, stored_note
from divtok.stages.how_read import read_row, readings_section
from divtok.stages.missing import check_read, first_failure, nothing_scored
from divtok.stages.pair_warnings import Pair, keep_warnings, say_warnings, tallies_of
from divtok.stages.prior import state_for_prior
from divtok.stages.stored import scored_traces, trace_dtypes
from divtok.store.pair_warnings import kept_pair_warnings
from divtok.store.responses import Group, Response, stored_responses
from divtok.store.run import Run
from divtok.store.space import ROW_BYTES, require_space
from divtok.trace.pair_warnings import Tally

# Confidences of so many responses make a shard.
RESPONSES_PER_SHARD = 4096

Parameters = Mapping[str, Scalar]


@dataclass(slots=True)
class _Found:
    """What one pass over the traces leaves beside the confidences."""

    counts: list[Counts] = field(default_factory=list[Counts])
    confidences: int = 0
    scored: set[str] = field(default_factory=set[str])  # estimators with a value
    reasons: dict[str, Reason] = field(default_factory=dict[str, Reason])  # the first of each
    read: list[ReadRow] = field(default_factory=list[ReadRow])  # one for each trace with numbers
    tallies: dict[Pair, Tally] = field(default_factory=dict[Pair, Tally])


def score(run: Run, config: RunConfig, *, said: Collection[PairWarning] = ()) -> None:
    """traces and evidence -> confidences and counts

    `said` are warnings about the run's pairs that were said before.
    """
    chosen, fits = chosen_estimators(config), named_fits(config)
    maps = maps_for(config, chosen, fits)
    made_of = _identity(run, config, chosen, fits)
    if (run.manifest() or {}).get(SECTION) == made_of | _made(run):
        say("score: nothing has changed since the run was scored")
        say_warnings([w for w in kept_pair_warnings(run) if w not in said])
        return
    responses, found = stored_responses(run), _Found(tallies=tallies_of(config))
    require_space(run.path, len(responses) * (len(chosen) + 1) * ROW_BYTES)
    run.note_maker(run.confidences.layout.name, libraries())
    run.confidences.replace_with(_confidences(run, config, chosen, maps, responses, found))
    state_for_prior(run, config, chosen, responses)
    run.counts.replace(found.counts)
    warnings = keep_warnings(run, config, found.tallies)
    sections = {SECTION: made_of | _made(run), **readings_section(found.read)}
    run.write_manifest({**(run.manifest() or {}), **sections})
    _say_what_is_odd(run, config, chosen, found)
    say(
        f"score: {len(chosen)} estimators, {found.confidences} confidences at theta "
        f"{config.theta:g}"
    )
    say_warnings([w for w in warnings if w not in said])


def _identity(
    run: Run, config: RunConfig, chosen: Sequence[Estimator], fits: Sequence[Fitted]
) -> dict[str, Any]:
    """What confidences depend on, known without reading a table."""
    kinds = sorted(needed_evidence(config))
    tables = [run.trajectories, run.traces]
    # Which responses hold an answer, and which answers are the same.
    tables += [] if config.score.prior is None else [run.grades]
    tables += [t for kind in kinds if (t := EVIDENCE.get(kind).table(run)) is not None]
    return {
        "config": hashlib.sha256(to_yaml(resolve(config)).encode()).hexdigest(),
        "tables": {table.layout.name: table.identity() for table in tables},
        "estimators": {spec.name: ESTIMATORS.origin(spec.name) for spec in chosen},
        "divtok": divtok_version(),
        **({FITS: [stored_note(run, fitted) for fitted in fits]} if fits else {}),
    }


def _made(run: Run) -> dict[str, Any]:
    """What came of it: the tables must still be those that were written."""
    return {"made": {t.layout.name: t.identity() for t in (run.confidences, run.counts)}}


def _confidences(
    run: Run,
    config: RunConfig,
    chosen: Sequence[Estimator],
    maps: Maps,
    responses: Mapping[str, Response],
    found: _Found,
) -> Iterator[list[Confidence]]:
    """Every response's confidences, those without a trace last; fills `found` on the way."""
    work = Gathering(run, config)
    finders = {kind: EVIDENCE.get(kind).find(work) for kind in needed_evidence(config)}
    parameters = _parameters(run, config, chosen, responses)
    dtypes = trace_dtypes(run)
    part: list[Confidence] = []
    pairs = config.scored_pairs()

    def add(response: Response, trace: Trace | None) -> None:
        evidence = {kind: find(response) for kind, find in finders.items()}
        for spec, bound in parameters[response.group]:
            made = _confidence(spec, response, trace, evidence, bound)
            named = named_parameters(spec, bound, config.score.tokens)
            made = made if named is bound else replace(made, params=named)
            over = maps.get((spec.name, pairs[response.generator]))
            part.append(made if over is None else applied(over, made))

    def full() -> bool:
        return len(part) >= RESPONSES_PER_SHARD * len(chosen)

    left = {key for key, response in responses.items() if response.group in parameters}
    for response, trace in scored_traces(run, config, responses):
        left.discard(response.key)
        if trace.status == "ok":
            found.tallies[trace.p, trace.q].add(trace)
            found.read.append(read_row(response.generator, trace))
            band = band_bits(trace.p, trace.q, dtypes)
            found.counts.append(count_trace(trace, theta=config.theta, band_bits=band))
        add(response, trace)
        if full():
            yield _noted(part, found)
            part = []
    for key, response in responses.items():
        if key in left:
            add(response, None)
        if full():
            yield _noted(part, found)
            part = []
    yield _noted(part, found)
    if not found.scored and (chosen or not found.counts):
        # Raised here, so that the table of before stays as it is.
        check_read(run, config)
        why = first_failure(run) or next(iter(found.reasons.values()), None)
        raise nothing_scored(run, config, why)


def _confidence(
    spec: Estimator,
    response: Response,
    trace: Trace | None,
    evidence: Mapping[str, Any],
    parameters: Parameters,
) -> Confidence:
    if response.failed:
        reason = Reason("no_response", f"no response: {response.reason}")
        return Confidence(response.key, spec.name, parameters, None, reason)
    return score_evidence(spec, response.key, trace, evidence, parameters)


def _noted(part: list[Confidence], found: _Found) -> list[Confidence]:
    found.confidences += len(part)
    for confidence in part:
        if confidence.value is not None:
            found.scored.add(confidence.estimator)
        elif isinstance(confidence.reason, Reason):
            found.reasons.setdefault(confidence.estimator, confidence.reason)
    return part


def _parameters(
    run: Run,
    config: RunConfig,
    chosen: Sequence[Estimator],
    responses: Mapping[str, Response],
) -> dict[Group, list[tuple[Estimator, Parameters]]]:
    """Each group's estimators with their parameters, learned from its traces where they are."""
    learning = [spec for spec in chosen if spec.learned is not None]
    numbers: dict[tuple[str, str], float] = {}
    if learning:
        for response, trace in scored_traces(run, config, responses):
            if trace.status == "ok":
                numbers |= {
                    (spec.name, response.key): spec.learned.each(trace)
                    for spec in learning
                    if spec.learned is not None
                }
    pairs = config.scored_pairs()
    members: dict[Group, list[str]] = {}
    for response in responses.values():
        if response.generator in pairs:
            members.setdefault(response.group, []).append(response.key)
    return {
        group: [(spec, _bound(spec, config, keys, numbers)) for spec in chosen]
        for group, keys in members.items()
    }


def _bound(
    spec: Estimator,
    config: RunConfig,
    keys: Iterable[str],
    numbers: Mapping[tuple[str, str], float],
) -> Parameters:
    given = config.parameters_of(spec.name)
    if spec.learned is None:
        return bind_parameters(spec, given)
    of_group = [numbers[spec.name, key] for key in keys if (spec.name, key) in numbers]
    if not of_group:
        return {}  # nothing to learn from, and nothing to score
    return bind_parameters(spec, {**given, **spec.learned.all(of_group)})


def _say_what_is_odd(
    run: Run, config: RunConfig, chosen: Sequence[Estimator], found: _Found
) -> None:
    empty = [spec.name for spec in chosen if spec.name not in found.scored]
    if empty:
        why = found.reasons[empty[0]]
        hint = f"; make what is missing with: {command('gather', run.path)}"
        say(
            f"score: no value at all for {', '.join(empty)} ({why})"
            + (hint if why.kind == NOT_GATHERED else "")
        )
    preset = config.preset
    fitted = {preset.pair_for(generator) for generator in preset.generators}
    other = any(
        config.pair_for(g) not in fitted or (g.foreign and preset.reader is None)
        for g in config.generator_presets()
    )
    if other and config.family is not None and config.fitted_theta == preset.theta:
        say(
            f"score: theta {config.theta:g} was fitted for the pairs of the family "
            f"'{preset.name}' and its own generators, not for this one"
        )
    for why, names in left_out_estimators(config).items():
        say(f"score: {', '.join(names)} left out: {why}")
