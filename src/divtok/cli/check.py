"""The verb check: can this pair be traced here, and how long would a job take?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from divtok.cli.options import DTypesOption, JsonOption
from divtok.cli.printing import print_json, print_panel
from divtok.config.run import RunConfig
from divtok.errors import ModelError
from divtok.models.load import DType
from divtok.planning.amounts import duration, gigabytes, operations, rate
from divtok.planning.speed import EFFICIENCY, flops_per_token
from divtok.progress import say

if TYPE_CHECKING:
    from divtok.planning.feasibility import Feasibility
    from divtok.planning.model_shapes import ModelShape


def check(
    pair: Annotated[
        tuple[str, str],
        typer.Option(
            help="The models p and q: hub ids, folders or packaged models.",
            metavar="P Q",
            show_default=False,
        ),
    ],
    dtype: DTypesOption = "auto",
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N; a GPU if there is one.")
    ] = None,
    device_map: Annotated[
        str | None, typer.Option(help="Spread the models over all GPUs, as in: auto")
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens of the longest response. Left out: 4096, or what the models can read.",
        ),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of the whole job, prompts included.")
    ] = None,
    revision_p: Annotated[str | None, typer.Option(help="Hub revision of p.")] = None,
    revision_q: Annotated[str | None, typer.Option(help="Hub revision of q.")] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Load both models and trace random tokens for some seconds."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check before a long job whether two models can be compared, fit into memory, and how fast.

    For a machine and a job; 'divtok pair' tells more of how the models themselves fit. Reads
    configs and tokenizers, and weights only with --measure, which also finds models that give
    no numbers. Exit code 1 where the job cannot be done, with the reason and the next step.
    """
    from divtok.planning.feasibility import TracingJob, inspect_pair, measured

    settings = RunConfig().trace
    job = TracingJob(
        p=pair[0],
        q=pair[1],
        max_batch_tokens=settings.max_batch_tokens,
        max_batch_rows=settings.max_batch_rows,
        workspace_bytes=settings.budget().workspace_bytes,
        revision_p=revision_p,
        revision_q=revision_q,
        dtype=cast(DType, dtype),  # an unknown name is refused when the models are read
        device=device,
        device_map=device_map,
        length=length,
        tokens=tokens,
    )
    found = inspect_pair(job)
    if measure and not found.problems:
        say("Loading both models, then tracing random tokens for some seconds ...")
        found = measured(job, found)
    if as_json:
        print_json(_as_data(found))
    else:
        _print(found)
    if found.problems:
        first = found.problems[0]
        raise ModelError(first.what, next_step=first.next_step)


def _print(found: Feasibility) -> None:
    verdict = "cannot be done" if found.problems else "can be done"
    print_panel(f"Tracing with this pair {verdict}", _rows(found))


def _rows(found: Feasibility) -> dict[str, list[str]]:
    return {
        "p": [_model(found.p)],
        "q": [_model(found.q)],
        "Vocabulary": [_vocabulary(found)],
        "Context": [_context(found)],
        "Memory": _memory(found),
        "Speed": _speed(found),
        "Dtype": list(found.advice) or [f"{found.p.dtype}, the usual choice"],
        "Note": list(found.notes),
        "Problem": [f"{problem.what} {problem.next_step}" for problem in found.problems],
    }


def _model(shape: ModelShape) -> str:
    stored = shape.stored_dtype
    suffix = "" if stored is None or stored == shape.dtype else f" (stored in {stored})"
    return (
        f"{shape.name}: {shape.architecture}, {shape.parameters:,} parameters in "
        f"{shape.dtype}{suffix}"
    )


def _vocabulary(found: Feasibility) -> str:
    agree = "the same token for every id that both know" if found.same_tokens else "not the same"
    widths = f"outputs {found.p.head_width:,} and {found.q.head_width:,} wide"
    return f"{agree}; {widths}, compared over {found.shared_width:,}"


def _context(found: Feasibility) -> str:
    limit = found.context_length
    if limit is None:
        return f"responses of {found.length:,} tokens; the models have no limit"
    text = f"responses of {found.length:,} tokens; the models read {limit:,}"
    left = limit - found.length
    return f"{text}, which leaves {left:,} for the prompt" if left > 0 else text


def _memory(found: Feasibility) -> list[str]:
    memory, batch = found.memory, found.batch
    free = "an unknown amount" if memory.free is None else gigabytes(memory.free)
    says = {True: "fits", False: "does not fit", None: "cannot be judged"}[memory.fits]
    return [
        f"weights {gigabytes(memory.weights_p)} + {gigabytes(memory.weights_q)}, a batch of "
        f"{batch.rows} x {batch.length:,} tokens {gigabytes(memory.activations)}, its hidden "
        f"states {gigabytes(memory.hidden_states)}, logits {gigabytes(memory.workspace)}",
        f"about {gigabytes(memory.total)} in all, {free} free on {found.device}: {says}",
    ]


def _speed(found: Feasibility) -> list[str]:
    p, q = (flops_per_token(shape, found.length).total for shape in (found.p, found.q))
    work = f"{operations(p)} + {operations(q)} operations a token"
    if found.estimated is None:
        lines = [f"{work}; no estimate: {found.device} lacks the memory to time it"]
    else:
        lines = [f"about {rate(found.estimated)} tokens/s (estimate; {work})"]
    if found.measured is not None:
        batch = found.measured.batch
        lines.append(
            f"{rate(found.measured.tokens_per_second)} tokens/s measured on random tokens, "
            f"{batch.rows} x {batch.length:,} at a time"
        )
    if found.tokens is not None and found.hours is not None:
        lines.append(f"{found.tokens:,} tokens: about {duration(found.hours)}")
    return lines


def _as_data(found: Feasibility) -> dict[str, Any]:
    data = dataclasses.asdict(found)
    data["memory"] |= {"total": found.memory.total, "fits": found.memory.fits}
    for name, shape in (("p", found.p), ("q", found.q)):
        flops = flops_per_token(shape, found.length)
        data[name]["flops_per_token"] = {**dataclasses.asdict(flops), "total": flops.total}
    return {
        "feasible": not found.problems,
        **data,
        "context_length": found.context_length,
        "shared_width": found.shared_width,
        "efficiency": EFFICIENCY,
        "hours": found.hours,
    }
