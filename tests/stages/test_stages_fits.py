"""Fits of runs made by hand: kept, applied, refused, and flagged where they judge themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from console import Command
from console import divtok as divtok  # a fixture
from stages_samples import AUXILIARY, GENERATOR, Row, handmade_run, small_config, trace_of

import divtok as divtok_package
from divtok.config.joined import joined
from divtok.config.run import load_config
from divtok.errors import DataError, UsageError
from divtok.evaluate.fit_map import MapFit
from divtok.evaluate.fit_rate import RateFit
from divtok.records import Grade, Trace, Verdict
from divtok.score.fit_file import load_fit
from divtok.score.registry import ESTIMATORS, estimator
from divtok.stages.evaluate import results_of
from divtok.stages.fit import fit, keep
from divtok.stages.fits import (
    find_fit,
    fit_path,
    kept_fits,
    maps_for,
    named_fits,
    stored_fits,
    with_fits,
)
from divtok.stages.rescore import rescore
from divtok.stages.run import run_stages
from divtok.stages.stored import stored_config
from divtok.stages.verify import verify
from divtok.store.run import Run

RIGHT, WRONG = Verdict.CORRECT, Verdict.INCORRECT
CONFIG = ("score.estimators=['dtc_lin','dtc_weighted','nsl']", "evaluate.resamples=20")


def rows() -> list[Row]:
    return [
        Row(f"p{i // 2:02}", i % 2, verdict=RIGHT if i % 3 else WRONG, tokens=4 + i % 5)
        for i in range(24)
    ]


def made(folder: Path, given: Sequence[Row] | None = None) -> Run:
    """A run with traces and scores; wrong responses diverge more."""
    given = rows() if given is None else given
    run = handmade_run(folder, given, config=small_config(*CONFIG))
    with run.lock():
        run.traces.append([_trace(row) for row in given])
    rescore(run)
    return run


def _trace(row: Row):
    trace = trace_of(row)
    level = 0.7 if row.verdict == WRONG else 0.2
    bits = (level + 0.05 * np.sin(np.arange(len(trace)) + row.tokens)).astype(np.float32)
    return replace(trace, jsd_bits=bits)


def params(run: Run, estimator: str) -> dict[str, object]:
    return dict(next(c.params for c in run.confidences.read() if c.estimator == estimator))


def values(run: Run, estimator: str) -> list[float | None]:
    return [c.value for c in run.confidences.read() if c.estimator == estimator]


def test_a_map_is_kept_with_all_that_says_where_it_applies(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    found = fit(run, stored_config(run), what="isotonic", estimator="dtc_weighted")
    assert keep(run, found)
    (path,) = kept_fits(run)
    kept = load_fit(path)
    assert kept == found.fitted
    assert path == fit_path(run, kept) == find_fit(str(run.path))
    assert (kept.pairs, kept.generators) == (((GENERATOR, AUXILIARY),), (GENERATOR,))
    assert (kept.params, kept.tokens, kept.prior) == ({"rate": 1.0}, "reasoning", 16 / 24)
    assert kept.made_of["run"] == run.id
    assert kept.made_of["tables"]["traces"] == run.traces.identity()
    assert (kept.responses, kept.problems) == (24, 12)
    assert verify(run).sound
    path.write_text(path.read_text().replace("isotonic", "isotonik"))
    assert not verify(run).sound


def test_scoring_with_a_map_of_the_same_run_is_flagged(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    plain = values(run, "dtc_weighted")
    found = fit(run, stored_config(run), what="isotonic", estimator="dtc_weighted")
    assert isinstance(found, MapFit)
    keep(run, found)
    rescore(run, fitted=[str(run.path)])
    assert values(run, "dtc_weighted") == [float(found.map(v)) for v in plain if v is not None]
    assert {c.prior for c in run.confidences.read() if c.estimator == "dtc_weighted"} == {16 / 24}
    said = params(run, "dtc_weighted")
    assert found.fitted is not None
    assert (said["map"], said["map_of"]) == ("isotonic", found.fitted.identity)
    assert "map" not in params(run, "nsl")
    assert [each["fitted_here"] for each in stored_fits(run)] == [True]
    results = results_of(run, stored_config(run))
    (note,) = [note for note in results.notes if note.key == "fitted_here"]
    assert "was fitted on these responses" in note.lines[0]
    flagged = {e.estimator: note.value(e) for e in results.evaluations}
    assert flagged["dtc_weighted"] is True
    assert flagged["nsl"] is False
    with pytest.raises(UsageError, match="A map was applied to the confidences"):
        fit(run, stored_config(run), what="isotonic", estimator="dtc_weighted")
    rescore(run, ["score.fitted=null"])
    assert values(run, "dtc_weighted") == plain
    assert stored_fits(run) == []


def test_a_map_of_another_run_is_not_flagged(tmp_path: Path) -> None:
    other, run = made(tmp_path / "other"), made(tmp_path / "run", rows()[:14])
    keep(other, fit(other, stored_config(other), what="logistic", estimator="dtc_weighted"))
    rescore(run, fitted=[str(other.path)])
    assert [each["fitted_here"] for each in stored_fits(run)] == [False]
    (note,) = [n for n in results_of(run, stored_config(run)).notes if n.key == "fitted_here"]
    assert note.lines == ()


def test_a_fitted_theta_and_rate_set_the_parameter(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    config = stored_config(run)
    theta, rate = fit(run, config), fit(run, config, what="rate")
    for found in (theta, rate):
        keep(run, found)
    paths = [str(path) for path in kept_fits(run)]
    assert theta.fitted is not None
    assert rate.fitted is not None
    rescore(run, fitted=paths)
    assert params(run, "dtc_lin")["theta"] == theta.fitted.value
    assert params(run, "dtc_weighted") == {"rate": rate.fitted.value}
    assert stored_config(run).fitted_theta == theta.fitted.value
    with pytest.raises(UsageError, match=r"The theta .* was fitted, but here it is 0.33"):
        rescore(run, theta=0.33)
    with pytest.raises(UsageError, match=r"has 2 fits"):
        rescore(run, fitted=[str(run.path)])
    # A new run that names them takes both, and one that gives its own is refused.
    new = with_fits(small_config(*CONFIG, f"score.fitted={paths}".replace("'", '"')))
    assert new.bound("dtc_weighted") == {"rate": rate.fitted.value}


def test_without_a_fit_the_values_before_are_back(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    rescore(run, ["score.theta=0.33", "score.rate=0.5", "score.dtc_weighted.rate=2"])
    before = {c.key + c.estimator: (c.params, c.value) for c in run.confidences.read()}
    text = run.config_text()
    for what in ("theta", "rate"):
        keep(run, fit(run, stored_config(run), what=what))
    theta, rate = (run.fits / name for name in ("dtc_lin-theta.json", "dtc_weighted-rate.json"))
    rescore(run, fitted=[str(theta), str(rate)])
    assert params(run, "dtc_lin")["theta"] == load_fit(theta).value != 0.33
    assert params(run, "dtc_weighted")["rate"] == load_fit(rate).value != 2
    rescore(run)  # and they stay
    assert params(run, "dtc_weighted")["rate"] == load_fit(rate).value
    rescore(run, ["score.fitted=null"])
    assert {c.key + c.estimator: (c.params, c.value) for c in run.confidences.read()} == before
    assert run.config_text() == text
    keep(run, fit(run, stored_config(run), what="isotonic", estimator="dtc_weighted"))
    rescore(run, fitted=[str(run.fits / "dtc_weighted-isotonic.json")])
    assert params(run, "dtc_weighted") == {
        "rate": 2,
        "map": "isotonic",
        "map_of": load_fit(run.fits / "dtc_weighted-isotonic.json").identity,
    }
    rescore(run, fitted=[str(rate)])  # another fit in its place, without null between
    assert params(run, "dtc_weighted") == {"rate": load_fit(rate).value}
    assert params(run, "dtc_lin")["theta"] == 0.33


def test_only_the_keys_of_a_parameter_name_it(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    found = fit(run, stored_config(run), what="rate")
    keep(run, found)
    assert found.fitted is not None
    rescore(run, ["score.dtc_weighted.rate=3", "score.estimators=['dtc_weighted','dtc_lin']"])
    rescore(run, ["score.dtc_guarded.rate=2"], fitted=[str(run.path)])
    assert params(run, "dtc_weighted") == {"rate": found.fitted.value}
    for own in ("score.dtc_weighted.rate=4", "score.rate=4", "score.dtc_weighted={rate: 4}"):
        with pytest.raises(UsageError, match="here it is"):
            rescore(run, [own], fitted=[str(run.path)])


def test_a_run_that_goes_on_keeps_what_its_fits_set_unless_it_is_told(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    keep(run, fit(run, stored_config(run)))
    rescore(run, fitted=[str(run.path)])
    stored = stored_config(run)
    of_fit = load_fit(kept_fits(run)[0]).value
    assert with_fits(joined(stored, load_config(None, ["limit=5"]))).fitted_theta == of_fit
    told = with_fits(joined(stored, load_config(None, ["score.theta=0.33"])))
    assert told.fitted_theta == 0.33


def test_another_pair_estimator_or_rate_is_refused(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    config = stored_config(run)
    keep(run, fit(run, config, what="isotonic", estimator="dtc_weighted"))
    named = f'score.fitted=["{kept_fits(run)[0]}"]'
    chosen = [ESTIMATORS.get("dtc_weighted")]
    for overrides, words in (
        (
            ("trace.auxiliary=else",),
            r"another pair .*here it is p .*, q else",
        ),
        (("score.dtc_weighted.rate=2",), "was fitted with rate 1.0, here it is 2"),
        (("score.tokens=all",), "the tokens 'reasoning', here they are 'all'"),
    ):
        wrong = small_config(*CONFIG, named, *overrides)
        with pytest.raises(UsageError, match=words):
            maps_for(wrong, chosen, named_fits(wrong))
    with pytest.raises(UsageError, match="'dtc_weighted' is not scored"):
        maps_for(config, [ESTIMATORS.get("nsl")], named_fits(small_config(*CONFIG, named)))
    twice = named.replace("]", "") + "," + named.partition("[")[2]
    with pytest.raises(UsageError, match="for one pair"):
        named_fits(small_config(*CONFIG, twice))


def test_agreement_gives_the_same_whatever_the_grades_say(tmp_path: Path) -> None:
    given = [Row(f"p{i // 4}", i % 4, tokens=4 + i % 5) for i in range(24)]
    answers = ["7", "7.0", "7", "8", "1", "2", "3", "4"] * 3
    found = []
    for name, verdicts in (("none", [Verdict.UNDETERMINED]), ("some", [RIGHT, WRONG, WRONG])):
        run = made(tmp_path / name, given)
        with run.lock():
            run.grades.replace(
                [
                    Grade(row.key, answer, verdicts[place % len(verdicts)])
                    for place, (row, answer) in enumerate(zip(given, answers, strict=True))
                ]
            )
        config = stored_config(run)
        found.append(fit(run, config, what="isotonic", estimator="nsl", target="agreement"))
    none, some = found
    assert isinstance(none, MapFit)
    assert isinstance(some, MapFit)
    assert (none.map, none.prior, none.n, none.wrong) == (some.map, some.prior, some.n, some.wrong)
    assert none.n - none.wrong == 9  # three times three of four
    assert none.prior == pytest.approx(np.sqrt(0.5) / 2)
    assert none.figures.reason is not None
    assert none.figures.held_out is None
    assert some.figures.held_out is not None


def test_an_estimator_that_was_not_scored_is_named(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    with pytest.raises(DataError, match="was not scored by 'entropy'") as caught:
        fit(run, stored_config(run), what="isotonic", estimator="entropy")
    assert caught.value.next_step is not None
    # Those that it is scored with stay.
    asked = re.search(r"score\.estimators=\[[^\]]*\]", caught.value.next_step)
    assert asked is not None
    rescore(run, [asked[0]])
    names = {c.estimator for c in run.confidences.read()}
    assert names == {"dtc_lin", "dtc_weighted", "nsl", "entropy"}


def test_a_guarded_rate_is_fitted_and_scored_with(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    rescore(run, ["score.estimators=['dtc_weighted','dtc_guarded']", "score.guard=4"])
    config = stored_config(run)
    found = fit(run, config, what="rate", estimator="dtc_guarded")
    assert isinstance(found, RateFit)
    assert found.fitted is not None
    assert found.fitted.params == {"rate": found.rate, "guard": 4}
    keep(run, found)
    assert [path.name for path in kept_fits(run)] == ["dtc_guarded-rate.json"]
    # Its values at the rate that is in use are what its sums say.
    assert found.figures is not None
    before = [v for v in values(run, "dtc_guarded") if v is not None]
    right = [row.verdict == RIGHT for row in rows()]
    assert found.figures.before is not None
    assert found.figures.before.brier == pytest.approx(np.mean((np.array(before) - right) ** 2))
    rescore(run, fitted=[str(run.path)])
    assert params(run, "dtc_guarded") == {"rate": found.rate, "guard": 4}
    assert params(run, "dtc_weighted") == {"rate": 1}
    with pytest.raises(UsageError, match="was fitted with guard 4, here it is 3"):
        rescore(run, ["score.guard=3"])
    with pytest.raises(UsageError) as caught:
        rescore(run, ["score.dtc_guarded.rate=77"])
    rate = f"The rate {found.rate:g} of dtc_guarded was fitted, but here it is 77."
    assert caught.value.what == rate
    assert caught.value.next_step == "Give no other rate, or leave it out: score.fitted=null"


def test_an_estimator_of_ones_own_may_have_a_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for held in ("_things", "_origins"):
        monkeypatch.setattr(ESTIMATORS, held, dict(getattr(ESTIMATORS, held)))
    run = made(tmp_path / "run")

    @estimator("by_length", needs=("jsd_bits",), rate_of=len)
    def by_length(trace: Trace, *, rate: float = 0.1) -> float:
        """Shorter is better."""
        return float(np.exp(-rate * len(trace)))

    found = fit(run, stored_config(run), what="rate", estimator="by_length")
    assert found.fitted is not None
    assert (found.fitted.estimator, found.fitted.name) == ("by_length", "by_length-rate")
    keep(run, found)
    rescore(run, ["score.estimators=['by_length']"], fitted=[str(run.path)])
    assert params(run, "by_length") == {"rate": found.fitted.value}
    of_six = next(row for row in rows() if row.tokens == 6)
    values_of = {c.key: c.value for c in run.confidences.read()}
    assert values_of[of_six.key] == by_length(trace_of(of_six), rate=found.fitted.value)


def test_that_pairs_were_taken_together_is_kept_with_the_fit(tmp_path: Path) -> None:
    many = [replace(row, generator=g) for row in rows() for g in (GENERATOR, "divtok/tiny-0.9m")]
    run = handmade_run(tmp_path / "run", many, config=small_config(*CONFIG, "generators=null"))
    with run.lock():
        run.traces.append([_trace(row) for row in many])
    found = fit(run, stored_config(run))
    keep(run, found)
    note = "It is fitted on the responses of 2 pairs of models together."
    assert found.notes.count(note) == 1
    assert load_fit(kept_fits(run)[0]).notes == found.notes


def test_the_map_is_shown(tmp_path: Path, divtok: Command) -> None:
    run = made(tmp_path / "run")
    keep(run, fit(run, stored_config(run), what="isotonic", estimator="nsl"))
    rescore(run, fitted=[str(run.path)])
    said = divtok("show", run.path, rows()[0].key)
    assert said.code == 0, said.err
    (line,) = [line for line in said.out.splitlines() if line.startswith("nsl")]
    assert "(isotonic map; stated for 66.7 % right answers)" in line
    assert "map" not in next(t for t in said.out.splitlines() if t.startswith("dtc_weighted"))


def test_the_command_says_what_it_is_worth_and_where_it_is(tmp_path: Path, divtok: Command) -> None:
    run = made(tmp_path / "run")
    said = divtok("fit", "--run", run.path, "--what", "isotonic", "--estimator", "nsl")
    assert said.code == 0, said.err
    assert "problems held out (5 parts)" in said.out
    (path,) = kept_fits(run)
    assert f"divtok score RUN --fitted {path}" in " ".join(said.err.split())
    told = divtok("fit", "--run", run.path, "--what", "isotonic", "--estimator", "nsl", "--json")
    ours = divtok_package.Run(run.path).fit("isotonic", estimator="nsl")
    found = json.loads(told.out)
    assert found["map"]["knots"] == [list(knot) for knot in getattr(ours.map, "knots", ())]
    assert found["fitted"]["identity"] == load_fit(path).identity
    assert found["figures"]["held_out"]["natural_ece"] == pytest.approx(
        ours.figures.held_out and ours.figures.held_out.natural_ece
    )
    applied = divtok("score", run.path, "--fitted", path)
    assert applied.code == 0, applied.err
    assert params(run, "nsl")["map"] == "isotonic"


def test_a_run_refuses_a_fit_before_any_work(tmp_path: Path) -> None:
    other = made(tmp_path / "other")
    keep(other, fit(other, stored_config(other), what="isotonic", estimator="nsl"))
    named = f'score.fitted=["{kept_fits(other)[0]}"]'
    config = small_config(*CONFIG, named, "score.tokens=all", "limit=1")
    run = Run.create_or_open(tmp_path / "run")
    with pytest.raises(UsageError, match="the tokens 'reasoning', here they are 'all'"):
        run_stages(run, config)
    assert not run.trajectories.keys()


@pytest.mark.parametrize("what", ["isotonic", "theta", "rate"])
def test_one_sample_of_each_problem_has_no_majority(tmp_path: Path, what: str) -> None:
    single = [replace(row, problem=f"p{i:02}", sample=0) for i, row in enumerate(rows())]
    run = made(tmp_path / "run", single)
    with pytest.raises(DataError, match="one sample only") as caught:
        fit(run, stored_config(run), what=what, target="agreement")
    assert caught.value.next_step == (
        "Take several samples of each problem (--samples), 4 or more."
    )
