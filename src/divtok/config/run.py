"""The one configuration of a run: a strict YAML file with dotted overrides.

An unknown key is an error, and all errors are reported at once. Values left out come from the
family. Reads files and checks values; loads no model and no benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from divtok.config.tree import override_tree
from divtok.endpoints.settings import DEFAULT_KEY_VARIABLE, ServerSettings
from divtok.errors import ConfigError, UsageError
from divtok.families.family import Family, Generator, get_family
from divtok.generate.extra_body import extra_body_problems
from divtok.models.load import DType
from divtok.protocols.prompts import Protocol
from divtok.records import Sampling, Scalar
from divtok.strict_yaml import NOT_SHOWN, invalid, read_tree
from divtok.trace.budget import DEFAULT_TOKENS, Budget

Engine = Literal["transformers", "vllm", "api", "imported"]
# Their generators have no weights here, so any name will do.
FOREIGN_ENGINES: tuple[Engine, ...] = ("api", "imported")
TokenLimitField = Literal["max_tokens", "max_completion_tokens"]
Form = Literal["auto", "prompt_logprobs", "echo"]

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Names = Annotated[list[str], Field(min_length=1)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_values(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML reads `yes` and `on` as true, which would then pass for the number 1."""
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and field.annotation is not bool:
            raise PydanticCustomError("truth_value", "input should not be true or false")
        return value


