"""Other packages' sequence estimators, run on given responses through their own code.

A peer takes the samples of one problem and gives the numbers of its table below, brought to the
scale of a divtok estimator. Its code decides which log-probs it reads and how it averages them.
Where it would sample a response itself, `Replay` stands for the model that wrote the given tokens.
"""

from __future__ import annotations

import copy
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from divtok.errors import DataError
from divtok.models.load import LoadedModel
from divtok.records import Trajectory
from perf.peers import PEERS, definition

if TYPE_CHECKING:
    from torch import Tensor

    from divtok.records import FloatArray

Values = dict[str, "list[float]"]
EACH, PROBLEM = "each response", "all samples of a problem"


@dataclass(frozen=True, slots=True)
class Number:
    """What a peer calls it, which divtok estimator it is, and what was done to make it that."""

    name: str
    estimator: str
    conversion: str
    remark: str = ""
    own: bool = True  # the peer averages over tokens itself
    tokens: Literal["all", "all but the last"] = "all"
    over: Literal["each response", "all samples of a problem"] = EACH


@dataclass(frozen=True, slots=True)
class Peer:
    package: str  # its name on the package index
    numbers: tuple[Number, ...]
    # Takes the samples of one problem, and whether to keep float64 behind the model's logits.
    run: Callable[[LoadedModel, Sequence[Trajectory], bool], Values]


class Replay:
    """A model that has written the given rows [k][T] behind one prompt, for a peer to look at.

    It is read once, teacher-forced; `generate` then hands out, step by step, what generating these
    tokens would have: a peer's logits processors see each step and keep what they keep, and the
    tokens are the given ones whatever they do. Limits on what may be sampled mean nothing here.
    With `precise` the float32 logits are cast to float64, so that what follows does not round.
    """

    def __init__(self, model: Any, rows: Sequence[Sequence[int]], *, precise: bool) -> None:
        self.model = model
        self.config = model.config
        self.device = model.device
        self._rows = rows
        self._precise = precise

    def __call__(self, input_ids: Tensor) -> SimpleNamespace:
        """Logits [B, L, V] of plain ids [B, L]."""
        logits = self.model(input_ids=input_ids).logits
        return SimpleNamespace(logits=logits.double() if self._precise else logits)

    def generate(
        self,
        *,
        input_ids: Tensor,
        logits_processor: Sequence[Callable[[Tensor, Tensor], Tensor]] = (),
        **_: Any,
    ) -> SimpleNamespace:
        """What transformers' `generate` returns: sequences [k, L + T], and T scores and logits."""
        start = input_ids.shape[1]
        # Behind its end a row is filled up, as generating would do; no earlier token sees that.
        written = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row) for row in self._rows],
            batch_first=True,
            padding_value=self.config.eos_token_id,
        )
        sequences = torch.cat([input_ids[:1].expand(len(written), -1), written], 1)
        logits = self(sequences).logits[:, start - 1 : -1].unbind(1)
        scores: list[Tensor] = []
        for step, found in enumerate(logits):
            for processor in logits_processor:
                found = processor(sequences[:, : start + step], found)
            scores.append(found)
        return SimpleNamespace(sequences=sequences, scores=tuple(scores), logits=logits)


def check_tokens(peer: str, expected: Sequence[Sequence[int]], read: Any) -> None:
    """Nothing can be compared where a peer cut or encoded the tokens in another way."""
    if [list(row) for row in expected] != [list(row) for row in read]:
        raise DataError(
            f"{peer} did not read the tokens that it was given.",
            next_step="Look for another end token, or a prompt that its text does not encode to.",
        )


def prompt_text(loaded: LoadedModel, samples: Sequence[Trajectory]) -> str:
    """The prompt as text, which is what both peers take."""
    return loaded.tokenizer.decode(samples[0].prompt_ids, skip_special_tokens=False)


