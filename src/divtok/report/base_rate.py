"""Natural ECE before and after confidences are stated for the base rate that agreement suggests.

A table for the report and a note for every place; computes nothing but means over groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from divtok.evaluate.base_rate import BaseRate, MeanRestated, Restated, mean_restated
from divtok.evaluate.protocol import FEWEST_RESPONSES
from divtok.evaluate.votes import FEWEST_SAMPLES
from divtok.records import Evaluation
from divtok.report.note import Note
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

AS_IS, AFTER = "as it is", "shifted"
HOW = (
    "Estimated: how often the generator is right, from how often its samples of a problem agree, "
    "without the grades; it says too much where wrong answers agree. Shifted: one number is added "
    "to the log-odds of all confidences of a row, so that their mean is that share."
)


def base_rate_table(
    found: Sequence[BaseRate], *, labels: Mapping[str, str] | None = None
) -> ReportTable:
    """Two rows for each generator on a benchmark: natural ECE as it is, and after the shift."""
    names = in_order((one.estimator for group in found for one in group.restated), labels)
    columns = (
        ReportColumn("generator", "Generator"),
        ReportColumn("accuracy", "Acc", "percent"),
        ReportColumn("estimated", "Estimated", "percent", bounded=True),
        ReportColumn("confidences", "Confidences"),
        *(
            ReportColumn(e, label(e, labels), "percent", None if e in supervised() else "lower")
            for e in names
        ),
    )
    benchmarks = list(dict.fromkeys(group.benchmark for group in found))
    rows: list[ReportRow] = []
    for group in sorted(found, key=lambda g: benchmarks.index(g.benchmark)):
        ones = {one.estimator: one for one in group.restated}
        few = min((one.n for one in group.restated), default=0) < FEWEST_RESPONSES
        first = (group.generator, group.accuracy, _estimated(group))
        figures = {
            AS_IS: [ones[e].as_is if e in ones else None for e in names],
            AFTER: [ones[e].after if e in ones else None for e in names],
        }
        rows += [
            ReportRow((*first, which, *cells), group.benchmark, ranked=not few, few=few)
            for which, cells in figures.items()
        ]
    caption = "Expected calibration error in percent at natural prevalence, over scored responses."
    if len(found) > 1:
        means = {mean.estimator: mean for mean in mean_restated(found)}
        rows += _mean_rows(names, means)
        partial = [
            f"{label(m.estimator, labels)} {m.groups} of {len(found)}"
            for m in means.values()
            if m.groups < len(found)
        ]
        if partial:
            caption += f" Mean over the groups that could be shifted: {', '.join(partial)}."
    return ReportTable(
        "ECE with confidences stated for the estimated base rate (%, lower is better)",
        columns,
        tuple(rows),
        caption,
        (HOW, *_reasons(found)),
    )


def _estimated(group: BaseRate) -> Cell:
    rate = group.agreement
    return None if rate.value is None else Bounded(rate.value, rate.interval)


def _mean_rows(names: Sequence[str], means: Mapping[str, MeanRestated]) -> list[ReportRow]:
    figures = {
        AS_IS: [means[e].as_is if e in means else None for e in names],
        AFTER: [means[e].after if e in means else None for e in names],
    }
    return [
        ReportRow(("Mean", None, None, which, *cells), is_mean=True)
        for which, cells in figures.items()
    ]


def _reasons(found: Sequence[BaseRate]) -> list[str]:
    """Why there are dashes, each reason once with the groups or estimators that it is of."""
    where: dict[str, dict[str, None]] = {}
    for group in found:
        name = f"{group.generator} on {group.benchmark}"
        if group.agreement.reason is not None:
            where.setdefault(group.agreement.reason, {})[name] = None
            continue
        for one in group.restated:
            if one.reason is not None:
                where.setdefault(one.reason, {})[f"{one.estimator}, {name}"] = None
    return [f"Not shifted: {reason} ({'; '.join(names)})." for reason, names in where.items()]


def base_rate_note(found: Sequence[BaseRate]) -> Note:
    """Each generator's share of right answers without labels, and what comes of stating it."""
    groups = {(group.benchmark, group.generator): group for group in found}

    def value(evaluation: Evaluation) -> dict[str, Any] | None:
        group = groups.get((evaluation.benchmark, evaluation.generator))
        if group is None:
            return None
        ones = {one.estimator: one for one in group.restated}
        return _fields(group, ones.get(evaluation.estimator))

    generators: dict[str, list[BaseRate]] = {}
    for group in found:
        generators.setdefault(group.generator, []).append(group)
    return Note(
        key="base_rate",
        heading="Base rate",
        title="Confidences stated for another base rate",
        about="Samples of a problem that agree are likely right, so agreement tells how often a "
        "generator is right without any label. A confidence that is shifted to that share "
        "on average is nearer to the truth where wrong answers rarely agree. "
        "`score.prior=agreement` keeps confidences that are shifted so, `score.prior=0.8` for a "
        "share that is known.",
        lines=tuple(_line(generator, of) for generator, of in generators.items()),
        value=value,
    )


def _fields(group: BaseRate, one: Restated | None) -> dict[str, Any]:
    rate = group.agreement
    interval = None if rate.interval is None else asdict(rate.interval)
    return {
        "estimated_accuracy": rate.value,
        "interval": interval,
        "estimated_share_right": rate.of_answered,
        "problems": rate.problems,
        "samples": rate.samples,
        "problems_left_out": rate.left_out,
        "natural_ece_shifted": None if one is None else one.after,
        "shift": None if one is None else one.shift,
        "reason": rate.reason if one is None else one.reason,
    }


def _line(generator: str, groups: Sequence[BaseRate]) -> str:
    known = [g for g in groups if g.agreement.value is not None]
    if not known:
        reasons = dict.fromkeys(str(g.agreement.reason) for g in groups)
        return f"{generator}: its samples do not tell how often it is right: {'; '.join(reasons)}."
    estimated = fmean(g.agreement.value for g in known if g.agreement.value is not None)
    graded = [g.accuracy for g in known if g.accuracy is not None]
    truth = f" (by the grades {100 * fmean(graded):.0f} %)" if len(graded) == len(known) else ""
    over = f", mean over {len(known)} benchmarks" if len(known) > 1 else f" on {known[0].benchmark}"
    return (
        f"{generator}: its samples agree as if it were right {100 * estimated:.0f} % of the time"
        f"{truth}{over}. {_few(known)}{_eces(known)}"
    )


def _few(known: Sequence[BaseRate]) -> str:
    """That the estimate is too low, where there are so few samples of a problem."""
    samples = sum(g.agreement.samples for g in known)
    if samples >= FEWEST_SAMPLES * sum(g.agreement.problems for g in known):
        return ""
    return f"Fewer than {FEWEST_SAMPLES} samples make it too low. "


def _eces(known: Sequence[BaseRate]) -> str:
    means = mean_restated(known)
    if not means:
        reasons = dict.fromkeys(str(one.reason) for g in known for one in g.restated if one.reason)
        return f"No confidence was shifted: {'; '.join(reasons) or 'nothing was scored'}."
    shown = ", ".join(
        f"{m.estimator} {100 * m.as_is:.1f} -> {100 * m.after:.1f}"
        + (f" ({m.groups} of {len(known)})" if m.groups < len(known) else "")
        for m in means
    )
    return f"Natural ECE in %, as it is -> shifted: {shown}."
