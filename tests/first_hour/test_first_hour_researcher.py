"""A researcher reads the README from the top, types what it says, and checks every number."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Command, Outcome
from first_hour_samples import FIRST, READER, STRONG, WEAK

from divtok.store.run import Run

ROOT = Path(__file__).parents[2]
Works = Callable[..., Outcome]


def plain(text: str) -> str:
    """Without the line breaks that fit it to a terminal."""
    return re.sub(r"\s+", " ", text)


def commands_of(page: str) -> list[str]:
    """The commands that a page prints, in its order, without their comments."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^    (divtok .+)$", text, flags=re.MULTILINE)
    return [re.sub(r"\s+#.*", "", line).strip() for line in lines]


# What takes a hub, a server, or a file or run that only the reader of the page has.
ELSEWHERE = re.compile(
    r"qwen|blackbox|\b[PQR]\b|URL|\.eval|math500|paper all|\bRUN\b|SMALL|divtok serve"
)


@pytest.mark.parametrize(
    "page", ["README.md", pytest.param("docs/tutorial.md", marks=pytest.mark.slow)]
)
def test_the_commands_of_a_page_work_in_the_order_in_which_it_prints_them(
    page: str, divtok: Command
) -> None:
    typed = [c for c in commands_of(page) if not ELSEWHERE.search(c)]
    assert len(typed) >= 5
    for command in typed:
        small = command.replace("--limit 20", "--limit 1 samples=1").split()[1:]
        if small[:1] == ["fit"]:
            continue  # reads 1,600 responses: see the tests of fit
        said = divtok(*(part.strip("'") for part in small))
        assert said.code == 0, f"{command}: {said.err}"


# The figures at its own prevalence


def test_natural_figures_stand_beside_the_balanced_ones(first: Path, works: Works) -> None:
    said = plain(works("evaluate", "first").out)
    assert re.search(r"balanced", said)
    assert re.search(r"own prevalence|natural", said, re.IGNORECASE)
    assert "Brier" in said


def test_a_sentence_says_how_often_it_is_right_and_what_dtc_says(first: Path, works: Works) -> None:
    run, said = Run.open(first), plain(works("evaluate", "first").out)
    keys = {t.key for t in run.trajectories.read() if t.generator == STRONG}
    grades = [g.verdict for g in run.grades.read() if g.key in keys]
    right = round(100 * sum(v == "correct" for v in grades) / len(grades))
    assert re.search(rf"{re.escape(STRONG)}\S* is right {right}(\.\d)? %", said)
    values = [
        c.value
        for c in run.confidences.read()
        if c.estimator == "dtc_lin" and c.key in keys and c.value is not None
    ]
    mean = round(100 * sum(values) / len(values))
    assert re.search(rf"dtc_lin says {mean}(\.\d)? %", said)


def test_natural_figures_come_with_a_number_of_responses_and_an_interval(
    first: Path, works: Works
) -> None:
    found = json.loads(works("evaluate", "first", "--json").out)
    scored = [e for e in found if e["estimator"] == "dtc_lin"]
    assert scored
    for evaluation in scored:
        assert evaluation["n_scored"] > 0
        assert 0 <= evaluation["mean_confidence"] <= 1
        assert "brier_interval" in evaluation


def test_figures_of_few_responses_are_marked(first: Path, works: Works) -> None:
    assert re.search(r"few responses|fewer than \d+", plain(works("evaluate", "first").out))


def test_the_page_of_the_report_names_the_best_at_natural_prevalence(first: Path) -> None:
    text = (first / "report" / "README.md").read_text()
    short = text[text.index("## In short") : text.index("\n### ")]
    assert "natural" in short or "own prevalence" in short
    assert re.search(r"is right \d+", short) or re.search(r"is right \d+", text)


def test_the_demo_shows_a_second_generator() -> None:
    from divtok.cli.demo import DEMO

    assert len(re.findall(r"divtok/tiny-\d\.\dm", " ".join(DEMO))) >= 2


# A run that grows


def test_more_problems_go_on_where_the_run_stopped(first: Path, works: Works) -> None:
    before = {t.key for t in Run.open(first).trajectories.read()}
    works("run", *FIRST, "limit=9", "--name", "first")
    run = Run.open(first)
    keys = {t.key for t in run.trajectories.read()}
    assert before < keys
    assert len(keys) == 72
    assert len(run.problems.read()) == 18


