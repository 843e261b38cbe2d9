"""A run at a glance: what each estimator says, how true that is, and the paper's balanced figures.

Computes nothing but means over groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from divtok.evaluate.base_rate import BaseRate, mean_restated
from divtok.evaluate.overall import Overall
from divtok.evaluate.protocol import FEWEST_OF_A_CLASS, FEWEST_RESPONSES, Protocol
from divtok.records import Evaluation
from divtok.report.metric_table import how_balanced, how_counted, mean_of
from divtok.report.tables import (
    Better,
    Bounded,
    Cell,
    ReportColumn,
    ReportRow,
    ReportTable,
    by_group,
    in_order,
    label,
    supervised,
)

SHIFTED = (
    "Shifted ECE: with confidences stated for the share of right answers that agreement among "
    "samples suggests."
)


def overview_table(
    evaluations: Sequence[Evaluation],
    overall: Sequence[Overall],
    *,
    protocol: Protocol | None = None,
    labels: Mapping[str, str] | None = None,
    base_rates: Sequence[BaseRate] = (),
) -> ReportTable:
    """One row an estimator: what it says and how true that is, and the paper's balanced figures.

    With `base_rates` also its natural ECE where confidences are stated for those.
    """
    protocol = protocol or Protocol()
    scored, drawn = _sizes(evaluations)
    lower: Better | None = "lower" if scored >= FEWEST_RESPONSES else None  # few are not ranked
    enough = drawn >= FEWEST_OF_A_CLASS
    restated = {mean.estimator: mean for mean in mean_restated(base_rates)}
    columns = (
        ReportColumn("estimator", "Estimator"),
        ReportColumn("mean_confidence", "Says", "percent"),
        ReportColumn("natural_ece", "ECE", "percent", lower, bounded=True),
        *([ReportColumn("shifted_ece", "shifted ECE", "percent", lower)] if restated else []),
        ReportColumn("brier", "Brier", "fraction", lower, bounded=True),
        ReportColumn("ece", "balanced ECE", "percent", "lower" if enough else None),
        ReportColumn("auroc", "balanced AUROC", "percent", "higher" if enough else None),
    )
    found = {one.estimator: one for one in overall}
    groups = by_group(evaluations)
    rows: list[ReportRow] = []
    for name in in_order((e.estimator for e in evaluations), labels):
        members = [e for e in evaluations if e.estimator == name]
        means = [mean_of(e.ece for e in members), mean_of(e.auroc for e in members)]
        one = found.get(name)
        after = restated[name].after if name in restated else None
        shifted = [after] if restated else []
        natural: list[Cell] = [None, None, *shifted, None]
        if one is not None:
            natural = [
                one.mean_confidence,
                Bounded(one.natural_ece, one.natural_ece_interval),
                *shifted,
                Bounded(one.brier, one.brier_interval),
            ]
        ranked = name not in supervised()
        rows.append(ReportRow((label(name, labels), *natural, *means), ranked=ranked))
    responses = sum(members[0].n for members in groups.values())
    over = "" if len(groups) == 1 else f"Means over {all_groups(groups)}. "
    accuracies = [members[0].accuracy for members in groups.values()]
    right = mean_of(accuracies)
    caption = f"{over}{responses:,} responses"
    caption += "." if right is None else f", {100 * right:.1f} % right: what 'Says' should be."
    caption += _few(scored, drawn)
    partial = [
        f"{label(o.estimator, labels)} {o.groups}" for o in overall if o.groups < len(groups)
    ]
    if partial:
        caption += f" Over fewer than {len(groups)} groups: {', '.join(partial)}."
    fewer = [m for m in restated.values() if m.groups < len(groups)]
    if fewer:
        caption += " Shifted in fewer groups: " + ", ".join(
            f"{label(m.estimator, labels)} {m.groups} (as they are {100 * m.as_is:.1f})"
            for m in fewer
        )
        caption += "."
    shared = (
        "Says (the mean confidence), ECE and Brier: every scored response as it is, with 95 % "
        "intervals over whole problems.",
        *([SHIFTED] if restated else []),
        how_balanced(protocol),
        *how_counted(evaluations),
        *(f"{label(one.estimator, labels)}: {one.reason}." for one in overall if one.reason),
    )
    return ReportTable("Overview", columns, tuple(rows), caption, shared, ranked_in="column")


def all_groups(groups: Mapping[tuple[str, str], object]) -> str:
    sizes = [len({key[i] for key in groups}) for i in (1, 0)]
    names = (("generator", "generators"), ("benchmark", "benchmarks"))
    counts = [f"{n} {name[n > 1]}" for n, name in zip(sizes, names, strict=True)]
    return f"{len(groups)} groups ({' on '.join(counts)})"


def _sizes(evaluations: Sequence[Evaluation]) -> tuple[int, int]:
    """Scored responses, and those of each class in balanced draws, of all groups together."""
    groups = by_group(evaluations).values()
    scored = sum(max(e.n_scored for e in members) for members in groups)
    return scored, sum(max(e.n_balanced for e in members) for members in groups)


def _few(scored: int, drawn: int) -> str:
    """Where even all groups together are too few responses for a result."""
    text = ""
    if scored < FEWEST_RESPONSES:
        text += f" {scored} scored responses are fewer than {FEWEST_RESPONSES}: no result."
    if drawn < FEWEST_OF_A_CLASS:
        text += (
            f" Balanced draws of {drawn} of each class are fewer than {FEWEST_OF_A_CLASS}: too few "
            "responses for a result."
        )
    return text