@cache
def polygraph() -> SimpleNamespace:
    """The classes of lm-polygraph that are used here."""
    home = PEERS / "lm_polygraph"
    log = logging.getLogger("lm_polygraph")
    names: dict[str, Any] = {"ABC": ABC, "abstractmethod": abstractmethod, "np": np, "torch": torch}
    names |= {"asdict": asdict, "dataclass": dataclass, "log": log}
    from transformers import LogitsProcessorList

    names["LogitsProcessorList"] = LogitsProcessorList
    return _take(
        names,
        (home / "utils" / "common.py", "polygraph_module_init"),
        (home / "utils" / "generation_parameters.py", "GenerationParameters"),
        (home / "utils" / "model.py", "Model"),
        (home / "utils" / "model.py", "WhiteboxModel"),
        (home / "stat_calculators" / "stat_calculator.py", "StatCalculator"),
        (home / "stat_calculators" / "greedy_probs.py", "GreedyProbsCalculator"),
        (home / "stat_calculators" / "entropy.py", "EntropyCalculator"),
        (home / "estimators" / "estimator.py", "Estimator"),
        (home / "estimators" / "perplexity.py", "Perplexity"),
        (home / "estimators" / "max_probability.py", "MaximumSequenceProbability"),
        (home / "estimators" / "max_probability.py", "MaximumTokenProbability"),
        (home / "estimators" / "token_entropy.py", "MeanTokenEntropy"),
        (home / "estimators" / "token_entropy.py", "TokenEntropy"),
    )


def _take(names: dict[str, Any], *wanted: tuple[Path, str]) -> SimpleNamespace:
    """Definitions of installed files, each with those before it in sight."""
    found: dict[str, Any] = {}
    for path, name in wanted:
        found[name] = definition(path, name, names | found)
    return SimpleNamespace(**found)


def lm_polygraph(loaded: LoadedModel, samples: Sequence[Trajectory], precise: bool) -> Values:
    code = polygraph()
    rows = [sample.token_ids for sample in samples]
    model = code.WhiteboxModel(Replay(loaded.model, rows, precise=precise), loaded.tokenizer)
    texts = [prompt_text(loaded, samples)] * len(samples)
    calculator = code.GreedyProbsCalculator(output_attentions=False)
    stats = calculator({}, texts, model, max_new_tokens=max(map(len, rows)))
    check_tokens("lm-polygraph", [sample.prompt_ids for sample in samples], stats["input_tokens"])
    check_tokens("lm-polygraph", rows, stats["greedy_tokens"])
    stats |= code.EntropyCalculator()(stats)
    lengths = np.array([len(row) for row in rows])
    token_logs = code.MaximumTokenProbability()(stats)
    return {
        "Perplexity": np.exp(-code.Perplexity()(stats)).tolist(),
        "MaximumSequenceProbability": np.exp(
            -code.MaximumSequenceProbability()(stats) / lengths
        ).tolist(),
        "MaximumTokenProbability": [float(np.exp(-logs).mean()) for logs in token_logs],
        "greedy_log_likelihoods": [mean_of_exp(row) for row in stats["greedy_log_likelihoods"]],
        "MeanTokenEntropy": (1 - code.MeanTokenEntropy()(stats)).tolist(),
        "TokenEntropy": [1 - float(e.mean()) for e in code.TokenEntropy()(stats)],
    }


def mean_of_exp(logs: Sequence[float] | FloatArray) -> float:
    return float(np.exp(np.asarray(logs, dtype=np.float64)).mean())


@cache
def truth_torch() -> SimpleNamespace:
    """The classes and functions of TruthTorchLM that are used here."""
    home = PEERS / "TruthTorchLM"
    scoring, methods = home / "scoring_methods", home / "truth_methods"
    names: dict[str, Any] = {"ABC": ABC, "abstractmethod": abstractmethod, "np": np, "torch": torch}
    names |= {"copy": copy, "random": random}
    return _take(
        names,
        (home / "error_handler.py", "handle_logprobs_error"),
        (home / "utils" / "common_utils.py", "sigmoid_normalization"),
        (home / "utils" / "common_utils.py", "check_system_prompt_support"),
        (home / "utils" / "common_utils.py", "fix_tokenizer_chat"),
        (home / "utils" / "calibration_utils.py", "f1_picker"),
        (home / "normalizers" / "normalizer.py", "Normalizer"),
        (home / "normalizers" / "sigmoid_normalizer.py", "SigmoidNormalizer"),
        (scoring / "scoring_method.py", "ScoringMethod"),
        (scoring / "length_normalized_scoring.py", "LengthNormalizedScoring"),
        (scoring / "log_prob_scoring.py", "LogProbScoring"),
        (home / "generation.py", "sample_generations_batch_hf_local"),
        (home / "generation.py", "sample_generations_hf_local"),
        (methods / "truth_method.py", "TruthMethod"),
        (methods / "confidence.py", "Confidence"),
        (methods / "entropy.py", "Entropy"),
    )


