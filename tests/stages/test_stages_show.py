"""Which responses are meant, which matter most, and what is shown of one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from stages_samples import GENERATOR, Row, handmade_run, small_config, trace_of, write_responses

from divtok.errors import DataError, NothingScoredError, UsageError
from divtok.models.load import load_tokenizer
from divtok.protocols.encode import response_ids
from divtok.records import Verdict
from divtok.stages.facts import Facts
from divtok.stages.rows import RunRows
from divtok.stages.show import Which, keys_of, ranked, rows_at, shown
from divtok.store.run import Run

RIGHT, WRONG = Verdict.CORRECT, Verdict.INCORRECT
# By sample: value of dtc_lin, count and verdict.
GIVEN = [
    (0.95, 0, RIGHT),
    (0.05, 12, WRONG),
    (0.05, 20, RIGHT),
    (0.77, 2, WRONG),
    (None, None, WRONG),
    (0.77, 1, WRONG),
    (0.86, 1, Verdict.UNANSWERED),
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    rows = [
        Row(sample=i, verdict=verdict, count=count, values={"dtc_lin": value, "nsl": 0.5})
        for i, (value, count, verdict) in enumerate(GIVEN)
    ]
    return handmade_run(tmp_path, rows)


@pytest.fixture
def facts(run: Run) -> Facts:
    return Facts(run, small_config())


def with_keys(folder: Path, keys: list[str]) -> Facts:
    """A run whose responses have these keys; the problem of the first is "9f8e7"."""
    run = handmade_run(folder, [Row()])
    (first,) = run.trajectories.read()
    with run.lock():
        run.grades.replace([])
        run.traces.replace([])
        run.trajectories.replace(
            [
                dataclasses.replace(first, key=key, problem_id="9f8e7" if i == 0 else "b")
                for i, key in enumerate(keys)
            ]
        )
    return Facts(run, small_config())


def test_the_least_trusted_come_first_and_of_equal_ones_the_most_divergent(
    run: Run, facts: Facts
) -> None:
    assert ranked(run, facts, Which.LEAST_TRUSTED, 4) == ("dtc_lin", [2, 1, 3, 5])
    assert ranked(run, facts, Which.LEAST_TRUSTED, 99)[1] == [2, 1, 3, 5, 6, 0]


def test_the_confidently_wrong_are_wrong_and_confident(run: Run, facts: Facts) -> None:
    assert ranked(run, facts, Which.CONFIDENTLY_WRONG, 2) == ("dtc_lin", [5, 3])
    assert ranked(run, facts, Which.CONFIDENTLY_WRONG, 99)[1] == [5, 3, 1]


def test_an_estimator_may_be_named(run: Run, facts: Facts) -> None:
    assert ranked(run, facts, Which.LEAST_TRUSTED, 1, "nsl") == ("nsl", [2])
    with pytest.raises(UsageError, match="nsl"):
        ranked(run, facts, Which.LEAST_TRUSTED, 1, "basecal")


def test_without_dtc_lin_there_is_another(tmp_path: Path) -> None:
    run = handmade_run(tmp_path, [Row(values={"nsl": 0.5})])
    assert ranked(run, Facts(run, small_config()), Which.LEAST_TRUSTED, 1) == ("nsl", [0])


def test_an_unscored_and_an_ungraded_run_say_what_to_do(tmp_path: Path) -> None:
    run = handmade_run(tmp_path / "a", [Row()])
    with pytest.raises(NothingScoredError, match="divtok score"):
        ranked(run, Facts(run, small_config()), Which.LEAST_TRUSTED, 1)
    run = handmade_run(tmp_path / "b", [Row(verdict=None, values={"nsl": 0.5})])
    with pytest.raises(DataError, match="divtok grade"):
        ranked(run, Facts(run, small_config()), Which.CONFIDENTLY_WRONG, 1)


def test_a_key_its_beginning_or_a_problem_names_responses(tmp_path: Path) -> None:
    facts = with_keys(tmp_path, ["9f8e1111", "9f8e7abc", "0011aabb", "9f8e7"])
    run = Run(tmp_path)
    assert keys_of(run, facts, "0011aabb") == ["0011aabb"]
    assert keys_of(run, facts, "0011") == ["0011aabb"]
    assert keys_of(run, facts, "9f8e1") == ["9f8e1111"]
    assert keys_of(run, facts, "b") == ["9f8e7abc", "0011aabb", "9f8e7"]
    assert keys_of(run, facts, "9f8e7") == ["9f8e7"], "a whole key before a problem's id"


def test_what_is_ambiguous_too_short_or_unknown_is_refused(tmp_path: Path) -> None:
    facts = with_keys(tmp_path, ["9f8e1111", "9f8e1222", "0011aabb"])
    run = Run(tmp_path)
    with pytest.raises(UsageError, match="2 keys begin with '9f8e1': 9f8e1111, 9f8e1222"):
        keys_of(run, facts, "9f8e1")
    with pytest.raises(UsageError, match="too short"):
        keys_of(run, facts, "001")
    with pytest.raises(UsageError, match=r"--least-trusted"):
        keys_of(run, facts, "zzzz")


def test_rows_come_in_the_order_asked_for(run: Run) -> None:
    rows = RunRows(run, small_config(), tell=print, tokens=False)
    assert [row["sample"] for row in rows_at(rows, [5, 0, 3])] == [5, 0, 3]


def test_one_response_with_its_tokens(run: Run, facts: Facts) -> None:
    key = Row(sample=0).key
    found = shown(run, small_config(), facts, key, tell=print)
    tokenizer = load_tokenizer(GENERATOR)
    assert found.tokens == [tokenizer.decode([token]) for token in range(4)]
    assert found.problem is not None
    assert found.problem.question == "Question a?"
    assert (found.cells["dtc_lin"], found.theta) == (0.95, 0.05)
    assert found.places == [
        "divergent tokens by position, in bits: [1] 0.300, [2] 0.600, [3] 0.900",
        "unexpected tokens by position, in nats beyond what both models expect: none",
    ]


def test_where_unexpected_tokens_are_and_where_nobody_knows(tmp_path: Path) -> None:
    unlikely, certain = np.array([-9.0, 0.0, -8.5, 0.0], np.float32), np.zeros(4, np.float32)
    columns = {"logprob_p": unlikely, "logprob_q": unlikely}
    columns |= {"entropy_p": certain, "entropy_q": certain}
    bounds = {"exact": False, "jsd_low_bits": certain, "jsd_high_bits": certain}
    rows = [Row(sample=i) for i in range(2)]
    run = handmade_run(tmp_path, rows)
    with run.lock():
        run.traces.replace([trace_of(rows[0], **columns), trace_of(rows[1], **bounds)])
    facts = Facts(run, small_config())
    told = [shown(run, small_config(), facts, row.key, tell=print).places[1] for row in rows]
    assert told == [
        "unexpected tokens by position, in nats beyond what both models expect: [0] 9.0, [2] 8.5",
        "unexpected tokens: not known from a server's most likely tokens",
    ]


def test_retokenized_responses_have_the_readers_tokens(tmp_path: Path) -> None:
    text = r"\boxed{1}"
    ids = response_ids(load_tokenizer(GENERATOR), text)
    row = Row(tokens=3)
    run = handmade_run(tmp_path, [row])
    with run.lock():
        long = dataclasses.replace(row, tokens=len(ids))
        run.traces.append([trace_of(long, retokenized=True)])
    found = shown(run, small_config(), Facts(run, small_config()), row.key, tell=print)
    assert "".join(found.tokens or []) == text


def test_a_response_that_was_not_read_or_could_not_be(tmp_path: Path) -> None:
    config = small_config()
    run = write_responses(tmp_path / "a", config, ["It is \\boxed{1}."])
    facts = Facts(run, config)
    found = shown(run, config, facts, next(iter(facts.places)), tell=print)
    assert (found.trace, found.tokens, found.places) == (None, None, [])
    assert found.cells["reason"] == "not read yet"
    row = Row(tokens=0)
    run = handmade_run(tmp_path / "b", [row])
    with run.lock():
        run.traces.append([trace_of(row, status="empty", reason="there are no tokens")])
    found = shown(run, config, Facts(run, config), row.key, tell=print)
    assert found.tokens is None
    assert found.places == ["not read (empty): there are no tokens"]
