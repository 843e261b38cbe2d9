"""From Python what the verbs do from the shell, by the same functions.

Here is the short way for one answer: a question and a response in, a confidence with its tokens
out. Beside it, a file each: many answers, figures from confidences, runs, and what results share.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from divtok.api.result import Result, Token
from divtok.api.scoring import FitLike, PolicyLike, Scoring, not_text
from divtok.errors import NothingScoredError, UsageError
from divtok.families.family import FAMILIES, families_of
from divtok.models.load import DType
from divtok.records import CountedTokens, Reason, Scalar
from divtok.trace.pair import Pair
from divtok.trace.pair import load_pair as load_models
from divtok.trace.pair_warnings import warnings_by_files
from divtok.trace.topk.server_pair import ServerPair

if TYPE_CHECKING:
    import torch

__all__ = ["Result", "Token", "confidence", "load_pair", "nothing_scored"]

NO_TEXT = Reason("empty", "there is no text in it")


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

    Two models whose divergences would say nothing, such as a copy of one model, give a Python
    warning.

    A family's name stands for its reader (or else its smallest generator) and its auxiliary. A
    model is a folder, a hub id or a GGUF file. q lies where p does unless `q_device` is given;
    `device_map="auto"` spreads each over all GPUs instead.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> pair.p.name, pair.q.name
        ('divtok/tiny-0.5m', 'divtok/tiny-0.3m')
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
    if family is None:
        # In a white-box family p may be smaller: it wrote the responses.
        known = bool(families_of(p, q))
        for warning in warnings_by_files(
            p, q, p_revision=p_revision, q_revision=q_revision, p_writes=known
        ):
            warnings.warn(warning.text, stacklevel=2)
    return replace(pair, family=family)


def confidence(
    question: str,
    response: str,
    *,
    pair: Pair | ServerPair,
    theta: float | None = None,
    generator: str | None = None,
    estimator: str | None = None,
    tokens: CountedTokens = "reasoning",
    fitted: FitLike | None = None,
    prior: float | None = None,
    policy: PolicyLike | None = None,
    **parameters: Scalar,
) -> Result:
    """How far to trust `response` as an answer to `question`.

    `theta` is by default that of the family the pair was loaded by. A pair of two models has that
    of the family which pairs them: where p is the `generator`, who wrote the response, the
    white-box one; otherwise, also where that is not said, the black-box one, if there is one. The
    response is tokenised by p's tokenizer; `Pair.trace_ids` takes token ids as they are.

    `tokens` says which tokens can count as divergent: "reasoning" leaves out those of a boxed
    answer and the end of turn, "no_answer" those of the answer alone, "all" none.

    `fitted` is what `fit` gave, its file, or the run that holds it: a theta or a rate is taken from
    it, a map is put over the estimator's values. One for another pair, estimator or parameters is
    refused. A map knows how many answers were right where it was fitted; with `prior`, how many are
    here, its confidences are stated for that.

    `policy` is what `decide` gave, its file, or the run that holds it: `decision` then says whether
    to accept the answer, and why. It brings its estimator, theta and parameters; one for another
    pair, estimator or parameters is refused.

    `estimator` is by default dtc_lin, and `parameters` are its own, such as n=12. For many
    responses, `confidences` is faster. The last few responses that a pair of models has read are
    kept with it: another estimator or theta reads none of them again.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> question = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
        >>> response = "421 + 130 = 551.\\nThe answer is \\\\boxed{551}."
        >>> result = divtok.confidence(question, response, pair=pair)
        >>> round(result.value, 2), result.count
        (0.95, 0)
    """
    for name, text in (("question", question), ("response", response)):
        why = not_text(name, text)
        if why is not None:
            raise UsageError(f"{why[0].upper()}{why[1:]}.")
    asked = Scoring.of(
        pair,
        theta=theta,
        generator=generator,
        estimators=estimator,
        parameters=parameters,
        tokens=tokens,
        fitted=fitted,
        prior=prior,
        policy=policy,
    )
    if not response.strip():
        raise nothing_scored(NO_TEXT)
    row = asked.row("", question, response)
    read = asked.read_once(row)
    scored = asked.scored(row, read)
    asked.warn(stacklevel=3)
    result = asked.result(scored)
    if result is None:
        raise nothing_scored(scored.confidences[0].reason)
    return result


def nothing_scored(reason: str | None) -> NothingScoredError:
    """Of one response: there is no text in it, or the models could not read it."""
    if reason == NO_TEXT:
        return NothingScoredError(f"The response cannot be scored: {reason}.")
    return NothingScoredError(
        f"The response cannot be scored ({reason}).",
        next_step="Check that it is not empty and fits the models' context.",
    )
