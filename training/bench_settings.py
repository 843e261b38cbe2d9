"""What the bench families are made of: one table of tasks, and how much of everything.

Sizes, sampling, seeds and the gap between generator and auxiliary differ from task to task, so that
what holds on all of them holds for more than one setting. Nothing here is trained or run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from training.train import Size

Role = Literal["generator", "middle", "small", "half"]
ROLES: tuple[Role, ...] = ("generator", "middle", "small", "half")


@dataclass(frozen=True)
class Bench:
    """One family: a generator, two auxiliaries trained apart, and half of the generator.

    The small auxiliary stops learning where its loss is `gap` times the generator's, which decides
    how often the two diverge. A size's `chat_steps` are all its steps; there is no base stage.
    """

    generator: Size
    middle: Size
    small: Size
    gap: float
    kept_layers: tuple[int, ...]  # of the generator, in the half
    temperature: float
    top_p: float
    seed: int


@dataclass(frozen=True)
class Amounts:
    """How much is made of everything, and how long training may take."""

    blocks: int = 20  # of training examples
    block: int = 10_000
    batch: int = 96
    most_seconds: float = 150.0  # of training a generator or a middle auxiliary
    most_seconds_small: float = 60.0
    probes: int = 96  # problems of each level that decide which levels become benchmarks
    distilled: int = 3072  # responses of the generator that its half learns from
    distil_steps: int = 600
    distil_batch: int = 128
    distil_rate: float = 1e-3
    problems: int = 60  # of each of the two benchmarks
    fit_problems: int = 40
    samples: int = 8
    longest: int = 1024  # tokens of prompt and response
    most_new_tokens: int = 512


# The accuracies that the levels of the two benchmarks should come near to.
AIMED_AT = (0.7, 0.45)

# Columns of a size: width, layers, heads, key-value heads, padded vocabulary, base steps, steps,
# learning rate, seed.
BENCHES: Mapping[str, Bench] = {
    "routes": Bench(
        generator=Size(160, 5, 5, 1, 880, 0, 12000, 1.5e-3, 101),
        middle=Size(112, 4, 7, 1, 816, 0, 12000, 1.5e-3, 102),
        small=Size(80, 3, 5, 1, 784, 0, 8000, 2e-3, 103),
        gap=1.25,
        kept_layers=(0, 2, 4),
        temperature=0.8,
        top_p=1.0,
        seed=100,
    ),
    "puzzles": Bench(
        generator=Size(128, 6, 4, 2, 848, 0, 12000, 1.5e-3, 201),
        middle=Size(96, 4, 3, 1, 800, 0, 12000, 1.5e-3, 202),
        small=Size(64, 3, 4, 1, 776, 0, 8000, 2e-3, 203),
        gap=1.5,
        kept_layers=(0, 2, 5),
        temperature=0.6,
        top_p=0.95,
        seed=200,
    ),
    "programs": Bench(
        generator=Size(144, 4, 6, 2, 864, 0, 12000, 1.5e-3, 301),
        middle=Size(96, 3, 3, 1, 832, 0, 12000, 1.5e-3, 302),
        small=Size(64, 2, 2, 1, 792, 0, 8000, 2e-3, 303),
        gap=1.9,
        kept_layers=(0, 3),
        temperature=1.0,
        top_p=1.0,
        seed=300,
    ),
}

FULL = Amounts()
# Enough to go through every line on a CPU; what comes out means nothing.
SMALL = Amounts(
    blocks=2,
    block=300,
    batch=16,
    probes=2,
    distilled=16,
    distil_steps=3,
    distil_batch=1,
    problems=2,
    fit_problems=2,
    samples=2,
    longest=420,
    most_new_tokens=24,
)


def bench(task: str, *, small: bool = False) -> Bench:
    found = BENCHES[task]
    if not small:
        return found
    return replace(
        found,
        generator=_tiny(found.generator, width=32, layers=2),
        middle=_tiny(found.middle, width=32, layers=1),
        small=_tiny(found.small, width=16, layers=1),
        kept_layers=(1,),
    )


def amounts(*, small: bool = False) -> Amounts:
    return SMALL if small else FULL


def _tiny(size: Size, *, width: int, layers: int) -> Size:
    return replace(size, width=width, layers=layers, heads=2, kv_heads=1, chat_steps=12)
