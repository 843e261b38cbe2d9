"""Somebody who makes mistakes: each ends with what happened and a next step that works."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from any_pair_samples import save_llama, write_problems
from console import Command, Outcome
from first_hour_samples import FIRST, READER, STRONG, WEAK, rows, write_jsonl

Works = Callable[..., Outcome]
ONE = (f"generators=['{WEAK}']", "benchmarks=['arith-easy']", "limit=2", "samples=2")


def advised(said: Outcome) -> list[str]:
    """The arguments of the first command that an error advises."""
    found = re.search(r"divtok ((?:score|trace|grade|gather|run|report) [^\n,;]*)", said.err)
    assert found is not None, said.err
    return shlex.split(found[1].strip().rstrip(".'\"").partition("' ")[0])


def test_1_evaluate_right_after_generate_leads_to_figures(divtok: Command, works: Works) -> None:
    works("generate", *ONE, "--name", "one")
    said = divtok("evaluate", "one")
    assert said.code != 0
    assert "not read yet" in said.err or "not graded yet" in said.err
    for _ in range(4):  # each error is followed once
        if said.code == 0:
            break
        works(*advised(said))
        said = divtok("evaluate", "one")
    assert said.code == 0, said.err


def test_2_score_right_after_generate_says_what_is_missing(divtok: Command, works: Works) -> None:
    works("generate", *ONE, "--name", "one")
    said = divtok("score", "one")
    assert said.code != 0
    assert "not read yet" in said.err
    assert "column 'reason'" not in said.err


def test_3_an_imported_run_without_a_pair(tmp_path: Path, divtok: Command, works: Works) -> None:
    works("import", write_jsonl(tmp_path / "log.jsonl"), "--name", "mine")
    said = divtok("score", "mine")
    assert said.code != 0
    assert "not read yet" in said.err
    assert "--family" in said.err or "--pair" in said.err


def test_4_fit_on_a_run_that_was_not_graded(divtok: Command, works: Works) -> None:
    works("generate", *ONE, "--name", "one")
    said = divtok("fit", "--run", "one")
    assert said.code != 0
    assert "divtok " in said.err
    assert advised(said)


def test_5_a_lost_shard_is_no_success(first: Path, divtok: Command) -> None:
    shard = next((first / "traces").glob("*.parquet"))
    shard.unlink()
    said = divtok("score", "first", "--theta", "0.3")
    assert said.code != 0
    assert "traces" in said.err


def test_6_a_report_older_than_its_scores(first: Path, works: Works) -> None:
    said = works("score", "first", "--theta", "0.3")
    assert re.search(r"report .*older", said.err)
    assert "divtok report" in said.err


def test_7_rows_that_can_never_fit(tmp_path: Path, divtok: Command, works: Works) -> None:
    p = save_llama(tmp_path / "p", width=32, seed=1)  # 160 positions
    q = save_llama(tmp_path / "q", width=16, seed=2)
    long = [{**row, "response": row["response"] * 40} for row in rows()[:1]]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in [*long, *rows()[1:]]))
    works("import", log, "--name", "mine")
    said = divtok("score", "mine", "--pair", p, q, "--theta", "0.5")
    assert said.code == 3
    assert "--retry-failed" not in said.err


def test_8_the_same_weights_twice(tmp_path: Path, divtok: Command) -> None:
    p = save_llama(tmp_path / "p", width=32, seed=1)
    shutil.copytree(p, tmp_path / "copy")
    said = divtok("pair", p, tmp_path / "copy")
    assert "same weights" in said.err + said.out


def test_9_two_models_that_know_nothing(tmp_path: Path, divtok: Command, works: Works) -> None:
    p = save_llama(tmp_path / "p", width=32, seed=1)
    q = save_llama(tmp_path / "q", width=16, seed=2)
    works("import", write_jsonl(tmp_path / "log.jsonl"), "--name", "mine")
    said = divtok("score", "mine", "--pair", p, q, "--theta", "0.5")
    text = re.sub(r"\s+", " ", said.out + said.err)
    assert re.search(r"uniform|agree", text)


def test_10_the_smaller_model_first(divtok: Command) -> None:
    said = divtok("pair", READER, WEAK)
    assert re.search(r"smaller", said.out + said.err)


def test_11_a_model_with_broken_numbers(tmp_path: Path, divtok: Command) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    p = save_llama(tmp_path / "p", width=32, seed=1)
    q = save_llama(tmp_path / "q", width=16, seed=2)
    file = next(p.glob("*.safetensors"))
    weights = load_file(file)
    name = next(n for n in weights if "norm" in n)
    weights[name] = torch.full_like(weights[name], float("nan"))
    save_file(weights, file, metadata={"format": "pt"})
    said = divtok("check", "--pair", p, q, "--measure")
    assert said.code != 0
    assert re.search(r"NaN|not a number|finite", said.err + said.out)
    assert str(p) in said.err + said.out


def test_12_answers_that_nobody_finds(tmp_path: Path, divtok: Command, works: Works) -> None:
    log = tmp_path / "log.jsonl"
    texts = [{**row, "response": "I am not sure how to begin."} for row in rows()]
    log.write_text("".join(json.dumps(row) + "\n" for row in [*texts, rows()[0]]))
    works("import", log, "--name", "mine", "--protocol", "cot")
    said = divtok("score", "mine", "--pair", WEAK, READER, "--theta", "0.05")
    assert said.code == 3
    text = re.sub(r"\s+", " ", said.out + said.err)
    assert re.search(r"no answer|unanswered", text)
    assert "0.0 " not in "".join(line for line in said.out.splitlines() if line.startswith("gen-1"))


def test_13_a_verb_that_is_mistyped(divtok: Command) -> None:
    said = divtok("evaluat", "first")
    assert said.code == 2
    assert "evaluate" in said.err


def test_14_a_run_that_is_mistyped(first: Path, divtok: Command) -> None:
    said = divtok("evaluate", "frist")
    assert said.code == 1
    assert "first" in said.err


def test_15_an_override_that_is_mistyped(divtok: Command) -> None:
    said = divtok("run", "--family", "tiny", "score.thetta=0.3", "--name", "x")
    assert said.code != 0
    assert "theta" in said.err
    assert not Path("runs/x").exists()


def test_16_a_benchmark_that_is_mistyped_leaves_nothing(divtok: Command) -> None:
    said = divtok("run", "--family", "tiny", "--benchmark", "arith-eazy", "--name", "x")
    assert said.code != 0
    assert "arith-easy" in said.err
    assert not Path("runs/x").exists()


def test_17_a_generator_that_is_not_there_leaves_nothing(divtok: Command) -> None:
    said = divtok("run", *ONE[1:], "--generator", "./nowhere", "--auxiliary", READER, "--name", "x")
    assert said.code != 0
    assert "nowhere" in said.err
    assert not Path("runs/x").exists()


def test_18_two_models_that_do_not_fit_leave_nothing(tmp_path: Path, divtok: Command) -> None:
    p = save_llama(tmp_path / "p", width=32, seed=1, vocab_size=900)
    problems = write_problems(tmp_path / "sums.jsonl")
    said = divtok(
        *("run", "--generator", p, "--auxiliary", p, "--benchmark", problems, "--name", "x")
    )
    assert said.code != 0
    assert not Path("runs/x").exists()


def test_19_an_override_that_a_verb_cannot_take(first: Path, divtok: Command) -> None:
    said = divtok("gather", "first", "limit=3")
    assert said.code != 0
    assert "limit" in said.err


def test_20_another_auxiliary_is_said(first: Path, divtok: Command) -> None:
    said = divtok(
        "run", *FIRST, f"trace.auxiliary={WEAK}", f"generators=['{STRONG}']", "--name", "first"
    )
    assert re.search(r"tiny-0\.3m.*(->|instead|was).*tiny-0\.5m", said.err)


def test_21_a_file_of_another_format(tmp_path: Path, divtok: Command) -> None:
    log = tmp_path / "notes.txt"
    log.write_text("Dear diary,\ntoday nothing happened.\n")
    said = divtok("import", log, "--name", "mine")
    assert said.code != 0
    assert "jsonl" in said.err
    assert not Path("runs/mine").exists()


def test_22_a_key_that_is_none(first: Path, divtok: Command) -> None:
    said = divtok("show", "first", "zzzz")
    assert said.code != 0
    assert "least-trusted" in said.err or "divtok show" in said.err


def test_23_a_family_that_is_mistyped(divtok: Command) -> None:
    said = divtok("run", "--family", "tyni", "--name", "x")
    assert said.code != 0
    assert "tiny" in said.err


@pytest.mark.parametrize("verb", ["evaluate", "report", "sweep"])
def test_24_a_verb_on_a_run_without_scores(verb: str, divtok: Command, works: Works) -> None:
    works("generate", *ONE, "--name", "one")
    said = divtok(verb, "one")
    assert said.code != 0
    assert advised(said)
