"""How peaked the model's own distributions are: DeepConf's groups and tail, and self-certainty.

Both sources measure a token by the log-probabilities of tokens that were not taken: DeepConf by
the k most likely ones, self-certainty by the whole vocabulary. Traces hold neither. They hold the
entropy, which like those depends on the distribution and not on the token that was taken, so it
stands in their place. These values have an order and no scale, as in the sources, where they weigh
votes and pick the best of several responses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.errors import UsageError
from divtok.records import FloatArray, Trace
from divtok.score.registry import Range, estimator

# The source's, for responses of many thousands of tokens.
WINDOW = 2048
RANGES: dict[str, Range] = {"window": (1, np.inf)}


@estimator(
    "deepconf_group",
    needs=("entropy_p",),
    label="DeepConf group",
    order=144,
    ranking_only=True,
    ranges=RANGES,
)
def deepconf_group(trace: Trace, *, window: int = WINDOW) -> float:
    """Minus the mean entropy of the least certain window of tokens: DeepConf's lowest group."""
    return 0.0 - float(window_means(trace.entropy_p, whole_window(window)).max())


@estimator(
    "deepconf_tail",
    needs=("entropy_p",),
    label="DeepConf tail",
    order=145,
    ranking_only=True,
    ranges=RANGES,
)
def deepconf_tail(trace: Trace, *, window: int = WINDOW) -> float:
    """Minus the mean entropy of the last tokens of the response: DeepConf's tail."""
    return 0.0 - float(np.mean(trace.entropy_p[-whole_window(window) :], dtype=np.float64))


@estimator(
    "self_certainty_reverse",
    needs=("entropy_p",),
    label="Self-cert. (rev.)",
    order=146,
    ranking_only=True,
)
def self_certainty_reverse(trace: Trace) -> float:
    """Mean KL(P || uniform) less the logarithm of the vocabulary's width: minus the mean entropy.

    A trace does not hold the width, which is the same for all responses that a pair reads.
    """
    return 0.0 - float(np.mean(trace.entropy_p, dtype=np.float64))


def window_means(values: FloatArray, window: int) -> npt.NDArray[Any]:
    """[T - window + 1] means of each run of `window` values; of fewer values the one mean there is.

    Summed in float64 from the start of each window, not as a difference of running sums, which
    would leave the rounding of all tokens before in each.
    """
    size = min(window, len(values))
    windows = np.lib.stride_tricks.sliding_window_view(values, size)
    return windows.mean(axis=-1, dtype=np.float64)


def whole_window(window: float) -> int:
    """The number of tokens of a window; an error where it is not a whole one."""
    if window != int(window):
        raise UsageError(
            f"window must be a whole number of tokens, not {window}.",
            next_step="Correct its value.",
        )
    return int(window)
