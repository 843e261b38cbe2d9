"""The verb distil: an auxiliary made of a generator's own layers, for one without a sibling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from divtok.cli import completion
from divtok.cli.options import JsonOption
from divtok.cli.printing import print_json
from divtok.errors import UsageError, command
from divtok.models.load import DType
from divtok.screen import put


def distil(
    model: Annotated[str, typer.Argument(help="The generator: a hub id, folder or GGUF file.")],
    layers: Annotated[
        str,
        typer.Option(
            metavar="N|I,J,...",
            help="How many layers to keep, evenly spaced with the first and the last, or which: "
            "0,4,9 (one alone with a comma behind it).",
        ),
    ],
    text: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="The run whose responses it learns from: its name under runs/, or its folder.",
            autocompletion=completion.runs,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the auxiliary; by default one here, named like the model."),
    ] = None,
    generator: Annotated[
        str | None,
        typer.Option(help="Whose responses, where the run has the model under another name."),
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=2, help="Most response tokens to learn from, each counted once.")
    ] = 200_000,
    epochs: Annotated[
        int | None, typer.Option(min=0, help="How often each is seen; 3 by default.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=0, help="Steps in all, instead of epochs.")
    ] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Response tokens of a step.")] = 1024,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="The highest; by default 0.2 over the width of the hidden states."),
    ] = None,
    max_length: Annotated[
        int, typer.Option(min=2, help="Tokens of a response with its prompt; the rest is cut.")
    ] = 4096,
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of the order.")] = 0,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N; by default a GPU if there is one.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Of products: auto, float32 or bfloat16. Weights learn in float32.")
    ] = "auto",
    revision: Annotated[str | None, typer.Option(help="Hub revision of the model.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a distilled auxiliary that is there.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make an auxiliary of some layers of a generator, for one that has no small sibling.

    The copy learns the generator's next-token distributions on its own responses, and becomes a
    model folder with a card. It shares its generator's mistakes: fit a theta and check the pair on
    graded responses.
    """
    from divtok.api.distilled import distil

    made = distil(
        model,
        layers=layers_of(layers),
        text=text,
        out=out,
        generator=generator,
        tokens=tokens,
        epochs=epochs,
        steps=steps,
        batch_tokens=batch_tokens,
        learning_rate=learning_rate,
        max_length=max_length,
        seed=seed,
        device=device,
        dtype=cast(DType, dtype),  # checked where it is used
        revision=revision,
        replace=replace,
    )
    if as_json:
        print_json({"folder": str(made.folder)} | made.as_data())
        return
    put(
        f"{made.folder}: layers {', '.join(map(str, made.layers))} of {made.source}, "
        f"{made.parameters:,} of {made.source_parameters:,} parameters"
    )
    put(
        f"  held-out KL {made.kl_before:.4f} -> {made.kl_after:.4f} nats a token, top-1 agreement "
        f"{100 * made.agreement_before:.1f} -> {100 * made.agreement_after:.1f} %, "
        f"{made.steps:,} steps in {made.seconds:.0f} s"
    )
    said = command("run", "--generator", made.source, "--auxiliary", made.folder, "--benchmark")
    put(f"  Read responses it has not learned from: {said} PROBLEMS")


def layers_of(text: str) -> int | Sequence[int]:
    """ "4" is how many, "0,4,9" are which; "3," is the layer 3 alone."""
    try:
        if "," not in text:
            return int(text)
        return [int(part) for part in text.removesuffix(",").split(",")]
    except ValueError as error:
        raise UsageError(
            f"The layers '{text}' are no number and no list of numbers.",
            next_step="Give how many to keep (--layers 8), or which (--layers 0,4,9,14).",
        ) from error
