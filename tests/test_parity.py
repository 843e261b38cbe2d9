"""One confidence through both doors, Python and the command line: same numbers, same errors."""

from __future__ import annotations

import functools
import inspect
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from console import Command, divtok
from model_server import ModelServer

# Several test processes share the machine; torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import divtok as package
from divtok import api
from divtok.cli.confidence import confidence as verb
from divtok.cli.distil import distil as distil_verb
from divtok.errors import EXIT_PARTIAL, DivtokError
from divtok.families.family import FAMILIES
from divtok.trace.pair import Pair
from divtok.trace.topk.server_pair import ServerPair

__all__ = ["divtok"]

P, Q = "divtok/tiny-0.5m", "divtok/tiny-0.3m"
QUESTION = "Ada has 12 eggs. Ada buys 30 more eggs. How many eggs does Ada have now?"
RESPONSE = r"12 plus 30 is 42. The answer is \boxed{42}."
ODD = "Für 30 €: <b>日本</b> 🙂 [red]x[/red] " + r"\boxed{42}"
# Of the tiny family, and of a black-box one with the same pair that the tests add.
WHITE_BOX, BLACK_BOX = FAMILIES.get("tiny").theta, 0.4
LINEAR = {"n": 10, "a": 0.95, "b": 0.05}

# Python's name -> the option of the command line; None where there is none.
CONFIDENCE = {
    "question": "question",
    "response": "response",
    "pair": "pair",
    "theta": "theta",
    "generator": "generator",
    "estimator": "estimator",
    "tokens": "counted",
    "fitted": "fitted",
    "prior": "prior",
    "policy": "policy",
    "parameters": "param",
}
CONFIDENCES = {
    **{name: option for name, option in CONFIDENCE.items() if name not in ("question", "response")},
    "batch": "batch",
    # Rows are what comes through a pipe, with these names; a stream keeps and tells nothing else.
    **dict.fromkeys(["rows", "columns", "keep_traces", "progress"]),
}
LOAD_PAIR = {
    "p": "family",
    "q": "pair",
    "dtype": "dtype",
    **dict.fromkeys(["p_revision", "q_revision", "device", "q_device", "device_map"]),
}
LOAD_SERVER_PAIR = {
    "p": "pair",
    "q": "pair",
    "p_server": "servers",
    "q_server": "servers",
    **dict.fromkeys(["p_tokenizer", "q_tokenizer", "p_revision", "q_revision"]),
    **dict.fromkeys(["p_served_name", "q_served_name", "top_k", "form", "precision"]),
}
OUTPUT = {"tokens", "as_json"}
# What `distil` takes, both ways under one name, but for how the result is printed.
DISTIL = {"layers": 2, "steps": 2, "batch_tokens": 100, "seed": 1, "tokens": 500, "device": "cpu"}


@dataclass(frozen=True)
class Case:
    """What is given to Python and to the command line, and the theta and params that follow."""

    models: tuple[str, ...]
    arguments: tuple[str, ...]
    theta: float = WHITE_BOX
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    loading: Mapping[str, Any] = field(default_factory=dict[str, Any])
    question: str = QUESTION
    response: str = RESPONSE
    served: bool = False


