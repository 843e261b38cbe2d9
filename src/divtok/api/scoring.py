"""One question after another with its response: what is asked of a pair, and what it answers.

Everything that `confidence`, `confidences` and the verb do is here once, so that they give the same
numbers with the same defaults.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from divtok.api.readings import READINGS
from divtok.api.result import Result, Token, Tokens
from divtok.decide.policy import Decision, HowScored, Policy, check_policy, decision_of
from divtok.divergences.divergence import further
from divtok.errors import UsageError, did_you_mean
from divtok.evidence.kind import EVIDENCE
from divtok.families.family import default_theta
from divtok.protocols.encode import prompt_ids, response_ids
from divtok.records import Confidence, CountedTokens, Counts, Reason, Scalar, Trace
from divtok.score.estimators.dtc import divergent_tokens
from divtok.score.estimators.guarded import (
    GUARD,
    excess_surprise,
    unexpected_count,
    unexpected_tokens,
)
from divtok.score.estimators.guarded import NAME as GUARDED
from divtok.score.facts import COUNTED_WORDS, count_trace
from divtok.score.fit_file import load_fit
from divtok.score.fitted import (
    PARAMETERS,
    Fitted,
    applied,
    check_pair,
    check_parameters,
    mapped_params,
    stated_for,
)
from divtok.score.registry import Estimator, bind_parameters, check_names, check_parameter
from divtok.score.scoring import named_parameters, score_evidence
from divtok.score.sets import one_estimator
from divtok.stages.fits import find_fit
from divtok.stages.policies import find_policy
from divtok.trace.batches import Row
from divtok.trace.budget import Budget
from divtok.trace.listener import Read
from divtok.trace.pair import Asked, Pair
from divtok.trace.pair_warnings import Tally, warnings_by_traces
from divtok.trace.spans import token_texts
from divtok.trace.topk.server_pair import ServerPair
from divtok.trace.topk.written_pair import WrittenPair

DEFAULT = "dtc_lin"  # who scores where nobody is named

# What was fitted, its file, or the run that holds it; and likewise a policy.
FitLike: TypeAlias = "Fitted | str | Path"
PolicyLike: TypeAlias = "Policy | str | Path"


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One response with a confidence for each estimator; the trace may not be kept."""

    response: str
    confidences: tuple[Confidence, ...]
    counts: Counts | None = None  # None where the response was not read
    trace: Trace | None = None
    unexpected: int | None = None  # how many tokens are, None where that is not known


