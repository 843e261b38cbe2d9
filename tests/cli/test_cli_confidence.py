"""The verb confidence: one response, a pipe, a stream of rows, and what it refuses."""

from __future__ import annotations

import functools
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_samples import Outcome, command, environment
from console import Command
from model_server import ModelServer

import divtok as package
from divtok import api
from divtok.errors import EXIT_ERROR, EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL, EXIT_USAGE
from divtok.families.family import FAMILIES
from divtok.report.marks import marked
from divtok.trace.pair import Pair

P, Q = "divtok/tiny-0.5m", "divtok/tiny-0.3m"
QUESTION = "Ada has 12 eggs. Ada buys 30 more eggs. How many eggs does Ada have now?"
RESPONSE = r"12 plus 30 is 42. The answer is \boxed{42}."
UNEXPECTED = [" ", "The"]  # of its tokens
ODD = "Für 30 €: <b>日本</b> 🙂 [red]x[/red] " + r"\boxed{42}"
THETA = FAMILIES.get("tiny").theta

Said = Callable[..., Outcome]

_load_once = functools.cache(api.load_pair)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return _load_once("tiny", dtype="auto")


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def say(divtok: Command, monkeypatch: pytest.MonkeyPatch) -> Said:
    """`divtok confidence` with these bytes on its standard input; the models are loaded once."""
    monkeypatch.setattr(api, "load_pair", _load_once)

    def run(*arguments: str, stdin: bytes | str | None = None) -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin or b""
        kind = _Terminal if stdin is None else io.TextIOWrapper
        monkeypatch.setattr(sys, "stdin", kind(io.BytesIO(data), encoding="utf-8"))
        return divtok("confidence", *arguments)

    return run


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def answers(said: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.out.split("\n")[:-1]]


def marks(known: package.Result) -> str:
    """As the first line has them; the response of these tests has both kinds of marks."""
    assert known.tokens.unexpected_count
    counts = f"{known.count} divergent and {known.tokens.unexpected_count} unexpected"
    return f"{counts} of {len(known.tokens)} tokens"


def test_one_response_in_words(say: Said, pair: Pair) -> None:
    known = package.confidence(QUESTION, RESPONSE, pair=pair)
    said = say("--family", "tiny", "--question", QUESTION, "--response", RESPONSE)
    assert said.code == EXIT_OK
    assert said.out == f"{known.value:.3f} dtc_lin: {marks(known)} at theta {THETA:g}\n"


def test_all_tokens_may_count(say: Said, pair: Pair) -> None:
    known = package.confidence(QUESTION, RESPONSE, pair=pair, theta=0.01, tokens="all")
    given = ("--family", "tiny", "--theta", "0.01", "--question", QUESTION, "--response", RESPONSE)
    said = say(*given, "--counted", "all")
    assert said.out == (
        f"{known.value:.3f} dtc_lin: {marks(known)} at theta 0.01, counted over all response "
        "tokens\n"
    )
    found = json.loads(say(*given, "--counted", "all", "--json").out)
    assert (found["count"], found["params"]["tokens"]) == (known.count, "all")


def test_one_response_as_json(say: Said, pair: Pair) -> None:
    known = package.confidence(QUESTION, RESPONSE, pair=pair, theta=0.01)
    arguments = ["--pair", P, Q, "--question", QUESTION, "--response", RESPONSE, "--theta", "0.01"]
    said = say(*arguments, "--json")
    assert said.code == EXIT_OK
    assert json.loads(said.out) == {
        "confidence": known.value,
        "estimator": "dtc_lin",
        "params": {"theta": 0.01, "n": 10, "a": 0.95, "b": 0.05},
        "count": known.count,
        "unexpected_count": len(UNEXPECTED),
        "tokens": len(known.tokens),
        "theta": 0.01,
        "p": P,
        "q": Q,
    }
    assert said.out.count("\n") == 1
    listed = json.loads(say(*arguments, "--json", "--tokens").out)["each_token"]
    assert "".join(token["text"] for token in listed) == RESPONSE
    assert [t["jsd_bits"] for t in listed] == [t.jsd_bits for t in known.tokens]
    assert sum(t["divergent"] for t in listed) == known.count
    assert [t["text"] for t in listed if t["unexpected"]] == UNEXPECTED
    assert [t["excess_nats"] for t in listed] == [t.excess_nats for t in known.tokens]


