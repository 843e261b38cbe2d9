"""Tables as values: what is in each cell, which way is better, and how it was made.

Holds fractions at full precision; `render` turns a table into Markdown, LaTeX or CSV, and
`terminal` prints it. Computes nothing but means over rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from divtok.errors import DataError
from divtok.evaluate.protocol import RANKING_ONLY, Protocol
from divtok.evaluate.scored_group import EXCLUSION_REASONS
from divtok.records import Evaluation, Scalar, reason_kind
from divtok.score.facts import FACTS
from divtok.score.registry import ESTIMATORS

Cell = float | int | str | None
Kind = Literal["text", "integer", "percent"]
Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """`better` set means the column takes part in the ranking of its row."""

    key: str
    label: str
    kind: Kind = "text"
    better: Better | None = None


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One line of cells, in the order of the columns. `section` groups rows (a benchmark).

    An unranked row, such as other people's figures beside ours, has no best cell. The figures of a
    signed row are differences.
    """

    cells: tuple[Cell, ...]
    section: str | None = None
    is_mean: bool = False
    ranked: bool = True
    signed: bool = False


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A title, typed columns, rows, and a caption that says how the figures were made."""

    title: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[ReportRow, ...]
    caption: str

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row.cells) != len(self.columns):
                raise DataError(
                    f"Row {number} of table '{self.title}' has {len(row.cells)} cells for "
                    f"{len(self.columns)} columns."
                )

    def sections(self) -> bool:
        return any(row.section is not None for row in self.rows)


def default_labels() -> Mapping[str, str]:
    """Estimator or fact -> label, in the order of columns; plug-ins are in it."""
    shown = sorted([*ESTIMATORS, *FACTS.values()], key=lambda found: (found.order, found.name))
    return {found.name: found.label for found in shown}


def supervised() -> frozenset[str]:
    """Estimators trained with labels: shown for reference, not ranked with the others."""
    return frozenset(spec.name for spec in ESTIMATORS if spec.supervised)


def label(estimator: str, labels: Mapping[str, str] | None = None) -> str:
    return (default_labels() if labels is None else labels).get(estimator, estimator)


def in_order(estimators: Iterable[str], labels: Mapping[str, str] | None = None) -> list[str]:
    """Known estimators in the order of `labels`, then the others alphabetically; no repeats."""
    known = default_labels() if labels is None else labels
    present = set(estimators)
    return [e for e in known if e in present] + sorted(present - set(known))


def rank_marks(table: ReportTable, row: ReportRow) -> tuple[int, ...]:
    """For each cell 1 (best), 2 (second) or 0, among the row's ranked columns.

    Compared as printed, to one decimal of a percent: figures that look equal share a mark. With
    fewer than two figures there is nothing to rank.
    """
    shown = {
        i: round(value * 100, 1)
        for i, (column, value) in enumerate(zip(table.columns, row.cells, strict=True))
        if column.better is not None and isinstance(value, (int, float))
    }
    if len(shown) < 2 or not row.ranked:
        return (0,) * len(row.cells)
    higher = any(c.better == "higher" for c in table.columns)
    levels = sorted(set(shown.values()), reverse=higher)[:2]
    return tuple(
        levels.index(shown[i]) + 1 if shown.get(i) in levels else 0 for i in range(len(row.cells))
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


def by_group(evaluations: Sequence[Evaluation]) -> dict[tuple[str, str], list[Evaluation]]:
    """By benchmark and generator, in order of first appearance."""
    groups: dict[tuple[str, str], list[Evaluation]] = {}
    for e in evaluations:
        groups.setdefault((e.benchmark, e.generator), []).append(e)
    return groups


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
