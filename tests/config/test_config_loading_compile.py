"""When layers are compiled."""

from __future__ import annotations

import pytest
import torch

from divtok.config import loading
from divtok.config.loading import worth_compiling
from divtok.config.run import GenerateSection, TraceSection


@pytest.mark.parametrize("section", [GenerateSection, TraceSection])
@pytest.mark.parametrize(
    ("compile_it", "place", "tokens", "expected"),
    [
        ("auto", "cuda", 500, True),
        ("auto", "cuda", 499, False),
        ("auto", "cpu", 500, False),
        ("always", "cpu", 0, True),
        ("never", "cuda", 500, False),
    ],
)
def test_layers_are_compiled_for_long_jobs_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
    section: type[GenerateSection] | type[TraceSection],
    compile_it: str,
    place: str,
    tokens: int,
    expected: bool,
) -> None:
    monkeypatch.setattr(loading, "pick_place", lambda device, spread: (torch.device(place), None))
    given = section.model_validate({"compile": compile_it})
    assert worth_compiling(given, tokens, least=500) is expected
