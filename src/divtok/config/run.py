"""The one configuration of a run: a strict YAML file with dotted overrides.

An unknown key is an error, and all errors are reported at once. Values left out come from the
family. Reads files and checks values; loads no model and no benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from divtok.config.tree import override_tree
from divtok.config.wordings import WordingSection, known_protocol, of_files, whole
from divtok.endpoints.settings import CallsSection
from divtok.errors import ConfigError, UsageError, did_you_mean
from divtok.families.family import FAMILIES, Family, Generator, get_family, pairing_family
from divtok.generate.engine import ENGINES, Engine
from divtok.generate.engines.chat import ApiSection
from divtok.generate.engines.speculative import SpeculativeSection
from divtok.generate.engines.transformers import TransformersSection
from divtok.generate.engines.vllm import VllmSection
from divtok.grade.grader import GRADERS
from divtok.grade.graders.judge import JudgeSection
from divtok.models.load import DType
from divtok.problems.benchmark import ways_of
from divtok.protocols.extract import Extract
from divtok.protocols.given import protocol_in
from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.wording import is_reference, kind_of, words_of
from divtok.records import CountedTokens, Sampling, Scalar
from divtok.registry import Registry
from divtok.score.registry import ESTIMATORS, Estimator, bind_parameters
from divtok.section import Fraction, Positive, Section
from divtok.strict_yaml import AS_SAID, invalid, load_tree, read_tree
from divtok.trace.budget import DEFAULT_TOKENS, Budget
from divtok.trace.topk.known import stated_rounding

Form = Literal["auto", "prompt_logprobs", "echo"]
Compile = Literal["auto", "always", "never"]  # the layers; auto: on a GPU, for a long job
Names = Annotated[list[str], Field(min_length=1)]
ProtocolName = Annotated[str, AfterValidator(known_protocol)]
# What is counted with where no theta was fitted: a count then ranks responses and is nothing more.
UNFITTED_THETA = 0.5
AGREEMENT = "agreement"  # for score.prior: what samples that agree suggest
DEFAULT_SAMPLES = 4  # per problem, of a generator that no family knows


def _one_of(registry: Registry[Any]) -> AfterValidator:
    def known(name: str) -> str:
        if name not in registry:
            why = {"noun": registry.noun, "hint": did_you_mean(name, registry.names())}
            raise PydanticCustomError("unknown_name", "unknown {noun}. {hint}", why)
        return name

    return AfterValidator(known)


def _stated_precision(precision: str | float) -> str | float:
    try:
        stated_rounding(precision)
    except UsageError as error:
        raise PydanticCustomError("precision", "{why}", {"why": error.next_step}) from error
    return precision


def _length_or_trained(value: Any) -> Any:
    """Checked before, since a value that is neither would be refused once for each."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if value is None or value == "trained" or whole:
        return value
    raise PydanticCustomError("length", "input should be a number of tokens from 1 on, or trained")


