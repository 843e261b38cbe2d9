"""The verb serve: what it refuses before a model is loaded, and a whole life of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest
from console import Command, divtok

from divtok import api
from divtok.errors import EXIT_ERROR, EXIT_USAGE

__all__ = ["divtok"]

TINY = ("--family", "tiny")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a model was to be loaded")

    monkeypatch.setattr(api, "load_pair", refused)
    monkeypatch.delenv("DIVTOK_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*TINY, "--host", "0.0.0.0"), "Without a token"),
        ((), "Give either --family NAME"),
        ((*TINY, "--upstream", "ftp://example.org"), "must begin with http"),
        ((*TINY, "--upstream", "http://user:secret@example.org/v1"), "a user name or a password"),
        ((*TINY, "--port", "99999"), "--port"),
        ((*TINY, "--deadline", "nan"), "--deadline"),
        ((*TINY, "--policy", "none-there"), "none-there"),
    ],
)
def test_what_is_refused_before_a_model_is_loaded(
    divtok: Command, arguments: Sequence[str], said: str
):
    done = divtok("serve", *arguments)
    assert done.code in (EXIT_ERROR, EXIT_USAGE)
    assert said in done.err
    assert "secret" not in done.err


def test_a_short_token_in_a_file_is_refused(divtok: Command, tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("Qk7\n", encoding="utf-8")
    done = divtok("serve", *TINY, "--token-file", str(file))
    assert done.code == EXIT_USAGE
    assert "shorter than 16 characters" in done.err
    assert "Qk7" not in done.err


@pytest.mark.parametrize("module", ["fastapi", "uvicorn", "prometheus_client"])
def test_a_missing_package_is_named_with_what_to_type(
    divtok: Command, monkeypatch: pytest.MonkeyPatch, module: str
):
    monkeypatch.setitem(sys.modules, module, None)
    done = divtok("serve", *TINY)
    assert done.code == EXIT_ERROR
    assert f"'{module}'" in done.err
    assert "pip install 'divtok[serve]'" in done.err


def test_it_listens_answers_and_ends_when_it_is_told_to():
    command = [sys.executable, "-m", "divtok", "serve", *TINY, "--port", "0", "--threads", "1"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("Listening on http://127.0.0.1:")
        address = line.split()[2].rstrip(".")
        body = json.dumps({"question": "What is 1 + 1?", "response": "It is 2."}).encode()
        request = urllib.request.Request(
            f"{address}/v1/confidence", body, {"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            assert json.load(answer)["status"] == "ok"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
        assert process.stderr.read() == "Every request that was accepted is answered.\n"
