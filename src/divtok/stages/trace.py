"""trajectories -> traces, and the chains and projected readings that come from the same passes.

Batches are planned over all rows, not over the missing ones, so an interrupted run ends with
exactly the rows of an uninterrupted one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from divtok.config.run import FOREIGN_ENGINES, RunConfig, TraceSection
from divtok.evidence.projection import Projection
from divtok.families.family import Generator
from divtok.models.load import load_model, pick_place
from divtok.packed.parts import find_head
from divtok.progress import track
from divtok.records import Trajectory
from divtok.stages.choices import needed_evidence
from divtok.stages.common import (
    as_read_by,
    check_section,
    digest_of,
    dtype_of,
    load_options,
    packs_of,
    stored_questions,
    stored_readings,
    stored_trajectories,
)
from divtok.store.run import Run
from divtok.store.schema import Key
from divtok.trace.extras import Extras, ProjectedHead, Read
from divtok.trace.pair import load_pair
from divtok.trace.topk.server_pair import load_server_pair

COMPILE_FROM_TOKENS = 2_000_000

ReadBatch = Callable[[Sequence[Trajectory]], Sequence[Read]]


def trace(run: Run, config: RunConfig, *, retry_failed: bool = False) -> None:
    """trajectories -> traces, and the chains and projected readings that come with them"""
    trajectories = stored_trajectories(run)
    questions = stored_questions(run)
    needed = needed_evidence(config)
    check_pairs(run, config)
    if "projected" in needed:
        projected = stored_readings(run, "projected")
        check_section(run, projected, "projected", _projection_identity(config))
    present = _Present.of(run, retry_failed=retry_failed)
    for generator, (p, q) in _readers(config):
        scored = (p, q) == config.pair_for(generator)
        rows = [t for t in trajectories if t.generator == generator.model and not t.failed]
        if p != generator.model or config.generate.engine in FOREIGN_ENGINES:
            rows = as_read_by(p, rows, questions, config)
        base = config.base_for(generator) if scored and "projected" in needed else None
        wanted = _Wanted(p, q, chain=scored and "chain" in needed, base=base)
        _trace_pair(run, config, generator, rows, wanted, present)


def _trace_pair(
    run: Run,
    config: RunConfig,
    generator: Generator,
    rows: Sequence[Trajectory],
    wanted: _Wanted,
    present: _Present,
) -> None:
    """What is missing under one pair; its models are let go before the next pair's are loaded."""
    section, p, q = config.trace, wanted.p, wanted.q
    batches = packs_of(rows, section)
    missing = [b for b in batches if any(present.lacks(t.key, wanted) for t in b)]
    done = len(rows) - sum(len(b) for b in missing)
    readers = q if p == generator.model else f"{p} and {q}"
    with track(f"trace {generator.model} with {readers}", total=len(rows), done=done) as advance:
        if not missing:
            return
        served = p in config.servers
        read = _served_pair(config, p, q) if served else _pair(config, generator, wanted, missing)
        for batch in missing:
            _keep(run, read(batch), batch, present)
            advance(len(batch))


def _pair(
    config: RunConfig,
    generator: Generator,
    wanted: _Wanted,
    batches: Sequence[Sequence[Trajectory]],
) -> ReadBatch:
    """Both models loaded here."""
    section = config.trace
    pair = load_pair(
        wanted.p,
        wanted.q,
        p_revision=config.revisions.get(wanted.p),
        q_revision=config.revisions.get(wanted.q),
        dtype=section.dtype,
        p_device=section.device,
        q_device=section.q_device or section.device,
        device_map=section.device_map,
        compile_trunks=_worth_compiling(section, batches),
    )
    extras = Extras(wanted.chain, _projected_head(config, generator, wanted.base))
    budget = section.budget()
    return lambda batch: pair.read_batch(batch, budget=budget, extras=extras)


def _served_pair(config: RunConfig, p: str, q: str) -> ReadBatch:
    """Both models behind servers, which give their most likely tokens only: bounds."""
    section = config.trace.server
    pair = load_server_pair(
        p,
        q,
        p_server=section.settings(config.servers[p]),
        q_server=section.settings(config.servers[q]),
        p_tokenizer=config.tokenizers.get(p, p),
        q_tokenizer=config.tokenizers.get(q, q),
        p_revision=config.revisions.get(config.tokenizers.get(p, p)),
        q_revision=config.revisions.get(config.tokenizers.get(q, q)),
        p_served_name=config.served_names.get(p),
        q_served_name=config.served_names.get(q),
        top_k=section.top_k,
        form=section.form,
    )
    return lambda batch: [Read(trace) for trace in pair.trace_batch(batch)]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a pass over a generator's trajectories is to leave in the tables."""

    p: str
    q: str
    chain: bool
    base: str | None  # whose output layer reads the projected states