def truth_torch_lm(loaded: LoadedModel, samples: Sequence[Trajectory], precise: bool) -> Values:
    code = truth_torch()
    model = Replay(loaded.model, [sample.token_ids for sample in samples], precise=precise)
    text = prompt_text(loaded, samples)
    check_tokens("TruthTorchLM", [samples[0].prompt_ids], [loaded.tokenizer.encode(text)])
    token_logs: list[list[float]] = []

    def keep(logprobs: list[float]) -> float:
        token_logs.append(logprobs)
        return code.LengthNormalizedScoring()(logprobs)

    method = code.Confidence(scoring_function=keep)
    normalized = [
        method(
            model,
            input_text=text,
            generated_text=sample.text,
            all_ids=torch.tensor([sample.prompt_ids + sample.token_ids]),
            tokenizer=loaded.tokenizer,
        )["truth_value"]
        for sample in samples
    ]
    sums = [code.LogProbScoring()(logs) for logs in token_logs]
    sampled = code.sample_generations_hf_local(
        model,
        text,
        loaded.tokenizer,
        number_of_generations=len(samples),
        return_text=True,
        return_logits=True,
        return_logprobs=True,
        batch_generation=True,
    )
    rows = [sample.token_ids for sample in samples]
    check_tokens("TruthTorchLM's sampler", rows, sampled["tokens"])
    entropy = code.Entropy(number_of_generations=len(samples))(
        model, tokenizer=loaded.tokenizer, sampled_generations_dict=sampled
    )["entropy"]
    return {
        "Confidence, LengthNormalizedScoring": np.exp(normalized).tolist(),
        "Confidence, LogProbScoring": [
            float(np.exp(total / len(logs))) for total, logs in zip(sums, token_logs, strict=True)
        ],
        "log-probs of Confidence": [mean_of_exp(logs) for logs in token_logs],
        "Entropy": [float(np.exp(-entropy))],
        "sampled logits": [
            1 - float(torch.distributions.Categorical(logits=row).entropy().mean())
            for row in sampled["logits"]
        ],
    }


_NO_MEAN = "has no mean of probabilities; its per-token numbers are averaged here"

LM_POLYGRAPH = Peer(
    "lm-polygraph",
    (
        Number("Perplexity", "nsl", "exp(-x)", "the logarithm of a perplexity"),
        Number("MaximumSequenceProbability", "nsl", "exp(-x / T)", "sum over the T tokens"),
        Number("greedy_log_likelihoods", "mean_prob", "mean of exp(x)", _NO_MEAN, own=False),
        Number(
            "MaximumTokenProbability",
            "mean_prob",
            "mean of exp(-x)",
            "leaves out the last token, the end token or not; so does divtok here",
            own=False,
            tokens="all but the last",
        ),
        Number("MeanTokenEntropy", "entropy", "1 - x"),
        Number(
            "TokenEntropy",
            "entropy",
            "1 - mean of x",
            "leaves out the last token; so does divtok here",
            own=False,
            tokens="all but the last",
        ),
    ),
    lm_polygraph,
)

TRUTH_TORCH_LM = Peer(
    "TruthTorchLM",
    (
        Number("Confidence, LengthNormalizedScoring", "nsl", "exp(x)"),
        Number("Confidence, LogProbScoring", "nsl", "exp(x / T)", "sum over the T tokens"),
        Number(
            "Entropy",
            "nsl",
            "exp(-x)",
            "no entropy of tokens: minus the mean log-likelihood of a problem's samples, each "
            "divided by its length; held against the geometric mean of their nsl",
            over=PROBLEM,
        ),
        Number("log-probs of Confidence", "mean_prob", "mean of exp(x)", _NO_MEAN, own=False),
        Number(
            "sampled logits",
            "entropy",
            "1 - mean entropy of softmax(x)",
            "has no entropy of tokens; that of the logits its sampler returns is taken here",
            own=False,
        ),
    ),
    truth_torch_lm,
)

ALL = (LM_POLYGRAPH, TRUTH_TORCH_LM)
