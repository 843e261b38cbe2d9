"""The verb serve: confidence as a service, and as a proxy in front of another server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from divtok.cli import Stopped
from divtok.cli.confidence import pair_names
from divtok.cli.options import DTypesOption, PairOption, ReadersOption
from divtok.cli.printing import saying_warnings
from divtok.errors import MissingExtraError, UsageError
from divtok.models.load import DType
from divtok.progress import say

if TYPE_CHECKING:
    from divtok.score.fitted import Fitted

_DEADLINE, _WAITING = 30.0, 512


def serve(
    pair: PairOption = None,
    family: ReadersOption = None,
    estimator: Annotated[
        str | None, typer.Option(help="How to score; by default as a policy says, or dtc_lin.")
    ] = None,
    theta: Annotated[
        float | None, typer.Option(help="Threshold in bits; by default the family's.")
    ] = None,
    fitted: Annotated[
        str | None,
        typer.Option(metavar="FILE|RUN", help="Score with what 'divtok fit' kept."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|RUN",
            help="Say of each answer what this policy of 'divtok decide' does with it.",
        ),
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Pass chat completions on to the server there, which speaks OpenAI's API, as in "
            "http://127.0.0.1:9000/v1, and score its answers.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine a token is needed.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="Ask clients for the bearer token in this file; else for that in DIVTOK_TOKEN."
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option(min=0.1, help="Seconds within which a response must be scored.")
    ] = _DEADLINE,
    waiting: Annotated[
        int, typer.Option(min=1, help="Responses that may wait; further ones are refused (429).")
    ] = _WAITING,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads that the models use; by default as torch.")
    ] = None,
    dtype: DTypesOption = "auto",
) -> None:
    """Serve confidences over HTTP: POST /v1/confidence, and with --upstream chat completions.

    Ends on Ctrl-C, or SIGTERM, when what it accepted is answered. A key for --upstream comes from
    the environment alone: DIVTOK_KEYS="HOST=VARIABLE".
    """
    try:
        import fastapi as _fastapi
        import prometheus_client as _prometheus
        import uvicorn as _uvicorn
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "fastapi", "serve", purpose="Serving") from error
    del _fastapi, _prometheus, _uvicorn
    from divtok.endpoints.keys import key_from_environment
    from divtok.endpoints.settings import MAX_CONCURRENCY, ServerSettings
    from divtok.serve.limits import Limits
    from divtok.serve.start import check_address, listening, token_of

    token = token_of(token_file)
    check_address(host, token)
    settings = None
    if upstream is not None:
        settings = ServerSettings(upstream, concurrency=MAX_CONCURRENCY)
        key_from_environment(settings)  # a wrong one is an error before models are loaded
    names = pair_names(pair, family)
    options = _scored_with(names, estimator, theta, fitted, policy)
    limits = Limits(deadline_s=deadline, waiting_rows=waiting)
    with saying_warnings():
        from divtok import api
        from divtok.serve.app import Service, make_app

        models = api.load_pair(*(names if family is None else (family,)), dtype=cast(DType, dtype))
        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        app = make_app(models, Service(limits, token, settings), **options)
        server = listening(app, host=host, port=port, limits=limits, started=_started)
        try:
            server.run()
        except Stopped as stopped:
            say("Every request that was accepted is answered.")
            raise typer.Exit(stopped.exit_code) from None
    if not server.started:
        raise UsageError(
            f"Nothing can listen on {host}, port {port}.",
            next_step="Give another --port, or end what listens there.",
        )


def _scored_with(
    names: tuple[str, str],
    estimator: str | None,
    theta: float | None,
    fitted: str | None,
    policy: str | None,
) -> dict[str, Any]:
    """The defaults of the service; what does not fit these models is an error."""
    from divtok.api.scoring import check_fit, fit_of, policy_of
    from divtok.decide.policy import check_pair_of

    rules = fit = None
    if policy is not None:
        rules = policy_of(policy)
        check_pair_of(rules, names)
    if fitted is not None:
        fit: Fitted | None = fit_of(fitted)
        estimator = estimator or fit.estimator
        check_fit(fit, [estimator], names)
    return {"estimator": estimator, "theta": theta, "fitted": fit, "policy": rules}


def _started(address: str) -> None:
    say(f"Listening on {address}. Ctrl-C ends it.")
