"""The presets: those of the paper as published, and packaged models by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtok.errors import EXIT_USAGE, ModelError, UsageError
from divtok.families.presets import FAMILIES, Family, get_family
from divtok.models import packaged as packaged_models
from divtok.models.packaged import resolve_model
from divtok.problems.benchmarks import BENCHMARKS
from divtok.records import Sampling

WHITE_BOX = ("math500", "amc23", "aime24", "aime25")
CONTESTS = ("aime24", "aime25", "hmmt25", "hmmt26")


def test_the_families() -> None:
    assert sorted(FAMILIES) == ["blackbox", "gemma3", "qwen2.5", "qwen3", "tiny"]
    assert all(family.name == name for name, family in FAMILIES.items())


@pytest.mark.parametrize(
    ("name", "theta", "auxiliary", "generators"),
    [
        (
            "qwen2.5",
            0.50,
            "Qwen/Qwen2.5-1.5B-Instruct",
            {
                "Qwen/Qwen2.5-7B-Instruct": "Qwen/Qwen2.5-7B",
                "Qwen/Qwen2.5-14B-Instruct": "Qwen/Qwen2.5-14B",
                "Qwen/Qwen2.5-32B-Instruct": "Qwen/Qwen2.5-32B",
            },
        ),
        (
            "qwen3",
            0.60,
            "Qwen/Qwen3-1.7B",
            {
                "Qwen/Qwen3-8B": "Qwen/Qwen3-8B-Base",
                "Qwen/Qwen3-14B": "Qwen/Qwen3-14B-Base",
                "Qwen/Qwen3-32B": None,
            },
        ),
        (
            "gemma3",
            0.85,
            "google/gemma-3-4b-it",
            {
                "google/gemma-3-12b-it": "google/gemma-3-12b-pt",
                "google/gemma-3-27b-it": "google/gemma-3-27b-pt",
            },
        ),
    ],
)
def test_the_papers_white_box_families(
    name: str, theta: float, auxiliary: str, generators: dict[str, str | None]
) -> None:
    family = get_family(name)
    assert {generator.model: generator.base for generator in family.generators} == generators
    assert (family.theta, family.auxiliary, family.reader) == (theta, auxiliary, None)
    assert family.benchmarks == WHITE_BOX
    for generator in family.generators:
        assert generator.sampling == Sampling(0.6, 0.95, None, 0.0, 8192, 0)
        assert [generator.samples[benchmark] for benchmark in WHITE_BOX] == [8, 64, 64, 64]
        assert family.pair_for(generator) == (generator.model, auxiliary)


def test_the_papers_black_box_family() -> None:
    family = get_family("blackbox")
    instruct = Sampling(0.7, 0.8, 20, 1.0, 16384, 0)
    deepseek = Sampling(1.0, 0.95, None, 0.0, 16384, 0)
    assert {g.model: g.sampling for g in family.generators} == {
        "Qwen/Qwen3-4B-Instruct-2507": instruct,
        "Qwen/Qwen3-30B-A3B-Instruct-2507": instruct,
        "deepseek-ai/DeepSeek-V3.2": deepseek,
    }
    assert family.benchmarks == CONTESTS
    for generator, samples in zip(family.generators, (64, 64, 32), strict=True):
        assert [generator.samples[benchmark] for benchmark in CONTESTS] == [samples] * 4
        assert family.pair_for(generator) == (
            "Qwen/Qwen2.5-7B-Instruct",
            "Qwen/Qwen2.5-1.5B-Instruct",
        )
    assert family.theta == 0.70


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_a_preset_is_complete(family: Family) -> None:
    """Every benchmark is registered and has a sample count, and so does the one to fit with."""
    registered = BENCHMARKS.names()
    for benchmark in (*family.benchmarks, family.fit_benchmark):
        assert benchmark in registered
        assert all(generator.samples[benchmark] >= 1 for generator in family.generators)
    assert family.fit_benchmark not in family.benchmarks
    assert family.auxiliary not in [generator.model for generator in family.generators]
    assert 0 < family.theta < 1


def test_the_papers_families_are_fitted_and_compared_alike() -> None:
    for name in ("qwen2.5", "qwen3", "gemma3", "blackbox"):
        assert get_family(name).fit_benchmark == "math-train"
        assert get_family(name).prm == "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B"
    assert get_family("tiny").prm == "divtok/tiny-prm"


def test_generators_stand_smallest_first() -> None:
    """theta is fitted with the family's smallest generator, which is taken to be the first."""
    first = {name: family.generators[0].model for name, family in FAMILIES.items()}
    assert first["qwen2.5"] == "Qwen/Qwen2.5-7B-Instruct"
    assert first["qwen3"] == "Qwen/Qwen3-8B"
    assert first["gemma3"] == "google/gemma-3-12b-it"


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
