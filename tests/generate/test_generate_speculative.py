"""Speculative sampling with real models: the same tokens, the same numbers, whoever is beside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flash_samples import plain_flash
from generate_samples import jobs, small_model
from speculative_samples import FakeModel

from divtok.errors import ConfigError, ModelError
from divtok.generate import rows
from divtok.generate.decoding import Ask, decode
from divtok.generate.engine import ENGINES, EngineSetup
from divtok.generate.engines.speculative import SpeculativeSection
from divtok.generate.jobs import Job
from divtok.generate.speculative.blocks import Blocks
from divtok.generate.speculative.chances import Chances
from divtok.generate.speculative.recorder import Recorder
from divtok.generate.speculative.rounds import write_in_rounds
from divtok.generate.speculative.writing import SpeculativePair, make_pair
from divtok.generate.steps import Row
from divtok.models.load import LoadedModel, load_model
from divtok.packed import attention
from divtok.problems.benchmark import load_benchmark
from divtok.records import PER_TOKEN_FIELDS, Sampling

OPEN = Sampling(temperature=1.0, top_p=1.0)
GREEDY = Sampling(temperature=0.0)
SAMPLINGS = {
    "open": OPEN,
    "greedy": GREEDY,
    "penalty": Sampling(temperature=0.8, top_p=0.95, top_k=20, presence_penalty=1.5),
}
TINY, AUXILIARY = "divtok/tiny-1.6m", "divtok/tiny-0.3m"


def cut(loaded: LoadedModel, layers: int, *, width: int | None = None) -> LoadedModel:
    """The same model with its first layers only, and other rows of padding in its head."""
    config = type(loaded.model.config).from_dict(loaded.model.config.to_dict())
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    config.vocab_size = width or config.vocab_size
    model = type(loaded.model)(config).to(loaded.dtype).eval().requires_grad_(False)
    weights = {
        name: x[:width] if "embed_tokens" in name or "lm_head" in name else x
        for name, x in loaded.model.state_dict().items()
    }
    model.load_state_dict(weights, strict=False)
    model.generation_config.eos_token_id = loaded.model.generation_config.eos_token_id
    return replace(loaded, name=f"{loaded.name} cut", model=model)


def random_pair(name: str, tokenizer: Any, *, k: int = 3, ends_often: bool = True) -> Any:
    """A random generator in float64, and its first two layers with a narrower head."""
    generator = small_model(name, tokenizer, ends_often=ends_often)
    return make_pair(generator, cut(generator, 2, width=len(tokenizer) + 3), drafts=k)


def asks_of(limits: list[int], *, seed: int = 0) -> list[Ask]:
    rng = np.random.default_rng(seed)
    prompts = [tuple(map(int, rng.integers(3, 300, int(rng.integers(1, 30))))) for _ in limits]
    prompts[1] = prompts[0]
    return [
        Ask(f"key {seed} {i}", p, n) for i, (p, n) in enumerate(zip(prompts, limits, strict=True))
    ]


LIMITS = [int(x) for x in np.random.default_rng(2).integers(1, 90, 12)]


def written(pair: SpeculativePair, asks: list[Ask], sampling: Sampling) -> list[list[int]]:
    return [row.token_ids for row in pair.speak(asks, sampling)]


def plain(pair: SpeculativePair, asks: list[Ask], sampling: Sampling) -> list[list[int]]:
    return [list(row.token_ids) for row in decode(pair.generator, asks, sampling)]


@pytest.mark.parametrize(
    ("name", "k", "penalty"), [("Llama", 1, 0.0), ("Qwen2", 4, 0.9), ("Gemma3Text", 3, 0.0)]
)
def test_greedy_is_greedy_of_the_generator_alone(
    name: str, k: int, penalty: float, tokenizer: Any
) -> None:
    sampling = replace(GREEDY, presence_penalty=penalty)
    pair, asks = random_pair(name, tokenizer, k=k), asks_of(LIMITS)
    assert written(pair, asks, sampling) == plain(pair, asks, sampling)


def test_greedy_in_float32(tokenizer: Any) -> None:
    generator = small_model("Llama", tokenizer, ends_often=False)
    half = replace(generator, model=generator.model.float(), dtype=torch.float32)
    pair = make_pair(half, cut(half, 1), drafts=4)
    asks = asks_of([200, 3, 150], seed=5)  # beyond the room of a store
    assert written(pair, asks, GREEDY) == plain(pair, asks, GREEDY)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_without_drafts_the_tokens_are_those_of_plain_sampling(
    sampling: Sampling, tokenizer: Any
) -> None:
    pair = random_pair("Qwen2", tokenizer, k=0)
    asks = asks_of(LIMITS, seed=6)
    assert written(pair, asks, sampling) == plain(pair, asks, sampling)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_row_is_the_same_whoever_is_beside_it(sampling: Sampling, tokenizer: Any) -> None:
    pair = random_pair("Llama", tokenizer)
    asks = asks_of(LIMITS, seed=3)
    together = written(pair, asks, sampling)
    assert together == [written(pair, [ask], sampling)[0] for ask in asks]
    for ask, row in zip(asks, together, strict=True):
        ends = [place for place, token in enumerate(row) if token in pair.generator.end_ids]
        assert ends == [len(row) - 1] if len(row) < ask.limit else ends in ([], [len(row) - 1])


def test_rows_leave_and_ended_rows_may_be_carried_along(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, asks = random_pair("Qwen2", tokenizer), asks_of([40, 1, 25, 60, 12, 33, 60], seed=4)
    checked: list[int] = []  # rows of each pass of the generator
    read = Blocks.read

    def watched(blocks: Blocks, tokens: torch.Tensor) -> torch.Tensor:
        if blocks._model is pair.generator.model:
            checked.append(len(tokens))
        return read(blocks, tokens)

    monkeypatch.setattr(Blocks, "read", watched)
    expected = pair.speak(asks, OPEN)
    assert checked == sorted(checked, reverse=True)
    assert sum(checked) == sum(row.rounds for row in expected), "no row is read after its end"
    checked.clear()
    monkeypatch.setattr(Blocks, "should_close_up", lambda blocks, live: live <= 2)
    assert pair.speak(asks, OPEN) == expected
    assert set(checked) <= {7, 2, 1}


def test_as_on_a_gpu_by_flash_attention_and_with_results_that_are_overwritten(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorded step gives its result in one place, which the next replay writes over."""
    pair, asks = random_pair("Gemma3Text", tokenizer), asks_of(LIMITS, seed=7)
    expected = written(pair, asks, OPEN)
    usual = Blocks._next
    places: dict[Any, torch.Tensor] = {}

    def replayed(blocks: Blocks, tokens: torch.Tensor) -> torch.Tensor:
        found = usual(blocks, tokens)
        key = (blocks._model, tokens.shape)
        return places.setdefault(key, torch.empty_like(found)).copy_(found)

    monkeypatch.setattr(Blocks, "_next", replayed)
    for place in (rows, attention):
        monkeypatch.setattr(place, "flash_takes", lambda query, value: True)
        monkeypatch.setattr(place, "flash", plain_flash)
    assert written(pair, asks, OPEN) == expected
    assert len(places) > 6


