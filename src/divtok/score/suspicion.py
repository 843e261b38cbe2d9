"""How suspect each step of a response is, by the numbers of its tokens.

Of a wrong response some step is the first that went wrong. Each way of marking it gives every step
a score, and the step with the highest one is marked. Knows traces and where steps begin; whether a
step is right is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from divtok.records import FirstWrong, Trace
from divtok.score.estimators.dtc import divergent_tokens
from divtok.score.estimators.guarded import GUARD, excess_surprise, guarded_surprise
from divtok.score.estimators.weighted import weighted_surprise

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FIRST_DIVERGENT, MOST_DIVERGENT = "first_divergent", "most_divergent"
WEIGHTED, GUARDED = "weighted", "guarded"
LEAST_LIKELY, LEAST_LIKELY_STEP = "least_likely", "least_likely_step"
# Every way of marking, with its words, in the order of tables.
MARKINGS: Mapping[str, str] = {
    FIRST_DIVERGENT: "first divergent token",
    MOST_DIVERGENT: "most divergent tokens",
    "divergence": "largest summed divergence",
    WEIGHTED: "largest weighted surprise",
    GUARDED: "largest guarded surprise",
    "excess": "largest excess surprise",
    LEAST_LIKELY: "least likely token",
    LEAST_LIKELY_STEP: "least likely step",
}
# Without any divergent token they mark nothing; all others mark a step of every response.
MAY_MARK_NOTHING = (FIRST_DIVERGENT, MOST_DIVERGENT)


def token_suspicion(trace: Trace, *, guard: float = GUARD) -> Floats:
    """[T] the guarded surprise of every token, the best single mark of a mistake.

    Of a server's most likely tokens the weighted surprise: more they do not tell.
    """
    return guarded_surprise(trace, guard=guard) if trace.exact else weighted_surprise(trace)


def step_scores(
    trace: Trace, bounds: Ints, *, theta: float, guard: float = GUARD
) -> dict[str, Floats]:
    """[S] the score of every step by each way of marking; higher is more suspect.

    `bounds` [S + 1] are where steps begin. A score of -inf is of a step that is never marked. A way
    for which the trace does not tell enough, as a server's does not, is left out.
    """
    steps = len(bounds) - 1
    divergent = divergent_tokens(trace, theta=theta)
    counts = _each(divergent, bounds, np.sum, 0.0)
    surprise = -trace.logprob_p[: trace.turn_end].astype(np.float64)
    reasoning_bits = np.where(trace.reasoning(), trace.jsd_bits, 0.0).astype(np.float64)
    found = {
        FIRST_DIVERGENT: np.where(counts > 0, -np.arange(steps, dtype=np.float64), -np.inf),
        MOST_DIVERGENT: np.where(counts > 0, counts, -np.inf),
        "divergence": _each(reasoning_bits, bounds, np.sum, 0.0),
        WEIGHTED: _each(weighted_surprise(trace), bounds, np.sum, 0.0),
        GUARDED: _each(token_suspicion(trace, guard=guard), bounds, np.sum, 0.0),
        LEAST_LIKELY: _each(surprise, bounds, np.max, -np.inf),
        LEAST_LIKELY_STEP: _each(surprise, bounds, np.mean, -np.inf),
    }
    excess = excess_surprise(trace)
    if excess is not None:
        found["excess"] = _each(excess[: trace.turn_end], bounds, np.max, -np.inf)
    return {name: found[name] for name in MARKINGS if name in found}


# Of a suspect step, what fits on a screen.
SHOWN = ("rank", "step", "score", "divergent", "text", "known_wrong")


@dataclass(frozen=True, slots=True)
class SuspectStep:
    """One step of a response, by how suspect it is: `rank` 1 is the most suspect.

    `step` counts the steps from 1, `score` is the guarded surprise of its tokens together (what
    dtc_guarded falls with), `divergent` how many of those are divergent. The step is the characters
    `start`:`stop` of the response and the tokens `first_token`:`end_token`. `known_wrong` says
    whether it is the first wrong step, None where that is not known.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> question = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
        >>> response = "421 + 130 = 541.\\nThe answer is \\\\boxed{541}."
        >>> first, *_ = divtok.suspect_steps(divtok.confidence(question, response, pair=pair))
        >>> first.step, first.text
        (1, '421 + 130 = 541.')
    """

    rank: int
    step: int
    score: float
    divergent: int
    text: str
    start: int
    stop: int
    first_token: int
    end_token: int
    known_wrong: bool | None = None


def suspect_steps_of(
    trace: Trace,
    text: str,
    steps: Sequence[tuple[int, int]],
    bounds: Ints,
    *,
    theta: float,
    guard: float = GUARD,
    first_wrong: FirstWrong | None = None,
) -> list[SuspectStep]:
    """The steps of a response in order of suspicion; `first_wrong` where anything is known."""
    known = first_wrong is not None and first_wrong.reason is None
    wrong = None if first_wrong is None else first_wrong.step
    scores = _each(token_suspicion(trace, guard=guard), bounds, np.sum, 0.0)
    counts = _each(divergent_tokens(trace, theta=theta), bounds, np.sum, 0.0)
    order = np.argsort(-scores, kind="stable").tolist()  # of equal ones the first comes first
    return [
        SuspectStep(
            rank=rank,
            step=step + 1,
            score=float(scores[step]),
            divergent=int(counts[step]),
            text=text[slice(*steps[step])],
            start=steps[step][0],
            stop=steps[step][1],
            first_token=int(bounds[step]),
            end_token=int(bounds[step + 1]),
            known_wrong=step == wrong if known else None,
        )
        for rank, step in enumerate(order, start=1)
    ]


def _each(
    values: npt.NDArray[np.generic], bounds: Ints, of: Callable[..., float], empty: float
) -> Floats:
    """[S] what `of` says of the values of each step; a step may have none."""
    parts = [values[a:b] for a, b in pairwise(bounds.tolist())]
    return np.array([of(part) if len(part) else empty for part in parts], dtype=np.float64)
