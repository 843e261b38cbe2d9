"""Recipes for each table and figure of the paper, and the runs they are made of.

A recipe has two sides with the same code behind them: `paper` with the paper's models, and `tiny`,
its twin on the embedded family. Reads and checks files; makes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from divtok.config.run import RunConfig, parse_config
from divtok.config.tree import override_tree
from divtok.errors import UsageError, did_you_mean
from divtok.families.family import get_family
from divtok.paper.parts import joined_parts
from divtok.paper.uses import used_by
from divtok.protocols.given import is_wording_file, read_wording
from divtok.protocols.wording import Wording
from divtok.strict_yaml import load_tree

RECIPES_FILE, RUNS_FILE = "recipes.yaml", "runs.yaml"
TINY = "tiny"
ALL = "all"
_WORDS = "protocols."  # begins an override that gives a protocol other words

# The defaults of n and k.
DEFAULT_VALUES = {"saturation": 10, "offset": 4}

Names = Annotated[list[str], Field(min_length=1)]
ExhibitKind = Literal[
    "whitebox-table",
    "blackbox-table",
    "verbalized-table",
    "count",
    "pilot",
    "calibration",
    "theta-map",
    "theta-curves",
    "count-ratio",
    "divergence",
    "saturation",
    "offset",
]


class Side(BaseModel):
    """What one side of a recipe looks at; left out means everything its runs hold."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: Names
    subject: str | None = None  # whose table it is, where there is one for each generator
    fit: str | None = None  # the run that theta is fitted on, for pairs without a preset
    generators: Names | None = None
    benchmarks: Names | None = None
    dual_benchmarks: Names | None = None  # of two auxiliaries, where they differ from the others
    step: Annotated[int, Field(ge=1, le=50)] = 5  # of theta where it is searched, in 0.01 bits

    def theta_grid(self) -> tuple[float, ...]:
        return tuple(k / 100 for k in range(self.step, 100, self.step))


