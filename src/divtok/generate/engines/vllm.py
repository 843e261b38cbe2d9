"""The engine "vllm": a model in vLLM's own processes, many rows at once, on one GPU or several.

The prompts are divtok's own token ids, and ids and text are kept as the transformers engine keeps
them. Each row has its own seed, but vLLM draws and rounds in its own way, so the tokens are not
those of the transformers engine. Knows nothing of where jobs come from and where trajectories go.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field

from divtok.errors import ConfigError, ModelError, UsageError
from divtok.generate.asks import Ask, Written
from divtok.generate.engine import (
    Engine,
    EngineSetup,
    Generated,
    Write,
    register,
    weights_identity,
)
from divtok.generate.engines.transformers import REPLIES
from divtok.generate.jobs import Job, written_by
from divtok.models.errors import need_module, need_transformers, reading
from divtok.models.files import weight_map
from divtok.models.load import (
    DType,
    end_ids_of,
    generation_preset,
    load_tokenizer,
    model_place,
    read_config,
    resolve_dtype,
)
from divtok.records import Sampling, Trajectory
from divtok.section import Positive, Section

# vLLM quietly raises a temperature between 0 and this one, and takes none above the other.
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 2.0
MAX_PENALTY = 2.0

# The most logit biases vLLM's sampler on a GPU has room for in one request.
MAX_BIASES = 1024

# For vLLM's processes, where the user has not set them: standard output belongs to our results,
# and no usage is reported to anyone.
_ENVIRONMENT = {
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}

# Compiling takes minutes, and a compiler. The CPU build of 0.32 dies as soon as it reads the prompt
# of a row with a seed in two parts.
_FOR_THE_CPU = {"enforce_eager": True, "enable_chunked_prefill": False}

_ELSEWHERE = (
    "Use generate.engine=transformers, or start a server where there is a GPU and use "
    "generate.engine=api."
)


class VllmSection(Section):
    """The section generate.vllm of a config."""

    tensor_parallel: Positive = 1  # GPUs that share each layer
    gpu_memory: Annotated[float, Field(gt=0.0, le=1.0)] | None = None  # left out: vLLM's own


@dataclass(slots=True, eq=False)
class VllmModel:
    """A model loaded by vLLM. It holds GPU memory until `close`, or the end of a `with` block.

    `end_ids` end a response. `padding` are ids that only fill up the model's output layer: they
    are not tokens and are never sampled.
    """

    name: str
    max_length: int
    tokenizer: Any
    end_ids: frozenset[int]
    padding: range
    _llm: Any  # None when it is closed

    def generate_batch(self, jobs: Sequence[Job]) -> list[Trajectory]:
        """One trajectory for each job, in order. vLLM divides them into batches by itself."""
        for sampling in {job.sampling for job in jobs}:
            check_sampling(sampling)
            if sampling.max_length > self.max_length:
                raise UsageError(
                    f"vLLM was started for {self.max_length} tokens, and max_length is "
                    f"{sampling.max_length}.",
                    next_step="Start it with the largest max_length that will be asked for.",
                )
        samplings = {job.key: job.sampling for job in jobs}
        return written_by(lambda asks: self._write(asks, samplings), self.tokenizer, jobs)

    def close(self) -> None:
        """End vLLM's processes, and with them what they hold of the GPUs."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, asks: Sequence[Ask], samplings: Mapping[str, Sampling]) -> list[Written]:
        if self._llm is None:
            raise UsageError(
                f"The model '{self.name}' has been closed.", next_step="Load it again."
            )
        prompts = [{"prompt_token_ids": list(ask.prompt)} for ask in asks]
        params = [self._params(ask, samplings[ask.key]) for ask in asks]
        try:
            outputs = self._llm.generate(prompts, params, use_tqdm=False)
        except _vllm("v1.engine.exceptions").EngineDeadError as error:
            raise ModelError(
                f"vLLM's process for '{self.name}' ended while it was generating.",
                next_step="Its last lines above say why; where memory ran out, lower "
                "generate.vllm.gpu_memory or sampling.max_length. Then run the same command again.",
            ) from error
        return [self._written(output.outputs[0]) for output in outputs]

    def _params(self, ask: Ask, sampling: Sampling) -> Any:
        return _vllm().SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=0 if sampling.top_k is None else sampling.top_k,
            presence_penalty=sampling.presence_penalty,
            seed=row_seed(ask.key),
            max_tokens=ask.limit,
            stop_token_ids=sorted(self.end_ids),
            logit_bias=dict.fromkeys(self.padding, float("-inf")) or None,
            detokenize=False,
        )

    def _written(self, completion: Any) -> Written:
        token_ids = tuple(int(token) for token in completion.token_ids)
        if completion.finish_reason not in ("stop", "length"):
            raise ModelError(
                f"vLLM gave up a response of '{self.name}' ({completion.finish_reason}).",
                next_step="Run the same command again; finished rows are kept.",
            )
        text = self.tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return Written(token_ids, text, completion.finish_reason)


