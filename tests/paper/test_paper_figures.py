"""The paper's figures from handmade runs, each number against a plain computation of it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from paper_samples import (
    Response,
    balanced_figures,
    named,
    random_run,
    recipe_with,
    tiny_material,
    tiny_overrides,
    trace_of,
    usable,
    write_run,
)

from divtok.divergences.divergence import DIVERGENCES
from divtok.evaluate.equal_length import within_length
from divtok.evaluate.share_interval import share_interval
from divtok.paper import sweep_figures
from divtok.paper.build import BUILDERS
from divtok.paper.claims.counts import NOT_LENGTH
from divtok.paper.claims.said import Said
from divtok.paper.claims.thetas import STEADIER
from divtok.paper.claims.values import NEAR_MINIMUM
from divtok.paper.exhibit import Exhibit, Finding
from divtok.paper.recipe import TINY, Recipe, recipes
from divtok.paper.run_tables import FinishedRun, Material
from divtok.records import Trace, Verdict
from divtok.report.bars import BarsDisplay
from divtok.report.figures import ReliabilityDisplay
from divtok.report.maps import MapsDisplay
from divtok.report.panels import LineSeries, Panel, PanelsDisplay
from divtok.score.estimators.dtc import divergent_count, dtc_lin, dtc_prod
from tests.report.figure_checks import assert_tidy, drawn, panels

SMALL, MIDDLE, LARGE = (f"divtok/tiny-{size}" for size in ("0.5m", "0.9m", "1.6m"))
AUXILIARY = "divtok/tiny-0.3m"
ARITHMETIC = ("arith-easy", "arith-medium", "arith-hard", "arith-contest")
FIGURES = [name for name in recipes() if name.startswith("figure-")]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return tiny_material(tmp_path_factory)


def make(name: str | Recipe, material: Material) -> Exhibit:
    recipe = recipes()[name] if isinstance(name, str) else name
    return BUILDERS[recipe.exhibit](recipe, material)


def finding_of(exhibit: Exhibit, said: Said) -> Finding:
    [found] = [finding for finding in exhibit.findings if finding.claim == said.text]
    return found


def grid_of(exhibit: Exhibit) -> tuple[tuple[Panel, ...], ...]:
    [display] = exhibit.figures
    assert isinstance(display, PanelsDisplay)
    return display.rows


def labels(panel: Panel) -> list[str]:
    return [line.label for line in panel.lines]


def at(line: LineSeries, x: float) -> float:
    """The line's y at one of its x."""
    [found] = [y for place, y in zip(line.x, line.y, strict=True) if place == pytest.approx(x)]
    assert found is not None
    return found


def store_of(material: Material, name: str) -> FinishedRun:
    return next(run for run in material.opened() if run.name == name)


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_is_clipped_or_covered(name: str, material: Material) -> None:
    for display in make(name, material).figures:
        figure = drawn(display)
        assert_tidy(figure)
        shown = panels(figure)
        assert any(ax.get_xlabel() or isinstance(display, BarsDisplay) for ax in shown)
        assert any(ax.get_ylabel() for ax in shown)


@pytest.mark.parametrize("name", FIGURES)
def test_axes_have_their_units(name: str, material: Material) -> None:
    for display in make(name, material).figures:
        if isinstance(display, PanelsDisplay):
            for row in display.rows:
                for panel in row:
                    assert panel.y_label in ("ECE (%)", "AUROC (%)", "accuracy (%)")
                    assert panel.x_label in (
                        "theta (bits)",
                        "divergent tokens (count)",
                        "divergent tokens per 100 reasoning tokens",
                    )
        elif isinstance(display, MapsDisplay):
            assert [one.unit for one in display.maps] == ["bits", "%", "%"]
        elif isinstance(display, BarsDisplay):
            assert display.y_label == "ECE (%)"
        else:
            assert isinstance(display, ReliabilityDisplay)


