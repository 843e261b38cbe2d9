"""The paper's numbers: read strictly, in our names, and in keeping with each other."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Literal, get_args

import pytest

import divtok
from divtok.families.family import FAMILIES
from divtok.paper.published_numbers import (
    FACTS,
    MODELS,
    NO_ESTIMATOR,
    PaperTable,
    Published,
    published,
    whitebox_average,
)
from divtok.problems.benchmark import BENCHMARKS
from divtok.score.registry import ESTIMATORS

PACKAGED = Path(divtok.__file__).parent / "paper" / "published"
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "paper"
FILES = ("whitebox_ece.csv", "whitebox_auroc.csv", "blackbox.csv", "verbalized_with_dtc.csv")
DEEPSEEK = "deepseek-ai/DeepSeek-V3.2"
STATED = ("verbalized", "verbalized_top2", "verbalized_distribution")


def cell(
    table: PaperTable, generator: str, benchmark: str, estimator: str, protocol: str = "cot"
) -> Published:
    [found] = [
        p
        for p in published(table)
        if (p.generator, p.benchmark, p.estimator, p.protocol)
        == (generator, benchmark, estimator, protocol)
    ]
    return found


@pytest.mark.skipif(not SHARED.is_dir(), reason="the paper is not beside the repository")
@pytest.mark.parametrize("file", FILES)
def test_the_packaged_tables_are_those_of_the_paper(file: str) -> None:
    assert (PACKAGED / file).read_bytes() == (SHARED / file).read_bytes()


def test_nothing_else_lies_beside_the_tables() -> None:
    assert {path.name for path in PACKAGED.iterdir()} == {*FILES, "facts.csv"}


def test_tables_have_all_their_cells() -> None:
    assert len(published("whitebox")) == 8 * 4 * 10
    # Three generators and four benchmarks: CoT alone, PRM and two DTCs; then three protocols with
    # the stated confidence and two DTCs.
    assert len(published("blackbox")) == 3 * 4 * (4 + 3 * 3)
    assert len(published("verbalized_with_dtc")) == 3 * 4 * 3 * 2


@pytest.mark.parametrize("table", get_args(PaperTable))
def test_every_name_is_one_of_ours(table: PaperTable) -> None:
    generators = {g.model for family in FAMILIES for g in family.generators}
    for p in published(table):
        assert p.generator in generators
        assert p.benchmark in BENCHMARKS.names()
        assert p.estimator in ESTIMATORS.names() or p.estimator == NO_ESTIMATOR
        assert all(v is None or 0 <= v <= 1 for v in (p.accuracy, p.ece, p.auroc))


def test_cells_read_as_printed_in_the_paper() -> None:
    assert cell("whitebox", "Qwen/Qwen2.5-7B-Instruct", "math500", "nsl") == Published(
        "math500", "Qwen/Qwen2.5-7B-Instruct", "cot", "nsl", 0.761, 0.436, 0.670
    )
    lin = cell("whitebox", "google/gemma-3-27b-it", "aime25", "dtc_lin")
    assert (lin.accuracy, lin.ece, lin.auroc) == (0.253, 0.111, 0.790)
    prm = cell("whitebox", "Qwen/Qwen3-14B", "amc23", "prm")
    assert (prm.ece, prm.auroc) == (0.120, 0.895)
    plain = cell("blackbox", DEEPSEEK, "hmmt26", NO_ESTIMATOR)
    assert (plain.accuracy, plain.ece, plain.auroc) == (0.509, None, None)
    stated = cell("blackbox", DEEPSEEK, "aime24", "verbalized", "verbalized_top2")
    assert (stated.accuracy, stated.ece, stated.auroc) == (0.646, 0.320, 0.884)
    prod = cell(
        "blackbox", "Qwen/Qwen3-30B-A3B-Instruct-2507", "aime25", "dtc_prod", "verbalized_top2"
    )
    assert (prod.accuracy, prod.ece, prod.auroc) == (None, 0.470, 0.502)
    combined = cell(
        "verbalized_with_dtc", "Qwen/Qwen3-4B-Instruct-2507", "hmmt26", "verbalized_dtc",
        "verbalized_distribution",
    )  # fmt: skip
    assert (combined.accuracy, combined.ece, combined.auroc) == (None, 0.299, 0.734)


def test_only_basecal_of_the_model_without_a_base_is_missing() -> None:
    missing = {(p.generator, p.estimator) for p in published("whitebox") if p.ece is None}
    assert missing == {("Qwen/Qwen3-32B", "basecal")}
    assert missing == {(p.generator, p.estimator) for p in published("whitebox") if p.auroc is None}


def test_both_black_box_tables_state_the_same_figures() -> None:
    def stated(table: PaperTable) -> dict[tuple[str, str, str], tuple[float | None, float | None]]:
        rows = [p for p in published(table) if p.estimator == "verbalized"]
        return {(p.generator, p.benchmark, p.protocol): (p.ece, p.auroc) for p in rows}

    assert stated("blackbox") == stated("verbalized_with_dtc")


def test_no_cell_is_there_twice() -> None:
    for table in get_args(PaperTable):
        cells = [(p.benchmark, p.generator, p.protocol, p.estimator) for p in published(table)]
        assert len(set(cells)) == len(cells)


def test_both_white_box_tables_are_about_the_same_responses() -> None:
    def heads(file: str) -> list[list[str]]:
        return [row[:3] for row in csv.reader((PACKAGED / file).read_text("utf-8").splitlines())]

    assert heads("whitebox_ece.csv") == heads("whitebox_auroc.csv")


# Cells and means are rounded to 0.1 points: half of that from the mean's own rounding, and as much
# again at the very most from the cells'; 0.01 for sums in binary.
ROUNDING = 0.00051


@pytest.mark.parametrize("metric", ["ece", "auroc"])
def test_the_printed_averages_are_those_of_the_cells(metric: Literal["ece", "auroc"]) -> None:
    for name, average in whitebox_average(metric).items():
        cells = [p for p in published("whitebox") if name in ("accuracy", p.estimator)]
        values = [getattr(p, "accuracy" if name == "accuracy" else metric) for p in cells]
        known = [value for value in values if value is not None]
        assert sum(known) / len(known) == pytest.approx(average, abs=ROUNDING)


def test_the_averages_are_those_of_the_paper() -> None:
    ece, auroc = whitebox_average("ece"), whitebox_average("auroc")
    assert ece["accuracy"] == auroc["accuracy"] == 0.480
    assert (ece["dtc_lin"], ece["dtc_prod"]) == (0.130, 0.132)
    assert (auroc["dtc_prod"], auroc["uqac_mean"]) == (0.808, 0.667)


@pytest.mark.parametrize(
    ("metric", "estimator", "protocols", "generators", "low", "high"),
    [
        ("accuracy", NO_ESTIMATOR, ("cot",), (DEEPSEEK,), 0.575, 0.575),
        ("accuracy", "verbalized", STATED, (DEEPSEEK,), 0.449, 0.515),
        ("ece", "verbalized", STATED, (DEEPSEEK,), 0.321, 0.402),
        ("ece", "dtc_lin", STATED, (DEEPSEEK,), 0.137, 0.163),
        ("ece", "dtc_lin", ("cot",), tuple(MODELS.values())[-3:], 0.115, 0.127),
    ],
)
def test_the_means_that_the_text_states_are_those_of_the_cells(
    metric: str,
    estimator: str,
    protocols: tuple[str, ...],
    generators: tuple[str, ...],
    low: float,
    high: float,
) -> None:
    means: list[float] = []
    for generator in generators:
        for protocol in protocols:
            where = (generator, protocol, estimator)
            cells = [
                getattr(p, metric)
                for p in published("blackbox")
                if (p.generator, p.protocol, p.estimator) == where
            ]
            means.append(sum(cells) / len(cells))
    assert (min(means), max(means)) == pytest.approx((low, high), abs=ROUNDING)


def test_facts_that_follow_from_the_tables_do() -> None:
    table = published("verbalized_with_dtc")
    pairs = [
        (one, other)
        for one in table
        for other in table
        if one.generator == other.generator == DEEPSEEK
        and (one.benchmark, one.protocol) == (other.benchmark, other.protocol)
        and (one.estimator, other.estimator) == ("verbalized", "verbalized_dtc")
    ]
    assert len(pairs) == 12
    falls = [a.ece - b.ece for a, b in pairs if a.ece is not None and b.ece is not None]
    rises = [b.auroc - a.auroc for a, b in pairs if a.auroc is not None and b.auroc is not None]
    ece, auroc = FACTS["with-dtc-ece"], FACTS["with-dtc-auroc"]
    assert (min(falls), max(falls)) == pytest.approx((ece.low, ece.high))
    assert (min(rises), max(rises)) == pytest.approx((auroc.low, auroc.high))
    uqac, prod = (whitebox_average("ece")[name] for name in ("uqac_mean", "dtc_prod"))
    assert uqac is not None
    assert prod is not None
    assert uqac - prod == pytest.approx(FACTS["prod-against-uqac"].low)


def test_facts_agree_with_the_families() -> None:
    for name in ("qwen2.5", "qwen3", "gemma3", "blackbox"):
        assert FACTS[f"theta-{name}"].low == FAMILIES.get(name).theta
    assert all(fact.key == key and fact.low <= fact.high for key, fact in FACTS.items())


def test_the_count_facts_are_those_of_the_paper() -> None:
    ranges = {key: (fact.low, fact.high) for key, fact in FACTS.items()}
    assert ranges["count-zero"] == ranges["ratio-lowest"] == (0.97, 0.99)
    assert ranges["count-many"] == (0.24, 0.29)
    assert ranges["ratio-highest"] == (0.45, 0.54)
    assert (ranges["count-r"][0], ranges["ratio-r"][0]) == (-0.985, -0.937)


def test_models_have_their_name_in_the_paper() -> None:
    assert MODELS["Qwen2.5-7B"] == "Qwen/Qwen2.5-7B-Instruct"
    assert MODELS["Gemma3-12B"] == "google/gemma-3-12b-it"
    assert len(set(MODELS.values())) == len(MODELS) == 11
