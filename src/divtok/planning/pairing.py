"""Whether two models fit: their tokens, widths, contexts, templates, sizes, licences and theta.

Reads configs and tokenizers, and where nothing can be read, the table of siblings. What tracing
with them takes on a machine is worked out in `feasibility`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from divtok.errors import ModelError, command
from divtok.families.family import FAMILIES, families_of
from divtok.families.siblings import Sibling, siblings
from divtok.models.card import card_licence
from divtok.planning.feasibility import Obstacle, model_notes, same_model, shared_context
from divtok.planning.model_shapes import ModelShape, Outline, read_outline
from divtok.trace.pair import DifferentTokens, check_vocabularies, different_tokens
from divtok.trace.pair_warnings import same_weights_text

_SPECIAL = ("bos_token", "eos_token")


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """One model as it was read, and as the table lists it; either may be missing."""

    name: str
    outline: Outline | None
    listed: Sibling | None
    licence: str | None  # on its card

    @property
    def shape(self) -> ModelShape | None:
        return None if self.outline is None else self.outline.shape

    @property
    def tokenizer(self) -> Any:
        return None if self.outline is None else self.outline.tokenizer


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A model that may read with p, and the theta that a family has for the two."""

    model: str
    listed: Sibling | None
    theta: float | None


@dataclass(frozen=True, slots=True, eq=False)
class PairFacts:
    """All that is known of one or two models."""

    p: Known
    q: Known | None
    series: str | None  # where the table has p
    different: DifferentTokens | None
    thetas: dict[str, float]  # by family
    suggestions: tuple[Suggestion, ...]
    problems: tuple[Obstacle, ...]
    notes: tuple[str, ...]

    @property
    def shapes(self) -> tuple[ModelShape, ModelShape] | None:
        """Of both, where both were read."""
        q = None if self.q is None else self.q.shape
        return None if self.p.shape is None or q is None else (self.p.shape, q)

    @property
    def pairable(self) -> bool | None:
        """None where one of them is missing or was not read."""
        return None if self.shapes is None else not self.problems

    @property
    def context_length(self) -> int | None:
        return None if self.shapes is None else shared_context(*self.shapes)


def look_at(
    p: str, q: str | None, *, revision_p: str | None = None, revision_q: str | None = None
) -> PairFacts:
    """What can be known without weights; a model that cannot be read is a problem, not an error."""
    problems: list[Obstacle] = []
    notes: list[str] = []
    different = None
    first = _known(p, revision_p, problems)
    second = None if q is None else _known(q, revision_q, problems)
    series = siblings().series_of(p)
    if series is not None and series.note is not None:
        notes.append(series.note)
    if first.outline is not None and second is not None and second.outline is not None:
        different = different_tokens(first.tokenizer, second.tokenizer)
        problems += _obstacles(first.outline, second.outline, revision_p, revision_q)
        notes += [
            *_notes(first.outline, second.outline),
            *model_notes(first.outline, second.outline),
        ]
    return PairFacts(
        p=first,
        q=second,
        series=None if series is None else series.name,
        different=different,
        thetas={} if q is None else {family.name: family.theta for family in families_of(p, q)},
        suggestions=() if q is not None else tuple(suggestions(p)),
        problems=tuple(problems),
        notes=tuple(notes),
    )


def suggestions(p: str) -> list[Suggestion]:
    """Auxiliaries for a model: those of its families, and its smaller siblings."""
    series = siblings().series_of(p)
    known = {s.model: s for s in ([] if series is None else series.smaller(p))}
    thetas = {f.auxiliary: f.theta for f in FAMILIES if f in families_of(p, f.auxiliary)}
    return [
        Suggestion(model, known.get(model), thetas.get(model))
        for model in dict.fromkeys([*thetas, *known])
    ]


def _known(ref: str, revision: str | None, problems: list[Obstacle]) -> Known:
    series = siblings().series_of(ref)
    listed = None if series is None else series.member(ref)
    try:
        outline = read_outline(ref, revision=revision)
        licence = card_licence(ref, revision=revision)
    except ModelError as error:
        problems.append(Obstacle(error.what, error.next_step or ""))
        outline = licence = None
    return Known(ref, outline, listed, licence)


def _obstacles(
    p: Outline, q: Outline, revision_p: str | None, revision_q: str | None
) -> list[Obstacle]:
    try:
        check_vocabularies(p.shape.name, p.tokenizer, q.shape.name, q.tokenizer)
    except ModelError as error:
        return [Obstacle(error.what, error.next_step or "")]
    if same_model(p, q, revision_p, revision_q):
        suggested = command("pair", p.shape.name)
        return [
            Obstacle(
                same_weights_text(p.shape.name, q.shape.name),
                f"Name a smaller model as q; some are suggested by: {suggested}",
            )
        ]
    return []


def _notes(p: Outline, q: Outline) -> list[str]:
    notes: list[str] = []
    templates = [getattr(outline.tokenizer, "chat_template", None) for outline in (p, q)]
    if all(templates) and templates[0] != templates[1]:
        notes.append("Their chat templates differ: q reads the prompts in p's.")
    for name in _SPECIAL:
        tokens = [getattr(outline.tokenizer, name, None) for outline in (p, q)]
        if tokens[0] != tokens[1]:
            notes.append(f"{name} is {tokens[0]!r} in p and {tokens[1]!r} in q.")
    return notes
