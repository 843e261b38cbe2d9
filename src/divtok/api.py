"""The short way for one answer: a question and a response in, a confidence with its tokens out.

The same functions as the pipeline's, without a run folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from divtok.divergences.divergence import further
from divtok.errors import NothingScoredError, UsageError
from divtok.evidence.kind import EVIDENCE
from divtok.families.family import FAMILIES, default_theta
from divtok.models.load import DType
from divtok.protocols.encode import prompt_ids, response_ids
from divtok.records import Scalar, Trace
from divtok.score.estimators.dtc import divergent_tokens
from divtok.score.facts import count_trace
from divtok.score.registry import Estimator, bind_parameters, check_names, check_parameter
from divtok.score.scoring import score_evidence
from divtok.score.sets import one_estimator
from divtok.trace.batches import Row
from divtok.trace.listener import Read
from divtok.trace.pair import Asked, Pair
from divtok.trace.pair import load_pair as load_models
from divtok.trace.spans import token_texts
from divtok.trace.topk.server_pair import ServerPair

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the response: its text, its divergence, and whether it counts as divergent."""

    text: str
    jsd_bits: float
    divergent: bool


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The confidence in one response. In a notebook it shows the tokens coloured by divergence."""

    value: float
    count: int
    tokens: tuple[Token, ...]
    estimator: str
    params: Mapping[str, Scalar]
    theta: float
    trace: Trace
    # Where servers gave bounds only: what value and count certainly lie between.
    bounds: tuple[float, float] | None = None
    count_bounds: tuple[int, int] | None = None

    def _repr_html_(self) -> str:
        from divtok.report.terminal import html_tokens

        view = html_tokens(
            [token.text for token in self.tokens],
            self.trace.jsd_bits,
            self.theta,
            reasoning=self.trace.reasoning(),
        )
        return f"<p>{self.estimator}: <b>{self.value:.3f}</b></p>{view}"


def load_pair(
    p: str,
    q: str | None = None,
    *,
    p_revision: str | None = None,
    q_revision: str | None = None,
    dtype: DType = "auto",
    device: str | torch.device | None = None,
    q_device: str | torch.device | None = None,
    device_map: str | None = None,
) -> Pair:
    """Two models to read with: `load_pair("tiny")`, or `load_pair(model, smaller_model)`.

    A family's name stands for its reader (or else its smallest generator) and its auxiliary. A
    model is a folder, a hub id or a GGUF file. q lies where p does unless `q_device` is given;
    `device_map="auto"` spreads each over all GPUs instead.
    """
    family = None
    if q is None:
        if p not in FAMILIES:
            raise UsageError(
                f"'{p}' alone is not a pair.",
                next_step=f"Give two models, or a family: {', '.join(FAMILIES.names())}.",
            )
        family, preset = p, FAMILIES.get(p)
        p, q = preset.pair_for(preset.generators[0])
    pair = load_models(
        p,
        q,
        p_revision=p_revision,
        q_revision=q_revision,
        dtype=dtype,
        p_device=device,
        q_device=q_device or device,
        device_map=device_map,
    )
    return replace(pair, family=family)


def confidence(
    question: str,
    response: str,
    *,
    pair: Pair | ServerPair,
    theta: float | None = None,
    generator: str | None = None,
    estimator: str = "dtc_lin",
    **parameters: Scalar,
) -> Result:
    """How far to trust `response` as an answer to `question`.

    `theta` is by default that of the family the pair was loaded by. A pair of two models has that
    of the family which pairs them: where p is the `generator`, who wrote the response, the
    white-box one; otherwise, also where that is not said, the black-box one, if there is one. The
    response is tokenised by p's tokenizer; `Pair.trace_ids` takes token ids as they are.
    """
    _check_inputs(question, response, pair)
    if not response.strip():
        raise NothingScoredError("The response cannot be scored: there is no text in it.")
    if theta is None:
        family = pair.family if isinstance(pair, Pair) else None
        theta = default_theta(pair.p.name, pair.q.name, family=family, generator=generator)
    check_parameter("theta", theta)  # also where the estimator has none: the count needs it
    spec = one_estimator(estimator)
    _check_evidence(spec)
    if isinstance(pair, ServerPair) and (spec.needs_exact or spec.evidence):
        raise UsageError(
            f"'{estimator}' needs more than a server tells: its most likely tokens.",
            next_step="Use another estimator, or models with weights here.",
        )
    if spec.ranking_only:
        raise UsageError(
            f"'{estimator}' only ranks responses; it is not a confidence.",
            next_step="Use another estimator; the count is in every result.",
        )
    check_names(spec, parameters)
    bound = bind_parameters(spec, {"theta": theta, **parameters})
    tokenizer = pair.p.tokenizer
    ids = response_ids(tokenizer, response)
    asked = np.array(prompt_ids(tokenizer, question), dtype=np.int64)
    row = Row("", asked, np.array(ids, dtype=np.int64), response)
    read = _read(pair, row, spec)
    trace = replace(read.trace, retokenized=True)
    heard = dict(zip(spec.evidence, read.heard, strict=True))
    scored = score_evidence(spec, trace.key, trace, heard, bound)
    if scored.value is None:
        raise NothingScoredError(
            f"The response cannot be scored ({scored.reason}).",
            next_step="Check that it is not empty and fits the models' context.",
        )
    counts = count_trace(trace, theta=theta, band_bits=0.0)
    low, high, few, many = scored.low, scored.high, counts.low, counts.high
    texts, divergent = token_texts(tokenizer, ids), divergent_tokens(trace, theta=theta)
    return Result(
        value=scored.value,
        count=counts.count,
        tokens=tuple(
            Token(text, float(bits), bool(above))
            for text, bits, above in zip(texts, trace.jsd_bits, divergent, strict=True)
        ),
        estimator=estimator,
        params=bound,
        theta=theta,
        trace=trace,
        bounds=None if low is None or high is None else (low, high),
        count_bounds=None if few is None or many is None else (few, many),
    )


def _read(pair: Pair | ServerPair, row: Row, spec: Estimator) -> Read:
    if isinstance(pair, Pair):
        found = (EVIDENCE.get(kind).alone() for kind in spec.evidence)
        listeners = [listener for listener in found if listener is not None]
        return pair.read_row(row, asked=Asked(further(spec.columns), listeners))
    return Read(pair.trace_ids(prompt_ids=row.prompt_ids, token_ids=row.token_ids, text=row.text))


def _check_evidence(spec: Estimator) -> None:
    """A pair gives traces and what rides on its pass; other evidence takes other models."""
    beyond = [kind for kind in spec.evidence if EVIDENCE.get(kind).alone() is None]
    if beyond or spec.learned is not None:
        raise UsageError(
            f"'{spec.name}' needs more than a pair and one response"
            + (f" ({', '.join(beyond)})." if beyond else ": it learns from many."),
            next_step=f"Use it in a run: divtok run score.estimators={spec.name}",
        )


def _check_inputs(question: object, response: object, pair: object) -> None:
    for name, value in (("question", question), ("response", response)):
        if not isinstance(value, str):
            raise UsageError(f"The {name} is not a text but {type(value).__name__}.")
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise UsageError(f"The {name} holds a lone surrogate, which is not a character.")
    if not isinstance(pair, Pair | ServerPair):
        raise UsageError("pair is not a pair of models.", next_step="Make one with load_pair.")
