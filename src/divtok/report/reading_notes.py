"""The note on how responses were read, where it is not as one would expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from divtok.evaluate.how_read import NOTABLE_MASS, HowRead
from divtok.records import Evaluation
from divtok.report.note import Note

Makers = Mapping[str, Sequence[Mapping[str, str]]]


def reading_note(found: Sequence[HowRead], makers: Makers) -> Note:
    """Lines where a part of the vocabulary mattered, and where some responses were read otherwise
    than the rest; the JSON always, with where the models ran.
    """

    def value(evaluation: Evaluation) -> dict[str, Any] | None:
        for one in found:
            if one.generator == evaluation.generator:
                names = f"{one.p} {one.q}"
                places = [m for m in makers.get("traces", ()) if m.get("models") == names]
                ran = [{k: m[k] for k in ("device", "dtype") if k in m} for m in places]
                kept = {k: v for k, v in asdict(one).items() if k != "generator"}
                return {**kept, "made_on": [r for i, r in enumerate(ran) if r not in ran[:i]]}
        return None

    return Note(
        key="reading",
        heading="Reading",
        title="How the responses were read",
        about="Both models' distributions are cut to the range of tokens that they share, and text "
        "that is not in a reader's own tokens is tokenised anew. Neither should matter; here it "
        "may.",
        lines=tuple(line for one in found for line in _lines(one)),
        value=value,
    )


def _lines(one: HowRead) -> list[str]:
    whose, lines = f"responses of {one.generator}", list[str]()
    sides = (
        (one.p, one.dropped_mass_p, one.notable_p),
        (one.q, one.dropped_mass_q, one.notable_q),
    )
    for model, mass, notable in sides:
        if mass is not None and notable:
            lines.append(
                f"up to {mass:.2g} of {model}'s probability lies beyond the shared vocabulary (in "
                f"{notable:,} of {one.responses:,} {whose} above {NOTABLE_MASS:g}); divergences "
                "leave it out."
            )
    if 0 < one.retokenized < one.responses:
        lines.append(
            f"{one.retokenized:,} of {one.responses:,} {whose} were tokenised anew from their "
            f"text; of the others the ids were those of {one.p}."
        )
    if 0 < one.bounds < one.responses:
        lines.append(
            f"of {one.bounds:,} of {one.responses:,} {whose} there are bounds alone, of the others "
            "exact divergences."
        )
    return lines
