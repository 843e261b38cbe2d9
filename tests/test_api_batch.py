"""Many rows in one call: of every kind, bad ones, several estimators, servers, an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from model_server import ModelServer

# Several test processes share the machine; torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import divtok
from divtok.api import batch, scoring
from divtok.errors import DataError, DivtokError, ModelError, NothingScoredError, UsageError
from divtok.score.registry import ESTIMATORS
from divtok.trace.batches import Row
from divtok.trace.pair import Pair

P, Q = "divtok/tiny-0.5m", "divtok/tiny-0.3m"
ADA = "Ada has 12 eggs. Ada buys 30 more eggs. How many eggs does Ada have now?"
BEN = "Ben has 9 pens. Ben loses 4 pens. How many pens does Ben have now?"
GOOD = [
    (ADA, r"12 plus 30 is 42. The answer is \boxed{42}."),
    (BEN, r"9 minus 4 is 5, so \boxed{5}."),
    (ADA, "Für 30 €: <b>日本</b> 🙂 " + r"\boxed{42}"),
    (BEN, "I would say seven, or eight, or many more."),
    ("Größe? 日本", "42"),
]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair("tiny", device="cpu")


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    with ModelServer(P) as p, ModelServer(Q) as q:
        yield p.base_url, q.base_url


def scored(rows: Any, pair: Any, **options: Any) -> divtok.Confidences:
    return divtok.confidences(rows, pair=pair, progress=False, **options)


def test_each_row_has_what_a_call_for_it_alone_gives(pair: Pair) -> None:
    found = scored(GOOD, pair, estimator=["dtc_lin", "dtc_prod", "nsl"], n=4, k=1)
    for row, (question, response) in enumerate(GOOD):
        for name, own in (("dtc_lin", {"n": 4}), ("dtc_prod", {"k": 1}), ("nsl", {})):
            alone = divtok.confidence(question, response, pair=pair, estimator=name, **own)
            together = found[name][row]
            assert together is not None
            assert together.params == alone.params
            assert together.value == pytest.approx(alone.value, abs=1e-5)
            assert found[name].values[row] == together.value
            assert [t.text for t in together.tokens] == [t.text for t in alone.tokens]
            # Read together or alone, numbers differ by rounding.
            np.testing.assert_allclose(
                together.trace.jsd_bits, alone.trace.jsd_bits, rtol=0, atol=1e-4
            )
            assert together.trace.retokenized


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_the_order_is_that_of_the_rows_whatever_is_read_together(pair: Pair, size: int) -> None:
    rows = GOOD * 3
    found = scored(rows, pair, batch=size)
    lengths = [len(divtok.confidence(q, r, pair=pair).tokens) for q, r in GOOD]
    assert [trace and len(trace) for trace in found.traces] == lengths * 3
    if size == 1:
        alone = [divtok.confidence(q, r, pair=pair).value for q, r in GOOD]
        assert found.values == alone * 3


def dicts(question: str = "question", response: str = "response") -> list[dict[str, Any]]:
    return [{question: q, response: r, "more": 1} for q, r in GOOD]


@pytest.mark.parametrize(
    "rows",
    [
        [list(row) for row in GOOD],
        iter(GOOD),
        dicts(),
        pl.DataFrame(dicts()),
        pd.DataFrame(dicts()),
        pd.DataFrame(dicts(), index=list("vwxyz")),
    ],
    ids=["lists", "iterator", "dicts", "polars", "pandas", "pandas, indexed"],
)
def test_rows_of_every_kind(pair: Pair, rows: Any) -> None:
    assert scored(rows, pair).values == scored(GOOD, pair).values


@pytest.mark.parametrize("kind", [list, pl.DataFrame, pd.DataFrame])
def test_columns_of_other_names(pair: Pair, kind: Any) -> None:
    columns = {"question": "prompt", "response": "output"}
    rows = kind(dicts("prompt", "output"))
    assert scored(rows, pair, columns=columns).values == scored(GOOD, pair).values
    with pytest.raises(UsageError, match=r"no column 'question'.*columns="):
        scored(rows, pair)
    with pytest.raises(UsageError, match=r"'answer', which is not a field. Fields: question"):
        scored(rows, pair, columns={"answer": "output"})


def test_a_lazy_frame_and_columns_that_numbers_name(pair: Pair) -> None:
    expected = scored(GOOD, pair).values
    assert scored(pl.LazyFrame(dicts()), pair).values == expected
    rows: list[Any] = [{0: q, 1: r} for q, r in GOOD]
    for numbered in (pd.DataFrame(GOOD), rows):
        for columns in ({"question": "0", "response": "1"}, {"question": 0, "response": 1}):
            assert scored(numbered, pair, columns=columns).values == expected
        with pytest.raises(UsageError, match="no column 'question'"):
            scored(numbered, pair)
        with pytest.raises(UsageError, match="no column '5'"):
            scored(numbered, pair, columns={"question": 5, "response": 1})


def test_a_doubled_column_is_refused_where_it_is_needed(pair: Pair) -> None:
    wide = [(*row, 1, 2) for row in GOOD]
    fine = pd.DataFrame(wide, columns=["question", "response", "more", "more"])
    assert scored(fine, pair).values == scored(GOOD, pair).values
    doubled = pd.DataFrame(wide, columns=["question", "response", "response", "more"])
    with pytest.raises(UsageError, match="have 2 columns 'response'"):
        scored(doubled, pair)


def test_a_slice_is_a_list_of_results(pair: Pair) -> None:
    found = scored([*GOOD, (ADA, "")], pair)
    assert [r and r.value for r in found[1:4]] == found.values[1:4]
    assert [r and r.value for r in found[::-2]] == found.values[::-2]
    assert found[5:] == [None]
    assert found[9:] == []


@pytest.mark.parametrize("rows", ["text", {"question": ["a"], "response": ["b"]}, 5, None])
def test_what_is_no_rows(pair: Pair, rows: Any) -> None:
    with pytest.raises(UsageError, match="The rows are a"):
        scored(rows, pair)


BAD = {
    "blank": ((ADA, " \n"), "empty", "there is no text in it"),
    "none": ((ADA, None), "not_text", "the response is not a text but NoneType"),
    "nan": ((ADA, float("nan")), "not_text", "the response is not a text but float"),
    "no question": ((None, "42"), "not_text", "the question is not a text"),
    "surrogate": ((ADA, "\ud800"), "not_text", "a lone surrogate"),
    "too long": ((ADA, "42 " * 1000), "too_long", "too_long: prompt 62 + response 3000"),
    "one value": ((ADA,), "not_row", "not a pair (question, response) but tuple of length 1"),
    "number": (7, "not_row", "the row is not a pair (question, response) but int"),
    "text": ("ab", "not_row", "the row is not a pair (question, response) but str"),
}


def test_a_bad_row_keeps_its_place_and_ends_nothing(pair: Pair) -> None:
    rows = [row for bad, _, _ in BAD.values() for row in (GOOD[0], bad)]
    found = scored(rows, pair, estimator=["dtc_lin", "nsl"])
    assert len(found) == len(found.values) == len(list(found)) == len(rows)
    for place, (_, kind, text) in enumerate(BAD.values()):
        assert found.values[2 * place] is not None
        assert found.reasons[2 * place] is None
        for name in ("dtc_lin", "nsl"):
            reason = found[name].reasons[2 * place + 1]
            assert found[name].values[2 * place + 1] is None
            assert found[name][2 * place + 1] is None
            assert reason is not None
            assert text in reason
            assert getattr(reason, "kind", None) == kind
    summary = " ".join(repr(found).partition("┌")[0].split())
    assert f"{len(rows)} confidences by dtc_lin, nsl" in summary
    assert f"{len(BAD)} without a value (not_text 4, not_row 3, empty 1, too_long 1)" in summary


def test_missing_values_of_a_frame(pair: Pair) -> None:
    table = {"question": [ADA, ADA, None], "response": [GOOD[0][1], None, "42"]}
    for frame in (pl.DataFrame(table), pd.DataFrame(table), pd.DataFrame(table, dtype="string")):
        found = scored(frame, pair)
        assert [value is None for value in found.values] == [False, True, True]


def test_a_row_that_cannot_be_read_is_left_out_of_its_batch(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no check foresees, such as ids that do not belong to their text."""
    usual = Pair.read_rows

    def read(self: Pair, rows: Any, **options: Any) -> Any:
        if any(row.key == "3" for row in rows):
            raise DataError("Row 3 is odd.")
        return usual(self, rows, **options)

    expected = scored(GOOD, pair).values
    monkeypatch.setattr(Pair, "read_rows", read)
    found = scored(GOOD, pair)
    assert found.reasons == [None, None, None, "Row 3 is odd.", None]
    assert [v for i, v in enumerate(found.values) if i != 3] == pytest.approx(
        [v for i, v in enumerate(expected) if i != 3], abs=1e-5
    )


