"""Process rewards: what a reward model gives to each line of a response.

Reads models laid out like Skywork-o1-Open-PRM: a language model's backbone and a value head with
one output. Knows how such a model is fed and read; not how a confidence is made of its rewards.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from divtok.errors import ModelError
from divtok.models.errors import need_transformers, reading
from divtok.models.files import WHOLE, fetch, weight_map
from divtok.models.load import LoadedModel, LoadOptions, load_model, load_tokenizer, model_place
from divtok.packed.packs import build_pack
from divtok.packed.parts import learned_positions, length_switch, stretched_positions
from divtok.packed.probe import make_probe
from divtok.protocols.encode import response_ids, text_ids
from divtok.records import Reason, StepRewards
from divtok.trace.batches import Row, read_rows
from divtok.trace.budget import Budget
from divtok.trace.kernels.common import Head, head_logits
from divtok.trace.reader import Reader, checked_reader
from divtok.trace.trunks import padded_trunk

if TYPE_CHECKING:
    from torch import Tensor

VALUE_WEIGHT = "v_head.summary.weight"  # [1, D]
VALUE_BIAS = "v_head.summary.bias"  # [1]

# Kinds of reasons: longer than `max_length` allows, and longer than the model can read at all.
TOO_LONG, NO_POSITIONS = "too_long", "no_positions"
# The most tokens of question and response that may be read: so many, or those it was trained on.
MaxLength = int | Literal["trained"] | None


@dataclass(frozen=True, slots=True)
class StepLayout:
    """What a reward model reads. `flagged` are positions in `token_ids`, the newline of each line.

    The hidden state at a flagged position gives that line's reward.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    flagged: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Lines(Row):
    """A row with one more token behind it, since a row's last token is not read.

    `flagged` [S] are the places, among the states that predict the row's tokens, of the lines'
    newlines: the state of a token predicts the next.
    """

    flagged: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class RewardModel:
    """A process reward model. `reader.head` is its value head, in float32.

    It reads on past the context it was trained with, unless `cannot_read_on` says why not.
    """

    reader: Reader
    cannot_read_on: str | None = None

    @property
    def name(self) -> str:
        return self.reader.name

    def rewards(
        self,
        rows: Sequence[tuple[str, str, str]],
        *,
        max_length: MaxLength = None,
        budget: Budget | None = None,
    ) -> list[StepRewards]:
        """Rewards of every line for each (key, question, response text), in order.

        A response without text, one longer than `max_length`, one the model has no positions for
        and one with broken values get no rewards and the reason. Where memory runs out the budget
        shrinks and the work goes on; give the same budget to the next call.
        """
        refused: list[StepRewards | None] = []
        lines: list[_Lines] = []
        for key, question, text in rows:
            layout = step_layout(self.reader.tokenizer, question, text)
            reason = self._unreadable(layout, text, max_length)
            refused.append(None if reason is None else self._failed(key, reason))
            lines.append(_lines(key, layout))
        found = read_rows(
            lines,
            self._read,
            refused=refused,
            budget=budget,
            device=self.reader.device,
            switches=[self.reader.length_switch],
            doing="rewards",
        )
        # A row's last token stands behind the response: see `_Lines`.
        sizes = [row.length - 1 for row in lines]
        trained = self.reader.context_length
        return [
            replace(row, length=size, trained_length=trained)
            for row, size in zip(found, sizes, strict=True)
        ]

    def _unreadable(self, layout: StepLayout, text: str, max_length: MaxLength) -> str | None:
        if not text.strip():
            return Reason("empty", "the response has no text")
        trained, asked = self.reader.context_length, len(layout.prompt_ids)
        length = asked + len(layout.token_ids)
        parts = f"question {asked} + response {len(layout.token_ids)}"
        if self.cannot_read_on is not None and trained is not None and length > trained:
            why = f"{parts} = {length} tokens, {self.name} reads {trained}: {self.cannot_read_on}"
            return Reason(NO_POSITIONS, why)
        return over_length(self.name, length, trained, max_length, parts=f"{parts} = ")

    def _read(self, rows: Sequence[_Lines], workspace_bytes: int) -> list[StepRewards]:
        import torch

        pack = build_pack([row.prompt_ids for row in rows], [row.token_ids for row in rows])
        flagged: list[int] = []
        start = 0
        for row in rows:
            flagged += [start + place for place in row.flagged]
            start += len(row.token_ids)
        with torch.inference_mode():
            hidden = self.reader.trunk(pack)
            states = hidden[torch.from_numpy(pack.predicts[flagged]).to(hidden.device)]
            values = head_logits(self.reader.head, states, weight_bytes=workspace_bytes)[:, 0]
            rewards, finite = values.sigmoid().cpu().numpy(), values.isfinite().cpu().numpy()
        cuts = np.cumsum([len(row.flagged) for row in rows])[:-1]
        return [
            self._step_rewards(row.key, *parts)
            for row, *parts in zip(
                rows, np.split(rewards, cuts), np.split(finite, cuts), strict=True
            )
        ]

    def _step_rewards(self, key: str, rewards: Any, finite: Any) -> StepRewards:
        if finite.all():
            return StepRewards(key, self.name, rewards.copy())
        line = int(np.argmin(finite)) + 1
        return self._failed(
            key, f"the value that {self.name} gives to line {line} of {len(finite)} is not a number"
        )

    def _failed(self, key: str, reason: str) -> StepRewards:
        return StepRewards(key, self.name, np.empty(0, dtype=np.float32), reason)