@dataclass(slots=True)
class _Present:
    """The rows that are there and need not be made again."""

    traces: set[Key]
    chains: set[Key]
    readings: set[Key]

    @classmethod
    def of(cls, run: Run, *, retry_failed: bool) -> _Present:
        found = cls(run.traces.keys(), run.chains.keys(), run.readings.keys())
        if retry_failed:
            again = {(t.key, t.p, t.q) for t in run.traces.read() if t.status != "ok"}
            found.traces -= again
            # Chains and projected readings come with the traces of p; other readings do not.
            found.chains -= {(key, p) for key, p, _ in again}
            failed = {key for key, _, _ in again}
            found.readings = {
                key for key in found.readings if key[2] != "projected" or key[0] not in failed
            }
        return found

    def lacks(self, key: str, wanted: _Wanted) -> bool:
        return (
            (key, wanted.p, wanted.q) not in self.traces
            or (wanted.chain and (key, wanted.p) not in self.chains)
            or (wanted.base is not None and (key, wanted.base, "projected") not in self.readings)
        )


def _keep(run: Run, reads: Sequence[Read], batch: Sequence[Trajectory], present: _Present) -> None:
    """Store what is new; what comes with a trace first, so that a trace means all of it."""
    chains = [r.chain for r in reads if r.chain is not None]
    projected = [r.projected for r in reads if r.projected is not None]
    traces = [
        replace(read.trace, retokenized=trajectory.retokenized)
        for read, trajectory in zip(reads, batch, strict=True)
    ]
    run.chains.append([c for c in chains if (c.key, c.model) not in present.chains])
    run.readings.append([r for r in projected if (r.key, r.model, r.kind) not in present.readings])
    run.traces.append([t for t in traces if (t.key, t.p, t.q) not in present.traces])


def _projected_head(
    config: RunConfig, generator: Generator, base: str | None
) -> ProjectedHead | None:
    if base is None:
        return None
    section = config.trace
    projection = Projection.load(config.projections[generator.model])
    # Only the output layer is kept of the base model.
    head = find_head(load_model(base, **load_options(config, section, base)))
    return ProjectedHead(projection.to(head.weight.device), head)


def _worth_compiling(section: TraceSection, batches: Sequence[Sequence[Trajectory]]) -> bool:
    """Compiling costs some ten seconds, which a long job on a GPU earns back."""
    if section.compile != "auto":
        return section.compile == "always"
    tokens = sum(len(t.prompt_ids) + len(t.token_ids) for batch in batches for t in batch)
    place, _ = pick_place(section.device, section.device_map)
    return place.type == "cuda" and tokens >= COMPILE_FROM_TOKENS


def _readers(config: RunConfig) -> list[tuple[Generator, tuple[str, str]]]:
    """Each generator with each pair that reads its trajectories."""
    return [(g, pair) for g in config.generator_presets() for pair in config.pairs_for(g)]


def check_pairs(run: Run, config: RunConfig) -> None:
    """Each pair answers for its own traces, so that one more pair can come later."""
    traces, chains = run.traces.keys(), run.chains.keys()
    for p, q in dict.fromkeys(pair for _, pair in _readers(config)):
        rows = {key for key in traces if key[1:] == (p, q)} | {key for key in chains if key[1] == p}
        check_section(run, rows, f"trace {p} {q}", _pair_identity(config, p, q))


def _pair_identity(config: RunConfig, p: str, q: str) -> dict[str, object]:
    """The weights, and what each model really runs in: rows of a GPU and a CPU do not mix."""
    section = config.trace
    if p in config.servers:
        # A server tells no more of its model than a name.
        return {
            "models": {ref: f"served as {config.served_names.get(ref, ref)}" for ref in (p, q)},
            "tokenizers": {ref: config.tokenizers.get(ref, ref) for ref in (p, q)},
            "dtype": {p: "served", q: "served"},
            "top_k": section.server.top_k,
        }
    return {
        "models": {ref: digest_of(config, ref) for ref in (p, q)},
        "dtype": {
            p: dtype_of(config, section, p),
            q: dtype_of(config, section, q, device=section.q_device),
        },
    }


def _projection_identity(config: RunConfig) -> dict[str, object]:
    files = {name: Path(file).read_bytes() for name, file in config.projections.items()}
    bases = {g.model: config.base_for(g) for g in config.generator_presets()}
    return {
        "files": {name: hashlib.sha256(data).hexdigest()[:16] for name, data in files.items()},
        "bases": bases,
        "models": {base: digest_of(config, base) for base in bases.values() if base},
    }
