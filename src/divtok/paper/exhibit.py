"""What a recipe ends in: tables, figures, and what they say about the paper's claims."""

from __future__ import annotations

from dataclasses import dataclass

from divtok.paper.recipe import Recipe
from divtok.report.figures import Display
from divtok.report.tables import ReportTable

VERDICTS = {True: "holds", False: "does not hold", None: "undecided"}


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison that a claim is about: a difference with its 95 % interval by problem.

    `holds` is None where the interval does not decide, or where `reason` says why there is none.
    """

    name: str
    difference: float
    low: float | None = None
    high: float | None = None
    holds: bool | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim of the paper, and whether it holds on these runs.

    `rule` is what "holds" was taken to mean, and `number` what was measured. `holds` is None where
    the runs cannot decide, and then `number` says why. `compared` has every comparison behind it.
    """

    claim: str
    rule: str
    holds: bool | None
    number: str
    compared: tuple[Compared, ...] = ()

    @property
    def verdict(self) -> str:
        return VERDICTS[self.holds]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A recipe as made: `caption` says how the figures (not the tables, which say it) were made."""

    recipe: Recipe
    tables: tuple[ReportTable, ...] = ()
    figures: tuple[Display, ...] = ()
    caption: str = ""
    findings: tuple[Finding, ...] = ()