def test_more_samples_go_on_where_the_run_stopped(first: Path, works: Works) -> None:
    works("run", *FIRST, "samples=3", "--name", "first")
    assert len(Run.open(first).trajectories.read()) == 96


def test_another_generator_joins_the_run(first: Path, works: Works) -> None:
    works("run", "--generator", "divtok/tiny-0.9m", "--name", "first")
    generators = {t.generator for t in Run.open(first).trajectories.read()}
    assert generators == {WEAK, STRONG, "divtok/tiny-0.9m"}
    found = json.loads(works("evaluate", "first", "--json").out)
    assert {e["generator"] for e in found} == generators


def test_another_benchmark_joins_the_run(first: Path, works: Works) -> None:
    works("run", "--benchmark", "arith-medium", "--name", "first")
    found = json.loads(works("evaluate", "first", "--json").out)
    assert {e["benchmark"] for e in found} == {"arith-easy", "arith-hard", "arith-medium"}


def test_fewer_problems_are_refused_in_the_words_of_the_user(first: Path, divtok: Command) -> None:
    said = divtok("run", *FIRST, "limit=3", "--name", "first")
    assert said.code != 0
    assert "limit: 8 -> 3" in said.err
    assert not re.search(r"[0-9a-f]{16}", said.err)


def test_another_temperature_is_refused_in_the_words_of_the_user(
    first: Path, divtok: Command
) -> None:
    said = divtok("run", *FIRST, "sampling.temperature=0.5", "--name", "first")
    assert said.code != 0
    assert re.search(r"temperature: 1(\.0)? -> 0\.5", said.err)
    assert not re.search(r"[0-9a-f]{16}", said.err)


def test_a_theta_that_was_set_on_the_run_is_kept(first: Path, works: Works) -> None:
    works("score", "first", "--theta", "0.2")
    said = works("run", *FIRST, "--name", "first")
    assert {row.theta for row in Run.open(first).counts.read()} == {0.2}
    assert "0.2" in said.err


# The rows come back


def test_every_response_comes_back_with_its_confidences(first: Path, works: Works) -> None:
    lines = works("export", "first", "--format", "jsonl").out.splitlines()
    run = Run.open(first)
    assert len(lines) == len(run.trajectories.read()) == 64
    stored = {(c.key, c.estimator): c.value for c in run.confidences.read()}
    for row in map(json.loads, lines):
        assert {"question", "response", "verdict", "count"} <= row.keys()
        assert row["dtc_lin"] == stored[row["key"], "dtc_lin"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_come_back_as_a_table(kind: str, first: Path, works: Works) -> None:
    import polars as pl

    works("export", "first", "--format", kind, "--out", f"rows.{kind}")
    frame = pl.read_csv("rows.csv") if kind == "csv" else pl.read_parquet("rows.parquet")
    assert len(frame) == 64
    assert {"question", "response", "dtc_lin", "count"} <= set(frame.columns)


def test_a_row_can_be_looked_at(first: Path, works: Works) -> None:
    row = Run.open(first).trajectories.read()[0]
    said = works("show", "first", row.key).out
    assert row.text.strip().splitlines()[0][:20] in said.replace("[", "").replace("]", "")
    assert "dtc_lin" in said


@pytest.mark.parametrize("which", ["--least-trusted", "--confidently-wrong"])
def test_the_rows_that_matter_are_found(which: str, first: Path, works: Works) -> None:
    said = works("show", "first", which, "3").out
    keys = [t.key for t in Run.open(first).trajectories.read()]
    assert 1 <= sum(key[:8] in said for key in keys) <= 3


def test_runs_are_listed(first: Path, works: Works) -> None:
    shutil.copytree(first, first.parent / "second")
    said = works("ls", "runs").out
    assert "first" in said
    assert "second" in said
    assert "64" in said


# Figures


def test_a_figure_says_what_it_shows(first: Path) -> None:
    files = list((first / "report" / "figures").glob("reliability-*.json"))
    assert files
    for file in files:
        text = file.read_text()
        assert READER in text
        assert "theta" in text
        assert re.search(r'"n"|responses', text)


def test_the_same_claim_is_undecided_where_its_interval_includes_zero() -> None:
    from divtok.paper import claims

    assert "undecided" in Path(claims.__file__).read_text().lower()
