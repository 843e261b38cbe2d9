"""A page as one text: its style, its script and its data, and a policy that lets nothing else in.

The policy names the style and the script by their hashes, so that text from a run or a model can
neither run nor fetch anything, should it ever come out as more than text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any, Literal

from divtok.json_text import json_text, without_nonfinite
from divtok.page.data import PageRow, PageRun, page_data
from divtok.screen import visible

Mode = Literal["run", "serve"]

# One script, in this order.
SCRIPTS = (
    *("text", "data", "reading", "tokens", "strip", "detail", "reliability", "table"),
    *("response", "serve", "main"),
)


def page_html(
    rows: Sequence[PageRow] = (),
    *,
    mode: Mode = "run",
    run: PageRun | None = None,
    against: PageRun | None = None,
) -> str:
    """The page of these responses; in the mode "serve" with a form that asks the server it is from.

    Opened from a disk it needs no network. A server sends `served_policy()` with it.
    """
    data, _ = without_nonfinite(page_data(rows, run=run, against=against, mode=mode))
    return _template().render(
        policy=policy(mode),
        style=_style(),
        script=_script(),
        data=_inert(json_text(data)),
        mode=mode,
        title="divtok" if run is None else f"{visible(run.title)} - divtok",
        version=version("divtok"),
    )


def policy(mode: Mode) -> str:
    """Nothing but the page's own style and script; of a served page, requests to its server."""
    connect = "'self'" if mode == "serve" else "'none'"
    return (
        f"default-src 'none'; script-src '{_hash(_script())}'; style-src '{_hash(_style())}'; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def served_policy() -> str:
    """The header Content-Security-Policy that a server sends with its page."""
    return f"{policy('serve')}; frame-ancestors 'none'"


def _inert(data: str) -> str:
    """JSON that cannot end the element it is in."""
    return data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _style() -> str:
    return _file("page.css")


@cache
def _script() -> str:
    parts = "\n".join(_file(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();\n'


def _file(name: str) -> str:
    return resources.files("divtok.page").joinpath(name).read_text("utf-8").replace("\r\n", "\n")


def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("divtok.page", "."), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html.j2")
