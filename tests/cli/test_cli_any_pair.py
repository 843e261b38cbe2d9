"""Runs without a family: any generator with any auxiliary, from problems to the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from any_pair_samples import llamas, with_swapped_tokens, write_problems
from console import Command, Outcome

from divtok.models.load import load_model

__all__ = ["llamas"]

P = "divtok/tiny-0.5m"
TINY = ("--generator", "divtok/tiny-0.5m", "--auxiliary", "divtok/tiny-0.3m")
UNPAIRED = ("--generator", "divtok/tiny-0.9m", "--auxiliary", "divtok/tiny-0.5m")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_problems(tmp_path / "two.jsonl")


def config_of(run: str) -> dict[str, Any]:
    return yaml.safe_load(Path("runs", run, "run.yaml").read_text())


def evaluations(divtok: Command, run: str) -> dict[str, dict[str, Any]]:
    said = divtok("evaluate", run, "--json")
    assert said.code == 0, said.err
    return {found["estimator"]: found for found in json.loads(said.out)}


def words(said: Outcome) -> str:
    return " ".join(said.out.split())


def test_a_pair_of_a_family_takes_its_theta(divtok: Command) -> None:
    said = divtok("run", *TINY, "--benchmark", "arith-easy", "--limit", "1")
    assert said.code == 0, said.err
    assert "theta 0.05 is that of 'tiny', which pairs these models" in said.err
    assert "temperature 0.6, top_p 0.95 (divtok's defaults: no generation_config.json" in said.err
    assert "4 per problem of at most 1024 tokens" in said.err
    config = config_of("tiny-0.5m")
    assert (config["family"], config["samples"], config["benchmarks"]) == (None, 4, ["arith-easy"])
    assert (config["score"]["theta"], config["score"]["without_theta"]) == (0.05, False)
    assert config["own_sampling"]["divtok/tiny-0.5m"] == {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": None,
        "presence_penalty": None,
        "max_length": 1024,
    }
    found = evaluations(divtok, "tiny-0.5m")
    assert found["dtc_lin"]["params"]["theta"] == 0.05
    assert all(each["theta_fitted"] for each in found.values())
    assert "No theta was fitted" not in said.out


def test_without_a_theta_the_count_only_ranks(divtok: Command) -> None:
    arguments = ("run", *UNPAIRED, "--benchmark", "two.jsonl")
    said = divtok(*arguments)
    assert said.code == 0, said.err
    assert "Theta: No theta was fitted for this pair. Tokens are counted at 0.5 bits" in words(said)
    assert "score: dtc_lin, dtc_prod left out: no theta was fitted" in said.err
    config = config_of("tiny-0.9m")
    assert config["benchmark_files"] == {"two": "two.jsonl"}
    assert (config["score"]["theta"], config["score"]["without_theta"]) == (None, True)
    found = evaluations(divtok, "tiny-0.9m")
    assert found.keys() == {
        *("nsl", "mean_prob", "entropy", "length", "ratio", "count"),
        *("dtc_weighted", "dtc_guarded"),
    }
    assert found["count"]["params"] == {"theta": 0.5}
    assert not any(each["theta_fitted"] for each in found.values())
    page = Path("runs/tiny-0.9m/report/README.md").read_text()
    assert "## No theta was fitted" in page

    again = divtok(*arguments)
    assert again.code == 0, again.err
    assert "sampling of" not in again.err  # what was taken is said once
    assert "generate divtok/tiny-0.9m: 8 of 8 are there already" in again.err
    assert "score: nothing has changed" in again.err

    fitted = divtok("fit", "--run", "tiny-0.9m")
    assert fitted.code == 0, fitted.err
    assert "use it with: divtok score tiny-0.9m --theta 0." in fitted.err
    assert divtok("score", "tiny-0.9m", "--theta", "0.1").code == 0
    found = evaluations(divtok, "tiny-0.9m")
    assert found["dtc_lin"]["params"]["theta"] == found["count"]["params"]["theta"] == 0.1
    assert found["dtc_lin"]["theta_fitted"] is True


def test_a_local_pair_is_sampled_as_its_own_files_say(
    divtok: Command, llamas: tuple[Path, Path]
) -> None:
    p, q = llamas
    arguments = ("run", "--generator", p, "--auxiliary", q, "--benchmark", "two.jsonl")
    said = divtok(*arguments, "--samples", "2", "--theta", "0.2")
    assert said.code == 0, said.err
    assert (
        "temperature 0.7, top_p 0.8, top_k 20 (as its generation_config.json says; not" in said.err
    )
    assert "not applied: repetition_penalty 1.05" in said.err
    config = config_of("p-large")
    own = config["own_sampling"][str(p)]
    assert (own["temperature"], own["top_p"], own["top_k"]) == (0.7, 0.8, 20)
    assert own["max_length"] == 160  # all that they read
    assert "dtc_lin" in evaluations(divtok, "p-large")
    again = divtok(*arguments, "--theta", "0.2")
    assert again.code == 0, again.err
    assert f"generate {p}: 4 of 4 are there already" in again.err  # with the samples of before


def test_a_real_model_from_a_gguf_file(divtok: Command, smollm2: str, tmp_path: Path) -> None:
    """Its auxiliary is itself without the upper half of its layers."""
    loaded = load_model(smollm2, device="cpu")
    half = loaded.model.config.num_hidden_layers // 2
    loaded.model.model.layers = loaded.model.model.layers[:half]
    loaded.model.config.num_hidden_layers = half
    q = tmp_path / "half"
    loaded.model.save_pretrained(q)
    loaded.tokenizer.save_pretrained(q)
    arguments = ("run", "--generator", smollm2, "--auxiliary", q, "--benchmark", "two.jsonl")
    short = ("--limit", "1", "--samples", "2", "sampling.max_length=120", "--name", "real")
    said = divtok(*arguments, *short)
    assert said.code == 0, said.err
    assert "max_length as given), 2 per problem of at most 120 tokens" in said.err
    found = evaluations(divtok, "real")
    assert (found["count"]["n"], found["count"]["theta_fitted"]) == (2, False)
    again = divtok(*arguments, *short)
    assert "2 of 2 are there already" in again.err


def test_models_that_do_not_fit_are_refused_before_anything_is_sampled(
    divtok: Command, llamas: tuple[Path, Path], tmp_path: Path
) -> None:
    p, q = llamas
    other, first, (in_p, in_q) = with_swapped_tokens(q, tmp_path / "other")
    said = divtok("run", "--generator", p, "--auxiliary", other, "--benchmark", "two.jsonl")
    assert said.code == 1
    assert f"the first is id {first}, {in_p!r} in p and {in_q!r} in q." in said.error_line
    assert said.error_line.endswith(f"some are named by: divtok pair {p}")
    assert not Path("runs/p-large/run.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (*UNPAIRED, "--benchmark", "two.jsonl", "score.estimators=dtc_lin"),
            "divtok fit --run RUN",
        ),
        (UNPAIRED, "Name them: --benchmark NAME"),
        ((*UNPAIRED, "--benchmark", "arith-esay"), "Did you mean 'arith-easy'"),
        ((*UNPAIRED, "--benchmark", "no.jsonl"), "no file of that name"),
        (
            ("--generator", P, "--auxiliary", P, "--benchmark", "two.jsonl"),
            f"'{P}' is named as both models",
        ),
        (("--generator", "meta-llama/Llama-3.1-8B-Instruct"), "(--auxiliary Q); some are"),
        (
            ("family=null", "--generator", "x"),
            "needs trace.auxiliary (--auxiliary)",
        ),
        ((*UNPAIRED, "--base-url", "http://127.0.0.1:1/v1"), "needs trace.reader"),
    ],
)
def test_what_is_missing_is_named(
    divtok: Command, arguments: tuple[str, ...], message: str
) -> None:
    said = divtok("run", *arguments)
    assert said.code == 2
    assert message in said.error_line


def test_a_family_is_still_what_is_taken_by_default(divtok: Command) -> None:
    said = divtok("generate", "--limit", "1", "--samples", "1", "--benchmark", "arith-easy")
    assert said.code == 0, said.err
    assert config_of("tiny")["family"] == "tiny"
    assert config_of("tiny")["own_sampling"] == {}
