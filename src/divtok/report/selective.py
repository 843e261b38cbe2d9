"""Selective prediction in the report: how many answers each estimator lets one accept.

A table of means over groups, a figure of risk-coverage curves for each generator, and what they say
in short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from divtok.evaluate.group_rows import used
from divtok.evaluate.protocol import FEWEST_RESPONSES
from divtok.evaluate.scored_group import ScoredGroup
from divtok.evaluate.selective import COVERAGES, RiskCoverage, perfect_score, risk_coverage
from divtok.evaluate.selective_figures import (
    NO_RANKING,
    ORACLE,
    MeanSelective,
    mean_selective,
    references,
)
from divtok.report.overview_table import all_groups
from divtok.report.panels import LineSeries, Panel, PanelsDisplay
from divtok.report.part import Drawn, Part
from divtok.report.render import shown
from divtok.report.tables import (
    Bounded,
    Cell,
    ReportColumn,
    ReportRow,
    ReportTable,
    in_order,
    label,
    supervised,
)

ABOUT = (
    "`tables/selective.*`: when only the most confident answers are accepted, how many can be, and "
    "how often are they wrong? Thresholds there are the best in hindsight; `divtok decide` chooses "
    "one with a promise."
)
HOW = (
    "AURC: the share of wrong answers among the most confident, on average over all coverages. "
    "Coverage at 5 %: the largest share of responses that a threshold accepts with at most 5 % "
    "wrong among them; equal values are accepted together. It jumps where another threshold takes "
    "over, and every threshold is the best on these very responses, which promises nothing for "
    "others: divtok decide chooses one with a promise."
)
REFERENCES = (
    "Oracle: all right answers before all wrong ones. No ranking: all answers tie. Intervals, "
    "95 %, take the samples of a problem together."
)
# Curves begin where a threshold accepts so many: the risk of fewer is chance.
FEWEST_ACCEPTED = 30
_POINTS = 100  # of a curve, about
_STEPS = 20  # thresholds; a curve of no more has each of them marked


def selective_part(groups: Sequence[ScoredGroup]) -> Part | None:
    """Table, figures and sentences; None where nothing was scored."""
    found, bounds = mean_selective(groups), references(groups)
    if not found or not bounds:
        return None
    generators = dict.fromkeys(group.generator for group in groups)
    figures = tuple(
        Drawn(
            "selective",
            generator,
            f"risk against coverage, {generator}",
            _display(generator, [g for g in groups if g.generator == generator]),
        )
        for generator in generators
    )
    tables = {"selective": selective_table(groups, found, bounds)}
    return Part(ABOUT, tables, figures, _short(found, bounds))


def selective_table(
    groups: Sequence[ScoredGroup],
    found: Sequence[MeanSelective],
    bounds: Sequence[MeanSelective],
    *,
    coverages: Mapping[str, float] = COVERAGES,
) -> ReportTable:
    """One row an estimator, and for reference the best that a ranking could do and none at all."""
    enough = sum(len(group.problem_id) for group in groups) >= FEWEST_RESPONSES
    columns = (
        ReportColumn("estimator", "Estimator"),
        ReportColumn("aurc", "AURC", "fraction", "lower" if enough else None, bounded=True),
        *(
            ReportColumn(
                name,
                f"Coverage at {100 * risk:g}%",
                "percent",
                "higher" if enough else None,
                bounded=True,
            )
            for name, risk in coverages.items()
        ),
    )
    ones = {one.estimator: one for one in found}
    rows = [
        ReportRow((label(name), *_cells(ones[name], coverages)), ranked=name not in supervised())
        for name in in_order(ones)
    ]
    rows += [ReportRow((one.estimator, *_cells(one, coverages)), ranked=False) for one in bounds]
    keys = {(group.benchmark, group.generator): group for group in groups}
    caption = "" if len(keys) == 1 else f"Means over {all_groups(keys)}. "
    partial = [f"{label(m.estimator)} {m.groups}" for m in found if m.groups < len(keys)]
    if partial:
        caption += f"Over fewer than {len(keys)} groups: {', '.join(partial)}. "
    shared = (HOW, REFERENCES)
    return ReportTable(
        "Selective prediction", columns, tuple(rows), caption.rstrip(), shared, ranked_in="column"
    )


def _cells(one: MeanSelective, coverages: Mapping[str, float]) -> list[Cell]:
    names = ("aurc", *coverages)
    figures = one.figures
    return [Bounded(getattr(figures, n), getattr(figures, f"{n}_interval")) for n in names]


def _short(found: Sequence[MeanSelective], bounds: Sequence[MeanSelective]) -> tuple[str, ...]:
    """The estimator that lets one accept most at a risk of 5 %, and what could be at best."""
    best = max(found, key=lambda one: one.figures.coverage_at_5)
    oracle, none = ({b.estimator: b for b in bounds}[name] for name in (ORACLE, NO_RANKING))
    column = ReportColumn("coverage_at_5", "", "percent")
    at_5 = Bounded(best.figures.coverage_at_5, best.figures.coverage_at_5_interval)
    return (
        f"Of answers of which at most 5 % are wrong, {label(best.estimator)} accepts most: "
        f"{shown(ReportRow(()), column, at_5, dash='')} % of all. A perfect ranking would accept "
        f"{100 * oracle.figures.coverage_at_5:.1f} %, none {100 * none.figures.coverage_at_5:.1f}"
        " %.",
    )


def _display(generator: str, groups: Sequence[ScoredGroup]) -> PanelsDisplay:
    """Curves of every estimator of confidences, a panel for each benchmark."""
    names = in_order(c.estimator for g in groups for c in g.columns if not c.ranking_only)
    panels = [_panel(group, names) for group in groups]
    rows = tuple(tuple(panels[i : i + 2]) for i in range(0, len(panels), 2))
    about = f"curves begin at {FEWEST_ACCEPTED} accepted responses"
    title = f"Wrong answers among the accepted: {generator}"
    return PanelsDisplay("selective", title, rows, about)


def _panel(group: ScoredGroup, names: Sequence[str]) -> Panel:
    graded, right = group.graded(), group.correct()
    correct = right[graded]
    columns = {column.estimator: column for column in group.columns}
    lines = [
        _line(label(name), risk_coverage(*used(group, columns[name])[:2]), names.index(name))
        for name in names
        if name in columns and used(group, columns[name])[2].any()
    ]
    if len(correct):
        base, dark = 100 * float((~correct).mean()), 4
        lines += [
            _line(ORACLE, risk_coverage(perfect_score(correct), correct), dark, dashed=True),
            LineSeries(NO_RANKING, (0.0, 100.0), (base, base), dark + 1, dashed=True),
        ]
    few = f", fewer than {FEWEST_RESPONSES}" if len(correct) < FEWEST_RESPONSES else ""
    return Panel(
        title=f"{group.benchmark} ({len(correct):,} responses{few})",
        x_label="accepted (% of responses)",
        y_label="wrong among them (%)",
        lines=tuple(line for line in lines if line.has_values),
        reason="no response was scored",
    )


def _line(name: str, curve: RiskCoverage, series: int, *, dashed: bool = False) -> LineSeries:
    """A curve at about `_POINTS` coverages, from `FEWEST_ACCEPTED` responses on."""
    there = np.flatnonzero(curve.accepted >= min(FEWEST_ACCEPTED, curve.accepted[-1]))
    place = np.floor(_POINTS * curve.coverage[there])
    kept = there[np.append(np.diff(place) > 0, True)]  # the last threshold of each step
    x, y = 100 * curve.coverage[kept], 100 * curve.risk[kept]
    marked = not dashed and len(curve.accepted) <= _STEPS
    return LineSeries(
        name, tuple(x.tolist()), tuple(y.tolist()), series, dashed=dashed, markers=marked
    )
