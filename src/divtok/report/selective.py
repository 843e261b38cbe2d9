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
from divtok.report.figures import MadeOf
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
    "Coverage at 5%: the largest share of responses that a threshold accepts with at most 5 % "
    "wrong among them; equal values are accepted together. It jumps from threshold to threshold, "
    "and the best one on these very responses promises nothing for others: divtok decide chooses "
    "one with a promise. Oracle: all right answers before all wrong ones. No ranking: all tie."
)
# Curves begin where a threshold accepts so many: the risk of fewer is chance.
FEWEST_ACCEPTED = 30
_POINTS = 100  # of a curve, about
_DARK = 4, 11  # two series of the darkest colour
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
    tables = {"selective": _table(groups, found, bounds, tuple(COVERAGES))}
    return Part(ABOUT, tables, figures, _short(found, bounds))


def selective_table(
    groups: Sequence[ScoredGroup], *, coverages: Sequence[str] = tuple(COVERAGES)
) -> ReportTable:
    """One row an estimator, and for reference the best that a ranking could do and none at all."""
    return _table(groups, mean_selective(groups), references(groups), coverages)


def _table(
    groups: Sequence[ScoredGroup],
    found: Sequence[MeanSelective],
    bounds: Sequence[MeanSelective],
    coverages: Sequence[str],
) -> ReportTable:
    enough = max((one.n for one in found), default=0) >= FEWEST_RESPONSES
    columns = (
        ReportColumn("estimator", "Estimator"),
        ReportColumn("aurc", "AURC", "fraction", "lower" if enough else None, bounded=True),
        *(
            ReportColumn(
                name,
                f"Coverage at {100 * COVERAGES[name]:g}%",
                "percent",
                "higher" if enough else None,
                bounded=True,
            )
            for name in coverages
        ),
    )
    ones = {one.estimator: one for one in found}
    rows = [
        ReportRow((label(name), *_cells(ones[name], coverages)), ranked=name not in supervised())
        for name in in_order(ones)
    ]
    rows += [ReportRow((one.estimator, *_cells(one, coverages)), ranked=False) for one in bounds]
    keys = {(group.benchmark, group.generator): group for group in groups}
    return ReportTable(
        "Selective prediction",
        columns,
        tuple(rows),
        _caption(keys, found),
        (HOW,),
        ranked_in="column",
    )


def _caption(groups: Mapping[tuple[str, str], object], found: Sequence[MeanSelective]) -> str:
    caption = "Every scored response, with 95 % intervals over whole problems."
    if len(groups) > 1:
        caption = (
            f"Means over {all_groups(groups)}. {caption} That of a mean coverage is the mean of "
            "both ends, which is wide."
        )
    partial = [f"{label(m.estimator)} {m.groups}" for m in found if m.groups < len(groups)]
    if partial:
        caption += f" Over fewer than {len(groups)} groups: {', '.join(partial)}."
    return caption


def _cells(one: MeanSelective, coverages: Sequence[str]) -> list[Cell]:
    names = ("aurc", *coverages)
    figures = one.figures
    return [Bounded(getattr(figures, n), getattr(figures, f"{n}_interval")) for n in names]


def _short(found: Sequence[MeanSelective], bounds: Sequence[MeanSelective]) -> tuple[str, ...]:
    """The estimator that lets one accept most at a risk of 5 %, and what could be at best."""
    most = max(one.groups for one in found)
    rivals = [one for one in found if one.groups == most and one.estimator not in supervised()]
    if not rivals:
        return ()
    best = max(rivals, key=lambda one: one.figures.coverage_at_5)
    oracle, none = (
        100 * next(b.figures.coverage_at_5 for b in bounds if b.estimator == name)
        for name in (ORACLE, NO_RANKING)
    )
    figures = best.figures
    column = ReportColumn("coverage_at_5", "", "percent")
    cell = Bounded(figures.coverage_at_5, figures.coverage_at_5_interval)
    return (
        f"With at most 5 % wrong among the accepted answers, {label(best.estimator)} accepts most: "
        f"{shown(ReportRow(()), column, cell, dash='')} % of all, with the best threshold in "
        f"hindsight; a perfect ranking would accept {oracle:.1f} %, none {none:.1f} %.",
    )


def _display(generator: str, groups: Sequence[ScoredGroup]) -> PanelsDisplay:
    """Curves of every estimator of confidences, a panel for each benchmark."""
    names = in_order(c.estimator for g in groups for c in g.columns if not c.ranking_only)
    panels = [_panel(group, names) for group in groups]
    rows = tuple(tuple(panels[i : i + 2]) for i in range(0, len(panels), 2))
    outcomes = np.concatenate([group.correct()[group.graded()] for group in groups])
    first = groups[0]
    made = MadeOf(first.pair, first.theta, len(outcomes), int(outcomes.sum()), first.counted)
    about = f"{made.text()}; curves from {FEWEST_ACCEPTED} accepted on"
    title = f"Wrong answers among the accepted: {generator}"
    return PanelsDisplay("selective", title, rows, about)


def _panel(group: ScoredGroup, names: Sequence[str]) -> Panel:
    """`names` are the estimators of the figure, each of which has its look."""
    labels = [label(name) for name in names]
    lines: list[LineSeries] = []
    for number, name in enumerate(names):
        column = next((c for c in group.columns if c.estimator == name), None)
        score, correct, _ = used(group, column) if column else ([], [], None)
        if len(score):
            alike = labels.count(labels[number]) > 1
            shown_as = f"{labels[number]} ({name})" if alike else labels[number]
            lines.append(_line(shown_as, risk_coverage(score, correct), number))
    correct = group.correct()[group.graded()]
    if len(correct):
        base = 100 * float((~correct).mean())
        best = risk_coverage(perfect_score(correct), correct)
        lines += [
            _line(ORACLE, best, _DARK[0], dashed=True),
            LineSeries(NO_RANKING, (0.0, 100.0), (base, base), _DARK[1], dashed=True),
        ]
    few = f", fewer than {FEWEST_RESPONSES}" if len(correct) < FEWEST_RESPONSES else ""
    return Panel(
        title=f"{group.benchmark} ({len(correct):,} responses{few})",
        x_label="accepted (% of responses)",
        y_label="wrong among them (%)",
        lines=tuple(lines),
        reason="no response was scored",
    )


def _line(name: str, curve: RiskCoverage, series: int, *, dashed: bool = False) -> LineSeries:
    """A curve at about `_POINTS` coverages, from `FEWEST_ACCEPTED` responses on."""
    there = np.flatnonzero(curve.accepted >= min(FEWEST_ACCEPTED, curve.accepted[-1]))
    step = np.floor(_POINTS * curve.coverage[there])
    # The first threshold of each step, and the last of all.
    kept = there[(np.diff(step, prepend=-1) > 0) | (there == there[-1])]
    x, y = 100 * curve.coverage[kept], 100 * curve.risk[kept]
    marked = not dashed and len(kept) <= _STEPS
    return LineSeries(
        name, tuple(x.tolist()), tuple(y.tolist()), series, dashed=dashed, markers=marked
    )
