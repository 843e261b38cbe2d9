"""Evaluations as tables: the paper's layout for one metric, and every figure of each evaluation.

Computes nothing but means over rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from divtok.errors import DataError
from divtok.evaluate.protocol import RANKING_ONLY, Protocol
from divtok.evaluate.scored_group import EXCLUSION_REASONS
from divtok.records import Evaluation, Scalar, reason_kind
from divtok.report.tables import (
    Better,
    Cell,
    Kind,
    ReportColumn,
    ReportRow,
    ReportTable,
    by_group,
    in_order,
    label,
    supervised,
)


def metric_table(
    evaluations: Sequence[Evaluation],
    metric: Literal["ece", "auroc"],
    *,
    protocol: Protocol | None = None,
    labels: Mapping[str, str] | None = None,
    reference: Iterable[str] | None = None,
) -> ReportTable:
    """The paper's layout: generators within benchmarks, one column an estimator, and a mean row.

    Estimators in `reference` (by default the supervised ones) are shown but not ranked.
    """
    protocol = protocol or Protocol()
    better: Better = "lower" if metric == "ece" else "higher"
    variants = _variants(evaluations)
    names = [
        (e, v)
        for e in in_order((name for name, _ in variants.values()), labels)
        for v in sorted({params for name, params in variants.values() if name == e})
    ]
    unranked = supervised() if reference is None else set(reference)
    columns = (
        ReportColumn("generator", "Generator"),
        ReportColumn("accuracy", "Acc", "percent"),
        *(
            ReportColumn(
                key=_variant_name(e, v),
                label=_variant_name(label(e, labels), v),
                kind="percent",
                better=None if e in unranked else better,
            )
            for e, v in names
        ),
    )
    benchmarks = list(dict.fromkeys(e.benchmark for e in evaluations))
    groups = dict(sorted(by_group(evaluations).items(), key=lambda g: benchmarks.index(g[0][0])))
    rows: list[ReportRow] = []
    for (benchmark, generator), members in groups.items():
        figures = {variants[id(e)]: getattr(e, metric) for e in members}
        cells = tuple(figures.get(name) for name in names)
        rows.append(ReportRow((generator, _accuracy(members), *cells), section=benchmark))
    caption = _metric_caption(metric, better, protocol, bool(unranked & {e for e, _ in names}))
    thetas = sorted({e.params["theta"] for e in evaluations if "theta" in e.params}, key=str)
    caption += "".join(f" theta = {theta} bits." for theta in thetas)
    caption += f" {_left_out(groups)}{_undefined(evaluations, metric)}"
    if len(rows) > 1:
        mean, partial = _mean_row(columns, rows)
        rows.append(mean)
        if partial:
            caption += " Mean over fewer rows: " + ", ".join(partial) + "."
    title = "ECE" if metric == "ece" else "AUROC"
    return ReportTable(f"{title} (%, {better} is better)", columns, tuple(rows), caption)


def long_table(
    evaluations: Sequence[Evaluation], *, protocol: Protocol | None = None
) -> ReportTable:
    """One row for each evaluation with every figure, sd, interval and count."""
    protocol = protocol or Protocol()
    columns = tuple(ReportColumn(key, key, _long_kind(key)) for key in _LONG_KEYS)
    rows = tuple(_long_row(e) for e in evaluations)
    caption = (
        f"ece, auroc and their sd: {protocol.describe()}; sd over draws. natural_*, brier and aurc:"
        f" every scored response; low and high bound a 95 % interval, problems resampled"
        f" ({protocol.resamples} times, seed {protocol.seed}). Chance makes a measured ECE too"
        f" large: debiased, low and high are about the true one, and floor is what a perfectly"
        f" calibrated estimator would show."
    )
    return ReportTable("All figures", columns, rows, caption)


def _long_kind(key: str) -> Kind:
    if key in ("benchmark", "generator", "estimator", "params", "reason"):
        return "text"
    counts = ("n", "n_scored", "n_balanced", "clipped")
    return "integer" if key in counts or key.startswith("excluded") else "percent"


_LONG_KEYS = (
    "benchmark", "generator", "estimator", "params", "n", "accuracy", "n_scored", "n_balanced",
    "ece", "ece_sd", "auroc", "auroc_sd",
    "natural_ece", "natural_ece_debiased", "natural_ece_low", "natural_ece_high",
    "natural_ece_floor",
    "natural_auroc", "natural_auroc_low", "natural_auroc_high",
    "brier", "aurc", "excluded", *(f"excluded_{r}" for r in EXCLUSION_REASONS), "clipped", "reason",
)  # fmt: skip


def _long_row(e: Evaluation) -> ReportRow:
    cells: dict[str, Cell] = {f"excluded_{r}": e.excluded_by.get(r) for r in EXCLUSION_REASONS}
    cells["params"] = json.dumps(dict(e.params), sort_keys=True) if e.params else None
    for metric in ("natural_ece", "natural_auroc"):
        interval = getattr(e, f"{metric}_interval")
        for end in ("low", "high"):
            cells[f"{metric}_{end}"] = None if interval is None else getattr(interval, end)
    return ReportRow(tuple(cells[k] if k in cells else getattr(e, k) for k in _LONG_KEYS))


Variant = tuple[str, str]  # estimator, and the parameters that tell it from its namesakes


def _variants(evaluations: Sequence[Evaluation]) -> dict[int, Variant]:
    """The column of each evaluation, by id.

    Parameters may differ between generators (each family has its theta) and still share a column.
    Only where one generator has an estimator twice do its parameters become part of the name.
    """
    seen = Counter((e.benchmark, e.generator, e.estimator) for e in evaluations)
    twice = {estimator for (_, _, estimator), times in seen.items() if times > 1}
    found = {
        id(e): (e.estimator, _params(e.params) if e.estimator in twice else "") for e in evaluations
    }
    cells = Counter((e.benchmark, e.generator, *found[id(e)]) for e in evaluations)
    if repeated := [cell for cell, times in cells.items() if times > 1]:
        benchmark, generator, estimator, params = min(repeated)
        raise DataError(
            f"Estimator '{estimator}' {params} was evaluated twice for {generator} on {benchmark}.",
            next_step="Give each evaluation once.",
        )
    return found


def _variant_name(name: str, params: str) -> str:
    return f"{name} ({params})" if params else name


def _params(params: Mapping[str, Scalar]) -> str:
    return ", ".join(f"{k}={v}" for k, v in sorted(params.items()))


def _accuracy(members: Sequence[Evaluation]) -> float:
    figures = {e.accuracy for e in members}
    if len(figures) > 1:
        first = members[0]
        raise DataError(
            f"The evaluations of {first.generator} on {first.benchmark} disagree on accuracy.",
            next_step="Evaluate all estimators on the same responses.",
        )
    return members[0].accuracy


def _mean_row(
    columns: Sequence[ReportColumn], rows: Sequence[ReportRow]
) -> tuple[ReportRow, list[str]]:
    """The mean of each column over the rows that have a figure, and which columns lack some."""
    cells: list[Cell] = ["Mean"]
    partial: list[str] = []
    for i, column in enumerate(columns[1:], start=1):
        figures = [r.cells[i] for r in rows]
        there = [f for f in figures if isinstance(f, (int, float))]
        cells.append(sum(there) / len(there) if there else None)
        if there and len(there) < len(rows):
            partial.append(f"{column.label} {len(there)} of {len(rows)}")
    return ReportRow(tuple(cells), section=None, is_mean=True), partial


def _left_out(groups: Mapping[tuple[str, str], Sequence[Evaluation]]) -> str:
    """How many responses the figures leave out, by reason, and how many values were clipped."""
    responses = sum(members[0].n for members in groups.values())
    # Only "unscored" differs between the estimators of a group: the one with most is reported.
    fullest = [max(members, key=lambda e: e.excluded) for members in groups.values()]
    by_reason = Counter[str]()
    for evaluation in fullest:
        by_reason.update(evaluation.excluded_by)
    reasons = ", ".join(f"{reason} {count}" for reason, count in by_reason.items() if count)
    text = f"Left out: {by_reason.total()} of {responses} responses"
    text += f" ({reasons})." if reasons else "."
    clipped = Counter[str]()
    for members in groups.values():
        for evaluation in members:
            clipped[evaluation.estimator] += evaluation.clipped
    named = ", ".join(f"{name} {count}" for name, count in clipped.items() if count)
    return text + (f" Clipped to [0, 1] for ECE: {named}." if named else "")


def _undefined(evaluations: Sequence[Evaluation], metric: str) -> str:
    """Why figures are missing, once for each reason; rankings never have an ECE."""
    given = [e.reason for e in evaluations if getattr(e, metric) is None and e.reason]
    reasons = dict.fromkeys(r for r in given if reason_kind(r) != RANKING_ONLY.kind)
    return "".join(f" Not defined: {reason}." for reason in reasons)


def _metric_caption(metric: str, better: Better, protocol: Protocol, reference: bool) -> str:
    about = "Expected calibration error" if metric == "ece" else "Area under the ROC curve"
    ranked = " (estimators trained with labels are not ranked)" if reference else ""
    made = protocol.describe(with_bins=metric == "ece")
    return (
        f"{about} in percent, {better} is better; {made}; mean over draws. "
        "Acc counts every sampled response; the other figures leave out responses without an "
        "answer, cut off, undecided or unscored. "
        f"Best of a row in bold, second marked{ranked}. A dash: not defined."
    )
