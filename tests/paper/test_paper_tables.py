"""The paper's tables from handmade runs, with the paper's figures beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from paper_samples import (
    QWEN,
    Response,
    balanced_figures,
    named,
    random_run,
    tiny_material,
    tiny_overrides,
    write_run,
)

from divtok.errors import DataError, NothingScoredError
from divtok.paper import tables
from divtok.paper.exhibit import Exhibit
from divtok.paper.published_numbers import whitebox_average
from divtok.paper.recipe import named_runs, recipes
from divtok.paper.run_tables import Material
from divtok.protocols.wording import Wording, own_wording
from divtok.records import Verdict
from divtok.report.render import to_csv, to_markdown
from divtok.report.tables import Bounded, Cell, ReportRow, ReportTable

STATED = ("verbalized", "verbalized_top2", "verbalized_distribution")
QWEN3_4B = "Qwen/Qwen3-4B-Instruct-2507"
# The last row of both white-box tables, as printed.
AVERAGES = {
    "ece": {
        "nsl": 39.3, "mean_prob": 42.4, "entropy": 32.7, "basecal": 39.0, "uqac_attn": 30.8,
        "uqac_mean": 23.6, "verbalized": 35.0, "dtc_prod": 13.2, "dtc_lin": 13.0, "prm": 18.1,
    },
    "auroc": {
        "nsl": 73.8, "mean_prob": 72.7, "entropy": 73.2, "basecal": 61.8, "uqac_attn": 61.6,
        "uqac_mean": 66.7, "verbalized": 73.5, "dtc_prod": 80.8, "dtc_lin": 75.3, "prm": 90.4,
    },
}  # fmt: skip
# Confidence of a right and of a wrong response; ECE and AUROC follow in the head: with 0.9 for
# both, half of them right, ECE is 0.4 and AUROC one half.
VALUES: dict[str, tuple[float | None, float | None]] = {
    "nsl": (0.9, 0.9),
    "mean_prob": (0.8, 0.6),  # |1 - 0.8| and |0 - 0.6|: ECE 0.4
    "entropy": (1.0, 1.0),
    "basecal": (None, None),
    "uqac_attn": (0.3, 0.7),
    "uqac_mean": (0.5, 0.5),
    "verbalized": (1.0, 0.0),
    "dtc_prod": (0.7, 0.5),
    "dtc_lin": (0.95, 0.05),
    "prm": (0.9, 0.1),
    "length": (-5.0, -9.0),
    "count": (-1.0, -1.0),
}


def pair_of_responses(
    benchmark: str, generator: str, values: Mapping[str, tuple[float | None, float | None]]
) -> list[Response]:
    """One right and one wrong response, so that every balanced draw is both of them."""
    return [
        Response(
            benchmark,
            generator,
            verdict.value,
            verdict=verdict,
            values={name: pair[place] for name, pair in values.items()},
        )
        for place, verdict in enumerate((Verdict.CORRECT, Verdict.INCORRECT))
    ]


def whitebox_run(folder: Path, *benchmarks: str) -> None:
    config = named("whitebox-qwen2.5", f"generators=['{QWEN}']").config
    rows = [r for name in benchmarks for r in pair_of_responses(name, QWEN, VALUES)]
    write_run(folder / "whitebox-qwen2.5", config, rows)


def make(name: str, material: Material) -> Exhibit:
    recipe = recipes()[name]
    builder = {"whitebox-table": tables.whitebox, "blackbox-table": tables.blackbox}
    return builder.get(recipe.exhibit, tables.verbalized)(recipe, material)


def row_named(table: ReportTable, name: str, section: str | None = None) -> ReportRow:
    [found] = [r for r in table.rows if r.cells[0] == name and r.section == section]
    return found


def figures(table: ReportTable, name: str, section: str | None = None) -> dict[str, Cell]:
    row = row_named(table, name, section)
    return {c.key: cell for c, cell in zip(table.columns, row.cells, strict=True)}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return tiny_material(tmp_path_factory)


@pytest.fixture
def qwen(tmp_path: Path) -> Exhibit:
    whitebox_run(tmp_path, "math500", "aime25")
    return tables.whitebox(recipes()["table-whitebox"], Material(tmp_path, "qwen2.5"))


def test_the_papers_row_and_the_difference_stand_below_ours(qwen: Exhibit) -> None:
    names = [(r.section, r.cells[0]) for r in qwen.tables[0].rows]
    short = "Qwen2.5-7B-Instruct"
    assert names == [
        *(
            (section, name)
            for section in ("math500", "aime25")
            for name in (QWEN, f"{short}: paper", f"{short}: ours - paper")
        ),
        (None, "Mean"),
        (None, "Mean: paper, same cells"),
        (None, "Paper's average"),
    ]
    # MATH-500 and AIME25 of Qwen2.5-7B: 43.6 and 42.4.
    assert figures(qwen.tables[0], "Mean: paper, same cells")["nsl"] == pytest.approx(0.430)
    # Two responses are few, and only means over them are ranked.
    assert [r.few for r in qwen.tables[0].rows] == [True, False, False] * 2 + [False] * 3
    assert [r.ranked for r in qwen.tables[0].rows] == [False] * 6 + [True, False, False]


def test_the_papers_figures_are_those_printed(qwen: Exhibit) -> None:
    ece, auroc, *_ = qwen.tables
    estimators = [
        "nsl", "mean_prob", "entropy", "basecal", "uqac_attn", "uqac_mean", "verbalized",
        "dtc_prod", "dtc_lin", "prm",
    ]  # fmt: skip
    printed = {
        ("math500", 0): [43.6, 45.3, 32.8, 43.7, 26.8, 12.7, 44.2, 20.0, 13.4, 9.8],
        ("math500", 1): [67.0, 66.5, 61.4, 58.5, 59.2, 62.0, 74.7, 80.4, 83.8, 95.4],
        ("aime25", 0): [42.4, 44.4, 31.0, 43.1, 26.6, 16.2, 37.3, 11.2, 20.5, 25.2],
        ("aime25", 1): [79.3, 78.9, 77.8, 78.7, 67.7, 71.1, 69.6, 76.5, 64.3, 88.6],
    }
    accuracy = {"math500": 76.1, "aime25": 9.1}
    for (benchmark, which), expected in printed.items():
        found = figures((ece, auroc)[which], "Qwen2.5-7B-Instruct: paper", benchmark)
        assert [found[name] for name in estimators] == pytest.approx([v / 100 for v in expected])
        assert found["accuracy"] == pytest.approx(accuracy[benchmark] / 100)
    theirs = figures(auroc, "Qwen2.5-7B-Instruct: paper", "math500")
    assert (theirs["length"], theirs["count"]) == (None, None)
    # Rankings have no ECE, and so no column there.
    assert not {"length", "count"} & {column.key for column in ece.columns}
    better = {column.key: column.better for column in auroc.columns}
    assert (better["length"], better["count"], better["prm"]) == (None, None, None)
    assert (better["dtc_prod"], better["nsl"]) == ("higher", "higher")
    assert "Not in the paper and not ranked: Length, Count." in auroc.caption
    assert "not ranked" not in ece.caption


def test_ours_and_the_difference_by_hand(qwen: Exhibit) -> None:
    ece, auroc = (figures(table, QWEN, "math500") for table in qwen.tables[:2])
    assert ece["accuracy"] == 0.5
    expected = {"nsl": 0.4, "mean_prob": 0.4, "entropy": 0.5, "uqac_attn": 0.7, "uqac_mean": 0.0,
                "verbalized": 0.0, "dtc_prod": 0.4, "dtc_lin": 0.05, "prm": 0.1}  # fmt: skip
    assert {name: ece[name] for name in expected} == pytest.approx(expected)
    ranks = {"nsl": 0.5, "mean_prob": 1.0, "uqac_attn": 0.0, "length": 1.0, "count": 0.5}
    assert {name: auroc[name] for name in ranks} == ranks
    assert (ece["basecal"], auroc["basecal"]) == (None, None)
    less, higher = (
        figures(table, "Qwen2.5-7B-Instruct: ours - paper", "math500") for table in qwen.tables[:2]
    )
    assert (less["accuracy"], higher["accuracy"]) == pytest.approx((-0.261, -0.261))
    expected = {"nsl": -0.036, "entropy": 0.172, "dtc_lin": -0.084}
    assert {name: less[name] for name in expected} == pytest.approx(expected)
    assert (higher["dtc_lin"], higher["uqac_attn"]) == pytest.approx((0.162, -0.592))
    assert (less["basecal"], higher["length"]) == (None, None)
    text = to_markdown(qwen.tables[0])
    [line] = [line for line in text.splitlines() if "ours - paper" in line and "math500" in line]
    assert "| +17.2 |" in line  # differences are printed with their sign
    assert "| -26.1 |" in line


def test_our_mean_is_over_our_rows_and_the_papers_over_all_of_its_own(qwen: Exhibit) -> None:
    ece, auroc, *_ = qwen.tables
    assert figures(ece, "Mean")["dtc_lin"] == pytest.approx(0.05)
    for metric, table in (("ece", ece), ("auroc", auroc)):
        average = figures(table, "Paper's average")
        for estimator, percent in AVERAGES[metric].items():
            value = average[estimator]
            assert isinstance(value, float)
            # Half of 0.1 from the printed mean's rounding, and as much at most from the cells'.
            assert 100 * value == pytest.approx(percent, abs=0.1)
        accuracy = average["accuracy"]
        assert isinstance(accuracy, float)
        assert 100 * accuracy == pytest.approx(48.0, abs=0.1)
    assert "its 8 generators and 4 benchmarks" in ece.caption


def test_the_average_is_the_one_that_the_paper_prints(qwen: Exhibit) -> None:
    ece, auroc = (figures(table, "Paper's average") for table in qwen.tables[:2])
    for average, printed in ((ece, whitebox_average("ece")), (auroc, whitebox_average("auroc"))):
        assert {name: average[name] for name in printed} == printed


def test_natural_figures_follow_and_the_paper_has_none(qwen: Exhibit) -> None:
    natural, brier = qwen.tables[2:]
    # One right and one wrong response, each with the confidences of VALUES.
    right, wrong = VALUES["dtc_lin"]
    assert right is not None
    assert wrong is not None
    cell = figures(brier, QWEN, "math500")["dtc_lin"]
    assert isinstance(cell, Bounded)
    assert cell.value == pytest.approx(((1 - right) ** 2 + wrong**2) / 2)
    for table in (natural, brier):
        assert [str(row.cells[0]) for row in table.rows] == [QWEN, QWEN, "Mean"]


BEYOND: dict[str, tuple[float | None, float | None]] = {
    "cmp": (0.6, 0.3),  # |1 - 0.6| and |0 - 0.3|: ECE 0.35
    "cme": (0.5, 0.7),
    "deepconf_group": (-0.5, -0.9),
    "deepconf_tail": (-0.9, -0.5),
    "self_certainty_reverse": (-0.5, -0.5),
}


def test_what_the_paper_does_not_have_stands_in_tables_of_its_own(tmp_path: Path) -> None:
    whitebox_run(tmp_path / "without", "math500", "aime25")
    config = named("whitebox-qwen2.5", f"generators=['{QWEN}']").config
    both = VALUES | BEYOND
    rows = [r for name in ("math500", "aime25") for r in pair_of_responses(name, QWEN, both)]
    write_run(tmp_path / "with" / "whitebox-qwen2.5", config, rows)
    without, found = (
        tables.whitebox(recipes()["table-whitebox"], Material(tmp_path / name, "qwen2.5"))
        for name in ("without", "with")
    )
    # The tables with the paper's rows are the same with them and without.
    assert [to_csv(t) for t in found.tables[:4]] == [to_csv(t) for t in without.tables]
    assert found.findings == without.findings
    ece, auroc = found.tables[4:]
    for table in (ece, auroc):
        assert table.title.startswith("Not in the paper: ")
        assert "Of these the paper has figures for DTC alone." in table.caption
        assert not any("aper" in str(row.cells[0]) for row in table.rows)
    assert [c.key for c in ece.columns[3:]] == ["cmp", "cme", "dtc_lin", "dtc_prod"]
    assert [c.key for c in auroc.columns[3:]] == [
        "cmp", "cme", "deepconf_group", "deepconf_tail", "self_certainty_reverse",
        "length", "count", "dtc_lin", "dtc_prod",
    ]  # fmt: skip
    calibrated, ranked = (figures(table, QWEN, "math500") for table in (ece, auroc))
    assert {name: calibrated[name] for name in ("cmp", "cme")} == pytest.approx(
        {"cmp": 0.35, "cme": 0.6}
    )
    assert {name: ranked[name] for name in BEYOND} == {
        "cmp": 1.0,
        "cme": 0.0,
        "deepconf_group": 1.0,
        "deepconf_tail": 0.0,
        "self_certainty_reverse": 0.5,
    }


def test_ranks_are_among_ours_alone(qwen: Exhibit) -> None:
    text = to_markdown(qwen.tables[0])
    lines = [line for line in text.splitlines() if "paper" in line and line.startswith("|")]
    assert len(lines) == 5
    assert not any("**" in line for line in lines)


def test_every_figure_of_the_csv_is_a_fraction(qwen: Exhibit) -> None:
    for row in csv.DictReader(io.StringIO(to_csv(qwen.tables[0]))):
        assert row["nsl"] == "" or -1 <= float(row["nsl"]) <= 1


def test_models_the_paper_does_not_have_stand_alone(tiny: Material) -> None:
    exhibit = make("table-whitebox", tiny)
    for table in exhibit.tables[:2]:
        names = [str(r.cells[0]) for r in table.rows]
        assert len(names) == 4 * 3 + 2
        assert names[-2:] == ["Mean", "Paper's average"]
        assert not any("paper" in name for name in names[:-1])


def test_white_box_figures_are_those_of_the_balanced_draws(tiny: Material) -> None:
    exhibit = make("table-whitebox", tiny)
    [run] = tiny.runs(recipes()["table-whitebox"])
    verdicts = {g.key: g.verdict for g in run.store.grades.read()}
    rows = [
        t
        for t in run.store.trajectories.read()
        if (t.benchmark, t.generator) == ("arith-hard", "divtok/tiny-0.9m")
    ]
    kept = [t for t in rows if not t.truncated and verdicts[t.key] != Verdict.UNANSWERED]
    kept.sort(key=lambda t: (t.problem_id, t.sample))
    assert 0 < len(kept) < len(rows)
    right = [verdicts[t.key] == Verdict.CORRECT for t in kept]
    for estimator in ("basecal", "uqac_mean", "dtc_lin", "prm"):
        values = {c.key: c.value for c in run.store.confidences.read() if c.estimator == estimator}
        confidence = np.array([values[t.key] for t in kept], dtype=np.float64)
        expected = balanced_figures(confidence.tolist(), right)
        found = tuple(
            figures(table, "divtok/tiny-0.9m", "arith-hard")[estimator]
            for table in exhibit.tables[:2]
        )
        assert found == pytest.approx(expected)
    accuracy = sum(verdicts[t.key] == Verdict.CORRECT for t in rows) / len(rows)
    assert figures(exhibit.tables[0], "divtok/tiny-0.9m", "arith-hard")["accuracy"] == accuracy


def blackbox_runs(
    folder: Path, values: Mapping[str, tuple[float, float]], *benchmarks: str
) -> None:
    """The plain run and the three protocols, each with these confidences."""
    plain = named("blackbox-qwen3-4b")
    chosen = {"cot": plain.config} | {
        protocol: plain.config.model_copy(update={"protocol": protocol}) for protocol in STATED
    }
    for protocol, config in chosen.items():
        name = plain.name if protocol == "cot" else f"{plain.name}-stated-{protocol}"
        names = ["dtc_lin", "dtc_prod", "prm"] if protocol == "cot" else [
            "verbalized", "verbalized_dtc", "dtc_lin", "dtc_prod"]  # fmt: skip
        names += [*BEYOND]
        held = {n: values[n] for n in names if n in values}
        rows = [r for b in benchmarks for r in pair_of_responses(b, QWEN3_4B, held)]
        write_run(folder / name, config, rows)


BLACKBOX = {
    "verbalized": (0.9, 0.9),
    "verbalized_dtc": (0.9, 0.5),
    "dtc_lin": (0.8, 0.2),
    "dtc_prod": (0.4, 0.4),
    "prm": (0.7, 0.9),
}


@pytest.fixture
def qwen3_4b(tmp_path: Path) -> Material:
    blackbox_runs(tmp_path, BLACKBOX, "aime24", "aime25")
    return Material(tmp_path, None)


def test_the_black_box_table_has_each_method_under_each_protocol(qwen3_4b: Material) -> None:
    [table] = make("table-blackbox-qwen3-4b", qwen3_4b).tables
    ours = [str(r.cells[0]) for r in table.rows if r.ranked]
    stated = ["Verb. Conf.", "Verb. TopK", "Verb. PD"]
    assert ours == [
        "Default CoT",
        "Default CoT + PRM",
        "Default CoT + DTC lin",
        "Default CoT + DTC prod",
        *(f"{name}{method}" for name in stated for method in ("", " + DTC lin", " + DTC prod")),
    ]
    assert [c.key for c in table.columns] == [
        "method",
        *(
            f"{where}_{what}"
            for where in ("aime24", "aime25", "Mean")
            for what in ("acc", "ece", "auc")
        ),
    ]
    assert (
        "Read by Qwen2.5-7B-Instruct and Qwen2.5-1.5B-Instruct, theta = 0.7 bits." in table.caption
    )
    assert "Left out: 0 of 16 responses." in table.caption
    for name in ("cot", *STATED):
        assert f"{name} {own_wording(name).short_hash}, divtok's own" in table.caption


def test_a_table_says_whose_words_stand_beside_the_papers_figures(
    tmp_path: Path, qwen: Exhibit
) -> None:
    for table in qwen.tables[:2]:
        words = own_wording("cot")
        assert f"Wording: cot {words.short_hash}, divtok's own ({words.source})." in table.caption
    file = tmp_path / "theirs.yaml"
    file.write_text("kind: verbalized\nsource: Figure 0\nuser: '{question} As JSON.'\n")
    given = [f"protocols.verbalized={file}"]
    for run in named_runs("blackbox-qwen3-4b-stated", given):
        write_run(tmp_path / run.name, run.config, pair_of_responses("aime24", QWEN3_4B, BLACKBOX))
    material = Material(tmp_path, None, given)
    [table] = make("table-verbalized-qwen3-4b", material).tables
    digest = Wording("x", "verbalized", "{question} As JSON.").short_hash
    assert f"Wording: verbalized {digest}, the user's 'theirs' (Figure 0); " in table.caption
    assert figures(table, "Verb. Conf.: ours - paper")["aime24_ece"] is not None
    top2 = own_wording("verbalized_top2")
    assert f"verbalized_top2 {top2.short_hash}, divtok's own; " in table.caption


def test_what_the_paper_does_not_have_follows_the_black_box_table(tmp_path: Path) -> None:
    blackbox_runs(tmp_path, BLACKBOX | {"cmp": (0.6, 0.3), "deepconf_tail": (-0.9, -0.5)}, "aime24")
    table, beyond = make("table-blackbox-qwen3-4b", Material(tmp_path, None)).tables
    assert not any("CMP" in str(row.cells[0]) for row in table.rows)
    assert beyond.title == "Not in the paper: Black-box: Qwen3-4B-Instruct-2507"
    assert "Of these the paper has figures for DTC alone." in beyond.caption
    assert [str(row.cells[0]) for row in beyond.rows] == [
        f"{protocol} + {name}"
        for protocol in ("Default CoT", "Verb. Conf.", "Verb. TopK", "Verb. PD")
        for name in ("CMP", "DeepConf tail", "DTC lin", "DTC prod")
    ]
    cmp, tail = (figures(beyond, f"Default CoT + {name}") for name in ("CMP", "DeepConf tail"))
    assert (cmp["aime24_ece"], cmp["aime24_auc"]) == (pytest.approx(0.35), 1.0)
    assert (tail["aime24_ece"], tail["aime24_auc"]) == (None, 0.0)


def test_black_box_figures_beside_the_papers(qwen3_4b: Material) -> None:
    [table] = make("table-blackbox-qwen3-4b", qwen3_4b).tables
    plain = figures(table, "Default CoT")
    assert plain == {
        "method": "Default CoT",
        **{f"{where}_acc": 0.5 for where in ("aime24", "aime25", "Mean")},
        **{f"{w}_{m}": None for w in ("aime24", "aime25", "Mean") for m in ("ece", "auc")},
    }
    paper = figures(table, "Default CoT: paper")
    assert (paper["aime24_acc"], paper["aime25_acc"]) == (0.614, 0.456)
    assert paper["Mean_acc"] == pytest.approx((0.614 + 0.456) / 2)  # of the benchmarks above
    assert figures(table, "Default CoT: ours - paper")["aime24_acc"] == pytest.approx(-0.114)
    lin = figures(table, "Verb. Conf. + DTC lin")
    assert (lin["aime24_acc"], lin["Mean_acc"]) == (None, None)  # no trajectories of its own
    assert (lin["aime24_ece"], lin["aime24_auc"]) == (pytest.approx(0.2), 1.0)
    prm = figures(table, "Default CoT + PRM")
    assert (prm["aime25_ece"], prm["aime25_auc"]) == (pytest.approx(0.6), 0.0)
    theirs = figures(table, "Default CoT + PRM: paper")
    assert (theirs["aime24_ece"], theirs["aime24_auc"]) == (0.360, 0.829)
    difference = figures(table, "Default CoT + PRM: ours - paper")["aime24_ece"]
    assert difference == pytest.approx(0.24)
    stated = figures(table, "Verb. TopK")
    assert (stated["aime24_acc"], stated["aime24_ece"]) == (0.5, pytest.approx(0.4))


def test_the_mean_is_over_the_benchmarks(tiny: Material) -> None:
    table, _ = make("table-blackbox-deepseek", tiny).tables
    for row in table.rows:
        cells = {c.key: v for c, v in zip(table.columns, row.cells, strict=True)}
        for what in ("acc", "ece", "auc"):
            there = [
                cells[f"{b}_{what}"]
                for b in ("arith-easy", "arith-medium", "arith-hard", "arith-contest")
            ]
            known = [v for v in there if isinstance(v, float)]
            mean = cells[f"Mean_{what}"]
            assert mean == (pytest.approx(sum(known) / len(known)) if known else None)
    assert not any("paper" in str(row.cells[0]) for row in table.rows)


def test_the_verbalized_table(qwen3_4b: Material) -> None:
    exhibit = make("table-verbalized-qwen3-4b", qwen3_4b)
    [table] = exhibit.tables
    ours = [str(r.cells[0]) for r in table.rows if r.ranked]
    assert ours == [
        f"{p}{m}" for p in ("Verb. Conf.", "Verb. TopK", "Verb. PD") for m in ("", " w/ DTC")
    ]
    assert not any(c.key.endswith("acc") for c in table.columns)
    combined = figures(table, "Verb. PD w/ DTC")
    assert (combined["aime24_ece"], combined["Mean_auc"]) == (pytest.approx(0.3), 1.0)
    # ECE falls in all six cases, and AUROC goes from 0.5 to 1; of so few problems that is nothing.
    lower, little, *_ = exhibit.findings
    assert {f.holds for f in exhibit.findings} == {None}
    assert len(lower.compared) == 6
    assert all(one.difference < 0 for one in lower.compared)
    assert {one.difference for one in little.compared} == {0.5}
    assert "and an interval needs 20" in lower.number


@pytest.mark.parametrize("name", ["table-blackbox-qwen3-4b", "table-verbalized-qwen3-4b"])
def test_a_table_of_one_generator_refuses_two(tmp_path: Path, name: str) -> None:
    blackbox_runs(tmp_path, BLACKBOX, "aime24")
    other = named("blackbox-qwen3-30b", "protocol=verbalized").config
    rows = pair_of_responses("aime24", "Qwen/Qwen3-30B-A3B-Instruct-2507", BLACKBOX)
    folder = tmp_path / "blackbox-qwen3-4b-stated-verbalized"
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    write_run(folder, other, rows)
    with pytest.raises(DataError, match="runs of 2"):
        make(name, Material(tmp_path, None))


def test_a_method_without_figures_keeps_its_row(tmp_path: Path) -> None:
    blackbox_runs(tmp_path, {k: v for k, v in BLACKBOX.items() if k != "prm"}, "aime24")
    [table] = make("table-blackbox-qwen3-4b", Material(tmp_path, None)).tables
    assert figures(table, "Default CoT + PRM")["aime24_ece"] is None
    assert figures(table, "Default CoT + PRM: paper")["aime24_ece"] == 0.360


def test_one_class_has_an_accuracy_and_no_other_figure(tmp_path: Path) -> None:
    blackbox_runs(tmp_path, BLACKBOX, "aime24")
    config = named("blackbox-qwen3-4b").config
    folder = tmp_path / "other"
    rows = pair_of_responses(
        "aime24", QWEN3_4B, {k: BLACKBOX[k] for k in ("dtc_lin", "dtc_prod", "prm")}
    )
    write_run(folder / "blackbox-qwen3-4b", config, rows[:1])
    for protocol in STATED:
        name = f"blackbox-qwen3-4b-stated-{protocol}"
        (tmp_path / name).rename(folder / name)
    [table] = make("table-blackbox-qwen3-4b", Material(folder, None)).tables
    assert figures(table, "Default CoT")["aime24_acc"] == 1.0
    lin = figures(table, "Default CoT + DTC lin")
    assert (lin["aime24_ece"], lin["Mean_auc"]) == (None, None)
    assert figures(table, "Default CoT + DTC lin: ours - paper")["aime24_ece"] is None


def test_means_are_compared_over_the_same_benchmarks(tmp_path: Path) -> None:
    values = {k: BLACKBOX[k] for k in ("dtc_lin", "dtc_prod", "prm")}
    rows = [
        *pair_of_responses("aime24", QWEN3_4B, values),
        *pair_of_responses("aime25", QWEN3_4B, values)[:1],
    ]
    write_run(tmp_path / "blackbox-qwen3-4b", named("blackbox-qwen3-4b").config, rows)
    recipe = recipes()["table-blackbox-qwen3-4b"]
    alone = recipe.model_copy(
        update={"paper": recipe.paper.model_copy(update={"runs": ["blackbox-qwen3-4b"]})}
    )
    [table] = tables.blackbox(alone, Material(tmp_path, None)).tables
    name = "Default CoT + PRM"
    assert figures(table, name)["Mean_ece"] == pytest.approx(0.6)  # of AIME24 alone
    less = figures(table, f"{name}: ours - paper")["Mean_ece"]
    assert less == pytest.approx(0.6 - 0.360)  # over the benchmarks that both have


def test_a_run_that_was_not_scored_says_so(tmp_path: Path) -> None:
    config = named("whitebox-qwen2.5").config
    write_run(tmp_path / "whitebox-qwen2.5", config, pair_of_responses("math500", QWEN, {}))
    with pytest.raises(NothingScoredError, match="not read yet"):
        make("table-whitebox", Material(tmp_path, "qwen2.5"))


def test_each_table_of_the_tiny_side_counts_its_responses(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    run = named("blackbox-tiny-0.9m", *tiny_overrides())
    store = random_run(tmp_path / run.name, run.config)
    unusable = {g.key for g in store.grades.read() if g.verdict == Verdict.UNANSWERED}
    unusable |= {t.key for t in store.trajectories.read() if t.truncated}
    material = tiny_material(tmp_path_factory)
    table, _ = make("table-blackbox-qwen3-4b", material).tables
    stated = [r for r in material.opened() if r.config.protocol != "cot"]
    others = sum(
        len({g.key for g in r.store.grades.read() if g.verdict == Verdict.UNANSWERED}
            | {t.key for t in r.store.trajectories.read() if t.truncated})
        for r in stated
    )  # fmt: skip
    assert f"Left out: {len(unusable) + others} of {4 * 96} responses." in table.caption
