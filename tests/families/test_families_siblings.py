"""The table of siblings: sound, and found by id, folder and file."""

from __future__ import annotations

import re

import pytest

from divtok.families.family import FAMILIES
from divtok.families.siblings import siblings


def test_the_table_is_sound() -> None:
    table = siblings()
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", table.checked)
    names = [sibling.model for series in table.series for sibling in series.models]
    assert len(set(names)) == len(names)
    for series in table.series:
        assert series.source.startswith("https://huggingface.co/")
        assert len({sibling.billions for sibling in series.models}) > 1
        for sibling in series.models:
            assert re.fullmatch(r"[\w-]+/[\w.-]+", sibling.model)
            assert sibling.billions > 0
            assert series.member(sibling.model) is sibling


def test_hub_models_of_the_families_are_siblings_where_they_are_listed() -> None:
    for family in FAMILIES:
        for generator in family.generators:
            p, q = family.pair_for(generator)
            series = siblings().series_of(p)
            if series is not None:
                assert series.member(q) is not None, f"{p} and {q}"


@pytest.mark.parametrize(
    "ref",
    [
        "Qwen/Qwen2.5-3B-Instruct",
        "/models/Qwen2.5-3B-Instruct",
        "models/qwen2.5-3b-instruct",
        "qwen2.5-3b-instruct-q4_k_m.gguf",
        "/x/Qwen2.5-3B-Instruct.F16.gguf",
    ],
)
def test_a_model_is_found_by_id_folder_and_file(ref: str) -> None:
    series = siblings().series_of(ref)
    assert series is not None
    smaller = [sibling.model for sibling in series.smaller(ref)]
    assert smaller[0].endswith("0.5B-Instruct")
    assert "Qwen/Qwen2.5-1.5B-Instruct" in smaller
    assert "Qwen/Qwen2.5-3B-Instruct" not in smaller


def test_other_models_are_in_no_series() -> None:
    for ref in ("divtok/tiny-0.5m", "someone/model", "Qwen", ""):
        assert siblings().series_of(ref) is None
