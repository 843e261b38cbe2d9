"""The verb ask: a pair answers a question, with its confidence while it writes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from divtok.cli import Stopped
from divtok.cli.answer_screen import answer_screen, within
from divtok.cli.ask_options import check_auxiliary, check_own, check_server
from divtok.cli.confidence import (
    facts_of,
    pair_names,
    parameters_of,
    put_result,
    put_tokens,
)
from divtok.cli.options import DTypesOption, JsonOption, PairOption, ReadersOption, SeedOption
from divtok.cli.printing import saying_warnings
from divtok.errors import EXIT_NOTHING
from divtok.json_text import json_text
from divtok.models.load import DType
from divtok.progress import say
from divtok.screen import put

if TYPE_CHECKING:
    from divtok.api.asking import Question
    from divtok.api.drawing import Draw
    from divtok.api.streaming import StreamEvent

_INTERRUPTED = 130


def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    pair: PairOption = None,
    family: ReadersOption = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            "--estimator",
            help="How to score it; by default as a policy says, or dtc_lin. Repeat it for several.",
            show_default=False,
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="NAME=VALUE",
            help="A parameter of the estimator, as in n=12; may be repeated.",
        ),
    ] = None,
    theta: Annotated[
        float | None, typer.Option(help="Threshold in bits; by default the family's.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|RUN",
            help="Say what this policy of 'divtok decide' does with it: its file, or the run.",
        ),
    ] = None,
    fitted: Annotated[
        str | None,
        typer.Option(metavar="FILE|RUN", help="Score with what 'divtok fit' kept."),
    ] = None,
    prior: Annotated[
        float | None,
        typer.Option(
            help="The share of answers that are right here, where a map of --fitted is for another."
        ),
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="0.6 by default; 0 is greedy.")] = None,
    top_p: Annotated[float | None, typer.Option(help="0.95 by default.")] = None,
    seed: SeedOption = None,
    max_tokens: Annotated[int | None, typer.Option(help="The most tokens of an answer.")] = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="End where the policy can no longer accept it.")
    ] = False,
    until: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="Draw answers until K are accepted.")
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", min=1, help="The most tokens that --until writes."),
    ] = None,
    above: Annotated[
        float | None,
        typer.Option(
            help="Accept confidences from here on, without a policy: for --until or --server."
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Answers that --until writes at the same time.")
    ] = 1,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Let a server answer that speaks the OpenAI protocol; the pair reads along.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="What --server calls its model.")
    ] = None,
    auxiliary: Annotated[
        str | None,
        typer.Option(
            metavar="Q",
            help="Score with --server's own model and this one here, in place of a pair.",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="The tokenizer of --server's model; with --auxiliary, where --model is no ref.",
        ),
    ] = None,
    top_logprobs: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Likely tokens that --server lists at each place, with --auxiliary; 20 by "
            "default.",
        ),
    ] = None,
    dtype: DTypesOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Let the first model of a pair answer, or a server, and watch the confidence meanwhile.

    A server's answer is read by a pair, or by --auxiliary beside the server's own log-probs.

    Divergent tokens are coloured, bold and underlined, unexpected ones inverted; in a pipe they are
    in [brackets] and in {!braces}. Ctrl-C ends it with what is there. With --json there is one
    object a line for each token, or with --until for each answer.
    """
    if server is None and model is None:
        check_own(stop, policy, until, budget, above, batch)
    else:
        check_server(server, model, until, budget, batch)
    check_auxiliary(auxiliary, model, pair, family, tokenizer, top_logprobs)
    if auxiliary is not None and model is not None:
        names, rules = (model, auxiliary), None
    else:
        names, rules = pair_names(pair, family), None
    if policy is not None:
        from divtok.api.scoring import policy_of
        from divtok.decide.policy import check_pair_of

        rules = policy_of(policy)
        check_pair_of(rules, names)
    with saying_warnings():
        from divtok import api
        from divtok.api.asking import Question, sampling_of

        sampling = sampling_of(None, temperature=temperature, top_p=top_p, seed=seed)
        given = parameters_of(param or [])
        both, kind = names if family is None else (family,), cast(DType, dtype)
        if server is not None and model is not None:
            from divtok.api.asking import Watch
            from divtok.api.following import events as followed
            from divtok.api.following_tokens import TOP_LOGPROBS, written_pair
            from divtok.generate.chat_stream import chat_body
            from divtok.trace.reader import load_reader

            if auxiliary is None:
                reads, listed = api.load_pair(*both, dtype=kind), None
            else:
                reader = load_reader(auxiliary, dtype=kind)
                reads = written_pair(model, reader, tokenizer=tokenizer)
                listed = TOP_LOGPROBS if top_logprobs is None else top_logprobs
            watch = Watch.of(
                question,
                reads,
                generator=model,
                estimators=estimator or None,
                theta=theta,
                tokens="reasoning",
                fitted=fitted,
                prior=prior,
                policy=rules,
                parameters=given,
                above=above,
            )
            body = chat_body(
                question,
                model,
                temperature=temperature,
                top_p=top_p,
                seed=seed,
                max_tokens=max_tokens,
                top_logprobs=listed,
            )
            _show_events(followed(watch, server, body, stop=stop), as_json)
            return
        asked = Question.of(
            question,
            api.load_pair(*both, dtype=kind),
            estimators=estimator or None,
            theta=theta,
            sampling=sampling,
            max_tokens=max_tokens,
            tokens="reasoning",
            fitted=fitted,
            prior=prior,
            policy=rules,
            parameters=given,
            above=above,
        )
        if until is not None and budget is not None:
            _until(asked, until, budget, batch, as_json)
        else:
            from divtok.api.streaming import events

            _show_events(events(asked, stop=stop), as_json)


