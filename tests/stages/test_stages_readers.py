"""A trajectory of another generator is traced in the reader's own tokens."""

from __future__ import annotations

from typing import Any

import pytest
from trace_samples import byte_level_tokenizer

from divtok.config.run import load_config
from divtok.models.load import load_tokenizer
from divtok.protocols.encode import prompt_ids
from divtok.records import Sampling, Trajectory
from divtok.stages.readers import as_read_by

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
