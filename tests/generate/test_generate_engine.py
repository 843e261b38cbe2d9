"""Engines: what each says of itself, what identifies its rows, and one of another package."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from generate_samples import jobs
from test_generate_vllm import install

from divtok.errors import ConfigError, UsageError
from divtok.generate.engine import (
    ENGINES,
    Engine,
    EngineSetup,
    Generated,
    Write,
)
from divtok.generate.engines.chat import ApiSection
from divtok.generate.engines.vllm import VllmSection
from divtok.generate.jobs import Job
from divtok.models.load import model_digest
from divtok.records import Sampling
from divtok.section import Section

TINY = "divtok/tiny-0.5m"
GREEDY = Sampling(temperature=0.0, max_length=120)


def setup_for(model: str = TINY, **changes: Any) -> EngineSetup:
    known: dict[str, Any] = {"model": model, "sampling": GREEDY, "served_name": model}
    return EngineSetup(**known | changes)


def test_the_engines_that_ship() -> None:
    found = {engine.name: engine for engine in ENGINES}
    assert {"transformers", "speculative", "vllm", "api", "imported"} <= found.keys()
    assert all(ENGINES.get(name) is engine for name, engine in found.items())
    assert all(engine.summary.endswith(".") for engine in found.values())
    assert {name: e.weights_here for name, e in found.items()} == {
        "transformers": True,
        "speculative": True,
        "vllm": True,
        "api": False,
        "imported": False,
    }
    assert [name for name, e in found.items() if e.open is None or e.replies is None] == [
        "imported"
    ]


def test_an_unknown_engine_has_a_suggestion() -> None:
    with pytest.raises(UsageError, match="Did you mean 'transformers'"):
        ENGINES.get("transformer")


def test_what_identifies_the_rows_of_old_runs() -> None:
    """As it is written in the manifests of runs that are there: nothing of it may change."""
    setups = [setup_for(device="cpu"), setup_for("divtok/tiny-0.9m", device="cpu")]
    weights = {
        "dtype": {TINY: "float32", "divtok/tiny-0.9m": "float32"},
        "models": {s.model: model_digest(s.model) for s in setups},
    }
    written = {name: ENGINES.get(name).identity(setups) for name in ("transformers", "vllm")}
    assert list(written["transformers"].items()) == list(weights.items())
    assert list(written["vllm"].items()) == [("engine", "vllm"), *weights.items()]
    options = ApiSection(base_url="http://x/v1", token_ids=True, extra_body={"min_p": 0.1})
    served = ENGINES.get("api").identity([setup_for("g", served_name="G-1", options=options)])
    assert list(served.items()) == [
        ("engine", "api"),
        ("models", {"g": "G-1"}),
        ("extra_body", {"min_p": 0.1, "return_token_ids": True}),
        ("logprobs", False),
    ]


def test_which_engines_give_the_log_probs_they_sampled_with() -> None:
    giving = ENGINES.get("api").gives_logprobs
    assert giving(ApiSection(logprobs=True))
    assert not giving(ApiSection())
    assert not ENGINES.get("transformers").gives_logprobs(None)


@pytest.mark.parametrize("changes", [{"device": "cuda"}, {"device_map": "auto"}])
def test_vllm_places_its_models_itself(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="vLLM finds its GPUs itself"):
        ENGINES.get("vllm").check(setup_for(**changes))


def test_batches_of_the_transformers_engine(saved_model: str) -> None:
    first, second = jobs(GREEDY, 2), jobs(GREEDY, 3)[2:]
    engine = ENGINES.get("transformers")
    assert engine.open is not None
    with engine.open(setup_for(saved_model)) as write:
        made = [[row.trajectory.key for row in rows] for rows in write([first, second])]
    assert made == [[job.key for job in batch] for batch in (first, second)]


def test_vllm_is_started_as_the_setup_says_and_ended(
    saved_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = install(monkeypatch, gpus=None)
    fake.answers = [([5], "length")]
    engine = ENGINES.get("vllm")
    assert engine.open is not None
    options = VllmSection(gpu_memory=0.5)
    with engine.open(setup_for(saved_model, options=options, seed=7)) as write:
        ((row,),) = write([jobs(GREEDY, 1)])
        assert fake.shut_down == 0
    assert row.trajectory.token_ids == (5,)
    assert (fake.options["max_model_len"], fake.options["seed"]) == (120, 7)
    assert (fake.options["gpu_memory_utilization"], fake.shut_down) == (0.5, 1)


class EchoOptions(Section):
    loud: bool = False


@contextmanager
def open_echo(setup: EngineSetup) -> Generator[Write]:
    def write(batches: Sequence[Sequence[Job]]) -> Iterator[Sequence[Generated]]:
        for batch in batches:
            texts = [job.problem.question for job in batch]
            said = [text.upper() for text in texts] if setup.options.loud else texts
            yield [
                Generated(job.trajectory(text, "stop"))
                for job, text in zip(batch, said, strict=True)
            ]

    yield write


def test_an_engine_of_another_package_is_told_apart_by_its_name_and_options() -> None:
    echo = Engine(
        name="echo", summary="Repeats.", weights_here=False, options=EchoOptions, open=open_echo
    )
    asked = setup_for("parrot", options=EchoOptions(loud=True))
    assert echo.identity([asked]) == {
        "engine": "echo",
        "models": {"parrot": "parrot"},
        "options": {"parrot": {"loud": True}},
    }
    with open_echo(asked) as write:
        ((row,),) = write([jobs(GREEDY, 1)])
    assert row.trajectory.text == jobs(GREEDY, 1)[0].problem.question.upper()
    assert (row.call, row.sampled) == (None, None)
