"""Stored results: what is derived from repeats, and the way to JSON and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from perf_samples import sample_section

from divtok.errors import DataError
from perf.results import Measurement, read_section, write_section


def test_best_and_median_come_from_the_repeats():
    measured = Measurement("ours", seconds=(0.5, 0.1, 0.2, 0.4), cpu_seconds=(0.9, 0.8))
    assert measured.best == 0.1
    assert measured.median == pytest.approx(0.3)
    assert measured.best_cpu == 0.8


def test_a_measurement_not_taken_has_no_time():
    measured = Measurement("ours", reason="needs a GPU")
    assert (measured.best, measured.median, measured.best_cpu) == (None, None, None)


def test_a_section_comes_back_from_its_file_as_it_was(tmp_path: Path):
    section = sample_section("gpu-heads")
    path = write_section(section, tmp_path / "new")
    assert path.name == "gpu-heads.json"
    assert read_section(path) == section


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cases": [], "ways": [], "speed": 1}'])
def test_a_file_that_is_no_section_is_refused_with_its_name(tmp_path: Path, text: str):
    path = tmp_path / "cpu-pair.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"cpu-pair\.json is not .* --section cpu-pair"):
        read_section(path)


def test_every_repeat_is_in_the_file(tmp_path: Path):
    stored = json.loads(write_section(sample_section("gpu-heads"), tmp_path).read_text())
    assert stored["cases"][0]["measurements"][0]["seconds"] == [0.010, 0.012]