@dataclass(frozen=True, slots=True, eq=False)
class Scoring:
    """A pair, a theta, and the estimators with all their parameters. Made by `of`."""

    pair: Pair | ServerPair | WrittenPair
    theta: float
    chosen: Sequence[tuple[Estimator, Mapping[str, Scalar]]]
    kinds: Sequence[str]  # of the evidence that rides on p's pass
    asked: Asked
    tally: Tally  # of the traces of the responses that were scored
    tokens: CountedTokens = "reasoning"  # which of a response's can count
    fitted: Fitted | None = None
    prior: float | None = None  # the share of right answers that a mapped confidence is stated for
    policy: Policy | None = None
    budget: Budget = field(default_factory=Budget)

    @classmethod
    def of(
        cls,
        pair: Pair | ServerPair | WrittenPair,
        *,
        theta: float | None,
        generator: str | None,
        estimators: str | Sequence[str] | None,
        parameters: Mapping[str, Scalar],
        tokens: CountedTokens = "reasoning",
        fitted: FitLike | None = None,
        prior: float | None = None,
        policy: PolicyLike | None = None,
    ) -> Scoring:
        """Everything that can be refused before a token is read is refused here."""
        if not isinstance(pair, Pair | ServerPair | WrittenPair):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("pair is not a pair of models.", next_step="Make one with load_pair.")
        fit = None if fitted is None else fit_of(fitted)
        if prior is not None:
            check_prior(prior, fit)
        rules = None if policy is None else policy_of(policy)
        names = list(dict.fromkeys(named(estimators, rules)))
        if rules is not None:
            theta, parameters = with_policy(rules, names, theta, parameters)
        common = parameters
        if fit is not None:
            check_fit(fit, names, (pair.p.name, pair.q.name))
            theta, parameters = with_fitted(fit, theta, parameters)
        if theta is None:
            family = pair.family if isinstance(pair, Pair) else None
            theta = default_theta(pair.p.name, pair.q.name, family=family, generator=generator)
        if tokens not in COUNTED_WORDS:
            known = did_you_mean(str(tokens), COUNTED_WORDS)
            raise UsageError(f"tokens cannot be {tokens!r}.", next_step=known)
        check_parameter("theta", theta)  # also where no estimator has one: the count needs it
        specs = [one_estimator(name) for name in names]
        if not specs:
            raise UsageError("There is no estimator to score with.", next_step="Name one or more.")
        for spec in specs:
            _check_estimator(spec, pair)
        check_names(specs[0], [p for p in parameters if all(p not in s.parameters for s in specs)])
        kinds = list(dict.fromkeys(kind for spec in specs for kind in spec.evidence))
        # A fitted rate is that of its own estimator alone.
        owner = None if fit is None else fit.estimator
        given = {s.name: parameters if s.name == owner else common for s in specs}
        chosen = [(s, bind_parameters(s, {"theta": theta, **given[s.name]})) for s in specs]
        if fit is not None:
            bound = next(bound for spec, bound in chosen if spec.name == fit.estimator)
            check_parameters(fit, bound, tokens, how="leave out the fit")
        listeners = [EVIDENCE.get(kind).alone() for kind in kinds]
        made = cls(
            pair,
            theta,
            chosen,
            kinds,
            Asked(
                further({column for spec in specs for column in spec.columns}),
                [listener for listener in listeners if listener is not None],
            ),
            Tally(pair.vocab_size if isinstance(pair, Pair) else None),
            tokens,
            fit,
            prior,
            rules,
        )
        if rules is not None:
            check_policy(rules, made.how_scored(names.index(rules.scored.estimator)))
        return made

    def row(self, key: str, question: str, response: str) -> Row:
        """The tokens to read: the response in those of p's tokenizer, behind p's own prompt."""
        tokenizer = self.pair.p.tokenizer
        ids = response_ids(tokenizer, response)
        asked = np.array(prompt_ids(tokenizer, question), dtype=np.int64)
        return Row(key, asked, np.array(ids, dtype=np.int64), response)

    def read(self, rows: Sequence[Row]) -> list[Read]:
        if isinstance(self.pair, Pair):
            return self.pair.read_rows(rows, budget=self.budget, asked=self.asked)
        if isinstance(self.pair, WrittenPair):
            raise UsageError("A generator that only writes behind its server reads no text.")
        return [Read(trace) for trace in self.pair.trace_rows(rows)]

    def read_once(self, row: Row) -> Read:
        """One row alone, or what a pair of models made of it when it last read it alone.

        Rows that were read together differ by rounding, and servers may change: neither is kept.
        """
        if not isinstance(self.pair, Pair):
            return self.read([row])[0]
        divergences = (divergence.column for divergence in self.asked.divergences)
        what = (row.prompt_ids.tobytes(), row.token_ids.tobytes(), row.text, row.protocol)
        return READINGS.get(
            self.pair, (*what, *sorted(divergences), *self.kinds), lambda: self.read([row])[0]
        )

    def confidences(
        self, key: str, trace: Trace, heard: Mapping[str, object] | None = None
    ) -> tuple[Confidence, ...]:
        """One of each estimator, maps among them, for a trace that says which tokens count."""
        return tuple(
            self._mapped(
                replace(
                    score_evidence(spec, key, trace, heard or {}, given),
                    params=named_parameters(spec, given, self.tokens),
                )
            )
            for spec, given in self.chosen
        )

    def scored(self, row: Row, read: Read, *, retokenized: bool = True) -> Scored:
        trace = replace(read.trace, retokenized=retokenized, counted=self.tokens)
        found = self.confidences(row.key, trace, dict(zip(self.kinds, read.heard, strict=True)))
        counts = unexpected = None
        if trace.status == "ok":
            self.tally.add(trace)
            counts = count_trace(trace, theta=self.theta, band_bits=0.0)
            unexpected = unexpected_count(
                trace, guard=guard_of(found[0].estimator, found[0].params)
            )
        return Scored(row.text or "", found, counts, trace, unexpected)

    def params(self, place: int) -> Mapping[str, Scalar]:
        """What the confidences of the estimator at this place are said to be made with."""
        spec, given = self.chosen[place]
        fit = self.fitted
        if fit is None or fit.map is None or fit.estimator != spec.name:
            return given
        return mapped_params(fit, given)

    def how_scored(self, place: int) -> HowScored:
        """What the confidences of the estimator at this place are made with."""
        spec, _ = self.chosen[place]
        fit, stated = self.fitted, None
        if fit is not None and fit.map is not None and fit.estimator == spec.name:
            stated = fit.prior if self.prior is None else self.prior
        pair = (self.pair.p.name, self.pair.q.name)
        return HowScored(spec.name, dict(self.params(place)), self.tokens, pair, stated)

    def decision(self, scored: Scored) -> Decision | None:
        """What the policy says of a response; None without one."""
        if self.policy is None:
            return None
        name = self.policy.scored.estimator
        found = next(found for found in scored.confidences if found.estimator == name)
        return decision_of(self.policy, found)

    def _mapped(self, found: Confidence) -> Confidence:
        if self.fitted is None or self.fitted.estimator != found.estimator:
            return found
        mapped = applied(self.fitted, found)
        return mapped if self.prior is None else stated_for(mapped, self.prior)

    def warn(self, *, stacklevel: int) -> None:
        """A Python warning where the pair's divergences say nothing, by all that was scored."""
        for warning in warnings_by_traces(self.pair.p.name, self.pair.q.name, self.tally):
            warnings.warn(warning.text, stacklevel=stacklevel)

    def unscored(self, response: object, reason: Reason) -> Scored:
        """For a response that was not read."""
        none = [
            self._mapped(Confidence("", spec.name, params, None, reason))
            for spec, params in self.chosen
        ]
        return Scored(response if isinstance(response, str) else "", tuple(none))

    def result(
        self, scored: Scored, place: int = 0, *, texts: Sequence[str] | None = None
    ) -> Result | None:
        """What a single call gives, of the estimator at this place; None where there is no value.

        `texts` are those of the tokens, where they are not the ones that the response's text gives.
        """
        found, counts, trace = scored.confidences[place], scored.counts, scored.trace
        if found.value is None or counts is None or trace is None:
            return None
        if texts is None:
            tokenizer = self.pair.p.tokenizer
            texts = token_texts(tokenizer, response_ids(tokenizer, scored.response))
        bounds = None if found.low is None or found.high is None else (found.low, found.high)
        few, many = counts.low, counts.high
        return Result(
            value=found.value,
            count=counts.count,
            tokens=_tokens(texts, trace, self.theta, guard_of(found.estimator, found.params)),
            estimator=found.estimator,
            params=found.params,
            theta=self.theta,
            trace=trace,
            bounds=bounds,
            count_bounds=None if few is None or many is None else (few, many),
            prior=found.prior,
            decision=self.decision(scored),
        )


