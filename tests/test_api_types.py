"""A script of a user's that uses every public name passes the strict type checker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import divtok

SCRIPT = """
import asyncio
from pathlib import Path

import pandas as pd
import polars as pl

import divtok


def problem_of(row: divtok.Trajectory, problem: divtok.Problem) -> str:
    sampling: divtok.Sampling | None = row.sampling
    return f"{problem.question} {sampling}"


@divtok.estimator("mine", needs=("logprob_p",))
def mine(trace: divtok.Trace, *, power: float = 1.0) -> float:
    return float(trace.logprob_p.mean()) * power


def one(pair: divtok.Pair | divtok.ServerPair) -> float:
    result: divtok.Result = divtok.confidence("q", "r", pair=pair, n=12)
    tokens: divtok.Tokens = result.tokens
    token: divtok.Token = tokens[0]
    print(token.text, token.jsd_bits > 0.5, result.trace.others, divtok.suspect_steps(result)[0])
    return result.value


def many(pair: divtok.Pair) -> None:
    rows = [("q", "r"), ("q", "s")]
    dicts = [{"prompt": "q", "response": "r", "id": 3}]
    found: divtok.Confidences = divtok.confidences(rows, pair=pair, estimator=["dtc_lin", "nsl"])
    values: list[float | None] = found["nsl"].values
    first: divtok.Result | None = found[0]
    if first is not None:
        print(first.value, values, found.counts, found.reasons)
    divtok.confidences(dicts, pair=pair, columns={"question": "prompt"})
    divtok.confidences(pl.DataFrame(dicts), pair=pair, keep_traces=False, batch=64)
    divtok.confidences(pd.DataFrame(dicts), pair=pair, theta=0.4, generator="gpt", k=3)
    frame: pl.DataFrame = found.to_polars()
    print(frame, found.to_pandas().shape, [result for result in found])
    again = asyncio.run(divtok.aconfidences(rows, pair=pair, progress=True))
    grades: divtok.Records[divtok.Grade] = divtok.grade([("1", "1"), ("2", "3")])
    verdicts: list[divtok.Verdict] = [grade.verdict for grade in grades]
    evaluations: divtok.Records[divtok.Evaluation] = divtok.evaluate(again, grades)
    print(evaluations[0].ece, verdicts, evaluations.to_polars())
    divtok.evaluate({"a": [0.1, None], "b": [0.2, 0.3]}, verdicts, ["1", "2"], draws=3)
    divtok.evaluate(frame["nsl"], [True, False])
    error: float | None = divtok.ece(values, [True, None])
    rank: float | None = divtok.auroc(again, grades)
    print(error, rank, divtok.natural_ece([0.5], [True]), divtok.natural_auroc([0.5], [True]))
    curve: divtok.RiskCoverage = divtok.risk_coverage(values, grades)
    area: float = divtok.aurc(again, [True, None])
    print(curve.at(0.1), area, divtok.coverage_at([0.5], [True], risk=0.01))
    print(divtok.fit(found, [True, False]).theta)
    votes: divtok.Records[divtok.Vote] = divtok.vote(["1", 2, None], again, ["a"] * 3, stop=0.9)
    print(votes[0].answer, votes[0].keys, divtok.vote(["1", "2"], stop="settled")[0].samples)
    for row in divtok.sweep(found, [True, False], n=(5, 10)):
        print(row.estimator, row.value, None if row.best is None else row.best.theta)


def runs() -> None:
    run: divtok.Run = divtok.run(family="tiny", limit=20, score={"theta": 0.4}, out="x")
    divtok.run("run.yaml", name="mine", retry_failed=True, generators=["a"], dtype="float32")
    divtok.run({"score.theta": 0.4}, out=Path("y"))
    trace: divtok.Trace = run.traces["key"]
    print(trace.jsd_bits, run.path.name, run.config["family"], run.evaluate()[0].auroc)
    table: pl.DataFrame = run.trajectories.join(run.grades, on="key")
    print(table, run.sweep(n=[5]).to_polars(), run.fit().theta, run.report(), run.verify().sound)
    print(run.votes(strategy="best", estimator="nsl", samples=2)[0].correct)
    run.gather({"score.estimators": ["trace"]})
    print(run.score(pair=("p", "q"), theta=0.4), run.failures)
    step: divtok.SuspectStep = run.suspect_steps("key")[0]
    print(step.rank, step.text, step.known_wrong)
    made: divtok.Distilled = divtok.distil("p", layers=4, text=run, steps=3)
    print(made.folder, made.layers)
    other = divtok.import_files("rows.jsonl", "jsonl", out="z", columns={"question": "doc"})
    print(other.problems, divtok.fit_family("tiny", limit=5).theta)