class Recipe(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    about: str  # what to look for, in a sentence or two
    exhibit: ExhibitKind
    dual: bool = False  # two auxiliaries read; otherwise the generator and one auxiliary do
    values: list[int] | None = None  # of n or k, where the exhibit varies one
    paper: Side
    tiny: Side
    name: str = ""  # that of its file

    @model_validator(mode="after")
    def _default_among_values(self) -> Self:
        """The claim about n or k is about its default."""
        default = DEFAULT_VALUES.get(self.exhibit)
        if self.values is not None and default is not None and default not in self.values:
            raise PydanticCustomError("default", "the values must include {n}", {"n": default})
        return self

    def side(self, family: str | None) -> Side:
        return self.tiny if family == TINY else self.paper

    def heading(self, family: str | None) -> str:
        subject = self.side(family).subject
        return self.title if subject is None else f"{self.title}: {subject}"


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run with what is asked of it; `whole` is all that its recipes together could ask for."""

    name: str
    config: RunConfig
    whole: RunConfig | None = None


@cache
def recipes() -> dict[str, Recipe]:
    """Every recipe by name, tables first, in the order of the paper."""
    return {
        name: Recipe.model_validate({**tree, "name": name})
        for name, tree in _trees(RECIPES_FILE).items()
    }


def chosen_recipes(name: str, family: str | None = None) -> list[Recipe]:
    """The recipe of that name; for `all`, every one that has a run of the family."""
    known = recipes()
    if family is not None:
        get_family(family)  # an error if it is not known
    if name == ALL:
        return [recipe for recipe in known.values() if has_runs(recipe, family)]
    if name not in known:
        raise UsageError(
            f"There is no recipe '{name}'.", next_step=did_you_mean(name, [*known, ALL])
        )
    return [known[name]]


def has_runs(recipe: Recipe, family: str | None) -> bool:
    runs = [run for name in recipe.side(family).runs for run in named_runs(name)]
    return bool(of_family(runs, family))


def runs_of(
    chosen: Sequence[Recipe], family: str | None, overrides: Sequence[str] = ()
) -> list[NamedRun]:
    """The runs these recipes need, each once, in the order they are named, with no more in them
    than the recipes look at.

    `family` picks the side: `tiny` its own; any other keeps the paper's runs of that family.
    """
    found: dict[str, NamedRun] = {}
    for recipe in chosen:
        side = recipe.side(family)
        runs = [run for name in side.runs for run in named_runs(name, overrides)]
        fitting = [] if side.fit is None else named_runs(side.fit, overrides)
        runs, fitting = of_family(runs, family), of_family(fitting, family)
        used = used_by(recipe, side, runs, fitting, overrides)
        for run in (*runs, *fitting):
            asked, before = used[run.name], found.get(run.name)
            if before is not None:
                asked = joined_parts(before.config, asked, run.config)
            found[run.name] = NamedRun(run.name, asked, run.config)
    if not found:
        raise UsageError(
            f"No run of {', '.join(recipe.name for recipe in chosen)} belongs to the family "
            f"'{family}'.",
            next_step="Leave out --family, or use --family tiny.",
        )
    return list(found.values())


def check_words(chosen: Sequence[Recipe], family: str | None, overrides: Sequence[str]) -> None:
    """Refuse words for a protocol that none of the recipes' runs asks by."""
    trees = [_trees(RUNS_FILE)[name] for name in _run_names(chosen, family)]
    each = [tree.get("protocols") or [tree.get("protocol", "cot")] for tree in trees]
    asked = dict.fromkeys(protocol for protocols in each for protocol in protocols)
    for kind in _given_words(overrides)[0]:
        if kind not in asked:
            raise UsageError(
                f"No run of this asks by a protocol '{kind}', as {_WORDS}{kind}= would have it.",
                next_step=did_you_mean(kind, asked),
            )


def _run_names(chosen: Sequence[Recipe], family: str | None) -> list[str]:
    sides = [recipe.side(family) for recipe in chosen]
    return list(dict.fromkeys(n for s in sides for n in (*s.runs, s.fit) if n is not None))


def of_family(runs: Iterable[NamedRun], family: str | None) -> list[NamedRun]:
    """The runs of the family; all of them for the side of tiny, and where none is asked for."""
    return [run for run in runs if family in (None, TINY, run.config.family)]


def named_runs(name: str, overrides: Sequence[str] = ()) -> list[NamedRun]:
    """The run of that name; several, one a protocol, where it lists protocols.

    An override `protocols.KIND=FILE` has a protocol ask in the words of a file. Such runs have a
    name of their own, so that they stand beside those in divtok's words.
    """
    tree = dict(_trees(RUNS_FILE)[name])
    protocols: list[str] | None = tree.pop("protocols", None)
    given, others = _given_words(overrides)
    if protocols and any(override.startswith("protocol=") for override in others):
        raise UsageError(
            f"The run '{name}' asks by several protocols, and protocol= would make them one.",
            next_step="Say which one asks in the words of your file: protocols.KIND=FILE.yaml, "
            f"where KIND is one of {', '.join(protocols)}.",
        )
    found: list[NamedRun] = []
    for kind in protocols or [None]:
        one = {"protocol": "cot", **tree} if kind is None else {**tree, "protocol": kind}
        asked: str = one["protocol"]
        called = name if kind is None else f"{name}-{kind}"
        if asked in given:
            one["protocol"] = given[asked]
            called = f"{called}-{_words_in(given[asked], asked).name}"
        source = f"the run '{name}' of {RUNS_FILE}"
        found.append(NamedRun(called, parse_config(override_tree(one, others), source=source)))
    return found


def _given_words(overrides: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Protocol -> the file with other words for it, and the overrides that say something else."""
    mine = [override for override in overrides if override.startswith(_WORDS)]
    parts = [override.removeprefix(_WORDS).partition("=") for override in mine]
    given = {kind: file for kind, _, file in parts}
    return given, [override for override in overrides if override not in mine]


def _words_in(file: str, kind: str) -> Wording:
    if not is_wording_file(file):
        raise UsageError(
            f"'{_WORDS}{kind}={file}' names no file of words.",
            next_step="Give a YAML file, FILE.yaml: docs/paper.md says what it holds.",
        )
    wording = read_wording(file)
    if wording.kind != kind:
        raise UsageError(
            f"{file} has words for the protocol '{wording.kind}', not for '{kind}'.",
            next_step=f"Write {_WORDS}{wording.kind}={file}, or correct 'kind' in the file.",
        )
    return wording


@cache
def _trees(file: str) -> dict[str, dict[str, Any]]:
    text = (resources.files("divtok.paper") / "recipes" / file).read_text("utf-8")
    return cast("dict[str, dict[str, Any]]", load_tree(text, source=file))
