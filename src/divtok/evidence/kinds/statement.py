"""How sure the generator says it is: in its response, or in the reply to a further question."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import get_args

from divtok.config.engines import engine_setup, engine_setups
from divtok.config.made_with import generator as made_with_generator
from divtok.config.run import RunConfig
from divtok.evidence.kind import EvidenceKind, Find, Gathering, Lacking, register
from divtok.families.family import Generator
from divtok.fill import Task, chunks, fill
from divtok.generate.engine import Asked, Replied
from divtok.protocols.prompts import CONFIDENCE_QUESTION
from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.stated import read_rating
from divtok.records import FinishReason, Reply, Statement, Trajectory
from divtok.store.calls import Calls
from divtok.store.columns import choice, ids, reason, text
from divtok.store.layout import Key, Layout
from divtok.store.notes import keep_note
from divtok.store.responses import Response
from divtok.store.sections import check_section
from divtok.store.space import TRAJECTORY_BYTES_PER_TOKEN, require_space

REPLIES = Layout(
    "replies",
    Reply,
    ("key",),
    (
        text("key"),
        text("model"),
        ids("token_ids"),
        text("text"),
        choice("finish_reason", get_args(FinishReason)),
        *reason(),
    ),
)


class StatementKind(EvidenceKind[Reply]):
    name = "statement"
    summary = "The confidence that the generator states."
    layout = REPLIES

    def refuse(self, config: RunConfig) -> Lacking | None:
        if config.all_state_confidence or config.engine.replies is not None:
            return None
        why = f"responses of the engine '{config.engine.name}' cannot be asked about"
        return Lacking(why, "other estimators")

    def check(self, work: Gathering) -> None:
        replies = work.config.engine.replies
        if work.config.all_state_confidence or replies is None:
            return
        identity = {
            # Of a user's wording it is a part of the trajectories' keys.
            "question": CONFIDENCE_QUESTION,
            "reply_tokens": work.config.evidence.reply_tokens,
            **replies.identity(engine_setups(work.config)),
        }
        check_section(work.run, work.run.table(REPLIES).keys(), "replies", identity)

    def gather(self, work: Gathering) -> None:
        if work.config.all_state_confidence:
            return
        questions, present = work.questions(), work.present(work.run.table(REPLIES))
        for generator, found in work.by_generator():
            # Where the response states a confidence, it is not asked for again.
            rows = [t for t in found if not PROTOCOLS.get(t.protocol).states_confidence]
            # Like lengths together, so that little is padded; a reply does not depend on its batch.
            rows = sorted(rows, key=lambda t: (len(t.prompt_ids) + len(t.token_ids), t.key))
            asked = [Asked(t, questions[t.benchmark, t.problem_id]) for t in rows]
            _ask(work, generator, asked, present)

    def find(self, work: Gathering) -> Find[Statement]:
        texts, replies = work.run.trajectories.lookup(), work.run.table(REPLIES).lookup()

        def found(response: Response) -> Statement | None:
            read = PROTOCOLS.get(response.protocol).read_confidence
            if read is not None:
                trajectory: Trajectory | None = texts.get((response.key,))
                return None if trajectory is None else read(trajectory.text)
            reply = replies.get((response.key,))
            if reply is None:
                return None
            return Statement(None, reply.reason) if reply.reason else read_rating(reply.text)

        return found


def _ask(work: Gathering, generator: Generator, asked: Sequence[Asked], present: set[Key]) -> None:
    """The missing replies of one generator."""
    config, replies = work.config, work.config.engine.replies
    assert replies is not None  # refused before
    calls = Calls(work.run, "reply")

    def keep(made: Sequence[Replied]) -> None:
        new = [row for row in made if (row.reply.key,) not in present]
        calls.keep(row.call for row in new)
        work.run.table(REPLIES).append([row.reply for row in new])

    setup = engine_setup(config, generator, answered=calls.answered)

    def begin(missing: Sequence[Sequence[Asked]]) -> None:
        tokens = sum(len(batch) for batch in missing) * config.evidence.reply_tokens
        require_space(work.run.path, tokens * TRAJECTORY_BYTES_PER_TOKEN)
        made_with = made_with_generator(setup, weights_here=config.weights_here)
        work.run.note_maker(REPLIES.name, made_with)

    task = Task(
        title=f"ask {generator.model}",
        batches=chunks(asked, 1 if replies.by_row else config.generate.batch_size),
        is_missing=lambda row: (row.trajectory.key,) not in present,
        open=partial(replies.open, setup, config.evidence.reply_tokens),
        keep=keep,
        note=partial(keep_note, work.run),
        begin=begin,
    )
    fill(task, work.executor)
    calls.say_what_they_took()


STATEMENT = register(StatementKind())
