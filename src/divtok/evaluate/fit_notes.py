"""What to keep in mind before a theta or a rate that was fitted is used, in sentences."""

from __future__ import annotations

from dataclasses import dataclass

from divtok.evaluate.protocol import FEWEST_OF_A_CLASS
from divtok.records import Interval, Reason

_MORE = "take more samples or problems."


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen of a grid, on how many responses, and how well it is determined."""

    noun: str  # "theta" or "the rate"
    at_edge: bool
    hardly_determined: bool
    wide: str  # what an interval spans that determines it hardly at all
    n: int
    n_balanced: int
    problems: int
    wrong: int
    interval: Interval | None
    reason: Reason | None

    def notes(self) -> tuple[str, ...]:
        of = f"{self.n:,} responses to {self.problems:,} problems ({self.wrong:,} wrong)"
        found: list[str] = []
        if self.interval is None:
            found.append(
                f"How well {self.noun} is determined by these {of} is not known: {self.reason}."
            )
        elif self.hardly_determined:
            low, high = f"{self.interval.low:g}", f"{self.interval.high:g}"
            found.append(
                f"{self._subject} is hardly determined by these {of}: its interval, {low} to "
                f"{high}, spans {self.wide}; {_MORE}"
            )
        if self.n_balanced < FEWEST_OF_A_CLASS:
            few = "wrong" if 2 * self.wrong <= self.n else "right"
            found.append(
                f"The balanced draws hold {self.n_balanced} responses of a class, fewer than "
                f"{FEWEST_OF_A_CLASS}, because so few are {few}: the curve is mostly chance; "
                f"{_MORE}"
            )
        if self.at_edge:
            found.append(
                f"{self._subject} lies at the edge of the grid: the best one may lie beyond it."
            )
        return tuple(found)

    @property
    def _subject(self) -> str:
        return self.noun[0].upper() + self.noun[1:]
