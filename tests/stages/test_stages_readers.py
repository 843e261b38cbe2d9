"""A trajectory of another generator is traced in the reader's own tokens."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from trace_samples import byte_level_tokenizer

from divtok.config.run import load_config
from divtok.errors import ConfigError, StoreError
from divtok.models.load import load_tokenizer
from divtok.protocols.encode import prompt_ids
from divtok.records import Sampling, Trajectory
from divtok.stages.choices import check_choices
from divtok.stages.readers import as_read_by
from divtok.stages.run import run_stages
from divtok.store.run import Run

QUESTION = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
TEXT = "421 + 130 = 551.\nThe answer is \\boxed{551}."
READER = "divtok/tiny-0.3m"


def a_trajectory(generator: str) -> Trajectory:
    return Trajectory(
        key="k",
        problem_id="1",
        benchmark="b",
        sample=0,
        generator=generator,
        prompt_ids=(5, 6),
        token_ids=(7, 8, 9),
        text=TEXT,
        finish_reason="stop",
        protocol="cot",
        sampling=Sampling(),
    )


def read(generator: str) -> Trajectory:
    config = load_config(None, [])
    (row,) = as_read_by(READER, [a_trajectory(generator)], {("b", "1"): QUESTION}, config).rows
    return row


def test_ids_are_kept_under_the_same_tokenizer() -> None:
    assert read("divtok/tiny-0.5m") == a_trajectory("divtok/tiny-0.5m")


def test_text_is_tokenised_anew_under_another_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = load_tokenizer(READER)

    def tokenizer_of(ref: str, **_: Any) -> Any:
        return load_tokenizer(READER) if ref == READER else byte_level_tokenizer()

    monkeypatch.setattr("divtok.stages.readers.load_tokenizer", tokenizer_of)
    row = read("another/model")
    assert row.retokenized
    assert row.prompt_ids == prompt_ids(reader, QUESTION)
    assert reader.decode(list(row.token_ids)) == TEXT
    assert (row.key, row.text) == ("k", TEXT)


def test_a_repr_of_the_messages_may_stand_in_front_of_foreign_text() -> None:
    tokenizer = load_tokenizer(READER)
    config = load_config(None, ["trace.reader=divtok/tiny-0.9m", "trace.prompt=repr"])
    given = a_trajectory("divtok/tiny-0.5m")
    (row,) = as_read_by(READER, [given], {("b", "1"): QUESTION}, config).rows
    asked = tokenizer.decode(list(row.prompt_ids))
    messages = ast.literal_eval(asked.removeprefix(tokenizer.bos_token or ""))
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[1]["content"] == QUESTION
    # One text, without a template's control tokens, though the ids of the generator are the same.
    assert not set(row.prompt_ids[1:]) & set(tokenizer.all_special_ids)
    assert tokenizer.decode(list(row.token_ids)) == TEXT
    assert row.retokenized


def test_a_repr_is_part_of_what_traces_depend_on(tmp_path: Path) -> None:
    overrides = ["generators=['divtok/tiny-0.5m']", "benchmarks=['arith-easy']", "limit=2",
                 "samples=1", "trace.reader=divtok/tiny-0.9m"]  # fmt: skip
    run = Run.create_or_open(tmp_path / "run")
    run_stages(run, load_config(None, overrides))
    chat = {t.key: t for t in run.traces.read()}
    for change in ("trace.prompt=repr",):
        with pytest.raises(StoreError, match=r"trace\.prompt: .*repr"):
            run_stages(run, load_config(None, [*overrides, change]))
    other = Run.create_or_open(tmp_path / "other")
    run_stages(other, load_config(None, [*overrides, "trace.prompt=repr"]))
    for trace in other.traces.read():
        assert trace.retokenized
        assert not chat[trace.key].retokenized
        assert trace.logprob_p[0] != chat[trace.key].logprob_p[0]
    with pytest.raises(StoreError, match=r"trace\.prompt: repr"):
        run_stages(other, load_config(None, [*overrides, "trace.prompt=chat"]))
    run_stages(other, load_config(None, overrides))  # goes on as it was made


def test_a_generator_that_reads_its_own_has_no_other_prompt(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trace\.prompt=repr is for responses that another"):
        check_choices(load_config(None, ["trace.prompt=repr"]))
