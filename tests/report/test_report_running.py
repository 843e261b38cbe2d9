"""What the report says of confidence while a response is written."""

from __future__ import annotations

import pytest
from figure_checks import assert_tidy, drawn, panels

from divtok.decide.early import THRESHOLDS, SafeStop
from divtok.decide.tries import Compared, Majority, Spent, StopAndTry
from divtok.evaluate.running import RunningFigures
from divtok.records import Interval
from divtok.report.part import Part
from divtok.report.render import to_csv, to_markdown
from divtok.report.running import running_part

GENERATORS = ("divtok/tiny-0.5m", "divtok/tiny-0.9m", "divtok/tiny-1.6m", "mine/4b")
FALLING = ("dtc_weighted", "dtc_lin")


def around(value: float) -> Interval:
    return Interval(value - 0.02, value + 0.02)


def figures(generator: str, estimator: str, better: float) -> list[RunningFigures]:
    places = [(0.25, None), (0.5, None), (0.75, None), (1.0, None), (None, 64)]
    return [
        RunningFigures(
            generator, estimator, share, tokens, 2, 400,
            auroc=0.5 + better * (share or 0.1), auroc_interval=around(0.6),
            natural_ece=None if estimator == "deepconf_tail" else 0.2,
            natural_ece_interval=around(0.2), mean_confidence=0.8, share_right=0.7,
        )
        for share, tokens in places
    ]  # fmt: skip


def stop(generator: str, estimator: str, threshold: float, **more) -> SafeStop:
    plain = {"risk": None, "floor": False, "responses": 400, "problems": 100, "accepted": 0.8}
    saved = threshold / 2
    return SafeStop(
        generator, estimator, threshold, **(plain | more),
        stopped=0.2, saved=saved, interval=around(saved),
    )  # fmt: skip


def tried(generator: str, estimator: str, threshold: float) -> StopAndTry:
    gain = Compared(0.05, Interval(0.03, 0.07))
    spent = Spent(0.75, around(0.75), 120 + 50 * threshold)
    return StopAndTry(generator, estimator, threshold, None, 4, spent, gain, None, 180, 100)


def made(generators=GENERATORS[:3]) -> Part:
    pairs = [(g, e) for g in generators for e in FALLING]
    stops = [stop(g, e, t) for g, e in pairs for t in THRESHOLDS]
    stops += [stop(g, "dtc_lin", 0.05, floor=True) for g in generators]
    stops += [stop(g, "dtc_weighted", 0.873, risk=0.05) for g in generators]
    majorities = [
        Majority(g, n, Spent(0.7 + n / 50, None, 100 * n)) for g in generators for n in (1, 3, 5)
    ]
    better = {"dtc_weighted": 0.4, "dtc_lin": 0.3, "nsl": 0.2, "deepconf_tail": 0.1}
    return running_part(
        [one for g in generators for e, b in better.items() for one in figures(g, e, b)],
        stops,
        [tried(g, e, t) for g, e in pairs for t in THRESHOLDS],
        majorities,
    )


def test_there_is_a_row_for_each_place_and_a_column_for_each_estimator() -> None:
    table = made().tables["running"]
    assert [c.key for c in table.columns][:3] == ["generator", "after", "n"]
    assert {c.key for c in table.columns[3:]} == {"nsl", "deepconf_tail", *FALLING}
    assert [row.cells[1] for row in table.rows[:5]] == [
        "25 %",
        "50 %",
        "75 %",
        "100 %",
        "64 tokens",
    ]
    assert "| divtok/tiny-0.9m | 50 % | 400 |" in to_markdown(table)
    assert "**70.0 [58.0, 62.0]**" in to_markdown(table)  # dtc_weighted after a half


def test_what_only_ranks_has_a_dash_for_its_ece() -> None:
    table = made().tables["running-ece"]
    at = [c.key for c in table.columns].index("deepconf_tail")
    assert {row.cells[at] for row in table.rows} == {None}


def test_the_table_of_stops_has_some_thresholds_those_of_policies_and_the_floor() -> None:
    table = made().tables["early-stopping"]
    rows = [r.cells[1:4] for r in table.rows if r.cells[0] == GENERATORS[0]]
    assert ("DTC weighted", 0.873, "promised: 5 % wrong") in rows
    assert ("DTC lin", 0.05, "the lowest there is") in rows
    thresholds = [t for name, t, why in rows if (name, why) == ("DTC weighted", "set")]
    assert thresholds == [0.3, 0.5, 0.7, 0.9]
    half = next(line for line in to_csv(table).splitlines() if ",0.5,set," in line)
    assert half.startswith(f"{GENERATORS[0]},DTC weighted,0.5,set,0.8,0.25,0.23,0.27,")
    # Right, tokens of one sample's, than one sample; no majority.
    assert half.endswith(",0.75,1.45,0.05,0.03,0.07,,,")


def test_the_sentences_say_what_the_figures_say() -> None:
    first, second = made().short
    assert first == (
        "Half-way through a response DTC weighted tells most: AUROC 70.0 %, and 90.0 % at its end."
    )
    assert second == (
        "Stopping what cannot reach 0.5 by DTC weighted any more saves 25.0 % of the tokens and "
        "changes no decision; trying again instead, 4 samples at most, is right 5.0 points more "
        "often than one sample, for 45.0 % more tokens."
    )


def test_without_tries_the_sentence_and_the_figure_end_at_what_is_saved() -> None:
    part = running_part(
        figures("g", "dtc_lin", 0.3), [stop("g", "dtc_lin", t) for t in THRESHOLDS], [], []
    )
    assert part.short[1].endswith("and changes no decision.")
    (display,) = [one.display for one in part.figures if one.kind == "early-stopping"]
    assert len(panels(drawn(display))) == 1


@pytest.mark.parametrize("generators", [GENERATORS[:1], GENERATORS[:3], GENERATORS])
def test_figures_are_tidy_and_hold_three_generators_each(generators) -> None:
    part = made(generators)
    kinds = [one.kind for one in part.figures]
    assert kinds.count("running") == kinds.count("early-stopping") == (len(generators) + 2) // 3
    for one in part.figures:
        assert_tidy(drawn(one.display))


def test_nothing_to_show_is_said() -> None:
    part = running_part([], [], [], [], reason="no trace is exact")
    assert part.about == "Confidence while a response is written: left out, no trace is exact."
    assert (dict(part.tables), part.figures, part.short) == ({}, (), ())
