"""How the responses were read: in whose tokens, and how much of each model was left out of it.

From numbers that every trace holds; changes no figure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

# More than this beyond the range that both models share is worth a word: at most so much of a
# distribution had no part in a divergence.
NOTABLE_MASS = 1e-3


class ReadRow(NamedTuple):
    """One trace; masses are NaN where a model's width is not known."""

    generator: str
    p: str
    q: str
    retokenized: bool
    exact: bool
    dropped_mass_p: float
    dropped_mass_q: float


@dataclass(frozen=True, slots=True)
class HowRead:
    """One generator's responses under one pair. A mass is None where it is not known of any."""

    generator: str
    p: str
    q: str
    responses: int
    retokenized: int
    bounds: int  # read through servers, which give bounds alone
    dropped_mass_p: float | None
    dropped_mass_q: float | None
    notable_p: int  # responses with more of p's mass left out than NOTABLE_MASS
    notable_q: int


def how_read(rows: Iterable[ReadRow]) -> list[HowRead]:
    groups: dict[tuple[str, str, str], list[ReadRow]] = {}
    for row in rows:
        groups.setdefault((row.generator, row.p, row.q), []).append(row)
    return [_of(names, members) for names, members in groups.items()]


def _of(names: tuple[str, str, str], rows: list[ReadRow]) -> HowRead:
    p, q = (
        [mass for row in rows if (mass := getattr(row, name)) == mass]  # a NaN is not
        for name in ("dropped_mass_p", "dropped_mass_q")
    )
    return HowRead(
        *names,
        responses=len(rows),
        retokenized=sum(row.retokenized for row in rows),
        bounds=sum(not row.exact for row in rows),
        dropped_mass_p=max(p, default=None),
        dropped_mass_q=max(q, default=None),
        notable_p=sum(mass > NOTABLE_MASS for mass in p),
        notable_q=sum(mass > NOTABLE_MASS for mass in q),
    )
