"""How a config wants models loaded and trajectories batched, whatever loads and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from divtok.config.run import GenerateSection, RunConfig, TraceSection
from divtok.models.load import DType, model_digest, resolve_dtype
from divtok.packed.packs import plan_packs
from divtok.records import Trajectory


class LoadOptions(TypedDict):
    """What every loader of a model takes."""

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
    """The dtype a model really runs in."""
    options = load_options(config, section, ref)
    return resolve_dtype(
        ref,
        options["dtype"],
        device=device or options["device"],
        device_map=options["device_map"],
        revision=options["revision"],
    )


def digest_of(config: RunConfig, ref: str) -> str:
    """What tells a model's weights from others; an error where the model is not there."""
    return model_digest(ref, revision=config.revisions.get(ref))


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
