"""From a run's tables to what marks its mistakes, and to the steps of one response in order."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from stages_samples import GENERATOR, Row, handmade_run, small_config, trace_of

from divtok.errors import DataError, UsageError
from divtok.evaluate.mistakes import CHANCE
from divtok.models.load import load_tokenizer
from divtok.protocols.encode import response_ids
from divtok.records import Problem, StepLabels, Trajectory, Verdict
from divtok.stages import mistakes as stage
from divtok.stages.evaluate import results_of
from divtok.stages.facts import Facts
from divtok.stages.first_wrong import NO_TRUTH, StepTruth
from divtok.stages.mistakes import NO_WRONG_STEP, NOT_READ, mistakes_of, mistakes_report
from divtok.stages.report import parts_of
from divtok.stages.show import shown
from divtok.stages.suspect_steps import only_key, steps_in
from divtok.store.run import Run

RIGHT, WRONG = Verdict.CORRECT, Verdict.INCORRECT
QUESTION = "Tom has 100 nuts. Tom finds 20 nuts. Tom sells 50 nuts. How many nuts are left?"
GOOD = "100 + 20 = 120.\n120 - 50 = 70.\nIt is \\boxed{70}."
FIRST = "100 + 20 = 130.\n130 - 50 = 80.\nIt is \\boxed{80}."
SECOND = "100 + 20 = 120.\n120 - 50 = 60.\nIt is \\boxed{60}."
UNREAD = "100 and 20.\n120 - 50 = 80.\nIt is \\boxed{80}."
# Text, verdict, and the step whose tokens are divergent; None: none of them is.
GIVEN = [
    (FIRST, WRONG, 0),
    (SECOND, WRONG, 0),
    (SECOND, WRONG, 1),
    (SECOND, WRONG, None),
    (GOOD, RIGHT, 2),
    (GOOD, RIGHT, None),
    (SECOND, RIGHT, None),
    (GOOD, WRONG, 0),  # the grade must be about something else
    (UNREAD, WRONG, 0),
]


def made(folder: Path, given=GIVEN, *, question: str = QUESTION) -> Run:
    """A run of these responses, each with a divergence of 0.5 bits and 2 nats at one step."""
    tokenizer = load_tokenizer(GENERATOR)
    ids = [tuple(response_ids(tokenizer, text)) for text, _, _ in given]
    rows = [
        Row(sample=i, verdict=verdict, tokens=len(ids[i]), values={"dtc_lin": 0.5})
        for i, (_, verdict, _) in enumerate(given)
    ]
    run = handmade_run(folder, rows)
    with run.lock():
        run.problems.replace([Problem("a", "bench", question, "70")])
        trajectories = run.trajectories.read()
        run.trajectories.replace(
            [
                dataclasses.replace(t, token_ids=i, text=text)
                for t, i, (text, _, _) in zip(trajectories, ids, given, strict=True)
            ]
        )
        run.traces.replace(
            [
                _trace(tokenizer, row, i, text, at)
                for row, i, (text, _, at) in zip(rows, ids, given, strict=True)
            ]
        )
    return run


def _trace(tokenizer, row: Row, ids: tuple[int, ...], text: str, at: int | None):
    zero = np.zeros(len(ids), np.float32)
    line = np.array([tokenizer.decode(ids[:end]).count("\n") for end in range(len(ids))])
    there = zero if at is None else (line == at).astype(np.float32)
    names = ("logprob_q", "entropy_p", "entropy_q", "kl_pq", "kl_qp")
    numbers = {"jsd_bits": there / 2, "logprob_p": -2 * there}
    return trace_of(row, **dict.fromkeys(names, zero), **numbers)


def test_mistakes_of_embedded_stories_are_known(tmp_path: Path) -> None:
    (found,) = mistakes_of(made(tmp_path), small_config())
    assert (found.generator, found.known, found.wrong) == (GENERATOR, 4, 6)
    assert found.unknown == {NO_WRONG_STEP: 1, "unread_step": 1}
    assert (found.right, found.alarms) == (3, 1)
    assert (found.checked, found.slipped) == (3, 1)
    ways = {m.name: m for m in found.markings}
    divergent = ways["first_divergent"]
    assert divergent.marked == 3 / 4
    assert divergent.precision is not None
    assert divergent.precision.value == pytest.approx(2 / 3)
    # Where nothing diverges all steps are alike, and the first one is taken.
    assert ways["guarded"].precision is not None
    assert ways["guarded"].precision.value == 2 / 4
    assert ways["guarded"].over[CHANCE].value == pytest.approx(1 / 2 - 1 / 3)
    early = found.earliness
    assert (early.found, early.after) == (2 / 4, 0), "the first token of the wrong step"


def test_a_wrong_response_that_was_not_read_is_said(tmp_path: Path) -> None:
    run = made(tmp_path)
    with run.lock():
        run.traces.replace(run.traces.read()[1:])
    (found,) = mistakes_of(run, small_config())
    assert found.unknown == {NO_WRONG_STEP: 1, "unread_step": 1, NOT_READ: 1}
    assert found.known == 3


def test_of_a_long_run_the_same_part_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stage, "MOST", 2)
    (found,) = mistakes_of(made(tmp_path), small_config())
    assert (found.known, found.wrong, found.right) == (2, 2, 0)
    assert "2 of 9 responses are looked at" in capsys.readouterr().err


def test_labels_say_what_a_step_is(tmp_path: Path) -> None:
    run = made(tmp_path, GIVEN[:3], question="Something else?")
    config = small_config()
    assert not StepTruth(run).any
    assert mistakes_of(run, config) == []
    key = Row(sample=2).key
    end = len(SECOND)
    with run.lock():
        run.step_labels.append([StepLabels(key, 1, (0, 16), (15, end))])
    (found,) = mistakes_of(run, config)
    assert (found.known, found.unknown) == (1, {NO_TRUTH: 2})
    chance = next(m for m in found.markings if m.name == CHANCE)
    assert chance.precision is not None
    assert chance.precision.value == 1 / 2, "two steps, not three lines"


def test_the_report_has_it_where_enough_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, config = made(tmp_path), small_config()
    results = results_of(run, config)
    assert mistakes_report(run, config, results) is None
    monkeypatch.setattr(stage, "FEWEST", 4)
    part = mistakes_report(run, config, results)
    assert part is not None
    assert "mistakes" in part.tables
    assert part.tables.keys() <= {name for p in parts_of(run, config, results) for name in p.tables}


def steps_of_response(run: Run, sample: int):
    config = small_config()
    found = shown(run, config, Facts(run, config), Row(sample=sample).key, tell=print)
    return steps_in(run, found)


def test_the_steps_of_a_response_in_order_of_suspicion(tmp_path: Path) -> None:
    found = steps_of_response(made(tmp_path), 2)
    assert [(s.step, s.text) for s in found.steps] == [
        (2, "120 - 50 = 60."),
        (1, "100 + 20 = 120."),
        (3, "It is \\boxed{60}."),
    ]
    assert [s.known_wrong for s in found.steps] == [True, False, False]
    assert found.known == "The first wrong step is step 2."
    first, *others = found.steps
    tokens = first.end_token - first.first_token
    assert first.divergent == tokens
    assert first.score == pytest.approx(tokens * 0.5 * 2)
    assert all(s.score == s.divergent == 0 for s in others)


def test_what_is_known_of_steps_is_said(tmp_path: Path) -> None:
    assert steps_of_response(made(tmp_path / "a"), 5).known == "No step is known to be wrong."
    run = made(tmp_path / "b", question="Something else?")
    found = steps_of_response(run, 5)
    assert "is not known: nobody has said" in found.known
    assert {s.known_wrong for s in found.steps} == {None}


def test_steps_need_a_trace_and_the_texts_of_its_tokens(tmp_path: Path) -> None:
    run = made(tmp_path)
    with run.lock():
        run.traces.replace([t for t in run.traces.read() if not t.key.endswith("/0")])
        run.trajectories.replace([_of_other_tokens(t) for t in run.trajectories.read()])
    with pytest.raises(DataError, match="was not read"):
        steps_of_response(run, 0)
    with pytest.raises(DataError, match=r"Where the steps of .* begin is not known"):
        steps_of_response(run, 1)


def _of_other_tokens(row: Trajectory) -> Trajectory:
    return dataclasses.replace(row, token_ids=row.token_ids[::-1])


def test_steps_are_of_one_response() -> None:
    assert only_key(["a"]) == "a"
    with pytest.raises(UsageError, match=r"2 responses are meant.*a, b"):
        only_key(["a", "b"])
