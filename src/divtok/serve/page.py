"""A page of the service's own, at its root: one HTML text with its content security policy."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import Response


def add_page(app: FastAPI, html: str, csp: str) -> None:
    """Have the root show `html`, under the policy `csp`, in no frame and with no referrer."""
    headers = {
        "Content-Security-Policy": csp,
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
    }

    async def page() -> Response:
        return Response(html, media_type="text/html; charset=utf-8", headers=headers)

    app.add_api_route("/", page, methods=["GET"], include_in_schema=False)
