"""From Python: the rows of a run, what results show, and readings that are made once."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Several test processes share the machine; torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import divtok
from divtok.api.readings import Readings
from divtok.api.result import Token, Tokens
from divtok.errors import UsageError
from divtok.records import Trace, shortened
from divtok.trace.listener import Read
from divtok.trace.pair import Pair

QUESTION = "Ada has 12 eggs. Ada buys 30 more eggs. How many eggs does Ada have now?"
RESPONSE = r"12 plus 30 is 42. The answer is \boxed{42}."
EMPTY = np.empty(0, np.float32)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair("tiny", device="cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> divtok.Run:
    folder = tmp_path_factory.mktemp("runs") / "made"
    return divtok.run(family="tiny", limit=2, benchmarks=["arith-easy"], out=folder)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each pass has read."""
    passes: list[int] = []
    plain = Pair.read_rows

    def counted(self: Pair, rows: Any, **how: Any) -> Any:
        passes.append(len(rows))
        return plain(self, rows, **how)

    monkeypatch.setattr(Pair, "read_rows", counted)
    return passes


def trace(**changes: Any) -> Trace:
    fields: dict[str, Any] = dict.fromkeys(
        ("logprob_p", "logprob_q", "entropy_p", "entropy_q", "jsd_bits", "kl_pq", "kl_qp"), EMPTY
    )
    names = {"key": "", "p": "big", "q": "small", "answer_start": None, "answer_stop": None}
    return Trace(
        **{**fields, **names, "turn_end": 0, "dropped_mass_p": 0, "dropped_mass_q": 0} | changes
    )


def fits(text: str) -> bool:
    return len(text.splitlines()) <= 25 and max(map(len, text.splitlines())) <= 100


def test_the_rows_of_a_run_are_those_of_its_tables(run: divtok.Run) -> None:
    rows = run.rows()
    assert rows["key"].to_list() == run.trajectories["key"].to_list()
    assert rows["response"].to_list() == run.trajectories["text"].to_list()
    stored = {(c["key"], c["estimator"]): c["value"] for c in run.confidences.to_dicts()}
    assert rows["dtc_prod"].to_list() == [stored[key, "dtc_prod"] for key in rows["key"]]
    assert rows["count"].to_list() == [len(tokens) for tokens in rows["suspect_tokens"].to_list()]
    assert "suspect_tokens" not in run.rows(tokens=False).columns


