"""Every claim of the paper's text, numbered, and one verdict for each from all that was found.

The list is that of docs/paper.md. A claim that nothing on a page checks is undecided, and says
what would decide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from divtok.paper.claims.blackbox import BLACKBOX, VERBALIZED
from divtok.paper.claims.counts import COUNTS
from divtok.paper.claims.pilot import PILOT
from divtok.paper.claims.said import SECTIONS, Said
from divtok.paper.claims.thetas import THETAS
from divtok.paper.claims.values import VALUES
from divtok.paper.claims.whitebox import WHITEBOX
from divtok.paper.exhibit import VERDICTS, Exhibit, Finding
from divtok.paper.judging import verdict

# Nothing here can measure these.
OPEN: dict[Said, str] = {
    Said(
        "A.4",
        "BaseCal with a trained projection is badly calibrated on other data than it was trained "
        "on.",
        ("table-whitebox",),
    ): "BaseCal is there without its projection: to be told from confidences of BaseCal-Proj, "
    "trained on other data, imported as an estimator of its own",
}

_ALL = (
    *(record.said for record in (*PILOT, *WHITEBOX, *BLACKBOX, *VERBALIZED)),
    *COUNTS, *THETAS, *VALUES, *OPEN,
)  # fmt: skip
# In the order of the paper's sections.
LISTED: tuple[Said, ...] = tuple(
    said for section in SECTIONS for said in _ALL if said.section == section
)
_OTHER = "other"


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with everything that was found on it, by recipe. `number` is its place in the list.

    `why` says which of its recipes were not made, each of which leaves it more open.
    """

    said: Said
    number: int | None
    holds: bool | None
    found: tuple[tuple[str, Finding], ...]
    why: str = ""

    @property
    def verdict(self) -> str:
        return VERDICTS[self.holds]

    @property
    def section(self) -> str:
        title = SECTIONS.get(self.said.section)
        return self.said.section if title is None else f"{self.said.section} {title}"

    @property
    def measured(self) -> str:
        """In one line: what the verdict hangs on."""
        if not self.found:
            return self.why
        missing = f"; {self.why}" if self.why else ""
        held = [finding.holds for _, finding in self.found]
        recipe, telling = next(
            (one for one in self.found if one[1].holds is self.holds), self.found[0]
        )
        if len(self.found) == 1:
            return f"{telling.number}{missing}"
        counts = ", ".join(
            f"{held.count(holds)} {word}" for holds, word in VERDICTS.items() if holds in held
        )
        return f"of {len(held)} recipes: {counts}; {recipe}: {telling.number}{missing}"


def judge(exhibits: Sequence[Exhibit], *, everything: bool) -> list[Judged]:
    """The claims that these exhibits check; with `everything` the others, too, as undecided."""
    found: dict[str, list[tuple[str, Finding]]] = {}
    for exhibit in exhibits:
        for finding in exhibit.findings:
            found.setdefault(finding.claim, []).append((exhibit.recipe.name, finding))
    made = {exhibit.recipe.name for exhibit in exhibits}
    judged: list[Judged] = []
    for number, said in enumerate(LISTED, start=1):
        there = tuple(found.pop(said.text, ()))
        missing = [name for name in said.recipes if everything and name not in made]
        if there or everything:
            why = not_made(missing)
            if not there and not missing:
                why = "its recipes found nothing to say of it"
            holds = _together(said, there, len(missing))
            judged.append(Judged(said, number, holds, there, why))
    for text, there in found.items():  # one that a recipe adds without listing it
        said = Said(_OTHER, text, tuple(recipe for recipe, _ in there))
        judged.append(Judged(said, None, _together(said, there), tuple(there)))
    return judged


def counted(judged: Sequence[Judged]) -> str:
    """How many there are of each verdict."""
    held = [one.holds for one in judged]
    hold, fail, open_ = (held.count(holds) for holds in (True, False, None))
    return (
        f"{len(held)} {'claim' if len(held) == 1 else 'claims'}: {hold} "
        f"{'holds' if hold == 1 else 'hold'}, {fail} {'does' if fail == 1 else 'do'} not hold, "
        f"{open_} undecided"
    )


def open_findings(recipe: str) -> tuple[Finding, ...]:
    """The claims of a recipe that nothing can measure."""
    return tuple(
        Finding(said.text, "what would decide it is not here", None, reason)
        for said, reason in OPEN.items()
        if recipe in said.recipes
    )


def not_made(recipes: Sequence[str]) -> str:
    """Empty where there are none."""
    if not recipes:
        return ""
    return f"to be told from {' and '.join(recipes)}, not made here"


def unmade_findings(recipe: str) -> tuple[Finding, ...]:
    """Every claim that a recipe checks, as undecided: the recipe was not made."""
    return tuple(
        Finding(said.text, f"as {recipe} says", None, not_made([recipe]))
        for said in LISTED
        if recipe in said.recipes
    )


def _together(said: Said, found: Sequence[tuple[str, Finding]], missing: int = 0) -> bool | None:
    """Over every comparison of every recipe.

    A finding without any counts as one that is undecided, and so does a recipe that is missing.
    """
    parts = [
        part
        for _, finding in found
        for part in ([one.holds for one in finding.compared] or [finding.holds])
    ]
    return verdict([*parts, *[None] * missing], said.share)
