"""The routes: what each takes and gives. Everything behind them is in the other files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from divtok.api.scoring import Scoring
from divtok.endpoints.settings import ServerSettings
from divtok.json_text import json_text
from divtok.page.write import page_html, served_policy
from divtok.serve import wire
from divtok.serve.batcher import Batcher, Closing, Full
from divtok.serve.guard import App, Guard, Message, Receive, Send
from divtok.serve.judging import Judge, question_of
from divtok.serve.limits import Limits
from divtok.serve.metrics import CONTENT_TYPE, Metrics
from divtok.serve.outcome import shown_model
from divtok.serve.page import add_page
from divtok.serve.proxy import Proxy, options_of
from divtok.serve.refusals import Refused, fault_body, too_busy
from divtok.serve.scorer import Scorer, Wanted, WrongOption
from divtok.serve.telemetry import emitter
from divtok.serve.upstream import Upstream
from divtok.trace.pair import Pair

_FAULTS = {400, 401, 403, 408, 413, 415, 422, 429, 500, 503, 504}
_MOST_NAMED = 8  # wrong fields that one answer names


@dataclass(frozen=True, slots=True)
class Service:
    """What a service is started with, beyond its pair; `options` are fields of `Scorer`."""

    limits: Limits = field(default_factory=Limits)
    token: str | None = None
    upstream: ServerSettings | None = None


def make_app(pair: Pair, service: Service | None = None, **options: Any) -> FastAPI:
    """The service as an ASGI app. Its thread is started here, and ends with the app's lifespan."""
    service = service or Service()
    limits = service.limits
    metrics = Metrics()
    batcher = Batcher(limits, told=metrics.batches.observe)
    metrics.watch(lambda: batcher.waiting)
    scorer = Scorer(pair, batcher, limits, **options)
    try:
        scorer.scoring(Wanted())  # what can never be scored is an error at once
    except BaseException:
        batcher.close()
        raise
    routes = _Routes(scorer, metrics, service)
    app = FastAPI(
        title="divtok",
        version=version("divtok"),
        lifespan=routes.lifespan,
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.batcher = batcher
    _add_routes(app, routes, proxy=service.upstream is not None)
    add_page(app, page_html(mode="serve"), served_policy())
    _add_handlers(app)
    app.add_middleware(
        cast(Any, Guard), limits=limits, token=service.token, full=lambda: batcher.is_full
    )
    app.add_middleware(cast(Any, _Measured), metrics=metrics)
    return app


class _Routes:
    def __init__(self, scorer: Scorer, metrics: Metrics, service: Service) -> None:
        self._scorer, self._metrics, self._service = scorer, metrics, service
        self._emit = emitter()
        self._proxy: Proxy | None = None

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncGenerator[None]:
        """Ends when all that was accepted is done."""
        upstream = None
        if self._service.upstream is not None:
            upstream = Upstream(self._service.upstream, self._service.limits)
            self._proxy = Proxy(upstream)
        try:
            await self._scorer.is_well()  # a first pass takes some seconds, which no client waits
            yield
        finally:
            if upstream is not None:
                await upstream.close()
            await asyncio.to_thread(self._scorer.batcher.close)

    async def confidence(self, body: wire.ConfidenceRequest) -> Response:
        """How far to trust one response, or each of several, as an answer to a question."""
        question = body.question
        if body.messages is not None:
            question = question_of([one.model_dump(exclude_none=True) for one in body.messages])
        if question is None:
            raise Refused(422, "messages: no message is the user's.", param="messages")
        wanted = Wanted(body.estimator, body.theta, body.prior, body.generator)
        responses = body.responses if body.response is None else [body.response]
        rows = [(question, response) for response in responses or ()]
        found = await self._scored(self._scoring(wanted), rows, tokens=body.tokens)
        return _json(found[0] if body.responses is None else {"results": found})

    async def verify(self, body: wire.VerifyRequest) -> Response:
        """What a semantic router asks of an answer before it turns to a larger model."""
        question = f"{body.context}\n\n{body.question}" if body.context else body.question
        (found,) = await self._scored(
            self._scoring(Wanted()), [(question, body.answer)], tokens=False
        )
        trusted = found["low"] is not None and found["low"] >= body.threshold
        return _json(
            {
                "confidence": found["confidence"],
                "should_escalate": not trusted,
                "verified_count": int(trusted),
                "total_samples": 1,
                "samples": [],
                "threshold": body.threshold,
                "divtok": found,
            }
        )

    async def chat(self, request: Request, body: wire.ChatRequest) -> Response:
        """A chat completion of the server behind, each choice with its confidence."""
        options = options_of(body)
        wanted = Wanted(options.estimator, options.theta, options.prior, body.model)
        scoring = self._scoring(wanted, prefix="divtok.")
        judge = Judge(self._scorer, scoring, question_of(body.messages), options, self._told)
        assert self._proxy is not None  # the route is there with a server only
        return await self._proxy.answer(body, await request.body(), request.headers, judge)

    async def models(self, request: Request) -> Response:
        """The models of the server behind."""
        assert self._proxy is not None
        return await self._proxy.models(request.headers)

    async def health(self) -> Response:
        """Whether both models still read: a real pass, not older than some seconds."""
        well = await self._scorer.is_well()
        names = [self._scorer.pair.p.name, self._scorer.pair.q.name]
        told = {"status": "ok" if well else "failed", "version": version("divtok")}
        return _json(told | {"pair": list(map(shown_model, names))}, 200 if well else 503)

    async def metrics(self) -> Response:
        """Numbers about the service, for Prometheus."""
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    def _scoring(self, wanted: Wanted, prefix: str = "") -> Scoring:
        try:
            return self._scorer.scoring(wanted)
        except WrongOption as wrong:
            name = prefix + wrong.name
            raise Refused(422, f"{name}: {wrong}", param=name) from wrong

    async def _scored(
        self, scoring: Scoring, rows: Sequence[tuple[str, str]], *, tokens: bool
    ) -> list[dict[str, Any]]:
        limits = self._service.limits
        try:
            found = await self._scorer.score(scoring, rows, tokens=tokens)
        except Full as full:
            raise too_busy() from full
        except TimeoutError as late:
            raise Refused(504, f"It was not scored within {limits.deadline_s:g} s.") from late
        except Closing as closing:
            raise Refused(503, "The service is about to end.") from closing
        for one in found:
            self._told(one, None)
        return found

    def _told(self, one: Mapping[str, Any], answer_id: str | None) -> None:
        self._metrics.scored(one)
        if self._emit is not None:
            self._emit(one, answer_id)


def _add_routes(app: FastAPI, routes: _Routes, *, proxy: bool) -> None:
    def add(path: str, method: str, route: Callable[..., Any], gives: Any = None) -> None:
        responses: dict[int | str, dict[str, Any]] = {
            status: {"model": wire.FaultAnswer} for status in sorted(_FAULTS)
        }
        if path == "/health":
            responses[503] = {"model": wire.Health}
        if gives is not None:
            responses[200] = {"model": gives}
        app.add_api_route(path, route, methods=[method], responses=responses, response_model=None)

    one_or_more = wire.ConfidenceObject | wire.ConfidenceObjects
    add("/v1/confidence", "POST", routes.confidence, one_or_more)
    add("/verify", "POST", routes.verify, wire.Verified)
    add("/health", "GET", routes.health, wire.Health)
    add("/metrics", "GET", routes.metrics)
    if proxy:
        add("/v1/chat/completions", "POST", routes.chat)
        add("/v1/models", "GET", routes.models)


def _add_handlers(app: FastAPI) -> None:
    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return Response(error.body, error.status, error.headers, media_type="application/json")

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        status, message, param = _what_is_wrong(error)
        return Response(fault_body(status, message, param), status, media_type="application/json")

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = {
            400: "The body is not JSON.",
            404: "There is nothing here. Chat completions need --upstream.",
            405: "Not with this method.",
        }.get(error.status_code, "It cannot be done.")
        return Response(
            fault_body(error.status_code, text),
            error.status_code,
            dict(error.headers or {}),
            media_type="application/json",
        )

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _what_is_wrong(error: RequestValidationError) -> tuple[int, str, str | None]:
    """Status, message and field. What was sent is not repeated."""
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        return 400, "The body is not JSON.", None
    fields = [".".join(str(part) for part in one["loc"][1:]) for one in found]
    told = [f"{field or 'body'}: {one['msg']}" for field, one in zip(fields, found, strict=True)]
    more = f" and {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    return 422, "; ".join(told[:_MOST_NAMED]) + more + ".", fields[0] or None


def _json(data: Any, status: int = 200) -> Response:
    return Response(json_text(data), status, media_type="application/json")


class _Measured:
    """Counts and times every request, refused ones among them."""

    def __init__(self, app: App, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.monotonic(), "none"

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            route = _route_of(scope)
            self._metrics.requests.labels(route, status).inc()
            self._metrics.seconds.labels(route).observe(time.monotonic() - begin)


def _route_of(scope: Any) -> str:
    """The path of the route that answers; one word for all paths that lead nowhere."""
    return getattr(scope.get("route"), "path", "other")