@pytest.mark.parametrize("response", [RESPONSE, ODD])
def test_the_tokens_are_shown_as_they_are(say: Said, pair: Pair, response: str) -> None:
    said = say("--family", "tiny", "--question", QUESTION, "--response", response, "--tokens")
    assert said.code == EXIT_OK
    first, *rest = said.out.splitlines()
    assert " dtc_lin: " in first
    # The terminal's width may break lines, and tokens are marked; nothing else is changed or read
    # as markup.
    result = package.confidence(QUESTION, response, pair=pair)
    shown = "".join(
        marked(t.text, divergent=t.divergent, unexpected=bool(t.unexpected)) for t in result.tokens
    )
    assert "".join(rest).replace(" ", "").endswith(shown.replace(" ", ""))


SUM = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
WRONG = "421 + 130 = 541.\nThe answer is \\boxed{541}."
ASKED = ("--family", "tiny", "--question", SUM)
HINT = (
    "Neither model would have written 1 of the 25 tokens (\"4\"): '--estimator dtc_guarded' takes "
    "that into account."
)


def test_a_wrong_sum_that_was_typed_is_marked_and_said(say: Said) -> None:
    said = say(*ASKED, "--response", WRONG, "--tokens")
    assert said.out.splitlines() == [
        "0.950 dtc_lin: 0 divergent and 1 unexpected of 25 tokens at theta 0.05",
        "0 divergent and 1 unexpected of 25 tokens",
        "{!unexpected}: neither model would have written it (more than 5 nats more ",
        "surprising to both than they expect)",
        "",
        "421 + 130 = 5{!4}1.",
        r"The answer is \boxed{541}.",
    ]
    assert said.err.splitlines() == [HINT]


def test_the_guarded_estimator_needs_no_hint_and_a_right_sum_none(say: Said) -> None:
    said = say(*ASKED, "--response", WRONG, "--estimator", "dtc_guarded")
    assert (said.out[:18], said.err) == ("0.002 dtc_guarded:", "")
    said = say(*ASKED, "--response", WRONG.replace("541", "551"))
    assert said.out == "0.950 dtc_lin: 0 divergent of 25 tokens at theta 0.05\n"
    assert said.err == ""


def test_a_guard_that_was_asked_for_marks_accordingly(say: Said) -> None:
    given = (*ASKED, "--response", WRONG, "--estimator", "dtc_guarded", "--json", "--tokens")
    usual = json.loads(say(*given).out)
    found = json.loads(say(*given, "--param", "guard=11.5").out)
    assert (usual["unexpected_count"], found["unexpected_count"]) == (1, 0)
    assert not any(token["unexpected"] for token in found["each_token"])
    assert found["confidence"] > 100 * usual["confidence"]


def test_a_hint_holds_nothing_that_acts_or_fills_the_screen(say: Said) -> None:
    said = say(*ASKED, "--response", WRONG + "\n\n\x1b[31m\u202e")
    (line,) = said.err.splitlines()
    assert "\x1b" not in line
    assert "\u202e" not in line
    assert line.endswith("takes that into account.")


def test_a_stream_says_how_many_tokens_are_unexpected(say: Said) -> None:
    rows = [{"question": SUM, "response": r} for r in (WRONG, WRONG.replace("541", "551"), "")]
    said = say("--family", "tiny", stdin=lines(*rows))
    found = [row["divtok"].get("unexpected_count") for row in answers(said)]
    assert found == [1, 0, None]


def test_another_estimator_is_scored(say: Said, pair: Pair) -> None:
    known = package.confidence(QUESTION, RESPONSE, pair=pair, estimator="nsl")
    arguments = ["--family", "tiny", "--question", QUESTION, "--response", RESPONSE]
    found = json.loads(say(*arguments, "--json", "--estimator", "nsl").out)
    assert (found["estimator"], found["confidence"]) == ("nsl", known.value)


@pytest.mark.parametrize("dash", [(), ("--response", "-")])
def test_a_response_through_a_pipe(say: Said, pair: Pair, dash: tuple[str, ...]) -> None:
    for response in (RESPONSE, ODD, "two\nlines\n\n42"):
        known = package.confidence(QUESTION, response, pair=pair)
        said = say("--family", "tiny", "--question", QUESTION, "--json", *dash, stdin=response)
        assert said.code == EXIT_OK
        found = json.loads(said.out)
        assert (found["confidence"], found["tokens"]) == (known.value, len(known.tokens))


@pytest.mark.parametrize("response", ["", "  \n"])
def test_nothing_in_the_response_is_nothing_to_score(say: Said, response: str) -> None:
    given = ("--family", "tiny", "--question", QUESTION)
    for said in (say(*given, "--response", response), say(*given, stdin=response)):
        assert said.code == EXIT_NOTHING
        assert "there is no text in it" in said.error_line


