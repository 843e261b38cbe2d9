"""The base model's output layer on the generator's projected states (BaseCal-Proj).

Rides on the generator's pass: the base model itself does not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from divtok.config.loading import digest_of, load_options
from divtok.config.run import RunConfig
from divtok.errors import ConfigError, UsageError
from divtok.evidence.kind import EvidenceKind, Find, Gathering, Lacking, Riding, register
from divtok.evidence.kinds.base import base_lacking
from divtok.evidence.projection import Projection
from divtok.evidence.readings import READINGS, no_base, reading_failures, stored_readings
from divtok.families.family import Generator
from divtok.models.load import load_model
from divtok.packed.packs import Pack
from divtok.packed.parts import Head, find_head
from divtok.records import Reading, Trace
from divtok.store.responses import Response
from divtok.store.run import Run
from divtok.store.sections import check_section
from divtok.trace.listener import Passage, unread_reason
from divtok.trace.readings import failed_reading, make_reading, token_logprobs
from divtok.trace.trunks import AttentionSink


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedHead:
    """The base model's output layer behind the map from the generator's hidden states."""

    projection: Projection
    head: Head
    whole = False

    def __post_init__(self) -> None:
        mapped, read = self.projection.weight.shape[0], self.head.weight.shape[1]
        if mapped != read:
            raise UsageError(
                f"The projection maps to {mapped} dimensions; the output layer of "
                f"'{self.projection.base}' reads {read}.",
                next_step="Use the projection that was learned for this pair of models.",
            )

    def sink(self, pack: Pack) -> None:
        return None

    def hear(self, passage: Passage, sink: AttentionSink | None) -> Sequence[Reading]:
        import torch

        found = token_logprobs(
            self.projection.apply(passage.states),
            self.head,
            torch.from_numpy(passage.targets),
            workspace_bytes=passage.workspace_bytes,
        )
        cuts = np.cumsum([len(row.token_ids) for row in passage.rows])[:-1]
        return [
            make_reading(row.key, self.projection.base, "projected", part)
            for row, part in zip(passage.rows, np.split(found.cpu().numpy(), cuts), strict=True)
        ]

    def unread(self, trace: Trace, model: str) -> Reading:
        return failed_reading(trace.key, self.projection.base, "projected", unread_reason(trace))


class ProjectedKind(EvidenceKind[Reading]):
    name = "projected"
    summary = "Log-probabilities of the base model's output layer on projected states."
    layout = READINGS

    def refuse(self, config: RunConfig) -> Lacking | None:
        lacking = base_lacking(config)
        if lacking is not None:
            return lacking
        for generator in config.generator_presets():
            if config.base_for(generator):
                lacking = lacking or _check_projection(config, generator)
        return lacking

    def models(self, config: RunConfig) -> Sequence[str]:
        return [base for g in config.generator_presets() if (base := config.base_for(g))]

    def check(self, work: Gathering) -> None:
        config = work.config
        files = {name: Path(file).read_bytes() for name, file in config.projections.items()}
        bases = {g.model: config.base_for(g) for g in config.generator_presets()}
        identity = {
            "files": {name: hashlib.sha256(data).hexdigest()[:16] for name, data in files.items()},
            "bases": bases,
            "models": {base: digest_of(config, base) for base in bases.values() if base},
        }
        check_section(work.run, stored_readings(work.run, ("projected",)), "projected", identity)

    def ride(self, work: Gathering, generator: Generator) -> Riding | None:
        config, base = work.config, work.config.base_for(generator)
        if base is None:
            return None

        def head() -> ProjectedHead:
            projection = Projection.load(config.projections[generator.model])
            # Only the output layer is kept of the base model.
            head = find_head(load_model(base, **load_options(config, base)))
            return ProjectedHead(projection.to(head.weight.device), head)

        return Riding(work.run.table(READINGS), lambda key: (key, base, "projected"), head)

    def find(self, work: Gathering) -> Find[Reading]:
        bases = {g.model: work.config.base_for(g) for g in work.config.generator_presets()}
        rows = work.run.table(READINGS).lookup()

        def found(response: Response) -> Reading | None:
            base = bases[response.generator]
            if base is None:
                return no_base(response.key, response.generator, "projected")
            return rows.get((response.key, base, "projected"))

        return found

    def failures(self, run: Run) -> list[str]:
        return reading_failures(run, ("projected",))


def _check_projection(config: RunConfig, generator: Generator) -> Lacking | None:
    """Refuse a projection that is missing, or that was learned for other models than these."""
    file = config.projections.get(generator.model)
    if file is None or not Path(file).is_file():
        where = "" if file is None else f" at '{file}'"
        return Lacking(
            f"there is no projection of '{generator.model}'{where}",
            f"projections.{generator.model}=FILE, made by 'divtok fit-projection'",
        )
    reader, _ = config.pair_for(generator)
    if reader != generator.model:
        raise ConfigError(
            f"A projection maps the states of '{generator.model}', but '{reader}' reads its "
            "trajectories.",
            next_step="Leave out trace.reader, or the estimator basecal_proj.",
        )
    found = Projection.load(file)
    models = (generator.model, config.base_for(generator))
    if models != (found.generator, found.base):
        raise ConfigError(
            f"The projection '{file}' leads from {found.generator} to {found.base}, not from "
            f"{models[0]} to {models[1]}.",
            next_step="Make one for these: divtok fit-projection",
        )
    for ref, digest in ((found.generator, found.generator_digest), (found.base, found.base_digest)):
        if digest and not digest_of(config, ref).matches(digest):
            raise ConfigError(
                f"The projection '{file}' was learned with other weights of '{ref}'.",
                next_step="Learn it again: divtok fit-projection",
            )
    return None


PROJECTED = register(ProjectedKind())
