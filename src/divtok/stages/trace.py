"""trajectories -> traces, with the evidence that rides on the same passes.

Batches are planned over all rows, not over the missing ones, so an interrupted run ends with
exactly the rows of an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from divtok.config.loading import digest_of, dtype_of, packs_of, worth_compiling
from divtok.config.made_with import readers as made_with_readers
from divtok.config.run import RunConfig
from divtok.divergences.divergence import Divergence
from divtok.evidence.kind import EVIDENCE, Gathering, Riding
from divtok.families.family import Generator
from divtok.fill import LOCAL, Executor, Task, batch_by_batch, fill, keep_batch
from divtok.progress import say
from divtok.protocols.boxed import AnswerSpan
from divtok.records import Trajectory
from divtok.stages.choices import asked_divergences, needed_evidence
from divtok.stages.readers import as_read_by
from divtok.store.layout import Key
from divtok.store.notes import keep_note, kept_notes
from divtok.store.responses import rows_of
from divtok.store.run import Run
from divtok.store.sections import check_section
from divtok.store.space import TRACE_BYTES_PER_TOKEN, require_space
from divtok.trace.listener import Read
from divtok.trace.pair import Asked, load_pair
from divtok.trace.topk.server_pair import load_server_pair

COMPILE_FROM_TOKENS = 2_000_000

ReadBatch = Callable[[Sequence[Trajectory]], Sequence[Read]]
Answers = Mapping[str, AnswerSpan | None]


def trace(
    run: Run,
    config: RunConfig,
    *,
    retry_failed: bool = False,
    executor: Executor = LOCAL,
    benchmarks: Collection[str] | None = None,
) -> None:
    """trajectories -> traces, with the evidence that rides on the same passes

    With `benchmarks` only responses to these are read.
    """
    work = Gathering(run, config, retry_failed, executor, benchmarks)
    trajectories, questions = work.trajectories(), work.questions()
    kinds = [EVIDENCE.get(name) for name in needed_evidence(config)]
    check_pairs(run, config)
    answers, divergences = stored_answers(run), asked_divergences(config)
    again = _failed(run) if retry_failed else set[Key]()
    present = run.traces.keys() - again - _without(run, config, divergences)
    for generator, (p, q) in _readers(config):
        rows = [t for t in trajectories if t.generator == generator.model and not t.failed]
        beyond: Collection[str] = ()
        if config.reads_foreign(generator, p):
            found = as_read_by(p, rows, questions, config, as_text=_read_as_text(run, p))
            rows, beyond = found.rows, found.beyond
        riders: list[_Rider] = []
        if (p, q) == config.pair_for(generator):
            rides = [r for kind in kinds if (r := kind.ride(work, generator)) is not None]
            failed = {key for key, *_ in again}
            riders = [_Rider.of(riding, failed) for riding in rides]
        reading = _Reading(
            config, generator, p, q, rows, beyond, answers, divergences, riders, present
        )
        fill(reading.task(run), executor)


@dataclass(frozen=True, slots=True, eq=False)
class _Rider:
    """A kind of evidence on this pass, and the rows that are there already."""

    riding: Riding
    present: set[Key]

    @classmethod
    def of(cls, riding: Riding, failed: Iterable[str]) -> _Rider:
        """Where a trace is tried again, so is what rides on it."""
        return cls(riding, riding.table.keys() - {riding.key_of(key) for key in failed})

    def lacks(self, key: str) -> bool:
        return self.riding.key_of(key) not in self.present


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """One pair's pass over one generator's trajectories."""

    config: RunConfig
    generator: Generator
    p: str
    q: str
    rows: Sequence[Trajectory]
    beyond: Collection[str]  # keys of rows with tokens that p has not
    answers: Answers
    divergences: Sequence[Divergence]
    riders: Sequence[_Rider]
    present: set[Key]

    def task(self, run: Run) -> Task[Trajectory, Read]:
        batches = packs_of(self.rows, self.config.trace)
        readers = self.q if self.p == self.generator.model else f"{self.p} and {self.q}"
        return Task(
            f"trace {self.generator.model} with {readers}",
            batches,
            is_missing=self._is_missing,
            open=lambda: batch_by_batch(lambda: self._load(batches)),
            keep=lambda reads: self._keep(run, reads),
            note=partial(keep_note, run),
            begin=lambda missing: self._begin(run, missing),
        )

    def _begin(self, run: Run, missing: Sequence[Sequence[Trajectory]]) -> None:
        tokens = sum(len(t.token_ids) for batch in missing for t in batch)
        require_space(run.path, tokens * TRACE_BYTES_PER_TOKEN)
        pair, q_device = (self.p, self.q), self.config.trace.q_device
        made_with = made_with_readers(self.config, pair, q_device=q_device)
        run.note_maker(run.traces.layout.name, made_with)
        self._note_beyond(run)

    def _note_beyond(self, run: Run) -> None:
        """Say how many responses are read as text although the others are not, and keep it."""
        if not self.beyond:
            return
        count, of = len(self.beyond), len(self.rows)
        message = (
            f"{count} of {of} responses of {self.generator.model} hold a token that {self.p} has "
            f"not: {'it was' if count == 1 else 'they were'} tokenised anew from the text, without "
            "an end token. The others keep their ids."
        )
        say(message)
        if message not in kept_notes(run):
            keep_note(run, message)

    def _is_missing(self, trajectory: Trajectory) -> bool:
        key = trajectory.key
        return (key, self.p, self.q) not in self.present or any(r.lacks(key) for r in self.riders)

    def _load(self, batches: Sequence[Sequence[Trajectory]]) -> ReadBatch:
        if self.p in self.config.servers:
            return self._served()
        section = self.config.trace
        missing = [batch for batch in batches if any(map(self._is_missing, batch))]
        tokens = sum(len(t.prompt_ids) + len(t.token_ids) for batch in missing for t in batch)
        pair = load_pair(
            self.p,
            self.q,
            p_revision=self.config.revisions.get(self.p),
            q_revision=self.config.revisions.get(self.q),
            dtype=section.dtype,
            p_device=section.device,
            q_device=section.q_device or section.device,
            device_map=section.device_map,
            compile_trunks=worth_compiling(section, tokens, least=COMPILE_FROM_TOKENS),
        )
        asked = Asked(self.divergences, [rider.riding.open() for rider in self.riders])
        budget = section.budget()
        return lambda batch: pair.read_batch(
            batch, budget=budget, asked=asked, answers=self.answers
        )

    def _served(self) -> ReadBatch:
        """Both models behind servers, which give their most likely tokens only: bounds."""
        config, section, p, q = self.config, self.config.trace.server, self.p, self.q
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
            precision=section.precision,
        )
        return lambda batch: [Read(trace) for trace in pair.trace_batch(batch)]

    def _keep(self, run: Run, reads: Sequence[Read]) -> None:
        """Store a batch; what rides on a trace first, so that a trace means all of it."""
        retokenized = {t.key: t.retokenized for t in self.rows}
        for place, rider in enumerate(self.riders):
            keep_batch(rider.riding.table, rider.present)([read.heard[place] for read in reads])
        traces = [replace(r.trace, retokenized=retokenized[r.trace.key]) for r in reads]
        keep_batch(run.traces, self.present)(traces)


def _failed(run: Run) -> set[Key]:
    rows = rows_of(run.traces, ("key", "p", "q", "status"))
    return {(key, p, q) for key, p, q, status in rows if status != "ok"}


def _read_as_text(run: Run, p: str) -> set[str]:
    """The keys of responses that p has read in tokens made of their text, as earlier versions did.

    Read again, for another pair or for more evidence, they stay so: all that is known of them is
    then about the same tokens.
    """
    rows = rows_of(run.traces, ("key", "p", "status", "retokenized"))
    return {key for key, by, status, anew in rows if by == p and status == "ok" and anew}


def _without(run: Run, config: RunConfig, divergences: Sequence[Divergence]) -> set[Key]:
    """The traces that lack one of these divergences, which earlier ones were not asked for.

    Those that come from servers never have any.
    """
    found: set[Key] = set()
    names = ("key", "p", "q", "status", *(d.column for d in divergences))
    for part in run.traces.columns(names) if divergences else ():
        nulls = [part.column(d.column).is_null().to_pylist() for d in divergences]
        rows = zip(*(part.column(name).to_pylist() for name in names[:4]), strict=True)
        for (key, p, q, status), *lacking in zip(rows, *nulls, strict=True):
            if status == "ok" and p not in config.servers and any(lacking):
                found.add((key, p, q))
    return found


def stored_answers(run: Run) -> dict[str, AnswerSpan | None]:
    """The final answers by key, as grading found them; grades of earlier versions do not say.

    One that was found by a fallback stands in the reasoning, and is part of it: so a trace is the
    same whatever grading does.
    """
    found: dict[str, AnswerSpan | None] = {}
    columns = ("key", "extracted", "answer_start", "answer_stop", "fallback")
    for key, text, start, stop, fallback in rows_of(run.grades, columns):
        if text is None or fallback is not None:
            found[key] = None
        elif start is not None and stop is not None:
            found[key] = AnswerSpan(start=start, stop=stop, content=text)
    return found


def _readers(config: RunConfig) -> list[tuple[Generator, tuple[str, str]]]:
    """Each generator with each pair that reads its trajectories."""
    return [(g, pair) for g in config.generator_presets() for pair in config.pairs_for(g)]


def check_pairs(run: Run, config: RunConfig) -> None:
    """Each pair answers for its own traces, so that one more pair can come later."""
    work = Gathering(run, config)
    kinds = [EVIDENCE.get(name) for name in needed_evidence(config)]
    traces = run.traces.keys()
    for generator, (p, q) in _readers(config):
        rows = {key for key in traces if key[1:] == (p, q)}
        for kind in kinds:
            riding = kind.ride(work, generator)
            # What rides on p's pass binds the pair, too, where no trace is left of it.
            rows |= set() if riding is None else _of_model(riding.table.keys(), p)
        identity = _pair_identity(config, p, q)
        if config.trace.prompt != "chat" and config.reads_foreign(generator, p):
            identity["trace.prompt"] = config.trace.prompt
        check_section(run, rows, f"trace {p} {q}", identity)
    for kind in kinds:
        kind.check(work)


def _of_model(keys: set[Key], model: str) -> set[Key]:
    return {key for key in keys if key[1:2] == (model,)}


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
            p: dtype_of(config, p),
            q: dtype_of(config, q, device=section.q_device),
        },
    }
