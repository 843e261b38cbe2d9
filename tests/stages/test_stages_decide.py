"""Policies of runs made by hand: made, kept, found, applied, refused."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from stages_samples import AUXILIARY, GENERATOR, Row, handmade_run, small_config

import divtok
from divtok.config.run import RunConfig
from divtok.decide.policy import Policy, quantiles_of
from divtok.errors import DataError, NothingScoredError, UsageError
from divtok.records import Verdict
from divtok.stages.decide import decide, keep
from divtok.stages.decisions_file import write_decisions
from divtok.stages.fit import fit
from divtok.stages.fit import keep as keep_fit
from divtok.stages.fits import kept_fits
from divtok.stages.policies import ANOTHER_GENERATOR, apply_policy, find_policy, policy_path
from divtok.stages.rescore import rescore
from divtok.stages.stored import stored_config
from divtok.stages.token_costs import active_parameters, token_cost
from divtok.stages.verify import verify
from divtok.store.run import Run

RIGHT, WRONG = Verdict.CORRECT, Verdict.INCORRECT
OTHER, READER = "divtok/tiny-0.9m", "divtok/tiny-1.6m"
CONFIG = ("score.estimators=['dtc_lin']",)


def rows(n: int = 100, generator: str = GENERATOR, *, benchmark: str = "bench") -> list[Row]:
    """Of every five, three right at 0.95, one right at 0.5, one wrong at 0.41."""
    kinds = [(RIGHT, 0.95)] * 3 + [(RIGHT, 0.5), (WRONG, 0.41)]
    return [
        Row(
            f"p{i:03}",
            generator=generator,
            benchmark=benchmark,
            verdict=kinds[i % 5][0],
            values={"dtc_lin": kinds[i % 5][1]},
        )
        for i in range(n)
    ]


def made(folder: Path, given: Sequence[Row] | None = None, *config: str) -> Run:
    return handmade_run(
        folder, rows() if given is None else given, config=small_config(*CONFIG, *config)
    )


def made_policy(run: Run, risk: float = 0.05) -> Policy:
    policy = decide(run, stored_config(run), risk=risk)[GENERATOR].policy
    assert policy is not None
    return policy


def test_a_policy_says_what_it_was_made_of(tmp_path: Path):
    run = made(tmp_path / "run")
    (generator, offer), *others = decide(
        run, stored_config(run), risk=0.05, below="escalate", to="big", seed=3
    ).items()
    assert (generator, others) == (GENERATOR, [])
    assert (offer.estimator, offer.coverage, offer.accepted_risk) == ("dtc_lin", 0.8, 0.0)
    assert offer.floor == pytest.approx(0.15 / 0.95)
    policy = offer.policy
    assert policy is not None
    assert (policy.threshold, policy.below, policy.to, policy.generator) == (
        0.5,
        "escalate",
        "big",
        GENERATOR,
    )
    assert policy.scored.pair == (GENERATOR, AUXILIARY)
    assert (policy.scored.tokens, policy.scored.prior) == ("reasoning", None)
    assert (policy.made_of["run"], policy.made_of["seed"]) == (run.id, 3)
    assert policy.made_of["benchmarks"] == ["bench"]
    assert policy.made_of["tables"]["grades"] == run.grades.identity()
    assert not run.policies.exists()  # deciding writes nothing


def test_a_policy_is_kept_and_found_by_file_or_run(tmp_path: Path):
    run = made(tmp_path / "run")
    with pytest.raises(DataError, match="No policy was made on the run"):
        find_policy(str(run.path))
    offers = keep(run, decide(run, stored_config(run), risk=0.05))
    policy = offers[GENERATOR].policy
    assert policy is not None
    assert policy.identity is not None
    path = policy_path(run, policy)
    assert path.name == "dtc_lin-divtok-tiny-0.5m-risk-5-delta-10.json"
    assert find_policy(str(run.path)) == find_policy(str(path)) == policy
    assert verify(run).sound
    keep(run, decide(run, stored_config(run), risk=0.1))
    keep(run, decide(run, stored_config(run), risk=0.1, delta=0.2))
    with pytest.raises(UsageError, match="has 3 policies"):
        find_policy(str(run.path))
    assert find_policy(str(path)) == policy
    path.write_text(path.read_text().replace("0.05", "0.01"))
    assert [finding.path for finding in verify(run).findings] == [path]


def test_a_policy_that_takes_the_place_of_another_is_said_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = made(tmp_path / "run")
    for seed in (0, 0):
        keep(run, decide(run, stored_config(run), risk=0.05, seed=seed))
    assert "replaced" not in capsys.readouterr().err
    keep(run, decide(run, stored_config(run), risk=0.05, below="escalate", to="big"))
    assert "decide: replaced another policy" in capsys.readouterr().err
    assert find_policy(str(run.path)).to == "big"


def test_a_run_that_cannot_be_written_still_gives_the_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = made(tmp_path / "run")
    offers = decide(run, stored_config(run), risk=0.05)
    with run.lock():  # somebody else writes
        kept = keep(Run.open(run.path), offers)
    assert kept == offers
    assert "not kept with the run" in capsys.readouterr().err


def test_nothing_is_kept_where_nothing_can_be_promised(tmp_path: Path):
    run = made(tmp_path / "run", rows(20))
    offers = keep(run, decide(run, stored_config(run), risk=0.05))
    assert offers[GENERATOR].policy is None
    assert offers[GENERATOR].promise.reason == "it takes 45 problems, and there are 20"
    assert not run.policies.exists()


def test_unknown_names_and_settings_that_contradict_are_refused(tmp_path: Path):
    run = made(tmp_path / "run", rows(20))  # also where no promise is possible
    config = stored_config(run)
    with pytest.raises(UsageError, match="no graded response of 'nobody'"):
        decide(run, config, risk=0.05, generator="nobody")
    with pytest.raises(UsageError, match="no confidences of 'nsl'"):
        decide(run, config, risk=0.05, estimator="nsl")
    with pytest.raises(UsageError, match="risk must be between 0 and 1"):
        decide(run, config, risk=5)
    with pytest.raises(UsageError, match="A model to escalate to is named"):
        decide(run, config, risk=0.05, to="big")


def test_a_generator_without_values_is_left_out_and_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    both = small_config(*CONFIG, f"generators=['{GENERATOR}','{OTHER}']")
    empty = [replace(row, values={"dtc_lin": None}) for row in rows(20, OTHER)]
    run = handmade_run(tmp_path / "run", [*rows(), *empty], config=both)
    assert list(decide(run, stored_config(run), risk=0.05)) == [GENERATOR]
    what = f"no graded response of {OTHER} has a confidence of 'dtc_lin'"
    assert f"decide: {what}" in capsys.readouterr().err
    with pytest.raises(DataError, match=what):
        decide(run, stored_config(run), risk=0.05, generator=OTHER)


def test_a_run_without_confidences_says_so(tmp_path: Path):
    run = made(tmp_path / "run", [Row()])
    with pytest.raises(NothingScoredError):
        decide(run, stored_config(run), risk=0.05)


def test_problems_without_a_gold_answer_do_not_count(tmp_path: Path):
    undecided = [replace(row, verdict=Verdict.UNDETERMINED) for row in rows(120)[100:]]
    run = made(tmp_path / "run", [*rows(), *undecided])
    offer = decide(run, stored_config(run), risk=0.05)[GENERATOR]
    assert (offer.responses, offer.undecided, offer.base_risk) == (100, 20, 0.2)


def test_each_generator_has_a_policy_over_all_benchmarks(tmp_path: Path):
    generators = f"generators=['{GENERATOR}','{OTHER}']"
    given = [
        *rows(50),
        *rows(50, benchmark="other"),
        *(replace(row, verdict=WRONG) for row in rows(60, OTHER)),
    ]
    run = made(tmp_path / "run", given, generators)
    offers = decide(run, stored_config(run), risk=0.05)
    assert [(g, o.problems, o.policy is not None) for g, o in offers.items()] == [
        (GENERATOR, 100, True),
        (OTHER, 60, False),
    ]
    assert list(decide(run, stored_config(run), risk=0.05, generator=OTHER)) == [OTHER]
    policy = offers[GENERATOR].policy
    assert policy is not None
    assert policy.made_of["benchmarks"] == ["bench", "other"]


def test_a_policy_decides_on_every_response(tmp_path: Path):
    policy = made_policy(made(tmp_path / "run"))
    new = [
        Row("a", verdict=RIGHT, values={"dtc_lin": 0.95}),
        Row("b", verdict=WRONG, values={"dtc_lin": 0.5}),
        Row("c", verdict=RIGHT, values={"dtc_lin": 0.499}),
        Row("d", verdict=RIGHT, values={"dtc_lin": None}),
        Row("e", verdict=RIGHT, truncated=True, values={"dtc_lin": 0.95}),
        Row("f", verdict=Verdict.UNANSWERED, values={"dtc_lin": 0.95}),
        Row("g", verdict=Verdict.UNDETERMINED, values={"dtc_lin": 0.95}),
        Row("h", verdict=None, values={"dtc_lin": 0.95}),
        Row("i", verdict=None, truncated=True, values={"dtc_lin": 0.95}),
    ]
    run = made(tmp_path / "new", new)
    applied = apply_policy(run, stored_config(run), policy)
    found = [(r.response.problem_id, r.decision.action, r.correct) for r in applied.rows]
    assert found == [
        ("a", "accept", True),
        ("b", "accept", False),
        ("c", "abstain", True),
        ("d", "abstain", True),
        ("e", "accept", True),
        ("f", "accept", False),
        ("g", "accept", None),
        ("h", "accept", None),
        ("i", "accept", None),
    ]
    assert applied.actions == Counter(accept=7, abstain=2)
    assert (applied.graded, applied.wrong) == (4, 0.5)
    assert applied.wrong_interval is not None
    assert applied.wrong_interval.low < 0.5 < applied.wrong_interval.high
    assert applied.warning is None  # nine confidences say nothing


def test_nothing_accepted_has_no_share_of_wrong_ones(tmp_path: Path):
    policy = made_policy(made(tmp_path / "run"))
    run = made(tmp_path / "new", [Row("a", values={"dtc_lin": 0.1})])
    applied = apply_policy(run, stored_config(run), policy)
    assert (applied.graded, applied.wrong, applied.wrong_interval) == (0, None, None)


def test_the_same_data_are_alike_and_others_are_not(tmp_path: Path):
    run = made(tmp_path / "run")
    policy = made_policy(run)
    assert apply_policy(run, stored_config(run), policy).warning is None
    low = [replace(row, values={"dtc_lin": 0.05}) for row in rows(40)]
    new = made(tmp_path / "new", low)
    warning = apply_policy(new, stored_config(new), policy).warning
    assert warning is not None
    assert warning.kind == "unlike"
    assert "its promise may not hold" in warning


def black_box(folder: Path, *generators: str) -> tuple[Run, RunConfig]:
    """A run whose generators are all read by one pair."""
    names = ",".join(f"'{name}'" for name in generators)
    given = [row for name in generators for row in rows(60, name)]
    run = made(folder, given, f"generators=[{names}]", f"trace.reader='{READER}'")
    return run, stored_config(run)


def test_a_pair_that_reads_others_is_the_policys_too(tmp_path: Path):
    run, config = black_box(tmp_path / "run", GENERATOR, OTHER)
    offers = decide(run, config, risk=0.05)
    policies = [offer.policy for offer in offers.values()]
    assert all(p is not None and p.scored.pair == (READER, AUXILIARY) for p in policies)
    policy = policies[0]
    assert policy is not None
    applied = apply_policy(run, config, policy)  # on its own generator's answers alone
    assert {row.response.generator for row in applied.rows} == {GENERATOR}
    assert applied.warning is None
    run, config = black_box(tmp_path / "other", OTHER)
    applied = apply_policy(run, config, policy)
    assert len(applied.rows) == 60
    assert applied.warning is not None
    assert applied.warning.kind == ANOTHER_GENERATOR
    assert GENERATOR in applied.warning
    assert apply_policy(run, config, replace(policy, generator="")).warning is None


def test_a_policy_is_refused_for_what_was_made_otherwise(tmp_path: Path):
    policy = made_policy(made(tmp_path / "run"))
    pair, _ = black_box(tmp_path / "pair", GENERATOR)
    with pytest.raises(UsageError, match=f"here it is p {READER}, q {AUXILIARY}"):
        apply_policy(pair, stored_config(pair), policy)
    tokens = made(tmp_path / "tokens", None, "score.tokens='all'")
    with pytest.raises(UsageError, match="the tokens 'reasoning'; here they are 'all'"):
        apply_policy(tokens, stored_config(tokens), policy)
    unscored = made(tmp_path / "unscored", [Row("a", values={"nsl": 0.4})])
    with pytest.raises(UsageError, match="was not scored by 'dtc_lin'") as refused:
        apply_policy(unscored, stored_config(unscored), policy)
    assert "score.estimators=[dtc_lin]" in str(refused.value.next_step)
    params = replace(policy, scored=replace(policy.scored, params={"n": 12}))
    run = made(tmp_path / "again")
    with pytest.raises(UsageError, match="n 12; here it is not given"):
        apply_policy(run, stored_config(run), params)


def test_bounds_must_reach_the_threshold_by_their_lower_end(tmp_path: Path):
    """Servers that give likely tokens only bound a confidence from both sides."""
    run = made(tmp_path / "run")
    with run.lock():
        bounded = [
            replace(c, low=(c.value or 0) - 0.05, high=(c.value or 0) + 0.05)
            for c in run.confidences.read()
        ]
        run.confidences.replace(bounded)
    config = stored_config(run)
    policy = made_policy(run)
    assert policy.threshold == pytest.approx(0.45)
    assert policy.quantiles == quantiles_of(
        [row.values["dtc_lin"] - 0.05 for row in rows() if row.values["dtc_lin"]]
    )
    applied = apply_policy(run, config, policy)
    assert applied.warning is None
    higher = replace(policy, threshold=0.48)
    kinds = Counter(row.decision.reason.kind for row in apply_policy(run, config, higher).rows)
    assert kinds == {"above": 60, "not_certain": 20, "below": 20}


def traced(folder: Path, *config: str, tokens: int = 4) -> Run:
    """Wrong responses are longer, and so diverge more; scored from their traces."""
    given = [
        Row(f"p{i:03}", verdict=WRONG if i % 5 == 4 else RIGHT, tokens=20 if i % 5 == 4 else tokens)
        for i in range(100)
    ]
    run = made(folder, given, *config)
    rescore(run)
    return run


def test_a_policy_on_a_fitted_map_needs_that_map(tmp_path: Path):
    fitted = traced(tmp_path / "fitted", tokens=5)
    found = fit(fitted, stored_config(fitted), what="isotonic", estimator="dtc_lin")
    keep_fit(fitted, found)
    assert found.fitted is not None
    run = traced(tmp_path / "run")
    plain = made_policy(run)
    rescore(run, fitted=[str(fitted.path)])
    policy = made_policy(run)
    assert policy.scored.params["map"] == "isotonic"
    assert policy.scored.params["map_of"] == found.fitted.identity
    assert policy.scored.prior == 0.8  # the share of right answers that the map is for
    assert apply_policy(run, stored_config(run), policy).actions == {"accept": 80, "abstain": 20}
    with pytest.raises(UsageError, match="map not given; here it is isotonic"):
        apply_policy(run, stored_config(run), plain)
    pair = divtok.load_pair(GENERATOR, AUXILIARY)
    ask = partial(divtok.confidence, "What?", "It is 2.", pair=pair, policy=policy)
    result = ask(fitted=str(fitted.path))
    assert result.decision is not None
    assert result.decision.accepted == (result.value >= policy.threshold)
    with pytest.raises(UsageError, match="map isotonic; here it is not given"):
        ask()
    with pytest.raises(UsageError, match="stated for 80 % right; here they are stated for 30 %"):
        ask(fitted=str(fitted.path), prior=0.3)


def test_what_has_learned_from_these_grades_has_no_promise_here(tmp_path: Path):
    run = traced(tmp_path / "run")
    config = stored_config(run)
    for what in ("isotonic", "logistic"):
        keep_fit(run, fit(run, config, what=what, estimator="dtc_lin"))
    isotonic, logistic = (find_fit_named(run, what) for what in ("isotonic", "logistic"))
    rescore(run, fitted=[isotonic])
    with pytest.raises(DataError, match=r"The isotonic map of 'dtc_lin' was fitted on the grades"):
        made_policy(run)
    rescore(run, fitted=[logistic])  # keeps the order, so a threshold accepts the same
    assert decide(run, config, risk=0.05)[GENERATOR].coverage == 0.8
    other = traced(tmp_path / "other", tokens=5)
    rescore(other, fitted=[isotonic])
    assert decide(other, stored_config(other), risk=0.05)[GENERATOR].coverage == 0.8


def find_fit_named(run: Run, what: str) -> str:
    (path,) = [path for path in kept_fits(run) if what in path.name]
    return str(path)


def test_confidences_that_a_run_has_shifted_have_no_threshold(tmp_path: Path):
    """Each depends on all others of its run: on two runs the same value means another thing."""
    run = traced(tmp_path / "run", "score.prior=0.6")
    shifted = pytest.raises(DataError, match=r"shifted by what all those of its run are")
    with shifted as refused:
        made_policy(run)
    assert "score.prior=null" in str(refused.value.next_step)
    rescore(run, ["score.prior=null"])
    policy = made_policy(run)
    assert policy.scored.prior is None
    # Wrong answers alone are lifted to a mean of 0.6, where this policy would have taken them.
    wrong = traced_wrong(tmp_path / "wrong", "score.prior=0.6")
    values = [c.value for c in wrong.confidences.read()]
    assert values == pytest.approx([0.6] * 10)
    stated = replace(policy, threshold=0.5, scored=replace(policy.scored, prior=0.6))
    with shifted:
        apply_policy(wrong, stored_config(wrong), stated)


def test_a_map_of_the_share_that_the_run_is_shifted_to_is_no_excuse(tmp_path: Path):
    fitted = traced(tmp_path / "fitted")
    found = fit(fitted, stored_config(fitted), what="isotonic", estimator="dtc_lin")
    keep_fit(fitted, found)
    run = traced(tmp_path / "run")
    rescore(run, ["score.prior=0.8"], fitted=[str(fitted.path)])
    with pytest.raises(DataError, match="shifted by what all those of its run are"):
        made_policy(run)


def traced_wrong(folder: Path, *config: str) -> Run:
    """Ten long responses, all wrong and alike."""
    run = made(folder, [Row(f"p{i:03}", verdict=WRONG, tokens=20) for i in range(10)], *config)
    rescore(run)
    return run


def test_parameters_of_each_benchmark_have_no_threshold(tmp_path: Path):
    run = made(tmp_path / "run", [*rows(50), *rows(50, benchmark="other")])
    with run.lock():
        run.confidences.replace(
            [
                replace(c, params={"learned": 1 if c.key.startswith("bench") else 2})
                for c in run.confidences.read()
            ]
        )
    with pytest.raises(DataError, match="made otherwise on each benchmark"):
        decide(run, stored_config(run), risk=0.05)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_decisions_are_written_as_a_file(tmp_path: Path, suffix: str):
    policy = replace(made_policy(made(tmp_path / "run")), below="escalate", to="big")
    run = made(tmp_path / "new", rows(5))
    out = tmp_path / f"decisions.{suffix}"
    assert write_decisions(apply_policy(run, stored_config(run), policy), out) == 5
    if suffix == "csv":
        with out.open(encoding="utf-8", newline="") as file:
            found = list(csv.DictReader(file))
    elif suffix == "jsonl":
        found = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    else:
        import polars as pl

        found = pl.read_parquet(out).to_dicts()
    assert [row["action"] for row in found] == ["accept"] * 4 + ["escalate"]
    assert [row["to"] or None for row in found] == [None] * 4 + ["big"]
    truths = ("true", "false") if suffix == "csv" else (True, False)
    assert [row["correct"] for row in found] == [truths[0]] * 4 + [truths[1]]
    assert [float(row["confidence"]) for row in found] == [0.95, 0.95, 0.95, 0.5, 0.41]
    assert found[4]["reason"] == "0.41 is below 0.5"


def test_a_token_costs_what_its_models_do(tmp_path: Path):
    config = stored_config(made(tmp_path / "run", rows(1)))
    cost = token_cost(config, GENERATOR)
    assert cost.unit == "parameters"
    assert cost.write == active_parameters(config, GENERATOR)
    assert cost.read == cost.write + (active_parameters(config, AUXILIARY) or 0)
    unknown = token_cost(config, "nobody/knows")
    assert (unknown.write, unknown.read, unknown.unit) == (1.0, 0.0, "tokens")