def test_a_stream_gets_a_line_for_each_line(say: Said, pair: Pair) -> None:
    rows = [
        {"question": QUESTION, "response": RESPONSE, "id": 7, "nested": {"a": [1, None]}},
        {"response": ODD, "question": "Größe? 日本", "confidence": "the row's own"},
        {"question": QUESTION, "response": "The answer is 41.", "id": "🙂 \u2028 \u0000"},
    ]
    said = say("--family", "tiny", stdin=lines(*rows))
    assert said.code == EXIT_OK
    found = answers(said)
    assert [{k: v for k, v in row.items() if k != "divtok"} for row in found] == rows
    for row, given in zip(found, rows, strict=True):
        known = package.confidence(given["question"], given["response"], pair=pair)
        assert row["divtok"]["confidence"] == known.value
        assert row["divtok"]["count"] == known.count
        assert (row["divtok"]["p"], row["divtok"]["q"]) == (P, Q)


def test_a_row_without_a_response_keeps_its_line(say: Said) -> None:
    rows = [
        {"question": QUESTION, "response": RESPONSE},
        {"question": QUESTION, "response": " "},
        {"question": QUESTION, "response": "42 " * 1000},
        {"question": QUESTION, "response": RESPONSE},
    ]
    said = say("--family", "tiny", stdin=lines(*rows))
    assert said.code == EXIT_PARTIAL
    found = [row["divtok"] for row in answers(said)]
    assert found[0] == found[3]
    assert found[0]["confidence"] > 0
    assert found[1]["confidence"] is None
    assert "there is no text in it" in found[1]["reason"]
    assert found[2]["confidence"] is None
    assert "too_long" in found[2]["reason"]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("{broken", "JSON"),
        ('{"question": "a"', "JSON"),
        ('"text"', "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"question": "a"}', "no text under 'response'"),
        ('{"response": "a"}', "no text under 'question'"),
        ('{"question": "a", "response": null}', "no text under 'response'"),
        ('{"question": 3, "response": "a"}', "no text under 'question'"),
        pytest.param("[" * 100_000, "JSON", id="deep"),
    ],
)
def test_a_broken_line_is_named_by_its_number(say: Said, bad: str, why: str) -> None:
    good = lines({"question": QUESTION, "response": RESPONSE})
    said = say("--family", "tiny", stdin=f"{good}\n{bad}\n{good}")
    assert said.code == EXIT_ERROR
    assert len(answers(said)) == 1  # what came before is there
    (error,) = [line for line in said.err.splitlines() if line.startswith("divtok: ")]
    assert "standard input, line 3" in error
    assert why in error
    assert len(error) < 1000
    assert "Traceback" not in said.err


def test_a_line_that_is_not_utf8_is_named_by_its_number(say: Said) -> None:
    good = lines({"question": QUESTION, "response": RESPONSE}).encode()
    said = say("--family", "tiny", stdin=good + b'{"question": "\xff", "response": "a"}\n')
    assert said.code == EXIT_ERROR
    assert "standard input, line 2" in said.err


def test_a_lone_surrogate_is_named_by_its_line(say: Said) -> None:
    """JSON can spell one, and it is no character."""
    good = lines({"question": QUESTION, "response": RESPONSE})
    said = say(
        "--family", "tiny", stdin=good + json.dumps({"question": "\ud800", "response": "a"}) + "\n"
    )
    assert said.code != EXIT_OK
    assert "Traceback" not in said.err
    assert "line 2" in said.err


def test_a_lone_surrogate_in_another_field_is_no_reason_to_fail(say: Said) -> None:
    row = {"question": QUESTION, "response": RESPONSE, "note": "\ud800"}
    said = say("--family", "tiny", stdin=json.dumps(row) + "\n")
    assert said.code == EXIT_OK
    (found,) = answers(said)
    assert found["note"] in ("\ud800", "\ufffd")


def test_a_response_that_is_not_utf8(say: Said) -> None:
    said = say("--family", "tiny", "--question", QUESTION, stdin=b"caf\xe9")
    assert said.code == EXIT_ERROR
    assert "standard input: not UTF-8" in said.error_line


def test_an_empty_stream_is_an_empty_answer(say: Said) -> None:
    said = say("--family", "tiny", stdin="\n\n")
    assert (said.code, said.out) == (EXIT_OK, "")


