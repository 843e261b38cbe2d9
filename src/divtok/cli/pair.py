"""The verb pair: do two models fit, and which model could read with this one?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divtok.cli.options import JsonOption
from divtok.cli.printing import print_json, print_panel
from divtok.errors import ModelError
from divtok.families.siblings import Sibling, siblings

if TYPE_CHECKING:
    from divtok.planning.pairing import Known, PairFacts, Suggestion

_VERDICT = {
    True: "These models can be paired",
    False: "These models cannot be paired",
    None: "These models could not be compared",
}


def pair(
    p: Annotated[str, typer.Argument(help="The larger model: a hub id, folder or GGUF file.")],
    q: Annotated[
        str | None, typer.Argument(help="The model to read with it. Left out: some are suggested.")
    ] = None,
    revision_p: Annotated[str | None, typer.Option(help="Hub revision of p.")] = None,
    revision_q: Annotated[str | None, typer.Option(help="Hub revision of q.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether two models fit: tokens, context, sizes, licences, and the theta known for them.

    About the models alone; 'divtok check' says what tracing with them takes on this machine. With
    one model it suggests others to read with it. Reads configs and tokenizers. Exit code 1 where
    they cannot be paired or read, or have the same weights, with the reason and the next step.
    """
    from divtok.planning.pairing import look_at

    found = look_at(p, q, revision_p=revision_p, revision_q=revision_q)
    if as_json:
        print_json(_as_data(found))
    else:
        title = "Models to read with it" if q is None else _VERDICT[found.pairable]
        print_panel(title, _rows(found))
    if found.problems:
        first = found.problems[0]
        raise ModelError(first.what, next_step=first.next_step)


def _rows(found: PairFacts) -> dict[str, list[str]]:
    rows = {"p": [_model(found.p)], "q": [] if found.q is None else [_model(found.q)]}
    if found.shapes is not None:
        widths = [shape.head_width for shape in found.shapes]
        rows["Tokens"] = [_tokens(found)]
        rows["Width"] = [f"{widths[0]:,} and {widths[1]:,}, compared over {min(widths):,}"]
        limit = found.context_length
        rows["Context"] = ["no limit" if limit is None else f"{limit:,} tokens, prompt included"]
    if found.q is not None and found.pairable is not False:
        known = [f"{theta:g} bits (family {name})" for name, theta in found.thetas.items()]
        none = "none known: the count ranks responses; fit one with divtok fit --run RUN"
        rows["Theta"] = known or [none]
    if found.q is None:
        none = "no sibling is known; look for a smaller model of the series, or see: divtok distil"
        rows["Try"] = [_suggestion(one) for one in found.suggestions] or [none]
    if found.series is not None:
        rows["Table"] = [f"{found.series}, as of {siblings().checked}"]
    rows["Note"] = list(found.notes)
    rows["Problem"] = [f"{problem.what} {problem.next_step}" for problem in found.problems]
    return rows


def _model(known: Known) -> str:
    if known.shape is not None:
        shape = known.shape
        licence = f"licence {known.licence or 'not stated'}"
        if known.licence is None and known.listed is not None:
            licence += f" ({known.listed.model}: {known.listed.licence})"
        context = "" if shape.context_length is None else f", reads {shape.context_length:,} tokens"
        return (
            f"{known.name}: {shape.architecture}, {shape.parameters:,} parameters{context}, "
            f"{licence}"
        )
    if known.listed is not None:
        return f"{known.name} (from the table): {_listed(known.listed)}"
    return f"{known.name}: not read"


def _listed(sibling: Sibling) -> str:
    width = "" if sibling.width is None else f", output {sibling.width:,} wide"
    return f"{sibling.billions:g} billion parameters{width}, licence {sibling.licence}"


def _tokens(found: PairFacts) -> str:
    if found.different is None:
        return "the same token for every id that both know"
    return f"{found.different.count:,} of {found.different.shared:,} ids are different tokens"


def _suggestion(one: Suggestion) -> str:
    facts = [] if one.listed is None else [_listed(one.listed)]
    facts += [] if one.theta is None else [f"theta {one.theta:g} bits is known"]
    return f"{one.model}: {'; '.join(facts)}" if facts else one.model


def _as_data(found: PairFacts) -> dict[str, Any]:
    shapes = found.shapes
    return {
        "pairable": found.pairable,
        "p": _known_data(found.p),
        "q": None if found.q is None else _known_data(found.q),
        "same_tokens": None if shapes is None else found.different is None,
        "different_tokens": found.different and dataclasses.asdict(found.different),
        "shared_width": None if shapes is None else min(shape.head_width for shape in shapes),
        "context_length": found.context_length,
        "thetas": found.thetas,
        "suggestions": [dataclasses.asdict(one) for one in found.suggestions],
        "table": {"series": found.series, "checked": siblings().checked},
        "problems": [dataclasses.asdict(problem) for problem in found.problems],
        "notes": found.notes,
    }


def _known_data(known: Known) -> dict[str, Any]:
    return {
        "name": known.name,
        "licence": known.licence,
        "shape": known.shape and dataclasses.asdict(known.shape),
        "chat_template": None if known.outline is None else bool(known.tokenizer.chat_template),
        "listed": known.listed and dataclasses.asdict(known.listed),
    }
