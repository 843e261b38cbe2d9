"""Families as YAML files: the shipped figures, what is refused, and those of other packages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plug_in_samples import announce, write_package

from divtok.errors import EXIT_USAGE, ConfigError
from divtok.families.family import FAMILIES, Family, Generator, get_family
from divtok.records import Sampling
from divtok.registry import Registry

ARITHMETIC = ("arith-easy", "arith-medium", "arith-hard", "arith-contest")
TINY = {"arith-easy": 4, "arith-medium": 4, "arith-hard": 4, "arith-contest": 4, "arith-fit": 16}
WHITE = {"math500": 8, "amc23": 64, "aime24": 64, "aime25": 64, "math-train": 8}
OFTEN = {"aime24": 64, "aime25": 64, "hmmt25": 64, "hmmt26": 64, "math-train": 8}
SELDOM = {"aime24": 32, "aime25": 32, "hmmt25": 32, "hmmt26": 32, "math-train": 8}
SKYWORK = "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B"
QWEN_1B = "Qwen/Qwen2.5-1.5B-Instruct"
QWEN_2507 = Sampling(0.7, 0.8, top_k=20, presence_penalty=1.0, max_length=16384)
DEEPSEEK = Sampling(1.0, 0.95, max_length=16384)


def white(model: str, base: str | None) -> Generator:
    return Generator(model, Sampling(0.6, 0.95, max_length=8192), WHITE, base)


def tiny(size: str) -> Generator:
    model = f"divtok/tiny-{size}"
    return Generator(model, Sampling(1.0, 1.0, max_length=768), TINY, f"{model}-base")


WRITTEN_OUT = [
    Family(
        "tiny",
        "Ships in the package: small Qwen2 models trained on arithmetic stories.",
        (tiny("0.5m"), tiny("0.9m"), tiny("1.6m")),
        "divtok/tiny-0.3m",
        0.05,
        "arith-fit",
        None,
        "divtok/tiny-prm",
        ARITHMETIC,
    ),
    Family(
        "qwen2.5",
        "Qwen2.5 instruct models read with Qwen2.5-1.5B-Instruct.",
        (
            white("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"),
            white("Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen2.5-14B"),
            white("Qwen/Qwen2.5-32B-Instruct", "Qwen/Qwen2.5-32B"),
        ),
        QWEN_1B,
        0.5,
        "math-train",
        None,
        SKYWORK,
        ("math500", "amc23", "aime24", "aime25"),
    ),
    Family(
        "qwen3",
        "Qwen3 models, thinking off, read with Qwen3-1.7B.",
        (
            white("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-Base"),
            white("Qwen/Qwen3-14B", "Qwen/Qwen3-14B-Base"),
            white("Qwen/Qwen3-32B", None),
        ),
        "Qwen/Qwen3-1.7B",
        0.6,
        "math-train",
        None,
        SKYWORK,
        ("math500", "amc23", "aime24", "aime25"),
    ),
    Family(
        "gemma3",
        "Gemma 3 instruct models read with gemma-3-4b-it.",
        (
            white("google/gemma-3-12b-it", "google/gemma-3-12b-pt"),
            white("google/gemma-3-27b-it", "google/gemma-3-27b-pt"),
        ),
        "google/gemma-3-4b-it",
        0.85,
        "math-train",
        None,
        SKYWORK,
        ("math500", "amc23", "aime24", "aime25"),
    ),
    Family(
        "blackbox",
        "Any generator's text, read with Qwen2.5-7B and 1.5B.",
        (
            Generator("Qwen/Qwen3-4B-Instruct-2507", QWEN_2507, OFTEN),
            Generator("Qwen/Qwen3-30B-A3B-Instruct-2507", QWEN_2507, OFTEN),
            Generator("deepseek-ai/DeepSeek-V3.2", DEEPSEEK, SELDOM),
        ),
        QWEN_1B,
        0.7,
        "math-train",
        "Qwen/Qwen2.5-7B-Instruct",
        SKYWORK,
        ("aime24", "aime25", "hmmt25", "hmmt26"),
    ),
]

MINE = """
summary: Mine.
auxiliary: me/small
theta: 0.4
fit_benchmark: math-train
generators:
  - model: me/large
    sampling: {temperature: 1}
    samples: {math500: 2}
