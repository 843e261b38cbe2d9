"""Runs from Python: the same folder, config, tables and figures as the command line's."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import polars as pl
import pytest
import yaml
from console import Command
from console import divtok as console_divtok

# Several test processes share the machine; torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import divtok as package
from divtok.api.runs import RunKeys
from divtok.config.run import RunConfig, load_config
from divtok.config.shortcuts import SHORTCUTS, spelled_out
from divtok.config.tree import override_texts, override_tree
from divtok.errors import ConfigError, NothingScoredError, StoreError, UsageError
from divtok.score.fit_file import load_fit

divtok = console_divtok  # the fixture: the console script in this process

SMALL: dict[str, Any] = {
    "family": "tiny",
    "generators": ["divtok/tiny-0.5m"],
    "benchmarks": ["arith-easy"],
    "limit": 3,
    "samples": 2,
}
ARGUMENTS = (
    *("--family", "tiny", "--limit", "3"),
    *("generators=['divtok/tiny-0.5m']", "benchmarks=['arith-easy']", "samples=2"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> package.Run:
    return package.run(SMALL, out=tmp_path_factory.mktemp("runs") / "made")


def test_the_verb_and_the_function_make_the_same_run(
    run: package.Run, divtok: Command, tmp_path: Path
) -> None:
    out = tmp_path / "said"
    said = divtok("run", "--out", out, *ARGUMENTS)
    assert said.code == 0, said.err
    other = package.Run(str(out))
    assert other.config == run.config
    for name in ("problems", "trajectories", "grades", "counts", "confidences", "evaluations"):
        ours, theirs = getattr(run, name), getattr(other, name)
        assert len(ours) > 0
        assert ours.equals(theirs), name
    assert run.traces.to_polars().equals(other.traces.to_polars())
    assert (run.path / "report" / "README.md").exists()
    # Either goes on with what the other began.
    again = divtok("run", "--out", run.path, *ARGUMENTS)
    assert again.code == 0
    assert "nothing has changed" in again.err
    evaluated = json.loads(divtok("evaluate", out, "--json").out)
    for row, evaluation in zip(evaluated, run.evaluate(), strict=True):
        assert (row["estimator"], row["n"], row["ece"], row["natural_auroc"]) == (
            evaluation.estimator,
            evaluation.n,
            evaluation.ece,
            evaluation.natural_auroc,
        )


def test_the_same_config_however_it_is_given(tmp_path: Path) -> None:
    from divtok.api.runs import _settled

    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({**SMALL, "score": {"n": 7}}))
    dotted = {"score.theta": 0.25, "trace.dtype": "float32", "generate.dtype": "float32"}
    keywords = spelled_out({"score": {"theta": 0.25}, "dtype": "float32"})
    expected = load_config(file, [f"{key}={value}" for key, value in dotted.items()])
    assert _settled(file, override_texts(dotted)) == expected
    assert _settled(str(file), override_texts(keywords)) == expected
    assert _settled({**SMALL, "score": {"n": 7}}, override_texts(keywords)) == expected
    assert expected.score.n == 7  # a section is overridden key by key
    with pytest.raises(ConfigError, match="unknown key 'limits'"):
        package.run({"limits": 3}, out=tmp_path / "no")
    with pytest.raises(ConfigError, match="limit"):
        package.run(limit=-1, out=tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_values_of_python_become_overrides_that_mean_the_same() -> None:
    values: dict[str, Any] = {
        "seed": 7,
        "limit": None,
        "generators": ["a/b", "null", "1.0"],
        "score": {"theta": 0.5, "dtc_lin": {"n": 3}},
        "revisions": {"Qwen/Qwen2.5-7B": "1234"},
        "projections": {"a.b/c": Path("some where#1.safetensors")},
        "evidence": {"relevance": Path("x.jsonl"), "prm": "yes"},
        "generate.options": {},
    }
    assert override_tree({}, list(override_texts(values))) == {
        "seed": 7,
        "limit": None,
        "generators": ["a/b", "null", "1.0"],
        "score": {"theta": 0.5, "dtc_lin": {"n": 3}},
        "revisions": {"Qwen/Qwen2.5-7B": "1234"},
        "projections": {"a.b/c": "some where#1.safetensors"},
        "evidence": {"relevance": "x.jsonl", "prm": "yes"},
        "generate": {"options": {}},
    }


def test_numbers_of_numpy_are_numbers() -> None:
    values: dict[str, Any] = {
        "limit": np.int64(1),
        "score": {"theta": np.float32(0.5), "n": np.int64(7)},
        "evaluate.seeds": np.array([1, 2]),
        "trace.own": np.bool_(True),
    }
    assert override_tree({}, list(override_texts(values))) == {
        "limit": 1,
        "score": {"theta": 0.5, "n": 7},
        "evaluate": {"seeds": [1, 2]},
        "trace": {"own": True},
    }
    with pytest.raises(ConfigError, match=r"score.theta is of type object"):
        list(override_texts({"score": {"theta": object()}}))


def test_no_section_of_names_is_the_default(tmp_path: Path) -> None:
    from divtok.api.runs import _settled

    names = [
        name for name, hint in get_type_hints(RunKeys).items() if "Mapping[str, str" in str(hint)
    ]
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({**SMALL, "revisions": {"a": "b"}}))
    for empty in (None, {}):
        settled = _settled(file, override_texts(dict.fromkeys(names, empty)))
        assert "revisions" in names
        assert settled == _settled(SMALL, [])
    with pytest.raises(ConfigError, match=r"revisions.a/b is None"):
        _settled(SMALL, override_texts({"revisions": {"a/b": None}}))


def test_every_key_of_a_config_is_a_keyword() -> None:
    assert set(get_type_hints(RunKeys)) == {*RunConfig.model_fields, *SHORTCUTS}
    assert spelled_out({"base_url": "http://a/v1", "dtype": None, "limit": None}) == {
        "generate.engine": "api",
        "generate.api.base_url": "http://a/v1",
        "limit": None,
    }


def test_a_run_is_opened_by_name_or_by_folder(
    run: package.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    made = package.run(SMALL, name="mine")
    assert made.path == Path("runs/mine")
    for given in ("mine", "runs/mine", Path("runs/mine"), str(tmp_path / "runs" / "mine")):
        assert package.Run(given).trajectories.equals(run.trajectories)
    with pytest.raises(StoreError, match="Did you mean 'mine'"):
        package.Run("mind")
    with pytest.raises(UsageError, match="Both --name and --out"):
        package.run(SMALL, name="a", out="b")


def test_traces_are_read_by_key_or_one_after_another(run: package.Run) -> None:
    keys = run.trajectories["key"].to_list()
    traces = {trace.key: trace for trace in run.traces}
    assert len(run.traces) == len(traces) == len(keys) == 6
    for key in keys:
        trace = run.traces[key]
        assert (trace.key, trace.p, trace.q) == (key, "divtok/tiny-0.5m", "divtok/tiny-0.3m")
        assert trace.jsd_bits.tolist() == traces[key].jsd_bits.tolist()
    with pytest.raises(UsageError, match="no trajectory nothing"):
        run.traces["nothing"]


def test_what_is_shown_of_a_run(run: package.Run, tmp_path: Path) -> None:
    assert repr(run).startswith(f"<Run {run.path}: problems 3, trajectories 6, grades 6, traces 6")
    assert "dtc_lin" in run._repr_html_()
    assert run.to_polars().equals(run.evaluate().to_polars())
    assert len(repr(run.evaluate()).splitlines()) < 30
    assert run.failures == ()


def test_the_verbs_of_a_run(divtok: Command, tmp_path: Path) -> None:
    made = package.run(SMALL, out=tmp_path / "made")
    made.grade()
    before = made.confidences.filter(pl.col("estimator") == "dtc_lin")
    scored = made.score(theta=0.9).filter(pl.col("estimator") == "dtc_lin")
    assert (scored["value"] >= before["value"]).all()
    assert made.config["score"]["theta"] == 0.9
    assert made.score({"score.theta": 0.05}).filter(pl.col("estimator") == "dtc_lin").equals(before)
    with pytest.raises(UsageError, match="changes more than the scores"):
        made.score({"trace.dtype": "float32"})
    made.gather({"score.estimators": ["trace", "uqac_attn"]})
    assert "uqac_attn" in made.score()["estimator"].to_list()
    made.score(pair=("divtok/tiny-0.9m", "divtok/tiny-0.3m"), theta=0.1)
    assert made.counts["p"].unique().to_list() == ["divtok/tiny-0.9m"]
    assert made.report().read_text().startswith("#")
    swept = made.sweep(n=[5], k=[2], divergence=["jsd", "kl_pq"])
    assert {(row.divergence, row.value) for row in swept if row.parameter != "rate"} == {
        (name, value) for name in ("jsd", "kl_pq") for value in (5, 2)
    }
    assert ("jsd", 1.0) in {(row.divergence, row.value) for row in swept if row.parameter == "rate"}
    assert (made.path / "report" / "tables" / "sweep.csv").exists()
    checked = made.verify()
    assert checked.sound
    assert checked.tables["trajectories"] == 6
    (made.path / "run.yaml").write_text("family: tiny\n")
    assert not made.verify().sound
    assert made.verify(accept=True).sound
    said = divtok("verify", made.path)
    assert said.code == 0


def test_imported_rows_are_scored(divtok: Command, tmp_path: Path) -> None:
    rows = [
        {"question": "What is 1 + 1?", "answer": "2", "response": r"It is \boxed{2}."},
        {"question": "What is 2 + 3?", "answer": "5", "response": r"It is \boxed{6}."},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"generator": "someone", "benchmark": "mine"}
    made = package.import_files(file, "jsonl", out=tmp_path / "ours", **options)
    said = divtok(
        *("import", file, "--format", "jsonl", "--out", tmp_path / "theirs"),
        *("--generator", "someone", "--benchmark", "mine"),
    )
    assert said.code == 0, said.err
    assert made.trajectories.equals(package.Run(tmp_path / "theirs").trajectories)
    with pytest.raises(NothingScoredError):
        made.evaluate()
    assert made._repr_html_().startswith("<p>&lt;Run ")
    made.score(family="tiny")
    assert made.grades["verdict"].to_list() == ["correct", "incorrect"]
    assert made.evaluate()[0].accuracy == 0.5
    pair = package.load_pair("tiny")
    found = package.confidences(rows, pair=pair, progress=False)
    of_run = made.confidences.filter(pl.col("estimator") == "dtc_lin")["value"].to_list()
    assert found.values == pytest.approx(of_run, abs=1e-9)
    with pytest.raises(UsageError, match="name=NAME or out=FOLDER"):
        package.import_files(file, "jsonl")


def test_a_familys_number_is_for_all_its_generators(divtok: Command, tmp_path: Path) -> None:
    said = divtok("fit", "tiny", "--what", "rate", "--limit", "8", "--out", tmp_path / "fit")
    assert said.code == 0, said.err
    (path,) = (tmp_path / "fit" / "fits").iterdir()
    told = " ".join(said.err.split())
    rate = load_fit(path).value
    assert "a run of its pair alone (p divtok/tiny-0.5m, q divtok/tiny-0.3m)" in told
    step = re.search(r"every generator of 'tiny': divtok score RUN (\S+)", told)
    assert step is not None
    assert step[1] == f"score.dtc_weighted.rate={rate:g}"


def test_theta_of_a_family(divtok: Command, tmp_path: Path) -> None:
    ours = package.fit_family("tiny", limit=8, out=tmp_path / "ours")
    said = divtok("fit", "tiny", "--limit", "8", "--out", tmp_path / "theirs", "--json")
    assert json.loads(said.out)["theta"] == ours.theta
    assert json.loads(said.out)["curve"][0]["ece"] == ours.curve[0].ece
    assert package.Run(tmp_path / "ours").fit() == ours


def test_a_run_votes_as_the_verb_does(run: package.Run, divtok: Command, tmp_path: Path) -> None:
    found = run.votes(strategy="best", estimator="nsl")
    rows = run.confidences.to_dicts()
    values = {row["key"]: row["value"] for row in rows if row["estimator"] == "nsl"}
    assert len(found) == 3
    for vote in found:
        if vote.answer is not None:
            assert vote.confidence == max(values[key] for key in vote.keys)
    out = tmp_path / "votes.parquet"
    said = divtok("vote", run.path, "--strategy", "best", "--estimator", "nsl", "--out", out)
    assert said.code == 0, said.err
    read = pl.read_parquet(out)
    for name in ("problem_id", "answer", "confidence", "samples", "tokens", "correct"):
        assert read[name].to_list() == [getattr(vote, name) for vote in found]
