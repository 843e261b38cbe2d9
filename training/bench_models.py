"""One model of a bench family, or the levels that its generator makes benchmarks of.

    python -m training.bench_models TASK ROLE --work DIR

ROLE is generator, middle or small (trained from scratch in the chat format), half (distilled from
the generator), or levels. What is in DIR already is kept.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from divtok.problems.arithmetic import Split
from divtok.protocols.prompts import messages_for
from training.bench_settings import AIMED_AT, ROLES, Amounts, Bench, Role, amounts, bench
from training.data import SEED_OFFSET, Examples, WriteBlock, build_examples
from training.distil import distil, mean_divergence, with_layers
from training.export import rewrite
from training.sampling import sample_ids
from training.tasks import TASKS
from training.tasks.task import Task, cases
from training.tokenizer import TURN_END, read_tokenizer, render_chat
from training.train import (
    Size,
    batches,
    descend,
    documents,
    new_model,
    save_checkpoint,
    surprise,
)

LEVELS = "levels"
SAMPLED_TOGETHER = 1536


def model_folder(work: Path, task: str, role: Role) -> Path:
    return work / "models" / f"{task}-{role}"


def write_task_block(block: int, *, task: str, size: int) -> list[tuple[str, str]]:
    """(question, solution) pairs of one seeded stream of all levels."""
    found = TASKS[task]
    rng = random.Random(SEED_OFFSET + block)
    stream = cases(found, SEED_OFFSET + block, "train", range(found.levels))
    return [(case.question, found.write(case, rng)) for case in islice(stream, size)]


def block_writer(task: str, much: Amounts) -> WriteBlock:
    return partial(write_task_block, task=task, size=much.block)


def task_examples(work: Path, task: str, much: Amounts, *, workers: int | None = None) -> Examples:
    return build_examples(
        work / task / "tokenizer",
        much.blocks,
        work / task / "examples.npz",
        write=block_writer(task, much),
        workers=workers,
    )


def train_role(
    work: Path, task: str, role: Role, settings: Bench, much: Amounts, device: str
) -> None:
    """Train one of the models from scratch; the small one only as far as the gap says."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    size: Size = getattr(settings, role)
    tokenizer = read_tokenizer(work / task / "tokenizer")
    everything = list(documents(task_examples(work, task, much), tokenizer, "chat"))
    model = new_model(size, tokenizer).to(device).train()
    enough = 0.0
    if role == "small":
        enough = settings.gap * _facts(work, task, "generator")["loss"]
    done = descend(
        list(model.parameters()),
        batches(
            everything,
            tokenizer.pad_token_id,
            steps=size.chat_steps,
            batch=much.batch,
            seed=size.seed,
        ),
        lambda batch: surprise(model, batch),
        peak=size.learning_rate,
        steps=size.chat_steps,
        label=f"{task} {role}",
        enough=enough,
        most_seconds=much.most_seconds_small if role == "small" else much.most_seconds,
    )
    made = {"parameters": model.num_parameters(), "size": asdict(size), **asdict(done)}
    _save(model, tokenizer, model_folder(work, task, role), made)


def train_half(work: Path, task: str, settings: Bench, much: Amounts, device: str) -> None:
    """Distil the generator on its own responses to problems of the training split."""
    tokenizer = read_tokenizer(work / task / "tokenizer")
    teacher = _load(model_folder(work, task, "generator"), device).eval().requires_grad_(False)
    found = TASKS[task]
    problems = _questions(found, settings.seed + 1, "train", range(found.levels), much.distilled)
    began = time.monotonic()
    prompts = [render_chat(messages_for(question)) for question, _ in problems]
    responses = _sampled(teacher, tokenizer, prompts, settings, much)
    sampling = time.monotonic() - began
    student = with_layers(teacher, settings.kept_layers).train().requires_grad_(True)
    pad_id = tokenizer.pad_token_id
    before = mean_divergence(teacher, student, responses, pad_id, batch=much.distil_batch)
    done = distil(
        teacher,
        student,
        responses,
        pad_id,
        steps=much.distil_steps,
        batch=much.distil_batch,
        peak=much.distil_rate,
        seed=settings.seed,
        label=f"{task} half",
        most_seconds=much.most_seconds_small,
    )
    made = {
        "parameters": student.num_parameters(),
        "distilled_from": "generator",
        "kept_layers": settings.kept_layers,
        "responses": len(responses),
        "sampling_seconds": sampling,
        "kl_nats_before": before,
        "kl_nats": done.loss,
        "steps": done.steps,
        "seconds": done.seconds,
    }
    _save(student, tokenizer, model_folder(work, task, "half"), made)