def load_vllm(
    ref: str,
    *,
    revision: str | None = None,
    dtype: DType = "auto",
    tensor_parallel: int = 1,
    max_length: int,
    gpu_memory: float | None = None,
    seed: int = 0,
) -> VllmModel:
    """A model in vLLM's own processes: a folder, a packaged model, a GGUF file or a hub id.

    `tensor_parallel` GPUs share each layer; `gpu_memory` is the part of each that vLLM may fill
    (left out: its own default). `dtype="auto"` follows the rule of `divtok.models.load.load_model`.
    vLLM's CPU build will do. ModelError where there is neither that nor a GPU.
    """
    need_module("vllm", "vllm", purpose="Generating with vLLM")
    need_transformers()
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    device = _check_devices(tensor_parallel)
    place = model_place(ref)
    number = resolve_dtype(ref, dtype, device=device, revision=revision)
    tokenizer, end_ids, padding = _read_vocabulary(ref, place, revision)
    weight_map(ref, place, revision)  # refuses what is not safetensors
    options: dict[str, Any] = {
        "model": place,
        "revision": revision,
        "tokenizer_revision": revision,
        "dtype": number,
        "load_format": "safetensors",  # never pickled weights
        "tensor_parallel_size": tensor_parallel,
        "max_model_len": max_length,
        # Rows are seeded one by one; this one must fit what numpy takes.
        "seed": seed % 2**32,
        "enable_prefix_caching": True,  # the samples of a problem share its prompt
        # The checkpoint's own preset must not change how we sample.
        "generation_config": "vllm",
        "use_tqdm_on_load": False,  # the stages report their own progress
    }
    if device == "cpu":
        options |= _FOR_THE_CPU
    if gpu_memory is not None:
        options["gpu_memory_utilization"] = gpu_memory
    next_step = (
        "vLLM's own lines above say more. Where memory is short, lower sampling.max_length, set "
        "generate.vllm.gpu_memory, or share the model among more GPUs "
        "(generate.vllm.tensor_parallel)."
    )
    with reading(f"The model '{ref}' in vLLM", next_step=next_step):
        llm = _vllm().LLM(**options)
    return VllmModel(ref, max_length, tokenizer, end_ids, padding, llm)


def check_sampling(sampling: Sampling) -> None:
    """Refuse, before anything is loaded, what vLLM would not sample as asked."""
    temperature = sampling.temperature
    if temperature > MAX_TEMPERATURE or 0 < temperature < MIN_TEMPERATURE:
        raise UsageError(
            f"vLLM cannot sample at temperature {temperature:g}.",
            next_step=f"Use 0, or from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}; "
            "or generate.engine=transformers.",
        )
    if abs(sampling.presence_penalty) > MAX_PENALTY:
        raise UsageError(
            f"vLLM cannot sample with presence_penalty {sampling.presence_penalty:g}.",
            next_step=f"Use one from -{MAX_PENALTY:g} to {MAX_PENALTY:g}.",
        )


def row_seed(key: str) -> int:
    """The seed of one trajectory, within what vLLM's samplers hold (63 bits)."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1


def _check_devices(tensor_parallel: int) -> str:
    """Where vLLM will run: "cuda" or "cpu". Refuses a machine without either, or too few GPUs."""
    # A build that does not fit the machine fails in many ways while it is imported.
    with reading("vLLM", next_step="Install a build of vLLM for this machine. " + _ELSEWHERE):
        platform = _vllm("platforms").current_platform
    device = "cpu" if platform.is_cpu() else "cuda"
    count = int(platform.device_count()) if platform.is_cuda_alike() else int(device == "cpu")
    if count == 0:
        raise ModelError("vLLM is installed, but it finds no GPU here.", next_step=_ELSEWHERE)
    if tensor_parallel > count:
        found = "its CPU build is installed" if device == "cpu" else f"vLLM finds {count} GPUs"
        raise UsageError(
            f"generate.vllm.tensor_parallel is {tensor_parallel}, but {found}.",
            next_step=f"Use generate.vllm.tensor_parallel={count}, or a machine with more GPUs.",
        )
    return device


def _vllm(part: str | None = None) -> Any:
    """vLLM or a part of it, which is typed only where it is installed."""
    return importlib.import_module("vllm" if part is None else f"vllm.{part}")


def _read_vocabulary(
    ref: str, place: str, revision: str | None
) -> tuple[Any, frozenset[int], range]:
    """The tokenizer, the ids that end a response, and those that are not tokens."""
    config = read_config(place, ref, revision, False)
    tokenizer = load_tokenizer(ref, revision=revision)
    end_ids = end_ids_of(config, generation_preset(place, revision), tokenizer)
    if not end_ids:
        raise ModelError(
            f"The model '{ref}' names no end token, so no response would ever end.",
            next_step="Set eos_token_id in its generation_config.json.",
        )
    width = max(tokenizer.get_vocab().values()) + 1
    padding = range(width, config.get_text_config().vocab_size)
    if len(padding) > MAX_BIASES:
        raise ModelError(
            f"The output layer of '{ref}' has {len(padding)} ids that are not tokens, and vLLM "
            f"can leave out {MAX_BIASES} at most.",
            next_step="Use generate.engine=transformers.",
        )
    return tokenizer, end_ids, padding


def _check(setup: EngineSetup) -> None:
    check_sampling(setup.sampling)
    if setup.device or setup.device_map:
        raise ConfigError(
            "vLLM finds its GPUs itself: generate.device and .device_map say nothing to it.",
            next_step="Leave them out; generate.vllm.tensor_parallel spreads a model over GPUs.",
        )


@contextmanager
def _open(setup: EngineSetup) -> Generator[Write]:
    options: VllmSection = setup.options
    with load_vllm(
        setup.model,
        revision=setup.revision,
        dtype=setup.dtype,
        tensor_parallel=options.tensor_parallel,
        max_length=setup.sampling.max_length,
        gpu_memory=options.gpu_memory,
        seed=setup.seed,
    ) as model:
        yield lambda batches: (
            [Generated(trajectory) for trajectory in model.generate_batch(batch)]
            for batch in batches
        )


register(
    Engine(
        name="vllm",
        summary="Weights on this machine, sampled by vLLM.",
        weights_here=True,
        options=VllmSection,
        check=_check,
        open=_open,
        own_identity=lambda setups: {"engine": "vllm"} | weights_identity(setups),
        replies=REPLIES,
    )
)