def pooled_rows(
    run: FinishedRun, pair: tuple[str, str], theta: float
) -> tuple[list[int], list[int], list[bool], list[str]]:
    """Count, reasoning tokens, outcome and problem of the smallest generator's usable responses."""
    found = [usable(run.store, benchmark, SMALL, pair) for benchmark in ARITHMETIC]
    traces = [trace for rows in found for trace in rows.traces]
    return (
        [divergent_count(trace, theta=theta) for trace in traces],
        [int(trace.reasoning().sum()) for trace in traces],
        [right for rows in found for right in rows.correct],
        [f"{trace.key.split('/')[2]}/{trace.key.split('/')[3]}" for trace in traces],
    )


def test_accuracy_by_count_for_single_and_dual_pairs(material: Material) -> None:
    exhibit = make("figure-count", material)
    [(single, dual)] = grid_of(exhibit)
    assert [line.label.split(",")[0] for line in single.lines] == [
        "tiny-0.5m / tiny-0.3m", "tiny-0.5m / tiny-0.9m", "tiny-0.5m / tiny-1.6m",
    ]  # fmt: skip
    assert [line.label.split(",")[0] for line in dual.lines] == [
        "tiny-0.5m by tiny-0.9m / tiny-0.3m", "tiny-0.5m by tiny-1.6m / tiny-0.3m",
        "tiny-0.5m by tiny-1.6m / tiny-0.9m",
    ]  # fmt: skip
    for panel, run in ((single, "whitebox-tiny"), (dual, "blackbox-tiny-0.5m")):
        assert panel.x_ticks is not None
        assert [text for _, text in panel.x_ticks] == [*map(str, range(11)), "≥11"]
        for line in panel.lines:
            names, theta = line.label.split(", theta ")
            p, q = (f"divtok/{name}" for name in names.split(" by ")[-1].split(" / "))
            count, _, right, problem = pooled_rows(store_of(material, run), (p, q), float(theta))
            for level, (y, low, high) in enumerate(
                zip(line.y, line.low or (), line.high or (), strict=True)
            ):
                rows = [i for i, c in enumerate(count) if min(c, 11) == level]
                here = [right[i] for i in rows]
                if not here:
                    assert (y, low, high) == (None, None, None)
                    continue
                assert y == pytest.approx(100 * sum(here) / len(here))
                numbers = np.unique([problem[i] for i in rows], return_inverse=True)[1]
                ends = share_interval(np.array(here), numbers)
                assert (low, high) == pytest.approx((100 * ends.low, 100 * ends.high))
    assert [finding.claim for finding in exhibit.findings] == [
        "Accuracy falls almost monotonically as the count rises (generator and auxiliary).",
        "Accuracy falls almost monotonically as the count rises (two auxiliaries).",
    ]


def test_pairs_without_a_theta_are_not_drawn(material: Material) -> None:
    recipe = recipe_with("figure-count", fit=None, runs=["whitebox-tiny"])
    [(single, dual)] = grid_of(make(recipe, material))
    assert labels(single) == ["tiny-0.5m / tiny-0.3m, theta 0.05"]
    assert (dual.lines, dual.reason) == ((), "no pair has a theta and usable responses")


def test_accuracy_by_ratio_in_ten_quantile_bins(material: Material) -> None:
    exhibit = make("figure-count-ratio", material)
    [(left, right)] = grid_of(exhibit)
    [(count_panel, _)] = grid_of(make("figure-count", material))
    assert left.lines == count_panel.lines
    assert labels(right) == labels(left)
    for line in right.lines:
        names, theta = line.label.split(", theta ")
        p, q = (f"divtok/{name}" for name in names.split(" / "))
        count, reasoning, correct, _ = pooled_rows(
            store_of(material, "whitebox-tiny"), (p, q), float(theta)
        )
        ratio = [100 * m / tokens for m, tokens in zip(count, reasoning, strict=True)]
        edges = [float(np.percentile(ratio, 10 * tenth)) for tenth in range(1, 10)]
        bins: dict[int, list[int]] = {}
        for index, value in enumerate(ratio):
            bins.setdefault(sum(edge < value for edge in edges), []).append(index)
        members = [bins[number] for number in sorted(bins)]
        assert line.x == pytest.approx([np.mean([ratio[i] for i in rows]) for rows in members])
        accuracies = [100 * np.mean([correct[i] for i in rows]) for rows in members]
        assert line.y == pytest.approx(accuracies)
        assert list(line.x) == sorted(line.x)
        assert len(members) > 5


