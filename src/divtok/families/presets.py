"""Families: named presets of generators, auxiliary, base models, theta and sampling.

`tiny` ships inside the package and is one preset among others: its models are named like any hub
model. Knows names only, never where a model lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from divtok.errors import UsageError, did_you_mean
from divtok.records import Sampling


@dataclass(frozen=True, slots=True)
class Generator:
    """A model that writes trajectories, with how it is sampled and how often."""

    model: str
    sampling: Sampling
    samples: Mapping[str, int]  # per problem, by benchmark
    base: str | None = None  # the checkpoint it was post-trained from
    foreign: bool = False  # there are only its texts: it cannot read them itself


@dataclass(frozen=True, slots=True)
class Family:
    """`reader` is None in white-box families: there p is the generator itself.

    What a foreign generator wrote is then read by the family's smallest generator.
    """

    name: str
    summary: str
    generators: tuple[Generator, ...]  # smallest first: theta is fitted with the first
    auxiliary: str
    theta: float
    fit_benchmark: str
    reader: str | None = None
    prm: str | None = "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B"
    benchmarks: tuple[str, ...] = field(default=())

    def generator(self, model: str, *, foreign: bool = False) -> Generator:
        """A generator by name; with `foreign`, any other name too, for one without weights here."""
        for generator in self.generators:
            if generator.model == model:
                return generator
        if foreign:
            first = self.generators[0]
            # Settings of one model's own card are not passed on to another.
            sampling = replace(first.sampling, top_k=None, presence_penalty=0.0)
            return replace(first, model=model, sampling=sampling, base=None, foreign=True)
        if Path(model).exists():  # a local copy or a model of one's own, sampled like the first
            return replace(self.generators[0], model=model, base=None)
        models = [generator.model for generator in self.generators]
        raise UsageError(
            f"The family '{self.name}' has no generator '{model}'.",
            next_step=did_you_mean(model, models),
        )

    def pair_for(self, generator: Generator) -> tuple[str, str]:
        """(p, q) for a generator's trajectories: with itself, or two auxiliaries."""
        own = self.generators[0].model if generator.foreign else generator.model
        return self.reader or own, self.auxiliary


def get_family(name: str) -> Family:
    if name not in FAMILIES:
        raise UsageError(f"Unknown family '{name}'.", next_step=did_you_mean(name, FAMILIES))
    return FAMILIES[name]


def theta_for(p: str, q: str, *, foreign: bool = False) -> float:
    """The theta of the family that pairs these two models.

    White-box families come first, unless the text is known to be another generator's than p.
    """
    for family in sorted(FAMILIES.values(), key=lambda f: foreign and f.reader is None):
        if family.auxiliary == q and any(
            family.pair_for(generator) == (p, q) for generator in family.generators
        ):
            return family.theta
    raise UsageError(
        f"No family pairs '{p}' with '{q}', so there is no theta for them.",
        next_step="Give one (--theta, or theta=... in Python), best one fitted on problems with "
        "known answers: divtok fit --run RUN",
    )


_PAPER_WHITE_BOX = Sampling(temperature=0.6, top_p=0.95, max_length=8192)
_WHITE_BOX_SAMPLES = {"math500": 8, "amc23": 64, "aime24": 64, "aime25": 64, "math-train": 1}
_CONTESTS = ("aime24", "aime25", "hmmt25", "hmmt26")
_WHITE_BOX_BENCHMARKS = ("math500", "amc23", "aime24", "aime25")


def _white_box(model: str, base: str | None) -> Generator:
    return Generator(model, _PAPER_WHITE_BOX, _WHITE_BOX_SAMPLES, base)


def _contest(model: str, sampling: Sampling, samples: int) -> Generator:
    return Generator(model, sampling, dict.fromkeys(_CONTESTS, samples) | {"math-train": 1})


_QWEN3_2507 = Sampling(temperature=0.7, top_p=0.8, top_k=20, presence_penalty=1.0, max_length=16384)
_DEEPSEEK = Sampling(temperature=1.0, top_p=0.95, max_length=16384)
_TINY = Sampling(temperature=1.0, top_p=1.0, max_length=768)
_ARITHMETIC = ("arith-easy", "arith-medium", "arith-hard", "arith-contest")


def _tiny(model: str) -> Generator:
    samples = dict.fromkeys(_ARITHMETIC, 4) | {"arith-fit": 16}
    return Generator(model, _TINY, samples, f"{model}-base")


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            name="tiny",
            summary="Ships in the package: small Qwen2 models trained on arithmetic stories.",
            generators=(
                _tiny("divtok/tiny-0.5m"),
                _tiny("divtok/tiny-0.9m"),
                _tiny("divtok/tiny-1.6m"),
            ),
            auxiliary="divtok/tiny-0.3m",
            theta=0.05,
            fit_benchmark="arith-fit",
            prm="divtok/tiny-prm",
            benchmarks=_ARITHMETIC,
        ),
        Family(
            name="qwen2.5",
            summary="Qwen2.5 instruct models read with Qwen2.5-1.5B-Instruct.",
            generators=(
                _white_box("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"),
                _white_box("Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen2.5-14B"),
                _white_box("Qwen/Qwen2.5-32B-Instruct", "Qwen/Qwen2.5-32B"),
            ),
            auxiliary="Qwen/Qwen2.5-1.5B-Instruct",
            theta=0.50,
            fit_benchmark="math-train",
            benchmarks=_WHITE_BOX_BENCHMARKS,
        ),
        Family(
            name="qwen3",
            summary="Qwen3 models, thinking off, read with Qwen3-1.7B.",
            generators=(
                _white_box("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-Base"),
                _white_box("Qwen/Qwen3-14B", "Qwen/Qwen3-14B-Base"),
                _white_box("Qwen/Qwen3-32B", None),  # no public base checkpoint
            ),
            auxiliary="Qwen/Qwen3-1.7B",
            theta=0.60,
            fit_benchmark="math-train",
            benchmarks=_WHITE_BOX_BENCHMARKS,
        ),
        Family(
            name="gemma3",
            summary="Gemma 3 instruct models read with gemma-3-4b-it.",
            generators=(
                _white_box("google/gemma-3-12b-it", "google/gemma-3-12b-pt"),
                _white_box("google/gemma-3-27b-it", "google/gemma-3-27b-pt"),
            ),
            auxiliary="google/gemma-3-4b-it",
            theta=0.85,
            fit_benchmark="math-train",
            benchmarks=_WHITE_BOX_BENCHMARKS,
        ),
        Family(
            name="blackbox",
            summary="Any generator's text, read with Qwen2.5-7B and 1.5B.",
            generators=(
                _contest("Qwen/Qwen3-4B-Instruct-2507", _QWEN3_2507, 64),
                _contest("Qwen/Qwen3-30B-A3B-Instruct-2507", _QWEN3_2507, 64),
                _contest("deepseek-ai/DeepSeek-V3.2", _DEEPSEEK, 32),
            ),
            auxiliary="Qwen/Qwen2.5-1.5B-Instruct",
            reader="Qwen/Qwen2.5-7B-Instruct",
            theta=0.70,
            fit_benchmark="math-train",
            benchmarks=_CONTESTS,
        ),
    )
}