TINY, BOTH = ("--family", "tiny"), ("--pair", P, Q)
CASES = {
    "family": Case(("tiny",), TINY, params=LINEAR),
    "pair": Case((P, Q), BOTH, BLACK_BOX, LINEAR),
    "p wrote": Case((P, Q), (*BOTH, "--generator", P), params=LINEAR, given={"generator": P}),
    "q wrote": Case((P, Q), (*BOTH, "--generator", Q), BLACK_BOX, LINEAR, {"generator": Q}),
    "family and who wrote": Case(
        ("tiny",), (*TINY, "--generator", "gpt"), params=LINEAR, given={"generator": "gpt"}
    ),
    "pair of no family": Case(
        (Q, P), ("--pair", Q, P, "--theta", "0.3"), 0.3, LINEAR, {"theta": 0.3}
    ),
    "theta": Case(("tiny",), (*TINY, "--theta", "0.01"), 0.01, LINEAR, {"theta": 0.01}),
    "least theta": Case(("tiny",), (*TINY, "--theta", "0"), 0.0, LINEAR, {"theta": 0.0}),
    "product": Case(
        ("tiny",), (*TINY, "--estimator", "dtc_prod"), params={"k": 4},
        given={"estimator": "dtc_prod"},
    ),
    "no parameters": Case(("tiny",), (*TINY, "--estimator", "nsl"), given={"estimator": "nsl"}),
    "evidence": Case(
        ("tiny",), (*TINY, "--estimator", "uqac_attn"), given={"estimator": "uqac_attn"}
    ),
    "a parameter": Case(
        ("tiny",), (*TINY, "--param", "n=3"), params=LINEAR | {"n": 3}, given={"n": 3}
    ),
    "all parameters": Case(
        (P, Q),
        (*BOTH, "--theta", "0.02", "--param", "a=0.9", "--param", "b=0.1", "--param", "n=12"),
        0.02,
        {"n": 12, "a": 0.9, "b": 0.1},
        {"theta": 0.02, "a": 0.9, "b": 0.1, "n": 12},
    ),
    "parameter of another": Case(
        ("tiny",), (*TINY, "--estimator", "dtc_prod", "--param", "k=0"), params={"k": 0},
        given={"estimator": "dtc_prod", "k": 0},
    ),
    "dtype": Case(
        ("tiny",), (*TINY, "--dtype", "bfloat16"), params=LINEAR, loading={"dtype": "bfloat16"}
    ),
    "other texts": Case(("tiny",), TINY, params=LINEAR, question="Größe? 日本", response=ODD),
    "servers": Case((P, Q), BOTH, BLACK_BOX, LINEAR, served=True),
    "servers, p wrote": Case(
        (P, Q), (*BOTH, "--generator", P, "--param", "n=2"), WHITE_BOX, LINEAR | {"n": 2},
        {"generator": P, "n": 2}, served=True,
    ),
}  # fmt: skip


def wrong(*arguments: str, **given: Any) -> Case:
    return Case(("tiny",), (*TINY, *arguments), given=given)


WRONG = {
    "theta": wrong("--theta", "1.5", theta=1.5),
    "no number": wrong("--theta", "nan", theta=float("nan")),
    "estimator": wrong("--estimator", "dtc_lim", estimator="dtc_lim"),
    "theta of no estimator": wrong("--theta", "2", "--estimator", "no", theta=2.0, estimator="no"),
    "fact": wrong("--estimator", "count", estimator="count"),
    "evidence": wrong("--estimator", "verbalized", estimator="verbalized"),
    "learned": wrong("--estimator", "uqac_global", estimator="uqac_global"),
    "parameter": wrong("--param", "k=3", k=3),
    "parameter of none": wrong("--estimator", "nsl", "--param", "k=3", estimator="nsl", k=3),
    "range": wrong("--param", "n=0", n=0),
    "kind of value": wrong("--param", "n=many", n="many"),
    "rising": wrong("--param", "a=0.1", "--param", "b=0.9", a=0.1, b=0.9),
    "dtype": Case(("tiny",), (*TINY, "--dtype", "float8"), loading={"dtype": "float8"}),
    "model": Case(
        ("divtok/tiny-9m", Q),
        ("--pair", "divtok/tiny-9m", Q, "--theta", "0.5"),
        given={"theta": 0.5},
    ),
    "pair": Case((Q, P), ("--pair", Q, P)),
    "prior of no map": wrong("--prior", "0.8", prior=0.8),
    "prior": wrong("--prior", "1", prior=1.0),
    "fit": wrong("--fitted", "no-such.json", fitted="no-such.json"),
    "policy": wrong("--policy", "no-such.json", policy="no-such.json"),
    "nothing": Case(("tiny",), TINY, response=" \n"),
    "too long": Case(("tiny",), TINY, response="42 " * 1000),
    "servers tell no entropy": Case(
        (P, Q), (*BOTH, "--estimator", "entropy"), given={"estimator": "entropy"}, served=True
    ),
}

_load_once = functools.cache(api.load_models)


@pytest.fixture(autouse=True)
def doors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are loaded once, and a black-box family has the tiny one's pair."""
    other = replace(FAMILIES.get("tiny"), name="other", reader=P, theta=BLACK_BOX)
    monkeypatch.setitem(FAMILIES._things, "other", other)
    monkeypatch.setattr(api, "load_models", _load_once)


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    with ModelServer(P) as p, ModelServer(Q) as q:
        yield p.base_url, q.base_url


