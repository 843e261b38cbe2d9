"""What the acceptance counts of speculative decoding say of two models, without any logprob.

A draft model q writes tokens ahead, and the target model p accepts a drafted token x with chance
min(1, p(x) / q(x)). Where q's token was drawn from q and both distributions are those at
temperature 1, it is accepted with chance sum_x min(p(x), q(x)) = 1 - TV, the total variation of p
and q at that place, whatever was accepted before. That is all that is used:

- A step that drafts k tokens tests place 1, then 2, ... up to the first rejection: it tells of as
  many places as were accepted, and of one more if not all were. The places behind a rejection are
  not on the text's path, and nothing is known of them.
- The rejected place is in the text too, with another token, so its TV counts. A place is tested
  because of what stands before it, not because of what comes of its own test, so the rejections
  less the sum of TV over the tested places have mean 0 (a martingale): the number of rejections is
  an unbiased estimate of that sum, wherever the steps begin and end.
- The bonus token behind a step that was accepted whole was not drafted: its place is in the text
  and not tested. The estimate for the whole text gives those places the mean of the tested ones.
  That part is a guess, and the sum over tested places is unbiased without it.

Greedy drafts, another temperature, top-p or top-k, or a relaxed acceptance break the second line:
then the counts say something of the processed distributions, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2, sqrt
from typing import Any

from divtok.errors import DataError
from divtok.evaluate.share_interval import wilson
from divtok.records import Interval

_FLAG = "--per-request-spec-decode-metrics detailed"
_STEPS, _LIST = ("drafted", "accepted"), "per_step_accepted"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What speculative steps say of one text of `tested` + `untested` tokens.

    `variation` is the unbiased estimate of the summed total variation of target and draft over the
    tested tokens: their `rejected` drafts. `error` is its standard error where all tested places
    vary alike; elsewhere the true one is smaller. `whole` is the same for all tokens, the untested
    taken as the tested are on average.

    Example:
        >>> import divtok
        >>> found = divtok.acceptance(drafted=[4, 4, 4], accepted=[4, 1, 3])
        >>> found.tested, found.untested, found.variation
        (10, 1, 2.0)
        >>> round(found.error, 2), round(found.whole, 2)
        (1.26, 2.2)
    """

    tested: int
    untested: int
    rejected: int
    error: float

    @property
    def variation(self) -> float:
        return float(self.rejected)

    @property
    def mean(self) -> float | None:
        """Total variation of a tested token; None where no draft was tested."""
        return self.rejected / self.tested if self.tested else None

    @property
    def whole(self) -> float | None:
        return None if self.mean is None else self.mean * (self.tested + self.untested)

    def interval(self) -> Interval | None:
        """The 95 % interval of the summed total variation; None where no draft was tested.

        Wilson's, which is no point where nothing was rejected.
        """
        if not self.tested:
            return None
        share = wilson(self.rejected / self.tested, self.tested)
        return Interval(self.tested * share.low, self.tested * share.high)

    def divergence(self) -> Interval | None:
        """From least to most, what the summed JSD in bits of the tested tokens may be.

        At each token 1 - h2((1 + TV) / 2) <= JSD <= TV. The lower bound is convex in TV, so it
        holds for the mean, too. Each is taken at its end of `interval`.
        """
        of = self.interval()
        if of is None:
            return None
        return Interval(self.tested * least_divergence(of.low / self.tested), of.high)


