"""From comparisons to a verdict: what holds, what does not, and what the runs cannot tell.

A comparison is decided where its whole 95 % interval lies on one side of its bound. Knows figures
and words; not what is compared, or why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from divtok.evaluate.paired import Figure
from divtok.paper.exhibit import Compared, Finding

# How many of a claim's comparisons have to hold.
# "Often" is a third: in the paper's own tables of stated confidences with DTC, what it says happens
# often does so in 14 of 36 cases.
Share = Literal["every", "most", "often", "some"]
SHARES: dict[Share, str] = {
    "every": "",
    "most": " for more than half of them",
    "often": " for a third of them at least",
    "some": " for one of them at least",
}


_Decide = Callable[[float, float], bool | None]


def below(name: str, difference: Figure, bound: float = 0.0) -> Compared:
    """Whether a difference lies below a bound."""
    return _compared(name, difference, lambda low, high: _side(high < bound, low > bound))


def above(name: str, difference: Figure, bound: float = 0.0) -> Compared:
    return _compared(name, difference, lambda low, high: _side(low > bound, high < bound))


def within(name: str, difference: Figure, most: float) -> Compared:
    """Whether a difference lies within `most` of nothing."""
    return _compared(
        name,
        difference,
        lambda low, high: _side(-most <= low and high <= most, low > most or high < -most),
    )


def between(name: str, figure: Figure, low: float, high: float) -> Compared:
    """Whether a figure lies from `low` to `high`."""
    return _compared(name, figure, lambda a, b: _side(low <= a and b <= high, b < low or a > high))


def apart(name: str, difference: Figure, least: float) -> Compared:
    """Whether a difference is larger than `least`, whichever way it goes."""
    return _compared(
        name,
        difference,
        lambda low, high: _side(low > least or high < -least, -least <= low and high <= least),
    )


def judged(
    claim: str,
    rule: str,
    compared: Sequence[Compared],
    *,
    share: Share = "every",
    nothing: str = "not measured",
    unit: str = "points",
) -> Finding:
    """The verdict on all comparisons of a claim; `nothing` says why there is none."""
    holds = verdict([one.holds for one in compared], share)
    number = _text(compared, share, unit) if compared else nothing
    return Finding(claim, rule, holds, number, tuple(compared))


def verdict(parts: Sequence[bool | None], share: Share = "every") -> bool | None:
    """None where what is not decided could still make it either way, or there is nothing."""
    if not parts:
        return None
    sure, possible = parts.count(True), len(parts) - parts.count(False)

    def enough(number: int) -> bool:
        return {
            "every": number == len(parts),
            "most": 2 * number > len(parts),
            "often": 3 * number >= len(parts),
            "some": number > 0,
        }[share]

    return True if enough(sure) else None if enough(possible) else False


def _compared(name: str, figure: Figure, decide: _Decide) -> Compared:
    found = figure.interval()
    if found.interval is None:
        return Compared(name, figure.value, reason=found.reason)
    low, high = found.interval.low, found.interval.high
    return Compared(name, figure.value, low, high, decide(low, high))


def _side(holds: bool, fails: bool) -> bool | None:
    return True if holds else False if fails else None


def _text(compared: Sequence[Compared], share: Share, unit: str) -> str:
    """How many hold, and the comparison that the verdict hangs on."""
    said: list[str] = []
    if len(compared) > 1:
        counts = [
            f"{number} {word}"
            for held, word in ((True, "hold"), (None, "undecided"), (False, "do not"))
            if (number := sum(one.holds is held for one in compared))
        ]
        said.append(f"of {len(compared)}: {', '.join(counts)}")
    said.append(shown(_telling(compared, share), unit))
    return "; ".join(said)


def _telling(compared: Sequence[Compared], share: Share) -> Compared:
    """The worst of them; where not all need to hold, the best."""
    order = (True, None, False) if share in ("some", "often") else (False, None, True)
    first = next(held for held in order if any(one.holds is held for one in compared))
    found = [one for one in compared if one.holds is first]
    # Of those alike, one that has an interval says more; and the one nearest to none the most.
    return min(found, key=lambda one: (one.low is None, abs(one.difference)))


def shown(one: Compared, unit: str = "points") -> str:
    scale, digits = (100, 1) if unit in ("points", "%") else (1, 3)
    numbers = [one.difference, one.low, one.high]
    value, low, high = (None if v is None else f"{scale * v:+.{digits}f}" for v in numbers)
    named = f"{one.name} {value}" + (f" {unit}" if unit else "")
    if low is None:
        return f"{named} (no interval: {one.reason})"
    return f"{named} (95 % interval {low} to {high})"