def guard_of(estimator: str, params: Mapping[str, Scalar]) -> float:
    """Beyond how many nats a token is unexpected: as asked for, where it was asked for."""
    return float(params["guard"] if estimator == GUARDED else GUARD)


def _tokens(texts: Sequence[str], trace: Trace, theta: float, guard: float) -> Tokens:
    divergent = divergent_tokens(trace, theta=theta).tolist()
    excess, mask = excess_surprise(trace), unexpected_tokens(trace, guard=guard)
    nothing = [None] * len(texts)
    marks = nothing if mask is None else mask.tolist()
    nats = nothing if excess is None else excess.tolist()
    rows = zip(texts, trace.jsd_bits.tolist(), divergent, marks, nats, strict=True)
    return Tokens((Token(*row) for row in rows), theta, guard)


def policy_of(given: PolicyLike) -> Policy:
    """A policy as it is, or of a file or of the run that holds one."""
    return given if isinstance(given, Policy) else find_policy(str(given))


def named(estimators: str | Sequence[str] | None, policy: Policy | None) -> Sequence[str]:
    """Who scores: what is named; else the policy's own estimator; else dtc_lin."""
    if estimators is None:
        return [DEFAULT if policy is None else policy.scored.estimator]
    names = [estimators] if isinstance(estimators, str) else list(estimators)
    if policy is not None and policy.scored.estimator not in names:
        raise UsageError(
            f"The policy is for the estimator '{policy.scored.estimator}'; here it is "
            f"{', '.join(names)}.",
            next_step="Name that one, too, or leave the estimator to the policy.",
        )
    return names


