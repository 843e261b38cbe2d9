"""score with another pair or family, and fit from a run that is traced already."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from cli_samples import GENERATOR
from console import Command

from divtok.config.run import load_config
from divtok.config.tree import override_tree
from divtok.errors import EXIT_ERROR, EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL, EXIT_USAGE
from divtok.families.family import FAMILIES
from divtok.models.load import load_tokenizer
from divtok.protocols.encode import response_ids
from divtok.records import Verdict
from divtok.report import write
from divtok.stages.fit import fit
from divtok.stages.stored import read_by, stored_config
from divtok.store.run import Run

AUXILIARY = "divtok/tiny-0.3m"
PAIR = ("--pair", GENERATOR, AUXILIARY)
QUESTION = "Ada has {} eggs. Ada buys 30 more eggs. How many eggs does Ada have now?"


def question(number: int) -> str:
    return QUESTION.format(number)


def response(number: int, answer: int) -> str:
    return rf"{number} plus 30 is {answer}. The answer is \boxed{{{answer}}}."


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time of a report, and is tested elsewhere."""
    monkeypatch.setattr(write, "save_figure", lambda *_, **__: [])


@pytest.fixture
def imported(divtok: Command, tmp_path: Path) -> Path:
    """Six responses of a model without weights here, half of them right; the last has no gold."""
    rows: list[dict[str, Any]] = [
        {
            "id": str(number),
            "question": question(number),
            "response": response(number, number + 30 + number % 2),
            "answer": str(number + 30) if number < 5 else None,
        }
        for number in range(6)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    folder = tmp_path / "imported"
    said = divtok("import", file, "--format", "jsonl", "--generator", "gpt", "--out", folder)
    assert said.code == EXIT_OK, said.err
    return folder


def test_pair_and_family_together_are_refused(divtok: Command, imported: Path) -> None:
    before = (imported / "run.yaml").read_text()
    said = divtok("score", imported, *PAIR, "--family", "tiny")
    assert said.code == EXIT_USAGE
    assert "Both --pair and --family were given" in said.error_line
    assert (imported / "run.yaml").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--family", "tony"), "Unknown family 'tony'"),
        (("--pair", AUXILIARY, GENERATOR, "score.estimators=dtc_lin"), "'dtc_lin' needs theta"),
        ((*PAIR, "--theta", "1.5"), "theta must be between 0 and 1"),
        (("--theta", "nan"), "theta must be between 0 and 1"),
        (("limit=3",), "changes more than the scores"),
        (("trace.reader=x",), "changes more than the scores"),
        ((*PAIR, "score.thta=0.4"), "unknown key 'score.thta'"),
        ((*PAIR, "score.estimators=sampled_nsl"), "cannot be scored"),
        ((*PAIR, f"servers.{AUXILIARY}=http://127.0.0.1:1/v1"), "is read through a server"),
    ],
)
def test_wrong_usage_changes_nothing(
    divtok: Command, imported: Path, arguments: tuple[str, ...], message: str
) -> None:
    before = (imported / "run.yaml").read_text()
    said = divtok("score", imported, *arguments)
    assert said.code == EXIT_USAGE
    assert message in said.error_line
    assert (imported / "run.yaml").read_text() == before


def test_a_model_that_is_not_there_changes_nothing(divtok: Command, imported: Path) -> None:
    before = (imported / "run.yaml").read_text()
    said = divtok("score", imported, "--pair", "divtok/tiny-9m", AUXILIARY, "--theta", "0.1")
    assert said.code == EXIT_ERROR
    assert "divtok/tiny-9m" in said.error_line
    assert (imported / "run.yaml").read_text() == before