def test_length_is_held_against_the_scored_pair_alone(material: Material) -> None:
    exhibit = make("figure-count-ratio", material)
    run = store_of(material, "whitebox-tiny")
    groups = []
    for benchmark in ARITHMETIC:
        found = usable(run.store, benchmark, SMALL, (SMALL, AUXILIARY))
        counts = [divergent_count(trace, theta=0.05) for trace in found.traces]
        lengths = [len(trace) for trace in found.traces]
        problems = [trace.key.split("/")[3] for trace in found.traces]
        groups.append((counts, lengths, found.correct, problems))
    expected = within_length(groups)
    assert expected is not None
    figures_in_text = (expected.count, expected.low, expected.high, expected.length)
    for value in figures_in_text:
        assert f"{100 * value:.1f}" in finding_of(exhibit, NOT_LENGTH).number


def test_the_pilot_shows_mean_eces(material: Material) -> None:
    [display] = make("figure-pilot", material).figures
    assert isinstance(display, BarsDisplay)
    assert display.groups == ("tiny-0.5m", "tiny-0.9m", "tiny-1.6m")
    assert [one.label for one in display.series] == [
        "mean probability", "UQAC", "UQAC, mean of the trajectory", "UQAC, one constant",
    ]  # fmt: skip
    store = store_of(material, "whitebox-tiny").store
    for series, estimator in (
        (display.series[1], "uqac_attn"),
        (display.series[3], "uqac_global"),
    ):
        values = {c.key: c.value for c in store.confidences.read() if c.estimator == estimator}
        for value, generator in zip(series.values, (SMALL, MIDDLE, LARGE), strict=True):
            eces = []
            for benchmark in ARITHMETIC:
                found = usable(store, benchmark, generator, (generator, AUXILIARY))
                confidence = [float(values[t.key] or 0) for t in found.traces]
                eces.append(balanced_figures(confidence, found.correct)[0])
            assert value == pytest.approx(100 * np.mean(eces))


def test_calibration_has_a_panel_for_each_estimator_with_an_ece(material: Material) -> None:
    exhibit = make("figure-calibration", material)
    [display] = exhibit.figures
    assert isinstance(display, ReliabilityDisplay)
    assert display.title == "tiny-0.5m on arith-medium"
    assert [panel.curve.estimator for panel in display.panels] == [
        "nsl", "mean_prob", "entropy", "basecal", "uqac_attn", "uqac_mean", "verbalized",
        "dtc_lin", "dtc_prod", "prm",
    ]  # fmt: skip
    store = store_of(material, "whitebox-tiny").store
    found = usable(store, "arith-medium", SMALL, (SMALL, AUXILIARY))
    for panel in display.panels:
        if panel.curve.estimator == "dtc_lin":
            confidence = [dtc_lin(trace, theta=0.05) for trace in found.traces]
            assert panel.curve.ece == pytest.approx(balanced_figures(confidence, found.correct)[0])
    assert "balanced draws" in exhibit.caption


def best_by_hand(store: FinishedRun, generator: str, pair: tuple[str, str]) -> dict[float, float]:
    """theta -> ECE on arith-medium, in steps of 0.1."""
    found = usable(store.store, "arith-medium", generator, pair)
    return {
        k / 10: balanced_figures([dtc_lin(t, theta=k / 10) for t in found.traces], found.correct)[0]
        for k in range(1, 10)
    }


