"""Families: named presets of generators, auxiliary, base models, theta and sampling.

A family is one YAML file, in `presets/` or in another package. `tiny` ships with its models and is
one preset among others. Knows names only, never where a model lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from divtok.errors import UsageError, command, did_you_mean
from divtok.records import Sampling
from divtok.registry import Registry


@dataclass(frozen=True, slots=True)
class Generator:
    """A model that writes trajectories, with how it is sampled and how often."""

    model: str
    sampling: Sampling
    samples: Mapping[str, int]  # per problem, by benchmark
    base: str | None = None  # the checkpoint it was post-trained from
    foreign: bool = False  # there are only its texts: it cannot read them itself

    def __post_init__(self) -> None:
        if any(count < 1 for count in self.samples.values()):
            raise ValueError(f"samples of {self.model} are not all 1 or more")


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
    prm: str | None = None
    benchmarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.generators:
            raise ValueError("A family needs at least one generator")
        if not 0 <= self.theta <= 1:
            raise ValueError(f"theta = {self.theta} is not within 0 to 1 bits")

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
            next_step=f"{did_you_mean(model, models)} Any other model needs no family: name the "
            f"one that reads with it (--auxiliary Q); some are suggested by: "
            f"{command('pair', model)}",
        )

    def pair_for(self, generator: Generator) -> tuple[str, str]:
        """(p, q) for a generator's trajectories: with itself, or two auxiliaries."""
        own = self.generators[0].model if generator.foreign else generator.model
        return self.reader or own, self.auxiliary


def _read_package(module: ModuleType) -> list[tuple[str, Family]]:
    from divtok.strict_yaml import read_file, yaml_files

    found = [read_file(Family, path, noun="family file") for path in yaml_files(module)]
    return [(family.name, family) for family in found]


FAMILIES: Registry[Family] = Registry(
    "family",
    group="divtok.families",
    home="divtok.families.presets",
    read_module=_read_package,
)


def get_family(name: str) -> Family:
    return FAMILIES.get(name)


def default_theta(
    p: str, q: str, *, family: str | None = None, generator: str | None = None
) -> float:
    """The theta for text that p and q read, where none is given.

    A family that is named gives its own. Otherwise it depends on who wrote the text: p itself
    (white-box) or another generator (black-box); where that is not said, another, because text
    that is scored apart is mostly not p's own.
    """
    if family is not None:
        return get_family(family).theta
    return theta_for(p, q, foreign=generator != p)


def theta_for(p: str, q: str, *, foreign: bool = False) -> float:
    """The theta of the family that pairs these two models."""
    family = pairing_family(p, q, foreign=foreign)
    if family is not None:
        return family.theta
    raise UsageError(
        f"No family pairs '{p}' with '{q}', so there is no theta for them.",
        next_step="Give one (--theta, or theta=... in Python), best one fitted on problems with "
        "known answers: divtok fit --run RUN",
    )


def pairing_family(p: str, q: str, *, foreign: bool = False) -> Family | None:
    """The family that pairs these two models; None where none does.

    White-box families come first; where the text is foreign, another generator's than p, they come
    last.
    """
    found = sorted(families_of(p, q), key=lambda family: (family.reader is None) == foreign)
    return found[0] if found else None


def families_of(p: str, q: str) -> list[Family]:
    """Every family that pairs these two models."""
    return [
        family
        for family in FAMILIES
        if any(family.pair_for(generator) == (p, q) for generator in family.generators)
    ]
