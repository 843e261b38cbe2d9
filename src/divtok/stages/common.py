"""What the stages share: reading what there is, batches, and refusing to mix unlike rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypedDict, TypeVar

from divtok.config.run import GenerateSection, RunConfig, TraceSection
from divtok.errors import DataError
from divtok.models.load import DType, Tokenizer, load_tokenizer, model_digest, resolve_dtype
from divtok.packed.packs import plan_packs
from divtok.protocols.encode import prompt_ids, response_ids
from divtok.records import ReadingKind, Trajectory
from divtok.store.run import Run, check_or_write_manifest
from divtok.store.schema import Key

T = TypeVar("T")


def stored_trajectories(run: Run) -> list[Trajectory]:
    trajectories = run.trajectories.read()
    if not trajectories:
        raise DataError(
            f"The run {run.path} has no trajectories yet.",
            next_step="Generate some first: divtok run, or bring some: divtok import",
        )
    return trajectories


def scored_pairs(config: RunConfig) -> dict[str, tuple[str, str]]:
    """generator -> the pair whose traces of its trajectories are scored"""
    return {g.model: config.pair_for(g) for g in config.generator_presets()}


def stored_questions(run: Run) -> dict[tuple[str, str], str]:
    """(benchmark, problem id) -> question"""
    return {(p.benchmark, p.id): p.question for p in run.problems.read()}


def as_read_by(
    reader: str,
    rows: Sequence[Trajectory],
    questions: Mapping[tuple[str, str], str],
    config: RunConfig,
) -> list[Trajectory]:
    """Trajectories of another generator in the reader's own tokens and prompt template.

    Ids mean the same only under the same tokenizer; otherwise the text is what they share. The
    tokenizer of a generator without weights here is not known, but ids that spell the question and
    the response in the reader's own tokens are the reader's.
    """
    tokenizer = reader_tokenizer(config, reader)
    foreign = not config.weights_here
    vocabulary = tokenizer.get_vocab()
    same: dict[str, bool] = {}
    read: list[Trajectory] = []
    for row in rows:
        question = questions[row.benchmark, row.problem_id]
        if foreign:
            kept = spelled_by(tokenizer, row, question)
        else:
            if row.generator not in same:
                own = load_tokenizer(row.generator, revision=config.revisions.get(row.generator))
                same[row.generator] = own.get_vocab() == vocabulary
            kept = same[row.generator]
        if kept:
            read.append(row)
            continue
        read.append(
            replace(
                row,
                prompt_ids=prompt_ids(tokenizer, question, protocol=row.protocol),
                token_ids=response_ids(tokenizer, row.text),
                retokenized=True,
            )
        )
    return read


def spelled_by(tokenizer: Tokenizer, row: Trajectory, question: str) -> bool:
    """Whether a row's ids are this tokenizer's: they spell its text, and its question before it."""
    if not row.prompt_ids or not row.token_ids:
        return False
    if max(*row.prompt_ids, *row.token_ids) >= len(tokenizer):
        return False
    response = tokenizer.decode(list(row.token_ids), True, clean_up_tokenization_spaces=False)
    asked = tokenizer.decode(list(row.prompt_ids), False, clean_up_tokenization_spaces=False)
    return response == row.text and question.strip() in asked


def reader_tokenizer(config: RunConfig, reader: str) -> Any:
    """The tokenizer of a model that reads; on a server, the one the config names for it."""
    ref = config.tokenizers.get(reader, reader)
    return load_tokenizer(ref, revision=config.revisions.get(ref))


def packs_of(rows: Sequence[Trajectory], section: TraceSection) -> list[list[Trajectory]]:
    """Rows in the batches they are read in, planned over all rows: a resume changes none."""
    plan = plan_packs(
        [t.prompt_ids for t in rows],
        [len(t.prompt_ids) for t in rows],
        [len(t.token_ids) for t in rows],
        max_tokens=section.max_batch_tokens,
        max_rows=section.max_batch_rows,
    )
    return [[rows[index] for index in batch] for batch in plan]


def stored_readings(run: Run, *kinds: ReadingKind) -> set[Key]:
    """The keys of the readings of these kinds."""
    return {key for key in run.readings.keys() if key[2] in kinds}  # noqa: SIM118 (no dict)


def check_section(
    run: Run, rows: Collection[object], section: str, identity: Mapping[str, object]
) -> None:
    """Refuse to mix `rows`, the stored ones of this section, with others made otherwise.

    An attempt that left none binds nobody.
    """
    stored = run.manifest()
    if stored is not None and section in stored and not rows:
        run.write_manifest({name: stored[name] for name in stored if name != section})
    check_or_write_manifest(run, identity, section=section)


def digest_of(config: RunConfig, ref: str) -> str:
    return model_digest(ref, revision=config.revisions.get(ref))


class LoadOptions(TypedDict):
    """How the config wants a model loaded, whatever loads it."""

    revision: str | None
    dtype: DType
    device: str | None
    device_map: str | None


def load_options(
    config: RunConfig, section: GenerateSection | TraceSection, ref: str
) -> LoadOptions:
    return LoadOptions(
        revision=config.revisions.get(ref),
        dtype=section.dtype,
        device=section.device,
        device_map=section.device_map,
    )


def dtype_of(
    config: RunConfig,
    section: GenerateSection | TraceSection,
    ref: str,
    *,
    device: str | None = None,
) -> str:
    return resolve_dtype(
        ref,
        section.dtype,
        device=device or section.device,
        device_map=section.device_map,
        revision=config.revisions.get(ref),
    )


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