def pair_of(case: Case, urls: tuple[str, str]) -> Pair | ServerPair:
    if not case.served:
        return package.load_pair(*case.models, **case.loading)
    return package.load_server_pair(*case.models, p_server=urls[0], q_server=urls[1])


def arguments_of(case: Case, urls: tuple[str, str]) -> tuple[str, ...]:
    servers = ("--servers", *urls) if case.served else ()
    texts = ("--question", case.question, "--response", case.response)
    return ("confidence", *case.arguments, *servers, *texts, "--json")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_both_doors_give_the_same(case: Case, divtok: Command, urls: tuple[str, str]) -> None:
    known = package.confidence(case.question, case.response, pair=pair_of(case, urls), **case.given)
    said = divtok(*arguments_of(case, urls))
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found == {
        "confidence": known.value,
        "estimator": known.estimator,
        "params": known.params,
        "count": known.count,
        "unexpected_count": known.tokens.unexpected_count,
        "tokens": len(known.tokens),
        "theta": known.theta,
        "p": known.trace.p,
        "q": known.trace.q,
        **(
            {"confidence_bounds": [*known.bounds], "count_bounds": [*known.count_bounds]}
            if known.bounds is not None and known.count_bounds is not None
            else {}
        ),
    }
    assert case.served == ("count_bounds" in found)
    uses_theta = case.given.get("estimator", "dtc_lin").startswith("dtc")
    assert found["theta"] == case.theta
    assert found["params"] == case.params | ({"theta": case.theta} if uses_theta else {})


def rows_of(case: Case) -> list[dict[str, str]]:
    """The case's own row among others, so that there is something to read it with."""
    texts = [(case.question, case.response), (QUESTION, "42, maybe 43"), (QUESTION, " ")]
    return [{"question": question, "response": response} for question, response in texts]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_stream_gives_what_a_call_for_its_rows_gives(
    case: Case,
    batch: int,
    divtok: Command,
    urls: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, pair = rows_of(case), pair_of(case, urls)
    known = package.confidences(rows, pair=pair, batch=batch, progress=False, **case.given)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    servers = ("--servers", *urls) if case.served else ()
    said = divtok("confidence", *case.arguments, *servers, "--batch", str(batch))
    assert said.code == EXIT_PARTIAL, said.err  # one row is blank
    found = [json.loads(line)["divtok"] for line in said.out.splitlines()]
    # A case may ask for an answer's tokens, which the second row lacks.
    assert [answer["confidence"] for answer in found] == known.values
    for answer, result in zip(found, known, strict=True):
        if result is None:
            continue
        assert answer["count"] == result.count
        assert answer["tokens"] == len(result.tokens)
        assert (answer["theta"], answer["params"]) == (case.theta, dict(result.params))
        assert (answer["p"], answer["q"]) == (result.trace.p, result.trace.q)
        if result.bounds is not None:
            assert answer["confidence_bounds"] == [*result.bounds]
            assert answer["count_bounds"] == [*(result.count_bounds or ())]
    assert known[0] is not None
    alone = package.confidence(case.question, case.response, pair=pair, **case.given)
    assert known[0].params == alone.params
    if batch == 1:
        assert (known[0].value, known[0].count) == (alone.value, alone.count)


# What is wrong with one row ends no call for many: it is that row's reason.
OF_A_ROW = ("nothing", "too long")


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_call_for_many_rows_refuses_in_the_same_words(case: Case, urls: tuple[str, str]) -> None:
    if case in [WRONG[name] for name in OF_A_ROW]:
        many = package.confidences(rows_of(case), pair=pair_of(case, urls), progress=False)
        with pytest.raises(DivtokError) as caught:
            package.confidence(case.question, case.response, pair=pair_of(case, urls))
        assert many.reasons[0] is not None
        assert many.reasons[0] in str(caught.value)
        assert many.values[1] is not None
        return
    with pytest.raises(DivtokError) as caught:
        package.confidences(rows_of(case), pair=pair_of(case, urls), **case.given)
    with pytest.raises(type(caught.value)) as alone:
        package.confidence(case.question, case.response, pair=pair_of(case, urls), **case.given)
    assert str(caught.value) == str(alone.value)


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_both_doors_refuse_in_the_same_words(
    case: Case, divtok: Command, urls: tuple[str, str]
) -> None:
    with pytest.raises(DivtokError) as caught:
        package.confidence(case.question, case.response, pair=pair_of(case, urls), **case.given)
    said = divtok(*arguments_of(case, urls))
    assert said.error_line == f"divtok: {caught.value}"
    assert said.code == caught.value.exit_code


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (package.confidence, CONFIDENCE),
        (package.confidences, CONFIDENCES),
        (package.aconfidences, CONFIDENCES),
        (package.load_pair, LOAD_PAIR),
        (package.load_server_pair, LOAD_SERVER_PAIR),
    ],
    ids=["confidence", "confidences", "aconfidences", "load_pair", "load_server_pair"],
)
def test_every_parameter_is_in_the_table(
    function: Callable[..., Any], options: Mapping[str, str | None]
) -> None:
    assert set(inspect.signature(function).parameters) == set(options)