def test_windows_line_ends_and_a_last_line_without_one(say: Said) -> None:
    row = json.dumps({"question": QUESTION, "response": RESPONSE})
    said = say("--family", "tiny", stdin=f"{row}\r\n{row}")
    assert said.code == EXIT_OK
    assert len(answers(said)) == 2


GIVEN = ("--question", QUESTION, "--response", RESPONSE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*GIVEN,), "It takes two models"),
        ((*GIVEN, "--family", "tiny", "--pair", P, Q), "It takes two models"),
        ((*GIVEN, "--family", "tony"), "tony"),
        ((*GIVEN, "--family", "tiny", "--estimator", "dtc_lim"), "Did you mean 'dtc_lin'"),
        ((*GIVEN, "--family", "tiny", "--estimator", "count"), "a fact of every trace"),
        ((*GIVEN, "--family", "tiny", "--estimator", "verbalized"), "needs more than a pair"),
        ((*GIVEN, "--family", "tiny", "--theta", "1.5"), "theta must be between 0 and 1"),
        ((*GIVEN, "--family", "tiny", "--theta", "-0.1"), "theta must be between 0 and 1"),
        ((*GIVEN, "--family", "tiny", "--theta", "nan"), "theta must be between 0 and 1"),
        ((*GIVEN, "--family", "tiny", "--param", "n"), "'n' is not a parameter"),
        ((*GIVEN, "--family", "tiny", "--param", "=3"), "'=3' is not a parameter"),
        ((*GIVEN, "--family", "tiny", "--param", "n=[1]"), "'n=[1]': not a plain value"),
        ((*GIVEN, "--family", "tiny", "--param", "n="), "'n=': not a plain value"),
        ((*GIVEN, "--family", "tiny", "--param", "theta=0.5"), "an option of its own"),
        ((*GIVEN, "--family", "tiny", "--param", "n=3", "--param", "n=4"), "given twice"),
        ((*GIVEN, "--family", "tiny", "--dtype", "float8"), "float8"),
        (("--response", RESPONSE, "--family", "tiny"), "a response but no question"),
        (("--response", "-", "--family", "tiny"), "a response but no question"),
        (("--family", "tiny"), "nothing to score"),
        (("--question", QUESTION, "--family", "tiny"), "nothing to score"),
        ((*GIVEN[:2], "--response", "-", "--family", "tiny"), "nothing to score"),
    ],
)
def test_wrong_usage(say: Said, arguments: tuple[str, ...], message: str) -> None:
    said = say(*arguments)
    assert said.code == EXIT_USAGE
    assert message in said.error_line


def test_a_pair_that_no_family_knows_needs_a_theta(say: Said) -> None:
    said = say(*GIVEN, "--pair", Q, P)
    assert said.code == EXIT_USAGE
    assert f"No family pairs '{Q}' with '{P}'" in said.error_line
    assert json.loads(say(*GIVEN, "--pair", Q, P, "--theta", "0.3", "--json").out)["theta"] == 0.3


def test_a_model_that_is_not_there(say: Said) -> None:
    said = say(*GIVEN, "--pair", "divtok/tiny-9m", Q, "--theta", "0.5")
    assert said.code == EXIT_ERROR
    assert "divtok/tiny-9m" in said.error_line


def test_an_unknown_estimator_is_refused_before_any_model_is_loaded(
    say: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **options: Any) -> None:
        raise AssertionError("a model was loaded")

    for wrong in (
        ("--estimator", "dtc_lim"),
        ("--estimator", "ratio"),
        ("--theta", "7"),
        ("--param", "q=1"),
        ("--param", "n=0"),
    ):
        monkeypatch.setattr(api, "load_pair", refuse)
        assert say(*GIVEN, "--family", "tiny", *wrong).code == EXIT_USAGE


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    with ModelServer(P) as p, ModelServer(Q) as q:
        yield p.base_url, q.base_url


def test_through_servers_there_are_bounds(say: Said, pair: Pair, urls: tuple[str, str]) -> None:
    known = package.confidence(QUESTION, RESPONSE, pair=pair)
    said = say(*GIVEN, "--pair", P, Q, "--servers", *urls, "--json")
    assert said.code == EXIT_OK
    found = json.loads(said.out)
    low, high = found["confidence_bounds"]
    least, most = found["count_bounds"]
    assert low <= known.value <= high
    assert least <= known.count <= most
    assert low <= found["confidence"] <= high
    assert least <= found["count"] <= most
    assert found["tokens"] == len(known.tokens)
    words = say(*GIVEN, "--family", "tiny", "--servers", *urls).out
    assert words.endswith(
        f" (certainly between {low:.3f} and {high:.3f}; count {least} to {most})\n"
    )
    (row,) = answers(
        say(
            "--family",
            "tiny",
            "--servers",
            *urls,
            stdin=lines({"question": QUESTION, "response": RESPONSE}),
        )
    )
    assert row["divtok"] == found


