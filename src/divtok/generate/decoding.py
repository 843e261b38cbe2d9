"""Decoding with transformers: prompts in, sampled tokens out, each row by its key.

In steps of ours where the model allows it, and by `transformers.generate` where not; the keyed
sampler draws the same tokens in both. Knows nothing of what the prompts ask, nor what becomes of
the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from divtok.errors import ModelError, ResourceError
from divtok.generate.asks import Ask, Written
from divtok.generate.kept_states import KeptStates
from divtok.generate.sampler import KeyedSampler
from divtok.generate.steps import Row, can_step, write_in_steps
from divtok.generate.threads import threads_for
from divtok.memory import is_out_of_memory
from divtok.models.load import LoadedModel
from divtok.packed.attention import fast_without_plans
from divtok.packed.parts import learned_positions
from divtok.progress import notice
from divtok.records import Sampling

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


def decode(loaded: LoadedModel, asks: Sequence[Ask], sampling: Sampling) -> list[Written]:
    """What the model writes behind each prompt, in order.

    It ends at the first end token or at the prompt's own limit; `sampling.max_length` plays no
    part here.
    """
    raw = in_portions(loaded.model, asks, lambda some: _continue(loaded, some, sampling))
    return [as_written(row[: ask.limit], loaded) for ask, row in zip(asks, raw, strict=True)]


def decode_keeping(
    loaded: LoadedModel, asks: Sequence[Ask], sampling: Sampling, kept: KeptStates
) -> list[Written]:
    """The same, all at once, with the states of each row by its place; see `can_step`."""
    raw = _continue(loaded, asks, sampling, kept)
    return [as_written(row, loaded) for row in raw]


def in_portions(
    model: Any, asks: Sequence[Ask], write: Callable[[Sequence[Ask]], Sequence[T]]
) -> list[T]:
    """What `write` gives for each prompt, as many at once as fit into memory beside the model."""
    done: list[T] = []
    while len(done) < len(asks):
        done += _within_memory(model, asks[len(done) :], write)
    return done


# How many prompts a model can continue at once, where memory has run out with more. A model is
# known by itself, and forgotten with it.
_most_rows: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def _within_memory(
    model: Any, asks: Sequence[Ask], write: Callable[[Sequence[Ask]], Sequence[T]]
) -> Sequence[T]:
    """`write` for the first few prompts; nothing where memory ran out with so many.

    Then half as many are tried from here on. Draws go by key, so that nothing else changes.
    """
    import torch

    asks = asks[: _most_rows.get(model, len(asks))]
    try:
        return write(asks)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        cause = str(error).split(". ")[0] or type(error).__name__
    # Only here, with the failed attempt's tensors gone, is there room again.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if len(asks) == 1:
        raise ResourceError(
            f"One response of up to {len(asks[0].prompt) + asks[0].limit:,} tokens "
            f"(trajectory '{asks[0].key}') does not fit into memory ({cause}).",
            next_step="Use a smaller dtype or sampling.max_length, --device-map auto, or a device "
            "with more memory.",
        )
    _most_rows[model] = half = len(asks) // 2
    notice(
        f"generate: out of memory with {len(asks)} responses at once; writing at most {half} at "
        "once from here on"
    )
    return []


def _continue(
    loaded: LoadedModel,
    asks: Sequence[Ask],
    sampling: Sampling,
    kept: KeptStates | None = None,
) -> list[list[int]]:
    """Raw continuations, end and padding tokens still in place."""
    import torch

    check_ends(loaded)
    width: int | None = getattr(loaded.model.config, "hidden_size", None)
    with torch.inference_mode(), threads_for(loaded.device, width):
        if can_step(loaded):
            rows = [Row(number, ask.prompt, ask.limit) for number, ask in enumerate(asks)]
            return write_in_steps(loaded, rows, _sampler(loaded, asks, sampling), kept)
        assert kept is None, "whoever keeps states has to ask can_step first"
        return _generate(loaded, asks, sampling)


def check_ends(loaded: LoadedModel) -> None:
    if not loaded.end_ids:
        raise ModelError(
            f"The model '{loaded.name}' names no end token, so no response would ever end.",
            next_step="Set eos_token_id in its generation_config.json.",
        )


def _sampler(loaded: LoadedModel, asks: Sequence[Ask], sampling: Sampling) -> KeyedSampler:
    keys = [ask.key for ask in asks]
    return KeyedSampler(keys, sampling, vocab_size=loaded.tokenizer_width)


def _generate(loaded: LoadedModel, asks: Sequence[Ask], sampling: Sampling) -> list[list[int]]:
    """The same from transformers, for any model: all rows go on until the last one ends."""
    from transformers import GenerationConfig, LogitsProcessorList

    longest, most = max(len(ask.prompt) for ask in asks), max(ask.limit for ask in asks)
    positions = learned_positions(loaded.model.config.get_text_config())
    if len(asks) > 1 and positions is not None and longest + most > positions:
        # Carried along, a row that has ended would need positions that do not exist.
        return [_generate(loaded, [ask], sampling)[0] for ask in asks]
    end_ids = sorted(loaded.end_ids)
    ids, mask = left_padded([ask.prompt for ask in asks], pad_id=end_ids[0])
    with _preset_aside(loaded.model), fast_without_plans(loaded.device):
        output: Any = loaded.model.generate(
            input_ids=ids.to(loaded.device),
            attention_mask=mask.to(loaded.device),
            generation_config=GenerationConfig(
                do_sample=False,
                max_new_tokens=most,
                eos_token_id=end_ids,
                pad_token_id=end_ids[0],
            ),
            logits_processor=LogitsProcessorList([_sampler(loaded, asks, sampling)]),
        )
    return output[:, ids.shape[1] :].tolist()


def left_padded(prompts: Sequence[tuple[int, ...]], *, pad_id: int) -> tuple[Tensor, Tensor]:
    """Ids and attention mask, both [B, L], L the longest prompt."""
    import torch

    longest = max(len(prompt) for prompt in prompts)
    ids = torch.full((len(prompts), longest), pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids, mask


@contextmanager
def _preset_aside(model: Any) -> Generator[None]:
    """Without the checkpoint's own generation preset.

    transformers fills what a generation config leaves open from that preset, so that Qwen2.5's
    repetition penalty, say, would change the logits before they reach the sampler.
    """
    from transformers import GenerationConfig

    preset = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = preset


def as_written(raw: list[int], loaded: LoadedModel) -> Written:
    """Up to the first end token, if there is one."""
    end_ids = loaded.end_ids
    ends = [position for position, token in enumerate(raw) if token in end_ids]
    kept = raw[: ends[0] + 1] if ends else raw
    text = loaded.tokenizer.decode(
        kept, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return Written(tuple(kept), text, "stop" if ends else "length")