def test_every_option_is_in_the_table() -> None:
    tables = (CONFIDENCE, CONFIDENCES, LOAD_PAIR, LOAD_SERVER_PAIR)
    named = {option for table in tables for option in table.values() if option is not None}
    assert set(inspect.signature(verb).parameters) == named | OUTPUT


def test_distil_takes_the_same_both_ways() -> None:
    known = inspect.signature(package.distil).parameters
    said = inspect.signature(distil_verb).parameters
    assert set(said) == {*known, "as_json"}
    for name, parameter in known.items():
        default = said[name].default
        assert default == parameter.default, name


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> package.Run:
    given = {"generators": [P], "benchmarks": ["arith-easy"], "limit": 4, "samples": 1}
    return package.run({"family": "tiny", **given}, out=tmp_path_factory.mktemp("runs") / "text")


def test_distil_makes_the_same_both_ways(
    written: package.Run, divtok: Command, tmp_path: Path
) -> None:
    made = package.distil(P, text=written, out=tmp_path / "python", **DISTIL)
    options = [
        word
        for name, value in DISTIL.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    out = tmp_path / "shell"
    said = divtok("distil", P, "--text", written.path, "--out", out, *options, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found.pop("folder") == str(out)
    assert found | {"seconds": 0} == json.loads(json.dumps(made.as_data() | {"seconds": 0}))
    weights = [(folder / "model.safetensors").read_bytes() for folder in (made.folder, out)]
    assert weights[0] == weights[1]
    pair = package.load_pair(P, str(out))
    assert 0 <= package.confidence(QUESTION, RESPONSE, pair=pair, theta=0.3).value <= 1


@pytest.mark.parametrize(
    ("wrong", "arguments"),
    [
        ({"layers": 4}, ("--layers", "4")),
        ({"layers": [0, 7]}, ("--layers", "0,7")),
        ({"layers": [3, 1]}, ("--layers", "3,1")),
        (
            {"layers": 2, "epochs": 1, "steps": 1},
            ("--layers", "2", "--epochs", "1", "--steps", "1"),
        ),
        ({"layers": 2, "generator": "no"}, ("--layers", "2", "--generator", "no")),
        ({"layers": 2, "dtype": "float16"}, ("--layers", "2", "--dtype", "float16")),
        ({"layers": 2, "dtype": "float8"}, ("--layers", "2", "--dtype", "float8")),
        ({"layers": 2, "device": "abc"}, ("--layers", "2", "--device", "abc")),
        ({"layers": 2, "learning_rate": -1.0}, ("--layers", "2", "--learning-rate", "-1")),
    ],
)
def test_distil_refuses_in_the_same_words(
    wrong: Any, arguments: tuple[str, ...], written: package.Run, divtok: Command, tmp_path: Path
) -> None:
    out = tmp_path / "none"
    with pytest.raises(DivtokError) as caught:
        package.distil(P, text=written, out=out, **wrong)
    said = divtok("distil", P, "--text", written.path, "--out", out, *arguments)
    assert said.error_line == f"divtok: {caught.value}"
    assert said.code == caught.value.exit_code
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layers", ["two", "1,,2", "1-3"])
def test_layers_that_are_no_numbers_are_refused(layers: str, divtok: Command) -> None:
    said = divtok("distil", P, "--text", "none", "--layers", layers)
    assert f"The layers '{layers}' are no number" in said.error_line
