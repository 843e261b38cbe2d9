"""The paper's text, its released code and divtok's own choice, from the same stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from stages_samples import (
    AUXILIARY,
    GENERATOR,
    ONE_RESPONSE,
    Row,
    finish,
    handmade_run,
    no_models,
    rows_of,
    small_config,
    trace_of,
    write_responses,
)

from divtok.api.run import Run as ApiRun
from divtok.config.run import RunConfig, to_yaml
from divtok.paper.run_tables import FinishedRun, choices
from divtok.records import PER_TOKEN_FIELDS, CountedTokens, Verdict
from divtok.report.metric_table import metric_table
from divtok.stages.evaluate import counts_of, results_of
from divtok.stages.fit import fit
from divtok.stages.grade import grade
from divtok.stages.rescore import regrade, rescore
from divtok.stages.rows import RunRows
from divtok.stages.score import score
from divtok.stages.stored import stored_config
from divtok.stages.swept import sweep
from divtok.stages.trace import stored_answers
from divtok.store.responses import stored_responses
from divtok.store.run import Run

NO_BOX = "So 3 + 4 = 7."
TEXTS = (r"3 + 4 is \boxed{7}.", NO_BOX, "I do not know.", r"It is \boxed{8")
# divergent at 0.5: tokens 0, 2, 4 and 5, of which 2 is the answer and 5 ends the turn
BITS = np.array([0.9, 0.1, 0.8, 0.2, 0.7, 0.6], dtype=np.float32)
EXPECTED = {"reasoning": (2, 3), "no_answer": (3, 4), "all": (4, 6)}


def counted_run(folder: Path) -> Run:
    """One right and one wrong response with the same spans; scored with the usual choice."""
    rows = [Row("a", tokens=6), Row("b", tokens=6, verdict=Verdict.INCORRECT)]
    config = small_config("score.theta=0.5", "score.estimators=[dtc_lin,nsl]")
    run = handmade_run(folder, rows, config=config)
    spans = {"answer_start": 2, "answer_stop": 4, "turn_end": 5}
    arrays = dict.fromkeys(PER_TOKEN_FIELDS, np.full(6, -0.5, np.float32)) | {"jsd_bits": BITS}
    with run.lock():
        run.traces.append([trace_of(row, **spans, **arrays) for row in rows])
        score(run, config)
    return run


def counts(run: Run) -> list[tuple[int, int, str]]:
    return [(row.count, row.reasoning, row.counted) for row in run.counts.read()]


@pytest.mark.parametrize("tokens", get_args(CountedTokens))
def test_tokens_are_counted_as_chosen_without_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: CountedTokens
) -> None:
    run = counted_run(tmp_path)
    no_models(monkeypatch)
    rescore(run, [f"score.tokens={tokens}"])
    config, (count, over) = stored_config(run), EXPECTED[tokens]
    assert config.score.tokens == tokens
    assert counts(run) == [(count, over, tokens)] * 2
    named = {} if tokens == "reasoning" else {"tokens": tokens}
    of = {row.estimator: row for row in run.confidences.read()}
    assert of["dtc_lin"].value == pytest.approx(0.95 - 0.09 * count)
    assert of["dtc_lin"].params == {"theta": 0.5, "n": 10, "a": 0.95, "b": 0.05, **named}
    assert of["nsl"].params == {}

    found = results_of(run, config)
    (note,) = (note for note in found.notes if note.key == "tokens_counted")
    caption = metric_table(found.evaluations, "ece").whole_caption
    assert (bool(note.lines), "counted over" in caption) == (tokens != "reasoning",) * 2
    assert note.value(found.evaluations[0]) == tokens
    near = next(note for note in found.notes if note.key == "near_theta").value
    assert near(found.evaluations[0])[0]["tokens"] == 2 * over
    (ratio,) = {e.natural_auroc for e in found.evaluations if e.estimator == "count"}
    assert ratio == 0.5

    rows = RunRows(run, config, tell=print)
    shown = [row for batch in rows.batches() for row in batch]
    assert [row["count"] for row in shown] == [count] * 2
    assert [len(row["suspect_tokens"]) for row in shown] == [count] * 2
    assert [row.get("counted") for row in shown] == [None if not named else tokens] * 2
    key = shown[0]["key"]
    assert ApiRun(run.path).traces[key].reasoning().sum() == over
    # Every other theta, too: at 0.65 only the tokens with 0.9, 0.8 and 0.7 are divergent.
    swept, _ = sweep(run, config)
    assert swept[0].at_run_theta is not None
    assert fit(run, config).curve[12].theta == 0.65
    assert fit(run, config).curve[12].mean_count == (2 if tokens != "all" else 3)


def test_counts_of_another_choice_are_made_anew(tmp_path: Path) -> None:
    run = counted_run(tmp_path)
    config = stored_config(run, ["score.tokens=all"])
    assert [row.reasoning for row in run.counts.read()] == [3, 3]
    found = counts_of(run, config, stored_responses(run))
    assert [(row.count, row.reasoning) for row in found.values()] == [(4, 6)] * 2


def answers(run: Run) -> list[tuple[str | None, str | None]]:
    """In no order of their own: what is graded anew is stored behind the rest."""
    found = [(grade.extracted, grade.fallback) for grade in run.grades.read()]
    return sorted(found, key=str)


def test_answers_are_looked_for_as_chosen_and_the_choice_may_change(tmp_path: Path) -> None:
    config = small_config("limit=4", "samples=1", "benchmarks=['arith-easy']")
    run = write_responses(tmp_path, config, TEXTS)
    with run.lock():
        run.write_config(to_yaml(config))
        grade(run, config)
    boxed = [("7", None), *[(None, None)] * 3]
    assert answers(run) == boxed
    before = stored_answers(run)
    for _ in range(2):
        regrade(run, ["grade.extract=released"])
        assert answers(run) == [
            ("7", "last_number"),
            ("7", None),
            ("8", "unclosed_box"),
            (None, None),
        ]
        assert len(run.grades.keys()) == 4
        # What is left out of the reasoning is the box alone, so no trace depends on the choice.
        assert stored_answers(run) == before
    assert stored_config(run).grade.extract == "released"
    shards = sorted(run.grades.folder.glob("*.parquet"))
    regrade(run)  # nothing is left to do
    assert sorted(run.grades.folder.glob("*.parquet")) == shards
    regrade(run, ["grade.extract=boxed"])
    assert answers(run) == boxed


def test_of_other_protocols_it_is_said_that_nothing_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config(*ONE_RESPONSE, "protocol=sentence", "grade.extract=released")
    run = write_responses(tmp_path, config, [NO_BOX])
    with run.lock():
        grade(run, config)
    assert answers(run) == [(None, None)]
    assert "those of the protocol sentence are found as always" in capsys.readouterr().err


def test_tables_print_both_shares_of_unanswered_responses(tmp_path: Path) -> None:
    config = small_config("limit=4", "samples=1", "benchmarks=['arith-easy']")
    released = small_config(
        "limit=4", "samples=1", "benchmarks=['arith-easy']", "grade.extract=released"
    )
    run = write_responses(tmp_path, config, TEXTS)
    finish(run, config)
    traces = rows_of(run.traces)
    assert not any("Unanswered" in each for each in captions(run, config))
    with run.lock():
        run.write_config(to_yaml(released))
    finish(run, released)
    assert rows_of(run.traces) == traces
    said = "Unanswered: 25.0 %; 75.0 % without the fallbacks."
    assert all(said in each for each in captions(run, released))
    assert choices([FinishedRun("run", run)]) == [said]
    assert {e.fallbacks for e in results_of(run, released).evaluations} == {2}


def captions(run: Run, config: RunConfig) -> Sequence[str]:
    found = results_of(run, config).evaluations
    return [metric_table(found, metric).whole_caption for metric in ("ece", "auroc")]


def test_real_responses_count_more_the_more_tokens_can(tmp_path: Path) -> None:
    config = small_config("limit=2", "samples=1", "benchmarks=['arith-easy']", "score.theta=0.01")
    run = write_responses(tmp_path, config, [r"3 + 4 = 7. The answer is \boxed{915}."])
    with run.lock():
        run.write_config(to_yaml(config))
    finish(run, config)
    assert {(row.p, row.q) for row in run.traces.read()} == {(GENERATOR, AUXILIARY)}
    found: dict[str, list[tuple[int, int, str]]] = {}
    for tokens in get_args(CountedTokens):
        rescore(run, [f"score.tokens={tokens}"])
        found[tokens] = counts(run)
    lengths = [len(trace) for trace in run.traces.read()]
    assert [over for _, over, _ in found["all"]] == lengths
    for fewer, more in (("reasoning", "no_answer"), ("no_answer", "all")):
        assert all(a[0] <= b[0] for a, b in zip(found[fewer], found[more], strict=True))
    # A made-up answer is divergent somewhere, and only `all` counts it.
    assert sum(c for c, *_ in found["all"]) > sum(c for c, *_ in found["reasoning"])