def test_a_known_pair_brings_its_theta_and_another_ranks_without_one(
    divtok: Command, imported: Path
) -> None:
    said = divtok("score", imported, *PAIR)
    assert said.code == EXIT_OK, said.err
    run = Run.open(imported)
    config = stored_config(run)
    assert config.score.theta == FAMILIES.get("tiny").theta
    assert (config.trace.reader, config.trace.auxiliary) == (GENERATOR, AUXILIARY)
    assert {(t.p, t.q) for t in run.traces.read()} == {(GENERATOR, AUXILIARY)}
    tokenizer = load_tokenizer(GENERATOR)
    texts = {t.key: t.text for t in run.trajectories.read()}
    for trace in run.traces.read():
        assert trace.retokenized
        assert len(trace) == len(response_ids(tokenizer, texts[trace.key]))
    thetas = {c.params["theta"] for c in run.confidences.read() if c.estimator == "dtc_lin"}
    assert thetas == {FAMILIES.get("tiny").theta}
    # Five gold answers: three right, two wrong, and the sixth row is left out.
    assert ": 1 without a gold answer, not counted" in " ".join(said.out.split())
    (evaluation,) = [e for e in run.evaluations.read() if e.estimator == "dtc_lin"]
    assert (evaluation.n, evaluation.accuracy) == (5, pytest.approx(0.6))
    verdicts = [g.verdict for g in run.grades.read()]
    assert verdicts.count(Verdict.UNDETERMINED) == 1
    assert (imported / "report" / "README.md").is_file()

    said = divtok("score", imported, "--pair", AUXILIARY, GENERATOR)
    assert said.code == EXIT_OK, said.err
    assert "dtc_lin, dtc_prod left out: no theta was fitted for this pair" in said.err
    unfitted = stored_config(Run.open(imported))
    assert (unfitted.fitted_theta, unfitted.family) == (None, config.family)
    scored = {c.estimator for c in Run.open(imported).confidences.read()}
    assert scored == {"nsl", "mean_prob", "entropy", "dtc_weighted", "dtc_guarded"}

    said = divtok("score", imported, "--pair", AUXILIARY, GENERATOR, "--theta", "0.3")
    assert said.code == EXIT_OK, said.err
    assert stored_config(Run.open(imported)).score.theta == 0.3
    assert len(Run.open(imported).traces.read()) == 12  # both pairs' are kept


def test_a_family_brings_its_pair_and_theta(divtok: Command, imported: Path) -> None:
    said = divtok("score", imported, "--family", "tiny")
    assert said.code == EXIT_OK, said.err
    run = Run.open(imported)
    config = stored_config(run)
    assert (config.family, config.score.theta) == ("tiny", FAMILIES.get("tiny").theta)
    assert config.generators == ["gpt"]
    assert {(t.p, t.q) for t in run.traces.read()} == {(GENERATOR, AUXILIARY)}
    first = divtok("evaluate", imported, "--json")
    assert divtok("score", imported, *PAIR).code == EXIT_OK
    again = divtok("evaluate", imported, "--json")
    assert json.loads(first.out) == json.loads(again.out)


def test_a_theta_given_as_an_override_stands(divtok: Command, imported: Path) -> None:
    assert divtok("score", imported, *PAIR, "score.theta=0.2").code == EXIT_OK
    assert stored_config(Run.open(imported)).score.theta == 0.2
    assert divtok("score", imported, "--theta", "0.4").code == EXIT_OK
    assert stored_config(Run.open(imported)).score.theta == 0.4


