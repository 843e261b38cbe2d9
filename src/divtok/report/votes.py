"""Votes among several samples: how often they are right, and whether weighing beats a majority.

Tables, a figure and plain sentences from numbers; computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from divtok.decide.vote_comparison import GeneratorVotes, VotedRow, shown_samples
from divtok.decide.vote_curves import Difference, Voting
from divtok.report.panels import LineSeries, Panel, PanelsDisplay
from divtok.report.part import Drawn, Part
from divtok.report.tables import Bounded, Cell, ReportColumn, ReportRow, ReportTable, label

NAMES = {
    "majority": "majority",
    "best": "most confident",
    "log_odds": "log-odds vote",
    "weighted": "weighted vote",
}
_ABOUT = (
    "Accuracy of the one answer that is chosen among at most so many samples of a problem, in "
    "percent: a mean over benchmarks and over {orders} random orders of the samples. A majority "
    "counts samples, the most confident is one response, a log-odds vote adds up the log-odds of "
    "confidences, and a weighted vote also minds how rarely wrong samples agree. 'Used' are the "
    "samples taken until the vote stops, 'Says' the mean of its own confidence in the answer, both "
    "with all samples. Samples make the same mistakes, so votes of many say too much."
)
_AGAINST = (
    "Percentage points by which an answer is more often right than a majority's for as many "
    "written tokens; 95 % intervals over whole problems. A vote that stops early is compared with "
    "a majority that stops alike, and a majority that stops with one of all samples. 'Equal cost' "
    "counts reading as well{cost}: what both reach for what the cheaper one of all samples costs. "
    "'Wins' and 'Loses' say where the interval leaves out 0."
)
# Rows of the figure: what its x axis is.
_TOKENS, _COST = "tokens written a problem", "cost a problem, in written tokens, reading counted"


def votes_part(found: Sequence[GeneratorVotes], *, orders: int) -> Part:
    tables = vote_tables(found, orders=orders)
    about = (
        "`tables/votes.*` and `votes-against-majority.*`: which answer to take of several samples, "
        "and where weighing by confidence wins or loses against a majority."
    )
    drawn = Drawn(
        "votes", "accuracy", "accuracy of votes against what they cost", vote_figure(found)
    )
    return Part(about, tables, (drawn,), vote_sentences(found))


def vote_tables(found: Sequence[GeneratorVotes], *, orders: int) -> dict[str, ReportTable]:
    counts = shown_samples(min(of.samples for of in found))
    return {
        "votes": _accuracies(found, counts, orders),
        "votes-against-majority": _differences(found, counts[1:]),
    }


def named(voting: Voting) -> str:
    """A way to vote in words; the estimator has a column of its own."""
    if voting.stop is None:
        return NAMES[voting.strategy]
    until = "settled" if isinstance(voting.stop, str) else f"{100 * voting.stop:g} %"
    return f"{NAMES[voting.strategy]} until {until}"


def _who(of: GeneratorVotes, row: VotedRow) -> tuple[Cell, ...]:
    estimator = row.voting.estimator
    return of.generator, named(row.voting), None if estimator is None else label(estimator)


_WHO = (
    ReportColumn("generator", "Generator"),
    ReportColumn("vote", "Vote"),
    ReportColumn("estimator", "Estimator"),
)


def _accuracies(found: Sequence[GeneratorVotes], counts: Sequence[int], orders: int) -> ReportTable:
    columns = (
        *_WHO,
        *(ReportColumn(f"accuracy_{n}", _samples(n), "percent") for n in counts),
        ReportColumn("used", "Used"),
        ReportColumn("says", "Says", "percent"),
    )
    rows = [
        ReportRow(
            (
                *_who(of, row),
                *(row.points[n - 1].accuracy for n in counts),
                f"{row.points[counts[-1] - 1].used:.1f}",
                row.points[counts[-1] - 1].confidence,
            ),
            ranked=False,
        )
        for of in found
        for row in of.rows
    ]
    return ReportTable(
        "Answers chosen among several samples (% right)",
        columns,
        tuple(rows),
        _ABOUT.format(orders=orders),
    )


def _differences(found: Sequence[GeneratorVotes], counts: Sequence[int]) -> ReportTable:
    columns = (
        *_WHO,
        *(ReportColumn(f"against_{n}", _samples(n), "percent", bounded=True) for n in counts),
        ReportColumn("equal_cost", "Equal cost", "percent", bounded=True),
        ReportColumn("wins", "Wins"),
        ReportColumn("loses", "Loses"),
    )
    rows: list[ReportRow] = []
    for of in found:
        for row in of.rows:
            if row.equal_cost is None:
                continue
            at = {str(n): row.points[n - 1].against for n in counts}
            at["equal cost"] = row.equal_cost
            said = [_places(at, verdict) for verdict in ("wins", "loses")]
            cells = (*_who(of, row), *map(_cell, at.values()), *said)
            rows.append(ReportRow(cells, ranked=False, signed=True))
    return ReportTable(
        "Votes against a majority (percentage points)",
        columns,
        tuple(rows),
        _AGAINST.format(cost=_reading(found)),
    )


def _samples(n: int) -> str:
    return "1 sample" if n == 1 else f"{n} samples"


def _cell(difference: Difference | None) -> Cell:
    if difference is None or difference.value is None:
        return None
    return Bounded(difference.value, difference.interval)


def _places(at: dict[str, Difference | None], verdict: str) -> str | None:
    where = [place for place, found in at.items() if found is not None and found.verdict == verdict]
    return ", ".join(where) or None


def _reading(found: Sequence[GeneratorVotes]) -> str:
    """What a read token costs, where it costs anything."""
    known = {of.generator: of.cost.reading_share for of in found if of.cost.read > 0}
    if not known:
        return " where models' sizes are known, which they are not"
    shares = sorted(known.values())
    span = f"{shares[0]:.2g}" + (f" to {shares[-1]:.2g}" if shares[-1] > shares[0] else "")
    return f", a read token at {span} of a written one (by the parameters it goes through)"


def vote_figure(found: Sequence[GeneratorVotes]) -> PanelsDisplay:
    """A panel for each generator, against tokens and, below, against all that a vote costs."""
    ends = [p.accuracy for of in found for row in _drawn(of) for p in row.points]
    low, high = 100 * min(ends), 100 * max(ends)
    room = 0.06 * (high - low) or 1.0
    y_range = (max(0.0, low - room), min(100.0, high + room))
    read = any(of.cost.read > 0 for of in found)
    rows = tuple(
        tuple(_panel(of, x_label, y_range) for of in found)
        for x_label in ((_TOKENS, _COST) if read else (_TOKENS,))
    )
    usual = {of.usual for of in found if of.usual is not None}
    weighed = f"confidences: {', '.join(label(name) for name in sorted(usual))}; " if usual else ""
    most = min(of.samples for of in found)
    about = f"{weighed}1 to {most} samples of a problem, means over benchmarks"
    return PanelsDisplay("votes", "Accuracy of votes among samples", rows, about)


def _drawn(of: GeneratorVotes) -> list[VotedRow]:
    """Majority and the usual estimator's; votes until they are settled would hide others."""
    return [
        row
        for row in of.rows
        if row.voting.estimator in (None, of.usual) and row.voting.stop != "settled"
    ]


