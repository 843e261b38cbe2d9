"""The verb confidence: how far to trust one answer, or each of a stream of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from divtok.cli.options import DTypesOption, JsonOption, PairOption, ReadersOption
from divtok.cli.printing import saying_warnings
from divtok.errors import EXIT_PARTIAL, DataError, UsageError
from divtok.families.family import default_theta, get_family
from divtok.json_lines import json_object
from divtok.json_text import FLAG, json_text, without_nonfinite
from divtok.models.load import DType
from divtok.progress import say
from divtok.records import Scalar
from divtok.screen import coloured, put, show, visible
from divtok.strict_yaml import parse_yaml

if TYPE_CHECKING:
    from divtok.api import Result
    from divtok.api.scoring import Scored
    from divtok.decide.policy import Decision, Policy
    from divtok.trace.pair import Pair
    from divtok.trace.topk.server_pair import ServerPair

STANDARD_INPUT = "standard input"
_NAMED, _LONGEST = 5, 20  # unexpected tokens in a line, and characters of each


class Counted(StrEnum):
    REASONING = "reasoning"
    NO_ANSWER = "no_answer"
    ALL = "all"


def confidence(
    question: Annotated[str | None, typer.Option(help="The question that was asked.")] = None,
    response: Annotated[
        str | None, typer.Option(help="The response; left out or -, it is read from stdin.")
    ] = None,
    pair: PairOption = None,
    family: ReadersOption = None,
    servers: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="URL_P URL_Q",
            help="Read through the servers there, not with weights of one's own.",
        ),
    ] = None,
    theta: Annotated[
        float | None, typer.Option(help="Threshold in bits; by default the family's.")
    ] = None,
    generator: Annotated[
        str | None,
        typer.Option(
            help="Who wrote the response; where it is P of --pair, theta is the white-box one."
        ),
    ] = None,
    estimator: Annotated[
        str | None, typer.Option(help="How to score it; by default as a policy says, or dtc_lin.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="NAME=VALUE",
            help="A parameter of the estimator, as in n=12; may be repeated.",
        ),
    ] = None,
    counted: Annotated[
        Counted,
        typer.Option(help="Which tokens can count: no_answer takes the end of turn, too."),
    ] = Counted.REASONING,
    fitted: Annotated[
        list[str] | None,
        typer.Option(
            "--fitted",
            metavar="FILE|RUN",
            help="Score with what 'divtok fit' kept: its file, or the run. One only.",
            show_default=False,
        ),
    ] = None,
    prior: Annotated[
        float | None,
        typer.Option(
            help="The share of answers that are right here, where a map of --fitted is for another."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|RUN",
            help="Say what this policy of 'divtok decide' does with it: its file, or the run.",
        ),
    ] = None,
    dtype: DTypesOption = "auto",
    batch: Annotated[
        int,
        typer.Option(min=1, help="Rows of a stream to read, and to answer, together: faster."),
    ] = 1,
    tokens: Annotated[
        bool,
        typer.Option("--tokens", help="Show the response, divergent and unexpected tokens marked."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """How far to trust one response as an answer to a question.

    The response may come through a pipe. Without --question, a pipe brings one JSON object a line
    with question and response, and gets one line back for each: the object, with what was found
    under "divtok".
    """
    if question is None and response is not None:
        raise UsageError("There is a response but no question.", next_step="Give --question.")
    if (question is None or response in (None, "-")) and sys.stdin.isatty():
        raise UsageError(
            "There is nothing to score.",
            next_step="Give --question and --response, or a response through a pipe.",
        )
    if question is None and (tokens or as_json):
        raise UsageError(
            "A stream of rows is answered in JSON, without tokens.",
            next_step="Leave out --tokens and --json, or give --question.",
        )
    if question is not None and batch > 1:
        raise UsageError(
            "There is one response, not a stream of rows.", next_step="Leave out --batch."
        )
    parameters, rules = parameters_of(param or []), None
    if policy is not None:
        from divtok.api.scoring import named, policy_of, with_policy

        rules = policy_of(policy)
        estimator = named(estimator, rules)[0]
        theta, parameters = with_policy(rules, [estimator], theta, parameters)
    estimator = estimator or "dtc_lin"
    _check(estimator, theta, parameters)
    p, q = pair_names(pair, family)
    if rules is not None:
        from divtok.decide.policy import check_pair_of

        check_pair_of(rules, (p, q))
    fit = None
    if fitted:
        from divtok.api.scoring import check_fit, fit_of, with_fitted

        fit = fit_of(fitted[0] if len(fitted) == 1 else cast(Any, fitted))  # refuses several
        check_fit(fit, [estimator], (p, q))
        theta, parameters = with_fitted(fit, theta, parameters)
    if prior is not None:
        from divtok.api.scoring import check_prior

        check_prior(prior, fit)
    if theta is None:
        theta = default_theta(p, q, family=family, generator=generator)
    with saying_warnings():
        models = _load(p, q, servers, dtype)
        options: dict[str, Any] = {"pair": models, "theta": theta, "estimator": estimator}
        options |= {"tokens": counted.value, "fitted": fit, "prior": prior, "policy": rules}
        options |= parameters
        if question is None:
            _stream(options, batch)
            return
        from divtok import api

        text = _standard_input() if response in (None, "-") else response
        result = api.confidence(question, text or "", **options)
    if as_json:
        put(json_text(facts_of(result, tokens=tokens)))
    else:
        _show(result, tokens=tokens)


def parameters_of(given: Iterable[str]) -> dict[str, Scalar]:
    """NAME=VALUE each, a value as in a config."""
    found: dict[str, Scalar] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(
                f"'{text}' is not a parameter.", next_step="Write NAME=VALUE, as in --param n=12."
            )
        if name == "theta":
            raise UsageError("theta has an option of its own.", next_step="Give --theta.")
        if name in found:
            raise UsageError(f"The parameter '{name}' is given twice.", next_step="Give it once.")
        plain = parse_yaml(value, source=f"'{text}'")
        if not isinstance(plain, bool | int | float | str):
            raise UsageError(
                f"'{text}': not a plain value.", next_step="Give one number or one word."
            )
        found[name] = plain
    return found


def _check(estimator: str, theta: float | None, parameters: Mapping[str, Scalar]) -> None:
    """Refuse these before any model is loaded."""
    from divtok.score.registry import check_names, check_parameter
    from divtok.score.sets import one_estimator

    if theta is not None:
        check_parameter("theta", theta)
    spec = one_estimator(estimator)
    check_names(spec, parameters)
    for name, value in parameters.items():
        spec.check_parameter(name, value)


def pair_names(pair: tuple[str, str] | None, family: str | None) -> tuple[str, str]:
    if (pair is None) == (family is None):
        raise UsageError(
            "It takes two models to read a response.",
            next_step="Give either --family NAME ('divtok ls families') or --pair P Q.",
        )
    if pair is not None:
        return pair
    preset = get_family(family or "")
    return preset.pair_for(preset.generators[0])


def _load(p: str, q: str, servers: tuple[str, str] | None, dtype: str) -> Pair | ServerPair:
    from divtok import api

    if servers is not None:
        from divtok.trace.topk.server_pair import load_server_pair

        return load_server_pair(p, q, p_server=servers[0], q_server=servers[1])
    # A dtype that does not exist is refused in reading the models.
    return api.load_pair(p, q, dtype=cast(DType, dtype))


def _stream(options: dict[str, Any], batch: int) -> None:
    """One line out for each line in, as they come, `batch` at a time."""
    from divtok.api.batch import confidences
    from divtok.decide.likeness import FEWEST, unlike

    failed, values = 0, list[float | None]()
    policy: Policy | None = options["policy"]
    for rows in _batches(batch):
        found = confidences(rows, batch=batch, keep_traces=False, progress=False, **options)
        for row, scored in zip(rows, found.rows, strict=True):
            failed += scored.confidences[0].value is None
            # Under a name of its own, so that no field of the row's is lost.
            answer = _answer(scored) | _decided(found.scoring.decision(scored))
            plain, nonfinite = without_nonfinite(row | {"divtok": answer})
            if nonfinite:
                plain["divtok"][FLAG] = nonfinite
            put(json_text(plain))
        if policy is not None:
            values += found[policy.scored.estimator].certain
    if policy is not None and batch < FEWEST:  # larger batches have warned each
        why = unlike(policy, [value for value in values if value is not None])
        if why is not None:
            say(f"warning: {why}")
    if failed:
        raise typer.Exit(EXIT_PARTIAL)


def _batches(size: int) -> Iterator[list[dict[str, Any]]]:
    """The rows before a bad one are answered, too."""
    rows, going = _rows(), True
    while going:
        batch: list[dict[str, Any]] = []
        try:
            for row in islice(rows, size):
                batch.append(row)  # what came before an error is kept
        except DataError:
            yield batch
            raise
        going = bool(batch)
        yield batch


def _rows() -> Iterator[dict[str, Any]]:
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        where = f"{STANDARD_INPUT}, line {number}"
        hint = "Write one object a line, or give --question for a plain response."
        row = json_object(line, where, next_step=hint)
        for name in ("question", "response"):
            text = row.get(name)
            if not isinstance(text, str) or any("\ud800" <= char <= "\udfff" for char in text):
                raise DataError(
                    f"{where}: no text under '{name}'.",
                    next_step="Every line needs question and response.",
                )
        if "divtok" in row:
            raise DataError(
                f"{where}: there is a field 'divtok' already.", next_step="Rename or remove it."
            )
        yield row


def _standard_input() -> str:
    try:
        # Without the newline that most programs end with: it is not a token of the response.
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise DataError(f"{STANDARD_INPUT}: not UTF-8.", next_step="Send it as UTF-8.") from error


def _answer(scored: Scored) -> dict[str, Any]:
    from divtok.api import nothing_scored

    found, counts = scored.confidences[0], scored.counts
    if found.value is None or counts is None:
        return {"confidence": None, "reason": nothing_scored(found.reason).what}
    facts: dict[str, Any] = {
        "confidence": found.value,
        "estimator": found.estimator,
        "params": dict(found.params),
        "count": counts.count,
        "unexpected_count": scored.unexpected,
        "tokens": counts.length,
        "theta": counts.theta,
        "p": counts.p,
        "q": counts.q,
    }
    if found.low is not None and counts.low is not None:
        facts["confidence_bounds"] = (found.low, found.high)
        facts["count_bounds"] = (counts.low, counts.high)
    if found.prior is not None:
        facts["prior"] = found.prior
    return facts


def facts_of(result: Result, *, tokens: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "confidence": result.value,
        "estimator": result.estimator,
        "params": dict(result.params),
        "count": result.count,
        "unexpected_count": result.tokens.unexpected_count,
        "tokens": len(result.tokens),
        "theta": result.theta,
        "p": result.trace.p,
        "q": result.trace.q,
    }
    if result.bounds is not None and result.count_bounds is not None:
        found |= {"confidence_bounds": result.bounds, "count_bounds": result.count_bounds}
    if result.prior is not None:
        found["prior"] = result.prior
    found |= _decided(result.decision)
    if tokens:
        found["each_token"] = [asdict(token) for token in result.tokens]
    return found


def _decided(decision: Decision | None) -> dict[str, Any]:
    """What a policy says, under its own name; nothing without one."""
    if decision is None:
        return {}
    found = {"action": decision.action, "reason": str(decision.reason)}
    return {"decision": found | ({} if decision.to is None else {"to": decision.to})}


def _show(result: Result, *, tokens: bool) -> None:
    put_result(result)
    if tokens:
        put_tokens(result)
    _hint(result)


def put_result(result: Result) -> None:
    """The confidence in a line, and what a policy says of it in another."""
    from divtok.report.marks import summary
    from divtok.score.facts import COUNTED_WORDS
    from divtok.score.fitted import how_stated

    within = ""
    if result.bounds is not None and result.count_bounds is not None:
        within = " (certainly between {:.3f} and {:.3f}; count {} to {})".format(
            *result.bounds, *result.count_bounds
        )
    which = result.trace.counted
    over = "" if which == "reasoning" else f", counted over {COUNTED_WORDS[which]}"
    marks = summary(result.count, result.tokens.unexpected_count, len(result.tokens))
    stated = how_stated(result.params, result.prior)
    put(
        f"{result.value:.3f} {result.estimator}{stated}: {marks} at theta {result.theta:g}"
        f"{over}{within}"
    )
    if result.decision is not None:
        to = "" if result.decision.to is None else f" to {visible(result.decision.to)}"
        put(f"{result.decision.action}{to}: {result.decision.reason}")


def put_tokens(result: Result) -> None:
    from divtok.report.trajectory import trajectory_text
    from divtok.score.estimators.guarded import excess_surprise

    text = trajectory_text(
        [token.text for token in result.tokens],
        result.trace.jsd_bits,
        result.theta,
        reasoning=result.trace.reasoning(),
        excess=excess_surprise(result.trace),
        guard=result.tokens.guard,
        brackets=not coloured(),
    )
    show(text)


def _hint(result: Result) -> None:
    """Where the estimator that was asked for sees nothing of tokens that neither model expects."""
    from divtok.score.estimators.guarded import NAME

    texts = [token.text for token in result.tokens if token.unexpected]
    if not texts or result.estimator == NAME:
        return
    # A character that several tokens make together is the text of the last.
    named = [f'"{_short(text)}"' for text in texts if text][:_NAMED]
    named += ["..."] if len(named) < len(texts) else []
    say(
        f"Neither model would have written {len(texts)} of the {len(result.tokens)} tokens "
        f"({', '.join(named)}): '--estimator {NAME}' takes that into account."
    )


def _short(text: str) -> str:
    """A token's text in a line of ours, in which it must not begin another."""
    plain = visible(text)
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 3] + "..."
