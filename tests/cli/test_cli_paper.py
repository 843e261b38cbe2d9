"""The verb paper on small runs of the tiny family."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from cli_samples import Outcome, call, environment
from console import Command
from filelock import FileLock

from divtok.cli.paper import as_data
from divtok.errors import EXIT_ERROR, EXIT_OK, EXIT_USAGE
from divtok.paper.build import is_finished
from divtok.paper.claims.listed import LISTED
from divtok.paper.recipe import TINY, chosen_recipes, recipes, runs_of
from divtok.store.run import Run

# One generator, the two pairs that the figure looks at, and both verdicts on either benchmark.
RECIPE = "figure-theta-curves-dual"
RUN = "blackbox-tiny-0.5m"
SMALL = ("limit=2", "samples=3", "benchmarks=['arith-medium','arith-hard']")

COUNT_THREADS = """
import sys
from pathlib import Path
from divtok.store.run import Run

def threads():
    names = [(t / "comm").read_text().strip() for t in Path("/proc/self/task").iterdir()]
    return len([name for name in names if name != "jemalloc_bg_thd"])

before = threads()
run = Run.open(Path(sys.argv[1]))
for table in run.tables:
    table.read()
print(threads() - before)
"""


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"  # touched by whoever would write
    }


def made_once(factory: pytest.TempPathFactory, name: str, *arguments: str) -> tuple[Path, Outcome]:
    """A folder that one test process fills with `divtok paper ...` for all of them."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, texts = root / name, [root / f"{name}.{kind}" for kind in ("out", "err")]
    with FileLock(root / f"{name}.lock"):
        if not texts[1].exists():
            said = call("paper", *arguments, "--out", folder)
            assert said.code == EXIT_OK, said.err
            for path, text in zip(texts, (said.out, said.err), strict=True):
                path.write_text(text)
    return folder, Outcome(EXIT_OK, texts[0].read_text(), texts[1].read_text())


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    return made_once(tmp_path_factory, "paper-one", RECIPE, "--family", "tiny", *SMALL)


def test_a_recipe_makes_its_run_and_its_page(made: tuple[Path, Outcome]) -> None:
    folder, said = made
    assert f"run 1 of 1: {RUN}" in said.err
    page = folder / "report-tiny" / f"{RECIPE}.html"
    assert said.err.splitlines()[-1] == f"page: {page}"
    text = page.read_text("utf-8")
    assert f"divtok paper {RECIPE} --family tiny" in text
    for suffix in ("svg", "png", "json"):
        assert (folder / "report-tiny" / "figures" / f"{RECIPE}.{suffix}").stat().st_size > 1000
    store = Run.open(folder / RUN)
    assert len(store.trajectories.read()) == 2 * 2 * 3
    assert len(store.traces.read()) == 2 * 2 * 2 * 3
    assert is_finished(store, runs_of(chosen_recipes(RECIPE), TINY, SMALL)[0])


def test_a_second_call_makes_nothing_again(made: tuple[Path, Outcome], divtok: Command) -> None:
    folder, _ = made
    before = contents(folder / RUN)
    said = divtok("paper", RECIPE, "--family", "tiny", *SMALL, "--out", folder)
    assert said.code == EXIT_OK
    assert "run 1" not in said.err
    assert "generate" not in said.err
    assert contents(folder / RUN) == before


