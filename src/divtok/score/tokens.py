"""Tokens of any number of responses, and estimators as sums over them.

Many estimators are a function of sums over a response's tokens. Declared so, their values for all
prefixes of all responses of a shard are a few array operations, and not one call for each prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.records import PER_TOKEN_FIELDS, FloatArray, Trace

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Per-token columns of some responses, one response after the other, [T] each.

    `counted` marks the tokens that can count, as `Trace.reasoning`; `in_turn` those before the end
    of the turn. `columns` need not hold more than what is read.
    """

    columns: Mapping[str, FloatArray]
    counted: Bools
    in_turn: Bools

    @classmethod
    def of(cls, trace: Trace) -> Tokens:
        columns = {name: getattr(trace, name) for name in PER_TOKEN_FIELDS}
        in_turn = np.arange(len(trace)) < trace.turn_end
        return cls({**columns, **trace.others}, trace.reasoning(), in_turn)

    def doubles(self, column: str) -> Floats:
        return self.columns[column].astype(np.float64)


@dataclass(frozen=True, slots=True)
class Sums:
    """An estimator as a function of sums over the tokens of a response.

    `terms(tokens, **parameters)` gives what each token adds to each sum, [T] each; the terms of a
    token do not depend on other tokens. `value(length, *sums, **parameters)` gives the confidences
    of responses of so many tokens with these sums, [N] each.
    """

    terms: Callable[..., tuple[npt.NDArray[Any], ...]]
    value: Callable[..., Floats]