def test_a_template_may_refuse_a_question_but_not_all(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(tokenizer: Any, question: str) -> tuple[int, ...]:
        if question == BEN or every:
            raise ModelError("The chat template fails.")
        return (1, 2, 3)

    monkeypatch.setattr(scoring, "prompt_ids", refuse)
    monkeypatch.setattr(batch, "prompt_ids", refuse)
    every = False
    assert [r is not None for r in scored(GOOD, pair).reasons] == [False, True, False, True, False]
    every = True
    with pytest.raises(ModelError, match="template fails"):
        scored(GOOD, pair)


def test_an_estimator_that_gives_no_confidence_fails_its_row(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ESTIMATORS.names()  # loads them all, into what is put back
    monkeypatch.setattr(ESTIMATORS, "_things", dict(ESTIMATORS._things))

    @divtok.estimator("odd", needs=("logprob_p",))
    def odd(trace: divtok.Trace) -> float:
        return 0.5 if len(trace) > 10 else 7.0

    found = scored(GOOD, pair, estimator="odd")
    short = [len(divtok.confidence(q, r, pair=pair).tokens) <= 10 for q, r in GOOD]
    assert [value is None for value in found.values] == short
    assert 0 < sum(short) < len(GOOD)
    assert "not a confidence in [0, 1]" in (found.reasons[short.index(True)] or "")
    with pytest.raises(DivtokError, match="not a confidence"):
        divtok.confidence(*GOOD[short.index(True)], pair=pair, estimator="odd")


def test_several_estimators_read_a_response_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Row] = []
    usual = Pair.read_rows

    def counting(self: Pair, rows: Any, **options: Any) -> Any:
        read.extend(rows)
        return usual(self, rows, **options)

    monkeypatch.setattr(Pair, "read_rows", counting)
    found = scored(GOOD, pair, estimator=["dtc_lin", "nsl", "entropy", "uqac_attn"])
    assert [row.key for row in read] == [str(row) for row in range(len(GOOD))]
    assert found.estimators == ["dtc_lin", "nsl", "entropy", "uqac_attn"]
    # uqac_attn starts from an answer, which two of them lack.
    reasons = found["uqac_attn"].reasons
    assert [reason is None for reason in reasons] == [True, True, True, False, False]
    alone = divtok.confidence(*GOOD[0], pair=pair, estimator="uqac_attn")
    assert found["uqac_attn"].values[0] == pytest.approx(alone.value, abs=1e-5)
    with pytest.raises(UsageError, match=r"'prm' was not scored. There are: dtc_lin, nsl"):
        found["prm"]


def test_what_is_wrong_for_all_rows_is_refused_before_any_is_read(pair: Pair) -> None:
    for options, message in (
        ({"estimator": "dtc_lim"}, "Did you mean 'dtc_lin'"),
        ({"estimator": []}, "no estimator"),
        ({"estimator": ["nsl", "prm"]}, "needs more than a pair"),
        ({"estimator": ["nsl", "dtc_lin"], "q": 3}, "has no parameter 'q'"),
        ({"theta": 2.0}, "theta must be between 0 and 1"),
        ({"n": 0}, "n must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
    ):
        with pytest.raises(UsageError, match=message):
            scored(GOOD, pair, **options)
    with pytest.raises(UsageError, match="Make one with load_pair"):
        scored(GOOD, "tiny")


def test_a_frame_has_a_column_for_each_estimator(pair: Pair) -> None:
    found = scored([*GOOD, (ADA, "")], pair, estimator=["dtc_lin", "nsl"])
    frame = found.to_polars()
    assert frame.columns == ["dtc_lin", "nsl", "count", "tokens", "reason"]
    assert frame["dtc_lin"].to_list() == found.values
    assert frame["nsl"].to_list() == found["nsl"].values
    assert frame["count"].to_list() == found.counts
    assert frame["tokens"].to_list() == [t and len(t) for t in found.traces]
    assert frame["reason"].to_list() == [*[None] * 5, "there is no text in it"]
    assert found.to_pandas()["count"].isna().tolist() == [*[False] * 5, True]


def test_what_is_shown_fits_a_screen_and_is_escaped(pair: Pair) -> None:
    rows = [(ADA, f"{number} <script>alert(1)</script>") for number in range(30)]
    found = scored([*rows, (ADA, "")], pair)
    assert len(repr(found).splitlines()) < 25
    assert max(map(len, repr(found).splitlines()[1:])) <= 100
    page = found._repr_html_()
    assert "<script" not in page
    assert "31 confidences by dtc_lin at theta" in page
    assert repr(found[0]).startswith("<Result: dtc_lin 0.")


def test_no_rows_at_all(pair: Pair) -> None:
    for rows in ([], pl.DataFrame({"question": [], "response": []})):
        found = scored(rows, pair, estimator=["dtc_lin", "nsl"])
        assert (len(found), found.values, list(found)) == (0, [], [])
        assert found.to_polars().shape == (0, 5)


def test_traces_need_not_be_kept(pair: Pair) -> None:
    found = scored([*GOOD, (ADA, "")], pair, keep_traces=False)
    assert found.values == scored([*GOOD, (ADA, "")], pair).values
    assert found.traces == [None] * 6
    assert found[5] is None
    with pytest.raises(UsageError, match="keep_traces=True"):
        found[0]


def test_progress_is_told_on_stderr(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    divtok.confidences(GOOD, pair=pair)
    written = capsys.readouterr()
    assert "confidences: 5/5" in written.err
    assert written.out == ""
    scored(GOOD, pair)
    assert capsys.readouterr().err == ""


def test_through_servers(pair: Pair, urls: tuple[str, str]) -> None:
    served = divtok.load_server_pair(P, Q, p_server=urls[0], q_server=urls[1])
    rows = [*GOOD, (ADA, ""), (ADA, "42 " * 1000)]
    found, known = scored(rows, served, estimator=["dtc_lin", "nsl"]), scored(rows, pair)
    for row in range(len(GOOD)):
        alone = divtok.confidence(*GOOD[row], pair=served)
        assert found.values[row] == alone.value
        assert found.bounds[row] == alone.bounds
        low, high = found.bounds[row] or (2.0, -1.0)
        assert low <= (known.values[row] or 0.0) <= high
    assert [r and r.kind for r in found.reasons[5:]] == ["empty", "too_long"]  # type: ignore[attr-defined]
    assert found.to_polars().columns == [
        *("dtc_lin", "nsl", "dtc_lin_low", "dtc_lin_high", "nsl_low", "nsl_high"),
        *("count", "tokens", "count_low", "count_high", "reason"),
    ]
    with pytest.raises(UsageError, match="needs more than a server tells"):
        scored(rows, served, estimator=["nsl", "entropy"])


def test_an_event_loop_goes_on_meanwhile(pair: Pair, urls: tuple[str, str]) -> None:
    served = divtok.load_server_pair(P, Q, p_server=urls[0], q_server=urls[1])
    steps: list[int] = []

    async def both() -> list[divtok.Confidences]:
        tasks = [
            asyncio.create_task(divtok.aconfidences(GOOD, pair=models)) for models in (pair, served)
        ]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.001)
            steps.append(1)
        return [task.result() for task in tasks]

    here, there = asyncio.run(both())
    assert len(steps) > 3
    assert here.values == scored(GOOD, pair).values
    assert there.values == scored(GOOD, served).values

    async def wrong() -> None:
        await divtok.aconfidences(GOOD, pair=pair, theta=3.0)

    with pytest.raises(UsageError, match="theta must be between"):
        asyncio.run(wrong())


def test_a_cancelled_task_ends_its_thread(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on, done = threading.Event(), threading.Event(), list[int]()

    def slow(asked: Any, start: int, given: Any) -> list[Any]:
        began.set()
        go_on.wait(10)
        done.append(start)
        return [asked.unscored("", batch.NO_TEXT) for _ in given]

    monkeypatch.setattr(batch, "scored_rows", slow)

    async def stopped() -> None:
        task = asyncio.create_task(divtok.aconfidences(GOOD, pair=pair, batch=1))
        await asyncio.to_thread(began.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(stopped())  # waits for its threads
    assert done == [0]


def test_a_single_call_raises_what_a_row_gives_as_its_reason(pair: Pair) -> None:
    with pytest.raises(NothingScoredError, match="too_long: prompt 62"):
        divtok.confidence(ADA, "42 " * 1000, pair=pair)
