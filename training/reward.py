"""Train the family's process reward model: is every line up to here right?

    python -m training.reward --work DIR

To check a digit a model must know what it would have written there, and that is only known in its
last layer. So new layers are put on top of a whole chat model: they can compare what the model
expected with what it reads. The layout is Skywork's: begin of text, question, newline, then each
line of the response with its newline, where a value head gives the line's reward.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from divtok.problems.arithmetic import Story, stories
from training.confidences import VERBALIZED, stated_json
from training.data import SEED_OFFSET, TRAINING_LEVELS, Ragged, concatenate
from training.mistakes import Attempt, draw_attempt
from training.solutions import write_solution
from training.tokenizer import END_OF_TEXT, read_tokenizer
from training.train import SIZES, autocast, descend, pad_rows, shuffled_rows

NAME = "tiny-prm"
STARTS_FROM = "tiny-0.5m"
NEW_LAYERS = 3
EXAMPLES = 300_000
BLOCK = 5_000
FIRST_BLOCK = 40_000  # other stories than those of the other stages
UNLABELLED = 2  # beside the labels 0 and 1
IN_JSON = 0.25  # share of responses that end in the JSON of a verbalized protocol


@dataclass(frozen=True)
class Settings:
    batch: int = 256
    steps: int = 5500
    rate: float = 0.7  # of the size's own learning rate
    seed: int = 4
    expecting_weight: float = 0.5  # of the chat model's own task, which must not be forgotten


SETTINGS = Settings()


@dataclass(frozen=True)
class Solved:
    """A response; `wrong_from` is the character at which it first goes wrong, None if never."""

    question: str
    response: str
    wrong_from: int | None

    @property
    def line_labels(self) -> tuple[int, ...]:
        """For each line, whether it and every line before it is right."""
        ends = [match.start() for match in re.finditer(r"\n|\Z", self.response)]
        return tuple(int(self.wrong_from is None or end <= self.wrong_from) for end in ends)


def reward_example(story: Story, rng: random.Random) -> Solved:
    """A response to a story, of any protocol."""
    attempt = draw_attempt(story, rng)
    in_json = rng.random() < IN_JSON
    response = write_solution(story, rng, attempt=attempt, boxed=not in_json)
    wrong_from = _first_wrong_character(response, attempt, story)
    if in_json:
        response += "\n" + stated_json(attempt, rng.choice(VERBALIZED), rng)
    return Solved(story.question, response, wrong_from)


def _first_wrong_character(response: str, attempt: Attempt, story: Story) -> int | None:
    """Where the result of the wrong line, its last number, leaves the true one."""
    line = attempt.first_wrong
    if line is None:
        return None
    lines = response.split("\n")
    true = story.answer if line == len(story.equations) else story.equations[line].result
    *_, result = re.finditer(r"\d+", lines[line])
    pairs = enumerate(zip(result[0], str(true), strict=False))
    differ = next((place for place, (a, b) in pairs if a != b), len(result[0]) - 1)
    before = sum(len(earlier) + 1 for earlier in lines[:line])
    return before + result.start() + differ


def encode_example(tokenizer: Any, solved: Solved) -> tuple[list[int], list[int]]:
    """(ids, label of each token): is the response right up to and with this token?

    What counts is the newline that ends each line, the last one too; that the tokens between have
    labels as well only helps learning. The question has none.
    """
    prompt = tokenizer.encode(f"{END_OF_TEXT}{solved.question}\n", add_special_tokens=False).ids
    encoded = tokenizer.encode(solved.response + "\n", add_special_tokens=False)
    right_until = float("inf") if solved.wrong_from is None else solved.wrong_from
    labels = [int(stop <= right_until) for _, stop in encoded.offsets]
    return [*prompt, *encoded.ids], [UNLABELLED] * len(prompt) + labels


def newline_id(tokenizer: Any) -> int:
    return tokenizer.encode("\n", add_special_tokens=False).ids[0]


def write_block(block: int) -> list[Solved]:
    """BLOCK responses of one seeded stream."""
    seed = SEED_OFFSET + FIRST_BLOCK + block
    rng = random.Random(seed)
    return [
        reward_example(story, rng)
        for story in islice(stories(seed, "train", TRAINING_LEVELS), BLOCK)
    ]


def build_rewards(tokenizer_folder: Path, count: int, cache: Path) -> tuple[Ragged, Ragged]:
    """(ids, labels) of `count` examples, encoded; kept in `cache`."""
    if not cache.exists():
        with ProcessPoolExecutor() as pool:
            encode = partial(_encode_block, tokenizer_folder=tokenizer_folder)
            blocks = list(pool.map(encode, range(count // BLOCK)))
        ids, labels = (concatenate([block[part] for block in blocks]) for part in (0, 1))
        np.savez(cache, ids=ids.flat, labels=labels.flat, offsets=ids.offsets)
    stored = np.load(cache)
    offsets = stored["offsets"]
    return Ragged(stored["ids"], offsets), Ragged(stored["labels"], offsets)


def _encode_block(block: int, *, tokenizer_folder: Path) -> tuple[list[Any], list[Any]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    encoded = [encode_example(tokenizer, solved) for solved in write_block(block)]
    ids, labels = ([np.asarray(row[part], dtype=np.uint16) for row in encoded] for part in (0, 1))
    return ids, labels


def batches(ids: Ragged, labels: Ragged, pad_id: int, settings: Settings) -> Iterator[Any]:
    """`steps` right-padded batches of (ids, labels), both [batch, L]."""
    for rows in shuffled_rows(
        ids.lengths, settings.steps, batch=settings.batch, seed=settings.seed
    ):
        yield (
            pad_rows([ids[row] for row in rows], pad_id),
            pad_rows([labels[row] for row in rows], UNLABELLED),
        )


def taller(model: Any, layers: int) -> Any:
    """The backbone of a chat model with new layers on top that at first change nothing."""
    import torch
    from transformers import Qwen2Config, Qwen2Model

    settings = model.config.to_dict()
    old = settings["num_hidden_layers"]
    settings["num_hidden_layers"] = old + layers
    settings["layer_types"] = ["full_attention"] * (old + layers)
    backbone: Any = Qwen2Model(Qwen2Config(**settings))
    backbone.load_state_dict(model.model.state_dict(), strict=False)
    for layer in backbone.layers[old:]:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    return backbone


def train_reward(work: Path, *, device: str, settings: Settings = SETTINGS) -> None:
    import torch
    from transformers import Qwen2ForCausalLM

    folder = work / "models" / NAME
    if (folder / "training.json").exists():
        return
    torch.manual_seed(settings.seed)
    tokenizer = read_tokenizer(work / "tokenizer")
    ids, labels = build_rewards(work / "tokenizer", EXAMPLES, work / "rewards.npz")
    start = work / "models" / f"{STARTS_FROM}-chat"
    chat: Any = Qwen2ForCausalLM.from_pretrained(start, dtype=torch.float32)
    backbone = taller(chat, NEW_LAYERS).to(device).train()
    head = torch.nn.Linear(backbone.config.hidden_size, 1).to(device)
    norm = copy.deepcopy(chat.model.norm).to(device)  # before what the chat model expects is read
    newline = newline_id(tokenizer.backend_tokenizer)
    peak = SIZES[STARTS_FROM].learning_rate * settings.rate
    loss = descend(
        [*backbone.parameters(), *head.parameters(), *norm.parameters()],
        batches(ids, labels, tokenizer.pad_token_id, settings),
        lambda batch: reward_loss(backbone, head, norm, batch, newline, settings),
        peak=peak,
        steps=settings.steps,
        label="reward",
    ).loss
    facts = {
        "parameters": sum(p.numel() for p in (*backbone.parameters(), *head.parameters())),
        "starts_from": STARTS_FROM,
        "new_layers": NEW_LAYERS,
        "reward": asdict(settings) | {"learning_rate": peak},
        "loss": {"reward": loss},
    }
    print(NAME, facts["loss"], flush=True)
    save_reward_model(backbone, head, tokenizer, folder, facts)


def reward_loss(
    backbone: Any, head: Any, norm: Any, batch: Any, newline: int, settings: Settings
) -> Any:
    """At line ends, at all tokens of the response, and what the lower layers expect to read."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear

    device = head.weight.device
    inputs, labels = (torch.from_numpy(part).to(device, non_blocking=True) for part in batch)
    labelled = labels != UNLABELLED
    with autocast(device):
        read = backbone(input_ids=inputs, use_cache=False, output_hidden_states=True)
        values = head(read.last_hidden_state[labelled]).squeeze(-1)
        expecting = norm(read.hidden_states[-1 - NEW_LAYERS][:, :-1][labels[:, 1:] == 1])
        expected = linear(expecting, backbone.embed_tokens.weight)
    surprise = binary_cross_entropy_with_logits(
        values.float(), labels[labelled].float(), reduction="none"
    )
    written = cross_entropy(expected.float(), inputs[:, 1:][labels[:, 1:] == 1])
    ends = inputs[labelled] == newline
    return surprise[ends].mean() + surprise.mean() + settings.expecting_weight * written


def save_reward_model(
    backbone: Any, head: Any, tokenizer: Any, folder: Path, facts: dict[str, Any]
) -> None:
    """Skywork's layout: the backbone as `model.*`, the value head as `v_head.summary.*`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {f"model.{key}": value for key, value in backbone.state_dict().items()}
    weights |= {f"v_head.summary.{key}": value for key, value in head.state_dict().items()}
    halves = {key: value.detach().half().cpu().contiguous() for key, value in weights.items()}
    save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    config = backbone.config.to_diff_dict() | {
        "architectures": ["Qwen2ForPrmModel"],
        "bos_token_id": tokenizer.convert_tokens_to_ids(END_OF_TEXT),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tokenizer.bos_token = END_OF_TEXT
    tokenizer.save_pretrained(folder)
    (folder / "training.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=SETTINGS.steps)
    arguments = parser.parse_args()
    train_reward(
        arguments.work,
        device=arguments.device,
        settings=replace(SETTINGS, steps=arguments.steps),
    )