def with_policy(
    policy: Policy,
    names: Sequence[str],
    theta: float | None,
    parameters: Mapping[str, Scalar],
) -> tuple[float | None, Mapping[str, Scalar]]:
    """Theta and parameters, with those that the policy was made with where none are given.

    What a map adds to them is not given: the map is, as a fit. Of several estimators each gets what
    is given alone.
    """
    own = {k: v for k, v in policy.scored.params.items() if k not in ("map", "map_of")}
    made_theta = own.pop("theta", None)
    if theta is None and made_theta is not None:
        theta = float(made_theta)
    return theta, ({**own, **parameters} if len(names) == 1 else parameters)


def fit_of(given: FitLike) -> Fitted:
    """A fit as it is, or of a file or of the run that holds one."""
    if not isinstance(given, Fitted | str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(
            "A confidence takes one fit (fitted, --fitted), not several.",
            next_step="Give one: a map brings the theta or the rate that it was fitted with.",
        )
    return given if isinstance(given, Fitted) else load_fit(find_fit(str(given)))


def check_fit(fit: Fitted, estimators: Sequence[str], pair: tuple[str, str]) -> None:
    """Refuse a fit of an estimator that is not asked for, or for other models; reads none."""
    if fit.estimator not in estimators:
        raise UsageError(
            f"{fit.subject} was given, but the confidence is asked of {', '.join(estimators)}.",
            next_step=f"Name the estimator '{fit.estimator}', or leave out the fit.",
        )
    check_pair(fit, pair)


def check_prior(prior: float, fit: Fitted | None) -> None:
    """One response alone says nothing of how many are right; a map knows what it was fitted on."""
    if not 0 < prior < 1:
        raise UsageError(
            f"prior must be between 0 and 1, both left out, not {prior}.",
            next_step="Give the share of answers that are right.",
        )
    if fit is None or fit.map is None:
        raise UsageError(
            "prior needs a map that says how many answers were right where it was fitted.",
            next_step="Give one that 'divtok fit --what isotonic' made as 'fitted' (--fitted); in "
            "a run, score.prior needs none.",
        )


def with_fitted(
    fit: Fitted, theta: float | None, parameters: Mapping[str, Scalar]
) -> tuple[float | None, Mapping[str, Scalar]]:
    """Theta and parameters, with the fit's own theta and rate where none is given."""
    own = {name: fit.params[name] for name in PARAMETERS if name in fit.params}
    fitted_theta = own.pop("theta", None)
    if theta is None and fitted_theta is not None:
        theta = float(fitted_theta)
    return theta, {**own, **parameters}


def not_text(name: str, value: object) -> Reason | None:
    """Why this cannot be the question or the response of a row."""
    if not isinstance(value, str):
        return Reason("not_text", f"the {name} is not a text but {type(value).__name__}")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        text = f"the {name} holds a lone surrogate, which is not a character"
        return Reason("not_text", text)
    return None


def _check_estimator(spec: Estimator, pair: Pair | ServerPair | WrittenPair) -> None:
    """A pair gives traces and what rides on its pass; other evidence takes other models."""
    beyond = [kind for kind in spec.evidence if EVIDENCE.get(kind).alone() is None]
    if beyond or spec.learned is not None:
        raise UsageError(
            f"'{spec.name}' needs more than a pair and one response"
            + (f" ({', '.join(beyond)})." if beyond else ": it learns from many."),
            next_step=f"Use it in a run: divtok run score.estimators={spec.name}",
        )
    if not isinstance(pair, Pair) and (spec.needs_exact or spec.evidence):
        raise UsageError(
            f"'{spec.name}' needs more than a server tells: its most likely tokens.",
            next_step="Use another estimator, or models with weights here.",
        )
    if spec.ranking_only:
        raise UsageError(
            f"'{spec.name}' only ranks responses; it is not a confidence.",
            next_step="Use another estimator; the count is in every result.",
        )