@pytest.mark.parametrize(
    ("name", "rows", "columns", "blank"),
    [
        (
            "figure-theta-map",
            (SMALL, MIDDLE, LARGE),
            (AUXILIARY, SMALL, MIDDLE, LARGE),
            {(SMALL, SMALL), (MIDDLE, MIDDLE), (LARGE, LARGE)},
        ),
        ("figure-theta-map-dual", (MIDDLE, LARGE), (AUXILIARY, MIDDLE), {(MIDDLE, MIDDLE)}),
    ],
)
def test_the_map_has_the_lowest_ece_of_each_pair(
    name: str,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    blank: set[tuple[str, str]],
    material: Material,
) -> None:
    [display] = make(recipe_with(name, step=10), material).figures
    assert isinstance(display, MapsDisplay)
    assert display.rows == tuple(ref.removeprefix("divtok/") for ref in rows)
    assert display.columns == tuple(ref.removeprefix("divtok/") for ref in columns)
    thetas, eces, aurocs = (one.values for one in display.maps)
    run = store_of(material, "blackbox-tiny-0.5m" if "dual" in name else "whitebox-tiny")
    for i, p in enumerate(rows):
        for j, q in enumerate(columns):
            if (p, q) in blank:
                assert (thetas[i][j], eces[i][j], aurocs[i][j]) == (None, None, None)
                continue
            generator = SMALL if "dual" in name else p
            by_theta = best_by_hand(run, generator, (p, q))
            theta, value = thetas[i][j], eces[i][j]
            assert theta is not None
            assert value == pytest.approx(100 * min(by_theta.values()))
            assert by_theta[theta] == pytest.approx(min(by_theta.values()))
            found = usable(run.store, "arith-medium", generator, (p, q))
            confidence = [dtc_lin(trace, theta=theta) for trace in found.traces]
            expected = balanced_figures(confidence, found.correct)[1]
            assert aurocs[i][j] == pytest.approx(100 * expected)


def test_a_best_theta_at_an_end_of_the_grid_is_named(tmp_path: Path) -> None:
    config = named("whitebox-tiny", "generators=['divtok/tiny-0.5m']").config
    rows = []
    for number in range(6):
        wrong = number % 2 == 1
        key = f"arith-medium/{SMALL}/p{number}/0"
        jsd = [0.03 if not wrong else 0.97] * 12
        trace = trace_of(key, SMALL, AUXILIARY, jsd)
        verdict = Verdict.INCORRECT if wrong else Verdict.CORRECT
        rows.append(Response("arith-medium", SMALL, f"p{number}", 0, verdict, traces=(trace,),
                             values={"dtc_lin": 0.5}))  # fmt: skip
    write_run(tmp_path / "whitebox-tiny", config, rows)
    # Right responses lie at 0.95 and wrong ones at 0.05 from 0.03 on: all thetas but the first two
    # are as good, so the middle of them is taken, which is no end.
    exhibit = make("figure-theta-map", Material(tmp_path, TINY))
    assert "At an end" not in exhibit.caption
    [display] = exhibit.figures
    assert isinstance(display, MapsDisplay)
    assert display.maps[0].values == ((0.49,),)
    assert display.maps[1].values[0][0] == pytest.approx(5.0)
    only_end = recipe_with("figure-theta-map", step=50)
    assert (
        "At an end of the grid: tiny-0.5m with tiny-0.3m."
        in make(only_end, Material(tmp_path, TINY)).caption
    )


def test_theta_curves_of_each_generator_with_the_familys_auxiliary(material: Material) -> None:
    [(ece, auroc)] = grid_of(make("figure-theta-curves", material))
    expected = [
        f"{size}, {benchmark}"
        for size in ("tiny-0.5m", "tiny-0.9m", "tiny-1.6m")
        for benchmark in ("arith-medium", "arith-hard")
    ]
    for panel in (ece, auroc):
        assert sorted(labels(panel)) == sorted(expected)
        assert [line.dashed for line in panel.lines] == ["hard" in name for name in labels(panel)]
        assert panel.mark == 0.05
        assert all(line.x == tuple(k / 100 for k in range(1, 100)) for line in panel.lines)
    run = store_of(material, "whitebox-tiny")
    found = usable(run.store, "arith-hard", MIDDLE, (MIDDLE, AUXILIARY))
    for theta in (0.01, 0.2, 0.77):
        confidence = [dtc_lin(trace, theta=theta) for trace in found.traces]
        expected_figures = balanced_figures(confidence, found.correct)
        [place] = [i for i, name in enumerate(labels(ece)) if name == "tiny-0.9m, arith-hard"]
        shown = at(ece.lines[place], theta), at(auroc.lines[place], theta)
        assert shown == pytest.approx(tuple(100 * value for value in expected_figures))