def decisions(pair: divtok.Pair, run: divtok.Run, found: divtok.Confidences) -> None:
    offer: divtok.Offer = divtok.decide(found, [True, False], risk=0.05, delta=0.2)
    policy: divtok.Policy | None = run.decide(risk=0.1, below="escalate", to="big")["g"].policy
    if policy is not None:
        kept = divtok.save_policy(policy, "policy.json")
        result = divtok.confidence("q", "r", pair=pair, policy=divtok.load_policy("policy.json"))
        decision: divtok.Decision | None = result.decision
        print(decision is not None and decision.accepted, kept.promise, run.apply(kept).warning)
    print(offer.promise.threshold, offer.floor, divtok.confidences([], pair=pair).decisions)


def live(pair: divtok.Pair) -> None:
    for event in divtok.stream("q", pair=pair, estimator=["dtc_lin", "nsl"], temperature=0.5, n=12):
        told: divtok.StreamEvent = event
        print(told.text, told.confidence["nsl"], told.result is not None and told.result.value)
    there = divtok.follow("q", pair=pair, server="http://a/v1", model="m", block=4, stop=False)
    events: list[divtok.StreamEvent] = [*there, *divtok.follow("q", pair=pair, text=iter("abc"))]
    print(events[-1].acceptance, events[-1].taken_back)
    alone = divtok.follow("q", server="http://a/v1", model="m", auxiliary=pair.q, top_logprobs=5)
    print([(event.jsd_bounds, event.count_bounds, event.bounds) for event in alone])
    found: divtok.Drawn = divtok.ask_until("q", pair=pair, above=0.9, budget_tokens=500, k=2)
    draw: divtok.Draw = found.draws[0]
    print(found.enough, found.accepted[0].value, found.stopped, found.tokens, draw.reason)


def deferred(run: divtok.Run) -> None:
    found: divtok.Cascade = divtok.cascade(run, run, prices=(0.2, 2.0), read_price=0.05)
    print(found.advice, found.curves["dtc_lin"].threshold, found.to_polars().shape)


def pages(run: divtok.Run) -> list[Path]:
    return [run.view(), run.view("page.html", limit=5, estimator="nsl", against="other")]


def early(run: divtok.Run) -> None:
    found: divtok.RunningResults = run.running()
    print(found.stops.to_polars(), found.figures[0], found.reason)
    seen: divtok.Acceptance = divtok.acceptance([4, 4], [4, 1], tokens=7)
    print(seen.variation, seen.error, seen.interval(), divtok.acceptance_of({"metrics": None}))


def lists(stored: divtok.Confidence) -> None:
    print(stored.value, divtok.estimators()[0].needs, divtok.ls("families")[0]["name"])
    print(divtok.extract_answer("7"), divtok.grade_answer(gold="1", answer=None))
    print(divtok.jsd_bits([0.0, 1.0], [1.0, 0.0]), divtok.__version__)


try:
    here: divtok.Pair = divtok.load_pair("tiny", device="cpu", dtype="float32")
    there = divtok.load_server_pair("p", "q", p_server="http://a/v1", q_server="http://b/v1")
    one(here)
    one(there)
except divtok.DivtokError as error:
    print(error.what, error.next_step)
"""

# Each is wrong, and the type checker is to say so.
MISTAKES = {
    'divtok.run(limits=3)': "limits",
    'divtok.confidences([("q", "r")], pair="tiny")': "pair",
    'divtok.confidences(3, pair=divtok.load_pair("tiny"))': "rows",
    'divtok.confidence("q", "r", pair=divtok.load_pair("tiny"), theta="high")': "theta",
    'divtok.confidences([("q", "r")], pair=divtok.load_pair("tiny"))[0].value': '"value"',
    'divtok.natural_ece(["high"], [True])': "str",
    'divtok.confidense': "confidense",
}  # fmt: skip


def complaints(tmp_path: Path, text: str) -> list[str]:
    pytest.importorskip("pyright")
    script = tmp_path / "script.py"
    script.write_text(text)
    config = {
        "include": ["script.py"],
        "typeCheckingMode": "strict",
        "pythonVersion": f"{sys.version_info.major}.{sys.version_info.minor}",
        "extraPaths": [str(Path(divtok.__file__).parents[1])],
        "reportUnknownMemberType": False,  # pandas has no types of its own
        "reportMissingTypeStubs": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(
        [*command, "-p", str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [f"line {d['range']['start']['line']}: {d['message']}" for d in found]


def test_a_script_with_every_name_passes(tmp_path: Path) -> None:
    used = set(re.findall(r"divtok\.(\w+)", SCRIPT))
    assert used == {*divtok.__all__, "__version__"}
    assert complaints(tmp_path, SCRIPT) == []


def test_mistakes_are_found(tmp_path: Path) -> None:
    lines = ["import divtok", *(f"print({mistake})" for mistake in MISTAKES)]
    found = complaints(tmp_path, "\n".join(lines) + "\n")
    for number, (mistake, word) in enumerate(MISTAKES.items(), start=1):
        assert any(c.startswith(f"line {number}:") and word in c for c in found), (mistake, found)