@pytest.fixture(scope="module")
def tiny() -> SpeculativePair:
    generator, auxiliary = (load_model(name, device="cpu") for name in (TINY, AUXILIARY))
    return make_pair(generator, auxiliary, drafts=4)


def tiny_jobs(sampling: Sampling, count: int = 6) -> list[Job]:
    problems = load_benchmark("arith-easy", limit=count)
    return [Job(problem, 0, TINY, "cot", sampling) for problem in problems]


@pytest.mark.parametrize("k", [0, 1, 5])
def test_the_embedded_models_write_and_trace_in_one_go(k: int, tiny: SpeculativePair) -> None:
    """Greedy as alone; the trace is that of a pass over the text, the end token's row among it."""
    pair, ends = replace(tiny, drafts=k), set[str]()
    for sampling in (
        replace(GREEDY, max_length=400),
        replace(OPEN, temperature=1.3, max_length=110),  # ends within a round
    ):
        made = pair.generate_batch(tiny_jobs(sampling))
        asks = [Ask(t.key, t.prompt_ids, sampling.max_length - len(t.prompt_ids)) for t, _ in made]
        if sampling.temperature == 0 or k == 0:
            assert [list(t.token_ids) for t, _ in made] == plain(pair, asks, sampling)
        ends |= {t.finish_reason for t, _ in made}
        for (trajectory, trace), read in zip(
            made, pair.pair.trace_batch([t for t, _ in made]), strict=True
        ):
            assert trace is not None
            assert len(trace) == len(trajectory.token_ids)
            for name in PER_TOKEN_FIELDS:
                ours, theirs = getattr(trace, name), getattr(read, name)
                bound = 1e-5 if name == "jsd_bits" else 1e-4
                np.testing.assert_allclose(ours, theirs, atol=bound, rtol=0, err_msg=name)
            for name in ("p", "q", "answer_start", "answer_stop", "turn_end", "status", "exact"):
                assert getattr(trace, name) == getattr(read, name)
    assert ends == {"stop", "length"}