_LOOKS = {"majority": 4, "weighted": 0, "log_odds": 2, "best": 3}


def _panel(of: GeneratorVotes, x_label: str, y_range: tuple[float, float]) -> Panel:
    lines = tuple(
        LineSeries(
            named(row.voting),
            tuple(p.tokens for p in row.points) if x_label == _TOKENS else row.costs,
            tuple(100 * p.accuracy for p in row.points),
            _LOOKS[row.voting.strategy],
            dashed=row.voting.stop is not None,
        )
        for row in _drawn(of)
    )
    return Panel(of.generator, x_label, "right (%)", lines, y_range=y_range)


def vote_sentences(found: Sequence[GeneratorVotes]) -> tuple[str, ...]:
    """What the usual vote gains or loses, and what stopping early saves; two sentences at most."""
    weighed = [(of, _row(of, Voting("weighted", of.usual))) for of in found if of.usual is not None]
    said: list[str] = []
    if weighed:
        usual = label(str(weighed[0][0].usual))
        said.append(
            f"Votes weighted by {usual} against a majority of as many samples: "
            f"{'; '.join(_gains(of.generator, row) for of, row in weighed)}."
        )
    stops = [(of, _stopped(of)) for of in found]
    parts = [
        f"{of.generator} {row.last.used:.1f} of {row.last.samples} samples, "
        f"{_percent(row.last.accuracy)} right instead of {_percent(whole.last.accuracy)}"
        for of, pair in stops
        if pair is not None
        for row, whole in [pair]
    ]
    if parts:
        until = stops[0][1]
        assert until is not None
        said.append(f"A {named(until[0].voting)} sure takes: {'; '.join(parts)}.")
    return tuple(said)


def _gains(generator: str, row: VotedRow) -> str:
    at = {str(p.samples): p.against for p in row.points}
    shown = [str(n) for n in shown_samples(row.last.samples)[1:]]
    known = [(n, at[n]) for n in (shown[0], shown[-1])] if shown else []
    texts = [
        f"{100 * found.value:+.1f} points with {n}{_sure(found)}"
        for n, found in dict(known).items()
        if found is not None and found.value is not None
    ]
    return f"{generator} {', '.join(texts)}"


def _sure(found: Difference) -> str:
    return " (not told apart)" if found.verdict == "not told apart" else ""


def _stopped(of: GeneratorVotes) -> tuple[VotedRow, VotedRow] | None:
    """The vote that stops at a level, of the usual estimator where there is one, and the whole."""
    strategy = "majority" if of.usual is None else "weighted"
    stopped = [
        row
        for row in of.rows
        if row.voting.strategy == strategy
        and row.voting.estimator == of.usual
        and isinstance(row.voting.stop, float)
    ]
    whole = Voting(strategy, of.usual)
    return (stopped[0], _row(of, whole)) if stopped else None


def _row(of: GeneratorVotes, voting: Voting) -> VotedRow:
    return next(row for row in of.rows if row.voting == voting)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
