"""How a config wants models loaded and trajectories batched, whatever loads and reads them."""

from __future__ import annotations

from collections.abc import Sequence

from divtok.config.run import GenerateSection, RunConfig, TraceSection
from divtok.models.load import LoadOptions, model_digest, pick_place, resolve_dtype
from divtok.packed.packs import plan_packs
from divtok.records import Trajectory
from divtok.store.sections import Digest

# Samples of a problem that are read together; the next ones are read by themselves.
SAMPLES_TOGETHER = 4


def load_options(config: RunConfig, ref: str) -> LoadOptions:
    """How a model that reads is loaded."""
    return LoadOptions(
        revision=config.revisions.get(ref),
        dtype=config.trace.dtype,
        device=config.trace.device,
        device_map=config.trace.device_map,
    )


def dtype_of(config: RunConfig, ref: str, *, device: str | None = None) -> str:
    """The dtype that a model which reads really runs in."""
    options = load_options(config, ref)
    if device:
        options["device"] = device
    return resolve_dtype(ref, **options)


def digest_of(config: RunConfig, ref: str) -> Digest:
    """What tells a model's weights from others; an error where the model is not there."""
    return model_digest(ref, revision=config.revisions.get(ref))


def worth_compiling(section: GenerateSection | TraceSection, tokens: float, *, least: int) -> bool:
    """Whether layers are compiled, which takes seconds: by itself on a GPU from so many tokens."""
    if section.compile != "auto":
        return section.compile == "always"
    place, _ = pick_place(section.device, section.device_map)
    return place.type == "cuda" and tokens >= least


def packs_of(rows: Sequence[Trajectory], section: TraceSection) -> list[list[Trajectory]]:
    """Rows in the batches they are read in, planned over all rows: a resume changes none.

    What rows are read beside moves their last digits. So that a run which grows keeps nearly all of
    its batches, those of other generators, benchmarks and later samples never share one: more
    problems change only the last batch of each.
    """
    parts: dict[tuple[str, str, int], list[Trajectory]] = {}
    for t in rows:
        part = t.generator, t.benchmark, t.sample // SAMPLES_TOGETHER
        parts.setdefault(part, []).append(t)
    return [batch for part in parts.values() for batch in _packs(part, section)]


def _packs(rows: Sequence[Trajectory], section: TraceSection) -> list[list[Trajectory]]:
    plan = plan_packs(
        [t.prompt_ids for t in rows],
        [len(t.prompt_ids) for t in rows],
        [len(t.token_ids) for t in rows],
        max_tokens=section.max_batch_tokens,
        max_rows=section.max_batch_rows,
    )
    return [[rows[index] for index in batch] for batch in plan]
