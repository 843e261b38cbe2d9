"""What verbs take of a run that is there: the keys they can apply, and who takes the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from stages_samples import RIGHT_OR_WRONG, Row, finish, handmade_run, small_config, write_responses

from divtok.config.run import to_yaml
from divtok.errors import UsageError
from divtok.stages.continued import continued
from divtok.stages.rescore import regather, regrade, rescore, retrace
from divtok.stages.run import run_stages
from divtok.stages.stored import stored_config
from divtok.store.run import Run

Verb = Callable[[Run, list[str]], object]


@pytest.mark.parametrize(
    ("verb", "override", "what", "takes", "goes_to"),
    [
        (regather, "limit=3", "what is gathered", "evidence, score.estimators", "run --out RUN"),
        (
            regather,
            "score.theta=0.3",
            "what is gathered",
            "evidence, score.estimators",
            "score RUN",
        ),
        (regather, "grade.grader=exact", "what is gathered", "trace, servers", "grade RUN"),
        (retrace, "samples=3", "the traces", "Change only: trace.", "run --out RUN"),
        (retrace, "evidence.prm=x", "the traces", "Change only: trace.", "gather RUN"),
        (regrade, "score.n=3", "the grades", "grade, benchmark_graders", "score RUN"),
        (rescore, "trace.dtype=float32", "the scores", "Change only: score.", "gather RUN"),
        (rescore, "seed=3", "the scores", "Change only: score.", "run --out RUN"),
    ],
)
def test_an_override_that_a_verb_cannot_apply_changes_nothing(
    tmp_path: Path, verb: Verb, override: str, what: str, takes: str, goes_to: str
) -> None:
    run = handmade_run(tmp_path, [Row("a")])
    before = run.config_text()
    with pytest.raises(UsageError, match=f"'{override}' changes more than {what}.") as caught:
        verb(run, [override])
    assert takes in (caught.value.next_step or "")
    command = f"divtok {goes_to.replace('RUN', str(tmp_path))} {override}"
    assert (caught.value.next_step or "").endswith(command)
    assert run.config_text() == before


def test_of_imported_responses_nothing_can_be_changed(tmp_path: Path) -> None:
    config = small_config("generate.engine=imported")
    run = handmade_run(tmp_path, [Row("a")], config=config)
    with pytest.raises(UsageError, match="were imported, so that this changes nothing here"):
        regather(run, ["limit=3"])


def test_a_run_goes_on_with_the_theta_that_was_set_on_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config()
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    with run.lock():
        run.write_config(to_yaml(config))
    finish(run, config)
    rescore(run, theta=0.2)
    capsys.readouterr()
    after = run_stages(run, small_config(), sampled=True)
    assert after.theta == 0.2
    assert "score.theta=0.2" in capsys.readouterr().err
    assert {row.theta for row in run.counts.read()} == {0.2}
    assert stored_config(run).theta == 0.2


def test_another_auxiliary_is_said_with_the_old_and_the_new_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config("family=null", "trace.auxiliary=divtok/tiny-0.3m", "score.theta=0.2")
    run = handmade_run(tmp_path, [Row("a", count=1)], config=config)
    after = continued(run, small_config("trace.auxiliary=divtok/tiny-0.9m"))
    assert after.fitted_theta is None  # none is known for this pair
    said = capsys.readouterr().err.splitlines()[-2:]
    assert said == [
        "run: the pair that reads divtok/tiny-0.5m: divtok/tiny-0.5m with divtok/tiny-0.3m -> "
        "divtok/tiny-0.5m with divtok/tiny-0.9m; confidences are made anew, and the traces of "
        "before are kept",
        "run: theta 0.2 -> 0.5 bits; tokens are counted anew",
    ]


def test_what_gathering_takes_is_remembered(tmp_path: Path) -> None:
    config = small_config()
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    regather(run, ["score.estimators=['trace','uqac_attn']"])
    assert stored_config(run).score.estimators == ["trace", "uqac_attn"]
    retrace(run, machine=["trace.max_batch_rows=3"])
    assert stored_config(run).trace.max_batch_rows == 64
    partial(retrace, run)(["trace.max_batch_rows=3"])
    assert stored_config(run).trace.max_batch_rows == 3