def _show_events(events: Generator[StreamEvent], as_json: bool) -> None:
    if as_json:
        for event in events:
            put(json_text(_event(event)))
        return
    last = None
    try:
        with closing(events), answer_screen() as screen:
            for event in events:
                last = event
                screen.add(event)
    except (Stopped, KeyboardInterrupt) as interrupted:
        put(_so_far("interrupted", last))
        code = interrupted.exit_code if isinstance(interrupted, Stopped) else _INTERRUPTED
        raise typer.Exit(code) from None
    if last is not None and last.result is not None:
        put_result(last.result)
        for name, value in last.confidence.items():
            if name != last.result.estimator:
                put(f"{value:.3f} {name}{within(last, name)}")
    else:
        put(_so_far("stopped, since it can no longer be accepted", last))


def _so_far(how: str, last: StreamEvent | None) -> str:
    """Of an answer that was not written to its end."""
    if last is None:
        return f"{how}: nothing was written yet"
    known = [
        f"{name} {value:.3f}{within(last, name)}"
        for name, value in last.confidence.items()
        if value is not None
    ]
    so_far = ", ".join(known) or "no confidence yet"
    return f"{how}: {so_far}, {last.count} divergent of {last.position + 1} tokens so far"


def _event(event: StreamEvent) -> dict[str, Any]:
    found: dict[str, Any] = {
        "position": event.position,
        "token_id": event.token_id,
        "text": event.text,
        "jsd_bits": event.jsd_bits,
        "divergent": event.divergent,
        "unexpected": event.unexpected,
        "held": event.held,
        "count": event.count,
        "confidence": dict(event.confidence),
        "done": event.done,
    }
    if event.bounds is not None:
        found["jsd_bounds"], found["count_bounds"] = event.jsd_bounds, event.count_bounds
        found["confidence_bounds"] = dict(event.bounds)
    if event.taken_back:
        found["taken_back"] = event.taken_back
    if event.done:
        found["ending"] = event.ending
    if event.acceptance is not None:
        seen = event.acceptance
        found["acceptance"] = {
            "tested": seen.tested,
            "untested": seen.untested,
            "variation": seen.variation,
            "error": seen.error,
        }
    if event.result is not None:
        found["result"] = facts_of(event.result, tokens=False)
    return found


def _until(asked: Question, k: int, budget: int, batch: int, as_json: bool) -> None:
    from divtok.api.drawing import Drawn, draws

    rows: list[Draw] = []
    for draw in draws(asked, k=k, budget_tokens=budget, batch=batch):
        rows.append(draw)
        if as_json:
            put(json_text(_draw(draw)))
        else:
            _show(draw)
    found = Drawn(tuple(rows), k)
    say(
        f"{len(found.accepted)} of {len(rows)} answers accepted, {len(found.stopped)} stopped "
        f"early; {found.tokens} tokens"
    )
    if asked.scoring.policy is not None and len(rows) > 1:
        say("The policy's promise is for the first answer, not for one that was drawn until.")
    if not found.enough:
        raise typer.Exit(EXIT_NOTHING)


def _show(draw: Draw) -> None:
    if draw.outcome == "accepted" and draw.result is not None:
        put(f"sample {draw.sample}:")
        put_result(draw.result)
        put_tokens(draw.result)
    else:
        say(f"sample {draw.sample}: {draw.outcome} after {draw.tokens} tokens, {draw.reason}")


def _draw(draw: Draw) -> dict[str, Any]:
    found: dict[str, Any] = {
        "sample": draw.sample,
        "outcome": draw.outcome,
        "reason": str(draw.reason),
        "tokens": draw.tokens,
        "text": draw.text,
        "confidence": draw.confidence,
    }
    if draw.result is not None:
        found["result"] = facts_of(draw.result, tokens=False)
    return found