def test_without_gold_answers_there_are_confidences_and_no_report(
    divtok: Command, tmp_path: Path
) -> None:
    file, folder = tmp_path / "rows.jsonl", tmp_path / "run"
    rows = [{"question": question(n), "response": response(n, 40)} for n in range(2)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    divtok("import", file, "--format", "jsonl", "--generator", "gpt", "--out", folder)
    said = divtok("score", folder, *PAIR)
    assert said.code == EXIT_OK, said.err
    assert "no gold answers" in said.err
    assert said.out.strip() == str(Run.open(folder).confidences.folder)
    assert len({c.key for c in Run.open(folder).confidences.read() if c.value is not None}) == 2
    assert not (folder / "report" / "README.md").exists()
    said = divtok("evaluate", folder)
    assert said.code == EXIT_NOTHING
    assert "both a response and a gold answer" in said.error_line


def test_gold_answers_that_come_later_are_evaluated_against(
    divtok: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    for name, answer in (("first", None), ("second", "30")):
        rows = [
            {"id": "0", "question": question(0), "response": response(0, 30), "answer": answer},
            {"id": "1", "question": question(1), "response": response(1, 31), "answer": "31"},
        ]
        kept = rows[:1] if answer is None else rows
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        of = ("--generator", "gpt", "--benchmark", "sums")
        said = divtok("import", file, "--format", "jsonl", *of, "--out", folder)
        assert said.code == EXIT_OK, said.err
        said = divtok("score", folder, *PAIR)
        assert said.code == EXIT_OK, said.err
    assert {g.verdict for g in Run.open(folder).grades.read()} == {Verdict.CORRECT}


def test_a_response_that_cannot_be_read_is_exit_code_3(divtok: Command, tmp_path: Path) -> None:
    file, folder = tmp_path / "rows.jsonl", tmp_path / "run"
    rows = [
        {"question": question(0), "response": response(0, 30), "answer": "30"},
        {"question": question(1), "response": "42 " * 2000, "answer": "31"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    divtok("import", file, "--format", "jsonl", "--generator", "gpt", "--out", folder)
    said = divtok("score", folder, *PAIR)
    assert said.code == EXIT_PARTIAL
    assert "1 row could not be made" in said.err
    assert "--retry-failed" not in said.err


@pytest.mark.parametrize("name", ["plain", "with space", "12", "null", "ü日本", "🙂/m", "a#b: c"])
def test_any_name_of_a_model_reaches_the_config(name: str) -> None:
    overrides = read_by((name, "true"), None, ["score.theta=0.5"], foreign=True)
    config = load_config(None, overrides)
    assert (config.trace.reader, config.trace.auxiliary) == (name, "true")


def test_what_a_family_leaves_of_an_earlier_pair() -> None:
    tree: dict[str, Any] = {"trace": {"reader": "x", "auxiliary": "y"}, "score": {"theta": 0.9}}
    changed = override_tree(tree, read_by(None, "qwen3", [], foreign=True))
    assert changed == {
        "family": "qwen3",
        "trace": {"reader": None, "auxiliary": None},
        "score": {"theta": FAMILIES.get("qwen3").theta, "without_theta": False},
    }
    unknown = override_tree(tree, read_by(("x", "y"), None, [], foreign=True))
    assert unknown["score"] == {"theta": None, "without_theta": True}


def test_fit_from_a_run_is_the_fit_of_its_traces(divtok: Command, imported: Path) -> None:
    assert divtok("score", imported, *PAIR).code == EXIT_OK
    run = Run.open(imported)
    known = fit(run, stored_config(run))
    assert (known.n, known.n_balanced, known.excluded) == (5, 2, 1)
    said = divtok("fit", "--run", imported, "--json")
    assert said.code == EXIT_OK, said.err
    printed = {**dataclasses.asdict(known), "notes": known.notes}
    assert json.loads(said.out) == json.loads(json.dumps(printed))
    words = divtok("fit", "--run", imported)
    assert words.code == EXIT_OK
    assert f"\ntheta = {known.theta:g}\n" in words.out
    assert "5 responses" in " ".join(words.out.split())  # a long path breaks its line anywhere
    # It only reads: the run keeps its theta.
    assert stored_config(Run.open(imported)).score.theta == FAMILIES.get("tiny").theta


def test_fit_from_a_run_without_traces_or_gold(divtok: Command, imported: Path) -> None:
    said = divtok("fit", "--run", imported)
    assert said.code == EXIT_NOTHING
    assert (
        f"Read them with the models of a family, as in: divtok score {imported}" in said.error_line
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("tiny", "--run", "RUN"),
        ("score.n=5", "--run", "RUN"),
        ("--run", "RUN", "--file", "x.jsonl"),
        ("--run", "RUN", "--name", "other"),
        ("--run", "RUN", "--out", "other"),
        ("--run", "RUN", "--limit", "5"),
        ("--run", "RUN", "--samples", "5"),
        ("tony",),
    ],
)
def test_fit_refuses_what_does_not_go_together(
    divtok: Command, imported: Path, arguments: tuple[str, ...]
) -> None:
    given = [str(imported) if a == "RUN" else a for a in arguments]
    said = divtok("fit", *given)
    assert said.code == EXIT_USAGE
    assert said.error_line


def test_fit_from_a_run_that_is_not_there(divtok: Command, tmp_path: Path) -> None:
    assert divtok("fit", "--run", tmp_path / "none").code == EXIT_ERROR


def test_grading_changes_nothing_but_grades(divtok: Command, imported: Path) -> None:
    before = (imported / "run.yaml").read_text()
    for override in ("samples=9", "protocol=letter", "trace.auxiliary=nosuch"):
        said = divtok("grade", str(imported), override)
        assert said.code == EXIT_USAGE
        assert f"'{override}' changes more than the grades" in said.error_line
    assert (imported / "run.yaml").read_text() == before
