"""What a run lacks, and that the command which is named makes it: with its own pair and theta."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from stages_samples import (
    AUXILIARY,
    GENERATOR,
    RIGHT_OR_WRONG,
    Row,
    finish,
    handmade_run,
    small_config,
    trace_of,
    write_responses,
)

from divtok.config.run import RunConfig, to_yaml
from divtok.errors import DataError, NothingScoredError
from divtok.records import Reason
from divtok.stages.evaluate import results_of
from divtok.stages.fit import fit
from divtok.stages.grade import grade
from divtok.stages.missing import (
    Unread,
    check_read,
    how_to_read,
    not_scored,
    unread,
    unread_line,
)
from divtok.stages.rescore import rescore
from divtok.stages.score import score
from divtok.stages.stored import stored_config
from divtok.stages.swept import sweep
from divtok.store.run import Run

STRONG = "divtok/tiny-0.9m"
BOTH = f"generators=['{GENERATOR}','{STRONG}']"
IMPORTED = (
    *("family=blackbox", "generators=['gen-1']", "benchmarks=['arith-easy']"),
    "generate.engine=imported",
)


def with_config(folder: Path, *overrides: str) -> tuple[Run, RunConfig]:
    config = small_config(*overrides)
    run = Run.create_or_open(folder)
    with run.lock():
        run.write_config(to_yaml(config))
    return run, stored_config(run)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((), "score RUN --family tiny"),
        ((BOTH,), "score RUN --family tiny"),
        (("score.theta=0.31",), "score RUN --family tiny --theta 0.31"),
        ((f"trace.auxiliary={STRONG}",), f"score RUN --pair {GENERATOR} {STRONG}"),
        (
            ("family=tiny", f"trace.auxiliary={STRONG}"),
            f"score RUN --pair {GENERATOR} {STRONG} --theta 0.05",
        ),
        ((f"trace.reader={STRONG}", BOTH), f"score RUN --pair {STRONG} {AUXILIARY}"),
        ((BOTH, "trace.auxiliary=divtok/tiny-1.6m"), "run --out RUN"),
        (
            ("family=null", f"trace.auxiliary={AUXILIARY}"),
            f"score RUN --pair {GENERATOR} {AUXILIARY}",
        ),
        (
            ("family=null", f"trace.auxiliary={STRONG}", "score.theta=0.2"),
            f"score RUN --pair {GENERATOR} {STRONG} --theta 0.2",
        ),
        ((*IMPORTED, "family=tiny"), "score RUN --family tiny"),
        (
            (*IMPORTED, f"trace.reader={STRONG}", f"trace.auxiliary={GENERATOR}"),
            f"score RUN --pair {STRONG} {GENERATOR} --theta 0.7",
        ),
    ],
)
def test_the_command_reads_as_the_run_s_config_says(
    tmp_path: Path, overrides: tuple[str, ...], words: str
) -> None:
    run, config = with_config(tmp_path / "one run", *overrides)
    said = how_to_read(run, config)
    assert said.startswith("read them: divtok ")
    assert shlex.split(said.removeprefix("read them: divtok ")) == [
        str(run.path) if word == "RUN" else word for word in words.split()
    ]


def test_an_imported_run_whose_readers_nobody_named_gets_an_example(tmp_path: Path) -> None:
    run, config = with_config(tmp_path, *IMPORTED)
    assert how_to_read(run, config) == (
        f"read them with the models of a family, as in: divtok score {tmp_path} --family tiny; "
        "or with two of your own that share a tokenizer: --pair P Q instead of --family"
    )


def test_what_was_not_read_is_counted_by_the_scored_pair(tmp_path: Path) -> None:
    rows = [Row("a"), Row("b"), Row("c"), Row("d", generator="not-scored")]
    run, config = handmade_run(tmp_path, rows), small_config()
    assert unread(run, config) == Unread(0, 3)
    assert unread_line(run, config) is None
    with run.lock():
        run.traces.replace([trace_of(rows[0]), trace_of(rows[1], q="divtok/tiny-0.9m")])
    assert unread(run, config) == Unread(2, 3)
    assert unread_line(run, config) == (
        "2 of 3 responses were not read yet, so they have no confidence; read them: "
        f"divtok score {tmp_path} --family tiny"
    )
    check_read(run, config)
    with run.lock():
        run.traces.replace([])
    with pytest.raises(NothingScoredError, match="were not read yet") as caught:
        check_read(run, config)
    assert caught.value.next_step == f"Read them: divtok score {tmp_path} --family tiny"


def test_a_run_without_responses_is_told_how_to_get_some(tmp_path: Path) -> None:
    run, config = with_config(tmp_path)
    with pytest.raises(DataError, match="no trajectories yet") as caught:
        check_read(run, config)
    assert caught.value.next_step == (
        f"Generate some first: divtok run --out {tmp_path}; or bring some: "
        f"divtok import FILE --out {tmp_path}"
    )


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        (
            "nonfinite",
            f"Look at the two models: divtok check --pair {GENERATOR} {AUXILIARY} --measure",
        ),
        ("too_long", "Take models that read more at once: --pair P Q."),
        ("empty", "Look at the column 'reason' of its traces and of what was gathered."),
    ],
)
def test_where_every_trace_failed_the_first_reason_is_said(
    tmp_path: Path, kind: str, step: str
) -> None:
    row = Row("a", tokens=0)
    run = handmade_run(tmp_path, [row])
    with run.lock():
        run.traces.replace([trace_of(row, status=kind, reason=Reason(kind, "so it was"))])
        with pytest.raises(NothingScoredError, match="the first: so it was") as caught:
            score(run, small_config())
    assert caught.value.next_step == step
    assert str(not_scored(run, small_config())) == str(caught.value)


def test_every_verb_on_tables_names_what_is_missing_first(tmp_path: Path) -> None:
    config = small_config()
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    for verb in (results_of, sweep, fit):
        with pytest.raises(NothingScoredError, match="were not read yet"):
            verb(run, config)
    with run.lock(), pytest.raises(NothingScoredError, match="were not read yet"):
        score(run, config)
    rescore(run, family="tiny")
    assert results_of(run, config).evaluations
    assert sweep(run, config)[0]
    with pytest.raises(DataError, match="of 8 usable responses 0 are correct"):
        fit(run, config)  # it has all that it needs, and these are all wrong


def test_a_fit_needs_grades(tmp_path: Path) -> None:
    run = handmade_run(tmp_path, [Row("a", verdict=None), Row("b", verdict=None)])
    with pytest.raises(DataError, match="has no grade") as caught:
        fit(run, small_config())
    assert caught.value.next_step == f"Grade it first: divtok grade {tmp_path}"


def test_rows_that_lost_their_traces_are_left_unread_and_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config()
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    kept = run.traces.read()[:3]
    with run.lock():
        run.traces.replace(kept)
    capsys.readouterr()
    assert rescore(run, theta=0.2) is None
    assert "score: 5 of 8 responses were not read yet" in capsys.readouterr().err
    assert rescore(run, theta=0.2) is None  # nothing has changed, and is said again
    assert "score: 5 of 8 responses were not read yet" in capsys.readouterr().err
    assert how_to_read(run, stored_config(run)).endswith("--family tiny --theta 0.2")
    rescore(run, family="tiny", theta=0.2)
    assert unread(run, stored_config(run)) == Unread(0, 8)
    assert {row.theta for row in run.counts.read()} == {0.2}


def test_a_path_with_blanks_is_quoted(tmp_path: Path) -> None:
    config = small_config()
    run = write_responses(tmp_path / "my run", config, RIGHT_OR_WRONG)
    with run.lock():
        grade(run, config)
    with pytest.raises(NothingScoredError) as caught:
        results_of(run, config)
    assert caught.value.next_step == f"Read them: divtok score '{run.path}' --family tiny"