class SamplingSection(Section):
    """Each value left out is the generator's own preset."""

    temperature: Annotated[float, Field(ge=0.0, le=10.0, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] | None = None
    top_k: Positive | None = None
    presence_penalty: Annotated[float, Field(ge=-2.0, le=2.0, allow_inf_nan=False)] | None = None
    max_length: Positive | None = None


class CallsSection(Section):
    """How patient to be with a server."""

    key_variable: str | None = DEFAULT_KEY_VARIABLE  # environment variable with the key; null: none
    concurrency: Positive = 8
    max_attempts: Positive = 6
    timeout_s: Seconds = 300.0  # one attempt
    deadline_s: Seconds = 1800.0  # one answer, with all attempts and waits
    first_wait_s: Seconds = 1.0  # before the second attempt; doubles up to max_wait_s
    max_wait_s: Seconds = 60.0

    def settings(self, base_url: str) -> ServerSettings:
        return ServerSettings(
            base_url,
            key_variable=self.key_variable,
            concurrency=self.concurrency,
            max_attempts=self.max_attempts,
            timeout_s=self.timeout_s,
            deadline_s=self.deadline_s,
            first_wait_s=self.first_wait_s,
            max_wait_s=self.max_wait_s,
        )


class ApiSection(CallsSection):
    """Generating through chat completions, where generate.engine is api."""

    base_url: str | None = None
    token_limit_field: TokenLimitField = "max_tokens"
    token_ids: bool = False  # ask for them, in vLLM's way
    logprobs: bool = False  # ask for those of the sampled tokens
    extra_body: dict[str, Any] = Field(default_factory=dict[str, Any])  # sent with each request
    prompt_price: Price | None = None  # of a million tokens
    completion_price: Price | None = None

    @field_validator("extra_body")
    @classmethod
    def _no_secrets(cls, value: dict[str, Any]) -> dict[str, Any]:
        wrong = extra_body_problems(value)
        if wrong:
            raise PydanticCustomError(
                NOT_SHOWN, "{wrong}. Leave it out of extra_body", {"wrong": "; ".join(wrong)}
            )
        return value


class VllmSection(Section):
    """Generating with vLLM, where generate.engine is vllm."""

    tensor_parallel: Positive = 1  # GPUs that share each layer
    gpu_memory: Annotated[float, Field(gt=0.0, le=1.0)] | None = None  # left out: vLLM's own


class GenerateSection(Section):
    engine: Engine = "transformers"
    api: ApiSection = ApiSection()
    vllm: VllmSection = VllmSection()
    batch_size: Positive = 128
    dtype: DType = "auto"
    device: str | None = None
    device_map: str | None = None  # spreads the model over all GPUs instead


class GradeSection(Section):
    workers: Positive = 2
    time_limit: Annotated[float, Field(gt=0.0, le=600.0, allow_inf_nan=False)] = 5.0


class PairSection(Section):
    reader: str | None = None  # p; left out: the generator (white-box) or the family's reader
    auxiliary: str | None = None  # q; left out: the family's


class TopKSection(CallsSection):
    """Reading through servers, for models that `servers` names."""

    top_k: Positive = 20  # log-probs to ask for at each token
    form: Form = "auto"  # how a server is asked for them


class TraceSection(PairSection):
    also: list[PairSection] = Field(default_factory=list[PairSection])  # traced, never scored
    max_batch_tokens: Positive = DEFAULT_TOKENS
    max_batch_rows: Positive = 64
    workspace_mb: Positive | None = None  # left out: 64 on the CPU, 640 on a GPU
    dtype: DType = "auto"
    device: str | None = None
    q_device: str | None = None  # left out: where p is
    device_map: str | None = None  # spreads both models over all GPUs instead
    compile: Literal["auto", "always", "never"] = "auto"
    server: TopKSection = TopKSection()

    def budget(self) -> Budget:
        """What tracing may hold at once, as a fresh value: it shrinks when memory runs out."""
        given = self.workspace_mb
        return Budget(self.max_batch_tokens, None if given is None else given * 1_000_000)


class EvidenceSection(Section):
    """What estimators need beside the trace; gathered only where one of them asks for it."""

    base_prompt: Literal["chat", "plain"] = "chat"  # what the base model sees of the question
    prm: str | None = None  # left out: the family's
    reply_tokens: Positive = 512  # most tokens of the reply to the question how sure it is
    relevance: str | None = None  # JSONL file with weights for each token


class ScoreSection(Section):
    estimators: Names | None = None  # names and sets; left out: those that a trace is enough for
    theta: Fraction | None = None  # left out: the family's
    n: Positive = 10
    a: Fraction = 0.95
    b: Fraction = 0.05
    k: Annotated[int, Field(ge=0)] = 4

    @field_validator("estimators", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _never_rising(self) -> Self:
        if self.b > self.a:
            raise PydanticCustomError(
                "rising",
                "b ({b}) is above a ({a}), so more divergence would mean more confidence",
                {"a": self.a, "b": self.b},
            )
        return self


class EvaluateSection(Section):
    draws: Positive = 5
    cap: Positive = 500
    bins: Positive = 20
    resamples: Positive = 1000


class RunConfig(Section):
    family: str = "tiny"
    generators: Names | None = None  # left out: all of the family's
    benchmarks: Names | None = None  # left out: the family's
    benchmark_files: dict[str, str] = Field(default_factory=dict)
    protocol: Protocol = "cot"
    limit: Positive | None = None  # problems per benchmark
    subset_seed: Annotated[int, Field(ge=0)] | None = None  # left out: the first ones, in order
    samples: Positive | None = None  # per problem; left out: the generator's
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    revisions: dict[str, str] = Field(default_factory=dict)  # model -> hub revision
    bases: dict[str, str] = Field(default_factory=dict)  # generator -> base, over the family's
    projections: dict[str, str] = Field(default_factory=dict)  # generator -> file
    servers: dict[str, str] = Field(default_factory=dict)  # model -> base URL of who reads with it
    served_names: dict[str, str] = Field(default_factory=dict)  # model -> its name on its server
    tokenizers: dict[str, str] = Field(default_factory=dict)  # model on a server -> its tokenizer
    sampling: SamplingSection = SamplingSection()
    generate: GenerateSection = GenerateSection()
    grade: GradeSection = GradeSection()
    trace: TraceSection = TraceSection()
    evidence: EvidenceSection = EvidenceSection()
    score: ScoreSection = ScoreSection()
    evaluate: EvaluateSection = EvaluateSection()

    @field_validator("family")
    @classmethod
    def _known_family(cls, name: str) -> str:
        try:
            get_family(name)
        except UsageError as error:
            raise PydanticCustomError("family", "{why}", {"why": str(error)}) from error
        return name

    @property
    def preset(self) -> Family:
        return get_family(self.family)

    def benchmark_names(self) -> list[str]:
        return list(self.benchmarks or self.preset.benchmarks)

    def generator_presets(self) -> list[Generator]:
        family = self.preset
        if self.generators is None:
            return list(family.generators)
        foreign = self.generate.engine in FOREIGN_ENGINES
        return [family.generator(model, foreign=foreign) for model in self.generators]

    def sampling_for(self, generator: Generator) -> Sampling:
        given = self.sampling.model_dump(exclude_none=True)
        return replace(generator.sampling, seed=self.seed, **given)

    def samples_for(self, generator: Generator, benchmark: str) -> int:
        if self.samples is not None:
            return self.samples
        if benchmark not in generator.samples:
            raise ConfigError(
                f"The family '{self.family}' has no sample count for benchmark '{benchmark}'.",
                next_step="Give one: samples=N",
            )
        return generator.samples[benchmark]

    def pair_for(self, generator: Generator) -> tuple[str, str]:
        """The pair whose traces are scored."""
        return self._pair(generator, self.trace)

    def pairs_for(self, generator: Generator) -> list[tuple[str, str]]:
        """Every pair that reads the generator's trajectories, the scored one first.

        A model is no pair with itself: with several generators, each is left out as its own
        auxiliary.
        """
        also = [self._pair(generator, section) for section in self.trace.also]
        others = [(p, q) for p, q in also if p != q]
        return list(dict.fromkeys([self.pair_for(generator), *others]))

    def _pair(self, generator: Generator, section: PairSection) -> tuple[str, str]:
        p, q = self.preset.pair_for(generator)
        return section.reader or p, section.auxiliary or q

    def base_for(self, generator: Generator) -> str | None:
        """The paired base model; None where the generator has none."""
        return self.bases.get(generator.model, generator.base)

    @property
    def prm(self) -> str | None:
        return self.evidence.prm or self.preset.prm

    @property
    def theta(self) -> float:
        return self.preset.theta if self.score.theta is None else self.score.theta

    def estimator_parameters(self) -> dict[str, Scalar]:
        score = self.score
        return {"theta": self.theta, "n": score.n, "a": score.a, "b": score.b, "k": score.k}


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """The config of a file (or none) with `dotted.key=value` overrides on top."""
    tree: dict[str, Any] = {} if path is None else read_tree(path, noun="config file")
    tree = override_tree(tree, overrides)
    return parse_config(tree, source="the overrides" if path is None else str(path))


def parse_config(tree: Mapping[str, Any], *, source: str) -> RunConfig:
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise invalid(error, RunConfig, source=source) from error


def resolve(config: RunConfig) -> RunConfig:
    """The config with the family's models, benchmarks and theta written out.

    A stored run then keeps its meaning when a preset changes.
    """
    score = config.score.model_copy(update={"theta": config.theta})
    resolved = {
        "generators": [generator.model for generator in config.generator_presets()],
        "benchmarks": config.benchmark_names(),
        "score": score,
    }
    return config.model_copy(update=resolved)


def to_yaml(config: RunConfig) -> str:
    """The config as the text of run.yaml."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