def test_theta_curves_of_larger_auxiliaries_with_the_smallest(material: Material) -> None:
    [(ece, _)] = grid_of(make("figure-theta-curves-dual", material))
    assert sorted(labels(ece)) == [
        f"{size}, {benchmark}"
        for size in ("tiny-0.9m", "tiny-1.6m")
        for benchmark in ("arith-hard", "arith-medium")
    ]


def as_jsd(trace: Trace, name: str) -> Trace:
    """The trace with a KL in bits where the estimators look for the JSD."""
    return trace_of(
        trace.key, trace.p, trace.q, getattr(trace, name) / math.log(2),
        answer_start=trace.answer_start, answer_stop=trace.answer_stop, turn_end=trace.turn_end,
    )  # fmt: skip


def test_divergences_stand_side_by_side_in_bits(material: Material) -> None:
    exhibit = make("figure-divergence", material)
    eces, aurocs = grid_of(exhibit)
    assert [panel.title for panel in eces] == ["JSD", "Forward KL(p || q)", "Reverse KL(q || p)"]
    assert {panel.y_label for panel in eces} == {"ECE (%)"}
    assert {panel.y_label for panel in aurocs} == {"AUROC (%)"}
    run = store_of(material, "whitebox-tiny")
    found = usable(run.store, "arith-medium", LARGE, (LARGE, AUXILIARY))
    for column, name in ((1, "kl_pq"), (2, "kl_qp")):
        assert DIVERGENCES.get(name).column == name
        assert len(eces[column].lines) == 6
        [line] = [one for one in eces[column].lines if one.label == "tiny-1.6m, arith-medium"]
        for theta in (0.5, 2.0, 4.5):
            traces = [as_jsd(trace, name) for trace in found.traces]
            confidence = [dtc_lin(trace, theta=theta) for trace in traces]
            expected = balanced_figures(confidence, found.correct)[0]
            assert at(line, theta) == pytest.approx(100 * expected)
    # The spread in the finding is that of the lowest points of the curves of each benchmark.
    best = {line.label: lowest_point(line) for line in eces[0].lines}
    spreads: list[float] = []
    for benchmark in ("arith-medium", "arith-hard"):
        thetas = [theta for label, theta in best.items() if label.endswith(benchmark)]
        assert len(thetas) == 3
        spreads.append(float(np.std(thetas) / np.mean(thetas)))
    low, high = min(best.values()), max(best.values())
    text = f"JSD {np.mean(spreads):.2f} (best theta {low:g} to {high:g} bits"
    assert text in finding_of(exhibit, STEADIER).number


