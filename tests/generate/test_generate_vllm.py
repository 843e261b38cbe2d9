"""What vLLM is started with and asked for, and what is kept of its answers; vLLM is a stand-in.

The real one is tried by `make vllm`.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from generate_samples import END_TOKEN, jobs

from divtok.errors import MissingExtraError, ModelError, UsageError
from divtok.generate.engines.vllm import load_vllm, row_seed
from divtok.models.load import load_model, load_tokenizer
from divtok.models.packaged import resolve_model
from divtok.protocols.encode import prompt_ids
from divtok.records import Reason, Sampling

SAMPLING = Sampling(temperature=0.8, top_p=0.9, top_k=20, presence_penalty=1.0, max_length=200)


class EngineDeadError(Exception):
    pass


class FakeVllm:
    """Keeps what it is asked; answers with `answers`, one (token ids, finish reason) a prompt."""

    def __init__(self, *, gpus: int | None) -> None:
        self.options: dict[str, Any] = {}
        self.prompts: list[Any] = []
        self.params: list[dict[str, Any]] = []
        self.answers: list[tuple[list[int], str]] = []
        self.failure: Exception | None = None
        self.shut_down = 0
        self.platform = SimpleNamespace(
            is_cpu=lambda: gpus is None,
            is_cuda_alike=lambda: bool(gpus),
            device_count=lambda: gpus,
        )

    def start(self, **options: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        self.options = options
        core = SimpleNamespace(shutdown=self._shutdown)
        return SimpleNamespace(
            generate=self._generate, llm_engine=SimpleNamespace(engine_core=core)
        )

    def _generate(self, prompts: list[Any], params: list[Any], *, use_tqdm: bool) -> list[Any]:
        assert not use_tqdm
        if self.failure is not None:
            raise self.failure
        self.prompts, self.params = prompts, params
        return [
            SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, finish_reason=reason)])
            for ids, reason in self.answers
        ]

    def _shutdown(self) -> None:
        self.shut_down += 1


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What loading sets is taken back after the test."""
    for name in ("VLLM_LOGGING_STREAM", "VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def install(monkeypatch: pytest.MonkeyPatch, *, gpus: int | None) -> FakeVllm:
    """Put a stand-in in vLLM's place; with `gpus=None` it is the CPU build."""
    fake = FakeVllm(gpus=gpus)
    parts: dict[str, dict[str, Any]] = {
        "vllm": {"LLM": fake.start, "SamplingParams": dict},
        "vllm.platforms": {"current_platform": fake.platform},
        "vllm.v1.engine.exceptions": {"EngineDeadError": EngineDeadError},
    }
    for name, contents in parts.items():
        module = ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return fake


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeVllm]:
    return install(monkeypatch, gpus=None)


