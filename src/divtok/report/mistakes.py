"""Where the mistake is: how often each way of marking finds the first wrong step.

A table, a figure and two sentences. Computes nothing but means over generators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from divtok.evaluate.mistakes import (
    CHANCE,
    FEWEST_OF_A_LENGTH,
    FIRST,
    LAST,
    Marking,
    Mean,
    Mistakes,
)
from divtok.report.panels import LineSeries, Panel, PanelsDisplay
from divtok.report.part import Drawn, Part
from divtok.report.tables import Bounded, Cell, ReportColumn, ReportRow, ReportTable
from divtok.score.suspicion import (
    FIRST_DIVERGENT,
    GUARDED,
    LEAST_LIKELY_STEP,
    MARKINGS,
    MAY_MARK_NOTHING,
)

_WORDS: Mapping[str, str] = {
    **MARKINGS,
    CHANCE: "chance",
    FIRST: "first step",
    LAST: "last step",
}
_DRAWN = (GUARDED, LEAST_LIKELY_STEP, FIRST_DIVERGENT, CHANCE)
_ABOUT = (
    "Where the mistake is: of wrong responses whose first wrong step is known, how often each way "
    "of marking a step finds it. `divtok show RUN KEY --steps` lists the steps of a response, the "
    "most suspect first."
)


def mistakes_part(found: Sequence[Mistakes], *, theta: float) -> Part:
    return Part(
        about=_ABOUT,
        tables={"mistakes": mistakes_table(found, theta=theta)},
        figures=(_drawn(found),),
        short=_short(found),
    )


def mistakes_table(found: Sequence[Mistakes], *, theta: float) -> ReportTable:
    """A row for each generator and way of marking."""
    columns = (
        ReportColumn("generator", "Generator"),
        ReportColumn("marking", "Marked step"),
        ReportColumn("n", "Responses", "integer"),
        ReportColumn("precision", "Precision", "percent", bounded=True),
        ReportColumn("over_chance", "Less chance", "percent", bounded=True),
        ReportColumn("over_likelihood", "Less least likely step", "percent", bounded=True),
        ReportColumn("near", "Within one step", "percent"),
        ReportColumn("before", "Before it", "percent"),
        ReportColumn("behind", "Behind it", "percent"),
        ReportColumn("reciprocal", "Mean reciprocal rank", "fraction"),
        ReportColumn("marked", "Marked", "percent"),
        ReportColumn("alarms", "Right ones marked", "percent"),
    )
    rows = [ReportRow(_cells(one, m), ranked=False) for one in found for m in one.markings]
    caption = (
        "Of wrong responses whose first wrong step is known: how often the marked step is that one "
        f"(precision, of the marked responses), in percent. Divergent: above {theta:g} bits. The "
        "differences are on the same responses; 95 % intervals over whole problems. Chance is "
        "computed: any step alike."
    )
    return ReportTable(
        "Where the mistake is: the first wrong step", columns, tuple(rows), caption, _known(found)
    )


def _cells(one: Mistakes, marking: Marking) -> tuple[Cell, ...]:
    alarms = one.alarms / one.right if one.right else None
    return (
        one.generator,
        _WORDS.get(marking.name, marking.name),
        marking.responses,
        _bounded(marking.precision),
        _bounded(marking.over.get(CHANCE)),
        _bounded(marking.over.get(LEAST_LIKELY_STEP)),
        marking.near,
        marking.before,
        marking.behind,
        marking.reciprocal,
        marking.marked,
        alarms if marking.name in MAY_MARK_NOTHING else 1.0,
    )


def _bounded(mean: Mean | None) -> Bounded | None:
    return None if mean is None else Bounded(mean.value, mean.interval)


def _known(found: Sequence[Mistakes]) -> tuple[str, ...]:
    """For each generator: what is known, and when divergence tells of it."""
    lines: list[str] = []
    for one in found:
        unknown = "; ".join(f"{count} {kind}" for kind, count in sorted(one.unknown.items()))
        line = f"{one.generator}: known of {one.known:,} of {one.wrong:,} wrong responses"
        line += f" (else: {unknown})" if unknown else ""
        if one.checked:
            line += f"; {one.slipped:,} of {one.checked:,} right ones have a wrong step"
        early = one.earliness
        if early.after is not None and early.left is not None:
            line += (
                f"; {100 * early.found:.0f} % have a divergent token at or behind the beginning of "
                f"the wrong step, half of them within {early.after:g} tokens and with more than "
                f"{100 * early.left:.0f} % of the response to come"
            )
        lines.append(f"{line}.")
    return tuple(lines)


def _short(found: Sequence[Mistakes]) -> tuple[str, ...]:
    guarded, least_likely, divergent, chance = (_mean_precision(found, name) for name in _DRAWN)
    over = " (mean over generators)" if len(found) > 1 else ""
    lines = [
        f"The step with the {MARKINGS[GUARDED]} is the first wrong one of {guarded} of the wrong "
        f"responses{over}; the {MARKINGS[LEAST_LIKELY_STEP]} of {least_likely}, a step by chance "
        f"of {chance}."
    ]
    right = [one.alarms / one.right for one in found if one.right]
    if right:
        lines.append(
            f"The step with the first divergent token is it in {divergent}, and {_percent(right)} "
            "of right responses have a divergent token as well."
        )
    return tuple(lines)


def _mean_precision(found: Sequence[Mistakes], name: str) -> str:
    means = [m.precision for one in found for m in one.markings if m.name == name]
    return _percent([mean.value for mean in means if mean is not None])


def _percent(shares: Sequence[float]) -> str:
    return f"{100 * fmean(shares):.0f} %" if shares else "-"


def _drawn(found: Sequence[Mistakes]) -> Drawn:
    caption = "How often the marked step is the first wrong one, by the number of steps."
    display = PanelsDisplay(
        "mistakes_by_steps",
        "Where the mistake is",
        (tuple(_panel(one) for one in found),),
        about="Bars: 95 % intervals over whole problems. Lengths of fewer than "
        f"{FEWEST_OF_A_LENGTH} responses are left out.",
    )
    return Drawn("mistakes", "by-steps", caption, display)


def _panel(one: Mistakes) -> Panel:
    return Panel(
        one.generator,
        "steps of the response",
        "first wrong step found (%)",
        tuple(_line(m) for m in one.markings if m.name in _DRAWN and m.by_steps),
        y_range=(-3, 103),  # room for whole markers at both ends
        reason="too few responses of any length",
    )


def _line(marking: Marking) -> LineSeries:
    means = marking.by_steps.values()
    ends = [mean.interval for mean in means if marking.name != CHANCE]
    return LineSeries(
        _WORDS[marking.name],
        tuple(map(float, marking.by_steps)),
        tuple(100 * mean.value for mean in means),
        series=_DRAWN.index(marking.name),
        dashed=marking.name == CHANCE,
        low=tuple(None if end is None else 100 * end.low for end in ends) if ends else None,
        high=tuple(None if end is None else 100 * end.high for end in ends) if ends else None,
        markers=True,
    )
