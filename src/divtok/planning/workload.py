"""The work of a run, step by step: which rows are made by which models, and what that costs.

Follows the stages of a run: what they would make for one generator on one benchmark, and how much
of it is stored already. Makes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from divtok.config.run import RunConfig
from divtok.families.family import Generator
from divtok.planning import costs
from divtok.planning.model_facts import API_MODELS, ModelFact
from divtok.planning.stored import Stored, StoredCell
from divtok.stages.choices import needed_evidence

Role = Literal["generator", "api", "reader", "auxiliary", "base", "prm"]
WorkKind = Literal["generate", "grade", "trace", "chain", "replies", "base", "rewards"]
EVIDENCE_KINDS: tuple[WorkKind, ...] = ("chain", "replies", "base", "rewards")
# None where the size of a model is not known.
Facts = Mapping[str, ModelFact | None]


@dataclass(frozen=True, slots=True)
class Work:
    """Rows of one kind for one generator on one benchmark, made by `models`."""

    kind: WorkKind
    models: tuple[str, ...]
    rows: int
    done: int
    hours: float | None  # for all rows; None where a model's size is not known
    disk_bytes: int

    @property
    def missing(self) -> int:
        """0 as well where more is stored than is asked for; the plan then says so."""
        return max(0, self.rows - self.done)

    @property
    def hours_left(self) -> float | None:
        return None if self.hours is None else self.hours * (self.missing / self.rows)


def models_used(config: RunConfig) -> Iterator[tuple[str, Role]]:
    """Every use of a model in a run; the same one may come several times."""
    needed = needed_evidence(config)
    for generator in config.generator_presets():
        yield generator.model, "api" if generator.model in API_MODELS else "generator"
        for p, q in config.pairs_for(generator):
            if p != generator.model:
                yield p, "reader"
            yield q, "auxiliary"
        base = config.base_for(generator)
        if base is not None and needed & {"base", "projected"}:
            yield base, "base"
    if "rewards" in needed and config.prm is not None:
        yield config.prm, "prm"


@dataclass(frozen=True, slots=True)
class Job:
    """One generator on one benchmark: so many responses of so many tokens on average."""

    config: RunConfig
    generator: Generator
    responses: int
    mean_tokens: float
    there: StoredCell
    stored: Stored
    facts: Facts

    def work(self) -> Iterator[Work]:
        """In the order of the stages."""
        model = self.generator.model
        yield self._written()
        yield self._work("grade", (), ("grades",), 0.0, costs.ROW_BYTES * self.responses)
        for p, q in self.config.pairs_for(self.generator):
            yield self._traced(p, q)
        needed = needed_evidence(self.config)
        reader = self.config.pair_for(self.generator)[0]
        if "chain" in needed:
            hours = self._read(reader, costs.chain_hours)
            size = costs.ROW_BYTES * self.responses
            yield self._work("chain", (reader,), ("chains", reader), hours, size)
        if "statement" in needed and self.config.protocol == "cot":
            size = costs.ROW_BYTES * self.responses
            yield self._work("replies", (model,), ("replies",), self._reply_hours(), size)
        base = self.config.base_for(self.generator)
        if "base" in needed and base is not None:
            kind = f"base_{self.config.evidence.base_prompt}"
            hours = self._read(base, costs.reading_hours)
            size = round(costs.READING_BYTES_PER_TOKEN * self._tokens)
            yield self._work("base", (base,), ("readings", base, kind), hours, size)
        prm = self.config.prm
        if "rewards" in needed and prm is not None:
            hours = self._read(prm, costs.reading_hours)
            size = costs.ROW_BYTES * self.responses
            yield self._work("rewards", (prm,), ("rewards", prm), hours, size)

    @property
    def _tokens(self) -> float:
        return self.responses * self.mean_tokens

    def _work(
        self,
        kind: WorkKind,
        models: tuple[str, ...],
        made_by: tuple[str, ...],
        hours: float | None,
        size: int,
    ) -> Work:
        done = self.stored.done(self.there, *made_by)
        return Work(kind, models, self.responses, done, hours, size)

    def _written(self) -> Work:
        model = self.generator.model
        fact = self.facts[model]
        if model in API_MODELS:
            hours: float | None = 0.0
        else:
            hours = fact and costs.writing_hours(
                fact,
                rows=self.responses,
                tokens=self.mean_tokens,
                limit=self.config.sampling_for(self.generator).max_length,
                batch_size=self.config.generate.batch_size,
            )
        size = round(costs.TRAJECTORY_BYTES_PER_TOKEN * self._tokens)
        return Work("generate", (model,), self.responses, len(self.there.keys), hours, size)

    def _traced(self, p: str, q: str) -> Work:
        first, second = self.facts[p], self.facts[q]
        hours = None
        if first is not None and second is not None:
            hours = costs.tracing_hours(first, second, tokens=self._tokens)
        size = round(costs.TRACE_BYTES_PER_TOKEN * self._tokens)
        return self._work("trace", (p, q), ("traces", p, q), hours, size)

    def _reply_hours(self) -> float | None:
        fact = self.facts[self.generator.model]
        if self.generator.model in API_MODELS:
            return 0.0
        return fact and costs.reply_hours(
            fact,
            rows=self.responses,
            tokens=self._tokens,
            limit=self.config.evidence.reply_tokens,
            batch_size=self.config.generate.batch_size,
        )

    def _read(self, ref: str, hours: costs.Reading) -> float | None:
        fact = self.facts[ref]
        return None if fact is None else hours(fact, tokens=self._tokens)


def notes(job: Job) -> Iterator[str]:
    """What a user should know before starting: what does not fit, and what does not match."""
    model, fact = job.generator.model, job.facts[job.generator.model]
    if model in API_MODELS:
        yield (
            f"{model} is reached through an API, which divtok does not call: its trajectories "
            "must be in the run's folder before the other steps."
        )
    if len(job.there.keys) > job.responses:
        yield (
            f"{len(job.there.keys):,} trajectories of {model} are stored where "
            f"{job.responses:,} are asked for: they were made with another configuration."
        )
    if fact is not None and not costs.on_cpu(fact):
        rows = costs.fitting_rows(fact, job.mean_tokens)
        if costs.too_large(fact):
            yield f"{model} does not fit on {costs.GPU}: generate.device_map=auto spreads it."
        elif rows < job.config.generate.batch_size:
            yield (
                f"{model}: keys and values of {job.config.generate.batch_size} responses may not "
                f"fit beside the weights. generate.batch_size={rows} should."
            )
    for p, q in job.config.pairs_for(job.generator):
        first, second = job.facts[p], job.facts[q]
        if first is not None and second is not None and costs.too_large(first, second):
            size = (first.weight_bytes + second.weight_bytes) / 1e9
            yield (
                f"{p} and {q} have {size:.0f} GB of weights, too much for {costs.GPU}: "
                "trace.device_map=auto spreads them."
            )
