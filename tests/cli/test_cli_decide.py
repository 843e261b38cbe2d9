"""The verb decide, and confidence with a policy: what they print, and exit codes."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cli_samples import GENERATOR
from console import Command

from divtok.config.run import load_config
from divtok.config.run import to_yaml as yaml_of
from divtok.decide.policy import HowScored, Policy, quantiles_of
from divtok.decide.policy_file import save_policy
from divtok.errors import EXIT_ERROR, EXIT_NOTHING, EXIT_OK, EXIT_USAGE
from divtok.records import Confidence, Counts, Grade, Problem, Sampling, Trajectory, Verdict
from divtok.store.run import Run, check_or_write_manifest

AUXILIARY = "divtok/tiny-0.3m"
PAIR = ("--pair", GENERATOR, AUXILIARY)
QUESTION = "What is 1 + 1?"


def made(folder: Path, n: int = 100) -> Path:
    """Of every five answers four right at 0.9, one wrong at 0.2, to a problem each."""
    config = load_config(
        None,
        [
            f"generators=['{GENERATOR}']",
            "benchmarks=['arith-easy']",
            "score.estimators=['dtc_lin']",
        ],
    )
    run = Run.create_or_open(folder)
    keys = [f"bench/{GENERATOR}/{i:03}/0" for i in range(n)]
    wrong = [i % 5 == 4 for i in range(n)]
    with run.lock():
        check_or_write_manifest(run, {"made": "by hand"})
        run.write_config(yaml_of(config))
        run.problems.append([Problem(f"{i:03}", "bench", "?", "1") for i in range(n)])
        run.trajectories.append(
            [
                Trajectory(
                    key=key,
                    problem_id=f"{i:03}",
                    benchmark="bench",
                    sample=0,
                    generator=GENERATOR,
                    prompt_ids=(1,),
                    token_ids=(1,),
                    text="1",
                    finish_reason="stop",
                    protocol="cot",
                    sampling=Sampling(),
                )
                for i, key in enumerate(keys)
            ]
        )
        verdicts = [Verdict.INCORRECT if bad else Verdict.CORRECT for bad in wrong]
        run.grades.append([Grade(k, "1", v, None) for k, v in zip(keys, verdicts, strict=True)])
        theta = config.theta
        pair = (GENERATOR, AUXILIARY)
        run.counts.append(
            [Counts(key, *pair, theta, 0, None, None, 1, 1, 0.0, 0, 0) for key in keys]
        )
        values = [0.2 if bad else 0.9 for bad in wrong]
        run.confidences.append(
            [Confidence(k, "dtc_lin", {}, v, None) for k, v in zip(keys, values, strict=True)]
        )
    return folder


def test_the_floor_comes_first_then_the_promise(divtok: Command, tmp_path: Path):
    said = divtok("decide", made(tmp_path / "run"), "--risk", "0.05")
    assert said.code == EXIT_OK
    text = " ".join(said.out.split())
    floor = "any rule must withhold 15.8 % or more"  # (0.2 - 0.05) / 0.95
    promise = "accept from 0.9 on, and at most 5 % of the accepted answers are wrong"
    assert 0 < text.index("20 % of 100 responses are wrong") < text.index(floor)
    assert text.index(floor) < text.index(promise)
    assert "with chance 90 %" in text
    assert "That accepts 80 % of the responses; here 0 % of those are wrong" in text
    path = tmp_path / "run/policies/dtc_lin-divtok-tiny-0.5m-risk-5-delta-10.json"
    assert f"kept: {path}" in said.err
    assert path.exists()


def test_what_cannot_be_promised_is_said_with_the_best_that_can(divtok: Command, tmp_path: Path):
    said = divtok("decide", made(tmp_path / "run"), "--risk", "0.01")
    assert said.code == EXIT_NOTHING
    text = " ".join(said.out.split())
    assert "1 % cannot be promised: it takes 230 problems, and there are 100" in text
    # Of the 80 that look alike none is wrong: 0.1 ** (1 / 80) = 0.9716
    assert "from 0.9 on, at most 2.8 % are wrong, with chance 90 %" in text
    assert not (tmp_path / "run/policies").exists()


def test_all_of_it_as_json(divtok: Command, tmp_path: Path):
    run = made(tmp_path / "run")
    said = divtok(
        "decide", run, "--risk", "0.1", "--delta", "0.2", "--below", "escalate", "--to", "big",
        "--json",
    )  # fmt: skip
    assert said.code == EXIT_OK
    offer = json.loads(said.out)[GENERATOR]
    assert (offer["floor"], offer["coverage"]) == (pytest.approx(0.1 / 0.9), 0.8)
    assert offer["promise"]["threshold"] == 0.9
    policy = offer["policy"]
    assert (policy["below"], policy["to"], policy["delta"]) == ("escalate", "big", 0.2)
    assert policy["scored"]["pair"] == [GENERATOR, AUXILIARY]
    none = divtok("decide", run, "--risk", "0.01", "--json")
    assert none.code == EXIT_NOTHING
    assert json.loads(none.out)[GENERATOR]["policy"] is None


def test_a_policy_is_applied_to_another_run(divtok: Command, tmp_path: Path):
    divtok("decide", made(tmp_path / "run"), "--risk", "0.05")
    new, out = made(tmp_path / "new", 50), tmp_path / "decisions.csv"
    said = divtok("decide", new, "--policy", tmp_path / "run", "--out", out)
    assert said.code == EXIT_OK
    assert "50 responses: accept 40 (80.0 %), abstain 10 (20.0 %)" in said.out
    assert "of 40 accepted and graded 0.0 % are wrong" in said.out
    assert "50 rows in" in said.err
    assert "no test of it" not in said.err
    same = divtok("decide", tmp_path / "run", "--policy", tmp_path / "run")
    assert "the policy was made on this run, so its grades are no test of it" in same.err
    assert len(out.read_text(encoding="utf-8").splitlines()) == 51
    told = json.loads(divtok("decide", new, "--policy", tmp_path / "run", "--json").out)
    assert (told["responses"], told["actions"]) == (50, {"accept": 40, "abstain": 10})
    assert (told["graded"], told["wrong"], told["warning"]) == (40, 0.0, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "nothing to decide by"),
        (("--risk", "5"), "risk must be between 0 and 1"),
        (("--risk", "0.05", "--delta", "0"), "delta must be between 0 and 1"),
        (("--risk", "0.05", "--out", "x.csv"), "--out writes the decisions of a policy"),
        (("--risk", "0.05", "--to", "big"), "A model to escalate to is named (big)"),
        (("--risk", "0.05", "--estimator", "nsl"), "no confidences of 'nsl'"),
        (("--risk", "0.05", "--generator", "x"), "no graded response of 'x'"),
        (("--policy", "p.json", "--risk", "0.05"), "has been settled: --risk"),
        (
            ("--policy", "p.json", "--delta", "0.2", "--below", "escalate", "--to", "x"),
            "has been settled: --delta, --below, --to",
        ),
    ],
)
def test_what_cannot_be_decided_is_refused(
    divtok: Command, tmp_path: Path, options: tuple[str, ...], said: str
):
    found = divtok("decide", made(tmp_path / "run", 5), *options)
    assert found.code == EXIT_USAGE
    assert said in found.error_line


def test_a_policy_that_is_not_there_or_damaged_is_an_error(divtok: Command, tmp_path: Path):
    run = made(tmp_path / "run", 5)
    assert "No policy was made" in divtok("decide", run, "--policy", run).error_line
    (tmp_path / "p.json").write_text("{}")
    damaged = divtok("decide", run, "--policy", tmp_path / "p.json")
    assert damaged.code == EXIT_ERROR
    assert "p.json cannot be read: it is no file of a policy" in damaged.error_line


def policy(tmp_path: Path, threshold: float = 0.5, **changes: object) -> Path:
    """A policy for dtc_prod, with parameters that are not its usual ones."""
    params = {"theta": 0.4, "k": 6}
    scored = HowScored("dtc_prod", params, "reasoning", (GENERATOR, AUXILIARY))
    quantiles = quantiles_of([2 + i / 100 for i in range(101)])  # like no confidence
    rules = Policy(threshold, 0.05, 0.1, scored, GENERATOR, 100, 100, 0.2, 0.5, 0.0, quantiles)
    path = tmp_path / "policy.json"
    save_policy(replace(rules, **changes), path)
    return path


def test_confidence_says_what_the_policy_does(divtok: Command, tmp_path: Path):
    path = policy(tmp_path, threshold=2.0, below="escalate", to="big")
    asked = ("confidence", *PAIR, "--question", QUESTION, "--response", "It is 2.")
    said = divtok(*asked, "--policy", path)
    assert said.code == EXIT_OK
    lines = said.out.splitlines()
    assert "dtc_prod" in lines[0]
    assert "at theta 0.4" in lines[0]
    assert lines[1].startswith("escalate to big: ")
    assert lines[1].endswith("is below 2")
    facts = json.loads(divtok(*asked, "--policy", path, "--json").out)
    assert facts["params"]["k"] == 6
    assert (facts["decision"]["action"], facts["decision"]["to"]) == ("escalate", "big")
    accepted = divtok(*asked, "--policy", policy(tmp_path, threshold=0.0), "--json")
    assert json.loads(accepted.out)["decision"]["action"] == "accept"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--pair", "divtok/tiny-0.9m", AUXILIARY), "was made for the pair"),
        ((*PAIR, "--estimator", "dtc_lin"), "is for the estimator 'dtc_prod'; here it is dtc_lin"),
        ((*PAIR, "--theta", "0.7"), "theta 0.4; here it is 0.7"),
        ((*PAIR, "--param", "k=4"), "k 6; here it is 4"),
        ((*PAIR, "--counted", "all"), "the tokens 'reasoning'; here they are 'all'"),
    ],
)
def test_confidence_refuses_a_policy_for_anything_else(
    divtok: Command, tmp_path: Path, options: tuple[str, ...], said: str
):
    asked = ("--question", QUESTION, "--response", "It is 2.", "--policy", policy(tmp_path))
    found = divtok("confidence", *options, *asked)
    assert found.code == EXIT_USAGE
    assert said in found.error_line


@pytest.mark.parametrize("batch", [1, 64])
def test_a_stream_is_decided_row_by_row_and_warned_of_once(
    divtok: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
):
    rows = [{"question": QUESTION, "response": "It is 2."}] * 31
    text = "".join(json.dumps(row) + "\n" for row in rows)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    said = divtok(
        "confidence", *PAIR, "--policy", policy(tmp_path, threshold=0.0), "--batch", str(batch)
    )
    assert said.code == EXIT_OK
    found = [json.loads(line)["divtok"] for line in said.out.splitlines()]
    assert [row["decision"]["action"] for row in found] == ["accept"] * 31
    warnings = [line for line in said.err.splitlines() if "are unlike the 100" in line]
    assert len(warnings) == 1
