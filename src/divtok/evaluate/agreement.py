"""How divtok's own verdicts and those of another tool on the same responses compare.

An unanswered response is not right, so it agrees with an incorrect one. Where one side could not
decide there is nothing to compare, and the response counts as decided by the other alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import NamedTuple

from divtok.records import Verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """One response with both verdicts; None where a side has none."""

    key: str
    benchmark: str
    generator: str
    problem_id: str
    gold: str | None
    ours_extracted: str | None
    ours: Verdict | None
    scorer: str | None
    theirs_extracted: str | None
    theirs: Verdict | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """Counts of the responses of one generator on one benchmark."""

    benchmark: str
    generator: str
    agree: int = 0
    disagree: int = 0
    only_ours: int = 0
    only_theirs: int = 0
    neither: int = 0

    def sentence(self) -> str:
        """The counts in words."""
        undecided = f", {self.neither} by neither" if self.neither else ""
        return (
            f"{self.generator} on {self.benchmark}: ours and theirs agree on {self.agree} and "
            f"disagree on {self.disagree}; {self.only_ours} are decided only by ours, "
            f"{self.only_theirs} only by theirs{undecided}."
        )


class Compared(NamedTuple):
    """The counts of each group, and every response on which the two disagree.

    `theirs` says in words whose verdicts were compared with ours.
    """

    theirs: str
    groups: list[Agreement]
    disagreements: list[Judged]


def compare(rows: Iterable[Judged], *, theirs: str) -> Compared:
    """Counts and disagreements, in the order of the rows."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    disagreements: list[Judged] = []
    names = [field.name for field in fields(Agreement)][2:]
    for row in rows:
        group = counts.setdefault((row.benchmark, row.generator), dict.fromkeys(names, 0))
        how = _how(_right(row.ours), _right(row.theirs))
        group[how] += 1
        if how == "disagree":
            disagreements.append(row)
    groups = [Agreement(*group, **found) for group, found in counts.items()]
    return Compared(theirs, groups, disagreements)


def _how(ours: bool | None, theirs: bool | None) -> str:
    if ours is None or theirs is None:
        only = "only_theirs" if theirs is not None else "neither"
        return "only_ours" if ours is not None else only
    return "agree" if ours == theirs else "disagree"


def _right(verdict: Verdict | None) -> bool | None:
    return None if verdict in (None, Verdict.UNDETERMINED) else verdict == Verdict.CORRECT