def over_length(
    model: str, length: int, trained: int | None, max_length: MaxLength, *, parts: str = ""
) -> Reason | None:
    """Why a response of this length is not to be read by a model; None where it is."""
    limit = trained if max_length == "trained" else max_length
    if limit is None or length <= limit:
        return None
    said = f"prm.max_length={max_length}"
    if max_length == "trained":
        said += f", and {model} was trained on {limit}"
    return Reason(TOO_LONG, f"{parts}{length} tokens; {said}")


def step_layout(tokenizer: Any, question: str, response: str) -> StepLayout:
    """Question and response as the model was trained to read them; no chat template.

    The prompt is the begin-of-text token, the question and a newline. Every line of the response,
    a blank one too, ends with the newline token that is flagged; the last one also where the
    text does not end with a newline, and after one that does there is a last, blank line.
    """
    _check_begin(tokenizer)
    newline = response_ids(tokenizer, "\n")[-1]
    token_ids: list[int] = []
    flagged: list[int] = []
    for line in response.split("\n"):
        if line:
            token_ids += response_ids(tokenizer, line)
        flagged.append(len(token_ids))
        token_ids.append(newline)
    prompt = text_ids(tokenizer, question + "\n", begin=True)
    return StepLayout(prompt, tuple(token_ids), tuple(flagged))


def load_prm(ref: str, **options: Unpack[LoadOptions]) -> RewardModel:
    """A process reward model from a folder, a packaged name or the hub: backbone and value head.

    What is cheap to find out is found out before the backbone is read.
    """
    need_transformers()
    revision = options.get("revision")
    trusted = options.get("trust_remote_code", False)
    tokenizer = load_tokenizer(ref, revision=revision, trust_remote_code=trusted)
    _check_begin(tokenizer)
    weight, bias = _value_head(ref, revision)
    with _without_warnings():
        loaded = load_model(ref, backbone=True, **options)
    cannot = _cannot_read_on(loaded.model.config.get_text_config())
    return RewardModel(_make_reader(loaded, weight, bias), cannot)


def _cannot_read_on(settings: Any) -> str | None:
    """Why a model can read no more than it was trained on; None where its positions run on."""
    if learned_positions(settings) is not None:
        return "its positions are learned, and there are no more"
    if stretched_positions(settings):
        return "beyond that its positions depend on what else is read"
    return None


