"""Making an auxiliary of a generator that has no small sibling, from a run's responses of it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from divtok.distilling.facts import Distilled
from divtok.distilling.folder import check_free, copy_companions, drafted, write_card, write_model
from divtok.distilling.layers import choose_layers, layer_count, only_layers
from divtok.distilling.responses import Responses, split_responses
from divtok.distilling.student import Student
from divtok.distilling.train import Nearness, Schedule, measure, train, workspace
from divtok.errors import DataError, ModelError, UsageError, command
from divtok.evidence.kind import stored_trajectories
from divtok.models.card import card_licence
from divtok.models.load import (
    DType,
    LoadedModel,
    load_model,
    model_digest,
    model_place,
    read_config,
)
from divtok.packed.probe import make_probe
from divtok.progress import say
from divtok.records import Trajectory
from divtok.stages.stored import stored_config
from divtok.store.run import Run
from divtok.trace.batches import check_ids
from divtok.trace.budget import Budget
from divtok.trace.reader import Reader, make_reader

if TYPE_CHECKING:
    import torch

DEFAULT_TOKENS = 200_000
DEFAULT_LENGTH = 4096
_LOOKED_AT = 20  # responses whose ids are compared with their text


@dataclass(frozen=True, slots=True)
class Asked:
    """What is made of which model: `layers` by number or by name, and how it learns.

    `generator` is whose responses are learned from, by default those of the model's own name.
    """

    model: str
    layers: int | Sequence[int]
    schedule: Schedule
    tokens: int = DEFAULT_TOKENS  # response tokens to learn from, each counted once
    max_length: int = DEFAULT_LENGTH  # longer responses are cut there, prompt included
    generator: str | None = None
    revision: str | None = None
    device: str | None = None
    dtype: DType = "auto"

    def __post_init__(self) -> None:
        for name in ("tokens", "max_length"):
            value = getattr(self, name)
            if value < 2:
                raise UsageError(f"{name} must be at least 2, not {value}.")
        if self.dtype == "float16":
            raise UsageError(
                "A copy cannot learn in float16, whose small gradients become zero.",
                next_step="Give the dtype bfloat16 or float32.",
            )


def schedule_of(
    *,
    epochs: int | None,
    steps: int | None,
    batch_tokens: int,
    learning_rate: float | None,
    seed: int,
) -> Schedule:
    """A schedule of epochs or steps, of which only one may be given."""
    if epochs is not None and steps is not None:
        raise UsageError("Both epochs and steps were given.", next_step="Give one of them.")
    length = {} if epochs is None else {"epochs": epochs}
    return Schedule(
        **length, steps=steps, batch_tokens=batch_tokens, learning_rate=learning_rate, seed=seed
    )


def default_folder(model: str, layers: int | Sequence[int]) -> Path:
    """Beside where the command is given: the last part of the model's name, and how many layers."""
    count = layers if isinstance(layers, int) else len(layers)
    name = re.sub(r"\.gguf$", "", Path(model.rstrip("/")).name, flags=re.IGNORECASE)
    return Path(f"{name}-{count}-layers")


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """The model that a copy is made of, and which of its layers are kept."""

    loaded: LoadedModel
    revision: str | None
    layers: Sequence[int]
    stored: torch.dtype  # of its weights, and so of the copy's


@dataclass(frozen=True, slots=True)
class _Learned:
    before: Nearness
    after: Nearness
    steps: int


def distil(run: Run, asked: Asked, folder: Path, *, replace_old: bool = False) -> Distilled:
    """Make the auxiliary in `folder`, which is there only once it is whole."""
    began = time.monotonic()
    check_free(folder, replace=replace_old)
    revision = asked.revision or stored_config(run).revisions.get(asked.model)
    generator, rows = _responses_of(run, asked)
    loaded = load_model(asked.model, revision=revision, dtype=asked.dtype, device=asked.device)
    layers = choose_layers(asked.layers, layer_count(loaded), name=asked.model)
    _check_trainable(loaded)
    if generator != asked.model:
        _check_spelling(loaded, rows, generator)
    teacher = make_reader(loaded)
    parts = _read(rows, teacher, asked)
    source = _Source(loaded, revision, layers, _stored_dtype(asked.model, revision))
    with drafted(folder) as draft:
        student = _cut(source, draft)
        learned = _learn(teacher, student, parts, asked.schedule, source.stored)
        facts = _facts(run, asked, generator, source, student, parts, learned)
        facts = replace(facts, folder=folder, seconds=time.monotonic() - began)
        write_model(student.loaded, draft, source.stored)
        copy_companions(asked.model, revision, draft)
        write_card(facts, draft, licence=card_licence(asked.model, revision=revision))
    return facts


def _learn(
    teacher: Reader,
    student: Student,
    parts: Responses,
    schedule: Schedule,
    stored: torch.dtype,
) -> _Learned:
    """Teach the copy; what is measured afterwards is what will be stored."""
    budget = Budget(workspace_bytes=workspace(teacher.device))
    before = measure(teacher, student, parts.held_out, budget=budget)
    say(f"the cut copy: held-out KL {before.kl:.4f} nats a token")
    steps = train(teacher, student, parts.learned, schedule, budget=budget, told=say)
    student.round_to(stored)
    after = measure(teacher, student, parts.held_out, budget=budget) if steps else before
    return _Learned(before, after, steps)


