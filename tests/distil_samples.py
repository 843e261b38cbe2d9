"""Random models of four layers with responses of their own, to make smaller copies of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from trace_samples import byte_level_tokenizer, tiny_config, trajectory

from divtok.config.run import load_config, to_yaml
from divtok.records import Problem, Trajectory
from divtok.store.run import Run, check_or_write_manifest

LAYERS = 4
_STACK = re.compile(r"((?:^|\.)(?:layers|h)\.)(\d+)\.")


def deep_config(architecture: str, vocab_size: int, width: int = 32, **changes: Any) -> Any:
    """As `tiny_config`, with four layers."""
    from transformers import AutoConfig

    said = tiny_config(architecture, vocab_size, width).to_dict()
    text = said.get("text_config", said)
    for name in ("layer_types", "no_rope_layers"):
        text.pop(name, None)  # made anew for four layers
    text["n_layer" if architecture == "gpt2" else "num_hidden_layers"] = LAYERS
    text |= changes
    said.pop("model_type")
    return AutoConfig.for_model(architecture, **said)


def save_deep(folder: Path, architecture: str = "qwen2", seed: int = 0, **changes: Any) -> Any:
    """A model of four layers in a folder; gives the model itself, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    torch.manual_seed(seed)
    config = deep_config(architecture, len(tokenizer) + 21, **changes)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def cut_by_hand(model: Any, layers: Sequence[int]) -> Any:
    """Transformers' own model with these layers of another one, put together key by key."""
    config = type(model.config).from_dict(model.config.to_dict())
    text = config.get_text_config()
    for name in ("layer_types", "no_rope_layers"):
        known = getattr(text, name, None)
        if known:
            setattr(text, name, [known[layer] for layer in layers])
    text.num_hidden_layers = len(layers)
    cut = type(model)(config).float().eval()
    weights = {}
    for name, weight in model.state_dict().items():
        found = None if "vision" in name else _STACK.search(name)
        if found is None:
            weights[name] = weight
        elif int(found[2]) in layers:
            place = layers.index(int(found[2]))
            weights[f"{name[: found.start(2)]}{place}{name[found.end(2) :]}"] = weight
    cut.load_state_dict(weights)
    return cut


def responses(
    generator: str, *, problems: int = 6, samples: int = 2, tokens: int = 12, seed: int = 0
) -> list[Trajectory]:
    """Responses of random tokens."""
    rng = np.random.default_rng(seed)
    return [
        replace(
            trajectory(
                f"{generator}/{problem}/{sample}",
                rng.integers(3, 250, 5).tolist(),
                rng.integers(3, 250, tokens + problem).tolist(),
            ),
            problem_id=str(problem),
            sample=sample,
            generator=generator,
        )
        for problem in range(problems)
        for sample in range(samples)
    ]


def run_of(folder: Path, generator: str, rows: Sequence[Trajectory] | None = None) -> Run:
    """A run with these responses, by default random ones."""
    rows = responses(generator) if rows is None else rows
    run = Run.create_or_open(folder)
    with run.lock():
        check_or_write_manifest(run, {"made": "by hand"})
        run.write_config(
            to_yaml(load_config(None, [f"generators=['{generator}']", "benchmarks=['amc23']"]))
        )
        known = sorted({(row.benchmark, row.problem_id) for row in rows})
        run.problems.append([Problem(p, b, f"Question {p}?", "1") for b, p in known])
        run.trajectories.append(list(rows))
    return run
