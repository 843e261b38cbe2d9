"""What the paired base model makes of a response (BaseCal): one more pass over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from divtok.config.loading import digest_of, dtype_of, load_options, packs_of
from divtok.config.run import RunConfig
from divtok.evidence.kind import EvidenceKind, Find, Gathering, Lacking, register
from divtok.evidence.readings import READINGS, no_base, reading_failures, stored_readings
from divtok.families.family import Generator
from divtok.models.load import load_tokenizer
from divtok.records import Reading, ReadingKind, Trajectory
from divtok.store.responses import Response
from divtok.store.run import Run
from divtok.store.sections import check_section
from divtok.trace.pair import check_vocabularies
from divtok.trace.reader import load_reader
from divtok.trace.readings import read_trajectories


def base_lacking(config: RunConfig) -> Lacking | None:
    """For both kinds that take a base model."""
    if not config.weights_here:
        why = "it takes the generator's own tokens and weights"
        return Lacking(why, "other estimators")
    generators = config.generator_presets()
    if not any(config.base_for(generator) for generator in generators):
        return Lacking("no generator has a base model", f"bases.{generators[0].model}=MODEL")
    return None


class BaseKind(EvidenceKind[Reading]):
    name = "base"
    summary = "Log-probabilities of the response under the paired base model."
    layout = READINGS

    def refuse(self, config: RunConfig) -> Lacking | None:
        return base_lacking(config)

    def models(self, config: RunConfig) -> Sequence[str]:
        return list(_bases(config).values())

    def check(self, work: Gathering) -> None:
        config, bases = work.config, _bases(work.config)
        identity = {
            "bases": bases,
            "dtype": {base: dtype_of(config, base) for base in bases.values()},
            "models": {base: digest_of(config, base) for base in bases.values()},
        }
        stored = stored_readings(work.run, ("base_chat", "base_plain"))
        check_section(work.run, stored, "base", identity)

    def gather(self, work: Gathering) -> None:
        kind = _kind(work.config)
        for generator, rows in work.by_generator():
            base = work.config.base_for(generator)
            if base is None:
                continue
            work.fill(
                f"read {generator.model} with {base}",
                work.run.table(READINGS),
                packs_of(rows, work.config.trace),
                lambda t, base=base: (t.key, base, kind),
                lambda base=base, generator=generator: _reading(work, generator, base, kind),
                [base],
            )

    def find(self, work: Gathering) -> Find[Reading]:
        bases, kind = _bases(work.config), _kind(work.config)
        rows = work.run.table(READINGS).lookup()

        def found(response: Response) -> Reading | None:
            base = bases.get(response.generator)
            if base is None:
                return no_base(response.key, response.generator, kind)
            return rows.get((response.key, base, kind))

        return found

    def failures(self, run: Run) -> list[str]:
        return reading_failures(run, ("base_chat", "base_plain"))


def _reading(
    work: Gathering, generator: Generator, base: str, kind: ReadingKind
) -> Callable[[Sequence[Trajectory]], list[Reading]]:
    config, questions = work.config, work.questions()
    reader = load_reader(base, **load_options(config, base))
    own = load_tokenizer(generator.model, revision=config.revisions.get(generator.model))
    check_vocabularies(generator.model, own, base, reader.tokenizer)
    budget = config.trace.budget()
    return lambda batch: read_trajectories(
        reader,
        batch,
        kind=kind,
        questions=[questions[t.benchmark, t.problem_id] for t in batch],
        budget=budget,
    )


def _bases(config: RunConfig) -> dict[str, str]:
    """generator -> base, where it has one"""
    return {g.model: b for g in config.generator_presets() if (b := config.base_for(g))}


def _kind(config: RunConfig) -> ReadingKind:
    return "base_chat" if config.evidence.base_prompt == "chat" else "base_plain"


BASE = register(BaseKind())