@contextmanager
def _without_warnings() -> Generator[None]:
    """transformers warns of weights that a backbone has no use for: here, both heads."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _lines(key: str, layout: StepLayout) -> _Lines:
    return _Lines(
        key,
        np.array(layout.prompt_ids, dtype=np.int64),
        np.array([*layout.token_ids, 0], dtype=np.int64),
        flagged=tuple(place + 1 for place in layout.flagged),
    )


def _check_begin(tokenizer: Any) -> None:
    if not tokenizer.bos_token:
        raise ModelError(
            f"The tokenizer '{tokenizer.name_or_path}' has no begin-of-text token, with which a "
            "reward model's input starts.",
            next_step="Set bos_token in its tokenizer_config.json, as Skywork's models do.",
        )


def _make_reader(loaded: LoadedModel, weight: Tensor, bias: Tensor) -> Reader:
    """Backbone and value head as a reader: packed where that gives what the backbone gives."""
    import torch

    embedding = loaded.model.get_input_embeddings().weight
    settings = loaded.model.config.get_text_config()
    _check_sizes(loaded, embedding, settings.hidden_size, weight)
    reader = Reader(
        name=loaded.name,
        tokenizer=loaded.tokenizer,
        trunk=padded_trunk(loaded.model, loaded.device),
        # For the probe, a head that leaves the hidden states as they are.
        head=Head(torch.eye(settings.hidden_size, dtype=loaded.dtype, device=loaded.device)),
        context_length=getattr(settings, "max_position_embeddings", None),
        end_ids=loaded.end_ids,
        device=loaded.device,
        dtype=loaded.dtype,
        revision=loaded.revision,
        packed=False,
        length_switch=length_switch(settings),
    )
    probe = make_probe(min(len(loaded.tokenizer), len(embedding)))
    whole = probe.read_whole(loaded.model, loaded.device, loaded.dtype, gives="last_hidden_state")
    reader = checked_reader(reader, loaded.model, probe, whole)
    wide = [x.to(loaded.device, torch.float32) for x in (weight, bias)]
    return replace(reader, head=Head(weight=wide[0], bias=wide[1]))


def _check_sizes(loaded: LoadedModel, embedding: Tensor, hidden_size: int, weight: Tensor) -> None:
    if list(weight.shape) != [1, hidden_size]:
        raise ModelError(
            f"The value head of '{loaded.name}' has shape {list(weight.shape)}; its backbone needs "
            f"[1, {hidden_size}].",
            next_step="Use a process reward model with one value for each token.",
        )
    if loaded.tokenizer_width > len(embedding):
        raise ModelError(
            f"The tokenizer of '{loaded.name}' knows {loaded.tokenizer_width} tokens, the model "
            f"only {len(embedding)}.",
            next_step="Fetch it again: tokenizer and weights do not belong together.",
        )


def _value_head(ref: str, revision: str | None) -> tuple[Tensor, Tensor]:
    """Weight [1, D] and bias [1] from the checkpoint's safetensors, whole or in shards."""
    from safetensors import safe_open

    found: dict[str, Tensor] = {}
    next_step = "Check that the model is complete; if it was fetched, fetch it again."
    with reading(f"The value head of '{ref}'", next_step=next_step):
        for path in _weight_files(ref, revision):
            with safe_open(path, framework="pt") as weights:
                for name in {VALUE_WEIGHT, VALUE_BIAS} & set(weights.keys()):
                    found[name] = weights.get_tensor(name)
    missing = [name for name in (VALUE_WEIGHT, VALUE_BIAS) if name not in found]
    if missing:
        raise ModelError(
            f"The model '{ref}' is not a process reward model: its weights have no "
            f"{' and no '.join(missing)}.",
            next_step="Use a model in the layout of Skywork-o1-Open-PRM.",
        )
    return found[VALUE_WEIGHT], found[VALUE_BIAS]


def _weight_files(ref: str, revision: str | None) -> set[Path]:
    """The safetensors files that hold the value head, if any does."""
    place = model_place(ref)
    shards = weight_map(ref, place, revision)
    if shards is None:
        names = {WHOLE}
    else:
        names = {shards[name] for name in (VALUE_WEIGHT, VALUE_BIAS) if name in shards}
    found = {fetch(place, name, revision) for name in names}
    return {path for path in found if path is not None}