def test_without_vllm_the_pip_line_is_named(
    monkeypatch: pytest.MonkeyPatch, saved_model: str
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'divtok\[vllm\]'"):
        load_vllm(saved_model, max_length=200)


def test_what_vllm_is_started_with(fake: FakeVllm, saved_model: str) -> None:
    load_vllm(saved_model, revision="abc", max_length=200, gpu_memory=0.5, seed=2**40 + 7)
    assert fake.options == {
        "model": saved_model,
        "revision": "abc",
        "tokenizer_revision": "abc",
        "dtype": "float32",
        "load_format": "safetensors",
        "tensor_parallel_size": 1,
        "max_model_len": 200,
        "seed": 7,
        "enable_prefix_caching": True,
        "generation_config": "vllm",
        "use_tqdm_on_load": False,
        "enforce_eager": True,
        "enable_chunked_prefill": False,
        "gpu_memory_utilization": 0.5,
    }


def test_on_gpus(monkeypatch: pytest.MonkeyPatch, saved_model: str) -> None:
    fake = install(monkeypatch, gpus=4)
    load_vllm(saved_model, dtype="bfloat16", tensor_parallel=4, max_length=200)
    assert fake.options["tensor_parallel_size"] == 4
    assert fake.options["dtype"] == "bfloat16"
    assert not {"enforce_eager", "enable_chunked_prefill"} & set(fake.options), "as vLLM likes it"
    assert "gpu_memory_utilization" not in fake.options, "vLLM's own default"


def test_automatic_dtype_on_a_gpu_is_that_of_load_model(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    fake = install(monkeypatch, gpus=1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    load_vllm("divtok/tiny-0.5m", max_length=200)  # stored in float16 to be small, no more
    assert fake.options["dtype"] == "float32"
    load_vllm(resolve_model("divtok/tiny-0.5m"), max_length=200)  # any folder with float16
    assert fake.options["dtype"] == "bfloat16"


def test_a_packaged_model_is_a_folder(fake: FakeVllm) -> None:
    load_vllm("divtok/tiny-0.5m", max_length=200)
    assert fake.options["model"] == resolve_model("divtok/tiny-0.5m")
    assert Path(fake.options["model"]).is_dir()


def test_a_gguf_file_is_read_from_its_converted_copy(
    fake: FakeVllm, gguf_sample: Any, gguf_cache: Path
) -> None:
    pytest.importorskip("gguf")
    load_vllm(str(gguf_sample.path), max_length=100)
    assert Path(fake.options["model"]).is_relative_to(gguf_cache)
    assert list(Path(fake.options["model"]).glob("*.safetensors"))


def test_results_keep_standard_output_and_nobody_is_told(
    fake: FakeVllm, saved_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    load_vllm(saved_model, max_length=200)
    assert os.environ["VLLM_LOGGING_STREAM"] == "ext://sys.stderr"
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"
    assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG", "what the user has set stays"


@pytest.mark.parametrize("gpus", [None, 1, 2])
def test_more_parallelism_than_gpus_is_refused_before_loading(
    gpus: int | None, saved_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = install(monkeypatch, gpus=gpus)
    with pytest.raises(UsageError, match=f"tensor_parallel={gpus or 1},"):
        load_vllm(saved_model, tensor_parallel=3, max_length=200)
    assert fake.options == {}


def test_no_gpu_is_told_before_loading(monkeypatch: pytest.MonkeyPatch, saved_model: str) -> None:
    fake = install(monkeypatch, gpus=0)
    with pytest.raises(ModelError, match="finds no GPU") as caught:
        load_vllm(saved_model, max_length=200)
    assert "generate.engine=transformers" in str(caught.value)
    assert "generate.engine=api" in str(caught.value)
    assert fake.options == {}


def test_a_broken_installation_is_told(
    fake: FakeVllm, saved_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = ModuleType("vllm.platforms")

    def fail(name: str) -> Any:
        raise RuntimeError("operator torchvision::nms does not exist")

    broken.__getattr__ = fail  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "vllm.platforms", broken)
    with pytest.raises(ModelError, match="torchvision::nms"):
        load_vllm(saved_model, max_length=200)


def test_a_model_vllm_cannot_start_is_told(fake: FakeVllm, saved_model: str) -> None:
    fake.failure = RuntimeError("Engine core initialization failed.")
    with pytest.raises(ModelError, match=r"initialization failed.*gpu_memory") as caught:
        load_vllm(saved_model, max_length=200)
    assert saved_model in str(caught.value)


def copy_of(saved_model: str, folder: Path, **settings: Any) -> str:
    """The same model with other settings in its config and without a generation preset."""
    shutil.copytree(saved_model, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))
    (folder / "generation_config.json").unlink()
    return str(folder)


def test_the_end_tokens_are_those_of_the_transformers_engine(
    fake: FakeVllm, saved_model: str, tmp_path: Path
) -> None:
    plain = copy_of(saved_model, tmp_path / "plain")
    preset = Path(copy_of(saved_model, tmp_path / "preset"))
    (preset / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    for folder, expected in ((saved_model, {2}), (plain, {2}), (str(preset), {2, 7, 9})):
        engine = load_vllm(folder, max_length=200)
        fake.answers = [([5], "length")]
        engine.generate_batch(jobs(SAMPLING, 1))
        assert set(fake.params[0]["stop_token_ids"]) == expected
        assert load_model(folder, device="cpu").end_ids == expected


def test_a_model_that_names_no_end_is_refused(
    fake: FakeVllm, saved_model: str, tmp_path: Path
) -> None:
    folder = copy_of(saved_model, tmp_path, eos_token_id=None)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del settings["eos_token"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match="no end token"):
        load_vllm(folder, max_length=200)


def test_too_many_ids_without_a_token_are_refused(
    fake: FakeVllm, saved_model: str, tmp_path: Path
) -> None:
    width = len(load_tokenizer(saved_model))
    load_vllm(copy_of(saved_model, tmp_path, vocab_size=width + 1024), max_length=200)
    folder = copy_of(saved_model, tmp_path, vocab_size=width + 1025)
    with pytest.raises(ModelError, match="1025 ids"):
        load_vllm(folder, max_length=200)


def test_each_row_has_its_own_prompt_seed_and_limit(fake: FakeVllm, saved_model: str) -> None:
    engine = load_vllm(saved_model, max_length=200)
    todo = jobs(SAMPLING)
    fake.answers = [([5, END_TOKEN], "stop")] * len(todo)
    written = engine.generate_batch(todo)
    tokenizer = load_tokenizer(saved_model)
    prompts = [prompt_ids(tokenizer, job.problem.question) for job in todo]
    assert fake.prompts == [{"prompt_token_ids": list(prompt)} for prompt in prompts]
    assert [t.prompt_ids for t in written] == prompts
    assert [p["max_tokens"] for p in fake.params] == [200 - len(prompt) for prompt in prompts]
    assert [p["seed"] for p in fake.params] == [row_seed(job.key) for job in todo]
    assert len({p["seed"] for p in fake.params}) == len(todo)


def test_the_sampling_reaches_vllm_as_it_is(fake: FakeVllm, saved_model: str) -> None:
    engine = load_vllm(saved_model, max_length=300)
    width = len(load_tokenizer(saved_model))
    plain = Sampling(temperature=0.0, max_length=100)
    todo = [*jobs(SAMPLING, 1), *jobs(plain, 1)]
    fake.answers = [([5], "length"), ([6], "length")]
    engine.generate_batch(todo)
    first, second = fake.params
    # The model's output layer has eight ids more than the tokenizer.
    shared = {
        "stop_token_ids": [END_TOKEN],
        "logit_bias": {width + i: float("-inf") for i in range(8)},
        "detokenize": False,
    }
    del first["seed"], first["max_tokens"], second["seed"], second["max_tokens"]
    assert first == {
        **shared,
        "temperature": 0.8,
        "top_p": 0.9,
        "top_k": 20,
        "presence_penalty": 1.0,
    }
    assert second == {
        **shared,
        "temperature": 0.0,
        "top_p": 0.95,
        "top_k": 0,
        "presence_penalty": 0.0,
    }


def test_ids_and_text_are_kept_as_by_the_transformers_engine(
    fake: FakeVllm, saved_model: str
) -> None:
    engine = load_vllm(saved_model, max_length=200)
    hello = load_tokenizer(saved_model)("Add 12 and 30")["input_ids"]
    fake.answers = [([*hello, END_TOKEN], "stop"), (hello, "length")]
    todo = jobs(SAMPLING, 2)
    stopped, cut = engine.generate_batch(todo)
    assert (stopped.key, cut.key) == tuple(job.key for job in todo)
    assert stopped.token_ids == (*hello, END_TOKEN)
    assert cut.token_ids == tuple(hello)
    assert stopped.text == cut.text == "Add 12 and 30", "without the end token"
    assert (stopped.finish_reason, cut.finish_reason) == ("stop", "length")
    assert stopped.sampling == SAMPLING
    assert not stopped.retokenized


def test_row_seeds_fit_a_signed_number_of_64_bits() -> None:
    seeds = [row_seed(str(i)) for i in range(1000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == 1000
    assert max(seeds) > 2**62, "all of the range is used"


@pytest.mark.parametrize(
    "changed",
    [{"temperature": 2.5}, {"temperature": 0.005}, {"presence_penalty": -3.0}],
)
def test_what_vllm_would_not_sample_as_asked_is_refused(
    fake: FakeVllm, saved_model: str, changed: dict[str, Any]
) -> None:
    engine = load_vllm(saved_model, max_length=200)
    with pytest.raises(UsageError, match="vLLM cannot sample"):
        engine.generate_batch(jobs(replace(SAMPLING, **changed), 1))


def test_a_length_that_vllm_was_not_started_for_is_refused(
    fake: FakeVllm, saved_model: str
) -> None:
    engine = load_vllm(saved_model, max_length=200)
    with pytest.raises(UsageError, match=r"started for 200 tokens.*is 201"):
        engine.generate_batch(jobs(replace(SAMPLING, max_length=201), 1))


def test_a_prompt_without_room_is_a_failed_row_that_vllm_never_sees(
    fake: FakeVllm, saved_model: str
) -> None:
    engine = load_vllm(saved_model, max_length=200)
    (short,) = engine.generate_batch(jobs(replace(SAMPLING, max_length=20), 1))
    assert (short.failed, fake.prompts) == (True, [])
    assert isinstance(short.reason, Reason)
    assert short.reason.kind == "too_long"
    first, second = jobs(SAMPLING, 2)
    fake.answers = [([5, END_TOKEN], "stop")]
    tight = replace(first, sampling=replace(SAMPLING, max_length=20))
    rows = engine.generate_batch([tight, second])
    assert [(t.key, t.failed) for t in rows] == [(tight.key, True), (second.key, False)]
    assert len(fake.prompts) == 1


def test_a_response_vllm_gives_up_is_an_error(fake: FakeVllm, saved_model: str) -> None:
    engine = load_vllm(saved_model, max_length=200)
    fake.answers = [([5], "abort")]
    with pytest.raises(ModelError, match=r"gave up.*abort"):
        engine.generate_batch(jobs(SAMPLING, 1))


def test_a_process_that_dies_is_told(fake: FakeVllm, saved_model: str) -> None:
    engine = load_vllm(saved_model, max_length=200)
    fake.failure = EngineDeadError("gone")
    with pytest.raises(ModelError, match="ended while it was generating"):
        engine.generate_batch(jobs(SAMPLING, 1))


def test_closing_ends_vllm_once(fake: FakeVllm, saved_model: str) -> None:
    with load_vllm(saved_model, max_length=200) as engine:
        assert fake.shut_down == 0
    assert fake.shut_down == 1
    engine.close()
    assert fake.shut_down == 1
    with pytest.raises(UsageError, match="has been closed"):
        engine.generate_batch(jobs(SAMPLING, 1))


def test_an_error_within_the_block_still_ends_vllm(fake: FakeVllm, saved_model: str) -> None:
    with pytest.raises(KeyboardInterrupt), load_vllm(saved_model, max_length=200):
        raise KeyboardInterrupt
    assert fake.shut_down == 1
