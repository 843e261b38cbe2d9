"""The presets: complete, with a pair for every generator; and packaged models by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtok.errors import EXIT_USAGE, ModelError, UsageError
from divtok.families.family import FAMILIES, Family, get_family
from divtok.models import packaged as packaged_models
from divtok.models.packaged import resolve_model
from divtok.problems.benchmark import BENCHMARKS


@pytest.mark.parametrize("name", ["tiny", "qwen2.5", "qwen3", "gemma3"])
def test_a_white_box_generator_reads_its_own_text(name: str) -> None:
    family = get_family(name)
    for generator in family.generators:
        assert family.pair_for(generator) == (generator.model, family.auxiliary)


def test_a_black_box_familys_reader_reads_every_text() -> None:
    family = get_family("blackbox")
    for generator in family.generators:
        assert family.pair_for(generator) == (
            "Qwen/Qwen2.5-7B-Instruct",
            "Qwen/Qwen2.5-1.5B-Instruct",
        )


@pytest.mark.parametrize("family", list(FAMILIES), ids=lambda family: family.name)
def test_a_preset_is_complete(family: Family) -> None:
    """Every benchmark is registered and has a sample count, and so does the one to fit with."""
    registered = BENCHMARKS.names()
    for benchmark in (*family.benchmarks, family.fit_benchmark):
        assert benchmark in registered
        assert all(generator.samples[benchmark] >= 1 for generator in family.generators)
    assert family.fit_benchmark not in family.benchmarks
    assert family.auxiliary not in [generator.model for generator in family.generators]
    assert 0 < family.theta < 1


def test_an_unknown_family_or_generator_is_explained() -> None:
    with pytest.raises(
        UsageError, match=r"Unknown family 'qwen25'\. Did you mean .*'qwen2\.5'"
    ) as e:
        get_family("qwen25")
    assert e.value.exit_code == EXIT_USAGE
    with pytest.raises(UsageError, match=r"'qwen3' has no generator 'Qwen/Qwen3-9B'.*Qwen3-8B'"):
        get_family("qwen3").generator("Qwen/Qwen3-9B")
    assert get_family("qwen3").generator("Qwen/Qwen3-8B").base == "Qwen/Qwen3-8B-Base"


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package folder with two models, and a working folder with none."""
    for name in ("tiny-a", "tiny-b"):
        (tmp_path / "package" / name).mkdir(parents=True)
        (tmp_path / "package" / name / "config.json").write_text("{}")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(packaged_models, "_FOLDER", tmp_path / "package")
    return tmp_path / "package"


def test_a_packaged_model_is_a_folder_of_the_package(packaged: Path) -> None:
    assert resolve_model("divtok/tiny-a") == str(packaged / "tiny-a")


@pytest.mark.parametrize("ref", ["Qwen/Qwen3-8B", "./models/mine", "/models/mine", "gpt2", ""])
def test_any_other_ref_stays_as_it_is(packaged: Path, ref: str) -> None:
    assert resolve_model(ref) == ref


def test_a_folder_of_the_users_own_comes_first(packaged: Path) -> None:
    Path("divtok/tiny-a").mkdir(parents=True)
    assert resolve_model("divtok/tiny-a") == "divtok/tiny-a"


@pytest.mark.parametrize("ref", ["divtok/tiny-c", "divtok/", "divtok/../package/absent"])
def test_an_unknown_packaged_model_is_explained(packaged: Path, ref: str) -> None:
    with pytest.raises(ModelError, match=rf"There is no packaged model '{ref}'\.") as caught:
        resolve_model(ref)
    assert "divtok/tiny-a" in str(caught.value.next_step)


def test_a_packaged_name_does_not_lead_out_of_the_package(packaged: Path) -> None:
    (packaged.parent / "elsewhere" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="There is no packaged model"):
        resolve_model("divtok/../elsewhere")
