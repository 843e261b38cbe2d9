"""Evaluations in the paper's layout: one metric, generators within benchmarks, estimators across.

Computes nothing but means over rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from divtok.errors import DataError
from divtok.evaluate.overall import Overall
from divtok.evaluate.protocol import FEWEST_OF_A_CLASS, FEWEST_RESPONSES, RANKING_ONLY, Protocol
from divtok.evaluate.scored_group import FROM_MAP, PRIOR_FROM
from divtok.records import Evaluation, Scalar, reason_kind
from divtok.report.read_on import read_on
from divtok.report.stated_for import as_given, mapped_at
from divtok.report.tables import (
    COUNTED,
    FEW_MARK,
    Better,
    Bounded,
    Cell,
    Kind,
    ReportColumn,
    ReportRow,
    ReportTable,
    by_group,
    in_order,
    label,
    number,
    supervised,
)
from divtok.score.facts import COUNTED_WORDS

Metric = Literal["natural_ece", "brier", "ece", "auroc"]


@dataclass(frozen=True, slots=True)
class _Words:
    """How a metric is called, what it is, and how it is shown."""

    title: str
    about: str
    better: Better
    balanced: bool
    kind: Kind = "percent"


METRICS: Mapping[Metric, _Words] = {
    "natural_ece": _Words(
        "ECE at natural prevalence",
        "Expected calibration error in percent over all scored responses as they are",
        "lower",
        balanced=False,
    ),
    "brier": _Words(
        "Brier score at natural prevalence",
        "Mean squared distance between confidence and outcome over all scored responses as they "
        "are",
        "lower",
        balanced=False,
        kind="fraction",
    ),
    "ece": _Words(
        "ECE on balanced draws", "Expected calibration error in percent", "lower", balanced=True
    ),
    "auroc": _Words(
        "AUROC on balanced draws", "Area under the ROC curve in percent", "higher", balanced=True
    ),
}


def metric_table(
    evaluations: Sequence[Evaluation],
    metric: Metric,
    *,
    protocol: Protocol | None = None,
    labels: Mapping[str, str] | None = None,
    reference: Iterable[str] | None = None,
    overall: Sequence[Overall] = (),
) -> ReportTable:
    """The paper's layout: generators within benchmarks, one column an estimator, and a mean row.

    Estimators in `reference` (by default the supervised ones) are shown but not ranked, and neither
    are rows of few responses. The means of a metric at natural prevalence take their intervals from
    `overall`.
    """
    protocol, words = protocol or Protocol(), METRICS[metric]
    if metric != "auroc":  # what only ranks has no other figure
        confidences = [e for e in evaluations if reason_kind(e.reason) != RANKING_ONLY.kind]
        evaluations = confidences or evaluations
    variants = _variants(evaluations)
    names = [
        (e, v)
        for e in in_order((name for name, _ in variants.values()), labels)
        for v in sorted({params for name, params in variants.values() if name == e})
    ]
    unranked = supervised() if reference is None else set(reference)
    shown = {e for e, _ in names}
    columns = (
        ReportColumn("generator", "Generator"),
        ReportColumn("accuracy", "Acc", "percent"),
        ReportColumn(COUNTED, "n", "integer"),
        *(
            ReportColumn(
                key=_variant_name(e, v),
                label=_variant_name(label(e, labels), v),
                kind=words.kind,
                better=None if e in unranked else words.better,
                bounded=not words.balanced,
            )
            for e, v in names
        ),
    )
    benchmarks = list(dict.fromkeys(e.benchmark for e in evaluations))
    groups = dict(sorted(by_group(evaluations).items(), key=lambda g: benchmarks.index(g[0][0])))
    rows: list[ReportRow] = []
    for (benchmark, generator), members in groups.items():
        figures = {variants[id(e)]: _cell(e, metric) for e in members}
        cells = tuple(figures.get(name) for name in names)
        n = _responses(members, words)
        few = n < (FEWEST_OF_A_CLASS if words.balanced else FEWEST_RESPONSES)
        row = (generator, _accuracy(members), n, *cells)
        rows.append(ReportRow(row, section=benchmark, ranked=not few, few=few))
    few_rows = sum(row.few for row in rows)
    caption = f"{words.about}{_draws(protocol) if metric == 'ece' else ''}."
    if len(rows) > 1:
        mean, partial = _mean_row(columns, rows, metric, overall)
        rows.append(mean)
        if partial:
            caption += " Mean over fewer rows: " + ", ".join(partial) + "."
    shared = (
        *how(words, protocol, few_rows > 0),
        *(
            ["Estimators trained with labels are not ranked."]
            if unranked & shown & supervised()
            else []
        ),
        *([f"{few_rows} rows of {len(groups)} rest on few responses."] if few_rows else []),
        *how_counted(evaluations),
        *_undefined(evaluations, metric),
    )
    title = f"{words.title} ({'%, ' if words.kind == 'percent' else ''}{words.better} is better)"
    return ReportTable(title, columns, tuple(rows), caption, shared)


def _cell(evaluation: Evaluation, metric: Metric) -> Cell:
    figure = getattr(evaluation, metric)
    if figure is None or METRICS[metric].balanced:
        return figure
    return Bounded(figure, getattr(evaluation, f"{metric}_interval"))


def _responses(members: Sequence[Evaluation], words: _Words) -> int:
    """Behind a row: those of each class, or all; the fewest of any estimator that gave values."""
    found = [e.n_balanced if words.balanced else e.n_scored for e in members if e.n_scored]
    return min(found, default=0)


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


def _accuracy(members: Sequence[Evaluation]) -> float | None:
    figures = {e.accuracy for e in members}
    if len(figures) > 1:
        first = members[0]
        raise DataError(
            f"The evaluations of {first.generator} on {first.benchmark} disagree on accuracy.",
            next_step="Evaluate all estimators on the same responses.",
        )
    return members[0].accuracy


def _mean_row(
    columns: Sequence[ReportColumn],
    rows: Sequence[ReportRow],
    metric: Metric,
    overall: Sequence[Overall],
) -> tuple[ReportRow, list[str]]:
    """The mean of each column over the rows that have a figure, and which columns lack some."""
    found = {one.estimator: one for one in overall}
    cells: list[Cell] = ["Mean"]
    partial: list[str] = []
    for i, column in enumerate(columns[1:], start=1):
        there = [figure for row in rows if (figure := number(row.cells[i])) is not None]
        mean: Cell = None if column.key == COUNTED else mean_of(there)
        if column.bounded and isinstance(mean, float) and column.key in found:
            mean = Bounded(mean, getattr(found[column.key], f"{metric}_interval"))
        cells.append(mean)
        if there and len(there) < len(rows):
            partial.append(f"{column.label} {len(there)} of {len(rows)}")
    return ReportRow(tuple(cells), section=None, is_mean=True), partial


def mean_of(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def how_counted(evaluations: Sequence[Evaluation]) -> list[str]:
    """At which theta, what is left out and why, what was clipped, and what was read on."""
    groups = by_group(evaluations)
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
    return [
        *_thetas(evaluations),
        *_counted_over(evaluations),
        *_stated_for(evaluations),
        text,
        *answers_found([members[0] for members in groups.values()]),
        *([f"Clipped to [0, 1] for ECE: {named}."] if named else []),
        *read_on(evaluations),
    ]


def _undefined(evaluations: Sequence[Evaluation], metric: str) -> list[str]:
    """Why figures are missing, once for each reason; rankings never have an ECE."""
    given = [e.reason for e in evaluations if getattr(e, metric) is None and e.reason]
    given += [e.reason for e in evaluations if e.accuracy is None and e.reason]
    reasons = dict.fromkeys(r for r in given if reason_kind(r) != RANKING_ONLY.kind)
    return [f"Not defined: {reason}." for reason in reasons]


def _thetas(evaluations: Sequence[Evaluation]) -> list[str]:
    thetas = sorted({e.params["theta"] for e in evaluations if "theta" in e.params}, key=str)
    return [f"Theta: {', '.join(map(str, thetas))} bits."] if thetas else []


def _counted_over(evaluations: Sequence[Evaluation]) -> list[str]:
    """Which tokens count, where they are not the usual ones."""
    named = {e.params["tokens"] for e in evaluations if "tokens" in e.params}
    known = [COUNTED_WORDS[each] for each in COUNTED_WORDS if each in named]
    return [f"Divergent tokens are counted over {' and '.join(known)}."] if known else []


def _stated_for(evaluations: Sequence[Evaluation]) -> list[str]:
    """For which share of right answers confidences are stated, and whose share that is."""
    stated = [e for e in evaluations if "prior" in e.params]
    maps = [e for e in stated if e.params.get(PRIOR_FROM) == FROM_MAP]
    asked = [e for e in stated if e.params.get(PRIOR_FROM) != FROM_MAP]
    found: list[str] = []
    if asked:
        named = {e.estimator for e in stated}
        without = [
            name
            for name in dict.fromkeys(
                e.estimator for e in evaluations if reason_kind(e.reason) != RANKING_ONLY.kind
            )
            if name not in named
        ]
        but = f"; {as_given(without)}" if without else ""
        share = _shares(asked)
        found.append(f"Confidences are stated for {share} right answers (score.prior){but}.")
    mapped: dict[str, list[str]] = {}
    for name in dict.fromkeys(e.estimator for e in maps):
        share = _shares([e for e in maps if e.estimator == name])
        mapped.setdefault(share, []).append(name)
    found += [f"{mapped_at(names, share)}." for share, names in mapped.items()]
    return found


def _shares(stated: Sequence[Evaluation]) -> str:
    priors = [float(e.params["prior"]) for e in stated]
    ends = [f"{100 * prior:.1f}" for prior in (min(priors), max(priors))]
    return f"{ends[0] if ends[0] == ends[1] else ' to '.join(ends)} %"


def answers_found(groups: Iterable[Evaluation]) -> list[str]:
    """How many are unanswered with fallbacks and without; nothing where none were looked for.

    `groups` are one evaluation for each generator and benchmark.
    """
    known = [(e, e.fallbacks) for e in groups if e.fallbacks is not None]
    responses = sum(e.n for e, _ in known)
    if not responses:
        return []
    left = sum(e.excluded_by.get("unanswered", 0) for e, _ in known)
    without = left + sum(found for _, found in known)
    return [
        f"Unanswered: {100 * left / responses:.1f} %; {100 * without / responses:.1f} % without "
        "the fallbacks."
    ]


def _draws(protocol: Protocol) -> str:
    return f", {protocol.bins} bins"


def how_balanced(protocol: Protocol) -> str:
    return f"Balanced figures: {protocol.describe()}; mean over draws."


def how(words: _Words, protocol: Protocol, few: bool) -> list[str]:
    """How the figures were made, sentence by sentence."""
    if words.balanced:
        made = how_balanced(protocol)
        counted, fewest = "of each class in a draw", FEWEST_OF_A_CLASS
    else:
        made = "At natural prevalence: every scored response; intervals, 95 %, over whole problems."
        counted, fewest = "that were scored", FEWEST_RESPONSES
    marked = f" {FEW_MARK} fewer than {fewest}: too few responses for a result." if few else ""
    return [
        made,
        f"n: responses {counted}.{marked}",
        "Acc counts every sampled response; the other figures leave out responses without an "
        "answer, cut off, undecided or unscored.",
    ]
