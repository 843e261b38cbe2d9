"""Votes among several samples: how often they are right, and whether weighing beats a majority.

Tables, a figure and plain sentences from numbers; computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from divtok.decide.vote_comparison import GeneratorVotes, VotedRow, shown_samples
from divtok.decide.vote_curves import ORDERS, Difference, Voting
from divtok.decide.votes import SETTLED
from divtok.report.panels import LineSeries, Panel, PanelsDisplay
from divtok.report.part import Drawn, Part
from divtok.report.tables import Bounded, Cell, ReportColumn, ReportRow, ReportTable, label

NAMES = {
    "majority": "majority",
    "best": "most confident",
    "log_odds": "log-odds",
    "weighted": "weighted",
}
_ABOUT = (
    "Accuracy of the one answer that is chosen among at most so many samples of a problem, in "
    f"percent: a mean over benchmarks and over {ORDERS} random orders of the samples. A majority "
    "counts samples, the most confident is one response, a log-odds vote adds up the log-odds of "
    "confidences, and a weighted vote also minds how rarely wrong samples agree.",
    "'Used' are the samples taken until the vote stops, 'Says' the mean of its own confidence in "
    "the answer, both with all samples. Samples make the same mistakes, so votes of many say too "
    "much.",
)
_AGAINST = (
    "Percentage points by which an answer is more often right than a majority's for as many "
    "written tokens; 95 % intervals over whole problems. A vote that stops early is compared with "
    "a majority that stops alike, and a majority that stops with one of all samples.",
    "'Equal cost' counts reading as well: what both reach for what the cheaper one of all samples "
    "costs. 'Wins' and 'Loses' say where the interval leaves out 0.",
)


def votes_part(found: Sequence[GeneratorVotes]) -> Part:
    tables = vote_tables(found)
    about = (
        "`tables/votes.*` and `votes-against-majority.*`: which answer to take of several samples, "
        "and where weighing by confidence wins or loses against a majority."
    )
    drawn = Drawn(
        "votes", "accuracy", "accuracy of votes against what they cost", vote_figure(found)
    )
    return Part(about, tables, (drawn,), vote_sentences(found))


def vote_tables(found: Sequence[GeneratorVotes]) -> dict[str, ReportTable]:
    counts = shown_samples(min(of.samples for of in found))
    return {
        "votes": _accuracies(found, counts),
        "votes-against-majority": _differences(found, counts[1:]),
    }


def named(voting: Voting, *, estimator: bool = True) -> str:
    """A way to vote in words, with or without whose confidences weigh."""
    by = f" by {label(voting.estimator)}" if estimator and voting.estimator is not None else ""
    until = ""
    if voting.stop is not None:
        until = (
            f", until {SETTLED if voting.stop == SETTLED else f'{100 * float(voting.stop):g} %'}"
        )
    return f"{NAMES[voting.strategy]}{by}{until}"


def _titled(title: str, found: Sequence[GeneratorVotes]) -> str:
    return f"{title}: {found[0].generator}" if len(found) == 1 else title


def _who(found: Sequence[GeneratorVotes]) -> tuple[ReportColumn, ...]:
    """A single generator is in the title."""
    generator = () if len(found) == 1 else (ReportColumn("generator", "Generator"),)
    return (*generator, ReportColumn("vote", "Vote"))


def _names(found: Sequence[GeneratorVotes], of: GeneratorVotes, row: VotedRow) -> tuple[str, ...]:
    return (*(() if len(found) == 1 else (of.generator,)), named(row.voting))


def _accuracies(found: Sequence[GeneratorVotes], counts: Sequence[int]) -> ReportTable:
    columns = (
        *_who(found),
        *(ReportColumn(f"accuracy_{n}", str(n), "percent") for n in counts),
        ReportColumn("used", "Used"),
        ReportColumn("says", "Says", "percent"),
    )
    rows = [
        ReportRow(
            (
                *_names(found, of, row),
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
        _titled("Answers chosen among so many samples (% right)", found),
        columns,
        tuple(rows),
        " ".join(note for of in found for note in of.notes),
        _ABOUT,
    )


def _differences(found: Sequence[GeneratorVotes], counts: Sequence[int]) -> ReportTable:
    columns = (
        *_who(found),
        *(ReportColumn(f"against_{n}", str(n), "percent", bounded=True) for n in counts),
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
            cells = (*_names(found, of, row), *map(_cell, at.values()), *said)
            rows.append(ReportRow(cells, ranked=False, signed=True))
    return ReportTable(
        _titled("Votes of so many samples against a majority (points)", found),
        columns,
        tuple(rows),
        _reading(found),
        _AGAINST,
    )


def _cell(difference: Difference | None) -> Cell:
    if difference is None or difference.value is None:
        return None
    return Bounded(difference.value, difference.interval)


def _places(at: dict[str, Difference | None], verdict: str) -> str | None:
    where = [place for place, found in at.items() if found is not None and found.verdict == verdict]
    return ", ".join(where) or None


def _reading(found: Sequence[GeneratorVotes]) -> str:
    """What a read token costs, where it costs anything."""
    shares = sorted(of.cost.reading_share for of in found if of.cost.read > 0)
    if not shares:
        return "What reading costs is not known."
    span = f"{shares[0]:.2g}" + (f" to {shares[-1]:.2g}" if shares[-1] > shares[0] else "")
    return f"A token costs {span} times as much to read as to write, by the parameters it takes."


def vote_figure(found: Sequence[GeneratorVotes]) -> PanelsDisplay:
    """A panel for each generator, against tokens and, below, against all that a vote costs."""
    read = any(of.cost.read > 0 for of in found)
    rows = tuple(
        tuple(_panel(of, cost=cost) for of in found)
        for cost in ((False, True) if read else (False,))
    )
    usual = {of.usual for of in found if of.usual is not None}
    weighed = f"confidences: {', '.join(label(name) for name in sorted(usual))}; " if usual else ""
    most = min(of.samples for of in found)
    about = f"{weighed}1 to {most} samples of a problem, means over benchmarks"
    return PanelsDisplay("votes", "Accuracy of votes among samples", rows, about)


# Series of what the figure shows; a log-odds vote and votes until they are settled would hide
# others.
_LOOKS = {"majority": 1, "weighted": 0, "best": 3}


def _panel(of: GeneratorVotes, *, cost: bool) -> Panel:
    x_label = f"{of.written} written a problem"
    if cost:
        x_label = f"cost a problem, in written {of.written}, reading counted"
    rows = [
        row
        for row in of.rows
        if row.voting.estimator in (None, of.usual)
        and row.voting.strategy in _LOOKS
        and row.voting.stop != SETTLED
    ]
    lines = tuple(
        LineSeries(
            named(row.voting, estimator=False),
            row.costs if cost else tuple(p.tokens for p in row.points),
            tuple(100 * p.accuracy for p in row.points),
            _LOOKS[row.voting.strategy],
            dashed=row.voting.stop is not None,
        )
        for row in rows
    )
    ends = [y for line in lines for y in line.y if y is not None]
    room = 0.06 * (max(ends) - min(ends)) or 1.0
    y_range = (max(0.0, min(ends) - room), min(100.0, max(ends) + room))
    return Panel(of.generator, x_label, "right (%)", lines, y_range=y_range, log_x=True)


def vote_sentences(found: Sequence[GeneratorVotes]) -> tuple[str, ...]:
    """What the usual vote gains or loses, and what stopping early saves; two sentences at most.

    Of a single sample there is nothing to say.
    """
    found = [of for of in found if of.samples > 1]
    weighed = [
        (of, row) for of in found for row in of.rows if row.voting == Voting("weighted", of.usual)
    ]
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
        said.append(f"A vote, {named(until[0].voting)} sure, takes: {'; '.join(parts)}.")
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
    rows = {row.voting: row for row in of.rows}
    whole = Voting("majority" if of.usual is None else "weighted", of.usual)
    stopped = next(
        (
            row
            for voting, row in rows.items()
            if voting.stop not in (None, SETTLED) and replace(voting, stop=None) == whole
        ),
        None,
    )
    return None if stopped is None else (stopped, rows[whole])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
