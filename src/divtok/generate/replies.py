"""Replies: what a generator says when it is asked, after its response, how sure it is.

Sampled like the trajectory itself, from a stream of its own. `divtok.protocols.stated` reads a
confidence out of a reply.
"""

from __future__ import annotations

from collections.abc import Sequence

from divtok.errors import UsageError
from divtok.generate.asks import Ask, Written
from divtok.generate.decoding import decode
from divtok.generate.jobs import within_limits
from divtok.models.load import LoadedModel
from divtok.protocols.encode import follow_up_ids
from divtok.records import Reason, Reply, Sampling, Trajectory

MAX_TOKENS = 512

# Behind a trajectory's key it makes the seed of its reply, so that the reply does not draw the
# same numbers as the response once more.
SEED_SUFFIX = "/reply"


def reply_batch(
    loaded: LoadedModel,
    trajectories: Sequence[Trajectory],
    questions: Sequence[str],
    *,
    max_tokens: int = MAX_TOKENS,
    follow_up: str | None = None,
) -> list[Reply]:
    """One reply for each trajectory, in order; `questions` are those of their problems.

    `follow_up` is what is asked after each, by default what its protocol asks.

    All trajectories of a batch share their sampling, of which only `max_length` does not apply: a
    reply has at most `max_tokens` tokens, and fewer where the model's context ends earlier. A
    conversation that leaves no room at all gets an empty reply with the reason.
    """
    if not trajectories:
        return []
    sampling = _shared_sampling(trajectories)
    check_max_tokens(max_tokens)
    asks = [
        _ask(loaded, trajectory, question, follow_up, max_tokens)
        for trajectory, question in zip(trajectories, questions, strict=True)
    ]
    written = within_limits(asks, lambda fitting: decode(loaded, fitting, sampling))
    return [
        _reply(loaded, trajectory, ask, said)
        for trajectory, ask, said in zip(trajectories, asks, written, strict=True)
    ]


def check_max_tokens(max_tokens: int) -> None:
    if max_tokens < 1:
        raise UsageError(
            f"A reply of at most {max_tokens} tokens says nothing.",
            next_step="Give max_tokens 1 or more.",
        )


def _shared_sampling(trajectories: Sequence[Trajectory]) -> Sampling:
    sampling = trajectories[0].sampling
    if sampling is None:
        raise UsageError(
            f"It is not known how trajectory '{trajectories[0].key}' was sampled, so its reply "
            "cannot be sampled in the same way.",
            next_step="Ask about trajectories that divtok sampled.",
        )
    if any(trajectory.sampling != sampling for trajectory in trajectories):
        raise UsageError(
            "All trajectories of a batch must share one sampling.", next_step="Split the batch."
        )
    return sampling


def _ask(
    loaded: LoadedModel,
    trajectory: Trajectory,
    question: str,
    follow_up: str | None,
    max_tokens: int,
) -> Ask:
    prompt = follow_up_ids(
        loaded.tokenizer,
        question,
        prompt=trajectory.prompt_ids,
        response=trajectory.token_ids,
        end_ids=loaded.end_ids,
        protocol=trajectory.protocol,
        follow_up=follow_up,
    )
    context = loaded.context_length
    room = max_tokens if context is None else context - len(prompt)
    return Ask(trajectory.key + SEED_SUFFIX, prompt, limit=min(max_tokens, room))


def _reply(loaded: LoadedModel, trajectory: Trajectory, ask: Ask, said: Written | None) -> Reply:
    reason = None
    if said is None:
        why = (
            f"The conversation has {len(ask.prompt)} tokens, which leaves no room for a reply "
            f"within the model's {loaded.context_length}."
        )
        said, reason = Written((), "", "length"), Reason("too_long", why)
    return Reply(trajectory.key, loaded.name, said.token_ids, said.text, said.finish_reason, reason)