def test_further_divergences_are_recorded_where_they_are_asked_for(tiny: SpeculativePair) -> None:
    from divtok.divergences.divergence import DIVERGENCES, further

    asked = further([DIVERGENCES.get("total_variation").column])
    pair = replace(tiny, divergences=asked)
    ((trajectory, trace),) = pair.generate_batch(tiny_jobs(replace(OPEN, max_length=150), 1))
    assert trace is not None
    (found,) = trace.others.values()
    assert len(found) == len(trajectory.token_ids)
    # JSD lies between functions of the total variation; the upper one is itself, in bits.
    assert (trace.jsd_bits <= found + 1e-6).all()


def test_a_prompt_without_room_has_no_trace(tiny: SpeculativePair) -> None:
    ((trajectory, trace),) = tiny.generate_batch(tiny_jobs(replace(OPEN, max_length=5), 1))
    assert trajectory.failed
    assert trace is None


def test_what_is_recorded_is_about_the_shared_tokens_and_in_their_order() -> None:
    """Known logits: the log-probs of a row are those of its own tokens, cut to both heads."""
    rng = np.random.default_rng(8)
    tables = [rng.normal(size=(5, 5, width)) for width in (8, 6)]
    models = [FakeModel(table) for table in tables]
    recorder = Recorder(models[0].head, models[1].head, vocab_size=6)
    asked = [Row(number, (number % 5, 2), 3 + number % 7) for number in range(40)]
    chances = Chances(
        [f"k{row.number}" for row in asked], OPEN, width=5, drafts=2, device=torch.device("cpu")
    )
    spoken = write_in_rounds(*models, asked, chances, end_ids={0}, recorder=recorder)
    for row, said, columns in zip(asked, spoken, recorder.columns(len(asked)), strict=True):
        for name, table in zip("pq", tables, strict=True):
            logprobs = []
            for place, token in enumerate(said.token_ids):
                before, last = (*row.prompt, *said.token_ids[:place])[-2:]
                z = table[before, last, :6]
                logprobs.append(z[token] - np.log(np.exp(z).sum()))
            np.testing.assert_allclose(columns[f"logprob_{name}"], logprobs, atol=1e-5)


def test_logits_that_are_no_numbers_are_refused() -> None:
    for broken in (0, 1):
        tables = [np.zeros((3, 3, 3)) for _ in range(2)]
        tables[broken][:, 2] = np.nan  # behind token 2
        chances = Chances(["k"], OPEN, width=3, drafts=2, device=torch.device("cpu"))
        models = [FakeModel(table) for table in tables]
        with pytest.raises(ModelError, match="are not numbers"):
            write_in_rounds(*models, [Row(0, (1, 2), 50)], chances, end_ids=set())


def test_models_that_cannot_write_together_are_refused(
    tokenizer: Any, tiny: SpeculativePair
) -> None:
    generator = small_model("Qwen2", tokenizer)
    with pytest.raises(ModelError, match="Lfm2' cannot take part"):
        make_pair(generator, small_model("Lfm2", tokenizer), drafts=2)
    with pytest.raises(ModelError, match="do not share their vocabulary"):
        make_pair(tiny.generator, generator, drafts=2)
    with pytest.raises(ModelError, match="could not read all that is written"):
        make_pair(generator, cut(generator, 1, width=len(tokenizer) - 2), drafts=2)
    short = cut(generator, 1)
    short.model.config.max_position_embeddings = 100
    pair = make_pair(generator, short, drafts=2)
    with pytest.raises(ConfigError, match="the auxiliary 'Qwen2 cut' reads 100"):
        pair.generate_batch(jobs(OPEN, 1))


def test_the_engine_wants_an_auxiliary_of_its_own() -> None:
    engine = ENGINES.get("speculative")
    setup = EngineSetup(
        model=TINY, sampling=OPEN, served_name=TINY, options=SpeculativeSection(), device="cpu"
    )
    with pytest.raises(ConfigError, match="No auxiliary is given"):
        engine.check(setup)
    with pytest.raises(ConfigError, match="cannot draft for itself"):
        engine.check(replace(setup, auxiliary=TINY))
    known = engine.identity([replace(setup, auxiliary=AUXILIARY)])
    assert (known["engine"], known["generate.speculative.k"]) == ("speculative", {TINY: 4})
    assert known["trace.auxiliary"] == {TINY: AUXILIARY}