def test_no_model_library_is_needed_once_the_run_is_there(made: tuple[Path, Outcome]) -> None:
    folder, _ = made
    without = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; "
        "from divtok.cli import main; main()"
    )
    arguments = ["paper", RECIPE, "--family", "tiny", *SMALL, "--out", str(folder), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", without, *arguments],
        env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == EXIT_OK, done.stderr
    assert json.loads(done.stdout)


def test_json_is_alone_on_standard_output(made: tuple[Path, Outcome], divtok: Command) -> None:
    said = divtok("paper", RECIPE, "--family", "tiny", *SMALL, "--out", made[0], "--json")
    assert said.code == EXIT_OK
    [exhibit] = json.loads(said.out)
    assert exhibit["recipe"] == RECIPE
    [figure] = exhibit["figures"]
    [[ece, auroc]] = figure["rows"]
    assert (ece["y_label"], auroc["y_label"]) == ("ECE (%)", "AUROC (%)")
    assert [len(line["x"]) for line in ece["lines"]] == [99] * len(ece["lines"])


def test_a_trial_grows_into_the_whole(
    made: tuple[Path, Outcome], tmp_path: Path, divtok: Command
) -> None:
    folder = shutil.copytree(made[0], tmp_path / "paper")
    more = ("limit=3", *SMALL[1:])
    said = divtok("paper", RECIPE, "--family", "tiny", *more, "--out", folder)
    assert said.code == EXIT_OK, said.err
    store = Run.open(folder / RUN)
    assert len(store.trajectories.read()) == 2 * 3 * 3
    assert is_finished(store, runs_of(chosen_recipes(RECIPE), TINY, more)[0])
    assert "goes on as it was made" not in said.err


def test_a_smaller_limit_is_refused(made: tuple[Path, Outcome], divtok: Command) -> None:
    folder, _ = made
    before = contents(folder / RUN)
    other = ("limit=1", *SMALL[1:])
    said = divtok("paper", RECIPE, "--family", "tiny", *other, "--out", folder)
    assert said.code == EXIT_ERROR
    assert "cannot go on with limit: 2 -> 1" in said.err
    assert contents(folder / RUN) == before


def test_the_advice_for_another_limit_is_another_folder(
    made: tuple[Path, Outcome], divtok: Command
) -> None:
    said = divtok("paper", RECIPE, "--family", "tiny", "limit=1", *SMALL[1:], "--out", made[0])
    assert "--out" in said.err


def test_the_command_on_the_page_has_the_overrides(made: tuple[Path, Outcome]) -> None:
    text = (made[0] / "report-tiny" / f"{RECIPE}.html").read_text("utf-8")
    assert f"divtok paper {RECIPE} --family tiny limit=2 samples=3" in text


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_reading_tables_starts_no_thread(made: tuple[Path, Outcome]) -> None:
    """One that still lets go of a Python buffer while Python ends would abort the process."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT_THREADS, str(made[0] / RUN)],
        env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) == 0


def plan_of(divtok: Command, *arguments: str) -> dict[str, Any]:
    said = divtok("paper", *arguments, "--plan", "--json")
    assert said.code == EXIT_OK, said.err
    return json.loads(said.out)


def test_a_plan_makes_nothing(tmp_path: Path, divtok: Command) -> None:
    folder = tmp_path / "runs"
    said = divtok("paper", "table-whitebox", "--plan", "--out", folder)
    assert (said.code, said.err) == (EXIT_OK, "")
    assert not folder.exists()
    for words in ("Qwen/Qwen3-32B", "google/gemma-3-27b-it", "500 x 8", "40 x 64", "30 x 64"):
        assert words in said.out


def test_a_plan_names_its_recipes_and_runs(tmp_path: Path, divtok: Command) -> None:
    plan = plan_of(divtok, "figure-count", "--family", "tiny", "--out", str(tmp_path))
    assert plan["recipes"] == ["figure-count"]
    assert [run["name"] for run in plan["runs"]] == ["whitebox-tiny", RUN, "fit-tiny"]


def test_a_plan_takes_overrides(tmp_path: Path, divtok: Command) -> None:
    plan = plan_of(divtok, RECIPE, "--family", "tiny", *SMALL, "--out", str(tmp_path))
    assert plan["totals"]["responses"] == 2 * 2 * 3


def test_a_plan_knows_what_is_there(made: tuple[Path, Outcome], divtok: Command) -> None:
    plan = plan_of(divtok, RECIPE, "--family", "tiny", *SMALL, "--out", str(made[0]))
    [run] = plan["runs"]
    assert run["exists"]
    assert {work["missing"] for cell in run["cells"] for work in cell["work"]} == {0}


def test_an_unknown_recipe_is_a_usage_error(tmp_path: Path, divtok: Command) -> None:
    said = divtok("paper", "figure-cont", "--family", "tiny", "--out", tmp_path / "runs")
    assert said.code == EXIT_USAGE
    assert "There is no recipe 'figure-cont'. Did you mean 'figure-count'" in said.error_line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("plan", [(), ("--plan",)])
def test_an_unknown_family_is_a_usage_error(
    plan: tuple[str, ...], tmp_path: Path, divtok: Command
) -> None:
    said = divtok("paper", "figure-count", "--family", "tny", *plan, "--out", tmp_path / "runs")
    assert said.code == EXIT_USAGE
    assert "'tny'" in said.error_line
    assert not (tmp_path / "runs").exists()


def test_an_unknown_setting_is_a_usage_error(tmp_path: Path, divtok: Command) -> None:
    said = divtok("paper", RECIPE, "--family", "tiny", "limt=2", "--out", tmp_path / "runs")
    assert said.code == EXIT_USAGE
    assert "Did you mean 'limit'" in said.error_line
    assert not (tmp_path / "runs").exists()


def test_a_generator_behind_an_api_is_refused(tmp_path: Path, divtok: Command) -> None:
    said = divtok("paper", "table-blackbox-deepseek", "--out", tmp_path / "runs")
    assert said.code == EXIT_USAGE
    assert "deepseek-ai/DeepSeek-V3.2" in said.error_line
    assert not (tmp_path / "runs").exists()


def test_recipes_are_listed_in_the_order_of_the_paper(divtok: Command) -> None:
    said = divtok("ls", "recipes", "--json")
    rows = json.loads(said.out)
    assert [row["name"] for row in rows] == list(recipes())
    assert len(rows) == 20
    assert all(row["summary"] and row["about"] for row in rows)
    plain = divtok("ls", "recipes")
    assert [line.split()[0] for line in plain.out.splitlines()] == list(recipes())


def test_claims_of_one_recipe_on_the_terminal_and_in_json(
    made: tuple[Path, Outcome], divtok: Command
) -> None:
    [number] = [i for i, said in enumerate(LISTED, start=1) if RECIPE in said.recipes]
    text = LISTED[number - 1].text
    [line] = [line for line in made[1].out.splitlines() if line.startswith(f"{number}. ")]
    assert line.startswith(f"{number}. undecided: {text} ")
    assert line.endswith(f"[{RECIPE}]")
    assert "1 claim: 0 hold, 0 do not hold, 1 undecided." in made[1].out
    said = divtok("paper", RECIPE, "--family", "tiny", *SMALL, "--out", made[0], "--json")
    [finding] = json.loads(said.out)[0]["findings"]
    assert (finding["claim"], finding["claim_number"]) == (text, number)
    assert (finding["verdict"], finding["section"]) == ("undecided", "C.2")
    assert {"name", "difference", "low", "high", "holds", "reason"} <= set(finding["compared"][0])


def test_recipes_that_were_not_made_have_their_claims_in_json() -> None:
    data = as_data([], everything=True)
    assert [entry["recipe"] for entry in data] == list(recipes())
    assert as_data([], everything=False) == []
    for entry in data:
        findings = cast("list[dict[str, object]]", entry["findings"])
        assert len(findings) == sum(entry["recipe"] in said.recipes for said in LISTED)
        assert {finding["verdict"] for finding in findings} == {"undecided"}


@pytest.mark.slow
def test_every_recipe_on_real_runs_of_the_tiny_family(
    tmp_path_factory: pytest.TempPathFactory, divtok: Command
) -> None:
    small = ("limit=1", "samples=2", "evaluate.resamples=20")
    folder, said = made_once(tmp_path_factory, "paper-all", "all", "--family", "tiny", *small)
    assert "The paper's claims on these runs:" in said.out
    assert f"{len(LISTED)} claims: " in said.out
    for number, claim in enumerate(LISTED, start=1):
        assert re.search(rf"(?m)^{number}\. (holds|does not hold|undecided): ", said.out), claim
    page = (folder / "report-tiny" / "index.html").read_text("utf-8")
    for name in recipes():
        assert f'id="{name}"' in page
    again = divtok("paper", "all", "--family", "tiny", *small, "--out", folder, "--json")
    assert again.code == EXIT_OK
    assert "generate" not in again.err
    made = json.loads(again.out)
    assert [exhibit["recipe"] for exhibit in made] == list(recipes())
    findings = [finding for exhibit in made for finding in exhibit["findings"]]
    assert {finding["claim_number"] for finding in findings} == set(range(1, len(LISTED) + 1))
    assert {finding["verdict"] for finding in findings} <= {"holds", "does not hold", "undecided"}
    assert (folder / "report-tiny" / "index.html").read_text("utf-8") == page