def _share_or_agreement(value: Any) -> Any:
    """Checked before, since a value that is neither would be refused once for each."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or value == AGREEMENT or (number and 0 < value < 1):
        return value
    why = "input should be a share between 0 and 1, both left out, or agreement"
    raise PydanticCustomError("prior", why)


class SamplingSection(Section):
    """Each value left out is the generator's own."""

    temperature: Annotated[float, Field(ge=0.0, le=10.0, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] | None = None
    top_k: Positive | None = None
    presence_penalty: Annotated[float, Field(ge=-2.0, le=2.0, allow_inf_nan=False)] | None = None
    max_length: Positive | None = None


class GenerateSection(Section):
    engine: Annotated[str, _one_of(ENGINES)] = "transformers"
    transformers: TransformersSection = TransformersSection()
    api: ApiSection = ApiSection()
    vllm: VllmSection = VllmSection()
    speculative: SpeculativeSection = SpeculativeSection()
    options: dict[str, Any] = Field(default_factory=dict[str, Any])  # of another package's engine
    batch_size: Positive = 128
    dtype: DType = "auto"
    device: str | None = None
    device_map: str | None = None  # spreads the model over all GPUs instead
    compile: Compile = "auto"

    @property
    def _sections(self) -> tuple[BaseModel, ...]:
        """Of the engines that have one of their own."""
        return self.transformers, self.api, self.vllm, self.speculative

    @model_validator(mode="after")
    def _known_options(self) -> Self:
        found = self.engine_options()
        if self.options and (found is None or found in self._sections):
            why = "generate.options: the engine '{engine}' takes none of these."
            raise PydanticCustomError(AS_SAID, why, {"engine": self.engine})
        return self

    @property
    def gives_traces(self) -> bool:
        """Whether rows come with the trace of the pair that writes."""
        return ENGINES.get(self.engine).gives_traces(self.engine_options())

    def engine_options(self) -> BaseModel | None:
        """The options of the engine: its own section here, or `options` as its model reads them."""
        model = ENGINES.get(self.engine).options
        for section in self._sections:
            if type(section) is model:
                return section
        try:
            return None if model is None else model.model_validate(self.options)
        except ValidationError as error:
            # Without the values, which may be secrets.
            wrong = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            why = {"wrong": "; ".join(f"options.{each}" for each in wrong)}
            raise PydanticCustomError(AS_SAID, "generate.{wrong}.", why) from error


class GradeSection(Section):
    grader: Annotated[str, _one_of(GRADERS)] | None = None  # left out: each benchmark's own
    extract: Extract = "boxed"  # released: without a box, the fallbacks of the paper's code
    verdicts: Literal["ours", "theirs", "both"] = "ours"  # theirs: of the tool a log comes from
    scorer: str | None = None  # whose verdicts of theirs; left out: each benchmark's first
    workers: Positive = 2
    time_limit: Annotated[float, Field(gt=0.0, le=600.0, allow_inf_nan=False)] = 5.0
    judge: JudgeSection = JudgeSection()


class PairSection(Section):
    reader: str | None = None  # p; left out: the generator (white-box) or the family's reader
    auxiliary: str | None = None  # q; left out: the family's


class TopKSection(CallsSection):
    """Reading through servers, for models that `servers` names."""

    top_k: Positive = 20  # log-probs to ask for at each token
    form: Form = "auto"  # how a server is asked for them
    # How exactly it writes them: a dtype, or the most nats they may be off.
    precision: Annotated[str | float, AfterValidator(_stated_precision)] = "auto"


class TraceSection(PairSection):
    also: list[PairSection] = Field(default_factory=list[PairSection])  # traced, never scored
    divergences: list[str] = Field(default_factory=list[str])  # beside those of every trace
    # What readers see of the question before a foreign response: their chat template's text, or
    # Python's repr of the messages.
    prompt: Literal["chat", "repr"] = "chat"
    max_batch_tokens: Positive = DEFAULT_TOKENS
    max_batch_rows: Positive = 64
    workspace_mb: Positive | None = None  # left out: 64 on the CPU, 640 on a GPU
    dtype: DType = "auto"
    device: str | None = None
    q_device: str | None = None  # left out: where p is
    device_map: str | None = None  # spreads both models over all GPUs instead
    compile: Compile = "auto"
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


class PrmSection(Section):
    """How long a response the process reward model may read; `evidence.prm` says which it is."""

    # Left out: any, beyond what it was trained on too; "trained": as much as that.
    max_length: Annotated[
        Positive | Literal["trained"] | None, BeforeValidator(_length_or_trained)
    ] = None


class ScoreSection(Section):
    """How traces become confidences. Estimators may have further parameters of their own."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=False)

    estimators: Names | None = None  # names and sets; left out: those that a trace is enough for
    theta: Fraction | None = None  # left out: that of the family that pairs the models
    without_theta: bool = False  # where theta is left out: there is none, whatever a family says
    tokens: CountedTokens = "reasoning"  # which of a response's tokens can count as divergent
    fitted: Names | None = None  # files of fits, or runs that hold one: see divtok fit
    # What these fits set, by key, as divtok notes it: it goes before what is given, and with them.
    of_fits: dict[str, float] = Field(default_factory=dict[str, float])
    # The share of right answers that confidences are stated for; left out: as estimators give them.
    prior: Annotated[float | Literal["agreement"] | None, BeforeValidator(_share_or_agreement)] = (
        None
    )
    n: Positive | None = None  # these four, left out: each estimator's own
    a: Fraction | None = None
    b: Fraction | None = None
    k: Annotated[int, Field(ge=0)] | None = None

    @field_validator("estimators", "fitted", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _known_parameters(self) -> Self:
        """Beside the keys above: a parameter of any estimator, or an estimator with its own."""
        for name, value in (self.model_extra or {}).items():
            if isinstance(value, dict):
                if name not in ESTIMATORS:
                    raise _unknown(name, name, {*ESTIMATORS.names(), *ScoreSection.model_fields})
                spec = ESTIMATORS.get(name)
                for parameter, own in cast(dict[str, Any], value).items():
                    if parameter not in spec.parameters:
                        raise _unknown(f"{name}.{parameter}", parameter, spec.parameters)
                    _check(spec, parameter, own)
                continue
            having = [spec for spec in ESTIMATORS if name in spec.parameters]
            if not having:
                known = {n for spec in ESTIMATORS for n in spec.parameters}
                raise _unknown(name, name, {*known, *ScoreSection.model_fields})
            for spec in having:
                _check(spec, name, value)
        return self

    @model_validator(mode="after")
    def _never_rising(self) -> Self:
        a = 0.95 if self.a is None else self.a
        b = 0.05 if self.b is None else self.b
        if b > a:
            raise PydanticCustomError(
                "rising",
                "b ({b}) is above a ({a}), so more divergence would mean more confidence",
                {"a": a, "b": b},
            )
        return self

    def given(self, estimator: str) -> dict[str, Scalar]:
        """The parameters that are given for this estimator: its own before those for all."""
        shared = {name: getattr(self, name) for name in ("theta", "n", "a", "b", "k")}
        extra = self.model_extra or {}
        shared |= {name: value for name, value in extra.items() if not isinstance(value, dict)}
        found = {n: v for n, v in shared.items() if v is not None}
        found |= {name: value for name, value in self.of_fits.items() if "." not in name}
        found |= extra.get(estimator, {})
        keys = ((*key.rpartition("."), value) for key, value in self.of_fits.items())
        return found | {name: value for owner, _, name, value in keys if owner == estimator}


def _check(spec: Estimator, parameter: str, value: Scalar) -> None:
    try:
        spec.check_parameter(parameter, value)
    except UsageError as error:
        raise PydanticCustomError("parameter", "{what}", {"what": error.what}) from error


def _unknown(key: str, name: str, known: Iterable[str]) -> PydanticCustomError:
    why = {"key": key, "hint": did_you_mean(name, known)}
    return PydanticCustomError(AS_SAID, "unknown key 'score.{key}'. {hint}", why)


class EvaluateSection(Section):
    draws: Positive = 5
    cap: Positive = 500
    bins: Positive = 20
    resamples: Positive = 1000


class RunConfig(Section):
    # None: the run names generators, auxiliary and benchmarks itself
    family: Annotated[str, _one_of(FAMILIES)] | None = "tiny"
    generators: Names | None = None  # left out: all of the family's
    benchmarks: Names | None = None  # left out: the family's
    benchmark_files: dict[str, str] = Field(default_factory=dict)
    wordings: dict[str, WordingSection] = Field(default_factory=dict)  # what files of words say
    benchmark_protocols: dict[str, ProtocolName] = Field(default_factory=dict)
    benchmark_graders: dict[str, Annotated[str, _one_of(GRADERS)]] = Field(default_factory=dict)
    protocol: ProtocolName | None = None  # left out: each benchmark's own
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
    own_sampling: dict[str, SamplingSection] = Field(default_factory=dict)  # below `sampling`
    generate: GenerateSection = GenerateSection()
    grade: GradeSection = GradeSection()
    trace: TraceSection = TraceSection()
    evidence: EvidenceSection = EvidenceSection()
    prm: PrmSection = PrmSection()
    score: ScoreSection = ScoreSection()
    evaluate: EvaluateSection = EvaluateSection()

    @model_validator(mode="before")
    @classmethod
    def _words_of_files(cls, tree: Any) -> Any:
        return of_files(tree)

    @field_validator("wordings")
    @classmethod
    def _whole_wordings(cls, value: dict[str, WordingSection]) -> dict[str, WordingSection]:
        return whole(value)

    @model_validator(mode="before")
    @classmethod
    def _no_family_needed(cls, tree: Any) -> Any:
        """Generators with an auxiliary are a pair of their own, unless a family is named."""
        if isinstance(tree, Mapping) and "family" not in tree and tree.get("generators"):
            trace = cast(Mapping[str, Any], tree).get("trace")
            if isinstance(trace, Mapping) and trace.get("auxiliary"):
                return {**tree, "family": None}
        return tree

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.family is not None:
            return self
        needed = {
            "generators (--generator)": self.generators,
            "trace.auxiliary (--auxiliary)": self.trace.auxiliary,
            # Who wrote elsewhere cannot read it here.
            "trace.reader": self.trace.reader or self.weights_here,
        }
        missing = [name for name, value in needed.items() if not value]
        if missing:
            why = {"missing": ", ".join(missing)}
            raise PydanticCustomError(AS_SAID, "a run without a family needs {missing}.", why)
        return self

    @property
    def preset(self) -> Family:
        """The family; without one, what the run names is a family of its own."""
        if self.family is not None:
            return get_family(self.family)
        samples = dict.fromkeys(self.benchmarks or (), DEFAULT_SAMPLES)
        foreign = not self.weights_here
        named = self.generators or ()
        return Family(
            name="none",
            summary="",
            generators=tuple(Generator(m, Sampling(), samples, foreign=foreign) for m in named),
            auxiliary=self.trace.auxiliary or "",
            theta=UNFITTED_THETA,
            fit_benchmark="",
            reader=self.trace.reader,
        )

    @property
    def engine(self) -> Engine:
        return ENGINES.get(self.generate.engine)

    @property
    def weights_here(self) -> bool:
        """Whether generators have weights here; where they have none, any name will do."""
        return self.engine.weights_here

    def benchmark_names(self) -> list[str]:
        names = list(self.benchmarks or self.preset.benchmarks)
        if not names:
            raise ConfigError(
                "A run without a family has no benchmarks of its own.",
                next_step="Name them: --benchmark NAME, or the path of a JSONL file.",
            )
        return names

    def benchmark_file(self, benchmark: str) -> Path | None:
        file = self.benchmark_files.get(benchmark)
        return None if file is None else Path(file)

    def protocol_for(self, benchmark: str) -> str:
        """How the benchmark's questions are asked, as its rows have it."""
        name = self.protocol_name_for(benchmark)
        words = self.wordings.get(name)
        return name if words is None else protocol_in(words.named(name))

    def protocol_name_for(self, benchmark: str) -> str:
        """How the benchmark's questions are asked, as the config has it."""
        if given := self.benchmark_protocols.get(benchmark) or self.protocol:
            return given
        known = ways_of(benchmark, file=self.benchmark_file(benchmark))
        return "cot" if known is None else known.protocol

    def grader_for(self, benchmark: str) -> str:
        """How the benchmark's answers are judged; where it does not say, as its protocol's are."""
        if given := self.benchmark_graders.get(benchmark) or self.grade.grader:
            return given
        known = ways_of(benchmark, file=self.benchmark_file(benchmark))
        if known is not None and known.grader is not None:
            return known.grader
        # Gold answers stay what they are, however a known benchmark is asked.
        protocol = self.protocol_for(benchmark) if known is None else known.protocol
        return PROTOCOLS.get(protocol).grader

    def protocols(self) -> list[str]:
        """Every protocol of the run, once each, as rows have it."""
        return list(dict.fromkeys(map(self.protocol_for, self.benchmark_names())))

    def protocols_said(self) -> str:
        """The same for people, with the name of words that are not a protocol's own."""
        return ", ".join(
            f"{kind_of(name)} in the words of '{words_of(name).name}'"
            if is_reference(name)
            else name
            for name in self.protocols()
        )

    @property
    def all_state_confidence(self) -> bool:
        """Whether nobody has to be asked in a further turn how sure they are."""
        return all(PROTOCOLS.get(name).states_confidence for name in self.protocols())

    def generator_presets(self) -> list[Generator]:
        if self.generators is None:
            return list(self.preset.generators)
        foreign = not self.weights_here
        return [self.preset.generator(model, foreign=foreign) for model in self.generators]

    def sampling_for(self, generator: Generator) -> Sampling:
        own = self.own_sampling.get(generator.model, SamplingSection())
        given = own.model_dump(exclude_none=True) | self.sampling.model_dump(exclude_none=True)
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
        return self.pair_of(generator, self.trace)

    def scored_pairs(self) -> dict[str, tuple[str, str]]:
        """generator -> the pair whose traces of its trajectories are scored"""
        return {g.model: self.pair_for(g) for g in self.generator_presets()}

    def pairs_for(self, generator: Generator) -> list[tuple[str, str]]:
        """Every pair that reads the generator's trajectories, the scored one first.

        A model is not a pair with itself: with several generators, each is left out as its own
        auxiliary.
        """
        also = [self.pair_of(generator, section) for section in self.trace.also]
        others = [(p, q) for p, q in also if p != q]
        return list(dict.fromkeys([self.pair_for(generator), *others]))

    def reads_foreign(self, generator: Generator, p: str) -> bool:
        """Whether the generator's responses are another model's text to `p`."""
        return p != generator.model or not self.weights_here

    def pair_of(self, generator: Generator, section: PairSection) -> tuple[str, str]:
        """The pair that a section names for this generator."""
        p, q = self.preset.pair_for(generator)
        return section.reader or p, section.auxiliary or q

    def base_for(self, generator: Generator) -> str | None:
        """The paired base model; None where the generator has none."""
        return self.bases.get(generator.model, generator.base)

    @property
    def reward_model(self) -> str | None:
        return self.evidence.prm or self.preset.prm

    @property
    def fitted_theta(self) -> float | None:
        """That of a fit, as it was given, or a family's; None where none is known for the pair."""
        return self.score.of_fits.get("theta", self.own_theta)

    @property
    def own_theta(self) -> float | None:
        """The same without fits, which may be left out again."""
        if self.score.theta is not None or self.score.without_theta:
            return self.score.theta
        if self.family is not None:
            return self.preset.theta
        pairing = self.pairing_families()
        thetas = {None if family is None else family.theta for family in pairing}
        return thetas.pop() if len(thetas) == 1 else None

    def pairing_families(self) -> list[Family | None]:
        """For each scored pair the family that pairs the same models; None where none does."""
        return [
            pairing_family(p, q, foreign=p != generator)
            for generator, (p, q) in self.scored_pairs().items()
        ]

    @property
    def theta(self) -> float:
        """What is counted with; see `fitted_theta` for what confidences may be made of."""
        return UNFITTED_THETA if self.fitted_theta is None else self.fitted_theta

    def parameters_of(self, estimator: str) -> dict[str, Scalar]:
        """Its parameters as far as the config or a family gives them."""
        fitted = self.fitted_theta
        return ({} if fitted is None else {"theta": fitted}) | self.score.given(estimator)

    def bound(self, estimator: str) -> dict[str, Scalar]:
        """All its parameters, its defaults and the theta of counts among them."""
        given = {"theta": self.theta, **self.parameters_of(estimator)}
        return bind_parameters(ESTIMATORS.get(estimator), given)


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """The config of a file (or none) with `dotted.key=value` overrides on top."""
    tree: dict[str, Any] = {} if path is None else read_tree(path, noun="config file")
    tree = override_tree(tree, overrides)
    return parse_config(tree, source="the overrides" if path is None else str(path))


def read_config(text: str, overrides: Sequence[str] = (), *, source: str) -> RunConfig:
    """The config of a YAML text with `dotted.key=value` overrides on top."""
    return parse_config(override_tree(load_tree(text, source=source), overrides), source=source)


def parse_config(tree: Mapping[str, Any], *, source: str) -> RunConfig:
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise invalid(error, RunConfig, source=source) from error


def resolve(config: RunConfig) -> RunConfig:
    """The config with what families and benchmarks add to it written out.

    A stored run then keeps its meaning when a preset changes, also where there is no theta.
    """
    theta = {"theta": config.own_theta, "without_theta": config.own_theta is None}
    names = config.benchmark_names()
    protocol, protocols = _one_or_each({name: config.protocol_name_for(name) for name in names})
    grader, graders = _one_or_each({name: config.grader_for(name) for name in names})
    resolved = {
        "generators": [generator.model for generator in config.generator_presets()],
        "benchmarks": names,
        "benchmark_protocols": protocols,
        "benchmark_graders": graders,
        "protocol": protocol,
        "grade": config.grade.model_copy(update={"grader": grader}),
        "score": config.score.model_copy(update=theta),
    }
    return config.model_copy(update=resolved)


def _one_or_each(named: dict[str, str]) -> tuple[str | None, dict[str, str]]:
    """The one for all benchmarks, or that of each."""
    different = set(named.values())
    return (different.pop(), {}) if len(different) == 1 else (None, named)


def to_yaml(config: RunConfig) -> str:
    """The config as the text of run.yaml."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
