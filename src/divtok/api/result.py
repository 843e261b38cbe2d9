"""What is known of one response: its confidence, and its tokens with their divergences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from divtok.records import Scalar, Trace


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the response: its text, its divergence, and whether it counts as divergent.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> token = divtok.confidence("What is 1 + 1?", "It is 2.", pair=pair).tokens[0]
        >>> token.text, token.divergent
        ('It', True)
    """

    text: str
    jsd_bits: float
    divergent: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result:
    """The confidence in one response. In a notebook it shows the tokens coloured by divergence.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> result = divtok.confidence("What is 1 + 1?", "It is 2.", pair=pair)
        >>> result.count == sum(token.divergent for token in result.tokens)
        True
        >>> result.trace.jsd_bits.shape == (len(result.tokens),)
        True
    """

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

    def __repr__(self) -> str:
        return (
            f"<Result: {self.estimator} {self.value:.3f}, {self.count} divergent of "
            f"{len(self.tokens)} tokens at theta {self.theta:g}>"
        )

    def _repr_html_(self) -> str:
        from divtok.report.terminal import html_tokens

        view = html_tokens(
            [token.text for token in self.tokens],
            self.trace.jsd_bits,
            self.theta,
            reasoning=self.trace.reasoning(),
        )
        return f"<p>{self.estimator}: <b>{self.value:.3f}</b></p>{view}"