def test_a_familys_theta_holds_through_servers(
    say: Said, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two families may share a pair and have thetas of their own, as qwen2.5 and blackbox do."""
    from dataclasses import replace

    other = replace(FAMILIES.get("tiny"), name="other", reader=P, theta=0.4)
    monkeypatch.setitem(FAMILIES._things, "other", other)
    here = json.loads(say(*GIVEN, "--family", "other", "--json").out)
    served = json.loads(say(*GIVEN, "--family", "other", "--servers", *urls, "--json").out)
    assert (here["theta"], served["theta"]) == (0.4, 0.4)


def test_what_a_server_cannot_tell_gives_no_confidence(say: Said, urls: tuple[str, str]) -> None:
    arguments = (*GIVEN, "--family", "tiny", "--servers", *urls)
    said = say(*arguments, "--estimator", "entropy")
    assert said.code in (EXIT_USAGE, EXIT_NOTHING)
    assert "entropy" in said.error_line
    assert "context" not in said.error_line  # a longer context would not help
    said = say(*arguments, "--estimator", "uqac_attn")
    assert said.code in (EXIT_USAGE, EXIT_NOTHING)
    assert "Traceback" not in said.err


def test_servers_that_are_none(say: Said) -> None:
    arguments = (*GIVEN, "--family", "tiny", "--servers")
    said = say(*arguments, "http://u:secret@127.0.0.1/v1", "http://127.0.0.1/v1")
    assert said.code == EXIT_USAGE
    assert "secret" not in said.err
    assert say(*GIVEN, "--family", "tony", "--servers", "http://a/v1", "http://b/v1").code == 2


def test_the_result_of_a_server_pair(pair: Pair, urls: tuple[str, str]) -> None:
    from divtok.endpoints.settings import ServerSettings
    from divtok.trace.topk.server_pair import load_server_pair

    served = load_server_pair(
        P, Q, p_server=ServerSettings(urls[0]), q_server=ServerSettings(urls[1])
    )
    known = package.confidence(QUESTION, RESPONSE, pair=pair)
    found = package.confidence(QUESTION, RESPONSE, pair=served)
    assert (known.bounds, known.count_bounds) == (None, None)
    assert found.bounds is not None
    assert found.count_bounds is not None
    assert (found.trace.exact, found.trace.retokenized, known.trace.retokenized) == (
        False,
        True,
        True,
    )
    assert found.theta == THETA
    assert found.bounds == tuple(0.95 - 0.09 * min(m, 10) for m in reversed(found.count_bounds))
    assert [t.text for t in found.tokens] == [t.text for t in known.tokens]
    assert (found.trace.answer_start, found.trace.turn_end) == (
        known.trace.answer_start,
        known.trace.turn_end,
    )
    nsl = package.confidence(QUESTION, RESPONSE, pair=served, estimator="nsl")
    assert nsl.bounds is None
    assert nsl.count_bounds == found.count_bounds
    assert "<b>" in found._repr_html_()


def test_a_real_pipe_and_a_terminal_that_knows_no_utf8() -> None:
    """In a process of its own, where standard output has its own encoding."""
    import subprocess

    done = subprocess.run(
        command("confidence", "--family", "tiny"),
        input=lines({"question": "Größe?", "response": ODD}).encode(),
        env=environment() | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        capture_output=True,
        timeout=120,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == EXIT_OK
    assert json.loads(done.stdout)["response"] == ODD


def test_what_a_pair_warns_of_is_one_line(say: Said, tmp_path: Path) -> None:
    from any_pair_samples import save_llama

    models = [save_llama(tmp_path / name, width=w, seed=w) for name, w in (("p", 32), ("q", 16))]
    rows = [{"question": QUESTION, "response": "We add 1 and 1. The answer is 2, I think."}] * 3
    said = say("--pair", *map(str, models), "--theta", "0.5", stdin=lines(*rows))
    assert said.code == 0
    assert len(said.out.splitlines()) == 3
    (warned,) = [line for line in said.err.splitlines() if line.startswith("warning: ")]
    assert "close to uniform" in warned
    assert "UserWarning" not in said.err