def lowest_point(line: LineSeries) -> float:
    """The x of the lowest y; of several, the middle of the longest stretch of them."""
    known = [y for y in line.y if y is not None]
    stretches: list[list[float]] = [[]]
    for x, y in zip(line.x, line.y, strict=True):
        if y is not None and y <= min(known) + 1e-9:
            stretches[-1].append(x)
        elif stretches[-1]:
            stretches.append([])
    longest = max(stretches, key=len)
    return longest[(len(longest) - 1) // 2]


@pytest.mark.parametrize("name", ["figure-divergence", "figure-divergence-dual"])
def test_divergences_of_the_scored_pair_alone(name: str, material: Material) -> None:
    eces, _ = grid_of(make(name, material))
    for panel in eces:
        assert sorted(labels(panel)) == sorted(
            f"{size}, {benchmark}"
            for size in ("tiny-0.5m", "tiny-0.9m", "tiny-1.6m")
            for benchmark in ("arith-medium", "arith-hard")
        )


@pytest.mark.parametrize(
    ("name", "values", "benchmarks"),
    [
        ("figure-saturation", (4, 6, 8, 10, 15, 20), ARITHMETIC),
        ("figure-saturation-dual", (4, 6, 8, 10, 15, 20), ARITHMETIC[:3]),
        ("figure-offset", (0, 1, 2, 4, 6, 8), ARITHMETIC),
    ],
)
def test_values_of_a_parameter_averaged_over_benchmarks(
    name: str, values: tuple[int, ...], benchmarks: tuple[str, ...], material: Material
) -> None:
    exhibit = make(name, material)
    rows = grid_of(exhibit)
    offset = name == "figure-offset"
    assert len(rows) == (1 if offset else 2)
    parameter = "k" if offset else "n"
    for row in rows:
        assert [panel.title for panel in row] == ["tiny-0.5m", "tiny-0.9m", "tiny-1.6m"]
        for panel in row:
            assert labels(panel) == [f"{parameter} = {value}" for value in values]
            assert panel.mark == 0.05
    dual = name.endswith("dual")
    run = store_of(material, "blackbox-tiny-0.9m" if dual else "whitebox-tiny")
    pair = (LARGE if dual else MIDDLE, AUXILIARY)
    members = [usable(run.store, benchmark, MIDDLE, pair) for benchmark in benchmarks]
    for value in (values[0], values[3]):
        for theta in (0.05, 0.4):
            expected = np.mean(
                [
                    balanced_figures(
                        [
                            dtc_prod(t, theta=theta, k=value)
                            if offset
                            else dtc_lin(t, theta=theta, n=value)
                            for t in found.traces
                        ],
                        found.correct,
                    )
                    for found in members
                ],
                axis=0,
            )
            place = values.index(value)
            shown = [at(row[1].lines[place], theta) for row in rows]
            assert shown == pytest.approx([100 * v for v in expected[: len(rows)]])
    assert finding_of(exhibit, NEAR_MINIMUM[name]).compared
    assert NEAR_MINIMUM[name].text.startswith(f"{parameter} = {4 if offset else 10} ")


def test_a_title_names_what_it_shows(material: Material) -> None:
    [display] = make("figure-theta-map", material).figures
    assert isinstance(display, MapsDisplay)
    assert display.title.endswith("(arith-medium)")


def test_two_generators_read_by_one_pair_are_two_lines(tmp_path: Path) -> None:
    one = named("blackbox-tiny-0.5m", *tiny_overrides(), "trace.reader=divtok/tiny-1.6m")
    other = named("blackbox-tiny-0.9m", *tiny_overrides())
    for run in (one, other):
        random_run(tmp_path / run.name, run.config)
    recipe = recipe_with(
        "figure-count", runs=[one.name, other.name], generators=[SMALL, MIDDLE], fit=None
    )
    [(_, dual)] = grid_of(make(recipe, Material(tmp_path, TINY)))
    assert len(dual.lines) == 2


def test_a_theta_between_the_hundredths_is_counted_exactly(tmp_path: Path) -> None:
    run = named("whitebox-tiny", *tiny_overrides(), "score.theta=0.125")
    random_run(tmp_path / run.name, run.config)
    recipe = recipe_with("figure-count-ratio", fit=None)
    exhibit = make(recipe, Material(tmp_path, TINY))
    [(left, _)] = grid_of(exhibit)
    assert labels(left) == ["tiny-0.5m / tiny-0.3m, theta 0.125"]


def test_a_benchmark_that_the_mean_leaves_out_is_named(tmp_path: Path) -> None:
    run = named("whitebox-tiny", *tiny_overrides())
    store = random_run(tmp_path / run.name, run.config)
    with store.lock():
        wrong = {g.key for g in store.grades.read() if g.verdict == "incorrect"}
        kept = [
            t
            for t in store.trajectories.read()
            if t.benchmark != "arith-easy" or t.key not in wrong
        ]
        keys = {t.key for t in kept}
        store.trajectories.replace(kept)
        store.traces.replace([t for t in store.traces.read() if t.key in keys])
    exhibit = make("figure-saturation", Material(tmp_path, TINY))
    assert "arith-easy" in exhibit.caption


def test_wrong_values_of_a_recipe_are_not_guessed(material: Material) -> None:
    recipe = recipes()["figure-saturation"].model_copy(update={"values": None})
    exhibit = sweep_figures.over_values(recipe, material)
    assert labels(grid_of(exhibit)[0][0]) == ["n = 10"]


def test_count_and_ratio_stand_beside_what_the_paper_says(material: Material) -> None:
    assert make("figure-count-ratio", material).caption.endswith(
        "In the paper r = -0.985 for the count and -0.937 for the ratio; accuracy 97% to 99% at a "
        "count of 0 and 24% to 29% from 11 on."
    )
