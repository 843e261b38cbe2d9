"""What is refused before anything is loaded, and whose tokens a response's ids are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages_samples import AUXILIARY, GENERATOR

from divtok.config.engines import engine_setups
from divtok.config.loading import digest_of
from divtok.config.run import RunConfig, load_config
from divtok.errors import EXIT_USAGE, ConfigError, ModelError, UsageError
from divtok.models import load as models
from divtok.models.load import load_tokenizer
from divtok.protocols.encode import prompt_ids, response_ids
from divtok.records import Sampling, Trajectory
from divtok.score.registry import ESTIMATORS, Estimator
from divtok.stages import generate as generation
from divtok.stages import trace as tracing
from divtok.stages.choices import check_choices, chosen_estimators, models_read
from divtok.stages.readers import as_read_by, spelled_by
from divtok.store.run import Run

URL = "http://127.0.0.1:8000/v1"
SERVED = (f"servers.{GENERATOR}={URL}", f"servers.{AUXILIARY}={URL}")
ONE = (f"generators=['{GENERATOR}']",)
API = ("generate.engine=api", f"generate.api.base_url={URL}", "generators=[gpt]")
IMPORTED = ("generate.engine=imported", "generators=[gpt]", "benchmarks=[b]")

QUESTION = "Ada has 12 eggs. Ada buys 30 more eggs. How many eggs does Ada have now?"
TEXT = r"12 plus 30 is 42. The answer is \boxed{42}."


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **options: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(models, "load_model", refuse)


def refused(*overrides: str) -> str:
    """The error, which names a next step and exits as wrong usage does."""
    with pytest.raises(UsageError) as caught:
        check_choices(load_config(None, overrides))
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.next_step
    return str(caught.value)


def check_engine(config: RunConfig) -> None:
    for setup in engine_setups(config):
        config.engine.check(setup)


def refused_asking(*overrides: str) -> str:
    """The error of settings that no server could be asked with, raised before the run is begun."""
    with pytest.raises(UsageError) as caught:
        check_engine(load_config(None, overrides))
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.next_step
    return str(caught.value)


def accepted(*overrides: str) -> RunConfig:
    config = load_config(None, overrides)
    check_choices(config)
    return config


def test_both_of_a_pair_behind_servers_are_fine() -> None:
    config = accepted(*ONE, *SERVED)
    identity = tracing._pair_identity(config, GENERATOR, AUXILIARY)
    assert identity["models"] == {
        GENERATOR: f"served as {GENERATOR}",
        AUXILIARY: f"served as {AUXILIARY}",
    }
    # Weights that are loaded here keep their fingerprint, also where a server has them too.
    assert "served" not in digest_of(config, GENERATOR)


@pytest.mark.parametrize(
    ("served", "other"), [(GENERATOR, AUXILIARY), (AUXILIARY, GENERATOR)], ids=["p", "q"]
)
def test_half_a_pair_behind_a_server(served: str, other: str) -> None:
    message = refused(*ONE, f"servers.{served}={URL}")
    assert f"'{served}' is read through a server and '{other}' is not" in message
    assert f"Give servers.{other}=URL too, or leave out servers.{served}." in message


def test_half_of_one_generators_pair_among_several() -> None:
    message = refused(*SERVED)  # the family has two more generators, without servers
    assert f"'{AUXILIARY}' is read through a server and 'divtok/tiny-0.9m' is not" in message


def test_half_of_a_pair_that_is_traced_and_never_scored() -> None:
    message = refused(*ONE, *SERVED, "trace.also=[{auxiliary: divtok/tiny-0.3m, reader: other}]")
    assert "'other' is not" in message


def test_a_server_for_a_model_that_does_not_read() -> None:
    message = refused(*ONE, *SERVED, f"servers.divtok/tiny-0.4m={URL}")
    assert "servers names 'divtok/tiny-0.4m', which is not among the models it is for." in message
    assert "Did you mean " in message


def test_a_tokenizer_for_a_model_that_does_not_read() -> None:
    message = refused(*ONE, "tokenizers.divtok/tiny-0.5n=divtok/tiny-0.5m")
    assert "tokenizers names 'divtok/tiny-0.5n'" in message


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://me:secret@127.0.0.1/v1", "user name or a password"),
        ("ftp://127.0.0.1/v1", "must begin with http"),
        ("127.0.0.1:8000", "must begin with http"),
        ("http://127.0.0.1/v1?key=secret", "query"),
        ("", "missing"),
    ],
)
def test_an_address_no_server_can_have(url: str, why: str) -> None:
    by_reading = refused(*ONE, f"servers.{GENERATOR}={url}", f"servers.{AUXILIARY}={URL}")
    assert why in by_reading
    assert "secret" not in by_reading
    if url:
        by_generating = refused_asking(*API, f"generate.api.base_url={url}")
        assert why in by_generating
        assert "secret" not in by_generating


def test_the_api_needs_an_address() -> None:
    message = refused_asking("generate.engine=api", "generators=[gpt]")
    assert "no base URL is given" in message
    assert "--base-url" in message
    check_engine(accepted(*API))


def test_a_run_that_could_not_ask_is_not_begun(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    config = load_config(None, ["generate.engine=api", "generators=[gpt]"])
    with run.lock(), pytest.raises(ConfigError, match="no base URL is given"):
        generation.generate(run, config)
    assert run.config_text() is None
    assert run.manifest() is None
    assert run.problems.read() == []


def test_how_a_server_is_asked_comes_from_the_config() -> None:
    config = load_config(
        None,
        [
            *API,
            "generators=[gpt, other]",
            "generate.api.token_ids=true",
            "generate.api.extra_body.min_p=0.1",
            "served_names.gpt=gpt-4.1-2025",
            "sampling.max_length=99",
            "seed=3",
        ],
    )
    first, second = engine_setups(config)
    assert first.options.sent == {"min_p": 0.1, "return_token_ids": True}
    assert first.options.server().base_url == URL
    assert (first.served_name, second.served_name) == ("gpt-4.1-2025", "other")
    assert (first.sampling.max_length, first.sampling.seed, first.seed) == (99, 3, 3)
    assert engine_setups(load_config(None, API))[0].options.sent == {}


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("generate.api.key_variable='sk-12 34'", "name of an environment variable"),
        ("generate.api.concurrency=5000", "concurrency"),
        ("generate.api.prompt_price=1", "go together"),
    ],
)
def test_settings_no_server_could_be_asked_with(override: str, why: str) -> None:
    message = refused_asking(*API, override)
    assert why in message
    assert "sk-12" not in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("generate.api.extra_body.temperature=1", "may not set 'temperature'"),
        ("generate.api.extra_body.api_key=hunter2", "may not set 'api_key'"),
        ("generate.api.extra_body.a={b: [{Authorization: hunter2}]}", "Authorization"),
        ("generate.api.extra_body.x=.nan", "not JSON"),
    ],
)
def test_a_secret_never_gets_into_a_config(override: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        load_config(None, [*API, override])
    assert "hunter2" not in str(caught.value)


def test_imported_responses_cannot_be_asked_about() -> None:
    message = refused(*IMPORTED, "score.estimators=verbalized")
    assert "'verbalized' cannot be scored: responses of the engine 'imported' cannot be" in message
    # Under the other protocols the response itself states it.
    accepted(*IMPORTED, "score.estimators=verbalized", "protocol=verbalized")
    accepted(*API, "score.estimators=verbalized")


@pytest.mark.parametrize("name", ["basecal", "basecal_proj"])
@pytest.mark.parametrize("engine", [API, IMPORTED], ids=["api", "imported"])
def test_base_models_take_the_generators_own_tokens(name: str, engine: tuple[str, ...]) -> None:
    own = (*engine[:-1], f"generators=['{GENERATOR}']") if engine is API else engine
    for given in (engine, own):
        message = refused(*given, f"score.estimators={name}", "bases.gpt=divtok/tiny-0.5m-base")
        assert f"'{name}' cannot be scored: it takes the generator's own tokens" in message


@pytest.mark.parametrize("name", ["uqac_attn", "uqac_global"])
def test_a_server_tells_no_attention(name: str) -> None:
    message = refused(*ONE, *SERVED, f"score.estimators={name}")
    assert f"'{name}' cannot be scored: a server does not give attention" in message
    accepted(*ONE, f"score.estimators={name}")
    # A foreign generator's responses are read by models with weights here: a chain can be had.
    accepted(*IMPORTED, f"score.estimators={name}")


@pytest.mark.parametrize("name", ["sampled_nsl", "sampled_mean_prob"])
def test_sampled_log_probs_must_be_asked_for(name: str) -> None:
    for given in (ONE, API, IMPORTED, (*IMPORTED, "generate.api.logprobs=true")):
        message = refused(*given, f"score.estimators={name}")
        assert f"'{name}' cannot be scored: no server was asked for log-probs" in message
    assert "generate.api.logprobs=true" in refused(*API, f"score.estimators={name}")
    accepted(*API, f"score.estimators={name}", "generate.api.logprobs=true")


@pytest.mark.parametrize(
    ("need", "meant"),
    [
        ("jsd_bit", "jsd_bits"),
        ("rewrds", "rewards"),
        ("total_variatoin", "total_variation"),
    ],
)
def test_an_estimator_that_needs_what_nobody_knows_is_refused(
    monkeypatch: pytest.MonkeyPatch, need: str, meant: str
) -> None:
    spec = Estimator(
        "odd", lambda _: 0.5, (need,), {}, bounded=True, ranking_only=False, summary="", label="Odd"
    )
    monkeypatch.setitem(ESTIMATORS._things, "odd", spec)
    monkeypatch.setitem(ESTIMATORS._origins, "odd", "a test")
    message = refused(*ONE, "score.estimators=['nsl','odd']")
    assert f"The estimator 'odd' needs '{need}', which is neither a column of a trace" in message
    assert f"Did you mean '{meant}'" in message
    accepted(*ONE, "score.estimators=['nsl']")


def test_names_that_are_twice_or_unknown() -> None:
    assert "is given twice in generators" in _message(*IMPORTED, "generators=[a, a]")
    assert "benchmark_files names 'c'" in refused(*IMPORTED, "benchmark_files.c=x.jsonl")


def _message(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check_choices(load_config(None, overrides))
    return str(caught.value)


def test_a_reader_that_is_not_there_is_refused_and_a_served_one_is_not_looked_for() -> None:
    with pytest.raises(ModelError, match="divtok/tiny-9m"):
        check_choices(load_config(None, [*ONE, "trace.reader=divtok/tiny-9m"]))
    accepted(
        *ONE,
        "trace.reader=divtok/tiny-9m",
        f"servers.divtok/tiny-9m={URL}",
        f"servers.{AUXILIARY}={URL}",
        f"tokenizers.divtok/tiny-9m={GENERATOR}",
    )


def test_a_served_readers_tokenizer_that_is_not_there_is_refused_before_the_long_work() -> None:
    with pytest.raises(ModelError, match="divtok/tiny-9m"):
        check_choices(
            load_config(
                None,
                [
                    *ONE,
                    "trace.reader=divtok/tiny-9m",
                    f"servers.divtok/tiny-9m={URL}",
                    f"servers.{AUXILIARY}={URL}",
                ],
            )
        )


def test_the_default_estimators_through_servers_need_no_exact_trace() -> None:
    served = [spec.name for spec in chosen_estimators(load_config(None, [*ONE, *SERVED]))]
    here = [spec.name for spec in chosen_estimators(load_config(None, ONE))]
    assert [name for name in here if name not in served] == ["entropy", "dtc_guarded"]
    assert set(served) <= set(here)
    assert {"dtc_lin", "dtc_prod", "nsl", "mean_prob"} <= set(served)
    assert "entropy" not in [
        spec.name
        for spec in chosen_estimators(load_config(None, [*ONE, *SERVED, "protocol=verbalized"]))
    ]


def test_estimators_that_are_asked_for_are_chosen_also_through_servers() -> None:
    config = load_config(None, [*ONE, *SERVED, "score.estimators=[entropy, trace]"])
    assert "entropy" in [spec.name for spec in chosen_estimators(config)]
    check_choices(config)
    assert all(not spec.evidence for spec in ESTIMATORS if spec.name == "entropy")


def test_the_models_that_read_a_foreign_generator() -> None:
    assert models_read(load_config(None, IMPORTED)) == [GENERATOR, AUXILIARY]
    assert models_read(load_config(None, [*IMPORTED, "trace.reader=r", "trace.auxiliary=s"])) == [
        "r",
        "s",
    ]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(GENERATOR)


@pytest.fixture(scope="module")
def row(tokenizer: Any) -> Trajectory:
    return Trajectory(
        key="k",
        problem_id="1",
        benchmark="b",
        sample=0,
        generator="gpt",
        prompt_ids=prompt_ids(tokenizer, QUESTION),
        token_ids=response_ids(tokenizer, TEXT),
        text=TEXT,
        finish_reason="stop",
        protocol="cot",
        sampling=None,
    )


def test_ids_of_the_same_tokenizer_spell_what_they_should(tokenizer: Any, row: Trajectory) -> None:
    assert spelled_by(tokenizer, row, QUESTION)
    ended = replace(row, token_ids=(*row.token_ids, tokenizer.eos_token_id))
    assert spelled_by(tokenizer, ended, QUESTION)  # a server gives the end of turn, but no text
    assert spelled_by(tokenizer, row, f"  {QUESTION}\n")  # a template may strip it


@pytest.mark.parametrize(
    "change",
    [
        lambda row, _: {"text": row.text + " "},
        lambda row, _: {"text": " " + row.text},
        lambda row, _: {"text": row.text.replace("12 plus", "12  plus")},
        lambda row, _: {"text": row.text[:-1]},
        lambda row, _: {"text": ""},
        lambda row, _: {"token_ids": row.token_ids[::-1]},
        lambda row, _: {"token_ids": tuple(i + 1 for i in row.token_ids)},
        lambda row, size: {"token_ids": (*row.token_ids, size)},
        lambda row, size: {"prompt_ids": (size, *row.prompt_ids)},
        lambda row, _: {"token_ids": (*row.token_ids, 2**31 - 1)},
        lambda row, _: {"token_ids": ()},
        lambda row, _: {"prompt_ids": ()},
        lambda row, _: {"prompt_ids": row.token_ids},
        lambda row, _: {"prompt_ids": (5,)},
    ],
)
def test_any_other_ids_do_not(
    tokenizer: Any,
    row: Trajectory,
    change: Callable[[Trajectory, int], dict[str, Any]],
) -> None:
    changed = replace(row, **change(row, len(tokenizer)))
    assert not spelled_by(tokenizer, changed, QUESTION)


def test_another_question_is_not_in_the_prompt(tokenizer: Any, row: Trajectory) -> None:
    assert not spelled_by(tokenizer, row, QUESTION.replace("30", "31"))


def test_foreign_rows_come_in_the_readers_tokens(tokenizer: Any, row: Trajectory) -> None:
    config = load_config(None, IMPORTED)
    questions = {("b", "1"): QUESTION}
    rows = [
        row,
        replace(row, key="text", prompt_ids=(), token_ids=()),
        replace(row, key="others", token_ids=tuple(np.arange(9).tolist())),
        replace(row, key="no prompt", prompt_ids=()),
    ]
    read = as_read_by(GENERATOR, rows, questions, config).rows
    assert read[0] is row
    for found, given in zip(read[1:], rows[1:], strict=True):
        assert found == replace(
            given, prompt_ids=row.prompt_ids, token_ids=row.token_ids, retokenized=True
        )


def test_a_verbalized_protocol_has_its_own_prompt(tokenizer: Any, row: Trajectory) -> None:
    config = load_config(None, [*IMPORTED, "protocol=verbalized"])
    bare = replace(row, prompt_ids=(), token_ids=(), protocol="verbalized")
    (found,) = as_read_by(GENERATOR, [bare], {("b", "1"): QUESTION}, config).rows
    assert found.prompt_ids == prompt_ids(tokenizer, QUESTION, protocol="verbalized")
    assert found.prompt_ids != row.prompt_ids


def test_text_that_is_empty_or_spells_a_control_token(tokenizer: Any, row: Trajectory) -> None:
    config = load_config(None, IMPORTED)
    texts = ["", "<|im_end|> and on", "Für 30 €: 日本 🙂"]
    rows = [replace(row, key=t, text=t, prompt_ids=(), token_ids=()) for t in texts]
    read = as_read_by(GENERATOR, rows, {("b", "1"): QUESTION}, config).rows
    assert read[0].token_ids == ()
    assert tokenizer.eos_token_id not in read[1].token_ids
    assert [tokenizer.decode(t.token_ids) for t in read] == texts


def test_a_served_reader_is_read_with_the_tokenizer_that_the_config_names(row: Trajectory) -> None:
    config = load_config(
        None,
        [
            *IMPORTED,
            "trace.reader=served-only",
            f"servers.served-only={URL}",
            f"servers.{AUXILIARY}={URL}",
            f"tokenizers.served-only={GENERATOR}",
        ],
    )
    (found,) = as_read_by("served-only", [row], {("b", "1"): QUESTION}, config).rows
    assert found is row


def test_a_generator_with_weights_is_told_by_its_own_tokenizer(row: Trajectory) -> None:
    """Its ids are its own whatever they spell; the same tokenizer keeps them."""
    config = load_config(None, ONE)
    odd = replace(row, generator=GENERATOR, text="not what the ids spell", sampling=Sampling())
    (found,) = as_read_by("divtok/tiny-0.9m", [odd], {("b", "1"): QUESTION}, config).rows
    assert found is odd
