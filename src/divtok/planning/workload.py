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
from divtok.models.sizes import API_MODELS, ModelSize
from divtok.planning.memory import GPU, fitting_rows, too_large
from divtok.planning.speed import on_cpu, reading_hours, reply_hours, writing_hours
from divtok.planning.stored import Stored, StoredCell
from divtok.stages.choices import needed_evidence
from divtok.store.space import (
    READING_BYTES_PER_TOKEN,
    ROW_BYTES,
    TRACE_BYTES_PER_TOKEN,
    TRAJECTORY_BYTES_PER_TOKEN,
)

Role = Literal["generator", "api", "reader", "auxiliary", "base", "prm"]
WorkKind = Literal["generate", "grade", "trace", "chain", "replies", "base", "rewards"]
EVIDENCE_KINDS: tuple[WorkKind, ...] = ("chain", "replies", "base", "rewards")
# None where the size of a model is not known.
Sizes = Mapping[str, ModelSize | None]


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
        if base is not None and {"base", "projected"} & set(needed):
            yield base, "base"
    if "rewards" in needed and config.reward_model is not None:
        yield config.reward_model, "prm"


@dataclass(frozen=True, slots=True)
class Workload:
    """One generator on one benchmark: so many responses of so many tokens on average."""

    config: RunConfig
    generator: Generator
    responses: int
    mean_tokens: float
    there: StoredCell
    stored: Stored
    sizes: Sizes

    def work(self) -> Iterator[Work]:
        """In the order of the stages."""
        config, model = self.config, self.generator.model
        yield self._work("generate", (model,), (), TRAJECTORY_BYTES_PER_TOKEN)
        yield self._work("grade", (), ("grades",))
        for pair in config.pairs_for(self.generator):
            yield self._work("trace", pair, ("traces", *pair), TRACE_BYTES_PER_TOKEN)
        needed = needed_evidence(config)
        reader, _ = config.pair_for(self.generator)
        if "chain" in needed:
            yield self._work("chain", (reader,), ("chains", reader))
        if "statement" in needed and not config.all_state_confidence:
            yield self._work("replies", (model,), ("replies",))
        base = config.base_for(self.generator)
        if "base" in needed and base is not None:
            made_by = ("readings", base, f"base_{config.evidence.base_prompt}")
            yield self._work("base", (base,), made_by, READING_BYTES_PER_TOKEN)
        if "rewards" in needed and config.reward_model is not None:
            yield self._work("rewards", (config.reward_model,), ("rewards", config.reward_model))

    @property
    def _tokens(self) -> float:
        return self.responses * self.mean_tokens

    def _work(
        self,
        kind: WorkKind,
        models: tuple[str, ...],
        made_by: tuple[str, ...],
        bytes_per_token: int | None = None,
    ) -> Work:
        """`made_by` names the stored rows, but for the trajectories themselves.

        Without `bytes_per_token` a row is a few numbers.
        """
        if bytes_per_token is None:
            size = ROW_BYTES * self.responses
        else:
            size = round(bytes_per_token * self._tokens)
        done = self.stored.done(self.there, *made_by) if made_by else len(self.there.keys)
        return Work(kind, models, self.responses, done, self._hours(kind, models), size)

    def _hours(self, kind: WorkKind, models: tuple[str, ...]) -> float | None:
        """None where a size is not known; a generator behind an API takes none of our time."""
        config, rows = self.config, self.responses
        batch = config.generate.batch_size
        sizes = [size for ref in models if (size := self.sizes[ref]) is not None]
        if kind == "grade" or (kind in ("generate", "replies") and models[0] in API_MODELS):
            return 0.0
        if len(sizes) < len(models):
            return None
        if kind == "generate":
            tokens, limit = self.mean_tokens, config.sampling_for(self.generator).max_length
            return writing_hours(*sizes, rows=rows, tokens=tokens, limit=limit, batch_size=batch)
        if kind == "replies":
            tokens, limit = self._tokens, config.evidence.reply_tokens
            return reply_hours(*sizes, rows=rows, tokens=tokens, limit=limit, batch_size=batch)
        return reading_hours(kind, *sizes, tokens=self._tokens)

    def notes(self) -> Iterator[str]:
        """What a user should know before starting: what does not fit, and what does not match."""
        model, size = self.generator.model, self.sizes[self.generator.model]
        generate = self.config.generate
        if model in API_MODELS and generate.api.base_url is None:
            yield (
                f"{model} is reached through an API. Give its address with "
                "generate.api.base_url=URL, or put its trajectories in the run's folder first."
            )
        if len(self.there.keys) > self.responses:
            yield (
                f"{len(self.there.keys):,} trajectories of {model} are stored where "
                f"{self.responses:,} are asked for: they were made with another configuration."
            )
        if size is not None and not on_cpu(size):
            rows = fitting_rows(size, self.mean_tokens)
            if too_large(size):
                yield f"{model} does not fit on {GPU}: generate.device_map=auto spreads it."
            elif rows < generate.batch_size:
                yield (
                    f"{model}: keys and values of {generate.batch_size} responses may not fit "
                    f"beside the weights. generate.batch_size={rows} should."
                )
        yield from self._beyond_trained()
        for p, q in self.config.pairs_for(self.generator):
            first, second = self.sizes[p], self.sizes[q]
            if first is not None and second is not None and too_large(first, second):
                weights = (first.weight_bytes + second.weight_bytes) / 1e9
                yield (
                    f"{p} and {q} have {weights:.0f} GB of weights, too much for {GPU}: "
                    "trace.device_map=auto spreads them."
                )

    def _beyond_trained(self) -> Iterator[str]:
        """Where the reward model may meet responses longer than it was trained to read."""
        prm, allowed = self.config.reward_model, self.config.prm.max_length
        size = None if prm is None else self.sizes.get(prm)
        trained = None if size is None else size.trained_length
        if trained is None or "rewards" not in needed_evidence(self.config):
            return
        limit = trained if allowed == "trained" else allowed
        if limit is not None:
            yield (
                f"{prm} was trained on {trained:,} tokens; responses of more than {limit:,} have "
                f"no value of prm (prm.max_length={allowed})."
            )
        elif self.config.sampling_for(self.generator).max_length > trained:
            yield (
                f"{prm} was trained on {trained:,} tokens and reads on past them; tables say of "
                "how many responses. prm.max_length=trained leaves those out."
            )
