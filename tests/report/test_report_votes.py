"""The tables, the figure and the sentences on votes, from numbers made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from divtok.decide.cost import TokenCost
from divtok.decide.vote_comparison import GeneratorVotes, VotedRow, VotePoint
from divtok.decide.vote_curves import Difference, Voting
from divtok.records import Interval
from divtok.report.figures import save_figure
from divtok.report.render import to_csv, to_markdown
from divtok.report.votes import named, vote_figure, vote_sentences, vote_tables, votes_part

MAJORITY = Voting("majority")


def difference(value, half=0.01):
    return Difference(value, Interval(value - half, value + half), 30.0)


def row(voting, accuracies, *, rival=MAJORITY, gains=(0.0, 0.1, -0.1), equal=-0.05, used=3.0):
    points = tuple(
        VotePoint(n, accuracy, min(used, n), 10.0 * min(used, n), 0.9, difference(gain))
        for n, accuracy, gain in zip((1, 2, 3), accuracies, gains, strict=True)
    )
    costs = tuple((2 if voting.reads else 1) * p.tokens for p in points)
    return VotedRow(voting, points, costs, rival, None if rival is None else difference(equal))


def votes(generator="gen", *, read=0.5):
    rows = (
        row(MAJORITY, (0.6, 0.6, 0.7), rival=None),
        row(Voting("majority", stop=0.95), (0.6, 0.6, 0.68), gains=(0, 0, 0.02), used=2.0),
        row(Voting("weighted", "dtc_weighted"), (0.6, 0.7, 0.6)),
        row(Voting("weighted", "dtc_weighted", 0.95), (0.6, 0.7, 0.59), used=1.5),
        row(Voting("best", "nsl"), (0.6, 0.5, 0.5), gains=(0, -0.005, -0.2), equal=0.0),
    )
    cost = TokenCost(1.0, read, "parameters" if read else "tokens")
    return GeneratorVotes(generator, ("bench",), 40, cost, "dtc_weighted", rows)


def test_a_row_for_each_way_to_vote():
    table = vote_tables([votes()])["votes"]
    assert table.title == "Answers chosen among so many samples (% right): gen"
    lines = to_markdown(table).splitlines()
    assert lines[2] == "| Vote | 1 | 2 | 3 | Used | Says |"
    assert lines[4:7] == [
        "| majority | 60.0 | 60.0 | 70.0 | 3.0 | 90.0 |",
        "| majority, until 95 % | 60.0 | 60.0 | 68.0 | 2.0 | 90.0 |",
        "| weighted by DTC weighted | 60.0 | 70.0 | 60.0 | 3.0 | 90.0 |",
    ]


def test_it_is_said_where_weighing_loses_to_a_majority():
    table = vote_tables([votes()])["votes-against-majority"]
    lines = to_markdown(table).splitlines()
    assert lines[2] == "| Vote | 2 | 3 | Equal cost | Wins | Loses |"
    assert lines[5] == (
        "| weighted by DTC weighted | +10.0 [9.0, 11.0] | -10.0 [-11.0, -9.0] | "
        "-5.0 [-6.0, -4.0] | 2 | 3, equal cost |"
    )
    # half a point less with two samples is not told apart from chance
    assert lines[7].endswith("| +0.0 [-1.0, 1.0] | — | 3 |")
    assert "A token costs 0.5 times as much to read as to write" in table.caption
    assert "vote,against_2,against_2_low,against_2_high" in to_csv(table)


def test_several_generators_have_a_column_and_what_is_shared_is_said_once():
    tables = vote_tables([votes("one"), votes("two", read=2.0)])
    assert to_markdown(tables["votes"]).splitlines()[2].startswith("| Generator | Vote |")
    assert "0.5 to 2 times as much" in tables["votes-against-majority"].caption
    assert tables["votes"].shared == vote_tables([votes()])["votes"].shared


def test_where_no_size_is_known_nothing_is_said_of_reading():
    found = votes(read=0.0)
    assert vote_tables([found])["votes-against-majority"].caption == (
        "What reading costs is not known."
    )
    assert len(vote_figure([found]).rows) == 1


def test_ways_to_vote_in_words():
    assert named(Voting("log_odds", "nsl", "settled")) == "log-odds by NSL, until settled"
    assert named(Voting("weighted", "nsl", 0.9), estimator=False) == "weighted, until 90 %"


def test_two_sentences_say_what_is_gained_and_what_stopping_saves():
    first, second = vote_sentences([votes()])
    assert first == (
        "Votes weighted by DTC weighted against a majority of as many samples: "
        "gen +10.0 points with 2, -10.0 points with 3."
    )
    assert second == (
        "A vote, weighted by DTC weighted, until 95 % sure, takes: gen 1.5 of 3 samples, "
        "59.0 % right instead of 60.0 %."
    )


def test_of_a_single_sample_there_is_nothing_to_say():
    several = votes()
    one = [replace(row, points=row.points[:1]) for row in several.rows]
    assert vote_sentences([replace(several, rows=tuple(one))]) == ()


def test_without_confidences_there_are_majorities_alone():
    both = votes()
    found = GeneratorVotes("gen", ("bench",), 40, both.cost, None, both.rows[:2])
    (only,) = vote_sentences([found])
    assert only.startswith("A vote, majority, until 95 % sure, takes: gen 2.0 of 3 samples")
    assert "confidences" not in vote_figure([found]).about


def test_the_figure_is_drawn_against_tokens_and_against_cost(tmp_path: Path):
    part = votes_part([votes("one"), votes("two")])
    (drawn,) = part.figures
    values = drawn.display.values()
    by_tokens, by_cost = values["rows"]
    assert [panel["title"] for panel in by_tokens] == ["one", "two"]
    lines = {line["label"]: line for line in by_tokens[0]["lines"]}
    assert list(lines) == ["majority", "majority, until 95 %", "weighted", "weighted, until 95 %"]
    assert lines["weighted"]["x"] == (10, 20, 30)
    assert lines["weighted"]["y"] == pytest.approx((60, 70, 60))
    assert by_cost[0]["lines"][2]["x"] == (20, 40, 60)
    save_figure(drawn.display, tmp_path / "votes", formats=("svg",))
    assert (tmp_path / "votes.svg").stat().st_size > 1000