def _facts(
    run: Run,
    asked: Asked,
    generator: str,
    source: _Source,
    student: Student,
    parts: Responses,
    learned: _Learned,
) -> Distilled:
    """All but the folder and the time."""
    schedule, loaded = asked.schedule, source.loaded
    tokens = sum(len(row.token_ids) for row in parts.learned)
    return Distilled(
        folder=Path(),
        source=asked.model,
        source_revision=source.revision,
        source_digest=str(model_digest(asked.model, revision=source.revision)),
        source_layers=layer_count(loaded),
        layers=tuple(source.layers),
        source_parameters=loaded.model.num_parameters(),
        parameters=student.loaded.model.num_parameters(),
        run=run.path.resolve().name,
        generator=generator,
        problems=parts.problems,
        responses=len(parts.learned),
        tokens=tokens,
        held_out_problems=parts.held_out_problems,
        held_out_responses=len(parts.held_out),
        held_out_tokens=learned.before.tokens,
        max_length=parts.max_length,
        cut_responses=parts.cut,
        epochs=schedule.seen(parts.learned) / tokens,
        steps=learned.steps,
        batch_tokens=schedule.batch_tokens,
        learning_rate=schedule.rate(student.width),
        seed=schedule.seed,
        seconds=0.0,
        device=_device_name(loaded.device),
        dtype=_name(loaded.dtype),
        stored_dtype=_name(source.stored),
        kl_before=learned.before.kl,
        kl_after=learned.after.kl,
        agreement_before=learned.before.agreement,
        agreement_after=learned.after.agreement,
    )


def _responses_of(run: Run, asked: Asked) -> tuple[str, list[Trajectory]]:
    """Whose responses are learned from, and those that have their generator's own tokens."""
    rows = stored_trajectories(run)
    name = asked.generator or asked.model
    own = [row for row in rows if row.generator == name]
    if not own:
        there = ", ".join(sorted({row.generator for row in rows}))
        raise DataError(
            f"The run {run.path} has no responses of '{name}'; it has those of {there}.",
            next_step="Name under which of these the model wrote (--generator), or generate some: "
            f"{command('generate', '--generator', asked.model, '--benchmark', 'BENCHMARK')}",
        )
    usable = [row for row in own if row.token_ids and row.prompt_ids and not row.retokenized]
    if not usable:
        raise DataError(
            f"None of the {len(own)} responses of '{name}' in {run.path} has the tokens that the "
            "model sampled: they came as text.",
            next_step="Let the model write some: "
            f"{command('generate', '--generator', asked.model, '--benchmark', 'BENCHMARK')}",
        )
    if len(usable) < len(own):
        say(
            f"{len(own) - len(usable)} of {len(own)} responses are left out: they have no tokens "
            "of the model's own"
        )
    return name, usable


def _check_trainable(loaded: LoadedModel) -> None:
    if getattr(loaded.model, "hf_quantizer", None) is not None:
        raise ModelError(
            f"'{loaded.name}' is quantised, and such weights cannot learn.",
            next_step="Name the model that it was quantised from, and its responses by "
            "--generator.",
        )


def _check_spelling(loaded: LoadedModel, rows: Sequence[Trajectory], name: str) -> None:
    """Refuse ids of another tokenizer: none of some responses' ids spells its text."""
    decode = loaded.tokenizer.decode
    width = len(loaded.tokenizer)
    if not any(
        max(row.token_ids) < width
        and decode(list(row.token_ids), True, clean_up_tokenization_spaces=False) == row.text
        for row in rows[:_LOOKED_AT]
    ):
        raise DataError(
            f"The tokens of '{name}' do not spell its responses in the tokenizer of "
            f"'{loaded.name}', so that model did not write them.",
            next_step="Name the responses of the model itself with --generator.",
        )


def _read(rows: Sequence[Trajectory], teacher: Reader, asked: Asked) -> Responses:
    """The responses, cut to what the model reads with one kind of positions."""
    limits = (asked.max_length, teacher.context_length, teacher.length_switch)
    length = min(limit for limit in limits if limit is not None)
    parts = split_responses(
        rows, max_tokens=asked.tokens, max_length=length, seed=asked.schedule.seed
    )
    for row in (*parts.learned, *parts.held_out):
        check_ids(row, teacher.head.width)
    return parts


def _cut(source: _Source, draft: Path) -> Student:
    """The copy as whoever reads the folder will load it, checked to be those layers."""
    import torch

    loaded, layers = source.loaded, source.layers
    width = loaded.model.get_output_embeddings().weight.shape[0]
    probe = make_probe(min(len(loaded.tokenizer), width))
    with only_layers(loaded, layers):
        whole = probe.read_whole(loaded.model, loaded.device, loaded.dtype)
        write_model(loaded, draft, source.stored)
    copy_companions(loaded.name, source.revision, draft)
    read = load_model(str(draft), dtype=_name(loaded.dtype), device=loaded.device)
    if not whole.agrees(probe.read_whole(read.model, read.device, read.dtype).logits):
        raise ModelError(
            f"A copy of '{loaded.name}' with the layers {', '.join(map(str, layers))} does not "
            "give what these layers give: what a layer does depends on its place.",
            next_step="Name other layers (--layers), or use another architecture.",
        )
    read = replace(read, model=read.model.float(), dtype=torch.float32)
    return Student.of(read, loaded.dtype)


def _stored_dtype(ref: str, revision: str | None) -> torch.dtype:
    """The format of the source's weights, as its config says."""
    import torch

    config = read_config(model_place(ref), ref, revision)
    said = getattr(config.get_text_config(), "dtype", None) or getattr(config, "dtype", None)
    name = str(said).removeprefix("torch.")
    return getattr(torch, name) if name in ("float16", "bfloat16") else torch.float32


def _name(dtype: torch.dtype) -> DType:
    names: dict[str, DType] = {
        "torch.float32": "float32",
        "torch.bfloat16": "bfloat16",
        "torch.float16": "float16",
    }
    return names[str(dtype)]


def _device_name(device: torch.device) -> str:
    import torch

    if device.type != "cuda":
        return f"{device.type}, {torch.get_num_threads()} threads"
    return torch.cuda.get_device_name(device)
