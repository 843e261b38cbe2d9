"""Train one size of the family: first on plain text (the base), then on the chat format.

    python -m training.train SIZE --work DIR

The base stage learns whole documents (question, solution, end of text); the chat stage learns only
the assistant's turn, under the family's chat template and system prompt.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import training.data
from training.data import Examples, build_examples
from training.tokenizer import CONTEXT, read_tokenizer

BATCH = 512
LENGTH_STEP = 32  # sequences are padded to a multiple of this
SORTED_BATCHES = 16  # batches sorted by length together, to pad little
EXAMPLES = 600_000
IGNORED = -100
AVERAGED = 50  # the last steps, whose mean loss is kept


@dataclass(frozen=True)
class Size:
    width: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int  # padded width of the embedding; unequal on purpose, as in Qwen2.5
    base_steps: int
    chat_steps: int
    learning_rate: float = 1.5e-3
    seed: int = 0


SIZES: dict[str, Size] = {
    "tiny-0.3m": Size(80, 3, 5, 1, 784, 1200, 1500, 3e-3),
    "tiny-0.5m": Size(96, 4, 3, 1, 800, 1800, 2200, 2e-3),
    "tiny-0.9m": Size(128, 4, 4, 2, 832, 1500, 2400),
    "tiny-1.6m": Size(160, 5, 5, 1, 896, 1400, 1900),
}


def new_model(size: Size, tokenizer: Any) -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(size.seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=size.vocabulary,
            hidden_size=size.width,
            intermediate_size=3 * size.width,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.kv_heads,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def documents(examples: Examples, tokenizer: Any, stage: str) -> Iterator[tuple[Any, int]]:
    """(ids, start of the loss) of every example, in order."""
    newline = tokenizer.encode("\n", add_special_tokens=False)
    end = {"base": "<|endoftext|>", "chat": "<|im_end|>"}[stage]
    end_id = [tokenizer.convert_tokens_to_ids(end)]
    for index in range(len(examples.solutions)):
        solution = examples.solutions[index]
        if stage == "base":
            yield np.concatenate([examples.questions[index], newline, solution, end_id]), 0
        else:
            prompt = examples.prompts[index]
            yield np.concatenate([prompt, solution, end_id]), len(prompt)


def batches(
    everything: list[tuple[Any, int]], pad_id: int, *, steps: int, batch: int, seed: int
) -> Iterator[Any]:
    """`steps` right-padded batches of (ids, labels), both [batch, L]; reshuffled every epoch.

    A document comes as its ids and where its loss starts.
    """
    lengths = np.array([len(ids) for ids, _ in everything])
    for rows in shuffled_rows(lengths, steps, batch=batch, seed=seed):
        yield _pad([everything[row] for row in rows], pad_id)


def shuffled_rows(lengths: Any, steps: int, *, batch: int, seed: int) -> Iterator[Any]:
    """`steps` batches of row numbers [batch], of like length; reshuffled every epoch."""
    rng = np.random.default_rng(seed)
    made = 0
    while True:
        order = rng.permutation(len(lengths))
        for start in range(0, len(order) - batch * SORTED_BATCHES + 1, batch * SORTED_BATCHES):
            group = order[start : start + batch * SORTED_BATCHES]
            group = group[np.argsort(lengths[group], kind="stable")].reshape(SORTED_BATCHES, batch)
            for rows in rng.permutation(group):
                if made == steps:
                    return
                made += 1
                yield rows


def pad_rows(rows: list[Any], filler: int) -> Any:
    """Sequences as one right-padded int64 array [rows, L]."""
    longest = math.ceil(max(map(len, rows)) / LENGTH_STEP) * LENGTH_STEP
    padded = np.full((len(rows), longest), filler, dtype=np.int64)
    for row, sequence in enumerate(rows):
        padded[row, : len(sequence)] = sequence
    return padded


def _pad(rows: list[tuple[Any, int]], pad_id: int) -> tuple[Any, Any]:
    ids = pad_rows([tokens for tokens, _ in rows], pad_id)
    labels = pad_rows([tokens for tokens, _ in rows], IGNORED)
    for row, (_, loss_from) in enumerate(rows):
        labels[row, :loss_from] = IGNORED
    return ids, labels


def train_stage(
    model: Any, examples: Examples, tokenizer: Any, *, stage: str, steps: int, size: Size
) -> float:
    """Train in place; returns the mean loss of the last steps (nats per learned token)."""
    everything = list(documents(examples, tokenizer, stage))
    seed = size.seed + (stage == "chat")
    return descend(
        list(model.parameters()),
        batches(everything, tokenizer.pad_token_id, steps=steps, batch=BATCH, seed=seed),
        lambda batch: surprise(model, batch),
        peak=size.learning_rate if stage == "base" else size.learning_rate * 0.7,
        steps=steps,
        label=stage,
    ).loss


def surprise(model: Any, batch: Any) -> Any:
    """Mean cross-entropy of the labelled tokens, in nats."""
    import torch
    from torch.nn.functional import cross_entropy

    device = next(model.parameters()).device
    inputs, targets = (torch.from_numpy(part).to(device, non_blocking=True) for part in batch)
    learned = targets[:, 1:] != IGNORED
    return cross_entropy(logits_at(model, inputs, learned), targets[:, 1:][learned])


def logits_at(model: Any, inputs: Any, learned: Any) -> Any:
    """[N, V] float32, what the model says at the positions marked in `learned` [B, L - 1]."""
    with autocast(inputs.device):
        hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state[:, :-1]
        return model.lm_head(hidden[learned]).float()


def autocast(device: Any) -> Any:
    import torch

    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


@dataclass(frozen=True)
class Descent:
    loss: float  # the mean of the last steps
    steps: int
    seconds: float


def descend(
    parameters: list[Any],
    data: Iterator[Any],
    loss_of: Callable[[Any], Any],
    *,
    peak: float,
    steps: int,
    label: str,
    enough: float = 0.0,
    most_seconds: float = math.inf,
) -> Descent:
    """AdamW with warm-up and cosine.

    It ends early where the mean loss comes down to `enough`. Where `most_seconds` will not do for
    all steps, the learning rate comes down in that time instead.
    """
    import torch

    optimizer = torch.optim.AdamW(parameters, lr=peak, betas=(0.9, 0.95), weight_decay=0.01)
    recent: deque[Any] = deque(maxlen=AVERAGED)
    began, made = time.monotonic(), 0
    for step, batch in enumerate(data):
        seconds = time.monotonic() - began
        warm_up, progress = min(1.0, (step + 1) / 100), max(step / steps, seconds / most_seconds)
        if progress >= 1:
            break
        rate = peak * warm_up * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent.append(loss.detach())
        made += 1
        if step % 100 == 0:
            print(f"{label} {step}/{steps} loss {loss.item():.4f} {seconds:.0f} s", flush=True)
        if enough and step % 10 == 9 and len(recent) == AVERAGED and _mean(recent) <= enough:
            break
    return Descent(_mean(recent), made, time.monotonic() - began)


def _mean(losses: Iterable[Any]) -> float:
    import torch

    return float(torch.stack(list(losses)).double().mean())


def save_checkpoint(model: Any, tokenizer: Any, folder: Path, facts: dict[str, Any]) -> None:
    """Half precision; the output layer is the embedding and not stored a second time."""
    weights = {
        key: value.detach().half()
        for key, value in model.state_dict().items()
        if key != "lm_head.weight"
    }
    model.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)
    (folder / "training.json").write_text(json.dumps(facts, indent=2) + "\n")


def train_size(name: str, work: Path, *, device: str) -> None:
    import torch
    from transformers import Qwen2ForCausalLM

    torch.backends.cuda.matmul.allow_tf32 = True
    size = SIZES[name]
    tokenizer = read_tokenizer(work / "tokenizer")
    blocks = EXAMPLES // training.data.BLOCK
    examples = build_examples(work / "tokenizer", blocks, work / "examples.npz")
    model = new_model(size, tokenizer).to(device).train()
    facts: dict[str, Any] = {"parameters": model.num_parameters(), "size": asdict(size), "loss": {}}
    for stage, steps in (("base", size.base_steps), ("chat", size.chat_steps)):
        folder = work / "models" / f"{name}-{stage}"
        if (folder / "training.json").exists():  # an earlier, interrupted call got this far
            facts = json.loads((folder / "training.json").read_text())
            stored: Any = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
            model = stored.to(device).train()
            continue
        facts["loss"][stage] = train_stage(
            model, examples, tokenizer, stage=stage, steps=steps, size=size
        )
        # The weights that go on training stay in float32.
        save_checkpoint(model, tokenizer, folder, facts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", choices=sorted(SIZES))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    train_size(arguments.size, arguments.work, device=arguments.device)
