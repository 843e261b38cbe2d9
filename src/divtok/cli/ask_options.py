"""Which options of `divtok ask` go together: refused before any model is loaded."""

from __future__ import annotations

from divtok.errors import UsageError


def check_own(
    stop: bool,
    policy: str | None,
    until: int | None,
    budget: int | None,
    above: float | None,
    batch: int,
) -> None:
    """Refuse options that do not go together."""
    if stop and policy is None:
        raise UsageError(
            "Nothing says from which confidence on an answer is stopped.",
            next_step="Give --policy, or leave out --stop.",
        )
    if (until is None) != (budget is None):
        raise UsageError(
            "--until and --budget go together.",
            next_step="Say how many answers to accept, and how many tokens they may cost.",
        )
    if until is None and (above is not None or batch > 1):
        raise UsageError(
            "--above and --batch are for several answers.", next_step="Give --until and --budget."
        )
    if until is not None and (policy is None) == (above is None):
        raise UsageError(
            "Either a policy or a number says which answers are accepted.",
            next_step="Give one of --policy and --above.",
        )


def check_server(
    server: str | None, model: str | None, until: int | None, budget: int | None, batch: int
) -> None:
    """Refuse options that do not go with a server's answer."""
    if server is None or model is None:
        raise UsageError(
            "--server and --model go together.",
            next_step="Say where the server is, and what it calls its model.",
        )
    if until is not None or budget is not None or batch > 1:
        raise UsageError(
            "--until, --budget and --batch are for a pair that answers itself.",
            next_step="Leave them out, or leave out --server and --model.",
        )


def check_auxiliary(
    auxiliary: str | None,
    model: str | None,
    pair: tuple[str, str] | None,
    family: str | None,
    tokenizer: str | None,
    top_logprobs: int | None,
) -> None:
    """Refuse options that do not go with an auxiliary, or without one."""
    if auxiliary is None:
        if tokenizer is not None or top_logprobs is not None:
            raise UsageError(
                "--tokenizer and --top-logprobs are for --auxiliary.",
                next_step="Leave them out, or give --auxiliary.",
            )
        return
    if model is None:
        raise UsageError(
            "--auxiliary is for an answer of a server.", next_step="Give --server and --model."
        )
    if pair is not None or family is not None:
        raise UsageError(
            "--auxiliary takes the place of a pair.",
            next_step="Leave out --pair or --family, or leave out --auxiliary.",
        )