def test_the_rows_can_be_written(run: divtok.Run, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    assert run.export(out) == len(run.trajectories)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert lines == run.rows().to_dicts()
    more = tmp_path / "more.jsonl"
    own = [{"mine": 1, "q": line["question"], "a": line["response"]} for line in lines[:2]]
    given = tmp_path / "own.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in own))
    assert run.export(more, onto=given) == 2
    first = json.loads(more.read_text().splitlines()[0])
    assert (first["mine"], first["divtok_key"]) == (1, lines[0]["key"])


@pytest.mark.parametrize("how", [{"format": "xlsx"}, {"format": "csv", "onto": "x.csv"}])
def test_what_cannot_be_written_is_refused(
    run: divtok.Run, tmp_path: Path, how: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        run.export(tmp_path / "x.csv", **how)


def token(text: str, bits: float, divergent: bool, excess: float = 0.0) -> Token:
    return Token(text, bits, divergent, excess > 5, excess)


def test_tokens_are_a_tuple_that_shows_itself() -> None:
    given = (token("a ", 0.1, False), token("<b>", 0.9, True), token("\n", 0, False))
    made = Tokens(given, 0.5)
    assert made == given
    assert str(made) == "<1 divergent of 3 tokens at theta 0.5>\na [<b>]\n"
    assert isinstance(made[1:], Tokens)
    assert (made[1:][0].text, made[1:].theta) == ("<b>", 0.5)
    page = made._repr_html_()
    assert "&lt;b&gt;" in page
    assert page.count("text-decoration:underline") == 1
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (twin, twin.theta, twin.guard) == (made, 0.5, 5.0)


def test_unexpected_tokens_have_a_mark_of_their_own() -> None:
    made = Tokens([token("a ", 0.9, True, 6), token("{b}", 0, False, 7), token("c", 0, False)], 0.5)
    assert str(made) == "<1 divergent and 2 unexpected of 3 tokens at theta 0.5>\n[{!a }]{!{b}}c"
    assert (made.unexpected_count, made[2:].unexpected_count) == (2, 0)
    assert made.to_html().count("border:") == 3  # with the legend


def test_where_nobody_knows_what_is_unexpected_nobody_says_none() -> None:
    made = Tokens([Token("a", 0.9, True), Token("b", 0.0, False)], 0.5)
    assert made.unexpected_count is None
    told = "<1 divergent of 2 tokens at theta 0.5; unexpected ones are not known>"
    assert str(made) == f"{told}\n[a]b"
    assert "unexpected ones are not known" in made.to_html()


def test_long_and_hostile_tokens_fit_on_a_screen() -> None:
    many = Tokens([Token(f"word{i} \x1b[31m\n", 0.9, True) for i in range(500)], 0.5)
    assert fits(str(many))
    assert "\x1b" not in str(many)
    assert str(many).endswith("more lines")
    assert fits(str(Tokens([Token("x" * 5000, 0.1, False)], 0.5)))
    assert str(Tokens([], 0.5)) == "<0 divergent of 0 tokens at theta 0.5>\n"


def test_a_trace_says_what_it_is() -> None:
    bits = np.array([0, 0.25, 0.5], np.float32)
    full = trace(key="k", jsd_bits=bits, turn_end=2, **dict.fromkeys(("logprob_p",), bits))
    assert str(full) == (
        "<Trace of 'k': 3 tokens, 2 of them reasoning\n"
        "  p: 'big'\n"
        "  q: 'small'\n"
        "  jsd_bits: 0.0000 to 0.5000, mean 0.2500>"
    )
    none = trace(status="too_long", reason="it has 9 tokens")
    assert str(none) == "<Trace: too_long\n  'it has 9 tokens'>"
    assert fits(str(trace(key="k" * 500, p="/p" * 500, q="\x1b" * 500)))
    assert "\x1b" not in str(trace(q="\x1b[31m"))


def test_a_long_name_is_cut_at_its_beginning() -> None:
    assert shortened("a" * 10, 12) == f"'{'a' * 10}'"
    assert shortened("/models/" + "a" * 10, 12) == "'..." + "a" * 7 + "'"


def test_pairs_and_results_fit_on_a_screen(pair: Pair) -> None:
    assert str(pair) == (
        "<Pair of the family 'tiny'\n"
        "  p: 'divtok/tiny-0.5m', float32 on cpu\n"
        "  q: 'divtok/tiny-0.3m', float32 on cpu>"
    )
    found = divtok.confidences([(QUESTION, RESPONSE), (QUESTION, ""), ("", None)], pair=pair)
    for thing in (found, found[0], found[0] and found[0].tokens, pair.p):
        assert fits(str(thing))


def test_another_estimator_or_theta_reads_nothing_again(pair: Pair, read: list[int]) -> None:
    response = RESPONSE + " One."
    first = divtok.confidence(QUESTION, response, pair=pair)
    other = divtok.confidence(QUESTION, response, pair=pair, estimator="nsl", theta=0.2)
    assert read == [1]
    np.testing.assert_array_equal(first.trace.logprob_p, other.trace.logprob_p)
    alone = pair.read_rows(
        [
            divtok.api.Scoring.of(  # what a fresh pass gives
                pair, theta=None, generator=None, estimators=["nsl"], parameters={}
            ).row("", QUESTION, response)
        ]
    )[0].trace
    assert other.value == pytest.approx(float(np.exp(alone.logprob_p.mean())), rel=1e-6)


def test_other_questions_responses_and_pairs_are_read(pair: Pair, read: list[int]) -> None:
    response = RESPONSE + " Two."
    divtok.confidence(QUESTION, response, pair=pair)
    divtok.confidence(QUESTION + " ", response, pair=pair)
    divtok.confidence(QUESTION, response + " ", pair=pair)
    divtok.confidence(QUESTION, response, pair=Pair(pair.p, pair.q), theta=0.1)
    assert read == [1, 1, 1, 1]


def test_what_is_asked_beside_the_trace_is_read(pair: Pair, read: list[int]) -> None:
    response = RESPONSE + " Three."
    plain = divtok.confidence(QUESTION, response, pair=pair, estimator="nsl")
    chained = divtok.confidence(QUESTION, response, pair=pair, estimator="uqac_attn")
    again = divtok.confidence(QUESTION, response, pair=pair, estimator="uqac_attn")
    assert read == [1, 1]
    assert chained.value == again.value != plain.value


def test_rows_read_together_are_neither_taken_nor_kept(pair: Pair, read: list[int]) -> None:
    response = RESPONSE + " Four."
    rows = [(QUESTION, response), (QUESTION, RESPONSE * 3)]
    divtok.confidences(rows, pair=pair, progress=False)
    alone = divtok.confidence(QUESTION, response, pair=pair)
    divtok.confidences(rows, pair=pair, progress=False)
    assert read == [2, 1, 2]
    one = divtok.confidences(rows[:1], pair=pair, batch=1, progress=False)
    assert one.values == [alone.value]


def test_what_was_given_out_may_be_changed(pair: Pair) -> None:
    response = RESPONSE + " Five."
    first = divtok.confidence(QUESTION, response, pair=pair)
    kept = first.trace.jsd_bits.copy()
    first.trace.jsd_bits[:] = 1
    np.testing.assert_array_equal(
        divtok.confidence(QUESTION, response, pair=pair).trace.jsd_bits, kept
    )


def test_few_readings_are_kept_and_none_without_numbers(pair: Pair) -> None:
    made: list[str] = []
    readings = Readings(kept=2)

    def get(what: str, status: Any = "ok") -> Read:
        def make() -> Read:
            made.append(what)
            return Read(trace(key=what, status=status))

        return readings.get(pair, what, make)

    assert [get(what).trace.key for what in "aabacab"] == [*"aabacab"]
    assert made == [*"abcb"]  # b went when c came, for a was asked for since
    get("x", "failed")
    get("x", "failed")
    assert made[-2:] == ["x", "x"]


def test_readings_keep_no_pair_alive(pair: Pair) -> None:
    readings, other = Readings(), Pair(pair.p, pair.q)
    readings.get(other, "a", lambda: Read(trace()))
    gone = weakref.ref(other)
    del other
    assert gone() is None


def test_a_result_is_coloured_with_its_value(pair: Pair) -> None:
    result = divtok.confidence(QUESTION, RESPONSE, pair=pair)
    page = result._repr_html_()
    assert page.startswith(f"<p>dtc_lin: <b>{result.value:.3f}</b></p>")
    assert re.sub(r"<[^>]+>", "", page).endswith(RESPONSE)
