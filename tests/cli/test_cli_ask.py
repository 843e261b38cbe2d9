"""The verb ask: an answer in a pipe, on a terminal, as JSON, interrupted, and drawn until."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import signal
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from console import Command
from model_server import ModelServer
from rich.console import Console
from scripted_server import ScriptedServer, delta, events

import divtok as package
from divtok import api
from divtok.api import streaming
from divtok.cli import answer_screen
from divtok.errors import EXIT_NOTHING, EXIT_OK, EXIT_USAGE
from divtok.report.marks import marked, with_newlines_seen

P, Q = "divtok/tiny-1.6m", "divtok/tiny-0.3m"
HARD = "Ada has 7365 eggs. Ada buys 3078 eggs and gives 3 times 77 away. How many are left?"
USUAL = (HARD, "--pair", P, Q, "--temperature", "1")

_load_once = functools.cache(api.load_pair)


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "load_pair", _load_once)


@functools.cache
def known() -> list[package.StreamEvent]:
    return list(package.stream(HARD, pair=_load_once(P, Q, dtype="auto"), temperature=1.0))


def shown(written: str) -> Iterator[list[str]]:
    """What stands on a terminal after each of the moves that it is told to make."""
    lines, row = [""], 0
    for move in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]|\r|\n|[^\x1b\r\n]+", written):
        if move == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif move == "\x1b[2K":
            lines[row] = ""
        elif move == "\x1b[1A":
            row -= 1
        elif not move.startswith("\x1b") and move != "\r":
            lines[row] += move
        yield list(lines)


def last_line() -> str:
    result = known()[-1].result
    assert result is not None
    return (
        f"{result.value:.3f} dtc_lin: {result.count} divergent of {len(result.tokens)} tokens "
        f"at theta {result.theta:g}\n"
    )


def test_in_a_pipe_tokens_are_marked_by_signs(divtok: Command) -> None:
    said = divtok("ask", *USUAL)
    tokens = [
        marked(with_newlines_seen(e.text), divergent=e.divergent, unexpected=bool(e.unexpected))
        if e.divergent or e.unexpected
        else e.text
        for e in known()
    ]
    assert "[" in "".join(tokens)
    assert (said.code, said.out, said.err) == (EXIT_OK, "".join(tokens) + "\n" + last_line(), "")


def test_as_json_there_is_a_line_a_token(divtok: Command) -> None:
    said = divtok("ask", *USUAL, "--json", "--estimator", "dtc_weighted")
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["text"] for row in rows] == [event.text for event in known()]
    assert [row["jsd_bits"] for row in rows] == [event.jsd_bits for event in known()]
    assert [row["done"] for row in rows] == [False] * (len(rows) - 1) + [True]
    assert all("result" not in row for row in rows[:-1])
    last = rows[-1]
    assert last["ending"] == "stop"
    assert last["result"]["confidence"] == last["confidence"]["dtc_weighted"]
    assert last["result"]["count"] == last["count"] == known()[-1].count


def test_an_interrupt_ends_it_with_what_is_there(
    divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = streaming.events

    def cut(*arguments: Any, **options: Any) -> Generator[package.StreamEvent]:
        for event in whole(*arguments, **options):
            yield event
            if event.position == 4:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(streaming, "events", cut)
    said = divtok("ask", *USUAL)
    text, told = said.out.splitlines()
    event = known()[4]
    plain = "".join(known()[place].text for place in range(5))
    assert re.sub(r"[\[\]]", "", text) == plain
    value = event.confidence["dtc_lin"]
    assert told == (f"interrupted: dtc_lin {value:.3f}, {event.count} divergent of 5 tokens so far")
    assert (said.code, said.err) == (130, "")


def test_on_a_terminal_the_corner_says_how_sure_it_is(
    divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    screen = Console(file=written, force_terminal=True, width=60, color_system="truecolor")
    monkeypatch.setattr(answer_screen, "moving", lambda: True)
    monkeypatch.setattr(answer_screen, "console", lambda: screen)
    monkeypatch.setattr(answer_screen, "coloured", lambda: True)
    monkeypatch.setattr(answer_screen, "_SECONDS", 0.0)
    said = divtok("ask", *USUAL)
    assert said.out == last_line()
    screens = list(shown(written.getvalue()))
    corners = {line.strip() for lines in screens for line in lines}
    for event in known():
        value = event.confidence["dtc_lin"]
        corner = f"dtc_lin {value:.3f}   {event.count} divergent of {event.position + 1}"
        assert corner in corners
    answer = "".join(
        with_newlines_seen(event.text) if event.divergent or event.unexpected else event.text
        for event in known()
    )
    assert [line.rstrip() for line in screens[-1] if line] == answer.splitlines()


THEIRS = "7365 + 3078 = 10443.\n10443 - 231 = 10212.\nThe answer is \\boxed{10212}."


def test_a_server_answers_and_the_pair_reads_along(divtok: Command) -> None:
    steps = {"per_step_drafted": [3, 3], "per_step_accepted": [3, 1]}
    usage = {"usage": {"completion_tokens": 7}, "metrics": {"speculative_decoding": steps}}
    parts = [*map(delta, re.findall(r"\S+\s*", THEIRS)), delta(finish_reason="stop")]
    whole = package.confidence(HARD, THEIRS, pair=_load_once(P, Q, dtype="auto"))
    with ScriptedServer(lambda *_: events(*parts, {"choices": []} | usage)) as server:
        there = ("--server", server.base_url, "--model", "theirs")
        said = divtok("ask", *USUAL, *there, "--max-tokens", "99")
        rows = divtok("ask", *USUAL, *there, "--json").out.splitlines()
    body = server.requests[0].body
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("theirs", 1, 99)
    assert said.out.splitlines()[-1].startswith(f"{whole.value:.3f} dtc_lin: {whole.count} diverg")
    assert re.sub(r"[][{}!]", "", THEIRS.split("\n")[0]) == re.sub(
        r"[][{}!]", "", said.out.split("\n")[0]
    )
    last = json.loads(rows[-1])
    assert "".join(json.loads(row)["text"] for row in rows) == THEIRS
    assert (last["done"], last["ending"], last["count"]) == (True, "stop", whole.count)
    assert last["acceptance"]["variation"] == 1.0
    assert (last["acceptance"]["tested"], last["acceptance"]["untested"]) == (5, 2)


def test_a_server_tells_its_own_log_probs(divtok: Command) -> None:
    with ModelServer(P) as server:
        there = ("--server", server.base_url, "--model", P, "--auxiliary", Q)
        usual = (HARD, *there, "--temperature", "1", "--seed", "3", "--theta", "0.05")
        said = divtok("ask", *usual, "--top-logprobs", "5", "--estimator", "dtc_lin")
        rows = [json.loads(row) for row in divtok("ask", *usual, "--json").out.splitlines()]
        asked = [body["top_logprobs"] for _, body in server.asked]
    assert asked == [5, 20]
    assert re.search(
        r"dtc_lin: .* at theta 0.05 \(certainly between 0.* and 0.*; count \d+ to \d+\)$",
        said.out.splitlines()[-1],
    )
    last = rows[-1]
    low, high = last["confidence_bounds"]["dtc_lin"]
    assert low <= last["confidence"]["dtc_lin"] <= high
    assert last["result"]["confidence_bounds"] == [low, high]
    assert last["count_bounds"] == last["result"]["count_bounds"]
    for row in rows:
        assert row["jsd_bounds"][0] <= row["jsd_bits"] <= row["jsd_bounds"][1]
        assert row["unexpected"] is None


def test_the_corner_says_what_is_certain() -> None:
    event = replace(known()[0], confidence={"a": 0.5, "b": None}, count=1, position=3)
    event = replace(event, bounds={"a": (0.25, 0.75), "b": None})
    said = answer_screen.corner(event).plain
    assert said == "a 0.500 (0.250 to 0.750)   b -   1 divergent of 4"


def test_tokens_that_were_others_are_shown_so(
    divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = known()[:2]

    def changed(*_: Any, **__: Any) -> Generator[package.StreamEvent]:
        yield first
        yield replace(second, taken_back=2)

    monkeypatch.setattr(streaming, "events", changed)
    assert "(the last 2 tokens were others:)" in divtok("ask", *USUAL).out
    rows = [json.loads(row) for row in divtok("ask", *USUAL, "--json").out.splitlines()]
    assert [row.get("taken_back") for row in rows] == [None, 2]


def test_until_enough_are_accepted(divtok: Command) -> None:
    limits = ("--until", "1", "--budget", "3000", "--estimator", "dtc_weighted")
    said = divtok("ask", *USUAL, *limits, "--above", "0.3", "--json", "--batch", "2")
    rows = [json.loads(line) for line in said.out.splitlines()]
    accepted = [row for row in rows if row["outcome"] == "accepted"]
    assert (said.code, len(accepted)) == (EXIT_OK, 1)
    assert accepted[0]["result"]["confidence"] >= 0.3
    tokens = sum(row["tokens"] for row in rows)
    assert f"1 of {len(rows)} answers accepted" in said.err
    assert f"{tokens} tokens" in said.err
    none = divtok("ask", *USUAL, "--until", "1", "--budget", "20", "--above", "1")
    assert (none.code, none.out) == (EXIT_NOTHING, "")
    assert "below 1, and no token raises it" in none.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--stop",), "Give --policy"),
        (("--until", "2"), "--until and --budget go together"),
        (("--until", "2", "--budget", "9"), "Give one of --policy and --above"),
        (("--above", "0.5"), "are for several answers"),
        (("--batch", "2"), "are for several answers"),
        (("--family", "tiny"), "--family NAME"),
        (("--estimator", "basecal"), "needs more than a pair"),
        (("--policy", "no-such.json"), "no-such.json"),
        (("--server", "http://127.0.0.1:1/v1"), "--server and --model go together"),
        (("--model", "m"), "--server and --model go together"),
        (("--server", "http://a/v1", "--model", "m", "--batch", "2"), "that answers itself"),
        (("--server", "a", "--model", "m"), "base_url must begin with"),
        (("--server", "http://127.0.0.1:1/v1", "--model", "m", "--stop"), "Nothing says from"),
        (("--auxiliary", Q), "is for an answer of a server"),
        (("--server", "http://a/v1", "--model", "m", "--auxiliary", Q), "the place of a pair"),
        (("--top-logprobs", "5"), "are for --auxiliary"),
        (("--tokenizer", P), "are for --auxiliary"),
    ],
)
def test_what_is_refused(divtok: Command, options: tuple[str, ...], message: str) -> None:
    said = divtok("ask", *USUAL, *options)
    assert message in said.error_line
    assert said.code in (EXIT_USAGE, 1)