def acceptance(
    drafted: Sequence[int], accepted: Sequence[int], *, tokens: int | None = None
) -> Acceptance:
    """From the tokens drafted and accepted in each step of one response.

    `tokens` is the length of the text, where it ended within the last step or begins with tokens
    that no step drafted; left out, it is what the steps emit: one more than each accepted.
    vLLM lists both under `metrics.speculative_decoding` with `--per-request-spec-decode-metrics
    detailed`; the drafts must be sampled (`draft_sample_method="probabilistic"`), at temperature 1
    without top-p and top-k.

    Example:
        >>> import divtok
        >>> found = divtok.acceptance(drafted=[4, 4, 4], accepted=[4, 1, 3])
        >>> bounds = found.divergence()  # of the summed JSD in bits
        >>> 0 < bounds.low < found.variation < bounds.high
        True
    """
    if len(drafted) != len(accepted) or any(
        not 0 <= a <= d for d, a in zip(drafted, accepted, strict=True)
    ):
        raise DataError(
            "A step must accept between 0 and as many tokens as it drafted.",
            next_step="Give per_step_drafted and per_step_accepted of the same response.",
        )
    rejected = sum(a < d for d, a in zip(drafted, accepted, strict=True))
    tested = sum(accepted) + rejected
    written = sum(accepted) + len(accepted) if tokens is None else tokens
    if written < tested:
        raise DataError(
            f"{tested} tokens were tested, but the text has {written}.",
            next_step="Leave out the drafts behind the end of the text.",
        )
    mean = rejected / tested if tested else 0.0
    # The sum of v (1 - v) is at most what it is where all v are alike.
    return Acceptance(tested, written - tested, rejected, sqrt(tested * mean * (1 - mean)))


def acceptance_of(response: Any) -> Acceptance:
    """`acceptance` from a response of vLLM: an object of the `openai` package, or its JSON.

    The server needs `--per-request-spec-decode-metrics detailed`, and says it of single answers
    (n=1); a stream has it in its last chunk, beside the usage. For what is asked of the drafts, see
    `acceptance`.

    A step that is cut off by the end of the text is counted up to there alone: vLLM counts what it
    accepted behind it, too. The first token comes before all steps, and tokens of steps without a
    draft are in no count.

    Example:
        >>> import divtok
        >>> steps = {"per_step_drafted": [4, 4, 4], "per_step_accepted": [4, 1, 3]}
        >>> metrics = {"speculative_decoding": steps}
        >>> response = {"usage": {"completion_tokens": 10}, "metrics": metrics}
        >>> found = divtok.acceptance_of(response)  # ends with the second token of the last step
        >>> found.tested, found.untested, found.variation
        (8, 2, 1.0)
    """
    found = _part(_part(response, "metrics"), "speculative_decoding")
    if found is None:
        raise DataError(
            "The response has no metrics.speculative_decoding.",
            next_step=f"Start vLLM with a draft model and {_FLAG}, and ask for one answer (n=1); "
            "in a stream, with stream_options.include_usage.",
        )
    drafted, accepted = (_counts(_part(found, f"per_step_{name}")) for name in _STEPS)
    if drafted is None or accepted is None:
        raise DataError(
            "The response's metrics.speculative_decoding has no counts of its steps "
            "(per_step_drafted, per_step_accepted).",
            next_step=f"Start vLLM with {_FLAG}.",
        )
    tokens = _part(_part(response, "usage"), "completion_tokens")
    if not _is_count(tokens):
        raise DataError(
            "The response has no usage.completion_tokens, so it is not known where its text ended.",
            next_step="Ask for the usage; in a stream, with stream_options.include_usage.",
        )
    if len(drafted) != len(accepted):
        return acceptance(drafted, accepted)  # which refuses them
    steps = list(_within(drafted, accepted, tokens))
    return acceptance([d for d, _ in steps], [a for _, a in steps], tokens=tokens)


def has_steps(response: Any) -> bool:
    """Whether a response says how many drafts each step accepted."""
    return _part(_part(_part(response, "metrics"), "speculative_decoding"), _LIST) is not None


def _within(
    drafted: Sequence[int], accepted: Sequence[int], tokens: int
) -> Iterator[tuple[int, int]]:
    """The steps as far as they are in the text, behind its first token, which no step wrote."""
    left = tokens - 1
    for d, a in zip(drafted, accepted, strict=True):
        if left <= 0:
            return
        yield (d, a) if a < left else (left, left)
        left -= a + 1


def _part(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _counts(value: Any) -> Sequence[int] | None:
    return value if isinstance(value, Sequence) and all(map(_is_count, value)) else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def least_divergence(variation: float) -> float:
    """The smallest JSD in bits of two distributions of this total variation."""
    return 1.0 - sum(-x * log2(x) for x in ((1 + variation) / 2, (1 - variation) / 2) if x > 0)
