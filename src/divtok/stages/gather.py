"""What estimators need beside the trace: gathered into tables, and collected again for scoring.

Chains and projected readings come with the generator's pass in the trace stage. Here are the rest:
replies of the generator, readings of its base model, rewards of a process reward model, and weights
from a file. Each is gathered only where an estimator of the config names it, and resumes like any
other stage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from divtok.config.run import RunConfig
from divtok.errors import DataError
from divtok.evidence.prm import load_prm
from divtok.families.family import Generator
from divtok.generate.engines.chat import Replied, reply_all
from divtok.generate.replies import reply_batch
from divtok.models.load import load_model, load_tokenizer
from divtok.progress import Advance, track
from divtok.protocols.prompts import CONFIDENCE_QUESTION
from divtok.protocols.stated import read_rating, read_stated
from divtok.records import (
    Evidence,
    Reading,
    ReadingKind,
    Relevance,
    Reply,
    Statement,
    StepRewards,
    Trajectory,
)
from divtok.stages.calls import added_up, api_options, has_answered, say_what_calls_took
from divtok.stages.choices import needed_evidence
from divtok.stages.common import (
    check_section,
    chunks,
    digest_of,
    dtype_of,
    load_options,
    packs_of,
    scored_pairs,
    stored_questions,
    stored_readings,
    stored_trajectories,
)
from divtok.store.run import Run
from divtok.store.schema import Key
from divtok.store.table import Table
from divtok.trace.pair import check_vocabularies
from divtok.trace.reader import load_reader
from divtok.trace.readings import read_trajectories

R = TypeVar("R")
# One new row for each trajectory of a batch, in order.
Make: TypeAlias = Callable[[Sequence[Trajectory]], Sequence[R]]


def gather(run: Run, config: RunConfig, *, retry_failed: bool = False) -> None:
    """trajectories -> replies, readings, rewards and relevance, as far as they are needed"""
    needed = needed_evidence(config)
    if "statement" in needed and config.protocol == "cot":
        ask(run, config, retry_failed=retry_failed)
    if "base" in needed:
        read_bases(run, config, retry_failed=retry_failed)
    if "rewards" in needed:
        reward(run, config, retry_failed=retry_failed)
    if "relevance" in needed:
        weigh(run, config)


def ask(run: Run, config: RunConfig, *, retry_failed: bool = False) -> None:
    """trajectories -> replies: each generator is asked how sure it is."""
    if config.generate.engine == "api":
        _ask_servers(run, config, retry_failed=retry_failed)
        return
    generators = config.generator_presets()
    identity = {
        "question": CONFIDENCE_QUESTION,
        "reply_tokens": config.evidence.reply_tokens,
        "dtype": {g.model: dtype_of(config, config.generate, g.model) for g in generators},
        "models": {g.model: digest_of(config, g.model) for g in generators},
    }
    check_section(run, run.replies.keys(), "replies", identity)
    questions = stored_questions(run)
    present = _present(run.replies, retry_failed)
    for generator, rows in _by_generator(run, config):
        # Like lengths together, so that little is padded; a reply does not depend on its batch.
        rows = sorted(rows, key=lambda t: (len(t.prompt_ids) + len(t.token_ids), t.key))
        batches = list(chunks(rows, config.generate.batch_size))

        def replies(generator: Generator = generator) -> Make[Reply]:
            loaded = load_model(
                generator.model, **load_options(config, config.generate, generator.model)
            )
            return lambda batch: reply_batch(
                loaded,
                batch,
                [questions[t.benchmark, t.problem_id] for t in batch],
                max_tokens=config.evidence.reply_tokens,
            )

        _fill(f"ask {generator.model}", run.replies, batches, present, lambda t: (t.key,), replies)


def _ask_servers(run: Run, config: RunConfig, *, retry_failed: bool) -> None:
    options = api_options(config)
    identity = {
        "question": CONFIDENCE_QUESTION,
        "reply_tokens": config.evidence.reply_tokens,
        "models": {g.model: options.name_of(g.model) for g in config.generator_presets()},
    }
    check_section(run, run.replies.keys(), "replies", identity)
    questions = stored_questions(run)
    present = _present(run.replies, retry_failed)
    earlier = {call.key: call for call in run.calls.read() if call.purpose == "reply"}
    for generator, rows in _by_generator(run, config):
        missing = [t for t in rows if (t.key,) not in present]
        done = len(rows) - len(missing)
        with track(f"ask {generator.model}", total=len(rows), done=done) as advance:

            def keep(replied: Sequence[Replied], advance: Advance = advance) -> None:
                calls = (r.call for r in replied if r.call is not None)
                run.calls.append(added_up(calls, earlier))
                run.replies.append([r.reply for r in replied])
                advance(len(replied))

            if missing:
                reply_all(
                    ((t, questions[t.benchmark, t.problem_id]) for t in missing),
                    options,
                    max_tokens=config.evidence.reply_tokens,
                    keep=keep,
                    proved=has_answered(run, config, generator.model),
                )
        if missing:
            say_what_calls_took(run, "reply", {t.key for t in missing})


def read_bases(run: Run, config: RunConfig, *, retry_failed: bool = False) -> None:
    """trajectories -> readings by the base models"""
    bases = {g.model: b for g in config.generator_presets() if (b := config.base_for(g))}
    identity = {
        "bases": bases,
        "dtype": {base: dtype_of(config, config.trace, base) for base in bases.values()},
        "models": {base: digest_of(config, base) for base in bases.values()},
    }
    check_section(run, stored_readings(run, "base_chat", "base_plain"), "base", identity)
    questions = stored_questions(run)
    kind = _base_kind(config)
    present = _present(run.readings, retry_failed)
    for generator, rows in _by_generator(run, config):
        base = bases.get(generator.model)
        if base is None:
            continue

        def readings(base: str = base, generator: Generator = generator) -> Make[Reading]:
            reader = load_reader(base, **load_options(config, config.trace, base))
            revision = config.revisions.get(generator.model)
            own = load_tokenizer(generator.model, revision=revision)
            check_vocabularies(generator.model, own, base, reader.tokenizer)
            budget = config.trace.budget()
            return lambda batch: read_trajectories(
                reader,
                batch,
                kind=kind,
                questions=[questions[t.benchmark, t.problem_id] for t in batch],
                budget=budget,
            )

        _fill(
            f"read {generator.model} with {base}",
            run.readings,
            packs_of(rows, config.trace),
            present,
            lambda t, base=base: (t.key, base, kind),
            readings,
        )


def reward(run: Run, config: RunConfig, *, retry_failed: bool = False) -> None:
    """trajectories -> rewards by the process reward model"""
    prm = config.prm
    assert prm is not None  # refused before
    identity = {
        "prm": prm,
        "dtype": dtype_of(config, config.trace, prm),
        "model": digest_of(config, prm),
    }
    check_section(run, run.rewards.keys(), "rewards", identity)
    questions = stored_questions(run)
    rows = [t for _, members in _by_generator(run, config) for t in members]

    def rewards() -> Make[StepRewards]:
        model = load_prm(prm, **load_options(config, config.trace, prm))
        budget = config.trace.budget()
        return lambda batch: model.rewards(
            [(t.key, questions[t.benchmark, t.problem_id], t.text) for t in batch], budget=budget
        )

    _fill(
        f"reward with {prm}",
        run.rewards,
        packs_of(rows, config.trace),
        _present(run.rewards, retry_failed),
        lambda t: (t.key, prm),
        rewards,
    )


def weigh(run: Run, config: RunConfig) -> None:
    """A file of weights -> relevance. Cheap, so it is made anew each time."""
    assert config.evidence.relevance is not None  # refused before
    pairs = scored_pairs(config)
    lengths = {t.key: len(t.token_ids) for t in stored_trajectories(run)}
    # A response that came as text has its tokens from its reader.
    generators = {t.key: t.generator for t in stored_trajectories(run)}
    for trace in run.traces.read():
        if trace.status == "ok" and (trace.p, trace.q) == pairs.get(generators[trace.key]):
            lengths[trace.key] = len(trace)
    run.relevance.replace(read_relevance(Path(config.evidence.relevance), lengths))


def read_relevance(path: Path, lengths: Mapping[str, int]) -> list[Relevance]:
    """Lines of {"key": trajectory, "weights": [one for each response token]}.

    `lengths` are the tokens of each trajectory of the run.
    """
    found: list[Relevance] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            key, weights = str(row["key"]), np.array(row["weights"], dtype=np.float32)
            if weights.ndim != 1:
                raise ValueError("weights is not a flat list of numbers")
            if not np.isfinite(weights).all() or (weights < 0).any():
                raise ValueError("a weight is negative or no number")
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise DataError(
                f"{path}, line {number}: not a row of weights ({error}).",
                next_step='Write {"key": "...", "weights": [0.1, ...]} on each line.',
            ) from error
        if lengths.get(key) != len(weights):
            problem = (
                f"trajectory '{key}' has {lengths[key]} tokens, not {len(weights)}"
                if key in lengths
                else f"the run has no trajectory '{key}'"
            )
            raise DataError(
                f"{path}, line {number}: {problem}.",
                next_step="Use the keys of the run's table of trajectories, a weight a token.",
            )
        found.append(Relevance(key, path.name, weights))
    return found


def collect(run: Run, config: RunConfig, trajectories: Sequence[Trajectory]) -> dict[str, Evidence]:
    """key -> what the estimators of the config need, for every trajectory"""
    needed = needed_evidence(config)
    presets = {generator.model: generator for generator in config.generator_presets()}
    kind = _base_kind(config)
    replies = {r.key: r for r in _rows(run.replies, "statement" in needed)}
    chains = {(c.key, c.model): c for c in _rows(run.chains, "chain" in needed)}
    wanted = bool(needed & {"base", "projected", "sampled"})
    readings = {(r.key, r.model, r.kind): r for r in _rows(run.readings, wanted)}
    rewards = {(r.key, r.model): r for r in _rows(run.rewards, "rewards" in needed)}
    relevance = {r.key: r for r in _rows(run.relevance, "relevance" in needed)}
    found: dict[str, Evidence] = {}
    for t in trajectories:
        generator = presets[t.generator]
        p, _ = config.pair_for(generator)
        base = config.base_for(generator)
        found[t.key] = Evidence(
            chain=chains.get((t.key, p)),
            base=readings.get((t.key, base, kind)) if base else _no_base(t, kind),
            projected=(
                readings.get((t.key, base, "projected")) if base else _no_base(t, "projected")
            ),
            sampled=readings.get((t.key, t.generator, "sampled")),
            rewards=rewards.get((t.key, config.prm or "")),
            statement=_statement(t, replies.get(t.key)) if "statement" in needed else None,
            relevance=relevance.get(t.key),
        )
    return found


def _statement(trajectory: Trajectory, reply: Reply | None) -> Statement | None:
    if trajectory.protocol != "cot":
        return read_stated(trajectory.text, trajectory.protocol).statement
    if reply is None:
        return None
    return read_rating(reply.text) if reply.reason is None else Statement(None, reply.reason)


def _no_base(trajectory: Trajectory, kind: ReadingKind) -> Reading:
    nothing = np.empty(0, dtype=np.float32)
    reason = f"no base model is known for {trajectory.generator}"
    return Reading(trajectory.key, "", kind, nothing, reason)


def _base_kind(config: RunConfig) -> ReadingKind:
    return "base_chat" if config.evidence.base_prompt == "chat" else "base_plain"


def _present(table: Table[Any], retry_failed: bool) -> set[Key]:
    """The rows that need not be made again."""
    present = table.keys()
    if retry_failed:
        present -= {table.layout.key_of(row) for row in table.read() if row.reason is not None}
    return present


def _rows(table: Table[R], wanted: bool) -> list[R]:
    return table.read() if wanted else []


def _by_generator(run: Run, config: RunConfig) -> list[tuple[Generator, list[Trajectory]]]:
    # Of a response that could not be had there is nothing to ask or to read.
    trajectories = [t for t in stored_trajectories(run) if not t.failed]
    return [
        (generator, [t for t in trajectories if t.generator == generator.model])
        for generator in config.generator_presets()
    ]


def _fill(
    title: str,
    table: Table[R],
    batches: Sequence[Sequence[Trajectory]],
    present: set[Key],
    key_of: Callable[[Trajectory], Key],
    load: Callable[[], Make[R]],
) -> None:
    """Make the missing rows of a table, whole batches at a time; models load only if needed."""
    missing = [b for b in batches if any(key_of(t) not in present for t in b)]
    total = sum(len(b) for b in batches)
    with track(title, total=total, done=total - sum(len(b) for b in missing)) as advance:
        if not missing:
            return
        make = load()
        for batch in missing:
            made = make(batch)
            table.append(
                [row for row, t in zip(made, batch, strict=True) if key_of(t) not in present]
            )
            advance(len(batch))
