"""Learning the projections of a run's generators: its own trajectories in, one file each out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from divtok.config.loading import digest_of, load_options
from divtok.config.run import RunConfig
from divtok.errors import DataError
from divtok.evidence.kind import stored_trajectories
from divtok.evidence.projection import Projection
from divtok.evidence.projection_fit import fit_projection
from divtok.families.family import Generator
from divtok.models.load import load_tokenizer
from divtok.progress import say, track
from divtok.records import Trajectory
from divtok.store.run import Run
from divtok.trace.pair import check_vocabularies
from divtok.trace.reader import load_reader
from divtok.trace.readings import States, read_states

FOLDER = "projections"


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A projection, and the file it is in."""

    projection: Projection
    path: Path


def fit_projections(
    run: Run, config: RunConfig, *, max_tokens: int, folder: Path | None = None
) -> list[Fitted]:
    """One projection for each generator with a base model, from at most so many tokens of it.

    No grade is looked at. Both models' states are held in memory: about 8 bytes a token and
    dimension for each while they are put together.
    """
    trajectories = stored_trajectories(run)
    found: list[Fitted] = []
    for generator in config.generator_presets():
        base = config.base_for(generator)
        if base is None:
            say(f"{generator.model} has no base model, hence no projection")
            continue
        rows = _some([t for t in trajectories if t.generator == generator.model], max_tokens)
        projection = _fit(config, generator, base, rows)
        name = re.sub(r"[/\\:]+", "--", generator.model)  # it may be a folder's path
        path = (folder or run.path / FOLDER) / f"{name}.safetensors"
        projection.save(path)
        found.append(Fitted(projection, path))
    if not found:
        raise DataError(
            f"No generator of {run.path} has a base model.",
            next_step="Name one: bases.GENERATOR=MODEL",
        )
    return found


def _fit(
    config: RunConfig, generator: Generator, base: str, rows: Sequence[Trajectory]
) -> Projection:
    ours = _states(config, generator.model, base, rows)
    theirs = _states(config, base, generator.model, rows)
    pairs = [
        (mine.values, other.values)
        for mine, other in zip(ours, theirs, strict=True)
        if mine.reason is None and other.reason is None
    ]
    if len(pairs) < 2:
        raise DataError(
            f"{len(pairs)} trajectories of {generator.model} can be read by it and by {base}; two "
            "are the least to learn from and to check with.",
            next_step="Generate more of them.",
        )
    return fit_projection(
        pairs,
        generator=generator.model,
        base=base,
        generator_digest=digest_of(config, generator.model),
        base_digest=digest_of(config, base),
        seed=config.seed,
        progress=lambda epoch, train, held: say(
            f"epoch {epoch}: mean squared error {train:.5f}, held out {held:.5f}"
        ),
    )


def _states(config: RunConfig, ref: str, other: str, rows: Sequence[Trajectory]) -> list[States]:
    reader = load_reader(ref, **load_options(config, ref))
    theirs = load_tokenizer(other, revision=config.revisions.get(other))
    check_vocabularies(ref, reader.tokenizer, other, theirs)
    budget = config.trace.budget()
    found: list[States] = []
    with track(f"read states of {ref}", total=len(rows)) as advance:
        for row in rows:
            found += read_states(reader, [row], budget=budget)
            advance(1)
    return found


def _some(rows: Sequence[Trajectory], max_tokens: int) -> list[Trajectory]:
    """Rows in a seeded order until they hold `max_tokens` tokens; at least two."""
    chosen: list[Trajectory] = []
    tokens = 0
    for index in np.random.default_rng(0).permutation(len(rows)):
        row = rows[int(index)]
        if len(chosen) >= 2 and tokens + len(row.token_ids) > max_tokens:
            break
        chosen.append(row)
        tokens += len(row.token_ids)
    return chosen