"""

Read = Callable[..., Registry[Family]]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Read]:
    """The registry with another package's files in it."""

    def announced(files: dict[str, str], **points: str) -> Registry[Family]:
        write_package(tmp_path, "their_families", files)
        points = points or {"theirs": "their_families"}
        return announce(monkeypatch, FAMILIES, tmp_path, **points)

    yield announced
    for name in ("their_families", "their_families.made"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("family", WRITTEN_OUT, ids=lambda family: family.name)
def test_a_shipped_family_is_what_it_is_in_the_paper(family: Family) -> None:
    assert get_family(family.name) == family


def test_no_other_family_ships() -> None:
    assert FAMILIES.names() == sorted(family.name for family in WRITTEN_OUT)


def test_a_family_of_another_package(read: Read) -> None:
    registry = read({"mine.yaml": MINE, "other.yml": "name: my other\n" + MINE, "notes.txt": "x"})
    mine = Generator("me/large", Sampling(temperature=1.0), {"math500": 2})
    assert registry.get("mine") == Family("mine", "Mine.", (mine,), "me/small", 0.4, "math-train")
    assert registry.get("my other").theta == 0.4
    assert registry.names()[-2:] == ["mine", "my other"]
    assert registry.get("tiny") == get_family("tiny")


def test_a_family_made_in_code(read: Read) -> None:
    code = """
from dataclasses import replace
from divtok.families.family import get_family

FAMILY = replace(get_family("tiny"), name="made", theta=0.1)
"""
    registry = read({"made.py": code}, made="their_families.made:FAMILY")
    assert registry.get("made").theta == 0.1


def test_a_package_cannot_take_the_name_of_a_shipped_family(read: Read) -> None:
    registry = read({"tiny.yaml": MINE})
    assert registry.get("tiny").theta == 0.05
    with pytest.raises(Exception, match=r"The family 'tiny' is registered twice, by divtok and by"):
        registry.names()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("theta: 0.4", "thetta: 0.4", "'theta' is missing. unknown key 'thetta'. Did you mean"),
        ("summary: Mine.\n", "", "'summary' is missing."),
        ("0.4", "high", "theta = 'high': input should be a valid number."),
        ("0.4", "yes", "theta = True: input should be a valid number."),
        ("0.4", "1.4", "theta = 1.4 is not within 0 to 1 bits."),
        ("0.4", ".nan", "theta = nan is not within 0 to 1 bits."),
        ("me/small", "[me/small]", "auxiliary = ['me/small']: input should be a valid string."),
        (
            "{temperature: 1}",
            "{temprature: 1}",
            "unknown key 'generators.0.sampling.temprature'. Did you mean 'temperature'?",
        ),
        ("math500: 2", "math500: 2.5", "generators.0.samples.math500 = 2.5: "),
        ("math500: 2", "math500: 0", "generators.0: samples of me/large are not all 1 or more."),
        ("    samples: {math500: 2}\n", "", "'generators.0.samples' is missing."),
        ("theta: 0.4", "theta: 0.4\ntheta: 0.5", "The key 'theta' is given twice"),
        (MINE[MINE.index("generators") :], "generators: []", "a family needs at least one"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(read: Read, old: str, new: str, message: str) -> None:
    assert old in MINE
    registry = read({"wrong.yaml": MINE.replace(old, new)})
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            registry.get("wrong")
        assert message in str(caught.value)
        assert "wrong.yaml" in str(caught.value)
        assert caught.value.exit_code == EXIT_USAGE
    assert registry.get("tiny").theta == 0.05