def settle_levels(work: Path, task: str, settings: Bench, much: Amounts, device: str) -> None:
    """Which two levels become benchmarks: those whose accuracies come near to what is aimed at.

    Probed on problems of the fitting split that the fitting set does not start with.
    """
    tokenizer = read_tokenizer(work / task / "tokenizer")
    model = _load(model_folder(work, task, "generator"), device).eval().requires_grad_(False)
    found = TASKS[task]
    accuracies: list[float] = []
    tokens: list[float] = []
    levels = range(found.levels)
    probes = [
        probe
        for level in levels
        for probe in _questions(found, settings.seed + 7, "fit", [level], much.probes)
    ]
    prompts = [render_chat(messages_for(question)) for question, _ in probes]
    responses = _sampled(model, tokenizer, prompts, settings, much)
    for level in levels:
        here = slice(level * much.probes, (level + 1) * much.probes)
        written = [ids[start:] for ids, start in responses[here]]
        texts = tokenizer.batch_decode(written, skip_special_tokens=False)
        pairs = zip(texts, probes[here], strict=True)
        right = [boxed(text) == answer for text, (_, answer) in pairs]
        accuracies.append(float(np.mean(right)))
        tokens.append(float(np.mean([len(ids) for ids in written])))
    chosen = choose_levels(accuracies)
    report = {"accuracy": accuracies, "mean_tokens": tokens, "chosen": chosen}
    print(f"{task} levels {json.dumps(report)}", flush=True)
    _levels_file(work, task).write_text(json.dumps(report, indent=2) + "\n")


def boxed(text: str) -> str | None:
    found = re.findall(r"\\boxed\{([^{}]*)\}", text.partition(TURN_END)[0])
    return found[-1] if found else None


def choose_levels(accuracies: Sequence[float]) -> tuple[int, int]:
    """An easier and a harder level, by the accuracies on them."""
    pairs = [(i, j) for i in range(len(accuracies)) for j in range(i + 1, len(accuracies))]
    easy, hard = AIMED_AT
    return min(pairs, key=lambda p: abs(accuracies[p[0]] - easy) + abs(accuracies[p[1]] - hard))


def chosen_levels(work: Path, task: str) -> dict[str, Any]:
    return json.loads(_levels_file(work, task).read_text())


def _levels_file(work: Path, task: str) -> Path:
    return work / task / "levels.json"


def _questions(
    task: Task[Any], seed: int, split: Split, levels: Sequence[int], count: int
) -> list[tuple[str, str]]:
    stream = cases(task, seed, split, levels)
    return [(case.question, case.answer) for case in islice(stream, count)]


def _sampled(
    model: Any, tokenizer: Any, prompts: Sequence[str], settings: Bench, much: Amounts
) -> list[tuple[Any, int]]:
    """Ids of prompt and response, and where the response starts."""
    found: list[tuple[Any, int]] = []
    for start in range(0, len(prompts), SAMPLED_TOGETHER):
        chunk = prompts[start : start + SAMPLED_TOGETHER]
        responses = sample_ids(
            model,
            tokenizer,
            chunk,
            seed=settings.seed + start,
            most_new_tokens=much.most_new_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
        )
        for prompt, response in zip(chunk, responses, strict=True):
            asked = tokenizer(prompt, add_special_tokens=False)["input_ids"]
            found.append((np.concatenate([np.asarray(asked), response]), len(asked)))
    return found


def _load(folder: Path, device: str) -> Any:
    import torch
    from transformers import Qwen2ForCausalLM

    model: Any = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.to(device)


def _facts(work: Path, task: str, role: Role) -> dict[str, Any]:
    return json.loads((model_folder(work, task, role) / "training.json").read_text())


def _save(model: Any, tokenizer: Any, folder: Path, facts: dict[str, Any]) -> None:
    save_checkpoint(model, tokenizer, folder, facts)
    rewrite(folder / "config.json", {"dtype": "float16"})  # as the weights in the file are
    print(f"{folder.name} {json.dumps(facts)}", flush=True)


def make(work: Path, task: str, role: str, *, device: str, small: bool = False) -> None:
    settings, much = bench(task, small=small), amounts(small=small)
    if role == LEVELS:
        if not _levels_file(work, task).exists():
            settle_levels(work, task, settings, much, device)
        return
    known: Role = next(each for each in ROLES if each == role)
    if (model_folder(work, task, known) / "training.json").exists():
        return
    if known == "half":
        train_half(work, task, settings, much, device)
    else:
        train_role(work, task, known, settings, much, device)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("role", choices=[*ROLES, LEVELS])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    make(
        arguments.work,
        arguments.task,
        arguments.role,
        device=arguments.device,
        small=arguments.small,
    )
