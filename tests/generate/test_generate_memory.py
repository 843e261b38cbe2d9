"""Running out of memory while writing: half as many rows at once, which is said and kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from generate_samples import QUESTIONS, jobs

from divtok.errors import ResourceError
from divtok.generate import decoding
from divtok.generate.jobs import generate_batch
from divtok.progress import noted_by
from divtok.protocols.encode import prompt_ids
from divtok.records import Sampling

SAMPLED = Sampling(temperature=0.8, top_p=0.95, max_length=105)
ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


def hold_at_most(rows: int, error: Exception, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine that can write so many rows at once; gives the sizes that were tried."""
    tried: list[int] = []
    write = decoding._continue

    def tight(loaded: Any, asks: Any, sampling: Sampling, *kept: Any) -> Any:
        tried.append(len(asks))
        if len(asks) > rows:
            raise error
        return write(loaded, asks, sampling, *kept)

    monkeypatch.setattr(decoding, "_continue", tight)
    return tried


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_batch_is_halved_until_it_fits(
    loaded: Any,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    todo = jobs(SAMPLED, 11)
    expected = generate_batch(loaded, todo)
    tried = hold_at_most(3, error, monkeypatch)
    notes: list[str] = []
    capsys.readouterr()
    with noted_by(notes.append):
        assert generate_batch(loaded, todo) == expected
    assert tried == [11, 5, 2, 2, 2, 2, 2, 1]
    assert capsys.readouterr().err.splitlines() == notes
    assert notes == [
        "generate: out of memory with 11 responses at once; writing at most 5 at once from here on",
        "generate: out of memory with 5 responses at once; writing at most 2 at once from here on",
    ]
    # The next batch starts from what fits.
    tried.clear()
    assert generate_batch(loaded, todo[:4]) == expected[:4]
    assert tried == [2, 2]


def test_a_response_that_cannot_fit_is_named(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = hold_at_most(0, ERRORS[0], monkeypatch)
    (job,) = jobs(SAMPLED, 1)
    with pytest.raises(ResourceError, match=rf"up to 105 tokens \(trajectory '{job.key}'\)"):
        generate_batch(loaded, [job])
    assert tried == [1]


def test_other_errors_are_not_tried_again(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = hold_at_most(0, RuntimeError("shapes do not match"), monkeypatch)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        generate_batch(loaded, jobs(SAMPLED, 4))
    assert tried == [4]


def test_a_response_ends_where_the_models_context_does(loaded: Any) -> None:
    lengths = [len(prompt_ids(loaded.tokenizer, question)) for question in QUESTIONS]
    loaded.model.config.max_position_embeddings = longest = max(lengths)
    made = generate_batch(loaded, jobs(replace(SAMPLED, max_length=300)))
    assert [t.failed for t in made] == [length == longest for length in lengths]
    (failed,) = (t for t in made if t.failed)
    assert failed.reason is not None
    assert failed.reason.endswith(f"no room within the model's context of {longest}")
    assert failed.reason.kind == "too_long"  # type: ignore[union-attr]
    for t in made:
        assert len(t.prompt_ids) + len(t.token_ids) <= longest
